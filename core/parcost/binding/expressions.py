"""Evaluates expressions, including sweeps. Recursion is limited."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from parcost.binding import functions
from parcost.binding import values as v
from parcost.binding.definitions import Definition
from parcost.binding.names import NameResolver
from parcost.binding.scope import Binding, BrokenError, Scope, SetValue, Sweep, SweepAxis
from parcost.contract.schema import Curve
from parcost.language import syntax as s
from parcost.language.diagnostics import Diagnostic, did_you_mean, problem
from parcost.language.errors import SpecError, error_at
from parcost.language.numbers import spec_text
from parcost.language.units import ONE, known_units, unit
from parcost.records import define

DEEPEST = 100
_EMPTY = "the list is empty; a list is a sweep and needs values"
_FILL = "write at least one value, or leave the attribute out to use its default"


@define(eq=False)
class Expressions:
    """Evaluates expressions, resolving names at the points of a binder."""

    binder: Binding
    names: NameResolver
    _depth: int = 0
    _masked: bool = False

    def evaluate(self, node: Any, scope: Scope) -> v.Value:
        if type(node) is s.Number:
            return self._number(node, scope)
        self._depth += 1
        try:
            if self._depth > DEEPEST:
                raise error_at("nesting-too-deep", "the expression is nested too deeply", node.span)
            return self._inner(node, scope)
        finally:
            self._depth -= 1

    def _inner(self, node: Any, scope: Scope) -> v.Value:
        match node:
            case s.Path():
                return self.names.path(node, scope)
            case s.Chain():
                operands = [self.evaluate(operand, scope) for operand in node.operands]
                return v.chain(node, operands, masked=self._masked)
            case s.Unary():
                inner = self.evaluate(node.operand, scope)
                return v.negate(inner, node.operator, node.operand.span)
            case s.Conditional():
                return self._conditional(node, scope)
            case s.FunctionCall() | s.List() if id(node) in self.binder.sweeps:
                return self._at_points(self.binder.sweeps[id(node)], node, scope)
            case s.FunctionCall():
                listed = node.function.text == "curve"
                arguments = [
                    v.Items(tuple(self.evaluate(i, scope) for i in argument.items))
                    if listed and isinstance(argument, s.List)
                    else self.evaluate(argument, scope)
                    for argument in node.arguments
                ]
                value = functions.call(node, arguments)
                if isinstance(value, v.Items):
                    return self._sweep(value.items, node, scope)
                return value
            case s.List():
                return self._list(node, scope)
            case s.Text():
                return v.Symbol(node.value)
        raise AssertionError(node)

    def _number(self, node: s.Number, scope: Scope) -> v.Value:
        try:
            number = float(node.text)
        except ValueError:
            raise error_at("not-a-number", "this is not a number", node.span) from None
        if number in (float("inf"), float("-inf")):
            raise error_at("not-finite", "this number is too large for a float", node.span)
        if not node.unit:
            return v.Quantity(number, ONE, v.NO_AXES, True)
        try:
            size, dimension = unit(node.unit)
        except KeyError as error:
            if scope.field is not None and node.unit in scope.field.qualifiers:
                return v.Quantity(number, ONE, v.NO_AXES, True)
            raise SpecError([_unknown_unit(error.args[0], node, scope)]) from None
        scaled = number * size
        if scaled == float("inf"):
            raise error_at("not-finite", "this number is too large for a float", node.span)
        return v.Quantity(scaled, dimension, v.NO_AXES, True)

    def _conditional(self, node: s.Conditional, scope: Scope) -> v.Value:
        condition = v.truth(self.evaluate(node.condition, scope), node.condition.span)
        if isinstance(condition.value, bool):
            taken, other = node.then, node.otherwise
            if not condition.value:
                taken, other = other, taken
            value = self.evaluate(taken, scope)
            alternative = self._evaluate_other_branch(other, scope)
            if alternative is not None:
                v.check_branches(value, alternative, node)
                value = evolve(value, axes=value.axes | alternative.axes)
            return evolve(value, axes=value.axes | condition.axes)
        masked, self._masked = self._masked, True
        try:
            then = self.evaluate(node.then, scope)
            otherwise = self.evaluate(node.otherwise, scope)
        finally:
            self._masked = masked
        v.check_branches(then, otherwise, node)
        return v.choose(condition, then, otherwise, node)

    def _evaluate_other_branch(self, node: s.Expr, scope: Scope) -> v.Value | None:
        """Return the value of the branch not taken; None if it divides by zero or overflows."""
        count = len(self.binder.diagnostics)
        try:
            return self.evaluate(node, scope)
        except SpecError as error:
            numeric = {"division-by-zero", "not-finite"}
            if any(d.id not in numeric for d in error.diagnostics):
                raise
            return None
        except BrokenError:
            del self.binder.diagnostics[count:]
            return None

    def _list(self, node: s.List, scope: Scope) -> v.Value:
        field = scope.field
        items = tuple(self.evaluate(item, scope) for item in node.items)
        nested = any(isinstance(item, s.List) for item in node.items)
        if field is not None and field.kind == "integers":
            if not nested:
                return v.Items(items)
        elif nested:
            message = "a list of values is a sweep: its items cannot be lists"
            raise error_at("wrong-kind", message, node.span)
        return self._sweep(items, node, scope)

    def _sweep(self, items: tuple[v.Value, ...], node: Any, scope: Scope) -> v.Value:
        if not items:
            raise error_at("empty-list", _EMPTY, node.span, help=_FILL)
        first = items[0]
        apart = not all(isinstance(item, v.Quantity) for item in items)
        if not apart and any(item.dimension != first.dimension for item in items):  # type: ignore[union-attr]
            raise error_at(
                "mixed-dimensions", "the values of a sweep have different units", node.span
            )
        inner = v.NO_AXES.union(*(item.axes for item in items))
        shown = [_axis_value(item) for item in items]
        dimension = first.dimension if isinstance(first, v.Quantity) else ONE
        unit = str(dimension) if dimension != ONE else ""
        sweep = Sweep(items, shown, unit, inner, apart)
        if _is_constant(node):
            self.binder.sweeps[id(node)] = sweep
        return self._at_points(sweep, node, scope)

    def _at_points(self, sweep: Sweep, node: Any, scope: Scope) -> v.Value:
        """Return the item of *sweep* at the binder's point, or an array over several points."""
        key = id(node)
        axis = self.binder.axes.get(key)
        if axis is None:
            axis = SweepAxis(key, scope.name, sweep.shown, node.span, sweep.unit)
            self.binder.axes[key] = axis
        self.binder.mark_structural(sweep.axes)
        axis.structural = axis.structural or sweep.structural
        axes = frozenset({key}) | sweep.axes
        index = self.binder.points.get(key, 0)
        if isinstance(index, int):
            return evolve(sweep.items[index], axes=axes)
        import numpy as np

        numbers = np.array([item.number for item in sweep.items], dtype=np.float64)  # type: ignore[union-attr]
        first = sweep.items[0]
        assert isinstance(first, v.Quantity)
        return v.Quantity(numbers[index], first.dimension, axes, True)

    def given_value(self, given: SetValue, scope: Scope) -> v.Value:
        value, field = given.value, scope.field
        assert field is not None
        if isinstance(value, bool):
            return v.Symbol(spec_text(value))
        if isinstance(value, (int, float)):
            return v.Quantity(float(value), field.dimension)
        if isinstance(value, Curve):
            return v.Symbol(value)
        if isinstance(value, (list, tuple)) or hasattr(value, "tolist"):
            listed = value.tolist() if hasattr(value, "tolist") else list(value)
            items = tuple(
                self.given_value(SetValue(item, given.span), scope) for item in _flat(listed)
            )
            if field.kind == "integers":
                return v.Items(items)
            return self._sweep(items, given, scope)
        raise SpecError(
            [Diagnostic("wrong-kind", f"`{scope.name}` cannot be {value!r}", place="set")]
        )


