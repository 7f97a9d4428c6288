"""Files of one job in every command, one error of all that is unknown, and options without effect."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ..rows import mark_most

Run = Callable[..., Any]

#: The public shape of Llama 3 8B, and its launch on 8 devices without the model.
CONFIG = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "max_position_embeddings": 8192,
}
LAUNCH = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 8,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 1},
}
FILES = {"config.json": json.dumps(CONFIG), "ds.json": json.dumps(LAUNCH)}
MACHINE = (
    *("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100"),
    *("--set", "cluster.devices=8", "--set", "training.sequence=4096"),
)


@pytest.mark.slow
def test_files_of_one_job_are_one_number_in_every_command(run_command: Run) -> None:
    both = ("config.json", "ds.json")
    figures = run_command("figures", *MACHINE, *both, "step_time", files=FILES)
    assert figures.code == 0, figures.err
    report = json.loads(run_command("eval", *MACHINE, *both, "--format", "json").out)
    assert len(report["reports"]) == 1
    explained = run_command("explain", *MACHINE, *both, "step_time")
    assert explained.code == 0, explained.err
    checked = run_command("check", *MACHINE, *both)
    assert checked.code == 0, checked.out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "fabric"),
    [
        *(("a100_sxm_80g", "dgx_a100"), ("mi300x", "mi300x_node"), ("h100_sxm", "hgx_h100")),
        ("a100_pcie_40g", "pcie4_roce_200g"),  # extends a device on NVLink
    ],
)
def test_the_fabric_to_add_is_that_of_the_device(
    run_command: Run, device: str, fabric: str
) -> None:
    """It is copied: an A100 on the links of an H100 would be a wrong answer without a word."""
    options = ("--use", f"catalog.devices.{device}", *MACHINE[4:])
    done = run_command("eval", *options, "config.json", "ds.json", files=FILES)
    assert done.code == 2
    assert f"help: add options such as --use catalog.fabrics.{fabric}\n" in done.err


@pytest.mark.slow
def test_a_device_without_a_fabric_in_the_catalogue_has_one_to_choose(run_command: Run) -> None:
    """AWS Trainium on the links of an H100 would be another machine."""
    for device in ("trainium1", "inferentia2"):
        options = ("--use", f"catalog.devices.{device}", *MACHINE[4:])
        done = run_command("eval", *options, "config.json", "ds.json", files=FILES)
        assert "help: add options such as --use catalog.fabrics.NAME\n" in done.err, device


MINIMAL = (Path(__file__).parents[2] / "specs/examples/minimal.par").read_text("utf-8")


@pytest.mark.slow
def test_an_option_that_no_file_reads_is_a_warning(run_command: Run) -> None:
    files = ("config.json", "ds.json")
    done = run_command("check", *MACHINE, "--recipe", "x", *files, files=FILES)
    assert "warning[import-option]: `--recipe x` has no effect" in " ".join(done.out.split())
    spec = run_command("check", "job.par:x", "--as", "llama", files={"job.par": MINIMAL})
    for option in ("--recipe x", "--as llama"):
        assert f"`{option}` has no effect on `job.par`" in " ".join(spec.out.split())
    assert "import-option" not in run_command("check", *MACHINE, *files).out


@pytest.mark.slow
def test_all_questions_are_one_error(run_command: Run) -> None:
    launch = {
        **LAUNCH,
        "train_micro_batch_size_per_gpu": "auto",
        "zero_optimization": {"stagee": 1},
    }
    files = {**FILES, "ds.json": json.dumps(launch)}
    done = run_command("eval", *MACHINE, "config.json", "ds.json", files=files)
    assert done.code == 2
    assert done.err.count("error[import-question]") == 1
    assert "`training.micro_batch`" in done.err
    assert "`training.precision`" in done.err
    assert "--set training.micro_batch=1" in " ".join(done.err.split())


CHOSEN = """if [ $SIZE = small ]; then
  LAYERS=8
  WIDTH=512
elif [ $SIZE = large ]; then
  LAYERS=80
  WIDTH=8192
fi
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers $LAYERS --hidden-size $WIDTH \\
  --num-attention-heads 8 --seq-length 2048 --vocab-size 32000 --micro-batch-size 1 --bf16
