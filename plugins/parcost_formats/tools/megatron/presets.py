"""Presets of performance runs of Megatron-Bridge: a file of ``WorkloadBaseConfig`` without recipes.

A preset has the layout and the batch; its name has the recipe of the library, the device and the
precision: ``LLAMA3_70B_PRETRAIN_CONFIG_H100_FP8_CS_V1``. It is read as the recipe that applies it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from attrs import evolve

from parcost import did_you_mean
from parcost_formats.tools.drafts import Option
from parcost_formats.tools.megatron.bridge import BridgeRecipe, read_recipe
from parcost_formats.tools.python_values import PythonText, PythonTextError
from parcost_formats.tools.tables import table

_CLASS = str(table("bridge_recipes")["workloads"]["class"])
_ENDING = str(table("bridge_recipes")["workloads"]["ending"])
_PRECISIONS = "|".join(map(str.upper, table("megatron")["bridge"]["perf_precisions"]))
_NAME = re.compile(
    rf"([A-Z][A-Z0-9_]*?)_(PRETRAIN|SFT|PEFT|LORA)_CONFIG_([A-Z0-9]+)_({_PRECISIONS})(?:_(\w+))?"
)
_FAMILY = "presets"  # the beginning of the file in which the recipe finds its preset
_RECIPE = """\
def preset():
    base = get_workload_base_config(
        model_family_name="{family}", model_recipe_name="{recipe}", gpu="{gpu}",
        compute_dtype="{precision}", task="{task}", config_variant="{variant}",
    )
    cfg = {recipe}_{task}_config()
    cfg.mixed_precision = get_precision_config("{precision}")
    set_workload_base_configs(cfg, base)
    return cfg
"""


def is_presets(text: str) -> bool:
    """Return whether a Python text has presets of performance runs, and no recipe."""
    return f"{_CLASS}(" in text and not re.search(r"^def ", text, re.MULTILINE)


def read_preset(text: str, name: str = "") -> BridgeRecipe:
    """Return the settings of the preset called *name*, or of the only one.

    Raises:
        PythonTextError: The file is not Python, or has several presets or none of that name.
    """
    python = PythonText(text)
    places = {
        target.id: python.place(target)
        for one in python.tree.body
        if isinstance(one, ast.Assign)
        for target in one.targets
        if isinstance(target, ast.Name)
    }
    names = [one for one in places if _NAME.fullmatch(one)]
    chosen = name or (names[0] if len(names) == 1 else "")
    match = _NAME.fullmatch(chosen)
    if match is None or chosen not in places:
        near = did_you_mean(name, names) if name else ""
        message = f"the file has {len(names)} presets of performance runs"
        if name:
            message = f"the file has no preset `{name}`"
        start = places[names[0]][0] if names else 0
        ways = " | ".join(f"--recipe {one}" for one in names)
        raise PythonTextError(message, start, start + 1, near or f"choose one: {ways}")
    recipe, task, gpu, precision, variant = (one or "" for one in match.groups("V1"))
    parts = {"recipe": recipe, "task": task, "gpu": gpu, "precision": precision}
    lower = {key: one.lower() for key, one in {**parts, "variant": variant}.items()}
    wanted = f"{recipe}_{task}_CONFIG_{gpu}_{precision}_{variant}"
    beside = text if wanted == chosen else f"{text}\n{wanted} = {chosen}\n"
    beside_file = f"{_FAMILY}{_ENDING}"
    files = {beside_file: beside}
    found = read_recipe(_RECIPE.format(family=_FAMILY, **lower), "preset", files.get)
    start, end = places[chosen]

    def place(option: Option) -> Option:
        if beside_file in option.assumption:  # which is the file itself
            option = option.evolve(key=chosen, assumption="")
        return option.evolve(start=start, end=end)

    def place_all(options: Iterable[Option]) -> list[Option]:
        return [place(one) for one in options]

    return evolve(
        found,
        options={key: place(one) for key, one in found.options.items()},
        ignored=place_all(found.ignored),
        unread=place_all(found.unread),
        doubts=place_all(found.doubts),
        errors=[(place(one), message, help) for one, message, help in found.errors],
        model=found.model and place(found.model),
        devices=found.devices and place(found.devices),
        precision=found.precision and place(found.precision),
    )
