"""Every attribute of the vocabulary changes something somewhere, or the reason why not is here."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from spec_generator import Generator, Place, Spec, bases, read

from parcost import SpecError
from parcost.api import Session
from parcost.schema import Field

GENERATOR = Generator()
SESSION = Session(GENERATOR.plugins)

#: Attributes that a report never reads, and why.
WITHOUT: Mapping[str, str] = {
    **{
        f"search.{name}": "only `parcost search` reads it"
        for name in GENERATOR.types["search"].fields
    },
    "layout.dp": "follows from the devices and the other degrees; another value is refused",
    "training.micro_batches": "follows from the batch; another value is refused",
}

#: Attributes that matter beside others: a base, and what is laid over it before and after.
BESIDE: Mapping[str, tuple[str, str, str]] = {
    "cluster.device": (
        "dense",
        "device other extends h100_sxm { memory_bandwidth = 1 TB/s }",
        "device other extends h100_sxm { memory_bandwidth = 1 TB/s }\ncluster { device = other }",
    ),
    "cluster.fabric": (
        "dense",
        "",
        "fabric other extends net { level node { latency = 9 us } }\ncluster { fabric = other }",
    ),
    "training.model": (
        "dense",
        "",
        "model other extends small { layers = 8 }\ntraining { model = other }",
    ),
    "layout.etp": ("experts", "layout { ep = 4 }", "layout { ep = 4, etp = 2 }"),
    "training.documents": ("dense", "", "training { documents = [1024, 3072] }"),
    "collectives.context": (
        "dense",
        "layout { cp = 2 }\ncontext { algorithm = all_gather }\ncollectives { context = ring }",
        "layout { cp = 2 }\ncontext { algorithm = all_gather }\ncollectives { context = lower_bound }",
    ),
    "context.ulysses": (
        "dense",
        "layout { tp = 1, pp = 1, cp = 8 }\ncontext { algorithm = hybrid, ulysses = 2 }",
        "layout { tp = 1, pp = 1, cp = 8 }\ncontext { algorithm = hybrid, ulysses = 4 }",
    ),
    "recompute.up_projection": (
        "latent",
        "training { recompute = none }",
        "training { recompute = none }\nrecompute { up_projection = on }",
    ),
    "run.speed": (
        "",
        "run { tokens = 1 T tokens, devices = 1000, speed = 300 tokens }",
        "run { tokens = 1 T tokens, devices = 1000, speed = 400 tokens }",
    ),
    "schedule.chunks": ("stages", "", "schedule { chunks = 4 }"),
    "schedule.stages": (
        "stages",
        "schedule { kind = one_f_one_b, chunks = 1 }",
        "schedule { kind = one_f_one_b, chunks = 1, stages = [5, 4, 4, 3] }",
    ),
    "schedule.count_embedding": (
        "dense",
        "model small { layers = 5 }\nschedule { stages = [3, 2] }",
        "model small { layers = 5 }\nschedule { count_embedding = on }",  # [2, 3]
    ),
    "schedule.count_head": (
        "dense",
        "model small { layers = 5 }\nschedule { stages = [2, 3] }",
        "model small { layers = 5 }\nschedule { count_head = on }",  # [3, 2]
    ),
    "level.dimensions": ("contexts", "", "fabric pod { level torus { dimensions = [8, 8] } }"),
    "level.hops": (
        "dense",
        "fabric net { level network { hop_latency = 1 us } }",
        "fabric net { level network { hop_latency = 1 us, hops = 5 } }",
    ),
    "level.radix": (
        "dense",
        "fabric net { level network { kind = fat_tree, hop_latency = 1 us, radix = 4 } }",
        "fabric net { level network { kind = fat_tree, hop_latency = 1 us, radix = 64 } }",
    ),
    "model.full_every": (
        "dense",
        "model small { window = 1024 }",
        "model small { window = 1024, full_every = 2 }",
    ),
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


@cache
def effects(text: str, *, sections: bool) -> tuple[Any, ...] | None:
    """Return all that a spec's report says, None where it may not run."""
    try:
        (scenario,) = SESSION.load_text(text)
        (result,) = scenario.evaluate().results
    except (SpecError, ValueError):
        return None
    if not result.legal:
        return None
    found: list[Any] = [(d.id, d.message) for d in result.diagnostics]
    found += [(f.name, plain(f.value)) for _, f in (*result.figures, *result.details)]
    if result.outcome is not None:
        found += [(o.name, plain(o.exposed), plain(o.hidden)) for o in result.outcome.ledger]
        found += [(m.name, plain(m.bytes_)) for m in result.outcome.memory_lines]
    if sections:
        found += [(s.title, repr(s.rows), repr(s.notes)) for _, s in result.sections]
    scenario.forget()
    return tuple(found)


def plain(value: Any) -> bytes:
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
    """Return whether some value of an attribute changes a report."""
    if name in BESIDE:
        base, before, after = BESIDE[name]
        texts = [laid_over(base, more).text for more in (before, after)]
        one, other = (effects(text, sections=True) for text in texts)
        assert None not in (one, other), (name, texts)
        return one != other
    return any(
        changed not in (None, effects(bases()[base].text, sections=sections))
        for sections in (False, True)
        for base, place, field in places()[name]
        for changed in _changed(base, place, name, field, sections=sections)
    )


def _changed(
    base: str, place: Place, name: str, field: Field, *, sections: bool
) -> Iterator[tuple[Any, ...] | None]:
    spec = bases()[base]
    for value in GENERATOR.values(spec, field):
        yield effects(
            spec.with_value(place, name.rpartition(".")[2], value).text, sections=sections
        )


def without_effect(names: Sequence[str]) -> list[str]:
    return [name for name in names if name not in WITHOUT and not has_effect(name)]


def test_some_attributes_have_an_effect() -> None:
    assert not without_effect(random.Random(1).sample(sorted(places()), 5))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_every_attribute_has_an_effect(part: int) -> None:
    assert not without_effect(sorted(places())[part::10])


def test_reasons_are_of_attributes_that_exist() -> None:
    assert set(WITHOUT) | set(BESIDE) <= set(places())