"""


def test_a_variable_of_a_script_is_one_question(run_command: Run) -> None:
    done = run_command("eval", *MACHINE, "run.sh", files={"run.sh": CHOSEN})
    text = " ".join(done.err.split())
    assert "`model.layers`, `model.hidden`: `--num-layers ${LAYERS}`" in text
    assert done.err.count("--set-env SIZE=large") == 1
    assert text.rstrip().endswith("help: add options such as --set-env SIZE=small")


@pytest.mark.slow
def test_a_name_of_a_block_that_a_file_lacks_is_no_error_of_its_own(run_command: Run) -> None:
    """Buckets of ZeRO 3 are elements of the type of the reduction, which `training` names."""
    launch = {"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 1}
    done = run_command("eval", *MACHINE, "ds.json", files={"ds.json": json.dumps(launch)})
    assert done.code == 2
    assert "unknown-name" not in done.err
    assert "is not a complete job; missing: `training.model`" in " ".join(done.err.split())


@pytest.mark.slow
def test_a_system_takes_the_devices_of_the_launcher(run_command: Run) -> None:
    """16 ranks of the file on nodes of the system, which has 8 devices by itself."""
    script = """NPROC_PER_NODE=8 NNODES=2 swift sft --model Qwen/Qwen3-8B --train_type full \\
 --torch_dtype bfloat16 --max_length 4096 --packing true --per_device_train_batch_size 1 \\
 --gradient_accumulation_steps 4 --deepspeed zero3
"""
    system = ("--use", "catalog.systems.dgx_h100")
    done = run_command("eval", "run.sh", *system, "--format", "json", files={"run.sh": script})
    assert done.code == 0
    figures = json.loads(done.out)["reports"][0]["results"][0]["figures"]
    total, each = (figures[f"tokens_per_second{end}"]["value"] for end in ("", "_per_device"))
    assert total / each == pytest.approx(16)


STARTER = """\
#!/bin/bash
#SBATCH --nodes=2
srun bash -c 'docker run image bash -c "TP=4 BATCH=64 bash examples/train.sh"'
"""
TRAINING = """\
torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 pretrain_gpt.py --num-layers 24 \\
  --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --vocab-size 50257 --bf16 \\
  --tensor-model-parallel-size ${TP:-1} --micro-batch-size 1 --global-batch-size ${BATCH:-8}
