"""The constants that measurements may fit, with their physical bounds.

The table is `calibration/constants.jsonl` of a catalogue. Other constants are never fitted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from attrs import frozen

if TYPE_CHECKING:
    from parcost.plugins.discovery import Plugins

SCALES = {"%": 0.01, "us": 1e-6, "": 1.0}


@frozen(kw_only=True)
class ConstantKind:
    """A row of the table: an attribute of a kind of block, its bounds, and its measurement."""

    block: str
    attribute: str
    unit: str
    low: float  # in the unit
    high: float
    why: str
    reads: Sequence[str]
    only: str = "*"  # patterns of labels, with bars between
    default: bool = False
    whole: bool = False
    recipes: Sequence[str] = ()  # of precision, whose products the constant estimates
    what: str = ""  # patterns of a host row that measures it
    mode: str = ""

    def holds(self, label: str) -> bool:
        """Return whether the row applies to the block called *label*."""
        return any(fnmatchcase(label, pattern) for pattern in self.only.split("|"))


@frozen(kw_only=True)
class Constant:
    """One constant of one block: its catalogue value and bounds, in SI units.

    *label* is the block that has it; other blocks may inherit it.
    """

    kind: ConstantKind
    label: str
    start: float
    low: float
    high: float
    inside: str = ""  # the block around it: of a level the fabric, of a rate the table
    fitted: bool = False
    of: tuple[str, ...] = ()  # labels of the blocks that have it, inherited or not

    @property
    def name(self) -> str:
        """The name by which a user selects it."""
        before = f"{self.inside}." if self.inside else ""
        return f"{before}{self.label}.{self.kind.attribute}"

    def text(self, value: float) -> str:
        """Return *value* as text of a spec, with its unit."""
        return text_of(value, self.kind.unit, whole=self.kind.whole)


@frozen(kw_only=True)
class FrameworkConstant:
    """A constant of a framework measured by a microbenchmark; *rows* counts the measurements.

    *low* and *high* are their minimum and maximum, and *of* names the measured quantity.
    """

    constant: Constant
    value: float
    low: float
    high: float
    rows: int
    of: str


def text_of(value: float, unit: str, *, whole: bool = False) -> str:
    """Return *value* (SI units) as text of a spec, converted to *unit*.

    >>> text_of(0.8725, "%"), text_of(5e-05, "us"), text_of(24.6, "", whole=True)
    ('87.25 %', '50 us', '25')
    """
    if whole:
        return f"{round(value)}"
    number = f"{value / SCALES[unit]:.4g}"
    return f"{number} {unit}" if unit else number


def kinds(plugins: Plugins) -> list[ConstantKind]:
    """Return the rows of the tables of all catalogues."""
    from parcost.system.files import Kind as File
    from parcost.system.files import read_lines

    table = File("table of constants", 2**20, line=2**16)
    found: list[ConstantKind] = []
    for _, catalogue in plugins.offers("catalogues").values():
        file = catalogue.root / "calibration" / "constants.jsonl"
        if not (isinstance(file, Path) and file.is_file()):
            continue
        for number, line in enumerate(read_lines(file, table), 1):
            try:
                found += [_check(ConstantKind(**json.loads(line)))] if line.strip() else []
            except (ValueError, TypeError) as error:
                message = f"{file}:{number}: no constant that may be fitted: {error}"
                raise click.ClickException(message) from None
    return found


def _check(kind: ConstantKind) -> ConstantKind:
    if kind.unit not in SCALES:
        raise ValueError(f"the unit `{kind.unit}` is not one of {', '.join(filter(None, SCALES))}")
    if not 0 < kind.low < kind.high:
        raise ValueError(
            f"bounds must be above 0 and ascend, and these are {kind.low} and {kind.high}"
        )
    return kind


def kind_of(
    table: Iterable[ConstantKind], block: str, attribute: str, label: str
) -> ConstantKind | None:
    """Return the first row about an attribute of the block *label*, None if none."""
    for kind in table:
        if (kind.block, kind.attribute) == (block, attribute) and kind.holds(label):
            return kind
    return None


def make_constant(
    kind: ConstantKind,
    label: str,
    start: float,
    *,
    inside: str = "",
    fitted: bool = False,
    of: tuple[str, ...] = (),
) -> Constant:
    """Return the constant of *kind* in the block called *label*."""
    scale = SCALES[kind.unit]
    return Constant(
        kind=kind,
        label=label,
        start=start,
        low=kind.low * scale,
        high=kind.high * scale,
        inside=inside,
        fitted=fitted,
        of=of,
    )


def select_constants(
    names: Sequence[str], known: Sequence[Constant], table: Sequence[ConstantKind]
) -> list[Constant]:
    """Return the constants that *names* select: `h100_sxm.sustained`, or `sustained` for all."""
    found: dict[str, Constant] = {}
    for name in names:
        picked = [c for c in known if name in _names(c)]
        if not picked:
            raise click.UsageError(_unknown_name(name, known, table))
        found.update((c.name, c) for c in picked)
    return list(found.values())


def _names(constant: Constant) -> set[str]:
    """Return the names that select a constant: full, short, and of blocks that inherit it."""
    attribute = constant.kind.attribute
    return {
        constant.name,
        attribute,
        f"{constant.label}.{attribute}",
        *(f"{label}.{attribute}" for label in constant.of),
    }


def _unknown_name(name: str, known: Sequence[Constant], table: Sequence[ConstantKind]) -> str:
    concerned = [c.name for c in known]
    attributes = list(dict.fromkeys(kind.attribute for kind in table))
    close = get_close_matches(name, [*concerned, *attributes], n=1)
    if name in attributes or name.rpartition(".")[2] in attributes:
        start = f"`--constants {name}`: no measurement concerns it"
        return f"{start}; constants with measurements: {', '.join(concerned) or 'none'}"
    hint = f"did you mean `{close[0]}`?" if close else "these may be: " + ", ".join(attributes)
    return f"`--constants {name}`: no such constant may be fitted; {hint}"


def restrict(found: Sequence[Constant], texts: Sequence[str]) -> list[Constant]:
    """Return the constants with bounds narrowed by *texts*, such as `issue=10..60us`."""
    import re

    from attrs import evolve

    kept = list(found)
    number = r"\s*([\d.eE+-]+)\s*(%|us)?\s*"
    for text in texts:
        name, equals, rest = text.partition("=")
        match = re.fullmatch(rf"{number}\.\.{number}", rest)
        if not equals or match is None:
            raise click.UsageError(f"`--bounds {text}`: write NAME=LOW..HIGH, `sustained=80..95%`")
        places = [i for i, c in enumerate(kept) if name.strip() in _names(c)]
        if not places:
            names = ", ".join(c.name for c in kept)
            close = get_close_matches(name, [c.name for c in kept], n=1)
            hint = f"did you mean `{close[0]}`?" if close else f"fitted are {names}"
            raise click.UsageError(f"`--bounds {text}`: no such constant is fitted; {hint}")
        for i in places:
            low, high = _bounds(text, match.groups(), kept[i])
            kept[i] = evolve(kept[i], low=low, high=high)
    return kept


def _bounds(text: str, parts: Sequence[Any], constant: Constant) -> tuple[float, float]:
    low_text, low_unit, high_text, high_unit = parts
    scale = SCALES[constant.kind.unit]
    for unit in (low_unit, high_unit):
        if unit is not None and unit != constant.kind.unit:
            wanted = constant.kind.unit or "plain numbers"
            raise click.UsageError(f"`--bounds {text}`: {constant.name} is in {wanted}")
    try:
        low, high = float(low_text) * scale, float(high_text) * scale
    except ValueError:
        raise click.UsageError(f"`--bounds {text}`: write NAME=LOW..HIGH") from None
    if not constant.low * (1 - 1e-9) <= low < high <= constant.high * (1 + 1e-9):
        inside = f"{constant.text(constant.low)} and {constant.text(constant.high)}"
        raise click.UsageError(
            f"`--bounds {text}`: write a low and a higher bound of {constant.name}, both between "
            f"{inside}; {constant.kind.why}"
        )
    return low, high


def bounds_errors(found: Sequence[Constant]) -> list[str]:
    """Return an error for each constant whose value is outside its bounds."""
    return [
        f"`{c.name}` is {c.text(c.start)}, outside its bounds, {c.text(c.low)} to "
        f"{c.text(c.high)}: {c.kind.why}"
        for c in found
        if not c.low * (1 - 1e-9) <= c.start <= c.high * (1 + 1e-9)
    ]
