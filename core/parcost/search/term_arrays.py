"""Terms of many variants, combined into array terms with a dimension for each choice.

Terms of one pass and place become one term if only their numbers differ between variants. Its
numbers have the shape of the choices that were read, followed by one dimension for the combinations
of degrees. A variant that lacks the term has zeros there. Terms that differ in words, such as the
window of a transfer, stay separate, with zeros elsewhere. So do terms with different names if the
result depends on their order: an evaluation sorts them by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from parcost.contract.terms import Edge, Memory, Once, Work
from parcost.contract.validation import declarations
from parcost.records import replace_values
from parcost.search.variants import Combination, Contribution, VariantAnswers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from parcost.contract.plugin import Plugin
    from parcost.search.mesh import Places

#: Numbers of terms that become arrays, and what a variant without the term has.
_NUMBERS: Mapping[str, float] = {
    "seconds": 0.0,
    "latency": 0.0,
    "bytes_": 0.0,
    "share": 1.0,
    "alone": 0.0,
    "slowdown": 0.0,
    "beside": 0.0,
    "tail": 0.0,
    "of_activations": 0.0,
    "freed_at_b": 0.0,
}
#: Rates of seconds or bytes: nothing where those are.
_RATES = ("share", "alone", "slowdown", "freed_at_b")
_AMOUNTS = ("seconds", "bytes_", "of_activations")
_NAMES = ("name", "cause", "formula", "source", "flops", "tag")  # what a sum does not need


@attrs.frozen
class Windows:
    """The overlap windows in use, and those whose result depends on the order of transfers."""

    guests: frozenset[str] = frozenset()
    ordered: frozenset[str] = frozenset()

    def sorts(self, term: Any) -> bool:
        """Return whether the result depends on the position of *term* in the sort by name."""
        if isinstance(term, Work):
            return term.window in self.ordered
        return isinstance(term, Once) and term.when != "end"


def windows(asked: Iterable[VariantAnswers]) -> Windows:
    """Return the overlap windows of all terms in the results *asked*.

    The order of overlapped works does not matter if only their seconds and slowdown differ. The
    works with the largest slowdown are hidden first, and the others are summed. The order does not
    matter either for works on different resources that keep no further resource busy.
    """
    by_window: dict[str, dict[Any, set[Any]]] = {}
    shared: set[str] = set()
    for _, by_part in asked:
        for answer in {id(a): a for a in by_part.values()}.values():
            for _, term in answer:
                if isinstance(term, Work) and term.window is not None:
                    rates = (_rate_key(term.share), *term.also, *map(_rate_key, term.also_busy))
                    by_resource = by_window.setdefault(term.window, {})
                    by_resource.setdefault(str(term.resource), set()).add(rates)
                    if term.also:
                        shared.add(term.window)
    ordered = (
        window
        for window, found in by_window.items()
        if any(len(rates) > 1 for rates in found.values()) or (window in shared and len(found) > 1)
    )
    return Windows(frozenset(by_window), frozenset(ordered))


def stack_terms(
    asked: Iterable[VariantAnswers], shape: Sequence[int], hosts: Windows, rank: int
) -> list[tuple[Plugin, Any]]:
    """Return the terms of all variants; *shape* has the number of values of each choice.

    Numbers have *rank* dimensions after these. Serial work on one resource is added up first,
    because a search needs only the sum. Terms of different shapes stay separate: a sum has the
    dimensions of both. *hosts* are the windows in use.
    """
    found: list[tuple[Plugin, Any]] = []
    for read, by_part in asked:
        found += _of_one(read, by_part, shape, hosts, rank)
    return merge_terms(found, hosts, by_shape=True)


def _of_one(
    read: Sequence[int],
    by_part: Mapping[Combination, Contribution],
    shape: Sequence[int],
    windows: Windows,
    rank: int,
) -> Iterator[tuple[Plugin, Any]]:
    distinct = list({id(answer): answer for answer in by_part.values()}.values())
    kinds: dict[Any, dict[int, tuple[Plugin, Any]]] = {}
    for number, answer in enumerate(distinct):
        seen: Counter[Any] = Counter()
        for plugin, term in merge_terms(answer, windows, by_shape=True):
            kind = _kind(term, windows), _shapes(term)
            kinds.setdefault((kind, seen[kind]), {})[number] = (plugin, term)
            seen[kind] += 1
    where = _AnswerIndex(read, by_part, shape, distinct, rank)
    for members in kinds.values():
        plugin, first = next(iter(members.values()))
        terms = {number: term for number, (_, term) in members.items()}
        yield plugin, replace_values(first, _numbers(terms, where))


class _AnswerIndex:
    """The index of the valid result, as an array with a dimension for each choice.

    Equal numbers of several terms become one array, which is selected and compared once.
    """

    def __init__(
        self,
        read: Sequence[int],
        by_part: Mapping[Combination, Contribution],
        shape: Sequence[int],
        distinct: Sequence[Contribution],
        rank: int,
    ) -> None:
        self.rank = rank
        number = {id(answer): i for i, answer in enumerate(distinct)}
        of = np.array([number[id(answer)] for answer in by_part.values()], dtype=np.intp)
        self.index = of.reshape([shape[k] if k in read else 1 for k in range(len(shape))])
        self._count = len(distinct)
        self._apart: dict[tuple[int, ...], NDArray[np.intp]] = {}
        self._contents: dict[int, Any] = {}  # by id
        self._arrays: dict[Any, Any] = {}  # by content

    def array_of(self, values: Mapping[int, Any], name: str) -> Any:
        """Return the number *name* of a term, from its *values* by answer, as an array."""
        nothing = _NUMBERS[name]
        contents = {number: self._content(value) for number, value in values.items()}
        distinct = {*contents.values()}
        if len(values) < self._count and name not in _RATES:
            distinct.add(nothing)
        row = [contents.get(number, nothing) for number in range(self._count)]
        key: Any = (*distinct,) if len(distinct) == 1 else (len(distinct), *row)
        if key not in self._arrays:
            if len(distinct) == 1:
                found = lift(next(iter(values.values())), self.index.ndim, self.rank)
            else:
                found = self._stack_values(values, row, nothing)
            self._arrays[key] = found
        return self._arrays[key]

    def _stack_values(self, values: Mapping[int, Any], row: Sequence[Any], nothing: float) -> Any:
        """Return an array of *values*, whose contents are in *row*; missing values are
        *nothing*.
        """
        numbers = {content: n for n, content in enumerate(dict.fromkeys(row))}
        rows = np.empty((len(numbers), *_shape_of(values.values(), self.rank)))
        for number, content in enumerate(row):
            rows[numbers[content]] = values.get(number, nothing)
        return rows[self.without_unread(tuple([numbers[content] for content in row]))]

    def _content(self, value: Any) -> Any:
        """Return a key that is equal for equal numbers or arrays."""
        if isinstance(value, (float, int)):
            return float(value)
        if id(value) not in self._contents:
            self._contents[id(value)] = (value.shape, value.tobytes())
        return self._contents[id(value)]

    def without_unread(self, numbers: tuple[int, ...]) -> NDArray[np.intp]:
        """Return the number of each result, with size 1 for choices that do not change it.

        *numbers* are by answer; equal values have the same number.
        """
        if numbers not in self._apart:
            found: NDArray[np.intp] = np.array(numbers)[self.index]
            for k in range(found.ndim):
                if (found == found.take([0], axis=k)).all():
                    found = found.take([0], axis=k)
            self._apart[numbers] = found
        return self._apart[numbers]


def _numbers(terms: Mapping[int, Any], where: _AnswerIndex) -> dict[str, Any]:
    """Return the numbers of *terms*, one term for each answer, as arrays over the choices."""
    first = next(iter(terms.values()))
    numbers: dict[str, Any] = {}
    for name in _numbers_of(_type(first)):
        values = {number: getattr(term, name) for number, term in terms.items()}
        numbers[name] = where.array_of(values, name)
    if series := declarations(_type(first)).series:
        rows = {number: tuple(getattr(term, series)) for number, term in terms.items()}
        like = "seconds" if series == "boundaries" else "share"
        numbers[series] = tuple(
            where.array_of({n: row[i] for n, row in rows.items()}, like)
            for i in range(max(map(len, rows.values())))
        )
    return numbers


def _shape_of(values: Iterable[Any], rank: int) -> tuple[int, ...]:
    """Return the broadcast shape of *values*, with at least *rank* dimensions."""
    return np.broadcast_shapes((1,) * rank, *{np.shape(value) for value in values})


def _type(term: Any) -> Any:
    return type(term)


def _several(term: Any) -> str:
    """Return the name of the attribute of *term* that has several numbers, or ""."""
    series = declarations(_type(term)).series
    return series if series and getattr(term, series) else ""


@cache
def _numbers_of(type_: Any) -> tuple[str, ...]:
    """Return the numeric attributes of a class of terms that time or memory depends on."""
    unused = () if issubclass(type_, Memory) else ("bytes_",)
    return tuple(n for n in _fields(type_) if n in _NUMBERS and n not in unused)


@cache
def _fields(type_: Any) -> tuple[str, ...]:
    return tuple(field.name for field in attrs.fields(type_))


def merge_terms(
    stamped: Sequence[tuple[Plugin, Any]], windows: Windows, *, by_shape: bool = False
) -> list[tuple[Plugin, Any]]:
    """Add up the terms that the reducer treats in the same way, and return the terms.

    With *by_shape*, only terms whose numbers have equal shapes are added.

    Three kinds of terms are added up: serial work of a pass, unless one of *windows* overlaps it;
    work with equal slowdown in a window where order does not matter; and memory with equal
    lifetimes.
    """
    sums: dict[Any, tuple[Plugin, Any, list[Any]]] = {}
    for number, (plugin, term) in enumerate(stamped):
        rates = None if windows.sorts(term) else _rates(term)
        key: Any = number
        if rates is not None:
            key = (_kind(term, windows), rates, _shapes(term) if by_shape else ())
        if key in sums:
            sums[key][2].append(term)
        else:
            sums[key] = (plugin, term, [])
    found = []
    for plugin, first, others in sums.values():
        if not others:
            found.append((plugin, first))
            continue
        names = ("seconds", "latency") if isinstance(first, Work) else ("bytes_",)
        sums_of = {name: getattr(first, name) for name in names}
        for term in others:
            for name in names:
                sums_of[name] = sums_of[name] + getattr(term, name)
        found.append((plugin, replace_values(first, sums_of)))
    return found


def _rates(term: Any) -> tuple[Any, ...] | None:
    """Return the rates, such as slowdown, that must be equal in terms that are added up, or
    None.
    """
    if isinstance(term, Work):
        rates: tuple[Any, ...] = (term.slowdown, term.share, term.alone, *term.also_busy)
    elif isinstance(term, Memory) and not _is_nonzero(term.of_activations):
        rates = (term.freed_at_b,)
    else:
        return None
    return tuple(map(_rate_key, rates))


def _shapes(term: Any) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of the numbers that are added up in a sum of terms."""
    names = ("seconds", "latency") if isinstance(term, Work) else _AMOUNTS
    return tuple(np.shape(getattr(term, name, 0.0)) for name in names)


