"""The YAML configuration of Hugging Face Accelerate: FSDP, DeepSpeed, or plain replicas.

It has devices, sharding and precision. Batch and sequence are arguments of the launched script. If
it names a DeepSpeed file, that file is read only if both are imported together.
"""

from __future__ import annotations

from collections.abc import Iterable

from parcost import Importer, ImportFile, Translation, hookimpl
from parcost_formats.tools.collector import SettingCollector, digits, read_configuration
from parcost_formats.tools.deepspeed_keys import FRAMEWORK, DeepSpeedKeys
from parcost_formats.tools.file_importer import FileError
from parcost_formats.tools.job_importer import JobImporter
from parcost_formats.tools.tables import table

TOOL = "accelerate"
_FSDP = "fsdp_config.fsdp_"
_MESH = "parallelism_config.parallelism_config_"
_FSDP_TYPES = "Accelerate 1.12: parameters, messages and buffers of FSDP have one type"
_SECTIONS = {"fsdp": "fsdp", "deepspeed": "deepspeed", "megatron_lm": "megatron"}
_EACH = "accelerator_config.gradient_accumulation_kwargs.sync_each_batch"
_NO_SYNC = "Accelerate 1.12: no_sync keeps unsharded gradients until the last micro-batch"
GATHERED_WHOLE = "a model that is gathered as a whole cannot be expressed in a spec"
_NO_ORDER = "Accelerate 1.15, transformers 5.24: fsdp_backward_prefetch is NO_PREFETCH"
_NO_PREFETCH = "PyTorch, fsdp/api.py: without prefetch, backward does not overlap communication"
_OLD_TRAINER = (
    "transformers 5 runs FSDP 2; FSDP 1 of transformers 4 does not prefetch in backward: write "
    "`sharding { prefetch = 0 }` and `overlap { gradients = off }`"
)
#: PyTorch and Accelerate name a policy, or number it.
_WRAPPING = {
    "transformer_based_wrap": "layers",
    "1": "layers",
    "size_based_wrap": "sizes",
    "2": "sizes",
    "no_wrap": "none",
    "3": "none",
}
_ORDERS = {
    "backward_pre": "BACKWARD_PRE",
    "1": "BACKWARD_PRE",
    "backward_post": "BACKWARD_POST",
    "2": "BACKWARD_POST",
    "no_prefetch": "NO_PREFETCH",
    "3": "NO_PREFETCH",
}
_WHOLE_NODES = "hybrid strategies shard within a node: num_processes / num_machines"
_AUTOCAST = "PyTorch autocast: parameters and gradients stay in fp32"


class Accelerate(JobImporter):
    """Configurations of Accelerate."""

    name = TOOL

    def recognizes(self, name: str, text: str) -> bool:
        """Return whether the text is YAML with a ``distributed_type``."""
        return name.endswith((".yaml", ".yml")) and "distributed_type:" in text

    def read_file(self, file: ImportFile) -> Translation:
        """Return the settings of a configuration."""
        entries = read_configuration(file.name, file.text)
        found = SettingCollector(entries, table(TOOL))
        kinds = {
            "fsdp": "fsdp", "deepspeed": "deepspeed", "multi_gpu": "ddp", "no": "ddp",
            "megatron_lm": "megatron",
        }  # fmt: skip
        kind = found.word("distributed_type", kinds)
        if "distributed_type" not in found:
            raise FileError("a `distributed_type` is expected")
        if kind == "fsdp":
            read_fsdp(found)
            fact = "Accelerate 1.12: fsdp_activation_checkpointing is false"
            found.assume("training.recompute", "none", fact)
            _precision(found, sharded=True)
        elif kind == "deepspeed":
            _deepspeed(found)
        elif kind == "ddp":
            found.set("layout.zero", "0", "distributed_type")
            read_replicas(found)
            _precision(found, sharded=False)
        elif kind == "megatron":
            _megatron(found)
        _other_sections(found, entries, kind or "")
        read_mesh(found)
        read_compiler(found)
        found.read_table()
        return found.translation()


def _other_sections(found: SettingCollector, entries: Iterable[str], kind: str) -> None:
    """List the keys of sections that do not apply to this ``distributed_type``."""
    for key in entries:
        section = key.partition("_config.")[0]
        if section in _SECTIONS and _SECTIONS[section] != kind:
            found.ignore(key, "only another `distributed_type` uses this key")


def read_fsdp(found: SettingCollector, *, by_trainer: bool = False) -> None:
    """Read the settings of FSDP 1 or 2, started by a launcher or *by_trainer* (by Trainer
    itself).
    """
    found.use("frameworks.transformers", "distributed_type")
    if _strategy(found) == "3":
        read_reduction(found)
    if found.switch(f"{_FSDP}activation_checkpointing"):
        found.set("training.recompute", "full", f"{_FSDP}activation_checkpointing")
    if found.switch(f"{_FSDP}offload_params"):
        for name in ("parameters", "optimizer"):
            found.set(f"offload.{name}", "1", f"{_FSDP}offload_params")
    wrap = f"{_FSDP}auto_wrap_policy"
    policy = found.word(wrap, _WRAPPING)
    if policy == "none":
        found.leave_open(wrap, GATHERED_WHOLE)
    elif wrap not in found and not by_trainer:
        found.lack(wrap, f"Accelerate 1.15: it is NO_WRAP, and {GATHERED_WHOLE}", "")
    _prefetch(found, by_trainer=by_trainer)


