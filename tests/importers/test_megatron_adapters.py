"""LoRA of Megatron-Bridge, NeMo 2 and Megatron-SWIFT: recipes, YAML and commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from parcost import ImportFile, ImportOptions, Translation
from parcost_formats.tools.megatron import Megatron
from parcost_formats.tools.nemo import NeMo
from parcost_formats.tools.tables import table

from ..rows import try_each
from .megatron_files import figures, translate, values

EVERY = ("query", "key", "value", "output", "gate", "up", "down")


def adapters(found: Translation) -> dict[str, str]:
    """Return the attributes of the adapters."""
    kept = {path: one for path, one in values(found).items() if path.startswith("adapters.")}
    return {path.removeprefix("adapters."): one for path, one in kept.items()}


def targets(found: Translation) -> list[str]:
    """Return the targets that are on."""
    return [one for one in EVERY if adapters(found)[one] == "on"]


def problem(found: Translation) -> str:
    """Return the message of the only error, and its help."""
    (one,) = found.problems
    return f"{one.message}; {one.help}"


# --- Megatron-Bridge ---------------------------------------------------------------------------

RECIPE = """\
from megatron.bridge import AutoBridge
from megatron.bridge.peft.base import PEFT
from megatron.bridge.recipes.common import _peft_common
from megatron.bridge.recipes.utils.finetune_utils import default_peft_config
from megatron.bridge.training.config import ConfigContainer


def llama3_70b_peft_8gpu_h100_bf16_config(peft_scheme: str | PEFT = "lora") -> ConfigContainer:
    cfg = _peft_common()
    hf_path = "meta-llama/Meta-Llama-3-70B"
    cfg.model = AutoBridge.from_hf_pretrained(hf_path).to_megatron_provider(load_weights=False)
    cfg.tokenizer.tokenizer_model = hf_path
    cfg.model.seq_length = 4096
    cfg.dataset.seq_length = 4096
    peft_cfg = default_peft_config(peft_scheme)
    cfg.peft = peft_cfg
    if isinstance(peft_scheme, str) and peft_scheme.lower() in ["lora", "dora"]:
        peft_cfg.dim = 16
        peft_cfg.alpha = 32
    cfg.model.tensor_model_parallel_size = 8
    cfg.model.pipeline_model_parallel_size = 1
    cfg.model.sequence_parallel = False
    cfg.mixed_precision = "bf16_mixed"
    cfg.train.global_batch_size = 8
    cfg.train.micro_batch_size = 1
    cfg.optimizer.use_distributed_optimizer = False
    return cfg
"""
# Llama 3 70B: 80 layers, h 8192, 64 heads and 8 KV heads of 128, f 28,672; fused, of rank 16
THIN = 80 * 16 * ((8192 + 10_240) + (8192 + 8192) + (8192 + 2 * 28_672) + (28_672 + 8192))


def test_a_recipe_of_bridge_has_its_adapters() -> None:
    found = translate(Megatron(), "recipe.py", RECIPE)
    assert not found.questions
    assert adapters(found) == {
        "rank": "16",
        "fused": "on",
        "dropout": "off",
        "split": "both",
        **dict.fromkeys(EVERY, "on"),
    }
    assert values(found)["layout.zero"] == "0"


def test_the_adapters_of_a_recipe_have_the_parameters_and_bytes_of_the_tool(tmp_path: Path) -> None:
    """By hand: 175,636,480 parameters, of which a rank of 8 holds an eighth, as 18 bytes each."""
    found = figures(tmp_path, RECIPE, 8, "recipe.py")
    assert THIN == 175_636_480
    assert float(found.figure("trained_parameters")) == THIN
    for name, each in (("gradients_memory", 4), ("optimizer_memory", 12)):
        assert float(found.figure(name)) == pytest.approx(each * THIN / 8)


def test_a_rank_that_the_degree_does_not_divide_is_an_error(tmp_path: Path) -> None:
    found = figures(tmp_path, RECIPE.replace("dim = 16", "dim = 12"), 8, "recipe.py")
    assert [one.id for one in found.diagnostics if one.severity.value == "error"] == [
        "adapters-rank-divide"
    ]


YAML = """\
recipe: llama3_8b_peft_1gpu_h100_bf16_config
model:
  hf_path: meta-llama/Meta-Llama-3-8B
  seq_length: 4096
  tensor_model_parallel_size: 1
  pipeline_model_parallel_size: 1
  context_parallel_size: 1
  sequence_parallel: false
peft:
  type: lora
  dim: 8
  alpha: 16
  target_modules: [linear_qkv, linear_proj]
train:
  global_batch_size: 8
  micro_batch_size: 1
mixed_precision: bf16_mixed
ddp:
  use_distributed_optimizer: false
