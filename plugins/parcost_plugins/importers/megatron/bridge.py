"""Recipes of Megatron-Bridge: assignments to a configuration, in Python that is not run."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
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
from parcost_plugins.importers.tables import is_listed, table

_TYPES = {"bfloat16": "bf16", "float32": "fp32", "float16": "fp16", "half": "fp16", "uint8": "fp8"}
_ONE_TEXT = ("moe_layer_freq", "window_attn_skip_freq")
_CONDITIONS = (ast.If, ast.For, ast.While, ast.Match)
_DEEPEST = 8  # functions of the file that call one another
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class BridgeRecipe(NamedTuple):
    """What a recipe sets: *options* of flags, keys without an effect, and what is not read.

    *model* is the model of Hugging Face that it starts from.
    """

    options: Mapping[str, Option]
    ignored: Sequence[Option]
    unread: Sequence[Option]
    model: Option | None


def read_recipe(text: str) -> BridgeRecipe:
    """Return what the recipe in a Python file sets.

    Raises:
        PythonTextError: The file is no Python, or has several recipes or none.
    """
    python = PythonText(text)
    functions = {one.name: one for one in python.tree.body if isinstance(one, _Function)}
    recipes = [one for one in functions.values() if _assigns(one)]
    public = [one for one in recipes if not one.name.startswith("_")] or recipes
    if len(public) > 1:
        names = ", ".join(one.name for one in public[:8])
        start, _ = python.place(public[1])
        raise PythonTextError(f"the file has several recipes ({names}): keep one", start, start + 3)
    reader = _RecipeReader(python, functions)
    if public:
        reader.visit(public[0].body)
    else:
        reader.visit(python.tree.body)
    found = reader.recipe()
    if not (found.options or found.model or found.unread):
        raise PythonTextError("the file has no recipe of Megatron-Bridge", 0, 1)
    return found


def _assigns(function: _Function) -> bool:
    """Return whether a function sets attributes of a configuration."""
    sections = table("megatron")["bridge"]["sections"]["read"]
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if len(parts := dotted(target).split(".")) >= 2 and parts[1] in sections:
                    return True
        elif isinstance(node, ast.Call) and dotted(node.func).endswith("ConfigContainer"):
            return True
    return False


class _RecipeReader:
    """Goes through the statements of a recipe in their order."""

    def __init__(self, python: PythonText, functions: Mapping[str, _Function]) -> None:
        self._python = python
        self._functions = functions
        self._table = table("megatron")["bridge"]
        self._names: dict[str, Any] = dict(constants(python.tree.body))
        self._options: dict[str, Option] = {}
        self._ignored: list[Option] = []
        self._unread: list[Option] = []
        self._model: Option | None = None
        self._base: dict[str, Option] = {}
        self._visited: list[str] = []

    def recipe(self) -> BridgeRecipe:
        """Return what is read."""
        options = {**self._base, **self._options}
        hidden, gated = options.get("hidden_size"), "ffn_hidden_size" not in options
        if hidden is not None and gated and hidden.text.isdecimal() and len(hidden.text) < 10:
            options["ffn_hidden_size"] = hidden.evolve(
                name="ffn_hidden_size",
                texts=(str(4 * int(hidden.text)),),
                assumption="the default of TransformerConfig: 4 x hidden",
            )
        groups = options.get("num_query_groups")
        if groups is not None and not groups.unread:  # Megatron-Core has no switch for it
            options["group_query_attention"] = groups.evolve(name="group_query_attention", texts=())
        return BridgeRecipe(options, self._ignored, self._unread, self._model)

    # Statements

    def visit(self, body: Sequence[ast.stmt], *, uncertain: bool = False) -> None:
        """Read statements, which only run under a condition where *uncertain*."""
        for statement in body:
            if isinstance(statement, _CONDITIONS):
                for inner in _bodies(statement):
                    self.visit(inner, uncertain=True)
            elif isinstance(statement, (ast.With, ast.Try)):
                for inner in _bodies(statement):
                    self.visit(inner, uncertain=uncertain)
            elif isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value:
                targets = (
                    statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                )
                for target in targets:
                    self._assign(dotted(target), statement, statement.value, uncertain)
            elif isinstance(statement, (ast.Expr, ast.Return)) and statement.value:
                self._call(statement, statement.value, uncertain)

    def _assign(self, target: str, statement: ast.stmt, value: ast.expr, uncertain: bool) -> None:
        parts = target.split(".")
        if len(parts) == 1:
            self._local(target, statement, value, uncertain)
        elif len(parts) == 2:
            self._section(parts[1], target, statement, value, uncertain)
        elif len(parts) == 3 and all(parts):
            self._attribute(parts[1], parts[2], target, statement, value, uncertain)

    def _local(self, name: str, statement: ast.stmt, value: ast.expr, uncertain: bool) -> None:
        """Read a variable: a number, or a configuration that another function makes."""
        self._names.pop(name, None)
        if isinstance(value, ast.Call):
            self._call(statement, value, uncertain)
        elif name and not uncertain:
            try:
                self._names[name] = static_value(value, self._names)
            except UnreadError:
                return

    def _call(self, statement: ast.stmt, value: ast.expr, uncertain: bool) -> None:
        """Read a call that makes or changes a configuration."""
        if not isinstance(value, ast.Call):
            return
        name = dotted(value.func)
        function = self._functions.get(name)
        base = self._table["bases"].get(name)
        if name.rpartition(".")[2] == "ConfigContainer":
            for keyword in value.keywords:
                if keyword.arg:
                    key = f"ConfigContainer({keyword.arg})"
                    self._section(keyword.arg, key, keyword, keyword.value, uncertain)
        elif base is not None:
            start, end = self._python.place(value)
            for key, text in base.items():
                self._base[key] = Option(
                    name=key,
                    key=f"{name}()",
                    texts=(text,),
                    start=start,
                    end=end,
                    assumption=f"Megatron-Bridge, recipes/common.py: {name}",
                )
        elif function is not None and _assigns(function):
            if name not in self._visited and len(self._visited) < _DEEPEST:
                self._visited.append(name)
                self.visit(function.body, uncertain=uncertain)
                self._visited.pop()
        elif name.endswith("_config") or (
            isinstance(statement, ast.Expr) and "cfg" in _names(value)
        ):
            self._leave(name, value, "what it sets is in another file")

    # Sections and attributes

    def _section(
        self, section: str, key: str, node: ast.AST, value: ast.expr, uncertain: bool
    ) -> None:
        """Read a whole section, such as ``cfg.model = GPTModelProvider(...)``."""
        sections = self._table["sections"]
        if section == "mixed_precision":
            self._precision(key, node, value, uncertain)
            return
        if section not in sections["read"]:
            if section in (*sections["ignored"], "dataset", "tokenizer"):
                self._ignored.append(self._option("", key, node))
            return
        for call in ast.walk(value):
            if isinstance(call, ast.Call) and dotted(call.func).endswith("from_hf_pretrained"):
                argument = call.args[0] if call.args else None
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    one = self._option("hf", key, call)
                    self._model = one.evolve(texts=(argument.value,))
                    return
        if isinstance(value, ast.Call):
            for keyword in value.keywords:
                if keyword.arg:
                    shown = f"{key}.{keyword.arg}"
                    self._attribute(section, keyword.arg, shown, keyword, keyword.value, uncertain)
            if not value.keywords:
                self._leave(key, node, "it is code, and none is run")
        elif not (isinstance(value, ast.Constant) and value.value is None):
            self._leave(key, node, "it is code, and none is run")

    def _precision(self, key: str, node: ast.AST, value: ast.expr, uncertain: bool) -> None:
        """Read mixed precision by its name."""
        names = [one.value for one in ast.walk(value) if isinstance(one, ast.Constant)]
        if isinstance(value, ast.Call):
            names.append(dotted(value.func))
        known = self._table["precisions"]
        found = next((name for name in names if isinstance(name, str) and name in known), None)
        if found is None or uncertain:
            self._leave(key, node, "a recipe that is not known by its name")
            return
        for name in ("bf16", "fp16"):  # of the recipe that this one starts from
            self._base.pop(name, None)
        for name, text in known[found].items():
            self._options[name] = self._option(name, key, node).evolve(texts=(text,))

    def _attribute(
        self,
        section: str,
        attribute: str,
        key: str,
        node: ast.AST,
        value: ast.expr,
        uncertain: bool,
    ) -> None:
        """Read one attribute of a section."""
        sections = self._table["sections"]
        if section not in sections["read"] and (section, attribute) != ("tokenizer", "vocab_size"):
            option = self._option("", key, node)
            known = section in (*sections["ignored"], "dataset", "tokenizer")
            (self._ignored if known else self._unread).append(option)
            return
        renamed = self._table["renames"].get(attribute, attribute)
        name = str(table("megatron")["aliases"].get(renamed, renamed)).removeprefix("not ")
        option = self._option(name, key, node)
        try:
            found = static_value(value, self._names)
        except UnreadError as error:
            self._options[name] = option.evolve(unread=str(error))
            return
        if is_listed(attribute, self._table["ignored"]["names"]):
            self._ignored.append(option)
            return
        self._names[key] = found
        if found is None:
            self._options.pop(name, None)
            self._ignored.append(option)
            return
        if renamed.startswith("not ") and isinstance(found, bool):
            found = not found
        option = option.evolve(texts=_texts(name, found), value=found)
        if uncertain:
            option = option.evolve(unread="it is set under a condition, which is not run")
        self._options[name] = option

    def _option(self, name: str, key: str, node: ast.AST) -> Option:
        start, end = self._python.place(node)
        return Option(name=name, key=key, start=start, end=end)

    def _leave(self, key: str, node: ast.AST, why: str) -> None:
        self._unread.append(self._option("", key, node).evolve(unread=why))


def _texts(name: str, value: Any) -> Sequence[str]:
    """Return a value as flags have it.

    >>> _texts("bf16", True), _texts("recompute_modules", ["mlp"]), _texts("seq_length", 8)
    (('true',), ('mlp',), ('8',))
    """
    if isinstance(value, DottedName):
        last = value.name.rpartition(".")[2]
        return (_TYPES.get(last, last),)
    if isinstance(value, bool):
        return ("true" if value else "false",)
    if isinstance(value, list):
        if name in _ONE_TEXT:
            return (f"[{','.join(str(one) for one in value)}]",)
        return tuple(str(one) for one in value)
    return (str(value),)


def _bodies(statement: ast.stmt) -> Iterator[Sequence[ast.stmt]]:
    """Yield the bodies of a compound statement."""
    for name in ("body", "orelse", "finalbody"):
        yield getattr(statement, name, [])
    for case in (*getattr(statement, "cases", ()), *getattr(statement, "handlers", ())):
        yield case.body


def _names(value: ast.Call) -> set[str]:
    return {one.id for one in value.args if isinstance(one, ast.Name)}
