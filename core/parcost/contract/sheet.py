"""A sheet: the figures of a calculation, each with a formula text over the same symbols.

    sheet = Sheet("buckets b", G=(gradients, "B"), N=buckets)
    yield sheet("bucket", "bytes of a bucket", "MB", "G / N")
    yield sheet("time", "time of a bucket", "s", "bucket / B", B=(bandwidth, "B/s"))

The symbols of a line's text are its inputs. The name of a line is a symbol of the later lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parcost.contract.figures import Figure
from parcost.contract.formulas import Formula, FormulaError, formula, symbols_of


class Sheet:
    """Creates figures ``label.name`` from formula texts over *symbols*.

    A line may add symbols.

    >>> sheet = Sheet("b", n=8.0)
    >>> sheet("half", "half of it", "", "n / 2").name, sheet("whole", "all", "", "2 half").value
    ('b.half', 8.0)
    """

    def __init__(self, label: str = "", /, *, source: str = "", **symbols: Any) -> None:
        """Make a sheet of the block called *label*; "" for a sheet without a block."""
        self.label = label
        self.source = source
        self.symbols = symbols

    def formula(
        self, text: str, inputs: Mapping[str, Any] | None = None, **symbols: Any
    ) -> Formula:
        """Return the value of *text* as a formula of the sheet's symbols and further *symbols*."""
        own = {**(inputs or {}), **symbols}
        names = symbols_of(text)
        if unused := own.keys() - set(names):
            wrong = ", ".join(f"`{name}`" for name in sorted(unused))
            raise FormulaError(f"the formula `{text}` and its inputs differ in {wrong}")
        known = {**self.symbols, **own}
        return formula(text, {n: known[n] for n in names if n in known}, source=self.source)

    def __call__(
        self,
        name: str,
        title: str,
        unit: str,
        text: str | Formula,
        inputs: Mapping[str, Any] | None = None,
        /,
        *,
        note: str = "",
        **symbols: Any,
    ) -> Figure:
        """Return a line as a figure in *unit*; *text* may also be a ready formula."""
        value = self.formula(text, inputs, **symbols) if isinstance(text, str) else text
        self.symbols[name] = (value, unit)
        return Figure(
            name=f"{self.label}.{name}" if self.label else name,
            title=f"{self.label}: {title}" if self.label else title,
            value=value,
            unit=unit,
            note=note,
        )
