"""Jobs of LLaMA-Factory, with its Megatron backend."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from parcost import ImportFile
from parcost.contract.importers import PLAIN

from ..rows import try_each
from .finetuning_files import FILES, LLAMAFACTORY, importer_of, read
from .translations import assumptions, settings, uses

Run = Callable[..., Any]


def test_liger_without_its_loss_leaves_the_logits_whole() -> None:
    off = "use_liger_kernel: true\nliger_kernel_config: {fused_linear_cross_entropy: false}"
    for new, is_chunked in ((off.partition("\n")[0], True), (off, False)):
        found = settings(read("llamafactory", "bf16: true", f"bf16: true\n{new}"))
        assert ("training.loss_chunks" in found) == is_chunked


@try_each("name", ["adam", "adamw", "AdamW", "adamw_torch", "adamw_torch_fused"])
def test_adam_by_any_of_its_names_has_the_recipe_of_the_catalogue(name: str) -> None:
    """Moments of 8 bits are another recipe, which this trainer does not have."""
    found = read("llamafactory_v1", "out\n", f"out\noptim_config: {{name: {name}}}\n")
    assert not found.questions
    assert not found.problems
    assert "precisions.bf16_pure" in uses(found)
    narrow = read("llamafactory_v1", "out\n", "out\noptim_config: {name: adamw_8bit}\n")
    assert any("other than Adam" in problem.message for problem in narrow.problems)


def test_an_error_about_a_type_that_the_engine_takes_from_the_trainer_is_at_the_trainers_key() -> (
    None
):
    engine = (
        '{"bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}, '
        '"zero_optimization": {"stage": 3}}'
    )
    lines = "bf16: true\nfp16: true\ndeepspeed: ds.json"
    text = LLAMAFACTORY.replace("bf16: true", lines)
    found = read("llamafactory", "bf16: true", lines, ds=engine).problems
    assert [(one.message, text[one.start : one.end]) for one in found] == [
        ("`bf16`: bf16 and fp16 cannot both be enabled", "bf16: true"),
        ("`fp16`: bf16 and fp16 cannot both be enabled", "fp16: true"),
    ]


def test_pure_bf16_in_an_engine_of_another_type_raises_a_question() -> None:
    """DeepSpeed fills `auto` with `bf16` of the trainer, which `pure_bf16` leaves off."""
    engine = '{"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3}}'
    found = read("llamafactory", "bf16: true", "pure_bf16: true\ndeepspeed: z3.json", z3=engine)
    assert [one.attribute for one in found.questions] == ["precision"]


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("own/Qwen3-8B-tuned", "qwen3_8b"),
        ("own/Mistral-7B-v0.3.1", "llama31_8b"),
        ("Qwen3-80B", "llama31_8b"),
    ],
)
def test_the_question_for_a_model_offers_the_entry_of_its_family(name: str, answer: str) -> None:
    (asked,) = read("llamafactory", "meta-llama/Llama-3.1-8B", name).questions
    assert asked.answers[-1] == f"--use catalog.models.{answer}"


def test_an_answer_replaces_the_recipe_of_a_file_with_products_in_8_bits(run_command: Run) -> None:
    files = {"run.yaml": LLAMAFACTORY.replace("packing", "fp8: true\npacking")}
    use = ("--use", "catalog.precisions.fp8_delayed", "--use", "catalog.systems.dgx_h100")
    done = run_command("check", "run.yaml", *use, files=files)
    assert "import-question" not in done.err
    assert "import-conflict" not in done.err


def test_the_name_of_a_folder_is_an_assumption() -> None:
    found = read("llamafactory", "meta-llama/Llama-3.1-8B", "/data/LLM-Research/Llama-3___2-3B")
    assert "models.llama32_3b" in uses(found)
    assert any("`Llama-3.2-3B` is the name of" in one.assumption for one in found.uses)


def test_pretraining_of_llamafactory_packs_sequences() -> None:
    text = "stage: pt"
    found = read("llamafactory", "packing: true\n", "")
    assert [one.name for one in found.missing] == ["packing"]
    plain = LLAMAFACTORY.replace("packing: true\n", "").replace("stage: sft", text)
    one = importer_of("llamafactory")
    assert not one.read(ImportFile("run.yaml", plain)).missing


def test_a_script_reads_the_configurations_that_it_names() -> None:
    """FSDP of Accelerate on 16 processes, and the job of LLaMA-Factory beside the script."""
    script = "accelerate launch --config_file conf/fsdp.yaml src/train.py run.yaml\n"
    shards = (  # the precision of the trainer replaces that of its launcher
        "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\nnum_processes: 16\n"
        "mixed_precision: bf16\n"
    )
    beside = {"conf/fsdp.yaml": shards, "run.yaml": LLAMAFACTORY}
    one = importer_of("llamafactory")
    assert one.recognizes("run.sh", script)
    found = one.read(ImportFile("run.sh", script, PLAIN, beside.get))
    assert not found.questions
    values = settings(found)
    assert values["layout.zero"] == "3"
    assert values["cluster.devices"] == "16"
    assert values["training.sequence"] == "4096"
    (problem,) = one.read(ImportFile("run.sh", script)).problems
    assert problem.message.startswith("`run.yaml` has the keys of the job, but is not beside")


@try_each(
    "command, help",
    [
        ("FILE=$1\nllamafactory-cli train jobs/$FILE", "--set-env FILE=VALUE"),
        ("FILE=$1\ntorchrun src/llamafactory/launcher.py $FILE", "--set-env FILE=VALUE"),
        ('llamafactory-cli train "$(ls jobs)" bf16=true', "write its value in place of it"),
        ('llamafactory-cli train "$@"', "write them into the file"),
    ],
)
def test_a_job_in_a_file_that_is_not_known_has_no_defaults(command: str, help: str) -> None:
    """All defaults of the tool would stand for its keys."""
    (problem,) = importer_of("llamafactory").read(ImportFile("run.sh", f"{command}\n")).problems
    assert "has the keys of the job, or names their file" in problem.message
    assert help in problem.help


def test_the_launcher_of_llamafactory_is_a_program_of_it() -> None:
    script = "torchrun --nproc_per_node 4 LLaMA-Factory/src/llamafactory/launcher.py run.yaml\n"
    beside = {"run.yaml": LLAMAFACTORY}
    found = importer_of("llamafactory").read(ImportFile("run.sh", script, PLAIN, beside.get))
    assert settings(found)["cluster.devices"] == "4"
    assert settings(found)["training.sequence"] == "4096"


MCA = """tensor_model_parallel_size: 2
pipeline_model_parallel_size: 2
expert_model_parallel_size: 4
sequence_parallel: true
use_distributed_optimizer: true
recompute_granularity: selective
moe_token_dispatcher_type: alltoall
"""


@pytest.mark.slow
def test_megatron_keys_of_llamafactory_are_those_of_megatron(run_command: Run) -> None:
    """Micro-batches of 1 x 4 steps x 8 replicas of 2 x 2 ranks are 32 sequences."""
    one = importer_of("llamafactory")
    model = LLAMAFACTORY.replace("meta-llama/Llama-3.1-8B", "Qwen/Qwen3-30B-A3B")
    text = model + MCA
    found = one.read(ImportFile("run.yaml", text))
    assert not found.questions
    expected = {
        "layout.tp": "2",
        "layout.pp": "2",
        "layout.ep": "4",
        "layout.zero": "1",
        "layout.sequence_parallel": "on",
        "training.recompute": "selective",
        "training.micro_batches": "4",
        "training.sequence": "4096",
        "routing.dispatcher": "alltoall",
        "overlap.gradients": "off",
    }
    assert expected.items() <= settings(found).items()
    assert "frameworks.megatron_core" in uses(found)
    assert "precisions.bf16" in uses(found)
    script = "USE_MCA=1 NNODES=4 NPROC_PER_NODE=8 llamafactory-cli train run.yaml\n"
    machine = ("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100")
    done = run_command("eval", "run.sh", *machine, files={"run.sh": script, "run.yaml": text})
    assert done.code == 0, done.err
    (devices,) = [
        line for line in run_command("import", "run.sh").out.splitlines() if "devices" in line
    ]
    assert "devices = 32 " in devices
    off = one.read(ImportFile("run.yaml", model + "tensor_model_parallel_size: 2\n"))
    assert settings(off)["layout.zero"] == "0"


@pytest.mark.slow
def test_megatron_of_llamafactory_trains_all_weights_as_an_assumption(run_command: Run) -> None:
    asks = "finetuning_type: lora\nlora_rank: 8\nquantization_bit: 4\n"
    text = LLAMAFACTORY.replace("finetuning_type: full\n", asks) + "use_mca: true\n"
    text = text.replace("meta-llama/Llama-3.1-8B", "Qwen/Qwen3-0.6B")
    machine = ("--use", "catalog.systems.dgx_h100", "--set", "cluster.devices=8")
    done = run_command("eval", "run.yaml", *machine, files={"run.yaml": text})
    assert "`finetuning_type`, `lora_rank`, `quantization_bit`" in " ".join(done.out.split())
    shown = run_command("import", "run.yaml").err
    assert "lora_rank: assumed without effect: mcore_adapter trains all weights" in shown
    full = run_command("import", "full.yaml", files={"full.yaml": LLAMAFACTORY + "use_mca: true\n"})
    assert "trains all weights" not in full.err


def test_an_engine_of_deepspeed_beside_keys_of_megatron_is_an_error() -> None:
    one = importer_of("llamafactory")
    for more in ("deepspeed: ds.json\n", "deepspeed: ds.json\nuse_mca: true\n"):
        found = one.read(
            ImportFile("run.yaml", LLAMAFACTORY + MCA * ("use_mca" not in more) + more)
        )
        (problem,) = found.problems
        assert "keys of Megatron-Core" in problem.message
        assert "remove `deepspeed`" in problem.help


@try_each(
    "change, path, value",
    [
        ("", "routing.dispatcher", "allgather"),
        ("moe_token_dispatcher_type: alltoall", "routing.dispatcher", "alltoall"),
        ("", "layout.etp", "2"),
        ("expert_tensor_parallel_size: 1", "layout.etp", "1"),
        ("", "layout.sequence_parallel", "on"),
        ("", "framework.rotary", "eager"),
        ("", "framework.activation", "halves"),
    ],
)
def test_the_adapter_of_llamafactory_has_defaults_of_its_own(
    change: str, path: str, value: str
) -> None:
    """Experts in 2 x 4 ranks: the adapter turns sequence parallelism on by itself."""
    one = importer_of("llamafactory")
    text = LLAMAFACTORY.replace("meta-llama/Llama-3.1-8B", "Qwen/Qwen3-30B-A3B")
    degrees = "tensor_model_parallel_size: 2\nexpert_model_parallel_size: 4\n"
    found = one.read(ImportFile("run.yaml", f"{text}{degrees}{change}\n"))
    assert settings(found)[path] == value
    assert not any("Megatron-Bridge" in why for why in assumptions(found).values())


def test_a_script_that_starts_another_one_names_it(run_command: Run) -> None:
    """A comment with the command of a tool was pointed at."""
    script = "# llamafactory-cli train $1\nbash tools/start.sh conf.yaml\n"
    done = run_command("import", "--from", "llamafactory", "run.sh", files={"run.sh": script})
    assert done.code == 2
    assert "`tools/start.sh`, which the script starts or sources, is not in its folder" in done.err
    assert "--> run.sh:2:6" in done.err


def test_a_ring_of_a_trainer_runs_beside_a_bucket_of_deepspeed(run_command: Run) -> None:
    """The framework of the file, with its bucket, was that of DeepSpeed, which has no ring."""
    engine = {"stage": 2, "reduce_bucket_size": 200000000, "overlap_comm": False}
    name, text = FILES["llamafactory"]
    files = {
        name: f"{text}sequence_parallel_size: 4\ndeepspeed: own.json\n",
        "own.json": json.dumps({"bf16": {"enabled": True}, "zero_optimization": engine}),
    }
    done = run_command("check", "--use=catalog.systems.dgx_h100", name, files=files)
    assert done.code == 0, done.err
    done = run_command("import", name)
    assert "framework deepspeed_file extends deepspeed_ring {" in done.out


def test_the_program_of_old_releases_has_their_default_length() -> None:
    """It is 1,024 up to release 0.9.0, and `train_bash.py` is a program up to 0.7."""
    flags = "--stage sft --do_train --model_name_or_path Qwen/Qwen1.5-1.8B --finetuning_type full"
    script = f"deepspeed --num_gpus 8 src/train_bash.py {flags} --bf16 --output_dir out"
    old = importer_of("llamafactory").read(ImportFile("run.sh", script))
    assert settings(old)["training.sequence"] == "1024"
    assert "0.7" in assumptions(old)["training.sequence"]
    packed = importer_of("llamafactory").read(ImportFile("run.sh", f"{script} --sft_packing"))
    assert not packed.missing
    new = importer_of("llamafactory").read(ImportFile("run.sh", script.replace("_bash", "")))
    assert settings(new)["training.sequence"] == "2048"
