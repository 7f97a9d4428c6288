"""Commands of Megatron-Bridge, its configurations in YAML, and scripts that start its training."""

from __future__ import annotations

import pytest

from parcost import ImportFile, ImportOptions, Translation
from parcost_formats.tools.megatron import Megatron

from ..rows import try_each
from .megatron_files import Run, settings, translate, values

# Configurations in YAML -----------------------------------------------------------------------

SECTIONS = """
recipe: llama31_8b_pretrain_config
model:
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: 14336
  num_attention_heads: 32
  num_query_groups: 8
  vocab_size: 128256
  seq_length: 8192
  tensor_model_parallel_size: 4
  sequence_parallel: true
train:
  global_batch_size: 128
  micro_batch_size: 1
mixed_precision: bf16_mixed
ddp:
  use_distributed_optimizer: true
"""


def test_a_configuration_of_bridge_in_yaml_is_read_as_its_recipe() -> None:
    found = Megatron().translate("config.yaml", SECTIONS)
    assert not found.problems
    values = {
        f"{block.kind}.{one.name}": one.value for block in found.blocks for one in block.settings
    }
    assert values["layout.tp"] == "4"
    assert values["layout.zero"] == "1"
    assert values["layout.sequence_parallel"] == "on"
    assert values["training.micro_batch"] == "1"
    assert values["training.global_batch"] == "128 sequences"
    assert values["model.layers"] == "32"
    assert any("bf16" in use.value for use in found.uses)


@try_each(
    "old, new, message",
    [
        ("train:", "peft:\n  type: dora\ntrain:", "adapters of the class `dora` are not supported"),
        ("  seq_length: 8192", "  hybrid_layer_pattern: MEM\n  seq_length: 8192", "Mamba layers"),
        ("  num_layers: 32", "  hf_path: Qwen/Qwen3-VL-8B-Instruct\n  num_layers: 32", "vision"),
        ("bf16_mixed", "bf17_mixed", "is not a recipe of mixed precision"),
    ],
)
def test_a_configuration_of_bridge_in_yaml_is_rejected_by_name(
    old: str, new: str, message: str
) -> None:
    found = Megatron().translate("config.yaml", SECTIONS.replace(old, new, 1))
    assert any(message in problem.message for problem in found.problems)


OVERRIDES = """
model:
  tensor_model_parallel_size: 4
  seq_length: 4096
train:
  global_batch_size: 256
  micro_batch_size: 2
ddp:
  overlap_grad_reduce: true
"""


def read_overrides(text: str, recipe: str = "", name: str = "overrides.yaml") -> Translation:
    return Megatron().read(ImportFile(name, text, options=ImportOptions(recipe=recipe)))


def test_a_yaml_of_overrides_asks_for_what_its_recipe_sets() -> None:
    """The file states no model: each value that it leaves out is that of a recipe."""
    found = read_overrides(OVERRIDES, name="llama3_8b_pretrain_overrides.yaml")
    asked = {one.attribute: one for one in found.questions}
    assert {"model", "precision", "layout.pp", "layout.cp", "layout.zero"} <= set(asked)
    assert {"training.recompute", "training.dropout"} <= set(asked)
    assert not {"layout.tp", "training.sequence", "training.micro_batch"} & set(asked)
    assert asked["layout.pp"].answers[0] == "--recipe llama3_8b_pretrain_config"
    assert (
        "the file changes a recipe, which must be named with --recipe" in asked["layout.pp"].reason
    )


def test_an_unknown_recipe_of_a_yaml_is_named() -> None:
    found = read_overrides(OVERRIDES, "own_recipe_config")
    asked = {one.attribute: one for one in found.questions}
    assert "`own_recipe_config` is not in parcost's table" in asked["layout.pp"].reason


def test_a_recipe_has_the_values_that_a_yaml_leaves_out() -> None:
    """Megatron-Bridge 0.6, llama3_70b_pretrain_config: TP 4, PP 4, VPP 5, CP 2, bf16."""
    text = OVERRIDES + "mixed_precision:\n  grad_reduce_in_fp32: true\n"
    found = read_overrides(text, "llama3_70b_pretrain_config")
    assert not found.questions
    expected = {
        "layout.tp": "4",
        "layout.pp": "4",
        "layout.cp": "2",
        "layout.zero": "1",
        "schedule.chunks": "5",
        "training.sequence": "4096",
        "training.micro_batch": "2",
        "training.global_batch": "256 sequences",
        "training.model": "llama3_70b",
    }
    assert expected.items() <= values(found).items()
    assert settings(found)["layout.tp"].end
    assert "llama3_70b_pretrain_config" in settings(found)["layout.pp"].assumption
    assert any("precisions.bf16" in use.value for use in found.uses)


