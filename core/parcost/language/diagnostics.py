"""Diagnostics as data.

A diagnostic has the error as its message, places as labels, reasons as notes, and the remedy as
help. Ids are words, so that a message can be searched for and explained by name. The style follows
rustc: messages start in lower case and have no full stop; labels are short; only help makes
proposals. ``diagnostic_text`` prints them, and ``errors`` raises them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from enum import Enum
from functools import lru_cache
from reprlib import Repr

from parcost.language.text import Span
from parcost.records import frozen

_FEW = 4  # names that a help line proposes
_CLOSE = 0.6  # of the letters are those of a name that may be meant
_CLOSE_WORDS = 0.7  # and, of several words, which share letters by chance
_SAME = 0.85  # and of one that is all but equal
_EQUAL = 0.9  # and of one that differs in a letter of a long name
_DIGITS = {"1": "one", "2": "two", "3": "three", "4": "four"}
_SEPARATOR = re.compile(r"\w[-_]\w")  # between words of a name
_LONGEST = 500  # characters of foreign text
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 100


class Severity(Enum):
    """The severity of a diagnostic; the value is the printed word."""

    ERROR = "error"
    WARNING = "warning"


@frozen
class Label:
    """A remark about one span; the first label of a diagnostic is its subject."""

    span: Span
    text: str = ""


@frozen
class Diagnostic:
    """One error, warning or note about a spec.

    *labels* is empty if there is no text to point at (a missing file); *place* then names the file
    or the command-line argument.
    """

    id: str
    message: str
    labels: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    help: str | None = None
    severity: Severity = Severity.ERROR
    place: str = ""

    @property
    def all_notes(self) -> tuple[str, ...]:
        """The notes, and the note of the source about the subject."""
        if not self.labels:
            return self.notes
        span = self.labels[0].span
        note = span.source.remark(span.start)
        return (*self.notes, note) if note else self.notes


def one_line(text: str) -> str:
    """Return external text in one short line without control characters.

    >>> one_line("a\\x1b[31m\\n  b")
    'a\\\\x1b[31m b'
    """
    text = " ".join(text[: 2 * _LONGEST].split())
    cut = text[:_LONGEST] + ("..." if len(text) > _LONGEST else "")
    if cut.isprintable():
        return cut
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)


def type_name(value: object) -> str:
    """Return the name of the class of an external value, in one line."""
    return one_line(type(value).__name__)


def quote(value: object) -> str:
    """Return the ``repr`` of an external value in one short line, even if ``repr`` fails."""
    try:
        return one_line(_SHORT.repr(value))
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  the value is foreign code
        return f"<{type_name(value)}>"


def problem(
    id: str,
    message: str,
    span: Span,
    label: str = "",
    *,
    help: str | None = None,
    notes: Iterable[str] = (),
    also: Iterable[tuple[Span, str]] = (),
    severity: Severity = Severity.ERROR,
) -> Diagnostic:
    """Return a diagnostic about one span, and optionally *also* about others."""
    labels = (Label(span, label), *(Label(other, text) for other, text in also))
    return Diagnostic(id, message, labels, tuple(notes), help, severity)


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return a help line naming the closest of *known*, or None if none is close.

    Names that start with *name*, or with which *name* starts, come before names with a similar
    spelling. A name that differs in only one letter comes first. Underscores and case are ignored.

    >>> did_you_mean("bandwith", ["latency", "bandwidth"])
    'did you mean `bandwidth`?'
    >>> did_you_mean("h100", ["a100", "h100_nvl", "h100_sxm"])
    'did you mean `h100_nvl` or `h100_sxm`?'
    >>> did_you_mean("batch_size", ["batch", "batches"])
    'did you mean `batch`?'
    >>> did_you_mean("h1000", ["b100", "h100_sxm"])
    'did you mean `h100_sxm`?'
    >>> did_you_mean("TP", ["tp", "pp"])
    'did you mean `tp`?'
    >>> did_you_mean("microbatchsize", ["micro_batch", "micro_batches"])
    'did you mean `micro_batch`?'
    >>> did_you_mean("memory_bandwith", ["memory", "memory_bandwidth"])
    'did you mean `memory_bandwidth`?'
    """
    return _suggest(name, tuple(known))


@lru_cache(maxsize=1024)
def _suggest(name: str, names: Sequence[str]) -> str | None:
    """Return the help line; cached, as one wrong name often occurs on many lines of a file."""
    same = [other for other in names if _letters(other) == _letters(name)]
    if len(same) == 1:
        return f"did you mean `{same[0]}`?"
    longer = [other for other in names if len(name) > 2 and other.startswith(f"{name}_")]
    if not longer:
        longer = _similar_prefixes(name, names)
    if longer:
        first = longer if len(longer) <= _FEW + 1 else longer[:_FEW]
        more = len(longer) - len(first)
        rest = [f"one of {more} more names that begin like this"] if more else []
        return f"did you mean {' or '.join([*(f'`{other}`' for other in first), *rest])}?"
    close = (
        get_close_matches(name, names, n=1, cutoff=_EQUAL)
        or _longest_prefix(name, names)
        or nearest_names(name, names, 1)
    )
    return f"did you mean `{close[0]}`?" if close else None


def _letters(name: str) -> str:
    """Return the name in lower case without underscores."""
    return name.lower().replace("_", "")


def _longest_prefix(name: str, names: Sequence[str]) -> list[str]:
    """Return the longest of *names* that is a prefix of *name*, ignoring case and underscores."""
    letters = _letters(name)
    shorter = [
        other
        for other in names
        if (len(other) > 1 and name.startswith(f"{other}_"))
        or (2 * len(_letters(other)) >= len(letters) and letters.startswith(_letters(other)))
    ]
    return [max(shorter, key=len)] if shorter else []


def _similar_prefixes(name: str, names: Sequence[str]) -> list[str]:
    """Return the *names* whose part before `_` differs from *name* in one letter or digit."""
    heads = [other.partition("_")[0] for other in names]
    if not any(map(str.isdigit, name)):
        return []
    close = get_close_matches(name, [*names, *heads], n=1, cutoff=_SAME)
    if not close or close[0] in names:
        return []
    return [other for other, head in zip(names, heads, strict=True) if head == close[0]]


def nearest_names(name: str, known: Iterable[str], count: int, least: float = _CLOSE) -> list[str]:
    """Return up to *count* of the names with the most similar spelling, the closest first.

    >>> nearest_names("1f1b", ["interleaved", "one_f_one_b", "gpipe"], 2)
    ['one_f_one_b']
    >>> nearest_names("--zorp", ["--lr"], 1), nearest_names("--bf61", ["--bf16"], 1)
    ([], ['--bf16'])
    >>> nearest_names("gradient-checkpointing", ["pretrained-checkpoint"], 1)
    []
    """
    names = list(known)
    if least == _CLOSE and _SEPARATOR.search(name):
        least = _CLOSE_WORDS
    plain = {other.lstrip("-"): other for other in names}
    found = get_close_matches(name.lstrip("-"), plain, n=count, cutoff=least)
    close = [plain[other] for other in found]
    if close or not any(digit in _DIGITS for digit in name):
        return close
    spelled = "_".join(_DIGITS.get(character, character) for character in name)
    return get_close_matches(spelled, names, n=count, cutoff=_CLOSE)
