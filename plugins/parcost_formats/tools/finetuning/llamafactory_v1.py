"""Configurations of LLaMA-Factory's second trainer (v1): FSDP2, DeepSpeed or replicas."""

from __future__ import annotations

from attrs import evolve

from parcost import ImportFile, Translation
from parcost_formats.tools.accelerate import set_strategy
from parcost_formats.tools.drafts import digits
from parcost_formats.tools.finetuning.job_keys import JobKeys
from parcost_formats.tools.finetuning.trainer import TrainerKeys

_DIST = "dist_config."
_ENGINE = f"{_DIST}name"
_KERNELS = "kernel_config.name"
_FSDP, _DEEPSPEED = "fsdp2", "deepspeed"


def read_llamafactory_v1(file: ImportFile, job: JobKeys) -> Translation:
    """Return a full fine-tuning of the second trainer."""
    entries = dict(job.entries)
    kind = str(entries[_ENGINE].value) if _ENGINE in entries else ""
    if kind == _DEEPSPEED and f"{_DIST}config_file" in entries:
        entries[_DEEPSPEED] = entries.pop(f"{_DIST}config_file")
    keys = TrainerKeys("llamafactory_v1", file, evolve(job, entries=entries))
    found, version = keys.found, keys.rules["version"]
    if kind not in ("", _FSDP, _DEEPSPEED) or (kind == _DEEPSPEED and not keys.has_engine):
        help = "supported: `fsdp2`, `deepspeed` with a `config_file`, and no `dist_config`"
        found.problem(_ENGINE, f"`{kind}` is not read", help)
        return found.translation()
    keys.model()
    _read_batch(keys)
    keys.sequence()
    if kind == _FSDP:
        _read_fsdp(keys)
    else:
        keys.read_sharding("2 B", f"{version}: weights are loaded in the type of the checkpoint")
    keys.recompute()
    modes = [key for key in (f"{_DIST}cp_mode", "cp_mode") if key in found]
    word = str(found.value(modes[0])) if modes else "ulysses"
    for key in (f"{_DIST}cp_size", "cp_size"):
        keys.ulysses(key, word)
    if found.value(_KERNELS) == "liger_kernel":
        keys.fuse_loss()
        found.leave_open(_KERNELS, "norms and SwiGLU of Liger: `framework { norm = fused }`")
    keys.kernels()
    keys.devices()
    return found.translation()


def _read_batch(keys: TrainerKeys) -> None:
    """Read the batch of a device and of a step, and whether sequences have their full length."""
    found, whole = keys.found, "global_batch_size"
    key = keys.key("micro")
    usual, why = keys.default("micro")
    found.set_or_assume(key, "training.micro_batch", digits(found.whole(key) or int(usual)), why)
    batch = found.whole(whole)
    value = f"{digits(batch) if batch else '(micro_batch * layout.dp)'} sequences"
    why = f"{keys.rules['version']}: {whole} is the batch per device x replicas"
    found.set_or_assume(whole, "training.global_batch", value, why)
    strategy = "batching_strategy"
    if "dynamic" in str(found.value(strategy, "")):
        found.ignore(strategy, "batches are filled up to `cutoff_len` x `micro_batch_size` tokens")
    else:
        reason = "`cutoff_len` is only the maximum length"
        found.lack(strategy, reason, "")


def _read_fsdp(keys: TrainerKeys) -> None:
    """Read the sharding of FSDP2, over weights in the type of the checkpoint."""
    found, version = keys.found, keys.rules["version"]
    found.use("frameworks.transformers", _ENGINE)
    found.assume(
        "sharding.accumulate", "shard", f"{version}: gradients are reduced in every micro-batch"
    )
    key = f"{_DIST}reshard_after_forward"
    reshard = found.switch(key)
    if reshard is None:
        found.assume("layout.zero", "3", f"{version}: reshard_after_forward is true")
    else:
        set_strategy(found, "3" if reshard else "3 kept", key)
    key = f"{_DIST}offload_params"
    if found.switch(key):
        for name in ("parameters", "optimizer"):
            found.set(f"offload.{name}", "1", key)
    key = f"{_DIST}mp_replicate_size"
    copies = found.whole(key)
    if copies is not None and copies > 1:
        found.set("sharding.shard", f"layout.dp * layout.cp / {copies}", key)
    on, key = keys.switch("bf16")
    if not on:
        reason = "without bf16, weights of the checkpoint's type are multiplied in float32"
        found.ask("precision", reason, ["--use catalog.precisions.fp32"], key)
        return
    why = f"{version}: FSDP2 shards weights in the type of the checkpoint, bfloat16"
    found.use("precisions.bf16_pure", key, why)
    block = "precision trainer extends bf16_pure"
    found.assume(f"{block}.reduction", "4 B", f"{version}: gradients are reduced in float32")
    found.assume("training.precision", "trainer", "the settings of this file")
