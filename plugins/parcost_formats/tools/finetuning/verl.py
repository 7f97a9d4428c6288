"""Supervised fine-tuning in verl: FSDP over fp32 weights, with bf16 GEMMs.

``fsdp_sft_trainer`` counts the micro-batch in sequences; ``sft_trainer``, since 0.6, counts it in
tokens.
"""

from __future__ import annotations

from parcost import ImportFile, Translation
from parcost_formats.tools.collector import SettingCollector, digits
from parcost_formats.tools.data_types import SIZES
from parcost_formats.tools.file_importer import BY_HAND, error_at
from parcost_formats.tools.finetuning.adapters import BLOCK, read_adapters
from parcost_formats.tools.finetuning.job_keys import JobKeys, reject_trainer
from parcost_formats.tools.finetuning.trainer import list_optimizer, read_devices
from parcost_formats.tools.hub import ask_for_model, read_attention, read_hub_model
from parcost_formats.tools.tables import table
from parcost_formats.tools.unsupported import PROGRAM

_TABLE = table("verl")
_VERSION = "verl 0.5"
_ENGINE = "verl 0.9"
_TOKENS = 8192  # for each rank of a group of Ulysses
_ULYSSES = "engine.ulysses_sequence_parallel_size"
_MODEL_TYPE = {True: "engine.model_dtype", False: "model.fsdp_config.model_dtype"}
_MICRO, _MICRO_OF_ALL = "data.micro_batch_size_per_gpu", "data.micro_batch_size"
_LATER = ("ulysses_sequence_parallel_size", "use_remove_padding", "model.use_liger")  # from 0.2 on
_TYPES = ("--use catalog.precisions.bf16_pure", "--use catalog.precisions.bf16_fsdp")
_OFFLOADS = {
    "engine.param_offload": ("parameters",),
    "engine.optimizer_offload": ("optimizer",),
    "engine.offload_policy": ("parameters", "optimizer"),
    "model.enable_activation_offload": ("activations",),
}
_BATCHES = {
    _MICRO: ("micro_batch", 4, ""),
    "data.train_batch_size": ("global_batch", 256, " sequences"),
    "data.max_length": ("sequence", 1024, ""),
}


def read_verl(file: ImportFile, job: JobKeys) -> Translation:  # noqa: ARG001
    """Return the job of a supervised trainer on FSDP; other trainers of verl are rejected."""
    program = job.entries.get(PROGRAM)
    name = str(program.value) if program is not None else ""
    if "sft_trainer" not in name:
        raise reject_trainer(job, str(_TABLE["title"]))
    if job.strays:  # Hydra reads pairs alone, and ends the job at another word
        first = job.strays[0]
        message = f"`{first.text[:60]}` is not KEY=VALUE: Hydra rejects the command line"
        help = "write keys as `model.lora_rank=32`, without spaces"
        raise error_at(first, message, help)
    entries = dict(job.entries)
    found = SettingCollector(entries, _TABLE)
    is_engine = "fsdp_sft_trainer" not in name
    key = "model.path" if is_engine else "model.partial_pretrain"
    value = found.value(key)
    if isinstance(value, str):
        read_hub_model(found, key, value)
    else:
        ask_for_model(found, key)
    if read_adapters(found, _TABLE, key):
        kind = str(found.value(_MODEL_TYPE[is_engine], "fp32"))
        size = SIZES.get(kind, "2 B")
        why = f"{_VERSION}: FSDP shards frozen weights in the type of model_dtype, {kind}"
        found.assume(f"{BLOCK}.weights", size, why)
    if is_engine:
        _read_batches(found, tokens=True)
        _read_engine(found)
    else:
        _read_batches(found, tokens=False)
        _read_layout(found)
        _read_execution(found)
    list_optimizer(found, "optim.optimizer")
    read_attention(found, "model.override_config.attn_implementation")
    read_devices(found, entries, job)
    each = found.whole("trainer.n_gpus_per_node")
    if each is not None and not found.has("cluster.devices"):  # ranks that Ray starts
        nodes = found.whole("trainer.nnodes") or 1
        found.set("cluster.devices", digits(each * nodes), "trainer.n_gpus_per_node")
    return found.translation()


def _read_batches(found: SettingCollector, *, tokens: bool) -> None:
    """Read the batch sizes.

    With *tokens*, micro-batches are counted in tokens, unless ``use_dynamic_bsz`` is false.
    """
    dynamic, most = "data.use_dynamic_bsz", "data.max_token_len_per_gpu"
    tokens = tokens and found.switch(dynamic) is not False
    _read_micro_batch_of_all(found)
    for key, (name, default, unit) in _BATCHES.items():
        if tokens and name == "micro_batch":
            _read_tokens(found, key, most)
            if dynamic in found:
                found.ignore(dynamic, "micro-batches are counted in tokens")
            continue
        value = f"{digits(found.whole(key) or default)}{unit}"
        found.set_or_assume(key, f"training.{name}", value, f"{_VERSION}: {key} is {default}")


def _read_micro_batch_of_all(found: SettingCollector) -> None:
    """Read the micro-batch key of the first releases, in sequences of all replicas."""
    value = found.value(_MICRO_OF_ALL)
    if value is None:
        return
    default = _BATCHES[_MICRO][1]
    if _MICRO in found or any(key in found for key in _LATER):
        found.ignore(_MICRO_OF_ALL, f"`{_MICRO}` is used in releases from 0.2 on")
        return
    reason = (
        f"`{_MICRO_OF_ALL}` is divided by the replicas in verl 0.1, and later releases take "
        f"{_MICRO}, which is {default}"
    )
    shared = [f"--set 'training.micro_batch={digits(value)} / layout.dp'"]
    answers = [*(shared if isinstance(value, int) else ()), f"--set training.micro_batch={default}"]
    found.ask("training.micro_batch", reason, answers, _MICRO_OF_ALL)


