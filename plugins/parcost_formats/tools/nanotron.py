"""The YAML configuration of nanotron: model, layout, batch and precision of a run.

A launch script is read with the configuration that it names.
It describes the whole run except the hardware.
"""

from __future__ import annotations

from parcost import Importer, ImportFile, Translation, hookimpl
from parcost_formats.tools.collector import SettingCollector, digits, read_configuration
from parcost_formats.tools.drafts import EXACT_ROWS
from parcost_formats.tools.finetuning.trainer import read_devices, unknown_count
from parcost_formats.tools.job_importer import JobImporter
from parcost_formats.tools.launch_scripts import is_launch_script, read_launch_script
from parcost_formats.tools.tables import table

TOOL = "nanotron"
_MODEL = "model.model_config."
_CONFIG = "nanotron 0.4"
_CLASSES = {"is_llama_config": "llama", "is_qwen2_config": "qwen2"}
_CLASSES["is_starcoder2_config"] = "starcoder2"
_EIGHT_BITS = ("float8", "fp8", "fp8e4m3", "fp8e5m2")


class Nanotron(JobImporter):
    """Configurations of nanotron."""

    name = TOOL

    def recognizes(self, name: str, text: str) -> bool:
        """Return whether the text is YAML with the sections of nanotron."""
        if is_launch_script(TOOL, name, text):
            return True
        marks = ("parallelism:", "model_config:", "tokens:")
        return name.endswith((".yaml", ".yml")) and all(mark in text for mark in marks)

    def read_file(self, file: ImportFile) -> Translation:
        """Return the settings of a configuration; the user may name its model class with `--as`."""
        if is_launch_script(TOOL, file.name, file.text):
            job = read_launch_script(TOOL, file)
            entries = dict(job.entries)
            found = SettingCollector(entries, table(TOOL), job.assumed)
            if "parallelism.dp" not in entries or unknown_count(job) is None:
                read_devices(found, entries, job)  # and else the degrees have them
        else:
            found = SettingCollector(read_configuration(file.name, file.text), table(TOOL))
        family = _family(found, file.options.family)
        model = f"model {family}"
        found.use("frameworks.nanotron")
        _size_of_world(found)
        _batch(found)
        _parallelism(found)
        _precision(found)
        _optimizer(found)
        _experts(found, model)
        found.read_table({"model": model})
        _defaults(found, model, family)
        return found.translation()


def _family(found: SettingCollector, chosen: str) -> str:
    """Return the model class: the class that the file marks, or *chosen*."""
    marks = [name for mark, name in _CLASSES.items() if found.value(f"{_MODEL}{mark}")]
    if marks or chosen in _CLASSES.values():
        return marks[0] if marks else chosen
    if f"{_MODEL}hidden_size" not in found and f"{_MODEL}num_hidden_layers" not in found:
        return "llama"
    reason = "the file has none of is_llama_config, is_qwen2_config, is_starcoder2_config"
    found.ask("model", reason, [f"--as {name}" for name in _CLASSES.values()])
    return "llama"


def _defaults(found: SettingCollector, model: str, family: str) -> None:
    """Set the values fixed by the model class, and its defaults for missing keys."""
    entry = table(TOOL)["families"][family]
    for name, value in entry["defaults"].items():
        found.assume(f"{model}.{name}", value, f"nanotron 0.4: {name} of {family}")
    for name, value in entry.get("code", {}).items():
        found.assume(f"{model}.{name}", value, f"nanotron 0.4: the code of {family}")
    if family == "starcoder2" and found.value(f"{_MODEL}grouped_query") is not True:
        found.value(f"{_MODEL}multi_query")
        found.assume(f"{model}.kv_heads", "1", "nanotron 0.4: multi_query is true")


def _size_of_world(found: SettingCollector) -> None:
    """Set the device count: the product of the degrees."""
    names = ("dp", "tp", "pp", "context_parallel_size")
    degrees = [found.whole(f"parallelism.{name}") or 1 for name in names]
    product = 1
    for degree in degrees:
        product *= degree
    stated = found.setting("cluster.devices").replace("_", "")
    if stated and "parallelism.dp" in found and int(stated) != product:
        message = f"the degrees need {digits(product)} devices, but the launcher starts {stated}"
        found.problem("parallelism.dp", message)
    elif "parallelism.dp" in found:
        why = "nanotron 0.4: the product of tp, cp, dp and pp"
        found.assume("cluster.devices", str(product), why)


