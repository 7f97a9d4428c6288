"""The YAML of OLMo, the trainer before OLMo-core: a model under FSDP of PyTorch.

It describes the whole run except the device count, which its launcher sets.
"""

from __future__ import annotations

import re

from parcost import Importer, ImportFile, Translation, hookimpl
from parcost_formats.tools.accelerate import read_strategy
from parcost_formats.tools.collector import SettingCollector, digits, read_configuration
from parcost_formats.tools.interpolation import resolve
from parcost_formats.tools.job_importer import JobImporter
from parcost_formats.tools.tables import table

TOOL = "olmo"
_VERSION = "OLMo 0.6"
_MODEL, _RECIPE = "model olmo", "precision olmo extends bf16_fsdp"
_ANSWERS = ("--use catalog.precisions.bf16_fsdp", "--use catalog.precisions.fp32")
_BATCH = re.compile(r"^device_train_microbatch_size\s*:", re.MULTILINE)
_OTHERS = (
    r"save_interval_unsharded|save_num_unsharded_checkpoints_to_keep|sharded_checkpointer|mlp_ratio"
)
_OWN = re.compile(rf"^[ \t]*(?:{_OTHERS}|embedding_size|max_sequence_length)\s*:", re.MULTILINE)
_DROPOUTS = ("attention_dropout", "residual_dropout", "embedding_dropout")


class Olmo(JobImporter):
    """Configurations of OLMo."""

    name = TOOL

    def recognizes(self, name: str, text: str) -> bool:
        """Return whether the text is YAML with a micro-batch and other keys of OLMo."""
        yaml = name.endswith((".yaml", ".yml")) and "train_loader:" not in text
        return yaml and bool(_BATCH.search(text) and _OWN.search(text))

    def read_file(self, file: ImportFile) -> Translation:
        """Return the settings of a configuration."""
        entries = read_configuration(file.name, file.text)
        stated = {key: one for key, one in resolve(entries).items() if one.value is not None}
        empty = [key for key in entries if key not in stated]
        found = SettingCollector(stated, table(TOOL))
        fused = found.switch("model.flash_attention")
        framework = "pytorch_fsdp_flash" if fused else "pytorch_fsdp"
        found.use(f"frameworks.{framework}", why=f"{_VERSION}: FSDP of PyTorch")
        _model(found)
        _embeddings(found, without="model.embedding_size" in empty)
        _batch(found)
        _sharding(found, without="fsdp" in empty)
        _precision(found)
        _recompute(found)
        found.read_table({"model": _MODEL})
        found.assume_table(table(TOOL)["defaults"], {"model": _MODEL}, _VERSION)
        return found.translation()


def _state(found: SettingCollector, block: str, name: str, value: str, key: str) -> None:
    """Set an attribute from a key, or to its default without the key."""
    why = f"{_VERSION}: the default of {key.rpartition('.')[2]}"
    found.set_or_assume(key, f"{block}.{name}", value, why)


def _switch(found: SettingCollector, name: str, usual: bool) -> bool:
    """Return a switch of the model; *usual* is its default."""
    state = found.switch(f"model.{name}")
    return usual if state is None else state


