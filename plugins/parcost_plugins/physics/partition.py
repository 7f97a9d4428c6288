"""The layers on each virtual stage, and their kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from parcost import LONGEST_ORDER, Op, PipelineShape, stage_counts, stage_number
from parcost_plugins.physics.neighbours import all_divisors
from parcost_plugins.vocabulary.layout import Layout, ScheduleChoice
from parcost_plugins.vocabulary.recompute import Recompute
from parcost_plugins.vocabulary.training import Training

if TYPE_CHECKING:
    from parcost import Pipeline, Study

#: A count per virtual stage.
Counts: TypeAlias = "Sequence[Any]"


class LayerKind(NamedTuple):
    """The kind of a layer: with experts, with windowed attention, fully *recomputed*.

    A *delta* layer has a gated delta net in place of attention.
    """

    moe: bool
    windowed: bool
    recomputed: bool
    delta: bool = False


def virtual_stages(study: Study) -> int:
    """Return the number of virtual stages: ``pp * chunks``."""
    return study[Layout].pp * study[ScheduleChoice].chunks


def stages(study: Study) -> Any:
    """Return the number of pipeline devices, as a number or an array."""
    return study.query(_stages)


@stage_number
def _stages(study: Study) -> int:
    return study[Layout].pp


def chunks(study: Study) -> Any:
    """Return the number of model chunks per device, as a number or an array."""
    return study.query(_chunks)


@stage_number
def _chunks(study: Study) -> int:
    return study[ScheduleChoice].chunks


def stages_of_devices(study: Study) -> Sequence[Sequence[int]]:
    """Return the virtual stages of every pipeline device, in the order of the schedule.

    Every stage is in the list, because its first forward pass is not in a pair.
    """
    cut, schedule = study.pipeline, study.schedule
    if cut.chunks == 1 and schedule.copies == 1:
        return [[device] for device in range(cut.stages)]
    order = schedule.order(cut.stages, _fewest_micro_batches(study), cut.chunks)
    return [sorted({op.stage for op in entries if isinstance(op, Op)}) for entries in order]


@stage_number
def ends_share_device(study: Study) -> bool:
    """Return whether each device with the first virtual stage also has the last one.

    This is true for V-shaped and bidirectional schedules. It is false for a schedule that does not
    support this shape, which a rule reports.
    """
    if study[Layout].pp == 1:
        return True
    cut, last = study.pipeline, virtual_stages(study) - 1
    if cut.chunks == 1 and study.schedule.copies == 1:
        return False
    if not _fewest_micro_batches(study):
        return False
    return all(last in held for held in stages_of_devices(study) if 0 in held)


def _fewest_micro_batches(study: Study) -> int:
    """Return the smallest number of micro-batches in use that the schedule supports, 0 if none.

    In a search, some layouts may have numbers that only another schedule supports.
    """
    cut, schedule = study.pipeline, study.schedule
    m, stages = cut.micro_batches, cut.stages * cut.chunks
    for count in sorted({m} if isinstance(m, (float, int)) else set(m.reshape(-1).tolist())):
        possible = count >= 1 and count == int(count) and count * stages <= LONGEST_ORDER
        if possible and not schedule.limits(_shape(cut, int(count))):
            return int(count)
    return 0


def _shape(cut: Pipeline, micro_batches: int) -> PipelineShape:
    return PipelineShape(stages=cut.stages, micro_batches=micro_batches, chunks=cut.chunks)


def layers(study: Study) -> Counts:
    """Return the number of layers on each virtual stage, first to last.

    MTP layers come after the last layer, on the stage of the head. Assumes that the rules
    ``stages-sum``, ``layers-divide`` and ``layers-few`` pass.

    >>> from parcost_plugins.physics.partition import deal
    >>> deal(10, 4, first=1, last=1)
    (2, 3, 3, 2)
    >>> deal(10, 4)
    (3, 3, 2, 2)
    >>> deal(61, 16, rule="short_ends")
    (3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 2)
    """
    choice, model = study[ScheduleChoice], study[Training].model
    dealt = choice.stages or _default_layers(study)
    if model.prediction_layers:
        return (*dealt[:-1], dealt[-1] + model.prediction_layers)
    return dealt


def _default_layers(study: Study) -> Counts:
    """Return the layers of each virtual stage if the study does not list them."""
    count, stages = study[Training].model.layers, virtual_stages(study)
    if stages == 1:
        return (count,)
    first, last = end_layers(study)
    return deal(count, stages, first=first, last=last, rule=assignment(study))


def assignment(study: Study) -> str:
    """Return the rule that assigns layers to stages, from the spec or from the framework."""
    return study[ScheduleChoice].assignment or study[Training].framework.assignment


def end_layers(study: Study) -> tuple[int, int]:
    """Return the number of layers for which the embedding and the head count in the assignment."""
    choice, both = study[ScheduleChoice], assignment(study) == "ends"
    return int(both or choice.count_embedding), int(both or choice.count_head)


def must_divide(study: Study) -> bool:
    """Return whether every stage must have the same number of layers.

    The embedding and the head may count as layers.
    """
    rule = assignment(study)
    return rule == "even" or (rule == "short_ends" and sum(end_layers(study)) > 0)


def cuts_by_option(study: Study) -> bool:
    """Return whether an uneven split needs a framework option that the spec does not set."""
    choice = study[ScheduleChoice]
    stated = bool(choice.stages) or choice.assignment is not None
    return not stated and assignment(study) == "short_ends" and not must_divide(study)


def cut_text(counts: Sequence[int]) -> str:
    """Return the layers of each stage as text; equal neighbours are merged with their count.

    >>> cut_text([3, *[4] * 14, 2]), cut_text([8] * 4), cut_text([1, 2])
    ('3 14x4 2', '4x8', '1 2')
    """
    runs = ((len(list(same)), count) for count, same in groupby(counts))
    return " ".join(f"{times}x{count}" if times > 1 else f"{count}" for times, count in runs)


def most_empty_ends(study: Study) -> int:
    """Return the number of end stages (0 to 2) that may have no layer, if layers are uneven."""
    return 2 if assignment(study) == "short_ends" else sum(end_layers(study))


def possible_cuts(study: Study) -> list[int]:
    """Return the possible numbers of virtual stages for this layer count, in ascending order."""
    layers = int(study[Training].model.layers)
    if must_divide(study):
        return list(all_divisors(layers + sum(end_layers(study))))
    return list(range(1, layers + most_empty_ends(study) + 1))


def deal(count: int, stages: int, *, first: int = 0, last: int = 0, rule: str = "front") -> Counts:
    """Return the number of layers of each of *stages*, by a *rule* of ``schedule.assignment``.

    The stages share *count* layers, plus *first* and *last* counted layers at the two ends. Rules
    differ if the sum is not divisible: by default the first stages have one more layer; with
    ``fill`` the first stages are full; with ``short_ends`` the ends have fewer layers.
    """
    whole = count + first + last
    each, more = divmod(whole, stages)
    if rule == "fill" and more:
        dealt = [max(0, min(each + 1, whole - (each + 1) * stage)) for stage in range(stages)]
    elif rule == "short_ends" and more:
        dealt = _shorten_ends(each + 1, stages, stages - more)
    else:
        dealt = [each + 1] * more + [each] * (stages - more)
    dealt[0] -= first
    dealt[-1] -= last
    return tuple(dealt)


def _shorten_ends(each: int, stages: int, lacking: int) -> list[int]:
    """Return *stages* stages of *each* layers, reduced by *lacking* layers in total.

    The first and the last stage lose half of these layers each; the last one loses one more if the
    number is odd. If a stage would become empty, several stages lose one layer each: the first, the
    last, the last but one, and so on.

    >>> _shorten_ends(4, 4, 3), _shorten_ends(2, 5, 3), _shorten_ends(1, 4, 2)
    ([3, 4, 4, 2], [1, 2, 2, 1, 1], [0, 1, 1, 0])
    """
    dealt = [each] * stages
    if lacking <= 2 * (each - 1):
        dealt[0] -= lacking // 2
        dealt[-1] -= lacking - lacking // 2
        return dealt
    short = lacking - 1 or 1  # behind the first stage, which lacks one too unless it is alone
    dealt[0] -= lacking > 1
    dealt[-short:] = [each - 1] * short
    return dealt


def kinds(study: Study, *, recomputing: bool = True) -> Mapping[LayerKind, Counts]:
    """Return the layers of each virtual stage by kind, without kinds that have no layers.

    Without *recomputing*, recomputation is ignored.
    """
    training = study[Training]
    chosen = study.get(Recompute) if recomputing else None
    model = training.model
    dealt = layers(study)
    full = recomputing and training.recompute == "full"
    some = (0, 1, 0) if chosen is None else (chosen.first, chosen.every, chosen.layers)
    mixed = model.experts or model.window or model.delta_heads
    if not (mixed or (full and some != (0, 1, 0))):
        return {LayerKind(False, False, full): dealt}
    return _kinds(
        dealt,
        (model.experts, model.dense_first, model.moe_every, model.dense_layers),
        (model.window, model.full_every, model.full_layers),
        model.layers if model.delta_heads else 0,
        (full, *some),
    )


def select_counts(
    found: Mapping[LayerKind, Counts],
    *,
    moe: bool | None = None,
    windowed: bool | None = None,
    recomputed: bool | None = None,
    delta: bool | None = None,
) -> Counts:
    """Return the number of layers of matching kinds on each stage; None matches any kind.

    >>> moe, dense = LayerKind(True, False, False), LayerKind(False, False, False)
    >>> select_counts({moe: (1, 2), dense: (1, 0)}, moe=True)
    (1, 2)
    """
    wanted = (moe, windowed, recomputed, delta)
    picked = [
        counts
        for kind, counts in found.items()
        if all(want is None or want == is_ for want, is_ in zip(wanted, kind, strict=True))
    ]
    if len(picked) == 1:
        return picked[0]
    return tuple(map(sum, zip(*picked, strict=True))) or (0,) * len(next(iter(found.values())))


def layer_counts(
    study: Study,
    *,
    moe: bool | None = None,
    windowed: bool | None = None,
    recomputed: bool | None = None,
    delta: bool | None = None,
) -> Counts:
    """Count the layers of each kind on every stage; None matches any kind."""
    wanted = (moe, windowed, recomputed, delta)
    return study.query(_layer_counts, *wanted)


@stage_counts
def _layer_counts(
    study: Study,
    moe: bool | None,
    windowed: bool | None,
    recomputed: bool | None,
    delta: bool | None,
) -> Counts:
    every = study.query(_layers_by_kind, recomputed is not None)
    return select_counts(every, moe=moe, windowed=windowed, recomputed=recomputed, delta=delta)


def _layers_by_kind(study: Study, recomputing: bool) -> Mapping[LayerKind, Counts]:
    return kinds(study, recomputing=recomputing)


def moe_layers(study: Study) -> Counts:
    """Return the layers with experts on each virtual stage."""
    return select_counts(kinds(study), moe=True)


def recomputed_layers(study: Study) -> Counts:
    """Return the fully recomputed layers of each virtual stage."""
    return select_counts(kinds(study), recomputed=True)


def on_first(study: Study) -> Counts:
    """Return a count of 1 on the first virtual stage and 0 on the others."""
    return study.query(_on_first)


@stage_counts
def _on_first(study: Study) -> tuple[float, ...]:
    return (1.0, *[0.0] * (virtual_stages(study) - 1))


def on_last(study: Study) -> Counts:
    """Return a count of 1 on the last virtual stage and 0 on the others."""
    return study.query(_on_last)


@stage_counts
def _on_last(study: Study) -> tuple[float, ...]:
    return (*[0.0] * (virtual_stages(study) - 1), 1.0)


def before_last(study: Study) -> Counts:
    """Return a count of 0 on the last virtual stage and 1 on the others."""
    return study.query(_before_last)


@stage_counts
def _before_last(study: Study) -> tuple[float, ...]:
    return (*[1.0] * (virtual_stages(study) - 1), 0.0)


@lru_cache(maxsize=1024)
def _kinds(
    dealt: Counts,
    mixture: tuple[int, int, int, tuple[int, ...]],
    window: tuple[int, int, tuple[int, ...]],
    delta_end: int,
    recompute: tuple[bool, int, int, int],
) -> Mapping[LayerKind, Counts]:
    experts, dense_first, moe_every, dense_layers = mixture
    width, full_every, full_layers = window
    dense, whole = frozenset(dense_layers), frozenset(full_layers)
    full, first, every, most = recompute
    found: dict[LayerKind, list[int]] = {}
    layer = 0
    for stage, count in enumerate(dealt):
        for place in range(count):
            full_attention = layer in whole or (full_every and (layer + 1) % full_every == 0)
            kind = LayerKind(
                moe=experts > 0
                and layer not in dense
                and layer >= dense_first
                and (layer - dense_first + 1) % moe_every == 0,
                windowed=width > 0 and not full_attention,
                recomputed=full
                and layer >= first
                and (layer - first) % every == 0
                and (most == 0 or place < most),
                delta=layer < delta_end and not full_attention,
            )
            found.setdefault(kind, [0] * len(dealt))[stage] += 1
            layer += 1
    return {kind: tuple(counts) for kind, counts in found.items()}
