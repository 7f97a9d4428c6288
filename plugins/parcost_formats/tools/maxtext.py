"""Configurations of MaxText: YAML of a run or of a model, and commands in a script.

A mesh has axes within a slice (``ici_*``) and between slices (``dcn_*``). Their products are the
degrees of the layout. Missing keys have their defaults in ``base.yml``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from parcost import Importer, ImportFile, ImportProblem, Translation, hookimpl
from parcost_formats.tools.collector import (
    SettingCollector,
    cost_reason,
    digits,
)
from parcost_formats.tools.command_keys import CommandKeys
from parcost_formats.tools.data_types import SIZES_WITH_FP16
from parcost_formats.tools.job_importer import JobImporter
from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.maxtext_command import is_command, read_command
from parcost_formats.tools.maxtext_layout import MaxTextLayout, read_layout
from parcost_formats.tools.maxtext_model import read_model, read_name
from parcost_formats.tools.tables import is_listed, table
from parcost_formats.tools.yaml_text import read_mapping

TOOL = "maxtext"
_TABLE = table(TOOL)
_MARK = re.compile(
    r"^(?:base_emb_dim|base_num_decoder_layers|per_device_batch_size|base_mlp_dim|"
    r"(?:ici|dcn)_\w+_parallelism|max_target_length|model_name|remat_policy)[ \t]*:",
    re.MULTILINE,
)
_FEWEST = 2  # of these keys tell a configuration of MaxText from others


class MaxText(JobImporter):
    """Configurations of MaxText."""

    name = TOOL

    def recognizes(self, name: str, text: str) -> bool:
        """Return whether a text has keys of MaxText, or a command that starts it."""
        if name.endswith((".yml", ".yaml")):
            return len(set(_MARK.findall(text))) >= _FEWEST
        return name.endswith((".sh", ".bash", ".txt")) and is_command(text)

    def read_file(self, file: ImportFile) -> Translation:
        """Return the settings of a configuration, with a model file of the same folder."""
        is_yaml = file.name.endswith((".yml", ".yaml"))
        read = CommandKeys(dict(read_mapping(file.text))) if is_yaml else read_command(file)
        entries, found = read.entries, SettingCollector(read.entries, _TABLE, read.assumed)
        problems = list(_reject(entries))
        if problems:
            return Translation(problems=problems)
        if not any(is_listed(key, _TABLE["marks"]["run"]) for key in entries):
            read_model(found)
            return found.translation()
        found.use("frameworks.maxtext", why=_why("the framework of this file"))
        layers = _model(found, file)
        layout = read_layout(found, layers)
        _batch(found, layout)
        _precision(found)
        _recompute(found)
        _rest(found)
        return found.translation()


def _why(fact: str) -> str:
    return f"{_TABLE['version']}: {fact}"


def _reject(entries: Mapping[str, JsonEntry]) -> Any:
    """Yield an error for each key that requests an unsupported job."""
    for key, entry in entries.items():
        if reason := cost_reason(key, entry.value, _TABLE["rejected"]):
            yield ImportProblem(message=f"`{key}`: {reason}", start=entry.start, end=entry.end)


def _model(found: SettingCollector, file: ImportFile) -> int | None:
    """Read the model by its name, its sizes, or its file; return its layer count."""
    name = found.value("model_name")
    if name in (None, "default"):
        if not any(key in found for key in _TABLE["marks"]["model"]):
            answers = ["--use catalog.models.llama31_8b", "--use MODEL.yml"]
            found.ask("model", "the file has neither model_name nor sizes of a model", answers)
            return None
        return read_model(found)
    return read_name(found, str(name), file.neighbor)


def _batch(found: SettingCollector, layout: MaxTextLayout) -> None:
    """Read the per-device batch; set the global batch and the micro-batch."""
    key, steps = "per_device_batch_size", found.whole("gradient_accumulation_steps") or 1
    each = found.number(key, 12.0)
    if each is not None:
        value = f"({each:g} * {steps} * cluster.devices) sequences"
        micro = Fraction(each) * layout.model_ranks / layout.micro_batches
        if micro.denominator != 1:
            message = f"{each:g} sequences of {layout.model_ranks} ranks are not whole sequences"
            if key in found:
                found.problem(key, message)
            return
        why = _why("per_device_batch_size is 12")
        found.set_or_assume(key, "training.global_batch", value, why)
        found.set_or_assume(key, "training.micro_batch", digits(int(micro)), why)
    length = found.copy("max_target_length", "training.sequence")
    if length is None and "max_target_length" not in found:
        found.assume("training.sequence", "2048", _why("max_target_length is 2048"))
    rate = found.number("dropout_rate", 0.0, most=1.0)
    if rate and found.switch("enable_dropout") is not False:
        found.set("training.dropout", "on", "dropout_rate")
    found.copy("num_vocab_tiling", "training.loss_chunks")


def _precision(found: SettingCollector) -> None:
    """Read the data types of products, weights, gradients and Adam's state."""
    narrow = found.value("quantization", "")
    if narrow not in ("", None, "None"):
        answers = ["--use catalog.precisions.fp8_delayed", "--use catalog.precisions.bf16_fsdp"]
        found.ask(
            "precision", f"there is no precision recipe for `{narrow}`", answers, "quantization"
        )
    compute = found.word("dtype", SIZES_WITH_FP16)
    weights = found.word("weight_dtype", SIZES_WITH_FP16) or "4 B"
    gradients = found.word("grad_dtype", SIZES_WITH_FP16) or "4 B"
    moment = weights
    if found.value("mu_dtype", "") not in ("", "None"):
        moment = found.word("mu_dtype", SIZES_WITH_FP16) or weights
    optimizer = f"{int(moment[0]) + int(weights[0])} B"
    if compute == "4 B":
        base, usual = "fp32", {"weights": "4 B", "gradients": "4 B", "optimizer": "8 B"}
    elif weights == "2 B":
        base, usual = "bf16_pure", {"weights": "2 B", "gradients": "2 B", "optimizer": "4 B"}
    else:
        base, usual = "bf16_fsdp", {"weights": "4 B", "gradients": "4 B", "optimizer": "8 B"}
    near = next((key for key in ("weight_dtype", "dtype") if key in found), "")
    why = _why("dtype is bfloat16; weight_dtype and grad_dtype are float32")
    found.use(f"precisions.{base}", near, "" if near else why)
    stated = {"weights": weights, "gradients": gradients, "optimizer": optimizer}
    block = f"precision maxtext extends {base}"
    for name, value in stated.items():
        if value != usual[name]:
            found.assume(f"{block}.{name}", value, _why("weight_dtype, grad_dtype and mu_dtype"))
    if found.has(f"{block}."):
        found.assume("training.precision", "maxtext", "base recipe, changed by this file")
    kind = str(found.value("opt_type", "adamw"))
    if kind not in ("adamw", "adam_pax"):
        reason = f"precision recipes have the optimizer state of Adam, but the optimizer is {kind}"
        found.ask("precision", reason, ["--use catalog.precisions.bf16_fsdp"], "opt_type")


