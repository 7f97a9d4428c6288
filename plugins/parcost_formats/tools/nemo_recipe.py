"""Recipes of NeMo 2: Python that builds configurations of NeMo-Run, interpreted but not run.

The result is returned by dotted keys, as NeMo-Run exports it in YAML.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.python_code import (
    Cell,
    CodeCall,
    CodeLibrary,
    Entity,
    Follower,
    UnreadValue,
    option_defaults,
    option_of,
)
from parcost_formats.tools.python_values import (
    DottedName,
    Function,
    PythonText,
    PythonTextError,
    choose_function,
    dotted_name,
)
from parcost_formats.tools.tables import table

_MAKERS = ("Config", "Partial")
_RECIPES = ("pretrain_recipe", "finetune_recipe", "trainer", "model")  # of other files
_TRAINERS = ("train", "pretrain", "finetune")  # of nemo.collections.llm
_TRAINED = ("model", "data", "trainer")  # their first parameters
_STARTERS = ("run", "add")  # `run.run(recipe)` and `experiment.add(recipe)` of NeMo-Run
_PACKAGES = ("nemo.", "megatron.")  # whose classes are read
_MOST_KEYS = 5_000
_DEEPEST = 30  # objects in objects
_LIBRARY = table("nemo_recipes")
_FIRST = ("dir", "name")  # arguments of every recipe, in this order
_ADAPTERS = "lora"  # the default of finetune_recipe


class NeMoRecipe(NamedTuple):
    """Entries of a recipe by dotted key, and the reasons for unknown values by key.

    *assumed* are keys whose values come from the library, with its version.
    """

    entries: dict[str, JsonEntry]
    unread: dict[str, str]
    assumed: dict[str, str]


def read_nemo_recipe(
    text: str, name: str = "", neighbor: Callable[[str], str | None] = lambda _: None
) -> NeMoRecipe:
    """Return the settings of the recipe called *name* in a Python file, or of the only one.

    *neighbor* returns files beside it: functions that it imports from them are followed.

    Raises:
        PythonTextError: The file is not Python, has no recipe that can be followed, or several.
    """
    python = PythonText(text)
    made = None if name else _follow_script(python, neighbor) or _follow_start(python, neighbor)
    if made is None:
        follower = Follower(python.tree, _NeMoLibrary(python, neighbor), {})
        recipe = _select_recipe(python, follower, name)
        made = follower.call_function(recipe, {})
        if not isinstance(made, Entity) and (job := _follow_training(python, neighbor)):
            made = job
        if not isinstance(made, Entity):
            why = made.why if isinstance(made, UnreadValue) else "it returns no configuration"
            start, _ = python.place(recipe)
            raise PythonTextError(f"the recipe cannot be read: {why}", start, start + 3)
    entries: dict[str, JsonEntry] = {}
    unread: dict[str, str] = {}
    assumed: dict[str, str] = {}
    options = option_defaults(python.tree) or {}
    for key, cell in _flatten("", made):
        value = cell.value
        start, end = python.place(cell.node)
        if cell.why:
            assumed[key] = cell.why
        elif option := option_of(cell.node, options):
            assumed[key] = f"`{option}` has this default in the file"
        if isinstance(value, UnreadValue):
            unread[key] = value.why
        known = None if isinstance(value, UnreadValue) else value
        entries[key] = JsonEntry(known, start, end)
        if len(entries) > _MOST_KEYS:
            raise PythonTextError(f"the recipe has more than {_MOST_KEYS:,} keys", start, end)
    return NeMoRecipe(entries, unread, assumed)


def _follow_script(python: PythonText, neighbor: Callable[[str], str | None]) -> Entity | None:
    """Return the object that a script without recipes passes to the training function, or None."""
    if any(isinstance(one, Function) and _is_recipe(one) for one in python.tree.body):
        return None
    return _follow_training(python, neighbor)


def _follow_training(python: PythonText, neighbor: Callable[[str], str | None]) -> Entity | None:
    """Return the object that a script passes to the training function, or None."""
    library = _ScriptLibrary(python, neighbor)
    follower = Follower(python.tree, library, {"__name__": "__main__"})
    follower.run_file(python.tree, lambda _: False)
    if len(library.jobs) > 1:
        start, end = python.place(library.jobs[1].node)
        raise PythonTextError("the script trains twice", start, end, "keep one of the calls")
    if not library.jobs:
        return None
    job = library.jobs[0]
    for path, value in table("nemo")["script"]["defaults"].items():
        if _is_left_out(job, path):
            why = f"{_LIBRARY['version']}: {path.rpartition('.')[2]} is {str(value).lower()}"
            _put_path(job, path, Cell(value, job.node, path, why))
    return job


def _follow_start(python: PythonText, neighbor: Callable[[str], str | None]) -> Entity | None:
    """Return the recipe that the script itself runs, with its changes, or None."""
    library = _NeMoLibrary(python, neighbor)
    follower = Follower(python.tree, library, {"__name__": "__main__"})
    try:
        follower.run_file(python.tree, lambda _: False)
    except PythonTextError:
        return None
    if len(library.started) > 1:
        start, end = python.place(library.started[1].node)
        names = (one.name for one in python.tree.body if isinstance(one, Function))
        ways = " | ".join(f"--recipe {one}" for one in names if one.endswith("recipe"))
        raise PythonTextError("the script starts several recipes", start, end, ways)
    return next(iter(library.started), None)


def _is_left_out(job: Entity, path: str) -> bool:
    """Return whether a job leaves the attribute at *path* to the default of its class."""
    place: Any = job
    for name in path.split("."):
        if not isinstance(place, Entity):
            return False
        if name not in place.cells:
            return True
        place = place.cells[name].value
    return False


def _select_recipe(python: PythonText, follower: Follower, name: str) -> Function:
    found = [one for one in python.tree.body if isinstance(one, Function) and _is_recipe(one)]
    if name in follower.functions:
        return follower.functions[name]
    if not found and not name:
        raise PythonTextError("the file has no function that makes a recipe of NeMo-Run", 0, 1)
    recipes = {one.name: one for one in found}
    return choose_function(python, recipes, list(recipes), name)


def _is_recipe(function: Function) -> bool:
    """Return whether a function returns a whole job, by its return type or its name."""
    if function.returns is not None:
        return "Partial" in ast.unparse(function.returns) and not function.name.startswith("_")
    return function.name.endswith(("recipe", "recipe_configs"))


def _flatten(prefix: str, entity: Entity) -> Iterator[tuple[str, Cell]]:
    """Yield the values of an entity by dotted key, nested ones included."""
    if prefix.count(".") > _DEEPEST:  # an object may be in itself
        yield prefix, Cell(UnreadValue("it is nested too deeply"), entity.node, "")
        return
    kind = Cell(f"nemo.{entity.kind}", entity.node, "")
    yield f"{prefix}_target_", kind
    for name, cell in entity.cells.items():
        if isinstance(cell.value, list) and all(isinstance(one, str) for one in cell.value):
            yield f"{prefix}{name}", cell
            continue
        values = cell.value if isinstance(cell.value, list) else [cell.value]
        alone = len(values) == 1
        for place, value in enumerate(values):
            key = f"{prefix}{name}" if alone and name != "callbacks" else f"{prefix}{name}.{place}"
            if isinstance(value, Entity):
                yield from _flatten(f"{key}.", value)
            elif isinstance(value, DottedName):
                yield key, Cell(value.name.rpartition(".")[2], cell.node, cell.key, cell.why)
            else:
                kinds = (int, float, str, UnreadValue, type(None))
                if isinstance(cell.value, list) or not isinstance(value, kinds):
                    value = UnreadValue("it is neither a number nor a text nor a boolean")  # noqa: PLW2901
                yield key, Cell(value, cell.node, cell.key, cell.why)


def _imports(tree: ast.Module) -> Mapping[str, str]:
    """Return the full name of each imported object, by its local name."""
    found: dict[str, str] = {}
    for statement in ast.walk(tree):
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            module = getattr(statement, "module", None)
            for alias in statement.names:
                full = f"{module}.{alias.name}" if module else alias.name
                if module or alias.asname:
                    found[alias.asname or alias.name] = full
    return found


def _put_path(entity: Entity, path: str, cell: Cell) -> None:
    """Set the value at a dotted key, and create the configurations on its path."""
    name, _, rest = path.partition(".")
    if not rest:
        if name == "_target_":
            entity.kind = str(cell.value)
        else:
            entity.cells[name] = cell
        return
    inner = entity.cells.setdefault(name, Cell(Entity("object", cell.node), cell.node, name))
    if rest.startswith("0."):  # the only one of a list
        if not isinstance(inner.value, list):
            entity.cells[name] = inner = Cell([Entity("object", cell.node)], cell.node, name)
        _put_path(inner.value[0], rest.removeprefix("0."), cell)
    else:
        _put_path(inner.value, rest, cell)


def _place_cells(entity: Entity, own: Collection[ast.AST], node: ast.AST) -> None:
    """Place settings of other files at *node*; the nodes *own* are of this file."""
    if entity.node not in own:
        entity.node = node
    for name, cell in entity.cells.items():
        for one in cell.value if isinstance(cell.value, list) else [cell.value]:
            if isinstance(one, Entity):
                _place_cells(one, own, node)
        if cell.node not in own:
            entity.cells[name] = Cell(cell.value, node, cell.key, cell.why)


def _make_object(
    kind: str, node: ast.Call, arguments: Sequence[Any], keywords: Mapping[str, Cell]
) -> Entity:
    """Return an object of a class; the first argument of a model is its configuration."""
    cells = dict(keywords)
    if arguments and isinstance(arguments[0], Entity):
        cells.setdefault("config", Cell(arguments[0], node, "config"))
    return Entity(kind, node, cells)


def _call_factories(
    follower: Follower, node: ast.Call, keywords: Mapping[str, Cell]
) -> Iterator[tuple[str, Cell]]:
    """Yield the arguments of a configuration; a function of the file is called."""
    names = {one.arg: dotted_name(one.value) for one in node.keywords}
    for name, cell in keywords.items():
        function = follower.functions.get(names.get(name, ""))
        if function is None or not isinstance(cell.value, UnreadValue):
            yield name, cell
        else:
            yield name, Cell(follower.call_function(function, {}), cell.node, name)


class _NeMoLibrary(CodeLibrary):
    """The results of functions of NeMo and NeMo-Run."""

    def __init__(self, python: PythonText, neighbor: Callable[[str], str | None]) -> None:
        """Read the imports of a file; *neighbor* returns files beside it."""
        self._python = python
        self._neighbor = neighbor
        self._imports = _imports(python.tree)
        self.options = option_defaults(python.tree) or {}
        self.started: list[Entity] = []

    def call(self, follower: Follower, call: CodeCall) -> Any:
        """Return the result of a function of another module, by its file or by the tables."""
        name, node, arguments, keywords = call
        last = call.last
        if last in _MAKERS:
            first = arguments[0] if arguments else None
            kind = first.name.rpartition(".")[2] if isinstance(first, DottedName) else "object"
            return Entity(kind, node, dict(_call_factories(follower, node, keywords)))
        known = table("nemo")["plugins"].get(last)
        if known is not None:
            cells = {one: Cell(value, node, last) for one, value in known.items()}
            return Entity("MegatronMixedPrecision", node, cells)
        if last.startswith("distributed_fused_adam"):
            on = {"use_distributed_optimizer": Cell(True, node, last)}
            config = Entity("OptimizerConfig", node, on)
            return Entity("Optimizer", node, {"config": Cell(config, node, last)})
        first, dot, rest = name.partition(".")
        full = f"{self._imports.get(first, first)}{dot}{rest}"
        if last[:1].isupper() and full.startswith(_PACKAGES):
            return _make_object(last, node, arguments, keywords)
        module = full.rpartition(".")[0].replace(".", "/")
        text = self._neighbor(f"{module}.py") if module else None
        if text is not None:
            return self._follow_file(follower, PythonText(text), call._replace(name=full))
        if last in _RECIPES and "." in full:
            return self._follow_library(call._replace(name=full))
        if last in table("nemo")["performance"]["harmless"] and arguments:
            return arguments[0]
        if last == table("nemo")["performance"]["function"] and arguments:
            return self._leave_to_arguments(node, arguments)
        if last in _STARTERS and arguments and isinstance(arguments[0], Entity):
            if all(one is not arguments[0] for one in self.started):
                self.started.append(arguments[0])
            return None
        given = [cell.value for cell in keywords.values() if last.islower()]
        jobs = [one for one in given if isinstance(one, Entity) and "trainer" in one.cells]
        if jobs or any(isinstance(one, Entity) for one in arguments):
            start, end = self._python.place(node)
            why = f"`{name}` changes the recipe, but `{module}.py` is not beside this file"
            raise PythonTextError(
                why, start, end, "put that file beside it, or write its changes here"
            )
        if not name:  # a method of a value
            return UnreadValue("it is code, which parcost does not run")
        return super().call(follower, call)

    def _follow_file(self, follower: Follower, python: PythonText, call: CodeCall) -> Any:
        """Return the result of a function of a file in the same folder.

        Raises:
            PythonTextError: The file has no such function, or it is not followed.
        """
        name, node, arguments, keywords = call
        start, end = self._python.place(node)
        inner = follower.make_follower(python.tree, _NeMoLibrary(python, self._neighbor))
        function = inner.functions.get(call.last)
        if function is None:
            raise PythonTextError(f"the file beside this one has no function `{name}`", start, end)
        names = (one.arg for one in (*function.args.posonlyargs, *function.args.args))
        values = dict(zip(names, arguments, strict=False))
        values |= {one: cell.value for one, cell in keywords.items()}
        try:
            made = inner.call_function(function, values)
        except PythonTextError as error:
            raise PythonTextError(f"`{name}`: {error}", start, end, error.help) from None
        own = set(ast.walk(self._python.tree))
        for one in (made, *values.values()):
            if isinstance(one, Entity):
                _place_cells(one, own, node)
        return made

    def _follow_library(self, call: CodeCall) -> Any:
        """Return the configuration or the model of a NeMo recipe."""
        name, node, arguments, keywords = call
        start, end = self._python.place(node)
        owner, _, last = name.rpartition(".")
        family = owner.rpartition(".")[2]
        made = "pretrain_recipe" if last == "model" else last
        scheme = keywords["peft_scheme"].value if "peft_scheme" in keywords else _ADAPTERS
        thin = made == "finetune_recipe" and scheme == _ADAPTERS
        row = f"{family}.{made} {_ADAPTERS}" if thin else f"{family}.{made}"
        values = _LIBRARY["recipes"].get(row)
        if values is None:
            why = f"`{name}` comes from another file, which parcost does not read"
            raise PythonTextError(why, start, end, "give the file of that recipe")
        why = f"{_LIBRARY['version']}: {row}"
        places, others = _LIBRARY["arguments"], _LIBRARY["other_arguments"]["names"]
        strange = next((one for one in keywords if one not in places and one not in others), None)
        if strange is not None or len(arguments) > len(_FIRST):
            shown = f"`{strange}`" if strange is not None else "arguments without a name"
            raise PythonTextError(f"the settings of {shown} of `{name}` are unknown", start, end)
        given = {one: cell.value for one, cell in keywords.items()}
        whole = {**_LIBRARY["common"], **values}
        fast = given.get("performance_mode", False)
        if fast is True:
            faster = _LIBRARY["recipes"].get(f"{row} performance", {})
            whole = {**whole, **faster, "without": faster.get("without", whole.get("without", ()))}
            why = f"{why} with performance_mode"
        elif fast is not False:
            raise PythonTextError("the value of performance_mode is unknown", start, end)
        recipe = Entity(made, node)
        for path, value in whole.items():
            if path != "without" and path not in whole.get("without", ()):
                _put_path(recipe, path, Cell(value, node, path, why))
        if last == "model":
            return recipe.cells["model"].value
        for one, cell in keywords.items():
            if one in places and cell.value is not None:
                _put_path(recipe, places[one], cell)
        if made == "finetune_recipe" and scheme not in (None, "none", _ADAPTERS):
            adapter = Entity(str(scheme), node)
            recipe.cells["peft"] = Cell(adapter, node, "peft_scheme")
        return recipe

    def _leave_to_arguments(self, node: ast.Call, arguments: Sequence[Any]) -> Any:
        """Return a recipe with settings from command-line arguments marked as unknown."""
        rules = table("nemo")["performance"]
        for path, value in rules["sets"].items():
            _put_path(arguments[0], path, Cell(value, node, path, rules["function"]))
        for path in rules["places"]:
            why = f"`{rules['function']}` sets it to an argument of the command line"
            _put_path(arguments[0], path, Cell(UnreadValue(why), node, path))
        return arguments[0]


class _ScriptLibrary(_NeMoLibrary):
    """Calls in a script that builds its objects itself, and the *jobs* that it trains."""

    def __init__(self, python: PythonText, neighbor: Callable[[str], str | None]) -> None:
        super().__init__(python, neighbor)
        self.jobs: list[Entity] = []

    def call(self, follower: Follower, call: CodeCall) -> Any:
        """Return an object with the arguments of its class; a model's first one is its config."""
        name, node, arguments, keywords = call
        last = call.last
        cells = dict(keywords)
        if last in _TRAINERS:
            cells |= {
                parameter: Cell(one, node, parameter)
                for parameter, one in zip(_TRAINED, arguments, strict=False)
            }
            if isinstance(getattr(cells.get("model"), "value", None), Entity):
                self.jobs.append(Entity(last, node, cells))
            return None
        if last in _MAKERS or not last[:1].isupper():
            own = [] if last in _MAKERS else [one for one in arguments if isinstance(one, Entity)]
            if own:
                return UnreadValue(f"`{name}` comes from another file, which parcost does not read")
            return super().call(follower, call)
        return _make_object(last, node, arguments, cells)
