"""The mixed-precision recipe: a catalogue entry, with changes by flags."""

from __future__ import annotations

from parcost_formats.tools.drafts import Option
from parcost_formats.tools.megatron.defaults import ToolOptions
from parcost_formats.tools.tables import table
from parcost_formats.tools.update_traffic import COUNTED, NORM_OF_CAST, count_update_traffic

_OWN = "mixed"  # the recipe of the file, where it differs from that of the catalogue
_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}
_GATHERED = {"fp8_delayed": 1.0, "fp8_current": 5.0, "mxfp8": 2.0}  # moved by the cast


#: Formats of 8 and 4 bits that the flags take: megatron/core/transformer/transformer_config.py.
_FORMATS = {"fp8_format": ("e4m3", "hybrid"), "fp4_format": ("e2m1",)}


def read_precision(options: ToolOptions) -> None:
    """Read the recipe."""
    base, option = _base(options)
    if base is None:
        return
    why = "" if option else options.why("neither bf16 nor fp16 is on")
    options.use(f"precisions.{base}", option, why)
    weights = _gathers(options, base)
    _state_bytes(options, base, weights)
    _products(options, base)
    options.set_recipe(base, _OWN, option, why)


def _base(options: ToolOptions) -> tuple[str | None, Option | None]:
    """Return the catalogue entry of the recipe, and the option that names it."""
    wide = [name for name in ("bf16", "fp16") if options.on(name)]
    narrow = [one for name in _FORMATS if (one := options.find_enabled_option(name))]
    for one in narrow:
        options.choice(one.name, *_FORMATS[one.name])
    if len(wide) > 1:
        both = [option for name in wide if (option := options.get(name))]
        for option in both:
            keys = " and ".join(one.key for one in both)
            options.problem(option, f"{keys} cannot be combined")
        return None, None
    if len(narrow) > 1:
        for one in narrow:
            options.problem(one, "--fp8-format and --fp4-format cannot be combined")
        return None, None
    recipe = options.get("fp8_recipe") or options.get("fp4_recipe")
    if not narrow:
        for option in (recipe, options.find_enabled_option("fp8_param_gather")):
            if option is not None:
                options.ignore(option, "it has no effect without --fp8-format or --fp4-format")
        if not wide:
            return ("fp32", None) if options.check_default("training.precision") else (None, None)
        base = options.usual_recipe if wide == ["bf16"] and options.usual_recipe else wide[0]
        return base, options.get(wide[0])
    bf16 = options.get("bf16")
    known = table("megatron")["recipes"]
    default = "delayed" if narrow[0].name == "fp8_format" else "nvfp4"
    word = recipe.text if recipe is not None else default
    if word not in known:
        assert recipe is not None
        options.problem(recipe, f"`{word}` is not in the catalogue", f"known: {', '.join(known)}")
        return None, None
    if bf16 is None:
        options.leave(narrow[0], "the recipe of the catalogue uses bf16 for the rest")
    return str(known[word]), recipe or narrow[0]


def _gathers(options: ToolOptions, base: str) -> float:
    """Read whether parameters are gathered in low precision; return bytes per parameter."""
    option = options.find_enabled_option("fp8_param_gather")
    usual = 4.0 if base == "fp32" else 2.0
    if option is None or base in ("bf16", "fp16", "fp32"):
        return usual
    changes = table("megatron")["gathers"].get(base)
    if changes is None:
        options.leave(option, f"the catalogue has no recipe with fp8 parameters for {base}")
        return usual
    for name, value in changes.items():
        options.set(f"precision.{name}", value, option)
    return _GATHERED[base]


def _state_bytes(options: ToolOptions, base: str, weights: float) -> None:
    """Read bytes per parameter of gradients and of optimizer state."""
    gradients, optimizer = 4, 8 if base == "fp32" else 12
    changed: Option | None = options.get("fp8_param_gather") if weights not in (2.0, 4.0) else None
    aware = options.on("use_precision_aware_optimizer")
    reduced = options.find_enabled_option("grad_reduce_in_bf16")
    wide = options.find_enabled_option("accumulate_allreduce_grads_in_fp32")
    if base == "fp16":
        if wide is not None:
            options.set("precision.gradients", "4 B", wide)
            options.set("precision.reduction", "4 B", wide)
        return
    if reduced is not None and base != "fp32":
        gradients, changed = 2, reduced
        options.set("precision.reduction", "2 B", reduced)
    if aware:
        gradients = _size_of_type(options, "main_grads_dtype", gradients)
        optimizer = sum(
            _size_of_type(options, name, 4)
            for name in ("main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype")
        )
        changed = options.get("use_precision_aware_optimizer")
    else:
        for name in ("main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype"):
            option = options.get(name)
            if option is not None:
                why = "without --use-precision-aware-optimizer all of them are fp32"
                options.ignore(option, why)
    kind = options.get("optimizer")
    if kind is not None and kind.text == "sgd":
        optimizer, changed = optimizer - 4, kind
        options.set("precision.optimizer", f"{optimizer} B", kind)
    elif kind is not None and kind.text in table("megatron")["optimizers_on_host"]["names"]:
        reason = f"{kind.text} keeps the optimizer state, or a part of it, in host memory"
        answers = ("--set 'offload.optimizer=100 %'", "--set offload.optimizer=0")
        options.ask("offload.optimizer", reason, answers, kind)
    elif kind is not None and kind.text.lower() not in ("adam", "adamw"):
        reason = f"recipes have the optimizer state of Adam, but the optimizer is {kind.text[:40]}"
        options.ask("precision", reason, [f"--use catalog.precisions.{base}"], kind)
    elif aware and changed is not None and optimizer != 12:
        options.set("precision.optimizer", f"{optimizer} B", changed)
    if changed is None:
        return
    if gradients != 4:
        options.set("precision.gradients", f"{gradients} B", changed)
    cast = gradients == 2 and not aware  # to fp32, before the norm
    if cast:
        options.assume("precision.norm_traffic", NORM_OF_CAST, COUNTED, changed)
    traffic = count_update_traffic(gradients, optimizer, weights, master=base != "fp32", cast=cast)
    options.assume("precision.update_traffic", f"{traffic:g} B", COUNTED, changed)


def _size_of_type(options: ToolOptions, name: str, usual: int) -> int:
    """Return the size in bytes of the type that an option names; *usual* if it is not given."""
    word = options.choice(name, *_BYTES)
    return _BYTES[word] if word is not None else usual


def _products(options: ToolOptions, base: str) -> None:
    """Read which matrix products stay in 16 bits."""
    narrow = base not in ("bf16", "fp16", "fp32")
    ends = options.find_enabled_option("first_last_layers_bf16")
    edges = {
        "num_layers_at_start_in_bf16": "wide_first",
        "num_layers_at_end_in_bf16": "wide_last",
    }
    if narrow and ends is not None:
        for name, attribute in edges.items():
            if options.copy(name, f"precision.{attribute}", least=0) is None:
                why = options.why("one layer at each end with first_last_layers_bf16")
                options.assume(f"precision.{attribute}", "1", why, ends)
    else:
        options.ignore_all(edges, "it has no effect without --first-last-layers-bf16")
    for name, attribute in (
        ("no_fp8_wgrad", "wide_weight_gradients"),
        ("fp8_dot_product_attention", "narrow_attention"),
        ("fp8_multi_head_attention", "narrow_attention"),
    ):
        option = options.find_enabled_option(name)
        if option is None:
            continue
        if narrow:
            options.set(f"precision.{attribute}", "on", option)
        else:
            options.ignore(option, "it has no effect without --fp8-format")
