"""The YAML of LLM Foundry: an MPT or Hugging Face model, under FSDP through Composer.

It describes the whole run except the device count, which its launcher sets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from parcost import Importer, ImportFile, Translation, hookimpl
from parcost_formats.tools.accelerate import read_strategy
from parcost_formats.tools.collector import AUTO, SettingCollector, digits, read_configuration
from parcost_formats.tools.file_importer import BY_HAND
from parcost_formats.tools.finetuning.adapters import BLOCK, read_adapters
from parcost_formats.tools.finetuning.trainer import narrow_states
from parcost_formats.tools.hub import ask_for_model, read_hub_model
from parcost_formats.tools.huggingface.families import TABLE as HUGGING_FACE
from parcost_formats.tools.interpolation import resolve
from parcost_formats.tools.job_importer import JobImporter
from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.tables import is_listed, table
from parcost_plugins.physics.neighbours import all_divisors

TOOL = "llm_foundry"
_VERSION = "LLM Foundry 0.22"
_COMPOSER = "Composer 0.32"
_UNEVEN = f"{_COMPOSER} runs the remainder as a smaller last micro-batch, which is not modeled"
_REENTRANT = "activation_checkpointing_reentrant is true"
#: Numbers of experts, which are 1 unless they are stated.
_EXPERTS = {
    "moe_num_experts": ("model mpt", "experts"),
    "moe_top_k": ("model mpt", "top_k"),
    "moe_world_size": ("layout", "ep"),
}
#: Keys of `config_overrides` that change no size.
_NO_SIZES = ("torch_dtype", "dtype", "max_position_embeddings", "attn_implementation")
_MODEL, _RECIPE = "model mpt", "precision composer extends bf16_fsdp"
_BATCH = re.compile(
    r"^[ \t]*(?:device_train_microbatch_size|global_train_batch_size)\s*:", re.MULTILINE
)
_LOADER = re.compile(r"^[ \t]*train_loader\s*:", re.MULTILINE)
_JOB = "parameters."  # of a run of MosaicML's platform
_METRICS = "model.use_train_metrics"
_EARLY = "mosaic_gpt"  # the model up to LLM Foundry 0.1
_ANSWERS = ("--use catalog.precisions.bf16_fsdp", "--use catalog.precisions.fp8_torchao")


class LlmFoundry(JobImporter):
    """Configurations of LLM Foundry."""

    name = TOOL

    def recognizes(self, name: str, text: str) -> bool:
        """Return whether the text is YAML with a batch and a data loader of LLM Foundry."""
        yaml = name.endswith((".yaml", ".yml"))
        return yaml and bool(_BATCH.search(text) and _LOADER.search(text))

    def read_file(self, file: ImportFile) -> Translation:
        """Return the settings of a configuration."""
        entries = read_configuration(file.name, file.text)
        found = SettingCollector(resolve(_flatten(entries)), table(TOOL))
        _framework(found)
        _model(found)
        _batch(found)
        _sharding(found)
        _precision(found)
        found.read_table({"model": _MODEL})
        if not found.has("training.model"):
            for attribute, default in table(TOOL)["defaults"].items():
                found.assume(
                    f"{_MODEL}.{attribute}", default["value"], f"{_VERSION}: {default['why']}"
                )
        return found.translation()


def _flatten(entries: Mapping[str, JsonEntry]) -> dict[str, JsonEntry]:
    """Return the entries of a job by the names of today.

    Run files of MosaicML have them in ``parameters``; the model of early 2023 has other names.
    """
    plain = {key.removeprefix(_JOB): entry for key, entry in entries.items()}
    kind = plain.get("model.name")
    if kind is None or kind.value != _EARLY:
        return plain
    norm = plain.pop("model.low_precision_layernorm", None)
    if norm is not None:
        word = "low_precision_layernorm" if norm.value is True else "layernorm"
        plain["model.norm_type"] = JsonEntry(word, norm.start, norm.end)
    return {table(TOOL)["early"].get(key, key): entry for key, entry in plain.items()}


def _framework(found: SettingCollector) -> None:
    """Use the framework of the release: up to 0.6 attention may run in a Triton kernel."""
    key = "model.attn_config.attn_impl"
    if found.value(key) == "triton":
        base = "fsdp_composer_2023"
        found.use(f"frameworks.{base}", key)
    else:
        base = "fsdp_composer"
        found.use(f"frameworks.{base}")
    if found.switch(_METRICS) is False:
        found.set(f"framework {base}.loss_metrics", "0", _METRICS)


def _model(found: SettingCollector) -> None:
    """Read an MPT model, or a Hugging Face model, and its loss."""
    found.copy_word("model.loss_fn", table(TOOL)["losses"], "training.loss")
    kind = str(found.value("model.name", "mpt_causal_lm"))
    if kind.startswith("hf_"):
        key = "model.pretrained_model_name_or_path"
        if _overrides(found):
            found.ignore(key, "its configuration is changed")
        elif key in found:
            read_hub_model(found, key, str(found.value(key)))
        else:
            ask_for_model(found, key)
        if read_adapters(found, table(TOOL)["peft"], key):
            why = f"{_VERSION}: a checkpoint is loaded in float32"
            found.assume(f"{BLOCK}.weights", "4 B", why)
        if kind != "hf_causal_lm":
            found.leave_open("model.name", "its layers are modeled as those of the checkpoint")
        return
    if adapters := found.keys_below("model.peft_config"):
        found.problem(adapters[0], f"adapters of `{kind}` are not supported")
    if kind not in ("mpt_causal_lm", _EARLY):
        message = f"`{kind}` is not supported; supported: mpt_causal_lm, hf_causal_lm"
        found.problem("model.name", message, BY_HAND)
        return
    rules = table(TOOL)
    hidden, ratio = found.whole("model.d_model") or 2048, found.value("model.expansion_ratio")
    if isinstance(ratio, int | float) and not isinstance(ratio, bool):
        found.set(f"{_MODEL}.ffn", digits(int(ratio * hidden)), "model.expansion_ratio")
    elif ratio is not None:
        found.problem("model.expansion_ratio", "a number is expected")
    norm = found.copy_word("model.norm_type", rules["norms"], f"{_MODEL}.norm")
    if norm is None and "model.norm_type" not in found:
        found.assume(f"{_MODEL}.norm", "layer", f"{_VERSION}: norm_type is low_precision_layernorm")
    key = "model.ffn_config.ffn_type"
    gated = found.word(key, rules["feed_forward"])
    if gated == "experts":
        _experts(found, str(found.value(key)))
    else:
        found.set_or_assume(
            key, f"{_MODEL}.gated", gated or "off", f"{_VERSION}: ffn_type is mptmlp"
        )
    _biases(found, norm or "layer")
    _attention(found)


def _overrides(found: SettingCollector) -> bool:
    """Ask for the values that override a Hugging Face configuration.

    Return whether sizes of the model may change.
    """
    prefix, changed = "model.config_overrides.", False
    for key in found.keys_below(prefix.rstrip(".")):
        name, value = key.removeprefix(prefix), found.value(key)
        if name in ("torch_dtype", "dtype") and "float32" not in str(value):
            reason = "it is the type of the weights, and of the moments of Adam"
            answers = [f"--use catalog.precisions.{one}" for one in ("bf16_pure", "bf16_fsdp")]
            found.ask("precision", reason, answers, key)
        elif value == {} or is_listed(name, [*_NO_SIZES, *HUGGING_FACE["ignored"]["keys"]]):
            found.ignore(key)
        else:
            reason = f"`{name}` is changed in addition to the name of a checkpoint"
            found.ask("model", reason, ["--use config.json"], key)
            changed = True
    return changed


def _experts(found: SettingCollector, kind: str) -> None:
    """Read the experts of MegaBlocks, which every layer has; *kind* is the class of the MLP."""
    section = "model.ffn_config."
    for name, (block, attribute) in _EXPERTS.items():
        found.assume(f"{block}.{attribute}", "1", f"{_VERSION}: {name} is 1")
    key = f"{section}mlp_type"
    gated = found.word(key, {"mlp": "off", "glu": "on"}) or "off"
    found.set_or_assume(key, f"{_MODEL}.gated", gated, f"{_VERSION}: mlp_type is mlp")
    key = f"{section}moe_capacity_factor"
    factor = found.value(key)
    if kind == "mb_moe" and isinstance(factor, int | float):
        found.set("routing.capacity_factor", str(factor), key)
    elif kind == "mb_moe":
        found.assume("routing.capacity_factor", "1", "MegaBlocks: moe_capacity_factor is 1")
    key = f"{section}moe_weight_parallelism"
    if found.value(key):
        found.problem(key, "experts whose weights are split over ranks are not modeled")


def _biases(found: SettingCollector, norm: str) -> None:
    """Read the biases; `no_bias` also removes the biases of norms."""
    none = found.switch("model.no_bias")
    if none is None:
        found.assume(f"{_MODEL}.biases", "on", f"{_VERSION}: no_bias is false")
    else:
        found.set(f"{_MODEL}.biases", "off" if none else "on", "model.no_bias")
        if none and norm == "layer":
            found.set(f"{_MODEL}.norm_weights", "1", "model.no_bias")
    if found.switch("model.attention_bias") and none:
        for name in ("qkv_biases", "output_bias"):
            found.set(f"{_MODEL}.{name}", "on", "model.attention_bias")


def _attention(found: SettingCollector) -> None:
    """Read the heads, the positions, and whether attention scores are written to memory."""
    prefix = "model.attn_config."
    key = f"{prefix}attn_type"
    groups = found.word(key, table(TOOL)["attention_types"])
    if groups:
        found.set(f"{_MODEL}.kv_heads", groups, key)
    learned, rows = found.switch("model.learned_pos_emb"), found.whole("max_seq_len")
    rows = found.whole("model.max_seq_len") or rows
    rotated = found.switch(f"{prefix}rope")
    if found.switch(f"{prefix}alibi") or rotated or learned is False:
        found.assume(f"{_MODEL}.positions", "0", f"{_VERSION}: ALiBi and RoPE replace learned ones")
    elif rows is not None:
        found.assume(f"{_MODEL}.positions", digits(rows), f"{_VERSION}: learned_pos_emb is true")
    found.copy_word(f"{prefix}attn_impl", table(TOOL)["attention"], "training.flash_attention")


def _batch(found: SettingCollector) -> None:
    """Read the batch and the devices; ask for the micro-batch if it is ``auto`` (the largest that
    fits).
    """
    if "max_seq_len" not in found and "model.max_seq_len" in found:
        found.copy("model.max_seq_len", "training.sequence")
    whole = found.whole("global_train_batch_size")
    each = found.whole("device_train_batch_size")
    if whole is not None:
        value, stated = f"{digits(whole)} sequences", "global_train_batch_size"
        found.set("training.global_batch", value, stated, remark=_UNEVEN)
    elif each is not None:
        value = f"({digits(each)} * layout.dp) sequences"
        found.set("training.global_batch", value, "device_train_batch_size", remark=_UNEVEN)
    ranks = next((one for one in ("compute.gpus", "gpu_num") if one in found), "")
    if ranks and (count := found.whole(ranks)) is not None:
        found.set("cluster.devices", digits(count), ranks)
        degree = found.whole("tp_config.tensor_parallel_degree") or 1
        if whole is not None and whole * degree % count == 0:
            each = whole * degree // count
    key = "device_train_microbatch_size"
    if found.value(key, AUTO) == AUTO:
        why = "`auto` is the largest that fits"
        found.ask(
            "training.micro_batch",
            why,
            ["--set training.micro_batch=1"],
            key if key in found else "",
        )
    elif (size := found.whole(key)) is not None:
        _set_micro_batch(found, key, size, each)


def _set_micro_batch(found: SettingCollector, key: str, size: int, batch: int | None) -> None:
    """Set the micro-batch; *batch* sequences per device run in as many micro-batches as needed."""
    found.set("training.micro_batch", digits(min(size, batch or size)), key, remark=_UNEVEN)
    if batch is None or size >= batch or batch % size == 0:
        return
    sizes = all_divisors(batch)
    near = [max(n for n in sizes if n < size), min(n for n in sizes if n > size)] if sizes else [1]
    why = f"{batch} sequences per device are not divisible by micro-batches of {size}: {_UNEVEN}"
    found.ask("training.micro_batch", why, [f"--set training.micro_batch={n}" for n in near], key)


def _sharding(found: SettingCollector) -> None:
    """Read the sharding of FSDP, and activation checkpointing."""
    key, recompute = "fsdp_config.sharding_strategy", "fsdp_config.activation_checkpointing"
    sharded = bool(found.keys_below("fsdp_config")) and found.value("fsdp_config") != {}
    if key in found:
        if read_strategy(found, key):
            answers = ["--set sharding.shard=8"]
            found.ask("sharding.shard", "a hybrid strategy shards within a group", answers, key)
    elif sharded:
        found.assume("layout.zero", "3", f"{_COMPOSER}: sharding_strategy is FULL_SHARD")
    else:
        found.assume(
            "layout.zero", "0", f"{_COMPOSER}: without fsdp_config, replicas hold the whole state"
        )
    on = found.switch(recompute)
    if on is None:
        found.assume("training.recompute", "none", f"{_COMPOSER}: no activation_checkpointing")
    else:
        found.set("training.recompute", "full" if on else "none", recompute)
    enters = found.switch(key := f"{recompute}_reentrant")
    if on and enters is None:
        found.assume("recompute.stops_early", "off", f"{_COMPOSER}: {_REENTRANT}")
    elif on:
        found.set("recompute.stops_early", "off" if enters else "on", key)


def _precision(found: SettingCollector) -> None:
    """Read the precision: fp32 shards, and the types that are gathered and reduced."""
    key, mixed = "precision", "fsdp_config.mixed_precision"
    kind = found.word(key, table(TOOL)["precisions"])
    sizes = found.word(mixed, {name: name for name in table(TOOL)["mixed"]}) or "default"
    optimizer = str(found.value("optimizer.name", "decoupled_adamw"))
    if optimizer not in table(TOOL)["optimizers"]["names"]:
        reason = (
            f"precision recipes have the optimizer state of Adam, but the optimizer is {optimizer}"
        )
        found.ask("precision", reason, _ANSWERS, "optimizer.name")
    if found.keys_below(mixed) not in ([], [mixed]):
        found.ask(
            "precision",
            "data types set by parameter name are not supported",
            _ANSWERS,
            found.keys_below(mixed)[0],
        )
    if key not in found:
        found.ask("precision", "the file has no `precision`", _ANSWERS)
        return
    if kind == "fp8":
        found.ask("precision", "its recipe is not in the file", _ANSWERS, key)
        return
    moments = table(TOOL)["optimizers"]["moments"].get(optimizer)
    if kind == "fp32":
        found.use("precisions.fp32", key)
        if moments is not None:
            narrow_states(found, moments, "optimizer.name")
        return
    if kind is None:
        return
    found.use("precisions.bf16_fsdp", key)
    gathered, reduced = table(TOOL)["mixed"][sizes]
    if mixed in found:
        found.set(f"{_RECIPE}.gather", gathered, mixed)
    why = f"{_COMPOSER}: mixed_precision is DEFAULT"
    found.set_or_assume(mixed, f"{_RECIPE}.reduction", reduced, why)
    if kind == "fp16":
        found.set(f"{_RECIPE}.compute", "fp16", key)
    if moments is not None:
        narrow_states(found, moments, "optimizer.name")
    found.assume("training.precision", "composer", "base recipe, changed by this file")


@hookimpl
def importers() -> list[Importer]:
    """Return the importer of configurations of LLM Foundry."""
    return [LlmFoundry()]
