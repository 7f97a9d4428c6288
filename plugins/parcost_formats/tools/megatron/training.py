"""The job: batch, sequence, recomputation, overlap, offloading and kernels."""

from __future__ import annotations

from parcost_formats.tools.drafts import Option, digits
from parcost_formats.tools.megatron.defaults import ToolOptions
from parcost_formats.tools.megatron.zero_bubble import is_zero_bubble
from parcost_formats.tools.tables import table

_PARTS = table("megatron")["modules"]
_KERNELS = table("megatron")["words"]["attention_backend"]
_EARLY, _RELEASES = table("megatron")["early"], table("megatron")["early_releases"]
_REPLICAS = table("accelerate")["ddp"]
#: Entries of the catalogue for releases before Megatron-Core.
EARLY_FRAMEWORKS = [f"catalog.frameworks.{one}" for one in dict.fromkeys(_EARLY.values())]
_SWITCHED_OFF = {  # fusions that flags turn off, and what the framework has then
    "no_masked_softmax_fusion": ("softmax", "eager"),
    "no_bias_swiglu_fusion": ("activation", "halves"),
    "no_bias_dropout_fusion": ("dropout", "eager"),
    "no_rope_fusion": ("rotary", "eager"),
}


def read_training(options: ToolOptions, framework: str) -> None:
    """Read how the job runs, in a *framework* of the catalogue."""
    options.copy("seq_length", "training.sequence")
    early = options.get("batch_size") if "micro_batch_size" not in options else None
    if early is not None and (size := options.whole("batch_size")) is not None:
        why = "Megatron-LM up to 2020: batch_size is the micro-batch size"
        options.set("training.micro_batch", digits(size), early, why)
    elif options.copy("micro_batch_size", "training.micro_batch") is None:
        options.require_micro_batch()
    steps = options.copy("engine_accumulation_steps", "training.micro_batches")
    product = f"{digits(steps)} * micro_batch" if steps else "micro_batch"
    why = f"{steps} micro-batches per replica" if steps else "one micro-batch per replica"
    batch = options.whole("global_batch_size")
    value = f"{digits(batch) if batch else f'({product} * layout.dp)'} sequences"
    options.set_or_assume("global_batch_size", "training.global_batch", value, why)
    _dropout(options)
    _recompute(options)
    _overlap(options)
    _read_averaging(options)
    _offload(options)
    framework, reason = _framework(options, framework)
    _kernels(options, framework)
    _fusions(options)
    method = options.get("schedules_method")
    if framework == "megatron_core" and method is not None and method.text == "dualpipev":
        framework = "megatron_dualpipe_v"
    elif framework == "megatron_core" and is_zero_bubble(options):
        framework = "megatron_zero_bubble"
    options.use(f"frameworks.{framework}")
    label = framework
    if options.has("framework."):
        label = "megatron"
        options.label("framework", f"{label} extends {framework}")
    options.assume("training.framework", label, reason)


def _framework(options: ToolOptions, framework: str) -> tuple[str, str]:
    """Return the framework, or an earlier release if the file has its flags; and the reason."""
    found = [one for name in _EARLY if (one := options.lookup(name)) is not None]
    if (
        framework != "megatron_core"
        or not found
        or any(one in options for one in _RELEASES["core"])
    ):
        return framework, "the framework of this file"
    early = _EARLY[found[0].name]
    why = f"{found[0].key} is a flag of Megatron-LM up to {_RELEASES[early]}"
    if any(one in options for one in _RELEASES["later"]):
        early = "megatron_lm_2023"
    return early, f"{why}, whose attention writes scores to memory without --use-flash-attn"


def _dropout(options: ToolOptions) -> None:
    """Read dropout, which keeps masks for backward."""
    found = {name: options.number(name) for name in ("hidden_dropout", "attention_dropout")}
    stated = [one for name in found if (one := options.get(name))]
    if any(found.values()):
        options.set("training.dropout", "on", next(o for o in stated if found[o.name]))
    elif len(stated) == len(found):
        options.set("training.dropout", "off", stated[0])
    else:
        missing = next(name for name in found if name not in options or found[name] is None)
        options.default(missing, "training.dropout", "on", f"{missing} is 0.1")


