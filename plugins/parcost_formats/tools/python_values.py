"""A Python file as a tree with places, which is never executed, and arithmetic on its values."""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeAlias

from parcost import record
from parcost_formats.tools.file_importer import BY_HAND, LARGEST, TOO_LARGE, FileError

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_LARGEST = 10**18
_LONGEST = 100_000  # elements of a list
_LARGEST_BASE, _LARGEST_EXPONENT = 10**6, 60


def _power(base: Any, exponent: Any) -> Any:
    is_complex = base < 0 and exponent != int(exponent)
    if abs(base) > _LARGEST_BASE or not 0 <= exponent <= _LARGEST_EXPONENT or is_complex:
        raise ValueError("powers of this size are not computed")
    return base**exponent


_OPERATIONS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}


class PythonTextError(FileError):
    """An error with its place: the text is not Python, or its configuration is ambiguous."""

    def __init__(self, message: str, start: int = 0, end: int = 0, help: str = BY_HAND) -> None:
        super().__init__(message, start, end, help)


class UnreadError(ValueError):
    """An expression has no constant value."""


@record
class DottedName:
    """A dotted name of another module, such as ``torch.bfloat16``."""

    name: str


class PythonText:
    """A Python file as a tree, with the places of its nodes."""

    def __init__(self, text: str) -> None:
        """Parse the *text*.

        Raises:
            PythonTextError: The text is not Python, or has a number that is not finite.
        """
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the file, which is not run
                self.tree = ast.parse(text)
        except SyntaxError as error:
            at = text_offset(text, error.lineno or 1, error.offset or 1)
            raise PythonTextError(f"not Python: {error.msg}", at, at + 1) from None
        except (RecursionError, MemoryError, ValueError):
            raise PythonTextError("Python that cannot be parsed", 0, 1) from None
        self._lines = text.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))
        for node in ast.walk(self.tree):
            number = node.value if isinstance(node, ast.Constant) else 0
            if isinstance(number, int) and number > LARGEST:
                raise PythonTextError(TOO_LARGE, *self.place(node))

    def place(self, node: ast.AST) -> tuple[int, int]:
        """Return the start and the end offset of a node."""
        start = self._char_offset(getattr(node, "lineno", 1), getattr(node, "col_offset", 0))
        end = self._char_offset(getattr(node, "end_lineno", 1), getattr(node, "end_col_offset", 0))
        return start, max(end, start + 1)

    def _char_offset(self, line: int, column: int) -> int:
        """Return the character offset of a *column*, which the syntax tree counts in bytes."""
        if line > len(self._lines):
            return self._starts[-1]
        before = self._lines[line - 1].encode()[:column]
        return self._starts[line - 1] + len(before.decode())


def text_offset(text: str, line: int, column: int) -> int:
    """Return the offset of a line and a column, which count from 1; at most the end of the text."""
    before = sum(map(len, text.splitlines(keepends=True)[: line - 1]))
    return min(before + column - 1, max(len(text) - 1, 0))


def choose_function(
    python: PythonText, functions: Mapping[str, Function], tops: Sequence[str], recipe: str
) -> Function:
    """Return the function that *recipe* names, or the only one of *tops*: those that users start.

    Raises:
        PythonTextError: Several functions are possible, or none has the name.
    """
    if recipe in functions:
        return functions[recipe]
    if not recipe and len(tops) == 1:
        return functions[tops[0]]
    names = list(tops or functions)
    near = get_close_matches(recipe, names, 1, 0.5) if recipe else []
    start = python.place(functions[names[0]])[0] if names else 0
    listed = ", ".join(names)
    if recipe:
        message = f"the file has no configuration `{recipe}`"
        guess = f"did you mean `{near[0]}`? " if near else ""
        raise PythonTextError(message, start, start + 3, f"{guess}it has {listed or 'none'}")
    message = f"the file has {len(names)} configurations: {listed}"
    ways = " | ".join(f"--recipe {name}" for name in names)
    raise PythonTextError(message, start, start + 3, f"choose one: {ways}")


def dotted_name(node: ast.expr) -> str:
    """Return the dotted name that an expression consists of, "" for any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = dotted_name(node.value)
        return f"{before}.{node.attr}" if before else ""
    return ""


def combine(operator: ast.operator, left: Any, right: Any) -> Any:
    """Return the result of an arithmetic *operator* on two values of a file.

    Raises:
        UnreadError: The operation is not arithmetic on numbers or on lists.
    """
    operation = _OPERATIONS.get(type(operator))
    if operation is not None and _is_number(left) and _is_number(right):
        try:
            found = operation(left, right)
        except (ArithmeticError, ValueError):
            raise UnreadError("its arithmetic is undefined") from None
        if abs(found) <= _LARGEST:
            return found
    lists = [one for one in (left, right) if isinstance(one, list)]
    times = next((one for one in (left, right) if isinstance(one, int)), None)
    joined: list[Any] | None = None
    if isinstance(operator, ast.Add) and len(lists) == 2:
        joined = left + right
    elif isinstance(operator, ast.Mult) and len(lists) == 1 and times is not None:
        joined = lists[0] * min(times, _LONGEST // max(len(lists[0]), 1) + 1)
    if joined is not None and len(joined) <= _LONGEST:
        return joined
    raise UnreadError("it is code, which parcost does not run")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
