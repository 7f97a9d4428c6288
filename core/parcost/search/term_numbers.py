"""Terms reduced to the numbers that time and memory depend on."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import attrs

from parcost.contract.formulas import Formula
from parcost.contract.terms import Memory
from parcost.records import replace_values

_LEFT_OUT = Formula("of a search")  # formulas hold the arrays that they are of


def drop_unread_numbers(term: Any) -> Any:
    """Return *term* without numbers that a search does not read: FLOPs, formula, transfer bytes.

    Latency is kept for work that keeps further resources busy.
    """
    type_: Any = type(term)
    return replace_values(term, _unread_values(type_, bool(getattr(term, "also", ()))))


@cache
def _unread_values(type_: Any, shares: bool) -> Mapping[str, Any]:
    names = {"flops"} if issubclass(type_, Memory) else {"flops", "bytes_"}
    if not shares:
        names.add("latency")
    fields = {field.name for field in attrs.fields(type_)}
    return {"formula": _LEFT_OUT, **dict.fromkeys(names & fields, 0.0)}
