"""From definitions to a study: expressions evaluated, units checked, ranges checked.

Values are computed when they are needed, once. Everything wrong with a study is
reported in one run; what depends on something broken is not reported again.

Sweeps. A list where one value is wanted is an axis. A first, probing pass takes the
first item of each and learns which axes exist, and which of them reach something
structural (a word, a reference, a number of stages). Structural axes are then bound
one value at a time; the others are arrays over *points*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import Factory, define, evolve, frozen

from parcost import syntax as s
from parcost import values as v
from parcost.definitions import Definition, Definitions, find_block
from parcost.diagnostics import Diagnostic, Severity, SpecError, did_you_mean, problem
from parcost.document import Loader, Module, Origin, add_let, label_of
from parcost.parse import parse
from parcost.schema import BlockType, Curve, Field
from parcost.text import Source, Span
from parcost.units import BIT_RATE, BITS, BYTES, FLOPS, ONE, RATE, SECONDS, known_units, unit

DEEPEST = 100
MOST_POINTS = 10_000_000


@define(eq=False)
class Axis:
    """A sweep: its name, its values, and whether something structural depends on it."""

    key: int
    name: str
    values: list[Any]
    span: Span
    structural: bool = False


@frozen(eq=False)
class Given:
    """A value from outside the language, already in base units; stands for an expression."""

    value: Any
    span: Span


@frozen(eq=False)
class Bound:
    """An attribute's value: as the language has it, and as the block's object holds it."""

    value: v.Value
    held: Any
    origin: Origin


@frozen(eq=False)
class _Scope:
    """Where an expression stands."""

    definition: Definition | None
    module: Module
    field: Field | None
    name: str


class _BrokenError(Exception):
    """The value depends on something that has been reported."""


@define(eq=False)
class Binder:
    """Binds one study of a module at given *points* (an index, or indices, per axis)."""

    types: Mapping[str, BlockType]
    registries: Callable[[str], Sequence[str]]
    loader: Loader
    module: Module
    study: s.Block | None
    overrides: Mapping[str, s.Attribute]
    missing_hint: str = ""
    points: Mapping[int, Any] = Factory(dict)
    found: list[Diagnostic] = Factory(list)
    axes: dict[int, Axis] = Factory(dict)
    origins: dict[tuple[int, str], Origin] = Factory(dict)
    objects: dict[int, Any] = Factory(dict)
    definitions: Definitions = Factory(
        lambda self: Definitions(self.types, self.missing_hint), takes_self=True
    )
    _bound: dict[tuple[int, str], Bound | None] = Factory(dict)
    _lets: dict[int, v.Value | None] = Factory(dict)
    _open: list[tuple[int, str, Span]] = Factory(list)
    _depth: int = 0
    _given: dict[tuple[int, str], s.Attribute] = Factory(dict)
    _study_lets: dict[str, s.Attribute] = Factory(dict)
    _masked: bool = False

    def bind(self) -> dict[type, tuple[Any, ...]]:
        """Return the study's blocks as objects, by class.

        What is wrong is in ``found``; objects are missing then.
        """
        preludes = list(self.loader.preludes())
        for module in (*preludes, *_closure(self.module, set())):
            self.found += module.diagnostics
        self._read_study()
        self.definitions.build(preludes, self.module, self.study)
        self.found += self.definitions.found
        self._imply()
        self._apply_overrides()
        blocks: dict[type, tuple[Any, ...]] = {}
        for definition in self.definitions.table.values():
            made = self._object_or_none(definition)
            if made is not None:
                schema = definition.type.schema
                blocks[schema] = (*blocks.get(schema, ()), made)
        return blocks

    def claim_value(self, node: s.Expr, module: Module) -> v.Value:
        """Return the value of an expression in an ``expect`` block."""
        return self._evaluate(node, _Scope(None, module, None, "expect"))

    # --- the study's own items, implied blocks, overrides ---------------------------

    def _read_study(self) -> None:
        for item in self.study.items if self.study else ():
            if isinstance(item, s.Attribute):
                add_let(item, self._study_lets, self.found)
            elif isinstance(item, (s.Statement, s.Claim)):
                self.found.append(
                    problem("misplaced-statement", "this cannot stand in a study", item.span)
                )

    def _imply(self) -> None:
        """Let blocks exist that need no label and no attribute."""
        for type_ in self.types.values():
            optional = type_.label == "none" and not type_.inside
            complete = all(name in type_.defaults for name in type_.fields)
            if optional and complete and (type_.kind, "") not in self.definitions.table:
                self.definitions.table[type_.kind, ""] = Definition(type_, "", None)

    def _apply_overrides(self) -> None:
        for path, node in self.overrides.items():
            definition, name = self._locate(path)
            self._given[id(definition), name] = node

    def _locate(self, path: str) -> tuple[Definition, str]:
        *steps, name = path.split(".")
        definition = self._find_definition(steps[0]) if steps else None
        for step in steps[1:]:
            children = definition.children.values() if definition else ()
            definition = next((c for c in children if step in (c.label, c.type.kind)), None)
        if definition is None or name not in definition.type.fields:
            known = [
                f"{d.called}.{n}" for d in self.definitions.table.values() for n in d.type.fields
            ]
            message = f"there is no attribute `{path}`"
            raise SpecError(
                [
                    Diagnostic(
                        "unknown-attribute",
                        message,
                        place=self.module.source.name,
                        help=did_you_mean(path, known),
                    )
                ]
            )
        return definition, name

    def _find_definition(self, word: str) -> Definition | None:
        table = self.definitions.table.values()
        labelled = [d for d in table if d.label == word]
        kinds = [d for d in table if d.type.kind == word]
        found = labelled or kinds
        return found[0] if len(found) == 1 else None

    # --- blocks ----------------------------------------------------------------------

    def _object_or_none(self, definition: Definition) -> Any:
        try:
            return self._object(definition)
        except _BrokenError:
            return None

    def _object(self, definition: Definition) -> Any:
        key = id(definition)
        if key in self.objects:
            if self.objects[key] is None:
                raise _BrokenError
            return self.objects[key]
        self.objects[key] = None
        type_ = definition.type
        held: dict[str, Any] = {}
        origins: dict[str, Origin] = {}
        missing: list[str] = []
        broken = False
        for name, field in type_.fields.items():
            if field.kind == "children":
                nested = [c for c in definition.children.values() if c.type.kind == field.target]
                made = [self._object_or_none(child) for child in nested]
                broken = broken or None in made
                held[name] = tuple(made)
                continue
            if not self._is_given(definition, name) and name not in type_.defaults:
                missing.append(name)
                continue
            bound = self._attribute_or_none(definition, name)
            if bound is None:
                broken = True
            else:
                held[name], origins[name] = bound.held, bound.origin
        if missing:
            self.found.append(self._missing(definition, missing))
        if missing or broken:
            raise _BrokenError
        made = type_.schema(label=definition.label, **held)
        self.objects[key] = made
        for name, origin in origins.items():
            self.origins[id(made), name] = origin
        if definition.header is not None:
            self.origins[id(made), ""] = Origin("given", definition.header.kind.span)
        return made

    def _missing(self, definition: Definition, names: list[str]) -> Diagnostic:
        listed = ", ".join(f"`{name}`" for name in names)
        docs = [f"`{n}`: {definition.type.fields[n].doc}" for n in names]
        header = definition.header
        message = f"`{definition.called}` lacks {listed}"
        if header is None:
            return Diagnostic("missing-attribute", message, place=self.module.source.name)
        return problem("missing-attribute", message, header.kind.span, notes=docs)

    # --- attributes ------------------------------------------------------------------

    def _is_given(self, definition: Definition, name: str) -> bool:
        return name in definition.attributes or (id(definition), name) in self._given

    def _attribute_or_none(self, definition: Definition, name: str) -> Bound | None:
        try:
            return self.attribute(definition, name)
        except _BrokenError:
            return None

    def attribute(self, definition: Definition, name: str) -> Bound:
        """Return the value of an attribute, computed once, whoever asks."""
        key = (id(definition), name)
        if key in self._bound:
            known = self._bound[key]
            if known is None:
                raise _BrokenError
            return known
        bound: Bound | None = None
        if not self._is_given(definition, name):
            bound = _plain_default(definition.type, name)
        if bound is None:
            node, module, origin = self._source_of(definition, name)
            bound = self._guarded(definition, name, node, module, origin)
        self._bound[key] = bound
        return bound

    def _guarded(
        self,
        definition: Definition,
        name: str,
        node: s.Attribute,
        module: Module,
        origin: Origin,
    ) -> Bound:
        key = (id(definition), name)
        for i, (owner, opened, _) in enumerate(self._open):
            if (owner, opened) == key:
                self._report_circle(name, node, self._open[i + 1 :])
                raise _BrokenError
        self._open.append((*key, node.name.span))
        try:
            field = definition.type.fields[name]
            scope = _Scope(definition, module, field, f"{definition.called}.{name}")
            return self._convert(node, scope, origin)
        except SpecError as error:
            self.found += error.diagnostics
            self._bound[key] = None
            raise _BrokenError from None
        except _BrokenError:
            self._bound[key] = None
            raise
        finally:
            self._open.pop()

    def _report_circle(
        self, name: str, node: s.Attribute, others: list[tuple[int, str, Span]]
    ) -> None:
        also = [(span, "which needs this") for _, _, span in others]
        self.found.append(
            problem(
                "circular",
                f"`{name}` depends on itself",
                node.name.span,
                "to know this",
                also=also,
            )
        )

    def _source_of(self, definition: Definition, name: str) -> tuple[s.Attribute, Module, Origin]:
        key = (id(definition), name)
        if key in self._given:
            node = self._given[key]
            return node, self.module, Origin("set", node.span)
        if name in definition.attributes:
            node, module = definition.attributes[name]
            how = "given" if module is self.module else "imported"
            kind, source = _provenance(node, definition)
            return node, module, Origin(how, node.span, kind, source)
        node = _default_attribute(definition.type.kind, name, definition.type.defaults[name])
        return node, self.module, Origin("default", expression=node.value.span.text)

    def _convert(self, node: s.Attribute, scope: _Scope, origin: Origin) -> Bound:
        field = scope.field
        assert field is not None
        if isinstance(node.value, Given):
            value = self._given_value(node.value, scope)
        else:
            value = self._evaluate(node.value, scope)
        if field.kind == "quantity":
            return self._quantity(node, value, scope, field, origin)
        if value.axes:
            for axis in value.axes:
                self.axes[axis].structural = True
        if field.kind == "integers":
            return Bound(value, self._integers(value, node), origin)
        if not isinstance(value, v.Said):
            raise SpecError([self._wrong_kind(node, value, field)])
        what = value.what
        if field.kind == "reference":
            if not isinstance(what, Definition):
                raise SpecError([self._wrong_kind(node, value, field)])
            return Bound(value, self._object(what), origin)
        if isinstance(what, Definition) or not isinstance(what, str):
            raise SpecError([self._wrong_kind(node, value, field)])
        if field.kind == "switch":
            return Bound(value, what == "on", origin)
        return Bound(value, what, origin)

    def _wrong_kind(self, node: s.Attribute, value: v.Value, field: Field) -> Diagnostic:
        wanted = {
            "word": "a word",
            "switch": "`on` or `off`",
            "text": "a string in quotes",
            "reference": f"the name of a `{field.target}`",
            "integers": "a list of whole numbers",
        }[field.kind]
        return problem(
            "wrong-kind",
            f"`{node.name.text}` is {wanted}",
            node.value.span,
            f"this is {v.describe(value)}",
        )

    def _integers(self, value: v.Value, node: s.Attribute) -> tuple[int, ...]:
        items = value.items if isinstance(value, v.Items) else (value,)
        whole: list[int] = []
        for item in items:
            if (
                not isinstance(item, v.Quantity)
                or item.dimension != ONE
                or not isinstance(item.number, (float, int))
                or item.number != int(item.number)
                or not 0 <= item.number < 2**31
            ):
                raise SpecError(
                    [
                        problem(
                            "wrong-kind",
                            f"`{node.name.text}` is a list of whole numbers",
                            node.value.span,
                        )
                    ]
                )
            whole.append(int(item.number))
        return tuple(whole)

    def _quantity(
        self, node: s.Attribute, value: v.Value, scope: _Scope, field: Field, origin: Origin
    ) -> Bound:
        name = node.name.text
        if isinstance(value, v.Said) and isinstance(value.what, Curve):
            if not field.curve:
                raise SpecError([self._not_a_number(node, value)])
            return Bound(value, value.what, origin)
        if isinstance(value, v.Said) and value.what is None:
            raise _BrokenError
        if not isinstance(value, v.Quantity):
            raise SpecError([self._not_a_number(node, value)])
        if value.dimension != field.dimension:
            value = self._converted(node, value, field)
        if node.qualifiers or field.must_qualify:
            value = self._qualified(node, value, scope, field)
        number = value.number
        if field.whole or field.minimum is not None or field.positive or field.maximum:
            self._check_range(name, number, node, field)
        if field.structural:
            for axis in value.axes:
                self.axes[axis].structural = True
            number = int(number) if isinstance(number, (float, int)) else int(number.flat[0])
        return Bound(value, number, origin)

    def _not_a_number(self, node: s.Attribute, value: v.Value) -> Diagnostic:
        return problem(
            "not-a-number",
            f"`{node.name.text}` is a number",
            node.value.span,
            f"this is {v.describe(value)}",
        )

    def _converted(self, node: s.Attribute, value: v.Quantity, field: Field) -> v.Quantity:
        name, span = node.name.text, node.value.span
        wanted = field.dimension
        if wanted == RATE and value.dimension == BIT_RATE:
            return evolve(value, number=value.number / 8.0, dimension=RATE)
        if wanted == BYTES and value.dimension == BITS:
            raise SpecError(
                [
                    problem(
                        "bit-for-byte",
                        f"`{name}` is measured in bytes, and this is in bits",
                        span,
                        f"this is {_shown(value.number / 8.0, 'B')}",
                        help=f"write `{span.text.replace('bit', 'B').replace('b', 'B')}` "
                        "if bytes are meant, or `bytes(...)` to convert",
                    )
                ]
            )
        if value.dimension == ONE:
            raise SpecError(
                [
                    problem(
                        "missing-unit",
                        f"`{name}` needs a unit",
                        span,
                        "this is a plain number",
                        help=f"units of {wanted} are {_examples(wanted)}",
                    )
                ]
            )
        measured = "is a plain number" if wanted == ONE else f"is measured in {wanted}"
        raise SpecError(
            [
                problem(
                    "wrong-dimension",
                    f"`{name}` {measured}",
                    span,
                    f"this is {v.describe(value)}",
                )
            ]
        )

    def _qualified(
        self, node: s.Attribute, value: v.Quantity, scope: _Scope, field: Field
    ) -> v.Quantity:
        name = node.name.text
        said = [q.text for q in node.qualifiers]
        for qualifier in node.qualifiers:
            if qualifier.text not in field.qualifiers:
                raise SpecError([_unknown_qualifier(name, qualifier, field)])
        if isinstance(node.value, s.Number) and node.value.unit in field.qualifiers:
            if node.value.unit not in known_units():
                said.append(node.value.unit)
        if len(said) > 1:
            raise SpecError(
                [
                    problem(
                        "duplicate",
                        f"`{name}` cannot be both {said[0]} and {said[1]}",
                        node.qualifiers[-1].span,
                    )
                ]
            )
        if not said:
            if field.must_qualify and value.literal and not isinstance(node.value, Given):
                choices = " or ".join(f"`{q}`" for q in field.qualifiers)
                raise SpecError(
                    [
                        problem(
                            "ambiguous-quantity",
                            f"`{name}` must say {choices}",
                            node.value.span,
                            "which one is this?",
                            help=f"write `{node.value.span.text} {next(iter(field.qualifiers))}`",
                        )
                    ]
                )
            return value
        factor = field.qualifiers[said[0]]
        if isinstance(factor, str):
            assert scope.definition is not None
            by = self.attribute(scope.definition, factor).value
            assert isinstance(by, v.Quantity)
            return evolve(value, number=value.number / by.number, axes=value.axes | by.axes)
        return value if factor == 1.0 else evolve(value, number=value.number * factor)

    def _check_range(self, name: str, number: Any, node: s.Attribute, field: Field) -> None:
        worst = number if isinstance(number, (float, int)) else _worst(number, field)
        low, high = field.minimum, field.maximum
        complaint = hint = ""
        if field.whole and worst != int(worst):
            complaint = f"`{name}` is a whole number"
            near = sorted({max(int(worst), int(low or 0)), int(worst) + 1})
            hint = "the nearest are " + " and ".join(f"{n}" for n in near)
            id = "not-whole"
        elif (low is not None and worst < low) or (field.positive and worst <= 0):
            bound = "above 0" if field.positive else f"at least {_shown(low or 0.0, '')}"
            complaint, id = f"`{name}` must be {bound}", "out-of-range"
        elif high is not None and worst > high:
            complaint, id = f"`{name}` must be at most {_shown(high, '')}", "out-of-range"
            hint = f"the nearest legal value is {_shown(high, '')}"
        if complaint:
            raise SpecError(
                [
                    problem(
                        id,
                        complaint,
                        node.value.span,
                        f"this is {_shown(worst, '')}",
                        help=hint or None,
                        notes=[f"{name}: {field.doc}"],
                    )
                ]
            )

    # --- expressions -----------------------------------------------------------------

    def _evaluate(self, node: Any, scope: _Scope) -> v.Value:
        if type(node) is s.Number:
            return self._number(node, scope)
        self._depth += 1
        try:
            if self._depth > DEEPEST:
                raise SpecError([problem("nesting-too-deep", "this nests too deeply", node.span)])
            return self._inner(node, scope)
        finally:
            self._depth -= 1

    def _inner(self, node: Any, scope: _Scope) -> v.Value:
        match node:
            case s.Path():
                return self._path(node, scope)
            case s.Chain():
                operands = [self._evaluate(operand, scope) for operand in node.operands]
                return v.chain(node, operands, masked=self._masked)
            case s.Unary():
                inner = self._evaluate(node.operand, scope)
                return v.negate(inner, node.operator, node.operand.span)
            case s.Conditional():
                return self._conditional(node, scope)
            case s.Call():
                listed = node.function.text == "curve"
                arguments = [
                    v.Items(tuple(self._evaluate(i, scope) for i in argument.items))
                    if listed and isinstance(argument, s.List)
                    else self._evaluate(argument, scope)
                    for argument in node.arguments
                ]
                value = v.call(node, arguments)
                if isinstance(value, v.Items):
                    return self._sweep(value.items, node, scope)
                return value
            case s.List():
                return self._list(node, scope)
            case s.Text():
                return v.Said(node.value)
        raise AssertionError(node)

    def _number(self, node: s.Number, scope: _Scope) -> v.Value:
        try:
            number = float(node.text)
        except ValueError:
            raise SpecError([problem("not-a-number", "this is no number", node.span)]) from None
        if number in (float("inf"), float("-inf")):
            raise SpecError(
                [problem("not-finite", "this number is too large to compute with", node.span)]
            )
        if not node.unit:
            return v.Quantity(number, ONE, v.NO_AXES, True)
        try:
            size, dimension = unit(node.unit)
        except KeyError as error:
            if scope.field is not None and node.unit in scope.field.qualifiers:
                return v.Quantity(number, ONE, v.NO_AXES, True)
            part = error.args[0]
            qualifiers = scope.field.qualifiers if scope.field is not None else ()
            raise SpecError(
                [
                    problem(
                        "unknown-unit",
                        f"there is no unit `{part}`",
                        node.span,
                        help=did_you_mean(part, [*known_units(), *qualifiers]),
                    )
                ]
            ) from None
        scaled = number * size
        if scaled == float("inf"):
            raise SpecError(
                [problem("not-finite", "this number is too large to compute with", node.span)]
            )
        return v.Quantity(scaled, dimension, v.NO_AXES, True)

    def _conditional(self, node: s.Conditional, scope: _Scope) -> v.Value:
        condition = v.truth(self._evaluate(node.condition, scope), node.condition.span)
        if isinstance(condition.value, bool):
            taken, other = node.then, node.otherwise
            if not condition.value:
                taken, other = other, taken
            value = self._evaluate(taken, scope)
            alternative = self._quietly(other, scope)
            if alternative is not None:
                v.agree(value, alternative, node)
                value = evolve(value, axes=value.axes | alternative.axes)
            return evolve(value, axes=value.axes | condition.axes)
        masked, self._masked = self._masked, True
        try:
            then = self._evaluate(node.then, scope)
            otherwise = self._evaluate(node.otherwise, scope)
        finally:
            self._masked = masked
        v.agree(then, otherwise, node)
        return v.choose(condition, then, otherwise, node)

    def _quietly(self, node: s.Expr, scope: _Scope) -> v.Value | None:
        """Return the value of a branch that is not taken, if it has one at all."""
        count = len(self.found)
        try:
            return self._evaluate(node, scope)
        except SpecError as error:
            numeric = {"division-by-zero", "not-finite"}
            if any(d.id not in numeric for d in error.diagnostics):
                raise
            return None
        except _BrokenError:
            del self.found[count:]
            return None

    def _list(self, node: s.List, scope: _Scope) -> v.Value:
        if not node.items:
            if scope.field is not None and scope.field.kind == "integers":
                return v.Items(())
            raise SpecError([problem("empty-list", "a sweep over nothing", node.span)])
        field = scope.field
        if field is not None and field.kind == "integers":
            if not any(isinstance(item, s.List) for item in node.items):
                return v.Items(tuple(self._evaluate(item, scope) for item in node.items))
        return self._sweep(tuple(self._evaluate(item, scope) for item in node.items), node, scope)

    def _sweep(self, items: tuple[v.Value, ...], node: Any, scope: _Scope) -> v.Value:
        key = id(node)
        if not items:
            raise SpecError([problem("empty-list", "a sweep over nothing", node.span)])
        axis = self.axes.get(key)
        if axis is None:
            shown = [_axis_value(item) for item in items]
            axis = self.axes[key] = Axis(key, scope.name, shown, node.span)
        first = items[0]
        inner = v.NO_AXES
        for item in items:
            inner |= item.axes
        for other in inner:
            self.axes[other].structural = True
        axes = frozenset({key}) | inner
        if not all(isinstance(item, v.Quantity) for item in items):
            axis.structural = True
        elif any(item.dimension != first.dimension for item in items):  # type: ignore[union-attr]
            raise SpecError(
                [problem("mixed-dimensions", "the items of a sweep differ in dimension", node.span)]
            )
        index = self.points.get(key, 0)
        if isinstance(index, int):
            return evolve(items[index], axes=axes)
        import numpy as np

        numbers = np.array([item.number for item in items], dtype=np.float64)  # type: ignore[union-attr]
        assert isinstance(first, v.Quantity)
        return v.Quantity(numbers[index], first.dimension, axes, True)

    def _given_value(self, given: Given, scope: _Scope) -> v.Value:
        value, field = given.value, scope.field
        assert field is not None
        if isinstance(value, bool):
            return v.Said("on" if value else "off")
        if isinstance(value, (int, float)):
            return v.Quantity(float(value), field.dimension)
        if isinstance(value, Curve):
            return v.Said(value)
        if isinstance(value, (list, tuple)) or hasattr(value, "tolist"):
            listed = value.tolist() if hasattr(value, "tolist") else list(value)
            items = tuple(
                self._given_value(Given(item, given.span), scope) for item in _flat(listed)
            )
            if field.kind == "integers":
                return v.Items(items)
            return self._sweep(items, given, scope)
        raise SpecError(
            [Diagnostic("wrong-kind", f"`{scope.name}` cannot be {value!r}", place="set")]
        )

    # --- names -----------------------------------------------------------------------

    def _path(self, node: s.Path, scope: _Scope) -> v.Value:
        field = scope.field
        parts = node.parts
        first = parts[0].text
        if field is not None and len(parts) == 1 and field.kind in ("word", "switch"):
            choices = self._choices(field)
            if first in choices:
                return v.Said(first)
        let = self._let(first, scope.module)
        if field is not None and field.kind in ("word", "switch", "text"):
            if let is not None and len(parts) == 1:
                return self._let_value(let[0], let[1], scope)
            raise SpecError([self._wrong_word(node, scope, field)])
        if field is not None and field.kind == "reference":
            if let is not None and len(parts) == 1:
                return self._let_value(let[0], let[1], scope)
            return v.Said(self._block_named(node, scope, field.target))
        definition = scope.definition
        if definition is not None and first in definition.type.fields:
            return self._walk(self._member(definition, parts[0], node), parts[1:], node)
        if let is not None:
            return self._walk(self._let_value(let[0], let[1], scope), parts[1:], node)
        block = self._block(first, scope.module, node)
        if block is not None:
            return self._walk(v.Said(block), parts[1:], node)
        if first in scope.module.aliases and len(parts) > 1:
            return self._through_alias(scope.module.aliases[first], node)
        raise SpecError([self._unknown_name(node, scope)])

    def _choices(self, field: Field) -> tuple[str, ...]:
        if field.registry:
            return (*field.choices, *self.registries(field.registry))
        return field.choices

    def _wrong_word(self, node: s.Path, scope: _Scope, field: Field) -> Diagnostic:
        name = scope.name.rsplit(".", 1)[-1]
        choices = self._choices(field)
        if field.kind == "text":
            return problem(
                "wrong-kind",
                f"`{name}` is a string in quotes",
                node.span,
                help=f'write `"{node.text}"`',
            )
        listed = ", ".join(f"`{c}`" for c in choices)
        return problem(
            "wrong-word",
            f"`{name}` cannot be `{node.text}`",
            node.span,
            f"one of {listed}",
            help=did_you_mean(node.text, choices),
        )

    def _let(self, word: str, module: Module) -> tuple[s.Attribute, Module] | None:
        if module is self.module and word in self._study_lets:
            return self._study_lets[word], module
        if word in module.lets:
            return module.lets[word], module
        for other in module.merged:
            inner = self._let(word, other)
            if inner:
                return inner
        return None

    def _let_value(self, node: s.Attribute, module: Module, scope: _Scope) -> v.Value:
        key = id(node) if scope.field is None or scope.field.kind == "quantity" else 0
        if key in self._lets:
            value = self._lets[key]
            if value is None:
                raise _BrokenError
            return value
        for i, (owner, _, _) in enumerate(self._open):
            if owner == id(node):
                self._report_circle(node.name.text, node, self._open[i + 1 :])
                raise _BrokenError
        self._open.append((id(node), node.name.text, node.name.span))
        try:
            field = scope.field if key == 0 else None
            value = self._evaluate(node.value, _Scope(None, module, field, node.name.text))
        except SpecError as error:
            self.found += error.diagnostics
            self._lets[id(node)] = None
            raise _BrokenError from None
        finally:
            self._open.pop()
        if isinstance(value, v.Quantity):
            value = evolve(value, literal=False) if key else value
        if key:
            self._lets[key] = value
        return value

    def _block(self, word: str, module: Module, node: s.Path) -> Definition | None:
        """Return the block that *word* names: by label in scope, or by kind if unique."""
        table = self.definitions.table
        labelled = [d for (_, label), d in table.items() if label == word]
        if len(labelled) == 1:
            return labelled[0]
        kinds = [d for (kind, _), d in table.items() if kind == word]
        if len(kinds) == 1:
            return kinds[0]
        if len(labelled) + len(kinds) > 1:
            names = ", ".join(f"`{d.called}`" for d in labelled or kinds)
            raise SpecError(
                [problem("ambiguous-name", f"`{word}` may be any of {names}", node.span)]
            )
        found = find_block(s.Path((node.parts[0],), node.span), module)
        return self.definitions.named(*found) if found else None

    def _through_alias(self, module: Module, node: s.Path) -> v.Value:
        word = node.parts[1]
        if word.text in module.lets:
            scope = _Scope(None, module, None, word.text)
            return self._let_value(module.lets[word.text], module, scope)
        for block in module.blocks:
            if word.text in (label_of(block), block.kind.text):
                definition = self.definitions.named(module, block)
                if definition is not None:
                    return self._walk(v.Said(definition), node.parts[2:], node)
        known = [*module.lets, *(label_of(b) or b.kind.text for b in module.blocks)]
        raise SpecError(
            [
                problem(
                    "unknown-name",
                    f"`{module.source.name}` has no `{word.text}`",
                    word.span,
                    help=did_you_mean(word.text, known),
                )
            ]
        )

    def _block_named(self, node: s.Path, scope: _Scope, target: str) -> Definition:
        first = node.parts[0].text
        if len(node.parts) == 1:
            block = self._block_of_kind(first, target, scope.module, node)
            if block is not None:
                return block
        elif first in scope.module.aliases:
            value = self._through_alias(scope.module.aliases[first], node)
            if isinstance(value, v.Said) and isinstance(value.what, Definition):
                return value.what
        known = [d.label for (kind, _), d in self.definitions.table.items() if kind == target]
        known = [k for k in known if k]
        message = f"there is no `{target}` called `{node.text}`"
        hint = did_you_mean(node.text, known)
        if first == target and len(node.parts) == 1:
            message = f"the study has no `{target}`"
            hint = f"write `{target} NAME {{ ... }}`, or import one from the catalogue"
            if known:
                message = f"the study has {len(known)} blocks `{target}`: which one?"
                hint = " or ".join(f"`{scope.name.rsplit('.')[-1]} = {k}`" for k in known[:4])
        if not hint:
            hint = f"import it: `use catalog.{target}s.{node.text}`"
        span = node.span
        if not _in_files(span) and scope.definition and scope.definition.header:
            span = scope.definition.header.kind.span
        raise SpecError([problem("unknown-name", message, span, help=hint)])

    def _block_of_kind(
        self, word: str, target: str, module: Module, node: s.Path
    ) -> Definition | None:
        table = self.definitions.table
        if (target, word) in table:
            return table[target, word]
        of_kind = [d for (kind, _), d in table.items() if kind == target]
        if word == target and len(of_kind) == 1:
            return of_kind[0]
        found = find_block(node, module)
        if found and found[1].kind.text == target:
            return self.definitions.named(*found)
        return None

    def _member(self, definition: Definition, name: s.Name, node: s.Path) -> v.Value:
        type_ = definition.type
        field = type_.fields.get(name.text)
        if field is None or field.kind == "children":
            for child in definition.children.values():
                if name.text in (child.label, child.type.kind):
                    return v.Said(child)
            known = [*type_.fields, *(c.called for c in definition.children.values())]
            raise SpecError(
                [
                    problem(
                        "unknown-name",
                        f"`{definition.called}` has no `{name.text}`",
                        name.span,
                        help=did_you_mean(name.text, known),
                    )
                ]
            )
        if not self._is_given(definition, name.text) and name.text not in type_.defaults:
            raise _BrokenError
        value = self.attribute(definition, name.text).value
        if isinstance(value, v.Said) and value.what is None:
            raise SpecError(
                [
                    problem(
                        "not-given",
                        f"`{definition.called}.{name.text}` is not given",
                        node.span,
                    )
                ]
            )
        return evolve(value, literal=False) if isinstance(value, v.Quantity) else value

    def _walk(self, value: v.Value, rest: Sequence[s.Name], node: s.Path) -> v.Value:
        for name in rest:
            if not isinstance(value, v.Said) or not isinstance(value.what, Definition):
                raise SpecError(
                    [problem("unknown-name", f"`{name.text}` is no part of a number", name.span)]
                )
            inner = self._member(value.what, name, node)
            value = evolve(inner, axes=inner.axes | value.axes) if value.axes else inner
        return value

    def _unknown_name(self, node: s.Path, scope: _Scope) -> Diagnostic:
        known = [*scope.module.lets, *scope.module.aliases, *self._study_lets]
        for (kind, label), definition in self.definitions.table.items():
            known += [label or kind]
            known += [f"{label or kind}.{name}" for name in definition.type.fields]
        if scope.definition is not None:
            known += scope.definition.type.fields
        if len(node.parts) == 1 and scope.field is not None and scope.field.qualifiers:
            known += scope.field.qualifiers
        return problem(
            "unknown-name",
            f"nothing is called `{node.text}`",
            node.span,
            help=did_you_mean(node.text, known),
        )


def _closure(module: Module, done: set[int]) -> list[Module]:
    """Return *module* and everything that it imports, each once."""
    if id(module) in done:
        return []
    done.add(id(module))
    found = [module]
    for other in (*module.merged, *module.aliases.values(), *(m for m, _, _ in module.picked)):
        found += _closure(other, done)
    return found


def _provenance(node: s.Attribute, definition: Definition) -> tuple[str, str]:
    given = node.provenance
    if not given:
        for block, _ in reversed(definition.layers):
            if any(item is node for item in block.items):
                given = block.provenance
                break
    if not given:
        return "", ""
    first = given[0]
    return first.kind.text, first.source.value if first.source else ""


_DEFAULTS: dict[tuple[str, str, str], s.Attribute] = {}


def _plain_default(type_: BlockType, name: str) -> Bound | None:
    """Return a declared default that is a value and not an expression, or None."""
    default, field = type_.defaults[name], type_.fields[name]
    if default is None or default == ():
        return Bound(v.Said(None), default, Origin("default", expression="none"))
    if isinstance(default, bool):
        spelled = "on" if default else "off"
        return Bound(v.Said(spelled), default, Origin("default", expression=spelled))
    if isinstance(default, (int, float)):
        number = int(default) if field.structural else float(default)
        value = v.Quantity(float(default), field.dimension)
        return Bound(value, number, Origin("default", expression=f"{default:g}"))
    if field.kind in ("word", "text"):
        return Bound(v.Said(default), default, Origin("default", expression=default))
    return None


def _default_attribute(kind: str, name: str, text: str) -> s.Attribute:
    """Return a default expression as if it had been written in a spec."""
    key = (kind, name, text)
    if key not in _DEFAULTS:
        _DEFAULTS[key] = _parse_value(name, text, f"default of {kind}.{name}")
    return _DEFAULTS[key]


def _parse_value(name: str, text: str, place: str) -> s.Attribute:
    source = Source(place, f"let {name} = {text}\n")
    tree, found = parse(source)
    if not found and len(tree.items) == 1 and isinstance(tree.items[0], s.Attribute):
        return tree.items[0]
    raise SpecError(found or [Diagnostic("syntax", f"`{text}` is no value", place=place)])


def given(path: str, value: Any) -> s.Attribute:
    """Return *value* as if it had been written in a spec, as the attribute at *path*.

    A string is an expression of the language; a number is in base units.

    Raises:
        SpecError: The string is no expression.
    """
    name = path.rsplit(".", 1)[-1]
    if isinstance(value, str):
        return _parse_value(name, value, f"set {path}")
    span = Span(Source(f"set {path}", f"{value}"), 0, len(f"{value}"))
    word = s.Name(name, span)
    return s.Attribute((), s.Path((word,), span), Given(value, span), (), (), span)  # type: ignore[arg-type]


def _unknown_qualifier(name: str, qualifier: s.Name, field: Field) -> Diagnostic:
    if not field.qualifiers:
        return problem(
            "unknown-qualifier",
            f"`{name}` takes no word after its value",
            qualifier.span,
            help="several attributes on a line need commas",
        )
    return problem(
        "unknown-qualifier",
        f"`{name}` cannot be `{qualifier.text}`",
        qualifier.span,
        "one of " + ", ".join(f"`{q}`" for q in field.qualifiers),
        help=did_you_mean(qualifier.text, field.qualifiers),
    )


def _axis_value(value: v.Value) -> Any:
    if isinstance(value, v.Quantity):
        number = value.number
        return float(number) if isinstance(number, (float, int)) else number
    if isinstance(value, v.Said):
        return value.what.called if isinstance(value.what, Definition) else value.what
    if isinstance(value, v.Items):
        return [_axis_value(item) for item in value.items]
    return value.value


def _flat(items: list[Any]) -> list[Any]:
    return [x for item in items for x in (_flat(item) if isinstance(item, list) else [item])]


def _worst(numbers: Any, field: Field) -> float:
    """Return the element that breaks the range of *field*, or any one."""
    import numpy as np

    flat = np.ravel(numbers)
    if field.whole and np.any(broken := flat != np.floor(flat)):
        return float(flat[broken][0])
    low = float(flat.min())
    too_low = (field.minimum is not None and low < field.minimum) or (field.positive and low <= 0)
    return low if too_low else float(flat.max())


def _in_files(span: Span) -> bool:
    return not span.source.name.startswith("default of ")


def _shown(number: float, suffix: str) -> str:
    return f"{number:g}{' ' + suffix if suffix else ''}"


def _examples(dimension: Any) -> str:
    known = {
        BYTES: "`GB`, `GiB`, `MB`",
        RATE: "`GB/s`, `Gbps`",
        SECONDS: "`s`, `ms`, `us`",
        FLOPS: "`TFLOPS`",
    }
    fallback = [f"`{name}`" for name, (_, d) in known_units().items() if d == dimension][:4]
    return known.get(dimension) or ", ".join(fallback)


def warning(diagnostic: Diagnostic) -> Diagnostic:
    """Return *diagnostic* as a warning."""
    return evolve(diagnostic, severity=Severity.WARNING)
