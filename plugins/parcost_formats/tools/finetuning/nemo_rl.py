"""Supervised fine-tuning in NeMo RL: FSDP2 over fp32 weights, or Megatron-Core."""

from __future__ import annotations

import re
from collections.abc import Mapping

from attrs import evolve

from parcost import ImportedKey, ImportFile, Translation
from parcost_formats.tools.collector import (
    SettingCollector,
    read_named_configuration,
)
from parcost_formats.tools.file_importer import error_at
from parcost_formats.tools.finetuning.adapters import BLOCK, read_adapters
from parcost_formats.tools.finetuning.job_keys import JobKeys
from parcost_formats.tools.hub import ask_for_model, read_hub_model
from parcost_formats.tools.interpolation import resolve
from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.megatron import translate_recipe
from parcost_formats.tools.megatron.bridge import read_sections
from parcost_formats.tools.needs import NODE_SIZE, other_nodes
from parcost_formats.tools.shell.scripts import list_places
from parcost_formats.tools.tables import find_preset, is_listed, table
from parcost_formats.tools.unsupported import PROGRAM, find_unsupported_features

_TABLE = table("nemo_rl")
_VERSION = str(_TABLE["version"])
_SHIPPED = "examples/configs"  # of NeMo RL
_START = "defaults"
_DTENSOR, _MEGATRON = "policy.dtensor_cfg.", "policy.megatron_cfg."
_PACKING = ("policy.sequence_packing.enabled", "policy.dynamic_batching.enabled")
_SFT = re.compile(r"(?<![a-z])sft")  # in the name of a program, or of a configuration
_DEEPEST = 6  # files that extend one another
_ADAM = ("torch.optim.AdamW", "torch.optim.Adam")
_ANSWERS = ("--use catalog.precisions.bf16_fsdp", "--use catalog.precisions.bf16_pure")


def read_nemo_rl(file: ImportFile, job: JobKeys) -> Translation:
    """Return the job of `run_sft.py`, with all configurations that its configuration extends."""
    entries = dict(job.entries)
    if PROGRAM in entries and "config" not in entries:
        place = entries[PROGRAM]
        entries.setdefault(_START, JsonEntry(f"{_SHIPPED}/sft.yaml", place.start, place.end))
    names = [str(entries[key].value) for key in (PROGRAM, _START) if key in entries]
    _extend(file, entries, job)
    entries = resolve(entries)
    problems = list(find_unsupported_features(entries, _TABLE))
    is_sft = any(key.startswith("sft.") for key in entries) or any(map(_SFT.search, names))
    if not problems and not is_sft:
        place = next(iter(entries.values()), JsonEntry(None, 0, min(1, len(file.text))))
        message = "the configuration has no `sft` section: only supervised fine-tuning is supported"
        raise error_at(place, message)
    if problems:
        return Translation(problems=problems)
    found = SettingCollector(entries, _TABLE, job.assumed)
    chosen = [one for one in (_DTENSOR, _MEGATRON) if found.switch(f"{one}enabled")]
    if len(chosen) == 2:
        found.problem(f"{_MEGATRON}enabled", "both backends are enabled, but NeMo RL uses only one")
        return found.translation()
    if chosen == [_MEGATRON]:
        return _add_lengths(_read_megatron(found, entries, job.assumed), entries)
    if not chosen:
        reason = "neither policy.dtensor_cfg nor policy.megatron_cfg is enabled"
        found.ask("layout.zero", reason, ("--set layout.zero=3", "--set layout.zero=1"))
    _read_job(found)
    _read_dtensor(found)
    if read_adapters(found, _TABLE, "policy.model_name"):
        found.assume(f"{BLOCK}.weights", "4 B", f"{_VERSION}: FSDP2 shards weights of float32")
    return _add_lengths(found.translation(), entries)


def _add_lengths(read: Translation, entries: Mapping[str, JsonEntry]) -> Translation:
    """Return the job with a note that the lengths of its sequences depend on the data."""
    packed = [key for key in _PACKING if key in entries and entries[key].value is True]
    reason = "policy.max_total_sequence_length is only the maximum length"
    if packed:
        reason = (
            "micro-batches are packed with shorter sequences, so there may be fewer micro-batches"
        )
    key = ImportedKey(name=packed[0] if packed else _PACKING[0], reason=reason)
    return read if read.problems else evolve(read, missing=[*read.missing, key])


