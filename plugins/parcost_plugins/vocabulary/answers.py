"""What a calculator says first, of all that it works out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from attrs import evolve

from parcost import Figure, Section

T = TypeVar("T")


def mark_details(answers: Iterable[T], *headlines: str) -> Iterator[T]:
    """Yield *answers*, with the figures of a block other than its *headlines* as details.

    Headlines are named without the label of the block. A block that has none of them has
    no details either.
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
    """Return the notice that the tables of a swept block are those of a single point."""
    return Section(
        title=f"Tables, {label}",
        columns=("table",),
        rows=[],
        notes=[f"`{label}` is swept, and its tables are of one point: `--set` one to see them"],
    )
