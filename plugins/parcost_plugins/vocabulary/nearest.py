"""The nearest values that would do, for the help of a rule."""

from __future__ import annotations

from collections.abc import Iterable

from parcost import Mask, Real
from parcost.numeric import ceil_div, is_array


def multiples(of: Real, near: Real) -> tuple[Real, Real]:
    """Return the multiples of *of* next to *near*, below and above.

    >>> multiples(8.0, 30.0)
    (24.0, 32.0)
    """
    return near // of * of, ceil_div(near, of) * of


def divisors(of: Real, near: Real) -> str:
    """Return the divisors of *of* next to *near*, in words; "" for a sweep, or of no whole number.

    >>> divisors(8.0, 3.0), divisors(8.0, 9.0)
    ('2 or 4', '8')
    """
    if is_array(of, near) or of % 1:
        return ""
    return next_to(near, (d for d in range(1, int(of) + 1) if of % d == 0))


def next_to(near: Real, legal: Iterable[int]) -> str:
    """Return the values of *legal*, which ascends, on either side of *near*, in words.

    >>> next_to(6.0, [1, 2, 4, 8, 16])
    '4 or 8'
    """
    known = list(legal)
    found = [n for n in known if n < near][-1:] + [n for n in known if n > near][:1]
    return " or ".join(map(str, found))


def first_failure(holds: Mask, value: Real) -> float:
    """Return *value* at the first point where *holds* does not, which a message shows."""
    if isinstance(value, (float, int)):
        return value
    point = 0 if isinstance(holds, (bool, int)) else int(holds.argmin())
    return float(value[point])