"""


def test_a_section_of_yaml_has_adapters() -> None:
    found = translate(Megatron(), "config.yaml", YAML)
    assert (adapters(found)["rank"], adapters(found)["fused"]) == ("8", "on")
    assert targets(found) == ["query", "key", "value", "output"]
    assert "split" not in adapters(found)  # of one rank


@try_each(
    "old, new, message",
    [
        ("linear_qkv", "linear_qkvv", "the module `linear_qkvv` is not read; known: linear_qkv"),
        ("[linear_qkv, linear_proj]", "['*.layers.0.*.linear_qkv']", "a pattern of modules"),
        ("[linear_qkv, linear_proj]", "[]", "an empty list means all linear layers"),
        ("type: lora", "type: dora", "adapters of the class `dora` are not supported"),
        ("dim: 8", "dim: eight", "a whole number of at least 1 is expected, but eight is given"),
        ("dim: 8", "dimm: 8", "the adapters of this tool have no such field"),
        ("alpha: 16", "experts_shared_outer_loras: true", "experts share one of the two matrices"),
        ("alpha: 16", "exclude_modules: [linear_fc1]", "list the modules in target_modules"),
        ("alpha: 16", "lora_dtype: fp32", "only adapters in the type of the model are supported"),
        (
            "alpha: 16",
            "dropout: 0.1\n  dropout_position: post",
            "dropout after the adapter is not modeled",
        ),
        (
            "type: lora",
            "type: canonical_lora",
            "the module `linear_qkv` is not read; known: linear_q,",
        ),
    ],
)
def test_adapters_that_are_not_certain_are_errors(old: str, new: str, message: str) -> None:
    assert message in problem(Megatron().translate("config.yaml", YAML.replace(old, new)))


def test_canonical_adapters_stand_beside_each_projection() -> None:
    names = "[linear_q, linear_k, linear_v, linear_fc1_up, linear_fc1_gate]"
    text = YAML.replace("type: lora", "_target_: megatron.bridge.peft.canonical_lora.CanonicalLoRA")
    text = text.replace("[linear_qkv, linear_proj]", names)
    found = translate(Megatron(), "config.yaml", text)
    assert adapters(found)["fused"] == "off"
    assert targets(found) == ["query", "key", "value", "gate", "up"]
    part = text.replace("linear_k, ", "")
    assert "a part of a fused projection" in problem(Megatron().translate("config.yaml", part))


def test_the_messages_of_adapters_have_switches() -> None:
    more = "a2a_experimental: true\n  sequence_parallel_input_regather: true"
    text = YAML.replace("alpha: 16", more).replace(
        "tensor_model_parallel_size: 1", "tensor_model_parallel_size: 2"
    )
    found = adapters(translate(Megatron(), "config.yaml", text))
    assert [found[one] for one in ("split", "all_to_all", "regather")] == ["both", "on", "on"]
    off = adapters(translate(Megatron(), "config.yaml", text.replace(": true", ": false")))
    assert "all_to_all" not in off
    assert "regather" not in off


def test_a_dropout_is_on_above_zero() -> None:
    text = YAML.replace("alpha: 16", "dropout: 0.1")
    assert adapters(translate(Megatron(), "config.yaml", text))["dropout"] == "on"


def test_frozen_weights_in_fp8_are_a_question() -> None:
    text = YAML.replace("bf16_mixed", "bf16_with_fp8_current_scaling_mixed")
    found = translate(Megatron(), "config.yaml", text)
    assert "adapters.narrow" in [one.attribute for one in found.questions]


CHANGES = """\
model:
  tensor_model_parallel_size: 2
  expert_model_parallel_size: 4
ddp:
  overlap_grad_reduce: true
train:
  micro_batch_size: 1
