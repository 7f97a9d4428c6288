"""Adapters in the files of fine-tuning tools: their parameters, and what is rejected by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from parcost import ImportFile, Translation
from parcost_formats.tools.huggingface import HuggingFace
from parcost_formats.tools.litgpt import LitGpt

from ..rows import try_each
from .finetuning_files import FILES, importer_of
from .test_automodel import IMPORTER as AUTOMODEL
from .test_automodel import RECIPE
from .translations import settings

Run = Callable[..., Any]

TARGETS = ("query", "key", "value", "output", "gate", "up", "down", "head")
MACHINE = (
    "--use",
    "catalog.devices.h100_sxm",
    "--use",
    "catalog.fabrics.hgx_h100",
    "--set",
    "cluster.devices=8",
)


def read(tool: str, old: str, new: str) -> Translation:
    """Return the translation of the file of a tool, with one text replaced by another."""
    name, text = FILES[tool]
    assert old in text
    one = importer_of(tool)
    return one.read(ImportFile(name, text.replace(old, new)))


LLAMAFACTORY = """model_name_or_path: Qwen/Qwen3-4B-Instruct-2507
stage: sft
finetuning_type: lora
lora_rank: 8
lora_target: all
cutoff_len: 2048
packing: true
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
bf16: true
"""
AXOLOTL = """base_model: meta-llama/Llama-3.1-8B
adapter: lora
lora_r: 32
lora_alpha: 16
lora_dropout: 0.05
lora_target_linear: true
sequence_len: 4096
sample_packing: true
micro_batch_size: 2
gradient_accumulation_steps: 4
bf16: true
gradient_checkpointing: true
"""
TORCHTUNE = """model:
  _component_: torchtune.models.llama3_1.lora_llama3_1_70b
  lora_attn_modules: [q_proj, v_proj, output_proj]
  apply_lora_to_mlp: true
  lora_rank: 16
  lora_alpha: 32
tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, max_seq_len: 4096}
dataset: {_component_: torchtune.datasets.alpaca_dataset, packed: true}
optimizer: {_component_: torch.optim.AdamW}
loss: {_component_: torchtune.modules.loss.CEWithChunkedOutputLoss}
batch_size: 2
gradient_accumulation_steps: 1
dtype: bf16
enable_activation_checkpointing: true
"""
TRL = """trl sft --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 1 \\
  --gradient_accumulation_steps 8 --max_length 2048 --packing --bf16 --dtype bfloat16 \\
  --use_peft --lora_r 16 --num_processes 8
"""
SWIFT = """NPROC_PER_NODE=8 swift sft --model Qwen/Qwen2.5-7B-Instruct --train_type lora \\
  --per_device_train_batch_size 1 --gradient_accumulation_steps 8 --max_length 2048 \\
  --torch_dtype bfloat16 --packing true --lora_rank 16 --target_modules all-linear
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("llamafactory.yaml", LLAMAFACTORY, 16_515_072),
        ("axolotl.yml", AXOLOTL, 83_886_080),
        ("torchtune.yaml", TORCHTUNE, 195_297_280),
        # query and value of Qwen2.5-7B: 28 layers of 16 (3584 + 3584 + 3584 + 512)
        ("trl.sh", TRL, 5_046_272),
        ("swift.sh", SWIFT, 40_370_176),
    ],
)
def test_the_trained_parameters_of_a_file_are_known(
    run_command: Run, name: str, text: str, count: int
) -> None:
    machine = MACHINE[: (6 if ".y" in name else 4)]
    zero = ("--set", "layout.zero=0") if name == "trl.sh" else ()
    done = run_command("eval", name, *machine, *zero, "--format", "json", files={name: text})
    assert done.code in (0, 1), done.err
    (report,) = json.loads(done.out)["reports"]
    figures = report["results"][0]["figures"]
    assert figures["trained_parameters"]["value"] == count