def _recompute(found: SettingCollector) -> None:
    """Read which activations are recomputed in backward."""
    key, policies = "remat_policy", _TABLE["remat"]
    name = str(found.value(key, "full"))
    if name == "none":
        found.set("training.recompute", "none", key)
        return
    if name in policies:
        found.set_or_assume(key, "training.recompute", "full", _why("remat_policy is full"))
        for part in policies[name]:
            found.set(f"recompute.keep_{part}", "on", key)
    else:
        reason = _TABLE["remat_lacking"].get(name, "is unknown")
        answers = ["--set training.recompute=full", "--set training.recompute=none"]
        found.ask("training.recompute", f"`{name}` {reason}", answers, key)


def _rest(found: SettingCollector) -> None:
    """Read host offload, the attention kernel and experts."""
    for key, name in (
        ("optimizer_memory_host_offload", "optimizer"),
        ("parameter_memory_host_offload", "parameters"),
    ):
        if found.switch(key):
            found.set(f"offload.{name}", "1", key)
    if found.value("attention") == "dot_product":
        found.set("training.flash_attention", "off", "attention")
        for key in ("float32_qk_product", "float32_logits"):
            if found.switch(key):
                found.leave_open(key, "fp32 attention scores cannot be expressed in a spec")
    factor = _number_or_none(found.value("capacity_factor"))
    if "capacity_factor" in found and factor is None:
        found.problem("capacity_factor", "a number is expected")
    is_dense = found.switch("sparse_matmul") is False
    if factor is not None and factor > 0:
        found.set("routing.capacity_factor", f"{factor:g}", "capacity_factor")
    elif is_dense:
        reason = "without `capacity_factor`, every expert computes all tokens"
        found.problem("sparse_matmul", f"{reason}, which is not modeled")
    text = str(found.value("compile_topology", ""))
    match = re.fullmatch(r"(v[4-9][ep]?)-(\d{1,6})", text)
    known = _TABLE["topologies"].get(match[1]) if match else None
    if text and not known:
        answers = ["--set cluster.devices=64"]
        found.ask("cluster.devices", f"`{text[:40]}` is not known", answers, "compile_topology")
    elif match and known:
        count = int(match[2]) // known["counts"]
        slices = found.whole("compile_topology_num_slices") or 1
        found.set("cluster.devices", digits(count * slices), "compile_topology")
        found.use(f"devices.{known['device']}", "compile_topology")


def _number_or_none(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


@hookimpl
def importers() -> list[Importer]:
    """Return the importer of configurations of MaxText."""
    return [MaxText()]
