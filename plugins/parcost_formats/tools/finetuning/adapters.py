"""Read the adapters (LoRA, QLoRA) of fine-tuning tools, with the TOML table of each tool.

The section ``[adapters]`` of a table lists two kinds of settings of the tool: those that enable
adapters, with their values; and rank, targets, dropout and quantization, with their defaults.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from parcost_formats.tools.collector import SettingCollector, digits
from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.tables import table
from parcost_formats.tools.unsupported import unsupported_message
from parcost_plugins.vocabulary.adapters import LAYER_TARGETS

BLOCK = "adapters"
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_BASES = "only a base in NF4 or 16 bits is supported"


def trains_adapters(values: Mapping[str, Any], rules: Mapping[str, Any]) -> bool:
    """Return whether a job has adapters, by the *values* of the keys that switch them on."""
    own = rules[BLOCK]
    if not values:
        return bool(own.get("default"))
    return any(
        fnmatchcase(str(value).lower(), form)
        for key, value in values.items()
        for form in own["kinds"][key]
    )


def decides_adapters(
    key: str, entries: Mapping[str, JsonEntry], unread: Mapping[str, Any], rules: Mapping[str, Any]
) -> bool:
    """Return whether a key with an *unread* value decides on adapters, or describes them."""
    own = rules.get(BLOCK, {})
    if not own or key in own["kinds"]:
        return bool(own)
    names = ("rank", "targets", "every", "dropout", "bits", "four_bits", "eight_bits")
    known = {one for name in (*names, "double", "methods", "rejected") for one in own.get(name, ())}
    stated = {one: entries[one].value for one in own["kinds"] if one in entries}
    on = trains_adapters(stated, rules) or any(one in unread for one in own["kinds"])
    return on and key in known


def read_adapters(found: SettingCollector, rules: Mapping[str, Any], model: str = "") -> bool:
    """Read the adapters of a job; return whether it has any.

    *model* is the key of the model's name: some models are quantized, and projections of some are
    fused.
    """
    own, version = rules[BLOCK], str(rules["version"])
    name = str(found.value(model, "")).lower() if model else ""
    stated = {key: found.value(key) for key in own["kinds"] if key in found}
    if not trains_adapters(stated, rules):
        sizes = (*own.get("bits", ()), *own.get("four_bits", ()), *own.get("eight_bits", ()))
        for key in sizes:
            if str(found.value(key, "")).lower() not in ("", "0", "false", "none"):
                found.problem(key, unsupported_message("quantized"))
        reject_quantized_model(found, model)
        for key in own.get("bases", ()):
            if _find_base(found, key, own["bases"][key]) is not None:
                found.problem(
                    key, unsupported_message("quantized"), "only NF4 with adapters is supported"
                )
        return False
    parts = [key for section in own.get("rejected", ()) for key in found.keys_below(section)]
    for key in parts:
        if found.value(key) not in (None, False, 0, "", "false", "none", [], {}):
            what = "this part of adapters is not modeled yet"
            found.problem(key, what, "only plain LoRA and QLoRA are supported")
    key = next((one for one in own["rank"] if one in found), "")
    rank = found.whole(key) if key else own.get("rank_default")
    if rank is not None:
        found.set_or_assume(
            key, f"{BLOCK}.rank", digits(rank), f"{version}: {own['rank'][0]} is {rank}"
        )
    else:
        found.ask(f"{BLOCK}.rank", f"no `{own['rank'][0]}`", ["--set adapters.rank=16"])
    _read_targets(found, rules, name)
    if _is_fused(name):
        why = (
            "the projections of the model are fused: one adapter for q, k and v, and one for gate "
            "and up"
        )
        found.assume(f"{BLOCK}.fused", "on", why)
    key = next((one for one in own["dropout"] if one in found), "")
    share = found.number(key, most=1.0) if key else own.get("dropout_default", 0)
    on = "on" if share else "off"
    dropout = next(iter(own["dropout"]), "the dropout of adapters")
    found.set_or_assume(key, f"{BLOCK}.dropout", on, f"{version}: {dropout} is {share}")
    _read_base(found, rules, model)
    return True


def reject_quantized_model(found: SettingCollector, model: str) -> None:
    """Report an error if the name of a model, the value of the key *model*, is quantized."""
    if _find_base(found, model, _names()) is not None:
        found.problem(model, unsupported_message("quantized"))


def _names() -> Mapping[str, str]:
    """Return the storage types of models, by patterns of their names."""
    names: Mapping[str, str] = table("unsupported")["quantized_names"]
    return names


def _is_fused(model: str) -> bool:
    return any(fnmatchcase(model, form) for form in table("unsupported")["fused_projections"])


def _find_base(found: SettingCollector, key: str, forms: Mapping[str, str]) -> str | None:
    """Return the storage of frozen weights for the value of a key, by patterns of values.

    "" stands for an unsupported type, and None for a base in 16 or 32 bits.
    """
    value = str(found.value(key, "")).lower()
    return next((base for form, base in forms.items() if fnmatchcase(value, form)), None)


def _read_targets(found: SettingCollector, rules: Mapping[str, Any], model: str) -> None:
    """Set the matrices that have an adapter."""
    own, version = rules[BLOCK], str(rules["version"])
    for key, (usual, *targets) in own.get("switches", {}).items():
        on, why = found.switch(key), f"{version}: {key} is {str(usual).lower()}"
        for target in targets:
            state = "on" if (usual if on is None else on) else "off"
            found.set_or_assume(key, f"{BLOCK}.{target}", state, why)
    left = [target for target in LAYER_TARGETS if not found.has(f"{BLOCK}.{target}")]
    if not left:
        return
    every = next((key for key in own.get("every", ()) if found.switch(key)), "")
    key = every or next((one for one in own["targets"] if one in found), "")
    if every:
        chosen: Sequence[str] = own.get("every_targets", LAYER_TARGETS)
    elif key:
        chosen = list(_targets(found, key, rules))
    elif any(fnmatchcase(model, form) for form in own.get("targets_models", ("*",))) and (
        "targets_default" in own
    ):
        chosen = own["targets_default"]
    else:
        why = f"no `{own['targets'][0]}`, whose default is unknown; list every target that is on"
        usual = ("query", "key", "value") if _is_fused(model) else ("query", "value")
        answer = " ".join(f"--set {BLOCK}.{target}=on" for target in usual)
        found.ask(f"{BLOCK}.query", why, [answer])
        for target in left[1:]:
            found.assume(f"{BLOCK}.{target}", "off", "targets are on if an option names them")
        return
    for target in (*left, *(["head"] if "head" in chosen else [])):
        value, why = "on" if target in chosen else "off", f"{version}: {own.get('targets_why', '')}"
        found.set_or_assume(key, f"{BLOCK}.{target}", value, why)


def _targets(found: SettingCollector, key: str, rules: Mapping[str, Any]) -> Iterator[str]:
    """Yield the targets that the names in the value of *key* stand for."""
    value = found.value(key)
    names = [str(one).strip() for one in value] if isinstance(value, list) else [str(value).strip()]
    if len(names) == 1 and rules[BLOCK].get("separator") and "," in names[0]:
        names = [one.strip() for one in names[0].split(",") if one.strip()]
    own: Mapping[str, Any] = rules[BLOCK].get("modules", {})
    modules: Mapping[str, Any] = own or table("unsupported")["modules"]
    known = ", ".join([*([] if own else ["all-linear"]), *modules])
    for name in names:
        if not own and name in ("all", "all-linear", "all_linear"):
            yield from LAYER_TARGETS
        elif "*" in name and rules[BLOCK].get("wildcards"):
            form = name.removeprefix("*.") if name != "*" else name
            chosen = [one for one in modules if fnmatchcase(one, form)]
            single = [modules[one][0] for one in chosen if len(modules[one]) == 1]
            if not single:
                found.problem(key, f"`{name}` matches no module", f"known: {known}")
            yield from single
        elif name in modules:
            meant = modules[name]
            yield from meant
            if len(meant) > 1:
                found.set(f"{BLOCK}.fused", "on", key)
        else:
            regular = not _NAME.fullmatch(name)
            what = "a regular expression of modules" if regular else f"the module `{name}`"
            found.problem(key, f"{what} is not read", f"known: {known}")


def _read_base(found: SettingCollector, rules: Mapping[str, Any], model: str) -> None:
    """Set the storage of the frozen model, if it is quantized."""
    own, version = rules[BLOCK], str(rules["version"])
    eight = next((key for key in own.get("eight_bits", ()) if found.switch(key)), "")
    four = next((key for key in own.get("four_bits", ()) if found.switch(key)), "")
    bits = next((key for key in own.get("bits", ()) if key in found), "")
    if bits:
        size = found.whole(bits, least=0)
        four, eight = (bits if size == 4 else ""), (bits if size not in (0, 4) else "")
    if eight:
        found.problem(eight, unsupported_message("quantized"), _BASES)
    if not four:
        bases = dict.fromkeys(own.get("bases", ()), own.get("bases_why", ""))
        bases |= {model: "checkpoints of this name are stored in this type"} if model else {}
        for key, why in bases.items():
            base = _find_base(found, key, own.get("bases", {}).get(key, _names()))
            if base == "":
                found.problem(key, unsupported_message("quantized"), _BASES)
            elif base is not None:
                found.use(f"quantizations.{base}", key, why)
                found.set(f"{BLOCK}.base", base, key)
        return
    for key in own.get("methods", ()):
        if str(found.value(key, "nf4")).lower() not in ("nf4", "bnb", "bitsandbytes"):
            found.problem(
                key, unsupported_message("quantized"), "only NF4 of bitsandbytes is supported"
            )
    key = next((one for one in own.get("double", ()) if one in found), "")
    twice = found.switch(key) if key else own["double_default"]
    name = "nf4_double" if twice else "nf4"
    why = "" if key else f"{version}: double quantization is {'on' if twice else 'off'}"
    found.use(f"quantizations.{name}", key or four, why)
    found.set(f"{BLOCK}.base", name, four)
