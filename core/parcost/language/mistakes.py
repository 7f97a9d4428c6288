"""Common syntax mistakes: each is recognised, reported and, where the intention is clear, repaired.

Each function gets a `Stop`, the parser at an error, and returns the index of the next token to
parse. It returns None for any other mistake. The functions are called in the order of `MISTAKES`.
"""

from __future__ import annotations

from parcost.language import syntax as s
from parcost.language.build import OPERANDS, split_quantity
from parcost.language.lalr import Token
from parcost.language.repair import InsertedToken, Stop
from parcost.language.text import Span
from parcost.language.wording import begins_with_digit, describe_stray

_CLOSERS = {"LPAR": ")", "LSQB": "]"}
_VALUES = {"NUMBER", "QUANTITY", "LPAR", "LSQB", "MINUS", "NOT"}
_ENDS = {"_NL", "_COMMA", "RBRACE", "END"}


def _stray_character(stop: Stop) -> int | None:
    if stop.kind != "UNKNOWN":
        return None
    shown, instead = describe_stray(stop.token[0])
    span = stop.span(stop.token)
    stop.report(
        f"unexpected character {shown}",
        span,
        "this character is not part of the language",
        help=instead,
    )
    ends = stop.kind_at(stop.at + 1)
    return stop.at + 1 if ends in _ENDS and stop.machine.accepts(ends) else stop.skip()


def _unclosed_string(stop: Stop) -> int | None:
    if stop.kind != "UNTERMINATED":
        return None
    text = stop.token[0].rstrip()
    span = Span(stop.source, stop.token.start(), stop.token.start() + len(text))
    stop.report("this string is never closed", span, 'expected `"` before the end of the line')
    if text.endswith("{"):
        stop.tokens[stop.at] = InsertedToken("LBRACE", stop.token.start() + len(text) - 1, "{")
    return stop.skip()


def _unclosed_bracket(stop: Stop) -> int | None:
    """Report a bracket that is still open at the next item, or at the end of the block."""
    bracket = stop.last_token("LPAR", "LSQB")
    if bracket is None:
        return None
    first = stop.at
    while not stop.breaks_before(first):
        first -= 1
    if stop.breaks(bracket, stop.tokens[first]) and stop.begins_item(first):
        go_on = first
    elif stop.kind in {"RBRACE", "END"}:
        go_on = stop.at
    else:
        return None
    stop.report(
        f"`{bracket[0]}` is never closed",
        stop.span(bracket),
        "opened here",
        also=[(stop.span(stop.tokens[go_on]), f"expected {_closer(bracket)} before this")],
    )
    stop.unwind()
    stop.restore_newlines(go_on)
    return go_on


def _wrong_bracket(stop: Stop) -> int | None:
    if stop.kind not in {"RPAR", "RSQB"}:
        return None
    bracket, closer = stop.last_token("LPAR", "LSQB"), f"`{stop.token[0]}`"
    span = stop.span(stop.token)
    if bracket is None:
        stop.report(f"this {closer} has no opening bracket", span, "no bracket is open here")
    elif closer == _closer(bracket):
        return None
    else:
        opened = (stop.span(bracket), "opened here")
        message = f"{closer} does not close `{bracket[0]}`"
        stop.report(message, span, f"expected {_closer(bracket)}", also=[opened])
    return stop.skip()


def _needless_brace(stop: Stop) -> int | None:
    if stop.kind != "RBRACE" or stop.open_blocks():
        return None
    stop.report("this `}` has no opening bracket", stop.span(stop.token), "no block is open here")
    stop.unwind()
    return stop.at + 1


def _unclosed_block(stop: Stop) -> int | None:
    braces = stop.open_blocks()
    if stop.kind != "END" or not braces or not stop.between_items():
        return None
    stop.unwind()
    items = stop.machine.values[-1]
    first = _find_missing_brace(stop, braces[-1], items)
    several = f"{len(braces)} blocks are not closed at the end of the file"
    stop.report(
        "this block is never closed",
        stop.span(braces[-1]),
        "opened here",
        also=[(stop.span(stop.token), "expected `}` before the end")]
        if first is None
        else [
            (_first_character(items[first]), "expected `}` before this, judging by the indentation")
        ],
        notes=[several] if len(braces) > 1 else [],
    )
    if first is not None:
        items[first:], outside = [], items[first:]
        stop.machine.run([InsertedToken(kind, stop.token.start()) for kind in ("RBRACE", "_NL")], 0)
        stop.unwind()
        stop.machine.values[-1].extend(outside)
        return stop.at
    stop.tokens[stop.at : stop.at] = [InsertedToken("RBRACE", stop.token.start())] * len(braces)
    return stop.at