"""


def test_a_script_that_starts_another_has_its_format(run_command: Run) -> None:
    files = {"job.slurm": STARTER, "train.sh": TRAINING}
    done = run_command("import", "job.slurm", files=files)
    assert done.code == 0, done.err
    values = dict(line.split("=", 1) for line in done.out.splitlines() if " = " in line)
    found = {
        name.strip(): value.split("#")[0].split("@")[0].strip() for name, value in values.items()
    }
    assert (found["devices"], found["tp"]) == ("16", "4")
    assert found["global_batch"] == "64 sequences"


def test_a_script_that_is_not_beside_the_one_that_starts_it_is_named(run_command: Run) -> None:
    done = run_command("eval", "job.slurm", files={"job.slurm": STARTER})
    assert done.code == 2
    text = " ".join(done.err.split())
    assert "`job.slurm` starts another file, which describes the job: `examples/train.sh`" in text
    assert (
        "put `examples/train.sh` into the folder of `job.slurm`, or evaluate `examples/train.sh` with --set"
        in text
    )


def test_the_word_tensor_within_another_word_asks_for_no_degree(run_command: Run) -> None:
    flags = (
        "--model_name_or_path m --per_device_train_batch_size 8 --enable_tensorboard --tensor_x 1"
    )
    done = run_command("import", "run.sh", files={"run.sh": f"deepspeed main.py {flags}\n"})
    text = " ".join(done.err.split())
    assert "`tensor_x`, which is not in parcost's table" in text
    assert "`enable_tensorboard`, which is not in parcost's table" not in text


def test_a_script_names_the_configuration_that_it_launches(run_command: Run) -> None:
    script = "srun -N 8 torchrun --nproc_per_node 8 train.py --config_file ./cfg/llama.toml\n"
    done = run_command("eval", "job.sh", files={"job.sh": script})
    assert "which describes the job: `./cfg/llama.toml`" in " ".join(done.err.split())


@pytest.mark.parametrize(
    "script",
    mark_most(
        [
            "torchrun --nproc_per_node=8 pretrain.py --config-file conf/run.yaml\n",
            'CONFIG_FILE="conf/run.yaml" NGPU=8 ./run_train.sh --training.local_batch_size 2\n',
            "EXP=conf/run.yaml bash ./run_pretrain.sh\n",
        ],
        3,
    ),
)
def test_a_script_names_the_configuration_beside_it(run_command: Run, script: str) -> None:
    done = run_command("eval", "job.sh", files={"job.sh": script, "conf/run.yaml": "a: 1\n"})
    text = " ".join(done.err.split())
    assert "evaluate `conf/run.yaml`, and repeat with --set what the command changes of it" in text


def test_a_module_with_its_configuration_is_named(run_command: Run) -> None:
    script = "torchrun --nproc_per_node=8 -m own.train --job_config_file run.toml --a.b 2\n"
    done = run_command("eval", "job.sh", files={"job.sh": script, "run.toml": "a = 1\n"})
    assert "evaluate `run.toml`, and repeat with --set" in " ".join(done.err.split())


def test_all_configurations_of_a_command_are_in_the_help(run_command: Run) -> None:
    """The second file has keys that the first does not have, such as the batch."""
    script = "python start.py train.py -d . run.yml local.yml\n"
    files = {"job.sh": script, "run.yml": "a: 1\n", "local.yml": "b: 1\n"}
    text = " ".join(run_command("eval", "job.sh", files=files).err.split())
    assert (
        "evaluate `run.yml`, and repeat with --set what `local.yml` and the command change" in text
    )


@pytest.mark.slow
def test_a_command_of_axolotl_with_a_batch_is_its_own(run_command: Run) -> None:
    done = run_command("eval", "j.sh", files={"j.sh": "axolotl train a.yml --micro-batch-size 4\n"})
    assert "keys of 2 formats" not in done.err
    assert "a.yml" in done.err


@pytest.mark.parametrize("written", [True, False])
def test_a_script_with_its_configuration_lacks_no_other_file(
    run_command: Run, written: bool
) -> None:
    """`train.py` is not known, and `ds.json` in the folder would change nothing."""
    settings = '{"train_batch_size": 64, "zero_optimization": {"stage": 2}}\n'
    script = "deepspeed train.py --deepspeed ds.json\n"
    if written:
        files = {"job.sh": f"cat > ds.json <<EOT\n{settings}EOT\n{script}"}
    else:
        files = {"job.sh": script, "ds.json": settings}
    done = run_command("eval", "job.sh", files=files)
    assert done.code == 2
    assert (
        "`train.py`, which the script starts, belongs to no tool that parcost imports" in done.err
    )


@pytest.mark.parametrize(
    ("words", "missing"),
    mark_most(
        [
            *(("--deepspeed ds_config.json", ""), ("--ds_config_path conf/ds.json --lr 1", "")),
            *(
                ("--deepspeed_config=zero2.json --data_path alpaca.json", ""),
                ("--config ds.json", ""),
            ),
            *(
                ("--train_file a.json --model_config_file m.json", ""),
                ("conf/run.yaml", "conf/run.yaml"),
            ),
            *(("--config a.yaml --deepspeed b.json", "a.yaml"), ("model.config=a.yaml", "")),
            *(("experiment=b.yaml", "b.yaml"), ("-c train.toml", "train.toml")),
        ]
    ),
)
def test_only_a_configuration_of_the_job_is_one_that_has_it(
    run_command: Run, words: str, missing: str
) -> None:
    """A file of DeepSpeed, of data or of a model is not where the settings of `train.py` are."""
    script = f"deepspeed --num_gpus 8 train.py {words}\n"
    done = run_command("eval", "job.sh", files={"job.sh": script})
    assert done.code == 2
    text = " ".join(done.err.split())
    if missing:
        assert f"which describes the job: `{missing}`" in text
    else:
        assert "belongs to no tool that parcost imports" in text


def test_the_configuration_of_a_launcher_does_not_have_the_job(run_command: Run) -> None:
    script = "accelerate launch --config_file fsdp.yaml --num_processes 8 train.py --lr 1e-4\n"
    done = run_command("eval", "job.sh", files={"job.sh": script})
    assert "belongs to no tool that parcost imports" in " ".join(done.err.split())


@pytest.mark.parametrize("command", ["import", "eval", "check"])
def test_an_entry_that_the_catalogue_lacks_is_an_error(run_command: Run, command: str) -> None:
    options = [*MACHINE, "--use", "catalog.precisions.bf17"]
    done = run_command(command, "config.json", "--use", "ds.json", *options, files=FILES)
    assert done.code == 2
    assert (done.out + done.err).count("the catalogue has no `catalog.precisions.bf17`") == 1


NODES_OF_FOUR = {
    "train.sh": "torchrun --nnodes 4 --nproc_per_node 4 pretrain_gpt.py \\\n  --num-layers 2 --hidden-size 64"
    " --num-attention-heads 2 --tensor-model-parallel-size 2 --vocab-size 512 --seq-length 64"
    " --micro-batch-size 1 --global-batch-size 16 --bf16\n",
    "job.sbatch": "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --gpus-per-node=4\n"
    "srun python pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 2 "
    "--tensor-model-parallel-size 2 --vocab-size 512 --seq-length 64 --micro-batch-size 1 "
    "--global-batch-size 16 --bf16\n",
    "run.yml": '{"pipe_parallel_size": 1, "num_layers": 2, "hidden_size": 64, "seq_length": 64,\n'
    '"num_attention_heads": 2, "num_nodes": 4, "num_gpus": 4, "tokenizer_type": "HFGPT2Tokenizer",\n'
    '"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}}\n',
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NODES_OF_FOUR)
def test_nodes_of_another_size_are_named_until_they_are_set(run_command: Run, name: str) -> None:
    """The fabric of the command line has nodes of 8 devices."""
    machine = ("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100")
    text = NODES_OF_FOUR[name]
    note = "nodes of 4 devices: add --set node.size=4 if the fabric has other nodes"
    assert note in " ".join(run_command("import", name, files={name: text}).err.split())
    assert note in run_command("check", name, *machine, files={name: text}).out
    key = {"train.sh": "`--nproc_per_node 4`", "job.sbatch": "`#SBATCH --gpus-per-node`"}.get(
        name, "`num_gpus`"
    )
    shown = run_command("eval", name, *machine, files={name: text}).out
    assert key in " ".join(shown.split())
    answer = run_command("check", name, *machine, "--set", "node.size=4", files={name: text})
    assert answer.code == 0
    assert "node.size" not in answer.out
    eight = text.replace("per_node 4", "per_node 8").replace("node=4", "node=8")
    eight = eight.replace('"num_gpus": 4', '"num_gpus": 8')
    assert "node.size" not in run_command("import", name, files={name: eight}).err
    alone = text.replace("nnodes 4", "nnodes 1").replace("nodes=4", "nodes=1")
    alone = alone.replace('"num_nodes": 4', '"num_nodes": 1')
    assert "node.size" not in run_command("import", name, files={name: alone}).err


def test_one_node_of_more_than_eight_devices_is_named(run_command: Run) -> None:
    text = NODES_OF_FOUR["train.sh"].replace(
        "nnodes 4 --nproc_per_node 4", "standalone --nproc_per_node 16"
    )
    note = "nodes of 16 devices: add --set node.size=16 if the fabric has other nodes"
    done = run_command("import", "train.sh", files={"train.sh": text})
    assert note in " ".join(done.err.split())


def test_the_folder_of_the_launch_is_no_part_of_a_name(run_command: Run) -> None:
    script = "export C=${PWD}/configs/a.json\nsrun python start.py train.py ${C}\n"
    done = run_command("eval", "run.sh", files={"run.sh": script})
    assert "starts another file, which describes the job: `configs/a.json`" in done.err


def test_a_level_of_the_fabric_is_set_where_the_spec_is_evaluated(run_command: Run) -> None:
    """A block `node` in a spec would be an error."""
    name, text = next(iter(NODES_OF_FOUR.items()))
    done = run_command("import", name, "--set", "node.size=4", files={name: text})
    assert (done.code, done.out) == (2, "")
    assert "an imported spec has no block `node`" in done.err
    assert run_command("import", name, "--set", "layout.pp=2", files={name: text}).code == 0


@pytest.mark.slow
def test_questions_and_missing_attributes_are_listed_in_one_round(run_command: Run) -> None:
    auto = {"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3}}
    auto |= {"bf16": {"enabled": "auto"}, "train_batch_size": "auto"}
    machine = ("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100")
    asked = run_command("eval", *machine, "ds.json", files={"ds.json": json.dumps(auto)})
    assert "`training.micro_batch` is not known" in asked.err
    missing = "missing: `cluster.devices`, `training.model`, `training.precision`, "
    assert missing + "`training.sequence`, `training.global_batch`" in asked.err
    answers = ("--set", "training.micro_batch=1", "--set", "cluster.devices=8")
    answers += ("--use", "catalog.models.llama31_8b", "--use", "catalog.precisions.bf16")
    answers += ("--set", "training.sequence=4096", "--set", "training.global_batch=8 sequences")
    assert run_command("eval", *machine, *answers, "ds.json").code == 0


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("while true; do GPUS=$((GPUS + 1)); done", "$GPUS`: `GPUS` is set inside a loop"),
        ("GPUS=$((8 / 0))", "$((8 / 0))`: `8 / 0` is not read"),
    ],
)
def test_a_question_for_devices_has_the_reason(run_command: Run, line: str, why: str) -> None:
    script = f"GPUS=8\n{line}\ntorchrun --nproc_per_node $GPUS --nnodes 8 pretrain_gpt.py --bf16 "
    script += "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 "
    script += "--micro-batch-size 1 --global-batch-size 8 --vocab-size 128\n"
    done = run_command("check", "run.sh", files={"run.sh": script})
    assert f"`cluster.devices` is not known: `--nproc_per_node {why}" in done.out
    assert "missing: `cluster.device`, `cluster.fabric`" in done.out  # and not the devices again


@pytest.mark.parametrize(
    ("script", "message", "help"),
    mark_most(
        [
            (
                "torchrun --nproc_per_node $N src/fsdp.py --batch_size 4 $MORE\n",
                "`src/fsdp.py`, which the script starts, belongs to no tool that parcost imports",
                "evaluate the `config.json` of its model, and state the rest",
            ),
            (
                "python prepare.py\nsrun accelerate launch --multi_gpu -m own.train\npython show.py\n",
                "`own.train`, which the script starts, belongs to no tool",
                "evaluate the `config.json` of its model",
            ),
            (
                "read -r -a ALL < flags\ntorchrun pretrain_own.py ${ALL[@]} --save out\n",
                "`pretrain_own.py` has the arguments `${ALL[@]}`: `ALL` is changed by `read`",
                "write them into the script",
            ),
            (
                'readonly script="one.sh"\nsource ./${script} slurm\ntorchrun -m ${training}\n',
                "`source ./one.sh` in line 2 may set it",
                "put the file that sets it beside the script",
            ),
            (
                "lightning run model --devices=8 --num-nodes=2 own/tiny.py --devices 8\n",
                "`own/tiny.py`, which the script starts, belongs to no tool",
                "evaluate the `config.json` of its model",
            ),
            (
                "torchrun a.py 'b\n",
                "the script is not read: this quote is not closed",
                "correct it",
            ),
        ],
        6,
    ),
)
def test_a_script_of_no_tool_is_refused_with_what_it_starts(
    run_command: Run, script: str, message: str, help: str
) -> None:
    done = run_command("eval", "job.sh", files={"job.sh": script})
    assert done.code == 2
    text = " ".join(done.err.split())
    assert message in text
    assert help in text


@pytest.mark.slow
def test_a_file_without_a_job_is_refused_with_the_option_that_adds_it(run_command: Run) -> None:
    step = "iteration {}/ 10 | elapsed time per iteration (ms): 400.0 | global batch size: 64 |\n"
    log = "".join(step.format(number) for number in range(1, 10))
    ranks = range(8)
    links = "".join(f"\tGPU{one}" for one in ranks) + "\n"
    for one in ranks:
        links += f"GPU{one}" + "".join("\t X " if one == it else "\tNV12" for it in ranks) + "\n"
    files = {"run.log": log, "links.txt": links}
    done = run_command("eval", "run.log", files=files)
    assert "`run.log` has only `anchor`, which is a part of a job" in done.err
    assert "parcost eval JOB --anchor run.log" in done.err
    assert "missing-block" not in done.err
    assert "parcost eval JOB --use links.txt" in run_command("eval", "links.txt", files=files).err


@pytest.mark.slow
def test_a_log_may_be_longer_than_a_job(run_command: Run) -> None:
    step = "iteration {}/ 10 | elapsed time per iteration (ms): 400.0 | global batch size: 64 |\n"
    log = "".join(step.format(number) for number in range(1, 10))
    text = log + ("# of another program" * 53 + "\n") * 2**12
    files = {"run.log": text, "run.yaml": text}
    assert len(text) > 2**22
    done = run_command("import", "run.log", files=files)
    assert done.code == 0, done.err
    assert "median of 5 of 9 steps" in done.out
    assert "file-too-large" in run_command("import", "run.yaml", files=files).err


def test_a_log_that_quotes_its_command_is_a_log(run_command: Run) -> None:
    step = "iteration {}/ 10 | elapsed time per iteration (ms): 400.0 | global batch size: 64 |\n"
    log = "+ swift sft --model Qwen/Qwen2.5-7B\n" + "".join(map(step.format, range(1, 10)))
    done = run_command("import", "slurm-17.out", files={"slurm-17.out": log})
    assert done.code == 0, done.err
    assert "median of 5 of 9 steps" in done.out


@pytest.mark.parametrize(
    ("name", "text", "message", "help"),
    [
        (
            "own.py",
            "from EasyDel import TrainArguments\n",
            "`own.py` is a program, not a recipe of a tool that parcost imports",
            "name the script that starts it or the file of its settings, or evaluate the `config",
        ),
        (
            "run.sh",
            (
                "python3 train.py --actor-num-nodes 1 --actor-num-gpus-per-node 8 --num-layers 2 "
                "--hidden-size 64 --rollout-batch-size 32 --n-samples-per-prompt 8\n"
            ),
            "generation within a training step is not modeled",
            "evaluate only the training, from the `config.json` of the trained model",
        ),
        (
            "run.sh",
            (
                "python3 launcher_scripts/main.py training=llama/own_70b training.trainer.num_nodes=8 "
                "training.model.global_batch_size=128\n"
            ),
            "`llama/own_70b.yaml` has the other keys, but is not in the folder of the script",
            "put it there, or evaluate it and repeat the overrides of the command with --set",
        ),
        (
            "run.yaml",
            (
                "work_group: a\nmodules:\n  pre_trainer:\n    framework: megatron\n    config: pre_trainer.yaml\n"
                "    model: own_17B.yaml\n    overrides:\n      seq_length: 64\n"
            ),
            "`own_17B.yaml` is neither beside the job nor in a folder `models` there: put it there",
            "--use config.json",
        ),
    ],
)
def test_what_a_job_lacks_is_named_with_what_to_do(
    run_command: Run, name: str, text: str, message: str, help: str
) -> None:
    done = run_command("import", name, files={name: text})
    assert done.code == 2
    found = " ".join(done.err.split())
    assert message in found
    assert help in found


@pytest.mark.parametrize(
    ("line", "nodes", "named"),
    [
        ("export NCCL_P2P_DISABLE=1", 1, "NCCL_P2P_DISABLE: messages within a node go through"),
        ('  "NCCL_P2P_DISABLE": "1",', 2, "NCCL_P2P_DISABLE: messages within a node go through"),
        ("export NCCL_IB_DISABLE=1", 2, "NCCL_IB_DISABLE: messages between nodes go over TCP"),
        ("export NCCL_IB_DISABLE=1", 1, ""),
        ("# export NCCL_P2P_DISABLE=1", 1, ""),
        ("export NCCL_P2P_DISABLE=0", 1, ""),
    ],
)
def test_variables_of_nccl_that_close_a_way_are_listed(
    run_command: Run, line: str, nodes: int, named: str
) -> None:
    text = f"#!/bin/bash\necho '\n{line}\n'\n{TRAINING.replace('$SLURM_NNODES', str(nodes))}"
    done = run_command("import", "go.sh", files={"go.sh": text})
    assert done.code == 0, done.err
    assert (named in done.err) if named else "NCCL" not in done.err


def test_variables_of_nccl_count_in_sourced_files_and_between_small_nodes(run_command: Run) -> None:
    """Two nodes of two devices were taken for one node, whose messages need no network."""
    script = TRAINING.replace("$SLURM_NNODES", "2").replace(
        "--nproc_per_node 8", "--nproc_per_node 2"
    )
    assert "--nproc_per_node 2" in script
    text = f"#!/bin/bash\nsource $HERE/env.sh\n{script}"
    done = run_command(
        "import", "go.sh", files={"go.sh": text, "env.sh": "export NCCL_IB_DISABLE=1\n"}
    )
    assert "NCCL_IB_DISABLE: messages between nodes go over TCP" in done.err


def test_an_error_in_a_file_of_an_engine_has_its_place_there(run_command: Run) -> None:
    script = (
        "deepspeed --num_gpus 8 train.py --model_name_or_path m --deepspeed zero/ds.json "
        "--per_device_train_batch_size 2 --bf16 True --gradient_checkpointing True\n"
    )
    settings = '{"zero_optimization": {"stage": 3, "overlap_comm": "maybe"}}\n'
    done = run_command("import", "go.sh", files={"go.sh": script, "zero/ds.json": settings})
    message = "`zero_optimization.overlap_comm`: true or false is expected, but maybe is given --> zero/ds.json:1:36"
    assert message in " ".join(done.err.split())


def test_remarks_are_wrapped_to_the_terminal_and_in_a_pipe(
    run_command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(Path(__file__).parents[2] / "docs/how-to/files/mixtral.sh")
    long = run_command("import", path).err
    monkeypatch.setenv("COLUMNS", "60")
    short = run_command("import", path).err
    assert 60 < max(map(len, long.splitlines()[1:])) <= 80
    assert max(map(len, short.splitlines()[1:])) <= 60  # the first begins with a long path
    assert long.split() == short.split()


@pytest.mark.slow
def test_keys_that_are_not_read_are_on_the_screen_whatever_else_it_warns_of(
    run_command: Any,
) -> None:
    """A long verdict counted such a warning, and `--warnings` alone printed it."""
    command = (
        "torchrun --nproc_per_node 8 -m openrlhf.cli.train_sft --pretrain meta-llama/Llama-3.1-8B"
        " --max_len 4096 --micro_train_batch_size 2 --train_batch_size 64 --bf16"
        " --gradient_checkpointing --zero_stage 2 --compress_rate 32\n"
    )
    options = ("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100")
    done = run_command("eval", *options, "run.sh", files={"run.sh": command})
    shown = " ".join(done.out.split())
    assert "`compress_rate`" in shown
    assert "could not be used: `packing_samples`" in shown
    assert len(done.out.splitlines()) <= 45


def test_a_variable_of_two_questions_is_added_once(run_command: Run) -> None:
    script = """NODES=$1
DEVICES=$2
GLOBAL=$((NODES * DEVICES * 8))
torchrun --nnodes=$NODES --nproc_per_node=$DEVICES pretrain_gpt.py --num-layers 8 --bf16 \\
  --hidden-size 512 --num-attention-heads 8 --seq-length 2048 --vocab-size 32000 \\
  --micro-batch-size 1 --global-batch-size $GLOBAL
"""
    done = run_command("eval", *MACHINE[:4], "run.sh", files={"run.sh": script})
    assert done.err.rstrip().endswith(
        "help: add options such as --set-env NODES=VALUE --set-env DEVICES=VALUE"
    )
