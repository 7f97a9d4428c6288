"""Words of a script, with braces, references and arithmetic replaced."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from attrs import Factory, define

from parcost_formats.tools.shell.arithmetic import (
    ArithmeticTextError,
    assigned_names,
    number,
)
from parcost_formats.tools.shell.braces import MOST_PIECES, TOO_MUCH, expand_braces
from parcost_formats.tools.shell.layers import Layer
from parcost_formats.tools.shell.nodes import ShellToken, WordPart
from parcost_formats.tools.shell.patterns import (
    PatternText,
    ShellPatternError,
    remove_match,
    replace_matches,
)
from parcost_formats.tools.shell.sources import ScriptSource, short
from parcost_formats.tools.shell.values import (
    ARGUMENTS,
    Piece,
    ShellValue,
    Variable,
    assumption_of,
    field_of,
    split,
    split_at,
    text_of,
    unread_piece,
)
from parcost_formats.tools.shell.words import ShellTextError, word_parts

_NAME = re.compile(r"[A-Za-z_]\w*")
_REFERENCE = re.compile(r"(!?)([A-Za-z_]\w*|\d+|[@*#?$!-])(?:\[([^]]*)\])?([\s\S]*)")
_MARK = re.compile("\0(\\d+)\0")
_MOST_TEXT = 8_000_000
_DEEPEST = 30
_Found = TypeVar("_Found")


class ParameterReference(NamedTuple):
    """``${name[key]operation}``; *at* is where the operation starts in the text."""

    indirect: bool
    name: str
    key: str | None
    rest: str
    at: int


class ArgumentFrame(NamedTuple):
    """The arguments of a function or script; None if they are unknown."""

    arguments: Sequence[ShellValue] | None


@define(slots=False, eq=False)
class WordExpander:
    """Expands words: replaces references. Variables are looked up in a *layer*."""

    source: ScriptSource
    pins: Mapping[str, str]
    name: str
    _neighbor: Callable[[str], str | None]
    _first: ScriptSource = Factory(lambda self: self.source, takes_self=True)
    layer: Layer = Factory(Layer)
    frames: list[ArgumentFrame] = Factory(lambda: [ArgumentFrame(None)])
    missing: str = ""  # a sourced file that is not there
    _pieces: int = 0
    _text: int = 0
    _allowed: int = Factory(lambda self: len(self.source.text), takes_self=True)
    _depth: int = 0
    _last_default: tuple[Sequence[Piece], Sequence[bool]] = ((), ())
    extended: str = ""  # a variable that is being added to
    copied: str = ""  # a variable that is being set to its own value: one of the environment

    @abstractmethod
    def capture(self, part: WordPart) -> Sequence[Piece]:
        """Return the output of the commands in ``$(...)``."""

    @abstractmethod
    def assign(self, name: str, variable: Variable) -> None:
        """Set a variable."""

    # Limits

    def count(self, pieces: int, text: int = 0) -> None:
        """Add to the size of the expansion; raise if it is too large."""
        self._pieces += pieces
        self._text += text
        if self._pieces > MOST_PIECES + self._allowed or self._text > _MOST_TEXT + self._allowed:
            raise ShellTextError(TOO_MUCH, 0, 1)

    # Words

    def fields(self, token: ShellToken) -> list[list[Piece]]:
        """Return the words that a word expands to."""
        if len(token.parts) == 1 and token.parts[0].kind == "text":  # nearly all words
            part = token.parts[0]
            if part.quoted or "{" not in part.text:
                self.count(1)
                return [self._plain(part)]
        found: list[list[Piece]] = []
        for parts in expand_braces(token.parts, self.count):
            found += self._fields(parts)
        self.count(len(found))
        listed = any(part.kind == "variable" and "@" in part.text for part in token.parts)
        if len(found) == 1 and not listed and found[0]:
            found = [self._place_word(found[0], token)]
        return found

    def _place_word(self, value: list[Piece], token: ShellToken) -> list[Piece]:
        """Join the pieces of a word without spaces into one piece."""
        start, end = self.source.place(token.start, token.end)
        if len(value) == 1 and value[0].alternatives:
            return [value[0]._replace(start=start, end=end)]
        if any(piece.alternatives or (" " in piece.text and not piece.unread) for piece in value):
            return value
        unread = unread_piece(value)
        return [
            Piece(
                text_of(value),
                start,
                end,
                unread.unread if unread else "",
                assumption_of(value),
                unread.answers if unread else (),
            )
        ]

    def _fields(self, parts: Sequence[WordPart]) -> list[list[Piece]]:
        pieces: list[tuple[Piece, bool]] = []
        found: list[list[Piece]] = []
        for part in parts:
            if part.kind == "text":
                pieces += [(piece, True) for piece in self._plain(part)]
                continue
            values = self._elements(part)
            if values is None:
                pieces += self._mark_quotes(part)
                continue
            if not values and part.quoted and len(parts) > 1 and not pieces:
                continue
            for number_of, value in enumerate(values):
                if number_of:
                    found += self._finish(pieces)
                    pieces = []
                lone = len(value) == 1 and value[0].spread
                self.count(len(value))
                pieces += [(piece, part.quoted and not lone) for piece in value]
                if part.quoted and not value:
                    pieces.append((Piece("", *self.source.place(part.start, part.end)), True))
        return found + self._finish(pieces)

    def _mark_quotes(self, part: WordPart) -> list[tuple[Piece, bool]]:
        """Return the pieces of a reference, each with whether it is quoted."""
        found = self.pieces_of(part)
        if part.quoted:
            empty = Piece("", *self.source.place(part.start, part.end))
            return [(piece, True) for piece in found or [empty]]
        default, flags = self._last_default
        if found is default:
            return list(zip(found, flags, strict=True))
        return [(piece, False) for piece in found]

    def _finish(self, pieces: list[tuple[Piece, bool]]) -> list[list[Piece]]:
        self.count(sum(piece.weight for piece, _ in pieces if piece.alternatives))
        if all(solid for _, solid in pieces):
            return [[piece for piece, _ in pieces]] if pieces else []
        separators = self._separators()
        if separators is not None:
            return split_at(pieces, separators)
        return split(pieces)

    def _separators(self) -> str | None:
        """Return ``IFS`` if the script sets it; None otherwise."""
        variable = self.layer.get("IFS")
        if variable is None or variable.kind != "text":
            return None
        return "" if variable.unread else text_of(variable.values[0])

    def _join_elements(self, values: Sequence[ShellValue], *, star: bool) -> list[Piece]:
        """Return the elements of an array joined with a space, or the first ``IFS`` character."""
        separators = self._separators() if star else None
        return _join(values, " " if separators is None else separators[:1])

    def value(self, parts: Iterable[WordPart]) -> list[Piece]:
        """Return the expansion of a word without splitting, as in an assignment."""
        found: list[Piece] = []
        for part in parts:
            found += self._plain(part) if part.kind == "text" else self.pieces_of(part)
        weight = sum(piece.weight for piece in found) // 4
        self.count(weight + 1, sum(len(piece.text) for piece in found))
        return found

    def pattern(self, parts: Iterable[WordPart]) -> PatternText | None:
        """Return a pattern whose quoted parts are literal; None if it is unknown."""
        found: list[tuple[str, bool]] = []
        for part in parts:
            value = self.value([part])
            if unread_piece(value) is not None:
                return None
            found += [(char, part.quoted) for char in text_of(value)]
        return found

    def _split_at_sources(self, part: WordPart, at: int, stop: int) -> Iterator[Piece]:
        """Yield the pieces of *part* from *at* to *stop*, one for each source text."""
        source, start, end = self.source, part.start + at, part.start + stop
        exact = len(part.text) == part.end - part.start
        for one, other in source.spans(start, end) if exact else [(start, part.end)]:
            text = part.text[one - part.start : other - part.start] if exact else part.text[at:stop]
            yield Piece(text, *source.place(one, other), "", source.assumption(one, other))

    def _plain(self, part: WordPart) -> list[Piece]:
        """Return a text as pieces; marks in it stand for unknown pieces."""
        if "\0" not in part.text:
            return [*self._split_at_sources(part, 0, len(part.text))]
        found: list[Piece] = []
        at = 0
        pieces = self.source.pieces
        for mark in _MARK.finditer(part.text):
            if int(mark[1]) >= len(pieces):
                continue
            if mark.start() > at:
                found += self._split_at_sources(part, at, mark.start())
            found.append(pieces[int(mark[1])])
            at = mark.end()
        if at < len(part.text) or not found:
            found += self._split_at_sources(part, at, len(part.text))
        return found

    # References

    def _elements(self, part: WordPart) -> list[list[Piece]] | None:
        """Return the elements of a reference to an array or to all arguments; None for others."""
        if part.kind != "variable":
            return None
        if part.text in ("@", "*"):
            arguments = self.frames[-1].arguments
            if arguments is None or (part.text == "*" and part.quoted):
                return None
            return [list(one) for one in arguments]
        if part.text[:2] in ("@:", "*:"):
            return self._slice_arguments(part)
        if part.text[:1] == "#" and len(part.text) > 1:
            return None
        reference = _parse_text(part.text)
        if reference is None or reference.key not in ("@", "*"):
            return None
        if reference.key == "*" and part.quoted:
            return None
        variable = self.variable(reference.name)
        if variable is None or variable.unread:
            return None
        if reference.indirect:
            return None if reference.rest else self._keys(part, variable)
        return self._elements_of(part, reference, variable.values)

    def _keys(self, part: WordPart, variable: Variable) -> list[list[Piece]]:
        """Return the keys of an array or a map: ``${!NAME[@]}``."""
        place = self.source.place(part.start, part.end)
        keys = variable.keys or range(len(variable.values))
        return [[Piece(str(key), *place)] for key in keys]

    def _elements_of(
        self, part: WordPart, reference: ParameterReference, values: list[list[Piece]]
    ) -> list[list[Piece]] | None:
        """Return the elements of an array after the operation of a reference to all of them."""
        rest = reference.rest
        if not rest:
            return values
        if rest[:1] == ":" and rest[1:2] not in ("-", "=", "+", "?"):
            return self._slice(reference, values)
        if rest.lstrip(":")[:1] in ("-", "=", "?"):
            return values or None
        if rest.lstrip(":")[:1] == "+":
            if not values:
                return []
            return self._fields(self._default_parts(part, reference.at + 1 + (rest[0] == ":")))
        return [[self._change(value, part, reference)] for value in values]

    def _slice(
        self, reference: ParameterReference, values: list[list[Piece]]
    ) -> list[list[Piece]] | None:
        """Return ``${NAME[@]:start:length}``; None if it is not supported."""
        bounds = self._bounds(reference)
        if bounds is None:
            return None
        start, length = bounds
        if start < 0:
            start = max(len(values) + start, 0) if -start <= len(values) else len(values)
        if length is not None and length < 0:
            return None
        return values[start : None if length is None else start + length]

    def _slice_arguments(self, part: WordPart) -> list[list[Piece]] | None:
        reference = _parse_text(part.text)
        arguments = self.frames[-1].arguments
        bounds = self._bounds(reference) if reference is not None else None
        if arguments is None or bounds is None or bounds[0] < 1:
            return None
        start, length = bounds[0] - 1, bounds[1]
        if length is not None and length < 0:
            return None
        chosen = arguments[start : None if length is None else start + length]
        return [list(one) for one in chosen]

    def pieces_of(self, part: WordPart) -> Sequence[Piece]:
        """Return the expansion of a reference."""
        if part.kind == "arithmetic":
            return [self._arithmetic(part)]
        if part.kind == "command":
            return self.capture(part)
        if part.kind == "process":
            why = f"`{short(self._shorten(part))}` is a command, which parcost does not run"
            return [self._mark_unknown(part, why)]
        return self._variable(part)

    def _shorten(self, part: WordPart) -> str:
        return self.source.text[part.start : part.end]

    def _mark_unknown(self, part: WordPart, why: str, answers: tuple[str, ...] = ()) -> Piece:
        shown = _MARK.sub("...", self._shorten(part))
        return Piece(shown, *self.source.place(part.start, part.end), why, "", answers)

    def variable(self, name: str) -> Variable | None:
        """Return a variable, or the argument of a script or function."""
        if name.isdigit():
            arguments = self.frames[-1].arguments
            place = int(name) - 1 if len(name) < 6 else 10**6
            if name == "0":
                return Variable([[Piece(f"./{self.name}", 0, 0)]])
            if arguments is not None:
                known = place < len(arguments)
                return Variable([list(arguments[place])]) if known else None
            return self.layer.get(name)
        if name == "BASH_SOURCE":
            return Variable([[Piece(f"./{self.name}", 0, 0)]], "array")
        return self.layer.get(name)

    def _variable(self, part: WordPart) -> Sequence[Piece]:
        text = part.text
        if text[:1] == "#" and len(text) > 1:
            return [self._length(part)]
        reference = _parse_text(text)
        if reference is None:
            return [self._mark_unknown(part, f"`{short(self._shorten(part))}` is not read")]
        name = reference.name
        if name in ("@", "*"):
            arguments = self.frames[-1].arguments
            if arguments is None or reference.rest:
                return [self._mark_unknown(part, ARGUMENTS)]
            return self._join_elements(arguments, star=name == "*" and part.quoted)
        if name == "#" and self.frames[-1].arguments is not None:
            count = str(len(self.frames[-1].arguments))
            return [Piece(count, *self.source.place(part.start, part.end))]
        if name in "#?$!-":
            why = f"`{short(self._shorten(part))}` is not known"
            return [self._mark_unknown(part, ARGUMENTS if name == "#" else why)]
        if reference.indirect:
            return self._indirect(part, reference)
        return self._of_name(part, reference)

    def _indirect(self, part: WordPart, reference: ParameterReference) -> Sequence[Piece]:
        variable = self.variable(reference.name)
        if reference.key in ("@", "*") and variable is not None and not variable.unread:
            place = self.source.place(part.start, part.end)
            keys = variable.keys or range(len(variable.values))
            return [Piece(" ".join(map(str, keys)), *place)]
        if variable is None or variable.unread or variable.kind != "text" or reference.key:
            return [self._mark_unknown(part, f"`{short(self._shorten(part))}` is not read")]
        target = text_of(variable.values[0])
        found = _parse_text(target)
        if found is None or found.rest or found.indirect or unread_piece(variable.values[0]):
            return [self._mark_unknown(part, f"`{short(self._shorten(part))}` is not read")]
        return self._of_name(part, found._replace(rest=reference.rest, at=reference.at))

    def _of_name(self, part: WordPart, reference: ParameterReference) -> Sequence[Piece]:
        name, rest = reference.name, reference.rest
        variable = self.variable(name)
        if variable is not None and variable.unread:
            return [self._mark_unknown(part, variable.unread, variable.answers)]
        value = self._choose(part, reference, variable)
        if isinstance(value, str):
            return [self._mark_unknown(part, value)]
        operator = rest.lstrip(":")[:1] if rest[:1] != ":" or rest[1:2] in "-=+?" else ""
        if not rest:
            return self._at_part(value, part) if value is not None else [self._unset(part, name)]
        if operator and operator in "-=+?":
            return self._or_default(part, reference, operator, value)
        if value is None:
            return [self._unset(part, name)]
        return [self._change(value, part, reference)]

    def _at_part(self, value: ShellValue, part: WordPart) -> Sequence[Piece]:
        """Return a value; pieces from the environment get the place of *part*."""
        start, end = self.source.place(part.start, part.end)
        return [one if one.end else one._replace(start=start, end=end) for one in value]

    def _or_default(
        self,
        part: WordPart,
        reference: ParameterReference,
        operator: str,
        value: ShellValue | None,
    ) -> Sequence[Piece]:
        """Return ``${NAME-text}``, or with ``=``, ``+`` or ``?``: *value*, or its replacement."""
        name, colon = reference.name, reference.rest[:1] == ":"
        at = reference.at + (2 if colon else 1)
        first = unread_piece(value) if value is not None else None
        if first is not None and colon and all(piece.unread for piece in value or ()):
            # Whether it is empty is unknown; this is its value if it is not.
            return value if operator != "+" and value is not None else [first]
        is_there = value is not None and not (colon and not text_of(value))
        if value is None and operator in "+?" and not self._is_known_unset(name):
            return self._alternate_value(part, name, at, operator)
        if operator == "+":
            return self._default(part, at, "") if is_there else []
        if is_there and value is not None:
            return value
        if operator == "?":
            return [self._unset(part, name)]
        why = "" if value is not None or self._is_known_unset(name) else self._default_why(name)
        pieces = self._default(part, at, why)
        if operator == "=":
            self.assign(name, Variable([list(pieces)]))
        return pieces

    def _is_known_unset(self, name: str) -> bool:
        """Return whether a name is certainly unset at this point of the script."""
        if name.isdigit():
            return self.frames[-1].arguments is not None
        layer: Layer | None = self.layer
        while layer is not None:
            if name in layer.variables:
                return layer.variables[name] is None
            layer = layer.parent
        return False

    def _default_why(self, name: str) -> str:
        if name.isdigit():
            return f"argument {name} of the script is unknown: its default"
        return f"`{name}` is not set in the file: its default there"

    def unset_answers(self, name: str) -> tuple[str, ...]:
        """Return the option that sets a variable that the script does not set."""
        return (f"--set-env {name}=VALUE",)

    def _unset(self, part: WordPart, name: str) -> Piece:
        if self._is_known_unset(name) or self.variable(name) is not None:
            return Piece("", *self.source.place(part.start, part.end))
        start, _ = self.source.place(part.start, part.end)
        assigned = self._first.assigns(name, start) or self.source.assigns(name, part.start)
        if assigned and name != self.copied:
            why = f"`{name}` is empty: no executed branch of the script sets it"
            return Piece("", *self.source.place(part.start, part.end), "", why)
        if name == self.extended and name != self.copied:
            why = f"`{name}` is not set in the file before it is extended"
            return Piece("", *self.source.place(part.start, part.end), "", why)
        why = f"`{name}` is not set in the file"
        if name.isdigit():
            why = f"argument {name} of the script is unknown"
        elif self.missing:
            why += f"; {self.missing} may set it, but is not available"
        return self._mark_unknown(part, why, self.unset_answers(name))

    def _alternate_value(
        self, part: WordPart, name: str, at: int, operator: str
    ) -> Sequence[Piece]:
        """Return the expansion of ``${NAME:+text}`` if *name* may be set: nothing, or the text."""
        if operator == "?":
            return [self._unset(part, name)]
        pieces = tuple(self._default(part, at, ""))
        why = f"`{name}` is not set in the file, but `{short(self._shorten(part))}` depends on it"
        answers = (f"--set-env {name}=", f"--set-env {name}=1")
        found = self._mark_unknown(part, why, answers)
        return [found._replace(alternatives=(((),), (pieces,)))]

    def _choose(
        self, part: WordPart, reference: ParameterReference, variable: Variable | None
    ) -> list[Piece] | str | None:
        """Return the value of ``NAME`` or ``NAME[index]``: None if it is unset, or the reason why
        it is unknown.
        """
        if variable is None:
            return None
        key = reference.key
        if key is None or variable.kind == "text":
            if key is not None and key not in ("@", "*", "0"):
                return f"`{short(self._shorten(part))}` is not read"
            if variable.kind == "map":
                return f"`{short(self._shorten(part))}` is not read"
            if variable.values and len(variable.values[0]) == 1 and variable.values[0][0].spread:
                return variable.values[0][0].unread
            return list(variable.values[0]) if variable.values else None
        if key in ("@", "*"):
            star = key == "*" and part.quoted
            return self._join_elements(variable.values, star=star) if variable.values else None
        if variable.kind == "map":
            place = variable.keys.get(text_of(self._text_value(key)))
            return list(variable.values[place]) if place is not None else None
        if any(len(value) == 1 and value[0].spread for value in variable.values):
            return f"`{short(self._shorten(part))}` is not read"
        try:
            at = self.evaluate(self._text_value(key))
        except ArithmeticTextError as error:
            why = str(error.args[0]) if error.args else ""
            return why or f"`{short(self._shorten(part))}` is not read"
        at = at + len(variable.values) if at < 0 else at
        return list(variable.values[at]) if 0 <= at < len(variable.values) else None

    def _text_value(self, text: str) -> list[Piece]:
        """Return a text with its references expanded."""
        if not any(sign in text for sign in "$`'\"\\"):
            return [Piece(text, 0, 0)]
        outer, self.source = self.source, ScriptSource(text, place=(0, 0))
        try:
            return self.nest(lambda: self.value(word_parts(text, 0, len(text), quoted=False)))
        finally:
            self.source = outer

    def _length(self, part: WordPart) -> Piece:
        reference = _parse_text(part.text[1:])
        place = self.source.place(part.start, part.end)
        if reference is None or reference.rest or reference.indirect:
            return self._mark_unknown(part, f"`{short(self._shorten(part))}` is not read")
        if reference.name in ("@", "*", "#"):
            arguments = self.frames[-1].arguments
            if arguments is None:
                return self._mark_unknown(part, ARGUMENTS)
            return Piece(str(len(arguments)), *place)
        variable = self.variable(reference.name)
        if variable is None:
            return self._unset(part, reference.name)
        if variable.unread:
            return self._mark_unknown(part, variable.unread, variable.answers)
        if reference.key in ("@", "*"):
            spread = [value[0] for value in variable.values if value and value[0].spread]
            if spread:
                return self._mark_unknown(part, spread[0].unread, spread[0].answers)
            return Piece(str(len(variable.values)), *place)
        value = self._choose(part, reference, variable)
        if value is None:
            return Piece("0", *place)
        if isinstance(value, str):
            return self._mark_unknown(part, value)
        unread = unread_piece(value)
        if unread is not None:
            return self._mark_unknown(part, unread.unread, unread.answers)
        return Piece(str(len(text_of(value))), *place, "", assumption_of(value))

    def _bounds(self, reference: ParameterReference) -> tuple[int, int | None] | None:
        first, colon, last = reference.rest[1:].partition(":")
        try:
            start = self.evaluate(self._text_value(first))
            return start, self.evaluate(self._text_value(last)) if colon else None
        except ArithmeticTextError:
            return None

    def _change(self, value: ShellValue, part: WordPart, reference: ParameterReference) -> Piece:
        """Return a value after removal, replacement or case conversion."""
        unread = unread_piece(value)
        if unread is not None:
            return self._mark_unknown(part, unread.unread, unread.answers)
        text, rest = text_of(value), reference.rest
        self.count(min(len(text), 500) ** 2 // 20)  # patterns are tried at each place
        place = self.source.place(part.start, part.end)
        unknown = f"`{short(self._shorten(part))}` is not read"
        try:
            if rest[0] in "#%":
                double = rest[:2] in ("##", "%%")
                pattern = self._inner_pattern(part, reference.at + 1 + double, part.end - 1)
                found = remove_match(text, pattern, front=rest[0] == "#", longest=double)
            elif rest[0] == "/":
                how = rest[1:2] if rest[1:2] in ("/", "#", "%") else ""
                begin = reference.at + 1 + len(how)
                cut = _unquoted_slash(part.text, begin)
                stop = part.start + 2 + cut if cut >= 0 else part.end - 1
                pattern = self._inner_pattern(part, begin, stop)
                new = ""
                if cut >= 0:
                    parts = word_parts(self.source.text, stop + 1, part.end - 1, quoted=False)
                    inner = self.nest(lambda: self.value(parts))
                    if unread_piece(inner) is not None:
                        return self._mark_unknown(part, unknown)
                    new = text_of(inner)
                found = replace_matches(text, pattern, new, how=how)
            elif rest in ("^^", ",,"):
                found = text.upper() if rest == "^^" else text.lower()
            elif rest in ("^", ","):
                head = text[:1].upper() if rest == "^" else text[:1].lower()
                found = head + text[1:]
            elif rest[0] == ":":
                bounds = self._bounds(reference)
                if bounds is None:
                    return self._mark_unknown(part, unknown)
                found = _slice(text, *bounds)
            else:
                return self._mark_unknown(part, unknown)
        except ShellPatternError:
            return self._mark_unknown(part, unknown)
        self.count(1, len(found))
        return Piece(found, *place, "", assumption_of(value))

    def _inner_pattern(self, part: WordPart, offset: int, stop: int) -> PatternText:
        start = part.start + 2 + offset
        parts = word_parts(self.source.text, start, stop, quoted=False)
        found = self.nest(lambda: self.pattern(parts))
        if found is None:
            raise ShellPatternError
        return found

    def _default_parts(self, part: WordPart, offset: int) -> Sequence[WordPart]:
        start, end = part.start + 2 + offset, part.end - 1
        return word_parts(self.source.text, start, end, quoted=part.quoted)

    def _default(self, part: WordPart, offset: int, why: str) -> Sequence[Piece]:
        """Return the default in a reference; it starts *offset* characters after the brace."""
        parts = self._default_parts(part, offset)
        pieces: list[Piece] = []
        flags: list[bool] = []
        for inner in parts:
            found = self.nest(partial(self.value, [inner]))
            if inner.quoted and not found:
                found = [Piece("", *self.source.place(inner.start, inner.end))]
            pieces += found
            flags += [inner.quoted] * len(found)
        if why:
            pieces = [
                piece._replace(assumption="" if piece.unread else piece.assumption or why)
                for piece in pieces or [Piece("", *self.source.place(part.start, part.end))]
            ]
            flags = flags or [False]
        self._last_default = (pieces, flags)
        return pieces

    def nest(self, part: Callable[[], _Found]) -> _Found:
        """Call *part* one level deeper; raise if the nesting is too deep."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ShellTextError("references are nested too deeply", 0, 1)
        found = part()
        self._depth -= 1
        return found

    # Arithmetic

    def _arithmetic(self, part: WordPart) -> Piece:
        notes: list[str] = []
        try:
            found = str(self.evaluate_text(part.text, notes))
        except ArithmeticTextError as error:
            why = str(error) or f"`{short(self._shorten(part))}` is not read"
            answers = error.args[1] if len(error.args) > 1 else ()
            return self._mark_unknown(part, str(error.args[0]) if error.args else why, answers)
        place = self.source.place(part.start, part.end)
        return Piece(found, *place, "", next(filter(None, notes), ""))

    def evaluate_text(self, text: str, notes: list[str] | None = None) -> int:
        """Return the value of an arithmetic expression.

        Raises:
            ArithmeticTextError: The value is unknown. The arguments of the error are the reason,
                and options that set the value.
        """
        try:
            return self.evaluate(self._text_value(text.replace('"', "")), notes)
        except ArithmeticTextError as error:
            why = error.args[0] if error.args and error.args[0] else f"`{short(text)}` is not read"
            for name in assigned_names(text):
                unread = f"`{name}` is changed by arithmetic, which is not supported"
                self.assign(name, Variable([], "text", unread))
            raise ArithmeticTextError(why, error.args[1] if len(error.args) > 1 else ()) from None

    def evaluate(self, value: ShellValue, notes: list[str] | None = None) -> int:
        """Return the integer that a value has in shell arithmetic.

        Raises:
            ArithmeticTextError: The value is unknown.
        """
        unread = unread_piece(value)
        if unread is not None:
            raise ArithmeticTextError(unread.unread, unread.answers)
        if notes is not None:
            notes.append(assumption_of(value))
        depth = 0

        def look_up(name: str) -> int:
            nonlocal depth
            variable = self.layer.get(name)
            if variable is not None and variable.unread:
                raise ArithmeticTextError(variable.unread, variable.answers)
            if variable is None:
                if self._is_known_unset(name):
                    return 0
                raise ArithmeticTextError(
                    f"`{name}` is not set in the file", self.unset_answers(name)
                )
            if not variable.values or variable.kind == "map":
                raise ArithmeticTextError(f"`{name}` is not a whole number")
            field = field_of(variable.values[0])
            if field.unread:
                raise ArithmeticTextError(field.unread, field.answers)
            if notes is not None:
                notes.append(field.assumption)
            depth += 1
            if depth > _DEEPEST:
                raise ArithmeticTextError(f"`{name}` is not a whole number")
            try:
                found = number(field.text, look_up)
            except ArithmeticTextError as error:
                if len(error.args) > 1:
                    raise
                raise ArithmeticTextError(f"`{name}` is not a whole number") from None
            depth -= 1
            return found

        def set_number(name: str, found: int) -> None:
            place = (value[0].start, value[-1].end) if value else (0, 0)
            why = next(filter(None, notes or ()), "")
            self.assign(name, Variable([[Piece(str(found), *place, "", why)]]))

        try:
            return number(text_of(value), look_up, set_number)
        except ArithmeticTextError as error:
            if len(error.args) > 1:
                ways = self._answers_in(text_of(value), error.args[1])
                raise ArithmeticTextError(error.args[0], ways) from None
            if error.args and "`" in str(error.args[0]):
                raise
            raise ArithmeticTextError from None

    def _answers_in(self, text: str, first: Sequence[str]) -> tuple[str, ...]:
        """Return the options that set an expression; *first* are for its first unknown variable.

        The options of several variables are one answer, because each is needed.
        """
        found = dict.fromkeys(first[:1])
        for name in dict.fromkeys(_NAME.findall(text)):
            variable = self.layer.get(name)
            if variable is None:
                answers = () if self._is_known_unset(name) else self.unset_answers(name)
            elif variable.unread:
                answers = variable.answers
            else:
                field = field_of(variable.values[0]) if variable.values else None
                answers = field.answers if field is not None and field.unread else ()
            found |= dict.fromkeys(answers[:1])
        return (" ".join(found),) if len(found) > 1 else tuple(first)


def _parse_text(text: str) -> ParameterReference | None:
    found = _REFERENCE.fullmatch(text)
    if found is None:
        return None
    return ParameterReference(bool(found[1]), found[2], found[3], found[4], found.start(4))


def _join(values: Sequence[ShellValue], between: str) -> list[Piece]:
    found: list[Piece] = []
    for number_of, value in enumerate(values):
        if number_of:
            place = value[0].start if value else 0
            found.append(Piece(between, place, place))
        found += value
    return found


def _slice(text: str, start: int, length: int | None) -> str:
    if start < 0:
        start = len(text) + start
        if start < 0:
            return ""
    if length is None:
        return text[start:]
    return text[start : start + length] if length >= 0 else text[start : len(text) + length]


def _unquoted_slash(text: str, at: int) -> int:
    while at < len(text):
        if text[at] == "\\":
            at += 1
        elif text[at] in "'\"":
            close = text.find(text[at], at + 1)
            at = close if close >= 0 else len(text)
        elif text[at] == "/":
            return at
        at += 1
    return -1
