"""``config.json`` of Hugging Face transformers: a block ``model``.

A configuration states sizes. The code of a family decides on the rest, such as norms and biases.
The table has both. A family without an entry is refused: its parameters would be wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from parcost import (
    ImportedBlock,
    ImportedKey,
    ImportedValue,
    Importer,
    ImportProblem,
    Translation,
    hookimpl,
)
from parcost_plugins.importers.json_text import JsonEntry, JsonTextError, read_object
from parcost_plugins.importers.needs import NEEDS
from parcost_plugins.importers.subjects import MODEL_SUBJECTS
from parcost_plugins.importers.tables import is_listed, table

TOOL = "huggingface"
_TEXT = "text_config."
_WINDOWED, _FULL = "sliding_attention", "full_attention"


class HuggingFace(Importer):
    """Configurations of models."""

    name = TOOL
    title = str(table(TOOL)["title"])
    source = str(table(TOOL)["source"])
    needs = NEEDS
    subjects = MODEL_SUBJECTS
    describes = ("model",)

    def recognizes(self, name: str, text: str) -> bool:
        """Return whether the text is a JSON object with a ``model_type``."""
        return name.endswith(".json") and '"model_type"' in text

    def translate(self, name: str, text: str) -> Translation:
        """Return the model that a configuration describes."""
        try:
            entries = read_object(text)
        except JsonTextError as error:
            at = min(error.at, len(text))
            return Translation(problems=[ImportProblem(message=str(error), start=at, end=at + 1)])
        return _Configuration(name, entries).translation()


class _Configuration:
    """The entries of a configuration, read with the table."""

    def __init__(self, name: str, entries: Mapping[str, JsonEntry]) -> None:
        self._table = table(TOOL)
        self._nested = any(key.startswith(_TEXT) for key in entries)
        inner = {k.removeprefix(_TEXT): e for k, e in entries.items() if k.startswith(_TEXT)}
        self._entries = inner if self._nested else dict(entries)
        self._rest = [k for k in entries if self._nested and not k.startswith(_TEXT)]
        self._all = entries
        self._problems: list[ImportProblem] = []
        self._settings: dict[str, ImportedValue] = {}
        self._family = self._text("model_type")
        self._label = _label(name, self._family)

    def translation(self) -> Translation:
        """Return what the configuration says."""
        families: Mapping[str, Any] = self._table["families"]
        if self._family not in families:
            entry = self._entries.get("model_type", JsonEntry("", 0, 1))
            names = ", ".join(sorted(families))
            self._problems.append(
                ImportProblem(
                    message=f"models of the type `{self._family}` are not known",
                    start=entry.start,
                    end=entry.end,
                    help=f"known are {names}; write the `model` block by hand",
                )
            )
            return Translation(problems=self._problems)
        family = families[self._family]
        self._numbers()
        self._of_family(family)
        self._attention(family)
        self._experts()
        if family.get("learned_positions"):
            self._number("n_positions", "positions", family)
        if self._problems:
            return Translation(problems=self._problems)
        model = ImportedBlock(
            kind="model", label=self._label, settings=tuple(self._settings.values())
        )
        ignored, unknown = self._others()
        return Translation(blocks=[model], ignored=ignored, unknown=unknown)

    # Parts

    def _numbers(self) -> None:
        """Read what is a number or a switch in both."""
        for key, name in self._table["numbers"].items():
            self._number(key, name)
        for key, name in self._table["switches"].items():
            value = self._value(key)
            if isinstance(value, bool):
                self._set(name, "on" if value else "off", key)

    def _of_family(self, family: Mapping[str, Any]) -> None:
        """Set what the code of the family decides."""
        why = f"transformers, modeling_{self._family}.py"
        for key, value in family.get("defaults", {}).items():
            name = {**self._table["numbers"], **self._table["switches"]}.get(key)
            if name is not None and key not in self._entries:
                text = ("on" if value else "off") if isinstance(value, bool) else str(value)
                why_default = f"the default of {key} in configuration_{self._family}.py"
                self._settings[name] = ImportedValue(name=name, value=text, assumption=why_default)
        for name, value in family.get("set", {}).items():
            if name not in self._settings:
                self._settings[name] = ImportedValue(name=name, value=value, assumption=why)

    def _attention(self, family: Mapping[str, Any]) -> None:
        """Read windows, and biases of single projections."""
        if self._value("kv_lora_rank"):
            self._settings.pop("kv_heads", None)  # compressed keys have no heads
        self._biases()
        key = "sliding_window"
        window = self._value(key, family.get("defaults", {}).get(key))
        if not window or self._value("use_sliding_window", True) is False:
            return
        types = self._value("layer_types")
        every = self._value("sliding_window_pattern", family.get("full_every", 0))
        if isinstance(types, list):
            every = self._period(types)
            if every is None:
                return
        if every == 1:  # all layers attend to all tokens
            return
        if key in self._entries:
            self._set("window", str(window), key)
        else:
            why = f"the default of {key} in configuration_{self._family}.py"
            self._settings["window"] = ImportedValue(
                name="window", value=str(window), assumption=why
            )
        if every:
            shown = "layer_types" if isinstance(types, list) else "sliding_window_pattern"
            if shown in self._entries:
                self._set("full_every", str(every), shown)
            else:
                why = f"transformers, modeling_{self._family}.py"
                self._settings["full_every"] = ImportedValue(
                    name="full_every", value=str(every), assumption=why
                )

    def _period(self, types: Sequence[Any]) -> int | None:
        """Return which layers attend to all tokens: every n-th, 0 for none; None is a problem."""
        full = [i + 1 for i, kind in enumerate(types) if kind == _FULL]
        if not full:
            return 0
        every = full[0]
        if full == list(range(every, len(types) + 1, every)) and {*types} <= {_FULL, _WINDOWED}:
            return every
        self._problem(
            "layer_types", "these layers follow no pattern of one full layer in every n layers"
        )
        return None

    def _biases(self) -> None:
        """Read biases of attention and of the MLP."""
        attention, mlp = self._value("attention_bias"), self._value("mlp_bias")
        if "biases" in self._settings or not (attention or mlp):
            return
        if attention and mlp:
            self._set("biases", "on", "attention_bias")
        elif attention:
            self._set("qkv_biases", "on", "attention_bias")
        else:
            self._problem("mlp_bias", "biases in the MLP alone cannot be written")

    def _experts(self) -> None:
        """Read shared experts by their width, and which layers are dense."""
        if "experts" not in self._settings:
            for name in ("top_k", "expert_ffn", "moe_every"):
                self._settings.pop(name, None)
            return
        width = "shared_expert_intermediate_size"
        if self._value(width):
            entry = self._entries[width]
            self._settings["shared_experts"] = ImportedValue(
                name="shared_experts", value="1", assumption=f"of the width {width}"
            )
            self._set("shared_ffn", _digits(entry.value), width)
        dense = self._value("mlp_only_layers") or []
        if dense != list(range(len(dense))):
            self._problem("mlp_only_layers", "only the first layers can be dense")
        elif dense:
            self._set("dense_first", str(len(dense)), "mlp_only_layers")

    # Keys

    def _others(self) -> tuple[Sequence[ImportedKey], Sequence[ImportedKey]]:
        """Return the keys that set nothing: those that change no cost, and unknown ones."""
        known = {*self._table["numbers"], *self._table["switches"], *self._table["read"]["keys"]}
        prefix = _TEXT if self._nested else ""
        ignored: list[ImportedKey] = []
        unknown: list[ImportedKey] = []
        for key, entry in self._entries.items():
            if key in known:
                continue
            reason = self._table["reasons"].get(key, "") if entry.value else ""
            one = ImportedKey(
                name=prefix + key,
                start=entry.start,
                end=entry.end,
                reason=reason,
                attribute=self._table["left_out"].get(key, ""),
            )
            listed = key in self._table["reasons"] or is_listed(key, self._table["ignored"]["keys"])
            (ignored if listed else unknown).append(one)
        for key in self._rest:
            entry = self._all[key]
            reason = "only the text model is read"
            ignored.append(ImportedKey(name=key, start=entry.start, end=entry.end, reason=reason))
        return ignored, unknown

    def _number(self, key: str, name: str, family: Mapping[str, Any] | None = None) -> None:
        """Set *name* to the number of *key*, if it has one."""
        entry = self._entries.get(key)
        if entry is None or entry.value is None:
            default = (family or {}).get("defaults", {}).get(key)
            if default is not None:
                why = f"the default of {key} in configuration_{self._family}.py"
                self._settings[name] = ImportedValue(name=name, value=str(default), assumption=why)
            return
        if isinstance(entry.value, bool) or not isinstance(entry.value, int):
            self._problem(key, "a whole number is expected")
            return
        if entry.value or name not in ("q_lora", "dense_first"):
            self._set(name, _digits(entry.value), key)

    def _set(self, name: str, value: str, key: str) -> None:
        entry = self._entries[key]
        self._settings[name] = ImportedValue(
            name=name, value=value, key=key, start=entry.start, end=entry.end
        )

    def _value(self, key: str, default: Any = None) -> Any:
        return self._entries[key].value if key in self._entries else default

    def _text(self, key: str) -> str:
        value = self._value(key)
        return value if isinstance(value, str) else ""

    def _problem(self, key: str, message: str) -> None:
        entry = self._entries[key]
        self._problems.append(
            ImportProblem(message=f"`{key}`: {message}", start=entry.start, end=entry.end)
        )


def _digits(number: int) -> str:
    """Return a whole number as the language writes it.

    >>> _digits(128256), _digits(8192)
    ('128_256', '8192')
    """
    return f"{number:_}" if number >= 10_000 else str(number)


def _label(name: str, family: str) -> str:
    """Return a label of the language for a model.

    >>> _label("models/Llama-3.1-8B.json", "llama"), _label("config.json", "qwen3_moe")
    ('llama_3_1_8b', 'qwen3_moe')
    """
    stem = PurePath(name).stem
    chosen = family if stem == "config" else stem
    found = re.sub(r"[^a-z0-9]+", "_", chosen.lower()).strip("_")
    return found if found[:1].isalpha() else f"model_{found}".rstrip("_")


@hookimpl
def importers() -> list[Importer]:
    """Offer configurations of Hugging Face."""
    return [HuggingFace()]
