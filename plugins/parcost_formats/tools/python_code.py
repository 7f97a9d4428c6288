"""Python code that builds a configuration: constants are evaluated, and nothing is run.

A value is a constant, a list or a dictionary. A ``DottedName`` belongs to another module, and a
call makes an ``Entity``. ``UnreadValue`` has the reason why a value is unknown.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple

from attrs import field

from parcost import record
from parcost_formats.tools.python_values import (
    DottedName,
    Function,
    PythonTextError,
    UnreadError,
    combine,
    dotted_name,
)

#: The key of unknown arguments that a call unpacks (``**kwargs``).
UNPACKED = "**"
_DEEPEST = 12  # calls of functions of the file
_MOST_STEPS = 50_000  # statements and expressions
_OF_SETATTR = 3  # arguments
_MOST_LISTS = 1000  # lists and dictionaries in a value
_PARTS_OF_STEP = 100  # elements of a value that are looked at in the time of a step
#: The kind of an object that code uses before anything has made it.
IMPLIED = "object"
#: The kind of the options that a parser of the command line returns.
OPTIONS = "options"
#: Methods of a parser that return the options.
PARSED = ("parse_args", "parse_known_args")
#: Functions of Python that change none of their arguments.
BUILTINS = (
    *("getattr", "hasattr", "bool", "int", "float", "str", "len", "isinstance", "list", "range"),
    *("print", "repr", "type", "id", "callable", "issubclass"),
)
_CODE = "it is code, which parcost does not run"
_CONDITION = "set inside a condition whose result is unknown"
_RETURNED = "it returns a value that depends on a condition whose result is unknown"
_LOOP = "set inside a loop, which parcost does not run"
_RETURNED_IN_LOOP = "it returns inside a loop, which parcost does not run"
#: Expressions of constants; a call of another function than one of `BUILTINS` is unknown.
_STATIC = (
    *(ast.Constant, ast.Name, ast.Attribute, ast.List, ast.Tuple, ast.Call, ast.UnaryOp),
    *(ast.BinOp, ast.Compare, ast.expr_context, ast.unaryop, ast.operator, ast.cmpop),
)
_EXITS = ("sys.exit", "exit", "quit", "os._exit")
#: Decorators that return the configuration of a function as it is.
_PLAIN_DECORATORS = ("cache", "lru_cache", "factory", "entrypoint", "autoconvert", "deprecated")
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: lambda one, other: bool(one == other),
    ast.NotEq: lambda one, other: bool(one != other),
    ast.Gt: lambda one, other: bool(one > other),
    ast.GtE: lambda one, other: bool(one >= other),
    ast.Lt: lambda one, other: bool(one < other),
    ast.LtE: lambda one, other: bool(one <= other),
    ast.In: lambda one, other: _key(one) in other,
    ast.NotIn: lambda one, other: _key(one) not in other,
    ast.Is: lambda one, other: one is other,
    ast.IsNot: lambda one, other: one is not other,
}


@record
class UnreadValue:
    """An unknown value, and the reason.

    *before* is its last known value. *choices* are its values in the branches of a condition.
    """

    why: str
    before: Any = None
    choices: Sequence[Any] = ()


@record
class Cell:
    """The value of an attribute, its place in the code, and the reason if a library sets it."""

    value: Any
    node: ast.AST
    key: str
    why: str = ""


@record(frozen=False, eq=False)
class Entity:
    """An object created by a call: its *kind* and the attributes that are set."""

    kind: str
    node: ast.AST
    cells: dict[str, Cell] = field(factory=dict)


class CodeCall(NamedTuple):
    """A call in the code: the function, by the name that it was imported from, and arguments."""

    name: str
    node: ast.Call
    arguments: Sequence[Any]
    keywords: Mapping[str, Cell]

    @property
    def last(self) -> str:
        """The name without the module or the object in front."""
        return self.name.rpartition(".")[2]


class _Returned(Exception):  # noqa: N818 - it carries the value of a function
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class Follower:
    """Interprets the statements of one file; *library* interprets calls to other modules."""

    def __init__(self, tree: ast.Module, library: CodeLibrary, free: Mapping[str, Any]) -> None:
        """Read the module level of a file; *free* are predefined names."""
        self.functions = {one.name: one for one in tree.body if isinstance(one, Function)}
        self.aliases = dict(_aliases(tree))
        self._library = library
        self.globals: dict[str, Any] = {**free, **constants(tree.body)}
        self._steps = 0
        self._depth = 0
        self._log: list[tuple[dict[str, Any], str, Any]] | None = None

    def follow_globals(self, body: Sequence[ast.stmt]) -> None:
        """Add each object that a call at module level returns to the globals.

        Its name is the first variable that it is assigned to.
        """
        for one in (one for one in body if isinstance(one, ast.Assign)):
            target = one.targets[0]
            if isinstance(target, ast.Name) and target.id not in self.globals:
                found = self.value(one.value, self.globals)
                if isinstance(found, Entity):
                    self.globals[target.id] = found

    def call_function(self, function: Function, values: Mapping[str, Any]) -> Any:
        """Return the result of a function of the file for keyword arguments."""
        if self._depth >= _DEEPEST:
            return UnreadValue("functions call one another too deeply")
        names = dict(self.globals)
        every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        names.update(
            {one.arg: UnreadValue(f"`{one.arg}` has no value in this file") for one in every}
        )
        for parameter, default in _defaults(function):
            names[parameter] = self.value(default, self.globals)
        if function.args.kwarg is not None:
            names[function.args.kwarg.arg] = {}
        names.update(values)
        self._depth += 1
        made = None
        try:
            self.run(function.body, names)
        except _Returned as returned:
            made = returned.value
        finally:
            self._depth -= 1
        for one in reversed(function.decorator_list):
            name = dotted_name(one.func if isinstance(one, ast.Call) else one)
            if name.rpartition(".")[2] not in _PLAIN_DECORATORS:
                made = self._library.decorate(made, f"@{name or 'decorator'}", one)
        return made

    def make_follower(self, tree: ast.Module, library: CodeLibrary) -> Follower:
        """Return a follower of another file; changes to objects by either are shared."""
        made = Follower(tree, library, {})
        made._log, made._depth = self._log, self._depth + 1
        return made

    def run_file(self, tree: ast.Module, wanted: Callable[[Any], bool]) -> Any:
        """Interpret the module level of a file; return its first *wanted* value, or None."""
        names = dict(self.globals)
        self.run(tree.body, names)
        found = (one for name, one in names.items() if one is not self.globals.get(name))
        return next((one for one in found if wanted(one)), None)

    def run(self, body: Sequence[ast.stmt], names: dict[str, Any]) -> None:
        """Interpret statements; they change *names* and the entities that names refer to."""
        for place, statement in enumerate(body):
            self._step()
            if isinstance(statement, ast.If):
                if self._branch(statement, body[place + 1 :], names):
                    return
            elif isinstance(statement, (ast.For, ast.While, ast.AsyncFor)):
                bodies = [*_bodies(statement), []]
                self._merge(bodies, names, _LOOP, _RETURNED_IN_LOOP)
            elif isinstance(statement, ast.Match):
                self._merge([*_bodies(statement), []], names)
            elif isinstance(statement, ast.Try):
                self.run([*statement.body, *statement.orelse], names)
                going = [one.body for one in statement.handlers if not _ends(one.body)]
                self._merge([[], *going], names)
                self.run(statement.finalbody, names)
            elif isinstance(statement, (ast.With, ast.AsyncWith)):
                self.run(statement.body, names)
            elif isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value:
                targets = (
                    statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                )
                value = self.value(statement.value, names)
                for target in targets:
                    self._assign(target, value, statement, names)
            elif isinstance(statement, ast.AugAssign):
                result = ast.BinOp(statement.target, statement.op, statement.value)
                self._assign(statement.target, self.value(result, names), statement, names)
            elif isinstance(statement, ast.Return):
                found = self.value(statement.value, names) if statement.value else None
                raise _Returned(found)
            elif isinstance(statement, ast.Expr):
                self.value(statement.value, names)
            elif isinstance(statement, ast.Delete):
                for target in statement.targets:
                    if isinstance(target, ast.Subscript):
                        pop = ast.Attribute(target.value, "pop")
                        self.value(ast.Call(pop, [target.slice], []), names)

    # Statements

    def _branch(self, statement: ast.If, rest: Sequence[ast.stmt], names: dict[str, Any]) -> bool:
        """Interpret an ``if``; return whether the *rest* of the statements ran in its branches.

        It does if a branch may return, because the rest then depends on the condition.
        """
        test = self._truth(self.value(statement.test, names))
        bodies = [statement.body, statement.orelse]
        if test is not None:
            bodies = [statement.body if test else statement.orelse]
        else:  # a body that ends in an error makes no recipe
            bodies = [one for one in bodies if not (one and isinstance(one[-1], ast.Raise))]
            bodies = bodies or [statement.body, statement.orelse]
        takes_rest = any(map(_returns, bodies))
        if takes_rest:
            bodies = [[*one, *rest] for one in bodies]
        if test is not None:
            self.run(bodies[0], names)
        else:
            self._merge(bodies, names)
        return takes_rest

    def _merge(
        self,
        bodies: Sequence[Sequence[ast.stmt]],
        names: dict[str, Any],
        why: str = _CONDITION,
        of_result: str = _RETURNED,
    ) -> None:
        """Interpret each of *bodies* from the current state; keep the settings that are equal in
        all.

        *why* is the reason for unknown settings, and *of_result* the reason for an unknown return
        value.
        """
        outer = self._log
        ends: list[dict[tuple[int, str], tuple[dict[str, Any], Any]]] = []
        returned: list[Any] = []
        for body in bodies:
            self._log = []
            try:
                self.run(body, names)
            except _Returned as end_of_function:
                returned.append(end_of_function.value)
            log = self._log
            end = {(id(place), key): (place, place.get(key)) for place, key, _ in log}
            ends.append(end)
            for place, key, before in reversed(log):
                if before is _ABSENT:
                    place.pop(key, None)
                else:
                    place[key] = before
        self._log = outer
        for where in {where: None for end in ends for where in end}:
            place, _ = next(end[where] for end in ends if where in end)
            key = where[1]
            now = place.get(key)
            found = [end[where][1] if where in end else now for end in ends]
            last = next((one for one in reversed(found) if one is not None), None)
            same = all(_are_equal(one, last) for one in found)
            self._set(place, key, last if same else _uncertain(last, found, why))
        if returned:
            raise _Returned(
                returned[0]
                if len(returned) == len(bodies) and all(one is returned[0] for one in returned)
                else UnreadValue(of_result)
            )

    def _assign(
        self, target: ast.expr, value: Any, statement: ast.stmt, names: dict[str, Any]
    ) -> None:
        if isinstance(target, ast.Name):
            self._set(names, target.id, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            values = value if isinstance(value, list) and len(value) == len(target.elts) else None
            for place, one in enumerate(target.elts):
                part = UnreadValue(_CODE) if values is None else values[place]
                self._assign(one, part, statement, names)
        elif isinstance(target, ast.Attribute):
            owner = self.value(target.value, names)
            if isinstance(owner, Entity):
                shown = dotted_name(target) or target.attr
                if isinstance(value, Entity):
                    _name_cells(value, shown)
                why = self._library.reason(statement)
                self.put(owner, target.attr, Cell(value, statement, shown, why))
            else:
                self._doubt_names(target.value, names)
        elif isinstance(target, ast.Subscript):
            owner = self.value(target.value, names)
            key = self.value(target.slice, names)
            if isinstance(owner, dict) and isinstance(key, str):
                self._set(owner, key, self._limit(value, owner))
            elif isinstance(owner, dict) and _key(key) is None:
                self._doubt(owner)
            elif isinstance(owner, list):
                owner.append(UnreadValue(_CODE))
            elif not isinstance(owner, dict):
                self._doubt_names(target.value, names)

    def _doubt_names(self, node: ast.expr, names: dict[str, Any]) -> None:
        """Make objects unknown if a statement sets a part that a call or ``__dict__`` selects."""
        if isinstance(node, ast.Call) or "__dict__" in dotted_name(node).split("."):
            for one in ast.walk(node):
                found = names.get(one.id) if isinstance(one, ast.Name) else None
                if isinstance(found, Entity):
                    doubt_cells(self, found, _CODE)

    def put(self, entity: Entity, name: str, cell: Cell) -> None:
        """Set an attribute of an entity."""
        self._set(entity.cells, name, cell)

    def _set(self, place: dict[str, Any], key: str, value: Any) -> None:
        if self._log is not None:
            self._log.append((place, key, place.get(key, _ABSENT)))
        place[key] = value

    # Values

    def value(self, node: ast.expr, names: dict[str, Any]) -> Any:
        """Return the value of an expression."""
        self._step()
        try:
            return self._value(node, names)
        except UnreadError as error:
            return UnreadValue(str(error))
        except RecursionError:
            return UnreadValue("it is nested too deeply")

    def _value(self, node: ast.expr, names: dict[str, Any]) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            if node.id in names:
                return names[node.id]
            if node.id in BUILTINS:
                return DottedName(node.id)
            raise UnreadError(f"`{node.id}` has no value in this file")
        if isinstance(node, ast.Attribute):
            return self._attribute(node, names)
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return self._limit([self.value(one, names) for one in node.elts])
        if isinstance(node, ast.Dict):
            return self._limit(self._dictionary(node, names))
        if isinstance(node, ast.BinOp):
            left, right = self.value(node.left, names), self.value(node.right, names)
            return self._limit(combine(node.op, _known_value(left), _known_value(right)))
        if isinstance(node, ast.Call):
            return self._call(node, names)
        return self._logic(node, names)

    def _logic(self, node: ast.expr, names: dict[str, Any]) -> Any:
        if isinstance(node, ast.UnaryOp):
            found = _known_value(self.value(node.operand, names))
            if isinstance(node.op, ast.Not) and (test := self._truth(found)) is not None:
                return not test
            if isinstance(node.op, ast.USub) and isinstance(found, (int, float)):
                return -found
        elif isinstance(node, ast.Compare) and len(node.ops) == 1:
            left = _known_value(self.value(node.left, names))
            right = _known_value(self.value(node.comparators[0], names))
            try:
                return _COMPARISONS[type(node.ops[0])](left, right)
            except (TypeError, ValueError):
                raise UnreadError(_CODE) from None
        elif isinstance(node, ast.BoolOp):
            return self._bool(node, names)
        elif isinstance(node, ast.IfExp):
            test = self._truth(self.value(node.test, names))
            if test is not None:
                return self.value(node.body if test else node.orelse, names)
        elif isinstance(node, ast.Subscript):
            owner, key = self.value(node.value, names), _key(self.value(node.slice, names))
            if isinstance(owner, dict) and key is not None and key in owner:
                return owner[key]
        elif isinstance(node, ast.ListComp):
            return self._limit(self._comprehension(node, names))
        elif isinstance(node, ast.JoinedStr):
            return "".join(self._part_of_text(one, names) for one in node.values)
        raise UnreadError(_CODE)

    def _part_of_text(self, node: ast.expr, names: dict[str, Any]) -> str:
        """Return a part of an f-string: a text or a whole number without a format."""
        plain = not isinstance(node, ast.FormattedValue) or (
            node.conversion == -1 and node.format_spec is None
        )
        value = node.value if isinstance(node, ast.FormattedValue) else node
        found = _known_value(self.value(value, names))
        if not plain or not isinstance(found, (str, int)):
            raise UnreadError(_CODE)
        return str(found)

    def _comprehension(self, node: ast.ListComp, names: dict[str, Any]) -> list[Any]:
        """Return the list of a comprehension with one loop over a known list."""
        loop = node.generators[0]
        values = _known_value(self.value(loop.iter, names))
        plain = len(node.generators) == 1 and not loop.ifs and isinstance(loop.target, ast.Name)
        if not plain or not isinstance(values, list):
            raise UnreadError(_CODE)
        name = dotted_name(loop.target)
        return [self.value(node.elt, {**names, name: one}) for one in values]

    def _bool(self, node: ast.BoolOp, names: dict[str, Any]) -> Any:
        ends = isinstance(node.op, ast.Or)
        found: Any = None
        for one in node.values:
            found = self.value(one, names)
            test = self._truth(found)
            if test is None:
                raise UnreadError(_CODE)
            if test is ends:
                return found
        return found

    def _attribute(self, node: ast.Attribute, names: dict[str, Any]) -> Any:
        owner = self.value(node.value, names)
        if isinstance(owner, Entity):
            return self._library.attribute(self, owner, node)
        if isinstance(owner, DottedName):
            return DottedName(f"{owner.name}.{node.attr}")
        raise UnreadError(owner.why if isinstance(owner, UnreadValue) else _CODE)

    def _dictionary(self, node: ast.Dict, names: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            one = self.value(value, names)
            if key is None:
                found.update(one if isinstance(one, dict) else _doubtful(found, one))
                continue
            name = _key(self.value(key, names))
            if name is not None:
                found[name] = one
        return found

    def _call(self, node: ast.Call, names: dict[str, Any]) -> Any:
        arguments = [self.value(one, names) for one in node.args]
        keywords: dict[str, Cell] = {}
        for keyword in node.keywords:
            value = self.value(keyword.value, names)
            if keyword.arg:
                keywords[keyword.arg] = Cell(value, keyword, keyword.arg)
            elif isinstance(value, dict):
                more = {name: Cell(one, keyword, name) for name, one in value.items()}
                keywords.update(more)
            elif isinstance(value, UnreadValue):
                keywords[UNPACKED] = Cell(value, keyword, UNPACKED)
        name = dotted_name(node.func)
        if name in self.functions:
            return self.call_function(
                self.functions[name], self._bound(self.functions[name], arguments, keywords)
            )
        if isinstance(node.func, ast.Attribute):
            owner = self.value(node.func.value, names)
            if isinstance(owner, Entity):
                call = CodeCall(name or node.func.attr, node, arguments, keywords)
                return self._library.method(owner, call)
            if isinstance(owner, dict):
                given = {key: one.value for key, one in keywords.items()}
                return self._of_dictionary(owner, node.func.attr, arguments, given)
            if isinstance(owner, str) and node.func.attr in ("upper", "lower") and not arguments:
                return getattr(owner, node.func.attr)()
            if isinstance(owner, list) and node.func.attr == "append" and self._log is None:
                owner += [self._limit(one, owner) for one in arguments]
                return None
            if isinstance(owner, list) and node.func.attr not in ("index", "count", "copy"):
                known = self._log is None and node.func.attr == "extend" and len(arguments) == 1
                added = arguments[0] if known else None
                owner += added if isinstance(added, list) else [UnreadValue(_CODE)]
        if name == "setattr" and len(arguments) == _OF_SETATTR and isinstance(arguments[0], Entity):
            owner, attribute, value = arguments
            if isinstance(attribute, str):
                self.put(owner, attribute, Cell(value, node, attribute))
                return None
        bound = names.get(name)  # a function that a variable has
        real = self.aliases.get(name, bound.name if isinstance(bound, DottedName) else name)
        return self._library.call(self, CodeCall(real, node, arguments, keywords))

    def _of_dictionary(
        self, owner: dict[str, Any], name: str, arguments: list[Any], given: Mapping[str, Any]
    ) -> Any:
        """Return the result of a method of a dictionary, which is unknown after other methods."""
        key = arguments[0] if arguments else None
        if name == "copy":
            return dict(owner)
        if name in ("keys", "values", "items"):
            raise UnreadError(_CODE)
        if name in ("get", "pop", "setdefault") and isinstance(key, str):
            rest = owner.get(UNPACKED, arguments[1] if len(arguments) > 1 else None)
            found = owner.get(key, rest)
            if name == "pop" and key in owner:
                if self._log is not None:
                    self._log.append((owner, key, owner[key]))
                owner.pop(key)
            elif name == "setdefault" and key not in owner:
                self._set(owner, key, self._limit(found, owner))
            return found
        if name == "update" and isinstance(key, (dict, type(None))):
            for one, value in {**(key or {}), **given}.items():
                self._set(owner, one, self._limit(value, owner))
            return None
        if name != "get":
            self._doubt(owner)
        raise UnreadError(_CODE)

    def _doubt(self, owner: dict[str, Any], why: str = _CODE) -> None:
        """Make all values of a dictionary unknown, after a change that is not followed."""
        for key, value in _doubtful(owner, UnreadValue(why)).items():
            self._set(owner, key, value)

    def _bound(
        self, function: Function, arguments: Sequence[Any], keywords: Mapping[str, Cell]
    ) -> dict[str, Any]:
        """Return the arguments of a call by parameter name."""
        found = dict(zip((one.arg for one in function.args.args), arguments, strict=False))
        names = {one.arg for one in (*function.args.args, *function.args.kwonlyargs)}
        rest = {name: one.value for name, one in keywords.items() if name not in names}
        found.update({name: one.value for name, one in keywords.items() if name in names})
        if function.args.kwarg is not None:
            found[function.args.kwarg.arg] = rest
        return found

    @staticmethod
    def _truth(value: Any) -> bool | None:
        """Return the truth value of a value, None if unknown."""
        if isinstance(value, (UnreadValue, DottedName)):
            return None
        if isinstance(value, Entity):  # an object of a class is true; a function may return any
            return value.kind.rpartition(".")[2][:1].isupper() or None
        return bool(value)

    def _limit(self, value: Any, owner: Any = None) -> Any:
        """Return a value, or an unknown one if it contains its *owner* or too many lists."""
        left, count = [value], 0
        while left:
            one = left.pop()
            parts = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
            left += [part for part in parts if isinstance(part, (list, dict))]
            count += 1
            self._steps += len(parts) // _PARTS_OF_STEP
            if one is owner is not None or count > _MOST_LISTS:
                return UnreadValue("it contains itself, or too many lists")
        return value

    def _step(self) -> None:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            message = f"the file needs more than {_MOST_STEPS:,} steps to evaluate"
            raise PythonTextError(message, 0, 1)


class CodeLibrary:
    """The effects of calls to other modules, by the tables.

    *options* are the options of the command line that the file declares, with their defaults.
    """

    options: Mapping[str, Any] = MappingProxyType({})

    def call(self, follower: Follower, call: CodeCall) -> Any:  # noqa: ARG002
        """Return the result of a function of Python; that of another module is unknown."""
        if call.name in BUILTINS:
            return _call_builtin(call.name, call.arguments)
        shown = f"`{call.name}`" if call.name else "a function that is selected by code"
        return UnreadValue(f"{shown} comes from another file, which parcost does not read")

    def method(self, owner: Entity, call: CodeCall) -> Any:  # noqa: ARG002
        """Return the options of a parser; the result of any other method is unknown."""
        if call.last in PARSED:
            options = Entity(OPTIONS, call.node)
            return [options, []] if call.last == "parse_known_args" else options
        return UnreadValue(f"`{call.name}` is code, which parcost does not run")

    def reason(self, statement: ast.AST) -> str:
        """Return why the value of an assignment is assumed: an option has it as its default."""
        option = option_of(statement, self.options)
        return f"`{option}` has this default in the file" if option else ""

    def decorate(self, made: Any, name: str, node: ast.expr) -> Any:  # noqa: ARG002
        """Return the result of a function under an unknown decorator; by default it is unknown."""
        return UnreadValue(f"`{name}` is code, which parcost does not run")

    def attribute(self, follower: Follower, owner: Entity, node: ast.Attribute) -> Any:
        """Return an attribute of an entity, or the default of an option of the command line.

        By default a missing attribute is an empty object.
        """
        if owner.kind == OPTIONS:
            unread = UnreadValue(f"the file declares no option `{node.attr}`")
            return self.options.get(node.attr, unread)
        cell = owner.cells.get(node.attr)
        if cell is None:
            cell = Cell(Entity(IMPLIED, node), node, node.attr)
            follower.put(owner, node.attr, cell)
        return cell.value


_ABSENT = object()


def _name_cells(entity: Entity, owner: str) -> None:
    """Prefix the keys of call arguments with the name of the assigned object."""
    for name, cell in entity.cells.items():
        if cell.key == name:
            entity.cells[name] = Cell(cell.value, cell.node, f"{owner}.{name}", cell.why)


def _uncertain(last: Any, found: Sequence[Any], why: str) -> Any:
    """Return an unknown value that is one of *found*, with the reason; *last* has its place."""
    values = [one.value if isinstance(one, Cell) else one for one in found if one is not None]
    unread = UnreadValue(why, choices=values)
    return Cell(unread, last.node, last.key, last.why) if isinstance(last, Cell) else unread


def _doubtful(values: Mapping[str, Any], change: Any) -> dict[str, Any]:
    """Return the values of a dictionary after an update with an unknown dictionary."""
    why = change.why if isinstance(change, UnreadValue) else _CODE
    return {key: UnreadValue(why, one) for key, one in values.items()} | {
        UNPACKED: UnreadValue(why)
    }


def _are_equal(one: Any, other: Any) -> bool:
    if isinstance(one, Cell) and isinstance(other, Cell):
        one, other = one.value, other.value
    if isinstance(one, Entity) or isinstance(other, Entity):
        return one is other
    return type(one) is type(other) and bool(one == other)


def _key(value: Any) -> Any:
    """Return the constant, or tuple of constants, that is a dictionary key; None for other values.

    >>> _key([4, 1]), _key("a"), _key([None])
    ((4, 1), 'a', None)
    """
    parts = value if isinstance(value, list) else [value]
    if not all(isinstance(one, (str, int, float)) for one in parts):
        return None
    return tuple(parts) if isinstance(value, list) else value


def _known_value(value: Any) -> Any:
    if isinstance(value, UnreadValue):
        raise UnreadError(value.why)
    return value


def _defaults(function: Function) -> Iterator[tuple[str, ast.expr]]:
    """Yield the parameters of a function that have a default."""
    plain = function.args.args
    first = len(plain) - len(function.args.defaults)
    for one, default in zip(plain[first:], function.args.defaults, strict=True):
        yield one.arg, default
    for one, found in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        if found is not None:
            yield one.arg, found


def _call_builtin(name: str, arguments: Sequence[Any]) -> Any:
    """Return the result of one of `BUILTINS`."""
    first = arguments[0] if arguments else None
    if name in ("getattr", "hasattr") and isinstance(first, Entity) and len(arguments) > 1:
        cell = first.cells.get(str(arguments[1]))
        if cell is not None:
            return True if name == "hasattr" else cell.value
    elif name == "getattr" and isinstance(first, DottedName) and len(arguments) > 1:
        if isinstance(arguments[1], str):
            return DottedName(f"{first.name}.{arguments[1]}")
    elif name == "isinstance" and isinstance(first, str) and len(arguments) > 1:
        types = arguments[1] if isinstance(arguments[1], list) else [arguments[1]]
        if all(isinstance(one, DottedName) for one in types):
            return any(one.name == "str" for one in types)
    elif name in ("bool", "int", "float", "str") and isinstance(first, (bool, int, float, str)):
        with suppress(ValueError, OverflowError):  # no number, or none of that type: unknown
            return {"bool": bool, "int": int, "float": float, "str": str}[name](first)
    elif name == "len" and isinstance(first, list):
        return len(first)
    elif name == "list" and isinstance(first, list):
        return list(first)
    elif name == "range" and arguments and all(isinstance(one, int) for one in arguments):
        with suppress(TypeError, ValueError, OverflowError):  # too many arguments, a step of 0
            if len(found := range(*arguments)) <= _MOST_LISTS:
                return list(found)
    return UnreadValue(_CODE)


def _returns(body: Sequence[ast.stmt]) -> bool:
    """Return whether statements may end their function."""
    if any(isinstance(one, ast.Return) for one in body):
        return True
    own = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    plain = (one for one in body if not isinstance(one, own))
    return any(_returns(one) for statement in plain for one in _bodies(statement))


def _ends(body: Sequence[ast.stmt]) -> bool:
    """Return whether the last of some statements ends the function or the program."""
    last = body[-1]
    call = last.value if isinstance(last, ast.Expr) else None
    is_exit = isinstance(call, ast.Call) and dotted_name(call.func) in _EXITS
    return is_exit or isinstance(last, (ast.Return, ast.Raise))


def option_defaults(tree: ast.Module) -> Mapping[str, Any] | None:
    """Return the defaults of the options that a file declares, None if it declares none."""
    found: dict[str, Any] = {}
    names = constants(tree.body)
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        given = {one.arg: one.value for one in node.keywords if one.arg}
        if node.func.attr == "set_defaults":
            found |= {name: _constant(name, value, names) for name, value in given.items()}
        if node.func.attr != "add_argument":
            continue
        flags = [one.value for one in node.args if isinstance(one, ast.Constant)]
        flag = next((one for one in flags if str(one).startswith("--")), *flags[:1] or [""])
        name = str(_constant("dest", given.get("dest", ast.Constant(flag)), names))
        name = name.lstrip("-").replace("-", "_")
        if "default" in given:
            found[name] = _constant(name, given["default"], names)
        else:
            action = _constant(name, given.get("action", ast.Constant(None)), names)
            found[name] = {"store_true": False, "store_false": True}.get(str(action))
    return found or None


def option_of(node: ast.AST, options: Mapping[str, Any]) -> str:
    """Return the option whose value a keyword of a call, or an assignment, passes on, or ""."""
    value = node.value if isinstance(node, (ast.keyword, ast.Assign)) else node
    is_option = isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name)
    name = value.attr if isinstance(value, ast.Attribute) and is_option else ""
    return name if name in options else ""


def constants(body: Sequence[ast.stmt]) -> dict[str, Any]:
    """Return the constants of a module by name, and the names that it imports."""
    names: dict[str, Any] = {}
    for statement in body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            for alias in statement.names:
                name = (alias.asname or alias.name).partition(".")[0]
                names[name] = DottedName(name)
        target: ast.expr | None = None
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
        elif isinstance(statement, ast.AnnAssign):
            target = statement.target
        value = getattr(statement, "value", None)
        if isinstance(target, ast.Name) and isinstance(value, ast.expr):
            try:
                names[target.id] = static_value(value, names)
            except UnreadError:
                names.pop(target.id, None)
    return names


def static_value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Return the value of an expression; *names* are the values of variables.

    >>> static_value(ast.parse("8 * N", mode="eval").body, {"N": 1024})
    8192

    Raises:
        UnreadError: The expression has more than constants, names and arithmetic.
    """
    if not all(isinstance(one, _STATIC) for one in ast.walk(node)):
        raise UnreadError(_CODE)
    found = Follower(ast.Module([], []), CodeLibrary(), names).value(node, dict(names))
    left = [found]
    while left:
        one = _known_value(left.pop())
        left += one if isinstance(one, list) else []
    return found


