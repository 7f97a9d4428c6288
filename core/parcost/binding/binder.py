"""From definitions to a study: evaluates expressions, checks units and ranges.

Values are computed on demand, once. One run reports all errors of a study, except consequential
errors.

Sweeps. A list in place of a single value is an axis. A first, probing pass takes the first item of
each list. It finds the axes, and those that affect a structural value (a word, a reference, a
number of stages). Structural axes are then bound one value at a time; the others are arrays over
*points*.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import Factory, evolve

from parcost.binding import defaults
from parcost.binding import values as v
from parcost.binding.conversion import convert, is_literal, stays_inside
from parcost.binding.definitions import Definition, alias_of
from parcost.binding.expressions import Expressions
from parcost.binding.lets import unread_lets
from parcost.binding.modules import Module, add_let
from parcost.binding.names import NameResolver
from parcost.binding.scope import Binding, BrokenError, Scope
from parcost.binding.values import BoundValue
from parcost.contract.origin import Origin
from parcost.contract.schema import new_block
from parcost.language import syntax as s
from parcost.language.diagnostics import Diagnostic, did_you_mean, problem
from parcost.language.errors import SpecError
from parcost.records import define


@define(eq=False, kw_only=True)
class Binder(Binding):
    """Binds one study of a module at given *points*: an index, or an array of indices, per axis."""

    study: s.Block | None
    overrides: Mapping[str, s.Attribute]
    origins: dict[int, Mapping[str, Origin]] = Factory(dict)  # by id of an object
    objects: dict[int, Any] = Factory(dict)
    lacking: dict[type, list[Diagnostic]] = Factory(dict)
    names: NameResolver = Factory(NameResolver, takes_self=True)
    expressions: Expressions = Factory(lambda self: Expressions(self, self.names), takes_self=True)
    _bound: dict[tuple[int, str], BoundValue | None] = Factory(dict)
    _used: set[tuple[int, str]] = Factory(set)  # attributes that other attributes are computed from
    _given: dict[tuple[int, str], s.Attribute] = Factory(dict)

    def bind(self) -> dict[type, tuple[Any, ...]]:
        """Return the study's blocks as objects, by class.

        Errors are added to ``diagnostics``; their objects are missing. Requirements of a block that
        is not in the spec are in ``lacking``. They are errors only if a plugin reads the block.
        """
        preludes = list(self.loader.preludes())
        for module in (*preludes, *self.module.closure()):
            self.diagnostics += module.diagnostics
        self._read_study()
        built = self.module.built  # definitions do not depend on values from outside
        if id(self.study) not in built:
            self.definitions.build(preludes, self.module, self.study)
            built[id(self.study)] = self.definitions
        self.definitions = built[id(self.study)].copy()
        self.diagnostics += self.definitions.diagnostics
        for type_ in self.types.values():  # blocks that need neither a label nor an attribute
            if type_.may_be_implied:
                self.definitions.table.setdefault((type_.kind, ""), Definition(type_, "", None))
        self._apply_overrides()
        blocks: dict[type, tuple[Any, ...]] = {}
        for definition in self.definitions.table.values():
            schema = definition.type.schema
            count = len(self.diagnostics)
            made = self._object_or_none(definition)
            if made is not None:
                blocks[schema] = (*blocks.get(schema, ()), made)
            elif not definition.layers and not self._is_set(definition):
                # A block whose default needs a block that is lacking too has its reasons.
                reasons = self.diagnostics[count:] or next(iter(self.lacking.values()), [])
                self.lacking[schema] = reasons
                del self.diagnostics[count:]
        if not self.names.used.keys() >= {*self.module.lets, *self.study_lets}:
            self.diagnostics += unread_lets(self.module, self.study_lets)
        return blocks

    def release(self) -> None:
        """Remove the references back to this binder, after the evaluation."""
        del self.names, self.expressions

    def _read_study(self) -> None:
        for item in self.study.items if self.study else ():
            if isinstance(item, s.Attribute):
                add_let(item, self.study_lets, self.diagnostics)
            elif isinstance(item, (s.Statement, s.Claim)):
                self.diagnostics.append(
                    problem(
                        "misplaced-statement",
                        "this block or attribute is not allowed inside a study",
                        item.span,
                    )
                )

    def _is_set(self, definition: Definition) -> bool:
        """Return whether an attribute of *definition*, or of a block in it, is set from outside."""
        if not self._given:
            return False
        owners = {owner for owner, _ in self._given}
        return id(definition) in owners or any(map(self._is_set, definition.children.values()))

    def _apply_overrides(self) -> None:
        for path, node in self.overrides.items():
            self._add_block(path.partition(".")[0])
            try:
                definition, name = self._locate(path)
            except SpecError as failed:  # the file may have the block, with an error
                raise SpecError([*self.diagnostics, *failed.diagnostics]) from None
            self._given[id(definition), name] = node

    def _add_block(self, kind: str) -> None:
        """Add a block of a missing kind, unless such blocks need a label."""
        type_ = self.types.get(kind)
        if type_ is None or type_.inside or type_.label == "required":
            return
        if self._find_definition(kind) is None and not self.definitions.of_kind(kind):
            self.definitions.table[kind, ""] = Definition(type_, "", None)

    def _locate(self, path: str) -> tuple[Definition, str]:
        """Return the block and the attribute at *path*, following inner blocks and references.

        Raises:
            SpecError: There is no such attribute, or several.
        """
        *steps, name = path.split(".")
        definition = self._definition_at(steps) if steps else None
        if definition is None or name not in definition.type.fields:
            table = self.definitions.table.values()
            known = {
                f"{called}.{n}": None
                for top in table
                for called, d in [(top.path_name, top), *_nested_paths(top.path_name, top)]
                for n in d.type.fields
            }
            message = f"there is no attribute `{path}`"
            several = [p for p in known if p.endswith(f".{path}")]
            help: str | None = None
            if several:
                help = "there is " + ", ".join(f"`{one}`" for one in several)
            help = help or self._alias_help(steps, name, definition)
            ends = {p.partition(".")[2]: None for p in known if p.count(".") > 1}
            help = help or _suggest(path, [*{**known, **ends}])
            type_ = self.types.get(steps[0]) if steps else None
            kinds = {d.type.kind for d in table}
            absent = type_ is not None and not type_.inside and type_.kind not in kinds
            if type_ is not None and absent and not several and self._definition_at(steps) is None:
                help = f"the study has no block `{type_.kind}`: write one with a label"
            place = self.module.source.name
            raise SpecError([Diagnostic("unknown-attribute", message, place=place, help=help)])
        return definition, name

    def _definition_at(self, steps: Sequence[str]) -> Definition | None:
        definition = self._find_definition(steps[0])
        for step in steps[1:]:
            definition = self.inner(definition, step) if definition else None
        return definition

    def is_at(self, path: str, owner: object) -> bool:
        """Return whether *path* is the path of the block object *owner*, or of a block
        inside it.
        """
        steps = path.split(".")
        first = self._definition_at(steps[:1])
        if first is None or self.objects.get(id(first)) is not owner:
            return False
        return self._definition_at(steps) is not None

    def _alias_help(
        self, steps: Sequence[str], name: str, definition: Definition | None
    ) -> str | None:
        """Return a help line with the path of the attribute that other tools call *name*."""
        kind = definition.type.kind if definition is not None else ""
        aliased = alias_of(name, kind, self.types)
        if aliased is None:
            return None
        other, instead = aliased
        block = ".".join(steps) if other == kind else other
        return f"write `{instead}`" if "{" in instead else f"write `{block}.{instead}`"

    def inner(self, definition: Definition, step: str) -> Definition | None:
        """Return the block called *step* in *definition*, or the block that its attribute *step*
        refers to.
        """
        for child in definition.children.values():
            if step in (child.label, child.type.kind):
                return child
        field = definition.type.fields.get(step)
        if field is None or field.kind != "reference":
            return None
        given = self._given.get((id(definition), step))
        if given is None and step in definition.attributes:
            given, _ = definition.attributes[step]
        if given is None:  # an omitted reference is to the only one
            only = self.definitions.of_kind(field.target)
            return only[0] if len(only) == 1 else None
        return self._find_definition(given.value.text) if isinstance(given.value, s.Path) else None

    def _find_definition(self, word: str) -> Definition | None:
        table = self.definitions.table.values()
        found = [d for d in table if d.label == word] or self.definitions.of_kind(word)
        if not found:
            inner = (d for top in table for _, d in _nested_paths(top.path_name, top))
            found = [d for d in inner if d.label == word]
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
        shared = self._share_key(definition)
        known = self.loader.made.get(shared) if shared else None
        if known:
            made, origins = known
            self.origins |= origins
        else:
            made = self._build(definition)
        self.objects[key] = made
        if shared and not known and self._is_closed(definition):
            inside = [made, *self._inside(definition)]
            self.loader.made[shared] = made, {id(one): self.origins[id(one)] for one in inside}
        return made

    def _build(self, definition: Definition) -> Any:
        """Build and return the object of a definition, and record the origin of its attributes."""
        type_ = definition.type
        held: dict[str, Any] = {}
        origins: dict[str, Origin] = {}
        missing: list[str] = []
        broken = False
        for name, field in type_.fields.items():
            if field.kind == "children":
                nested = [c for c in definition.children.values() if c.type.kind == field.target]
                inside = [self._object_or_none(child) for child in nested]
                broken = broken or None in inside
                held[name] = tuple(inside)
                continue
            try:
                bound = self._bound_value(definition, name)
            except BrokenError:
                broken = True
                if not self.is_given(definition, name) and name not in type_.defaults:
                    missing.append(name)
            else:
                held[name], origins[name] = bound.held, bound.origin
        if missing:
            self.diagnostics.append(self._report_missing_attributes(definition, missing))
        if broken:
            raise BrokenError
        if definition.header is not None:
            origins[""] = Origin("given", definition.header.kind.span)
        made: Any = new_block(type_.schema, {**held, "label": definition.label})
        self.origins[id(made)] = origins
        return made

    def _share_key(
        self, definition: Definition, within: tuple[int, ...] = ()
    ) -> tuple[Any, ...] | None:
        """Return the cache key of the object of *definition*, with which studies share it; None if
        they cannot.

        The key has the type, the label and the layers of the block and of all blocks in its
        references. All must come from catalogues, whose modules live as long as the loader.
        """
        if id(definition) in within:  # blocks that refer to one another
            return None
        for _, module in definition.layers:
            if not module.catalogue or module is self.module:
                return None
        if self._is_set(definition):
            return None
        key = definition.type.schema, definition.label, *(id(b) for b, _ in definition.layers)
        for target in self._references(definition):
            other = target and self._share_key(target, (*within, id(definition)))
            if not other:
                return None
            key = *key, other
        return key

    def _references(self, definition: Definition) -> Iterator[Definition | None]:
        """Yield the blocks that attributes of *definition* refer to; None for an invalid one."""
        for name, (node, module) in definition.attributes.items():
            field = definition.type.fields.get(name)
            if field is not None and field.kind == "reference":
                yield (
                    self.names.block_of_kind(node.value.text, field.target, module, node.value)
                    if isinstance(node.value, s.Path)
                    else None
                )

    def _is_closed(self, definition: Definition) -> bool:
        """Return whether the object of *definition* is independent of values outside the
        definition.
        """
        type_ = definition.type
        for name, field in type_.fields.items():
            if name in definition.attributes:
                node, module = definition.attributes[name]
                if ("imported", id(node)) in module.literals:
                    continue
                if field.kind == "reference":  # `_share_key` has followed it
                    continue
            elif field.kind == "children" or defaults.plain_default(type_.schema, name):
                continue
            else:
                node, _ = defaults.expression(type_.kind, name, type_.defaults[name])
            if not stays_inside(node, field, type_):
                return False
        return all(self._is_closed(child) for child in definition.children.values())

    def _inside(self, definition: Definition) -> Iterator[Any]:
        """Yield the objects of the inner blocks of *definition*, and of the blocks to which it
        refers.
        """
        for child in (*definition.children.values(), *self._references(definition)):
            if child is not None:
                yield self.object(child)
                yield from self._inside(child)

    def _report_missing_attributes(self, definition: Definition, names: list[str]) -> Diagnostic:
        listed = ", ".join(f"`{name}`" for name in names)
        docs = [f"`{n}`: {definition.type.fields[n].doc}" for n in names]
        for group, text in definition.type.any_of.items():
            if not any(self.is_given(definition, name) for name in group):
                docs.append(f"also required: {text}")
        header = definition.header
        message = f"`{definition.path_name}` lacks {listed}"
        if header is None:
            return Diagnostic("missing-attribute", message, place=self.module.source.name)
        help = None
        if definition.label and len(header.words) == 1:
            like = f"`{definition.type.kind} {definition.label} extends NAME {{ ... }}`"
            help = f"write them, or extend a similar block: {like}"
        return problem("missing-attribute", message, header.kind.span, notes=docs, help=help)

    def is_given(self, definition: Definition, name: str) -> bool:
        return name in definition.attributes or (id(definition), name) in self._given

    def is_used(self, block: Any, name: str) -> bool:
        """Return whether the value of another attribute may depend on an attribute of *block*."""
        shared = any(made is block for made, _ in self.loader.made.values())
        own = (key for key, made in self.objects.items() if made is block)
        return shared or any((key, name) in self._used for key in own)

    def attribute(self, definition: Definition, name: str) -> BoundValue:
        """Return the value of an attribute, which another attribute or a claim needs."""
        self._used.add((id(definition), name))
        return self._bound_value(definition, name)

    def _bound_value(self, definition: Definition, name: str) -> BoundValue:
        """Return the value of an attribute, computed once."""
        key = (id(definition), name)
        if key in self._bound:
            known = self._bound[key]
            if known is None:
                raise BrokenError
            return known
        if key in self._given:
            node = self._given[key]
            origin = Origin("set", node.span)
            bound = self._bind_value(definition, name, node, self.module, origin)
        elif name in definition.attributes:
            bound = self._file_value(definition, name)
        else:
            bound = self._default(definition, name)
        self._bound[key] = bound
        return bound

    def _file_value(self, definition: Definition, name: str) -> BoundValue:
        """Return the value that a file gives an attribute; literals are evaluated once per file."""
        node, module = definition.attributes[name]
        how = "given" if module is self.module else "imported"
        known = module.literals.get((how, id(node)))
        if known is not None:
            return known
        origin = Origin(how, node.span, *_provenance(node, definition))
        bound = self._bind_value(definition, name, node, module, origin)
        if is_literal(node, definition.type.fields[name], bound):
            module.literals[how, id(node)] = bound
        return bound

    def _default(self, definition: Definition, name: str) -> BoundValue:
        """Return the default value of an attribute that no file sets."""
        type_ = definition.type
        if name not in type_.defaults:
            raise BrokenError  # reported with its block, as missing
        bound = defaults.plain_default(type_.schema, name)
        if bound is not None:
            return bound
        node, origin = defaults.expression(type_.kind, name, type_.defaults[name])
        if type_.fields[name].kind == "reference":
            origin = evolve(origin, reason=self._only_block(type_.defaults[name]))
        return self._bind_value(definition, name, node, self.module, origin)

    def _only_block(self, kind: str) -> str:
        """Return the reason for a default reference, "the only KIND"; "" if there are others."""
        found = self.definitions.of_kind(kind)
        if len(found) != 1 or found[0].is_default:
            return ""
        own = any(module is self.module for _, module in found[0].layers)
        return f"the only {kind}" if own else f"the only {kind} that is imported"

    def _bind_value(
        self,
        definition: Definition,
        name: str,
        node: s.Attribute,
        module: Module,
        origin: Origin,
    ) -> BoundValue:
        key = (id(definition), name)
        for i, (owner, opened, _) in enumerate(self.open):
            if (owner, opened) == key:
                self.report_circle(name, node, self.open[i + 1 :])
                raise BrokenError
        self.open.append((*key, node.name.span))
        try:
            field = definition.type.fields[name]
            scope = Scope(definition, module, field, f"{definition.path_name}.{name}")
            return convert(self.expressions, node, scope, origin)
        except SpecError as error:
            self.diagnostics += error.diagnostics
            self._bound[key] = None
            raise BrokenError from None
        except BrokenError:
            self._bound[key] = None
            raise
        finally:
            self.open.pop()

    def evaluate(self, node: Any, scope: Scope) -> v.Value:
        """Return the value of an expression."""
        return self.expressions.evaluate(node, scope)


def _suggest(path: str, known: Sequence[str]) -> str | None:
    """Return a help line with the attributes nearest to *path*, or None.

    They are in the same block under a similar name, or in another block under the same name.
    """
    block, _, last = path.rpartition(".")
    own = {name.rpartition(".")[2]: name for name in known if name.rpartition(".")[0] == block}
    same = [name for name in known if name.rpartition(".")[2] == last]
    if did_you_mean(last, own) or not same:
        return did_you_mean(path, own.values()) or did_you_mean(path, known)
    return did_you_mean(path, same) or f"did you mean {' or '.join(f'`{n}`' for n in same[:3])}?"


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


def _nested_paths(path: str, definition: Definition) -> Iterator[tuple[str, Definition]]:
    """Yield the blocks inside *definition* with their paths, which begin with *path*."""
    for child in definition.children.values():
        inner = f"{path}.{child.path_name}"
        yield inner, child
        yield from _nested_paths(inner, child)
