"""Tests of a script, ``[ ... ]`` and ``[[ ... ]]``, evaluated if operands are known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import NamedTuple

from parcost_formats.tools.shell.arithmetic import ArithmeticTextError
from parcost_formats.tools.shell.expansion import WordExpander
from parcost_formats.tools.shell.nodes import ShellToken
from parcost_formats.tools.shell.patterns import PatternText, ShellPatternError, matches
from parcost_formats.tools.shell.sources import short
from parcost_formats.tools.shell.values import (
    Decision,
    Piece,
    ShellValue,
    assumption_of,
    text_of,
    unread_piece,
)

_UNARY_TEXTS = ("-z", "-n")
_UNARY_OTHERS = tuple(f"-{letter}" for letter in "abcdefghkoprstuwxGLNOSvR")
_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda one, other: one == other,
    "-ne": lambda one, other: one != other,
    "-lt": lambda one, other: one < other,
    "-le": lambda one, other: one <= other,
    "-gt": lambda one, other: one > other,
    "-ge": lambda one, other: one >= other,
}
_TEXTS = ("=", "==", "!=")
_BINARY = (*_TEXTS, *_NUMBERS, "=~", "<", ">", "-nt", "-ot", "-ef")
#: Offsets from the number in a test at which the test is true, and at which it is false.
_NEAR = {"-eq": (0, 1), "-ne": (1, 0), "-lt": (-1, 0), "-le": (0, 1), "-gt": (1, 0), "-ge": (0, -1)}
_MOST_CASES = 32
_DEEPEST = 30
UNDECIDED = Decision(None)


class Operand(NamedTuple):
    """A word of a test: its *value*, its text as a *pattern*, and the name if it is a single
    variable.
    """

    value: ShellValue
    pattern: PatternText | None = None
    name: str = ""
    answers: tuple[str, ...] = ()


def negate(decision: Decision) -> Decision:
    """Return the opposite of a decision."""
    if decision.value is None:
        return decision
    return decision._replace(value=not decision.value)


def combine(decisions: Sequence[Decision], *, is_and: bool) -> Decision:
    """Return the result of decisions joined with ``&&`` or ``||``."""
    ends = [one for one in decisions if one.value is (not is_and)]
    if ends:
        return next((one for one in ends if not one.assumption), ends[0])
    open_ones = [one for one in decisions if one.value is None]
    if open_ones:
        listed = dict.fromkeys(answer for one in open_ones for answer in one.answers)
        answers = tuple(sorted(listed, key=lambda answer: answer.endswith("=")))
        return Decision(None, "", answers, open_ones[0].reason)
    return Decision(is_and, next((one.assumption for one in decisions if one.assumption), ""))


def possible_texts(value: ShellValue) -> Sequence[str] | None:
    """Return all texts that a value can have, None if they are unknown."""
    options: list[list[str]] = []
    for piece in value:
        if not piece.unread:
            options.append([piece.text])
            continue
        if not piece.alternatives or piece.spread:
            return None
        inner = [possible_texts([p for one in texts for p in one]) for texts in piece.alternatives]
        if any(one is None for one in inner):
            return None
        options.append([text for one in inner for text in one or ()])
    count = 1
    for one in options:
        count *= len(one)
        if count > _MOST_CASES:
            return None
    return ["".join(parts) for parts in product(*options)]


def decide(
    operands: Sequence[Operand],
    holds: Callable[[Sequence[str]], bool],
    answers: Sequence[str] = (),
) -> Decision:
    """Return the result of *holds* if it is the same for all possible texts of the operands."""
    cases = [possible_texts(one.value) for one in operands]
    assumption = next(filter(None, (assumption_of(one.value) for one in operands)), "")
    if all(one is not None for one in cases):
        found = {holds(texts) for texts in product(*(one or () for one in cases))}
        if len(found) == 1:
            missing = any(assumption_of(one.value) and not text_of(one.value) for one in operands)
            return Decision(found.pop(), assumption, tuple(answers), missing=missing)
    unread = next((piece for one in operands if (piece := unread_piece(one.value))), None)
    decided = unread.answers if unread is not None and unread.alternatives else ()
    reason = unread.unread if unread is not None else ""
    return Decision(None, "", tuple(decided or answers), reason)


def evaluate_test(expander: WordExpander, words: Sequence[ShellToken], *, double: bool) -> Decision:
    """Return the result of ``[ words ]``, or of ``[[ words ]]`` if *double*."""
    items: list[Operand | str] = []
    for word in words:
        if word.operator:
            items.append(word.operator)
            continue
        plain = word.plain
        if plain and (plain in ("!", "-a", "-o", *_UNARY_TEXTS, *_UNARY_OTHERS, *_BINARY)):
            items.append(plain)
            continue
        name = _subject(word)
        if double:
            value = expander.value(word.parts)
            items.append(Operand(value, expander.pattern(word.parts), name, _own(expander, name)))
        else:
            quoted = any(part.quoted for part in word.parts)
            values = expander.fields(word) or (
                [[Piece("", word.start, word.end)]] if quoted else []
            )
            items += [
                Operand(value, None, name, _own(expander, name))
                if text_of(value) not in ("(", ")")
                else text_of(value)
                for value in values
            ]
    return _TestExpression(expander, items, double=double).decision()


def _subject(word: ShellToken) -> str:
    """Return the name of the variable that a word consists of, "" for another word."""
    if len(word.parts) != 1 or word.parts[0].kind != "variable":
        return ""
    name = word.parts[0].text
    stop = next((at for at, char in enumerate(name) if not (char.isalnum() or char == "_")), None)
    return name[:stop]


def _own(expander: WordExpander, name: str) -> tuple[str, ...]:
    variable = expander.variable(name) if name else None
    return variable.answers if variable is not None else ()


def emptiness(words: Sequence[ShellToken]) -> str:
    """Return the variable tested for emptiness, as in ``-z "$NAME"``; "" for another test."""
    if len(words) == 2 and words[0].plain == "-z":
        return _subject(words[1])
    return ""


def options_for(operand: Operand, texts: Iterable[str]) -> tuple[str, ...]:
    """Return options that set the variable of an operand to each of some texts."""
    if not operand.name:
        unread = unread_piece(operand.value)
        return unread.answers if unread is not None else operand.answers
    return tuple(dict.fromkeys(f"--set-env {operand.name}={text}" for text in texts))


class _TestExpression:
    def __init__(
        self, expander: WordExpander, items: Sequence[Operand | str], *, double: bool
    ) -> None:
        self._expander = expander
        self._items = items
        self._double = double
        self._at = 0
        self._depth = 0

    def decision(self) -> Decision:
        """Return the result of the whole expression."""
        if not self._items:
            return Decision(False)
        found = self._either()
        if self._at < len(self._items):
            return UNDECIDED
        return found

    def _take(self, *signs: str) -> bool:
        if self._at < len(self._items) and self._items[self._at] in signs:
            self._at += 1
            return True
        return False

    def _either(self) -> Decision:
        found = [self._both()]
        while self._take("||" if self._double else "-o"):
            found.append(self._both())
        return combine(found, is_and=False) if len(found) > 1 else found[0]

    def _both(self) -> Decision:
        found = [self._one()]
        while self._take("&&" if self._double else "-a"):
            found.append(self._one())
        return combine(found, is_and=True) if len(found) > 1 else found[0]

    def _one(self) -> Decision:
        self._depth += 1
        if self._depth > _DEEPEST or self._at >= len(self._items):
            self._at = len(self._items) + 1
            return UNDECIDED
        found = self._primary()
        self._depth -= 1
        return found

    def _primary(self) -> Decision:
        items, at = self._items, self._at
        following = items[at + 1] if at + 1 < len(items) else None
        if following in _BINARY and at + 2 < len(items):
            self._at += 3
            return self._binary(self._operand(at), str(following), self._operand(at + 2))
        if self._take("!"):
            return negate(self._one())
        if self._take("("):
            found = self._either()
            return found if self._take(")") else UNDECIDED
        sign = items[at]
        if isinstance(sign, str) and following is not None and following not in ("&&", "||", ")"):
            self._at += 2
            operand = self._operand(at + 1)
            if sign in _UNARY_TEXTS:
                return self._empty(operand, wanted=sign == "-z")
            shown = short(text_of(operand.value))
            return Decision(None, "", (), f"`{sign} {shown}` depends on the machine")
        self._at += 1
        return self._empty(self._operand(at), wanted=False)

    def _operand(self, at: int) -> Operand:
        item = self._items[at]
        if isinstance(item, str):
            return Operand([Piece(item, 0, 0)], [(char, False) for char in item])
        return item

    def _empty(self, operand: Operand, *, wanted: bool) -> Decision:
        texts = ("", "1") if wanted else ("1", "")
        # A text that is known in part is not empty.
        if any(piece.text and not piece.unread for piece in operand.value):
            return Decision(not wanted, assumption_of(operand.value))
        return decide(
            [operand], lambda found: (not found[0]) == wanted, options_for(operand, texts)
        )

    def _binary(self, one: Operand, sign: str, other: Operand) -> Decision:
        if sign in _NUMBERS:
            return self._numbers(one, sign, other)
        if sign not in _TEXTS:
            return Decision(None, "", (), f"`{sign}` is not evaluated")
        equal = sign != "!="
        answers = self._text_answers(one, other) or self._text_answers(other, one)
        if not equal:
            answers = answers[::-1]
        if not self._double:
            return decide([one, other], lambda found: (found[0] == found[1]) == equal, answers)
        pattern = other.pattern
        if pattern is None:  # of a text that is not known
            quoted = all(not piece.text or piece.unread for piece in other.value)
            if quoted or possible_texts(other.value) is None:
                return decide([one, other], lambda _: False, answers)._replace(value=None)
            return decide([one, other], lambda found: (found[0] == found[1]) == equal, answers)
        try:
            return decide(
                [one, other._replace(value=[p for p in other.value if not p.unread])],
                lambda found: matches(pattern, found[0]) == equal,
                answers,
            )
        except ShellPatternError:
            return Decision(None, "", answers, "this pattern is not evaluated")

    def _text_answers(self, one: Operand, other: Operand) -> tuple[str, ...]:
        if unread_piece(one.value) is None or unread_piece(other.value) is not None:
            return ()
        return options_for(one, (text_of(other.value), ""))

    def _numbers(self, one: Operand, sign: str, other: Operand) -> Decision:
        answers: tuple[str, ...] = ()
        if unread_piece(one.value) is not None and unread_piece(other.value) is None:
            text = text_of(other.value).strip()
            if text.lstrip("-").isdecimal() and len(text) < 16:
                near = _NEAR[sign]
                answers = options_for(one, (str(int(text) + step) for step in near))
        wrong: list[str] = []

        def holds(found: Sequence[str]) -> bool:
            try:
                numbers = [self._number(text) for text in found]
            except ArithmeticTextError as error:
                wrong.append(str(error.args[0]) if error.args else "")
                return False
            return _NUMBERS[sign](numbers[0], numbers[1])

        found = decide([one, other], holds, answers)
        if wrong and (self._double or not all(text == "" for text in wrong)):
            return Decision(None, "", answers, wrong[0])
        return found

    def _number(self, text: str) -> int:
        if self._double:
            return self._expander.evaluate([Piece(text, 0, 0)])
        stripped = text.strip()
        if not stripped.lstrip("+-").isdecimal() or len(stripped) > 18:
            raise ArithmeticTextError("")
        return int(stripped)
