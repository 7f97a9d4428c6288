"""Pipeline parallelism: the split into stages, and messages between neighbouring stages.

Other modules compute the cost of the split: the schedule orders the passes, and a replay of the
order gives the bubble and the effect of messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from attrs import evolve

from parcost import (
    LONGEST_ORDER,
    Call,
    Check,
    Edge,
    Figure,
    Formula,
    Outcome,
    Pass,
    Pipeline,
    PipelineShape,
    Real,
    Rulebook,
    Sheet,
    Study,
    Work,
    formula,
    hookimpl,
    link_resources,
    stage_counts,
    stage_number,
)
from parcost.numeric import all_of, any_of, is_array, max_of, where
from parcost_plugins.physics import virtual_stages
from parcost_plugins.physics.neighbours import all_divisors, next_to
from parcost_plugins.physics.partition import (
    chunks,
    cut_text,
    cuts_by_option,
    end_layers,
    most_empty_ends,
    must_divide,
    stages,
    stages_of_devices,
)
from parcost_plugins.physics.partition import layers as layers_of_stages
from parcost_plugins.physics.run_choices import (
    blocks_on_transfers,
    partitions_outputs,
    stage_messages,
)
from parcost_plugins.vocabulary import CollectiveChoice, Layout, ScheduleChoice, Training
from parcost_plugins.vocabulary.causes import HOPS, TENSOR
from parcost_plugins.vocabulary.offers import usual_schedules

RULES = Rulebook(name="pipeline", file=Path(__file__).with_name("pipeline_rules.toml"))
_UNEVEN = "shorten the first and last stage: `schedule.assignment = short_ends`"
_NO_ENDS = " without counted ends"
#: Attributes that determine the number of passes in a schedule.
_PASSES = ("training.micro_batches", "layout.pp")
_LEFT_OUT = "leave `schedule.stages` out"


@hookimpl
def pipelines(study: Study) -> list[Pipeline]:
    """Return the pipeline of ``layout`` and ``schedule``; a study may have calculations only."""
    if study.get(Training) is None and study.calculates:
        return []
    choice = study[ScheduleChoice]
    return [
        Pipeline(
            schedule=choice.kind,
            stages=stages(study),
            chunks=chunks(study),
            micro_batches=study[Training].micro_batches,
            blocking=any_of(stages(study) > 1) and blocks_on_transfers(study),
            overlap=choice.overlap,
        )
    ]


@hookimpl
def terms(study: Study) -> Iterator[Edge | Work]:
    """Estimate the send/recv of a micro-batch: its message is the residual stream.

    With sequence parallelism a tensor-parallel rank sends its shard of the sequence. Without it,
    every rank sends the whole tensor, or a shard, by ``schedule.messages``. A context-parallel rank
    always has only its shard. If activations are shards and gradients are whole, the message is the
    mean of both: a micro-batch sends one of each over a boundary.
    """
    pp = stages(study)
    if all_of(pp == 1):
        return
    yield _send_recv(study, pp)
    yield from _gathers(study)


def _send_recv(study: Study, pp: Real) -> Edge:
    message = _message(study)
    group, algorithm = study.group("pp"), study[CollectiveChoice].pipeline
    call = study.collective("point_to_point", message, group, algorithm)
    return Edge(
        name="activation send/recv",
        cause=HOPS,
        seconds=call.formula if not is_array(pp) else where(pp > 1, call.seconds, 0.0),
        formula=call.formula,
        resource=group.hop.name,
        bytes_=message.value,
        boundaries=_boundaries(study, call, message.value),
    )


def _gathers(study: Study) -> Iterator[Work]:
    """Yield the all-gathers over tensor-parallel ranks that send only shards to the next stage.

    They gather the received activation, and the received gradient unless it is whole. A
    partitioned output is also gathered for backward.
    """
    kind, tp = stage_messages(study), study[Layout].tp
    if kind == "whole" or (isinstance(tp, float) and tp == 1.0):
        return
    stream = _residual_stream(study, 1.0)
    call = study.collective("all_gather", stream, "tp", study[CollectiveChoice].tensor)
    behind, ahead = (study.query(row) for row in (_receivers, _senders))
    named: list[tuple[str, Pass, Sequence[float]]] = [
        ("all-gather of a received activation", "F", behind)
    ]
    if kind != "partitioned_forward":
        named.append(("all-gather of a received gradient", "B", ahead))
    if partitions_outputs(study):
        named.append(("all-gather of a sent activation", "B", ahead))
    for name, pass_, count in named:
        yield Work(
            name=name,
            cause=TENSOR,
            seconds=call.formula,
            pass_=pass_,
            count=count,
            bytes_=stream.value,
            latency=call.latency,
            **link_resources(study.group("tp").flat),
        )


def _message(study: Study) -> Formula:
    """Return the bytes that one rank sends to the next stage: the mean of both directions."""
    layout, kind = study[Layout], stage_messages(study)
    if kind == "partitioned_forward":
        return _residual_stream(study, layout.tp, "s b h e (1 + 1 / t) / 2")
    shares = layout.sequence_parallel or kind != "whole"
    return _residual_stream(study, layout.tp if shares else 1.0)


def _residual_stream(study: Study, shares: Real, text: str = "s b h e / t") -> Formula:
    """Return the bytes of the hidden states of a micro-batch, in *shares* as in *text*."""
    training = study[Training]
    return formula(
        text,
        s=training.sequence / study[Layout].cp,
        b=training.micro_batch,
        h=training.model.hidden,
        e=(training.precision.activation, "B"),
        t=shares,
        source="hidden states of a micro-batch",
    )


@stage_counts
def _receivers(study: Study) -> tuple[float, ...]:
    """Return 1 on each virtual stage that receives its activations from another device."""
    if study.schedule.copies > 1:  # each copy of a stage hands on to another's
        return (0.0, *[1.0] * (virtual_stages(study) - 1))
    at = {s: d for d, held in enumerate(stages_of_devices(study)) for s in held}
    return (0.0, *[float(at[s] != at[s + 1]) for s in range(len(at) - 1)])


@stage_counts
def _senders(study: Study) -> tuple[float, ...]:
    """Return 1 on each virtual stage that sends its activations to another device."""
    received = _receivers(study)
    return (*received[1:], received[0])


def _boundaries(study: Study, slowest: Call, bytes_: Real) -> Sequence[Real]:
    """Return the seconds of a message over each boundary; () if all are equal."""
    group = study.group("pp")
    links = [group.hop_after(rank) for rank in range(int(max_of(stages(study))) - 1)]
    algorithm = study[CollectiveChoice].pipeline
    seconds_of: dict[int, Real] = {id(group.hop): slowest.seconds}
    for link in links:
        if id(link) not in seconds_of:
            between = evolve(group, hop=link)
            call = study.collective("point_to_point", bytes_, between, algorithm)
            seconds_of[id(link)] = call.seconds
    if all(link is group.hop for link in links):
        return ()
    return tuple(seconds_of[id(link)] for link in links)


@hookimpl(specname="figures")
def details(study: Study, outcome: Outcome, brief: bool) -> Iterator[Figure]:
    """Return the traffic between two devices: activations forward, gradients backward."""
    cut = outcome.pipeline
    if brief or cut.stages == 1:
        return
    message = _message(study)
    call = study.collective(
        "point_to_point", message, study.group("pp"), study[CollectiveChoice].pipeline
    )
    sheet = Sheet(
        source="hidden states of a micro-batch",
        m=cut.micro_batches,
        v=cut.chunks,
        n=(message, "B"),
        c=(call.formula, "s"),
        k=_crossings(study),
    )
    both = "per step, in both directions"
    for name, title, unit, text, note in (
        ("pp_send_recv_bytes", "message between pipeline stages", "MB", "n", "of one rank"),
        ("pp_send_recv_seconds", "send/recv of one message", "s", "c", "over the slowest boundary"),
        (
            "pp_transfers_per_boundary",
            "messages over a boundary of two devices",
            "",
            "2 m v",
            both,
        ),
        (
            "pp_volume_per_boundary",
            "bytes over a boundary of two devices",
            "GB",
            "2 m v n",
            both,
        ),
        (
            "pp_time_per_boundary",
            "time of the messages across a boundary",
            "s",
            "2 m v c",
            "in sequence; both directions can overlap",
        ),
        (
            "pp_volume",
            "bytes over all boundaries of a replica",
            "GB",
            "2 m k n, k boundaries of virtual stages on two devices",
            "per step, for one TP/CP/DP rank",
        ),
    ):
        yield sheet(name, title, unit, text, note=note)


def _crossings(study: Study) -> float:
    """Return how often a micro-batch moves to another device on its way through all stages.

    In a V-shaped schedule the last device holds two consecutive stages, without a message.
    """
    return sum(_receivers(study))


@hookimpl
def checks(study: Study) -> Iterator[Check]:
    """Require that the layers fill the stages, and that the schedule supports this shape."""
    if study[ScheduleChoice].stages:
        yield from _stage_list_checks(study)
    else:
        yield _division_check(study)
        yield from _uneven_check(study)
    v = chunks(study)
    yield RULES.check("chunks-alone", (stages(study) > 1) | (v == 1), "schedule.chunks", chunks=v)
    yield from _limits(study)


def _division_check(study: Study) -> Check:
    cut = stages(study) * chunks(study)
    layers = study[Training].model.layers
    ends = sum(end_layers(study))
    extra = [w for n, w in zip(end_layers(study), ("embedding", "head"), strict=True) if n]
    counted = " + ".join([f"{layers} layers", *extra])
    if not must_divide(study):
        most = layers + most_empty_ends(study)
        return RULES.check(
            "layers-few",
            (study.query(_fewest_layers) >= 0) & (cut <= most),
            "layout.pp",
            counted=counted,
            stages=_stages(study),
            most=most,
        )
    holds = (layers + ends) % cut == 0
    by_chunks = all_of((chunks(study) > 1) & ((layers + ends) % stages(study) == 0))
    return RULES.check(
        "layers-divide",
        holds,
        "schedule.chunks" if by_chunks else "layout.pp",
        help=""
        if is_array(cut) or holds
        else _ways_to_divide(layers, ends, stages(study), chunks(study)),
        counted=counted,
        stages=_stages(study),
    )


def _uneven_check(study: Study) -> Iterator[Check]:
    """Yield a warning if the framework needs an option for this split that the spec does
    not have.
    """
    if not cuts_by_option(study):
        return
    layers, cut = study[Training].model.layers, stages(study) * chunks(study)
    yield RULES.check(
        "layers-uneven",
        layers % cut == 0,
        "schedule.chunks" if all_of(chunks(study) > 1) else "layout.pp",
        reads=["layout.pp"],
        layers=layers,
        stages=_stages(study),
        cut="fewer layers at both ends"
        if is_array(cut)
        else f"{cut_text(layers_of_stages(study))} layers",
    )


@stage_number
def _fewest_layers(study: Study) -> float:
    return float(min(layers_of_stages(study)))


def _stage_list_checks(study: Study) -> list[Check]:
    listed = study[ScheduleChoice].stages
    layers = study[Training].model.layers
    left = layers - sum(listed)
    return [
        RULES.check(
            "stages-count",
            len(listed) == virtual_stages(study),
            "schedule.stages",
            listed=len(listed),
            stages=_stages(study),
            wanted=virtual_stages(study),
            left_out=_LEFT_OUT,
        ),
        RULES.check(
            "stages-sum",
            sum(listed) == layers,
            "schedule.stages",
            sum=sum(listed),
            layers=layers,
            change=f"{abs(left)} {'more' if left > 0 else 'fewer'}",
            left_out=_LEFT_OUT,
        ),
    ]


def _limits(study: Study) -> Iterator[Check]:
    """Yield the limits of the schedule, queried once per number of micro-batches."""
    m, virtual = study[Training].micro_batches, stages(study) * chunks(study)
    yield RULES.check(
        "schedule-length",
        m * virtual <= LONGEST_ORDER,
        "training.global_batch",
        reads=_PASSES,
        micro_batches=m,
        stages=_stages(study),
        passes=m * virtual,
        most=LONGEST_ORDER,
        fewer=LONGEST_ORDER // virtual,
    )
    each = _micro_batch_counts(m)
    for own, runs in zip(each, study.query(_runs, tuple(each)), strict=True):
        if all_of(runs):
            continue
        several = is_array(runs, stages(study), chunks(study))
        why = "" if several else f": {study.schedule.limits(_shape(study, own))}"
        yield Check(
            id="schedule-limits",
            holds=runs | (m != own),
            subject="schedule.kind" if several else _written_attribute(study),
            message="`{schedule}` does not run with {stages} and {micro_batches} "
            "micro-batches{why}",
            inputs={
                "schedule": study[ScheduleChoice].kind,
                "stages": _stages(study),
                "micro_batches": own,
                "why": why,
            },
            help=_other_schedules(study, own) if why else "",
            reads=_PASSES,
        )


@stage_number
def _runs(study: Study, each: Sequence[int]) -> tuple[bool, ...]:
    """Return whether the schedule runs, for each number of micro-batches."""
    limits = study.schedule.limits
    return tuple(not limits(_shape(study, m)) for m in each)


def _shape(study: Study, micro_batches: int) -> PipelineShape:
    """Return the shape of a pipeline, whose stages and chunks are no arrays here."""
    p, v = int(stages(study)), int(chunks(study))
    return PipelineShape(stages=p, micro_batches=micro_batches, chunks=v)


def _written_attribute(study: Study) -> str:
    """Return the attribute of the schedule for diagnostics: the one that the user wrote."""
    choice = study[ScheduleChoice]
    kind = study.origin(choice, "kind")
    usual = kind is None or kind.how == "default"
    return "schedule.chunks" if usual and choice.chunks > 1 else "schedule.kind"


def _other_schedules(study: Study, micro_batches: int) -> str:
    """Return the chunks or the schedules that support this number of stages, as a help line."""
    shape, offered = _shape(study, micro_batches), study.plugins.offers("schedules")
    found = [
        f"`schedule.chunks = {chunks}`"
        for chunks in (1, 2)
        if not study.schedule.limits(evolve(shape, chunks=chunks))
    ]
    found += [
        f"`schedule.kind = {kind}`"
        for kind in usual_schedules(study)
        if (shape.stages > 1 or shape.chunks == 1) and not offered[kind][1].limits(shape)
    ]
    return f"take {' or '.join(found)}" if found else ""


def _micro_batch_counts(micro_batches: Real) -> list[int]:
    """Return the distinct whole numbers of micro-batches; fractions violate another rule."""
    if isinstance(micro_batches, (float, int)):
        found = {micro_batches}
    else:
        found = set(micro_batches.ravel().tolist())
    return sorted(int(m) for m in found if m >= 1 and m == int(m))


def _stages(study: Study) -> str:
    pp, v = stages(study), chunks(study)
    if is_array(pp, v):
        return "the stages"
    return f"pp {pp}" if v == 1 else f"pp {pp} x chunks {v} = {pp * v}"


def _ways_to_divide(layers: int, ends: int, pp: int, chunks: int) -> str:
    """Return the nearest numbers of stages that divide the layers, or how to list stages."""
    uneven = _UNEVEN + _NO_ENDS * (ends > 0)
    if chunks > 1 and (layers + ends) % pp == 0:
        near = next_to(chunks, all_divisors((layers + ends) // pp))
        return f"chunks = {near} divides; or {uneven}"
    each, left = divmod(layers + ends, chunks)
    fitting = [p for p in all_divisors(each) if p <= layers] if not left else []
    nearest = [*[p for p in fitting if p < pp][-1:], *[p for p in fitting if p > pp][:1]]
    ways = []
    if nearest:
        ways.append(f"pp = {' or '.join(map(str, nearest))} divides")
    if not ends and (layers + 2) % (pp * chunks) == 0:
        both = "`schedule.count_embedding = on` with `schedule.count_head = on`"
        ways.append(f"count both ends as layers: {both}")
    each, more = divmod(layers, pp * chunks)
    if each:
        ways.append(uneven)
        listed = f"{more} times {each + 1} and {pp * chunks - more} times {each}"
        ways.append(f"deal them unevenly: `schedule.stages = [...]` with {listed}")
    return "; or ".join(ways)


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Return the rulebook of this package, with a page for each rule."""
    return [RULES]
