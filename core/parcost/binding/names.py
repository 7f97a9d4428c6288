"""Resolves names: attributes of the block, lets, blocks by label or kind, imports."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import Factory, evolve

from parcost.binding import values as v
from parcost.binding.definitions import Definition, find_block
from parcost.binding.modules import Module, label_of
from parcost.binding.scope import Binding, BrokenError, Scope
from parcost.contract.schema import Field
from parcost.language import syntax as s
from parcost.language.diagnostics import Diagnostic, did_you_mean, problem
from parcost.language.errors import SpecError, error_at
from parcost.language.numbers import literal
from parcost.language.text import Span
from parcost.numeric import is_array
from parcost.records import define


@define(eq=False)
class NameResolver:
    """Resolves names in expressions, for a binder."""

    binder: Binding
    _lets: dict[int, v.Value | None] = Factory(dict)
    used: dict[str, str] = Factory(dict)  # lets by the names that they were met under

    def path(self, node: s.Path, scope: Scope) -> v.Value:
        field = scope.field
        parts = node.parts
        first = parts[0].text
        if field is not None and len(parts) == 1 and field.kind in ("word", "switch"):
            choices = self.choices(field)
            if first in choices:
                return v.Symbol(first)
        let = self.let(first, scope.module)
        kind = field.kind if field is not None else ""
        if let is not None and len(parts) == 1 and kind in ("word", "switch", "text", "reference"):
            return self._let_value(*let, scope)
        if field is not None and kind in ("word", "switch", "text"):
            raise SpecError([self.wrong_word(node.text, node.span, scope.name, field)])
        if field is not None and kind == "reference":
            return v.Symbol(self._resolve_label(node, scope, field.target))
        definition = scope.definition
        if definition is not None and first in definition.type.fields:
            return self._walk(self._member(definition, parts[0], node), parts[1:], node)
        if let is not None:
            return self._walk(self._let_value(*let, scope), parts[1:], node)
        block = self.block(first, scope.module, node)
        if block is not None:
            return self._walk(v.Symbol(block), parts[1:], node)
        if first in scope.module.aliases and len(parts) > 1:
            return self._through_alias(scope.module.aliases[first], node)
        raise SpecError([self._unknown_name(node, scope)])

    def choices(self, field: Field) -> tuple[str, ...]:
        """Return the words that *field* accepts: its own choices, and the names in its registry."""
        if field.registry:
            return (*field.choices, *self.binder.registries(field.registry))
        return field.choices

    def wrong_word(self, said: str, span: Span, attribute: str, field: Field) -> Diagnostic:
        """Return the error for a word *said* that *field* does not accept."""
        name = attribute.rsplit(".", 1)[-1]
        if field.kind == "text":
            return problem(
                "wrong-kind", f"`{name}` takes a string in quotes", span, help=f'write `"{said}"`'
            )
        choices = self.choices(field)
        listed = ", ".join(f"`{c}`" for c in choices)
        return problem(
            "wrong-word",
            f"`{name}` cannot be `{said}`",
            span,
            f"one of {listed}" if choices else "no plugin provides a value",
            help=did_you_mean(said, choices),
            notes=self.binder.loader.absences if field.registry else (),
        )

    def let(self, word: str, module: Module) -> tuple[s.Attribute, Module] | None:
        """Return the let that *word* names in *module*, and its file."""
        if module is self.binder.module and word in self.binder.study_lets:
            return self.binder.study_lets[word], module
        for other in module.scope:
            if word in other.lets:
                return other.lets[word], other
        return None

    def _let_value(
        self, node: s.Attribute, module: Module, scope: Scope, alias: str = ""
    ) -> v.Value:
        value = self._let_bound(node, module, scope)
        name = alias or node.name.text
        if name not in self.used:
            self.used[name] = _let_text(value, node)
        return value

    def _let_bound(self, node: s.Attribute, module: Module, scope: Scope) -> v.Value:
        key = id(node) if scope.field is None or scope.field.kind == "quantity" else 0
        if key in self._lets:
            value = self._lets[key]
            if value is None:
                raise BrokenError
            return value
        for i, (owner, _, _) in enumerate(self.binder.open):
            if owner == id(node):
                self.binder.report_circle(node.name.text, node, self.binder.open[i + 1 :])
                raise BrokenError
        self.binder.open.append((id(node), node.name.text, node.name.span))
        try:
            field = scope.field if key == 0 else None
            value = self.binder.evaluate(node.value, Scope(None, module, field, node.name.text))
        except SpecError as error:
            self.binder.diagnostics += error.diagnostics
            self._lets[id(node)] = None
            raise BrokenError from None
        finally:
            self.binder.open.pop()
        if key:
            value = self._lets[key] = v.reference_value(value)
        return value

    def block(self, word: str, module: Module, node: s.Path) -> Definition | None:
        """Return the block that *word* names: by label in scope, or by kind if unique."""
        table = self.binder.definitions.table
        labelled = [d for (_, label), d in table.items() if label == word]
        if len(labelled) == 1:
            return labelled[0]
        kinds = self.binder.definitions.of_kind(word)
        if len(kinds) == 1:
            return kinds[0]
        if len(labelled) + len(kinds) > 1:
            message = (
                f"`{word}` is ambiguous: it may be "
                f"{', '.join(f'`{d.path_name}`' for d in labelled or kinds)}"
            )
            help = "keep one of them; to change single attributes, use `--set`"
            raise error_at("ambiguous-name", message, node.span, help=help)
        found = find_block(s.Path((node.parts[0],), node.span), module)
        return self.binder.definitions.definition_of(*found) if found else None

    def _through_alias(self, module: Module, node: s.Path) -> v.Value:
        word = node.parts[1]
        if word.text in module.lets:
            scope = Scope(None, module, None, word.text)
            alias = f"{node.parts[0].text}.{word.text}"
            return self._let_value(module.lets[word.text], module, scope, alias)
        for block in module.blocks:
            if word.text in (label_of(block), block.kind.text):
                definition = self.binder.definitions.definition_of(module, block)
                if definition is not None:
                    return self._walk(v.Symbol(definition), node.parts[2:], node)
        known = [*module.lets, *(label_of(b) or b.kind.text for b in module.blocks)]
        message = f"`{module.source.name}` has no `{word.text}`"
        raise error_at("unknown-name", message, word.span, help=did_you_mean(word.text, known))

    def _resolve_label(self, node: s.Path, scope: Scope, target: str) -> Definition:
        first = node.parts[0].text
        if len(node.parts) == 1:
            block = self.block_of_kind(first, target, scope.module, node)
            if block is not None:
                return block
        elif first in scope.module.aliases:
            value = self._through_alias(scope.module.aliases[first], node)
            if isinstance(value, v.Symbol) and isinstance(value.what, Definition):
                return value.what
        known = [
            d.label for (kind, _), d in self.binder.definitions.table.items() if kind == target
        ]
        known = [k for k in known if k]
        message = f"there is no `{target}` called `{node.text}`"
        hint = did_you_mean(node.text, known)
        if first == target and len(node.parts) == 1:
            message = f"the study has no `{target}`"
            hint = f"write `{target} NAME {{ ... }}`, or import one from the catalogue"
            hint += self._usual_entry(target)
            if known:
                message = f"the study has {len(known)} blocks `{target}`: choose one"
                hint = " or ".join(f"`{scope.name.rsplit('.')[-1]} = {k}`" for k in known[:4])
                hint += f"; on the command line `--set {scope.name}={known[-1]}`"
        else:
            entry = node.parts[-1].text  # of a whole path, its name
            hint = self.binder.loader.import_hint(entry, target, known) or hint
            if entry in known and len(node.parts) > 1:
                hint = f"write `{entry}`, which is imported"
            hint = hint or "`parcost catalog` lists what can be imported"
        span = node.span
        if not _is_written(span) and scope.definition and scope.definition.header:
            span = scope.definition.header.kind.span
        id = "unknown-name" if first != target or len(node.parts) > 1 else "missing-block"
        raise error_at(id, message, span, help=hint)

    def _usual_entry(self, target: str) -> str:
        """Return a hint with the entry of kind *target* that another block of the study usually
        has.
        """
        entries = self.binder.loader.entries_of(target)
        for definition in self.binder.definitions.table.values():
            attribute, _ = definition.attributes.get(target, (None, None))
            if attribute is not None and isinstance(attribute.value, s.Path):
                path = entries.get(attribute.value.text)
                if path is not None:
                    return f": `use {path}` is usual for `{definition.path_name}`"
        return ""

    def block_of_kind(
        self, word: str, target: str, module: Module, node: s.Path
    ) -> Definition | None:
        """Return the block of the kind *target* that *word* names in *module*, if there is one."""
        table = self.binder.definitions.table
        if (target, word) in table:
            return table[target, word]
        of_kind = self.binder.definitions.of_kind(target)
        if word == target and len(of_kind) == 1:
            return of_kind[0]
        found = find_block(node, module)
        if found and found[1].kind.text == target:
            return self.binder.definitions.definition_of(*found)
        return None

    def _member(self, definition: Definition, name: s.Name, node: s.Path) -> v.Value:
        type_ = definition.type
        field = type_.fields.get(name.text)
        if field is None or field.kind == "children":
            for child in definition.children.values():
                if name.text in (child.label, child.type.kind):
                    return v.Symbol(child)
            known = [*type_.fields, *(c.path_name for c in definition.children.values())]
            message = f"`{definition.path_name}` has no `{name.text}`"
            raise error_at("unknown-name", message, name.span, help=did_you_mean(name.text, known))
        if not self.binder.is_given(definition, name.text) and name.text not in type_.defaults:
            raise BrokenError
        value = self.binder.attribute(definition, name.text).value
        if isinstance(value, v.Symbol) and value.what is None:
            message = (
                f"`{definition.path_name}.{name.text}` has no value here, and it has no default"
            )
            help = "write it in its block, or remove the reference"
            raise error_at("not-given", message, node.span, help=help)
        return v.reference_value(value)

    def _walk(self, value: v.Value, rest: Sequence[s.Name], node: s.Path) -> v.Value:
        for name in rest:
            if not isinstance(value, v.Symbol) or not isinstance(value.what, Definition):
                raise error_at(
                    "unknown-name", f"a number has no attribute `{name.text}`", name.span
                )
            inner = self._member(value.what, name, node)
            value = evolve(inner, axes=inner.axes | value.axes) if value.axes else inner
        return value

    def _unknown_name(self, node: s.Path, scope: Scope) -> Diagnostic:
        missing, inner = node.parts[0].text, len(node.parts) > 1
        type_ = self.binder.types.get(missing)
        example = (type_.example if type_ is not None else "") or f"{missing} {{ ... }}"
        help = f"write `{example}`"
        if not _is_written(node.span):
            message = f"the study has no `{missing}`, which the default of `{scope.name}` needs"
            return Diagnostic(
                "missing-block", message, place=self.binder.module.source.name, help=help
            )
        definitions = self.binder.definitions.table
        if type_ is not None and inner and all(kind != missing for kind, _ in definitions):
            message = f"the study has no `{missing}`, which `{scope.name}` needs"
            return problem("missing-block", message, node.span, help=help)
        known = [*scope.module.lets, *scope.module.aliases, *self.binder.study_lets]
        for (kind, label), definition in self.binder.definitions.table.items():
            known += [label or kind]
            known += [f"{label or kind}.{name}" for name in definition.type.fields]
        if scope.definition is not None:
            known += scope.definition.type.fields
        if len(node.parts) == 1 and scope.field is not None and scope.field.qualifiers:
            known += scope.field.qualifiers
        wanted = scope.field
        return problem(
            "unknown-name",
            f"no value, block or `let` is called `{node.text}`",
            node.span,
            notes=[f"{scope.name.rpartition(chr(46))[2]}: {wanted.doc}"]
            if wanted is not None and wanted.doc
            else (),
            help=_alias_hint(node.text, scope)
            or did_you_mean(node.text, known)
            or f"define it with `let {node.parts[0].text} = ...`, or import its block with `use`",
        )


def _alias_hint(word: str, scope: Scope) -> str | None:
    """Return a help line if other tools call the value of this attribute *word*, or None."""
    if scope.definition is None:
        return None
    instead = scope.definition.type.aliases.get(word, "")
    attribute = scope.name.rpartition(".")[2]
    return f"write `{instead}`" if instead.startswith(f"{attribute} =") else None


def _is_written(span: Span) -> bool:
    """Return whether a place is in a file instead of the default of an attribute."""
    return not span.source.name.startswith("default of ")


def _let_text(value: v.Value, node: s.Attribute) -> str:
    """Return the text of a let's value: a number, the chosen word of a sweep, or its expression."""
    if isinstance(value, v.Quantity) and not is_array(value.number):
        return literal(float(value.number), value.dimension)
    if (
        isinstance(value, v.Symbol)
        and isinstance(value.what, str)
        and isinstance(node.value, s.List)
    ):
        return value.what
    return node.value.span.text