def _constant(name: str, node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Return the value of a default; *names* are the constants of the file."""
    try:
        return static_value(node, names)
    except UnreadError:
        return UnreadValue(f"the default of `{name}` is code, which parcost does not run")


def entities_in(entity: Entity, but: str = "") -> list[Entity]:
    """Return an entity and the entities in its attributes, except those of one kind, with
    repeats.
    """
    found, left = {entity}, [entity]
    for one in left:
        inner = [cell.value for cell in one.cells.values() if isinstance(cell.value, Entity)]
        new = [part for part in dict.fromkeys(inner) if part.kind != but and part not in found]
        found.update(new)
        left += new
    return left


def doubt_cells(follower: Follower, entity: Entity, why: str, sure: str = "") -> None:
    """Mark all attributes set in an entity so far as uncertain, except those of a kind *sure*."""
    for one in entities_in(entity, sure):
        for name, cell in list(one.cells.items()):
            known = not isinstance(cell.value, (Entity, UnreadValue)) and cell.value is not None
            if name != "hf" and known:
                doubtful = Cell(UnreadValue(why, cell.value), cell.node, cell.key, cell.why)
                follower.put(one, name, doubtful)


def _aliases(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the local name and the original name of each ``import ... as``."""
    for statement in ast.walk(tree):
        if isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                if alias.asname:
                    yield alias.asname, alias.name


def _bodies(statement: ast.stmt) -> Iterator[Sequence[ast.stmt]]:
    for name in ("body", "orelse"):
        if found := getattr(statement, name, None):
            yield found
    for case in getattr(statement, "cases", ()):
        yield case.body
