"""Attributes without an effect, because another value disables them.

A user may believe that a switch without an effect was evaluated. Each line below has the condition
under which an attribute is read, and the value that enables it. Only attributes in the study's own
file that differ from the default are reported. Catalogues and the prelude hold values for every
case. An imported file may serve several layouts, so attributes there that need a degree above 1 are
not reported. Nor are values with provenance: they are facts of the site for later use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from attrs import evolve, frozen

from parcost import Check, Figure, Group, Mask, Real, Study, block_name, block_type
from parcost.numeric import any_of
from parcost_plugins.vocabulary import (
    Checkpoint,
    Cluster,
    CollectiveChoice,
    Compression,
    Context,
    Datacenter,
    Device,
    Energy,
    KernelChoice,
    Layout,
    Level,
    LocalUpdates,
    MemoryBudget,
    Model,
    Offload,
    Overlap,
    Precision,
    Recompute,
    Routing,
    ScheduleChoice,
    Serving,
    Sharding,
    Training,
    Transfer,
)
from parcost_plugins.vocabulary.attention_reach import writes_scores
from parcost_plugins.vocabulary.clocks import has_law
from parcost_plugins.vocabulary.context import algorithm
from parcost_plugins.vocabulary.exchange import direct_links, exchange_links, relayed_share
from parcost_plugins.vocabulary.framework import KERNEL_DISPATCHERS
from parcost_plugins.vocabulary.partition import stages
from parcost_plugins.vocabulary.routing import dispatcher_of
from parcost_plugins.vocabulary.run_choices import (
    hides_gradients,
    hides_parameters,
    shards_gradients,
    shards_states,
    shards_weights,
    tensor_overlap,
)


def _holds_by_power(device: Device) -> bool:
    """Return whether the sustained rate of a device is derived from its power."""
    stated = device.sustained is not None and device.narrow_sustained is not None
    return has_law(device) and not stated


def _power_limits(device: Device) -> bool:
    """Return whether a power cap or the design power slows a device."""
    return device.power_cap is not None or _holds_by_power(device)


@frozen
class _UnreadAttributes:
    """Attributes of a block, the condition under which they are read, and the enabling value."""

    schema: type[Any]
    attributes: tuple[str, ...]  # empty is all
    read: Callable[[Study], Mask]
    waits_for: str


def _dispatches(study: Study, *dispatchers: str) -> bool:
    """Return whether the token dispatcher is one of *dispatchers*, or the model is dense."""
    return study[Training].model.experts == 0 or dispatcher_of(study) in dispatchers


def _spreads(study: Study) -> Mask:
    """Return whether experts are on several ranks, or the model is dense."""
    return (study[Training].model.experts == 0) | (study[Layout].ep > 1)


def _repeats_stream(study: Study) -> Mask:
    """Return whether tensor-parallel ranks hold equal copies of the residual stream."""
    return (study[Layout].tp > 1) & (not study[Layout].sequence_parallel)


def _hides(study: Study) -> Mask:
    """Return whether any collective may overlap with compute."""
    layout = study[Layout]
    within = (layout.tp > 1) | (layout.cp > 1) | (layout.ep > 1)
    return within | hides_gradients(study) | hides_parameters(study)


def _is_offloaded(study: Study) -> Mask:
    """Return whether any state is offloaded to the host."""
    away, local = study[Offload], study[LocalUpdates]
    shares = (away.optimizer > 0) | (away.parameters > 0) | (away.activations > 0)
    return shares | (local.offload and local.method == "outer")


def _recomputes_all(study: Study) -> bool:
    """Return whether backward fully recomputes every layer."""
    recompute = study[Recompute]
    return study[Training].recompute == "full" and recompute.every == 1 and recompute.layers == 0


def _has_table(study: Study) -> bool:
    """Return whether a library chooses algorithms by a tuning table."""
    cluster = study.get(Cluster)
    device = None if cluster is None else cluster.device.tuning
    return (study[CollectiveChoice].tuning or device) is not None


def _names_library(study: Study) -> bool:
    """Return whether any collective uses `nccl`, the prediction for a described machine."""
    choice = study[CollectiveChoice]
    named = {choice.tensor, choice.data, choice.pipeline, choice.context, choice.expert}
    named |= {transfer.algorithm for transfer in study.all(Transfer)}
    named |= {serving.collective for serving in study.all(Serving)}
    return "nccl" in named


_IDLE = (
    _UnreadAttributes(
        ScheduleChoice,
        ("group",),
        lambda study: study[ScheduleChoice].kind == "interleaved",
        "`schedule.kind = interleaved`",
    ),
    _UnreadAttributes(
        ScheduleChoice,
        ("overlap",),
        lambda study: study[ScheduleChoice].kind.startswith("dualpipe"),
        "a schedule that runs a forward and a backward pass at once: dualpipe, dualpipe_v",
    ),
    _UnreadAttributes(
        ScheduleChoice,
        ("transfers", "messages", "assignment", "count_embedding", "count_head"),
        lambda study: stages(study) > 1,
        "`layout.pp` above 1",
    ),
    _UnreadAttributes(
        ScheduleChoice,
        ("messages",),
        lambda study: (stages(study) == 1) | _repeats_stream(study),
        "`layout.tp` above 1, without `layout.sequence_parallel`",
    ),
    _UnreadAttributes(
        KernelChoice,
        ("misaligned_heads",),
        writes_scores,
        "an attention core of several kernels: `kernels.attention = unfused`",
    ),
    _UnreadAttributes(
        Overlap,
        ("bucket",),
        lambda study: hides_gradients(study) or hides_parameters(study) or shards_gradients(study),
        "`overlap.gradients` or `overlap.parameters`: one collective has no buckets",
    ),
    _UnreadAttributes(
        Overlap,
        ("first_bucket",),
        hides_gradients,
        "`overlap.gradients = on`",
    ),
    _UnreadAttributes(
        Overlap,
        ("multiprocessors",),
        _hides,
        "collectives that hide under compute, such as `overlap.gradients = on`",
    ),
    _UnreadAttributes(
        Overlap,
        ("chunks", "chunk_overhead"),
        lambda study: tensor_overlap(study) == "pipelined",
        "`overlap.tensor = pipelined`",
    ),
    _UnreadAttributes(
        ScheduleChoice,
        ("assignment", "count_embedding", "count_head"),
        lambda study: not study[ScheduleChoice].stages or stages(study) == 1,
        "assigned layers: `schedule.stages` places them",
    ),
    _UnreadAttributes(Context, (), lambda study: study[Layout].cp > 1, "`layout.cp` above 1"),
    _UnreadAttributes(
        Context,
        ("balance",),
        lambda study: study[Layout].cp == 1 or algorithm(study) != "ulysses",
        "an algorithm in which ranks keep a share of the sequence: ring, all_gather, hybrid",
    ),
    _UnreadAttributes(
        Recompute,
        ("norms", "activation", "up_projection", "mlp", "moe"),
        lambda study: not _recomputes_all(study),
        "layers that are not recomputed as a whole",
    ),
    _UnreadAttributes(
        Recompute,
        ("keep_qkv", "keep_core", "keep_output", "keep_up", "keep_down", "alternate"),
        lambda study: study[Training].recompute == "full",
        "`training.recompute = full`",
    ),
    _UnreadAttributes(
        CollectiveChoice, ("tensor",), lambda study: study[Layout].tp > 1, "`layout.tp` above 1"
    ),
    _UnreadAttributes(
        CollectiveChoice, ("context",), lambda study: study[Layout].cp > 1, "`layout.cp` above 1"
    ),
    _UnreadAttributes(
        CollectiveChoice, ("pipeline",), lambda study: stages(study) > 1, "`layout.pp` above 1"
    ),
    _UnreadAttributes(
        CollectiveChoice,
        ("expert",),
        lambda study: (study[Training].model.experts == 0) | (study[Layout].ep > 1),
        "`layout.ep` above 1",
    ),
    _UnreadAttributes(
        CollectiveChoice,
        ("expert",),
        lambda study: study[Training].model.experts > 0,
        "a model that has experts",
    ),
    _UnreadAttributes(
        KernelChoice,
        ("grouped_experts",),
        lambda study: study[Training].model.experts > 0,
        "a model that has experts",
    ),
    _UnreadAttributes(
        Routing, (), lambda study: study[Training].model.experts > 0, "a model that has experts"
    ),
    _UnreadAttributes(
        Routing,
        ("distribution", "concentration", "loads"),
        lambda study: _spreads(study) | (study[Routing].capacity_factor is not None),
        "`layout.ep` above 1",
    ),
    _UnreadAttributes(Routing, ("node_limit", "counts"), _spreads, "`layout.ep` above 1"),
    _UnreadAttributes(
        Routing,
        ("hide", "buffer_factor"),
        lambda study: _spreads(study) | (study[Layout].etp > 1),
        "`layout.ep` above 1",
    ),
    _UnreadAttributes(
        Routing,
        ("deepep_multiprocessors", "deepep_rate", "deepep_efficiency"),
        lambda study: _dispatches(study, "deepep"),
        "`routing.dispatcher = deepep`",
    ),
    _UnreadAttributes(
        Routing,
        ("hybridep_multiprocessors", "hybridep_rate", "hybridep_efficiency"),
        lambda study: _dispatches(study, "hybridep"),
        "`routing.dispatcher = hybridep`",
    ),
    _UnreadAttributes(
        Routing,
        ("outer_efficiency",),
        lambda study: _dispatches(study, *KERNEL_DISPATCHERS),
        "`routing.dispatcher = deepep` or `hybridep`",
    ),
    _UnreadAttributes(
        Routing,
        ("deduplicate",),
        lambda study: _dispatches(study, "alltoall"),
        "`routing.dispatcher = alltoall`",
    ),
    _UnreadAttributes(
        CollectiveChoice,
        ("generation", "host"),
        _has_table,
        "a table of the library: `collectives.tuning`, or that of the device",
    ),
    _UnreadAttributes(
        CollectiveChoice,
        (
            "channels",
            "links",
            "channel_bandwidth",
            "network_channel_bandwidth",
            "card_latency",
            "collnet",
        ),
        _names_library,
        "the algorithm `nccl`, such as `collectives.data = nccl`",
    ),
    _UnreadAttributes(
        CollectiveChoice,
        ("launch",),
        lambda study: any(transfer.launched for transfer in study.all(Transfer)),
        "`transfer.launched = on`: in a step the stream has work queued, which hides it",
    ),
    _UnreadAttributes(
        Compression,
        tuple(name for name in block_type(Compression).fields if name != "method"),
        lambda study: study[Compression].method != "none",
        "a `compression.method`",
    ),
    _UnreadAttributes(
        Compression,
        ("density", "value", "index", "select_traffic"),
        lambda study: study[Compression].method in ("none", "top_k"),
        "`compression.method = top_k`",
    ),
    _UnreadAttributes(
        Compression,
        ("rank", "factor", "minimum_rate", "project_traffic"),
        lambda study: study[Compression].method in ("none", "power_sgd"),
        "`compression.method = power_sgd`",
    ),
    _UnreadAttributes(Sharding, ("prefetch",), shards_weights, "`layout.zero = 3`"),
    _UnreadAttributes(
        Sharding,
        ("replicate",),
        lambda study: study[Sharding].shard < study[Layout].dp * study[Layout].cp,
        "hybrid sharding: a `sharding.shard` of fewer ranks than all",
    ),
    _UnreadAttributes(
        Sharding, ("bucket_copy",), lambda study: not shards_states(study), "`layout.zero = 0`"
    ),
    _UnreadAttributes(
        KernelChoice,
        ("narrow_gemm_efficiency",),
        lambda study: study[Training].precision.narrow != "none",
        "a recipe with a narrow type, such as FP8",
    ),
    _UnreadAttributes(
        KernelChoice,
        ("static_power", "lowest_voltage"),
        lambda study: _power_limits(study[Cluster].device),
        "a device with a `power_cap`, or without `sustained` and with `product_energy`",
    ),
    _UnreadAttributes(
        KernelChoice,
        ("narrow_energy",),
        lambda study: _holds_by_power(study[Cluster].device),
        "a device without `sustained` and with `product_energy`",
    ),
    _UnreadAttributes(
        Device,
        ("static_power",),
        lambda study: _power_limits(study[Cluster].device),
        "a `power_cap`, or `product_energy` without `sustained`",
    ),
    _UnreadAttributes(
        Device,
        ("product_energy",),
        lambda study: _holds_by_power(study[Cluster].device),
        "a `power`, and no `sustained`",
    ),
    _UnreadAttributes(
        Device,
        ("in_one_layout",),
        lambda study: study[Training].precision.narrow != "none",
        "a recipe with a narrow type, such as FP8",
    ),
    _UnreadAttributes(
        Precision,
        (
            "wide_first",
            "wide_last",
            "wide_weight_gradients",
            "scale_block",
            "narrow_rate",
            "cast_kernels",
            "amax_group",
        ),
        lambda study: study[Training].precision.narrow != "none",
        "a `narrow` type",
    ),
    _UnreadAttributes(
        Precision,
        ("dispatch", "combine"),
        lambda study: study[Training].model.experts > 0,
        "a model that has experts",
    ),
    _UnreadAttributes(
        Precision,
        ("tensor_gather",),
        lambda study: study[Layout].sequence_parallel,
        "`layout.sequence_parallel = on`",
    ),
    _UnreadAttributes(
        Model,
        ("rope_dim", "nope_dim", "v_dim"),
        lambda study: study[Training].model.is_latent,
        "latent attention: a `kv_lora` above 0",
    ),
    _UnreadAttributes(
        Model,
        ("saved",),
        lambda study: study[Training].model.is_nominal,
        "a nominal model, which is known by its `parameters`",
    ),
    _UnreadAttributes(
        Offload,
        ("update", "host_memory_bandwidth"),
        lambda study: study[Offload].optimizer > 0,
        "an `offload.optimizer` above 0",
    ),
    _UnreadAttributes(
        Offload,
        ("host_memory_bandwidth",),
        lambda study: (study[Offload].update == "host") | (study[Offload].optimizer == 0),
        "`offload.update = host`",
    ),
    _UnreadAttributes(
        Offload,
        ("overlap",),
        lambda study: (study[Offload].activations > 0) | (study[Offload].parameters > 0),
        "`offload.activations` or `offload.parameters` above 0",
    ),
    _UnreadAttributes(
        Offload,
        ("host_memory",),
        _is_offloaded,
        "something that is kept on the host, such as `offload.optimizer`",
    ),
    _UnreadAttributes(
        LocalUpdates,
        ("method", "wire", "outer_state", "fragments", "overlap_steps", "offload"),
        lambda study: study[LocalUpdates].workers > 1,
        "`local_updates.workers` above 1",
    ),
    _UnreadAttributes(
        MemoryBudget,
        ("channels", "peers", "connection"),
        lambda study: not _is_given(study, study[MemoryBudget], "communicator"),
        "computed buffers: `memory.communicator` sets them",
    ),
    _UnreadAttributes(
        MemoryBudget,
        ("expandable_fragmentation",),
        lambda study: study[MemoryBudget].expandable_segments,
        "segments that grow: `memory.expandable_segments = on`",
    ),
    _UnreadAttributes(
        MemoryBudget,
        ("error", "coverage"),
        lambda study: bool(study[Training].framework.version),
        "a framework that is known: `use catalog.frameworks.NAME`",
    ),
    _UnreadAttributes(
        Precision,
        ("kept_gate",),
        lambda study: study[Training].model.experts > 0,
        "experts: `model.experts`",
    ),
    _UnreadAttributes(
        Checkpoint,
        ("nodes",),
        lambda study: any(c.node_bandwidth is not None for c in study.all(Checkpoint)),
        "`checkpoint.node_bandwidth`: a `storage` takes all writers together",
    ),
    _UnreadAttributes(
        Datacenter,
        ("pue", "host_power", "activity", "idle_power"),
        lambda study: bool(study.all(Energy)),
        "a block `energy`",
    ),
    _UnreadAttributes(
        Datacenter,
        ("waiting_activity",),
        lambda study: bool(study.all(Energy)) and bool(study.all(Training)),
        "a block `energy` and a step",
    ),
    _UnreadAttributes(
        Energy,
        ("waiting_activity",),
        lambda study: bool(study.all(Training)),
        "a step: devices of a published run are taken to compute all the time",
    ),
)


def _blocks_of(study: Study, schema: type[Any]) -> Iterable[Any]:
    """Return the blocks of a kind that the step uses; of models, devices and precisions, one."""
    training, cluster = study.get(Training), study.get(Cluster)
    match schema:
        case _ if schema is Model:
            return () if training is None else (training.model,)
        case _ if schema is Precision:
            return () if training is None else (training.precision,)
        case _ if schema is Device:
            return () if cluster is None else (cluster.device,)
    return study.all(schema)


def rules(study: Study) -> Iterator[Check]:
    """Warn of attributes set in the study's file that have no effect."""
    for idle in _IDLE:
        for block in _blocks_of(study, idle.schema):
            names = idle.attributes or block_type(idle.schema).fields
            written = [name for name in names if _is_written(study, block, name)]
            if written and not any_of(idle.read(study)):
                listed = ", ".join(f"`{block_name(block)}.{name}`" for name in written)
                yield Check(
                    id="no-effect",
                    holds=False,
                    subject=f"{block_name(block)}.{written[0]}",
                    message=f"{listed} {'has' if len(written) == 1 else 'have'} no effect",
                    inputs={"waits_for": idle.waits_for},
                    help="it needs {waits_for}",
                    severity="warning",
                )
    yield from _levels(study)