def _extend(file: ImportFile, entries: dict[str, JsonEntry], job: JobKeys) -> None:
    """Add the keys of the configurations that `defaults` names.

    For configurations that NeMo RL ships, the values of its table are assumed.

    Raises:
        FileError: One is missing, or the chain is too long.
    """
    for _ in range(_DEEPEST):
        start = entries.pop(_START, None)
        if start is None:
            return
        name = str(start.value)
        plain = name.rpartition("/")[2]
        text = next(filter(None, map(file.neighbor, list_places(name, job.script))), None)
        written = job.script.find_written(plain) if job.script is not None else None
        values: Mapping[str, JsonEntry]
        if text is not None:
            values = read_named_configuration(plain, text, start)
        elif written is None and (keys := find_preset(_TABLE, _shipped_path(name)))[0]:
            values = {key: JsonEntry(one, 0, 0) for key, one in keys[0].items()}
            job.assumed.update({key: keys[1] for key in values if key not in entries})
        else:
            changed = job.script.find_reason(plain) if job.script is not None else ""
            why = f"and {changed}" if changed else "which is not beside the file"
            message = f"`{_START}` names `{name}`, {why}"
            raise error_at(start, message, "copy that file into the folder of this one")
        for key, entry in values.items():
            if not _is_replaced(key, entries):
                entries[key] = JsonEntry(entry.value, start.start, start.end)
    start = entries.get(_START)
    if start is not None:
        message = f"`{_START}` extends more than {_DEEPEST} files; the next is `{start.value}`"
        help = "merge some of these files, or remove the one that extends itself"
        raise error_at(start, message, help)


def _shipped_path(name: str) -> str:
    """Return the path in NeMo RL of a configuration that a job names relative to a folder.

    >>> _shipped_path("../../sft.yaml"), _shipped_path("my/sft.yaml")
    ('examples/configs/sft.yaml', 'my/sft.yaml')
    """
    inner = re.sub(r"^(\.{1,2}/)+", "", name)
    path = f"{_SHIPPED}/{inner.rpartition('/')[2]}"
    return path if f"/{path}".endswith(f"/{inner}") else name


def _is_replaced(key: str, entries: Mapping[str, JsonEntry]) -> bool:
    """Return whether a file sets a key, or a section above it, to a value."""
    parts = key.split(".")
    above = (".".join(parts[:count]) for count in range(1, len(parts) + 1))
    return any(one in entries and not isinstance(entries[one].value, dict) for one in above)


def _read_job(found: SettingCollector) -> None:
    """Read the model, the devices, the batch and the sequence length."""
    key = "policy.model_name"
    value = found.value(key)
    if isinstance(value, str):
        read_hub_model(found, key, value)
    else:
        ask_for_model(found, key)
    for key, name, unit in (
        ("policy.train_micro_batch_size", "micro_batch", ""),
        ("policy.train_global_batch_size", "global_batch", " sequences"),
        ("policy.max_total_sequence_length", "sequence", ""),
    ):
        found.copy(key, f"training.{name}", unit)
    _read_devices(found)


def _read_devices(found: SettingCollector) -> None:
    """Read the devices, and the switches of packing."""
    each, nodes = found.whole("cluster.gpus_per_node"), found.whole("cluster.num_nodes")
    if each is not None and nodes is not None:
        found.set("cluster.devices", f"{nodes} * {each}", "cluster.num_nodes")
        if note := other_nodes(nodes, each):
            found.leave_open("cluster.gpus_per_node", note, NODE_SIZE)
    for key in _PACKING:
        found.switch(key)


