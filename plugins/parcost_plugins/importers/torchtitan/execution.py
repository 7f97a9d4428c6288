"""How the job runs: recomputation, precision, compilation, graphs and offloading."""

from __future__ import annotations

from parcost_plugins.importers.drafts import OptionSet

_DEFAULT = "the default of torchtitan"
_OWN = "own"


def read_execution(options: OptionSet, *, pp: int, zero: int, recent: bool) -> None:
    """Read the rest; a *recent* configuration is one of 2026-08."""
    draft = options.draft
    framework = "torchtitan_2026_08" if recent else "torchtitan"
    draft.use(f"catalog.frameworks.{framework}")
    draft.assume("training.framework", framework, "the framework of this file")
    _recompute(options, recent=recent)
    _precision(options)
    _kernels(options, pp, recent=recent)
    chunks = options.whole("loss", 1)
    option = options.get("loss")
    if chunks is not None and option is not None:
        draft.set("training.loss_chunks", str(chunks), option)
    offload = options.get("training.enable_cpu_offload")
    if offload is not None and offload.text == "true":
        draft.set("offload.optimizer", "100 %", offload)
        if zero == 3:
            draft.set("offload.parameters", "100 %", offload)
    elif offload is not None:
        draft.ignore(offload, "it is off")
    name = options.get("optimizer.name")
    if name is not None and name.text in ("Adam", "AdamW"):
        draft.ignore(name, "the recipes of the catalogue are those of Adam")
    elif name is not None:
        draft.leave(name, "its state and its update are taken as those of Adam")


def _recompute(options: OptionSet, *, recent: bool) -> None:
    draft = options.draft
    field, choice = "activation_checkpoint.mode", "activation_checkpoint.selective_ac_option"
    mode, kind = options.get(field), options.get(choice)
    word = options.word(field, "full", "selective", "none", "memory_budget")
    if mode is not None and word is None:
        return
    budget = options.get("activation_checkpoint.memory_budget")
    if mode is not None and word == "memory_budget":
        message = "what a compiler recomputes for a budget is not known ahead"
        draft.problem(mode, message, "full, selective and none are modelled")
        return
    if budget is not None:
        draft.ignore(budget, "without mode memory_budget it is not read")
    word = word or "selective"
    if word != "selective":
        assert mode is not None
        draft.set("training.recompute", word, mode)
        if kind is not None:
            draft.ignore(kind, "without mode selective it is not read")
        return
    text = kind.text if kind is not None else ("op" if recent else "2")
    why = f"{_DEFAULT}: {'by operators' if text == 'op' else 'every second layer'}"
    if mode is not None:
        draft.set("training.recompute", "full", mode, "of what is selected")
    else:
        options.default(field, "training.recompute", "full", f"{_DEFAULT}: selective")
    if text == "op":
        path, value = "recompute.alternate", "on"
    elif text.isdecimal() and int(text[:9]) > 0:
        path, value = "recompute.every", str(int(text[:9]))
    else:
        if kind is not None:
            draft.problem(kind, "op or a number of layers is expected")
        return
    if kind is not None:
        draft.set(path, value, kind)
    else:
        options.default(choice, path, value, why)


def _precision(options: OptionSet) -> None:
    """Read the recipe: what is kept, what is multiplied, and what is narrow."""
    draft = options.draft
    kept = options.word("training.dtype", "float32", "bfloat16")
    multiplied = options.word("training.mixed_precision_param", "bfloat16", "float32")
    stated = options.get("training.mixed_precision_param")
    whole = options.get("training.dtype")
    base, option = "bf16_fsdp", stated
    if kept == "bfloat16":
        base, option = "bf16_pure", whole
        draft.assume("precision.reduction", "4 B", "torchtitan reduces gradients in fp32", whole)
    elif multiplied == "float32":
        base = "fp32"
    converters = options.get("model.converters")
    names = " ".join(converters.texts) if converters is not None else ""
    narrow = converters is not None and "float8" in names
    gathers = options.get("float8.enable_fsdp_float8_all_gather")
    recipe = options.get("float8.recipe_name")
    if converters is not None and narrow and base == "bf16_fsdp":
        base, option = "fp8_torchao", converters
        if gathers is None or gathers.text == "false":
            why = "" if gathers else f"{_DEFAULT}: gathered in bf16"
            if gathers is not None:
                draft.set("precision.gather", "2 B", gathers)
            else:
                options.default(
                    "float8.enable_fsdp_float8_all_gather", "precision.gather", "2 B", why
                )
        if recipe is not None and recipe.text not in ("", "tensorwise"):
            draft.leave(recipe, "scaling by rows is taken as scaling by tensors")
    else:
        for one in (gathers, recipe):
            if one is not None:
                draft.ignore(one, "without the converter float8 it is not read")
    if converters is not None and "mx" in names.replace("max", ""):
        draft.leave(converters, "products of torchao in MXFP8 are not in the catalogue")
    draft.use(f"catalog.precisions.{base}", "" if option else _DEFAULT, option)
    label = base
    if draft.has("precision."):
        label = _OWN
        draft.label("precision", f"{_OWN} extends {base}")
    if option is not None:
        draft.set("training.precision", label, option)
    else:
        draft.assume("training.precision", label, _DEFAULT)


def _kernels(options: OptionSet, pp: int, *, recent: bool) -> None:
    draft = options.draft
    option, parts = options.get("compile.enable"), options.get("compile.components")
    if option is not None:
        words = parts.texts if parts is not None else ("model", "loss")
        compiled = option.text != "false" and "model" in words
        draft.set("kernels.mode", "compiled" if compiled else "eager", option)
    if parts is not None and option is not None and option.text != "false":
        draft.ignore(parts, f"read with {option.key}: a compiled loss is taken as an eager one")
    elif parts is not None:
        draft.ignore(parts, "nothing is compiled")
    off = options.get("training.disable_cuda_graphs")
    if off is not None:
        draft.set("kernels.cuda_graphs", "none" if off.text != "false" else "iteration", off)
    elif recent and pp > 1:
        why = "torchtitan captures no graphs of pipelines"
        draft.assume("kernels.cuda_graphs", "none", why)
    backend = options.get("model.attn_backend")
    if backend is not None:
        draft.ignore(backend, "another attention kernel of PyTorch: `kernels { attention }`")
