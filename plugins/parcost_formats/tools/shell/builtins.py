"""Commands that a shell runs itself, such as ``echo``, ``cd`` and ``eval``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar

from parcost_formats.tools.shell.arithmetic import ArithmeticTextError, assigned_names
from parcost_formats.tools.shell.assignments import ASSIGNED, FILE_PREFIX, NAME
from parcost_formats.tools.shell.commands import SCRIPT_ENDINGS, WRAPPERS, Builtin, CommandReader
from parcost_formats.tools.shell.conditions import UNDECIDED
from parcost_formats.tools.shell.expansion import ArgumentFrame
from parcost_formats.tools.shell.nodes import ArithmeticCommand, SimpleCommand
from parcost_formats.tools.shell.sources import ScriptSource, short
from parcost_formats.tools.shell.values import (
    Decision,
    Piece,
    ShellValue,
    Variable,
    assumption_of,
    field_of,
    text_of,
    unread_piece,
)

_DIRECTIVE = re.compile(
    r"%(%|([-0+ #]*)(\d*)(?:\.(\d+))?([sdif]))|\\([ntr\\\"'0])|([^%\\]+|.)", re.DOTALL
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "0": "\0"}
_MOST = 2_000_000
#: Variables with the folder in which a job starts, and with the current one.
_START = re.compile(r"\$\{?(SLURM_SUBMIT_DIR|PBS_O_WORKDIR|LS_SUBCWD|PWD)\b\}?(?=/|$)")
_CONFIGURATIONS = (".json", ".yaml", ".yml")
_ENVIRONMENTS = ("bin/activate", ".bashrc", ".profile", "conda.sh", "/etc/profile", "modules.sh")


class BuiltinReader(CommandReader):
    """Reads builtins: the method ``_do_NAME`` reads the builtin NAME, or a group of them."""

    def _builtin(self, name: str) -> Builtin | None:
        method = self._METHODS.get(name)
        return None if method is None else partial(method, self)

    def _do_end(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        key = text_of(fields[0])
        status = text_of(fields[1]) if len(fields) > 1 else "0"
        if key in ("break", "continue"):
            if len(fields) > 1 and status != "1" and self._loose:
                self._loose = [True] * len(self._loose)
            if self._loose:
                self.layer.ended = key
            return Decision(True)
        self.layer.ended = key
        if key == "exit" and self.layer.parent is None:
            self._end = Piece(key, *self.source.place(node.start, node.end))
        if len(fields) > 1 and not status.isdecimal():
            return UNDECIDED
        return Decision(status.strip("0") == "")

    def _do_false(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        del node, fields
        return Decision(False)

    def _do_echo(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        words = fields[1:]
        ends = True
        while words and re.fullmatch(r"-[neE]+", text_of(words[0])):
            ends = ends and "n" not in text_of(words[0])
            if "e" in text_of(words[0]):
                self._unknown_output("echo -e")
            words = words[1:]
        pieces = [
            piece
            for place, value in enumerate(words)
            for piece in ([Piece(" ", 0, 0), *value] if place else value)
        ]
        if node.redirections:
            for redirection in node.redirections:
                if redirection.operator in (">", ">>"):
                    target = self.value(redirection.target.parts)
                    whole = [*pieces, Piece("\n", 0, 0)]
                    if text_of(target).endswith((*SCRIPT_ENDINGS, *_CONFIGURATIONS)):
                        self._write(target, whole, adds=redirection.operator == ">>")
            return Decision(True)
        self._print([*pieces, Piece("\n", 0, 0)] if ends else pieces)
        return Decision(True)

    def _do_printf(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        words = fields[1:]
        target = ""
        if words and text_of(words[0]) == "-v" and len(words) > 1:
            target, words = text_of(words[1]), words[2:]
            if unread_piece(fields[2]) is not None or not NAME.fullmatch(target):
                self._forget_all(node)
                return Decision(True)
        elif words and text_of(words[0]).startswith("-v"):
            self._forget_name(text_of(words[0])[2:], "is changed by `printf`")
            return Decision(True)
        if words and text_of(words[0]) == "--":
            words = words[1:]
        found = _format_printf(words)
        if found is None:
            if target:
                self._forget_name(target, "is changed by `printf`")
            self._unknown_output("printf")
            return Decision(True)
        self.count(len(found))
        if target:
            self.assign(target, Variable([list(found)]))
        elif not node.redirections:
            self._print(found)
        return Decision(True)

    def _do_seq(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        unread = next((piece for value in fields[1:] if (piece := unread_piece(value))), None)
        if unread is not None:
            self._print([unread])
            return Decision(True)
        found = _sequence_of_numbers([text_of(value) for value in fields[1:]])
        if found is None:
            self._unknown_output("seq")
            return Decision(True)
        self.count(len(found))
        place = self.source.place(node.start, node.end)
        self._print([Piece(f"{text}\n", *place) for text in found])
        return Decision(True)

    def _do_expr(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        unread = next((piece for value in fields[1:] if (piece := unread_piece(value))), None)
        texts = [text_of(value) for value in fields[1:]]
        place = self.source.place(node.start, node.end)
        if unread is not None:
            self._print([unread])
            return UNDECIDED
        if not all(re.fullmatch(r"\d{1,18}|[-+*/%()]", text) for text in texts):
            self._unknown_output("expr")
            return UNDECIDED
        try:
            found = self.evaluate([Piece(" ".join(texts), *place)])
        except ArithmeticTextError:
            self._unknown_output("expr")
            return UNDECIDED
        why = next(filter(None, (assumption_of(value) for value in fields[1:])), "")
        self._print([Piece(f"{found}\n", *place, "", why)])
        return Decision(bool(found))

    def _do_path(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        key = text_of(fields[0])
        words = [value for value in fields[1:] if text_of(value) != "--"]
        plain = bool(words) and not any(unread_piece(value) for value in words)
        if not plain or text_of(words[0]).startswith("-") or len(words) > 2:
            unread = next((piece for one in words if (piece := unread_piece(one))), None)
            if unread is not None and key == "basename":
                self._print([unread])
            else:
                self._unknown_output(key)
            return Decision(True)
        text = text_of(words[0]).rstrip("/") or "/"
        head, slash, tail = text.rpartition("/")
        found = (tail or "/") if key == "basename" else (head or "/") if slash else "."
        if key == "basename" and len(words) == 2 and found != text_of(words[1]):
            found = found.removesuffix(text_of(words[1]))
        place = self.source.place(node.start, node.end)
        self._print([Piece(f"{found}\n", *place, "", assumption_of(words[0]))])
        return Decision(True)

    def _do_cd(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        self._record_move(node)
        words = [text_of(value) for value in fields[1:] if text_of(value) not in ("--", "-P")]
        path = words[0].rstrip("/") if words else "~"
        before = self._folder
        start = _START.match(path)
        if start is not None:  # its value is not known, and the folder is
            self._folder = before if start[1] == "PWD" else ""
            path = f".{path[start.end() :]}"
        is_known = start is not None or not any(unread_piece(value) for value in fields[1:])
        self._folder = self._folder_of(path) if is_known and words and "$" not in path else "?"
        self._last_folder = before
        if text_of(fields[0]) == "pushd":
            self._folders = [*self._folders, before]
        return Decision(True)

    def _do_popd(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        del fields
        self._record_move(node)
        self._last_folder = self._folder
        self._folder = self._folders[-1] if self._folders else "?"
        self._folders = self._folders[:-1]
        return Decision(True)

    def _record_move(self, node: SimpleCommand) -> None:
        shown = short(self.source.text[node.start : node.end])
        line = self._line(self.source.place(node.start, node.end)[0])
        self._moved = f"`{shown}` in line {line}"

    def _folder_of(self, path: str) -> str:
        """Return the folder that ``cd`` changes to, "?" if it is unknown."""
        if path.startswith(("-", "+")) or re.search(r"[*?[]", path):
            return self._last_folder if path == "-" else "?"
        found = self._file_name(path).removeprefix(FILE_PREFIX)
        return "" if found == "." else "?" if found == "?/.." else found

    def _do_pwd(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        del fields
        place = self.source.place(node.start, node.end)
        if self._output is not None and not self._knows_folder():
            self._unknown_output("pwd")
        else:
            self._print([Piece(f"{self._folder or '.'}\n", *place)])
        return Decision(True)

    def _do_set(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        del node
        words = fields[1:]
        if words and text_of(words[0]) == "--":
            self.frames[-1] = ArgumentFrame(words[1:])
        return Decision(True)

    def _do_shift(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        given = self.frames[-1].arguments
        text = text_of(fields[1]) if len(fields) > 1 else "1"
        if given is None or not text.isdecimal():
            return UNDECIDED
        del node
        if int(text) > len(given):
            return Decision(False)
        self.frames[-1] = ArgumentFrame(given[int(text) :])
        return Decision(True)

    def _do_unset(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        for value in fields[1:]:
            text = text_of(value)
            if unread_piece(value) is not None:
                self._forget_all(node)
            elif "[" in text:
                self._forget_name(text.partition("[")[0], "is changed by `unset`")
            elif not text.startswith("-"):
                variable = self.layer.get(text)
                if variable is not None and variable.fixed:
                    continue
                self.layer.variables[text] = None
        return Decision(True)

    def _do_let(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        status = Decision(True)
        for value in fields[1:]:
            unread = unread_piece(value)
            text = text_of(value)
            if unread is not None:
                if not assigned_names(text):
                    self._forget_all(node)
                for name in assigned_names(text):
                    self._forget_name(name, "is changed by `let`")
                continue
            status = self._arithmetic_command(ArithmeticCommand(text, node.start, node.end))
        return status

    def _do_eval(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        words = fields[1:]
        if not words:
            return Decision(True)
        pieces = [
            piece
            for place, value in enumerate(words)
            for piece in ([Piece(" ", value[0].start, value[0].start), *value] if place else value)
            if value
        ]
        if pieces and pieces[0].unread:
            self._forget_all(node)
            return UNDECIDED
        return self._run_text(pieces)

    def _do_trap(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        del node
        for value in fields[1:2]:
            for found in ASSIGNED.finditer(text_of(value)):
                self._forget_name(found[1], "is changed by `trap`")
        return Decision(True)

    def _do_source(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        if len(fields) < 2:
            return Decision(False)
        path = text_of(fields[1])
        if path.endswith(_ENVIRONMENTS):
            return Decision(True)
        text: ScriptSource | None = None
        shown = ""
        if unread_piece(fields[1]) is None:
            shown = f"{text_of(fields[0])} {path}"
            if self._file_name(path) in self._files:
                text = self._script_text(path, fields[1])
            else:
                found = self._read_on_disk(self._relative(path))
                place = self.source.place(node.start, node.end)
                text = ScriptSource(found, place=place) if found is not None else None
        if text is None:
            start, end = self.source.place(node.start, node.end)
            self._absent.append(field_of([Piece(path, start, end)]))
            self._forget_all(node, shown)
            return Decision(True)
        self._returned.append([])
        status = self._run_source(text, fields[2:] or None)
        returned = self._returned.pop()
        if self.layer.ended == "return":
            self.layer.ended = ""
        if returned:
            for branch in returned:
                for name in branch.variables:
                    self.layer.variables[name] = self._loop_variable(name)
        return status

    def _do_wrapper(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        environment: list[tuple[str, list[Piece]]] = []
        words = fields[1:]
        while words and (text := text_of(words[0])):
            found = ASSIGNED.match(text)
            if text.startswith("-") and text_of(fields[0]) != "env":
                break
            if found is None and not text.startswith("-"):
                break
            if found is not None:
                first = words[0][0]
                value = [first._replace(text=first.text[found.end() :]), *words[0][1:]]
                environment.append((found[1], value))
            words = words[1:]
        if not words:
            return Decision(True)
        environment += [(one.name, self.value(one.word.parts)) for one in node.assignments]
        return self._call_with(node, words, environment)

    _METHODS: ClassVar[Mapping[str, Callable[..., Decision]]] = {
        **dict.fromkeys(("exit", "return", "break", "continue"), _do_end),
        **dict.fromkeys(("basename", "dirname"), _do_path),
        **dict.fromkeys(("source", "."), _do_source),
        **dict.fromkeys(WRAPPERS, _do_wrapper),
        **dict.fromkeys(("cd", "pushd"), _do_cd),
        "popd": _do_popd,
        **dict.fromkeys(("trap", "alias"), _do_trap),
        "echo": _do_echo,
        "printf": _do_printf,
        "seq": _do_seq,
        "expr": _do_expr,
        "pwd": _do_pwd,
        "set": _do_set,
        "shift": _do_shift,
        "unset": _do_unset,
        "let": _do_let,
        "eval": _do_eval,
        "false": _do_false,
    }


def _format_printf(words: Sequence[ShellValue]) -> list[Piece] | None:
    """Return the output of ``printf words``; None if it is unknown.

    >>> [piece.text for piece in _format_printf([[Piece("%02d,", 0, 1)], [Piece("7", 2, 3)]])]
    ['07', ',']
    """
    if not words or unread_piece(words[0]) is not None:
        return None
    text, rest = text_of(words[0]), list(words[1:])
    directives = list(_DIRECTIVE.finditer(text))
    place = (words[0][0].start, words[0][-1].end) if words[0] else (0, 0)
    found: list[Piece] = []
    while True:
        taken = False
        for one in directives:
            literal = _ESCAPES.get(one[6] or "", one[7])
            if one[0] == "%%":
                literal = "%"
            if one[5] is None:
                if literal in ("%", "\\", "\0") and one[0] not in ("%%", "\\\\"):
                    return None
                found.append(Piece(literal, *place))
                continue
            taken = True
            value = rest.pop(0) if rest else []
            shaped = _format_value(one, value, place)
            if shaped is None:
                return None
            found += shaped
        if not rest or not taken:
            return found


def _format_value(
    one: re.Match[str], value: ShellValue, place: tuple[int, int]
) -> Sequence[Piece] | None:
    flags, width, precision, kind = one[2], one[3], one[4], one[5]
    if kind == "s" and not width and precision is None:
        return value
    if unread_piece(value) is not None or len(width) > 4 or len(precision or "") > 3:
        return None
    text = text_of(value)
    spec = "%" + flags + width + (f".{precision}" if precision is not None else "")
    if kind == "s":
        text = (spec.replace("0", "") + "s") % text if flags else (spec + "s") % text
    elif not re.fullmatch(r"[-+]?\d{1,15}(\.\d{1,15})?" if kind == "f" else r"[-+]?\d{1,18}", text):
        if text:
            return None
        text = (spec + ("f" if kind == "f" else "d")) % 0
    else:
        if kind != "f" and len(text.lstrip("+-")) > 1 and text.lstrip("+-")[0] == "0":
            return None  # an octal number
        text = (spec + "f") % float(text) if kind == "f" else (spec + "d") % int(text)
    start, end = (value[0].start, value[-1].end) if value else place
    assumption = next((piece.assumption for piece in value if piece.assumption), "")
    return [Piece(text, start, end, "", assumption)]


def _sequence_of_numbers(words: Sequence[str]) -> Sequence[str] | None:
    """Return the output of ``seq words``; None if it is unknown.

    >>> _sequence_of_numbers(["16", "8", "32"])
    ['16', '24', '32']
    """
    separator_free = all(re.fullmatch(r"-?\d{1,9}", word) for word in words)
    if not separator_free or not 1 <= len(words) <= 3:
        return None
    first, step = (
        (int(words[0]) if len(words) > 1 else 1),
        (int(words[1]) if len(words) == 3 else 1),
    )
    last = int(words[-1])
    if not step:
        return None
    numbers = range(first, last + (1 if step > 0 else -1), step)
    if len(numbers) > _MOST:
        numbers = numbers[:_MOST]
    return [str(number) for number in numbers]
