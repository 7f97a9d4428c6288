"""Short ways to say a figure of a block and what a block lacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attrs import frozen

from parcost import Check, Figure, Formula, Real, called


@frozen
class Sayer:
    """Makes the figures of *block*, named by its label, that *source* is the source of."""

    block: Any
    source: str

    def __call__(
        self,
        name: str,
        title: str,
        value: Real,
        unit: str,
        text: str,
        inputs: Mapping[str, tuple[Any, str]],
        note: str = "",
    ) -> Figure:
        """Return the figure ``<label>.<name>``."""
        label = called(self.block)
        return Figure(
            name=f"{label}.{name}",
            title=f"{label}: {title}",
            value=value,
            unit=unit,
            formula=Formula(text=text, inputs=dict(inputs), source=self.source),
            note=note,
        )


def lacks(block: Any, *names: str) -> Iterator[Check]:
    """Yield an error for each attribute of *names* that *block* needs and leaves out."""
    for name in names:
        value = getattr(block, name)
        if value is None or (isinstance(value, tuple) and not value):
            yield Check(
                id="network-lacks",
                holds=False,
                subject=f"{called(block)}.{name}",
                message="`{label}` is a {kind}, and says nothing of its `{name}`",
                inputs={"label": called(block), "kind": block.kind, "name": name},
                help="write `{name} = ...`",
            )
