"""Execution of the job: recomputation, precision, compilation, graphs and offloading."""

from __future__ import annotations

from collections.abc import Sequence

from parcost_formats.tools.drafts import Option
from parcost_formats.tools.torchtitan.options import TitanOptions
from parcost_formats.tools.torchtitan.parallel import ParallelDegrees

_OWN = "own"
_RECIPE, _GATHER = "float8.recipe_name", "float8.enable_fsdp_float8_all_gather"
WIDE_GRADIENTS = "rowwise_with_gw_hp"
#: Recipes of torchao 0.15: float8/config.py.
_SCALED = ("tensorwise", "rowwise", WIDE_GRADIENTS)
#: Where converters are arguments of a model, the default of their scaling factors is another one.
_OF_MODEL = "model_spec"
#: What a recipe of float8 has of the data type that parameters are kept in.
_KEPT = ("weights", "gradients", "optimizer", "reduction", "update_traffic")
_NARROW = ("--use catalog.precisions.mxfp8", "--use catalog.precisions.bf16_fsdp")


def read_execution(options: TitanOptions, degrees: ParallelDegrees) -> None:
    """Read recomputation, precision, kernels, loss, offloading and the optimizer."""
    zero = degrees.zero
    options.use(f"frameworks.{options.framework}")
    options.assume(
        "training.framework", options.framework, options.why("the file has keys of this release")
    )
    _recompute(options)
    _early_stop(options)
    _precision(options, degrees)
    _kernels(options, degrees.pp)
    chunks = options.whole("loss")
    option = options.get("loss")
    if chunks is not None and option is not None:
        options.set("training.loss_chunks", str(chunks), option)
    offload = options.get("training.enable_cpu_offload")
    if offload is not None and offload.text == "true":
        options.set("offload.optimizer", "100 %", offload)
        if zero == 3:
            options.set("offload.parameters", "100 %", offload)
    elif offload is not None:
        options.ignore(offload, "it is off")
    name = options.get("optimizer.name")
    if name is not None and name.text in ("Adam", "AdamW"):
        options.ignore(name, "the recipes of the catalogue have the optimizer state of Adam")
    elif name is not None:
        reason = (
            f"precision recipes have the optimizer state of Adam, but the optimizer is {name.text}"
        )
        options.ask_for(name, reason, ["--use catalog.precisions.bf16_fsdp"])


def _recompute(options: TitanOptions) -> None:
    field, choice = "activation_checkpoint.mode", "activation_checkpoint.selective_ac_option"
    mode, kind = options.get(field), options.get(choice)
    word = options.choice(field, "full", "selective", "none", "memory_budget")
    if mode is not None and word is None:
        return
    budget = options.get("activation_checkpoint.memory_budget")
    if mode is not None and word == "memory_budget":
        message = "the compiler decides what to recompute for a budget"
        options.problem(mode, message, "write full, selective or none")
        return
    if budget is not None:
        options.ignore(budget, "it has no effect without mode memory_budget")
    word = word or "selective"
    if word != "selective":
        assert mode is not None
        options.set("training.recompute", word, mode)
        if kind is not None:
            options.ignore(kind, "it has no effect without mode selective")
        return
    text = kind.text if kind is not None else ("op" if options.python else "2")
    why = (
        "selective by operators" if text == "op" else "selective_ac_option is 2: every second layer"
    )
    if mode is not None:
        options.set(
            "training.recompute",
            "full",
            mode,
            "selective: the modules it selects are recomputed in full",
        )
    else:
        options.default(field, "training.recompute", "full", "mode is selective")
    if text == "op":
        path, value = "recompute.alternate", "on"
    elif text.isdecimal() and int(text[:9]) > 0:
        path, value = "recompute.every", str(int(text[:9]))
    else:
        if kind is not None:
            options.problem(kind, f"`{kind.text}` is neither `op` nor a number of layers")
        return
    found = {path: value}
    if path == "recompute.every":  # which counts the layers from 1
        found["recompute.first"] = str(int(value) - 1)
    for path, value in found.items():
        options.set_or_assume(choice, path, value, why)


