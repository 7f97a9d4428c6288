"""Recovery: parsing continues after a syntax error.

The parser stops before a token that it does not accept. If this is a known mistake,
`parcost.language.mistakes` reports it and often repairs it. Otherwise the error names the token and
the expected tokens, in the words of `parcost.language.wording`. The item is omitted: the parser
returns to the enclosing body and continues at the next item. So one run reports all syntax errors
of a file, and the valid parts have a tree.
"""

from __future__ import annotations

from attrs import evolve

from parcost.language import syntax as s
from parcost.language.build import BRACES, BRACKETS, Builder
from parcost.language.diagnostics import problem
from parcost.language.lalr import ParserState, Token
from parcost.language.mistakes import MISTAKES
from parcost.language.repair import InsertedToken, Stop
from parcost.language.text import Span
from parcost.language.wording import describe_token, describe_tokens, syntax_hint

MOST_ERRORS = 100
DEEPEST = 100
_DEEP = 10 * DEEPEST  # a level of nesting takes one to five symbols
_ENDS_BRACKETS = {"LBRACE", "RBRACE", "EQUAL", "_NL"}


def recover(machine: ParserState, tokens: list[Token], at: int) -> None:
    """Continue from *tokens[at]*, which *machine* did not accept, to the end.

    Then *machine* has the tree, and its builder has the errors.
    """
    shallow = machine.limit
    while at < len(tokens):
        at = machine.run(tokens, _resume(Stop(machine, tokens, at)))
    if machine.limit > shallow:
        machine.values[0] = _cut(machine.values[0], tokens, machine.builder)
    machine.builder.diagnostics.sort(key=lambda found: found.labels[0].span.start)


def _resume(stop: Stop) -> int:
    """Report the error, if it is one; return the index of the token to continue with."""
    machine = stop.machine
    if len(machine.states) > machine.limit:
        if machine.limit < _DEEP:
            machine.limit = _DEEP
            return stop.at
        _report_depth(stop.builder, stop.span(stop.token))
        return _give_up(stop)
    if len(stop.builder.diagnostics) >= MOST_ERRORS:
        message = f"more than {MOST_ERRORS} syntax errors"
        last = problem("too-many-errors", message, stop.span(stop.token), "parsing stopped here")
        stop.builder.diagnostics.append(last)
        return _give_up(stop)
    for mistake in MISTAKES:
        go_on = mistake(stop)
        if go_on is not None:
            return go_on
    accepted, kind, text = machine.next_tokens(), stop.kind, stop.token[0]
    before = stop.tokens[stop.at - 1][0] if stop.at else ""
    stop.report(
        f"unexpected {describe_token(kind, text)}",
        stop.span(stop.token),
        f"expected {describe_tokens(accepted)}",
        help=syntax_hint(before, kind, text, accepted),
    )
    return stop.skip()


def _give_up(stop: Stop) -> int:
    """Close all open blocks, and read no further."""
    stop.unwind()
    stop.machine.limit = 2 * _DEEP
    end = stop.tokens[-1]
    closers = [InsertedToken("RBRACE", stop.token.start())] * len(stop.open_blocks())
    stop.tokens[stop.at :] = [*closers, end]
    return stop.at


def _cut(tree: s.Block, tokens: list[Token], builder: Builder) -> s.Block:
    """Remove items that are nested too deeply for the recursion limit, and report them."""
    deep = _deep_bracket(tree, tokens) or _deep_node(tree)
    if deep is None:
        return tree
    _report_depth(builder, deep)
    items = [i for i in tree.items if not i.span.start <= deep.start < i.span.end]
    return evolve(tree, items=tuple(items))


def _report_depth(builder: Builder, span: Span) -> None:
    if all(found.id != "nesting-too-deep" for found in builder.diagnostics):
        message = f"this is nested more than {DEEPEST} levels deep"
        builder.diagnostics.append(problem("nesting-too-deep", message, span, "too deep"))


def _deep_bracket(tree: s.Block, tokens: list[Token]) -> Span | None:
    braces = brackets = 0
    for token in tokens:
        kind = token.lastgroup or ""
        brackets = 0 if kind in _ENDS_BRACKETS else max(brackets + BRACKETS.get(kind, 0), 0)
        braces = max(braces + BRACES.get(kind, 0), 0)
        if braces + brackets > DEEPEST:
            return Span(tree.span.source, token.start(), token.end())
    return None


def _deep_node(tree: s.Block) -> Span | None:
    level: list[s.Item | s.Expr] = list(tree.items)
    for _ in range(DEEPEST):
        level = [part for node in level for part in s.parts_of(node)]
    return level[0].span if level else None