def _batch(found: SettingCollector) -> None:
    """Set the global batch: micro-batch times accumulation steps times replicas."""
    stages = [one for one in found.keys_below("data_stages") if one.endswith(".sequence_length")]
    lengths = {found.whole(one): one for one in stages if found.value(one) is not None}
    if lengths and {*lengths} != {found.whole("tokens.sequence_length")}:
        reason = "data stages have different sequence lengths, but parcost evaluates one length"
        known = {found.whole("tokens.sequence_length"), *lengths} - {None}
        answers = [f"--set training.sequence={one}" for one in sorted(known, key=str)]
        found.ask("training.sequence", reason, answers, next(iter(lengths.values())))
    keys = ("tokens.micro_batch_size", "tokens.batch_accumulation_per_replica")
    micro, steps = (found.whole(key) for key in keys)
    if micro is not None and steps is not None:
        value = f"({digits(micro)} * {digits(steps)} * layout.dp) sequences"
        why = "micro_batch_size x batch_accumulation_per_replica x dp"
        found.assume("training.global_batch", value, why)


def _parallelism(found: SettingCollector) -> None:
    """Read the pipeline, tensor parallelism and recomputation."""
    stages = found.whole("parallelism.pp") or 1
    engine, mode = "parallelism.pp_engine", "parallelism.tp_mode"
    words = {"1f1b": "one_f_one_b", "afab": "gpipe"}
    if found.copy_word(engine, words, "schedule.kind") is None and stages > 1:
        found.assume("schedule.kind", "gpipe", f"{_CONFIG}: pp_engine is afab")
    shards = found.word(mode, {"reduce_scatter": "on", "all_reduce": "off"})
    tensor = (found.whole("parallelism.tp") or 1) > 1
    if tensor:
        why = f"{_CONFIG}: tp_mode is ALL_REDUCE"
        found.set_or_assume(mode, "layout.sequence_parallel", shards or "off", why)
    hides = "parallelism.tp_linear_async_communication"
    on = found.switch(hides)
    if tensor:
        word, why = "weight_gradients" if on else "off", f"{_CONFIG}: {hides.partition('.')[2]}"
        found.set_or_assume(hides, "overlap.tensor", word, why)
    layer = "parallelism.recompute_layer"
    if found.copy_switch(layer, "training.recompute", "full", "none") is None:
        _granularity(found)
    gathers = "parallelism.tp_recompute_allgather"
    if found.switch(gathers) is False:
        found.leave_open(gathers, "write a framework with `keeps_gathers = on`")
    _rows(found)
    stage = found.whole("optimizer.zero_stage", least=0)
    engine = "parallelism.dp_engine"  # of forks
    if str(found.value(engine, "ddp")) != "ddp":
        reason = (
            f"`{found.value(engine)}` belongs to a fork, which also shards weights and gradients"
        )
        found.ask("layout.zero", reason, [f"--set layout.zero={one}" for one in (3, 2)], engine)
        found.value("parallelism.fsdp_reshard_after_forward")
    elif stage is not None and stage > 1:
        found.problem("optimizer.zero_stage", "nanotron has ZeRO 0 and 1")
    elif stage is not None:
        found.set("layout.zero", str(stage), "optimizer.zero_stage")
    _reductions(found, whole=stage == 1)


def _reductions(found: SettingCollector, *, whole: bool) -> None:
    """Read how gradients are reduced; *whole* is true if ZeRO 1 reduces all fp32 gradients
    at once.
    """
    bucket, wide = "model.ddp_bucket_cap_mb", "optimizer.accumulate_grad_in_fp32"
    sums = found.switch(wide) is not False and found.value("model.dtype") != "float32"
    size = found.whole(bucket)
    if whole and sums:
        why = "nanotron 0.4, trainer.py: ZeRO 1 with sums in fp32 runs without DDP"
        found.assume("overlap.gradients", "off", why)
        if size is not None:
            found.ignore(bucket, "gradients are one buffer, which is reduced after backward")
        return
    found.assume("overlap.gradients", "on", "nanotron 0.4, trainer.py: DDP")
    if size is not None:  # of gradients in 16 bits, which may be reduced in 32
        found.set("overlap.bucket", f"{digits(2 * size if sums else size)} MiB", bucket)