def _early_stop(options: TitanOptions) -> None:
    """Read whether recomputation of a layer ends with the last tensor that backward reads."""
    early = options.get("activation_checkpoint.early_stop")
    if early is None:
        return
    mode = options.get("activation_checkpoint.mode")
    if mode is not None and mode.text == "none":
        options.ignore(early, "nothing is recomputed")
    elif _compiles_layers(options):
        options.ignore(early, "the compiler does not save tensors that backward does not need")
    else:
        options.set("recompute.stops_early", "off" if early.text == "false" else "on", early)


#: A recipe of the catalogue, the option that decides it, and why if none does.
Choice = tuple[str, Option | None, str]


def _precision(options: TitanOptions, degrees: ParallelDegrees) -> None:
    """Read the precision: storage type, GEMM type, and FP8."""
    base, option, why = _read_data_types(options, degrees)
    converters, names = _converters(options)
    narrow = converters is not None and "float8" in names
    if converters is not None and narrow and base != "fp32":
        base, option, why = _read_float8(options, base, converters, why)
    else:
        if converters is not None and narrow:
            message = "FP8 matrix products between layers in float32 are not modeled"
            options.problem(converters, message, "remove the converter to import the job")
        for one in map(options.get, (_GATHER, _RECIPE)):
            if one is not None:
                options.ignore(one, "it has no effect without the converter float8")
    options.use(f"precisions.{base}", option, "" if option else why)
    options.set_recipe(base, _OWN, option, why)


def _read_data_types(options: TitanOptions, degrees: ParallelDegrees) -> Choice:
    """Return the recipe without FP8, by the types of storage, GEMMs and reduction."""
    kept = options.choice("training.dtype", "float32", "bfloat16")
    multiplied = options.choice("training.mixed_precision_param", "bfloat16", "float32")
    option = options.get("training.mixed_precision_param")
    base, why = "bf16_fsdp", options.why("mixed_precision_param is bfloat16")
    reduced = options.choice("training.mixed_precision_reduce", "float32", "bfloat16")
    if kept == "bfloat16":
        base, option = "bf16_pure", options.get("training.dtype")
    elif multiplied == "float32":
        base = "fp32"
    elif degrees.is_unsharded and (degrees.tp > 1 or degrees.pp > 1):
        fact = "mixed precision has an effect only with FSDP, CP or plain DDP"
        asked = option or options.get("parallelism.data_parallel_shard_degree")
        if options.python and asked is not None:
            answers = ["--use catalog.precisions.fp32", "--use catalog.precisions.bf16_fsdp"]
            options.ask_for(asked, fact, answers)
        base, option, why = "fp32", None, options.why(fact)
    _reduction(options, reduced, "2 B" if base == "bf16_pure" else "4 B", is_plain=base == "fp32")
    return base, option, why


def _read_float8(options: TitanOptions, base: str, converters: Option, why: str) -> Choice:
    """Return the recipe of FP8 GEMMs; weights are stored as in the recipe *base*."""
    whole = options.get("training.dtype")
    if base == "bf16_pure" and whole is not None:
        options.use("precisions.bf16_pure", whole)
        for kept_as in _KEPT:
            if not options.has(f"precision.{kept_as}"):
                options.set(f"precision.{kept_as}", f"{base}.{kept_as}", whole)
    option: Option | None = converters
    recipe, gathers = options.get(_RECIPE), options.get(_GATHER)
    stated = recipe if recipe is not None and recipe.text else None
    scaled = options.choice(_RECIPE, *_SCALED) if stated is not None else ""
    if not scaled and converters.key.startswith(_OF_MODEL):
        scaled, option, why = "rowwise", None, options.why("recipe_name of float8 is rowwise")
    if not scaled or scaled == "tensorwise":
        if gathers is None:
            options.default(_GATHER, "precision.gather", "2 B", "weights are gathered in bf16")
        elif gathers.text == "false":
            options.set("precision.gather", "2 B", gathers)
        return "fp8_torchao", option, why
    base = "fp8_torchao_rows"
    if stated is not None and scaled == WIDE_GRADIENTS:
        reason = "weight gradients in high precision need fewer casts than a recipe has"
        options.ask_for(stated, reason, [f"--use catalog.precisions.{base}", *_NARROW])
    elif stated is not None:
        options.ignore(stated, f"as `{base}` has it")
    if gathers is not None:
        options.ignore(gathers, "weights scaled by rows are gathered in bf16")
    return base, option, why


