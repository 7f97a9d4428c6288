"""Headline and detail figures of calculators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from attrs import evolve

from parcost import Figure, Section

T = TypeVar("T")


def mark_details(answers: Iterable[T], *headlines: str) -> Iterator[T]:
    """Yield *answers*; figures of a block that are not *headlines* are marked as details.

    *headlines* are names without the label of the block. A block without headlines has no details.
    """
    found = list(answers)
    named = [answer.name.rpartition(".") for answer in found if isinstance(answer, Figure)]
    led = {label for label, _, what in named if what in headlines}
    for answer in found:
        if isinstance(answer, Figure):
            label, _, what = answer.name.rpartition(".")
            if label in led and what not in headlines:
                yield evolve(answer, detail=True)
                continue
        yield answer


def section_note(label: str) -> Section:
    """Return the note that tables of a swept block are shown for single points only."""
    return Section(
        title=f"Tables, {label}",
        columns=("table",),
        rows=[],
        notes=[f"`{label}` is swept; its tables need one point: choose it with `--set`"],
    )