def _recompute(options: ToolOptions) -> None:
    whole, short = options.get("recompute_granularity"), options.get("recompute_activations")
    early = options.find_enabled_option("checkpoint_activations")
    early = early or options.get("activations_checkpoint_method")
    if early is not None and whole is None and short is None:
        options.set("training.recompute", "full", early)  # of Megatron-LM up to 2022
        _layers(options, "activations_checkpoint_method", "activations_checkpoint_num_layers")
        return
    if short is not None and short.text == "false":
        short = None
    if layer := options.find_enabled_option("moe_layer_recompute"):
        options.set("recompute.moe", "on", layer)
    word = options.choice("recompute_granularity", "full", "selective") if whole else None
    if whole is not None and short is not None and word == "full":
        message = f"{short.key} is selective, but {whole.key} is full"
        for one in (whole, short):
            options.problem(one, message, "keep only one of them")
        return
    method, count = options.get("recompute_method"), options.get("recompute_num_layers")
    if whole is None and short is None:
        options.check_default("training.recompute")
    if word == "full" and whole is not None:
        options.set("training.recompute", "full", whole)
        _layers(options, "recompute_method", "recompute_num_layers")
    else:
        for extra in (method, count):
            if extra is not None:
                options.ignore(extra, "it has no effect without --recompute-granularity full")
    modules = options.get("recompute_modules")
    option = whole if word == "selective" else short
    if option is None:
        if modules is not None:
            why = "it has no effect without --recompute-granularity selective"
            options.ignore(modules, why)
        return
    _modules(options, option, modules)


def _layers(options: ToolOptions, method: str, layers: str) -> None:
    """Read which layers are fully recomputed, by the flags for the *method* and the *layers*."""
    count = options.get(layers)
    word = options.choice(method, "uniform", "block")
    number = options.whole(layers, least=0)
    if word == "block" and count is not None and number:
        options.set("recompute.layers", digits(number), count)
    elif word == "block" and count is not None and number == 0:
        options.set("training.recompute", "none", count, "block: none of the layers")
    elif count is not None and number is not None and number > 1:
        why = "here the inputs of every layer are kept, in Megatron-LM of every n-th layer"
        options.leave_open(count, why)


def _modules(options: ToolOptions, option: Option, modules: Option | None) -> None:
    """Read which modules of a layer are recomputed (selective recomputation)."""
    if modules is None:
        options.set("training.recompute", "selective", option)
        return
    core = "core_attn" in modules.texts
    options.set("training.recompute", "selective" if core else "none", modules)
    for text in modules.texts:
        if _PARTS.get(text):
            options.set(_PARTS[text], "on", modules)
        elif text not in _PARTS:
            why = f"`{text}` cannot be recomputed separately here"
            options.leave(modules, why)


def _overlap(options: ToolOptions) -> None:
    for name, attribute in (
        ("overlap_grad_reduce", "gradients"),
        ("overlap_param_gather", "parameters"),
    ):
        options.copy_switch(name, f"overlap.{attribute}")
    replicas = options.lookup("DDP_impl")
    if replicas is not None and replicas.text == "torch":
        options.get("DDP_impl")
        options.set("overlap.gradients", "on", replicas)
        for name in ("bucket", "first_bucket"):
            options.assume(f"overlap.{name}", _REPLICAS[name], _REPLICAS["source"], replicas)
    option = options.get("no_align_param_gather")
    if option is not None:
        together = option.text == "false"
        if (options.whole("pipeline_model_parallel_size", least=0) or 1) > 1 and not together:
            options.set("overlap.gather_start", "arrival", option)
        else:
            options.ignore(option, "stages with several chunks gather together, as they do here")
    if option := options.find_enabled_option("tp_comm_overlap"):
        options.set("overlap.tensor", "pipelined", option)
    size = options.whole("ddp_bucket_size")
    option = options.get("ddp_bucket_size")
    if size is not None and option is not None:
        width = 2 if options.on("grad_reduce_in_bf16") else 4
        options.set("overlap.bucket", f"{digits(size)} * {width} B", option)


def _read_averaging(options: ToolOptions) -> None:
    """Read how gradients are averaged, and whether they are checked for NaN.

    With a per-token loss, a kernel over the whole buffer averages gradients after the reduction.
    """
    average, tokens = "ddp_average_in_collective", "calculate_per_token_loss"
    checks = {
        "no_check_for_nan_in_loss_and_grad": ("on", "off"),
        "check_for_nan_in_loss_and_grad": ("off", "on"),
    }
    if options.on("use_megatron_fsdp") or options.on("use_torch_fsdp2"):
        why = "FSDP averages in the reduction, and does not have this check"
        options.ignore_all((average, tokens, *checks), why)
        strategy = options.get("data_parallel_sharding_strategy")
        if strategy is not None and strategy.text in ("no_shard", "optim"):
            why = f"Megatron-{why}"
            options.assume("sharding.gradient_average", "collective", why)
            options.assume("sharding.gradient_check", "off", why)
        return
    options.copy_switch(average, "sharding.gradient_average", "scaled_experts", "scaled")
    if option := options.find_enabled_option(tokens):
        why = "gradients are divided by the number of tokens"
        options.set("sharding.gradient_average", "scaled", option, why)
    for name, (off, on) in checks.items():
        options.copy_switch(name, "sharding.gradient_check", on, off)


