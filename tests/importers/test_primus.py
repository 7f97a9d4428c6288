"""Jobs of Primus: those of torchtitan, and fine-tuning by Megatron-LM."""

from __future__ import annotations

from parcost import ImportFile, Translation
from parcost_formats.tools.megatron import Megatron
from parcost_formats.tools.torchtitan import Torchtitan

from ..rows import try_each
from .torchtitan_files import TOML, read
from .translations import assumptions
from .translations import settings as texts

PRIMUS = """\
work_group: ${PRIMUS_TEAM:amd}
modules:
  pre_trainer:
    framework: torchtitan
    config: pre_trainer.yaml
    model: llama3.1_70B-fp8.yaml
    overrides:
      sink_level: null
      training:
        local_batch_size: ${MICRO:3}
        seq_len: 8192
      parallelism:
        tensor_parallel_degree: 8
      activation_checkpoint:
        mode: full
      primus_turbo:
        enable_primus_turbo: true
        enable_attention_float8: false
"""


def of_primus(text: str = PRIMUS, **files: str) -> Translation:
    files = {name.replace("_", "."): one for name, one in files.items()}
    return Torchtitan().read(ImportFile("job.yaml", text, neighbor=files.get))


def test_a_job_of_primus_has_the_fields_of_torchtitan() -> None:
    """Primus compiles models; files of its models whose names end in -fp8 have products in 8 bits."""
    found = of_primus()
    expected = {
        "training.model": "llama31_70b",
        "training.sequence": "8192",
        "training.micro_batch": "3",
        "training.recompute": "full",
        "layout.tp": "8",
        "layout.zero": "3",
        "kernels.mode": "compiled",
    }
    assert Torchtitan().recognizes("job.yaml", PRIMUS)
    assert not Megatron().recognizes("job.yaml", PRIMUS)
    assert expected.items() <= texts(found).items()
    assert "catalog.precisions.fp8_torchao" in [one.value for one in found.uses]
    assert not found.questions
    assert not found.unknown


def test_a_model_file_of_primus_beside_the_job_is_read() -> None:
    model = "model: {name: qwen3, flavor: 30B-A3B, converters: [primus_turbo]}\n"
    text = PRIMUS.replace("llama3.1_70B-fp8", "mine")
    found = texts(of_primus(text, mine_yaml=model))
    assert found["training.model"] == "qwen3_30b_a3b"
    assert found["training.precision"] == "bf16_fsdp"
    assert "model" in {one.attribute for one in of_primus(text).questions}


def test_attention_of_primus_in_8_bits_is_a_question() -> None:
    found = of_primus(PRIMUS.replace("float8: false", "float8: true"))
    assert "precision" in {one.attribute for one in found.questions}


def of_config(config: str, text: str = PRIMUS) -> Translation:
    """Return the job with *config* in `mine.yaml`, and without checkpointing of its own."""
    text = text.replace("pre_trainer.yaml", "mine.yaml").replace(
        "      activation_checkpoint:\n        mode: full\n", ""
    )
    files = {"mine.yaml": config} if config else {}
    return Torchtitan().read(ImportFile("job.yaml", text, neighbor=files.get))


SIZES = "training: {global_batch_size: 512, seq_len: 1024, local_batch_size: 7}\n"
FULL = f"activation_checkpoint: {{mode: full}}\n{SIZES}"


@try_each(
    "config, recompute, mode",
    [
        (FULL, "full", "eager"),  # torchtitan compiles nothing, unless a file says so
        (f"extends: [pre_trainer.yaml]\n{FULL}", "full", "compiled"),
        (f"includes: [../pre_trainer.yaml]\n{SIZES}", "none", "compiled"),
        (f"compile:\n  enable: ${{FAST:true}}\n{FULL}", "full", "compiled"),
    ],
)
def test_the_configuration_of_a_module_is_read(config: str, recompute: str, mode: str) -> None:
    """Overrides of the job win: sequences of 8,192 tokens, and 3 of them; the file has the batch."""
    found = texts(of_config(config))
    assert found["training.recompute"] == recompute
    assert found.get("kernels.mode", "eager") == mode
    assert (found["training.sequence"], found["training.micro_batch"]) == ("8192", "3")
    assert found["training.global_batch"] == "512 sequences"


def test_a_value_of_primus_is_assumed_and_one_of_a_file_beside_the_job_is_not() -> None:
    """Without the file, `pre_trainer.yaml` is that of Primus, which recomputes nothing."""
    text = PRIMUS.replace("      activation_checkpoint:\n        mode: full\n", "")
    why = assumptions(of_primus(text))["training.recompute"]
    assert why == "Primus 04aa8ac: activation_checkpoint.mode is none"
    assert "training.recompute" not in assumptions(of_config(FULL))


