"""The text model of a ``config.json``, attribute by attribute."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import PurePath
from typing import Any

from attrs import evolve

from parcost import (
    ImportedKey,
    ImportedValue,
    Translation,
)
from parcost_formats.tools.collector import cost_reason
from parcost_formats.tools.drafts import Draft, Option, digits
from parcost_formats.tools.file_importer import error_at
from parcost_formats.tools.huggingface.families import SWITCHES, TABLE, ModelFamily, is_set
from parcost_formats.tools.huggingface.layers import (
    LayerError,
    Layers,
    dense_layers,
    full_layers,
)
from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.layer_settings import settings_of_dense, settings_of_full
from parcost_formats.tools.tables import is_listed, unknown_words, value_of_pattern
from parcost_plugins.physics.neighbours import divisors

ABSENT = "not modeled yet"
_MOST_UNKNOWN = 2000  # keys; a configuration has some tens
_MOST_COMPARED = 100  # of them, with the keys that the file lacks
_CORE = ("layers", "hidden", "heads", "vocabulary")
#: Attributes that no file states layer by layer.
_OF_MODEL = ("layers", "hidden", "vocabulary", "positions", "positions+2")
#: Keys for the number of routed experts, in model types without a table.
_NUMBER_OF_EXPERTS = re.compile(r"(?:num|n)_(?!.*(?:shared|active|selected|per_|group)).*experts?$")
_NONE_AT_ZERO = (
    *("kv_lora", "q_lora", "nope_dim", "rope_dim", "ffn"),
    *("experts", "expert_ffn", "shared_experts", "shared_ffn"),
)
_OF_EXPERTS = ("top_k", "expert_ffn", "shared_experts", "shared_ffn", "shared_gate", "router_bias")

_ORDER = {name: place for place, name in enumerate(dict.fromkeys(TABLE["numbers"].values()))}


class Configuration:
    """The entries of the text part of a configuration, read with the table."""

    def __init__(
        self,
        name: str,
        entries: Mapping[str, JsonEntry],
        model_type: str,
        prefix: str,
        marks: Sequence[str],
        *,
        by_keys: bool,
    ) -> None:
        """Read *entries* as a *model_type*; *by_keys* is true if the file has another type."""
        self._entries = entries
        self._family = ModelFamily(model_type)
        self._prefix = prefix
        self._marks = marks
        self._by_keys = by_keys
        self._draft = Draft({"model": _label(name, model_type)})
        self._settings = self._draft.blocks["model"]
        self._ignored, self._draft.unknown = self._others()

    def translation(self, left: Sequence[ImportedKey]) -> Translation:
        """Return the translation; *left* are keys outside of the text part."""
        unknown = self._draft.unknown
        if len(unknown) > _MOST_UNKNOWN:
            message = f"{len(unknown):,} keys are in no configuration of transformers"
            help = f"a configuration with more than {_MOST_UNKNOWN:,} unknown keys is not read"
            raise error_at(unknown[0], message, help)
        for step in (
            self._check_support,
            self._read_numbers,
            self._read_switches,
            self._read_code,
            self._read_rules,
            self._read_experts,
            self._read_layers,
            self._check_heads,
            self._ask,
        ):
            step()
        if self._marks and self._settings:
            marked = self._settings.get("layers") or next(iter(self._settings.values()))
            why = "; ".join([*self._marks, *filter(None, [marked.assumption])])
            self._settings[marked.name] = evolve(marked, assumption=why)
        places = sorted(self._settings, key=lambda name: _ORDER.get(name, len(_ORDER)))
        self._draft.blocks["model"] = {name: self._settings[name] for name in places}
        found = self._draft.translation()
        return found if found.problems else evolve(found, ignored=(*self._ignored, *left))

    # Keys

    def _read_numbers(self) -> None:
        """Read keys that state an attribute as a number."""
        numbers = {**TABLE["numbers"], **self._family.numbers}
        stated: dict[str, str] = {}
        for key in [*self._entries, *self._family.defaults]:
            path = numbers.get(key)
            if path is None or (key not in self._entries and self._has(path.strip("+/2"), numbers)):
                continue
            value, why = self._value_of(key)
            if value is None:
                continue
            number = self._whole(key, value, by_layer=path not in _OF_MODEL)
            if number is None:
                continue
            name, number = _scale(path, number)
            if number == 0 and name in _NONE_AT_ZERO:
                continue
            if name in stated and str(self._settings[name].value) != digits(number):
                self._error(
                    key,
                    f"{number} contradicts `{stated[name]}`, which says "
                    f"{self._settings[name].value}",
                )
                continue
            stated[name] = key
            self._set(name, digits(number), key, why)

    def _has(self, name: str, numbers: Mapping[str, str]) -> bool:
        """Return whether a key of the file states an attribute."""
        return any(
            self._entries[key].value is not None
            for key, path in numbers.items()
            if path.strip("+/2") == name and key in self._entries
        )

    def _read_switches(self) -> None:
        """Read switches; false sets no attribute."""
        for key, names in self._family.switches.items():
            value, why = self._value_of(key)
            if value is None:
                continue
            if not isinstance(value, bool):
                self._error(key, "true or false is expected")
            elif value:
                self._set_all(names, key, why)
            elif key in self._entries and names == "tied":
                self._set("tied", "off", key)

    def _set_all(self, names: str, key: str, why: str) -> None:
        for item in names.split():
            name, _, value = item.partition("=")
            self._set(name, value or "on", key, why)

    def _read_code(self) -> None:
        """Set the attributes that the code of the model type determines."""
        for name, value in self._family.row.get("set", {}).items():
            if name not in self._settings:
                self._assume(name, value, self._family.code)

    def _read_rules(self) -> None:
        """Read keys that some model types combine."""
        rule = self._family.row.get("rule", "")
        if rule == "falcon":
            self._read_falcon()
        elif rule == "mpt":
            self._read_mpt()
        elif rule == "baichuan" and "max_position_embeddings" not in self._entries:
            self._assume(
                "alibi", "on", "Baichuan 13B has ALiBi; its file has no max_position_embeddings"
            )

    def _read_mpt(self) -> None:
        """Read the sizes, the heads and the positions of MPT, also in LLM Foundry's own code."""
        ratio, why = self._value_of("expansion_ratio")
        hidden = self._number("hidden")
        if hidden and isinstance(ratio, (int, float)) and not isinstance(ratio, bool):
            self._set("ffn", digits(round(hidden * ratio)), "expansion_ratio", why)
        key = "attn_config.attn_type"
        kind, _ = self._value_of(key)
        if kind == "multiquery_attention":
            self._set("kv_heads", "1", key)
        elif kind not in (None, "multihead_attention", "grouped_query_attention"):
            self._error(key, f"attention of the type `{kind}` is {ABSENT}")
        key = "ffn_config.ffn_type"
        kind, _ = self._value_of(key)
        if kind == "mptglu":
            self._set("gated", "on", key)
        elif kind not in (None, "mptmlp"):
            self._error(key, f"a feed-forward of the type `{kind}` is {ABSENT}")
        rotary, _ = self._value_of("attn_config.rope")
        learned, _ = self._value_of("learned_pos_emb")
        length, why = self._value_of("max_seq_len")
        if "alibi" not in self._settings and not rotary and learned is not False and length:
            number = self._whole("max_seq_len", length)
            if number is not None:
                self._set("positions", digits(number), "max_seq_len", why)

    def _read_falcon(self) -> None:
        """Read the three variants of Falcon's decoder layer."""
        new, _ = self._value_of("new_decoder_architecture")
        parallel, why = self._value_of("parallel_attn")
        shared, shared_why = self._value_of("multi_query")
        norms, norms_why = self._value_of("num_ln_in_parallel_attn")
        if not new:
            self._settings.pop("kv_heads", None)
            if shared:
                self._set("kv_heads", "1", "multi_query", shared_why)
        if new or parallel:
            key, reason = ("new_decoder_architecture", "") if new else ("parallel_attn", why)
            self._set("parallel_residual", "on", key, reason)
            if not new or norms == 1:
                self._set(
                    "norms",
                    "1",
                    key if norms is None else "num_ln_in_parallel_attn",
                    reason if norms is None else norms_why,
                )

    def _read_experts(self) -> None:
        """Read the width of shared experts; drop the expert attributes of a dense model."""
        if "experts" not in self._settings:
            for name in _OF_EXPERTS:
                self._settings.pop(name, None)
            return
        width = self._settings.get("shared_ffn")
        if width is not None and "shared_experts" not in self._settings:
            self._assume("shared_experts", "1", f"of the width {width.key or 'shared_ffn'}")
        if "shared_experts" not in self._settings:
            self._settings.pop("shared_gate", None)

    def _read_layers(self) -> None:
        """Read which layers are dense, and which have full attention."""
        layers = self._number("layers")
        if not layers or layers > 100_000:
            return
        try:
            if "experts" in self._settings:
                found = dense_layers(layers, self._value_of)
                for name, value in settings_of_dense(found.layers, layers):
                    self._set(name, value, found.key, found.why)
            name = self._family.row.get("window", "sliding_window")
            window, why = self._value_of(name)
            linear, every = "delta_heads" in self._settings, self._family.row.get("full_every", 0)
            listed = full_layers(layers, self._value_of, every, linear=linear)
            if linear:
                self._set_full(listed, layers)
                return
            chunked = listed.kind == "chunked_attention"
            if listed.kind == "sliding_attention" and not window:
                if listed.key == "layer_types" and len(listed.layers) < layers:
                    self._error("layer_types", f"layers have a window, but `{name}` is missing")
                return
            if not window or len(listed.layers) == layers:
                return
            if not self._family.row.get("windows", True) and not self._by_keys:
                self._leave(name, f"models of the type `{self._family.name}` have no windows")
                return
            number = self._whole(name, window)
            if number is None:
                return
            self._set("window", digits(number), name, why)
            if chunked or name == "attention_chunk_size":
                self._assume("chunked", "on", self._family.code)
            self._set_full(listed, layers)
        except LayerError as error:
            self._error(error.key, str(error))

    def _set_full(self, listed: Layers, count: int) -> None:
        for attribute, value in settings_of_full(listed.layers, count):
            self._set(attribute, value, listed.key, listed.why)

    # Checks

    def _check_support(self) -> None:
        """Reject unknown words, and values that parcost cannot express."""
        for key, message, help in unknown_words(self._entries, TABLE):
            self._error(key, message, help)
        for key, what in TABLE["lacking"]["keys"].items():
            if is_set(self._entries, key) and not self._family.reads(key):
                shown = next((k for k in self._entries if k.startswith(key)), key)
                self._error(shown, f"{what} {ABSENT}")
        for key, expected in self._family.row.get("expects", {}).items():
            value, why = self._value_of(key)
            if not why and key in self._entries and bool(value) is not expected:
                stated = "true" if expected else "false"
                self._error(
                    key,
                    f"parcost models `{self._family.name}` only with the value {stated}",
                )
        for key, other in self._family.row.get("equal", {}).items():
            value, _ = self._value_of(key)
            same, _ = self._value_of(other)
            if value is not None and value != same:
                self._error(
                    key,
                    f"{value} is not the {same} of `{other}`: a projection between "
                    f"them is {ABSENT}",
                )

    def _check_heads(self) -> None:
        """Reject head counts and sizes that contradict each other."""
        heads, hidden = self._number("heads"), self._number("hidden")
        latent = "kv_lora" in self._settings
        self._check_groups("delta_heads", "delta_key_heads", "value heads", "key heads")
        if latent:
            self._settings.pop("kv_heads", None)  # compressed keys and values have no heads
            self._settings.pop("head_dim", None)
            if heads and hidden and hidden % heads:
                values = self._settings.get("v_dim")
                self._assume("head_dim", values.value if values else "0", "MLA does not use it")
            return
        if not heads:
            return
        if hidden and "head_dim" not in self._settings and hidden % heads:
            near = divisors(float(hidden), float(heads))
            self._error(
                self._settings["heads"].key or "model_type",
                f"a hidden size of {hidden} / {heads} heads is {hidden / heads:.6g}, which is not "
                "a whole head size",
                (f"{near} heads divide {hidden}; or " if near else "")
                + "state the size of a head as `head_dim`",
            )
        size = self._number("head_dim")
        if size == 0:
            self._error(
                "head_dim",
                f"the size of the {heads} attention heads is 0",
                "set the size of a head",
            )
        if self._family.row.get("square") and hidden and size and heads * size != hidden:
            self._error(
                "head_dim",
                f"{heads} heads x {size} = {heads * size}, but the output projection of this "
                f"model type has {hidden} inputs",
            )
        self._check_groups("heads", "kv_heads", "query heads", "KV heads")

    def _check_groups(self, whole: str, part: str, heads: str, groups: str) -> None:
        """Reject a number of *heads* that is not a multiple of their *groups*."""
        count, divisor = self._number(whole), self._number(part)
        if count is None or divisor is None or (divisor and count % divisor == 0):
            return
        stated = [self._settings[name].key for name in (part, whole)]
        place = next(filter(None, stated), "model_type")
        if not divisor:
            self._error(place, f"{count} {heads} need {groups}", f"set 1 to {count} {groups}")
            return
        near = divisors(float(count), float(divisor))
        message = f"{count} {heads} / {divisor} {groups} is {count / divisor:.6g}, a fraction"
        self._error(place, message, f"{near} {groups} divide {count} {heads}" if near else "")

    def _ask(self) -> None:
        """Ask for sizes that are missing, or whose key may be misspelled."""
        numbers = {**TABLE["numbers"], **self._family.numbers}
        names = [
            key.name.removeprefix(self._prefix) for key in self._draft.unknown if not key.reason
        ][:_MOST_COMPARED]
        places = {**TABLE["layers"], **self._family.switches, **numbers}
        asked: set[str] = set()
        for key in (
            *self._family.defaults,
            *TABLE["layers"],
            *numbers,
            *self._family.switches,
        ):
            name = places.get(key, key).split()[0].strip("+/2")
            if key in self._entries or name in asked:
                continue
            if key in numbers and self._has(name, numbers):
                continue
            close = get_close_matches(key, names, n=1, cutoff=0.85)
            if not close:
                continue
            asked.add(name)
            value = self._entries[close[0]].value
            self._question(
                name,
                f"the file has no `{key}`, but it has `{close[0]}`, which is not a key of "
                "transformers",
                [value, self._family.defaults.get(key)],
                close[0],
            )
        for key in names if "experts" not in self._settings else ():
            if _NUMBER_OF_EXPERTS.search(key) and "experts" not in asked:
                asked.add("experts")
                reason = f"`{key}` is not a key of transformers; it may be the number of experts"
                self._question("experts", reason, [self._entries[key].value, 0], key)
        for name in _CORE:
            setting = self._settings.get(name)
            if name in asked:
                continue
            if setting is None:
                keys = [key for key, path in numbers.items() if path == name]
                key = next((one for one in keys if one in self._entries), keys[0])
                why = "null" if key in self._entries else "not in the file"
                near = key if key in self._entries else "model_type"
                self._question(name, f"`{key}` is {why}", [], near)
            elif setting.assumption and not setting.key and self._draft.unknown:
                self._question(
                    name,
                    f"the file does not state it, and it has unknown keys, such as "
                    f"`{self._draft.unknown[0].name}`",
                    [setting.value],
                )

    def _question(
        self, name: str, reason: str, values: Sequence[Any], near: str = "model_type"
    ) -> None:
        answers = [
            f"--set model.{name}={str(value).lower() if isinstance(value, bool) else value}"
            for value in values
            if isinstance(value, (bool, int, str)) and value != ""
        ]
        found = tuple(dict.fromkeys(answers)) or (f"--set model.{name}=NUMBER",)
        self._draft.ask(f"model.{name}", reason, found, self._option(near))

    # Entries

    def _value_of(self, key: str) -> tuple[Any, str]:
        """Return the value of a key, and the reason for it if the file does not state it."""
        entry = self._entries.get(key)
        if entry is not None:
            return entry.value, ""
        if key in self._family.defaults:
            return self._family.defaults[key], self._family.default_reason(key)
        return None, ""

    def _whole(self, key: str, value: Any, *, by_layer: bool = False) -> int | None:
        """Return an integer; report an error for other values.

        *by_layer*: a list of equal integers, one for each layer, is that integer.
        """
        if by_layer and isinstance(value, list) and len(value) > 1:
            layers = self._count_layers()
            if layers not in (None, len(value)):
                self._error(key, f"it lists {len(value)} layers, but the model has {layers}")
                return None
            value = value[0] if all(one == value[0] for one in value) else value
        if by_layer and isinstance(value, list) and len(value) > 1:
            self._error(key, f"it differs between layers, which is {ABSENT}")
        elif isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 10**15:
            self._error(key, "a whole number is expected")
        else:
            return value
        return None

    def _count_layers(self) -> Any:
        """Return the number of layers that the file states, or None."""
        numbers = {**TABLE["numbers"], **self._family.numbers}
        stated = (self._entries[key].value for key in self._entries if numbers.get(key) == "layers")
        return next((one for one in stated if one is not None), None)

    def _number(self, name: str) -> int | None:
        setting = self._settings.get(name)
        return int(setting.value.replace("_", "")) if setting is not None else None

    def _set(self, name: str, value: str, key: str, why: str = "") -> None:
        """Set an attribute to the value that a key of the file states, or to an assumed value."""
        if key not in self._entries or why:
            self._assume(name, value, why or self._family.code)
        else:
            self._draft.set(f"model.{name}", value, self._option(key))

    def _assume(self, name: str, value: str, why: str) -> None:
        self._settings[name] = ImportedValue(name=name, value=value, assumption=why)

    def _leave(self, key: str, reason: str) -> None:
        """List a key that may affect cost but is not supported."""
        if key in self._entries:
            self._draft.leave(self._option(key), reason)

    def _error(self, key: str, message: str, help: str = "") -> None:
        key = key.removeprefix(self._prefix)
        place = self._option(key if key in self._entries else "model_type")
        self._draft.problem(place.evolve(key=key), message, help)

    def _option(self, key: str) -> Option:
        """Return a key with its place; a missing one is at the start of the file."""
        entry = self._entries.get(key, JsonEntry(None, 0, 1))
        return Option(name=key, key=self._prefix + key, start=entry.start, end=entry.end)

    def _others(self) -> tuple[list[ImportedKey], list[ImportedKey]]:
        """Return the keys that set nothing: keys without effect on cost, and unknown keys."""
        family, reasons = self._family, TABLE["reasons"]
        read = {
            *TABLE["numbers"], *family.numbers, *family.switches,
            *family.row.get("expects", {}), *family.row.get("equal", {}),
            *TABLE["layers"], *TABLE["read"]["keys"], *family.row.get("read", ()),
        }  # fmt: skip
        ignored: list[ImportedKey] = []
        unknown: list[ImportedKey] = []
        for key, entry in self._entries.items():
            if key in read or key in TABLE["lacking"]["keys"]:
                continue
            cost = cost_reason(key, entry.value, TABLE["costs"])
            why = value_of_pattern(key, reasons)
            listed = key in TABLE["costs"] or why or is_listed(key, TABLE["ignored"]["keys"])
            foreign = key in SWITCHES
            unset = foreign and not entry.value
            reason = cost or (why if entry.value else "")
            if foreign and not unset:
                reason = f"models of the type `{family.name}` have no such key"
            one = ImportedKey(
                name=self._prefix + key,
                start=entry.start,
                end=entry.end,
                reason=reason,
                attribute=TABLE["left_out"].get(key, ""),
            )
            (ignored if not cost and (listed or unset) else unknown).append(one)
        return ignored, unknown


def _scale(path: str, number: int) -> tuple[str, int]:
    """Return an attribute and its value, from a table entry such as ``ffn/2`` or ``positions+2``.

    >>> _scale("ffn/2", 22016), _scale("positions+2", 2048)
    (('ffn', 11008), ('positions', 2050))
    """
    if path.endswith("/2"):
        return path[:-2], number // 2
    if path.endswith("+2"):
        return path[:-2], number + 2
    return path, number


def _label(name: str, family: str) -> str:
    """Return a valid label for a model, from its file name or family.

    >>> _label("models/Llama-3.1-8B.json", "llama"), _label("config.json", "qwen3_moe")
    ('llama_3_1_8b', 'qwen3_moe')
    """
    stem = PurePath(name).stem
    chosen = family if stem == "config" else stem
    found = re.sub(r"[^a-z0-9]+", "_", chosen.lower()).strip("_")
    return found if found[:1].isalpha() else f"model_{found}".rstrip("_")
