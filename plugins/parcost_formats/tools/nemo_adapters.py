"""Adapters (LoRA) of NeMo 2: an object ``peft``, ``model_transform`` or a callback of the trainer.

Their classes have the same fields as in Megatron-Bridge, the successor of NeMo.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import evolve

from parcost_formats.tools.collector import SettingCollector
from parcost_formats.tools.drafts import Option, make_key_option
from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.megatron.adapters import (
    BLOCK,
    ask_for_frozen_type,
    has_experts,
    read_adapters,
)

_TARGET = "_target_"
_CLASS = "class"
_FP8 = ("fp8_params", "fp8_param", "fp8_param_gather")


def find_adapters(found: SettingCollector, prefixes: Sequence[str]) -> str:
    """Return the first of *prefixes* of keys under which an object creates adapters, "" for
    none.
    """
    return next(
        (one for one in prefixes if str(found.value(f"{one}{_TARGET}", "")).endswith("RA")), ""
    )


def read_nemo_adapters(
    found: SettingCollector,
    entries: Mapping[str, JsonEntry],
    assumed: Mapping[str, str],
    prefix: str,
    tool: str,
) -> None:
    """Set the adapters whose fields are the keys below *prefix*; *tool* is the tool's version.

    *assumed* are keys whose values are set by a library, with the reasons.
    """
    fields = {
        key.removeprefix(prefix): make_key_option(key, entry, assumed.get(key, ""))
        for key, entry in entries.items()
        if key.startswith(prefix)
    }
    kind = fields.pop(_TARGET)
    fields[_CLASS] = evolve(kind, texts=(kind.text.rpartition(".")[2],))
    for option in fields.values():
        found.value(option.key)  # which marks it as read
    degree = found.setting("layout.tp")
    name = "tensor_model_parallel_size"
    layout = {name: Option(name=name, key=name, texts=(degree,))} if degree else {}
    read_adapters(found, fields, SettingCollector(layout, draft=found), tool)
    mlp = [one for one in ("gate", "up", "down") if found.setting(f"{BLOCK}.{one}") == "on"]
    if mlp and has_experts(found):
        message = (
            "adapters of NeMo on experts are not supported: their gradients are reduced differently"
        )
        found.problem(kind.key, message, "use only linear_qkv and linear_proj")
    narrow = next(
        (one for one in entries if one.rpartition(".")[2] in _FP8 and found.switch(one)), ""
    )
    if narrow:
        ask_for_frozen_type(found, found.option(narrow))
