"""The same study with one value of one block changed, everything else held.

``Study.replace`` changes the text of a spec, and what is written in terms of a value
follows it. Here nothing follows: it is the one value's own effect that is asked for.
Numbers are changed together, each in a point of its own along one array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import attrs

from parcost import Outcome, Study
from parcost.numeric import Real

_Values = Mapping[tuple[int, str], Any]  # by id of a block, and attribute


class Change(NamedTuple):
    """An attribute of a block, and what it is to be."""

    block: Any
    attribute: str
    value: Any


class Effect(NamedTuple):
    """The seconds of a step after a change, and what it adds to time and memory."""

    seconds: float
    time: float
    memory: float


def effects(study: Study, before: Outcome, changes: Sequence[Change]) -> list[Effect]:
    """Return what each of *changes* does on its own to a study without sweeps."""
    numbers = [i for i, change in enumerate(changes) if isinstance(change.value, float)]
    found: dict[int, tuple[Real, Real]] = {}
    if numbers and (together := _together(study, [changes[i] for i in numbers])):
        found.update(zip(numbers, together, strict=True))
    for i, change in enumerate(changes):
        if i not in found:
            outcome, _ = _evaluated(study, {(id(change.block), change.attribute): change.value})
            found[i] = outcome.step_seconds, outcome.memory_bytes
    return [
        Effect(
            seconds=float(seconds),
            time=_relative(float(seconds), before.step_seconds),
            memory=_relative(float(bytes_), before.memory_bytes),
        )
        for seconds, bytes_ in (found[i] for i in range(len(changes)))
    ]


def _relative(after: float, before: Real) -> float:
    return float(after / before - 1.0) if before else 0.0


def _together(study: Study, changes: Sequence[Change]) -> list[tuple[Real, Real]] | None:
    """Return step and memory after each change, or None if a plugin cannot take arrays."""
    import numpy as np

    values: dict[tuple[int, str], Any] = {}
    for point, (block, attribute, value) in enumerate(changes):
        now = np.full(len(changes), getattr(block, attribute))
        values.setdefault((id(block), attribute), now)[point] = value
    outcome, faultless = _evaluated(study, values)
    if not faultless:
        return None
    seconds = np.broadcast_to(outcome.step_seconds, len(changes))
    bytes_ = np.broadcast_to(outcome.memory_bytes, len(changes))
    return list(zip(seconds, bytes_, strict=True))


def _evaluated(study: Study, values: _Values) -> tuple[Outcome, bool]:
    """Return what *study* costs with other *values*, and whether every plugin answered."""
    from parcost.evaluation.reduce import evaluate

    made: dict[int, Any] = {}
    blocks = {
        schema: tuple(_changed(block, values, made) for block in found)
        for schema, found in study.blocks.items()
    }
    changed = attrs.evolve(study, blocks=blocks, faults=[], answers={})
    return evaluate(changed), not changed.faults


def _changed(value: Any, values: _Values, made: dict[int, Any]) -> Any:
    """Return *value* with the new values in it and in every block below it."""
    if isinstance(value, tuple):
        return tuple(_changed(item, values, made) for item in value)
    if not hasattr(type(value), "__block__"):
        return value
    if id(value) not in made:
        old = {field.name: getattr(value, field.name) for field in attrs.fields(type(value))}
        new = {
            name: values.get((id(value), name), _changed(inner, values, made))
            for name, inner in old.items()
        }
        same = all(new[name] is inner for name, inner in old.items())
        made[id(value)] = value if same else attrs.evolve(value, **new)
    return made[id(value)]
