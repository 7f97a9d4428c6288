"""Logs of a caching allocator: memory reserved beyond the peak of allocated tensors.

Megatron-LM prints such a line for each reporting rank (``report_memory``), in units of 2^20 bytes.
Memory allocated between steps is parameters, gradients and optimizer state. The rest of the peak is
activations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from parcost.system.files import LOG, read_text
from parcost_measured.calibration.constants import (
    ConstantKind,
    FrameworkConstant,
    kind_of,
    make_constant,
)
from parcost_measured.validation.rows import Flaw

_NUMBER = r"(\d+(?:\.\d+)?)"
_LINE = re.compile(
    rf"(?:\[Rank (\d+)\].*)?\ballocated: {_NUMBER} \| max allocated: {_NUMBER} \| "
    rf"reserved: {_NUMBER} \| max reserved: {_NUMBER}"
)


def is_memory_log(path: Path) -> bool:
    """Return whether a log has the allocator statistics of a rank."""
    return _LINE.search(read_text(str(path), LOG)) is not None


def fragmentation(
    files: Mapping[str, Path], framework: str, before: float, table: Sequence[ConstantKind]
) -> tuple[list[FrameworkConstant], list[Flaw], list[str]]:
    """Return the fragmentation of a framework, the flaws of lines, and the reasons for a missing
    value.

    Fragmentation is (max reserved - max allocated) / (max allocated - allocated), as a share of the
    activations. The last line of each rank counts, and the median over ranks.
    """
    shares: dict[tuple[str, str], float] = {}
    flaws: list[Flaw] = []
    for name, path in files.items():
        for number, line in enumerate(read_text(str(path), LOG).splitlines(), 1):
            if (match := _LINE.search(line)) is None:
                continue
            rank = match.group(1) or ""
            allocated, most_allocated, _, most_reserved = map(float, match.groups()[1:])
            if not allocated < most_allocated <= most_reserved:
                reason = (
                    "`allocated`, `max allocated` and `max reserved` are not in ascending order"
                )
                flaws.append(Flaw(file=name, line=number, id="", kind="malformed", reason=reason))
                continue
            activations = most_allocated - allocated
            shares[name, rank] = (most_reserved - most_allocated) / activations
    kind = kind_of(table, "framework", "fragmentation", framework)
    whole = f"{framework}.fragmentation"
    if kind is None:
        return [], flaws, [f"`{whole}`: the framework has no such constant"]
    if not shares:
        return [], flaws, []
    constant = make_constant(kind, framework, before, of=(framework,))
    value = median(shares.values())
    if not constant.low <= value <= constant.high:
        limits = f"{constant.text(constant.low)} to {constant.text(constant.high)}"
        reason = f"the log says {constant.text(value)}, outside its bounds, {limits}"
        return [], flaws, [f"`{whole}`: {reason}: {kind.why}"]
    low, high = min(shares.values()), max(shares.values())
    found = FrameworkConstant(
        constant=constant, value=value, low=low, high=high, rows=len(shares), of="ranks of a log"
    )
    return [found], flaws, []
