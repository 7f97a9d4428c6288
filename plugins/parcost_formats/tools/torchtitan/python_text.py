"""Configurations of torchtitan in Python, which is parsed and not run."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from parcost_formats.tools.drafts import Option
from parcost_formats.tools.python_values import (
    DottedName,
    PythonText,
    PythonTextError,
    UnreadError,
    choose_function,
    constants,
    dotted_name,
    static_value,
)
from parcost_formats.tools.tables import table

_CONDITIONS = (ast.If, ast.For, ast.While, ast.Match, ast.Try)
_RECOMPUTE = {"FullAC": "full", "SelectiveAC": "selective", "MemoryBudgetAC": "memory_budget"}
_CHUNKED = ("ChunkedLossWrapper", "ChunkedCELoss")
_CONVERTERS = {"Float8LinearConverter": "float8", "Float8GroupedExpertsConverter": "float8_experts"}
_DEEPEST = 8
_OF_SETATTR = 3  # arguments
_SECTIONS = {"model_spec": "model.", "loss": "loss"}  # names of fields, where a section has others
_UNRUN = "it is set inside `if`, which parcost does not evaluate"


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
    makers = {name: one for name, one in functions.items() if _makes(one)}
    if not makers:
        raise PythonTextError("the file has no function that returns a Trainer.Config", 0, 3)
    called = {
        dotted_name(node.func)
        for one in makers.values()
        for node in ast.walk(one)
        if isinstance(node, ast.Call)
    }
    jobs = {name: one for name, one in makers.items() if not _needs_more(one)} or makers
    function = choose_function(python, jobs, [name for name in jobs if name not in called], recipe)
    reader = _ConfigurationReader(python, functions)
    reader.visit(function)
    if reader.foreign:
        raise reader.foreign
    return TitanConfiguration(reader.options, reader.unread, function.name)


def _makes(function: ast.FunctionDef) -> bool:
    """Return whether a function makes a configuration."""
    returned = function.returns
    if returned is not None and dotted_name(returned).endswith("Trainer.Config"):
        return True
    return any(isinstance(node, ast.Call) and _is_trainer(node) for node in ast.walk(function))


def _needs_more(function: ast.FunctionDef) -> bool:
    """Return whether a function has arguments without a default: no launcher calls it."""
    return len(function.args.args) > len(function.args.defaults)


def _is_trainer(call: ast.Call) -> bool:
    name = dotted_name(call.func)
    return name.endswith(("Trainer.Config", "TrainerConfig")) or name == "JobConfig"


class _ConfigurationReader:
    """Reads the statements of functions in order."""

    def __init__(self, python: PythonText, functions: Mapping[str, ast.FunctionDef]) -> None:
        self.options: dict[str, Option] = {}
        self.unread: list[Option] = []
        self._python = python
        self._functions = functions
        self._names: dict[str, Any] = dict(constants(python.tree.body))
        self._models = _models(python.tree.body)
        self._values: dict[str, ast.expr] = {}  # of variables that are not constants
        self._visited: list[str] = []
        self._made: set[str] = set()  # variables that hold the configuration
        self.foreign: PythonTextError | None = None  # why the configuration is not read

    def visit(self, function: ast.FunctionDef) -> None:
        """Read a function."""
        self._visited.append(function.name)
        self._body(function.body, uncertain=False)
        self._visited.pop()

    def _body(self, body: Sequence[ast.stmt], *, uncertain: bool) -> None:
        for statement in body:
            if isinstance(statement, _CONDITIONS):
                for name in ("body", "orelse", "finalbody"):
                    self._body(getattr(statement, name, []), uncertain=True)
            elif isinstance(statement, ast.With):
                self._body(statement.body, uncertain=uncertain)
            elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                target = dotted_name(statement.targets[0])
                self._assign(target, statement, statement.value, uncertain)
            elif isinstance(statement, ast.AnnAssign) and statement.value:
                self._assign(dotted_name(statement.target), statement, statement.value, uncertain)
            elif isinstance(statement, ast.AugAssign):
                result = ast.BinOp(statement.target, statement.op, statement.value)
                self._assign(dotted_name(statement.target), statement, result, uncertain)
            elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                self._run(statement.value, uncertain)
            elif isinstance(statement, ast.Return):
                self._return(statement.value)

    def _assign(self, target: str, statement: ast.stmt, value: ast.expr, uncertain: bool) -> None:
        first, _, field = target.partition(".")
        if field:
            self._change(field, statement, value, uncertain)
            return
        if not first:
            return
        self._values[first] = value
        self._names.pop(first, None)
        if isinstance(value, ast.Call) and self._call(value):
            self._made.add(first)
            return
        if isinstance(value, ast.Call):
            self._run(value, uncertain)
        try:
            self._names[first] = static_value(value, self._names)
        except UnreadError:
            return

    def _return(self, value: ast.expr | None) -> None:
        """Read what a function returns: a configuration, which must not be code of another file."""
        made = isinstance(value, ast.Name) and value.id in self._made
        if isinstance(value, ast.Call) and self._call(value):
            return
        if isinstance(value, ast.Name):
            value = self._values.get(value.id)
        if isinstance(value, ast.Call) and not made and not self.foreign:
            start, end = self._python.place(value)
            name = dotted_name(value.func)
            message = f"`{name}` makes the configuration, and is code of another file"
            self.foreign = PythonTextError(message, start, end)

    def _run(self, call: ast.Call, uncertain: bool) -> None:
        """Read a call that changes a configuration: ``setattr``, or a function of the file."""
        name, places = dotted_name(call.func), [dotted_name(one) for one in call.args]
        changed = [one for one in places if one.partition(".")[0] in self._made]
        if not changed:
            return
        word = call.args[1] if len(call.args) == _OF_SETATTR else None
        function = self._functions.get(name)
        if name == "setattr" and isinstance(word, ast.Constant) and isinstance(word.value, str):
            field = f"{changed[0].partition('.')[2]}.{word.value}".lstrip(".")
            self._change(field, call, call.args[2], uncertain)
        elif function is not None and len(self._visited) < _DEEPEST:
            self._follow(function, call, uncertain)
        else:
            why = "it may change the configuration, and is code"
            self._leave(f"{name}({changed[0]})", call, why)

    def _follow(self, function: ast.FunctionDef, call: ast.Call, uncertain: bool) -> None:
        """Read a function of the file that changes its arguments."""
        outside, parameters = dict(self._names), [one.arg for one in function.args.args]
        given = dict(zip(parameters, call.args, strict=False))
        given |= {one.arg: one.value for one in call.keywords if one.arg}
        for parameter in [*parameters, *(one.arg for one in function.args.kwonlyargs)]:
            self._names.pop(parameter, None)
        for parameter, value in given.items():
            if dotted_name(value) in self._made:
                self._made.add(parameter)
            with suppress(UnreadError):  # the name has no value then
                self._names[parameter] = static_value(value, outside)
        self._visited.append(function.name)
        self._body(function.body, uncertain=uncertain)
        self._visited.pop()
        self._names = outside

    def _call(self, call: ast.Call) -> bool:
        """Read a call that creates a configuration; return whether it does."""
        name = dotted_name(call.func)
        if name in ("replace", "dataclasses.replace") and call.args:
            base = call.args[0]
            known = isinstance(base, ast.Name) and base.id in self._made
            if not known and not (isinstance(base, ast.Call) and self._call(base)):
                return False
            for keyword in call.keywords:
                if keyword.arg:
                    self._change(keyword.arg, keyword, keyword.value, False)
            return True
        if _is_trainer(call):
            for keyword in call.keywords:
                if keyword.arg:
                    self._field(keyword.arg, keyword.arg, keyword, keyword.value)
            return True
        function = self._functions.get(name)
        if function is None and self._of_library(name, call):
            return True
        if function is None or not _makes(function):
            return False
        if name not in self._visited and len(self._visited) < _DEEPEST:
            self.visit(function)
        return True

    def _of_library(self, name: str, call: ast.Call) -> bool:
        """Set what a function of torchtitan's registry has; return whether it is a known one."""
        family = self._models.get(name)
        own = table("torchtitan")["registry"].get(name.rpartition(".")[2])
        if own is None or own["model.name"] != family or call.args or call.keywords:
            return False
        why = f"torchtitan 0.3: {name}()"
        for field, value in own.items():
            option = self._option(field, f"{name}()", call)
            found = option.evolve(texts=texts(value), value=value, assumption=why)
            self.options[option.name] = found
        for field, reason in table("torchtitan")["registry_differs"].items():
            self.options[field] = self._option(field, f"{name}()", call).evolve(unread=reason)
        return True

    # Fields

    def _change(self, field: str, node: ast.AST, value: ast.expr, uncertain: bool) -> None:
        """Read an assignment; a section that is replaced keeps none of its fields."""
        before = dict(self.options)
        if isinstance(value, ast.Call) and "." not in field:
            prefix = _SECTIONS.get(field, f"{field}.")
            for name in [one for one in before if one.startswith(prefix)]:
                del self.options[name]
        self._field(field, field, node, value)
        if uncertain:
            for name in {*before, *self.options}:
                one = self.options.get(name)
                if one is None or before.get(name) is not one:
                    self.options[name] = (one or before[name]).evolve(unread=_UNRUN)

    def _field(self, name: str, key: str, node: ast.AST, value: ast.expr) -> None:
        """Read a field, or the fields of a section."""
        if isinstance(value, ast.Name) and isinstance(self._values.get(value.id), ast.Call):
            value = self._values[value.id]
        if name in ("model_spec", "model"):
            self._model(key, node, value)
        elif name == "activation_checkpoint":
            self._recompute(key, node, value)
        elif name == "loss":
            self._loss(key, node, value)
        elif name == "optimizer" and isinstance(value, ast.Call):
            self._optimizer(key, node, value)
        elif name in ("model_converters", "model.converters"):
            self._converters(key, node, value)
        elif isinstance(value, ast.Call) and "." not in name:
            section = table("torchtitan")["classes"].get(dotted_name(value.func), name)
            for keyword in value.keywords:
                if keyword.arg:
                    self._field(
                        f"{section}.{keyword.arg}",
                        f"{key}.{keyword.arg}",
                        keyword,
                        keyword.value,
                    )
            known = section in table("torchtitan")["classes"].values()
            if not value.keywords and not known:
                self._set(name, key, node, value)
        else:
            self._set(name, key, node, value)

    def _set(self, name: str, key: str, node: ast.AST, value: ast.expr) -> None:
        option = self._option(name, key, node)
        try:
            found = static_value(value, self._names)
        except UnreadError as error:
            self.options[option.name] = option.evolve(unread=str(error))
            return
        self.options[option.name] = option.evolve(texts=texts(found), value=found)

    def _model(self, key: str, node: ast.AST, value: ast.expr) -> None:
        """Read ``model_registry("70B")``; the family is the module that it is imported from."""
        call = value
        if not isinstance(call, ast.Call):
            self._leave(key, node, "it is code, which parcost does not run")
            return
        argument = call.args[0] if call.args else None
        for keyword in call.keywords:
            if keyword.arg == "flavor":
                argument = keyword.value
            elif keyword.arg == "converters":
                self._converters(f"{key}.converters", keyword, keyword.value)
            elif keyword.arg:
                self._set(f"model.{keyword.arg}", f"{key}.{keyword.arg}", keyword, keyword.value)
        if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
            self._leave(key, node, "its flavor is not a constant")
            return
        one = self._option("model.flavor", key, node)
        self.options["model.flavor"] = one.evolve(texts=(argument.value,))
        family = self._models.get(dotted_name(call.func))
        if family:
            named = self._option("model.name", key, node)
            self.options["model.name"] = named.evolve(texts=(family,))

    def _recompute(self, key: str, node: ast.AST, value: ast.expr) -> None:
        if isinstance(value, ast.Constant) and value.value is None:
            one = self._option("activation_checkpoint.mode", key, node)
            self.options[one.name] = one.evolve(texts=("none",))
            return
        name = dotted_name(value.func) if isinstance(value, ast.Call) else ""
        mode = next((word for part, word in _RECOMPUTE.items() if part in name.split(".")), None)
        if mode is not None:
            one = self._option("activation_checkpoint.mode", key, node)
            self.options[one.name] = one.evolve(texts=(mode,))
        elif not isinstance(value, ast.Call):
            self._leave(key, node, "it is code, which parcost does not run")
        if isinstance(value, ast.Call):
            for keyword in value.keywords:
                if keyword.arg:
                    name = f"activation_checkpoint.{keyword.arg}"
                    self._set(name, f"{key}.{keyword.arg}", keyword, keyword.value)

    def _loss(self, key: str, node: ast.AST, value: ast.expr) -> None:
        """Read a loss computed in chunks."""
        if not isinstance(value, ast.Call):
            self._leave(key, node, "it is code, which parcost does not run")
            return
        option = self._option("loss", key, node)
        chunked = any(part in dotted_name(value.func).split(".") for part in _CHUNKED)
        count = next((one.value for one in value.keywords if one.arg == "num_chunks"), None)
        number = str(count.value) if isinstance(count, ast.Constant) else "8"
        self.options["loss"] = option.evolve(
            texts=(number if chunked else "1",),
            assumption="" if count or not chunked else "the default of num_chunks",
        )

    def _converters(self, key: str, node: ast.AST, value: ast.expr) -> None:
        """Read model converters, by their classes."""
        if isinstance(value, ast.Name) and value.id in self._values:
            value = self._values[value.id]
        one = self._option("model.converters", key, node)
        found: list[str] = []
        for call in ast.walk(value):
            name = dotted_name(call.func) if isinstance(call, ast.Call) else ""
            parts = [part for part in name.split(".") if part.endswith("Converter")]
            if not isinstance(call, ast.Call) or not parts:
                continue
            found.append(_CONVERTERS.get(parts[0], parts[0]))
            if found[-1] == "float8":
                for keyword in call.keywords:
                    if keyword.arg:
                        field = f"float8.{keyword.arg}"
                        self._set(field, f"{key}.{keyword.arg}", keyword, keyword.value)
        empty = isinstance(value, (ast.List, ast.Tuple)) and not value.elts
        unread = "" if found or empty or isinstance(value, ast.Constant) else "it is code"
        self.options[one.name] = one.evolve(texts=tuple(found), unread=unread)

    def _optimizer(self, key: str, node: ast.AST, value: ast.Call) -> None:
        """Read the optimizer, which must be the same for all parameter groups."""
        made = dotted_name(value.func)
        names = [
            one.value.value
            for one in ast.walk(value)
            if isinstance(one, ast.keyword)
            and one.arg in ("name", "optimizer_name")
            and isinstance(one.value, ast.Constant)
        ]
        if "OptimizersContainer" not in made and "adam" not in made.lower():
            names.append(made.removesuffix(".Config"))
        for keyword in value.keywords:
            if keyword.arg and keyword.arg not in ("name", "param_groups"):
                field = f"{key}.{keyword.arg}"
                self._set(f"optimizer.{keyword.arg}", field, keyword, keyword.value)
        if "InBackward" in made:
            option = self._option("optimizer.early_step_in_backward", key, node)
            self.options[option.name] = option.evolve(texts=("true",))
            names = [name for name in names if "InBackward" not in str(name)]
        if names:
            option = self._option("optimizer.name", key, node)
            others = [str(name) for name in names if name not in ("Adam", "AdamW")]
            self.options[option.name] = option.evolve(texts=tuple(others[:1] or ["AdamW"]))

    def _option(self, name: str, key: str, node: ast.AST) -> Option:
        start, end = self._python.place(node)
        name = str(table("torchtitan")["aliases"].get(name, name))
        return Option(name=name, key=key, start=start, end=end)

    def _leave(self, key: str, node: ast.AST, why: str) -> None:
        self.unread.append(self._option("", key, node).evolve(unread=why))


def texts(value: Any) -> Sequence[str]:
    """Return a value as texts; switches are ``true`` or ``false``.

    >>> texts(True), texts(-1), texts(["model", "loss"]), texts(None)
    (('true',), ('-1',), ('model', 'loss'), ())
    """
    if value is None:
        return ()
    if isinstance(value, DottedName):
        return (value.name.rpartition(".")[2],)
    if isinstance(value, bool):
        return ("true" if value else "false",)
    if isinstance(value, list):
        return tuple(str(one) for one in value)
    return (str(value),)


def _models(body: Sequence[ast.stmt]) -> Mapping[str, str]:
    """Return the model family of each imported function."""
    found: dict[str, str] = {}
    for statement in body:
        if isinstance(statement, ast.ImportFrom) and ".models." in f".{statement.module or ''}.":
            family = (statement.module or "").rpartition("models.")[2].partition(".")[0]
            for alias in statement.names:
                found[alias.asname or alias.name] = family
    return found