peft: {dim: 16}
"""


def read_changes(recipe: str, more: str = "") -> Translation:
    text = CHANGES.replace("dim: 16", f"dim: 16{more}")
    return Megatron().read(ImportFile("changes.yaml", text, ImportOptions(recipe=recipe)))


def test_a_file_changes_the_adapters_of_a_recipe_of_the_library() -> None:
    found = read_changes("qwen3_30b_a3b_peft_config")
    assert (adapters(found)["rank"], adapters(found)["split"]) == ("16", "both")
    assert targets(found) == ["query", "key", "value", "output"]  # as the recipe has it
    assert "experts" not in adapters(found)
    assert values(found)["layout.ep"] == "4"


def test_experts_share_an_adapter_unless_the_recipe_says_otherwise() -> None:
    every = ", target_modules: [linear_fc1, linear_fc2]"
    found = adapters(read_changes("qwen3_30b_a3b_peft_config", every))
    assert (found["experts"], found["shared_sum"]) == ("shared", "micro_batch")
    each = adapters(
        read_changes("qwen3_30b_a3b_peft_config", f"{every}, share_expert_adapters: false")
    )
    assert each["experts"] == "each"
    assert "shared_sum" not in each
    canonical = ", type: canonical_lora, target_modules: [linear_fc2]"
    message = problem(read_changes("qwen3_30b_a3b_peft_config", canonical))
    assert "canonical LoRA on experts is not supported" in message


def test_the_rank_of_experts_may_be_divided_by_the_experts_of_a_token() -> None:
    more = "normalize_moe_lora: true\n  target_modules: [linear_fc1, linear_fc2]"
    experts = "num_moe_experts: 64\n  moe_router_topk: 4\n  moe_grouped_gemm: true"
    shape = "num_layers: 4\n  hidden_size: 512\n  num_attention_heads: 8\n  vocab_size: 32000"
    text = YAML.replace("  target_modules: [linear_qkv, linear_proj]", f"  {more}")
    text = text.replace("hf_path: meta-llama/Meta-Llama-3-8B", f"{shape}\n  {experts}")
    assert adapters(translate(Megatron(), "config.yaml", text))["expert_rank"] == "2"
    odd = Megatron().translate("config.yaml", text.replace("dim: 8", "dim: 6"))
    assert "dim 6 is not divisible by moe_router_topk 4: Megatron-Bridge stops" in problem(odd)


@try_each(
    "recipe, flags, message",
    [
        ("llama31_70b_peft_config", "--peft_scheme lora", ""),
        ("llama31_70b_peft_config", "", ""),
        ("llama31_70b_sft_config", "--peft_scheme lora", "LoRA of this kind of job is not read"),
        ("llama31_70b_peft_config", "--peft_scheme dora", "LoRA of this kind of job is not read"),
    ],
)
def test_a_launch_of_a_recipe_has_its_adapters(recipe: str, flags: str, message: str) -> None:
    text = f"torchrun --nproc_per_node=8 run_recipe.py --recipe {recipe} {flags}\n"
    found = Megatron().translate("go.sh", text)
    assert [message in one.message for one in found.problems] == [True] * bool(message)
    if not message:
        assert (adapters(found)["rank"], adapters(found)["split"]) == ("16", "both")


def test_a_recipe_of_adapters_that_is_not_known_is_no_full_fine_tuning() -> None:
    text = "torchrun --nproc_per_node=8 run_recipe.py --recipe own_7b_peft_config\n"
    found = Megatron().translate("go.sh", text)
    assert "adapters" not in [block.kind for block in found.blocks]
    assert "not in parcost's table" in " ".join(one.message for one in found.problems)


# --- Megatron-SWIFT ----------------------------------------------------------------------------

SWIFT = """\
NPROC_PER_NODE=2 megatron sft \\
    --model Qwen/Qwen3-30B-A3B-Instruct-2507 --merge_lora false --tuner_type lora \\
    --lora_rank 8 --lora_alpha 32 --target_modules all-linear --expert_model_parallel_size 2 \\
    --moe_grouped_gemm true --micro_batch_size 8 --global_batch_size 16 --packing true \\
    --recompute_granularity full --recompute_method uniform --recompute_num_layers 1 \\
    --sequence_parallel true --max_length 2048
"""
# Qwen3 30B-A3B: 48 layers, h 2048, 32 heads and 4 KV heads of 128, 128 experts of 768; rank 8
OF_ATTENTION = (2048 + 5120) + (4096 + 2048)
OF_EXPERTS = 128 * ((2048 + 2 * 768) + (768 + 2048))


def test_a_command_of_swift_has_an_adapter_for_each_expert(tmp_path: Path) -> None:
    found = translate(Megatron(), "train.sh", SWIFT)
    assert adapters(found) == {
        "rank": "8",
        "fused": "on",
        "dropout": "on",  # 0.05
        "experts": "each",
        **dict.fromkeys(EVERY, "on"),
    }
    trained = figures(tmp_path, SWIFT, 2, "train.sh").figure("trained_parameters")
    assert float(trained) == 48 * 8 * (OF_ATTENTION + OF_EXPERTS) == 319_684_608


def test_tensor_parallelism_splits_one_matrix_in_swift() -> None:
    text = SWIFT.replace("--lora_rank 8", "--tensor_model_parallel_size 2 --lora_dropout 0")
    found = adapters(translate(Megatron(), "train.sh", text))
    assert (found["rank"], found["split"], found["dropout"]) == ("8", "one", "off")


@try_each(
    "old, new, message",
    [
        ("all-linear", "all-router", "the module `all-router` is not read"),
        ("--lora_alpha 32", "--target_regex x", "a regular expression of modules"),
        ("--lora_alpha 32", "--lora_bias all", "additional trained biases"),
        ("--lora_alpha 32", "--lora_dtype float32", "in the type of the model"),
        ("--lora_alpha 32", "--modules_to_save embed", "additional trained modules"),
        ("--tuner_type lora", "--tuner_type longlora", "this tuner is not modeled"),
        ("--lora_rank 8", "--lora_rank 0", "a whole number of at least 1 is expected"),
    ],
)
def test_adapters_of_swift_that_are_not_certain_are_errors(
    old: str, new: str, message: str
) -> None:
    found = Megatron().translate("train.sh", SWIFT.replace(old, new))
    assert message in found.problems[0].message


def test_swift_does_not_start_with_adapters_on_parts_of_experts(tmp_path: Path) -> None:
    text = SWIFT.replace("--lora_rank 8", "--tensor_model_parallel_size 2 --lora_rank 8")
    text = text.replace("--expert_model_parallel_size 2", "--expert_tensor_parallel_size 2")
    found = figures(tmp_path, text, 2, "train.sh")
    errors = [one.id for one in found.diagnostics if one.severity.value == "error"]
    assert "adapters-expert-parts" in errors


# --- NeMo 2 ------------------------------------------------------------------------------------

LIBRARY = """\
import nemo_run as run
from nemo.collections import llm
from nemo.collections.llm.peft import LoRA