def _read_dtensor(found: SettingCollector) -> None:
    """Read the layout of FSDP2, with fp32 shards and fp32 reductions."""
    found.use("frameworks.transformers", why=f"{_VERSION}: FSDP2 of PyTorch")
    found.assume("layout.zero", "3", f"{_VERSION}: fully_shard of each layer")
    degrees = {"tensor_parallel_size": "tp", "context_parallel_size": "cp"}
    for name, attribute in {**degrees, "expert_parallel_size": "ep"}.items():
        found.copy(f"{_DTENSOR}{name}", f"layout.{attribute}")
    _read_reduction(found)
    key = f"{_DTENSOR}sequence_parallel"
    on = found.switch(key)
    if on is not None and (found.whole(f"{_DTENSOR}tensor_parallel_size") or 1) > 1:
        found.set("layout.sequence_parallel", "on" if on else "off", key)
    key = f"{_DTENSOR}activation_checkpointing"
    if found.copy_switch(key, "training.recompute", "full", "none") is None:
        answers = ("--set training.recompute=full", "--set training.recompute=none")
        found.ask("training.recompute", f"the file has no `{key}`", answers)
    key = f"{_DTENSOR}cpu_offload"
    if found.switch(key):
        for name in ("parameters", "optimizer"):
            found.set(f"offload.{name}", "1", key)
    key = "policy.precision"
    kind = found.word(key, {"bfloat16": "bf16_fsdp", "float32": "fp32", "float16": "fp16"})
    if kind in ("bf16_fsdp", "fp32"):
        found.use(f"precisions.{kind}", key)
    else:
        found.ask("precision", f"`{key}` is {found.value(key)}", _ANSWERS, key if kind else "")
    key = "policy.optimizer.name"
    name = str(found.value(key, _ADAM[0]))
    if name not in _ADAM:
        reason = f"precision recipes have the optimizer state of Adam, but the optimizer is {name}"
        found.ask("precision", reason, _ANSWERS, key)


def _read_reduction(found: SettingCollector) -> None:
    """Read whether gradients are reduced only in the last of several micro-batches."""
    key = f"{_DTENSOR}defer_fsdp_grad_sync"
    value = "shard" if found.switch(key) is False else "whole"
    why = f"{_VERSION}: defer_fsdp_grad_sync keeps unsharded gradients until the last micro-batch"
    found.set_or_assume(key, "sharding.accumulate", value, why)


def _bridge_path(key: str, *, narrow: bool) -> str:
    """Return the path of a *key* in Megatron-Bridge, "" for a key of fp8 that is not *narrow*."""
    for start, section in _TABLE["megatron_sections"].items():
        if key.startswith(start):
            inner = key.removeprefix(start)
            if section == "fp8":
                return f"model.{inner}" if narrow else ""
            return f"{section}.{inner}"
    return f"model.{key}"


def _read_megatron(
    found: SettingCollector, entries: Mapping[str, JsonEntry], assumed: Mapping[str, str]
) -> Translation:
    """Return the job of the Megatron backend, with the keys of Megatron-Bridge.

    *found* has the keys that Megatron-Bridge does not get.
    """
    sections: dict[str, JsonEntry] = {}
    names: dict[str, str] = {}

    def add(path: str, key: str, value: object) -> None:
        if path not in sections:
            sections[path] = JsonEntry(value, entries[key].start, entries[key].end)
            names[path] = key

    for key, path in _TABLE["paths"].items():
        if found.value(key) is not None:
            add(path, key, found.value(key))
    key = f"{_MEGATRON}activation_checkpointing"
    if found.switch(key):
        for path, value in _TABLE["checkpointing"].items():
            add(path, key, value)
    key = "policy.precision"
    kind = found.word(key, {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"})
    if kind is not None:
        add("model.fp16" if kind == "fp16" else "model.bf16", key, kind != "fp32")
    narrow = found.switch(f"{_MEGATRON}fp8_cfg.enabled")
    listed = _TABLE["megatron_ignored"]
    for key in entries:
        plain = key.removeprefix(_MEGATRON)
        if plain == key or key in names.values() or plain in listed["switches"]:
            continue
        if is_listed(plain, listed["keys"]):
            found.ignore(key)
            continue
        if path := _bridge_path(plain, narrow=bool(narrow)):
            add(path, key, found.value(key))
    if sections.get("ddp.use_megatron_fsdp", JsonEntry(False, 0, 0)).value is not True:
        sections.pop("ddp.data_parallel_sharding_strategy", None)
    for key in (*found.keys_below(_DTENSOR[:-1]), *found.keys_below("policy.optimizer")):
        found.ignore(key, "policy.dtensor_cfg is not enabled")
    _read_devices(found)
    other = found.translation()
    read = translate_recipe(read_sections(sections, names=names, assumed=assumed))
    if problems := [*other.problems, *read.problems]:
        return Translation(problems=sorted(problems, key=lambda one: one.start))
    return evolve(
        read,
        blocks=[*read.blocks, *other.blocks],
        ignored=[*read.ignored, *(one for one in other.ignored if one.name not in names.values())],
        unknown=[*read.unknown, *other.unknown],
        missing=[*read.missing, *other.missing],
        questions=[*read.questions, *other.questions],
    )
