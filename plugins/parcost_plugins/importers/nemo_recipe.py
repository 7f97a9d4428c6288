"""Recipes of NeMo 2: Python that makes configurations of NeMo-Run. It is followed, and never run.

What a recipe makes is returned by dotted keys, as NeMo-Run exports it in YAML.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from parcost import did_you_mean
from parcost_plugins.importers.json_text import JsonEntry
from parcost_plugins.importers.megatron.recipe_code import (
    Cell,
    CodeLibrary,
    Entity,
    Follower,
    Function,
    UnreadValue,
)
from parcost_plugins.importers.python_values import (
    DottedName,
    PythonText,
    PythonTextError,
    UnreadError,
    dotted,
)
from parcost_plugins.importers.tables import table

_MAKERS = ("Config", "Partial")
_RECIPES = ("pretrain_recipe", "finetune_recipe", "trainer", "model")  # of other files
_MOST_KEYS = 5_000


class NeMoRecipe(NamedTuple):
    """Entries of a recipe by dotted keys, and why the values of some keys are not known."""

    entries: Mapping[str, JsonEntry]
    unread: Mapping[str, str]


def read_nemo_recipe(text: str, name: str = "") -> NeMoRecipe:
    """Return what a recipe in a Python file sets: the one called *name*, or the only one.

    Raises:
        PythonTextError: The file is no Python, has no recipe that can be followed, or several.
    """
    python = PythonText(text)
    follower = Follower(python.tree, _NeMoLibrary(python), {})
    recipe = _select_recipe(python, follower, name)
    try:
        made = follower.call_function(recipe, {})
    except UnreadError as error:
        raise PythonTextError(str(error), 0, 1) from None
    if not isinstance(made, Entity):
        why = made.why if isinstance(made, UnreadValue) else "it returns no configuration"
        start, _ = python.place(recipe)
        raise PythonTextError(f"the recipe is not followed: {why}", start, start + 3)
    entries: dict[str, JsonEntry] = {}
    unread: dict[str, str] = {}
    for key, value, node in _flatten("", made):
        start, end = python.place(node)
        if isinstance(value, UnreadValue):
            unread[key] = value.why
        known = None if isinstance(value, UnreadValue) else value
        entries[key] = JsonEntry(known, start, end)
        if len(entries) > _MOST_KEYS:
            raise PythonTextError(f"the recipe has more than {_MOST_KEYS:,} keys", start, end)
    return NeMoRecipe(entries, unread)


def _select_recipe(python: PythonText, follower: Follower, name: str) -> Function:
    found = [one for one in python.tree.body if isinstance(one, Function) and _is_recipe(one)]
    names = [one.name for one in found]
    if name:
        if name in follower.functions:
            return follower.functions[name]
        hint = did_you_mean(name, names) or f"recipes of the file: {', '.join(names)}"
        raise PythonTextError(f"the file has no recipe `{name}`: {hint}", 0, 1)
    if len(found) == 1:
        return found[0]
    if not found:
        raise PythonTextError("the file has no function that makes a recipe of NeMo-Run", 0, 1)
    start, _ = python.place(found[1])
    ways = " | ".join(f"--recipe {one}" for one in names)
    raise PythonTextError("the file has several recipes", start, start + 3, f"choose one: {ways}")


def _is_recipe(function: Function) -> bool:
    """Return whether a function makes a whole job: by its type, or by its name."""
    if function.returns is not None:
        return "Partial" in ast.unparse(function.returns) and not function.name.startswith("_")
    return function.name.endswith("recipe")


def _flatten(prefix: str, entity: Entity) -> Iterator[tuple[str, Any, ast.AST]]:
    """Yield the values of an entity by dotted keys, with those of inner ones."""
    yield f"{prefix}_target_", f"nemo.{entity.kind}", entity.node
    for name, cell in entity.cells.items():
        values = cell.value if isinstance(cell.value, list) else [cell.value]
        alone = len(values) == 1
        for place, value in enumerate(values):
            key = f"{prefix}{name}" if alone and name != "callbacks" else f"{prefix}{name}.{place}"
            if isinstance(value, Entity):
                yield from _flatten(f"{key}.", value)
            elif isinstance(value, DottedName):
                yield key, value.name.rpartition(".")[2], cell.node
            elif isinstance(value, (int, float, str, bool, UnreadValue, type(None))):
                yield key, value, cell.node


class _NeMoLibrary(CodeLibrary):
    """What functions of NeMo and NeMo-Run return."""

    def __init__(self, python: PythonText) -> None:
        self._python = python

    def call(
        self,
        follower: Follower,  # noqa: ARG002
        name: str,
        node: ast.Call,
        arguments: Sequence[Any],
        keywords: Mapping[str, Cell],
    ) -> Any:
        """Return what a function of another module returns, by the tables."""
        owner, _, last = name.rpartition(".")
        if last in _MAKERS:
            first = arguments[0] if arguments else None
            kind = first.name.rpartition(".")[2] if isinstance(first, DottedName) else "object"
            return Entity(kind, node, dict(keywords))
        known = table("nemo")["plugins"].get(last)
        if known is not None:
            cells = {one: Cell(value, node, last) for one, value in known.items()}
            return Entity("MegatronMixedPrecision", node, cells)
        if last.startswith("distributed_fused_adam"):
            on = {"use_distributed_optimizer": Cell(True, node, last)}
            config = Entity("OptimizerConfig", node, on)
            return Entity("Optimizer", node, {"config": Cell(config, node, last)})
        if last in _RECIPES and owner:
            start, end = self._python.place(node)
            why = f"`{name}` is of another file, which is not read"
            raise PythonTextError(why, start, end, "give the file of that recipe")
        if any(isinstance(one, Entity) for one in arguments):
            start, end = self._python.place(node)
            why = f"`{name}` changes the recipe, and is of another file, which is not read"
            raise PythonTextError(why, start, end)
        return UnreadValue(f"`{name}` is of another file, which is not read")

    def method(
        self,
        follower: Follower,  # noqa: ARG002
        owner: Entity,  # noqa: ARG002
        node: ast.Call,
        arguments: Sequence[Any],  # noqa: ARG002
        keywords: Mapping[str, Cell],  # noqa: ARG002
    ) -> Any:
        """Return nothing: configurations have no methods that change them."""
        return UnreadValue(f"`{dotted(node.func)}` is code, and none is run")

    def attribute(self, follower: Follower, owner: Entity, node: ast.Attribute) -> Any:
        """Return an attribute of a configuration; one that is not set is an empty one."""
        cell = owner.cells.get(node.attr)
        if cell is None:
            cell = Cell(Entity("object", node), node, node.attr)
            follower.put(owner, node.attr, cell)
        return cell.value
