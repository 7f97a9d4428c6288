"""Words and commands of a shell text, with their places.

The standard library's ``shlex`` gives words without places, and does not parse references. So a
text is parsed here, once and from left to right. Nothing is executed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from parcost_formats.tools.file_importer import FileError
from parcost_formats.tools.shell.nodes import (
    ArithmeticCommand,
    Assignment,
    CaseCommand,
    CommandChain,
    CommandGroup,
    CountingLoop,
    FunctionDefinition,
    IfCommand,
    LoopCommand,
    Redirection,
    ShellNode,
    ShellPipeline,
    ShellToken,
    SimpleCommand,
    TestCommand,
    WordPart,
)

_NAME = r"[A-Za-z_][A-Za-z_0-9]*"
_TOKEN = re.compile(
    rf"(?P<blank>(?:[ \t\r]|\\\r?\n)+)|(?P<newline>\n)|(?P<escape>\\[\s\S])"
    rf"|(?P<single>\$?'[^']*')|(?P<double>\$?\")|(?P<variable>\$(?:{_NAME}|[0-9@*#?!$-]))"
    rf"|(?P<old>\$\[[^]\n]*\])|(?P<arithmetic>\$\(\()|(?P<command>\$\(|`)|(?P<braces>\$\{{)|(?P<process>[<>]\()"
    rf"|(?P<operator>&&|&>>?|>&|<&|>\||\|\||;;&|;&|;;|<<<|<<-?|<>|>>|\|&|[;&|()<>])"
    rf"|(?P<plain>[^\s\\'\"$`;&|()<>#]+|#)|(?P<other>[\s\S])"
)
_COMMON = re.compile(r"[ \t]*([\w./:=,@%+~^-]+)(?=[ \t\n;)])")  # most words
_QUOTED = re.compile(
    rf"(?P<end>\")|(?P<join>\\\r?\n)|(?P<escape>\\[\"\\$`])"
    rf"|(?P<variable>\$(?:{_NAME}|[0-9@*#?!$-]))"
    rf"|(?P<old>\$\[[^]\n]*\])|(?P<arithmetic>\$\(\()|(?P<command>\$\(|`)|(?P<braces>\$\{{)"
    rf"|(?P<plain>[^\"\\$`]+|[\s\S])"
)
_COMMENT = re.compile(r"#[^\n]*")
#: A word in angle brackets, after an option or an equals sign, that a reader is to replace.
_PLACEHOLDER = re.compile(r"<[A-Za-z][^<>|&;()'\"`$\n]{0,80}>(?![^\s'\")])")
_ASSIGNMENT = re.compile(rf"({_NAME})(\[[^]\n]{{1,200}}\])?(\+?)=")
_REDIRECTING = ("<", ">", ">>", "<<", "<<-", "<<<", "&>", "&>>", ">&", "<&", "<>", ">|")
_DECLARING = ("export", "local", "declare", "readonly", "typeset")
_ENDS = ("then", "do", "else", "elif", "fi", "done", "esac", "}")
_MOST_WORDS = 30_000  # and operators, of a script
_DEEPEST = 40  # commands and references inside of others


class ShellTextError(FileError):
    """An error with its place: a text is not valid shell text."""


def parse_script(text: str) -> Sequence[ShellNode]:
    """Return the commands of a script.

    >>> [chain.first.words[0].plain for chain in parse_script("cd a && ls; pwd")]
    ['cd', 'pwd']

    Raises:
        ShellTextError: The text is not a script.
    """
    return _ScriptParser(text, len(text)).script()


def arguments(text: str) -> Iterator[ShellToken]:
    """Yield the words of a bare list of arguments, whose operators are plain characters.

    >>> ["".join(part.text for part in one.parts) for one in arguments("--layout E|(t|)*3,L")]
    ['--layout', 'E|(t|)*3,L']

    Raises:
        ShellTextError: A quote or brace has no end.
    """
    reader = _WordReader(text, len(text), bare=True)
    while (token := reader.token()) is not None:
        if token.parts:
            yield token


def word_parts(text: str, start: int, end: int, *, quoted: bool) -> Sequence[WordPart]:
    """Return the parts between *start* and *end*, the default of a reference.

    Raises:
        ShellTextError: A quote, brace or parenthesis has no end.
    """
    reader = _WordReader(text, end, bare=True)
    if quoted:
        return [part for part in reader.quotation(start, closed=False) if part.text != '"']
    return reader.all_parts(start)


class _WordReader:
    """Reads words and operators from left to right."""

    def __init__(self, text: str, end: int, *, bare: bool = False, depth: int = 0) -> None:
        self.text = text
        self.at = 0
        self.stop = end
        self.depth = depth
        self._bare = bare
        self._is_option = False  # whether the last word is an option
        self._count = 0
        self._documents: list[tuple[str, bool, bool, list[WordPart]]] = []

    def token(self) -> ShellToken | None:
        """Return the next word or operator, None at the end."""
        self._count += 1
        if self._count > _MOST_WORDS:
            message = f"a script has {_MOST_WORDS:,} words at most"
            raise ShellTextError(message, self.at, min(self.at + 1, self.stop))
        option, self._is_option = self._is_option, False
        common = _COMMON.match(self.text, self.at, self.stop)
        if common is not None:
            first, self.at = common.span(1)
            self._is_option = common[1].startswith("--") and common[1] != "--"
            return ShellToken((WordPart("text", common[1], first, self.at),), first, self.at)
        parts: list[WordPart] = []
        first = self.at
        while self.at < self.stop:
            found = _TOKEN.match(self.text, self.at, self.stop)
            assert found is not None  # its last case takes any character
            kind, here = str(found.lastgroup), found.group()
            if here == "<" and (parts[-1].text[-1:] == "=" if parts else option):
                blank = _PLACEHOLDER.match(self.text, self.at, self.stop)
                kind, found = ("plain", blank) if blank is not None else (kind, found)
            operates = kind == "newline" or (kind in ("operator", "process") and not self._bare)
            if kind == "plain" and here[0] == "#" and not parts:
                comment = _COMMENT.match(self.text, self.at, self.stop)
                self.at = comment.end() if comment else self.at + 1
                continue
            if kind == "blank" and parts and not re.search(r"[ \t\r](?!\n)|\\\r?\n[ \t]", here):
                self.at = found.end()  # the word goes on in the next line
                continue
            if kind == "blank":
                self.at = found.end()
                if parts:
                    return ShellToken(tuple(parts), first, found.start())
                continue
            if operates and kind != "process":
                if parts:
                    return ShellToken(tuple(parts), first, self.at)
                self.at = found.end()
                if kind == "newline":
                    self._read_documents()
                    if self._bare:
                        continue
                return ShellToken((), found.start(), found.end(), here)
            if not parts:
                first = self.at
            self._add(parts, kind, found.end())
        return ShellToken(tuple(parts), first, self.at) if parts else None

    def all_parts(self, at: int) -> list[WordPart]:
        """Return the parts of all text from *at* on; white space is plain text."""
        parts: list[WordPart] = []
        self.at = at
        while self.at < self.stop:
            found = _TOKEN.match(self.text, self.at, self.stop)
            assert found is not None
            kind = str(found.lastgroup)
            self._add(parts, "plain" if kind in ("blank", "newline") else kind, found.end())
        return parts

    def _add(self, parts: list[WordPart], kind: str, end: int) -> None:
        """Add the text from the current place to *end* to the parts of a word."""
        text, at = self.text, self.at
        self.at = end
        if kind == "double":
            inner = self.quotation(end)
            parts += inner or [WordPart("text", "", at, self.at, True)]
        elif kind == "single" and text[at] == "$":
            parts.append(WordPart("text", _unescape(text[at + 2 : end - 1]), at, end, True))
        elif kind == "single":
            parts.append(WordPart("text", text[at + 1 : end - 1], at + 1, end - 1, True))
        elif kind == "escape":
            parts.append(WordPart("text", text[at + 1 : end], at, end, True))
        elif kind == "other" and text[at] == "'":
            raise ShellTextError("this quote is not closed", at, at + 1)
        elif kind == "process" and not self._bare:
            self._inner_commands(end)
            parts.append(WordPart("process", text[at : self.at], at, self.at))
        elif kind in ("variable", "old", "arithmetic", "command", "braces"):
            parts.append(self._reference(kind, at, end, quoted=False))
        elif parts and parts[-1].kind == "text" and parts[-1].end == at and not parts[-1].quoted:
            last = parts[-1]
            parts[-1] = WordPart("text", last.text + text[at:end], last.start, end)
        else:
            parts.append(WordPart("text", text[at:end], at, end))

    def quotation(self, at: int, *, closed: bool = True) -> list[WordPart]:
        """Return the parts up to the closing double quote, and advance past it."""
        parts: list[WordPart] = []
        start = at - 1
        while at < self.stop:
            found = _QUOTED.match(self.text, at, self.stop)
            assert found is not None
            kind, end = str(found.lastgroup), found.end()
            if kind == "end" and closed:
                self.at = end
                return parts
            if kind == "escape":
                parts.append(WordPart("text", found.group()[1:], at, end, True))
            elif kind in ("variable", "old", "arithmetic", "command", "braces"):
                parts.append(self._reference(kind, at, end, quoted=True))
                end = parts[-1].end
            elif kind != "join":
                parts.append(WordPart("text", found.group(), at, end, True))
            at = end
        if closed:
            raise ShellTextError("this quote is not closed", start, start + 1)
        self.at = at
        return parts

    def _reference(self, kind: str, at: int, end: int, *, quoted: bool) -> WordPart:
        text = self.text
        self.at = end
        if kind == "variable":
            return WordPart("variable", text[at + 1 : end], at, end, quoted)
        if kind == "old":
            return WordPart("arithmetic", text[at + 2 : end - 1], at, end, quoted)
        if kind == "braces":
            self.at = self._closing_brace(end)
            return WordPart("variable", text[at + 2 : self.at - 1], at, self.at, quoted)
        if kind == "arithmetic":
            close = self._closing_round(end)
            if close is not None and text.startswith(")", close):
                self.at = close + 1
                return WordPart("arithmetic", text[end : close - 1], at, self.at, quoted)
            end = at + 2
        if text[at] == "`":
            found = re.compile(r"(?:[^`\\]|\\[\s\S])*`").match(text, end, self.stop)
            if found is None:
                raise ShellTextError("this quote is not closed", at, at + 1)
            self.at = found.end()
            commands = self._parser(end, self.at - 1).script() if "\\" not in found[0] else ()
            return WordPart("command", text[at : self.at], at, self.at, quoted, commands)
        commands = self._inner_commands(end)
        return WordPart("command", text[at : self.at], at, self.at, quoted, commands)

    def _inner_commands(self, at: int) -> Sequence[ShellNode]:
        parser = self._parser(at, self.stop)
        commands = parser.body(")")
        self.at = parser.at
        return commands

    def _parser(self, at: int, end: int) -> _ScriptParser:
        if self.depth >= _DEEPEST:
            raise ShellTextError("references are nested too deeply", at - 1, at)
        parser = _ScriptParser(self.text, end, self.depth + 1)
        parser.at = at
        return parser

    def _closing_brace(self, at: int) -> int:
        """Return the offset after the brace that closes the one before *at*."""
        start, depth, quoted = at - 1, 1, False
        while at < self.stop:
            char = self.text[at]
            if char == "\\":
                at += 1
            elif char == '"':
                quoted = not quoted
            elif self.text.startswith("${", at):
                depth += 1
                at += 1
                if depth > _DEEPEST:
                    raise ShellTextError("references are nested too deeply", start, start + 1)
            elif char == "}" and (depth > 1 or not quoted):
                depth -= 1
                if not depth:
                    return at + 1
            at += 1
        raise ShellTextError("this `{` has no `}`", start, start + 1)

    def _closing_round(self, at: int) -> int | None:
        """Return the offset after the parenthesis that closes the one before *at*, if any."""
        close = _round_pairs(self.text).get(at - 1, self.stop)
        if close >= self.stop or self.text.find(";", at, close) >= 0:
            return None
        return close + 1

    def register_document(self, word: ShellToken, *, tabs: bool) -> list[WordPart]:
        """Register the end word of a here-document; return the list that its parts are added to."""
        parts: list[WordPart] = []
        plain = all(part.kind == "text" and not part.quoted for part in word.parts)
        end = "".join(part.text for part in word.parts)
        self._documents.append((end, plain, tabs, parts))
        return parts

    def _read_documents(self) -> None:
        documents, self._documents = self._documents, []
        for word, expands, tabs, found_parts in documents:
            blank = "\t*" if tabs else ""
            pattern = re.compile(rf"^{blank}{re.escape(word)}[ \t\r]*$", re.MULTILINE)
            found = pattern.search(self.text, self.at, self.stop)
            start, end = self.at, found.start() if found else self.stop
            if expands:
                reader = _WordReader(self.text, end, depth=self.depth)
                found_parts.extend(reader.quotation(start, closed=False))
            else:
                part = WordPart("text", self.text[start:end], start, end, True)
                found_parts.append(part)
            self.at = min(found.end() + 1, self.stop) if found else self.stop


class _ScriptParser(_WordReader):
    """Parses words into commands. *at* is the offset after the lookahead token."""

    def __init__(self, text: str, end: int, depth: int = 0) -> None:
        super().__init__(text, end, depth=depth)
        self._ahead: ShellToken | None = None
        self._has_ahead = False

    # Tokens

    def _peek(self) -> ShellToken | None:
        if not self._has_ahead:
            self._ahead = self.token()
            self._has_ahead = True
        return self._ahead

    def _next(self) -> ShellToken | None:
        token = self._peek()
        self._has_ahead = False
        return token

    def _key(self) -> str:
        """Return the operator or plain word ahead."""
        token = self._peek()
        return (token.operator or token.plain) if token else ""

    def _expect(self, *keys: str) -> None:
        token = self._next()
        if token is None or (token.operator or token.plain) not in keys:
            self._fail(token, f"`{keys[0]}` is expected here")

    def _fail(self, token: ShellToken | None, message: str) -> None:
        if token is None:
            raise ShellTextError(f"{message}, where the text ends", max(self.at - 1, 0), self.at)
        raise ShellTextError(message, token.start, token.end)

    def _skip_lines(self) -> None:
        while (token := self._peek()) is not None and token.operator == "\n":
            self._next()

    # Commands

    def script(self) -> Sequence[ShellNode]:
        """Return all commands."""
        found = self._sequence(())
        if self._peek() is not None:
            self._reject_token()
        return found

    def body(self, closing: str) -> Sequence[ShellNode]:
        """Return the commands up to a closing token, and advance past it."""
        start = self.at
        found = self._sequence((closing,))
        token = self._next()
        if token is None:
            raise ShellTextError("this `(` has no `)`", start - 1, start)
        return found

    def _reject_token(self) -> None:
        token = self._peek()
        shown = self._key()
        if shown == "(":
            self._fail(token, "the shell interprets this `(`: quote it")
        self._fail(token, f"there is no command before `{shown or 'this'}`")

    def _sequence(self, ends: Sequence[str]) -> Sequence[ShellNode]:
        found: list[ShellNode] = []
        while True:
            self._skip_lines()
            token = self._peek()
            if token is None or self._key() in ends:
                return found
            chain = self._chain()
            operator = self._key()
            if operator == "&":
                chain = chain._replace(background=True)
            found.append(chain)
            if operator in (";", "&", "\n"):
                self._next()
            elif operator not in ends and self._peek() is not None:
                self._reject_token()

    def _chain(self) -> CommandChain:
        first = self._pipeline()
        rest: list[tuple[str, ShellNode]] = []
        while (operator := self._key()) in ("&&", "||"):
            self._next()
            self._skip_lines()
            rest.append((operator, self._pipeline()))
        return CommandChain(first, rest, False)

    def _pipeline(self) -> ShellNode:
        negated = False
        while self._key() in ("!", "time"):
            negated = negated != (self._key() == "!")
            self._next()
        commands = [self._command()]
        while self._key() in ("|", "|&"):
            self._next()
            self._skip_lines()
            commands.append(self._command())
        if len(commands) == 1 and not negated:
            return commands[0]
        return ShellPipeline(commands, negated)

    def _command(self) -> ShellNode:
        if self.depth >= _DEEPEST:
            token = self._peek()
            self._fail(token, "brackets in this file nest too deeply")
        self.depth += 1
        found = self._compound()
        self.depth -= 1
        return found

    def _compound(self) -> ShellNode:
        token = self._peek()
        if token is None:
            self._fail(token, "a command is expected here")
            raise AssertionError
        key = self._key()
        found: ShellNode | None = None
        if key == "(" and self.text.startswith("((", token.start):
            close = self._closing_round(token.start + 2)
            if close is not None and self.text.startswith(")", close):
                self.at = close + 1
                self._has_ahead = False
                inner = self.text[token.start + 2 : close - 1]
                found = ArithmeticCommand(inner, token.start, self.at)
        if found is not None:
            pass
        elif key == "(":
            self._next()
            found = CommandGroup(self.body(")"), True)
        elif key == "{":
            self._next()
            commands = self._sequence(("}",))
            self._expect("}")
            found = CommandGroup(commands, False)
        elif key == "if":
            found = self._if()
        elif key in ("for", "select"):
            found = self._for(key)
        elif key in ("while", "until"):
            self._next()
            test = self._sequence(("do",))
            body = self._do_group()
            found = LoopCommand(key, "", None, test, body, token.start, self.at)
        elif key == "case":
            found = self._case()
        elif key == "[[":
            found = self._test()
        elif key == "function":
            self._next()
            named = self._next()
            if self._key() == "(":
                self._next()
                self._expect(")")
            return self._function(named)
        elif token.operator or key in _ENDS:
            if token.operator not in _REDIRECTING:
                self._reject_token()
            return self._simple()
        else:
            return self._simple()
        redirections: list[Redirection] = []
        while self._redirects(redirections, None):
            pass
        if redirections:
            return CommandGroup([found], False, redirections)
        return found

    def _function(self, named: ShellToken | None) -> ShellNode:
        self._skip_lines()
        name = "".join(part.text for part in named.parts) if named else ""
        return FunctionDefinition(name, self._command())

    def _do_group(self) -> Sequence[ShellNode]:
        self._skip_lines()
        if self._key() == "{":
            self._next()
            body = self._sequence(("}",))
            self._expect("}")
            return body
        self._expect("do")
        body = self._sequence(("done",))
        self._expect("done")
        return body

    def _if(self) -> IfCommand:
        start = self.at
        branches: list[tuple[Sequence[ShellNode], Sequence[ShellNode]]] = []
        otherwise: Sequence[ShellNode] = ()
        while self._key() in ("if", "elif"):
            token = self._next()
            start = token.start if token and not branches else start
            test = self._sequence(("then",))
            self._expect("then")
            branches.append((test, self._sequence(("elif", "else", "fi"))))
        if self._key() == "else":
            self._next()
            otherwise = self._sequence(("fi",))
        self._expect("fi")
        return IfCommand(branches, otherwise, start, self.at)

    def _for(self, kind: str) -> ShellNode:
        token = self._next()
        start = token.start if token else 0
        named = self._peek()
        if named is not None and self.text.startswith("((", named.start):
            close = self._closing_round(named.start + 2)
            parts = self.text[named.start + 2 : (close or 0) - 1].split(";")
            if close is None or not self.text.startswith(")", close) or len(parts) != 3:
                # Semicolons stand inside: find the end by its two brackets.
                close = self.text.find("))", named.start, self.stop) + 1
                parts = self.text[named.start + 2 : close - 1].split(";")
            if close <= 0 or len(parts) != 3:
                self._fail(named, "`for ((first; test; step))` is expected here")
            self.at = close + 1
            self._has_ahead = False
            self._skip_separators()
            body = self._do_group()
            return CountingLoop(parts[0], parts[1], parts[2], body, start, self.at)
        self._next()
        words: list[ShellToken] | None = None
        self._skip_lines()
        if self._key() == "in":
            self._next()
            words = []
            while (token := self._peek()) is not None and token.parts:
                words.append(token)
                self._next()
        self._skip_separators()
        name = named.plain if named else ""
        body = self._do_group()
        return LoopCommand(kind, name, words, (), body, start, self.at)

    def _skip_separators(self) -> None:
        while self._key() in (";", "\n"):
            self._next()

    def _case(self) -> CaseCommand:
        token = self._next()
        start = token.start if token else 0
        word = self._next()
        if word is None or word.operator:
            self._fail(word, "a word is expected here")
            raise AssertionError
        self._skip_lines()
        self._expect("in")
        branches: list[tuple[Sequence[ShellToken], Sequence[ShellNode], str]] = []
        while True:
            self._skip_lines()
            if self._key() == "esac":
                self._next()
                return CaseCommand(word, branches, start, self.at)
            if self._key() == "(":
                self._next()
            patterns: list[ShellToken] = []
            while True:
                pattern = self._next()
                if pattern is None or pattern.operator:
                    self._fail(pattern, "a pattern is expected here")
                    raise AssertionError
                patterns.append(pattern)
                separator = self._next()
                if separator is None or separator.operator not in ("|", ")"):
                    self._fail(separator, "`)` is expected here")
                    raise AssertionError
                if separator.operator == ")":
                    break
            body = self._sequence((";;", ";&", ";;&", "esac"))
            end = self._key()
            if end != "esac":
                self._next()
            branches.append((patterns, body, end))

    def _test(self) -> TestCommand:
        token = self._next()
        start = token.start if token else 0
        words: list[ShellToken] = []
        while True:
            if words and words[-1].plain == "=~" and not words[-1].operator:
                words.append(self._expression())
                continue
            token = self._next()
            if token is None:
                raise ShellTextError("this `[[` has no `]]`", start, start + 2)
            if token.plain == "]]":
                return TestCommand(words, start, token.end)
            if token.operator != "\n":
                words.append(token)

    def _expression(self) -> ShellToken:
        """Return a regular expression, up to the first white space outside of brackets."""
        depth, at = 0, self.at
        while at < self.stop and self.text[at] in " \t":
            at += 1
        start = at
        while at < self.stop and (depth or not self.text[at].isspace()):
            char = self.text[at]
            if char == "\\":
                at += 1
            elif char in "'\"":
                found = self.text.find(char, at + 1, self.stop)
                at = found if found >= 0 else self.stop
            depth += (char in "([") - (char in ")]")
            at += 1
        self.at = min(at, self.stop)
        text = self.text[start : self.at]
        return ShellToken((WordPart("text", text, start, self.at, True),), start, self.at)

    # Simple commands

    def _simple(self) -> ShellNode:
        assignments: list[Assignment] = []
        words: list[ShellToken | Assignment] = []
        redirections: list[Redirection] = []
        declares = False
        first = self._peek()
        start = end = first.start if first else self.at
        while (token := self._peek()) is not None:
            if token.operator:
                if token.operator == "(" and len(words) == 1 and not assignments:
                    named = words[0]
                    self._next()
                    if self._key() != ")":
                        self._fail(token, "the shell interprets this `(`: quote it")
                    self._next()
                    return self._function(named if isinstance(named, ShellToken) else None)
                if token.operator == "(":
                    self._fail(token, "the shell interprets this `(`: quote it")
                if not self._redirects(redirections, words):
                    break
                end = self.at
                continue
            found = None
            if (not words or declares) and token.parts[0].kind == "text":
                found = _ASSIGNMENT.match(self.text, token.start, token.end)
            if found is not None and not token.parts[0].quoted:
                one = self._assignment(found, token)
                (words or assignments).append(one)
                end = one.end
                continue
            self._next()
            if not words:
                declares = token.plain in _DECLARING
            words.append(token)
            end = token.end
        return SimpleCommand(assignments, words, redirections, start, end)

    def _assignment(self, found: re.Match[str], token: ShellToken) -> Assignment:
        self._next()
        first = token.parts[0]
        name, key, adds = found[1], (found[2] or "")[1:-1], bool(found[3])
        if first.end < found.end():  # an index with quotes or references
            parts = [part for part in token.parts if part.end > found.end()]
            begin = next((part for part in parts), None)
            if begin is not None and begin.start < found.end() and begin.kind == "text":
                text = begin.text[found.end() - begin.start :]
                parts[0] = begin._replace(text=text, start=found.end())
        else:
            rest = first.text[found.end() - first.start :]
            parts = [first._replace(text=rest, start=found.end())] if rest else []
            parts += token.parts[1:]
        word = ShellToken(tuple(parts), found.end(), token.end)
        opening = self._peek()
        if parts or opening is None or opening.operator != "(" or opening.start != token.end:
            return Assignment(name, key, adds, word, None, token.start, token.end)
        self._next()
        elements: list[tuple[str, ShellToken]] = []
        while True:
            element = self._next()
            if element is None:
                raise ShellTextError("this `(` has no `)`", opening.start, opening.end)
            if element.operator == ")":
                place = (token.start, element.end)
                return Assignment(name, key, adds, word, elements, *place)
            if element.operator == "\n":
                continue
            if element.operator:
                message = f"`{element.operator}` ends the word: quote it"
                raise ShellTextError(message, element.start, element.end)
            keyed = re.compile(r"\[([^]\n]{1,200})\]=").match(self.text, element.start, element.end)
            if keyed is None or element.parts[0].quoted:
                elements.append(("", element))
                continue
            shown = [part for part in element.parts if part.end > keyed.end()]
            if shown and shown[0].start < keyed.end():
                text = shown[0].text[keyed.end() - shown[0].start :]
                shown[0] = shown[0]._replace(text=text, start=keyed.end())
            elements.append((keyed[1], ShellToken(tuple(shown), keyed.end(), element.end)))

    def _redirects(
        self, redirections: list[Redirection], words: list[ShellToken | Assignment] | None
    ) -> bool:
        """Parse a redirection if the next token starts one; return whether it did."""
        token = self._peek()
        if token is not None and words is None and token.plain.isdigit():
            after = self.text[token.end : token.end + 1]
            if after not in ("<", ">"):
                return False
            self._next()
            token = self._peek()
        if token is None or token.operator not in _REDIRECTING:
            return False
        name = ""
        last = words[-1] if words else None
        if words and isinstance(last, ShellToken) and last.end == token.start:
            named = re.fullmatch(rf"\{{({_NAME})\}}", last.plain)
            name = named[1] if named else ""
            if named or last.plain.isdigit():
                words.pop()
        self._next()
        target = self._next()
        if target is None or target.operator:
            self._fail(target, "a file is expected here")
            raise AssertionError
        document = None
        if token.operator in ("<<", "<<-"):
            document = self.register_document(target, tabs=token.operator == "<<-")
        redirections.append(Redirection(token.operator, target, document, name))
        return True


@lru_cache(maxsize=1)
def _round_pairs(text: str) -> Mapping[int, int]:
    """Return the offset of the closing parenthesis for each opening one."""
    found: dict[int, int] = {}
    stack: list[int] = []
    for bracket in re.finditer(r"[()]", text):
        if bracket[0] == "(":
            stack.append(bracket.start())
        elif stack:
            found[stack.pop()] = bracket.start()
    return found


def _unescape(text: str) -> str:
    """Return the text of ``$'...'``.

    >>> _unescape("a\\\\nb\\\\x41")
    'a\\nbA'
    """
    letters = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "0": ""}

    def letter(found: re.Match[str]) -> str:
        if found[1]:
            return chr(int(found[1][1:], 16))
        return letters.get(found[2], found[2])

    return re.sub(r"\\(?:(x[0-9a-fA-F]{1,2})|([\s\S]))", letter, text)
