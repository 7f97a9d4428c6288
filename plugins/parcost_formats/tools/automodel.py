"""Recipes of NeMo Automodel: pretraining and full fine-tuning under FSDP2, Megatron FSDP or DDP.

The model is a name on the Hugging Face Hub. Classes named in a file are never imported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from parcost import Importer, ImportFile, Translation, hookimpl
from parcost_formats.tools.collector import (
    AUTO,
    SettingCollector,
    digits,
    read_configuration,
)
from parcost_formats.tools.data_types import SIZES
from parcost_formats.tools.finetuning.adapters import BLOCK, read_adapters
from parcost_formats.tools.hub import read_attention, read_hub_model
from parcost_formats.tools.job_importer import JobImporter
from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.needs import ask_for_devices
from parcost_formats.tools.tables import table
from parcost_formats.tools.unsupported import find_unsupported_features

TOOL = "automodel"
_TABLE = table(TOOL)
_MESH = "distributed."
_LOCAL, _GLOBAL = "step_scheduler.local_batch_size", "step_scheduler.global_batch_size"
#: Recomputation is a key of the mesh, of the model's own parallelizer, or of the recipe.
_CHECKPOINTS = (
    "distributed.activation_checkpointing",
    "parallelizer.activation_checkpointing",
    "activation_checkpointing",
)
_FUSED = "FusedAdam"  # of Transformer Engine: moments of fp32, and a master copy on demand
#: Classes of Automodel that build one of PyTorch or of Transformer Engine, by their last words.
_CLASSES = "nemo_automodel.components.optim.optimizer."
_ADAM = {"torch.optim.AdamW", "torch.optim.Adam", f"{_CLASSES}AdamWConfig", f"{_CLASSES}AdamConfig"}
_ANSWERS = ("--use catalog.precisions.bf16_pure", "--use catalog.precisions.bf16_fsdp")
_SECTIONS = ("step_scheduler.", "distributed.", "model._target_", "model.pretrained")
_SIZES = tuple(
    f"model.{part}{name}"
    for part in ("", "config.")
    for name in ("n_layer", "n_embd", "num_hidden_layers", "hidden_size")
)
_MOVED = {"distributed_config": _MESH, "autopipeline": f"{_MESH}pipeline."}
_NONE = ("none", "None", "null", None)
#: Recipes that train; the second repeats steps of the first with batches of full sequences.
_TRAINING = "TrainFinetuneRecipeForNextTokenPrediction"
_BENCHMARK = "BenchmarkingRecipeForNextTokenPrediction"


class Automodel(JobImporter):
    """Recipes of NeMo Automodel."""

    name = TOOL

    def recognizes(self, name: str, text: str) -> bool:
        """Return whether a text is YAML with classes and a scheduler of Automodel."""
        return (
            name.endswith((".yaml", ".yml"))
            and "nemo_automodel" in text
            and bool(re.search(r"^(?:step_scheduler|distributed|fsdp):", text, re.MULTILINE))
        )

    def read_file(self, file: ImportFile) -> Translation:
        """Return the settings of a recipe."""
        entries = read_configuration(file.name, file.text)
        problems = list(find_unsupported_features(entries, _TABLE))
        if problems:
            return Translation(problems=problems)
        found = SettingCollector(_join_mesh(entries), _TABLE)
        if not any(key.startswith(_SECTIONS) for key in entries):
            return found.translation()
        adapted = read_adapters(found, _TABLE, _model(found))
        if adapted and str(found.value("model.torch_dtype")).endswith("32"):
            found.assume(
                f"{BLOCK}.weights", "4 B", "model.torch_dtype is that of the frozen weights"
            )
        stages = _layout(found)
        _batch(found, stages)
        _precision(found)
        _optimizer(found)
        _recompute(found)
        _rest(found)
        return found.translation()


def _join_mesh(entries: Mapping[str, JsonEntry]) -> Mapping[str, JsonEntry]:
    """Return the entries; mesh sections in releases of 2025 are moved below ``distributed``.

    >>> entries = {"distributed.tp_size": 1, "distributed_config._target_": 2}
    >>> _join_mesh(entries)
    {'distributed.tp_size': 1, 'distributed._target_': 2}
    >>> _join_mesh({"autopipeline.pp_schedule": 1})
    {'distributed.pipeline.pp_schedule': 1}
    """
    joined: dict[str, JsonEntry] = {}
    rest: dict[str, JsonEntry] = {}
    for key, entry in entries.items():
        section, _, name = key.partition(".")
        place = _MOVED.get(section)
        if place is not None and name:
            joined[f"{place}{name}"] = entry
        else:
            rest[key] = entry
    return {**rest, **{key: entry for key, entry in joined.items() if key not in rest}}


def _why(fact: str) -> str:
    return f"{_TABLE['version']}: {fact}"


def _model(found: SettingCollector) -> str:
    """Read the name of the Hugging Face model; return its key, "" if the file has none."""
    names = ("pretrained_model_name_or_path", "config.pretrained_model_name_or_path", "config")
    for name in names:
        key = f"model.{name}"
        value = found.value(key)
        if not isinstance(value, str):
            continue
        read_hub_model(found, key, value)
        return key
    sizes = next((key for key in _SIZES if key in found), "")
    if sizes:
        reason = "the model class sets the sizes"
        found.ask("model", reason, ["--use config.json", "--use catalog.models.gpt2_small"], sizes)
    return ""


def _is_benchmark(found: SettingCollector) -> bool:
    """Return whether the recipe repeats steps with batches of full sequences."""
    names = (found.value(key) for key in ("recipe", "recipe._target_"))
    return any(str(name).endswith(_BENCHMARK) for name in names)


def _size(found: SettingCollector, name: str) -> int | None:
    """Return the size of a mesh axis; None if the launcher determines it."""
    key = f"{_MESH}{name}"
    return None if found.value(key) in _NONE else found.whole(key)


def _layout(found: SettingCollector) -> int:
    """Read the degrees of the mesh and the sharding; return the number of pipeline stages."""
    sizes = {name: _size(found, f"{name}_size") for name in ("tp", "cp", "pp", "ep", "dp")}
    for name in ("tp", "cp", "pp"):
        key = f"{_MESH}{name}_size" if sizes[name] else ""
        found.set_or_assume(
            key, f"layout.{name}", digits(sizes[name] or 1), _why(f"{name}_size is 1")
        )
    if sizes["ep"] is not None and sizes["ep"] > 1:
        found.set("layout.ep", digits(sizes["ep"]), f"{_MESH}ep_size")
    tp, cp, pp = (sizes[name] or 1 for name in ("tp", "cp", "pp"))
    if sizes["dp"] is not None:
        count = digits(sizes["dp"] * tp * cp * pp)
        found.assume("cluster.devices", count, "the product of the sizes of the mesh")
    else:
        nodes, each = (found.whole(f"slurm.{one}") for one in ("nodes", "ntasks_per_node"))
        machines = found.whole("benchmark.num_nodes") if _is_benchmark(found) else None
        if nodes and each:
            found.set("cluster.devices", digits(nodes * each), "slurm.ntasks_per_node")
        elif machines is not None:
            why = "the file does not state the devices of a node"
            ask_for_devices(partial(found.ask, option="benchmark.num_nodes"), why, (), machines)
    _strategy(found, sizes["dp"], cp)
    if tp > 1:
        key = f"{_MESH}sequence_parallel"
        word = "on" if found.switch(key) else "off"
        found.set_or_assume(
            key, "layout.sequence_parallel", word, _why("sequence_parallel is false")
        )
    if pp > 1:
        _pipeline(found)
        return pp
    for key in found.keys_below(f"{_MESH}pipeline"):
        found.ignore(key, "the mesh has one stage")
    return pp


def _strategy(found: SettingCollector, dp: int | None, cp: int) -> None:
    """Read the data-parallel strategy: the ZeRO stage and the shard group."""
    keys = (f"{_MESH}strategy", f"{_MESH}_target_", f"{_MESH}strategy._target_")
    key = next((key for key in keys if key in found), "")
    word = str(found.value(key, "fsdp2")).rpartition(".")[2].lower() if key else "fsdp2"
    stage = _TABLE["strategies"].get(word)
    if stage is None:
        found.problem(key, f"`{word}` is not known", "supported: fsdp2, megatron_fsdp, ddp")
        return
    level = f"{_MESH}zero_dp_strategy"
    if word.startswith("megatron") and found.whole(level, least=0) is not None:
        found.set("layout.zero", str(found.whole(level, least=0)), level)
    else:
        found.set_or_assume(key, "layout.zero", stage, _why("strategy is fsdp2"))
    found.use("frameworks.pytorch_fsdp_flash", key, _why("its layers are those of PyTorch"))
    copies = _size(found, "dp_replicate_size")
    if copies is not None and copies > 1 and stage != "0":
        group = str(dp // copies * cp) if dp and dp % copies == 0 else None
        near = f"{_MESH}dp_replicate_size"
        found.set("sharding.shard", group or f"layout.dp * layout.cp / {copies}", near)
    reshard = f"{_MESH}reshard_after_forward"
    if stage == "3" and found.switch(reshard) is not None:
        found.set("sharding.reshard", "on" if found.switch(reshard) else "off", reshard)
    defers = found.switch(f"{_MESH}defer_fsdp_grad_sync")
    if word.startswith("fsdp2") and defers is not False:
        block = "framework automodel extends pytorch_fsdp_flash"
        fact = "gradients are reduced after the last micro-batch (defer_fsdp_grad_sync)"
        found.assume(f"{block}.accumulate", "whole", _why(fact))
        found.assume("training.framework", "automodel", "the framework of this file")


def _pipeline(found: SettingCollector) -> None:
    """Read the schedule of a pipeline."""
    prefix = f"{_MESH}pipeline."
    key, each = f"{prefix}pp_schedule", f"{prefix}layers_per_stage"
    kind = found.word(key, _TABLE["schedules"]) if key in found else "one_f_one_b"
    if kind is not None:
        found.set_or_assume(key, "schedule.kind", kind, _why("pp_schedule is 1f1b"))
    if kind not in ("one_f_one_b", "gpipe"):
        layers = found.whole(each)
        near = each if layers is not None else key
        reason = f"`{near}` splits the layers, but the file does not state their number"
        found.ask("schedule.chunks", reason, ["--set schedule.chunks=2"], near)


def _batch(found: SettingCollector, stages: int) -> None:
    """Read the global batch, the micro-batch and the accumulation steps."""
    whole, each = found.whole(_GLOBAL), found.whole(_LOCAL)
    if whole is not None:
        found.set("training.global_batch", f"{digits(whole)} sequences", _GLOBAL)
    steps, loader = "step_scheduler.grad_acc_steps", "dataloader.batch_size"
    if each is None and _LOCAL not in found and loader in found:  # of 2025
        each, key = found.whole(loader), loader
        count = found.copy(steps, "training.micro_batches")
        if count is not None and each is not None and whole is None:
            value = f"({digits(each)} * {digits(count)} * layout.dp) sequences"
            found.assume("training.global_batch", value, "batch_size x grad_acc_steps x dp")
    else:
        key = _LOCAL
    part = f"{_MESH}pipeline.pp_microbatch_size"
    if stages > 1 and each is not None:
        size = found.whole(part) or 1
        if each % size:
            found.problem(key, f"a local batch of {each} is not a multiple of {size}")
            return
        found.set_or_assume(
            part, "training.micro_batch", digits(size), _why("pp_microbatch_size is 1")
        )
        found.ignore(key, "cut into the micro-batches of the pipeline")
    elif each is not None:
        found.set("training.micro_batch", digits(each), key)
    else:
        reason = "the file has no step_scheduler.local_batch_size"
        found.ask("training.micro_batch", reason, ["--set training.micro_batch=1"])
    dp = _size(found, "dp_size")
    if whole is not None and each is not None and dp and whole % (each * dp):
        message = f"{whole} is not a multiple of local_batch_size {each} x dp_size {dp}"
        found.problem(_GLOBAL, message, "Automodel rejects this batch")
    for key in ("packed_sequence.packed_sequence_size", "dataset.seq_length", "dataset.seq_len"):
        if key in found and found.value(key) != 0:
            found.copy(key, "training.sequence")
            full = key.startswith("packed") or found.value("dataset.padding") == "max_length"
            if not full and not _is_benchmark(found):
                reason = f"without packing, `{key}` is only the maximum length"
                found.lack("packed_sequence.packed_sequence_size", reason, "")
            break


def _precision(found: SettingCollector) -> None:
    """Read the storage type of weights, and the types in which FSDP computes and reduces."""
    key = next((k for k in ("model.torch_dtype", "model.dtype") if k in found), "")
    policy = f"{_MESH}mp_policy."
    multiplied = found.word(f"{policy}param_dtype", SIZES) or "2 B"
    reduced = found.word(f"{policy}reduce_dtype", SIZES) or "4 B"
    if not key or found.value(key) == AUTO:
        stated = "auto" if key else "not stated"
        reason = f"model.torch_dtype is {stated}: weights have the type of the checkpoint"
        narrow, wide = _ANSWERS
        more = " --set 'precision.reduction=4 B'" if reduced == "4 B" else ""
        found.ask("precision", reason, (f"{narrow}{more}", wide), key)
        return
    size = found.word(key, SIZES)
    if size is None:
        return
    if multiplied == "4 B":
        found.ask("precision", "products run in fp32", ("--use catalog.precisions.fp32",), key)
    base = "bf16_fsdp" if size == "4 B" else "bf16_pure"
    if found.switch("fp8.enabled"):
        answers = ("--use catalog.precisions.fp8_torchao", *_ANSWERS)
        found.ask("precision", "linear layers run in 8 bits", answers, "fp8.enabled")
    usual = "4 B" if base == "bf16_fsdp" else "2 B"
    found.use(f"precisions.{base}", key)
    if reduced == usual:
        return
    block = f"precision automodel extends {base}"
    near = f"{policy}reduce_dtype"
    found.set_or_assume(
        near, f"{block}.reduction", reduced, _why("mp_policy reduces gradients in fp32")
    )
    fact = "PyTorch FSDP2 accumulates unsharded gradients in the type of the reduction"
    found.assume(f"{block}.whole_gradients", reduced, fact)
    found.assume("training.precision", "automodel", "base recipe, changed by this file")


#: components/loss: losses that hold all logits.
_PLAIN_LOSSES = ("MaskedCrossEntropy", "TEParallelCrossEntropy", "CrossEntropyLoss")


def _optimizer(found: SettingCollector) -> None:
    """Read the optimizer state; PyTorch's Adam keeps it in the type of the weights."""
    key = "optimizer._target_"
    name = str(found.value(key, "torch.optim.AdamW"))
    if name in _ADAM:
        return
    configured = name == f"{_CLASSES}{_FUSED}Config"
    if not configured and not (name.startswith("transformer_engine.") and name.endswith(_FUSED)):
        reason = f"precision recipes have the optimizer state of Adam, but the optimizer is {name}"
        found.ask("precision", reason, _ANSWERS, key)
        return
    base = found.recipe()[1]
    moments = [
        found.word(f"optimizer.{one}_dtype", SIZES) or "4 B" for one in ("exp_avg", "exp_avg_sq")
    ]
    master = "optimizer.master_weights"
    copy = 4 if found.switch(master) or (configured and master not in found) else 0
    for part in ("master_weight_dtype", "store_param_remainders"):
        if found.value(f"optimizer.{part}") not in (None, False, "float32", "torch.float32"):
            reason = "the master copy of FusedAdam has another size"
            found.ask("precision", reason, _ANSWERS, f"optimizer.{part}")
    if base == "bf16_fsdp" and moments == ["4 B", "4 B"]:
        return
    size, each = 4 if base == "bf16_fsdp" else 2, sum(int(one[0]) for one in moments)
    state = each + (copy if size == 2 else 0)
    block = f"precision automodel extends {base}"
    found.set(f"{block}.optimizer", f"{state} B", key)
    # Reads gradient, weight and state, writes weight and state.
    found.set(f"{block}.update_traffic", f"{3 * size + 2 * state} B", key)
    found.assume("training.precision", "automodel", "base recipe, changed by this file")


