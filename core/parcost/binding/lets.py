"""Lets without use: their values are never evaluated, so their errors are not reported.

    let nodes = 8            # read by the cluster
    let spare = nodez * 2    # a warning: nothing reads it

A let is used if a block, a study, a claim or another used let of its file names it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from attrs import fields, has

from parcost.language import syntax as s
from parcost.language.diagnostics import Diagnostic, Severity, problem

if TYPE_CHECKING:
    from parcost.binding.modules import Module


def unread_lets(module: Module, study_lets: Mapping[str, s.Attribute]) -> Iterator[Diagnostic]:
    """Yield a warning for each unused let of a file and of one study in it."""
    lets = {**module.lets, **study_lets}
    items = (*module.blocks, *module.studies, *module.expects)
    left = {name for item in items for name in _names(item, own_lets=False)}
    read: set[str] = set()
    while left:
        name = left.pop()
        if name in lets and name not in read:
            read.add(name)
            left.update(_names(lets[name].value))
    for name, node in lets.items():
        if name not in read:
            yield problem(
                "no-effect",
                f"no value uses `let {name}`",
                node.name.span,
                "remove it, or use the name",
                severity=Severity.WARNING,
            )


def _names(node: Any, *, own_lets: bool = True) -> Iterator[str]:
    """Yield the first word of every path in an expression, or in the values of a block."""
    if isinstance(node, tuple):
        for each in node:
            yield from _names(each, own_lets=own_lets)
    elif isinstance(node, s.Path):
        yield node.parts[0].text
    elif isinstance(node, s.Attribute):
        if own_lets or not node.words:
            yield from _names((node.value, node.provenance))
    elif has(type(node)):
        for one in fields(type(node)):
            yield from _names(getattr(node, one.name), own_lets=own_lets)
