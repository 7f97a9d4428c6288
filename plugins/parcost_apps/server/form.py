"""The form of a study, made from the fields of its blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from parcost.contract.forms import (
    Form,
    FormInput,
    InputChoice,
    InputGroup,
    InputKind,
    SearchAxis,
    SearchChoices,
)
from parcost.contract.schema import Field, block_type
from parcost.language.numbers import literal, spec_text
from parcost.search.space import plugin_axes
from parcost_apps.documentation import declarations
from parcost_apps.server.bodies import LONGEST_SEARCH_SECONDS
from parcost_formats.rendering.resolved_spec import AttributeText, BlockText, block_texts

if TYPE_CHECKING:
    from parcost.contract.study import Study
    from parcost.engine.scenario import Scenario

#: Blocks by path, in order, each with the title of its part.
BlockOrder = Mapping[str, str]

_FIRST = 1  # parts whose blocks are open: what the file says


def block_order(scenario: Scenario) -> BlockOrder:
    """Return the block title of each path of *scenario*, in the order of its resolved spec."""
    return {
        text.path: title for title, texts in block_texts(scenario.first).items() for text in texts
    }


def form_of(scenario: Scenario, order: BlockOrder) -> Form:
    """Return the form of *scenario*, without blocks that no path reaches.

    Blocks in *order* keep their place; otherwise overridden blocks would come first.

    Raises:
        SpecError: The scenario cannot be bound.
    """
    study = scenario.first
    places = {path: place for place, path in enumerate(order)}
    found: dict[str, list[BlockText]] = {title: [] for title in order.values()}
    for title, texts in block_texts(study).items():
        for text in texts:
            if text.attributes and scenario.binder.is_at(text.path, text.owner):
                found.setdefault(order.get(text.path, title), []).append(text)
    axes = plugin_axes(study)
    swept = dict(scenario.axes)
    parts = [
        (
            title,
            [
                InputGroup(
                    title=text.title,
                    doc=_flow(type(text.block).__doc__),
                    inputs=list(_inputs(scenario, text, swept, is_of_file=place < _FIRST)),
                    is_open=place < _FIRST
                    or any(f"{text.path}.{n}" in axes for n in text.attributes),
                )
                for text in sorted(texts, key=lambda text: places.get(text.path, len(places)))
            ],
        )
        for place, (title, texts) in enumerate(found.items())
    ]
    return Form(parts=parts, search=_search_choices(study))


def _search_choices(study: Study) -> SearchChoices | None:
    objectives = [(o.name, o.title) for _, o in study.contributions("objectives") if not o.needs]
    if not objectives or not study.trains:
        return None
    axes = [
        SearchAxis(path=path, values=[f"{spec_text(value)}" for value in axis.values])
        for path, axis in plugin_axes(study).items()  # type: ignore[arg-type]
    ]
    return SearchChoices(axes=axes, objectives=objectives, longest_seconds=LONGEST_SEARCH_SECONDS)


def _inputs(
    scenario: Scenario,
    text: BlockText,
    swept: Mapping[str, Sequence[Any]],
    *,
    is_of_file: bool,
) -> Iterator[FormInput]:
    for name, attribute in text.attributes.items():
        path = f"{text.path}.{name}"
        field = block_type(type(text.block)).fields[name]
        value = attribute.text.removesuffix(attribute.provenance)
        if path in swept:
            value = _list_text(swept[path], field)
        choices = list(_choices(scenario, field, attribute))
        yield FormInput(
            path=path,
            name=name,
            kind=_kind(field, value, choices),
            doc=_flow(field.doc),
            accepts=declarations.value(field).replace("`", ""),
            text=value,
            implied=attribute.implied,
            place=attribute.place,
            choices=choices,
            minimum=field.minimum,
            maximum=field.maximum,
            is_own=is_of_file and bool(attribute.text) and _is_chosen(attribute, field),
        )


def _is_chosen(attribute: AttributeText, field: Field) -> bool:
    """Return whether the file sets an attribute, or names the block that it refers to."""
    return attribute.is_given or field.kind == "reference"


def _kind(field: Field, value: str, choices: Sequence[InputChoice]) -> InputKind:
    """Return the kind of input of an attribute; a sweep or an expression is a text."""
    if field.kind == "switch" and value in ("on", "off"):
        return "switch"
    if choices and (not value or value in [choice.text for choice in choices]):
        return "choice"
    if field.whole and not field.qualifiers and (not value or value.isdecimal()):
        return "number"
    return "text"


def _choices(scenario: Scenario, field: Field, attribute: AttributeText) -> Iterator[InputChoice]:
    if field.kind == "switch" and not attribute.text:
        yield from (InputChoice(text=word) for word in ("on", "off"))
    elif field.kind == "word":
        yield from (InputChoice(text=word) for word in scenario.binder.names.choices(field))
    elif field.kind == "reference":
        entries = scenario.loader.entries_of(field.target)
        table = scenario.binder.definitions.table
        own = [label for kind, label in table if kind == field.target and label]
        imported = "" if not attribute.text else attribute.text.removesuffix(attribute.provenance)
        for label in dict.fromkeys((*own, *filter(None, [imported]), *entries)):
            yield InputChoice(text=label, entry="" if label in own else entries.get(label, ""))


def _list_text(values: Sequence[Any], field: Field) -> str:
    """Return the values of a sweep as a list."""
    quantity = field.kind == "quantity"
    texts = (literal(float(v), field.dimension) if quantity else f"{spec_text(v)}" for v in values)
    return f"[{', '.join(texts)}]"


def _flow(text: str | None) -> str:
    return " ".join((text or "").split()).replace("``", "").replace("`", "")
