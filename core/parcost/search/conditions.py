"""Names in conditional expressions of a spec, which may hide a dependence on an axis.

Attributes that depend on an axis are found by binding its values one by one. An expression such as
``layout.pp > 1 ? layout.zero : 0`` hides its dependence on one axis, unless another axis has a
certain value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from parcost.language import syntax

if TYPE_CHECKING:
    from parcost.binding.modules import Module
    from parcost.engine.scenario import Scenario

_LOGICAL = {"<", "<=", ">", ">=", "==", "!=", "&&", "||"}


def condition_names(scenario: Scenario) -> set[str]:
    """Return all names in expressions of a spec if it has a conditional expression, else none."""
    names: set[str] = set()
    conditional = False
    for node in _nodes([*_modules(scenario.module, {}), *scenario.overrides.values()]):
        if isinstance(node, syntax.Path):
            names.add(node.parts[-1].text)
        elif isinstance(node, syntax.Conditional):
            conditional = True
        elif isinstance(node, syntax.Chain):
            conditional = conditional or not _LOGICAL.isdisjoint(node.operators)
    return names if conditional else set()


def _modules(module: Module, known: dict[int, Module]) -> list[Any]:
    """Return the syntax nodes of a module and of its imports, except catalogues."""
    if id(module) in known or module.catalogue:
        return []
    known[id(module)] = module
    own = [*module.lets.values(), *module.blocks, *module.studies]
    others = [*module.merged, *module.aliases.values(), *(m for m, _, _ in module.imported_blocks)]
    return own + [node for other in others for node in _modules(other, known)]


def _nodes(found: list[Any]) -> Iterator[Any]:
    """Yield every node of the syntax trees."""
    while found:
        node = found.pop()
        if isinstance(node, tuple | list):
            found.extend(node)
        elif type(node).__module__ == syntax.__name__:
            yield node
            found.extend(getattr(node, name) for name in _fields(type(node)))


def _fields(type_: type) -> tuple[str, ...]:
    found: tuple[str, ...] = getattr(type_, "__match_args__", ())
    return found