def priced_rules(study: Study) -> Iterator[Check]:
    """Warn of attributes of levels without effect on any term.

    Only for a valid study, as its terms are estimated twice.
    """
    yield from _levels(study, priced=True)


#: Attributes of a level that may have no effect on links, and the condition for an effect.
_OF_LEVELS = {
    "efficiency": "a group of ranks that crosses the level",
    "ports": "a group of ranks that crosses the level",
    "collisions": "a group of ranks that crosses the level",
    "oversubscription": "a group that reaches beyond a unit of the level, or beyond a leaf of the "
    "outermost, or leaves its rail",
    "pxn": "a group of several ranks in each node that crosses the rails",
    "routing": "a group of ranks that crosses the level, whose links are fewer than its groups",
    "radix": "a `hop_latency`, or an `oversubscription` of its leaves",
    "hops": "a `hop_latency`",
    "in_network": "an all-reduce that is faster in the switches of the level",
    "hop_latency": "a group of ranks that crosses the level through a switch",
    "cable_latency": "a group of ranks that crosses the level",
}


def _levels(study: Study, *, priced: bool = False) -> Iterator[Check]:
    """Warn of attributes of levels without effect on any link, or on any *priced* term."""
    cluster: Any = study.get(Cluster)
    training = study.get(Training)
    if cluster is None or training is None:
        return
    transfers = study.all(Transfer)
    names = {t.level for t in transfers}
    alone = not any(t.group == "job" for t in transfers)
    links = None
    for level in cluster.fabric.levels:
        if level.label in names:
            continue
        for attribute, waits_for in _OF_LEVELS.items():
            if not _is_written(study, level, attribute):
                continue
            # A ring on rails may avoid the slower links between rails.
            on_rails = attribute == "oversubscription" and level.kind == "rail"
            if priced != (attribute == "in_network" or on_rails):
                continue
            plain = evolve(level, **{attribute: block_type(Level).defaults[attribute]})
            others = tuple(plain if one is level else one for one in cluster.fabric.levels)
            changed = evolve(cluster, fabric=evolve(cluster.fabric, levels=others))
            other = study.with_blocks({Cluster: (changed,)})
            if priced:
                same = _are_equal(_times(study), _times(other))
            else:
                links = _links(study, job=not alone) if links is None else links
                same = _are_equal(links, _links(other, job=not alone))
            if same:
                yield Check(
                    id="no-effect",
                    holds=False,
                    subject=f"{level.label}.{attribute}",
                    message="`{attribute}` of level `{level}` has no effect",
                    inputs={
                        "attribute": attribute,
                        "level": level.label,
                        "waits_for": waits_for,
                    },
                    help="it needs {waits_for}",
                    severity="warning",
                )


