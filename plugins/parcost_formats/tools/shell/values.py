"""Values of shell variables: texts with their places in the file, and unknown pieces."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

#: Why words such as ``$@`` are not read.
ARGUMENTS = "the arguments of the script are unknown"


class Piece(NamedTuple):
    """A piece of text from one place in the file.

    *unread* is the reason why it is unknown, *assumption* the reason why it is assumed. *answers*
    are options of the command line that set it. *alternatives* are the values from branches of an
    undecided test, each a list of values. A *spread* piece is any number of words; otherwise each
    alternative is one text. *weight* counts the piece and the pieces of its alternatives.
    """

    text: str
    start: int
    end: int
    unread: str = ""
    assumption: str = ""
    answers: tuple[str, ...] = ()
    alternatives: tuple[tuple[ShellValue, ...], ...] = ()
    spread: bool = False
    weight: int = 1


ShellValue: TypeAlias = Sequence[Piece]


class ShellField(NamedTuple):
    """A word of a command with its references expanded; *pieces* are its parts.

    An unknown word has its reason in *unread*, and the options that set it in *answers*.
    *alternatives* are lists of words that may replace it.
    """

    text: str
    start: int
    end: int
    unread: str
    assumption: str
    pieces: ShellValue
    answers: tuple[str, ...] = ()
    alternatives: tuple[tuple[ShellField, ...], ...] = ()

    @property
    def advice(self) -> str:
        """The help for an unknown word: the options that set it, or its value in the file."""
        ways = " | ".join(self.answers)
        return f"give the variable: {ways}" if ways else "write its value in place of it"


class Variable:
    """The value of a variable, the elements of an array, or of a map by its *keys*.

    *unread* is the reason why the variable is unknown as a whole; *answers* are options that set
    it.
    """

    __slots__ = ("answers", "exported", "fixed", "keys", "kind", "unread", "values")

    def __init__(
        self,
        values: list[list[Piece]],
        kind: str = "text",
        unread: str = "",
        answers: tuple[str, ...] = (),
        keys: dict[str, int] | None = None,
    ) -> None:
        self.values = values
        self.kind = kind
        self.unread = unread
        self.answers = answers
        self.keys = keys or {}
        self.fixed = False
        self.exported = False

    def copy(self) -> Variable:
        """Return an independent copy."""
        values = [list(value) for value in self.values] if self.kind == "text" else [*self.values]
        found = Variable(values, self.kind, self.unread, self.answers, dict(self.keys))
        found.fixed, found.exported = self.fixed, self.exported
        return found


class Decision(NamedTuple):
    """The result of a test: True, False, or None if undecided.

    *assumption* is the default that it depends on. *answers* are options that decide it. *empty* is
    the variable that the test compares with the empty text. *missing* is true if it depends on an
    environment variable that is empty by default.
    """

    value: bool | None
    assumption: str = ""
    answers: tuple[str, ...] = ()
    reason: str = ""
    empty: str = ""
    missing: bool = False


def weight_of(alternatives: Sequence[Sequence[ShellValue]]) -> int:
    """Return the number of pieces in alternatives, nested ones included."""
    return 1 + sum(piece.weight for one in alternatives for value in one for piece in value)


def text_of(value: ShellValue) -> str:
    """Return the text of a value."""
    return "".join(piece.text for piece in value)


def unread_piece(value: ShellValue) -> Piece | None:
    """Return the first unknown piece, None if all are known."""
    return next((piece for piece in value if piece.unread), None)


def assumption_of(value: ShellValue) -> str:
    """Return the first assumption in a value, "" if none exists."""
    return next((piece.assumption for piece in value if piece.assumption), "")


def is_same(one: ShellValue, other: ShellValue) -> bool:
    """Return whether two values are known and equal, regardless of their places."""
    if one is other:
        return True
    if unread_piece(one) is None and unread_piece(other) is None:
        return text_of(one) == text_of(other)
    return [_key(piece) for piece in one] == [_key(piece) for piece in other]


def _key(piece: Piece) -> object:
    return (piece.text, piece.unread, piece.start if piece.unread else 0)


def field_of(value: ShellValue) -> ShellField:
    """Return the word that a value expands to, with its place and the reason if it is unknown."""
    alternatives: tuple[tuple[ShellField, ...], ...] = ()
    if len(value) == 1 and value[0].alternatives:
        alternatives = tuple(
            tuple(field_of(inner) for inner in one if inner) for one in value[0].alternatives
        )
    unread = unread_piece(value)
    return ShellField(
        text_of(value),
        min((piece.start for piece in value), default=0),
        max((piece.end for piece in value), default=0),
        unread.unread if unread else "",
        assumption_of(value),
        tuple(value),
        unread.answers if unread else (),
        alternatives,
    )


def split(pieces: Iterable[tuple[Piece, bool]]) -> list[list[Piece]]:
    """Split pieces into words at white space; *solid* (quoted) pieces are not split."""
    listed = list(pieces)
    found: list[list[Piece]] = []
    run: list[Piece] = []
    for place, (piece, solid) in enumerate(listed):
        if solid or (piece.unread and not piece.alternatives):
            run.append(piece)
            continue
        if piece.alternatives:
            following = listed[place + 1] if place + 1 < len(listed) else None
            if _stands_alone(piece, bool(run), _is_boundary(following)):
                if run:
                    found.append(run)
                    run = []
                found.append([_spread(piece)])
            else:
                run.append(piece._replace(alternatives=()))
            continue
        if not re.search(r"\s", piece.text):
            if piece.text:
                run.append(piece)
            continue
        exact = len(piece.text) == piece.end - piece.start
        at = 0
        for word in re.finditer(r"\S+", piece.text):
            if word.start() > at and run:
                found.append(run)
                run = []
            start = piece.start + word.start() if exact else piece.start
            end = piece.start + word.end() if exact else piece.end
            run.append(Piece(word[0], start, end, "", piece.assumption))
            at = word.end()
            if at < len(piece.text):
                found.append(run)
                run = []
        if run and at < len(piece.text):
            found.append(run)
            run = []
    if run:
        found.append(run)
    return found


def split_at(pieces: Iterable[tuple[Piece, bool]], separators: str) -> list[list[Piece]]:
    """Split pieces into words at the characters of ``IFS``."""
    found: list[list[Piece]] = [[]]
    blanks = "".join(char for char in separators if char.isspace())
    others = "".join(char for char in separators if not char.isspace())
    chosen = "".join({*separators, *("\n" if others and not blanks else "")})
    for piece, solid in pieces:
        if solid or piece.unread:
            found[-1].append(piece._replace(alternatives=()) if piece.alternatives else piece)
            continue
        text = piece.text.strip(blanks) if blanks else piece.text
        for char in others:
            text = text.replace(char, "\n" if not blanks else blanks[0])
        if others and (text != text.strip() or re.search(r"[\s]{2}", text)):
            unread = "`IFS` splits empty words here, which is not supported"
            found[-1].append(piece._replace(unread=unread))
            continue
        if piece.text and blanks and piece.text[0] in blanks:
            found.append([])
        for place, part in enumerate(
            re.split(f"[{re.escape(chosen)}]+", text) if chosen else [text]
        ):
            if place:
                found.append([])
            if part:
                found[-1].append(piece._replace(text=part))
        if piece.text and blanks and piece.text[-1] in blanks:
            found.append([])
    return [one for one in found if one]


def _spread(piece: Piece) -> Piece:
    if piece.spread:
        return piece
    alternatives = tuple(
        tuple(split((inner, False) for value in one for inner in value))
        for one in piece.alternatives
    )
    return piece._replace(alternatives=alternatives, spread=True)


def _shorten(alternative: Sequence[ShellValue]) -> str:
    """Return an alternative as text, with ``?`` for unknown pieces."""
    pieces = [piece for value in alternative for piece in value]
    return "".join("?" if piece.unread else piece.text for piece in pieces)


def _stands_alone(piece: Piece, glued_before: bool, free_behind: bool) -> bool:
    shown = [_shorten(one) for one in piece.alternatives]
    before = not glued_before or all(not one or one[0].isspace() for one in shown)
    behind = free_behind or all(not one or one[-1].isspace() for one in shown)
    joins = not all(shown) and glued_before and not free_behind
    return before and behind and not joins


def _is_boundary(following: tuple[Piece, bool] | None) -> bool:
    if following is None:
        return True
    piece, solid = following
    if piece.alternatives and not solid:
        return all(not one or one[0].isspace() for one in map(_shorten, piece.alternatives))
    return not solid and piece.text[:1].isspace()


class FieldSplit(NamedTuple):
    """The words that do not depend on the results of tests, and the words that do."""

    certain: Sequence[ShellField]
    conditional: Sequence[ShellField]


def split_fields(fields: Iterable[ShellField]) -> FieldSplit:
    """Separate words common to all branches of undecided tests from words of some branches.

    A flag and its values are one unit: it is certain if each branch gives it the same values. Other
    words are conditional, each with its reason and the options that decide it.
    """
    certain: list[ShellField] = []
    conditional: list[ShellField] = []
    taken = False  # whether a plain word may belong to a flag that is not certain
    for field in fields:
        if field.alternatives:
            taken = _split_branches(field, certain, conditional)
        elif taken and not is_flag(field) and field.unread != ARGUMENTS:
            conditional.append(
                _mark(field, field.unread or "it is not clear to which flag it belongs", ())
            )
        else:
            taken = False
            certain.append(field)
    return FieldSplit(certain, conditional)


def _split_branches(
    field: ShellField, certain: list[ShellField], conditional: list[ShellField]
) -> bool:
    """Add words of all branches to *certain*, others to *conditional*.

    Return whether a branch ends in a flag that the others lack.
    """
    listed = [split_fields(one) for one in field.alternatives]
    for one in listed:
        conditional += one.conditional
    runs = [_runs(one.certain) for one in listed]
    heads = [one[0] if one and not is_flag(one[0][0]) else [] for one in runs]
    if any(heads):
        certain += heads[0] if _are_same(heads) else [field._replace(alternatives=())]
        runs = [one[1:] if head else one for one, head in zip(runs, heads, strict=True)]
    shared = set.intersection(*({_run_key(run) for run in branch} for branch in runs))
    certain += [word for run in runs[0] if _run_key(run) in shared for word in run]
    distinct: dict[object, list[ShellField]] = {}
    for run in (run for branch in runs for run in branch):
        distinct.setdefault(_run_key(run), run)
    for key, run in distinct.items():
        if key not in shared:
            conditional += [
                word if word.unread and word is not run[0] else _mark(word, *_why(field))
                for word in run
            ]
    return any(_run_key(one[-1]) not in shared for one in runs if one)


def _are_same(heads: Sequence[Sequence[ShellField]]) -> bool:
    """Return whether the words are known and the same in each of *heads*."""
    texts = {tuple(word.text for word in head) for head in heads}
    return len(texts) == 1 and not any(word.unread for head in heads for word in head)


def is_flag(field: ShellField) -> bool:
    """Return whether a word starts a setting: a flag, or ``name=value``."""
    text = field.text
    if text[:1] == "-":
        return text.startswith("--") or text[1:2].isalpha()
    return re.match(r"[+~]{0,2}[A-Za-z_][\w./@-]*=", text) is not None


def _why(field: ShellField) -> tuple[str, tuple[str, ...]]:
    return field.unread, field.answers


def _mark(field: ShellField, why: str, answers: tuple[str, ...]) -> ShellField:
    return field._replace(unread=why, answers=answers)


def _runs(fields: Iterable[ShellField]) -> list[list[ShellField]]:
    """Group each flag with the words that follow it."""
    found: list[list[ShellField]] = []
    for field in fields:
        if is_flag(field) or not found:
            found.append([field])
        else:
            found[-1].append(field)
    return found


def _run_key(run: Sequence[ShellField]) -> object:
    return tuple((word.text, word.unread, word.start if word.unread else 0) for word in run)
