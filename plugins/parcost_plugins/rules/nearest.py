"""The nearest values that would do, for the help of a rule."""

from __future__ import annotations

from parcost import Real
from parcost.numeric import ceil_div, is_array


def multiples(of: Real, near: Real) -> tuple[Real, Real]:
    """Return the multiples of *of* next to *near*, below and above.

    >>> multiples(8.0, 30.0)
    (24.0, 32.0)
    """
    return near // of * of, ceil_div(near, of) * of


def divisors(of: Real, near: Real) -> str:
    """Return the divisors of *of* next to *near*, in words; "" for a sweep.

    >>> divisors(8.0, 3.0), divisors(8.0, 9.0)
    ('2 or 4', '8')
    """
    if is_array(of, near):
        return ""
    found = [d for d in range(1, int(of) + 1) if of % d == 0]
    below = [d for d in found if d < near][-1:]
    above = [d for d in found if d > near][:1]
    return " or ".join(map(str, below + above))