VERL = """torchrun --nproc_per_node 8 -m verl.trainer.fsdp_sft_trainer model.partial_pretrain=Qwen/Qwen3-8B \\
  data.train_batch_size=64 data.micro_batch_size_per_gpu=1 data.max_length=2048 \\
  model.enable_gradient_checkpointing=true model.lora_rank=16
"""
OPENRLHF = """deepspeed --num_gpus 8 --module openrlhf.cli.train_sft --pretrain meta-llama/Llama-3.1-8B \\
  --train_batch_size 64 --micro_train_batch_size 1 --max_len 2048 --zero_stage 2 --bf16 \\
  --lora_rank 16 --target_modules q_proj v_proj --load_in_4bit
"""


def test_tools_of_reinforcement_learning_read_adapters_of_fine_tuning() -> None:
    def read_text(tool: str, text: str) -> dict[str, str]:
        found = importer_of(tool).read(ImportFile("run.sh", text))
        assert not found.problems
        return settings(found)

    verl = read_text("verl", VERL)
    assert [verl[f"adapters.{one}"] for one in ("rank", "down", "weights")] == ["16", "on", "4 B"]
    sft = read_text("openrlhf", OPENRLHF)
    assert [sft[f"adapters.{one}"] for one in ("rank", "value", "down", "base")] == [
        "16",
        "on",
        "off",
        "nf4_double",
    ]
    assert "adapters.rank" not in read_text("verl", VERL.replace("lora_rank=16", "lora_rank=0"))


@pytest.mark.parametrize(
    ("lines", "on", "rank"),
    [
        ("match_all_linear: true, dim: 16", 8, "16"),
        ("target_modules: ['*_proj']", 7, "8"),
        ("target_modules: ['*.q_proj', v_proj]", 2, "8"),
    ],
)
def test_patterns_of_automodel_choose_modules(lines: str, on: int, rank: str) -> None:
    peft = f"peft: {{_target_: nemo_automodel.components._peft.lora.PeftConfig, {lines}}}\n"
    values = settings(AUTOMODEL.translate("run.yaml", RECIPE + peft))
    targets = [values[f"adapters.{one}"] for one in TARGETS if f"adapters.{one}" in values]
    assert targets.count("on") == on
    assert values["adapters.rank"] == rank


def test_defaults_of_a_tool_are_assumed() -> None:
    found = read("llamafactory", "finetuning_type: full\n", "")
    values = settings(found)
    assert [values[f"adapters.{one}"] for one in ("rank", "query", "down", "dropout")] == [
        "8",
        "on",
        "on",
        "off",
    ]
    (block,) = [block for block in found.blocks if block.kind == "adapters"]
    assert all(one.assumption for one in block.settings)
    swift = settings(read("ms_swift", "--train_type full", ""))
    assert (swift["adapters.rank"], swift["adapters.dropout"]) == ("8", "on")
    trl = settings(read("trl", "--bf16", "--bf16 --use_peft"))
    assert (trl["adapters.rank"], trl["adapters.query"], trl["adapters.key"]) == ("16", "on", "off")


def test_names_of_modules_choose_the_targets() -> None:
    lora = "bf16: true\nadapter: lora\nlora_r: 8\nlora_target_modules: "
    values = settings(read("axolotl", "bf16: true", f"{lora}[q_proj, v_proj, lm_head]"))
    on = {name for name, value in values.items() if name.startswith("adapters.") and value == "on"}
    assert on == {"adapters.query", "adapters.value", "adapters.head"}
    fused = settings(read("axolotl", "bf16: true", f"{lora}[qkv_proj, o_proj]"))
    assert (fused["adapters.fused"], fused["adapters.up"]) == ("on", "off")


@try_each(
    "tool, old, new, base",
    [
        ("llamafactory", "full", "lora\nquantization_bit: 4", "nf4_double"),
        ("llamafactory", "full", "lora\nquantization_bit: 4\ndouble_quantization: false", "nf4"),
        (
            "axolotl",
            "bf16: true",
            "bf16: true\nadapter: qlora\nlora_r: 8\nlora_target_linear: true\nload_in_4bit: true",
            "nf4_double",
        ),
        ("trl", "--bf16", "--bf16 --use_peft --load_in_4bit", "nf4"),
        ("trl", "--bf16", "--bf16 --use_peft --load_in_4bit --use_bnb_nested_quant", "nf4_double"),
        ("ms_swift", "--train_type full", "--train_type lora --quant_bits 4", "nf4_double"),
        ("ms_swift", "--train_type full", "--train_type lora --quantization_bit 4", "nf4_double"),
        ("torchtune", ".llama3_1_8b", ".qlora_llama3_1_8b", "nf4_torchao"),
    ],
)
def test_a_base_in_four_bits_is_quantized(tool: str, old: str, new: str, base: str) -> None:
    found = read(tool, old, new)
    assert not found.problems
    assert settings(found)["adapters.base"] == base
    assert f"catalog.quantizations.{base}" in {one.value for one in found.uses}


