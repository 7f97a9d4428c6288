"""Variables that a script changes in ways that are not followed, and why they are not read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from parcost_plugins.importers.shell.words import ShellTextError, ShellToken, tokens

_NAME = re.compile(r"[A-Za-z_]\w*")
_ASSIGNMENT = re.compile(r"(?<!\w)([A-Za-z_]\w*)(\[[^]]{0,200}\])?\+?=")
_IN_ARITHMETIC = re.compile(
    r"(?<!\w)([A-Za-z_]\w*)(?:\[[^]]{0,200}\])?\s{0,20}(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)?=(?!=))"
    r"|(?:\+\+|--)\s{0,20}([A-Za-z_]\w*)"
)
_BRACKETS = re.compile(r"\$\[([^]]{0,500})\]")
_KEYWORDS = {"then", "do", "else", "elif", "!", "time", "if", "while", "until"}
_WRAPPERS = {"command", "builtin"}
_DECLARING = {"export", "local", "declare", "readonly", "typeset"}
_TARGETING = {"read", "mapfile", "readarray", "unset", "getopts", "let", "wait", "coproc"}
_REDIRECTING = {"<", ">", ">>", "<<", "<<-", "<<<"}
_DEEPEST = 500
_LONGEST = 2000  # characters of arithmetic
_ENDS = {"done": "do", "fi": "if", "esac": "case", "}": "{"}


def changes(text: str) -> Mapping[str, str]:
    """Return why variables of the script *text* are not read, by their names.

    >>> changes("TP=4; let TP=8; PP=2")
    {'TP': '`TP` is changed by `let`, which is not run'}

    Raises:
        ShellTextError: The text is no script.
    """
    return _ChangeReader(text).changes()


class _CommandGroup:
    """Commands between brackets; *names* are those that they assign."""

    def __init__(self, kind: str, *, is_subshell: bool = False) -> None:
        self.kind = kind
        self.is_subshell = is_subshell
        self.names: list[str] = []
        self.function = 0


class _ChangeReader:
    """Goes through the commands once, ahead of the reader of values."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found: dict[str, str] = {}
        self._groups: list[_CommandGroup] = []
        self._places: dict[str, list[int]] = {}  # functions that assign a name; 0 is none
        self._fixed: set[str] = set()
        self._functions = 0
        self._function_ahead = False
        self._closed: list[str] = []  # names of the group that ended just now
        self._piped = False
        self._any = ""  # a command that may set any variable
        self._references: set[str] = set()  # in the function that is read
        self._launching = False
        self._used: set[str] = set()  # references of functions that call with flags

    def changes(self) -> Mapping[str, str]:
        """Read all commands."""
        words: list[ShellToken] = []
        stream = iter(tokens(self._text))
        for token in stream:
            if not token.operator:
                words.append(token)
            elif token.operator in _REDIRECTING:
                self._redirect(words, token, stream)
            elif token.operator == "(":
                words = self._open(words, token)
            else:
                self._end(words, token.operator)
                words = []
        self._end(words, "")
        for name, places in self._places.items():
            if len(set(places)) > 1:
                self._mark(name, "is set in a function and elsewhere")
            if name in self._fixed and len(places) > 1:
                self._mark(name, "is `readonly` and set more than once")
            if self._any:
                self._mark(name, f"may be set by `{self._any}`, which is not run")
        return self._found

    def _redirect(
        self, words: list[ShellToken], token: ShellToken, stream: Iterator[ShellToken]
    ) -> None:
        if words and words[-1].end == token.start and _plain(words[-1]).isdigit():
            words.pop()
        named = _plain(words[-1]) if words else ""
        if named[:1] == "{" and words[-1].end == token.start:
            self._mark(named.strip("{}"), "is changed by a redirection, which is not run")
        if token.operator in ("<<", "<<-"):
            return
        following = next(stream, None)
        if following is not None and following.operator in ("&", "<"):
            next(stream, None)

    def _open(self, words: list[ShellToken], token: ShellToken) -> list[ShellToken]:
        if self._text.startswith("((", token.start):
            end = self._text.find("))", token.start, token.start + _LONGEST)
            self._arithmetic(self._text[token.start : end if end >= 0 else token.start + _LONGEST])
        if words and _ASSIGNMENT.fullmatch(_plain(words[-1])) and words[-1].end == token.start:
            self._assign([_plain(words[-1]).rstrip("+=")])
            self._push(_CommandGroup("array"))
            return words
        first = _plain(words[0]) if words else ""
        rest = self._text[token.end : token.end + 100].lstrip(" \t")
        if words and first not in _KEYWORDS and rest.startswith(")"):
            self._function_ahead = True
        body = self._function_ahead and not words
        self._push(_CommandGroup("(", is_subshell=body or not self._function_ahead))
        self._function_ahead = self._function_ahead and not body
        return words if self._function_ahead else []

    def _end(self, words: Sequence[ShellToken], operator: str) -> None:
        """Read a command and the operator that ends it."""
        top = self._groups[-1].kind if self._groups else ""
        if top == "array":
            self._parts(words)
            if operator == ")":
                self._groups.pop()
            return
        if self._function_ahead and operator == ")":
            self._groups.pop()
            return
        assigned = self._command(words)
        if operator == ")" and top == "(":
            group = self._groups.pop()
            self._leave(group)
            assigned = []
        alone = not words
        if operator in ("|", "&"):
            self._mark_subshell([*assigned, *self._closed])
        if self._piped:
            self._mark_subshell(assigned)
        if operator != "\n" or not alone:
            self._piped = operator == "|" or (self._piped and operator == "&" and alone)
        if operator != ")":
            self._closed = []

    def _leave(self, group: _CommandGroup) -> None:
        self._closed = [*group.names]
        if group.function and self._launching:
            self._used |= self._references
        if group.is_subshell:
            self._mark_subshell(group.names)
        if self._groups:
            self._groups[-1].names += group.names

    def _command(self, words: Sequence[ShellToken]) -> Sequence[str]:
        """Read a command; return the names that it assigns."""
        self._parts(words)
        words = list(words)
        while words:
            key = _plain(words[0])
            if key == "function" and len(words) > 1:
                self._function_ahead = True
                words = words[2:]
                continue
            if key == "{":
                self._enter()
                self._parts(words)
            elif key in ("if", "case", "do"):
                self._push(_CommandGroup(key, is_subshell=self._piped and key == "do"))
            elif key in _ENDS:
                if self._groups and self._groups[-1].kind == _ENDS[key]:
                    self._leave(self._groups.pop())
            elif key in ("for", "select"):
                for word in words[1:2]:
                    self._mark(_plain(word), f"is changed by `{key}`, which is not run")
                return []
            elif key not in _KEYWORDS:
                break
            words = words[3:] if key == "case" else words[1:]
        prefixes: list[str] = []
        while words and (found := _ASSIGNMENT.match(_plain(words[0]))):
            prefixes.append(found[1])
            if found[2]:
                self._mark(found[1], "is set in a part, which is not read")
            words.pop(0)
        while words and _plain(words[0]) in _WRAPPERS:
            words.pop(0)
        if not words:
            self._assign(prefixes)
            return prefixes
        return self._builtin(_plain(words[0]), words[1:])

    def _enter(self) -> None:
        group = _CommandGroup("{", is_subshell=self._piped)
        named = self._function_ahead
        if named:
            self._function_ahead = False
            self._functions += 1
            self._references, self._launching = set(), False
        self._push(group, self._functions if named else 0)

    def _builtin(self, key: str, words: Sequence[ShellToken]) -> Sequence[str]:
        shown = [self._text[word.start : word.end].strip("'\"") for word in words]
        if key in _DECLARING:
            options = "".join(one[1:] for one in shown if one.startswith("-"))
            names = [found[1] for one in shown if (found := _ASSIGNMENT.match(one))]
            for word, one in zip(words, shown, strict=True):
                found = _ASSIGNMENT.match(one)
                if found is not None and not _ASSIGNMENT.match(_plain(word)):
                    self._mark(found[1], f"is set by `{key}` in quotes, which is not read")
            if key == "readonly" or "r" in options:
                self._fixed |= {one.split("=")[0] for one in shown}
            computed = any(part.kind != "text" for word in words for part in word.parts)
            unnamed = any(not _ASSIGNMENT.match(one) and "$" in one for one in shown)
            refers = "n" in options and key != "export"
            if (refers and (computed or not names)) or (unnamed and self._function()):
                self._any = key
            if key != "export" and set(options) & set("niul"):
                for one in shown:
                    for name in _NAME.findall(one if one[:1] != "-" else ""):
                        self._mark(name, f"is changed by `{key} -{options}`, which is not read")
            self._assign(names)
            return names
        why = f"is changed by `{key}`, which is not run"
        self._watch(key, shown)
        if key == "printf" and shown[:1] and shown[0].startswith("-v"):
            for one in (shown[0][2:], *shown[1:2]):
                for name in _NAME.findall(one)[:1]:
                    self._mark(name, why)
        elif key in ("eval", "trap", "alias"):
            for name, _ in _ASSIGNMENT.findall(" ".join(one for one in shown if "--" not in one)):
                self._mark(name, why)
        elif key == "let":
            self._arithmetic(" ; ".join(shown), why)
        elif key in _TARGETING:
            for one in shown:
                found = _NAME.match(one)
                if found is not None and (found.end() == len(one) or one[found.end()] == "["):
                    self._mark(found[0], why)
        return []

    def _watch(self, key: str, shown: Sequence[str]) -> None:
        """Note whether a function may set any variable."""
        text = " ".join(shown)
        if not self._function() or "--" in text:
            return
        printing = key == "printf" and text.startswith("-v") and "$" in " ".join(shown[:2])
        setting = key == "eval" and "=" in text
        if printing or ("$" in text and (setting or key in _TARGETING)) or key in ("source", "."):
            self._any = key

    def _push(self, group: _CommandGroup, function: int = 0) -> None:
        if len(self._groups) > _DEEPEST:
            raise ShellTextError("brackets in this file nest too deeply", 0, 1)
        group.function = function or self._function()
        self._groups.append(group)

    def _function(self) -> int:
        """Return the number of the function whose body this is; 0 is none."""
        return self._groups[-1].function if self._groups else 0

    def _parts(self, words: Sequence[ShellToken]) -> None:
        """Mark what the arithmetic inside of words assigns."""
        for word in words:
            self._launching = self._launching or _plain(word).startswith("--")
            for part in word.parts:
                if part.kind != "text":
                    self._references.update(_NAME.findall(part.text))
                nested = part.kind == "variable" and "((" in part.text
                if part.kind == "arithmetic" or nested:
                    self._arithmetic(part.text)
            for found in _BRACKETS.finditer(self._text, word.start, word.end):
                self._arithmetic(found[1])

    def _arithmetic(
        self, text: str, why: str = "is changed by arithmetic, which is not run"
    ) -> None:
        for found in _IN_ARITHMETIC.finditer(text):
            self._mark(found[1] or found[2], why)

    def _assign(self, names: Sequence[str]) -> None:
        function = self._function()
        for name in names:
            if not function and name in self._used:
                self._mark(name, "is set behind a function that takes it")
            self._places.setdefault(name, []).append(function)
        if self._groups:
            self._groups[-1].names += names

    def _mark_subshell(self, names: Sequence[str]) -> None:
        for name in names:
            self._mark(name, "is set in a shell of its own")

    def _mark(self, name: str, why: str) -> None:
        if _NAME.fullmatch(name):
            self._found.setdefault(name, f"`{name}` {why}")


def _plain(token: ShellToken) -> str:
    first = token.parts[0] if token.parts else None
    return first.text if first and first.kind == "text" and not first.quoted else ""
