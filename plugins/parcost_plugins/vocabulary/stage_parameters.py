"""Virtual stages with equal parameters, and the ranks that hold them. Definitions.

Stages differ at the ends (embedding, head) and with uneven layers. Some costs are not proportional
to the parameters, such as a collective. They are priced once for each kind of stage.

Experts are split over other ranks than dense parameters, so fewer ranks hold the same ones. They
are separate on every stage, with their own replicas.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from parcost import record
from parcost.numeric import maximum
from parcost_plugins.vocabulary.layout import Layout
from parcost_plugins.vocabulary.operators import Parameters
from parcost_plugins.vocabulary.partition import layers, virtual_stages
from parcost_plugins.vocabulary.sharding import Sharding

if TYPE_CHECKING:
    from parcost import Real, Study


@record(kw_only=True, eq=False, slots=False)
class StageKind:
    """Virtual *stages*, out of *of*, each of which holds the same parameters.

    A stage has *layers* of *layer* parameters each (their mean, if they differ). The largest
    product of a layer has *matrix* parameters. *before* and *after* are the parameters before the
    first layer of the model and after its last. *elements* is the total. All are counts on one
    rank.

    The ranks of *group*, *replicas* of them, hold the same. ZeRO splits its state over *shard* of
    these. If *shard* is less than *replicas*, the others hold copies of the shares.
    """

    stages: tuple[int, ...]
    of: int
    layers: int
    layer: Real
    matrix: Real
    before: Real
    after: Real
    elements: Real
    group: str
    replicas: Real
    shard: Real
    expert: bool = False

    @cached_property
    def count(self) -> tuple[float, ...]:
        """One on each of these stages and zero on the others."""
        return tuple(float(stage in self.stages) for stage in range(self.of))

    def label(self, name: str) -> str:
        """Return *name*, told from the same on other stages where there are others."""
        whose = f"{name} of experts" if self.expert else name
        return whose if len(self.stages) == self.of else f"{whose}, {stage_range(self.stages)}"

    def shards(self, zero: int, since: int) -> Real:
        """Return over how many ranks is sharded what ZeRO shards *since* a stage."""
        return self.shard if zero >= since else 1.0


def stage_kinds(study: Study) -> Sequence[StageKind]:
    """Return the kinds of virtual stages that *study* has: first stage first, experts last."""
    return study.query(_stage_kinds)


def _stage_kinds(study: Study) -> Sequence[StageKind]:
    held: Sequence[Parameters] = study.parameters
    experts = [p for p in held if p.expert]
    others = [p for p in held if not p.expert] if experts else held
    found = _kinds(study, others, expert=False)
    return [*found, *_kinds(study, experts, expert=True)] if experts else found


def spread(study: Study, *, expert: bool = False) -> tuple[str, Real, Real]:
    """Return the group that holds the same parameters, its ranks, and those of a shard."""
    layout = study[Layout]
    replicas: Real = layout.dp * layout.cp
    if not expert:
        return "dp_cp", replicas, study[Sharding].shard
    replicas = layout.tp * replicas / (layout.ep * layout.etp)
    return "edp", replicas, replicas


def _kinds(study: Study, held: Sequence[Parameters], *, expert: bool) -> list[StageKind]:
    dealt, of = layers(study), virtual_stages(study)
    group, replicas, shard = spread(study, expert=expert)
    kinds: dict[tuple[float, ...], list[int]] = {}
    for stage, counts in enumerate(zip(*(p.count for p in held), strict=True)):
        if any(counts) or not expert:
            depth = max(counts) if expert else dealt[stage]
            kinds.setdefault((depth, *counts), []).append(stage)
    return [
        StageKind(
            stages=tuple(stages),
            of=of,
            layers=int(key[0]),
            **_sizes(key, held),
            group=group,
            replicas=replicas,
            shard=shard,
            expert=expert,
        )
        for key, stages in kinds.items()
    ]


def _sizes(key: tuple[float, ...], held: Sequence[Parameters]) -> dict[str, Real]:
    """Return the parameters of a layer and of the ends of a stage."""
    depth, *counts = key
    sizes: dict[str, Real] = {"before": 0.0, "layer": 0.0, "after": 0.0}
    matrix: Real = 0.0
    for parameters, count in zip(held, counts, strict=True):
        if count:
            if parameters.place == "layer":
                matrix = maximum(matrix, parameters.elements)
            sizes[parameters.place] = sizes[parameters.place] + parameters.elements * count
    elements = sizes["before"] + sizes["layer"] + sizes["after"]
    layer = sizes["layer"] / depth if depth else 0.0
    return {**sizes, "layer": layer, "matrix": matrix, "elements": elements}


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
