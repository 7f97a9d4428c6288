"""Which layers stand on which virtual stage. Definitions, not costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parcost_plugins.vocabulary.layout import Layout, ScheduleChoice
from parcost_plugins.vocabulary.training import Training

if TYPE_CHECKING:
    from parcost import Study


def virtual_stages(study: Study) -> int:
    """Return how many virtual stages the model is cut into: ``pp * chunks``."""
    return study[Layout].pp * study[ScheduleChoice].chunks


def layers(study: Study) -> tuple[int, ...]:
    """Return the transformer layers of each virtual stage, first to last.

    Assumes that the rules ``stages-sum`` and ``layers-divide`` hold.

    >>> from parcost_plugins.vocabulary.partition import deal
    >>> deal(10, 4, first=1, last=1)
    (2, 3, 3, 2)
    """
    choice = study[ScheduleChoice]
    if choice.stages:
        return choice.stages
    return deal(
        study[Training].model.layers,
        virtual_stages(study),
        first=int(choice.count_embedding),
        last=int(choice.count_head),
    )


def deal(count: int, stages: int, *, first: int = 0, last: int = 0) -> tuple[int, ...]:
    """Deal *count* layers evenly, as if *first* and *last* more stood at the ends."""
    each = (count + first + last) // stages
    dealt = [each] * stages
    dealt[0] -= first
    dealt[-1] -= last
    return tuple(dealt)


def on_first(study: Study) -> tuple[float, ...]:
    """Return the count of something that stands on the first virtual stage only."""
    return (1.0, *[0.0] * (virtual_stages(study) - 1))


def on_last(study: Study) -> tuple[float, ...]:
    """Return the count of something that stands on the last virtual stage only."""
    return (*[0.0] * (virtual_stages(study) - 1), 1.0)