@pytest.mark.parametrize(
    ("more", "recipe"), [("--load_in_4bit", "bf16_pure"), ("", "bf16_autocast")]
)
def test_adapters_beside_a_quantized_base_are_bf16_in_trl(more: str, recipe: str) -> None:
    found = read("trl", "--bf16", f"--bf16 --use_peft {more}")
    assert f"catalog.precisions.{recipe}" in {one.value for one in found.uses}


@try_each(
    "tool, old, new, message",
    [
        ("llamafactory", "full", "lora\nuse_dora: true", "`use_dora`"),
        ("llamafactory", "full", "lora\nadditional_target: embed_tokens", "`additional_target`"),
        ("llamafactory", "full", "lora\nquantization_bit: 8", "4 or 8 bits"),
        (
            "llamafactory",
            "full",
            "lora\nquantization_bit: 4\nquantization_method: hqq",
            "4 or 8 bits",
        ),
        ("llamafactory", "full", "lora\nlora_target: q_proj,w_pack", "the module `w_pack`"),
        (
            "axolotl",
            "bf16: true",
            "adapter: lora\nlora_r: 8\nlora_target_modules: '.*(q|v)_proj'",
            "a regular expression",
        ),
        (
            "axolotl",
            "bf16: true",
            "adapter: lora\nlora_r: 8\nlora_target_linear: true\nlora_modules_to_save: [lm_head]",
            "`lora_modules_to_save`",
        ),
        (
            "axolotl",
            "bf16: true",
            "adapter: lora\nlora_r: 8\nlora_target_linear: true\nload_in_8bit: true",
            "4 or 8 bits",
        ),
        # PEFT compares names exactly, so that none of the model ends in a comma
        (
            "trl",
            "--bf16",
            "--bf16 --use_peft --lora_target_modules q_proj, v_proj",
            "a regular expression",
        ),
        ("trl", "--bf16", "--bf16 --use_peft --use_dora", "`use_dora`"),
        (
            "trl",
            "--bf16",
            "--bf16 --use_lora",
            "LoRA with targets that are set in a script is not read",
        ),
        ("llamafactory", "full", "lora\nadapter_name_or_path: a", "LoRA from an earlier run"),
        ("axolotl", "bf16: true", "lora_model_dir: out", "LoRA from an earlier run"),
        (
            "axolotl",
            "bf16: true",
            "relora: true",
            "other than LoRA and QLoRA are not modeled",
        ),
        ("ms_swift", "--train_type full", "--modules_to_save lm_head", "`modules_to_save`"),
        ("ms_swift", "--train_type full", "--lora_bias all", "`lora_bias`"),
        ("llamafactory", "full", "lora\nresize_vocab: true", "`resize_vocab`"),
    ],
)
def test_other_parts_of_adapters_are_rejected_by_name(
    tool: str, old: str, new: str, message: str
) -> None:
    assert message in " ".join(one.message for one in read(tool, old, new).problems)


def test_a_rank_that_a_variable_decides_is_an_error() -> None:
    for flags in ("--use_peft --lora_r $RANK", "--use_peft --lora_target_modules $TARGETS"):
        (problem,) = read("trl", "--bf16", f"--bf16 {flags}").problems
        assert "decides what is trained" in problem.message
    assert not read("trl", "--bf16", "--bf16 --lora_r $RANK").problems


