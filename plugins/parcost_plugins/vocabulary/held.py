"""Which virtual stages hold the same parameters, layer by layer. Definitions, not costs.

Stages differ at the ends (embedding, head) and where layers are dealt unevenly. A cost
that is not proportional to the parameters, such as a collective, is priced once for
each kind of stage instead of once for each stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attrs import frozen

from parcost_plugins.vocabulary.operators import Parameters
from parcost_plugins.vocabulary.partition import layers, virtual_stages

if TYPE_CHECKING:
    from parcost import Real, Study


@frozen(kw_only=True, eq=False)
class Alike:
    """Virtual *stages*, out of *of*, each of which holds the same parameters.

    A stage has *layers* of *layer* parameters each (their mean, where they differ),
    *before* them what the model has ahead of its first layer and *after* them what it
    has behind its last; *elements* in all. Counted on one rank.
    """

    stages: tuple[int, ...]
    of: int
    layers: int
    layer: Real
    before: Real
    after: Real
    elements: Real

    @property
    def count(self) -> tuple[float, ...]:
        """One on each of these stages and zero on the others."""
        return tuple(float(stage in self.stages) for stage in range(self.of))

    def named(self, name: str) -> str:
        """Return *name*, told from the same on other stages where there are others."""
        return name if len(self.stages) == self.of else f"{name}, {_stages(self.stages)}"


def alike(study: Study) -> list[Alike]:
    """Return the kinds of virtual stages that *study* has, first stage first."""
    held: Sequence[Parameters] = study.parameters
    dealt = layers(study)
    kinds: dict[tuple[float, ...], list[int]] = {}
    for stage, counts in enumerate(zip(*(p.count for p in held), strict=True)):
        kinds.setdefault((dealt[stage], *counts), []).append(stage)
    return [_kind(key, held, tuple(stages), virtual_stages(study)) for key, stages in kinds.items()]


def _kind(
    key: tuple[float, ...], held: Sequence[Parameters], stages: tuple[int, ...], of: int
) -> Alike:
    depth, *counts = key
    sizes: dict[str, Real] = {"before": 0.0, "layer": 0.0, "after": 0.0}
    for parameters, count in zip(held, counts, strict=True):
        if count:
            sizes[parameters.place] = sizes[parameters.place] + parameters.elements * count
    return Alike(
        stages=stages,
        of=of,
        layers=int(depth),
        layer=sizes["layer"] / depth if depth else 0.0,
        before=sizes["before"],
        after=sizes["after"],
        elements=sizes["before"] + sizes["layer"] + sizes["after"],
    )


def _stages(stages: tuple[int, ...]) -> str:
    """Return "stage 3", "stages 1 to 6" or "stages 0, 4 to 6"."""
    runs: list[list[int]] = []
    for stage in stages:
        if runs and stage == runs[-1][-1] + 1:
            runs[-1].append(stage)
        else:
            runs.append([stage])
    words = [str(r[0]) if len(r) == 1 else f"{r[0]} to {r[-1]}" for r in runs]
    return ("stages " if len(stages) > 1 else "stage ") + ", ".join(words)
