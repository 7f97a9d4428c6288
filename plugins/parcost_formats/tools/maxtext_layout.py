"""The mesh of MaxText as a layout: axes within a slice and between slices."""

from __future__ import annotations

from parcost import record
from parcost_formats.tools.collector import SettingCollector, digits
from parcost_formats.tools.tables import table

_TABLE = table("maxtext")
_USUAL = {"ici_fsdp_parallelism": -1, "dcn_data_parallelism": -1}
_DEGREES = {"tensor": "tp", "context": "cp", "stages": "pp", "experts": "ep"}
_STRATEGIES = {"all_gather": "all_gather", "ring": "ring", "ulysses": "ulysses"}


@record(kw_only=True)
class MaxTextLayout:
    """The number of ranks that share one replica of the activations, and the micro-batches of the
    pipeline.
    """

    model_ranks: int
    micro_batches: int


def read_layout(found: SettingCollector, layers: int | None) -> MaxTextLayout:
    """Set the degrees, ZeRO and the pipeline of a model with *layers* layers."""
    version = _TABLE["version"]
    degrees = dict.fromkeys((*_DEGREES, "replicas", "shards"), 1)
    stated: dict[str, str] = {}
    open_axes: list[str] = []
    for axis, role in _TABLE["axes"].items():
        for reach in ("ici", "dcn"):
            key = f"{reach}_{axis}_parallelism"
            size = found.whole(key, least=-1)
            size = _USUAL.get(key, 1) if size is None else size
            if size == -1:
                open_axes.append(key)
            elif size < 1:
                found.problem(key, "a whole number of at least 1, or -1, is expected")
            else:
                degrees[role] *= size
            if key in found and (size > 1 or role not in stated):
                stated[role] = key
    for key in open_axes:
        role = _TABLE["axes"][key.split("_", 1)[1].removesuffix("_parallelism")]
        if role not in ("replicas", "shards"):
            reason = "-1: the rest of the devices"
            found.ask(f"layout.{_DEGREES[role]}", reason, [f"--set layout.{_DEGREES[role]}=1"], key)
    for role, name in _DEGREES.items():
        if role in stated or name != "ep":
            why = f"{version}: the default degree of {role} is 1"
            degree = digits(degrees[role]) if role in stated else "1"
            found.set_or_assume(stated.get(role, ""), f"layout.{name}", degree, why)
    _shards(found, degrees, open_axes, stated)
    if degrees["tensor"] > 1:
        why = f"{version}: activations between matrix products are sharded over the tensor axes"
        found.assume("layout.sequence_parallel", "on", why)
    if degrees["context"] > 1:
        _context(found)
    micro_batches = _pipeline(found, degrees["stages"], layers)
    ranks = degrees["tensor"] * degrees["context"] * degrees["stages"]
    return MaxTextLayout(model_ranks=ranks, micro_batches=micro_batches)


def _shards(
    found: SettingCollector, degrees: dict[str, int], open_axes: list[str], stated: dict[str, str]
) -> None:
    """Set the ZeRO stage and its shard group, and the device count if no mesh axis is -1."""
    version = _TABLE["version"]
    wide = [key for key in open_axes if "fsdp" in key]
    beyond = [key for key in open_axes if "data" in key or "diloco" in key]
    key = stated.get("shards", "")
    shards = degrees["shards"] * degrees["experts"] * degrees["context"]
    if wide or degrees["shards"] > 1:
        found.set_or_assume(key, "layout.zero", "3", f"{version}: ici_fsdp_parallelism is -1")
    else:
        first = found.switch("shard_optimizer_over_data")
        if first:
            found.set("layout.zero", "1", "shard_optimizer_over_data")
        elif key:
            found.set("layout.zero", "0", key)
    sliced = [one for one in beyond if one.startswith("dcn")]
    if wide and sliced and _is_tpu(found) and degrees["replicas"] == 1:
        found.lack(
            "num_slices",
            "one slice is assumed; for several, write `sharding { shard = N }`, the devices of a "
            "slice",
            "sharding.shard",
        )
    elif not wide and degrees["shards"] > 1 and (beyond or degrees["replicas"] > 1):
        near = key or stated["replicas"]
        found.set("sharding.shard", digits(shards), near)
    if not open_axes or (not wide and beyond == ["dcn_data_parallelism"] and not _is_tpu(found)):
        product = 1
        for degree in degrees.values():
            product *= degree
        why = f"{version}: the product of the axes of one slice"
        why += "".join(f"; `{one}` is -1, so several slices may run" for one in beyond)
        found.assume("cluster.devices", digits(product), why)


def _is_tpu(found: SettingCollector) -> bool:
    return str(found.value("hardware", "tpu")) == "tpu"


def _context(found: SettingCollector) -> None:
    key = "context_parallel_load_balance"
    if found.switch(key) is False:
        found.set("context.balance", "contiguous", key)
    key = "context_parallel_strategy"
    if key not in found:
        why = f"{_TABLE['version']}: context_parallel_strategy is all_gather"
        found.assume("context.algorithm", "all_gather", why)
        return
    name = str(found.value(key))
    if name in _STRATEGIES:
        found.set("context.algorithm", _STRATEGIES[name], key)
    else:
        answers = [f"--set context.algorithm={one}" for one in _STRATEGIES.values()]
        found.ask("context.algorithm", f"`{name}` is not modeled", answers, key)


def _pipeline(found: SettingCollector, stages: int, layers: int | None) -> int:
    """Set the pipeline schedule; return the number of micro-batches."""
    count, repeats = (
        found.whole(key, least=-1) for key in ("num_pipeline_microbatches", "num_pipeline_repeats")
    )
    each = found.whole("num_layers_per_pipeline_stage") or 1
    if stages == 1:
        return 1
    version = _TABLE["version"]
    if repeats is None or repeats < 1:
        if layers is None or layers % (stages * each):
            answers = ["--set schedule.chunks=1", "--set schedule.chunks=2"]
            reason = (
                "num_pipeline_repeats follows from the layers, which are unknown or not divisible"
            )
            found.ask("schedule.chunks", reason, answers)
            repeats = 1
        else:
            repeats = layers // (stages * each)
    kind = "breadth_first" if repeats > 1 else "gpipe"
    found.assume(
        "schedule.kind",
        kind,
        f"{version}: all micro-batches pass one repeat before the next repeat starts",
    )
    if repeats > 1:
        why = f"{version}: layers over stages and num_layers_per_pipeline_stage"
        found.assume("schedule.chunks", str(repeats), why)
    return count if count is not None and count > 0 else stages