def _prefetch(found: SettingCollector, *, by_trainer: bool) -> None:
    """Read whether layers are prefetched in backward: FSDP 2 always does, FSDP 1 by a key."""
    version, name = found.whole(f"{_FSDP}version"), f"{_FSDP}backward_prefetch"
    key = next((one for one in (name, f"{name}_policy") if one in found), "")
    order = (found.word(key, _ORDERS) if key else None) or "NO_PREFETCH"
    again = found.setting("layout.zero") == "3" and found.setting("sharding.reshard") != "off"
    if key and version == 2:
        found.ignore(key, "FSDP 2 gathers the next layer ahead in any case")
    elif order == "BACKWARD_POST":
        found.leave_open(key, "layers are gathered before they are used, as with BACKWARD_PRE")
    elif order != "NO_PREFETCH" or version == 2 or not again:
        return
    elif by_trainer and not key and version is None:
        found.lack(name, _OLD_TRAINER, "sharding.prefetch")
    else:
        found.set_or_assume(key, "sharding.prefetch", "0", _NO_ORDER)
        found.assume("overlap.gradients", "off", _NO_PREFETCH)


def read_reduction(found: SettingCollector) -> None:
    """Read whether gradients are reduced in every micro-batch, or only in the last one."""
    each = "shard" if found.switch(_EACH) else "whole"
    found.set_or_assume(_EACH, "sharding.accumulate", each, _NO_SYNC)


def assume_fsdp_types(found: SettingCollector, block: str) -> None:
    """Set the low-precision type of messages, and of gradients that stay unsharded.

    Sharded gradients have the type of the parameters.
    """
    for name in ("reduction", "whole_gradients"):
        found.assume(f"{block}.{name}", "2 B", _FSDP_TYPES)


def read_strategy(found: SettingCollector, key: str) -> bool:
    """Read a sharding strategy of FSDP; return whether it is hybrid sharding over groups of
    ranks.
    """
    strategy = found.word(key, table(TOOL)["strategies"])
    return strategy is not None and set_strategy(found, strategy, key)


def set_strategy(found: SettingCollector, strategy: str, key: str) -> bool:
    """Set the sharding of a *strategy* of the table; return whether it is a hybrid one."""
    stage, *words = strategy.split()
    found.set("layout.zero", stage, key)
    if "kept" in words:
        found.set("sharding.reshard", "off", key)
    return "hybrid" in words


def _strategy(found: SettingCollector) -> str:
    """Read the ZeRO stage, and the size of a hybrid sharding group; return the stage."""
    version = found.whole(f"{_FSDP}version") or 1
    old, new = f"{_FSDP}sharding_strategy", f"{_FSDP}reshard_after_forward"
    strategies = table(TOOL)["strategies"]
    stated = [key for key in (old, new) if key in found]
    if version == 2 and old in stated:
        found.ignore(old, f"FSDP 2 uses `{new}` instead")
        stated.remove(old)
    stage = ""
    for key in stated:
        strategy = found.word(key, strategies)
        if strategy is None:
            continue
        stage = strategy[0]
        if len(stated) > 1 and strategy == "3":  # as the other key has to say too
            found.set("sharding.reshard", "on", key)
        if set_strategy(found, strategy, key):
            _within_a_node(found, key)
    if not stated:
        why = f"Accelerate 1.12: FSDP {version} reshards after forward"
        found.assume("layout.zero", "3", why)
        return "3"
    return stage


