"""Adapters (LoRA) of a row: its fields and texts, and for missing values the defaults of its tool.

A row has adapters by `tuning.kind`, or by the word LoRA in its texts. The table `adapters.toml` has
the names of modules, and the defaults of tools with their versions.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import Factory, frozen

from parcost_measured.validation.rows import FineTuning, RunRow, UnmodelledError
from parcost_plugins.vocabulary.adapters import LAYER_TARGETS

_TABLE: Mapping[str, Any] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
TARGETS = (*LAYER_TARGETS, "head")
#: Attributes of the block `adapters`, in the order of a study.
ATTRIBUTES = (
    *("rank", *TARGETS, "fused", "dropout"),
    *("narrow", "split", "all_to_all", "experts", "base"),
)
#: A rank beside the word LoRA counts before others: a process has a rank, too.
_RANKS = (
    r"\bq?lora\b[^.;\n]{0,20}?\b(?:rank\W{0,3}(?:of )?|r ?= ?)(\d+)",
    r"\b(?:rank\W{0,3}(?:of )?|r ?= ?)(\d+)",
)
_NAMES = r"\b(?:[qkvo]|qkv|gate|up|down)_proj\b|\blinear_(?:qkv|proj|fc1|fc2)\b|\ball[- ]linear\b"


@frozen
class AdapterSettings:
    """Attributes of the block `adapters`, further settings of the tool, and assumptions.

    *extra* has settings by the names of a row's `extra`. *quantization* is the block of the base.
    """

    values: Mapping[str, str] = Factory(dict)
    extra: Mapping[str, Any] = Factory(dict)
    assumed: Sequence[str] = ()

    @property
    def quantization(self) -> str:
        """The name of the `quantization` of the base; "" if it is not quantized."""
        return self.values.get("base", "")


def adapters_of(row: RunRow, tool: str) -> AdapterSettings:
    """Return the adapters of *row*; *tool* is the title of its framework.

    Raises:
        UnmodelledError: The row has another kind of adapters, or neither it nor its tool says
            their rank and targets.
    """
    if not row.has_adapters:
        return AdapterSettings()
    kind = (row.tuning.kind if row.tuning else None) or ""
    if kind and kind.lower() not in ("lora", "qlora"):
        message = f"adapters of the kind `{kind}` are not modeled: only `lora` and `qlora`"
        raise UnmodelledError(message)
    said, default = _settings_of(row), _default_of(row, tool)
    missing = [name for name in ("rank", "targets") if not (said[name] or default.get(name))]
    if missing:
        raise UnmodelledError(
            f"adapters (LoRA) without {' and '.join(missing)}, and the default of {tool} is not "
            f"known: write {' and '.join(f'`tuning.{name}`' for name in missing)}"
        )
    unstated = [name for name, value in said.items() if value is None]
    known = [name for name in unstated if name in default]
    assumed = [f"{', '.join(known)} of the adapters: {default['title']}"] if known else []
    assumed += [_USUAL[name] for name in unstated if name not in default]
    chosen = {name: default.get(name) if value is None else value for name, value in said.items()}
    extra = {name: v for name, v in default.get("extra", {}).items() if name not in row.extra}
    assumed += [f"{', '.join(extra)} as in {default['title']}"] if extra else []
    return AdapterSettings(dict(_values(row, chosen, default)), extra, assumed)


#: What is assumed where neither a row nor its tool says it.
_USUAL = {
    "dropout": "the adapters have no dropout: the row does not state it",
    "base": "frozen weights have the type of the model: the row does not state it",
}


def _settings_of(row: RunRow) -> Mapping[str, Any]:
    """Return the settings of adapters in the fields and the texts of a row; None if unknown."""
    tuning, text = row.tuning or FineTuning(), row.adapter_text
    names = tuning.targets or re.findall(_NAMES, text, re.IGNORECASE)
    return {
        "rank": tuning.rank or _rank_in(text),
        "targets": names if isinstance(names, str) else ", ".join(names) or None,
        "dropout": None if tuning.dropout is None else tuning.dropout > 0,
        "base": tuning.base or _base_in(f"{text} {tuning.kind or ''}"),
    }


def _values(
    row: RunRow, chosen: Mapping[str, Any], default: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield the attributes of the block `adapters`."""
    targets = _targets_of(str(chosen["targets"]))
    megatron, tp = default.get("like") == "megatron", row.parallel.tp
    yield "rank", str(chosen["rank"])
    for target in TARGETS:
        if target != "head" or target in targets:
            yield target, "on" if target in targets else "off"
    if megatron:
        yield "fused", "on"
    if chosen["dropout"]:
        yield "dropout", "on"
    stated = str(chosen["base"] or "")
    base = _base_of(stated)
    if base == "narrow":
        if re.sub(r"\D", "", stated) not in (row.numbers or ""):
            message = f"`tuning.base` is `{stated}`, but the row computes in {row.numbers}"
            raise UnmodelledError(f"{message}: frozen weights are narrow in the same type")
        yield "narrow", "on"
    elif base:
        yield "base", base
    if tp > 1:
        yield "split", "both" if megatron else "one"
    if tp > 1 and default.get("all_to_all") and row.parallel.sequence_parallel is not False:
        yield "all_to_all", "on"
    if row.is_sparse and targets & {"gate", "up", "down"}:
        yield "experts", "shared" if megatron else "each"


