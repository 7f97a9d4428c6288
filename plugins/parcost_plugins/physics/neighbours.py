"""The nearest valid values, for the help of a rule."""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd, isqrt

from parcost import Mask, Real
from parcost.numeric import ceil_div, is_array, maximum, where


def multiples(of: Real, near: Real) -> tuple[Real, Real]:
    """Return the multiples of *of* below and above *near*, or the first two if *near* is too small.

    >>> multiples(8.0, 30.0)
    (24.0, 32.0)
    >>> [float(multiple) for multiple in multiples(8.0, 3.0)]
    [8.0, 16.0]
    """
    below = maximum(near // of, 1.0)
    return below * of, where(near < of, 2.0, ceil_div(near, of)) * of


#: Numbers up to which divisors are looked for: a square root of steps takes a tenth of a second.
_LARGEST = 1e12


def divisors(of: Real, near: Real) -> str:
    """Return the divisors of *of* nearest to *near*, as text.

    Return "" for a sweep, a fraction, or a number that takes too long to divide.

    >>> divisors(8.0, 3.0), divisors(8.0, 9.0)
    ('2 or 4', '8')
    """
    if is_array(of, near) or of % 1:
        return ""
    return next_to(near, all_divisors(int(of)))


def divisors_of_both(of: Real, also: Real, near: Real) -> str:
    """Return the common divisors of two numbers nearest to *near*, as text; every number divides 0.

    >>> divisors_of_both(8.0, 64.0, 64.0), divisors_of_both(256.0, 0.0, 48.0)
    ('8', '32 or 64')
    """
    if is_array(of, also, near) or of % 1 or also % 1:
        return ""
    return divisors(float(gcd(int(of), int(also))), near)


def all_divisors(of: int) -> list[int]:
    """Return all divisors of an integer, ascending; [] if it is too large to factor.

    >>> all_divisors(12), all_divisors(16)
    ([1, 2, 3, 4, 6, 12], [1, 2, 4, 8, 16])
    """
    if of > _LARGEST:
        return []
    small = [d for d in range(1, isqrt(of) + 1) if of % d == 0]
    return small + [of // d for d in reversed(small) if d * d != of]


def tensor_degrees(heads: int, kv_heads: int, ffn: int) -> list[int]:
    """Return the tensor-parallel degrees that divide heads and MLP; KV heads may be replicated.

    >>> tensor_degrees(12, 4, 3072)
    [1, 2, 4, 12]
    """
    return [t for t in all_divisors(gcd(heads, ffn)) if 0 in (kv_heads % t, t % kv_heads)]


def next_to(near: Real, legal: Iterable[int]) -> str:
    """Return the values of *legal* (ascending) next to *near*, as text.

    >>> next_to(6.0, [1, 2, 4, 8, 16])
    '4 or 8'
    """
    known = list(legal)
    found = [n for n in known if n < near][-1:] + [n for n in known if n > near][:1]
    return " or ".join(map(str, found))


def first_failure(holds: Mask, value: Real) -> float:
    """Return *value* at the first point where *holds* is false, for a message."""
    if isinstance(value, (float, int)):
        return value
    point = 0 if isinstance(holds, (bool, int)) else int(holds.argmin())
    return float(value[point])