def _within_a_node(found: SettingCollector, key: str) -> None:
    """Set the shard group of a hybrid strategy to the ranks of a node."""
    devices, nodes = found.whole("num_processes"), found.whole("num_machines") or 1
    if devices and devices % nodes == 0:
        found.assume("sharding.shard", str(devices // nodes), _WHOLE_NODES)
    else:
        found.leave_open(key, "write `sharding { shard = N }`: the devices of a node")


def _precision(found: SettingCollector, *, sharded: bool) -> None:
    """Read the precision recipe: data types of weights, GEMMs and messages."""
    key = "mixed_precision"
    words = {"no": "fp32", "false": "fp32", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8"}
    kind = found.word(key, words)
    if kind is None:
        if key not in found:
            why = "Accelerate 1.12: mixed_precision is no"
            found.use("precisions.fp32", why=why)
        return
    if kind == "fp32":
        found.use("precisions.fp32", key)
    elif kind == "fp8":
        answers = ("--use catalog.precisions.fp8_torchao", "--use catalog.precisions.fp8_delayed")
        found.ask("precision", "the script sets the recipe for 8 bits", answers, key)
    elif kind == "bf16" and not sharded:
        answers = ("--use catalog.precisions.bf16_autocast", "--use catalog.precisions.bf16_pure")
        found.ask(
            "precision", "the script loads the weights of replicas in 4 or 2 bytes", answers, key
        )
    else:
        recipe = "bf16_fsdp" if sharded else "bf16_autocast"
        found.use(f"precisions.{recipe}", key, "" if sharded else _AUTOCAST)
        block = f"precision accelerate extends {recipe}"
        if sharded:
            assume_fsdp_types(found, block)
        if kind == "fp16":
            found.set(f"{block}.compute", "fp16", key)
        if sharded or kind == "fp16":
            found.assume("training.precision", "accelerate", "the settings of this file")


def _deepspeed(found: SettingCollector) -> None:
    """Read the settings of DeepSpeed in this file."""
    found.use(FRAMEWORK, "distributed_type")
    other = "deepspeed_config.deepspeed_config_file"
    if other in found:
        why = f"import this file as well: parcost import ... {found.value(other)}"
        found.leave_open(other, why, "layout.zero")
    else:
        DeepSpeedKeys(found, table(TOOL)["deepspeed"]).zero(default=2)
    _accumulation(found)
    kind = found.word("mixed_precision", {"no": "fp32", "bf16": "bf16_zero", "fp16": "fp16_zero"})
    if kind is not None:
        found.use(f"precisions.{kind}", "mixed_precision")
    elif "mixed_precision" not in found and other not in found:
        found.use("precisions.fp32", why="Accelerate 1.12: mixed_precision is no")


def _accumulation(found: SettingCollector) -> None:
    key = "deepspeed_config.gradient_accumulation_steps"
    steps = None if found.is_auto(key) else found.whole(key)
    if steps is not None:
        found.set("training.micro_batches", digits(steps), key)


def read_replicas(found: SettingCollector) -> None:
    """Set the layout of DistributedDataParallel: gradients all-reduced, nothing sharded."""
    ddp = table(TOOL)["ddp"]
    key = "distributed_type" if "distributed_type" in found else ""
    found.use("frameworks.transformers", key, "DistributedDataParallel of PyTorch")
    found.assume("layout.zero", "0", "replicas hold the whole state")
    for name in ("bucket", "first_bucket"):
        found.assume(f"overlap.{name}", ddp[name], ddp["source"])
    found.assume("sharding.bucket_copy", ddp["copy"], ddp["copy_source"])


def _megatron(found: SettingCollector) -> None:
    """Read the few settings of Megatron-LM that Accelerate passes on."""
    prefix = "megatron_lm_config.megatron_lm_"
    found.use("frameworks.megatron_core", "distributed_type")
    if found.switch(f"{prefix}use_distributed_optimizer"):
        found.set("layout.zero", "1", f"{prefix}use_distributed_optimizer")
    if found.switch(f"{prefix}recompute_activations"):
        found.set("training.recompute", "selective", f"{prefix}recompute_activations")
    kind = found.word("mixed_precision", {"no": "fp32", "bf16": "bf16", "fp16": "fp16"})
    if kind is not None:
        found.use(f"precisions.{kind}", "mixed_precision")


def read_mesh(found: SettingCollector) -> None:
    """Read the parallel degrees of a device mesh."""
    keys = [f"{_MESH}{name}_size" for name in ("dp_replicate", "dp_shard")]
    replicate, shard = (found.whole(key) for key in keys)
    if (found.copy(f"{_MESH}tp_size", "layout.tp") or 1) > 1:
        fact = "Accelerate 1.12: the plans of transformers have no sequence parallelism"
        found.assume("layout.sequence_parallel", "off", fact)
    context, ulysses = f"{_MESH}cp_size", f"{_MESH}sp_size"
    ranks = found.whole(context) or 1
    if replicate is not None or shard is not None:
        key = keys[1] if shard is not None else keys[0]
        found.set("layout.dp", str((replicate or 1) * (shard or 1)), key)
        if (replicate or 1) > 1:
            found.set("sharding.shard", str((shard or 1) * ranks), keys[0])
    if ranks > 1:
        found.set("layout.cp", str(ranks), context)
        words = {"allgather": "all_gather", "alltoall": "ring"}
        found.copy_word(f"{_MESH}cp_comm_strategy", words, "context.algorithm")
    heads = found.whole(ulysses) or 1
    if heads > 1:
        found.set("layout.cp", str(heads), ulysses)
        found.set("context.algorithm", "ulysses", ulysses)


def read_compiler(found: SettingCollector) -> None:
    """Read whether TorchDynamo compiles layers."""
    for key in ("dynamo_config.dynamo_backend", "dynamo_backend"):
        backend = str(found.value(key, "no")).upper()
        if backend == "INDUCTOR":
            found.set("kernels.mode", "compiled", key)
        elif backend not in ("NO", "FALSE", "EAGER", "NONE"):
            found.leave_open(key, "compilers other than inductor are not modeled")


@hookimpl
def importers() -> list[Importer]:
    """Return the importer of configurations of Accelerate."""
    return [Accelerate()]
