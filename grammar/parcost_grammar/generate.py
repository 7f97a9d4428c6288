"""From ``par.lark`` to ``par.json``: the tables that the parser runs on.

Lark reads the grammar, checks that it is LALR and computes the tables; parcost
runs on the tables alone, so that reading a file imports no parser generator and
builds no tables. After a change to the grammar:

    python -m parcost_grammar.generate

A test compares the two files, and our trees with Lark's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from lark import Lark, Token
from lark.lark import PostLex

HERE = Path(__file__).parent
_NESTING = {"LPAR": 1, "LSQB": 1, "RPAR": -1, "RSQB": -1}


class Newlines(PostLex):
    """Filters newline tokens: they end items, except inside brackets.

    An unclosed bracket ends at the next ``{``, ``}`` or ``=``.
    """

    always_accept = ("_NL", "UNTERMINATED", "UNKNOWN")  # Lark drops what no rule names

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        """Yield the tokens that the grammar uses."""
        depth = 0
        for token in stream:
            depth = max(depth + _NESTING.get(token.type, 0), 0)
            if token.type != "_NL" or not depth:
                yield token
            if token.type in {"LBRACE", "RBRACE", "EQUAL"}:
                depth = 0


@cache
def lark() -> Lark:
    """Return Lark's own parser of the language."""
    return Lark(
        (HERE / "par.lark").read_text(encoding="utf-8"),
        parser="lalr",
        lexer="basic",
        postlex=Newlines(),
        propagate_positions=True,
        maybe_placeholders=False,
    )


def tables() -> dict[str, Any]:
    """Return the tables of the parser, as plain data.

    *tokens* is one regular expression with a group for each terminal. A rule has three parts: its
    origin, its node and a code for each of its symbols. The node is null if its only child replaces
    it, "" if its children join those of the rule above. The codes are 0 dropped, 1 kept, 2 replaced
    by its children. A state maps a terminal to the next state, or to ``-1 - rule`` if that rule is
    complete. It also maps the origin of a rule to the next state. The first state is the start.
    """
    parser: Any = lark()
    table = parser.parser.parser._parse_table  # noqa: SLF001
    pattern = parser.parser.lexer.lexer.scanner._mres[0].pattern  # noqa: SLF001
    rules = [rule for rule in parser.rules if rule.origin.name != "$root"]
    number = {rule: -1 - n for n, rule in enumerate(rules)}
    start = table.start_states["start"]
    order = _in_reach(start, table.states)
    position = {state: n for n, state in enumerate(order)}
    states = [
        {
            "END" if symbol == "$END" else symbol: (position | number)[target]
            for symbol, (_, target) in sorted(table.states[state].items())
        }
        for state in order
    ]
    end = position[table.end_states["start"]]
    states[end] = {"END": end}
    return {
        "tokens": pattern + r"|(?P<END>\Z)",
        "ignored": parser.ignore_tokens,
        "rules": _shapes(rules),
        "states": states,
    }


def _in_reach(start: int, states: dict[int, dict[str, tuple[Any, Any]]]) -> list[int]:
    """Return the states reachable from *start* in a fixed order, so that tables are stable."""
    order = [start]
    for state in order:
        targets = [target for _, (_, target) in sorted(states[state].items())]
        order += dict.fromkeys(t for t in targets if t in states and t not in order)
    return order


def _shapes(rules: list[Any]) -> list[tuple[str, str | None, list[int]]]:
    """Return the rules in the form of `tables`, with Lark's meaning of ``_`` and ``?``."""
    several = {rule.origin.name for rule in rules if rule.origin.name.startswith("_")}
    several -= {name for name in several if all(map(_renames, _find_rules(rules, name)))}

    def shape(rule: Any) -> tuple[str, str | None, list[int]]:
        name = rule.origin.name
        fates = [
            int(not symbol.filter_out) if symbol.is_term else 1 + (symbol.name in several)
            for symbol in rule.expansion
        ]
        if name in several:
            return name, "", fates
        alone = fates == [1] and (rule.options.expand1 or name.startswith("_"))
        return name, None if alone and not rule.alias else rule.alias or name, fates

    return [shape(rule) for rule in rules]


def _find_rules(rules: list[Any], name: str) -> list[Any]:
    return [rule for rule in rules if rule.origin.name == name]


def _renames(rule: Any) -> bool:
    """Return whether the rule is another name for its only child."""
    return len(rule.expansion) == 1 and not rule.expansion[0].name.startswith("_")


if __name__ == "__main__":
    text = json.dumps(tables(), ensure_ascii=False)
    for end, begin in ("][", "}{"):
        text = text.replace(f"{end}, {begin}", f"{end},\n{begin}")
    (HERE / "par.json").write_text(text + "\n", encoding="utf-8")