def _recompute(found: SettingCollector) -> None:
    """Read which activations are recomputed in backward."""
    key = next((key for key in _CHECKPOINTS if key in found), "")
    value = found.value(key) if key else None
    if value is None:
        fact = "activation_checkpointing is false"
        found.assume("training.recompute", "none", _why(fact))
    elif value is True or value == "full":
        found.set("training.recompute", "full", key)
    elif value is False:
        found.set("training.recompute", "none", key)
    else:
        answers = ["--set training.recompute=full", "--set training.recompute=none"]
        found.ask(
            "training.recompute", f"the tensors that `{value}` saves are unknown", answers, key
        )


def _rest(found: SettingCollector) -> None:
    """Read compilation, experts and the loss."""
    if found.switch("compile.enabled"):
        found.set("kernels.mode", "compiled", "compile.enabled")
    if found.switch(f"{_MESH}enable_compile"):
        found.set("kernels.mode", "compiled", f"{_MESH}enable_compile")
    if found.switch(f"{_MESH}enable_async_tensor_parallel"):
        found.set("overlap.tensor", "pipelined", f"{_MESH}enable_async_tensor_parallel")
    if found.value(f"{_MESH}offload_policy._target_") or found.value(f"{_MESH}offload_policy"):
        near = next(
            k for k in (f"{_MESH}offload_policy._target_", f"{_MESH}offload_policy") if k in found
        )
        if not str(found.value(near)).endswith("CPUOffloadPolicy"):
            found.problem(near, "a policy of offload is not known", "known: CPUOffloadPolicy")
        for what in ("parameters", "optimizer"):
            found.set(f"offload.{what}", "1", near)
    if (_size(found, "ep_size") or 1) > 1:
        sends, old = "model.backend.dispatcher", "model.backend.enable_deepep"
        # Without a library, tokens are gathered from all ranks, and results reduced.
        words = {"deepep": "deepep", "hybridep": "hybridep", "torch": "allgather"}
        words["alltoall"] = "alltoall"
        kind = found.copy_word(sends, words, "routing.dispatcher")
        if kind is None and found.switch(old):
            found.set("routing.dispatcher", "deepep", old)
        if found.switch(even := "model.backend.fake_balanced_gate"):
            found.set("routing.distribution", "uniform", even)
    read_attention(found, "model.attn_implementation")
    for key in ("recipe", "recipe._target_"):
        name = found.value(key, _TRAINING)
        if not isinstance(name, dict) and not str(name).endswith((_TRAINING, _BENCHMARK)):
            message = f"the recipe `{str(name)[:60]}` is not known"
            found.problem(key, message, f"known: {_TRAINING}, {_BENCHMARK}")
    loss = "loss_fn._target_"
    kind = str(found.value(loss, _PLAIN_LOSSES[0])).rpartition(".")[2]
    if kind not in _PLAIN_LOSSES:
        found.leave_open(
            loss, "for a loss that never stores all logits, write `training { loss_chunks = 8 }`"
        )


@hookimpl
def importers() -> list[Importer]:
    """Return the importer of recipes of NeMo Automodel."""
    return [Automodel()]
