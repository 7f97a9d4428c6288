"""Variables of a script while it is read: layers, one for each branch of a test."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from parcost_formats.tools.shell.values import (
    Decision,
    Piece,
    ShellValue,
    Variable,
    assumption_of,
    is_same,
    text_of,
    unread_piece,
    weight_of,
)

IN_IF = "is set inside `if`, which parcost does not evaluate"
_LONGEST_ANSWER = 60


class ScriptCommand(NamedTuple):
    """The words of a command, and the assignments ahead of it.

    *files* are the texts that the script writes into files before the command, by variable name.
    *folder* is the current folder of the command, relative to the folder of the script; "" if they
    are equal, or if it is unknown. *place* is its place in the file.
    """

    words: Sequence[ShellValue]
    place: tuple[int, int]
    environment: Sequence[tuple[str, ShellValue]] = ()
    decision: Decision | None = None
    files: Mapping[str, Variable | None] = MappingProxyType({})
    folder: str = ""


class Layer:
    """The variables and commands of a branch, on top of its *parent*. A value of None is unset."""

    def __init__(self, parent: Layer | None = None) -> None:
        self.parent = parent
        self.variables: dict[str, Variable | None] = {}
        self.commands: list[ScriptCommand] = []
        self.ended = ""
        self.folder: str | None = None  # in which a branch ends

    def get(self, name: str) -> Variable | None:
        """Return a variable, or None if it is not set."""
        layer: Layer | None = self
        while layer is not None:
            if name in layer.variables:
                return layer.variables[name]
            layer = layer.parent
        return None

    def own(self, name: str) -> Variable | None:
        """Return a copy of a variable that this layer may modify."""
        if name not in self.variables:
            found = self.get(name)
            if found is None:
                return None
            self.variables[name] = found.copy()
        return self.variables[name]

    def names(self) -> Iterator[str]:
        """Yield the names of all variables that are set."""
        seen: set[str] = set()
        layer: Layer | None = self
        while layer is not None:
            for name, variable in layer.variables.items():
                if name not in seen and variable is not None:
                    yield name
                seen.add(name)
            layer = layer.parent

    def adopt(self, branch: Layer) -> None:
        """Merge the variables and commands of an executed branch."""
        self.variables.update(branch.variables)
        self.commands += branch.commands
        self.ended = branch.ended


def merge(parent: Layer, branches: Sequence[Layer], decision: Decision, why: str) -> int:
    """Merge the branches of an undecided test into *parent*; return the number of comparisons.

    Values on which all branches agree are certain.
    """
    compared = 0
    names = dict.fromkeys(name for branch in branches for name in branch.variables)
    for name in names:
        found = [branch.get(name) for branch in branches]
        compared += sum(len(one.values) if one else 1 for one in found)
        merged = _merge(name, found, decision, why)
        parent.variables[name] = merged
        if merged is not None and merged not in found:
            compared += sum(piece.weight for value in merged.values for piece in value)
    parent.commands += _merge_commands([branch.commands for branch in branches], decision)
    return compared


def answers_for(name: str, values: Iterable[ShellValue]) -> tuple[str, ...]:
    """Return options that set a variable to one of its known *values*."""
    texts = [text_of(value) for value in values if unread_piece(value) is None]
    short = [text for text in dict.fromkeys(texts) if len(text) <= _LONGEST_ANSWER]
    return tuple(f"--set-env {name}={_quote(text)}" for text in short)


def _quote(text: str) -> str:
    plain = text.replace("_", "").replace("-", "").replace(".", "").replace(",", "")
    return text if not text or plain.isalnum() else "'" + text.replace("'", "'\\''") + "'"


def _merge(
    name: str, found: Sequence[Variable | None], decision: Decision, why: str
) -> Variable | None:
    """Return the value of a variable after branches, whose values are *found*; None if unset.

    If branches differ, it is a text or an array with alternatives, if all are texts or all are
    arrays.
    """
    known = [one for one in found if one is not None]
    if not known:
        return None
    if len(known) == len(found) and all(
        one.kind == known[0].kind and not one.unread and _equal(known[0], one) for one in known
    ):
        return known[0]
    result = _choice(name, found, decision, why) or _without_value(name, found, decision, why)
    result.exported = any(one.exported for one in known)
    result.fixed = any(one.fixed for one in known)
    return result


def _choice(
    name: str, found: Sequence[Variable | None], decision: Decision, why: str
) -> Variable | None:
    """Return the texts or arrays of branches as one value; None if they cannot be merged."""
    known = [one for one in found if one is not None]
    kinds = {one.kind for one in known}
    if len(kinds) > 1 or any(one.unread for one in known):
        return None
    if kinds == {"text"}:
        values = [one.values[0] if one else [] for one in found]
        assumed = _common_value(values) if len(known) == len(found) else None
        return Variable([assumed or _merge_texts(name, values, decision, why)])
    if kinds == {"array"}:
        listed = [one or Variable([], "array") for one in found]
        return Variable(_merge_arrays(name, listed, decision, why), "array")
    if len(known) == len(found):
        return Variable([], "map", f"`{name}` {why}", decision.answers)
    return None


def _without_value(
    name: str, found: Sequence[Variable | None], decision: Decision, why: str
) -> Variable:
    """Return an unread variable: its branch is unread, or the values of branches differ."""
    known = [one for one in found if one is not None]
    unread = next((one for one in known if one.unread), None)
    if unread is not None and all(one and one.unread == unread.unread for one in found):
        return unread
    answers = decision.answers
    if not answers and {one.kind for one in known} == {"text"}:
        answers = answers_for(name, (one.values[0] for one in known if one.values))
    reason = unread.unread if unread is not None else f"`{name}` {why}"
    more = unread.answers if unread is not None else ()
    return Variable([], known[0].kind, reason, answers or more)


def _common_value(values: Sequence[list[Piece]]) -> list[Piece] | None:
    """Return the value common to all branches, with an assumption if a branch has one; or None."""
    if all(is_same(values[0], one) for one in values[1:]):
        return next((one for one in values if assumption_of(one)), values[0])
    return None


def _equal(one: Variable, other: Variable) -> bool:
    if one is other:
        return True
    if len(one.values) != len(other.values) or one.keys != other.keys:
        return False
    return all(
        is_same(left, right) and bool(assumption_of(left)) == bool(assumption_of(right))
        for left, right in zip(one.values, other.values, strict=True)
    )


def _merge_texts(
    name: str, values: Sequence[list[Piece]], decision: Decision, why: str
) -> list[Piece]:
    ahead, behind = _count_common_elements([[[piece] for piece in value] for value in values])
    middles = [value[ahead : len(value) - behind] for value in values]
    answers = decision.answers or answers_for(name, values)
    place = next((middle for middle in middles if middle), values[0])
    start, end = (place[0].start, place[-1].end) if place else (0, 0)
    choice = Piece(
        f"${{{name}}}",
        start,
        end,
        f"`{name}` {why}",
        "",
        answers,
        tuple((tuple(middle),) for middle in middles),
        weight=weight_of([[middle] for middle in middles]),
    )
    longest = values[0]
    return [*longest[:ahead], choice, *longest[len(longest) - behind :]]


def _merge_arrays(
    name: str, found: Sequence[Variable], decision: Decision, why: str
) -> list[list[Piece]]:
    lists = [one.values for one in found]
    ahead, behind = _count_common_elements(lists)
    middles = [one[ahead : len(one) - behind] for one in lists]
    pieces = [piece for middle in middles for value in middle for piece in value]
    start, end = (pieces[0].start, pieces[0].end) if pieces else (0, 0)
    choice = Piece(
        f"${{{name}[@]}}",
        start,
        end,
        f"`{name}` {why}",
        "",
        decision.answers,
        tuple(tuple(middle) for middle in middles),
        True,
        weight_of(middles),
    )
    longest = lists[0]
    return [*longest[:ahead], [choice], *longest[len(longest) - behind :]]


def _count_common_elements(lists: Sequence[Sequence[ShellValue]]) -> tuple[int, int]:
    """Return the number of common elements at the start and at the end of all lists."""
    shortest = min(map(len, lists))
    first, *others = lists
    ahead = 0
    while ahead < shortest and all(is_same(first[ahead], one[ahead]) for one in others):
        ahead += 1
    behind = 0
    while behind < shortest - ahead and all(
        is_same(first[-1 - behind], one[-1 - behind]) for one in others
    ):
        behind += 1
    return ahead, behind


def _merge_commands(
    lists: Sequence[Sequence[ScriptCommand]], decision: Decision
) -> list[ScriptCommand]:
    calling = [one for one in lists if one]
    if not calling:
        return []
    same = all(len(one) == len(calling[0]) for one in calling)
    if len(calling) == len(lists) and same and len(calling) > 1:
        return [_merge_commands_at(one, decision) for one in zip(*calling, strict=True)]
    return [
        command._replace(decision=command.decision or decision)
        for one in calling
        for command in one
    ]


def _merge_commands_at(found: Sequence[ScriptCommand], decision: Decision) -> ScriptCommand:
    lists = [one.words for one in found]
    ahead, behind = _count_common_elements(lists)
    files = {
        name: _merge(name, [one.files.get(name) for one in found], decision, IN_IF)
        for name in dict.fromkeys(name for one in found for name in one.files)
    }
    first = found[0]._replace(files=files)
    if all(len(one) == ahead for one in lists):
        return first
    middles = [one[ahead : len(one) - behind] for one in lists]
    pieces = [piece for middle in middles for value in middle for piece in value]
    choice = Piece(
        "...",
        pieces[0].start if pieces else 0,
        pieces[0].end if pieces else 0,
        "set inside `if`, which parcost does not evaluate",
        "",
        decision.answers,
        tuple(tuple(middle) for middle in middles),
        True,
        weight_of(middles),
    )
    words = [*lists[0][:ahead], [choice], *lists[0][len(lists[0]) - behind :]]
    return first._replace(words=words)
