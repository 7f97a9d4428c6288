"""Recipes of torchtune, full or with adapters: FSDP2 over weights of one type."""

from __future__ import annotations

from parcost import ImportFile, Translation
from parcost_formats.tools.accelerate import set_strategy
from parcost_formats.tools.collector import SettingCollector, digits
from parcost_formats.tools.finetuning.adapters import read_adapters
from parcost_formats.tools.finetuning.job_keys import JobKeys
from parcost_formats.tools.finetuning.trainer import narrow_states, read_devices
from parcost_formats.tools.tables import table

_TABLE = table("torchtune")
_VERSION = str(_TABLE["version"])


def read_torchtune(file: ImportFile, job: JobKeys) -> Translation:  # noqa: ARG001
    """Return the job of a recipe; components name the family and the size of the model."""
    entries = dict(job.entries)
    found = SettingCollector(entries, _TABLE)
    _read_model(found)
    _read_batch(found)
    _read_layout(found)
    _read_precision(found)
    _read_execution(found)
    read_devices(found, entries, job)
    return found.translation()


def _read_model(found: SettingCollector) -> None:
    key = "model._component_"
    path = str(found.value(key, "")).split(".")
    name = (
        path[-1].removeprefix("q").removeprefix("lora_")
        if read_adapters(found, _TABLE)
        else path[-1]
    )
    models = _TABLE["models"]
    entry = models.get(f"{'.'.join(path[-2:-1])}.{name}", models.get(name))
    if entry is None:
        answers = ["--use config.json", "--use catalog.models.llama31_8b"]
        reason = f"`{name}` is not in parcost's table" if name else f"the file has no `{key}`"
        found.ask("model", reason, answers, key if name else "")
        return
    found.use(f"models.{entry}", key)
    label = entry
    if entry in _TABLE["unwindowed"]["models"]:
        label = "full"
        why = f"{_VERSION}: layers of {name} have no sliding window"
        found.assume(f"model {label} extends {entry}.window", "0", why)
    found.set("training.model", label, key)


def _read_batch(found: SettingCollector) -> None:
    """Read the micro-batch of a rank, the accumulation steps, and the sequence length."""
    sizes = []
    for key, attribute in (
        ("batch_size", "micro_batch"),
        ("gradient_accumulation_steps", "micro_batches"),
    ):
        size = found.whole(key)
        if size is None:
            reason = f"the file has no `{key}`"
            found.ask(f"training.{attribute}", reason, [f"--set training.{attribute}=1"])
            continue
        found.set(f"training.{attribute}", digits(size), key)
        sizes.append(size)
    if len(sizes) == 2:
        _assume_batch(found, *sizes)
    key, packed = "tokenizer.max_seq_len", "dataset.packed"
    length = found.copy(key, "training.sequence")
    if found.switch(packed):
        found.ignore(packed, "every sequence has the full length")
    else:
        reason = "without packing, `tokenizer.max_seq_len` is only the maximum length"
        found.lack(packed, reason, "" if length is not None else "training.sequence")


def _assume_batch(found: SettingCollector, size: int, steps: int) -> None:
    product = f"({size} * {steps} * layout.dp) sequences"
    why = "batch_size x gradient_accumulation_steps x data-parallel ranks"
    found.assume("training.global_batch", product, why)


def _read_layout(found: SettingCollector) -> None:
    """Read the device mesh, and the sharding of FSDP."""
    found.use("frameworks.pytorch_fsdp", why=f"{_VERSION}: FSDP2 of PyTorch")
    for key, attribute in (("tensor_parallel_dim", "tp"), ("context_parallel_dim", "cp")):
        found.copy(key, f"layout.{attribute}")
    copies = found.whole("data_parallel_replicate_dim")
    if copies is not None and copies > 1:
        shard = f"layout.dp * layout.cp / {copies}"
        found.set("sharding.shard", shard, "data_parallel_replicate_dim")
    found.whole("data_parallel_shard_dim", least=-1)
    key = "fsdp_reshard_after_forward"
    if found.switch(key) is False:
        set_strategy(found, "3 kept", key)
    else:
        found.assume("layout.zero", "3", f"{_VERSION}: distributed recipes shard by FSDP2")
    if found.switch("fsdp_cpu_offload"):
        for name in ("parameters", "optimizer"):
            found.set(f"offload.{name}", "1", "fsdp_cpu_offload")


def _read_precision(found: SettingCollector) -> None:
    """Read the data type of weights and gradients, and the optimizer state."""
    key = "dtype"
    answers = ("--use catalog.precisions.bf16_pure", "--use catalog.precisions.fp32")
    kind = found.word(key, {"bf16": "bf16_pure", "fp32": "fp32"})
    if kind is None:
        if key not in found:
            found.ask("precision", f"the file has no `{key}`", answers)
        return
    found.use(f"precisions.{kind}", key)
    key = "optimizer._component_"
    name = str(found.value(key, "")).rpartition(".")[2].lower()
    size = _TABLE["optimizers"].get(name)
    if size is None:
        what = name or "not named"
        reason = f"precision recipes have the optimizer state of Adam, but the optimizer is {what}"
        found.ask("precision", reason, answers, key if name else "")
    elif size:
        narrow_states(found, float(size), key)


def _read_execution(found: SettingCollector) -> None:
    """Read recomputation, offload, compilation and the loss."""
    key = "enable_activation_checkpointing"
    on = found.switch(key)
    mode, option = "ac_mode", "ac_option"
    if mode in found:
        _read_selection(found, mode, option, on=on)
    elif on is None:
        fact = f"{_VERSION}: {key} is false"
        found.assume("training.recompute", "none", fact)
    else:
        found.set("training.recompute", "full" if on else "none", key)
    if found.switch("enable_activation_offloading"):
        found.set("offload.activations", "100 %", "enable_activation_offloading")
    if found.switch("compile"):
        found.set("kernels.mode", "compiled", "compile")
    loss = "loss._component_"
    if loss in found and not str(found.value(loss)).endswith(".CrossEntropyLoss"):
        found.leave_open(loss, "for a chunked loss, write `training { loss_chunks = 8 }`")


def _read_selection(found: SettingCollector, mode: str, option: str, *, on: bool | None) -> None:
    """Read which layers or operators are recomputed; none are if the older switch is *on*."""
    kind = found.word(mode, {one: one for one in ("none", "full", "selective")})
    chosen = found.value(option)
    if kind is None:
        return
    found.set("training.recompute", "none" if on or kind == "none" else "full", mode)
    if on or kind != "selective":
        return
    if chosen == "op":
        found.set("recompute.alternate", "on", option)
    elif (every := found.whole(option)) is not None:
        found.set("recompute.every", digits(every), option)
        found.set("recompute.first", digits(every - 1), option)  # counts the layers from 1
    else:
        found.problem(mode, "`ac_option` is `op`, or n to recompute every n-th layer")
