"""Fully sharded parameters: gathered layer by layer, then freed (ZeRO 3).

With the next layer's gather overlapped with compute, L layers of a stage take

    forward     AG + (L - 1) max(F, AG) + F
    backward    AG + (L - 1) max(BW, AG + RS) + BW + RS

in every micro-batch. The first gather and the last reduce-scatter are exposed; the others overlap
with ``(L - 1) / L`` of the pass. If the framework prefetches, backward gathers the last layer
during the GEMMs of the head. Parameters before the first layer are gathered before any compute.
Parameters after the last layer are kept from forward to backward. If parameters are kept from
forward, backward gathers nothing. A pipeline stage may keep parameters and unsharded gradients
until the last micro-batch. Then it gathers only in the first micro-batch. Tied embeddings on the
same stage stay gathered, because both ends of each pass need them. A framework may wrap embedding
and head in one unit, such as the root module in FSDP. Then one call gathers both before the layers,
and one reduces their gradients after the layers.

With hybrid sharding the shards of a layer are also reduced, on other links and at the same time.
This is done in every micro-batch or in the last one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from parcost import Call, CountsByStructure, Once, Pass, Real, Study, Work, formula
from parcost.numeric import maximum, ratio, where
from parcost_plugins.parallelism.data.shard_groups import (
    GRADIENTS,
    ShardGroup,
    ends_share_unit,
    keeps_ends,
    shard_groups,
    times,
    trained_groups,
)
from parcost_plugins.physics.run_choices import (
    gathers_on_arrival,
    gathers_once,
    hides_gradients,
    hides_parameters,
    keeps_last_layer,
    reduces_each_micro_batch,
    replicates_each_micro_batch,
    reshards,
)
from parcost_plugins.physics.stage_parameters import StageKind
from parcost_plugins.vocabulary import Sharding, Training
from parcost_plugins.vocabulary.causes import DATA
from parcost_plugins.vocabulary.operators import HEAD_COLUMNS

Part = Literal["before", "layer", "after", "ends"]
Under = Literal["nothing", "pass", "head"]

_WINDOWS: dict[Under, str | None] = {"nothing": None, "pass": "", "head": HEAD_COLUMNS}


class _PassTraffic(NamedTuple):
    pass_: Pass
    name: str
    part: Part
    repeat: Literal["once", "other layers"]
    under: Under


# What a micro-batch gathers and reduces on a stage, in the order in which it does.
_GATHERED = [
    _PassTraffic("F", "embedding parameter all-gather", "before", "once", "nothing"),
    _PassTraffic("F", "first parameter all-gather", "layer", "once", "nothing"),
    _PassTraffic("F", "parameter all-gather", "layer", "other layers", "pass"),
    _PassTraffic("F", "head parameter all-gather", "after", "once", "pass"),
]
_GATHERED_AGAIN = [
    _PassTraffic("B", "first parameter all-gather", "layer", "once", "head"),
    _PassTraffic("B", "parameter all-gather", "layer", "other layers", "pass"),
]
_EMBEDDING_AGAIN = _PassTraffic("B", "embedding parameter all-gather", "before", "once", "pass")
_REDUCED = [
    _PassTraffic("W", "head gradient reduce-scatter", "after", "once", "pass"),
    _PassTraffic("W", "gradient reduce-scatter", "layer", "other layers", "pass"),
    _PassTraffic("W", "last gradient reduce-scatter", "layer", "once", "nothing"),
    _PassTraffic("W", "embedding gradient reduce-scatter", "before", "once", "nothing"),
]
_ENDS_GATHERED = _PassTraffic(
    "F", "parameter all-gather of embedding and head", "ends", "once", "nothing"
)
_ENDS_REDUCED = _PassTraffic(
    "W", "gradient reduce-scatter of embedding and head", "ends", "once", "nothing"
)


def passes(study: Study) -> Iterator[Work | Once]:
    """Gather parameters for both passes, and reduce-scatter gradients in backward."""
    hides, reduces = hides_parameters(study), reduces_each_micro_batch(study)
    ahead = study[Sharding].prefetch > 0
    # Without prefetch the gathers of backward wait for the reductions of their micro-batch.
    alone = 0.0 if ahead else 1 / study[Training].micro_batches
    for wire in shard_groups(study):
        if gathers_once(study):
            yield from _gathers_once(wire, hides)
            continue
        yield from _gathers(wire, _forward_gathers(study), hides)
        yield from _gathers(wire, _backward_gathers(study), hides and (ahead or not reduces), alone)
    if reduces:
        for wire in trained_groups(study):
            yield from _reductions(wire, hides_gradients(study))
            if wire.across and not replicates_each_micro_batch(study):
                yield from _reductions_across(wire, hides_gradients(study))


def _forward_gathers(study: Study) -> list[_PassTraffic]:
    """Return the gathers of forward."""
    return [_ENDS_GATHERED, *_GATHERED[1:-1]] if ends_share_unit(study) else _GATHERED


def _reductions_of_pass(study: Study) -> list[_PassTraffic]:
    """Return the reductions of backward."""
    return [*_REDUCED[1:-1], _ENDS_REDUCED] if ends_share_unit(study) else _REDUCED


def _backward_gathers(study: Study) -> list[_PassTraffic]:
    """Return the gathers in backward, for parameters that were resharded after forward."""
    if not reshards(study):
        return []
    last, *others = _GATHERED_AGAIN if keeps_ends(study) else [*_GATHERED_AGAIN, _EMBEDDING_AGAIN]
    if keeps_last_layer(study):
        return others
    ahead = study[Sharding].prefetch > 0
    return [last if ahead else last._replace(under="nothing"), *others]


def _gathers(
    wire: ShardGroup, rows: list[_PassTraffic], hides: bool, alone: Real = 0.0
) -> Iterator[Work]:
    calls = _gather_calls(wire, rows)
    for row, count, repeat, share in _times(wire, rows):
        if row.part in calls:
            call, bytes_ = calls[row.part]
            yield wire.work(
                wire.kind.label(row.name),
                call,
                row.pass_,
                count=count,
                repeat=repeat,
                bytes_=bytes_,
                window=_WINDOWS[row.under] if hides else None,
                share=share,
                alone=alone,
            )


def _gathers_once(wire: ShardGroup, hides: bool) -> Iterator[Once]:
    """Gather each part before the first micro-batch, or during its forward pass."""
    rows = _forward_gathers(wire.study)
    calls = _gather_calls(wire, rows)
    for row, count, repeat, share in _times(wire, rows):
        if row.part in calls:
            call, bytes_ = calls[row.part]
            yield Once(
                name=wire.kind.label(row.name),
                cause=DATA,
                seconds=times(call.formula, repeat),
                when="fill",
                on_arrival=gathers_on_arrival(wire.study),
                count=count,
                beside=share if row.under == "pass" and hides else 0.0,
                slowdown=wire.slowdown,
                bytes_=repeat * bytes_,
                latency=repeat * call.latency,
                **wire.on,
            )


def _gather_calls(wire: ShardGroup, rows: list[_PassTraffic]) -> dict[Part, tuple[Call, Real]]:
    """Return the gather of each part of the stages, and its bytes."""
    size = _sizes(wire)
    return {
        part: (
            wire.call("all_gather", formula("psi a", psi=elements, a=(size[part], "B"))),
            elements * size[part],
        )
        for part, elements in _parts(wire, rows).items()
    }


def _sizes(wire: ShardGroup) -> dict[str, Real]:
    """Return the bytes of a gathered parameter of each part; the mean for both ends."""
    kind, each = wire.kind, wire.kind.wire
    both = kind.before * each["before"] + kind.after * each["after"]
    return {**each, "ends": ratio(both, kind.before + kind.after)}


def _reductions(wire: ShardGroup, hides: bool) -> Iterator[Work]:
    rows = _reductions_of_pass(wire.study)
    parts = _parts(wire, rows)
    calls = {part: wire.reduce("reduce_scatter", elements) for part, elements in parts.items()}
    shares = {}
    if wire.across and replicates_each_micro_batch(wire.study):
        shares = {part: wire.reduce_across(elements) for part, elements in parts.items()}
    for row, count, repeat, share in _times(wire, rows):
        for priced, on in ((calls, wire.on), (shares, wire.on_across)):
            if row.part in priced:
                call = priced[row.part]
                name = _across(row)
                yield wire.work(
                    wire.kind.label(name if priced is shares else row.name),
                    call,
                    row.pass_,
                    count=count,
                    repeat=repeat,
                    bytes_=call.bytes_,
                    window=_WINDOWS[row.under] if hides else None,
                    share=share,
                    on=on,
                    tag=GRADIENTS,
                )


def _reductions_across(wire: ShardGroup, hides: bool) -> Iterator[Once]:
    """Reduce the shards of each part over other groups, after its reduce-scatter in the last
    micro-batch.
    """
    rows = _reductions_of_pass(wire.study)
    calls = {part: wire.reduce_across(elements) for part, elements in _parts(wire, rows).items()}
    for row, count, repeat, share in _times(wire, rows):
        if row.part in calls:
            call = calls[row.part]
            yield Once(
                name=wire.kind.label(_across(row)),
                cause=DATA,
                seconds=times(call.formula, repeat),
                when="drain",
                count=count,
                beside=share if row.under == "pass" and hides else 0.0,
                slowdown=wire.slowdown,
                bytes_=repeat * call.bytes_,
                latency=repeat * call.latency,
                tag=GRADIENTS,
                **wire.on_across,
            )


def _across(row: _PassTraffic) -> str:
    """Return the name of the all-reduce of shards that follows a reduce-scatter."""
    return row.name.replace("reduce-scatter", "shard all-reduce")


def _times(
    wire: ShardGroup, rows: list[_PassTraffic]
) -> Iterator[tuple[_PassTraffic, Sequence[Any], Real, Real]]:
    """Yield each row with its counts, repetitions, and the share of its window that may hide it.

    Counts are per virtual stage. Repetitions are 1, or the number of layers minus 1.
    """
    kind = wire.kind
    others = maximum(kind.layers - 1, 0)
    share = others / (others + 1)
    parts = _elements(kind)
    for row in rows:
        repeat: Real = 1.0 if row.repeat == "once" else others
        beside = share if row.under == "pass" else 1.0
        if isinstance(kind.count, CountsByStructure):  # in a search, some stages may lack the part
            yield row, kind.count, where(parts[row.part] > 0, repeat, 0.0), beside
        elif repeat:
            yield row, [repeat * on for on in kind.count], 1.0, beside


def _elements(kind: StageKind) -> dict[Part, Real]:
    """Return the parameters of each part of the stages."""
    ends = kind.before + kind.after
    return {"before": kind.before, "layer": kind.layer, "after": kind.after, "ends": ends}


def _parts(wire: ShardGroup, rows: list[_PassTraffic]) -> dict[Part, Real]:
    """Return the parameters of each part of the stages in *rows*, if there are any."""
    named = {row.part for row in rows}
    return {
        part: elements
        for part, elements in _elements(wire.kind).items()
        if part in named and not _is_zero(elements)
    }


def _is_zero(held: Real) -> bool:
    """Return whether a stage has no parameters of a part; never true for a sweep."""
    return isinstance(held, float) and held == 0.0