def _read_tokens(found: SettingCollector, key: str, most: str) -> None:
    """Read the tokens of a micro-batch as a number of sequences of the maximum length."""
    length = found.whole("data.max_length") or _BATCHES["data.max_length"][1]
    limit = (found.whole(most) or _TOKENS) * (found.whole(_ULYSSES) or 1)
    batch = found.whole("data.train_batch_size") or _BATCHES["data.train_batch_size"][1]
    why = f"{_ENGINE}: micro-batches have {limit} tokens; here sequences have {length}"
    if key in found:
        found.ignore(key, why)
    if limit % length:
        answers = ["--set training.micro_batch=1"]
        place = most if most in found else ""
        found.ask("training.micro_batch", f"{why}, so micro-batches are not full", answers, place)
    else:
        size = f"min({digits(limit // length)}, {digits(batch)} / layout.dp)"
        found.assume("training.micro_batch", size, why)


def _read_engine(found: SettingCollector) -> None:
    """Read the engine of ``sft_trainer``: FSDP over weights of fp32, with products in bf16."""
    for key in ("engine", "engine.strategy"):
        kind = str(found.value(key, "fsdp"))
        if kind not in ("fsdp", "fsdp2"):
            message = f"parcost does not read the engine {kind} of verl, only fsdp and fsdp2"
            found.problem(key, message, BY_HAND)
    found.use("frameworks.transformers", why=f"{_ENGINE}: FSDP of PyTorch")
    found.assume("layout.zero", "3", f"{_ENGINE}: FSDP shards fully")
    found.assume(
        "sharding.accumulate", "shard", f"{_ENGINE}: gradients are reduced in every micro-batch"
    )
    _read_ulysses(found, _ULYSSES)
    ranks = found.value("engine.fsdp_size", -1)
    if ranks != -1 and (count := found.whole("engine.fsdp_size")) is not None:
        found.set("sharding.shard", digits(count), "engine.fsdp_size")
    if found.switch("engine.reshard_after_forward") is False:
        found.set("sharding.reshard", "off", "engine.reshard_after_forward")
    _read_types(found, _MODEL_TYPE[True])
    kind = str(found.value("engine.dtype", "bf16"))
    if kind not in ("bf16", "bfloat16"):
        found.ask(
            "precision", f"matrix products in {kind} are not supported", _TYPES, "engine.dtype"
        )
    for key, names in _OFFLOADS.items():
        if found.switch(key):
            for name in names:
                found.set(f"offload.{name}", "1", key)
    key = "model.enable_gradient_checkpointing"
    value = "none" if found.switch(key) is False else "full"
    found.set_or_assume(key, "training.recompute", value, f"{_ENGINE}: {key} is True")


def _read_layout(found: SettingCollector) -> None:
    """Read the sharding of FSDP, its ranks, and its data types."""
    found.use("frameworks.transformers", why=f"{_VERSION}: FSDP of PyTorch")
    found.assume("layout.zero", "3", f"{_VERSION}: fsdp_sft_trainer shards fully")
    found.assume(
        "sharding.accumulate", "shard", f"{_VERSION}: gradients are reduced in every micro-batch"
    )
    _read_ulysses(found, "ulysses_sequence_parallel_size")
    _read_types(found, _MODEL_TYPE[False])
    key, also = (f"model.fsdp_config.{one}" for one in ("cpu_offload", "offload_params"))
    if all([found.switch(key), found.switch(also)]):
        for name in ("parameters", "optimizer"):
            found.set(f"offload.{name}", "1", key)


def _read_ulysses(found: SettingCollector, key: str) -> None:
    degree = found.whole(key)
    if degree is not None:
        found.set("layout.cp", digits(degree), key)
        if degree > 1:
            found.assume("context.algorithm", "ulysses", f"{_VERSION}: Ulysses")


def _read_types(found: SettingCollector, key: str) -> None:
    """Read the data types: fp32 weights with bf16 GEMMs, unless *key* has another type."""
    kind = str(found.value(key, "fp32"))
    if SIZES.get(kind) == "4 B":
        why = f"{_VERSION}: matrix products in bf16, weights and reductions in fp32"
        found.use("precisions.bf16_fsdp", why=why)
    elif kind in ("bf16", "bfloat16") and not found.has(f"{BLOCK}.rank"):
        found.use("precisions.bf16_pure", key, f"{_VERSION}: FSDP shards weights in bf16")
        why = f"{_VERSION}: gradients are reduced in fp32, and kept in the type of the weights"
        found.assume("precision trainer extends bf16_pure.reduction", "4 B", why)
        found.assume("training.precision", "trainer", "the settings of this file")
    else:
        found.ask("precision", f"weights in {kind} are not supported", _TYPES, key)


def _read_execution(found: SettingCollector) -> None:
    """Read recomputation, whose default differs between releases, and padding."""
    key = "model.enable_gradient_checkpointing"
    if found.copy_switch(key, "training.recompute", "full", "none") is None:
        answers = ("--set training.recompute=full", "--set training.recompute=none")
        found.ask(
            "training.recompute",
            f"`{key}` is not set, and its default differs between releases",
            answers,
        )
    reason = "`data.max_length` is only the maximum length"
    found.lack("packing", reason, "")