def _is_constant(node: Any) -> bool:
    """Return whether *node* consists only of numbers and strings."""
    match node:
        case s.Number() | s.Text():
            return True
        case s.Unary() | s.List() | s.FunctionCall():
            return all(map(_is_constant, s.parts_of(node)))
    return False


def _axis_value(value: v.Value) -> Any:
    if isinstance(value, v.Quantity):
        number = value.number
        return float(number) if isinstance(number, (float, int)) else number
    if isinstance(value, v.Symbol):
        return value.what.path_name if isinstance(value.what, Definition) else value.what
    if isinstance(value, v.Items):
        return [_axis_value(item) for item in value.items]
    return value.value


def _unknown_unit(part: str, node: s.Number, scope: Scope) -> Diagnostic:
    qualifiers = scope.field.qualifiers if scope.field is not None else {}
    hint = did_you_mean(part, [*known_units(), *qualifiers])
    if qualifiers and not hint:
        name = scope.name.rsplit(".", 1)[-1]
        listed = " or ".join(f"`{qualifier}`" for qualifier in qualifiers)
        return problem("unknown-qualifier", f"`{name}` is in {listed}", node.span, f"not in {part}")
    field = scope.field
    if not hint and field is not None and field.kind == "quantity" and field.dimension == ONE:
        hint = f"`{scope.name.rsplit('.', 1)[-1]}` is a plain number: remove the unit"
    return problem("unknown-unit", f"there is no unit `{part}`", node.span, help=hint)


def _flat(items: list[Any]) -> list[Any]:
    return [x for item in items for x in (_flat(item) if isinstance(item, list) else [item])]
