"""Every attribute of the vocabulary changes something somewhere, or the reason why not is here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from effect_values import BESIDE
from sketch_values import SKETCHES
from spec_generator import Generator, Place, Spec, bases, read

from parcost import SpecError
from parcost.contract.schema import Field
from parcost.engine.session import Session

GENERATOR = Generator()
SESSION = Session(GENERATOR.plugins)

#: Attributes that a report never reads, and why.
WITHOUT: Mapping[str, str] = {
    **{
        f"search.{name}": "only `parcost search` reads it"
        for name in GENERATOR.types["search"].fields
    },
    **{
        f"targets.{name}": "draws a line between words of a section that no base comes near"
        for name in ("near_ridge", "communication_bound", "excellent", "very_good", "fair")
    },
    "device.year": "dates it for a warning, and changes no number",
    "framework.first_year": "dates the values, and changes no number",
    "framework.last_year": "dates the values, and changes no number",
    "framework.checked": "tells readers which run was compared, and changes no number",
    "framework.version": "tells readers where its values were read, and changes no number",
    "framework.enforced": "says which specs are rejected, and changes no number of the others",
    **{
        f"offers.{name}": "says which specs are rejected, and changes no number of the others"
        for name in ("attribute", "values", "beyond", "since", "note")
    },
    "host.nvls_tree_corrected": "corrects a pair that is the fastest in no base",
    **dict.fromkeys(
        ("device.microscaling", "precision.microscaled"),
        "says which specs are rejected, and changes no number of the others",
    ),
    "device.fabric": "proposes a fabric to readers of other files, and changes no number",
    "term.source": "stands beside a formula, and changes no number",
    "layout.dp": "follows from the devices and the other degrees; another value is rejected",
    "training.micro_batches": "follows from the batch; another value is rejected",
}


def laid_over(base: str, more: str) -> Spec:
    """Return the spec of a base with the attributes of other blocks written into it."""
    spec = bases()[base] if base else read("", "")
    nodes = list(read("more", more).places())
    for place, node in nodes:
        for name, value in node.attributes.items():
            spec = spec.with_value(place, name, value)
    for place, node in nodes:
        if node.parent:
            spec = spec.extending(place, node.parent)
    return spec


#: What of a report is compared, the cheapest first: most attributes change a figure.
FIGURES, DETAILS, SECTIONS = DEPTHS = range(3)


class Effects(NamedTuple):
    """All that a spec's report says to a depth, and what it warns of as without effect."""

    found: tuple[Any, ...]
    unread: str


@cache
def effects(text: str, depth: int) -> Effects | None:
    """Return all that a spec's report says, None where it may not run."""
    try:
        (scenario,) = SESSION.load_text(text)
        (result,) = scenario.evaluate().results
    except (SpecError, ValueError):
        return None
    if not result.legal:
        return None
    unread = [d for d in result.diagnostics if d.id == "no-effect"]
    found: list[Any] = [(d.id, d.message) for d in result.diagnostics if d not in unread]
    figures = (*result.figures, *(result.details if depth >= DETAILS else ()))
    found += [(f.name, encode_plain(f.value)) for _, f in figures]
    found += [
        (
            i.name,
            encode_plain(i.coverage),
            encode_plain(i.low),
            encode_plain(i.high),
            i.formula.source,
        )
        for _, i in result.intervals
    ]
    if result.outcome is not None:
        found += [
            (o.name, encode_plain(o.exposed), encode_plain(o.hidden)) for o in result.outcome.ledger
        ]
        found += [(m.name, encode_plain(m.bytes_)) for m in result.outcome.memory_lines]
    if depth == SECTIONS:
        found += [(s.title, repr(s.rows), repr(s.notes)) for _, s in result.sections]
    scenario.release()
    return Effects(tuple(found), " ".join(d.message for d in unread))


def encode_plain(value: Any) -> bytes:
    return np.asarray(value, dtype=float).tobytes()


@cache
def places() -> Mapping[str, Sequence[tuple[str, Place, Field]]]:
    """Return where each attribute may be set, in the bases that are evaluated soonest first."""
    found: dict[str, list[tuple[str, Place, Field]]] = {}
    for base, spec in sorted(bases().items(), key=lambda pair: pair[1].trains):
        for place, name, field in GENERATOR.attributes(spec):
            found.setdefault(f"{place[-1][0]}.{name}", []).append((base, place, field))
    return found


def has_effect(name: str) -> bool:
    """Return whether some value of an attribute changes a report.

    A warning that it has no effect is no change.
    """
    if name in BESIDE or name in SKETCHES:
        base, before, after = BESIDE[name] if name in BESIDE else SKETCHES[name]
        texts = [
            laid_over(base, more).text if name in BESIDE else base.replace("@", more)
            for more in (before, after)
        ]
        for depth in DEPTHS:
            one, other = (effects(text, depth) for text in texts)
            assert one is not None, (name, texts)
            assert other is not None, (name, texts)
            if one.found != other.found:
                return True
        return False
    return any(
        _is_changed(base, place, name, field, depth)
        for depth in DEPTHS
        for base, place, field in places()[name]
    )


def _is_changed(base: str, place: Place, name: str, field: Field, depth: int) -> bool:
    """Return whether some value of an attribute changes the report of a base."""
    spec, attribute = bases()[base], name.rpartition(".")[2]
    before = effects(spec.text, depth)
    for value in GENERATOR.values(spec, field):
        after = effects(spec.with_value(place, attribute, value).text, depth)
        if after is None:
            continue
        if before is None or after.found != before.found:
            return True
        if f".{attribute}`" in after.unread:
            return False  # no other value is read either
    return False


def without_effect(names: Sequence[str]) -> list[str]:
    return [name for name in names if name not in WITHOUT and not has_effect(name)]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_every_attribute_has_an_effect(part: int) -> None:
    assert not without_effect(sorted(places())[part::10])


def test_reasons_are_of_attributes_that_exist() -> None:
    assert set(WITHOUT) | set(BESIDE) | set(SKETCHES) <= set(places())
