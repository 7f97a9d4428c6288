"""What somebody wrote and nothing reads, because another value makes it idle.

A switch that changes nothing is taken for one that was tried. Each line below says when
an attribute is read, and what it waits for where it is not. Only what the study's own
file writes is told, other than the default: what a catalogue or the prelude holds for
every case is no mistake. Nor is a value that somebody vouches for: it is a fact of the
site, which may wait to be used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from attrs import frozen

from parcost import Check, Mask, Study, block_type, called
from parcost.numeric import any_of
from parcost_plugins.vocabulary import (
    Checkpoint,
    CollectiveChoice,
    Compression,
    Context,
    Datacenter,
    Energy,
    KernelChoice,
    Layout,
    Overlap,
    Routing,
    ScheduleChoice,
    Sharding,
    Training,
    Transfer,
)


@frozen
class _Idle:
    """Attributes of a block, when they are read, and what else they wait for."""

    schema: type[Any]
    attributes: tuple[str, ...]  # empty is all
    read: Callable[[Study], Mask]
    waits_for: str


_IDLE = (
    _Idle(
        ScheduleChoice,
        ("group",),
        lambda study: study[ScheduleChoice].kind == "interleaved",
        "`schedule.kind = interleaved`",
    ),
    _Idle(
        ScheduleChoice,
        ("overlap",),
        lambda study: study[ScheduleChoice].kind.startswith("dualpipe"),
        "a schedule that runs a forward and a backward pass at once: dualpipe, dualpipe_v",
    ),
    _Idle(
        Overlap,
        ("chunks", "chunk_overhead"),
        lambda study: study[Overlap].tensor == "pipelined",
        "`overlap.tensor = pipelined`",
    ),
    _Idle(Context, (), lambda study: study[Layout].cp > 1, "`layout.cp` above 1"),
    _Idle(
        CollectiveChoice,
        ("expert",),
        lambda study: study[Training].model.experts > 0,
        "a model that has experts",
    ),
    _Idle(Routing, (), lambda study: study[Training].model.experts > 0, "a model that has experts"),
    _Idle(
        CollectiveChoice,
        (
            "generation",
            "channels",
            "links",
            "channel_bandwidth",
            "network_channel_bandwidth",
            "host",
            "card_latency",
            "collnet",
        ),
        lambda study: study[CollectiveChoice].tuning is not None,
        "a table of the library: `collectives.tuning`",
    ),
    _Idle(
        CollectiveChoice,
        ("launch",),
        lambda study: any(transfer.launched for transfer in study.all(Transfer)),
        "`transfer.launched = on`: in a step the stream has work queued, which hides it",
    ),
    _Idle(
        Compression,
        tuple(name for name in block_type(Compression).fields if name != "method"),
        lambda study: study[Compression].method != "none",
        "a `compression.method`",
    ),
    _Idle(
        Compression,
        ("density", "value", "index", "select_traffic"),
        lambda study: study[Compression].method in ("none", "top_k"),
        "`compression.method = top_k`",
    ),
    _Idle(
        Compression,
        ("rank", "factor", "minimum_rate", "project_traffic"),
        lambda study: study[Compression].method in ("none", "power_sgd"),
        "`compression.method = power_sgd`",
    ),
    _Idle(Sharding, ("prefetch",), lambda study: study[Layout].zero == 3, "`layout.zero = 3`"),
    _Idle(
        Sharding,
        ("replicate",),
        lambda study: study[Sharding].shard < study[Layout].dp * study[Layout].cp,
        "hybrid sharding: a `sharding.shard` of fewer ranks than all",
    ),
    _Idle(Sharding, ("bucket_copy",), lambda study: study[Layout].zero == 0, "`layout.zero = 0`"),
    _Idle(
        KernelChoice,
        ("narrow_gemm_efficiency",),
        lambda study: study[Training].precision.narrow != "none",
        "a recipe with a narrow type, such as FP8",
    ),
    _Idle(
        Checkpoint,
        ("nodes",),
        lambda study: any(c.node_bandwidth is not None for c in study.all(Checkpoint)),
        "`checkpoint.node_bandwidth`: a `storage` takes all writers together",
    ),
    _Idle(
        Datacenter,
        ("pue", "host_power", "activity", "idle_power"),
        lambda study: bool(study.all(Energy)),
        "a block `energy`",
    ),
)


def rules(study: Study) -> Iterator[Check]:
    """Warn of attributes that the study's file writes and nothing reads."""
    for idle in _IDLE:
        for block in study.all(idle.schema):
            names = idle.attributes or block_type(idle.schema).fields
            written = [name for name in names if _written(study, block, name)]
            if written and not any_of(idle.read(study)):
                listed = ", ".join(f"`{name}`" for name in written)
                yield Check(
                    id="no-effect",
                    holds=False,
                    subject=f"{called(block)}.{written[0]}",
                    message=f"{listed} {'has' if len(written) == 1 else 'have'} no effect",
                    inputs={"waits_for": idle.waits_for},
                    help="read with {waits_for}",
                    severity="warning",
                )


def _written(study: Study, block: object, attribute: str) -> bool:
    origin = study.origin(block, attribute)
    if origin is None or origin.how != "given" or origin.kind:
        return False
    return any_of(getattr(block, attribute) != _default(study, block, attribute))


def _default(study: Study, block: object, attribute: str) -> Any:
    """Return what *attribute* is where nobody writes it: often another attribute, by its path."""
    type_ = block_type(type(block))
    found = type_.defaults.get(attribute)
    if not isinstance(found, str) or type_.fields[attribute].kind != "quantity":
        return found
    kind, *path = found.split(".")
    value = next((b for blocks in study.blocks.values() for b in blocks if _kind(b) == kind), None)
    for name in path:
        value = getattr(value, name, None)
    return value


def _kind(block: Any) -> str:
    return block_type(type(block)).kind
