"""Configurations of torchtitan in Python: constants are evaluated, and nothing is run."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from parcost_formats.tools.drafts import Option, texts_of
from parcost_formats.tools.python_code import (
    BUILTINS,
    IMPLIED,
    Cell,
    CodeCall,
    CodeLibrary,
    Entity,
    Follower,
    UnreadValue,
)
from parcost_formats.tools.python_values import (
    DottedName,
    PythonText,
    PythonTextError,
    choose_function,
    dotted_name,
)
from parcost_formats.tools.tables import table

_JOB = "Trainer.Config"
_RECOMPUTE = {"FullAC": "full", "SelectiveAC": "selective", "MemoryBudgetAC": "memory_budget"}
_CHUNKED = ("ChunkedLossWrapper", "ChunkedCELoss")
_CONVERTERS = {"Float8LinearConverter": "float8", "Float8GroupedExpertsConverter": "float8_experts"}
_FIRST = ""  # the cell of the first argument, which has no name
_CODE = "it is code, which parcost does not run"


class TitanConfiguration(NamedTuple):
    """The fields that a function sets, its unknown fields, and its *name*."""

    options: Mapping[str, Option]
    unread: Sequence[Option]
    name: str


def read_configuration(text: str, recipe: str = "") -> TitanConfiguration:
    """Return the configuration in a Python file: the only one, or the function *recipe*.

    Raises:
        PythonTextError: The file is not Python, or it lacks the configuration.
    """
    python = PythonText(text)
    functions = {one.name: one for one in python.tree.body if isinstance(one, ast.FunctionDef)}
    makers = _makers(functions)
    if not makers:
        raise PythonTextError("the file has no function that returns a Trainer.Config", 0, 3)
    called = {name for one in makers.values() for name in _calls(one)}
    jobs = {name: one for name, one in makers.items() if not _needs_more(one)} or makers
    tops = [name for name in jobs if not (name.startswith("_") and name in called)]
    function = choose_function(python, jobs, tops, recipe)
    library = _TitanLibrary(python.tree)
    made = Follower(python.tree, library, {}).call_function(function, {})
    if not isinstance(made, Entity):
        why = made.why if isinstance(made, UnreadValue) else "it returns no configuration"
        raise PythonTextError(
            f"`{function.name}` cannot be interpreted: {why}", *python.place(function)
        )
    if made.kind != _JOB:
        message = f"`{made.kind}` makes the configuration and is defined in another file"
        raise PythonTextError(message, *python.place(made.node))
    reader = _ConfigurationReader(python, library)
    reader.read(made)
    return TitanConfiguration(reader.options, reader.unread, function.name)


def _makers(functions: Mapping[str, ast.FunctionDef]) -> Mapping[str, ast.FunctionDef]:
    """Return the functions that create a configuration, or that change the one of another
    function.
    """
    makers = {name for name, one in functions.items() if _makes(one)}
    callers: dict[str, list[str]] = {}
    for name, one in functions.items():
        if name not in makers and _returns_object(one):
            for called in _calls(one):
                callers.setdefault(called, []).append(name)
    starts = {name for name in callers if name in table("torchtitan")["registry"]} - {*functions}
    queue = [*makers, *starts]
    while queue:
        more = [name for name in callers.pop(queue.pop(), ()) if name not in makers]
        makers.update(more)
        queue += more
    return {name: one for name, one in functions.items() if name in makers}


def _makes(function: ast.FunctionDef) -> bool:
    """Return whether a function makes a configuration of its own, by its type or its calls."""
    returned = function.returns
    if returned is not None and dotted_name(returned).endswith(_JOB):
        return True
    return any(_is_job(name) for name in _calls(function))


def _returns_object(function: ast.FunctionDef) -> bool:
    """Return whether a function returns an object that it names or creates, not a part of one."""
    found = (node.value for node in ast.walk(function) if isinstance(node, ast.Return))
    return any(isinstance(one, (ast.Name, ast.Call)) for one in found)


def _calls(function: ast.FunctionDef) -> set[str]:
    """Return the names of the functions that a function calls."""
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
    return {dotted_name(one.func) for one in calls}


def _needs_more(function: ast.FunctionDef) -> bool:
    """Return whether a function has arguments without a default, so that no launcher calls it."""
    return len(function.args.args) > len(function.args.defaults)


def _is_job(name: str) -> bool:
    return name.endswith((_JOB, "TrainerConfig")) or name == "JobConfig"


class _TitanLibrary(CodeLibrary):
    """The results of calls to torchtitan: objects with the arguments of the call.

    *families* are the models of imported functions. *changes* are calls that may change a
    configuration.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.families = _families(tree.body)
        self.changes: list[tuple[str, ast.expr]] = []

    def call(self, follower: Follower, call: CodeCall) -> Any:
        """Return an object with the arguments of a call, or the result of a Python function."""
        name, node, arguments, keywords = call
        first = arguments[0] if arguments else None
        if name in ("replace", "dataclasses.replace") and isinstance(first, Entity):
            return Entity(first.kind, first.node, {**first.cells, **keywords})
        if name in BUILTINS:
            return super().call(follower, call)
        if (known := self._start(node)) is not None:
            return known
        kind = _JOB if _is_job(name) else dotted_name(node.func) or name
        for one, value in zip(node.args, arguments, strict=False):
            place = dotted_name(one)
            if isinstance(value, Entity) and (value.kind == _JOB or "." in place):
                self.changes.append((f"{kind}({place})", node))
        return Entity(kind, node, {_FIRST: Cell(first, node, _FIRST), **keywords})

    def _start(self, node: ast.Call) -> Entity | None:
        """Return the configuration that a function of torchtitan's registry makes, if known."""
        name = dotted_name(node.func)
        own = table("torchtitan")["registry"].get(name.rpartition(".")[2])
        if (
            own is None
            or own["model.name"] != self.families.get(name)
            or node.args
            or node.keywords
        ):
            return None
        shown, why = f"{name}()", f"torchtitan 0.3: {name}()"
        made = Entity(_JOB, node)
        for path, value in own.items():
            section, _, attribute = path.partition(".")
            if path == "model.converters":
                parts = [Entity(f"{one}.Config", node) for one in value]
                made.cells["model_converters"] = Cell(parts, node, shown, why)
            elif section != "model":
                part = made.cells.setdefault(section, Cell(Entity(IMPLIED, node), node, section))
                part.value.cells[attribute] = Cell(value, node, shown, why)
        model = Entity(name, node, {_FIRST: Cell(own["model.flavor"], node, shown)})
        made.cells["model_spec"] = Cell(model, node, shown, why)
        for attribute, reason in table("torchtitan")["registry_differs"].items():
            made.cells[attribute] = Cell(UnreadValue(reason), node, shown)
        return made

    def decorate(self, made: Any, name: str, node: ast.expr) -> Any:
        """Return the configuration that its function creates; the decorator may change it."""
        self.changes.append((name, node))
        return made

    def method(self, owner: Entity, call: CodeCall) -> Any:
        """Return an unknown value, and list the call as a possible change."""
        self.changes.append((f"{call.name}()", call.node))
        return super().method(owner, call)


