"""Configurations of torchtitan in Python, which is parsed and not run."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from parcost_plugins.importers.drafts import Option
from parcost_plugins.importers.python_values import (
    DottedName,
    PythonText,
    PythonTextError,
    UnreadError,
    constants,
    dotted,
    static_value,
)
from parcost_plugins.importers.tables import table

_CONDITIONS = (ast.If, ast.For, ast.While, ast.Match, ast.Try)
_RECOMPUTE = {"FullAC": "full", "SelectiveAC": "selective", "MemoryBudgetAC": "memory_budget"}
_CHUNKED = ("ChunkedLossWrapper", "ChunkedCELoss")
_DEEPEST = 8
_UNRUN = "it is set under a condition, which is not run"


class Configuration(NamedTuple):
    """The fields that a configuration sets, and what of it is not read."""

    options: Mapping[str, Option]
    unread: Sequence[Option]


def read_configuration(text: str) -> Configuration:
    """Return what the configuration in a Python file sets.

    Raises:
        PythonTextError: The file is no Python, or has several configurations or none.
    """
    python = PythonText(text)
    functions = {one.name: one for one in python.tree.body if isinstance(one, ast.FunctionDef)}
    makers = [one for one in functions.values() if _makes(one)]
    called = {
        dotted(node.func) for one in makers for node in ast.walk(one) if isinstance(node, ast.Call)
    }
    tops = [one for one in makers if one.name not in called]
    if len(tops) != 1:
        names = ", ".join(one.name for one in tops[:8])
        start = python.place(tops[1])[0] if tops else 0
        message = (
            f"the file has several configurations ({names}): keep one"
            if tops
            else ("the file has no function that returns a Trainer.Config")
        )
        raise PythonTextError(message, start, start + 3)
    reader = _ConfigurationReader(python, functions)
    reader.visit(tops[0])
    return Configuration(reader.options, reader.unread)


def _makes(function: ast.FunctionDef) -> bool:
    """Return whether a function makes a configuration."""
    returned = function.returns
    if returned is not None and dotted(returned).endswith("Trainer.Config"):
        return True
    return any(isinstance(node, ast.Call) and _is_trainer(node) for node in ast.walk(function))


def _is_trainer(call: ast.Call) -> bool:
    name = dotted(call.func)
    return name.endswith("Trainer.Config") or name == "JobConfig"


class _ConfigurationReader:
    """Goes through the statements of functions in their order."""

    def __init__(self, python: PythonText, functions: Mapping[str, ast.FunctionDef]) -> None:
        self.options: dict[str, Option] = {}
        self.unread: list[Option] = []
        self._python = python
        self._functions = functions
        self._names: dict[str, Any] = dict(constants(python.tree.body))
        self._models = _models(python.tree.body)
        self._values: dict[str, ast.expr] = {}  # of variables that are no constants
        self._visited: list[str] = []

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
                target = dotted(statement.targets[0])
                self._assign(target, statement, statement.value, uncertain)
            elif isinstance(statement, ast.AnnAssign) and statement.value:
                self._assign(dotted(statement.target), statement, statement.value, uncertain)
            elif isinstance(statement, ast.Return) and isinstance(statement.value, ast.Call):
                self._call(statement.value)

    def _assign(self, target: str, statement: ast.stmt, value: ast.expr, uncertain: bool) -> None:
        first, _, field = target.partition(".")
        if field:
            self._field(field, field, statement, value, uncertain)
            return
        if not first:
            return
        self._values[first] = value
        self._names.pop(first, None)
        if isinstance(value, ast.Call) and self._call(value):
            return
        try:
            self._names[first] = static_value(value, self._names)
        except UnreadError:
            return

    def _call(self, call: ast.Call) -> bool:
        """Read a call that makes a configuration; return whether it does."""
        name = dotted(call.func)
        if _is_trainer(call):
            for keyword in call.keywords:
                if keyword.arg:
                    self._field(keyword.arg, keyword.arg, keyword, keyword.value, False)
            return True
        function = self._functions.get(name)
        if function is None or not _makes(function):
            return False
        if name not in self._visited and len(self._visited) < _DEEPEST:
            self.visit(function)
        return True

    # Fields

    def _field(self, name: str, key: str, node: ast.AST, value: ast.expr, uncertain: bool) -> None:
        """Read a field, or the fields of a section."""
        if isinstance(value, ast.Name) and isinstance(self._values.get(value.id), ast.Call):
            value = self._values[value.id]
        if name in ("model_spec", "model"):
            self._model(key, node, value)
        elif name == "activation_checkpoint":
            self._recompute(key, node, value, uncertain)
        elif name == "loss":
            self._loss(key, node, value)
        elif name in ("model_converters", "model.converters"):
            self._converters(key, node, value)
        elif isinstance(value, ast.Call) and "." not in name:
            section = table("torchtitan")["classes"].get(dotted(value.func), name)
            for keyword in value.keywords:
                if keyword.arg:
                    self._field(
                        f"{section}.{keyword.arg}",
                        f"{key}.{keyword.arg}",
                        keyword,
                        keyword.value,
                        uncertain,
                    )
            if not value.keywords and not dotted(value.func).endswith("Config"):
                self._set(name, key, node, value, uncertain)
        else:
            self._set(name, key, node, value, uncertain)

    def _set(self, name: str, key: str, node: ast.AST, value: ast.expr, uncertain: bool) -> None:
        option = self._option(name, key, node)
        try:
            found = static_value(value, self._names)
        except UnreadError as error:
            self.options[option.name] = option.evolve(unread=str(error))
            return
        if uncertain:
            option = option.evolve(unread=_UNRUN)
        self.options[option.name] = option.evolve(texts=texts(found), value=found)

    def _model(self, key: str, node: ast.AST, value: ast.expr) -> None:
        """Read ``model_registry("70B")``: the module that it is imported from has the name."""
        call = value
        if not isinstance(call, ast.Call):
            self._leave(key, node, "it is code, and none is run")
            return
        argument = call.args[0] if call.args else None
        for keyword in call.keywords:
            if keyword.arg == "flavor":
                argument = keyword.value
            elif keyword.arg == "converters":
                self._converters(f"{key}.converters", keyword, keyword.value)
            elif keyword.arg:
                self._set(
                    f"model.{keyword.arg}", f"{key}.{keyword.arg}", keyword, keyword.value, False
                )
        if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
            self._leave(key, node, "its flavor is no constant")
            return
        one = self._option("model.flavor", key, node)
        self.options["model.flavor"] = one.evolve(texts=(argument.value,))
        family = self._models.get(dotted(call.func))
        if family:
            named = self._option("model.name", key, node)
            self.options["model.name"] = named.evolve(texts=(family,))

    def _recompute(self, key: str, node: ast.AST, value: ast.expr, uncertain: bool) -> None:
        if isinstance(value, ast.Constant) and value.value is None:
            one = self._option("activation_checkpoint.mode", key, node)
            self.options[one.name] = one.evolve(texts=("none",))
            return
        name = dotted(value.func) if isinstance(value, ast.Call) else ""
        mode = next((word for part, word in _RECOMPUTE.items() if part in name.split(".")), None)
        if mode is not None:
            one = self._option("activation_checkpoint.mode", key, node)
            self.options[one.name] = one.evolve(texts=(mode,), unread=_UNRUN if uncertain else "")
        elif not isinstance(value, ast.Call):
            self._leave(key, node, "it is code, and none is run")
        if isinstance(value, ast.Call):
            for keyword in value.keywords:
                if keyword.arg:
                    name = f"activation_checkpoint.{keyword.arg}"
                    self._set(name, f"{key}.{keyword.arg}", keyword, keyword.value, uncertain)

    def _loss(self, key: str, node: ast.AST, value: ast.expr) -> None:
        """Read a loss that is computed in chunks."""
        if not isinstance(value, ast.Call):
            self._leave(key, node, "it is code, and none is run")
            return
        option = self._option("loss", key, node)
        chunked = any(part in dotted(value.func).split(".") for part in _CHUNKED)
        count = next((one.value for one in value.keywords if one.arg == "num_chunks"), None)
        number = str(count.value) if isinstance(count, ast.Constant) else "8"
        self.options["loss"] = option.evolve(
            texts=(number if chunked else "1",),
            assumption="" if count or not chunked else "the default of num_chunks",
        )

    def _converters(self, key: str, node: ast.AST, value: ast.expr) -> None:
        """Read converters of the model by their classes."""
        found: list[str] = []
        for call in ast.walk(value):
            if isinstance(call, ast.Call) and "Float8LinearConverter" in dotted(call.func):
                found.append("float8")
                for keyword in call.keywords:
                    if keyword.arg:
                        name = f"float8.{keyword.arg}"
                        self._set(name, f"{key}.{keyword.arg}", keyword, keyword.value, False)
            elif isinstance(call, ast.Call) and "MX" in dotted(call.func):
                found.append("mx")
        one = self._option("model.converters", key, node)
        self.options[one.name] = one.evolve(texts=tuple(found))

    def _option(self, name: str, key: str, node: ast.AST) -> Option:
        start, end = self._python.place(node)
        name = str(table("torchtitan")["aliases"].get(name, name))
        return Option(name=name, key=key, start=start, end=end)

    def _leave(self, key: str, node: ast.AST, why: str) -> None:
        self.unread.append(self._option("", key, node).evolve(unread=why))


def texts(value: Any) -> Sequence[str]:
    """Return a value as text: switches are ``true`` or ``false``.

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
    """Return the family of models that each imported function is of."""
    found: dict[str, str] = {}
    for statement in body:
        if isinstance(statement, ast.ImportFrom) and ".models." in f".{statement.module or ''}.":
            family = (statement.module or "").rpartition("models.")[2].partition(".")[0]
            for alias in statement.names:
                found[alias.asname or alias.name] = family
    return found