def _model(found: SettingCollector) -> None:
    """Read the layers: MLP, norms, biases and attention."""
    gated = found.word("model.activation_type", table(TOOL)["activations"]) or "on"
    _state(found, _MODEL, "gated", gated, "model.activation_type")
    hidden = found.whole("model.d_model") or 768
    key, wide = "model.mlp_hidden_size", found.whole("model.mlp_hidden_size")
    if wide is None:
        key, wide = "model.mlp_ratio", (found.whole("model.mlp_ratio") or 4) * hidden
    # SwiGLU halves the outputs of one product.
    _state(found, _MODEL, "ffn", digits(wide // 2 if gated == "on" else wide), key)
    norm = found.word("model.layer_norm_type", table(TOOL)["norms"]) or "layer"
    _state(found, _MODEL, "norm", norm, "model.layer_norm_type")
    biases = _switch(found, "include_bias", usual=True)
    _state(found, _MODEL, "biases", "on" if biases else "off", "model.include_bias")
    if not _switch(found, "layer_norm_with_affine", usual=True):
        found.set(f"{_MODEL}.norm_weights", "0", "model.layer_norm_with_affine")
    elif norm == "layer" and not _switch(found, "bias_for_layer_norm", usual=biases):
        _state(found, _MODEL, "norm_weights", "1", "model.bias_for_layer_norm")
    if _switch(found, "attention_layer_norm", usual=False):
        found.set(f"{_MODEL}.qk_norm", "on", "model.attention_layer_norm")
        found.set(f"{_MODEL}.qk_norm_whole", "on", "model.attention_layer_norm")
    if _switch(found, "multi_query_attention", usual=False):
        found.set(f"{_MODEL}.kv_heads", "1", "model.multi_query_attention")
    if found.word("model.block_type", table(TOOL)["blocks"]) == "parallel":
        found.set(f"{_MODEL}.parallel_residual", "on", "model.block_type")
    rates = [found.number(f"model.{one}", 0.1, most=1.0) for one in _DROPOUTS]
    drops = [f"model.{one}" for one, rate in zip(_DROPOUTS, rates, strict=True) if rate]
    key = (drops or [f"model.{_DROPOUTS[0]}"])[0]
    _state(found, "training", "dropout", "on" if drops else "off", key)


def _embeddings(found: SettingCollector, *, without: bool) -> None:
    """Read the rows of the embedding and the positions; *without* is true if `embedding_size` is
    null.
    """
    rows = found.whole("model.embedding_size")
    if rows is not None:
        found.set(f"{_MODEL}.vocabulary", digits(rows), "model.embedding_size")
    elif without and found.whole("model.vocab_size") is not None:
        size = found.whole("model.vocab_size") or 1
        found.set(f"{_MODEL}.vocabulary", digits(size), "model.vocab_size")
    else:
        found.assume(f"{_MODEL}.vocabulary", "50_304", f"{_VERSION}: embedding_size is 50,304")
    length, key = found.whole("model.max_sequence_length") or 1024, "model.max_sequence_length"
    if _switch(found, "alibi", usual=False):
        found.set(f"{_MODEL}.alibi", "on", "model.alibi")
    elif not _switch(found, "rope", usual=False):
        _state(found, _MODEL, "positions", digits(length), key)


def _batch(found: SettingCollector) -> None:
    """Read the batch of a step."""
    key = "global_train_batch_size"
    whole = found.whole(key) or 512
    _state(found, "training", "global_batch", f"{digits(whole)} sequences", key)


def _sharding(found: SettingCollector, *, without: bool) -> None:
    """Read the strategy of data parallelism, and the shard group of FSDP."""
    kind, key = found.value("distributed_strategy"), "fsdp.sharding_strategy"
    if kind == "ddp":
        found.set("layout.zero", "0", "distributed_strategy")
    elif kind == "single" or without:
        found.ask("layout.zero", "the run has no FSDP", ["--set layout.zero=0"])
    elif key not in found:
        found.assume("layout.zero", "3", f"{_VERSION}: sharding_strategy is FULL_SHARD")
    else:
        hybrid = read_strategy(found, key)
        copies, group = "fsdp.hybrid_sharding_num_model_replicas", "sharding.shard"
        number = found.whole(copies)
        if hybrid and number is not None:
            found.set("sharding.shard", f"layout.dp / {number}", copies)
        elif hybrid:
            why = "a hybrid strategy shards within a node, but the file does not state its size"
            found.ask(group, why, [f"--set {group}=8"], key)
    if found.value("fsdp.wrapping_strategy") is None and kind != "ddp":
        why = "without a wrapping strategy all layers are gathered at once, which is not supported"
        found.ask("layout.zero", why, ["--set layout.zero=3"])


def _precision(found: SettingCollector) -> None:
    """Read the types, under FSDP: fp32 shards, gathered in 16 bits."""
    key, mixed = "precision", "fsdp.precision"
    kind = found.word(key, table(TOOL)["precisions"])
    optimizer = str(found.value("optimizer.name", "lionw"))
    if optimizer != "adamw":
        reason = (
            f"precision recipes have the optimizer state of Adam, but the optimizer is {optimizer}"
        )
        place = "optimizer.name" if "optimizer.name" in found else ""
        found.ask("precision", reason, _ANSWERS, place)
    elif kind == "fp32":
        found.use("precisions.fp32", key)
    elif kind is None or found.value("distributed_strategy") == "ddp":
        why = (
            "data types of DDP with autocast are not supported"
            if kind
            else "the file has no `precision`"
        )
        found.ask("precision", why, _ANSWERS, key if key in found else "")
    else:
        found.use("precisions.bf16_fsdp", key)
        reduced = found.word(mixed, table(TOOL)["mixed"]) or "2 B"
        _state(found, _RECIPE, "reduction", reduced, mixed)
        if kind == "fp16":
            found.set(f"{_RECIPE}.compute", "fp16", key)
        found.assume("training.precision", "olmo", "base recipe, changed by this file")


def _recompute(found: SettingCollector) -> None:
    """Read which blocks are recomputed, the loss, and whether the model is compiled."""
    key = "activation_checkpointing"
    strategy = str(found.value(key, ""))
    every = table(TOOL)["every"].get(strategy)
    if not strategy:
        found.assume("training.recompute", "none", f"{_VERSION}: no {key}")
    elif every is None:
        answers = [f"--set training.recompute={one}" for one in ("full", "selective", "none")]
        found.ask("training.recompute", f"`{strategy}` is not modeled", answers, key)
    else:
        found.set("training.recompute", "full", key)
        if every > 1:
            found.set("recompute.every", digits(every), key)
    if found.switch("fused_loss"):  # a kernel of flash-attn
        found.set("training.loss", "logits", "fused_loss")
    if found.value("compile") not in (None, {}):
        found.problem("compile", "a mapping of options is expected")
    if compiler := found.keys_below("compile"):
        plain = [one for one in compiler if one not in table(TOOL)["costs"]]
        key, why = plain[0] if plain else "", f"{_VERSION}: the file has `compile`"
        found.set_or_assume(key, "kernels.mode", "compiled", why)


@hookimpl
def importers() -> list[Importer]:
    """Return the importer of configurations of OLMo."""
    return [Olmo()]