def _rate_key(rate: Any) -> Any:
    """Return a hash key for a rate; arrays are compared by identity."""
    return float(rate) if isinstance(rate, (float, int)) else id(rate)


def _is_nonzero(rate: Any) -> bool:
    return not isinstance(rate, (float, int)) or rate != 0


def mask(
    read: Sequence[int], by_part: Mapping[Combination, Any], shape: Sequence[int], rank: int
) -> NDArray[np.bool_]:
    """Return one mask for all variants: a dimension for each choice, then *rank* others."""
    array = np.ones(
        (
            *(shape[k] if k in read else 1 for k in range(len(shape))),
            *_shape_of(by_part.values(), rank),
        ),
        dtype=bool,
    )
    for part, holds in by_part.items():
        index = [0] * len(shape)
        for k, i in zip(read, part, strict=True):
            index[k] = i
        array[tuple(index)] = holds
    return array


def lift(value: Any, choices: int, rank: int) -> Any:
    """Return an array of that *rank* with a dimension of size 1 added for each choice."""
    if isinstance(value, (float, int, bool)) or getattr(value, "ndim", 0) == 0:
        return value
    return value.reshape((1,) * (choices + rank - value.ndim) + value.shape)


def take(value: Any, choice: int, index: int) -> Any:
    """Return the part of an array for one value of a choice."""
    if getattr(value, "ndim", 0) <= 1 or value.shape[choice] == 1:
        return value
    return value[(slice(None),) * choice + (slice(index, index + 1),)]


