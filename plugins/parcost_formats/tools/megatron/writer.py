"""Arguments of Megatron-LM for a study: the reverse of the importer.

All flags are written, even those with the default of Megatron-LM, so that a script describes the
whole job. Words and numbers are converted by the same table as in the importer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote

from parcost import ToolSettings, block_name
from parcost_formats.tools.collector import SettingCollector
from parcost_formats.tools.drafts import Draft, Option
from parcost_formats.tools.jobs import Job, JobError, JobWriter, reasons_of, whole, word_of
from parcost_formats.tools.megatron.stage_text import stage_text
from parcost_formats.tools.megatron.stops import check_stops
from parcost_formats.tools.tables import table
from parcost_plugins.physics.partition import must_divide
from parcost_plugins.physics.run_choices import (
    blocks_on_transfers,
    checks_gradients,
    fuses_accumulation,
    gradient_average,
    hides_gradients,
    hides_parameters,
    tensor_overlap,
)
from parcost_plugins.vocabulary import Model

#: Flags with their values, by name; a switch has none.
Flags = dict[str, Sequence[str]]

_TABLE = table("megatron")
_WORDS = _TABLE["words"]
_STATE = {4: "fp32", 2: "bf16", 1: "fp8"}  # types of the optimizer's state by their bytes
_NEEDS = (
    "values of the model that cost nothing: --rotary-base, --norm-epsilon, --init-method-std",
    "a tokenizer: --tokenizer-type and --tokenizer-model",
    "data: --data-path, or --mock-data",
    "the run: --train-iters or --train-samples, --lr, --min-lr, --lr-decay-style, --clip-grad",
    "checkpoints: --save, --load, --save-interval",
)


class MegatronWriter(JobWriter):
    """Writes a script that starts Megatron-LM by torchrun."""

    name = "megatron"
    reader = "megatron"
    title = "Megatron-LM core 0.15 to 0.20"
    source = str(_TABLE["source"])
    suffix = ".sh"
    reasons = reasons_of("megatron")

    def settings(self, job: Job, same: dict[str, str]) -> ToolSettings:
        """Return the script of a job."""
        groups = flags_of(job, same)
        _check_stops(groups)
        text = _script(job, groups)
        return ToolSettings(text=text, same=same, needs=list(needs_of(job)))


def flags_of(job: Job, same: dict[str, str]) -> Mapping[str, Flags]:
    """Return the flags of a job by topic; add the reasons for omitted settings to *same*."""
    return {
        "Model": _model(job, same),
        "Layout": {**_layout(job, same), **_schedule(job, same)},
        "Precision": _precision(job),
        "Batch": _batch(job),
        "Memory and overlap": {
            **_recompute(job),
            **_overlap(job, same),
            **_offload(job),
            **_kernels(job, same),
        },
    }


def _check_stops(groups: Mapping[str, Flags]) -> None:
    """Raise an error if Megatron-LM rejects the flags."""
    draft = Draft()
    options = {
        name: Option(name=name, key=f"--{name.replace('_', '-')}", texts=tuple(values))
        for flags in groups.values()
        for name, values in flags.items()
    }
    check_stops(SettingCollector(options, draft=draft), ())
    for problem in draft.problems[:1]:
        raise JobError("training.framework", problem.message, problem.help)


def needs_of(job: Job) -> Iterator[str]:
    """Yield the arguments that a user has to add."""
    yield from _NEEDS
    nodes, _, known = job.nodes()
    if nodes > 1:
        yield "the rendezvous of the nodes: --rdzv-endpoint, or --node-rank and --master-addr"
    if not known:
        yield "--nproc-per-node: the fabric of the spec has no nodes, so check it"


def _script(job: Job, groups: Mapping[str, Flags]) -> str:
    lines = ["#!/usr/bin/env bash", "ARGS=("]
    for title, flags in groups.items():
        lines.append(f"  # {title}")
        for name, values in flags.items():
            words = [f"--{name.replace('_', '-')}", *map(quote, values)]
            lines.append(f"  {' '.join(words)}")
    nodes, each, _ = job.nodes()
    launcher = f"torchrun --nnodes {nodes} --nproc-per-node {each}"
    return "\n".join([*lines, ")", f'{launcher} pretrain_gpt.py "${{ARGS[@]}}" "$@"', ""])


def _value(job: Job, path: str) -> int:
    block, _, name = path.partition(".")
    return whole(getattr(getattr(job, block), name))


def _model(job: Job, same: dict[str, str]) -> Flags:
    model, flags = job.model, Flags()
    for name, path in _TABLE["numbers"]["model"].items():
        value = _value(job, path)
        if value or name != "mtp_num_layers":
            flags[name] = [str(value)]
    flags["ffn_hidden_size"] = [str(whole(model.ffn))]
    if model.gated:
        flags["swiglu"] = []
    elif model.squared_relu:
        flags["squared_relu"] = []
    if model.kv_lora:
        flags["multi_latent_attention"] = []
        for name, path in _TABLE["numbers"]["latent"].items():
            if value := _value(job, path):
                flags[name] = [str(value)]
        for name in ("kv_heads", "head_dim", "qk_norm"):
            same[f"model.{name}"] = "compressed keys and values have sizes and norms of their own"
    else:
        if whole(model.kv_heads) != whole(model.heads):
            flags["group_query_attention"] = []
            flags["num_query_groups"] = [str(whole(model.kv_heads))]
        flags["kv_channels"] = [str(whole(model.head_dim))]
        if model.qk_norm:
            flags["qk_layernorm"] = []
    flags["vocab_size"] = [str(whole(model.vocabulary))]
    flags["make_vocab_size_divisible_by"] = [str(whole(job.layout.vocabulary_multiple))]
    flags["normalization"] = [_word("normalization", model.norm, "model.norm")]
    if not model.biases:
        flags["disable_bias_linear"] = []
        if model.qkv_biases:
            flags["add_qkv_bias"] = []
    if not model.tied:
        flags["untie_embeddings_and_output_weights"] = []
    kind = "learned_absolute" if model.positions else "rope"
    flags["position_embedding_type"] = [kind]
    flags["max_position_embeddings"] = [str(model.positions or job.sequence)]
    if model.window:
        flags["window_size"] = [f"{model.window - 1},0"]
        if model.full_every or model.full_layers:
            flags["window_attn_skip_freq"] = [_full_layers(model)]
    if model.delta_heads:
        flags["experimental_attention_variant"] = ["gated_delta_net"]
        for name, path in _TABLE["numbers"]["delta_net"].items():
            flags[name] = [str(_value(job, path))]
        flags["linear_attention_freq"] = [_full_layers(model)]
    if model.output_gate:
        flags["attention_output_gate"] = []
    if model.sinks:
        flags["softmax_type"] = ["learnable"]
    if model.experts:
        flags |= _experts(job, same)
    else:
        same |= dict.fromkeys(("model.top_k", "model.expert_ffn"), "the model has no experts")
    return flags


def _full_layers(model: Model) -> str:
    """Return the interval of layers with full attention, or a list of 0 for them, 1 for others."""
    if model.full_every:
        return str(model.full_every)
    if not model.full_layers:
        return f"[1]*{model.layers}"
    return str([int(layer not in model.full_layers) for layer in range(model.layers)])


def _experts(job: Job, same: dict[str, str]) -> Flags:
    model, routing, flags = job.model, job.routing, Flags()
    flags["num_experts"] = [str(model.experts)]
    flags["moe_router_topk"] = [str(whole(model.top_k))]
    flags["moe_ffn_hidden_size"] = [str(whole(model.expert_ffn))]
    if model.dense_first or model.moe_every > 1:
        turn = [0] * (model.moe_every - 1) + [1]
        count = (model.layers - model.dense_first) // model.moe_every
        rest = model.layers - model.dense_first - count * model.moe_every
        flags["moe_layer_freq"] = [f"([0]*{model.dense_first}+{turn}*{count}+[0]*{rest})"]
    if model.shared_experts:
        width = model.shared_experts * whole(model.shared_ffn)
        flags["moe_shared_expert_intermediate_size"] = [str(width)]
        for name in ("shared_experts", "shared_ffn"):
            same[f"model.{name}"] = "one shared expert of the width of all"
        if model.shared_gate:
            flags["moe_shared_expert_gate"] = []
    if model.router_bias:
        flags["moe_router_enable_expert_bias"] = []
    if job.dispatcher in _WORDS["moe_flex_dispatcher_backend"].values():
        flags["moe_token_dispatcher_type"] = ["flex"]
        flags["moe_flex_dispatcher_backend"] = [job.dispatcher]
    else:
        flags["moe_token_dispatcher_type"] = [
            _word("moe_token_dispatcher_type", job.dispatcher, "routing.dispatcher")
        ]
    for name in ("deepep", "hybridep"):
        if job.states(routing, f"{name}_multiprocessors"):
            value = whole(getattr(routing, f"{name}_multiprocessors"))
            flags[f"moe_{name}_num_sms"] = [str(value)]
    if routing.capacity_factor is not None:
        flags["moe_expert_capacity_factor"] = [f"{float(routing.capacity_factor):.17g}"]
        flags["moe_pad_expert_input_to_capacity"] = []
    if routing.hide == "pair":
        flags["overlap_moe_expert_parallel_comm"] = []
    elif routing.hide == "shared_experts":
        flags["moe_shared_expert_overlap"] = []
    grouped = job.kernels.grouped_experts
    if job.framework.grouped_experts if grouped is None else grouped:
        flags["moe_grouped_gemm"] = []
    return flags


def _layout(job: Job, same: dict[str, str]) -> Flags:
    layout, flags = job.layout, Flags()
    for name, path in _TABLE["numbers"]["layout"].items():
        flags[name] = [str(_value(job, path))]
    if job.model.experts:
        flags["expert_tensor_parallel_size"] = [str(job.etp)]
    if layout.sequence_parallel and job.tp > 1:
        flags["sequence_parallel"] = []
    if layout.order == "tp-cp-pp-dp":
        flags["use_tp_pp_dp_mapping"] = []
    if layout.zero:
        flags["use_distributed_optimizer"] = []
        groups = job.dp * job.cp // job.state_ranks
        if groups > 1:
            flags["num_distributed_optimizer_instances"] = [str(groups)]
    if layout.zero > 1:
        flags["use_megatron_fsdp"] = []
        word = _word("data_parallel_sharding_strategy", str(layout.zero), "layout.zero")
        flags["data_parallel_sharding_strategy"] = [word]
        flags["ckpt_format"] = ["fsdp_dtensor"]
        flags["no_gradient_accumulation_fusion"] = []
    if layout.zero < 2:
        same["sharding.accumulate"] = "gradients are not sharded"
    if layout.zero < 3:
        same |= dict.fromkeys(("sharding.reshard", "sharding.prefetch"), "parameters stay whole")
    if job.cp > 1:
        kind = job.context_algorithm
        flags["cp_comm_type"] = [_word("cp_comm_type", kind, "context.algorithm")]
        if kind == "hybrid":
            inner = whole(job.context.ulysses)
            flags["hierarchical_context_parallel_sizes"] = [str(inner), str(job.cp // inner)]
    return flags


def _schedule(job: Job, same: dict[str, str]) -> Flags:
    choice, flags = job.schedule, Flags()
    if job.pp == 1:
        return flags
    stages = job.stages
    dealt_evenly = len(set(stages)) == 1 and not choice.stages
    counted = (choice.count_embedding or choice.count_head) and not choice.stages
    if counted and not choice.assignment and must_divide(job.study):
        for name, word in (("embedding", "embedding"), ("head", "loss")):
            if getattr(choice, f"count_{name}"):
                flags[f"account_for_{word}_in_pipeline_split"] = []
    elif not dealt_evenly or job.model.prediction_layers:
        flags["pipeline_model_parallel_layout"] = [stage_text(stages, job.model.prediction_layers)]
        for name in ("assignment", "stages", "count_embedding", "count_head"):
            same[f"schedule.{name}"] = "layers of the stages are written out"
    if dealt_evenly:
        same["schedule.assignment"] = "all stages have as many layers"
    if choice.kind == "interleaved" and choice.chunks > 1:
        if "pipeline_model_parallel_layout" not in flags:
            flags["num_virtual_stages_per_pipeline_rank"] = [str(choice.chunks)]
        if choice.group != job.pp:
            flags["microbatch_group_size_per_virtual_pipeline_stage"] = [str(choice.group)]
        if blocks_on_transfers(job.study):
            flags["no_overlap_p2p_communication"] = []
    elif choice.kind == "interleaved":
        same["schedule.kind"] = "one chunk per device means no interleaving"
    return flags


def _precision(job: Job) -> Flags:
    precision, flags = job.precision, Flags()
    if precision.compute in ("bf16", "fp16"):
        flags[precision.compute] = []
    recipe = job.recipe(list(_TABLE["recipes"].values())) or ""
    narrow = precision.narrow
    if narrow != "none":
        word = next((k for k, v in _TABLE["recipes"].items() if v == recipe), "")
        word = word or ("delayed" if narrow == "fp8" else "nvfp4")
        kind = {"fp8": "hybrid", "fp4": "e2m1"}[narrow]
        flags[f"{narrow}_format"] = [kind]
        flags[f"{narrow}_recipe"] = [word]
        gathers = _TABLE["gathers"].get(_TABLE["recipes"][word])
        if gathers and f"{float(precision.weights):g} B" == gathers["weights"]:
            flags["fp8_param_gather"] = []
        if precision.wide_first or precision.wide_last:
            flags["first_last_layers_bf16"] = []
            flags["num_layers_at_start_in_bf16"] = [str(precision.wide_first)]
            flags["num_layers_at_end_in_bf16"] = [str(precision.wide_last)]
        if precision.wide_weight_gradients:
            flags["no_fp8_wgrad"] = []
        if precision.narrow_attention:
            flags["fp8_dot_product_attention"] = []
    return {**flags, **_state(job)}


def _state(job: Job) -> Flags:
    """Return the flags for the data types of gradients and optimizer state."""
    precision, flags = job.precision, Flags()
    gradients, optimizer = float(precision.gradients), float(precision.optimizer)
    if precision.compute == "fp16":
        if gradients == 4.0:
            flags["accumulate_allreduce_grads_in_fp32"] = []
        return flags
    if precision.compute != "bf16":
        return flags
    if float(precision.reduction) == 2.0:
        flags["grad_reduce_in_bf16"] = []
    if block_name(precision) == "bf16_sgd":
        flags["optimizer"] = ["sgd"]
    elif optimizer != 12.0 and float(precision.weights) <= 2.0:
        for first, second in ((2, 2), (4, 2), (2, 1), (1, 1)):
            if 4 + first + second == optimizer:
                flags["use_precision_aware_optimizer"] = []
                flags["main_grads_dtype"] = [_STATE.get(whole(gradients), "fp32")]
                flags["main_params_dtype"] = ["fp32"]
                flags["exp_avg_dtype"] = [_STATE[first]]
                flags["exp_avg_sq_dtype"] = [_STATE[second]]
                break
    return flags


def _batch(job: Job) -> Flags:
    flags: Flags = {
        "seq_length": [str(job.sequence)],
        "micro_batch_size": [str(job.micro_batch)],
        "global_batch_size": [str(job.batch)],
    }
    rate = "0.1" if job.training.dropout else "0.0"
    flags["hidden_dropout"] = flags["attention_dropout"] = [rate]
    return flags


def _recompute(job: Job) -> Flags:
    recompute, flags = job.recompute, Flags()
    kind = job.training.recompute
    if kind == "full":
        flags["recompute_granularity"] = ["full"]
        flags["recompute_method"] = ["block" if recompute.layers else "uniform"]
        flags["recompute_num_layers"] = [str(recompute.layers or 1)]
        return flags
    modules = [
        word
        for word, path in _TABLE["modules"].items()
        if path and getattr(recompute, path.partition(".")[2])
    ]
    if kind == "selective":
        modules.insert(0, "core_attn")
    if modules:
        flags["recompute_granularity"] = ["selective"]
        flags["recompute_modules"] = modules
    return flags


def _overlap(job: Job, same: dict[str, str]) -> Flags:
    flags = Flags()
    if hides_gradients(job.study):
        flags["overlap_grad_reduce"] = []
        if job.overlap.bucket is not None and job.states(job.overlap, "bucket"):
            width = 2.0 if "grad_reduce_in_bf16" in _state(job) else 4.0
            elements = job.number("overlap.bucket", job.overlap.bucket / width)
            flags["ddp_bucket_size"] = [str(elements)]
    if job.layout.zero and hides_parameters(job.study):
        flags["overlap_param_gather"] = []
        if job.overlap.gather_start == "arrival":
            flags["no_align_param_gather"] = []
    if job.layout.zero < 2:
        if gradient_average(job.study) != "scaled":
            flags["ddp_average_in_collective"] = []
        if not checks_gradients(job.study):
            flags["no_check_for_nan_in_loss_and_grad"] = []
    if tensor_overlap(job.study) == "pipelined" and job.tp > 1:
        flags["tp_comm_overlap"] = []
        same["overlap.chunks"] = "as many chunks as ranks"
    return flags


def _offload(job: Job) -> Flags:
    offload, flags = job.offload, Flags()
    if whole(offload.layers):
        flags["cpu_offloading_num_layers"] = [str(whole(offload.layers))]
    if float(offload.optimizer):
        flags["optimizer_cpu_offload"] = []
        if "use_precision_aware_optimizer" not in _state(job):
            flags["use_precision_aware_optimizer"] = []
        flags["optimizer_offload_fraction"] = [f"{float(offload.optimizer):.17g}"]
    return flags


def _kernels(job: Job, same: dict[str, str]) -> Flags:
    flags = Flags()
    if job.attention != "auto":
        version = job.attention.removeprefix("flash_")
        if version != job.attention:
            flags["attention_backend"] = ["flash"]
            flags["flash_attention_version"] = [version]
        else:
            flags["attention_backend"] = [
                _word("attention_backend", job.attention, "kernels.attention")
            ]
        if job.attention == "unfused":
            why = "`kernels { attention = unfused }` is the same"
            same |= dict.fromkeys(("training.flash_attention", "kernels.attention"), why)
    if job.graphs != "none":
        flags["cuda_graph_impl"] = ["local"]
        scope = "full_iteration" if job.graphs == "iteration" else "full"
        flags["cuda_graph_scope"] = [scope]
    if not fuses_accumulation(job.study):
        flags["no_gradient_accumulation_fusion"] = []
    if job.loss == "gradient":
        flags["cross_entropy_loss_fusion"] = []
        flags["cross_entropy_fusion_impl"] = ["te"]
    return flags


def _word(flag: str, value: str, path: str) -> str:
    """Return the word of a flag for the value of an attribute.

    >>> _word("cp_comm_type", "ring", "context.algorithm")
    'p2p'
    """
    return word_of(_WORDS[flag], value, path, "Megatron-LM")
