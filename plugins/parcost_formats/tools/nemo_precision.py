"""The precision of a NeMo configuration, as a catalogue recipe."""

from __future__ import annotations

from parcost_formats.tools.collector import SettingCollector
from parcost_formats.tools.data_types import SIZES_WITH_FP16
from parcost_formats.tools.tables import table
from parcost_formats.tools.update_traffic import COUNTED, NORM_OF_CAST, count_update_traffic

_PLUGINS = "trainer.plugins."
_LABEL = "nemo"
_SYNC = "model.optim.grad_sync_dtype"


def read_precision(found: SettingCollector, *, exported: bool) -> None:
    """Read the data types of weights, products and gradients."""
    if exported:
        _of_plugin(found)
    else:
        _of_trainer(found)


def _of_trainer(found: SettingCollector) -> None:
    """Read NeMo 1: ``trainer.precision`` with ``megatron_amp_O2`` and ``fp8``."""
    key = "trainer.precision"
    kind = found.word(key, table("nemo")["precisions"])
    if kind is None:
        return
    found.switch("model.fp8_params")
    found.word(_SYNC, table("nemo")["precisions"])
    if kind == "bf16" and found.switch("model.fp8"):
        gathered = found.value("model.fp8_params") is True
        recipe = "fp8_param_gather" if gathered else "fp8_delayed"
        found.use(f"precisions.{recipe}", "model.fp8")
        found.ignore(key, "the fp8 recipe sets it")
        if found.value(_SYNC) == "bf16":
            block = f"precision {_LABEL} extends {recipe}"
            for name in ("gradients", "reduction"):
                found.set(f"{block}.{name}", "2 B", _SYNC)
            traffic = count_update_traffic(2, 12, 1 if gathered else 2, cast=True)
            found.assume(f"{block}.norm_traffic", NORM_OF_CAST, COUNTED)
            found.assume(f"{block}.update_traffic", f"{traffic} B", COUNTED)
            found.assume("training.precision", _LABEL, "base recipe, changed by this file")
    elif kind != "fp32" and found.switch("model.megatron_amp_O2") is not True:
        why = "without megatron_amp_O2 weights and gradients stay in fp32, under autocast"
        found.use("precisions.bf16_fsdp", key, why)
        if kind == "fp16":
            found.set(f"precision {_LABEL} extends bf16_fsdp.compute", kind, key)
            found.assume("training.precision", _LABEL, "base recipe, changed by this file")
        _reduction(found)
    elif kind == "bf16" and found.value(_SYNC) == "bf16":
        found.use("precisions.bf16_nemo", _SYNC)
        found.ignore(key, "the recipe with 16-bit gradients sets it")
    else:
        found.use(f"precisions.{kind}", key)


def _reduction(found: SettingCollector) -> None:
    """Read the data type in which FSDP of NeMo 1 reduces gradients."""
    key = "model.fsdp_grad_reduce_dtype"
    if found.word(key, table("nemo")["precisions"]) in ("bf16", "fp16"):
        found.set(f"precision {_LABEL} extends bf16_fsdp.reduction", "2 B", key)
        found.assume("training.precision", _LABEL, "base recipe, changed by this file")


def _of_plugin(found: SettingCollector) -> None:
    """Read NeMo 2: the mixed-precision plugin of the trainer."""
    key = f"{_PLUGINS}precision"
    kind = found.word(key, table("nemo")["precisions"])
    if kind is None:
        return
    reduced = f"{_PLUGINS}grad_reduce_in_fp32"
    narrow_gradients = found.switch(reduced) is False
    narrow = f"{_PLUGINS}fp8"
    if kind == "bf16" and narrow in found:
        recipes = table("nemo")["recipes"]
        name = str(found.value(f"{_PLUGINS}fp8_recipe", "delayed")).lower()
        if name not in recipes:
            found.problem(
                f"{_PLUGINS}fp8_recipe", f"`{name}` is not known", f"known: {', '.join(recipes)}"
            )
            return
        recipe = recipes[name][narrow_gradients]
        gathered = found.switch(f"{_PLUGINS}fp8_param_gather") is True
        if name == "delayed" and gathered and not narrow_gradients:
            recipe = "fp8_param_gather"
        found.use(f"precisions.{recipe}", narrow)
        _wide_layers(found, recipe)
    elif kind == "bf16" and narrow_gradients:
        recipe = "bf16_nemo"
        found.use(f"precisions.{recipe}", reduced)
    else:
        recipe = kind
        found.use(f"precisions.{recipe}", key)
    _states(found, recipe)


def _states(found: SettingCollector, recipe: str) -> None:
    """Read the data types of optimizer state, fp32 by default."""
    prefix, sizes = "optim.config.", {**SIZES_WITH_FP16, "uint8": "1 B"}
    if not found.switch(f"{prefix}use_precision_aware_optimizer"):
        return
    names = ("main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype")
    stated = [f"{prefix}{name}" for name in names if f"{prefix}{name}" in found]
    strange = [key for key in stated if str(found.value(key)).lower() not in sizes]
    for key in strange:
        found.problem(key, f"`{found.value(key)}` is not known", f"known: {', '.join(sizes)}")
    if not stated or strange:
        return
    total = 4 * (len(names) - len(stated))
    total += sum(int(sizes[str(found.value(key)).lower()][0]) for key in stated)
    found.set(f"precision {_LABEL} extends {recipe}.optimizer", f"{total} B", stated[-1])
    found.assume("training.precision", _LABEL, "base recipe, changed by this file")


def _wide_layers(found: SettingCollector, recipe: str) -> None:
    """Read how many first and last layers stay in bf16."""
    if not found.switch(f"{_PLUGINS}first_last_layers_bf16"):
        return
    for name, attribute in (("start", "wide_first"), ("end", "wide_last")):
        key = f"{_PLUGINS}num_layers_at_{name}_in_bf16"
        number = found.whole(key, least=0)
        if number is not None:
            found.set(f"precision {_LABEL} extends {recipe}.{attribute}", str(number), key)
            found.assume("training.precision", _LABEL, "base recipe, changed by this file")