class _ConfigurationReader:
    """Reads the fields of a configuration."""

    def __init__(self, python: PythonText, library: _TitanLibrary) -> None:
        self.options: dict[str, Option] = {}
        self._python = python
        self._families = library.families
        self._doubt = ""  # why the fields that are read are uncertain
        self.unread = [
            self._option("", name, Cell(None, node, name)).evolve(
                unread="it is code that may change the configuration"
            )
            for name, node in library.changes
        ]

    def read(self, job: Entity) -> None:
        """Read all fields of a configuration."""
        for name, cell in job.cells.items():
            if name != _FIRST:
                self._field(name, name, cell)

    def _field(self, name: str, key: str, cell: Cell) -> None:
        """Read a field, or the fields of a section."""
        value = cell.value
        if isinstance(value, UnreadValue) and value.choices:
            outer, self._doubt = self._doubt, value.why
            for one in value.choices:
                self._field(name, key, Cell(one, cell.node, cell.key, cell.why))
            self._doubt = outer
        elif name in ("model_spec", "model"):
            self._model(key, cell)
        elif name == "activation_checkpoint":
            self._recompute(key, cell)
        elif name == "loss":
            self._loss(key, cell)
        elif name == "optimizer" and isinstance(value, Entity):
            self._optimizer(key, cell, value)
        elif name in ("model_converters", "model.converters"):
            self._converters(key, cell)
        elif isinstance(value, Entity) and "." not in name:
            classes = table("torchtitan")["classes"]
            section = classes.get(value.kind, name)
            fields = self._fields(value, section, key)
            if not fields and value.kind != IMPLIED and section not in classes.values():
                self._set(name, key, cell)
        else:
            self._set(name, key, cell)

    def _fields(self, section: Entity, name: str, key: str) -> bool:
        """Read the fields of a section called *name*, if it has some."""
        cells = {one: cell for one, cell in section.cells.items() if one != _FIRST}
        for one, cell in cells.items():
            self._field(f"{name}.{one}", f"{key}.{one}", cell)
        return bool(cells)

    def _set(self, name: str, key: str, cell: Cell) -> None:
        if isinstance(cell.value, Entity) and cell.value.kind == IMPLIED and not cell.value.cells:
            return  # code reads the field, and nothing sets it
        option = self._option(name, key, cell)
        unread = next(_unread_reasons(cell.value), "")
        if not unread:
            option = option.evolve(texts=texts(cell.value), value=cell.value)
        self._put(option.evolve(unread=unread))

    def _put(self, option: Option) -> None:
        self.options[option.name] = option.evolve(unread=option.unread or self._doubt)

    def _model(self, key: str, cell: Cell) -> None:
        """Read ``model_registry("70B")``; the family is the module that it is imported from."""
        call = cell.value
        if not isinstance(call, Entity):
            self._leave(key, cell, _CODE)
            return
        flavor = call.cells.get("flavor") or call.cells.get(_FIRST)
        for one, inner in call.cells.items():
            if one == "converters":
                self._converters(f"{key}.converters", inner)
            elif one not in (_FIRST, "flavor"):
                self._set(f"model.{one}", f"{key}.{one}", inner)
        if flavor is None or not isinstance(flavor.value, str):
            self._leave(key, cell, "its flavor is not a constant")
            return
        self._put(self._option("model.flavor", key, cell).evolve(texts=(flavor.value,)))
        if family := self._families.get(call.kind):
            self._put(self._option("model.name", key, cell).evolve(texts=(family,)))

    def _recompute(self, key: str, cell: Cell) -> None:
        value, option = cell.value, self._option("activation_checkpoint.mode", key, cell)
        if value is None:
            self._put(option.evolve(texts=("none",)))
        elif isinstance(value, Entity):
            parts = value.kind.split(".")
            mode = next((word for part, word in _RECOMPUTE.items() if part in parts), None)
            if mode is not None:
                self._put(option.evolve(texts=(mode,)))
            self._fields(value, "activation_checkpoint", key)
        else:
            self._leave(key, cell, next(_unread_reasons(value), _CODE))

    def _loss(self, key: str, cell: Cell) -> None:
        """Read a loss computed in chunks."""
        value, option = cell.value, self._option("loss", key, cell)
        if isinstance(value, UnreadValue):
            self._put(option.evolve(unread=value.why))
        elif not isinstance(value, Entity):
            self._leave(key, cell, _CODE)
        elif not any(part in value.kind.split(".") for part in _CHUNKED):
            self._put(option.evolve(texts=("1",)))
        elif (count := value.cells.get("num_chunks")) is None:
            self._put(option.evolve(texts=("8",), assumption="the default of num_chunks"))
        else:
            self._put(
                option.evolve(
                    texts=texts(count.value), unread=next(_unread_reasons(count.value), "")
                )
            )

    def _converters(self, key: str, cell: Cell) -> None:
        """Read model converters, by their classes."""
        found: list[str] = []
        unread = ""
        for one in _parts(cell.value):
            parts = one.kind.split(".") if isinstance(one, Entity) else []
            name = next((part for part in parts if part.endswith("Converter")), "")
            if isinstance(one, Entity) and name:
                found.append(_CONVERTERS.get(name, name))
                for attribute, inner in one.cells.items():
                    if attribute != _FIRST and found[-1] == "float8":
                        self._set(f"float8.{attribute}", f"{key}.{attribute}", inner)
            elif isinstance(one, UnreadValue) or (parts and parts[-1].islower()):
                unread = unread or next(_unread_reasons(one), "")
        option = self._option("model.converters", key, cell)
        self._put(option.evolve(texts=tuple(found), unread=unread))

    def _optimizer(self, key: str, cell: Cell, value: Entity) -> None:
        """Read the optimizer, which must be the same for all parameter groups."""
        made = value.kind
        names = [
            inner.value
            for one in _parts(value)
            if isinstance(one, Entity)
            for name, inner in one.cells.items()
            if name in ("name", "optimizer_name")
        ]
        unread = next((why for one in names for why in _unread_reasons(one)), "")
        if made != IMPLIED and "OptimizersContainer" not in made and "adam" not in made.lower():
            names.append(made.removesuffix(".Config"))
        for name, inner in value.cells.items():
            if name not in (_FIRST, "name", "param_groups"):
                self._set(f"optimizer.{name}", f"{key}.{name}", inner)
        if "InBackward" in made:
            option = self._option("optimizer.early_step_in_backward", key, cell)
            self._put(option.evolve(texts=("true",)))
            names = [name for name in names if "InBackward" not in str(name)]
        if names:
            option = self._option("optimizer.name", key, cell)
            others = [str(name) for name in names if name not in ("Adam", "AdamW")]
            self._put(option.evolve(texts=tuple(others[:1] or ["AdamW"]), unread=unread))

    def _option(self, name: str, key: str, cell: Cell) -> Option:
        start, end = self._python.place(cell.node)
        name = str(table("torchtitan")["aliases"].get(name, name))
        shown = cell.key if cell.why else key
        return Option(name=name, key=shown, start=start, end=end, assumption=cell.why)

    def _leave(self, key: str, cell: Cell, why: str) -> None:
        self.unread.append(self._option("", key, cell).evolve(unread=self._doubt or why))


