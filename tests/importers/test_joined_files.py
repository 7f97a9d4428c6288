"""Files of several tools that describe one job."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import parcost
from parcost_plugins.vocabulary import Training

from ..rows import mark_most
from .finetuning_files import LLAMAFACTORY
from .torchtitan_files import TOML

Run = Callable[..., Any]

CONFIG: dict[str, Any] = {
    "model_type": "qwen3",
    "num_hidden_layers": 36,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 12288,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
}
SCRIPT = """--num-layers 36 --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 12288
--group-query-attention --num-query-groups 8 --kv-channels 128 --qk-layernorm --swiglu
--normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights
--vocab-size 151936 --position-embedding-type rope --tensor-model-parallel-size 4 --bf16
--seq-length 4096 --micro-batch-size 1 --global-batch-size 64
"""
MACHINE = "use catalog.devices.h100_sxm\nuse catalog.fabrics.hgx_h100\ncluster { devices = 8 }\n"
# Qwen3-8B as its model card has it: 8,190,735,360 parameters, with all embeddings.
PARAMETERS = 8_190_735_360


def files(config: dict[str, Any], **others: str) -> dict[str, str]:
    texts = {name.replace("_", ".", 1): text for name, text in others.items()}
    return {"config.json": json.dumps(config, indent=1), **texts}


def models(spec: str) -> int:
    return sum(line.startswith("model ") for line in spec.splitlines())


def study_of(spec: str) -> parcost.Study:
    return parcost.load_text(MACHINE + spec)[0].first


def parameters(run_command: Run, spec: str) -> str:
    return str(run_command("figures", "job.par", job=spec).out)


@pytest.mark.parametrize("first", ["config.json", "train.args"])
def test_a_model_of_two_files_is_one(run_command: Run, first: str) -> None:
    second = "train.args" if first == "config.json" else "config.json"
    done = run_command("import", first, second, files=files(CONFIG, train_args=SCRIPT))
    assert done.code == 0
    assert models(done.out) == 1
    assert "warning" not in done.err
    study = study_of(done.out)
    model = study[Training].model
    assert (model.layers, model.kv_heads, model.qk_norm, model.gated) == (36, 8, True, True)


@pytest.mark.slow
def test_joined_files_are_a_whole_job(run_command: Run) -> None:
    spec = run_command(
        "import", "config.json", "train.args", files=files(CONFIG, train_args=SCRIPT)
    ).out
    done = run_command("eval", "job.par", "--format", "json", job=MACHINE + spec)
    assert done.code in (0, 1)
    assert str(PARAMETERS) in done.out


def test_a_contradiction_is_shown_in_both_files(run_command: Run) -> None:
    script = SCRIPT.replace("--num-layers 36", "--num-layers 32")
    done = run_command(
        "import", "config.json", "train.args", files=files(CONFIG, train_args=script)
    )
    assert (done.code, done.out) == (2, "")
    assert "`model.layers` is 36 in `config.json`, but 32 in `train.args`" in done.err
    assert "config.json:3:2" in done.err
    assert "train.args:1:1" in done.err


def test_a_comparison_shows_a_contradiction_once(run_command: Run) -> None:
    config = {"config.json": '{"model_type": "llama", "hidden_size": 64}'}
    script = {"run.sh": "torchrun pretrain_gpt.py --hidden-size 128"}
    done = run_command("diff", *config, *script, "--set", "layout.tp=2", files=config | script)
    assert done.code == 2
    assert done.err.count("is 64 in `config.json`, but 128 in `run.sh`") == 1
    page = " ".join(done.out.split())
    assert "config.json, run.sh -> config.json, run.sh with layout.tp = 2" in page
    assert "nothing was compared: no study could be evaluated" in page
    assert "same name" not in page


def test_the_import_of_a_spec_names_the_commands_that_read_it(run_command: Run) -> None:
    done = run_command("import", "job.par", files={"job.par": "cluster { devices = 8 }\n"})
    assert done.code == 2
    assert "`job.par` has the suffix of a spec" in done.err
    assert "parcost eval job.par" in done.err


@pytest.mark.slow
def test_what_the_family_decides_contradicts_a_flag(run_command: Run) -> None:
    config = {**CONFIG, "model_type": "llama"}  # without norms of queries and keys
    done = run_command(
        "import", "config.json", "train.args", files=files(config, train_args=SCRIPT)
    )
    assert done.code == 2
    assert "`model.qk_norm` is off in `config.json`, but on in `train.args`" in done.err


def test_defaults_of_the_script_yield_with_a_warning(run_command: Run) -> None:
    script = SCRIPT.replace("--swiglu", "").replace("--qk-layernorm", "")
    done = run_command(
        "import", "config.json", "train.args", files=files(CONFIG, train_args=script)
    )
    assert done.code == 0
    assert "warning[import-default]" in done.err
    assert "`gated` is on and not off" in done.err
    assert "`qk_norm` is on and not off" in done.err
    assert "GELU" not in done.err  # which is not assumed any more
    assert study_of(done.out)[Training].model.gated


def test_what_another_file_sets_is_not_missing(run_command: Run) -> None:
    script = SCRIPT.replace("--vocab-size 151936", "--use-checkpoint-args")
    alone = run_command("import", "train.args", files={"train.args": script})
    assert alone.code == 2
    assert "`model.vocabulary` is not known: `--vocab-size`" in alone.err
    done = run_command(
        "import", "config.json", "train.args", files=files(CONFIG, train_args=script)
    )
    assert "unknown: " not in done.err
    assert study_of(done.out)[Training].model.vocabulary == 151936


@pytest.mark.slow
def test_deepspeed_takes_the_model_of_a_config(run_command: Run) -> None:
    deepspeed = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True},
                 "zero_optimization": {"stage": 3}}  # fmt: skip
    done = run_command(
        "import", "config.json", "ds.json", files=files(CONFIG, ds_json=json.dumps(deepspeed))
    )
    assert (done.code, models(done.out)) == (0, 1)
    more = "training {\n  sequence = 4096\n"
    study = study_of(done.out.replace("training {\n", more))
    assert study[Training].model.layers == 36


def test_auto_is_not_missing_where_another_file_has_it(run_command: Run) -> None:
    texts = {
        "ds.json": json.dumps({"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 1}}),
        "accelerate.yaml": "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 8\n",
    }
    assert "not set: bf16.enabled" in run_command("import", "ds.json", files=texts).err
    done = run_command("import", "accelerate.yaml", "ds.json", files=texts)
    assert done.code == 0
    assert "bf16.enabled" not in done.err


@pytest.mark.parametrize(("layers", "code"), [(80, 0), (81, 2)])
def test_a_flavor_is_the_model_of_the_config(run_command: Run, layers: int, code: int) -> None:
    config = {
        "model_type": "llama", "num_hidden_layers": layers, "hidden_size": 8192,
        "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 28672,
        "vocab_size": 128256, "tie_word_embeddings": False,
    }  # fmt: skip
    toml = '[model]\nname = "llama3"\nflavor = "70B"\n[training]\nseq_len = 8192\n[parallelism]\ntensor_parallel_degree = 8\n'
    done = run_command("import", "config.json", "run.toml", files=files(config, run_toml=toml))
    assert done.code == code
    if code:
        assert "`model.layers` is 81 in `config.json`, but 80 in `run.toml`" in done.err
    else:
        assert models(done.out) == 0
        assert "use catalog.models.llama31_70b" in done.out


def test_layers_that_transformers_leaves_out_come_from_the_script(run_command: Run) -> None:
    script = SCRIPT + "--mtp-num-layers 1\n"
    config = {**CONFIG, "num_nextn_predict_layers": 1}
    done = run_command(
        "import", "config.json", "train.args", files=files(config, train_args=script)
    )
    assert done.code == 0
    assert study_of(done.out)[Training].model.prediction_layers == 1


@pytest.mark.slow
@pytest.mark.parametrize("command", ["eval", "search", "show", "timeline"])
def test_files_of_one_job_are_one_study(run_command: Run, command: str) -> None:
    machine = ("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100")
    given = (*machine, "--set", "cluster.devices=8")
    done = run_command(
        command, "config.json", "train.args", *given, files=files(CONFIG, train_args=SCRIPT)
    )
    assert done.code in (0, 1), done.err
    assert "train.args" in done.err or command != "eval"
    if command == "eval":
        assert "are imported as one job" in done.err


def test_a_line_end_in_the_name_of_a_file_starts_no_line(run_command: Run) -> None:
    name = "a\n::error::b.json"
    texts = {name: json.dumps(CONFIG), **files(CONFIG, train_args=SCRIPT)}
    done = run_command("check", name, "train.args", files=texts)
    assert "are imported as one job" in done.err
    assert "\n::error::" not in done.out + done.err


def test_two_complete_files_are_two_studies(run_command: Run) -> None:
    texts = files(CONFIG, a_json=json.dumps(CONFIG))
    done = run_command("check", "config.json", "a.json", files=texts)
    assert "each file is a study" in done.err


@pytest.mark.slow
def test_a_use_takes_a_file_of_the_job(run_command: Run) -> None:
    machine = ("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100")
    given = (*machine, "--set", "cluster.devices=8", "--use", "config.json")
    done = run_command("eval", "train.args", *given, files=files(CONFIG, train_args=SCRIPT))
    assert done.code in (0, 1), done.err


@pytest.mark.parametrize("name", ["gpt-2.json", "other-job.sh", "more.par"])
def test_a_use_of_a_file_that_is_not_there_says_so(run_command: Run, name: str) -> None:
    done = run_command("check", "train.args", "--use", name, files=files(CONFIG, train_args=SCRIPT))
    assert done.code == 2
    assert done.out.startswith(f"error[missing-file]: there is no file `{name}`")


def test_figures_read_several_files_of_one_job(run_command: Run) -> None:
    machine = ("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100")
    given = (*machine, "--set", "cluster.devices=8")
    texts = files(CONFIG, train_args=SCRIPT)
    done = run_command("figures", "config.json", "train.args", "mfu", *given, files=texts)
    assert done.code in (0, 1), done.err
    assert "mfu" in done.out


JOB = """model_name_or_path: Qwen/Qwen2.5-7B
stage: sft
finetuning_type: full
dataset: alpaca_en_demo
template: qwen
cutoff_len: 2048
packing: true
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
bf16: true
"""
FSDP = "distributed_type: FSDP\nmixed_precision: '{}'\nnum_processes: 8\nfsdp_config:\n  {}\n"
ZERO = """distributed_type: DEEPSPEED
mixed_precision: '{}'
num_processes: 8
deepspeed_config: {{zero_stage: 3, gradient_accumulation_steps: {}}}
"""
ENGINES = {
    "fsdp": FSDP.format("bf16", "fsdp_sharding_strategy: FULL_SHARD"),
    "fsdp2": FSDP.format("bf16", "fsdp_version: 2"),
    "fsdp_no": FSDP.format("no", "fsdp_version: 1"),
    "zero": ZERO.format("bf16", 4),
    "zero_no": ZERO.format("no", 4),
    "json": '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}}',
}


@pytest.mark.parametrize("engine", mark_most(list(ENGINES), 6))
def test_a_file_of_an_engine_beside_a_job_of_trainer_is_read_as_one_that_it_names(
    run_command: Run, engine: str
) -> None:
    """Its types and its buckets, no DDP, and recomputation as LLaMA-Factory has it by default.

    Micro-batches of 2 in 4 steps on 8 devices are 64 sequences of 2048 tokens: 131,072 tokens.
    """
    launch = "engine.json" if engine == "json" else "engine.yaml"
    texts = {"run.yaml": JOB, launch: ENGINES[engine]}
    orders = (("run.yaml", launch), (launch, "run.yaml"))
    specs = [run_command("import", *order, files=texts).out for order in orders]
    bodies = ["\n".join(one.splitlines()[2:]) for one in specs]
    assert bodies[0] == bodies[1]
    (spec, _) = specs
    assert "recompute     = full" in spec
    assert "zero = 3" in spec
    assert "25 MiB" not in spec
    assert "bucket_copy" not in spec
    assert ("stops_early = on" in spec) == (engine == "fsdp2")
    is_fsdp = engine.startswith("fsdp")
    assert ("catalog.frameworks.transformers" in spec) == is_fsdp
    assert ("catalog.precisions.bf16_zero" in spec) != is_fsdp
    assert spec.count("catalog.precisions.") == 1
    machine = "" if "devices = 8" in spec else "cluster { devices = 8 }\n"
    chips = "use catalog.devices.h100_sxm\nuse catalog.fabrics.hgx_h100\n"
    study = parcost.load_text(f"{chips}{machine}{spec}")[0].first
    assert study[Training].global_batch * study[Training].sequence == 131_072


def test_a_stage_of_accelerate_and_a_file_of_deepspeed_have_to_agree(run_command: Run) -> None:
    texts = {"run.yaml": JOB, "a.yaml": ENGINES["zero"], "b.json": ENGINES["json"]}
    done = run_command("import", "run.yaml", "a.yaml", "b.json", files=texts)
    assert (done.code, "zero = 3" in done.out) == (0, True)
    texts["b.json"] = texts["b.json"].replace("3", "2")
    done = run_command("import", "run.yaml", "a.yaml", "b.json", files=texts)
    assert done.code == 2
    assert "`layout.zero` is 3 in `run.yaml`, but 2 in `b.json`" in done.err


def test_replicas_of_a_launcher_beside_a_job_of_trainer_are_replicas(run_command: Run) -> None:
    texts = {"run.yaml": JOB, "ddp.yaml": "distributed_type: MULTI_GPU\nnum_processes: 8\n"}
    done = run_command("import", "run.yaml", "ddp.yaml", files=texts)
    assert "bucket       = 25 MiB" in done.out
    assert "zero = 0" in done.out
    assert "ddp.yaml, Accelerate 0.20 to 1.15: read with `run.yaml`" in done.err


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("engine.yaml", ZERO.format("bf16", 8)),
        ("engine.json", '{"zero_optimization": {"stage": 3}, "gradient_accumulation_steps": 8}'),
    ],
)
def test_steps_of_accumulation_of_two_files_have_to_agree(
    run_command: Run, name: str, text: str
) -> None:
    """Trainer stops where the file of DeepSpeed has others than its own."""
    done = run_command("import", "run.yaml", name, files={"run.yaml": JOB, name: text})
    assert done.code == 2
    assert "set `training.micro_batches` to different values: 4 and 8" in done.err


def test_a_trainer_that_recomputes_by_default_does_so_under_fsdp(run_command: Run) -> None:
    launch = "accelerate launch --config_file fsdp.yaml src/train.py run.yaml\n"
    texts = {"run.yaml": JOB, "fsdp.yaml": ENGINES["fsdp"], "run.sh": launch}
    assert "recompute     = full" in run_command("import", "run.sh", files=texts).out


@pytest.mark.parametrize(("nodes", "code"), [(2, 0), (4, 2)])
def test_equal_numbers_of_devices_in_two_files_agree(
    run_command: Run, nodes: int, code: int
) -> None:
    """Two hosts with 8 slots are 16 devices, as 2 nodes of 8 tasks are."""
    launch = f"#!/bin/bash\n#SBATCH -N {nodes}\n#SBATCH --gpus-per-node=8\ntorchrun pretrain_gpt.py {SCRIPT}"
    texts = {"hosts": "one slots=8\ntwo slots=8\n", "train.sh": launch.replace("\n--", " \\\n--")}
    for names in (("hosts", "train.sh"), ("train.sh", "hosts")):
        done = run_command("import", *names, files=texts)
        assert done.code == code, done.err
        assert ("import-conflict" in done.err) == bool(code)


OWN_FILES = {
    "train.yaml": (
        LLAMAFACTORY,
        "NNODES=1 NPROC_PER_NODE=8 llamafactory-cli train train.yaml\n",
        ("cutoff_len: 4096", "cutoff_len: many", " cutoff_len=4096"),
    ),
    "run.toml": (
        TOML,
        "torchrun --nproc_per_node 8 --nnodes 32 train.py --job.config_file run.toml\n",
        ("seq_len = 8_192", "seq_len = 'many'", " --training.seq_len 8192"),
    ),
}


def test_a_configuration_beside_a_command_that_names_another_one_is_a_conflict(
    run_command: Run,
) -> None:
    text, script, _ = OWN_FILES["run.toml"]
    files = {"run.toml": text, "other.toml": text.replace("8_192", "4_096"), "run.sh": script}
    both = run_command("import", "other.toml", "run.sh", files=files)
    assert both.code == 2
    assert "`run.sh` reads `run.toml`, and `other.toml` is another configuration" in both.err
    assert run_command("import", "other.toml").code == 0


@pytest.mark.parametrize("name", OWN_FILES)
@pytest.mark.parametrize("first", [True, False])
def test_a_configuration_beside_the_command_that_names_it_is_read_once(
    run_command: Run, name: str, *, first: bool
) -> None:
    text, script, (old, new, flag) = OWN_FILES[name]
    assert old in text
    alone = run_command("import", "run.sh", files={name: text, "run.sh": script})
    names = (name, "run.sh") if first else ("run.sh", name)
    assert run_command("import", *names).code == alone.code == 0
    plain = [line for line in alone.out.splitlines() if line and not line.startswith("#")]
    both = run_command("import", *names).out
    values = [line.partition("#")[0].rstrip() for line in plain]
    joint = [line.partition("#")[0].rstrip() for line in both.splitlines()]
    assert [line for line in joint if line] == values
    changed = {name: text.replace(old, new), "run.sh": script.replace("\n", f"{flag}\n")}
    assert run_command("import", name, files=changed).code == 2
    assert run_command("import", *names).code == 0  # the command replaces the value


def test_an_error_of_a_named_file_stands_there_once(run_command: Run) -> None:
    script = "llamafactory-cli train job.yaml\n"
    job = LLAMAFACTORY.replace("cutoff_len: 4096", "cutoff_len: x")
    for names in (("run.sh",), ("run.sh", "job.yaml"), ("job.yaml", "run.sh")):
        done = run_command("check", *names, files={"run.sh": script, "job.yaml": job})
        assert done.code == 2
        assert done.out.count("`cutoff_len`: a whole number") == 1
        assert "job.yaml:5:1" in done.out
