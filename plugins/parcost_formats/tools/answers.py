"""Options of the command line that supply a value for a key that is not in parcost's table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parcost_formats.tools.tables import value_of_pattern

_OF_CATALOGUE = {"precisions": "precision", "models": "model"}


def option_attribute(answer: str) -> str:
    """Return the attribute, or the kind of blocks, that an option of the command line sets.

    >>> option_attribute("--set 'training.global_batch=256 sequences'")
    'training.global_batch'
    >>> option_attribute("--use catalog.precisions.bf16"), option_attribute("--as llama3")
    ('precision', 'model')
    >>> option_attribute("--use config.json")
    'model'

    Raises:
        KeyError: The option sets no attribute of its own, such as ``--use train.yaml``.
    """
    kind, _, value = answer.partition(" ")
    if kind == "--set":
        return value.strip("'").partition("=")[0]
    if kind == "--as" or value == "config.json":
        return "model"
    return _OF_CATALOGUE[value.removeprefix("catalog.").partition(".")[0]]


def answer_to(key: str, table: Mapping[str, Any]) -> str:
    """Return the option of parcost that an unknown *key* may stand for; "" if it has no option.

    ``asks`` of the table maps patterns of keys to such options. The patterns match unknown keys
    that may affect cost. For such a key of another release, no default is assumed.
    """
    asks: Mapping[str, str] = table.get("asks", {})
    return str(value_of_pattern(key, asks))