@pytest.mark.parametrize("sharding", ["optim_grads_params", "optim"])
def test_a_yaml_of_overrides_is_known_by_its_sections(sharding: str) -> None:
    text = f"""
model:
  seq_length: 4096
dist:
  use_megatron_fsdp: true
ddp:
  data_parallel_sharding_strategy: {sharding}
"""
    assert Megatron().recognizes("run.yaml", text)
    found = read_overrides(text, "llama3_8b_pretrain_config")
    assert values(found)["layout.zero"] == {"optim_grads_params": "3", "optim": "1"}[sharding]


# Scripts that start a job ---------------------------------------------------------------------

STARTS = """\
from megatron.bridge.recipes.llama import llama3_8b_pretrain_config
from {module} import pretrain as start
from megatron.bridge.training.gpt_step import forward_step

config = llama3_8b_pretrain_config(tensor_model_parallel_size=2, global_batch_size=64)
config.train.micro_batch_size = 2
start(config=config, forward_step_func=forward_step)
"""


def test_a_function_that_starts_the_job_changes_no_setting() -> None:
    text = STARTS.format(module="megatron.bridge.training.pretrain")
    found = translate(Megatron(), "job.py", text)
    assert not found.questions
    assert (values(found)["layout.tp"], values(found)["training.micro_batch"]) == ("2", "2")
    assert values(found)["training.global_batch"] == "64 sequences"


def test_a_function_of_another_file_may_change_settings() -> None:
    found = translate(Megatron(), "job.py", STARTS.format(module="own.training"))
    asked = {one.attribute: one.reason for one in found.questions}
    assert "`pretrain`, a function of another file, may change it" in asked["training.micro_batch"]


# The generic script ---------------------------------------------------------------------------

GENERIC = (
    "uv run torchrun --nnodes 2 --nproc_per_node=8 scripts/training/run_recipe.py \\\n"
    "  --recipe {} --dataset llm-pretrain-mock train.train_iters=9 train.global_batch_size=256 \\\n"
    "  model.tensor_model_parallel_size=2 model.sequence_parallel=True 'logger.log_interval=1' {}\n"
)


@pytest.mark.parametrize(
    "more", ["dataset.seq_length=4096", "--seq_length 4096", "--seq_length=4096"]
)
def test_the_launch_of_a_recipe_of_bridge_has_its_devices(run_command: Run, more: str) -> None:
    """Devices are those of the launcher, and not the one in the full name of the recipe."""
    text = GENERIC.format("llama32_1b_pretrain_config", more)
    done = run_command("import", "go.sh", files={"go.sh": text})
    assert done.code == 0, done.err
    found = " ".join(done.out.split())
    for part in ("devices = 16", "tp = 2", "sequence = 4096", "global_batch = 256 sequences"):
        assert part in found
    assert "llama32_1b" in found


@pytest.mark.parametrize(
    ("recipe", "more", "message"),
    [
        ("own_pretrain_config", "", "`own_pretrain_config` is not in parcost's table of recipes"),
        ("$R", "", "`--recipe $R`: `R` is not set in the file"),
        ("llama32_1b_pretrain_config", "model.seq_length=64", "sets it to `dataset.seq_length`"),
        ("llama32_1b_pretrain_config", "model.context_parallel_size=$C", "`layout.cp` is not known"),
        ("llama32_1b_sft_config", "--peft_scheme lora", "LoRA of this kind of job is not read yet"),
    ],
)  # fmt: skip
def test_unknown_values_of_the_launch_of_a_recipe_are_questions(
    run_command: Run, recipe: str, more: str, message: str
) -> None:
    done = run_command("import", "go.sh", files={"go.sh": GENERIC.format(recipe, more)})
    assert done.code == 2
    assert message in " ".join(done.err.split())


@pytest.mark.parametrize(
    "flags",
    [
        "--tp 4 --pp 2 --cp 2 --global-batch-size 64 --micro-batch-size 2",
        "-tp 4 -pp 2 --context_parallel_size=2 --global_batch_size 64 --micro_batch_size=2",
        "-tp 4 -pp 2 -cp 2 -gb 64 -mb 2",
        "--tp 4 --pp 2 --cp 2 --micro_batch_size 2 train.global_batch_size=64 --global-batch-size 8",
    ],
)
def test_flags_of_the_generic_script_replace_values_of_the_recipe(
    run_command: Run, flags: str
) -> None:
    """Tensor parallelism by a flag turns sequence parallelism on, and an override wins."""
    text = LAUNCHES["torchrun"].format(flags)
    done = run_command("import", "go.sh", files={"go.sh": text})
    assert done.code == 0, done.err
    found = " ".join(done.out.split())
    for part in ("tp = 4", "pp = 2", "cp = 2", "sequence_parallel = on", "devices = 16"):
        assert part in found
    for part in ("global_batch = 64 sequences", "micro_batch = 2", "sequence = 4096"):
        assert part in found
    assert "0 unknown" in done.out + done.err