def test_an_included_section_is_replaced_and_an_extended_one_merged() -> None:
    """Primus compiles `model` and `loss`; a section `compile` of the file drops it, or keeps it."""
    config = "{}: [pre_trainer.yaml]\ncompile: {{components: [model]}}\n"
    found = [texts(of_config(config.format(one))) for one in ("includes", "extends")]
    assert [one.get("kernels.mode", "eager") for one in found] == ["eager", "compiled"]


@try_each(
    "config, why",
    [
        ("", "the file `mine.yaml` is neither beside the job"),
        ("training: [\n", "line 2 of `mine.yaml` is not read"),
        ("includes: [../other.yaml]\n", "the file `other.yaml` is neither beside the job"),
        ("includes: [mine.yaml]\n", "the file `mine.yaml` includes itself"),
    ],
)
def test_a_configuration_of_a_module_that_is_not_read_is_an_error(config: str, why: str) -> None:
    (problem,) = of_config(config).problems
    assert why in problem.message
    assert "config" in problem.message


def test_a_key_beside_the_overrides_is_an_error() -> None:
    """Keys that name the job have no effect, and a section outside of `overrides` is none."""
    reasons = {one.name: one.reason for one in of_primus().ignored}
    assert reasons["work_group"] == "it names the job"
    stray = PRIMUS.replace("    overrides:", "    training: {local_batch_size: 9}\n    overrides:")
    (problem,) = of_primus(stray).problems
    assert "`modules.pre_trainer.training.local_batch_size`: a module of Primus" in problem.message
    assert [one.name for one in of_primus(f"{PRIMUS}group: a\n").unknown] == ["group"]


@try_each(
    "section, harmless, deciding",
    [
        ("compile", 'backend = "inductor"', 'backend = "aot_eager"'),
        ("float8", "emulate = false", "emulate = true"),
        ("float8", 'scaling_type_input = "dynamic"', 'scaling_type_input = "delayed"'),
        ("model", 'norm_type = "rmsnorm"', 'norm_type = "np_layernorm"'),
        ("training", "deterministic = false", "deterministic = true"),
        ("debug", "deterministic = false", "deterministic = true"),
        ("job", 'custom_config_module = ""', 'custom_config_module = "own.config"'),
        ("optimizer", 'implementation = "fused"', 'implementation = "foreach"'),
        (
            "activation_checkpoint",
            'per_op_sac_force_recompute_mm_shapes_by_fqns = ["moe.router.gate"]',
            'per_op_sac_force_recompute_mm_shapes_by_fqns = ["attention.wq"]',
        ),
    ],
)
def test_fields_that_no_attribute_has_are_listed(
    section: str, harmless: str, deciding: str
) -> None:
    head, key = f"[{section}]\n", f"{section}.{deciding.partition(' ')[0]}"
    for line, listed in ((harmless, False), (deciding, True)):
        text = TOML if head in TOML else f"{TOML}{head}"
        found = read(text.replace(head, f"{head}{line}\n"))
        assert (key in {one.name for one in (*found.missing, *found.unknown)}) is listed


TUNING = """\
exp_name: tuned
modules:
  sft_trainer:
    framework: megatron
    config: sft_trainer.yaml
    model: llama3_8B.yaml
    overrides:
      sft_dataset_name: own/data
      global_batch_size: 64
"""


def test_fine_tuning_has_the_values_of_its_own_file() -> None:
    assert Megatron().recognizes("run.yaml", TUNING)
    found = Megatron().read(ImportFile("run.yaml", TUNING))
    expected = {"training.micro_batch": "1", "training.sequence": "2048", "layout.zero": "1"}
    assert expected.items() <= texts(found).items()
    assert not found.unknown
    stated = Megatron().read(ImportFile("run.yaml", f"{TUNING}      seq_length: 4096\n"))
    assert texts(stated)["training.sequence"] == "4096"


def test_fine_tuning_with_adapters_or_another_framework_is_an_error() -> None:
    adapters = f"{TUNING}      lora:\n        enabled: true\n        dim: 8\n"
    (problem,) = Megatron().read(ImportFile("run.yaml", adapters)).problems
    assert "adapters" in problem.message
    other = TUNING.replace("framework: megatron", "framework: megatron_bridge")
    (problem,) = Megatron().read(ImportFile("run.yaml", other)).problems
    assert "`sft_trainer` with framework `megatron_bridge`" in problem.message
