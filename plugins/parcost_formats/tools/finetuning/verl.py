"""Supervised fine-tuning in verl: FSDP over fp32 weights, with bf16 matrix products."""

from __future__ import annotations

from parcost import ImportFile, Translation
from parcost_formats.tools.collector import SettingCollector, digits
from parcost_formats.tools.finetuning.job_keys import JobKeys, reject_trainer
from parcost_formats.tools.finetuning.trainer import read_devices
from parcost_formats.tools.hub import ask_for_model, read_hub_model
from parcost_formats.tools.lacking import PROGRAM
from parcost_formats.tools.tables import table

_TABLE = table("verl")
_VERSION = "verl 0.5"
_BATCHES = {
    "data.micro_batch_size_per_gpu": ("micro_batch", 4, ""),
    "data.train_batch_size": ("global_batch", 256, " sequences"),
    "data.max_length": ("sequence", 1024, ""),
}


def read_verl(file: ImportFile, job: JobKeys) -> Translation:  # noqa: ARG001
    """Return the job of ``fsdp_sft_trainer``; other trainers of verl are rejected."""
    program = job.entries.get(PROGRAM)
    if program is None or "fsdp_sft_trainer" not in str(program.value):
        return reject_trainer(job, str(_TABLE["title"]))
    entries = dict(job.entries)
    found = SettingCollector(entries, _TABLE)
    key = "model.partial_pretrain"
    value = found.value(key)
    if isinstance(value, str):
        read_hub_model(found, key, value)
    else:
        ask_for_model(found, key)
    for key, (name, default, unit) in _BATCHES.items():
        size = found.whole(key)
        if size is not None:
            found.set("training", name, f"{digits(size)}{unit}", key)
        elif key not in found:
            why = f"{_VERSION}: {key} is {default}"
            found.assume("training", name, f"{digits(default)}{unit}", why)
    _read_layout(found)
    _read_execution(found)
    read_devices(found, entries, job)
    return found.translation()


def _read_layout(found: SettingCollector) -> None:
    """Read the sharding of FSDP, its ranks, and its data types."""
    found.use("frameworks.pytorch_fsdp", why=f"{_VERSION}: FSDP of PyTorch")
    found.assume("layout", "zero", "3", f"{_VERSION}: fsdp_sft_trainer shards fully")
    key = "ulysses_sequence_parallel_size"
    degree = found.whole(key)
    if degree is not None:
        found.set("layout", "cp", digits(degree), key)
        if degree > 1:
            found.assume("context", "algorithm", "ulysses", f"{_VERSION}: Ulysses")
    key = "model.fsdp_config.model_dtype"
    kind = str(found.value(key, "fp32"))
    if kind in ("fp32", "float32"):
        why = f"{_VERSION}: products in bf16, weights and reductions in fp32"
        found.use("precisions.bf16_fsdp", why=why)
    else:
        answers = ("--use catalog.precisions.bf16_pure", "--use catalog.precisions.bf16_fsdp")
        found.ask("precision", f"weights of {kind} are not read", answers, key)
    for key in ("model.fsdp_config.cpu_offload", "model.fsdp_config.offload_params"):
        if found.switch(key):
            for name in ("parameters", "optimizer"):
                found.set("offload", name, "1", key)


def _read_execution(found: SettingCollector) -> None:
    """Read recomputation, whose default differs between releases, and padding."""
    key = "model.enable_gradient_checkpointing"
    on = found.switch(key)
    if on is not None:
        found.set("training", "recompute", "full" if on else "none", key)
    else:
        answers = ("--set training.recompute=full", "--set training.recompute=none")
        found.ask("training.recompute", f"`{key}` is left out, and releases differ", answers)
    reason = "`data.max_length` is the longest sequence: batches may be shorter"
    found.lack("packing", reason, "")
