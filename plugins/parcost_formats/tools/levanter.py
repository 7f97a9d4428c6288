"""The YAML of levanter: a model and a trainer in JAX, sharded over a mesh of two axes.

It describes the whole run except the device count, which JAX detects.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from parcost import Importer, ImportFile, ImportProblem, Translation, hookimpl
from parcost_formats.tools.collector import SettingCollector, digits, read_configuration
from parcost_formats.tools.file_importer import FileError
from parcost_formats.tools.hub import find_entry, read_hub_model, vocabulary_of
from parcost_formats.tools.job_importer import JobImporter
from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.tables import is_listed, table

TOOL = "levanter"
_VERSION = "levanter 1.2"
_MODEL = "model levanter"
_TRAINER = "trainer."
_SIGNS = (
    re.compile(r"^trainer\s*:", re.MULTILINE),
    re.compile(
        r"^[ \t]+(?:train_batch_size|per_device_parallelism|num_train_steps)\s*:", re.MULTILINE
    ),
    re.compile(
        r"^[ \t]+(?:mp\s*:\s*[\"']?(?:p=|f32|bf)|fsdp_axis\s*:|model_axis_size\s*:|"
        r"axis_mapping\s*:|tensor_parallel_axes\s*:|mesh\s*:)",
        re.MULTILINE,
    ),
)
#: A section in a file of its own, such as the data.
_INCLUDE = re.compile(r"^([a-z_]+)\s*:\s*(!include\s+[\"']?([\w./-]+)[\"']?)", re.MULTILINE)
_AXES: Sequence[str] = table(TOOL)["axes"]["parameters"]
_ANSWERS = ("--use catalog.precisions.bf16_fsdp", "--use catalog.precisions.bf16_pure")


class Levanter(JobImporter):
    """Configurations of levanter."""

    name = TOOL

    def recognizes(self, name: str, text: str) -> bool:
        """Return whether the text is YAML with the trainer of levanter."""
        return name.endswith((".yaml", ".yml")) and all(sign.search(text) for sign in _SIGNS)

    def read_file(self, file: ImportFile) -> Translation:
        """Return the settings of a configuration, with files that it includes from its folder."""
        plain = _INCLUDE.sub(
            lambda match: match[0][: -len(match[2])] + " " * len(match[2]), file.text
        )
        entries = read_configuration(file.name, plain)
        inner: dict[str, JsonEntry] = {}
        problems = list(_include(file, inner))
        if problems:
            return Translation(problems=problems)
        found = SettingCollector({**entries, **inner}, table(TOOL))
        found.use("frameworks.maxtext", why=f"{_VERSION}: JAX and XLA, as MaxText")
        _reject(found)
        rules = _model(found)
        _batch(found, rules)
        _layout(found)
        _precision(found)
        _recompute(found)
        found.read_table({"model": _MODEL})
        return found.translation()


def _include(file: ImportFile, found: dict[str, JsonEntry]) -> Iterator[ImportProblem]:
    """Add the entries of included files to *found*, by dotted key; yield files that are not read.

    Only a section without effect on cost, such as the data, may be absent.
    """
    for match in _INCLUDE.finditer(file.text):
        section, name = match[1], match[3]
        start, end = match.span(2)
        text = file.neighbor(name)
        if text is None:
            if not is_listed(section, table(TOOL)["ignored"]["keys"]):
                yield ImportProblem(
                    message=f"`{section}`: the file `{name}` is not beside this one",
                    start=start,
                    end=end,
                    help="put it there, or write its section in this file",
                )
            continue
        try:
            inner = read_configuration(name, text)
        except FileError as error:
            line = text.count("\n", 0, error.start) + 1
            message = f"`{section}`: line {line} of `{name}` is not read: {error}"
            yield ImportProblem(message=message, start=start, end=end, help=error.help)
            continue
        for key, entry in inner.items():
            found[f"{section}.{key}"] = JsonEntry(entry.value, start, end)


def _reject(found: SettingCollector) -> None:
    for key, why in table(TOOL)["rejected"].items():
        for one in found.keys_below(key):
            if found.value(one) not in (None, False):
                found.problem(one, why)
                break


def _model(found: SettingCollector) -> Mapping[str, Any]:
    """Read the model; return the table of its class, with defaults."""
    kind = str(found.value("model.type", "gpt2"))
    rules: Mapping[str, Any] = table(TOOL)["models"].get(kind, {})
    start = found.value("initialize_from_hf")
    if start and found.switch("use_hf_model_config"):
        key = "model.reference_checkpoint" if start is True else "initialize_from_hf"
        name = found.value(key, rules.get("checkpoint", ""))
        if key in found:
            read_hub_model(found, key, str(name))
        elif entry := find_entry(str(name))[0]:
            why = f"{_VERSION}: reference_checkpoint of {kind} is {name}"
            found.use(f"models.{entry}", why=why)
            found.assume("training.model", entry, why)
        else:
            answers = ["--use config.json", "--use catalog.models.llama31_8b"]
            why = f"it is the default checkpoint of levanter for `{kind}`, which is unknown"
            found.ask("model", why, answers, "initialize_from_hf")
        return rules
    if not rules:
        key = "model.type"
        message = f"`{kind}` is not supported; supported: {', '.join(table(TOOL)['models'])}"
        found.problem(key if key in found else "model", message)
        return rules
    for attribute, value in rules["attributes"].items():
        found.assume(f"{_MODEL}.{attribute}", value, f"{_VERSION}: {kind}")
    for key, default in rules["sizes"].items():
        attribute = table(TOOL)["numbers"][f"model.{key}"].removeprefix("model.")
        if f"model.{key}" not in found:
            found.assume(f"{_MODEL}.{attribute}", digits(default), f"{_VERSION}: {kind}: {key}")
    if "kv_heads" in rules and "model.num_kv_heads" not in found:
        heads = rules["sizes"]["num_heads"]
        why = f"{_VERSION}: {kind}: num_kv_heads is {heads}"
        stated = found.whole("model.num_heads") or heads
        if stated % heads:  # no job of a release that has KV heads
            heads, why = stated, f"levanter 1.1: {kind} has no num_kv_heads"
        found.assume(f"{_MODEL}.kv_heads", str(heads), why)
    hidden = found.whole("model.hidden_dim") or rules["sizes"]["hidden_dim"]
    scale = found.number("model.mlp_scale", rules.get("scale", 0))
    if scale:
        found.assume(f"{_MODEL}.ffn", digits(int(scale * hidden)), f"{_VERSION}: mlp_scale {scale}")
    if rules.get("positions"):
        rows = found.whole("model.seq_len") or rules["length"]
        found.assume(f"{_MODEL}.positions", digits(rows), f"{_VERSION}: {kind}: learned positions")
    if found.switch("model.use_bias") is False and rules["attributes"]["norm"] == "layer":
        found.set(f"{_MODEL}.norm_weights", "1", "model.use_bias")
    for key, attribute in (("use_bias", "biases"), ("tie_word_embeddings", "tied")):
        found.copy_switch(f"model.{key}", f"{_MODEL}.{attribute}")
    _vocabulary(found)
    return rules


def _vocabulary(found: SettingCollector) -> None:
    """Set the vocabulary of a known tokenizer, or ask for it."""
    key = "data.tokenizer"
    size = vocabulary_of(str(found.value(key, "")))
    if size is not None:
        found.set(f"{_MODEL}.vocabulary", digits(size), key)
        return
    answers = ["--set model.vocabulary=50257", "--set model.vocabulary=128256"]
    found.ask(
        "model.vocabulary",
        "the vocabulary size depends on the tokenizer, which is not known",
        answers,
    )


def _batch(found: SettingCollector, rules: Mapping[str, Any]) -> None:
    """Read the batch; the whole batch is one micro-batch unless a per-device size is set."""
    key = f"{_TRAINER}train_batch_size"
    whole = "512"
    if isinstance(found.value(key), list):
        answer = "--set 'training.global_batch=512 sequences'"
        reason = "it is a schedule of batch sizes, but parcost evaluates one batch size"
        found.ask("training.global_batch", reason, [answer], key)
    else:
        whole, why = digits(found.whole(key) or 512), f"{_VERSION}: train_batch_size is 512"
        found.set_or_assume(key, "training.global_batch", f"{whole} sequences", why)
    key = f"{_TRAINER}per_device_parallelism"
    each = found.value(key)
    if each in (None, -1):
        why = f"{_VERSION}: per_device_parallelism is -1: the batch of a device is one micro-batch"
        found.assume("training.micro_batch", f"{whole} / layout.dp", why)
    elif (each := found.whole(key)) is not None:
        found.set("training.micro_batch", digits(each), key)
    start = found.value("initialize_from_hf") and found.switch("use_hf_model_config")
    keys = ("train_seq_len",) if start else ("train_seq_len", "model.seq_len")
    length = next((one for one in keys if one in found), "")
    if start and "model.seq_len" in found:
        found.ignore("model.seq_len", "with use_hf_model_config the model of the file is ignored")
    if length:
        found.copy(length, "training.sequence")
    elif start:
        reason = "it is the longest sequence of the checkpoint, max_position_embeddings"
        answers = [f"--set training.sequence={one}" for one in (4096, 8192)]
        found.ask("training.sequence", reason, answers, "use_hf_model_config")
    elif "length" in rules:
        why = f"{_VERSION}: seq_len is {rules['length']}"
        found.assume("training.sequence", str(rules["length"]), why)


def _layout(found: SettingCollector) -> None:
    """Read the mesh axes: one for data, which also shards parameters, and one for TP."""
    mesh = [one for one in found.keys_below("trainer.mesh") if found.value(one) is not None]
    if mesh:
        for attribute, answer in (("tp", "1"), ("zero", "3")):
            answers = [f"--set layout.{attribute}={answer}"]
            found.ask(f"layout.{attribute}", "axes of a `mesh` are not supported", answers, mesh[0])
        return
    for name in ("axis_resources", "parameter_axis_resources", "axis_mapping"):
        for key in found.keys_below(f"{_TRAINER}{name}")[:1]:
            if found.value(key) not in (None, {}):
                reason = "this axis mapping is not supported"
                found.ask("layout.tp", reason, ["--set layout.tp=1"], key)
    key, axes = f"{_TRAINER}model_axis_size", f"{_TRAINER}tensor_parallel_axes"
    size = found.whole(key) or 1
    if size > 1 and not found.value(axes):
        message = "without `tensor_parallel_axes` all ranks of this axis compute the same"
        found.problem(key, message, "set model_axis_size to 1, or name the axes")
    split = found.value(axes) or []
    strange = [one for one in (split if isinstance(split, list) else [split]) if one not in _AXES]
    if strange:
        answers = ["--set layout.tp=1", f"--set layout.tp={size}"]
        found.ask("layout.tp", f"axis `{str(strange[0])[:40]}` is not known", answers, axes)
    else:
        found.set_or_assume(key, "layout.tp", digits(size), f"{_VERSION}: model_axis_size is 1")
    for name in ("pp", "cp"):
        found.assume(f"layout.{name}", "1", f"{_VERSION}: the mesh has no such axis")
    key = f"{_TRAINER}fsdp_axis"
    if key in found:
        axes = found.value(key)
        strange = [one for one in (axes if isinstance(axes, list) else [axes]) if one not in _AXES]
        if strange:
            answers = ["--set layout.zero=3"]
            found.ask("layout.zero", f"axis `{strange[0]}` is not known", answers, key)
        else:
            found.set("layout.zero", "3", key)
    elif found.keys_below(key):  # null
        found.value(key)
        found.set("layout.zero", "0", key)
    else:
        found.assume("layout.zero", "3", f"{_VERSION}: fsdp_axis is embed")
    _replicas(found)


def _replicas(found: SettingCollector) -> None:
    copies = 1
    keys = [f"{_TRAINER}{name}" for name in ("replica_dcn_axis_size", "replica_ici_axis_size")]
    for key in keys:
        copies *= found.whole(key) or 1
    if copies > 1:
        key = next(one for one in keys if (found.whole(one) or 1) > 1)
        found.set("sharding.shard", f"layout.dp / {copies}", key)


def _precision(found: SettingCollector) -> None:
    """Read the data types, and the optimizer."""
    key, kinds = f"{_TRAINER}mp", table(TOOL)["precisions"]
    text = str(found.value(key, "f32")).replace(" ", "").lower()
    recipe = kinds.get(text)
    if "=" in text:
        parts = dict(one.partition("=")[::2] for one in text.split(","))
        weights = parts.get("p", parts.get("params", "f32"))
        products = parts.get("c", parts.get("compute", weights))
        known = {"p", "params", "c", "compute", "o", "output"}
        recipe = kinds.get(f"{weights} {products}") if parts.keys() <= known else None
    kind = str(found.value("optimizer.type", "adam")).lower()
    if kind not in table(TOOL)["optimizers"]["names"]:
        reason = f"precision recipes have the optimizer state of Adam, but the optimizer is {kind}"
        found.ask("precision", reason, _ANSWERS, "optimizer.type")
    if recipe is None:
        found.ask("precision", f"the policy `{text}` is unknown", _ANSWERS, key)
    elif key in found:
        found.use(f"precisions.{recipe}", key)
    else:
        found.use(f"precisions.{recipe}", why=f"{_VERSION}: mp is f32")


def _recompute(found: SettingCollector) -> None:
    """Read whether blocks are checkpointed, and whether attention scores are written to memory."""
    key = "model.gradient_checkpointing"
    value = found.value(key)
    if value is None:
        why = f"{_VERSION}: gradient_checkpointing is true: only the inputs of blocks are saved"
        found.assume("training.recompute", "full", why)
    elif str(value).lower() in ("true", "false", "full", "recompute"):
        word = "none" if str(value).lower() == "false" else "full"
        found.set("training.recompute", word, key)
    else:
        answers = [f"--set training.recompute={one}" for one in ("full", "selective", "none")]
        found.ask("training.recompute", f"`{value}` is not supported", answers, key)
    kernel = "model.attn_backend"
    if str(found.value(kernel)).lower() == "vanilla":
        found.set("training.flash_attention", "off", kernel)
    elif found.switch("model.use_flash_attention") is False:
        found.set("training.flash_attention", "off", "model.use_flash_attention")


@hookimpl
def importers() -> list[Importer]:
    """Return the importer of configurations of levanter."""
    return [Levanter()]