def _brace_below(stop: Stop) -> int | None:
    """Report a ``{`` on the line below the words of its block."""
    at, values = stop.at, stop.machine.values
    if stop.kind == "_NL" and stop.kind_at(at + 1) == "LBRACE" and stop.machine.accepts("LBRACE"):
        newline = go_on = at
    elif stop.kind == "LBRACE" and [*map(type, values[-2:-1])] == [s.Statement]:
        stop.machine.pop()
        newline, go_on = at - 1, stop.index(stop.machine.pop().span.start)
    else:
        return None
    brace = stop.span(stop.tokens[newline + 1])
    message = "the `{` of a block must be on the line of its first words"
    stop.report(message, brace, "this belongs at the end of the line above")
    del stop.tokens[newline]
    return go_on


def _needless_equal(stop: Stop) -> int | None:
    if stop.kind != "LBRACE" or stop.kind_at(stop.at - 1) != "EQUAL":
        return None
    equal = stop.span(stop.tokens[stop.at - 1])
    stop.report("a block has no `=`", equal, "this makes it an attribute")
    stop.machine.pop()
    return stop.at


def _colon(stop: Stop) -> int | None:
    if stop.kind != "_COLON" or not stop.machine.accepts("EQUAL"):
        return None
    stop.report("unexpected `:`", stop.span(stop.token), "expected `=`")
    stop.tokens[stop.at] = InsertedToken("EQUAL", stop.token.start(), ":")
    return stop.at


def _digit_first(stop: Stop) -> int | None:
    """Report a name that starts with a digit, such as ``8b``, which is read as a quantity."""
    if stop.kind != "QUANTITY" or not begins_with_digit(stop.token[0]):
        return None
    after = stop.at + 1
    while stop.kind_at(after) in {"NAME", "STRING", "_DOT"}:
        after += 1
    head = stop.kind_at(after) in {"LBRACE", "AT", "EQUAL"}
    if stop.kind_at(stop.at - 1) not in {"_DOT", "AT"} and not (
        head and (stop.machine.accepts("EQUAL") or stop.between_items())
    ):
        return None
    span = stop.span(stop.token)
    stop.report("a name cannot begin with a digit", span, "expected a name")
    stop.tokens[stop.at] = InsertedToken("NAME", span.start, span.text)
    return stop.at


def _no_equal(stop: Stop) -> int | None:
    if stop.kind not in _VALUES or not stop.machine.accepts("EQUAL"):
        return None
    after = stop.at
    while stop.kind_at(after) not in {"_NL", "END", "RBRACE"}:
        if stop.kind_at(after) in {"LBRACE", "EQUAL"}:
            return None
        after += 1
    stop.report("`=` is missing", stop.span(stop.token), "expected `=` before the value")
    stop.tokens.insert(stop.at, InsertedToken("EQUAL", stop.token.start()))
    return stop.at


def _no_separator(stop: Stop) -> int | None:
    """Report an item on the line of another one, without a comma in between."""
    tokens, at = stop.tokens, stop.at
    if stop.kind not in {"EQUAL", "LBRACE", "RELATION"} or not stop.machine.accepts("_NL"):
        return None
    begin = at
    while stop.kind_at(begin - 1) == "NAME" and stop.kind_at(begin - 2) in OPERANDS:
        begin -= 1
        if stop.kind != "LBRACE":
            break
    if begin == at:
        quantity = tokens[at - 1]
        digits, name = split_quantity(quantity[0])
        if quantity.lastgroup != "QUANTITY" or not name.isidentifier():
            return None
        number = InsertedToken("NUMBER", quantity.start(), digits)
        tokens[at - 1 : at] = [number, InsertedToken("NAME", quantity.end() - len(name), name)]
    span = stop.span(tokens[begin])
    stop.report("two items in a row", span, "expected a comma or a new line before this")
    tokens.insert(begin, InsertedToken("_COMMA", tokens[begin - 1].end()))
    return stop.unwind()


def _closer(bracket: Token) -> str:
    return f"`{_CLOSERS[bracket.lastgroup or '']}`"


def _find_missing_brace(stop: Stop, brace: Token, items: list[s.Item]) -> int | None:
    """Return the index of the item before which a ``}`` is missing, by the indentation, or None.

    Where nothing is indented, it is the first block.
    """
    indent = _indent(stop, brace.start())
    outside = [
        index
        for index, item in enumerate(items)
        if _indent(stop, item.span.start) <= indent
        and stop.breaks(brace, InsertedToken("", item.span.start))
    ]
    if outside[:1] == [0]:
        outside = [index for index in outside if isinstance(items[index], s.Block)]
    return outside[0] if outside else None


def _first_character(item: s.Item) -> Span:
    return Span(item.span.source, item.span.start, item.span.start + 1)


def _indent(stop: Stop, offset: int) -> int:
    line = stop.source.line(stop.source.position(offset)[0])
    return len(line) - len(line.lstrip())


MISTAKES = (
    _stray_character,
    _unclosed_string,
    _unclosed_bracket,
    _wrong_bracket,
    _needless_brace,
    _unclosed_block,
    _brace_below,
    _needless_equal,
    _colon,
    _digit_first,
    _no_equal,
    _no_separator,
)