def select_terms(stamped: Sequence[tuple[Plugin, Any]], places: Places) -> list[tuple[Plugin, Any]]:
    """Return the terms at some points of a mesh, without terms that are zero there."""
    known: dict[int, Any] = {}  # terms that share a number go on to share it

    def pick(value: Any) -> Any:
        if value.__class__ is float or not np.ndim(value):
            return value
        if id(value) not in known:
            known[id(value)] = places.pick(value)
        return known[id(value)]

    return list(_select(stamped, pick))


def at_points(value: Any, kept: NDArray[np.intp] | slice) -> Any:
    """Return the elements of an array at some combinations of degrees."""
    if getattr(value, "ndim", 0) and value.shape[-1] > 1:
        return value[..., kept]
    return value


def select_choice(
    stamped: Sequence[tuple[Plugin, Any]], choice: int, index: int
) -> list[tuple[Plugin, Any]]:
    """Return the terms for one value of a choice; omit terms that are zero for it."""
    return list(_select(stamped, lambda value: take(value, choice, index)))


def _select(
    stamped: Sequence[tuple[Plugin, Any]], part_of: Callable[[Any], Any]
) -> Iterator[tuple[Plugin, Any]]:
    """Yield each term with its arrays reduced by *part_of*; omit terms that become zero."""
    for plugin, term in stamped:
        numbers: dict[str, Any] = {}
        for name in _numbers_of(_type(term)):
            value = getattr(term, name)
            if (part := part_of(value)) is not value:
                numbers[name] = part
        if series := _several(term):
            whole = getattr(term, series)
            parts = tuple(map(part_of, whole))
            if any(part is not value for part, value in zip(parts, whole, strict=True)):
                numbers[series] = parts
        if not numbers:
            yield plugin, term
        elif _counts_with(term, numbers):
            yield plugin, replace_values(term, numbers)


def _counts_with(term: Any, numbers: Mapping[str, Any]) -> bool:
    """Return whether *term* is not zero with these *numbers* instead of its own."""
    if _several(term):
        return True
    amounts = (numbers.get(n, getattr(term, n)) for n in _numbers_of(_type(term)) if n in _AMOUNTS)
    return any(np.any(amount) for amount in amounts)


def _kind(term: Any, windows: Windows) -> Any:
    """Return a key that is equal for terms whose numbers alone differ.

    Names may differ, unless the result depends on the order of the terms.
    """
    said = [tuple(v) if v.__class__ is list else v for v in _words_of(_type(term))(term)]
    if isinstance(term, Work):
        said.append(term.host if term.host in windows.guests else "")
    elif isinstance(term, Edge):
        said.append(len(term.boundaries))
    if windows.sorts(term):
        said.append(term.name)
    return tuple(said)


@cache
def _words_of(type_: Any) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that reads the non-numeric attributes that distinguish terms."""
    excluded = {*_NUMBERS, *_NAMES, declarations(type_).series, "host"}
    return attrgetter("__class__", *(name for name in _fields(type_) if name not in excluded))
