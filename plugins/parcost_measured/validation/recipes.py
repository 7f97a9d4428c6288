"""Precision and recomputation: the words of sources, translated to terms of parcost."""

from __future__ import annotations

import re
from collections.abc import Mapping

from attrs import Factory, evolve, frozen

from parcost_measured.validation.frameworks import Profile
from parcost_measured.validation.rows import RunRow, UnmodelledError


@frozen
class Recipe:
    """A precision of the catalogue; *state* is another one whose bytes per parameter are used.

    With *attention*, the attention core runs in FP8 too.
    """

    name: str
    state: str = ""
    assumed: str = ""
    attention: bool = False


#: Catalogue precisions as changed by tuned recipes of NeMo and Megatron-Bridge.
_NEMO = {
    "bf16": ("bf16_nemo", ""),
    "fp8_delayed": ("fp8_delayed_nemo", ""),
    "fp8_current": ("fp8_current_nemo", ""),
    "fp8_blockwise": ("fp8_blockwise", "bf16_nemo"),
    "mxfp8": ("mxfp8_nemo", ""),
    "nvfp4": ("nvfp4", "bf16_nemo"),
}

#: By precision class and a pattern in the row's precision; the first counts.
_RECIPES = (
    ("bf16", r"", "bf16"),
    ("fp16", r"", "fp16"),
    ("fp32", r"", "fp32"),
    ("tf32", r"", "tf32"),
    ("fp8", r"fine-grained|block", "fp8_blockwise"),
    ("fp8", r"current|tensorwise|rowwise|float8", "fp8_current"),
    ("fp8", r"", "fp8_delayed"),
    ("mxfp8", r"", "mxfp8"),
    ("nvfp4", r"", "nvfp4"),
    ("mxfp4", r"", "nvfp4"),
)


def recipe_of(row: RunRow, profile: Profile) -> Recipe:
    """Return the precision of *row*.

    Raises:
        UnmodelledError: The row names no data type.
    """
    return evolve(_base_recipe(row, profile), attention=_narrow_attention(row))


def _narrow_attention(row: RunRow) -> bool:
    """Return whether the attention core ran in fp8, by `extra.fp8_dpa` or the text of the row."""
    said = row.extra.get("fp8_dpa")
    if isinstance(said, bool):
        return said
    return bool(re.search(r"fp8 attention", row.precision or "", re.IGNORECASE))


def _base_recipe(row: RunRow, profile: Profile) -> Recipe:
    numbers, text = row.numbers, (row.precision or "").lower()
    name = next((n for kind, said, n in _RECIPES if kind == numbers and re.search(said, text)), "")
    if not name:
        message = f"there is no recipe for the precision of the row: `{row.precision}`"
        if not text:
            message = "the row has no precision"
        raise UnmodelledError(message)
    assumed = ""
    if name == "fp8_delayed" and "delayed" not in text:
        assumed = "fp8 with delayed scaling: the row does not name the recipe"
    if numbers == "mxfp4":
        assumed = "mxfp4 is modeled as nvfp4: the catalogue has no mxfp4 recipe"
    if "pure" in text and name == "bf16":
        return Recipe("bf16_pure")
    if profile.sharded_master and numbers not in ("fp32", "tf32"):
        if name == "bf16":
            return Recipe("bf16_fsdp")
        torchao = "torchao" in text or profile.framework.startswith("torchtitan")
        if numbers == "fp8" and torchao:
            rows = "_rows" if "rowwise" in text else ""
            return Recipe(f"fp8_torchao{rows}", assumed=assumed)
        return Recipe(name, "bf16_fsdp", assumed)
    if name == "bf16" and "deepspeed" in profile.framework:
        return Recipe("bf16_deepspeed", assumed=assumed)
    sharded = "zero" in (row.parallel.zero_stage_or_fsdp or "").lower()
    if name == "fp16" and "deepspeed" in profile.framework and sharded:
        return Recipe("fp16_zero", assumed=assumed)
    if profile.framework.startswith("nemo") and name in _NEMO:
        return Recipe(*_NEMO[name], assumed or "gradients in bf16, as in NeMo's tuned recipes")
    return Recipe(name, assumed=assumed)


@frozen
class Recomputation:
    """The value of `training.recompute`, switches of the block `recompute`, and assumptions."""

    kind: str
    switches: Mapping[str, str] = Factory(dict)
    assumed: str = ""


#: Modules by name, as Megatron-Core lists them.
_MODULES = {
    "layernorm": "norms",
    "moe_act": "activation",
    "mla_up_proj": "up_projection",
    "mlp": "mlp",
    "moe": "moe",
}
_POINTS = {"norms": "on", "activation": "on"}
_QKV = {"keep_qkv": "on"}
_OUTPUT = {**_QKV, "keep_output": "on"}
#: Phrases in sources: a pattern, and its recomputation.
_DETAILS = (
    (r"every 2nd layer|by layer", Recomputation("full", {"every": "2"})),
    (r"per-op|by op", Recomputation("full", {"alternate": "on"})),
    (
        r"save_dot_only",
        Recomputation("full", {**_OUTPUT, "keep_up": "on", "keep_down": "on"}),
    ),
    (r"save_qkv_out_proj", Recomputation("full", _OUTPUT)),
    (r"save q,k,v,qkv,out", Recomputation("full", {**_OUTPUT, "keep_down": "on"})),
    (r"save_qkv_proj", Recomputation("full", _QKV)),
)


def _recompute_detail(row: RunRow) -> str:
    """Return the description of recomputation in the row, in lower case; "" without one.

    For `a (H100) / b (GB200)`, return the words for the device of the row.
    """
    said = row.extra.get("recompute_detail")
    text = said.lower() if isinstance(said, str) else ""
    for words, device in re.findall(r"([^/()]+)\((\w+)\)", text):
        if device in re.findall(r"\w+", row.hardware.gpu.lower()):
            return str(words)
    return text


def recomputation_of(row: RunRow) -> Recomputation:
    """Return the recomputation of *row*."""
    text = _recompute_detail(row)
    if chunked := re.search(r"full recompute of (\d+) layers", text):
        return Recomputation("full", {"layers": chunked[1]})
    for pattern, found in _DETAILS:
        if text and re.search(pattern, text):
            return found
    switches = {
        switch: "on" for word, switch in _MODULES.items() if re.search(rf"\b{word}\b", text)
    }
    core = "core_attn" in text
    match row.recompute:
        case "full":
            return Recomputation("full")
        case "selective" if switches:
            return Recomputation("selective" if core else "none", switches)
        case "selective" if "torchtitan" in row.source:
            return Recomputation(
                "full", {"every": "2"}, "torchtitan's policy by default, up to 0.2.2"
            )
        case "selective":
            return Recomputation("selective")
        case "none":
            return Recomputation("none")
        case "partial":
            return Recomputation(
                "selective", _POINTS, "partial recomputation: attention core, norms, activations"
            )
        case _:
            return Recomputation("none", {}, "no recomputation: the row does not state it")
