"""A configuration of NeMo 1 for a study: the values of ``megatron_gpt_config.yaml`` that matter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parcost import ToolSettings
from parcost_formats.tools.jobs import Job, JobWriter, reasons_of, whole
from parcost_formats.tools.tables import table
from parcost_plugins.physics.run_choices import hides_gradients, hides_parameters, tensor_overlap

_TABLE = table("nemo")
_NEEDS = (
    "values of the model that cost nothing: model.rotary_base, model.layernorm_epsilon",
    "a tokenizer and data: model.tokenizer, model.data.data_prefix",
    "the run: trainer.max_steps, model.optim.lr, model.optim.sched, exp_manager",
)


class NeMoWriter(JobWriter):
    """Writes a YAML configuration."""

    name = "nemo"
    reader = "nemo"
    title = "NeMo 1.20 to 1.23"
    source = str(_TABLE["source"])
    suffix = ".yaml"
    reasons = reasons_of("nemo")

    def settings(self, job: Job, same: dict[str, str]) -> ToolSettings:
        """Return the configuration of a job."""
        nodes, each, _ = job.nodes()
        kind = {"bf16": "bf16", "fp16": "16"}.get(job.precision.compute, "32")
        trainer = {"num_nodes": nodes, "devices": each, "precision": kind}
        text = _yaml({"trainer": trainer, "model": _model(job, same)})
        return ToolSettings(text=text, same=same, needs=[*job.node_needs(), *_NEEDS])


def _model(job: Job, same: dict[str, str]) -> dict[str, Any]:
    model, values = job.model, dict[str, Any]()
    values["encoder_seq_length"] = job.sequence
    values["max_position_embeddings"] = model.positions or job.sequence
    values["position_embedding_type"] = "learned_absolute" if model.positions else "rope"
    values["micro_batch_size"] = job.micro_batch
    values["global_batch_size"] = job.batch
    for name, attribute in _TABLE["model"]["numbers"].items():
        number = whole(getattr(model, attribute))
        if name != "vocab_size" and (number or attribute == "vocabulary"):
            values[name] = number
    if not model.experts:
        for name in ("num_moe_experts", "moe_router_topk", "moe_ffn_hidden_size"):
            values.pop(name, None)
        same |= dict.fromkeys(("model.top_k", "model.expert_ffn"), "the model has no experts")
    if not model.kv_lora:
        for name in ("qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim"):
            values.pop(name, None)
    plain = "squared-relu" if model.squared_relu else "gelu"
    values["activation"] = "fast-swiglu" if model.gated else plain
    norms = {"rms": "rmsnorm", "layer": "layernorm"}
    values["normalization"] = norms[model.norm]
    values["bias"] = bool(model.biases)
    if model.qkv_biases:
        values["qkv_bias"] = True
    if model.qk_norm:
        values["qk_layernorm"] = True
    values["share_embeddings_and_output_weights"] = bool(model.tied)
    values["make_vocab_size_divisible_by"] = whole(job.layout.vocabulary_multiple)
    rate = 0.1 if job.training.dropout else 0.0
    values["hidden_dropout"] = values["attention_dropout"] = rate
    return {**values, **_layout(job), **_execution(job)}


def _layout(job: Job) -> dict[str, Any]:
    numbers, switches = _TABLE["layout"]["numbers"], _TABLE["layout"]["switches"]
    values: dict[str, Any] = {}
    for name, path in numbers.items():
        block, _, attribute = path.partition(".")
        number = whole(getattr(getattr(job, block), attribute))
        if name == "virtual_pipeline_model_parallel_size" and (job.pp == 1 or number == 1):
            continue
        if attribute in ("ep", "etp") and not job.model.experts:
            continue
        values[name] = number
    for name, path in switches.items():
        block, _, attribute = path.partition(".")
        if block == "layout" and job.tp > 1:
            values[name] = bool(getattr(job.layout, attribute))
        elif block == "schedule" and job.pp > 1 and getattr(job.schedule, attribute):
            values[name] = True
    return values


def _execution(job: Job) -> dict[str, Any]:
    values: dict[str, Any] = {}
    kind, recompute = job.training.recompute, job.recompute
    if kind != "none":
        values["activations_checkpoint_granularity"] = kind
    if kind == "full":
        values["activations_checkpoint_method"] = "block" if recompute.layers else "uniform"
        values["activations_checkpoint_num_layers"] = recompute.layers or 1
    if tensor_overlap(job.study) == "pipelined" and job.tp > 1:
        values["ub_tp_comm_overlap"] = True
    values["megatron_amp_O2"] = values["mcore_gpt"] = True
    values["transformer_engine"] = job.kernels.attention != "unfused"
    if job.precision.narrow == "fp8":
        values["fp8"] = True
        values["fp8_params"] = float(job.precision.weights) == 1.0
    optimizer: dict[str, Any] = {}
    if job.layout.zero:
        optimizer["name"] = "distributed_fused_adam"
        optimizer["overlap_param_sync"] = hides_parameters(job.study)
    else:
        optimizer["name"] = "fused_adam"
    optimizer["overlap_grad_sync"] = hides_gradients(job.study)
    if float(job.precision.reduction) == 2.0 and job.precision.compute == "bf16":
        optimizer["grad_sync_dtype"] = "bf16"
    values["optim"] = optimizer
    return values


def _yaml(values: Mapping[str, Any], margin: str = "") -> str:
    """Return values as YAML.

    >>> _yaml({"a": {"b": True, "c": "bf16"}})
    'a:\\n  b: true\\n  c: bf16\\n'
    """
    lines = ""
    for key, value in values.items():
        if isinstance(value, Mapping):
            lines += f"{margin}{key}:\n{_yaml(value, margin + '  ')}"
        else:
            shown = str(value).lower() if isinstance(value, bool) else str(value)
            lines += f"{margin}{key}: {shown}\n"
    return lines
