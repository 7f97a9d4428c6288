"""Units of the .par language: a table, and the algebra of dimensions.

Every value is a plain float in base units (bytes, FLOP, seconds, joules, dollars, grams) with its
dimension. Dimensions exist only during binding; plugins receive plain numbers, so that units cost
no time in an evaluation. Bits are a separate dimension: ``400 Gbps + 50 GB/s`` is an error, and a
size in bits is never accepted as bytes. Attributes that take link rates accept both and convert.
"""

from __future__ import annotations

import re
from functools import cache

from parcost.records import frozen

_BASES = ("B", "bit", "FLOP", "s", "J", "USD", "g")


@frozen
class Dimension:
    """Exponents of the base units ``B bit FLOP s J USD g``.

    >>> print(BYTES / SECONDS)
    B/s
    >>> print(SECONDS / SECONDS)
    a plain number
    """

    exponents: tuple[int, ...] = (0,) * len(_BASES)

    def __mul__(self, other: Dimension) -> Dimension:
        return Dimension(tuple(map(int.__add__, self.exponents, other.exponents)))

    def __truediv__(self, other: Dimension) -> Dimension:
        return Dimension(tuple(map(int.__sub__, self.exponents, other.exponents)))

    def __str__(self) -> str:
        named = list(zip(_BASES, self.exponents, strict=True))
        over = [n if e == 1 else f"{n}^{e}" for n, e in named if e > 0]
        under = [n if e == -1 else f"{n}^{-e}" for n, e in named if e < 0]
        if not over and not under:
            return "a plain number"
        return "/".join([" ".join(over) or "1", *under])


def _base(name: str) -> Dimension:
    return Dimension(tuple(int(base == name) for base in _BASES))


ONE = Dimension()
BYTES = _base("B")
BITS = _base("bit")
FLOP = _base("FLOP")
SECONDS = _base("s")
JOULES = _base("J")
DOLLARS = _base("USD")
GRAMS = _base("g")
RATE = BYTES / SECONDS
BIT_RATE = BITS / SECONDS
FLOPS = FLOP / SECONDS
WATTS = JOULES / SECONDS

DECIMAL = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_LARGE = {"": 1.0} | DECIMAL
BINARY = {f"{p}i": 1024.0**n for n, p in enumerate("KMGTP", start=1)}
_SMALL = {"": 1.0, "m": 1e-3, "u": 1e-6, "µ": 1e-6, "n": 1e-9, "p": 1e-12}
_NONE = {"": 1.0}

# unit: (size in base units, dimension, the prefixes it takes)
_UNITS: dict[str, tuple[float, Dimension, dict[str, float]]] = {
    "B": (1.0, BYTES, _LARGE | BINARY),
    "b": (1.0, BITS, _LARGE | BINARY),
    "bit": (1.0, BITS, _LARGE | BINARY),
    "bps": (1.0, BIT_RATE, _LARGE),
    "FLOP": (1.0, FLOP, _LARGE),
    "FLOPS": (1.0, FLOPS, _LARGE),
    "s": (1.0, SECONDS, _SMALL),
    "min": (60.0, SECONDS, _NONE),
    "h": (3600.0, SECONDS, _NONE),
    "day": (86400.0, SECONDS, _NONE),
    "year": (31557600.0, SECONDS, _NONE),
    "J": (1.0, JOULES, _LARGE),
    "W": (1.0, WATTS, _LARGE),
    "Wh": (3600.0, JOULES, _LARGE),
    "USD": (1.0, DOLLARS, _LARGE),
    "g": (1.0, GRAMS, _LARGE),
    "%": (0.01, ONE, _NONE),
}
# Plain counts: `16 Mi` tokens, `70 G` parameters.
_COUNTS = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12} | BINARY


@cache
def known_units() -> dict[str, tuple[float, Dimension]]:
    """Return every spelling of every simple unit, with its size and dimension."""
    units = {name: (size, ONE) for name, size in _COUNTS.items()}
    for unit_, (size, dimension, prefixes) in _UNITS.items():
        for prefix, factor in prefixes.items():
            units[prefix + unit_] = (factor * size, dimension)
    return units


@cache
def unit(name: str) -> tuple[float, Dimension]:
    """Return the size in base units, and the dimension, of a simple or compound unit.

    >>> size, dimension = unit("Gbps")
    >>> size, str(dimension)
    (1000000000.0, 'bit/s')
    >>> unit("GB/s") == (1e9, RATE)
    True

    Raises:
        KeyError: A part of the name is not a unit; the part is the argument.
    """
    over, *under = re.split("/", name)
    size, dimension = known_units()[over]
    for part in under:
        factor, below = known_units()[part]
        size, dimension = size / factor, dimension / below
    return size, dimension
