"""Models of MaxText, by their names or by their sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from parcost_formats.tools.collector import SettingCollector, digits
from parcost_formats.tools.file_importer import FileError
from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.tables import table
from parcost_formats.tools.yaml_text import read_mapping

_TABLE = table("maxtext")
_OWN = "own"
_EARLY_HEADS = "base_num_heads"  # of 2023, when every query head had keys and values
_HEADS = ("heads", "kv_heads")
#: Keys of base.yml that had other defaults in 2023, or that are not known to have had the same:
#: the attribute of each, and values to choose from.
_OF_EARLY = {
    "mlp_activations": ("model.gated", ("on", "off")),
    "logits_via_embedding": ("model.tied", ("on", "off")),
    "vocab_size": ("model.vocabulary", ("32768", "32000")),
    "max_target_length": ("training.sequence", ("1024", "2048")),
}


def read_name(
    found: SettingCollector, name: str, neighbor: Callable[[str], str | None]
) -> int | None:
    """Set the model of a name: a catalogue entry, or a file in the same folder.

    Return its layer count if it is known.
    """
    sizes = _sizes_beside(found)
    entry = _TABLE["names"].get(name)
    if sizes and entry is not None and found.switch("override_model_config"):
        for key, (attribute, value) in sizes.items():
            found.set(f"model {_OWN} extends {entry}.{attribute}", value, key)
        found.use(f"models.{entry}", "model_name")
        found.set("training.model", _OWN, "model_name")
        return None
    if sizes:
        key = next(iter(sizes))
        reason = f"`{key}` is set beside `model_name`: {name} with other sizes"
        answers = _answers()
        if entry is not None:
            changed = [f"--set {entry}.{one}={value}" for one, value in sizes.values()]
            plain = f"--use catalog.models.{entry}"
            answers = [" ".join([plain, *changed]), plain]
        found.ask("model", reason, answers, key)
    if entry is not None:
        found.use(f"models.{entry}", "model_name")
        found.set("training.model", entry, "model_name")
        return None
    for place in (f"models/{name}.yml", f"{name}.yml"):
        text = neighbor(place)
        with suppress(FileError):  # a file that cannot be read describes no model
            if text is not None:
                return _of_file(found, read_mapping(text), place)
    for start, lacks in _TABLE["lacking_names"].items():
        if name.startswith(start):
            found.problem("model_name", f"a spec cannot describe {lacks}")
            return None
    found.ask("model", f"`{name}` is not in parcost's table", _answers(), "model_name")
    return None


def _sizes_beside(found: SettingCollector) -> dict[str, tuple[str, str]]:
    """Return the sizes that a file states in addition to a model name: attributes and values by
    key.
    """
    tables = (_TABLE["model"], _TABLE["parts"], _TABLE["latent"])
    names = {key: str(facts["name"]) for one in tables for key, facts in one.items()}
    names |= {"num_experts_per_tok": "top_k", "base_moe_mlp_dim": "expert_ffn"}
    if not found.switch("override_model_config"):
        del names["vocab_size"]  # a name has its own, whatever the run states
    numbers = {key: found.whole(key, least=-1) for key in names if key in found}
    return {key: (names[key], digits(one)) for key, one in numbers.items() if one is not None}


def _answers() -> list[str]:
    return ["--use catalog.models.llama31_8b", "--use MODEL.yml"]


def _of_file(found: SettingCollector, entries: Mapping[str, JsonEntry], place: str) -> int | None:
    """Set the model described by another file and by ``base.yml``; return its layer count."""
    inner = SettingCollector(entries, _TABLE)
    layers = read_model(inner)
    translation = inner.translation()
    for problem in translation.problems:
        found.problem("model_name", f"{place}: {problem.message}")
    for block in translation.blocks:
        label = f"{block.kind} {block.label}".strip()
        for one in block.settings:
            found.assume(f"{label}.{one.name}", one.value, one.assumption or f"{place}: {one.key}")
    return layers


def read_model(found: SettingCollector) -> int | None:
    """Set the sizes of a model; return its layer count."""
    block = f"model {_OWN}"
    decoder = str(found.value("decoder_block", "llama2"))
    lacks = _TABLE["lacking"].get(decoder)
    if lacks is None and found.value("gdn_num_value_heads") and decoder not in _TABLE["decoders"]:
        lacks = "layers of Gated DeltaNet"
    if decoder not in _TABLE["decoders"]:
        known = ", ".join(_TABLE["decoders"])
        message = (
            f"a spec cannot describe {lacks}" if lacks else f"`{decoder}` is not in parcost's table"
        )
        if "decoder_block" in found:
            found.problem("decoder_block", message, f"known: {known}")
        return None
    numbers = _sizes(found, block)
    for key, (path, words) in _OF_EARLY.items() if _EARLY_HEADS in found else ():
        if key not in found:
            why = f"`{_EARLY_HEADS}` is a key of 2023, when base.yml had another default of {key}"
            found.ask(path, why, [f"--set {path}={word}" for word in words], _EARLY_HEADS)
    for name, value in _TABLE["decoders"][decoder].items():
        found.assume(f"{block}.{name}", value, _why(f"the code of {decoder}"))
    _parts(found, block)
    _attention(found, block, decoder)
    if found.value("attention_type") == "mla":
        for key, facts in _TABLE["latent"].items():
            number = found.whole(key, least=0)
            if number or (number is None and facts["usual"]):
                value = digits(number or facts["usual"])
                found.set_or_assume(key, f"{block}.{facts['name']}", value, _why(f"{key} is usual"))
    for key, name in _TABLE["model_switches"].items():
        on = found.switch(key)
        if on:
            found.set(f"{block}.{name}", "on", key)
    activations = found.value("mlp_activations", ["silu", "linear"])
    if activations != ["swiglu"] and isinstance(activations, list) and len(activations) < 2:
        found.set(f"{block}.gated", "off", "mlp_activations")  # one product for each activation
    return numbers.get("layers")


def _why(fact: str) -> str:
    return f"{_TABLE['version']}: {fact}"


def _sizes(found: SettingCollector, block: str) -> dict[str, int]:
    """Set the sizes that every model has, multiplied by the global parameter scale."""
    scale = found.whole("global_parameter_scale") or 1
    powers = _powers(scale)
    if powers is None:
        found.problem("global_parameter_scale", f"{scale} is not a power of 2")
        return {}
    numbers: dict[str, int] = {}
    latent = found.value("attention_type") == "mla"
    for usual_key, facts in _TABLE["model"].items():
        name = facts["name"]
        early = name in _HEADS and _EARLY_HEADS in found and usual_key not in found
        key = _EARLY_HEADS if early else usual_key
        if latent and name in ("head_dim", "kv_heads"):
            found.value(key)
            continue
        number = found.whole(key)
        if key in found and number is None:
            continue
        factor = 2 ** powers[facts["scale"]] if "scale" in facts else 1
        numbers[name] = (facts["usual"] if number is None else number) * factor
        source = "global_parameter_scale" if number is None and factor > 1 else key
        why = _why(f"{key} is {facts['usual']}")
        found.set_or_assume(source, f"{block}.{name}", digits(numbers[name]), why)
    return numbers


def _powers(scale: int) -> dict[str, int] | None:
    """Return the power of 2 by which the global scale multiplies each size.

    >>> _powers(64)
    {'layer': 2, 'embedding': 2, 'head': 2}
    >>> _powers(2), _powers(3)
    ({'layer': 0, 'embedding': 0, 'head': 1}, None)
    """
    power = scale.bit_length() - 1
    if 2**power != scale:
        return None
    base, rest = divmod(power, 3)
    return {"layer": base, "embedding": base + (rest > 1), "head": base + (rest > 0)}


def _parts(found: SettingCollector, block: str) -> None:
    """Set experts, dense layers, MTP layers and learned positions."""
    experts = found.whole("num_experts") or 1
    for key, facts in _TABLE["parts"].items():
        number = found.whole(key, least=-1)
        if number is None or number == facts["off"]:
            continue
        if facts["name"] in ("dense_first", "moe_every", "shared_experts") and experts == 1:
            found.ignore(key, "a model without experts")
            continue
        found.set(f"{block}.{facts['name']}", digits(number), key)
    top_k, wide = "num_experts_per_tok", "base_moe_mlp_dim"
    chosen, width = found.whole(top_k), found.whole(wide, least=-1)
    if experts > 1:
        if chosen is not None:
            found.set(f"{block}.top_k", digits(chosen), top_k)
        if width is not None and width > 0:
            found.set(f"{block}.expert_ffn", digits(width), wide)


def _attention(found: SettingCollector, block: str, decoder: str) -> None:
    """Set attention windows, and the norms after attention and FFN."""
    window = found.whole("sliding_window_size", least=0)
    kind = found.value("attention_type")
    if window and ("full_every" in _TABLE["decoders"][decoder] or kind == "local_sliding"):
        found.set(f"{block}.window", digits(window), "sliding_window_size")
    if kind in ("chunk", "compressed", "block_diffusion"):
        found.problem("attention_type", f"attention of type `{kind}` is not modeled")
    behind = [key for key in ("use_post_attn_norm", "use_post_ffw_norm") if found.switch(key)]
    if behind:
        found.set(f"{block}.norms", str(2 + len(behind)), behind[0])
