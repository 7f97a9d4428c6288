"""Attributes of a study by their paths, and their possible values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from parcost.contract.schema import block_type
from parcost.language.diagnostics import Diagnostic, did_you_mean
from parcost.language.errors import SpecError
from parcost.search.variants import Choice

if TYPE_CHECKING:
    from parcost.contract.searches import Axis
    from parcost.contract.study import Study
    from parcost.engine.scenario import Scenario


def choice_of(scenario: Scenario, study: Study, axis: Axis) -> Choice:
    """Return the choice for *axis*, with its values in the form that the block stores."""
    block, attribute = find(study, axis.attribute)
    held = [_object_value(scenario, axis.attribute, value, study) for value in axis.values]
    return Choice(
        name=axis.attribute,
        schema=type(block),
        label=vars(block).get("label", ""),
        attribute=attribute,
        values=held,
    )


def find(study: Study, path: str) -> tuple[Any, str]:
    """Return the block of the attribute at *path*, and the attribute's name."""
    owner, _, attribute = path.rpartition(".")
    passed = []
    for block in _blocks([block for blocks in study.blocks.values() for block in blocks]):
        type_ = block_type(type(block))
        owners = (type_.kind, vars(block).get("label", ""))
        if owner in owners and attribute in type_.fields:
            return block, attribute
        passed += [(one, type_.fields) for one in owners if one]
    known = dict.fromkeys(f"{one}.{name}" for one, fields in passed for name in fields)
    place = study.path or study.name
    message = f"a search cannot choose `{path}`: no block of the study has it"
    help = did_you_mean(path, known)
    raise SpecError([Diagnostic("unknown-attribute", message, place=place, help=help)])


def _blocks(found: Sequence[Any]) -> Iterator[Any]:
    """Yield all blocks, including nested ones."""
    yield from found
    inner = [x for block in found for held in vars(block).values() for x in _held_by(held)]
    if inner:
        yield from _blocks(inner)


def _held_by(value: Any) -> Sequence[Any]:
    items = value if isinstance(value, tuple) else (value,)
    return [item for item in items if hasattr(type(item), "__block__")]


def is_text(block: Any, attribute: str) -> bool:
    """Return whether an attribute holds a string, which the language writes in quotes."""
    return block_type(type(block)).fields[attribute].kind == "text"


def _object_value(scenario: Scenario, path: str, value: Any, study: Study) -> Any:
    """Return *value* in the form that a block stores: a bool for a switch, a string for a word."""
    block, attribute = find(study, path)
    field = block_type(type(block)).fields[attribute]
    kind = field.kind
    if kind == "quantity" and not field.structural:
        return float(value)
    if kind == "switch":
        return value in ("on", True)
    if kind == "word":
        return value
    if kind == "text":
        return value.strip('"')
    if kind not in {"reference", "integer", "quantity"}:
        message = f"`{path}` is a list, which a search cannot choose"
        raise SpecError([Diagnostic("not-an-axis", message, place=scenario.path)])
    if kind == "reference":
        bound = scenario.replace({path: value}).studies()[0]
        return getattr(find(bound, path)[0], attribute)
    return int(value)
