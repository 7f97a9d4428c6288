"""From text to syntax tree.

The grammar is in `parcost_grammar`. Its tables run on `parcost.language.lalr`, and
`parcost.language.build` makes nodes. `parcost.language.recover` continues after errors. This module
joins them, and filters and limits the tokens. Time and memory are proportional to the length of the
file, whatever its content.
"""

from __future__ import annotations

from functools import cache
from itertools import islice

import parcost_grammar
from parcost.language import syntax as s
from parcost.language.build import BRACKETS, Builder
from parcost.language.diagnostics import Diagnostic, problem
from parcost.language.lalr import ParserState, ParserTables, Token
from parcost.language.recover import recover
from parcost.language.text import Source, Span

MOST_TOKENS = 100_000
_BATCH = 4096
_ENDS_BRACKETS = {"LBRACE", "RBRACE", "EQUAL"}


def parse(source: Source) -> tuple[s.Block, list[Diagnostic]]:
    """Return the syntax tree of *source*, and all syntax errors.

    It never raises an error: for a file with errors, the tree has the valid parts.
    """
    tokens = read_tokens(source.text)
    if len(tokens) > MOST_TOKENS:
        return _reject(source, tokens[MOST_TOKENS])
    builder = Builder(source)
    machine = ParserState(builder, [tables().start])
    at = machine.run(tokens, 0)
    if at < len(tokens):
        recover(machine, tokens, at)
    tree: s.Block = machine.values[0]
    return tree, builder.diagnostics


@cache
def tables() -> ParserTables:
    """Return the tables of the language; cached."""
    return ParserTables.link(parcost_grammar.tables(), Builder)


def read_tokens(text: str) -> list[Token]:
    """Return the tokens that the grammar uses, up to the limit of a file.

    Newlines end items, so they are tokens, except inside brackets. A bracket ends at ``{``, ``}``
    or ``=`` at the latest. So an unclosed bracket hides newlines only up to there.
    """
    ignored = tables().ignored
    tokens: list[Token] = []
    depth = 0
    matches = tables().tokens.finditer(text)
    while len(tokens) <= MOST_TOKENS and (batch := list(islice(matches, _BATCH))):
        for match in batch:
            kind = match.lastgroup
            if kind in ignored:
                continue
            if kind in BRACKETS:
                depth = max(depth + BRACKETS[kind], 0)
            elif depth:
                if kind == "_NL":
                    continue
                if kind in _ENDS_BRACKETS:
                    depth = 0
            tokens.append(match)
    return tokens


def _reject(source: Source, beyond: Token) -> tuple[s.Block, list[Diagnostic]]:
    """Return an empty tree and an error for a file that is too large."""
    nowhere = Span(source, 0, 0)
    nothing = s.Block(s.Name("", nowhere), (), (), (), nowhere)
    return nothing, [
        problem(
            "file-too-large",
            f"`{source.name}` is too large to be a spec",
            Span(source, beyond.start(), beyond.end()),
            f"the limit is {MOST_TOKENS:,} words and signs",
        )
    ]
