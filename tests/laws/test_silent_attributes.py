"""An attribute that is written changes something, or a diagnostic names it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from spec_generator import bases
from test_effects import GENERATOR, SESSION, WITHOUT, encode_plain

from parcost import SpecError
from parcost.language.text import Span

#: What operators of some models or frameworks read, which a base need not have.
OPERATORS: tuple[str, ...] = (
    "misaligned_",
    "odd_",
    "eager_",
    "compiled_",
    "composite_",
    "complex_",
    "halves_",
    "cast_",
)
OPERATORS += ("permuted_", "traced_", "strided_", "scattered_", "indexed_", "delta_")
#: Other attributes that may change nothing in a base, and why.
SATURATED = {
    "schedule.assignment": "layers that divide are dealt alike",
    "collectives.pipeline": "all algorithms send one message alike",
    "memory.tight": "decides on a warning alone",
    "memory.margin": "decides between a warning and an error alone",
    "precision.microscaled": "decides which devices are rejected",
}


def changes(text: str) -> tuple[tuple[Any, ...], str] | None:
    """Return all numbers of a spec's report and its diagnostics, None where it may not run."""
    try:
        (scenario,) = SESSION.load_text(text)
        (result,) = scenario.evaluate().results
    except (SpecError, ValueError):
        return None
    if not result.legal:
        return None
    found: list[Any] = [
        (f.name, encode_plain(f.value)) for _, f in (*result.figures, *result.details)
    ]
    if result.outcome is not None:
        found += [
            (o.name, encode_plain(o.exposed), encode_plain(o.hidden)) for o in result.outcome.ledger
        ]
        found += [(m.name, encode_plain(m.bytes_)) for m in result.outcome.memory_lines]
    named = [
        text
        for d in result.diagnostics
        for text in (d.message, *(_underlined(label.span) for label in d.labels))
    ]
    scenario.release()
    return tuple(found), "\n".join(named)


def _underlined(span: Span) -> str:
    """Return what a diagnostic underlines, its name as a message has it."""
    name, *_ = span.source.text[span.start : span.end].split("=")
    return f"`{name.strip()}`"


def silent(base: str, *kinds: str) -> Iterator[str]:
    """Yield attributes of some blocks that may be written, change nothing, and are not named.

    One whose default is its only legal value in the base is none of them.
    """
    spec = bases()[base]
    before = changes(spec.text)
    assert before is not None
    for place, name, field in GENERATOR.attributes(spec):
        kind = place[-1][0]
        if kind not in kinds or f"{kind}.{name}" in {*WITHOUT, *SATURATED}:
            continue
        if kind == "kernels" and name.startswith(OPERATORS):
            continue
        legal = 0
        for value in GENERATOR.values(spec, field):
            found = changes(spec.with_value(place, name, value).text)
            if found is None:
                continue
            if found[0] != before[0] or f"`{name}`" in found[1]:
                break
            legal += 1
        else:
            if legal > 1:
                yield f"{kind}.{name}"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["offload", "local_updates"])
def test_some_attributes_change_something_or_are_named(kind: str) -> None:
    assert list(silent("dense", kind)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["overlap", "schedule", "collectives", "memory", "routing", "kernels", "precision"]
)
def test_attributes_change_something_or_are_named(kind: str) -> None:
    assert list(silent("dense", kind)) == []