def _reduction(options: TitanOptions, reduced: str | None, usual: str, *, is_plain: bool) -> None:
    """Read the data type of the gradient reduction, if it differs from the precision's."""
    name = "training.mixed_precision_reduce"
    option = options.get(name)
    size = "2 B" if reduced == "bfloat16" else "4 B"
    if is_plain or size == usual:
        if option is not None:
            options.ignore(option, "as in the recipe")
    else:
        options.set_or_assume(
            name, "precision.reduction", size, "mixed_precision_reduce is float32"
        )


def _converters(options: TitanOptions) -> tuple[Option | None, Sequence[str]]:
    """Return the option with model converters, and the kinds of converters in it.

    Kinds without a recipe in the catalogue are asked for.
    """
    option = options.get("model.converters")
    linear = options.get("float8.enable_float8_linear")
    if option is None and linear is not None and linear.text not in ("", "false"):
        return linear, ("float8",)
    names = [name for name in option.texts if name] if option is not None else []
    kinds = [_kind_of_converter(name) for name in names]
    if "float8" in kinds:
        kinds = [kind for kind in kinds if kind != "float8_experts"]
    others = [name for name, kind in zip(names, kinds, strict=False) if kind != "float8"]
    if option is not None and others:
        if any("lora" in name.lower() for name in others):
            options.problem(option, "adapters of this tool are not supported yet")
        options.ask_for(
            option, f"{', '.join(others)}: there is no recipe with these matrix products", _NARROW
        )
    return option, kinds


def _kind_of_converter(name: str) -> str:
    """Return the kind of low precision that a converter selects.

    >>> _kind_of_converter("quantize.linear.float8")
    'float8'
    >>> _kind_of_converter("quantize.grouped_mm.float8")
    'float8_experts'
    """
    if name == "float8_experts" or ("float8" in name and "grouped" in name):
        return "float8_experts"
    return "float8" if name == "float8" or name.endswith(".float8") else name


def _compiles_layers(options: TitanOptions) -> bool:
    option, parts = options.get("compile.enable"), options.get("compile.components")
    words = parts.texts if parts is not None else ("model", "loss")
    return option is not None and option.text != "false" and "model" in words


def _kernels(options: TitanOptions, pp: int) -> None:
    option, parts = options.get("compile.enable"), options.get("compile.components")
    enabled = option is not None and option.text != "false"
    words = parts.texts if parts is not None else ("model", "loss")
    if option is not None:
        options.set("kernels.mode", "compiled" if _compiles_layers(options) else "eager", option)
    if parts is not None and not enabled:
        options.ignore(parts, "nothing is compiled")
    elif parts is not None and ("model" in words) != ("loss" in words):
        # A compiled loss keeps the logits as they are.
        options.set("training.loss", "logits" if "loss" in words else "eager", parts)
    elif parts is not None:
        options.ignore(parts, f"read with {option.key if option is not None else parts.key}")
    off = options.get("training.disable_cuda_graphs")
    if off is not None:
        options.set("kernels.cuda_graphs", "none" if off.text != "false" else "iteration", off)
    elif options.budget and pp > 1:
        why = "CUDA graphs of pipelines are not modeled"
        options.assume("kernels.cuda_graphs", "none", options.why(why))
    backend = options.get("model.attn_backend")
    if backend is not None:
        options.ignore(backend, "another attention kernel of PyTorch: `kernels { attention }`")