LAUNCHES = {
    "torchrun": "torchrun --nnodes 2 --nproc_per_node 8 scripts/training/run_recipe.py "
    "--recipe llama31_8b_pretrain_config --mode pretrain --seq_length 4096 --lr 3e-4 {}\n",
    "shell": "./scripts/training/train.sh --nodes 2 --gpus-per-node 8 --account me \\\n"
    "  --recipe llama31_8b_pretrain_config --mode pretrain --seq_length 4096 \\\n"
    "  logger.log_interval=1 {}\n",
    "python": "uv run python scripts/training/setup_experiment.py --nodes=2 --gpus_per_node=8 "
    "--recipe llama31_8b_pretrain_config --seq-length 4096 {}\n",
}


@pytest.mark.parametrize("kind", LAUNCHES)
def test_a_program_that_submits_a_recipe_has_its_devices(run_command: Run, kind: str) -> None:
    done = run_command("import", "go.sh", files={"go.sh": LAUNCHES[kind].format("--tp 8")})
    assert done.code == 0, done.err
    found = " ".join(done.out.split())
    for part in ("devices = 16", "tp = 8", "sequence = 4096", "llama31_8b"):
        assert part in found


@pytest.mark.parametrize(
    ("recipe", "mode", "help"),
    [
        ("llama31_8b_pretrain_config", "sft", "--recipe llama31_8b_sft_config, or --mode pretrain"),
        ("llama31_8b_pretrain_config", "finetune", "--mode pretrain"),
        ("llama31_8b_sft_config", "pretrain", "--mode sft"),
        ("llama31_8b_sft_config", "sft", ""),
        ("llama31_8b_sft_config", "finetune", ""),
    ],
)
def test_a_mode_that_contradicts_the_recipe(recipe: str, mode: str, help: str) -> None:
    """Megatron-Bridge: `Mode 'sft' is incompatible with recipe ...`."""
    text = f"torchrun --nproc_per_node 8 run_recipe.py --recipe {recipe} --mode {mode}\n"
    found = Megatron().translate("go.sh", text).problems
    assert [text[one.start : one.end] for one in found] == ([mode] if help else [])
    assert all(help in one.help for one in found)
    assert all(f"`{mode}` is incompatible with the recipe" in one.message for one in found)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--tp $T", "`layout.tp`: `--tp`: `T` is not set in the file"),
        ("--mode lora", "LoRA of this kind of job is not read yet"),
        ("--deterministic", "--deterministic"),
        ("--config-file ov.yaml", "`ov.yaml` changes the recipe: it is not beside the script"),
        ("mixed_precision=bf16_with_fp8_current_scaling_mixed", "precisions.fp8_current"),
        ("mixed_precision=fp16_mixedd", "`fp16_mixedd` is not a recipe of mixed precision"),
        ("4096", "it is neither an override (section.key=value) nor the value of a flag"),
    ],
)
def test_words_of_the_generic_script_are_read_or_listed(
    run_command: Run, flags: str, message: str
) -> None:
    text = LAUNCHES["torchrun"].format(flags)
    done = run_command("import", "go.sh", files={"go.sh": text})
    assert message in " ".join((done.out + done.err).split())


def test_a_file_of_overrides_is_read_with_the_command(run_command: Run) -> None:
    """The command replaces what the file sets, and the file what the recipe sets."""
    text = LAUNCHES["torchrun"].format("--config-file conf/ov.yaml train.micro_batch_size=1")
    more = "model: {tensor_model_parallel_size: 2}\ntrain: {micro_batch_size: 2}\n"
    more += "base: {size: 96}\ndataset: {sequence_length: 4096}\n"
    files = {"go.sh": text, "conf/ov.yaml": f"{more}train.global_batch_size: 96\n"}
    done = run_command("import", "go.sh", files=files)
    assert "tp                = 2  # model.tensor_model_parallel_size" in done.out
    assert "micro_batch  = 1  # train.micro_batch_size" in done.out
    assert "global_batch = 96 sequences" in done.out
