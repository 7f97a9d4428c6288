"""Runs the tables that Lark made of the grammar.

The language is defined, checked and turned into LALR tables by Lark; see
``parcost_grammar``. What is left to do for a file fits here, and doing it here has
two reasons. A process that reads a spec need neither import Lark nor build tables.
And a parser that hands back where it stopped, instead of raising, can be repaired
and sent on: reading a good file and recovering in a bad one are the same code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from attrs import define, field, frozen

State = dict[str, Any]
"""Symbol to the state that follows, or to the rule that is complete."""

_DROP, _KEEP, _SPLICE = 0, 1, 2


class Token(Protocol):
    """A match of the lexer's one regular expression; *lastgroup* is the terminal."""

    @property
    def lastgroup(self) -> str | None: ...  # noqa: D102
    def start(self) -> int: ...  # noqa: D102
    def end(self) -> int: ...  # noqa: D102
    def span(self) -> tuple[int, int]: ...  # noqa: D102
    def __getitem__(self, group: int, /) -> str: ...  # noqa: D105


@frozen
class Tables:
    """A grammar, ready to run."""

    tokens: re.Pattern[str]
    ignored: frozenset[str]
    start: State

    @classmethod
    def link(cls, data: dict[str, Any], builder: type) -> Tables:
        """Return the tables of *data*, with the methods of *builder* as the nodes."""
        rules = [_rule(*rule, builder) for rule in data["rules"]]
        states: list[State] = data["states"]
        for state in states:
            for symbol, target in state.items():
                state[symbol] = states[target] if target >= 0 else rules[-1 - target]
        return cls(
            re.compile(data["tokens"]),
            frozenset(data["ignored"]),
            states[0],
        )


@define
class Machine:
    """An LALR parser, between two tokens."""

    tables: Tables
    builder: Any
    states: list[State] = field(init=False)
    values: list[Any] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self.states = [self.tables.start]

    def run(self, tokens: Sequence[Token], start: int = 0) -> int:
        """Read *tokens* from *start* on; return the index of the first that is unexpected."""
        states, values, builder = self.states, self.values, self.builder
        for index in range(start, len(tokens)):
            token = tokens[index]
            kind = token.lastgroup
            action = states[-1].get(kind)
            while type(action) is not dict:
                if action is None:
                    return index
                origin, size, make, fates = action
                if make is not None:
                    if size:
                        children = values[-size:]
                        del values[-size:], states[-size:]
                        if fates is not None:
                            children = _gather(children, fates)
                    else:
                        children = []
                    values.append(make(builder, children))
                else:
                    states.pop()
                state = states[-1][origin]
                states.append(state)
                action = state.get(kind)
            states.append(action)
            values.append(token)
        return len(tokens)


def _gather(values, fates):
    children = []
    for value, fate in zip(values, fates):
        if fate == _KEEP:
            children.append(value)
        elif fate == _SPLICE:
            children += value
    return children


def _inline(_, children):
    return children

def _rule(origin: str, node: str | None, fates: list[int], builder: type):
    make = None if node is None else getattr(builder, node) if node else _inline
    if node is None: assert fates == [1]
    return origin, len(fates), make, (None if all(f == 1 for f in fates) else tuple(fates))
