"""The configuration of DeepSpeed that a command of Megatron-DeepSpeed names, as options."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from parcost_formats.tools.data_types import SIZES
from parcost_formats.tools.deepspeed_keys import ADAM
from parcost_formats.tools.drafts import Option
from parcost_formats.tools.file_importer import FileError
from parcost_formats.tools.json_text import JsonEntry, read_object
from parcost_formats.tools.megatron.defaults import ToolOptions
from parcost_formats.tools.tables import table

_RULES = table("megatron")["engine"]
_STAGE = "zero_optimization.stage"


def read_engine(options: ToolOptions, text: str, place: Option) -> None:
    """Add the settings of the configuration *text*; *place* is the flag that names it.

    A flag with another value is an error. Unsupported keys that may affect cost are listed.
    """
    try:
        entries = read_object(text)
    except FileError as error:
        options.problem(place, f"`{place.text}`: {error}")
        return
    values = {key: entry.value for key, entry in entries.items()}
    stage = values.get(_STAGE, 0)
    is_stage = type(stage) is int and 0 <= stage <= 3
    if not is_stage or "nvme" in values.values():
        what = _RULES["disk"] if is_stage else "the stages of ZeRO are 0 to 3"
        options.problem(place, f"`{place.text}`: {what}")
        return
    found = _engine_options(entries, text, place)
    stated_stage = place.evolve(name="zero_stage", key=f"{_STAGE} ({place.text})", texts=("0",))
    is_narrow = "bf16" in found and found["bf16"].text == "true"
    for name, one in {"zero_stage": stated_stage, **found}.items():
        if _agrees(options, one):
            found.pop(name, None)
    if stage == 0 and is_narrow:
        found["zero_stage"] = stated_stage.evolve(texts=("1",), assumption=_RULES["sharded"])
    for name, keys in _RULES["offload"].items():
        if any(values.get(key) in (True, "cpu") for key in keys):
            found[name] = place.evolve(name=name, texts=())
    kind = str(values.get("optimizer.type", "adam")).lower()
    if kind not in ADAM:
        where = f"optimizer.type ({place.text})"
        found["optimizer"] = place.evolve(name="optimizer", key=where, texts=(kind,))
    options.add_engine(found, _recipe(stage, values))
    if rest := _unread_keys(values):
        options.leave(place, f"these keys of the file are not supported: {', '.join(rest[:6])}")


def _engine_options(
    entries: Mapping[str, JsonEntry], text: str, place: Option
) -> dict[str, Option]:
    """Return the flags that the keys of a configuration stand for; the first key of a flag wins."""
    found: dict[str, Option] = {}
    for key, name in _RULES["options"].items():
        if key in entries and name not in found:
            line = text.count("\n", 0, entries[key].start) + 1
            where = f"{key} ({place.text}:{line})"
            value = json.dumps(entries[key].value)
            found[name] = place.evolve(name=name, key=where, texts=(value,))
    return found


def _recipe(stage: int, values: Mapping[str, Any]) -> str:
    """Return the precision recipe of a ZeRO stage, by the data type that sums gradients."""
    is_summed = SIZES.get(str(values.get("data_types.grad_accum_dtype"))) == "4 B"
    if stage >= 2:
        return "bf16" if is_summed else "bf16_zero"
    return "bf16_deepspeed" if stage == 0 or is_summed else "bf16_zero"


def _unread_keys(values: Mapping[str, Any]) -> Sequence[str]:
    """Return the unsupported keys that may affect cost; a disabled section has none."""
    offload = chain.from_iterable(_RULES["offload"].values())
    read = {*_RULES["options"], *offload, "data_types.grad_accum_dtype"}
    off = [key.removesuffix("enabled") for key, one in values.items() if one is False]
    heads = (*_RULES["ignored"], *(key for key in off if key.endswith(".")))
    return [key for key in values if key not in read and not key.startswith(heads)]


def _agrees(options: ToolOptions, one: Option) -> bool:
    """Return whether the command line sets *one* to the same value; another value is an error at
    both places.

    A different value is an error at both places.
    """
    flag = options.lookup(one.name)
    if flag is None or flag.unread:
        return False
    here = flag.text or "true"
    if here != one.text:
        help = "the flag and the configuration must agree"
        options.problem(flag, f"it is {here} here, but {one.key} is {one.text}", help)
        options.problem(one, f"it is {one.text}, but {flag.key} is {here}", help)
    return here == one.text