def _rows(found: SettingCollector) -> None:
    """Read the number of rows of the embedding tables: a multiple of the key and tp."""
    key, name = "model.make_vocab_size_divisible_by", "vocabulary_multiple"
    multiple, ranks = found.whole(key) or 1, found.whole("parallelism.tp") or 1
    words = found.whole("model.model_config.vocab_size") or 0
    if multiple == 1 and words % ranks:
        found.assume(f"layout.{name}", EXACT_ROWS, f"{_CONFIG}: the rows are a multiple of tp")
    elif key in found:
        found.copy(key, f"layout.{name}")


def _granularity(found: SettingCollector) -> None:
    """Read recomputation in the form of nanotron 0.3."""
    key = "parallelism.recompute_granularity"
    value = found.choice(key, "selective", "full") or "none"
    found.set_or_assume(key, "training.recompute", value, f"{_CONFIG}: recompute_layer is false")


def _precision(found: SettingCollector) -> None:
    """Read the precision: fp32 gradients with a master copy, or all in the model's type."""
    key, wide = "model.dtype", "optimizer.accumulate_grad_in_fp32"
    words = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "double": ""}
    if str(found.value(key)) in _EIGHT_BITS:
        answers = ("--use catalog.precisions.fp8_delayed", "--use catalog.precisions.bf16")
        found.ask("precision", f"`{found.value(key)}`: its recipe is not in the file", answers, key)
        found.switch(wide)  # a part of that recipe
        return
    kind = found.word(key, words) if key in found else "bf16"
    why = "" if key in found else "nanotron 0.4: dtype is bfloat16"
    if not kind:
        return
    if kind == "bf16" and found.switch(wide) is False:
        found.use("precisions.bf16_pure", wide, why)
        return
    found.use(f"precisions.{kind}", key if key in found else "", why)
    if kind == "fp16" and found.switch(wide):
        changes = {"gradients": "4 B", "reduction": "4 B", "optimizer": "12 B"}
        for name, value in changes.items():
            found.set(f"precision nanotron extends fp16.{name}", value, wide)
        found.assume("training.precision", "nanotron", "base recipe, changed by this file")


def _optimizer(found: SettingCollector) -> None:
    """Read the optimizer; the recipes assume the state of Adam."""
    factory = "optimizer.optimizer_factory.name"
    name = found.value(factory)
    if name is not None and str(name).lower() not in ("adam", "adamw"):
        why = f"precision recipes have the optimizer state of Adam, but the optimizer is {name}"
        answers = ("--use catalog.precisions.bf16", "--use catalog.precisions.bf16_sgd")
        found.ask("precision", why, answers, factory)


def _experts(found: SettingCollector, model: str) -> None:
    """Read the MoE layers, and the shared expert."""
    prefix = f"{_MODEL}moe_config."
    layers, total = found.value(f"{prefix}layers"), found.whole(f"{_MODEL}num_hidden_layers")
    key = f"{prefix}layers"
    if isinstance(layers, list) and layers not in ([-1], list(range(total or 0))):
        first = layers[0] if layers else 0
        if layers and isinstance(first, int) and layers == list(range(first, total or 0)):
            found.set(f"{model}.dense_first", str(first), key)
        else:
            found.problem(key, "only the first layers can be dense")
    if found.switch(f"{prefix}enable_shared_expert"):
        found.set(f"{model}.shared_experts", "1", f"{prefix}enable_shared_expert")
        width = found.whole(f"{prefix}shared_expert_intermediate_size")
        if width is not None:
            key = f"{prefix}shared_expert_intermediate_size"
            found.set(f"{model}.shared_ffn", digits(width), key)
    sends = f"{prefix}token_dispatcher_type"
    words = {"alltoall": "alltoall", "allgather": "allgather"}
    found.copy_word(sends, words, "routing.dispatcher")


@hookimpl
def importers() -> list[Importer]:
    """Return the importer of configurations of nanotron."""
    return [Nanotron()]
