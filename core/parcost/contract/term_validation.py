"""Validation of a term: its words are text, and its numbers are in range.

An invalid time, size or count shortens a step silently, or fails in a sum far from its plugin.
Counts may be numbers of any kind on input, and are plain numbers from here on. They distinguish
stages, and in a search also terms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from math import inf
from operator import attrgetter
from typing import Any, TypeAlias

from attrs import evolve, fields

from parcost.contract.figures import Figure, Interval
from parcost.contract.terms import Edge, Names, StageCounts
from parcost.language.diagnostics import quote
from parcost.numeric import all_of, array_kind, is_array

#: Counts by id, as many terms share theirs: what they are, in plain numbers or None.
Counts: TypeAlias = dict[int, tuple[Any, Any]]

_WORDS = ("pass_", "when", "host", "resource", "cause", "tag")
_SEVERAL = (tuple, list)
_KEPT = 4096  # counts
_KINDS = frozenset("fiub")  # of arrays whose items are numbers
_PLAIN: frozenset[type] = frozenset((float, int, bool))
_Read: TypeAlias = Callable[[Any], tuple[Any, ...]]


@cache
def _kind(class_: type) -> tuple[_Read, _Read, bool, bool, bool]:
    """Return what reads the words and the numbers of a kind of term, and what it has besides."""
    has = {field.name for field in fields(class_)}
    words, numbers = [n for n in _WORDS if n in has], [name for name, _, _ in ranges(class_)]
    return _reader(words), _reader(numbers), "window" in has, "moments" in has, "count" in has


def _reader(names: Sequence[str]) -> _Read:
    """Return what reads some attributes, be they one or none."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda term: tuple(getattr(term, name) for name in names)


def validate_term(term: Any, counts: Counts) -> tuple[Any, str]:
    """Return *term* in plain numbers, and the error in it or an empty text.

    *counts* keeps the counts of the terms before.
    """
    words, numbers, windowed, lasting, counted = _kind(term.__class__)
    for word in words(term):
        if word.__class__ is not str and (said := _bad_word(term)):
            return term, said
    if windowed and not (term.window is None or isinstance(term.window, str)):
        return term, _no_text(term, "window")
    if counted and not lasting and term.also and (said := _bad_also(term)):
        return term, said
    if lasting and not isinstance(term.moments, _SEVERAL):
        return (
            term,
            f"gave the term `{term.name}` moments = {quote(term.moments)}, which are no list",
        )
    for value in numbers(term):
        if not (value.__class__ is float and value >= 0.0):
            if said := _bad_number(term):
                return term, said
            break  # which has looked at all of them
    if lasting:
        freed = term.freed_at_b
        if not (freed.__class__ is float and freed <= 1.0) and (said := _bad_number(term)):
            return term, said
    if not counted:
        return _validate_boundaries(term)
    count = term.count
    if count.__class__ is StageCounts or (count.__class__ is float and 0.0 <= count < inf):
        return term, ""
    known = counts.get(id(count))
    return (term, "") if known and known[1] is count else _validate_count(term, counts)


def value_problem(figure: Figure) -> str:
    """Return the error in the value of *figure*, or an empty text; a rule reports nan."""
    value: Any = figure.value
    if isinstance(value, (float, int)):
        return ""
    if array_kind(value) in _KINDS:
        return ""
    return f"gave the figure `{figure.name}` value = {quote(value)}, which is no number"


@cache
def ranges(class_: type) -> Sequence[tuple[str, float, float]]:
    """Return the numbers that a record declares, each with the least and the most it may be."""
    return tuple(
        (field.name, field.metadata["minimum"], field.metadata.get("maximum", inf))
        for field in fields(class_)
        if "minimum" in field.metadata
    )


def number_complaint(answer: Any, called: str) -> str:
    """Return the error in a number of an answer by its declaration, or an empty text."""
    for name, least, most in ranges(answer.__class__):
        value = attrgetter(name)(answer)
        if not is_within(value, least, most):
            wrong = "no time or size is" if most == inf else f"is not within {least:g} and {most:g}"
            wrong = "is no number" if least == -inf else wrong
            return f"gave {called} {name} = {quote(value)}, which {wrong}"
    return ""


def interval_problem(interval: Interval) -> str:
    """Return the error in the bounds of *interval*, or an empty text."""
    called = f"the interval of `{interval.name}`"
    if found := number_complaint(interval, called):
        return found
    if is_array(interval.coverage):
        return f"gave {called} coverage = {quote(interval.coverage)}, which is not one number"
    return ""


