"""Numbers in the notation of a spec: as written, or as literals that are parsed to the same
bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parcost.binding.conversion import qualifier
from parcost.binding.defaults import setting
from parcost.language import syntax as s
from parcost.language.numbers import literal

if TYPE_CHECKING:
    from parcost.contract.schema import Field


def setting_text(path: str, field: Field, text: Any, number: float) -> str:
    """Return the text that sets the attribute at *path* to *number*; *text* was bound to it.

    It is *text* itself, unless its value depends on other attributes.
    """
    if isinstance(text, str) and _is_self_contained(path, field, text):
        return text
    return literal(float(number), field.dimension) + qualifier(field)


def _is_self_contained(path: str, field: Field, text: str) -> bool:
    node = setting(path, text)
    if not isinstance(node.value, s.Number):
        return False
    words = [node.value.unit, *(word.text for word in node.qualifiers)]
    return not any(isinstance(field.qualifiers.get(word), str) for word in words)
