"""Assignments and declarations of a shell script: its variables, arrays and maps."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from attrs import Factory, define

from parcost_formats.tools.shell.arithmetic import ArithmeticTextError
from parcost_formats.tools.shell.expansion import WordExpander
from parcost_formats.tools.shell.nodes import (
    Assignment,
    ShellToken,
    SimpleCommand,
    WordPart,
)
from parcost_formats.tools.shell.sources import ScriptSource, short
from parcost_formats.tools.shell.values import (
    Decision,
    Piece,
    ShellValue,
    Variable,
    text_of,
    unread_piece,
)
from parcost_formats.tools.shell.words import word_parts

NAME = re.compile(r"[A-Za-z_]\w*")
ASSIGNED = re.compile(r"(?<![\w-])([A-Za-z_]\w*)(?:\[[^]]{0,200}\])?\+?=")
FILE_PREFIX = "file "  # starts the names under which layers hold texts of written files
_WHOLE = re.compile(r"0|-?[1-9]\d{0,17}")


@define(slots=False, eq=False)
class VariableAssigner(WordExpander):
    """Follows assignments and declarations."""

    _context: str = ""  # the assumption that a branch rests on
    _locals: list[dict[str, Variable | None]] = Factory(list)
    _references: set[str] = Factory(set)  # names that stand for other ones
    _attributed: dict[str, str] = Factory(dict)  # names whose values change as they are set

    def assign(self, name: str, variable: Variable, *, pinned: bool = True) -> None:
        """Set a variable, unless the user has set it by an option."""
        before = self.layer.get(name)
        if name in self._references:
            for other in list(self.layer.names()):
                if other not in self.pins:
                    self._forget_name(other, f"may be changed by `{name}`, which refers to it")
        if name in self._attributed and not variable.unread:
            texts = [text_of(value) for value in variable.values]
            if self._attributed[name] != "i" or not all(map(_WHOLE.fullmatch, texts)):
                why = f"`{name}` is changed by `declare -{self._attributed[name]}`"
                variable = Variable([], variable.kind, f"{why}, which is not read")
        if before is not None and before.fixed:
            why = f"`{name}` is `readonly` and set more than once"
            variable = Variable([], variable.kind, why)
            variable.fixed = True
        if self._context and not variable.unread:
            kept = {id(piece) for value in before.values for piece in value} if before else set()
            variable.values = mark_assumptions(variable.values, self._context, kept)
        if pinned and name in self.pins and variable.kind == "text":
            variable = self._pin(name, variable)
        if before is not None:
            variable.exported = variable.exported or before.exported
        self.layer.variables[name] = variable

    def _pin(self, name: str, variable: Variable) -> Variable:
        text = self.pins[name]
        value = variable.values[0] if variable.values else []
        place = (value[0].start, value[-1].end) if value else (0, 0)
        note = ""
        if not variable.unread and unread_piece(value) is None and text_of(value) != text:
            note = f"--set-env {name}={text}, in place of {text_of(value)[:40] or 'nothing'}"
        return Variable([[Piece(text, *place, "", note)]])

    def _assign_node(self, node: Assignment) -> None:
        name = node.name
        if node.elements is not None:
            self._assign_array(node)
            return
        value = self.evaluate_assignment(name, node.word.parts)
        if node.key:
            self._assign_element(node, value)
            return
        self._answer(name, value)
        before = self.layer.get(name)
        if node.adds and (name in self._attributed or name in self._references):
            self._forget_name(name, "is changed by `declare`")
            self.assign(name, Variable([[]], "text", f"`{name}` is changed by `declare`"))
            return
        if node.adds and before is not None:
            if not before.unread and before.kind != "map":
                self._add_to(name, value)
            return
        if node.adds and name not in self.pins and not self._is_known_unset(name):
            value = [self._unset_piece(name, node), *value]
        if before is not None and before.kind == "array" and not before.unread:
            variable = self.layer.own(name)
            assert variable is not None
            variable.values[:1] = [value]
            return
        refers = any(
            part.kind != "text" and name in NAME.findall(part.text) for part in node.word.parts
        )
        self.assign(name, Variable([value]), pinned=not refers or unread_piece(value) is not None)

    def evaluate_assignment(self, name: str, parts: Sequence[WordPart]) -> list[Piece]:
        """Return the value that an assignment gives to *name*; ``X=$X`` keeps the outer value."""
        whole = len(parts) == 1 and parts[0].kind != "text" and parts[0].text == name
        self.extended, self.copied = name, name if whole else ""
        value = self.value(parts)
        self.extended = self.copied = ""
        return value

    def _add_to(self, name: str, value: list[Piece]) -> None:
        """Add to the text of a variable, or to the first element of an array: ``NAME+=text``."""
        variable = self.layer.own(name)
        assert variable is not None
        if variable.kind == "array" and not variable.values:
            variable.values.append([])
        if self._context:
            value = [one._replace(assumption=one.assumption or self._context) for one in value]
        if variable.fixed:
            self.assign(name, variable)
        elif variable.kind == "array":
            variable.values[0] = [*variable.values[0], *value]
        elif variable.values:
            variable.values[0].extend(value)
        else:
            variable.values.append(value)

    def _unset_piece(self, name: str, node: Assignment) -> Piece:
        """Return an empty piece: ``NAME+=`` on a variable that the file does not set."""
        why = f"`{name}` is not set in the file before it is extended"
        return Piece("", *self.source.place(node.start, node.end), "", why)

    def _answer(self, name: str, value: list[Piece]) -> None:
        """Offer ``--set-env`` as the answer for an unknown value that has no answer yet."""
        positional = value and re.match(r"--set-env \d", "".join(value[0].answers[:1]))
        if len(value) == 1 and value[0].unread and (positional or not value[0].answers):
            value[0] = value[0]._replace(answers=(f"--set-env {name}=VALUE",))

    def _assign_element(self, node: Assignment, value: list[Piece]) -> None:
        variable = self.layer.own(node.name)
        if variable is not None and variable.unread:
            return
        if variable is None:
            variable = Variable([], "array")
            self.layer.variables[node.name] = variable
        key = self._index_text(node.key)
        place: int | None = None
        if variable.kind == "map" and unread_piece(key) is None:
            text = text_of(key)
            place = variable.keys.setdefault(text, len(variable.values))
        elif variable.kind != "map":
            try:
                place = self.evaluate(key)
            except ArithmeticTextError:
                place = None
            if place is not None and place < 0:
                place += len(variable.values)
            if variable.kind == "text":
                variable = Variable(variable.values, "array")
                self.layer.variables[node.name] = variable
        if place is None or not 0 <= place <= len(variable.values) or variable.fixed:
            why = f"`{node.name}` is set element by element, which is not supported"
            self.layer.variables[node.name] = Variable([], variable.kind, why)
        elif place == len(variable.values):
            variable.values.append(value)
        elif node.adds:
            variable.values[place] = [*variable.values[place], *value]
        else:
            variable.values[place] = value

    def _index_text(self, text: str) -> Sequence[Piece]:
        outer, self.source = self.source, ScriptSource(text, place=(0, 0))
        found = self.value(word_parts(text, 0, len(text), quoted=False))
        self.source = outer
        return found

    def _assign_array(self, node: Assignment) -> None:
        before = self.layer.get(node.name)
        is_map = before is not None and before.kind == "map"
        values: list[list[Piece]] = []
        keys: dict[str, int] = {}
        for key_text, word in node.elements or ():
            if not key_text:
                values += self.fields(word)
                continue
            value = self.value(word.parts)
            key = text_of(self._index_text(key_text))
            if is_map:
                if key in keys:
                    values[keys[key]] = value
                else:
                    keys[key] = len(values)
                    values.append(value)
            elif key == str(len(values)):
                values.append(value)
            else:
                why = f"`{node.name}` is set element by element, which is not supported"
                self.assign(node.name, Variable([], "array", why))
                return
        if is_map and len(keys) != len(values):
            why = f"`{node.name}` is set element by element, which is not supported"
            self.assign(node.name, Variable([], "map", why))
            return
        if not node.adds or before is None:
            self.assign(node.name, Variable(values, "map" if is_map else "array", keys=keys))
            return
        variable = self.layer.own(node.name)
        assert variable is not None
        if variable.unread or variable.fixed:
            if variable.fixed:
                self.assign(node.name, variable)
            return
        if self._context:
            values = [
                [one._replace(assumption=one.assumption or self._context) for one in value]
                for value in values
            ]
        if is_map:
            for key, place in keys.items():
                known = variable.keys.get(key)
                if known is None:
                    variable.keys[key] = len(variable.values)
                    variable.values.append(values[place])
                else:
                    variable.values[known] = values[place]
        else:
            variable.kind = "array"
            variable.values.extend(values)

    def _assign_ahead(self, environment: Sequence[tuple[str, list[Piece]]]) -> None:
        for name, value in environment:
            variable = Variable([value])
            variable.exported = True
            self.assign(name, variable)

    def _assign_text(self, name: str, value: list[Piece], start: int, *, adds: bool) -> None:
        """Set a variable to a value without its first *start* characters."""
        kept: list[Piece] = []
        at = 0
        for piece in value:
            cut = max(start - at, 0)
            if cut < len(piece.text):
                exact = len(piece.text) == piece.end - piece.start
                begin = piece.start + cut if exact else piece.start
                kept.append(piece._replace(text=piece.text[cut:], start=begin))
            at += len(piece.text)
        before = self.layer.get(name)
        if adds and before is not None and before.kind == "text" and not before.unread:
            kept = [*before.values[0], *kept]
        self.assign(name, Variable([kept]))

    def _forget_name(self, name: str, why: str) -> None:
        if NAME.fullmatch(name):
            answers = (f"--set-env {name}=VALUE",)
            unread = Variable([], "text", f"`{name}` {why}, which parcost does not run", answers)
            if name in self._references:
                self.layer.variables[name] = unread
            else:
                self.assign(name, unread)

    def _forget_all(self, node: SimpleCommand, shown: str = "") -> None:
        """Mark all variables as unknown after a command that may set any; *shown* is its text."""
        shown = short(shown or self.source.text[node.start : node.end])
        start, _ = self.source.place(node.start, node.end)
        line = self._line(start)
        for name in list(self.layer.names()):
            variable = self.layer.get(name)
            is_file = name.startswith(FILE_PREFIX)
            if name in self.pins or is_file:
                continue
            if variable is not None and not variable.unread:
                why = f"`{name}` may be set by `{shown}` in line {line}, which parcost does not run"
                answers = (f"--set-env {name}=VALUE",) if variable.kind == "text" else ()
                self.layer.variables[name] = Variable([], variable.kind, why, answers)
        self.count(len(self.layer.variables))
        self.missing = f"`{shown}` in line {line}"

    def _line(self, at: int) -> int:
        return 1 + self._first.text.count("\n", 0, at)

    # Declarations

    def _declare(
        self, key: str, words: Sequence[ShellToken | Assignment], node: SimpleCommand
    ) -> Decision:
        options, named = "", list[str]()
        for word in words:
            if isinstance(word, Assignment):
                self._localize(key, word.name)
                if "A" in options and word.elements is not None and not word.adds:
                    self.layer.variables[word.name] = Variable([], "map")
                self._assign_node(word)
                named.append(word.name)
                continue
            for value in self.fields(word):
                text = text_of(value)
                if text.startswith(("-", "+")) and unread_piece(value) is None:
                    options += text[1:]
                else:
                    named += self._declare_word(key, options, value, node)
        if key != "export" and "n" in options:
            self._forget_all(node)
            self._references.update(named)
        for name in named:
            self._mark_declaration(key, options, name)
        return Decision(True)

    def _declare_word(
        self, key: str, options: str, value: list[Piece], node: SimpleCommand
    ) -> Iterator[str]:
        """Declare a word, a name or ``name=value``, and yield the name."""
        text = text_of(value)
        found = ASSIGNED.match(text)
        if found is not None:
            self._localize(key, found[1])
            self._assign_text(found[1], value, found.end(), adds=text[found.end() - 2] == "+")
            yield found[1]
        elif unread_piece(value) is not None:
            self._forget_all(node)
        elif NAME.fullmatch(text):
            if key == "local" or (key in ("declare", "typeset") and self._locals):
                self._localize(key, text)
                self.layer.variables[text] = None
            if "A" in options or "a" in options:
                kind = "map" if "A" in options else "array"
                self.layer.variables[text] = Variable([], kind)
            yield text

    def _mark_declaration(self, key: str, options: str, name: str) -> None:
        """Mark a variable by the options of its declaration: exported, fixed, changed."""
        special = "".join(sorted(set(options) & set("iul"))) if key != "export" else ""
        if special:
            self._attributed[name] = special
            variable = self.layer.get(name)
            if variable is not None and not variable.unread:
                self.assign(name, variable.copy())
        variable = self.layer.own(name)
        fixed = key == "readonly" or "r" in options
        if variable is not None:
            variable.exported = variable.exported or key == "export" or "x" in options
            variable.fixed = variable.fixed or fixed
        elif fixed:
            variable = Variable([[]])
            variable.fixed = True
            self.layer.variables[name] = variable

    def _localize(self, key: str, name: str) -> None:
        if self._locals and key in ("local", "declare", "typeset"):
            self._locals[-1].setdefault(name, self.layer.get(name))


def mark_assumptions(
    values: Sequence[ShellValue], why: str, kept: Collection[int] = ()
) -> list[list[Piece]]:
    """Return values marked with an assumption; pieces whose ids are *kept* are not marked."""
    return [
        [
            piece
            if piece.unread or piece.assumption or id(piece) in kept
            else piece._replace(assumption=why)
            for piece in value or [Piece("", 0, 0)]
        ]
        for value in values
    ]
