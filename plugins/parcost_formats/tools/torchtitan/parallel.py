"""The layout and the pipeline."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from parcost import record
from parcost_formats.tools.drafts import Option, digits
from parcost_formats.tools.tables import table
from parcost_formats.tools.torchtitan.options import TitanOptions

_SHARD = "parallelism.data_parallel_shard_degree"
_REPLICATE = "parallelism.data_parallel_replicate_degree"
_OF_PIPELINES = (
    *("pipeline_parallel_schedule", "pipeline_parallel_layers_per_stage"),
    *("pipeline_parallel_first_stage_less_layers", "pipeline_parallel_last_stage_less_layers"),
    *("module_fqns_per_model_part", "pipeline_parallel_split_points"),
)
_TABLE = table("torchtitan")
_ROTATIONS = _TABLE["words"]["context_parallel_rotate_method"]
_BALANCES = {"headtail": "zigzag"}
_LAYER = re.compile(r"layers\.(\d+)")


@record(kw_only=True)
class ParallelDegrees:
    """The parallel degrees, the replicas if they are known, and the ZeRO stage.

    A device has *chunks* virtual stages. *is_unsharded* says whether no parameters are sharded.
    """

    pp: int
    tp: int
    replicas: int
    zero: int
    chunks: int

    @property
    def is_unsharded(self) -> bool:
        """Whether every replica holds all of its parameters."""
        return self.zero == 0


def read_parallelism(
    options: TitanOptions, *, layers: int | None, experts: bool
) -> ParallelDegrees:
    """Read the parallel degrees, for a model of *layers* layers."""
    degree: dict[str, int] = {}
    for field, path in _TABLE["numbers"].items():
        found = options.copy(field, path)
        if found is None:
            options.default(field, path, "1", f"{field.partition('.')[2]} is 1")
        degree[path.removeprefix("layout.")] = found or 1
    _experts(options, experts)
    _replicas_of_2024(options)
    replicate = options.whole(_REPLICATE) or 1
    shard = integer(options, _SHARD)
    shard = -1 if shard is None else shard
    zero = _sharding(options, replicate, shard, degree["cp"])
    is_open = any(map(options.is_open, (*_TABLE["numbers"], _REPLICATE)))
    if shard > 0 and not is_open:
        count = replicate * shard * degree["tp"] * degree["pp"] * degree["cp"]
        option = options.get(_SHARD)
        assert option is not None
        why = "the product of the degrees: the file has no number of devices"
        options.set("cluster.devices", digits(count), option, why)
        options.set("layout.dp", digits(replicate * shard), option)
    _tensor(options, degree["tp"])
    _context(options, degree["cp"])
    chunks = _pipeline(options, degree["pp"], layers)
    return ParallelDegrees(
        pp=degree["pp"],
        tp=degree["tp"],
        replicas=max(0, replicate * shard),
        zero=zero,
        chunks=chunks,
    )


def _replicas_of_2024(options: TitanOptions) -> None:
    """Read the type of data parallelism in the first releases."""
    kind = options.get("training.data_parallel_type")
    if kind is None or kind.text == "fsdp":
        return
    answers = ["--set layout.zero=0", "--set layout.zero=3"]
    options.ask_for(kind, f"ranks of `{kind.text[:20]}` are assumed to use FSDP", answers)


def integer(options: TitanOptions, name: str) -> int | None:
    """Return an integer field, None if it is -1 (left open)."""
    option = options.get(name)
    if option is None:
        return None
    known = option.is_single and re.fullmatch(r"-1|[0-9]{1,15}", option.text)
    if not known or option.text == "0":
        options.problem(option, f"{option.shown[:20]} is not a number of at least 1")
        return None
    return int(option.text)


def _experts(options: TitanOptions, experts: bool) -> None:
    for field, path in _TABLE["experts"].items():
        option = options.get(field)
        if experts:
            options.copy(field, path)
        elif option is not None:
            options.ignore(option, "a model without experts")
    words = _TABLE["words"]["expert_parallel_comm_backend"]
    for name in ("parallelism.expert_parallel_comm_backend", "model.moe_comm_backend"):
        option = options.get(name)
        if option is None:
            continue
        if not experts:
            options.ignore(option, "a model without experts")
        elif word := options.choice(name, *words):
            options.set("routing.dispatcher", words[word], option)
    factor = options.number("model.non_blocking_capacity_factor")
    option = options.get("model.non_blocking_capacity_factor")
    if factor and option is not None:
        options.set("routing.capacity_factor", option.text, option)


def _sharding(options: TitanOptions, replicate: int, shard: int, cp: int) -> int:
    """Read data-parallel sharding; return the ZeRO stage."""
    copies = options.get(_REPLICATE)
    zero = 0 if shard == 1 and cp == 1 else 3
    why = "data_parallel_shard_degree is -1: all ranks shard"
    options.set_or_assume(_SHARD, "layout.zero", str(zero), why)
    if zero and copies is not None and replicate > 1:
        group = str(shard * cp) if shard > 0 else f"layout.dp * layout.cp / {replicate}"
        options.set("sharding.shard", group, copies)
    word = options.choice("parallelism.fsdp_reshard_after_forward", "default", "always", "never")
    policy = options.get("parallelism.fsdp_reshard_after_forward")
    if policy is not None and word == "default":
        options.ignore(policy, "as in the framework of the catalogue")
    elif policy is not None and word is not None:
        if zero:
            options.set("sharding.reshard", "on" if word == "always" else "off", policy)
        else:
            options.ignore(policy, "it has no effect without sharding")
    return zero


def _tensor(options: TitanOptions, tp: int) -> None:
    name = "parallelism.enable_sequence_parallel"
    option = options.get(name)
    if tp > 1 or options.is_open("parallelism.tensor_parallel_degree"):
        word = "off" if option is not None and option.text == "false" else "on"
        why = "sequence parallelism comes with tensor parallelism"
        options.set_or_assume(name, "layout.sequence_parallel", word, why)
    elif option is not None:
        options.ignore(option, "it has no effect without tensor parallelism")
    for name in (
        "parallelism.enable_async_tensor_parallel",
        "compile.enable_async_tensor_parallel",
    ):
        overlap = options.get(name)
        if overlap is None:
            continue
        if overlap.text == "false":
            options.ignore(overlap, "it is off")
        elif tp == 1 or not options.on("compile.enable"):
            options.ignore(overlap, "it needs tensor parallelism and a compiled model")
        else:
            options.set("overlap.tensor", "pipelined", overlap)


def _context(options: TitanOptions, cp: int) -> None:
    rotation = options.get("parallelism.context_parallel_rotate_method")
    balance = options.get("parallelism.context_parallel_load_balancer")
    if cp == 1:
        for option in (rotation, balance):
            if option is not None:
                options.ignore(option, "it has no effect without context parallelism")
        return
    word = options.choice("parallelism.context_parallel_rotate_method", *_ROTATIONS)
    if rotation is not None and word is not None:
        options.set("context.algorithm", _ROTATIONS[word], rotation)
    if balance is None:
        return
    if not balance.texts:
        options.set("context.balance", "contiguous", balance)
    elif balance.text in _BALANCES:
        options.set("context.balance", _BALANCES[balance.text], balance)
    else:
        options.leave(balance, "here the shares are balanced by zigzag")


def _pipeline(options: TitanOptions, pp: int, layers: int | None) -> int:
    """Read the schedule and the stages; return the virtual stages per device."""
    schedules = _TABLE["schedules"]
    name = "parallelism.pipeline_parallel_schedule"
    option = options.get(name)
    if pp == 1:
        for field in _OF_PIPELINES:
            one = options.get(f"parallelism.{field}")
            if one is not None:
                options.ignore(one, "there is only one pipeline stage")
        return 1
    word = _TABLE["old_schedules"].get(option.text, option.text) if option is not None else "1F1B"
    if option is not None and word not in schedules:
        message = f"`{option.text[:40]}` is not modeled"
        options.problem(option, message, f"known: {', '.join(schedules)}")
        return 1
    found = schedules[word]
    options.set_or_assume(name, "schedule.kind", found["kind"], "the schedule is 1F1B")
    chunks = int(found["stages"])
    written = _parts(options, layers)
    if written is not None:
        near, counts = written
        _stages(options, near, counts, pp, chunks)
        return max(len(counts) // pp, 1)
    return _equal_stages(options, option, pp, chunks, layers)


def _stages(
    options: TitanOptions, option: Option, counts: Sequence[int], pp: int, chunks: int
) -> None:
    if len(counts) % pp or (chunks == 1 and len(counts) != pp):
        options.problem(
            option, f"{len(counts)} stages cannot be distributed evenly over {pp} pipeline ranks"
        )
        return
    if len(counts) > pp:
        options.set("schedule.chunks", str(len(counts) // pp), option)
    options.set("schedule.stages", f"[{', '.join(map(str, counts))}]", option)


def _equal_stages(
    options: TitanOptions, schedule: Option | None, pp: int, chunks: int, layers: int | None
) -> int:
    """Read stages of equal layer count, except the ends; return the virtual stages per device."""
    first, last = (
        options.get(f"parallelism.pipeline_parallel_{end}_stage_less_layers")
        for end in ("first", "last")
    )
    less = [
        1 if (found := options.whole(option.name, least=0)) is None else found
        for option in (first, last)
        if option is not None
    ]
    before = less.pop(0) if first is not None else 1
    behind = less.pop(0) if last is not None else 1
    each = options.whole("parallelism.pipeline_parallel_layers_per_stage")
    option = options.get("parallelism.pipeline_parallel_layers_per_stage")
    if option is not None and each is not None:
        if layers is None:
            options.leave(option, "the number of layers of the model is unknown")
            return chunks
        stages = -(-(layers + before + behind) // each)
        if stages % pp or (chunks == 1) != (stages == pp):
            message = f"{layers} + {before} + {behind} layers make {stages} stages of {each}"
            options.problem(option, f"{message}, for {pp} devices")
            return chunks
        chunks = stages // pp
        if chunks > 1:
            options.set("schedule.chunks", str(chunks), option)
    elif chunks > 1 and schedule is not None:
        options.set(
            "schedule.chunks",
            str(chunks),
            schedule,
            options.why("such schedules have two stages per device"),
        )
    near = first or last
    if near is None or (before, behind) == (1, 1):
        for one in (first, last):
            if one is not None:
                options.ignore(one, "it is the default")
        return chunks
    if layers is None:
        options.leave(near, "the number of layers of the model is unknown")
        return chunks
    counts = deal(layers, pp * chunks, before, behind)
    if min(counts) < 0:
        options.problem(near, "a stage would have a negative number of layers")
        return chunks
    options.set("schedule.stages", f"[{', '.join(map(str, counts))}]", near)
    if last is not None and last is not near:
        options.ignore(last, f"read with {near.key}")
    return chunks


def deal(layers: int, stages: int, before: int, behind: int) -> Sequence[int]:
    """Return the layer count of each stage: equal shares, one more on the first stages, fewer at
    the ends.
    """
    each, more = divmod(layers + before + behind, stages)
    counts = [each + (place < more) for place in range(stages)]
    counts[0] -= before
    counts[-1] -= behind
    return counts


def _parts(options: TitanOptions, layers: int | None) -> tuple[Option, Sequence[int]] | None:
    """Return the layers of explicitly listed parts."""
    option = options.get("parallelism.module_fqns_per_model_part")
    if option is not None and isinstance(option.value, list) and option.value:
        counts = [
            sum(bool(_LAYER.fullmatch(str(one))) for one in part) if isinstance(part, list) else 0
            for part in option.value
        ]
        return option, counts
    points = options.get("parallelism.pipeline_parallel_split_points")
    if points is None or not points.texts or points.texts == ("",):
        return None
    names = [name for text in points.texts for name in text.split(",")]
    found = [_LAYER.fullmatch(name.strip()) for name in names]
    starts = [int(one[1]) for one in found if one is not None]
    if (
        len(starts) < len(found)
        or layers is None
        or sorted({0, layers, *starts})
        != [
            0,
            *starts,
            layers,
        ]
    ):
        options.problem(
            points, "module names such as layers.8 are expected, in the order of the model"
        )
        return None
    edges = [0, *starts, layers]
    return points, [two - one for one, two in pairwise(edges)]