def _default_of(row: RunRow, tool: str) -> Mapping[str, Any]:
    """Return the defaults of the tool that ran *row*; empty if they are not known."""
    places = (row.extra.get("framework"), tool, row.source, row.source_locator, row.notes)
    text = " ".join(str(one) for one in places if one)
    for one in _TABLE["default"]:
        model = re.search(one.get("model", ""), row.model.name, re.IGNORECASE)
        if model and re.search(one["pattern"], text, re.IGNORECASE):
            found: Mapping[str, Any] = one
            return found
    return {}


def _rank_in(text: str) -> int | None:
    """Return the rank that a *text* states.

    >>> _rank_in("LoRA, rank 16"), _rank_in("QLoRA r=64 on q_proj"), _rank_in("LoRA")
    (16, 64, None)
    >>> _rank_in("DeepSeek-R1 data, memory of rank 0; LoRA of rank 8"), _rank_in("rank 4; rank 8")
    (8, None)
    """
    for pattern in _RANKS:
        found = {int(digits) for digits in re.findall(pattern, text, re.IGNORECASE)} - {0}
        if found:
            return found.pop() if len(found) == 1 else None
    return None


def _base_in(text: str) -> str | None:
    """Return the storage of the base that a *text* states; NF4 for QLoRA."""
    if re.search(r"\bqlora\b", text, re.IGNORECASE):
        double = re.search(r"double[- ]quant", text, re.IGNORECASE)
        return "nf4_double" if double else "nf4"
    return None


def _targets_of(names: str) -> set[str]:
    """Return the targets of *names* of modules.

    >>> sorted(_targets_of("q_proj, v_proj")), sorted(_targets_of("linear_qkv + linear_fc2"))
    (['query', 'value'], ['down', 'key', 'query', 'value'])

    Raises:
        UnmodelledError: A name is not known.
    """
    found: set[str] = set()
    words = re.findall(r"all[- ]linear|[\w.*-]+", names.lower())
    for word in words:
        known = next(
            (one for pattern, one in _TABLE["modules"].items() if re.fullmatch(pattern, word)), None
        )
        if known is None and word not in ("and", "only"):
            message = f"`tuning.targets` is `{names}`: no module is known as `{word}`"
            raise UnmodelledError(message)
        found.update(known or ())
    return found


def _base_of(said: str) -> str:
    """Return the block of `quantizations` for a base, `narrow`, or "" for the type of the model.

    Raises:
        UnmodelledError: The storage is not known.
    """
    text = said.lower()
    for pattern, name in _TABLE["bases"].items():
        if not text or re.fullmatch(pattern, text):
            return str(name) if text else ""
    known = "nf4, nf4_double, fp8 or bf16"
    message = f"`tuning.base` is `{said}`: a base in this type is not modeled, only in {known}"
    raise UnmodelledError(message)