def one_recipe():
    recipe = llm.{call}
    {change}
    return recipe
"""


def nemo(call: str, change: str = "recipe.peft.alpha = 32") -> Translation:
    return NeMo().translate("recipe.py", LIBRARY.format(call=call, change=change))


@try_each(
    "call, rank, chosen, layout",
    [
        ("llama31_70b.finetune_recipe()", "16", EVERY, ("8", "1")),
        (
            "llama31_70b.finetune_recipe(performance_mode=True)",
            "16",
            ("query", "key", "value"),
            ("2", "4"),
        ),
        ("llama3_8b.finetune_recipe(peft_scheme='lora')", "8", EVERY, ("1", "1")),
        ("mixtral_8x7b.finetune_recipe()", "32", EVERY[:4], ("1", "1")),
    ],
)
def test_a_recipe_of_nemo_2_adapts_by_default(
    call: str, rank: str, chosen: tuple[str, ...], layout: tuple[str, str]
) -> None:
    found = nemo(call)
    assert not found.problems
    assert adapters(found)["rank"] == rank
    assert tuple(targets(found)) == chosen
    assert adapters(found).get("split") == ("both" if layout[0] != "1" else None)
    assert (values(found)["layout.tp"], values(found)["layout.pp"]) == layout


def test_a_file_changes_the_adapters_of_a_recipe_of_nemo() -> None:
    found = nemo("llama31_8b.finetune_recipe()", "recipe.peft.target_modules = ['linear_qkv']")
    assert targets(found) == ["query", "key", "value"]
    own = nemo("llama31_8b.finetune_recipe(peft_scheme=None)", "recipe.peft = run.Config(LoRA)")
    assert adapters(own)["rank"] == "32"  # of the class
    full = nemo("llama31_8b.finetune_recipe(peft_scheme=None)", "recipe.data.seq_length = 4096")
    assert not adapters(full)


@try_each(
    "change, message",
    [
        ("recipe.peft.target_modules = ['linear_q']", "the module `linear_q` is not read"),
        ("recipe.peft.dim = args.dim", "the adapters cannot be read"),
        ("recipe.peft.dropout_recompute = True", "recomputed dropout"),
        ("recipe.peft.target_modules = ['linear_fc1']", "on experts are not supported"),
    ],
)
def test_adapters_of_nemo_that_are_not_certain_are_errors(change: str, message: str) -> None:
    assert message in problem(nemo("mixtral_8x7b.finetune_recipe()", change))


def test_the_command_of_nemo_adapts_by_default() -> None:
    text = "nemo llm finetune --factory llama31_8b peft=lora peft.dim=32\n"
    found = NeMo().translate("run.sh", text.replace(" peft=lora", ""))
    assert not found.problems
    assert adapters(found)["rank"] == "32"


def test_mixtures_of_the_catalogue_are_known(models_with_experts: set[str]) -> None:
    beginnings = tuple(table("hub")["mixtures"])
    assert "mixtral_8x7b" in models_with_experts
    assert all(one.startswith(beginnings) for one in models_with_experts)


@pytest.fixture
def models_with_experts() -> set[str]:
    """Return the entries of the catalogue whose models have experts."""
    import parcost_specs

    folder = Path(parcost_specs.__file__).parent / "models"
    return {one.stem for one in folder.glob("*.par") if "experts " in one.read_text()}