def _parts(value: Any) -> Iterator[Any]:
    """Yield a value with the elements and arguments inside it, other than constants."""
    if isinstance(value, list):
        for one in value:
            yield from _parts(one)
    elif isinstance(value, Entity):
        yield value
        for cell in value.cells.values():
            yield from _parts(cell.value)
    elif isinstance(value, (UnreadValue, DottedName)):
        yield value


def _unread_reasons(value: Any) -> Iterator[str]:
    """Yield the reasons why a value is unknown."""
    if isinstance(value, UnreadValue):
        yield value.why
    elif isinstance(value, list):
        for one in value:
            yield from _unread_reasons(one)
    elif not isinstance(value, (int, float, str, DottedName, type(None))):
        yield _CODE


def texts(value: Any) -> Sequence[str]:
    """Return a value of Python as texts: that of a name is its last part."""
    return texts_of(value.name.rpartition(".")[2] if isinstance(value, DottedName) else value)


def _families(body: Sequence[ast.stmt]) -> Mapping[str, str]:
    """Return the model family of each imported function."""
    found: dict[str, str] = {}
    for statement in body:
        if isinstance(statement, ast.ImportFrom) and ".models." in f".{statement.module or ''}.":
            family = (statement.module or "").rpartition("models.")[2].partition(".")[0]
            for alias in statement.names:
                found[alias.asname or alias.name] = family
    return found
