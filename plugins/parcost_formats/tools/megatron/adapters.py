"""Adapters (LoRA) of Megatron-Bridge and NeMo 2, whose classes have the same fields.

A recipe creates an object of a class, or names the class; a section of YAML changes its fields:

    cfg.peft = LoRA(target_modules=["linear_qkv"], dim=16)      peft: {type: lora, dim: 16}

Both become ``adapters { rank = 16, fused = on, split = both, ... }``.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from parcost import did_you_mean
from parcost_formats.tools.collector import SettingCollector
from parcost_formats.tools.drafts import Draft, Option, digits
from parcost_formats.tools.python_code import Cell, Entity, UnreadValue
from parcost_formats.tools.tables import table
from parcost_plugins.vocabulary.adapters import LAYER_TARGETS

BLOCK = "adapters"
#: Functions of a recipe that make adapters by the name of their class.
SCHEMES = ("default_peft_config", "default_peft_scheme")
_RULES: Mapping[str, Any] = table("megatron")["adapters"]
_CLASS = "class"
_KINDS = ("_target_", "type", "peft_scheme")  # keys with the class
_SECTION = "peft"  # of a file that names no class
_NAMES = {"rank": "dim"}
_OF_MLP = {"gate", "up", "down"}
#: Beginnings of entries whose models have experts.
_MIXTURES = tuple(f"catalog.models.{one}" for one in table("hub")["mixtures"])
_ELSEWHERE = "it is created in another file"

#: A function from a name and a value to texts of the value, and the reason if it is unknown.
TextsOf = Callable[[str, Any], tuple[Sequence[str], str]]


def make_scheme(
    node: ast.AST, arguments: Sequence[Any], keywords: Mapping[str, Cell]
) -> Entity | UnreadValue | None:
    """Return the adapters of a class by its name, with the fields of *keywords*; None for none."""
    given = dict(keywords)
    first = given.pop("peft_scheme", None)
    scheme = arguments[0] if arguments else first.value if first is not None else None
    if isinstance(scheme, Entity | UnreadValue):
        return scheme
    if scheme is None or str(scheme).lower() == "none":
        return None
    return Entity(str(scheme).lower(), node, given)


def find_fields(
    cell: Cell, option_of: Callable[[str, Cell], Option], texts_of: TextsOf
) -> dict[str, Option]:
    """Return the fields of adapters by name, with their class; none for a full fine-tuning."""
    value = cell.value
    if value is None or (isinstance(value, str) and value.lower() == "none"):
        return {}
    option = option_of(_CLASS, cell).evolve(assumption=cell.why)
    if isinstance(value, str):
        return {_CLASS: option.evolve(texts=(value,))}
    if not isinstance(value, Entity) or value.kind.startswith("?"):
        why = value.why if isinstance(value, UnreadValue) else _ELSEWHERE
        return {_CLASS: option.evolve(unread=why)}
    kind = next((one for one in _KINDS if one in value.cells), "")
    stated = value.cells[kind] if kind else Cell(value.kind, cell.node, cell.key, cell.why)
    if stated.value is None or str(stated.value).lower() == "none":
        return {}
    word, why = texts_of(_CLASS, stated.value)
    texts = tuple(one.rpartition(".")[2] for one in word)
    own = option_of(_CLASS, stated)
    found = {_CLASS: own.evolve(texts=texts, unread=why, assumption=stated.why)}
    for attribute, inner in value.cells.items():
        if attribute != kind:
            values, why = texts_of(attribute, inner.value)
            one = option_of(attribute, inner).evolve(assumption=inner.why)
            name = _NAMES.get(attribute, attribute)
            found[name] = one.evolve(name=name, texts=values, value=inner.value, unread=why)
    return found


def read_adapters(
    draft: Draft, fields: Mapping[str, Option], layout: SettingCollector, tool: str
) -> None:
    """Set the adapters of a job by their *fields*; *layout* has tp and the experts of the job.

    *tool* is the tool with its version, for assumptions.
    """
    unknown = next((one for one in fields.values() if one.unread), None)
    kind = fields[_CLASS]
    if unknown is not None:
        draft.problem(
            unknown,
            f"the adapters cannot be read: {unknown.unread}",
            "write the values",
        )
        return
    canonical = kind.text in _RULES["canonical"]
    if not canonical and kind.text not in (*_RULES["classes"], _SECTION):
        known = ", ".join((_RULES["classes"][0], _RULES["canonical"][0]))
        draft.problem(
            kind, f"adapters of the class `{kind.text}` are not supported", f"known: {known}"
        )
        return
    found = SettingCollector(
        {name: one for name, one in fields.items() if name != _CLASS}, draft=draft
    )
    _check_fields(draft, fields)
    rank = found.whole("dim")
    if rank is not None:
        draft.set(f"{BLOCK}.rank", digits(rank), fields["dim"])
    elif "dim" not in fields:
        draft.assume(f"{BLOCK}.rank", "32", f"{tool}: dim is 32", kind)
    draft.set(f"{BLOCK}.fused", "off" if canonical else "on", kind)
    targets = _read_targets(draft, fields, kind, tool, canonical=canonical)
    _read_dropout(draft, found, fields, kind, tool)
    _read_layout(draft, kind, layout, "both")
    for name, attribute in _RULES["switches"].items():
        if found.on(name):
            draft.set(f"{BLOCK}.{attribute}", "on", fields[name])
        elif name in fields:
            draft.ignore(fields[name])
    if _OF_MLP.intersection(targets):
        _read_experts(draft, found, fields, layout, canonical=canonical)


def read_swift_adapters(
    draft: Draft, fields: Mapping[str, Option], layout: SettingCollector
) -> None:
    """Set the adapters of a job of Megatron-SWIFT by its arguments *fields*."""
    rules: Mapping[str, Any] = table("megatron_tools")["ms_swift"]
    own, tool = rules["adapters"], str(rules["version"])
    found, kind = SettingCollector(fields, draft=draft), fields[_CLASS]
    for name, one in own["keep"].items():
        option = found.get(name)
        if option is not None and option.text not in one["values"]:
            draft.problem(option, str(one["why"]))
        elif option is not None:
            draft.ignore(option)
    found.ignore_all(own["ignored"], "it has no effect on cost")
    rank = found.whole("lora_rank")
    if rank is not None:
        draft.set(f"{BLOCK}.rank", digits(rank), fields["lora_rank"])
    elif "lora_rank" not in fields:
        draft.assume(f"{BLOCK}.rank", "8", f"{tool}: lora_rank is 8", kind)
    draft.assume(f"{BLOCK}.fused", "on", f"{tool}: linear_qkv and linear_fc1 are fused", kind)
    option = found.get("target_modules")
    why = "" if option is not None else f"{tool}: target_modules is all-linear"
    names = ("all-linear",) if option is None else option.texts
    chosen = _set_targets(draft, names, own["modules"], option or kind, why)
    share = found.number("lora_dropout")
    if share is not None:
        draft.set(f"{BLOCK}.dropout", "on" if share > 0 else "off", fields["lora_dropout"])
    elif "lora_dropout" not in fields:
        draft.assume(f"{BLOCK}.dropout", "on", f"{tool}: lora_dropout is 0.05", kind)
    _read_layout(draft, kind, layout, "one")
    if _OF_MLP.intersection(chosen) and has_experts(draft):
        draft.set(f"{BLOCK}.experts", "each", kind)


def _read_layout(draft: Draft, kind: Option, layout: SettingCollector, split: str) -> None:
    """Set how tensor parallelism splits adapters; ask for the type of frozen weights in fp8."""
    narrow = layout.lookup("fp8_param_gather")
    if "fp8_format" in layout and narrow is not None and narrow.text == "true":
        ask_for_frozen_type(draft, narrow)
    degree = layout.lookup("tensor_model_parallel_size")
    if degree is None or degree.text != "1":
        draft.set(f"{BLOCK}.split", split, kind)


def ask_for_frozen_type(draft: Draft, option: Option) -> None:
    """Ask for the type of frozen weights of a job with parameters in fp8, as *option* says."""
    why = (
        "frozen weights are parameters in fp8 if the model was made so, or in bf16 and cast in "
        "each step"
    )
    answers = [f"--set {BLOCK}.narrow=on", f"--set {BLOCK}.narrow=off"]
    draft.ask(f"{BLOCK}.narrow", why, answers, option)


def has_experts(draft: Draft) -> bool:
    """Return whether the model has experts."""
    models = (found for kind, found in draft.blocks.items() if kind.partition(" ")[0] == "model")
    named = any(one.startswith(_MIXTURES) for one in draft.uses)
    return named or any("experts" in found for found in models)


def _check_fields(draft: Draft, fields: Mapping[str, Option]) -> None:
    """Report unknown fields, and values that are not modeled."""
    keep: Mapping[str, Any] = _RULES["keep"]
    read = ("dim", "dropout", "dropout_position", "target_modules")
    experts = ("normalize_moe_lora", "share_expert_adapters")
    known = (_CLASS, *read, *experts, *_RULES["switches"], *_RULES["ignored"], *keep)
    for name, option in fields.items():
        if name in keep and option.value not in (None, [], "", False):
            if option.text not in keep[name]["values"]:
                draft.problem(option, str(keep[name]["why"]))
                continue
            draft.ignore(option)
        elif name in keep or name in _RULES["ignored"]:
            draft.ignore(option)
        elif name not in known:
            hint = did_you_mean(name, known) or f"known: {', '.join(known[1:])}"
            draft.problem(option, "the adapters of this tool have no such field", hint)


def _read_targets(
    draft: Draft, fields: Mapping[str, Option], kind: Option, tool: str, *, canonical: bool
) -> Sequence[str]:
    """Set and return the matrices that have an adapter."""
    prefix = "canonical_" if canonical else ""
    modules: Mapping[str, Sequence[str]] = _RULES[f"{prefix}modules"]
    option = fields.get("target_modules")
    stated = option is not None and option.value is not None
    names = option.texts if option is not None and stated else _RULES[f"{prefix}defaults"]
    place, why = kind.evolve(assumption=""), f"{tool}: target_modules are {', '.join(names)}"
    if option is not None and stated:
        place, why = option, ""
    if stated and not names:
        draft.problem(place, "an empty list means all linear layers, which is not supported")
    chosen = _set_targets(draft, names, modules, place, why)
    fused = [set(modules[one]) for one in (() if canonical else modules) if len(modules[one]) > 1]
    if canonical:
        fused = [{"query", "key", "value"}, {"gate", "up"}]
    for group in fused:
        part = group.intersection(chosen)
        if part and part != group:
            draft.problem(place, "adapters of a part of a fused projection are not supported")
    return chosen


def _set_targets(
    draft: Draft,
    names: Sequence[str],
    modules: Mapping[str, Sequence[str]],
    place: Option,
    why: str,
) -> Sequence[str]:
    """Set and return the targets of the *names* of modules."""
    chosen: list[str] = []
    for name in names:
        if name not in modules:
            what = "a pattern of modules" if "*" in name else f"the module `{name}`"
            draft.problem(place, f"{what} is not read", f"known: {', '.join(modules)}")
        chosen += modules.get(name, ())
    for target in LAYER_TARGETS:
        draft.set(f"{BLOCK}.{target}", "on" if target in chosen else "off", place, why)
    return chosen


def _read_dropout(
    draft: Draft, found: SettingCollector, fields: Mapping[str, Option], kind: Option, tool: str
) -> None:
    """Set the dropout of the inputs; one of the outputs is rejected."""
    share, option = found.number("dropout"), fields.get("dropout")
    if share is None:
        draft.assume(f"{BLOCK}.dropout", "off", f"{tool}: dropout is 0", kind)
    elif option is not None:
        draft.set(f"{BLOCK}.dropout", "on" if share > 0 else "off", option)
    position = fields.get("dropout_position")
    if position is not None and share and position.text != "pre":
        draft.problem(position, "dropout after the adapter is not modeled", "`pre` is read")
    elif position is not None:
        draft.ignore(position)


def _read_experts(
    draft: Draft,
    found: SettingCollector,
    fields: Mapping[str, Option],
    layout: SettingCollector,
    *,
    canonical: bool,
) -> None:
    """Set the adapters of routed experts, if the model has experts."""
    kind = fields[_CLASS]
    shared = "share_expert_adapters" not in fields or found.on("share_expert_adapters")
    if not has_experts(draft):
        return
    if canonical:
        draft.problem(
            kind, "canonical LoRA on experts is not supported: their projections are fused"
        )
    draft.set(f"{BLOCK}.experts", "shared" if shared else "each", kind)
    degree = layout.lookup("expert_model_parallel_size")
    if shared and degree is not None and degree.text != "1":
        why = "Megatron-Bridge 0.6: each backward pass sums the gradients of shared adapters"
        draft.assume(f"{BLOCK}.shared_sum", "micro_batch", why, kind)
    normalize = fields.get("normalize_moe_lora")
    if normalize is None or not found.on("normalize_moe_lora"):
        return
    top, rank = layout.whole("moe_router_topk"), found.whole("dim") or 32
    if top is None:
        draft.problem(normalize, "the file has no number of experts per token", "set `expert_rank`")
    elif rank % top:
        what = f"dim {rank} is not divisible by moe_router_topk {top}: Megatron-Bridge stops"
        draft.problem(normalize, what)
    else:
        draft.set(f"{BLOCK}.expert_rank", digits(rank // top), normalize)
