"""Virtual stages with equal parameters, and the ranks that hold them.

Stages differ at the ends (embedding, head) and with uneven layers. Costs that are not proportional
to the parameters, such as collectives, are estimated once for each kind of stage. Experts are split
over more ranks than dense parameters, so fewer ranks hold the same experts.

They are a separate kind on every stage, with a different number of replicas.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from parcost import CountsByStructure, record, stage_counts, stage_number, sum_counts
from parcost.numeric import all_of, any_of, is_array, max_of, maximum, ratio, where
from parcost_plugins.physics.adapters import (
    Holding,
    gathered_bytes,
    holding_of,
    is_trained,
    trains_model,
    weight_bytes,
)
from parcost_plugins.physics.partition import layers
from parcost_plugins.vocabulary.layout import Layout
from parcost_plugins.vocabulary.operators import Parameters
from parcost_plugins.vocabulary.sharding import LocalUpdates, Sharding
from parcost_plugins.vocabulary.training import Training

if TYPE_CHECKING:
    from parcost import Real, Study


@record(kw_only=True, eq=False)
class StageKind:
    """Virtual stages that hold the same parameters: *count* is 1 on each of them, 0 on others.

    *stages* names them as text; it is "" if no stage differs. *held* has the parameters, each with
    its count on a stage. A stage has *layers* layers with *layer* parameters each (the mean, if
    they differ). The largest matrix of a layer has *matrix* parameters. *before* and *after* are
    the parameters before the first layer of the model and after its last. *elements* is the total,
    of which *linear* are in linear layers and experts. All are counts on one rank.

    The ranks of *group*, *replicas* of them, hold the same parameters. ZeRO shards their state over
    *shard* of these. If *shard* is less than *replicas*, the others hold copies of the shards.

    *wire* is the bytes per parameter in all-gathers of shards, by part. It is the mean if frozen
    weights and adapters differ.
    """

    stages: str
    count: tuple[float, ...]
    held: Sequence[tuple[Parameters, Real]]
    layers: Real
    layer: Real
    matrix: Real
    before: Real
    after: Real
    elements: Real
    linear: Real
    group: str
    replicas: Real
    shard: Real
    wire: Mapping[str, Real]
    expert: bool = False

    def label(self, name: str) -> str:
        """Return *name*, with the stages if other stages differ."""
        whose = f"{name} of experts" if self.expert else name
        return f"{whose}, {self.stages}" if self.stages else whose

    def bytes_text(self, each: Real, wide: Real) -> tuple[str, dict[str, Any]]:
        """Return the bytes of all parameters as a formula's text and symbols.

        Parameters in linear layers have *each* bytes, others *wide*.
        """
        symbols: dict[str, Any] = {"psi": self.elements, "e": (each, "B")}
        if not is_array(each, wide) and each == wide:
            return "psi e", symbols
        return "(psi w + l (e - w))", {**symbols, "w": (wide, "B"), "l": self.linear}

    def total_bytes(self, each: Real, wide: Real) -> Real:
        """Return the bytes of all parameters: *each* in linear layers, *wide* elsewhere."""
        return self.elements * wide + self.linear * (each - wide)

    def shards(self, sharded: bool) -> Real:
        """Return the number of ranks over which a state is sharded: 1 if it is not *sharded*."""
        return self.shard if sharded else 1.0


def stage_kinds(study: Study, holding: Holding | Literal[""] = "") -> Sequence[StageKind]:
    """Return the kinds of virtual stages in *study*: first stage first, experts last.

    They count all parameters, or the parameters of one *holding*. Stages without parameters are
    left out.
    """
    return study.query(_stage_kinds, "" if trains_model(study) else holding)


def trained_kinds(study: Study) -> Sequence[StageKind]:
    """Return the kinds of stages by their trained parameters; without adapters these are all
    parameters.
    """
    return stage_kinds(study, "trained")


def trained_parameters(study: Study) -> Sequence[Parameters]:
    """Return the parameters with gradients and optimizer state."""
    return [held for held in study.parameters if is_trained(study, held)]


def group_by_count(
    parameters: Iterable[Parameters],
) -> Mapping[tuple[float, ...], list[Parameters]]:
    """Return *parameters* in groups of equal counts by virtual stage."""
    groups: dict[tuple[float, ...], list[Parameters]] = {}
    for one in parameters:
        groups.setdefault(tuple(map(float, one.count)), []).append(one)
    return groups


def mean_weight(study: Study) -> Real:
    """Return the mean bytes per trained weight, averaged over the parameters of the model."""
    every: Real = 0.0
    linear: Real = 0.0
    for held in trained_parameters(study):
        size = held.total * sum_counts(held.count)
        every, linear = every + size, linear + size * held.in_linear_layer
    each, wide = weight_bytes(study, "trained")
    return wide + ratio(linear, every) * (each - wide)


def _stage_kinds(study: Study, holding: Holding | Literal[""]) -> Sequence[StageKind]:
    every = study.parameters
    held = [p for p in every if holding in ("", holding_of(study, p))]
    return [
        kind
        for expert in dict.fromkeys((False, *(p.expert for p in held)))
        for kind in _kinds(study, [p for p in held if p.expert == expert], expert=expert)
    ]


def spread(study: Study, *, expert: bool = False) -> tuple[str, Real, Real]:
    """Return the name of the group that holds the same parameters, its size, and the size of a
    shard group.
    """
    layout = study[Layout]
    replicas: Real = layout.dp * layout.cp
    if not expert:
        sharding = study.get(Sharding)
        whole = replicas / study[LocalUpdates].workers
        return "dp_cp", replicas, whole if sharding is None else sharding.shard
    replicas = layout.tp * replicas / (layout.ep * layout.etp)
    return "edp", replicas, replicas


def _kinds(study: Study, held: Sequence[Parameters], *, expert: bool) -> Iterator[StageKind]:
    group, replicas, shard = spread(study, expert=expert)
    for slot in slots(study, held, dense=not expert):
        yield StageKind(
            stages=slot.stages,
            count=slot.row,
            held=list(zip(held, slot.counts, strict=True)),
            layers=slot.depth,
            **_sizes(slot.depth, slot.counts, held),
            wire=_wire(study, held, slot.counts),
            group=group,
            replicas=replicas,
            shard=shard,
            expert=expert,
        )


def _wire(study: Study, held: Sequence[Parameters], counts: Sequence[Real]) -> Mapping[str, Real]:
    """Return the mean bytes per parameter in messages, for each part of a stage."""
    parts = ("before", "layer", "after")
    if trains_model(study):
        precision = study[Training].precision
        each, wide = precision.gather, precision.wide_gather
        layer: Real = 0.0
        narrow: Real = 0.0
        for p, count in zip(held, counts, strict=True):
            if p.place == "layer":
                layer = layer + p.elements * count
                narrow = narrow + p.elements * count * p.in_linear_layer
        return {**dict.fromkeys(parts, wide), "layer": wide + ratio(narrow, layer) * (each - wide)}
    elements: dict[str, Real] = dict.fromkeys(parts, 0.0)
    bytes_: dict[str, Real] = dict.fromkeys(parts, 0.0)
    for p, count in zip(held, counts, strict=True):
        size = p.elements * count
        elements[p.place] = elements[p.place] + size
        bytes_[p.place] = bytes_[p.place] + size * gathered_bytes(study, p)
    return {part: ratio(bytes_[part], elements[part]) for part in parts}


@record(kw_only=True, eq=False)
class Slot:
    """Virtual stages with equal counts of parameters; in a search, for each of several structures.

    *stages* names them as text; it is "" if all stages are equal. *depth* is the number of layers
    of a stage, or the largest of *counts* if not dense. *counts* is the count of each parameter on
    a stage. *row* is 1 on each of these stages.
    """

    stages: str
    depth: Real
    counts: Sequence[Real]
    row: tuple[float, ...]


def slots(study: Study, held: Sequence[Parameters], *, dense: bool) -> Iterator[Slot]:
    """Yield the slots of stages by their counts of *held*; stages without these have no slot.

    The depth of *dense* parameters is the number of layers of a stage.
    """
    rows = tuple(p.count for p in held)
    for number in range(int(max_of(study.query(_most_slots, rows, dense)))):
        depth, *counts = study.query(_slot, rows, dense, number)
        if any_of(depth >= 0):
            row = study.query(_on_slot, rows, dense, number)
            yield Slot(
                stages=_stages_of(row, number) if number else "",
                depth=maximum(depth, 0.0),
                counts=counts,
                row=row,
            )


def _stages_of(row: tuple[float, ...], number: int) -> str:
    """Return the stages of slot *number* as text; in a search they differ between structures."""
    if isinstance(row, CountsByStructure):
        return f"stages of kind {number}"
    return stage_range(tuple(stage for stage, here in enumerate(row) if here))


def _of_stages(
    study: Study, rows: tuple[Any, ...], dense: bool
) -> Sequence[tuple[float, ...] | None]:
    """Return the depth and the counts of each virtual stage; None for a stage without
    parameters.
    """
    found: list[tuple[float, ...] | None] = []
    for depth, *own in zip(layers(study), *rows, strict=True):
        found.append((depth if dense else max(own), *own) if any(own) else None)
    return found


def _kinds_of_stages(
    study: Study, rows: tuple[Any, ...], dense: bool
) -> Sequence[tuple[float, ...] | None]:
    """Return the parameter counts of the stages of each slot; None for an unused slot."""
    of_stages = study.query(_of_stages, rows, dense)
    kinds = list(dict.fromkeys(kind for kind in of_stages if kind is not None))
    alone = len(kinds) == 1 and None not in of_stages
    return kinds if alone else [None, *kinds]


@stage_number
def _most_slots(study: Study, rows: tuple[Any, ...], dense: bool) -> float:
    return float(len(study.query(_kinds_of_stages, rows, dense)))


@stage_number
def _slot(study: Study, rows: tuple[Any, ...], dense: bool, number: int) -> tuple[float, ...]:
    kinds = study.query(_kinds_of_stages, rows, dense)
    kind = kinds[number] if number < len(kinds) else None
    return (-1.0, *[0.0] * len(rows)) if kind is None else tuple(map(float, kind))


@stage_counts
def _on_slot(study: Study, rows: tuple[Any, ...], dense: bool, number: int) -> tuple[float, ...]:
    kinds = study.query(_kinds_of_stages, rows, dense)
    kind = kinds[number] if number < len(kinds) else None
    own = study.query(_of_stages, rows, dense)
    return tuple(float(kind is not None and stage == kind) for stage in own)


def _sizes(depth: Real, counts: Sequence[Real], held: Sequence[Parameters]) -> dict[str, Any]:
    """Return the parameters of a layer and of the ends of a stage, or of stages as arrays."""
    sizes: dict[str, Real] = {"before": 0.0, "layer": 0.0, "after": 0.0}
    matrix: Real = 0.0
    for parameters, count in zip(held, counts, strict=True):
        if all_of(count == 0):
            continue
        if parameters.place == "layer":
            matrix = maximum(matrix, where(count > 0, parameters.elements, 0.0))
        sizes[parameters.place] = sizes[parameters.place] + parameters.elements * count
    layer = where(depth > 0, sizes["layer"] / maximum(depth, 1.0), 0.0)
    return {**sizes, "layer": layer, "matrix": matrix, **_totals(sizes, counts, held)}


def _totals(
    sizes: Mapping[str, Real], counts: Sequence[Real], held: Sequence[Parameters]
) -> dict[str, Real]:
    """Return the number of parameters of a stage, and the number in linear layers and experts."""
    linear: Real = 0.0
    for parameters, count in zip(held, counts, strict=True):
        if parameters.in_linear_layer:
            linear = linear + parameters.elements * count
    return {
        "elements": sizes["before"] + sizes["layer"] + sizes["after"],
        "linear": linear,
    }


def stage_range(stages: tuple[int, ...]) -> str:
    """Return "stage 3", "stages 1 to 6" or "stages 0, 4 to 6"."""
    runs: list[list[int]] = []
    for stage in stages:
        if runs and stage == runs[-1][-1] + 1:
            runs[-1].append(stage)
        else:
            runs.append([stage])
    words = [str(r[0]) if len(r) == 1 else f"{r[0]} to {r[-1]}" for r in runs]
    return ("stages " if len(stages) > 1 else "stage ") + ", ".join(words)
