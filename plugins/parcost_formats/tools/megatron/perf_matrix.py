"""Performance matrices of Megatron-Bridge 0.1: YAML with layouts by device and precision.

``perf_matrix.h100.num_gpus_64.bf16`` has the differences from ``common`` in the same section.
Overrides of the recipe in the file's name are below ``ConfigContainer``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from attrs import evolve

from parcost import did_you_mean
from parcost_formats.tools.drafts import Option
from parcost_formats.tools.file_importer import FileError, error_at
from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.megatron.bridge import VERSION, BridgeRecipe, read_sections
from parcost_formats.tools.tables import table

_TABLE = table("megatron")["bridge"]["matrix"]
_MATRIX, _COMMON = "perf_matrix.", "common"
_EACH = "num_gpus_per_node"  # the scale of a run counts all
_CONTAINER = "ConfigContainer."
_DEVICES = re.compile(r"num_gpus_(\d{1,6})")


def read_matrix(entries: Mapping[str, JsonEntry], name: str, choice: str) -> BridgeRecipe:
    """Return the run *choice*, such as ``h100.num_gpus_64.bf16``, or the only run of a matrix.

    *name* is the name of the file: ``llama3_70b_llm_pretrain.yaml``.
    """
    runs = _runs(entries)
    wanted = choice or (runs[0] if len(runs) == 1 else "")
    if wanted not in runs:
        raise _ambiguous(entries, runs, choice)
    scale, _, precision = wanted.rpartition(".")
    found: dict[str, JsonEntry] = {}
    for key, entry in entries.items():
        if key.startswith(_CONTAINER):
            found[key.removeprefix(_CONTAINER)] = entry
    for part in (_COMMON, precision):
        start = f"{_MATRIX}{scale}.{part}."
        for key, entry in entries.items():
            one = key.removeprefix(start)
            if key.startswith(start) and one != _EACH:
                found[_TABLE["paths"].get(one, f"model.{one}")] = entry
    place = next(entry for key, entry in entries.items() if key.startswith(f"{_MATRIX}{scale}."))
    if precision in table("megatron")["bridge"]["perf_precisions"]:
        recipe = table("megatron")["bridge"]["perf_precisions"][precision]
        parts = table("megatron")["bridge"]["precisions"][recipe]
        for path, value in {**parts, "first_last_layers_bf16": False}.items():
            found.setdefault(f"mixed_precision.{path}", JsonEntry(value, place.start, place.end))
    shards = found.get("ddp.use_megatron_fsdp")
    if shards is not None and shards.value is True:
        strategy = JsonEntry("optim_grads_params", shards.start, shards.end)
        found.setdefault("ddp.data_parallel_sharding_strategy", strategy)
    degree = found.get("model.tensor_model_parallel_size")
    if degree is not None and isinstance(degree.value, int):
        sharded = JsonEntry(degree.value > 1, degree.start, degree.end)
        found.setdefault("model.sequence_parallel", sharded)
    base = name.rpartition("/")[2].partition("_llm_")[0]
    made = read_sections(found, f"{base}_pretrain_config")
    each = entries.get(f"{_MATRIX}{scale}.{_COMMON}.{_EACH}")
    if each is not None:
        texts = (str(each.value),)
        beside = Option(name=_EACH, key=_EACH, texts=texts, start=each.start, end=each.end)
        made.ignored.append(beside.evolve(assumption="the scale of a run is its number of devices"))
    stated = _DEVICES.search(scale)
    if stated is None:
        return made
    devices = Option(
        name="devices",
        key=f"num_gpus_{stated[1]}",
        texts=(stated[1],),
        start=place.start,
        end=place.end,
    )
    return evolve(made, devices=devices.evolve(assumption=f"{VERSION}: the name of a run has them"))


def _ambiguous(entries: Mapping[str, JsonEntry], runs: Sequence[str], choice: str) -> FileError:
    """Return the error of a *choice* that is not one of the *runs*, or "" for several."""
    message = f"the file has {len(runs)} runs"
    if choice:
        near = did_you_mean(choice, runs)
        message = f"the file has no run `{choice}`{f': {near}' if near else ''}"
    place = next(entry for key, entry in entries.items() if key.startswith(_MATRIX))
    help = f"choose one: {' | '.join(f'--recipe {one}' for one in runs)}"
    return error_at(place, message, help)


def _runs(entries: Mapping[str, JsonEntry]) -> Sequence[str]:
    """Return the names of all runs: device, scale and precision.

    An empty run is equal to its ``common``.
    """
    found: dict[str, None] = {}
    for key, entry in entries.items():
        parts = key.removeprefix(_MATRIX).split(".")
        is_run = len(parts) > 3 or (len(parts) == 3 and entry.value is None)
        if key.startswith(_MATRIX) and is_run and parts[2] != _COMMON:
            found[".".join(parts[:3])] = None
    return list(found)
