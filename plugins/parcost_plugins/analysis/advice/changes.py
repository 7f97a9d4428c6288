"""The same study with single values changed and everything else held constant.

``Study.replace`` changes the text of a spec, so expressions of the value change, too. Here only one
value changes, to isolate its effect. All changes are evaluated at once, each at its own point of an
array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs

from parcost import Outcome, Study

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_FEW = 16  # numbers that are evaluated one by one: importing NumPy takes longer
_PLAIN = frozenset({bool, int, float, str, type(None)})  # types of values that hold no block
_Values = Mapping[tuple[int, str], Any]  # by id of a block, and attribute


class Change(NamedTuple):
    """An attribute of a block, and its new value."""

    block: Any
    attribute: str
    value: Any


class Effect(NamedTuple):
    """The step seconds after a change, and the relative changes of time and memory."""

    seconds: float
    time: float
    memory: float


def effects(study: Study, before: Outcome, changes: Sequence[Change]) -> list[Effect]:
    """Return the effect of each single change on a study without sweeps."""
    numbers = [i for i, change in enumerate(changes) if isinstance(change.value, float)]
    found: dict[int, tuple[float, float]] = {}
    if len(numbers) > _FEW and (together := _array_effects(study, [changes[i] for i in numbers])):
        found.update(zip(numbers, together, strict=True))
    for i, change in enumerate(changes):
        if i not in found:
            outcome, _ = evaluate_with(study, {(id(change.block), change.attribute): change.value})
            found[i] = float(outcome.step_seconds), float(outcome.memory_bytes)
    return [
        Effect(
            seconds=seconds,
            time=_relative_change(seconds, before.step_seconds),
            memory=_relative_change(bytes_, before.memory_bytes),
        )
        for seconds, bytes_ in (found[i] for i in range(len(changes)))
    ]


def evaluate_arrays(study: Study, values: Mapping[tuple[Any, str], Any]) -> Outcome | None:
    """Return the step over arrays of values: attributes of blocks that change together.

    Return None if a plugin does not support arrays.
    """
    import numpy as np

    with np.errstate(all="ignore"):
        outcome, faultless = evaluate_with(
            study, {(id(block), attribute): array for (block, attribute), array in values.items()}
        )
    return outcome if faultless else None


def points(outcome: Outcome, count: int) -> NDArray[np.float64]:
    """Return the step seconds of each of *count* points."""
    import numpy as np

    return np.broadcast_to(np.asarray(outcome.step_seconds, dtype=np.float64), (count,))


def _relative_change(after: float, before: Any) -> float:
    return float(after / before - 1.0) if before else 0.0


def _array_effects(study: Study, changes: Sequence[Change]) -> list[tuple[float, float]] | None:
    """Return step and memory after each change, or None if a plugin does not support arrays."""
    import numpy as np

    values: dict[tuple[int, str], Any] = {}
    for point, (block, attribute, value) in enumerate(changes):
        now = np.full(len(changes), getattr(block, attribute))
        values.setdefault((id(block), attribute), now)[point] = value
    outcome, faultless = evaluate_with(study, values)
    if not faultless:
        return None
    seconds = np.broadcast_to(outcome.step_seconds, len(changes))
    bytes_ = np.broadcast_to(outcome.memory_bytes, len(changes))
    return [(float(t), float(b)) for t, b in zip(seconds, bytes_, strict=True)]


def evaluate_with(study: Study, values: _Values) -> tuple[Outcome, bool]:
    """Return the step of *study* with other *values*, and whether no plugin failed for them."""
    made: dict[int, Any] = {}
    changed = study.with_blocks(
        {
            schema: tuple(_replace(block, values, made) for block in found)
            for schema, found in study.blocks.items()
        }
    )
    outcome = changed.evaluate()
    return outcome, not changed.faults_beyond(study)


def _replace(value: Any, values: _Values, made: dict[int, Any]) -> Any:
    """Return *value* with the new values, also in blocks nested in it."""
    if isinstance(value, tuple):
        if _PLAIN.issuperset(map(type, value)):
            return value
        items = tuple(_replace(item, values, made) for item in value)
        return value if all(a is b for a, b in zip(items, value, strict=True)) else items
    if not hasattr(type(value), "__block__"):
        return value
    if id(value) not in made:
        new: dict[str, Any] = {}
        for name, inner in vars(value).items():
            if (id(value), name) in values:
                new[name] = values[id(value), name]
            elif inner.__class__ not in _PLAIN:
                changed = _replace(inner, values, made)
                if changed is not inner:
                    new[name] = changed
        if new:  # by `vars`: a copy reads no attribute
            held = vars(value)
            new = {one.name: held[one.name] for one in attrs.fields(type(value)) if one.init} | new
        made[id(value)] = attrs.evolve(value, **new) if new else value
    return made[id(value)]
