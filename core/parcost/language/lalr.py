"""Runs the LALR tables that Lark makes from the grammar.

The language is defined, checked and turned into LALR tables by Lark; see ``parcost_grammar``. At
run time only this loop is needed. So a process that reads a spec does not import Lark or build
tables. The parser stops at an error instead of raising, so that it can be repaired and continued:
valid and invalid files use the same code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from attrs import field

from parcost.records import define, frozen

State = dict[str | None, Any]
"""Symbol to the state that follows, or to the rule that is complete."""

Rule = tuple[str, int, Callable[[Any, list[Any]], Any] | None, tuple[int, ...] | None]
"""Origin, number of symbols, what makes the value, what becomes of the symbols.

None makes the value of the only symbol do; None becomes of symbols that are all kept.
"""

_KEPT, _SPLICED = 1, 2
_SHALLOW = 100


class Token(Protocol):
    """A match of the one regular expression of the lexer; *lastgroup* is the terminal."""

    @property
    def lastgroup(self) -> str | None:
        """The name of the terminal."""

    def start(self) -> int:
        """Return the offset at which the token begins."""

    def end(self) -> int:
        """Return the offset at which the token ends."""

    def __getitem__(self, group: int, /) -> str:
        """Return the text of the token, for *group* 0."""


@frozen
class ParserTables:
    """The tables of a grammar, ready to run."""

    tokens: re.Pattern[str]
    ignored: frozenset[str]
    start: State

    @classmethod
    def link(cls, data: Mapping[str, Any], builder: type) -> ParserTables:
        """Return the tables of *data*; each rule calls the *builder* method that makes its node."""
        rules = [_rule(builder, *rule) for rule in data["rules"]]
        states: list[State] = data["states"]
        for state in states:
            for symbol, target in state.items():
                state[symbol] = states[target] if target >= 0 else rules[-1 - target]
        return cls(re.compile(data["tokens"]), frozenset(data["ignored"]), states[0])


@define
class ParserState:
    """The state of a parser between two tokens.

    *limit* is the maximum number of symbols on the stack. Nesting needs at least one symbol per
    level, so *limit* bounds the depth of a file.
    """

    builder: Any
    states: list[State]
    values: list[Any] = field(factory=list)
    limit: int = _SHALLOW

    def run(self, tokens: Sequence[Token], start: int) -> int:
        """Read *tokens* from *start*; return the index of the first token that is not accepted."""
        states, values, builder, limit = self.states, self.values, self.builder, self.limit
        for index in range(start, len(tokens)):
            token = tokens[index]
            kind = token.lastgroup
            action = states[-1].get(kind)
            while type(action) is not dict:
                if action is None:
                    return index
                origin, size, make, fates = action
                if make is None:
                    states.pop()
                else:
                    children = []
                    if size:
                        children = values[-size:]
                        del values[-size:], states[-size:]
                        if fates:
                            children = _gather(children, fates)
                    values.append(make(builder, children))
                state = states[-1][origin]
                states.append(state)
                action = state.get(kind)
            if len(states) > limit:
                return index
            states.append(action)
            values.append(token)
        return len(tokens)

    def accepts(self, kind: str) -> bool:
        """Return whether a token of this kind can follow."""
        states = self.states.copy()
        while (action := states[-1].get(kind)) is not None:
            if type(action) is dict:
                return True
            origin, size, _, _ = action
            if size:
                del states[-size:]
            states.append(states[-1][origin])
        return False

    def next_tokens(self) -> set[str]:
        """Return all kinds of tokens that can follow."""
        return {k for k in self.states[-1] if k and k.isupper() and self.accepts(k)}

    def pop(self) -> Any:
        """Pop the last symbol and return its value."""
        self.states.pop()
        return self.values.pop()

    def replace_last(self, symbol: str) -> None:
        """Replace the symbol of the last value; the state before it must accept *symbol*."""
        self.states[-1] = self.states[-2][symbol]


def _gather(values: list[Any], fates: tuple[int, ...]) -> list[Any]:
    # A list in front grows in place, so that long lists cost no more than their length.
    children: list[Any] = values[0] if fates[0] == _SPLICED else []
    for value, fate in zip(values, fates, strict=True):
        if fate == _KEPT:
            children.append(value)
        elif fate == _SPLICED and value is not children:
            children += value
    return children


def _rule(builder: type, origin: str, node: str | None, fates: list[int]) -> Rule:
    make = (
        None if node is None else getattr(builder, node) if node else lambda _, children: children
    )
    return origin, len(fates), make, None if set(fates) <= {_KEPT} else tuple(fates)
