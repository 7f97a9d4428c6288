"""Words of a shell text, with the place of each.

The standard library's ``shlex`` gives words without places, and reads no references. So these
words are read here, by one regular expression. Nothing is run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_NAME = r"[A-Za-z_][A-Za-z_0-9]*"
_PLAIN = r"[^\s\\'\"$`;&|()<>#]+|#"
_TOKEN = re.compile(
    rf"(?P<blank>[ \t\r]+|\\\r?\n)|(?P<newline>\n)|(?P<escape>\\[\s\S])"
    rf"|(?P<single>'[^']*')|(?P<double>\")|(?P<variable>\$(?:{_NAME}|[0-9@*#?!$-]))"
    rf"|(?P<arithmetic>\$\(\()|(?P<command>\$\(|`)|(?P<braces>\$\{{)"
    rf"|(?P<operator>&&|\|\||;;|<<<|<<-?|>>|[;&|()<>])|(?P<plain>{_PLAIN})|(?P<other>[\s\S])"
)
_QUOTED = re.compile(
    rf"(?P<end>\")|(?P<join>\\\r?\n)|(?P<escape>\\[\"\\$`])"
    rf"|(?P<variable>\$(?:{_NAME}|[0-9@*#?!$-]))"
    rf"|(?P<arithmetic>\$\(\()|(?P<command>\$\(|`)|(?P<braces>\$\{{)"
    rf"|(?P<plain>[^\"\\$`]+|[\s\S])"
)
_COMMENT = re.compile(r"#[^\n]*")
_DEEPEST = 50  # references inside of references


class WordPart(NamedTuple):
    """A part of a word, at characters *start* to *end* of the file.

    *kind* is ``text``, ``variable``, ``arithmetic`` or ``command``. The text of a variable is what
    stands between the braces. A *quoted* part is never split at blanks.
    """

    kind: str
    text: str
    start: int
    end: int
    quoted: bool = False


class ShellToken(NamedTuple):
    """A word with its *parts*; or an *operator*, such as ``;`` or the end of a line."""

    parts: Sequence[WordPart]
    start: int
    end: int
    operator: str = ""


class ShellTextError(ValueError):
    """A text that is no shell text, and where."""

    def __init__(self, message: str, start: int, end: int) -> None:
        super().__init__(message)
        self.start = start
        self.end = end


def tokens(text: str, start: int = 0, end: int | None = None) -> Iterator[ShellToken]:
    """Yield the words and operators of *text* between *start* and *end*.

    >>> [token.operator or token.parts[0].text for token in tokens("a 'b c' | d")]
    ['a', 'b c', '|', 'd']

    Raises:
        ShellTextError: A quote, brace or parenthesis has no end.
    """
    return _WordReader(text, len(text) if end is None else end).tokens(start)


def arguments(text: str) -> Iterator[ShellToken]:
    """Yield the words of a bare list of arguments, whose operators are plain characters.

    >>> ["".join(part.text for part in one.parts) for one in arguments("--layout E|(t|)*3,L")]
    ['--layout', 'E|(t|)*3,L']

    Raises:
        ShellTextError: A quote or brace has no end.
    """
    return _WordReader(text, len(text), bare=True).tokens(0)


def quoted_parts(text: str, start: int, end: int) -> Sequence[WordPart]:
    """Return the parts of what stands between *start* and *end*, as in double quotes.

    Raises:
        ShellTextError: A brace or parenthesis has no end.
    """
    return _WordReader(text, end).quotation(start, closed=False)[0]


class _WordReader:
    """Reads a text once, from left to right."""

    def __init__(self, text: str, end: int, *, bare: bool = False) -> None:
        self._text = text
        self._end = end
        self._bare = bare
        self._documents: list[str] = []  # ends of the documents that follow the line

    def tokens(self, at: int) -> Iterator[ShellToken]:
        parts: list[WordPart] = []
        first = at
        while at < self._end:
            found = _TOKEN.match(self._text, at, self._end)
            assert found is not None  # its last case takes any character
            kind, here = str(found.lastgroup), found.group()
            separates = kind in ("blank", "newline") or (kind == "operator" and not self._bare)
            if kind == "plain" and here == "#" and not parts:
                comment = _COMMENT.match(self._text, at, self._end)
                at = comment.end() if comment else at + 1
                continue
            if kind == "blank" and here[0] == "\\" and parts:
                at = found.end()  # the word goes on in the next line
                continue
            if separates:
                if parts:
                    yield ShellToken(tuple(parts), first, at)
                    parts = []
                if kind != "blank" and not self._bare:
                    yield ShellToken((), at, found.end(), here)
                at = found.end()
                if kind == "operator" and here in ("<<", "<<-"):
                    at = self._document(at)
                elif kind == "newline" and self._documents:
                    at = self._skip_documents(at)
                continue
            if not parts:
                first = at
            at = self._add(parts, kind, at, found.end())
        if parts:
            yield ShellToken(tuple(parts), first, at)

    def _add(self, parts: list[WordPart], kind: str, at: int, end: int) -> int:
        """Add what starts at *at* to the parts of a word; return where it ends."""
        text = self._text
        if kind == "double":
            inner, end = self.quotation(at + 1)
            parts += inner or [WordPart("text", "", at, end, True)]
        elif kind == "single":
            parts.append(WordPart("text", text[at + 1 : end - 1], at + 1, end - 1, True))
        elif kind == "escape":
            parts.append(WordPart("text", text[at + 1 : end], at, end, True))
        elif kind == "other" and text[at] == "'":
            raise ShellTextError("this quote has no end", at, at + 1)
        elif kind in ("variable", "arithmetic", "command", "braces"):
            part = self._reference(kind, at, end, quoted=False)
            parts.append(part)
            end = part.end
        else:
            parts.append(WordPart("text", text[at:end], at, end))
        return end

    def quotation(self, at: int, *, closed: bool = True) -> tuple[list[WordPart], int]:
        """Return the parts up to the double quote that ends them, and the place behind it."""
        parts: list[WordPart] = []
        start = at - 1
        while at < self._end:
            found = _QUOTED.match(self._text, at, self._end)
            assert found is not None
            kind, end = str(found.lastgroup), found.end()
            if kind == "end" and closed:
                return parts, end
            if kind == "escape":
                parts.append(WordPart("text", found.group()[1:], at, end, True))
            elif kind in ("variable", "arithmetic", "command", "braces"):
                part = self._reference(kind, at, end, quoted=True)
                parts.append(part)
                end = part.end
            elif kind not in ("join", "end"):
                parts.append(WordPart("text", found.group(), at, end, True))
            at = end
        if closed:
            raise ShellTextError("this quote has no end", start, start + 1)
        return parts, at

    def _reference(self, kind: str, at: int, end: int, *, quoted: bool) -> WordPart:
        if kind == "variable":
            return WordPart("variable", self._text[at + 1 : end], at, end, quoted)
        if kind == "braces":
            end = self._closing(end, "{", "}")
            return WordPart("variable", self._text[at + 2 : end - 1], at, end, quoted)
        if kind == "arithmetic":
            close = self._closing(end, "(", ")")
            if self._text.startswith(")", close):
                return WordPart("arithmetic", self._text[end : close - 1], at, close + 1, quoted)
            end = at + 2
        if self._text[at] == "`":
            found = self._text.find("`", end, self._end)
            if found < 0:
                raise ShellTextError("this quote has no end", at, at + 1)
            return WordPart("command", self._text[at : found + 1], at, found + 1, quoted)
        end = self._closing(end, "(", ")")
        return WordPart("command", self._text[at:end], at, end, quoted)

    def _closing(self, at: int, opening: str, closing: str) -> int:
        """Return the place behind the bracket that closes the one ahead of *at*."""
        start, depth = at - 1, 1
        while at < self._end:
            char = self._text[at]
            if char == "\\":
                at += 1
            elif char == "'" and opening == "(":
                found = self._text.find("'", at + 1, self._end)
                at = found if found >= 0 else self._end
            elif char == opening:
                depth += 1
                if depth > _DEEPEST:
                    break
            elif char == closing:
                depth -= 1
                if not depth:
                    return at + 1
            at += 1
        message = f"this `{opening}` has no `{closing}`"
        if depth > _DEEPEST:
            message = "references nest too deeply"
        raise ShellTextError(message, start, start + 1)

    def _document(self, at: int) -> int:
        """Note the word that ends a document in the text; return the place behind it."""
        found = re.compile(r"[ \t]*(['\"]?)([^\s'\"]+)\1").match(self._text, at, self._end)
        if found is None:
            return at
        self._documents.append(found[2])
        return found.end()

    def _skip_documents(self, at: int) -> int:
        """Return the place behind the documents that start at *at*."""
        while self._documents:
            word = self._documents.pop(0)
            found = re.compile(rf"^[ \t]*{re.escape(word)}[ \t]*$", re.MULTILINE).search(
                self._text, at, self._end
            )
            at = found.end() if found else self._end
        return at