def _offload(options: ToolOptions) -> None:
    layers = options.whole("cpu_offloading_num_layers", least=0)
    option = options.get("cpu_offloading_num_layers")
    if layers and option is not None:
        options.set("offload.layers", digits(layers), option)
    used = options.get("optimizer_cpu_offload") or options.get("cpu_optimizer")
    inputs = options.get("checkpoint_in_cpu")  # of Megatron-DeepSpeed
    if inputs is not None:
        options.set("offload.activations", "100 %", inputs)
    weights = options.get("offload_param")
    if weights is not None:
        options.set("offload.parameters", "100 %", weights)
    share = options.get("optimizer_offload_fraction")
    number = options.number("optimizer_offload_fraction")
    if used is None or used.text == "false":
        if share is not None:
            options.ignore(share, "it has no effect without --optimizer-cpu-offload")
    elif share is None:
        options.set("offload.optimizer", "100 %", used)
    elif number is not None and number <= 1:
        options.set("offload.optimizer", share.text, share)
    else:
        options.problem(share, "a share from 0 to 1 is expected")


def _kernels(options: ToolOptions, framework: str) -> None:
    option = options.get("attention_backend")
    word = options.choice("attention_backend", "auto", *_KERNELS)
    version = options.get("flash_attention_version")
    if option is not None and word == "flash" and version is not None:
        known = ("2", "3", "4")
        if options.choice("flash_attention_version", *known):
            options.set("kernels.attention", f"flash_{version.text}", version)
    elif option is not None and word in _KERNELS:
        why = (
            "FlashAttention 2, unless --flash-attention-version selects another"
            if word == "flash"
            else ""
        )
        options.set("kernels.attention", _KERNELS[str(word)], option, why)
    elif version is not None:
        options.ignore(version, "it has no effect without --attention-backend flash")
    _implementation(options, framework)
    _graphs(options)
    separate = "no_gradient_accumulation_fusion"
    options.copy_switch(separate, "kernels.fused_accumulation", "off", "on")
    options.copy_switch("mla_down_proj_fusion", "kernels.fused_down_projection", "on", "off")
    option = options.get("cross_entropy_fusion_impl")
    if option is not None and options.choice("cross_entropy_fusion_impl", "native", "te") == "te":
        if options.on("cross_entropy_loss_fusion"):
            options.set("training.loss", "gradient", option)
        else:
            options.ignore(option, "it has no effect without --cross-entropy-loss-fusion")


def _implementation(options: ToolOptions, framework: str) -> None:
    """Read the transformer implementation; local attention writes scores to memory."""
    option, flash = options.get("transformer_impl"), options.get("use_flash_attn")
    if framework == "megatron_deepspeed" and flash is not None and flash.text != "false":
        why = "FlashAttention 2, the kernel of its local layers"
        options.set("kernels.attention", "flash_2", flash, why)
        return
    if framework in _EARLY.values():
        if flash is not None and flash.text != "false":
            options.set("kernels.attention", "flash_2", flash, "its layers before Megatron-Core")
        return
    if option is None or option.text != "local":
        if option is not None:
            options.ignore(option, "the estimate models the layers of Transformer Engine")
        if flash is not None:
            options.ignore(flash, "with Transformer Engine, --attention-backend selects the kernel")
        return
    options.leave(
        option, "choose an earlier release with `training.framework`; its other kernels differ too"
    )
    if flash is not None and flash.text != "false":
        options.set("kernels.attention", "flash_2", flash, "its layers before Megatron-Core")
    elif not options.has("kernels.attention"):
        why = options.why("DotProductAttention of local layers writes scores to memory")
        options.set("kernels.attention", "unfused", option, why)


def _graphs(options: ToolOptions) -> None:
    """Read which parts run as CUDA graphs."""
    kinds = ("none", "local", "transformer_engine", "full_iteration")
    kind = options.choice("cuda_graph_impl", *kinds)
    option, scope = options.get("cuda_graph_impl"), options.get("cuda_graph_scope")
    for name in ("enable_cuda_graph", "external_cuda_graph"):
        if old := options.find_enabled_option(name):
            kind, option = "local", old
    if option is None or kind in (None, "none"):
        if option is not None and kind == "none":
            options.set("kernels.cuda_graphs", "none", option)
        if scope is not None:
            options.ignore(scope, "it has no effect without --cuda-graph-impl")
        return
    scopes = set(scope.texts) if scope is not None else set()
    if kind == "full_iteration" or "full_iteration" in scopes:
        options.set("kernels.cuda_graphs", "iteration", option)
    elif scopes <= {"full"}:
        options.set("kernels.cuda_graphs", "layer", option)
    else:
        why = f"{' '.join(sorted(scopes))} are parts of a layer; here the whole layer is captured"
        options.set("kernels.cuda_graphs", "layer", option, why)


def _fusions(options: ToolOptions) -> None:
    """Read disabled fusions."""
    for name, (attribute, word) in _SWITCHED_OFF.items():
        if option := options.find_enabled_option(name):
            options.set(f"framework.{attribute}", word, option)
