"""Numbers as text: a few digits and a suitable unit.

Reports print rounded figures (``quantity``); ``show`` prints values that are parsed back to exactly
the same float (``literal``). Both use the units of the language, so that printed values can be
pasted into a spec.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from parcost.language.units import BINARY, DECIMAL, ONE, Dimension, known_units, unit
from parcost.numeric import is_array

_SMALL = {"n": 1e-9, "u": 1e-6, "m": 1e-3}

# Memory is measured in powers of two, everything else in powers of ten.
PREFIXES: Mapping[str, Mapping[str, float]] = {
    "B": BINARY,
    **dict.fromkeys(("B/s", "bit", "bps", "FLOP", "FLOP/s", "J", "W"), DECIMAL),
    "s": _SMALL,
}
_CALLED = {"J/s": "W", "bit/s": "bps", "a plain number": ""}
#: Units of a price, an intensity and a bit rate: no other of their dimension is printed.
_CUSTOMARY = ("USD/h", "g/kWh", "kg/kWh", *(f"{prefix}bps" for prefix in ("", *DECIMAL)))
_NEVER = {"s": "never"}  # what is spent for ever does not end
_READABLE = (0.1, 1e5)  # in a unit that the spec or a plugin chose
_PARTS_OF_A_DAY = ("h", "min")  # the units of a run that ends within a day
_DECIMAL_SIZES = {f"{prefix}B" for prefix in DECIMAL}
_EXACT = 3  # digits of a size that was written in decimal, as 1.25 GB
_LARGEST_SHARE = 10.0  # that reads well in percent
ROUNDS_UP = 1 - 5e-7  # 999.9999 ms reads as 1 s


def quantity(
    value: Any, unit: str = "", digits: int = 4, kinds: Sequence[Mapping[str, float]] = ()
) -> str:
    """Return *value*, in base units, as text with a suitable unit.

    A base unit (``s``, ``B``, ``B/s``, ...) gets a suitable prefix. Sizes have binary prefixes, so
    that a page never mixes MB and MiB. A size that is exact in decimal, as 25 MB in a spec, keeps
    its decimal prefix. Other units with a prefix are kept if the number is readable.

    >>> quantity(0.0801056, "s"), quantity(450e9, "B/s"), quantity(0.4196, "%")
    ('80.11 ms', '450 GB/s', '41.96 %')
    >>> quantity(262144.0), quantity(80 * 2**30, "B")
    ('262,144', '80 GiB')
    >>> quantity(25e6, "B"), quantity(700.0, "J/s"), quantity(29.26e9, "GiB")
    ('25 MB', '700 W', '27.25 GiB')
    >>> quantity(4362.0, "day"), quantity(90.0, "day"), quantity(36 * 3600.0, "day")
    ('1.212 h', '1.5 min', '1.5 days')
    >>> quantity(400e9, "bit/s"), literal(4e11, unit("bit/s")[1])
    ('400 Gbps', '400 Gbps')
    >>> quantity(100 * 2**20, "GiB"), quantity(617.6e6, "MB"), quantity(2**27 / 1.0, "MB")
    ('100 MiB', '589 MiB', '128 MiB')
    """
    if value is None:
        return "-"
    if isinstance(value, bool | str):
        return str(spec_text(value))
    if is_array(value):
        return _span_of(value, unit, digits, kinds)
    if not math.isfinite(value):
        return _infinite_text(value, unit)
    unit = _CALLED.get(unit, unit)
    if unit in _DECIMAL_SIZES:
        unit = "B"
    if unit == "day" and 0 < abs(value) < _size(unit):
        unit = next((name for name in _PARTS_OF_A_DAY if abs(value) >= _size(name)), "s")
    if unit and unit not in PREFIXES:
        base, own = _prefixed_units(unit)
        if not own or value == 0 or _READABLE[0] <= abs(value) / _size(unit) < _READABLE[1]:
            text = round_significant(value / _size(unit), digits)
            return f"{text} {unit}s" if unit == "day" and text != "1" else f"{text} {unit}"
        unit, kinds = base, [own]
    first, *others = kinds or prefix_kinds(unit)
    best = _with_prefix(value, unit, first, digits)
    for prefixes in others:
        text = _with_prefix(value, unit, prefixes, _EXACT)
        if float(f"{value:.{_EXACT}g}") == value and count_digits(text) < count_digits(best):
            best = text  # 25 MB is not shown as 23.84 MiB
    return best


def spec_text(value: Any) -> Any:
    """Return a value in the notation of the language: a switch is on or off, a block its label."""
    if isinstance(value, bool):
        return "on" if value else "off"
    label = getattr(value, "label", None)
    return label if isinstance(label, str) else value


def percent(share: float, decimals: int = 1, *, signed: bool = False) -> str:
    """Return a share in percent, as text; *signed* for a change.

    >>> percent(0.12345), percent(0.0047, 2, signed=True)
    ('12.3 %', '+0.47 %')
    """
    return f"{100 * share:{'+' if signed else ''}.{decimals}f} %"


def _with_prefix(value: float, unit: str, prefixes: Mapping[str, float], digits: int) -> str:
    """Return *value* in the unit with the most suitable prefix."""
    scale, name = _scale(abs(value), unit, prefixes)
    text = round_significant(value / scale, digits)
    return f"{text} {name}" if name else text


def _infinite_text(value: float, unit: str) -> str:
    """Return the word for a number that is not finite.

    >>> quantity(math.inf, "s"), quantity(math.inf, "B"), quantity(math.nan)
    ('never', 'infinite', 'not a number')
    """
    if math.isnan(value):
        return "not a number"
    return _NEVER.get(unit, "infinite") if value > 0 else "minus infinite"


def count_digits(text: str) -> int:
    """Return the number of digits in a text."""
    return sum(map(str.isdigit, text))


def prefix_kinds(unit: str) -> Sequence[Mapping[str, float]]:
    """Return the kinds of prefixes that a base unit takes."""
    return (BINARY, DECIMAL) if unit == "B" else (PREFIXES.get(unit, {}),)


@cache
def _prefixed_units(unit: str) -> tuple[str, Mapping[str, float]]:
    """Return the base unit of a unit, and its prefixes of one kind (binary or decimal)."""
    for base in sorted(PREFIXES, key=len, reverse=True):
        prefix = unit.removesuffix(base)
        kinds = [kind for kind in prefix_kinds(base) if prefix in kind]
        if kinds and prefix != unit:
            return base, kinds[0]
    return unit, {}


def round_significant(value: float, digits: int = 4) -> str:
    """Return *value* rounded to *digits* significant digits; integers keep all digits.

    >>> round_significant(1234567.0), round_significant(1234.567), round_significant(0.00123456)
    ('1,234,567', '1,235', '0.001235')
    """
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return _infinite_text(value, "")
    magnitude = math.floor(math.log10(abs(value)))
    if value == round(value) and magnitude < 15:
        return f"{value:,.0f}"
    if not -4 <= magnitude < 15:
        return f"{value:.{digits - 1}e}"
    text = f"{value:,.{max(0, digits - 1 - magnitude)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _scale(value: float, unit: str, prefixes: Mapping[str, float]) -> tuple[float, str]:
    """Return *value* in the largest unit in which it is at least 1, and the name of the unit."""
    if not prefixes or not math.isfinite(value) or value == 0:
        return 1.0, unit
    sizes = sorted((size, prefix) for prefix, size in {"": 1.0, **prefixes}.items())
    fitting = [s for s in sizes if value >= s[0] * ROUNDS_UP]
    size, prefix = fitting[-1] if fitting else sizes[0]
    return size, prefix + unit


def _size(name: str) -> float:
    """Return the size of a unit in base units; 1 for a unit that only a plugin knows."""
    try:
        return unit(name)[0]
    except KeyError:
        return 1.0


def _span_of(values: Any, unit: str, digits: int, kinds: Sequence[Mapping[str, float]] = ()) -> str:
    """Return the range of an array as text: ``1.2 to 3.4 ms``."""
    low, high = float(values.min()), float(values.max())
    if not low < high:
        return quantity(low, unit, digits, kinds)
    return f"{quantity(low, unit, digits, kinds)} to {quantity(high, unit, digits, kinds)}"


@lru_cache(maxsize=2**14)  # a resolved spec repeats most of them
def literal(value: float, dimension: Dimension = ONE) -> str:
    """Return the shortest literal of the language that is parsed to exactly *value*.

    >>> from parcost.language.units import BYTES, RATE, SECONDS
    >>> literal(80e9, BYTES), literal(80.0 * 2**30, BYTES), literal(3.4 * 1e-6, SECONDS)
    ('80 GB', '80 GiB', '3.4 us')
    >>> literal(50e9, RATE), literal(16384.0), literal(0.85)
    ('50 GB/s', '16384', '85 %')
    >>> literal(2e14)
    '200000000000000'
    >>> literal(50_000 * 3600.0, SECONDS), literal(90.0, SECONDS)
    ('50000 h', '90 s')
    >>> literal(82 * 0.01)  # which is not quite 0.82
    '82 %'
    >>> literal(2.5 / 3600.0, unit("USD")[1] / unit("s")[1])
    '2.5 USD/h'
    """
    if not math.isfinite(value):
        return str(value)
    spellings = []
    for name, size in _spellings(dimension).items():
        if name == "%" and abs(value) >= _LARGEST_SHARE:
            continue
        number = float(f"{value / size:.12g}")
        number = number if number * size == value else value / size
        if number * size == value:
            is_whole = number == int(number) and abs(number) < 2**53
            digits = str(int(number)) if is_whole else repr(number)
            awkward = 2 * (bool(name) and not 1 <= abs(number) < 1000) + 6 * ("e" in digits)
            whole = size == 1.0  # nothing is 0 s, and not 0 h
            text = f"{digits} {name}".strip()
            spellings.append((len(digits) + awkward, len(name), not whole, text))
    return min(spellings)[-1] if spellings else f"{value!r} {dimension}"


@cache
def _spellings(dimension: Dimension) -> Mapping[str, float]:
    """Return the units in which a value of a dimension may be written, simple or per second."""
    seconds = unit("s")[1]
    if dimension == ONE:
        return {"": 1.0, "%": 0.01}
    found = {}
    for name, (size, of) in known_units().items():
        if "µ" in name or "μ" in name:
            continue
        if of == dimension:
            found[name] = size
        elif of / seconds == dimension:
            found[f"{name}/s"] = size
    customary = {}
    for name in _CUSTOMARY:
        size, of = unit(name)
        if of == dimension:
            customary[name] = size
    return customary or found
