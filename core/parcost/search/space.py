"""The space of a search, cut up: structures, a flat axis of degrees, independent choices.

Attributes that decide how many virtual stages there are, or on whose value other attributes
depend, are structural: each of their combinations is bound on its own. Degrees are numbers
that formulas take as arrays; the combinations that any rule lets through under any choice
form one flat axis. What is left are choices: each value is set by itself, and costs only
where something reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import evolve, frozen

from parcost.diagnostics import Diagnostic, SpecError, did_you_mean
from parcost.schema import block_type
from parcost.search.stack import mask
from parcost.search.variants import Choice, Variants
from parcost.terms import Axis

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from parcost.scenario import Scenario
    from parcost.study import Study
    from parcost.terms import Check

LARGEST = 10**10  # points, legal or not
MOST_DEGREES = 2_000_000  # combinations of numbers in one structure


@frozen(kw_only=True, eq=False)
class Structure:
    """Everything with the same virtual stages: a study over the flat axis, and its choices.

    *legal* has a dimension for each choice and one for the flat axis. *refused* counts, by
    rule, the points that it does not let through.
    """

    at: Mapping[str, Any]
    variants: Variants
    degrees: Mapping[str, NDArray[np.float64]]
    legal: NDArray[np.bool_]
    refused: Mapping[str, int]

    @property
    def points(self) -> int:
        """The number of legal layouts."""
        return int(self.legal.sum())


@frozen(kw_only=True, eq=False)
class Space:
    """What a search goes through."""

    scenario: Scenario
    structural: Sequence[Axis]
    degrees: Sequence[Axis]
    choices: Sequence[Axis]

    @property
    def axes(self) -> Sequence[Axis]:
        """Every axis."""
        return (*self.structural, *self.degrees, *self.choices)

    @property
    def size(self) -> int:
        """The number of points, legal or not."""
        return prod(len(axis.values) for axis in self.axes)

    def structures(self) -> Iterator[Structure]:
        """Yield the structures that have a legal layout, and those that have none."""
        names = [axis.attribute for axis in self.structural]
        for values in product(*(axis.values for axis in self.structural)):
            yield self._structure(dict(zip(names, values, strict=True)))

    def _structure(self, at: Mapping[str, Any]) -> Structure:
        degrees = {axis.attribute: list(axis.values) for axis in self.degrees}
        varied = self.scenario.replace({**at, **degrees})
        ((_, study, _),) = varied._groups()  # noqa: SLF001  one structure, flat degrees
        whole = self._variants(study)
        count = prod(len(values) for values in degrees.values())
        legal, refused = _legal(whole, count)
        kept = np.flatnonzero(legal.any(axis=tuple(range(legal.ndim - 1))))
        if not len(kept):
            return Structure(
                at=at, variants=whole, degrees={}, legal=legal[..., kept], refused=refused
            )
        bound = _at(study, kept, count)
        values = {name: np.asarray(v, dtype=np.float64)[kept] for name, v in study.axes}
        return Structure(
            at=at,
            variants=self._variants(bound),
            degrees=values,
            legal=legal[..., kept],
            refused=refused,
        )

    def _variants(self, study: Study) -> Variants:
        return Variants(study, [choice_of(self.scenario, study, axis) for axis in self.choices])


def _at(study: Study, kept: NDArray[np.intp], count: int) -> Study:
    """Return *study* at some of the points of its flat axis."""
    made: dict[int, Any] = {}

    def cut(value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.shape == (count,):
            return value[kept]
        if isinstance(value, tuple):
            return tuple(cut(item) for item in value)
        if not hasattr(type(value), "__block__"):
            return value
        if id(value) not in made:
            inner = {name: cut(held) for name, held in vars(value).items()}
            same = all(inner[name] is held for name, held in vars(value).items())
            made[id(value)] = value if same else copy(value)
            if not same:
                vars(made[id(value)]).update(inner)
        return made[id(value)]

    return study.with_blocks({schema: cut(blocks) for schema, blocks in study.blocks.items()})


def choice_of(scenario: Scenario, study: Study, axis: Axis) -> Choice:
    """Return *axis* with its values as the block holds them."""
    block, attribute = find(study, axis.attribute)
    held = [_held(scenario, axis.attribute, value, study) for value in axis.values]
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
    for blocks in study.blocks.values():
        for block in blocks:
            type_ = block_type(type(block))
            if owner in (vars(block).get("label", ""), type_.kind) and attribute in type_.fields:
                return block, attribute
    raise SpecError([Diagnostic("unknown-attribute", f"there is no attribute `{path}`")])


def _held(scenario: Scenario, path: str, value: Any, study: Study) -> Any:
    """Return *value* as binding holds it: a switch is a bool, a word is itself."""
    block, attribute = find(study, path)
    kind = block_type(type(block)).fields[attribute].kind
    if kind == "switch":
        return value in ("on", True)
    if kind in ("word", "text"):
        return value
    if kind == "reference":
        bound = scenario.replace({path: value}).studies()[0]
        return getattr(find(bound, path)[0], attribute)
    return int(value)


def _legal(variants: Variants, count: int) -> tuple[NDArray[np.bool_], dict[str, int]]:
    """Return where every rule holds, and how many points each refuses."""
    legal = np.ones((*variants.shape, count), dtype=bool)
    refused: dict[str, int] = {}
    with np.errstate(all="ignore"):
        for read, answers in variants.over("checks"):
            checks = {
                part: [c for _, c in answer.contributed if c.severity == "error"]
                for part, answer in answers.items()
            }
            for id_ in dict.fromkeys(c.id for found in checks.values() for c in found):
                holds = {part: _all(found, id_, count) for part, found in checks.items()}
                here = mask(read, holds, variants.shape)
                if not here.all():
                    wide = np.broadcast_to(here, legal.shape)
                    refused[id_] = refused.get(id_, 0) + int((~wide).sum())
                    legal &= here
    return legal, refused


def _all(checks: Sequence[Check], id_: str, count: int) -> NDArray[np.bool_]:
    holds = np.ones(count, dtype=bool)
    for check in checks:
        if check.id == id_:
            holds &= np.asarray(check.holds, dtype=bool)
    return holds


# --- which axes there are ---------------------------------------------------------------


def space(scenario: Scenario, given: Mapping[str, Sequence[Any]], names: Sequence[str]) -> Space:
    """Return the space of *scenario*: the axes called *names*, or all that plugins offer.

    *given* are the values of axes that the user restricts, by the attribute's path.

    Raises:
        SpecError: There is no such axis, or the space is too large.
    """
    study = _base(scenario)
    offered = {axis.attribute: axis for _, axis in study.plugins.ask("axes", study=study)}
    given = {_named(name, offered, anything=True): values for name, values in given.items()}
    wanted = [_named(name, offered) for name in names] if names else list(offered)
    axes = [
        Axis(attribute=path, values=list(given.get(path, offered[path].values)))
        for path in dict.fromkeys((*wanted, *(p for p in given if p in offered)))
    ]
    extra = [p for p in given if p not in offered]
    axes += [Axis(attribute=path, values=list(given[path])) for path in extra]
    empty = [axis.attribute for axis in axes if not axis.values]
    if empty:
        message = f"there is no value of {' or '.join(f'`{e}`' for e in empty)} to choose"
        raise SpecError([Diagnostic("empty-space", message, place=scenario.path)])
    cut = _cut(scenario, study, axes)
    if cut.size > LARGEST:
        sizes = " x ".join(f"{a.attribute.rpartition('.')[2]} {len(a.values)}" for a in cut.axes)
        message = f"the space has {cut.size:.3g} points ({sizes}), and {LARGEST:.0e} are the most"
        help = "name fewer axes, or give them fewer values: `--over layout.tp=1,2,4,8`"
        raise SpecError([Diagnostic("too-many-points", message, help=help, place=scenario.path)])
    return cut


def _named(name: str, offered: Mapping[str, Axis], *, anything: bool = False) -> str:
    short = {path.rpartition(".")[2]: path for path in offered}
    short["schedule"] = "schedule.kind"
    if name in offered or name in short or (anything and "." in name):
        return short.get(name, name)
    help = did_you_mean(name, [*offered, *short]) or "axes are " + ", ".join(offered)
    message = f"nothing that is called `{name}` can be chosen"
    raise SpecError([Diagnostic("unknown-axis", message, help=help)])


def _base(scenario: Scenario) -> Study:
    """Return the first study: every sweep at its first value."""
    first = {name: values[0] for name, values in scenario.axes}
    return scenario.replace(first).studies()[0] if first else scenario.studies()[0]


def _cut(scenario: Scenario, study: Study, axes: Sequence[Axis]) -> Space:
    """Tell structural axes, degrees and choices apart."""
    structural, degrees, choices = [], [], []
    for axis in axes:
        block, attribute = find(study, axis.attribute)
        field = block_type(type(block)).fields[attribute]
        if field.kind == "quantity" and not field.structural:
            degrees.append(axis)
        elif _decides(scenario, study, axis):
            structural.append(axis)
        else:
            choices.append(axis)
    return Space(scenario=scenario, structural=structural, degrees=degrees, choices=choices)


def _decides(scenario: Scenario, study: Study, axis: Axis) -> bool:
    """Say whether other attributes, or the virtual stages, depend on *axis*."""
    block, attribute = find(study, axis.attribute)
    before = (_others(study, block, attribute), _stages(study))
    for value in axis.values:
        spelled = value if isinstance(value, str) else f"{value}"
        changed = scenario.replace({axis.attribute: spelled}).studies()[0]
        there, _ = find(changed, axis.attribute)
        if (_others(changed, there, attribute), _stages(changed)) != before:
            return True
    return False


def _stages(study: Study) -> tuple[Any, ...]:
    cut = evolve(study.pipeline, schedule="")
    return tuple(str(v) for v in vars_of(cut))


def vars_of(record: Any) -> tuple[Any, ...]:
    """Return the fields of an attrs record."""
    return tuple(getattr(record, name) for name in type(record).__match_args__) or tuple(
        getattr(record, field.name) for field in type(record).__attrs_attrs__
    )


def _others(study: Study, block: Any, attribute: str) -> list[str]:
    """Return every other attribute of the study, spelled."""
    found = []
    for blocks in study.blocks.values():
        for other in blocks:
            for name in block_type(type(other)).fields:
                if other is block and name == attribute:
                    continue
                value = getattr(other, name)
                if not hasattr(type(value), "__block__") and not isinstance(value, tuple):
                    found.append(f"{value}")
    return found