def _links(study: Study, *, job: bool) -> list[Real]:
    """Return the latencies and bandwidths of all links used by the groups of a study."""
    numbers: list[Real] = []
    for _, group in study.contributions("groups"):
        if group.name != "job" or job:
            numbers += _numbers(group)
    return numbers


def _times(study: Study) -> list[Real]:
    """Return the seconds of all terms and transfers."""
    terms = [term for _, term in study.contributions("terms")]
    figures = [f for _, f in study.contributions("calculations") if isinstance(f, Figure)]
    return [*(getattr(t, "seconds", 0.0) for t in terms), *(f.value for f in figures)]


def _numbers(group: Group) -> Iterator[Real]:
    by_level = zip(
        group.shape,
        group.links,
        group.pairs,
        exchange_links(group),
        direct_links(group),
        strict=True,
    )
    whole = [link for link in (group.flat, group.pair, group.hop) if any_of(group.ranks > 1)]
    crossed = [link for g, *links in by_level if any_of(g > 1) for link in links]
    for link in (*whole, *crossed):
        yield link.latency
        yield link.bandwidth
    yield relayed_share(group)


def _are_equal(these: list[Real], those: list[Real]) -> bool:
    return not any(any_of(a != b) for a, b in zip(these, those, strict=True))


def _is_given(study: Study, block: object, attribute: str) -> bool:
    """Return whether a value is assigned in any file."""
    origin = study.origin(block, attribute)
    return origin is not None and origin.how == "given"


def _is_written(study: Study, block: object, attribute: str) -> bool:
    origin = study.origin(block, attribute)
    if origin is None or origin.how != "given" or origin.kind:
        return False
    return any_of(getattr(block, attribute) != _default(study, block, attribute))


def _default(study: Study, block: object, attribute: str) -> Any:
    """Return the default of *attribute*, often the value of another attribute."""
    type_ = block_type(type(block))
    found = type_.defaults.get(attribute)
    if not isinstance(found, str) or type_.fields[attribute].kind != "quantity":
        return found
    kind, *path = found.split(".")
    if not path:  # another attribute of the block
        return getattr(block, kind, None)
    value = next((b for blocks in study.blocks.values() for b in blocks if _kind(b) == kind), None)
    for name in path:
        value = getattr(value, name, None)
    return value


def _kind(block: Any) -> str:
    return block_type(type(block)).kind
