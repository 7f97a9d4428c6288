"""The configuration of DeepSpeed that a command of Megatron-DeepSpeed names, as options."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import NamedTuple

from parcost import ImportProblem
from parcost_formats.tools.collector import read_configuration
from parcost_formats.tools.drafts import Option
from parcost_formats.tools.tables import table

_RULES = table("megatron")["engine"]
_ZERO = "zero_optimization"


class DeepSpeedOptions(NamedTuple):
    """What a configuration decides: *options* by name, and the *recipe* of a bf16 job.

    *rest* are its keys that may affect cost and are not read.
    """

    options: Mapping[str, Option]
    recipe: str
    rest: str


def read_engine(text: str, place: Option) -> DeepSpeedOptions | ImportProblem:
    """Return the options of a configuration; *place* is the flag that names it."""
    entries = read_configuration("deepspeed.json", text)
    if isinstance(entries, ImportProblem):
        message = f"`{place.text}`: {entries.message}"
        return ImportProblem(message=message, start=place.start, end=place.end)
    values = {key: entry.value for key, entry in entries.items()}
    stage = values.get(f"{_ZERO}.stage", 0)
    if stage not in (0, 1, 2, 3) or "nvme" in values.values():
        what = "the stages of ZeRO are 0 to 3" if stage not in (0, 1, 2, 3) else _RULES["disk"]
        message = f"`{place.text}`: {what}"
        return ImportProblem(message=message, start=place.start, end=place.end)
    narrow = any(values.get(f"{kind}.enabled") is True for kind in ("bf16", "bfloat16"))
    wide = str(values.get("data_types.grad_accum_dtype", "")) in ("fp32", "float32")
    found: dict[str, Option] = {}
    if stage:
        found["zero_stage"] = place.evolve(texts=(str(stage),))
    elif narrow:
        found["zero_stage"] = place.evolve(texts=("1",), assumption=_RULES["sharded"])
    for name, keys in _RULES["offload"].items():
        if any(values.get(key) in (True, "cpu") for key in keys):
            found[name] = place.evolve(texts=())
    recipe = "bf16_deepspeed" if stage == 0 or (stage == 1 and wide) else "bf16_zero_paper"
    if stage in (2, 3) and wide:
        recipe = "bf16"
    read = {*_RULES["read"], f"{_ZERO}.stage", *chain.from_iterable(_RULES["offload"].values())}
    heads = tuple(_RULES["ignored"])
    rest = [key for key in values if key not in read and not key.startswith(heads)]
    return DeepSpeedOptions(found, recipe, ", ".join(rest[:6]))