def _bad_number(term: Any) -> str:
    return number_complaint(term, f"the term `{term.name}`")


def _bad_word(term: Any) -> str:
    for name in _WORDS:
        word = getattr(term, name, "")
        if name == "resource" and isinstance(word, Names):
            if not _points(word):
                at = quote(word.at)
                return f"gave the term `{term.name}` resources at {at}, which are not there"
        elif not isinstance(word, str):
            return _no_text(term, name)
    return ""


def _bad_also(term: Any) -> str:
    """Return what is wrong with the further resources of a term, if anything."""
    names, shares = term.also, term.also_busy
    if not (isinstance(names, _SEVERAL) and all(isinstance(name, str) for name in names)):
        return f"gave the term `{term.name}` also = {quote(names)}, which is no list of resources"
    if not (isinstance(shares, _SEVERAL) and len(shares) == len(names)):
        said = f"which is not one share for each of {len(names)} resources"
        return f"gave the term `{term.name}` also_busy = {quote(shares)}, {said}"
    for share in shares:
        if not is_within(share, 0.0, 1.0):
            said = "which is not within 0 and 1"
            return f"gave the term `{term.name}` also_busy = {quote(share)}, {said}"
    return ""


def _no_text(term: Any, name: str) -> str:
    return f"gave the term `{term.name}` {name} = {quote(getattr(term, name))}, which is no text"


def _points(several: Names) -> bool:
    """Return whether there is a name wherever one is pointed at."""
    at, count = several.at, len(several.names)
    try:
        return all_of((at >= 0) & (at < count) & (at % 1 == 0))
    except (TypeError, ValueError, AttributeError):
        return False


def is_within(value: Any, least: float = -inf, most: float = inf) -> bool:
    """Return whether a number, or all of an array, is within limits; no number is not."""
    if isinstance(value, (float, int)):
        return least <= value <= most
    try:
        if not value.size or value.dtype.kind not in _KINDS:
            return False
        return bool(value.min() >= least) and (most == inf or bool(value.max() <= most))
    except (TypeError, ValueError, AttributeError):
        return False


def _validate_boundaries(edge: Edge) -> tuple[Edge, str]:
    """Return an edge, its boundaries in a tuple, and what is wrong with these, if anything."""
    boundaries = edge.boundaries
    if boundaries.__class__ is not tuple:
        try:
            boundaries = tuple(boundaries)
        except TypeError:
            wrong = f"boundaries = {quote(edge.boundaries)}, which are no list"
            return edge, f"gave the term `{edge.name}` {wrong}"
        edge = evolve(edge, boundaries=boundaries)
    for value in boundaries:
        if not is_within(value, 0.0, inf):
            return (
                edge,
                f"gave the term `{edge.name}` a boundary of {quote(value)}, which no time is",
            )
    return edge, ""


def _validate_count(term: Any, counts: Counts) -> tuple[Any, str]:
    """Return a term with a plain count, and what is wrong with that."""
    count = term.count
    if id(count) not in counts:
        counts[id(count)] = (count, plain_count(count))
    plain = counts[id(count)][1]
    if plain is None:
        said = "which is no number of times, nor one for each virtual stage"
        return term, f"gave the term `{term.name}` count = {quote(count)}, {said}"
    return (term if plain is count else evolve(term, count=plain)), ""


def plain_count(count: Any) -> Any:
    """Return a count as a number or several, or None where it is neither; itself if plain."""
    try:
        if count.__class__ is tuple and _is_plain(count):
            return count
        plain: Any = count
        if count.__class__ not in _PLAIN and count.__class__ not in (tuple, list):
            plain = count.tolist() if hasattr(count, "tolist") else tuple(count)
        if isinstance(plain, (float, int)):
            return plain if 0 <= plain < inf else None
        if not _PLAIN.issuperset(map(type, plain)):
            plain = [n if n.__class__ in _PLAIN else n.item() for n in plain]
        several = tuple(plain)
        good = _is_plain(several)
    except (TypeError, ValueError, AttributeError, OverflowError):
        return None
    if not good:
        return None
    return count if plain is count else several


@lru_cache(_KEPT)
def _is_plain(count: tuple[Any, ...]) -> bool:
    """Return whether all are plain numbers of times; specs of a kind have the same counts."""
    return _PLAIN.issuperset(map(type, count)) and min(count) >= 0 and sum(count) < inf
