"""Model types of Hugging Face transformers: rows of the table, and the nearest one to a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.tables import table

VERSION = "transformers 5.23"
TABLE = table("huggingface")
_ANYWHERE = {"num_key_value_heads", "head_dim"}  # keys of nearly all model types


def nearest_family(keys: Mapping[str, JsonEntry]) -> str:
    """Return the known model type whose size keys match a file best; "" if none matches."""
    stated = {key for key, entry in keys.items() if entry.value is not None}
    deciding = {*TABLE["numbers"], *TABLE["layers"]} - _ANYWHERE
    scores = []
    for place, name in enumerate(TABLE["nearest"]):
        family = ModelFamily(name)
        own = ({*family.defaults} & deciding) | {*family.numbers}
        shared, foreign = len(own & stated), len((stated & deciding) - own)
        scores.append((shared - 2 * foreign - len((own & {*TABLE["numbers"]}) - stated), -place))
    best, place = max(scores)
    return str(TABLE["nearest"][-place]) if best > 0 else ""


def is_set(keys: Mapping[str, JsonEntry], key: str) -> bool:
    """Return whether a key has a value other than empty or none; `key.` stands for a section."""
    if key.endswith("."):
        return any(k.startswith(key) for k in keys)
    value = keys[key].value if key in keys else None
    if isinstance(value, list) and all(
        one == TABLE["lacking"]["without"].get(key) for one in value
    ):
        return False
    return bool(value) and value not in ({}, "none", "None")


class ModelFamily:
    """A row of the table, completed from the row named by `like`."""

    def __init__(self, name: str) -> None:
        row = TABLE["families"][name]
        base = TABLE["families"].get(row.get("like", ""), {})
        self.row: Mapping[str, Any] = {**base, **row}
        self.name = name
        self.config = str(self.row.get("class", ""))
        self.defaults: Mapping[str, Any] = self.row.get("defaults", {})
        self.numbers: Mapping[str, str] = self.row.get("numbers", {})
        self.switches: Mapping[str, str] = {
            "tie_word_embeddings": "tied",
            **self.row.get("switches", {}),
        }

    def reads(self, key: str) -> bool:
        """Return whether *key* is one of this model type's own."""
        return key in self.numbers or key in self.switches or key in self.row.get("expects", {})

    @property
    def code(self) -> str:
        """The source of values that no key states: the code of the model type."""
        if self.config:
            return f"{VERSION}: the code of {self.name}"
        return f"the code of {self.name}, which comes with its checkpoints"

    def default_reason(self, key: str) -> str:
        """Return the text that the default of *key* comes from the configuration class."""
        if self.config:
            return f"{VERSION}: default of {self.config}.{key}"
        return f"the default of {key} in the code of {self.name}"


def _switch_names() -> Iterator[str]:
    """Yield the switches of all model types."""
    for row in TABLE["families"].values():
        yield from row.get("switches", {})
        yield from row.get("expects", {})


SWITCHES = frozenset(_switch_names())
