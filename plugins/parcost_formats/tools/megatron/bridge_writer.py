"""Recipes of Megatron-Bridge for a study, converted from its Megatron-LM flags.

An attribute of a recipe has the name of its flag, unless the table has another name. Sections are
the sections of ``ConfigContainer``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from parcost import ToolSettings, block_name
from parcost_formats.tools.jobs import Job, JobWriter, launcher, reasons_of, whole
from parcost_formats.tools.megatron.flags import PATTERNS
from parcost_formats.tools.megatron.writer import Flags, flags_of
from parcost_formats.tools.tables import table
from parcost_plugins.vocabulary import Cluster

_TABLE = table("megatron")
_BRIDGE = _TABLE["bridge"]
_SWITCHES = frozenset(_TABLE["switches"]["names"])
_SECTIONS = {
    "train": ("global_batch_size", "micro_batch_size"),
    "ddp": (
        *("use_distributed_optimizer", "overlap_grad_reduce", "overlap_param_gather"),
        *("grad_reduce_in_bf16", "ddp_bucket_size", "data_parallel_sharding_strategy"),
        *("ddp_average_in_collective", "no_check_for_nan_in_loss_and_grad"),
        *("use_megatron_fsdp", "num_distributed_optimizer_instances"),
    ),
    "optimizer": (
        *("use_precision_aware_optimizer", "main_grads_dtype", "main_params_dtype"),
        *("exp_avg_dtype", "exp_avg_sq_dtype", "optimizer", "optimizer_cpu_offload"),
        "optimizer_offload_fraction",
    ),
    "dist": ("use_tp_pp_dp_mapping",),
    "comm_overlap": ("tp_comm_overlap",),
    "mixed_precision": (
        *("fp8_param_gather", "first_last_layers_bf16", "fp8_dot_product_attention"),
        *("num_layers_at_start_in_bf16", "num_layers_at_end_in_bf16"),
    ),
}
#: Flags that the class of a model, the recipe of a precision or the checkpoints have.
_LEFT_OUT = ("group_query_attention", "ckpt_format", "fp8_recipe", "fp4_recipe", "bf16", "fp16")
_TYPES = {"fp32": "torch.float32", "bf16": "torch.bfloat16", "fp8": "torch.uint8"}
_NEEDS = (
    "a tokenizer and data: cfg.tokenizer, cfg.dataset",
    "the run: cfg.train.train_iters, cfg.optimizer.lr, cfg.scheduler, cfg.checkpoint",
)


class BridgeWriter(JobWriter):
    """Writes a recipe as a Python function."""

    name = "megatron_bridge"
    reader = "megatron"
    title = "Megatron-Bridge 0.4"
    source = str(_TABLE["source"])
    suffix = ".py"
    reasons = reasons_of("megatron", "megatron_bridge")

    def settings(self, job: Job, same: dict[str, str]) -> ToolSettings:
        """Return the recipe of a job."""
        text = _recipe(job, flags_of(job, same))
        return ToolSettings(text=text, same=same, needs=[*launcher(job), *_NEEDS])


def _recipe(job: Job, groups: Mapping[str, Flags]) -> str:
    label = block_name(job.model)
    known = {entry: name for name, entry in reversed(_BRIDGE["models"].items())}
    source = "" if job.changes(job.model) else known.get(label, "")
    cluster = job.study[Cluster]
    words = (label, "pretrain", f"{whole(cluster.devices)}gpu", block_name(cluster.device))
    name = "_".join(re.sub(r"\W", "_", word) for word in (*words, job.precision.compute))
    body = [
        "from megatron.bridge import AutoBridge",
        "from megatron.bridge.recipes.common import _pretrain_common",
        "from megatron.bridge.training.config import ConfigContainer",
        *("", "", f"def {name}_config() -> ConfigContainer:", "    cfg = _pretrain_common()"),
    ]
    model = groups["Model"]
    if source:
        provider = f'AutoBridge.from_hf_pretrained("{source}").to_megatron_provider'
        body.append(f"    cfg.model = {provider}(load_weights=False)")
    else:
        body[0] = "from megatron.bridge.models.gpt_provider import GPTModelProvider"
        body.append("    cfg.model = GPTModelProvider(")
        for flag, values in model.items():
            if flag not in _LEFT_OUT:
                attribute, value = _assignment(flag, values)
                body.append(f"        {attribute}={value},")
        body.append("    )")
    if recipe := _precision(job):
        body.append(f'    cfg.mixed_precision = "{recipe}"')
    others = [group for title, group in groups.items() if title != "Model"]
    flags = {flag: values for group in others for flag, values in group.items()}
    defaults = _BRIDGE["bases"]["_pretrain_common"]
    on = {path.rpartition(".")[2] for path, value in defaults.items() if value is True}
    for flag in sorted(on):  # what the common recipe switches on and this one does not
        if flag not in flags:
            flags[flag] = ["false"]
    if any(value.startswith("torch.") for one in flags.items() for value in [_assignment(*one)[1]]):
        body.insert(0, "import torch")
    for flag, values in flags.items():
        if flag in _LEFT_OUT or flag.endswith("_format"):
            continue
        attribute, value = _assignment(flag, values)
        body.append(f"    cfg.{_section(flag)}.{attribute} = {value}")
    return "\n".join([*body, f"    cfg.dataset.seq_length = {job.sequence}", "    return cfg", ""])


def _section(flag: str) -> str:
    return next((section for section, flags in _SECTIONS.items() if flag in flags), "model")


def _precision(job: Job) -> str:
    """Return the name of the mixed-precision recipe, if Megatron-Bridge has one for the job."""
    compute, narrow = job.precision.compute, job.precision.narrow
    recipe = job.recipe(list(_TABLE["recipes"].values())) if narrow != "none" else None
    word = next((k for k, v in _TABLE["recipes"].items() if v == recipe), None)
    for name, flags in _BRIDGE["precisions"].items():
        found = flags.get("fp8_recipe") or flags.get("fp4_recipe")
        if flags.get(compute) and found == word:
            return str(name)
    return ""


def _assignment(flag: str, values: Sequence[str]) -> tuple[str, str]:
    """Return the attribute for a flag, and its value as Python text.

    >>> _assignment("disable_bias_linear", []), _assignment("num_layers", ["8"])
    (('add_bias_linear', 'False'), ('num_layers', '8'))
    """
    renames = {new: old for old, new in _BRIDGE["renames"].items()}
    on = not values if flag in _SWITCHES else None
    if f"not {flag}" in renames:
        return renames[f"not {flag}"], str(values == ["false"])
    attribute = renames.get(flag, flag)
    if on is not None:
        return attribute, str(on)
    shown = [_python(flag, value) for value in values]
    several = flag in ("recompute_modules", "hierarchical_context_parallel_sizes")
    if flag == "window_size":
        return attribute, f"({', '.join(values[0].split(','))})"
    return attribute, f"[{', '.join(shown)}]" if several else shown[0]


def _python(flag: str, value: str) -> str:
    if flag.endswith("_dtype"):
        return _TYPES.get(value, f'"{value}"')
    if flag in PATTERNS or re.fullmatch(r"\d+(\.\d+)?", value):
        return value
    return f'"{value}"'
