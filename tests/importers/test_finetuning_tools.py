"""What all tools for fine-tuning have in common: one tool a file, lacking features, questions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from parcost import ImportFile
from parcost.contract.importers import PLAIN

from ..rows import mark_most, try_each
from .finetuning_files import (
    CHUNKS,
    CUT,
    ENGINE_SFT,
    FILES,
    KEPT,
    OPENRLHF_SFT,
    importer_of,
    read,
    read_file,
)
from .translations import names, settings, uses

Run = Callable[..., Any]


RECOMPUTE = "training.recompute"

SHARDED = "bf16: true\nfsdp_config: {offload_params: false}\ndp_shard_size: 4"

LOSS = ("training.loss_chunks", CHUNKS)

WHOLE = ("training.global_batch", "64 sequences")

COPIES = ("sharding.shard", "layout.dp * layout.cp / 2")

ENGINE = "name: deepspeed, config_file: examples/deepspeed/ds_z2_config.json"

EXPERTS = "bf16: true\nplugins: [axolotl.integrations.expert_parallel.ExpertParallelPlugin]"


@pytest.mark.parametrize("tool", mark_most(FILES, 4))
def test_a_file_belongs_to_one_tool(run_command: Run, tool: str) -> None:
    name, text = FILES[tool]
    done = run_command("check", name, files={name: text})
    assert "not-a-spec" not in done.err + done.out
    assert "ambiguous-format" not in done.err + done.out
    chosen = run_command("check", "--from", tool, name)
    assert chosen.err == done.err


@pytest.mark.parametrize(
    ("tool", "old", "new", "message"),
    mark_most(
        [
            ("llamafactory", "full", "oft", "`finetuning_type` is oft: adapters other than LoRA"),
            ("llamafactory", "full", "lorra", "`finetuning_type`: expected full, lora"),
            ("axolotl", "bf16: true", "adapter: qlora", "qlora needs `load_in_4bit: true`"),
            ("llamafactory", "full", "full\nquantization_bit: 4", "a frozen model in 4 or 8 bits"),
            (
                "llamafactory",
                "full",
                "full\nuse_muon: true",
                "`use_muon`: the optimizer Muon is not",
            ),
            ("llamafactory", "stage: sft", "stage: ppo", "`stage` is ppo: a rollout engine"),
            ("llamafactory", "Llama-3.1-8B", "Llama-3.2-11B-Vision", "a vision tower is not"),
            (
                "axolotl",
                "bf16: true",
                "adapter: dora",
                "`adapter` is dora: adapters other than LoRA",
            ),
            ("axolotl", "bf16: true", "load_in_4bit: true", "a frozen model in 4 or 8 bits is not"),
            ("axolotl", "bf16: true", "rl: grpo", "`rl` is grpo: a rollout engine"),
            (
                "axolotl",
                "adamw_torch_fused",
                "muon",
                "the optimizer Muon is not modeled yet",
            ),
            (
                "torchtune",
                ".llama3_1_8b",
                ".dora_llama3_1_8b",
                "adapters other than LoRA and QLoRA are not modeled",
            ),
            ("torchtune", "modules.loss.Linear", "rlhf.loss.DPO", "a separate reference model"),
            ("trl", "--bf16", "--bf16 --load_in_8bit", "a frozen model in 4 or 8 bits is not"),
            ("trl", "scripts/sft.py", "scripts/grpo.py", "`trl/scripts/grpo.py`: a rollout engine"),
            ("trl", "scripts/sft.py", "scripts/dpo.py", "a separate reference model"),
            (
                "trl",
                "--bf16",
                "--bf16 --rank 64",
                "`rank` is 64: LoRA of this kind of job is not read",
            ),
            ("trl", "--bf16", "--bf16 --beta 0.1", "`beta` is 0.1: a separate reference model"),
            ("trl", "--bf16", "--bf16 --optim adafactor", "`optim` is adafactor: the state of an"),
            (
                "ms_swift",
                "--train_type full",
                "--train_type vera",
                "is vera: adapters other than LoRA",
            ),
            (
                "ms_swift",
                "swift sft",
                "swift rlhf --rlhf_type grpo",
                "`rlhf_type` is grpo: a rollout",
            ),
            ("verl", "", "", "`verl.trainer.main_ppo`: a rollout engine"),
            ("openrlhf", "", "", "`openrlhf.cli.train_ppo_ray`: a rollout engine"),
            ("areal", "", "", "`rollout.backend` is sglang:d4: a rollout engine"),
            ("nemo_rl", "", "", "`grpo.num_prompts_per_step` is 64: a rollout engine"),
        ]
    ),
)
def test_what_the_language_lacks_is_an_error_at_its_key(
    run_command: Run, tool: str, old: str, new: str, message: str
) -> None:
    name, text = FILES[tool]
    assert old in text
    done = run_command("eval", name, files={name: text.replace(old, new)})
    assert done.code == 2
    assert message in done.err
    assert f"--> {name}:" in done.err
    assert "step time" not in done.out


@try_each(
    "tool, recipe, expected",
    [
        (
            "llamafactory",
            "bf16_autocast",
            {"micro_batch": "1", "micro_batches": "4", "sequence": "4096", "recompute": "full"},
        ),
        ("axolotl", "bf16_pure", {"micro_batch": "1", "sequence": "4096", "recompute": "full"}),
        ("torchtune", "bf16_pure", {"micro_batch": "2", "micro_batches": "4", "recompute": "full"}),
        ("trl", "bf16_autocast", {"micro_batch": "1", "micro_batches": "4", "recompute": "full"}),
        ("ms_swift", "bf16_zero", {"micro_batch": "1", "sequence": "4096"}),
    ],
)
def test_full_fine_tuning_is_read(tool: str, recipe: str, expected: dict[str, str]) -> None:
    found = read(tool)
    assert not found.questions
    assert not found.unknown
    values = settings(found)
    assert {f"training.{name}": value for name, value in expected.items()}.items() <= values.items()
    assert f"precisions.{recipe}" in uses(found)
    size = f"{expected['micro_batch']} * {values['training.micro_batches']}"
    assert values["training.global_batch"] == f"({size} * layout.dp) sequences"


@pytest.mark.parametrize(("tool", "devices"), [("trl", "8"), ("ms_swift", "8")])
def test_a_launcher_states_devices(tool: str, devices: str) -> None:
    assert settings(read(tool))["cluster.devices"] == devices


@try_each(
    "tool, old, new, path, value",
    [
        ("llamafactory", "bf16: true", "bf16: true\npure_bf16: true", "uses", "bf16_pure"),
        ("llamafactory", "bf16: true\n", "", "uses", "fp32"),
        ("llamafactory", "per_device_train_batch_size: 1\n", "", "training.micro_batch", "8"),
        ("axolotl", "gradient_checkpointing: true", "", "training.recompute", "none"),
        ("axolotl", "sequence_len: 4096\n", "", "training.sequence", "512"),
        ("axolotl", "bf16: true", "bf16: true\nfsdp: [full_shard, auto_wrap]", "layout.zero", "3"),
        ("axolotl", "bf16: true", "fsdp_config: {offload_params: true}", "offload.optimizer", "1"),
        ("axolotl", "bf16: true", "tensor_parallel_size: 4", "layout.tp", "4"),
        ("torchtune", "dtype: bf16", "dtype: fp32", "uses", "fp32"),
        ("torchtune", "dtype: bf16", "dtype: bf16\ntensor_parallel_dim: 2", "layout.tp", "2"),
        ("trl", "--bf16", "--bf16 --dtype bfloat16", "uses", "bf16_pure"),
        ("trl", "--max_length 4096", "", "training.sequence", "1024"),
        ("trl", "--num_processes 8", "--num_processes 16 --use_fsdp", "layout.zero", "3"),
        ("ms_swift", "zero3", "zero2_offload", "offload.optimizer", "1"),
        ("llamafactory", "packing", "gradient_checkpointing: on\npacking", RECOMPUTE, "full"),
        ("llamafactory", "packing", "sequence_parallel_size: 4\npacking", "layout.cp", "4"),
        ("trl", "trl/scripts/sft.py", "trl/examples/scripts/sft.py", "uses", "bf16_autocast"),
        ("axolotl", "bf16: true", SHARDED, "sharding.shard", "4 * layout.cp"),
        ("trl", "--model_name_or_path", "--model_name", "training.model", "llama31_8b"),
        ("axolotl", "bf16: true", f"plugins: [x.{CUT}]", "training.loss_chunks", CHUNKS),
        ("ms_swift", "--packing", "--use_liger_kernel true --packing", *LOSS),
        ("llamafactory_v1", "", "", "uses", "bf16_pure"),
        ("llamafactory_v1", "", "", "precision.reduction", "4 B"),
        ("llamafactory_v1", "", "", "training.sequence", "2048"),
        ("llamafactory_v1", "", "", RECOMPUTE, "full"),
        ("llamafactory_v1", "", "", "training.global_batch", "(micro_batch * layout.dp) sequences"),
        ("llamafactory_v1", "max_steps", "global_batch_size: 64\nmax_steps", *WHOLE),
        ("llamafactory_v1", "dcp_path: null", "cp_size: 2", "context.algorithm", "ulysses"),
        ("llamafactory_v1", "dcp_path: null", "reshard_after_forward: false", KEPT, "off"),
        ("llamafactory_v1", "dcp_path: null", "mp_replicate_size: 2", *COPIES),
        ("llamafactory_v1", "dist_config", "unused", "layout.zero", "0"),
        ("llamafactory_v1", "name: fsdp2, dcp_path: null", ENGINE, "layout.zero", "2"),
        ("axolotl", "bf16: true", f"{EXPERTS}\nexpert_parallel_size: 8", "layout.ep", "8"),
    ],
)
def test_a_key_sets_what_it_decides(tool: str, old: str, new: str, path: str, value: str) -> None:
    found = read(tool, old, new)
    assert not found.questions
    if path == "uses":
        assert f"precisions.{value}" in uses(found)
    else:
        assert settings(found)[path] == value


@try_each(
    "tool, old, new, message",
    [
        ("llamafactory_v1", "fsdp2", "fsdpturbo", "`fsdpturbo` is not read"),
        (
            "llamafactory_v1",
            "out\n",
            "out\npeft_config: {name: lora, r: 8}\n",
            "LoRA of this kind of job",
        ),
        ("llamafactory_v1", "out\n", "out\noptim_config: {name: muon}\n", "Muon"),
        ("axolotl", "bf16: true", "bf16: true\nexpert_parallel_size: 2", "it needs its plugin"),
        (
            "axolotl",
            "bf16: true",
            f"{EXPERTS}\nexpert_parallel_size: 2\nfsdp: [full_shard]",
            "sharded separately",
        ),
    ],
)
def test_a_way_to_run_that_is_not_in_the_language_is_rejected(
    tool: str, old: str, new: str, message: str
) -> None:
    assert any(message in problem.message for problem in read(tool, old, new).problems)


@try_each(
    "tool, key, deciding, harmless",
    [
        ("llamafactory", "label_smoothing_factor", "0.1", "0.0"),
        ("llamafactory", "full_determinism", "true", "false"),
        ("llamafactory", "torch_compile_mode", "reduce-overhead", "default"),
        ("llamafactory", "torch_compile_backend", "cudagraphs", "inductor"),
        ("llamafactory", "half_precision_backend", "apex", "auto"),
        ("ms_swift", "use_logits_to_keep", "true", "false"),
        ("axolotl", "sage_attention", "true", "false"),
        ("axolotl", "s2_attention", "true", "false"),
        ("axolotl", "experts_implementation", "eager", "grouped_mm"),
        ("axolotl", "peft_autocast_adapter_dtype", "false", "true"),
        ("axolotl", "use_onebitllms", "true", "false"),
        ("axolotl", "lora_mlp_kernel", "true", "false"),
        ("axolotl", "trainer_cls", "mine.Trainer", "null"),
    ],
)
def test_a_key_that_decides_is_listed_unless_its_value_is_harmless(
    tool: str, key: str, deciding: str, harmless: str
) -> None:
    old = "--packing true" if tool == "ms_swift" else "bf16: true"
    form = f"{old} --{key} " if tool == "ms_swift" else f"{old}\n{key}: "
    found = read(tool, old, f"{form}{deciding}")
    assert key in names(found.missing)
    assert not found.questions
    assert names(read(tool, old, f"{form}{harmless}").missing).isdisjoint([key])


@pytest.mark.parametrize("key", ["torch_compile_backend: inductor", "torchdynamo: inductor"])
def test_a_compiler_that_is_named_turns_compilation_on(key: str) -> None:
    assert settings(read("llamafactory", "bf16: true", f"bf16: true\n{key}"))["kernels.mode"]
    plain = read("axolotl", "bf16: true", "bf16: true\ntorch_compile_backend: inductor")
    assert "kernels.mode" not in settings(plain)  # where `torch_compile` alone decides


@try_each(
    "tool, liger, own, harmless",
    [
        ("llamafactory", "enable_liger_kernel: true", "use_dft_loss: true", "use_dft_loss: false"),
        ("llamafactory", "enable_liger_kernel: true", "use_eaft_loss: true", "eaft_alpha: 1.0"),
        ("llamafactory", "enable_liger_kernel: true", "label_smoothing_factor: 0.1", "seed: 1"),
        ("axolotl", f"plugins: [x.{CUT}]", "use_eaft: true", "use_eaft: false"),
        ("ms_swift", "--use_liger_kernel true", "--enable_dft_loss true", "--seed 1"),
        ("ms_swift", "--use_liger_kernel true", "--sequence_parallel_size 16", "--seed 1"),
        ("ms_swift", "--use_liger_kernel true", "--loss_scale hermes", "--loss_scale last_round"),
    ],
)
def test_a_loss_of_the_trainer_itself_has_whole_logits(
    tool: str, liger: str, own: str, harmless: str
) -> None:
    """Trainer takes the labels from the model, so that the fused loss in it has none."""
    old, join = ("--max_length", " ") if tool == "ms_swift" else ("bf16: true", "\n")
    for more, chunks in ((own, "1"), (harmless, CHUNKS)):
        words = join.join((liger, more, old) if join == " " else (old, liger, more))
        assert settings(read(tool, old, words))["training.loss_chunks"] == chunks


@try_each(
    "tool, old, new, attribute",
    [
        ("llamafactory", "meta-llama/Llama-3.1-8B", "own/model", "model"),
        ("axolotl", "adamw_torch_fused", "adamw_of_tomorrow", "precision"),
        ("torchtune", "llama3_1_8b", "llama9_1b", "model"),
        ("torchtune", "dtype: bf16", "", "precision"),
        ("torchtune", "batch_size: 2", "batch_size_of_tomorrow: 2", "training.micro_batch"),
        ("trl", "trl/scripts/sft.py", "train.py", "precision"),
        ("llamafactory", "bf16: true", "bf16: true\nfp8: true\nfp8_backend: te", "precision"),
    ],
)
def test_a_value_that_is_unknown_raises_a_question(
    tool: str, old: str, new: str, attribute: str
) -> None:
    assert {one.attribute for one in read(tool, old, new).questions} == {attribute}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "key", "attribute"),
    [
        ("llamafactory", "bf16", "precision"),
        ("llamafactory", "cutoff_len", "training.sequence"),
        ("llamafactory", "gradient_accumulation_steps", "training.micro_batches"),
        ("axolotl", "gradient_checkpointing", "training.recompute"),
        ("torchtune", "enable_activation_checkpointing", "training.recompute"),
        ("trl", "--max_length", "training.sequence"),
        ("ms_swift", "--deepspeed", "layout.zero"),
    ],
)
def test_a_key_of_another_release_raises_a_question(
    run_command: Run, tool: str, key: str, attribute: str
) -> None:
    name, text = FILES[tool]
    assert key in text
    machine = ("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100")
    files = {name: text.replace(key, f"{key}_of_tomorrow", 1)}
    done = run_command("eval", *machine, name, files=files)
    assert done.code == 2
    assert "error[import-question]" in done.err
    assert f"`{attribute}`" in done.err
    assert "of_tomorrow" in done.err


@pytest.mark.parametrize("tool", mark_most(FILES, 4))
def test_broken_and_hostile_texts_are_problems_at_a_place(tool: str) -> None:
    name, text = FILES[tool]
    one = importer_of(tool)
    cut = [text[:end] for end in range(0, len(text), len(text) // 20)]
    for part in (
        *cut,
        "",
        "\0",
        "{",
        "{}\n",
        "a: &a [*a, *a]\n",
        "x: !!python/name:os\n",
        "--" * 9999,
    ):
        for file in (name, "x.json", "x.yaml", "x.sh"):
            one.recognizes(file, part)
            for problem in one.read(ImportFile(file, part)).problems:
                assert 0 <= problem.start <= len(part)
                assert problem.message


@try_each("tool", ["trl", "axolotl", "llamafactory", "ms_swift"])
def test_a_program_in_python_is_not_read_as_a_script(tool: str) -> None:
    one = importer_of(tool)
    text = "from trl import SFTConfig\nargs = SFTConfig(bf16=True)\n"
    (problem,) = one.read(ImportFile("train.py", text)).problems
    assert problem.message.endswith("settings in a Python file are not supported")
    assert "import a script with the command that starts `train.py`" in problem.help


@pytest.mark.parametrize(
    ("tool", "command", "key"),
    [
        ("verl", ENGINE_SFT, "optim.optimizer="),
        ("openrlhf", OPENRLHF_SFT, "--optim.name "),
    ],
)
def test_an_optimizer_other_than_adamw_is_listed(tool: str, command: str, key: str) -> None:
    name = key.strip("-= ")
    for value, listed in (("AdamW", []), ("AdamW8bit", [name])):
        script = f"{command.rstrip()} {key}{value}\n"
        found = read_file(tool, ImportFile("run.sh", script, PLAIN))
        assert not found.unknown
        assert [one.name for one in found.missing if one.name == name] == listed