PEFT = {
    "base_model_name_or_path": "Qwen/Qwen3-8B",
    "bias": "none",
    "layers_pattern": None,
    "layers_to_transform": None,
    "lora_dropout": 0.05,
    "modules_to_save": None,
    "peft_type": "LORA",
    "r": 16,
    "rank_pattern": {},
    "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"],
    "use_dora": False,
}
JOB = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.precisions.bf16
cluster { devices = 8 }
training { sequence = 2048, global_batch = 8 sequences }
"""


@pytest.mark.slow
def test_a_configuration_of_peft_gives_the_adapters_of_a_job(run_command: Run) -> None:
    """36 layers of 16 (8192 + 5120 + 5120 + 8192) parameters."""
    files = {"adapter_config.json": json.dumps(PEFT), "job.par": JOB}
    words = ("adapter_config.json", "--use", "job.par", "--figures", "trained_parameters")
    done = run_command("eval", *words, files=files)
    assert done.code == 0, done.err
    assert "15,335,424" in done.out
    assert "warning" not in done.out + done.err


def test_a_file_of_several_blocks_is_none_of_them(run_command: Run) -> None:
    """The file names its base model too: `as` would leave both out, and train all parameters."""
    files = {"adapter_config.json": json.dumps(PEFT)}
    job = f'use "adapter_config.json" as adapters\n{JOB}'
    done = run_command("check", "job.par", job=job, files=files)
    assert done.code == 2
    assert "`as` needs a file with one block" in done.out + done.err


@try_each(
    "change, message",
    [
        ({"peft_type": "PREFIX_TUNING"}, "PEFT adapters of the kind `PREFIX_TUNING`"),
        ({"use_dora": True}, "`use_dora`"),
        ({"use_qalora": True}, "`use_qalora`"),
        ({"arrow_config": {"top_k": 3}}, "`arrow_config.top_k`"),
        ({"rank_pattern": {"q_proj": 4}}, "`rank_pattern.q_proj`"),
        ({"modules_to_save": ["lm_head"]}, "`modules_to_save`"),
        ({"target_modules": ".*proj"}, "a regular expression"),
        ({"bias": "all"}, "`bias`"),
    ],
)
def test_other_adapters_of_peft_are_rejected_by_name(change: dict[str, Any], message: str) -> None:
    text = json.dumps({**PEFT, **change})
    found = HuggingFace().read(ImportFile("adapter_config.json", text))
    assert message in " ".join(problem.message for problem in found.problems)


LITGPT = """checkpoint_dir: checkpoints/meta-llama/Llama-3.2-1B
out_dir: out
precision: bf16-true
quantize: bnb.nf4-dq
devices: 1
lora_r: 8
lora_query: true
lora_mlp: true
train: {global_batch_size: 16, micro_batch_size: 1, lr_warmup_steps: 10, max_seq_length: 512}
"""


def test_litgpt_reads_lora_with_its_own_defaults() -> None:
    values = settings(LitGpt().translate("run.yaml", LITGPT))
    assert [values[f"adapters.{of}"] for of in ("rank", "base", "dropout")] == [
        "8",
        "nf4_double",
        "on",
    ]
    on = [of for of in TARGETS if values[f"adapters.{of}"] == "on"]
    assert on == ["query", "value", "gate", "up", "down"]
    eight = LitGpt().translate("run.yaml", LITGPT.replace("nf4-dq", "int8"))
    assert "4 or 8 bits" in eight.problems[0].message


def test_the_targets_of_a_family_that_is_not_known_raise_a_question() -> None:
    """PEFT adapts the fused projection of Phi-3, and not two of its parts."""
    name, text = FILES["trl"]
    other = text.replace("meta-llama/Llama-3.1-8B", "microsoft/Phi-3-mini-4k-instruct").replace(
        "--bf16", "--bf16 --use_peft"
    )
    one = importer_of("trl")
    found = one.read(ImportFile(name, other))
    (ask,) = [ask for ask in found.questions if ask.attribute == "adapters.query"]
    for target in ("query", "key", "value"):
        assert f"--set adapters.{target}=on" in ask.answers[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        # query and value: 32 layers of 32 (4096 + 4096 + 4096 + 1024)
        (
            "axolotl.yml",
            AXOLOTL.replace("lora_target_linear: true\n", ""),
            32 * 32 * (4096 + 4096 + 4096 + 1024),
        ),
        # 80 layers of 16 (8192 + 8192 + 8192 + 1024), and the MLP, which the file names
        (
            "torchtune.yaml",
            TORCHTUNE.replace("  lora_attn_modules: [q_proj, v_proj, output_proj]\n", ""),
            80 * 16 * (8192 + 8192 + 8192 + 1024 + 3 * (8192 + 28672)),
        ),
    ],
)
def test_the_answer_about_targets_adapts_those_that_it_names(
    run_command: Run, name: str, text: str, count: int
) -> None:
    asked = run_command("eval", name, *MACHINE, files={name: text})
    assert "`adapters.query` is not known" in asked.err
    answer = "--set adapters.query=on --set adapters.value=on"
    assert answer in asked.err
    done = run_command("eval", name, *MACHINE, *answer.split(), "--format", "json")
    assert done.code in (0, 1), done.err
    (report,) = json.loads(done.out)["reports"]
    assert report["results"][0]["figures"]["trained_parameters"]["value"] == count


@pytest.mark.parametrize(
    ("tool", "old", "adapters"),
    [
        (
            "axolotl",
            "meta-llama/Llama-3.1-8B",
            "adapter: lora\nlora_target_linear: true\nlora_r: 8",
        ),
        ("llamafactory", "meta-llama/Llama-3.1-8B", "lora_rank: 8"),
    ],
)
def test_the_name_of_a_quantized_checkpoint_is_the_type_of_its_base(
    tool: str, old: str, adapters: str
) -> None:
    name, text = FILES[tool]
    one = importer_of(tool)

    def read_model(model: str, more: str = adapters) -> Translation:
        own = text.replace(old, model).replace("finetuning_type: full\n", "") if more else text
        return one.read(ImportFile(name, f"{own.replace(old, model)}\n{more}\n"))

    found = read_model("unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit")
    assert settings(found)["adapters.base"] == "nf4_double"
    (use,) = [use for use in found.uses if "quantizations" in use.value]
    assert use.assumption
    for model, more in (("a/Llama-3.1-8B-GPTQ", adapters), ("a/Llama-3.1-8B-bnb-4bit", "")):
        messages = [problem.message for problem in read_model(model, more).problems]
        assert any("a frozen model in 4 or 8 bits" in message for message in messages)


@try_each("share", ["x", "'${dropout}'", "[0.1]", "null"])
def test_a_dropout_that_is_no_number_is_an_error(share: str) -> None:
    tune = importer_of("torchtune")
    own = TORCHTUNE.replace("lora_rank: 16", f"lora_rank: 16\n  lora_dropout: {share}")
    tuned = tune.read(ImportFile("a.yaml", own))
    if share == "null":
        assert settings(tuned)["adapters.dropout"] == "off"
    else:
        (problem,) = tuned.problems
        assert "a number from 0 to 1 is expected" in problem.message
    lit = LitGpt().translate("run.yaml", f"{LITGPT}lora_dropout: {share}\n")
    if share == "null":  # LitGPT has a default
        assert settings(lit)["adapters.dropout"] == "on"
    else:
        assert "a number from 0 to 1 is expected" in lit.problems[0].message


def test_the_kernels_of_a_base_of_torchao_are_an_assumption() -> None:
    found = read("torchtune", ".llama3_1_8b", ".qlora_llama3_1_8b")
    (use,) = [use for use in found.uses if "quantizations" in use.value]
    assert "torchao" in use.assumption


def test_a_lora_file_of_litgpt_is_read_as_lora() -> None:
    found = LitGpt().translate("run.yaml", LITGPT + "lora_alpha: 16\n")
    assert not found.unknown
    whys = [one.assumption for block in found.blocks for one in block.settings]
    assert not any("finetune_full" in why for why in whys)
    assert any("finetune_lora" in why for why in whys)


@try_each(
    "more, is_listed",
    [
        ("", True),
        ("lora_mlp_kernel: false\n", False),
        ("fsdp_version: 2\nfsdp_config: {offload_params: false}\n", True),
        ("fsdp_config: {fsdp_offload_params: false}\n", False),  # FSDP 1 rejects them
    ],
)
def test_fused_kernels_that_axolotl_turns_on_are_listed(more: str, is_listed: bool) -> None:
    found = importer_of("axolotl").read(ImportFile("run.yml", AXOLOTL + more))
    reasons = [one.reason for one in found.missing if one.name == "lora_mlp_kernel"]
    assert bool(reasons) is is_listed
