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

from attrs import Factory, define

from parcost.binding import defaults
from parcost.binding import values as v
from parcost.binding.convert import convert
from parcost.binding.definitions import Definition, Definitions
from parcost.binding.document import Loader, Module, Origin, add_let
from parcost.binding.expressions import Expressions
from parcost.binding.names import Names
from parcost.binding.scope import Axis, Bound, BrokenError, Scope
from parcost.diagnostics import Diagnostic, SpecError, did_you_mean, problem
from parcost.language import syntax as s
from parcost.language.text import Span
from parcost.schema import BlockType


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
    lacking: dict[type, list[Diagnostic]] = Factory(dict)
    definitions: Definitions = Factory(
        lambda self: Definitions(self.types, self.missing_hint), takes_self=True
    )
    expressions: Expressions = Factory(Expressions, takes_self=True)
    names: Names = Factory(Names, takes_self=True)
    _bound: dict[tuple[int, str], Bound | None] = Factory(dict)
    open: list[tuple[int, str, Span]] = Factory(list)
    _given: dict[tuple[int, str], s.Attribute] = Factory(dict)
    study_lets: dict[str, s.Attribute] = Factory(dict)

    def bind(self) -> dict[type, tuple[Any, ...]]:
        """Return the study's blocks as objects, by class.

        What is wrong is in ``found``; objects are missing then. What a block that
        nobody wrote would need is in ``lacking``: it is wrong only once it is asked for.
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
            schema = definition.type.schema
            count = len(self.found)
            made = self._object_or_none(definition)
            if made is not None:
                blocks[schema] = (*blocks.get(schema, ()), made)
            elif not definition.layers and not self._is_set(definition):
                self.lacking[schema] = self.found[count:]
                del self.found[count:]
        return blocks

    def claim_value(self, node: s.Expr, module: Module) -> v.Value:
        """Return the value of an expression in an ``expect`` block."""
        return self.evaluate(node, Scope(None, module, None, "expect"))

    def _read_study(self) -> None:
        for item in self.study.items if self.study else ():
            if isinstance(item, s.Attribute):
                add_let(item, self.study_lets, self.found)
            elif isinstance(item, (s.Statement, s.Claim)):
                self.found.append(
                    problem("misplaced-statement", "this cannot stand in a study", item.span)
                )

    def _is_set(self, definition: Definition) -> bool:
        return any((id(definition), name) in self._given for name in definition.type.fields)

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
                        help=did_you_mean(path, known) or _ending_in(path, known),
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

    def _object_or_none(self, definition: Definition) -> Any:
        try:
            return self.object(definition)
        except BrokenError:
            return None

    def object(self, definition: Definition) -> Any:
        key = id(definition)
        if key in self.objects:
            if self.objects[key] is None:
                raise BrokenError
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
            if not self.is_given(definition, name) and name not in type_.defaults:
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
            raise BrokenError
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

    def is_given(self, definition: Definition, name: str) -> bool:
        return name in definition.attributes or (id(definition), name) in self._given

    def _attribute_or_none(self, definition: Definition, name: str) -> Bound | None:
        try:
            return self.attribute(definition, name)
        except BrokenError:
            return None

    def attribute(self, definition: Definition, name: str) -> Bound:
        """Return the value of an attribute, computed once, whoever asks."""
        key = (id(definition), name)
        if key in self._bound:
            known = self._bound[key]
            if known is None:
                raise BrokenError
            return known
        bound: Bound | None = None
        if not self.is_given(definition, name):
            if name not in definition.type.defaults:
                raise BrokenError  # reported with its block, as missing
            bound = defaults.plain(definition.type, name)
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
        for i, (owner, opened, _) in enumerate(self.open):
            if (owner, opened) == key:
                self.report_circle(name, node, self.open[i + 1 :])
                raise BrokenError
        self.open.append((*key, node.name.span))
        try:
            field = definition.type.fields[name]
            scope = Scope(definition, module, field, f"{definition.called}.{name}")
            return convert(self, node, scope, origin)
        except SpecError as error:
            self.found += error.diagnostics
            self._bound[key] = None
            raise BrokenError from None
        except BrokenError:
            self._bound[key] = None
            raise
        finally:
            self.open.pop()

    def report_circle(
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
        node = defaults.expression(definition.type.kind, name, definition.type.defaults[name])
        return node, self.module, Origin("default", expression=node.value.span.text)

    def evaluate(self, node: Any, scope: Scope) -> v.Value:
        """Return the value of an expression."""
        return self.expressions.evaluate(node, scope)


def _ending_in(path: str, known: Sequence[str]) -> str | None:
    """Return a help line naming the attributes that are called so in some block."""
    last = path.rsplit(".", 1)[-1]
    found = [f"`{name}`" for name in known if name.rsplit(".", 1)[-1] == last]
    return f"did you mean {' or '.join(found[:3])}?" if found else None


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
