"""Layers of different kinds in a ``config.json``: dense or MoE, full or windowed attention.

Configurations list layers, or state rules by numbers that differ between model types. All of them
are turned into a set of layers, counted from 0, and then into the shortest attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

#: Returns the value of a key, and the reason for it if the file does not state it.
ValueOf = Callable[[str], tuple[Any, str]]

_FULL, _WINDOWED, _CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
_LINEAR = "linear_attention"
#: Keys whose number n, or text, states that every n-th layer has full attention.
_PATTERNS = ("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers")


class LayerError(ValueError):
    """Layers contradict the file or cannot be expressed; *key* states them."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


class Layers(NamedTuple):
    """A set of layers, counted from 0, the key that states it, and the reason if it is assumed.

    *kind* is the kind of attention of the other layers.
    """

    layers: Sequence[int]
    key: str = ""
    why: str = ""
    kind: str = ""


def dense_layers(count: int, value_of: ValueOf) -> Layers:
    """Return the dense layers of an MoE model."""
    types, why = value_of("mlp_layer_types")
    if types:
        kinds = _layer_kinds("mlp_layer_types", types, count, ("dense", "sparse", "moe"))
        return Layers(
            [i for i, kind in enumerate(kinds) if kind == "dense"], "mlp_layer_types", why
        )
    with_experts, why = value_of("moe_layers")
    if with_experts and isinstance(with_experts, list):
        held = {*_numbers("moe_layers", with_experts, count)}
        return Layers([i for i in range(count) if i not in held], "moe_layers", why)
    start, why = value_of("moe_layer_start_index")
    if start is not None:
        return _by_index(count, value_of)
    step, why = value_of("interleave_moe_layer_step")
    if step is not None:
        every = _positive("interleave_moe_layer_step", step)
        dense = [i for i in range(count) if (i + 1) % every]
        return Layers(dense, "interleave_moe_layer_step", why)
    return _by_frequency(count, value_of)


def _by_frequency(count: int, value_of: ValueOf) -> Layers:
    """Return the dense layers from the number of first dense ones and the MoE frequency."""
    first, why = value_of("first_k_dense_replace")
    key = "first_k_dense_replace"
    if first is None:
        first, why = value_of("num_dense_layers")
        key = "num_dense_layers"
    dense: set[int] = set()
    if first is not None:
        dense |= {*range(min(_whole(key, first), count))}
    frequency, other = value_of("moe_layer_freq")
    if isinstance(frequency, list):
        if len(frequency) != count:
            raise LayerError("moe_layer_freq", _length(len(frequency), count))
        dense |= {i for i, experts in enumerate(frequency) if not experts}
        key, why = "moe_layer_freq", other
    elif frequency is not None and _positive("moe_layer_freq", frequency) > 1:
        dense |= {i for i in range(count) if i % frequency}
        key, why = "moe_layer_freq", other
    step, other = value_of("decoder_sparse_step")
    if step is not None and _positive("decoder_sparse_step", step) > 1:
        dense |= {i for i in range(count) if (i + 1) % step}
        key, why = "decoder_sparse_step", other
    listed, other = value_of("mlp_only_layers")
    if listed:
        dense |= {*_numbers("mlp_only_layers", listed, count)}
        key, why = "mlp_only_layers", other
    return Layers(sorted(dense), key, why)


def _by_index(count: int, value_of: ValueOf) -> Layers:
    """Return the dense layers from the first, the last and the step of MoE layers."""
    key = "moe_layer_start_index"
    start, why = value_of(key)
    end, _ = value_of("moe_layer_end_index")
    step, _ = value_of("moe_layer_interval")
    first = _whole(key, start)
    last = count - 1 if end in (None, -1) else _whole("moe_layer_end_index", end)
    every = 1 if step is None else _positive("moe_layer_interval", step)
    held = {i for i in range(count) if first <= i <= last and (i + 1) % every == 0}
    return Layers([i for i in range(count) if i not in held], key, why)


def full_layers(count: int, value_of: ValueOf, every: int, *, linear: bool = False) -> Layers:
    """Return the layers with full attention; the others have a window, or *linear* attention.

    *every* is the rule of the model type if no key states one. The last of each n layers is full,
    or the first if n is negative; 0 means none.
    """
    types, why = value_of("layer_types")
    if types:
        known = (_FULL, _LINEAR) if linear else (_FULL, _WINDOWED, _CHUNKED)
        return _full_of_types(count, types, why, known)
    if linear:
        return _full_of_pattern(count, value_of, every, ("full_attention_interval",))
    types, why = value_of("attention_types")
    if types:
        kinds = _expand(types, count)
        return Layers([i for i, k in enumerate(kinds) if k == "global"], "attention_types", why)
    rotated, why = value_of("no_rope_layers")
    chunk, _ = value_of("attention_chunk_size")
    if chunk and isinstance(rotated, list) and rotated:
        if len(rotated) != count:
            raise LayerError("no_rope_layers", _length(len(rotated), count))
        return Layers([i for i, one in enumerate(rotated) if not one], "no_rope_layers", why)
    return _full_of_window(count, value_of) or _full_of_pattern(count, value_of, every, _PATTERNS)


def _full_of_types(count: int, types: Any, why: str, known: Sequence[str]) -> Layers:
    kinds = _layer_kinds("layer_types", types, count, known)
    others = {kind for kind in kinds if kind != _FULL}
    if len(others) > 1:
        raise LayerError("layer_types", "windows and chunks in one model are not modeled")
    found = [i for i, kind in enumerate(kinds) if kind == _FULL]
    return Layers(found, "layer_types", why, next(iter(others), ""))


def _full_of_window(count: int, value_of: ValueOf) -> Layers | None:
    """Return the layers ahead of the first one with a window, or all if none has one.

    None if the file has no such key.
    """
    used, why = value_of("use_sliding_window")
    if used is not None and not used:
        return Layers(range(count), "use_sliding_window", why)
    first, why = value_of("max_window_layers")
    if first is None:
        return None
    whole = min(_whole("max_window_layers", first), count)
    return Layers(range(whole), "max_window_layers", why)


def _full_of_pattern(count: int, value_of: ValueOf, every: int, keys: Sequence[str]) -> Layers:
    """Return the layers with full attention, from the first of *keys* in the file.

    Its value is a period, whose default is *every*, or a pattern such as `LLLG`: G is full.
    """
    for key in keys:
        pattern, why = value_of(key)
        if pattern is not None:
            break
    if isinstance(pattern, str) and pattern and {*pattern} <= {"L", "G"}:
        full = [i for i in range(count) if pattern[i % len(pattern)] == "G"]
        return Layers(full, key, why)
    if pattern is not None:
        every = _positive(key, pattern)
    else:
        key = ""
    if not every:
        return Layers((), key, why)
    place = 0 if every < 0 else every - 1
    return Layers([i for i in range(count) if i % abs(every) == place], key, why)


def _layer_kinds(key: str, values: Any, count: int, known: Sequence[str]) -> list[str]:
    """Return the kind of each layer; the list must have one entry per layer."""
    if not isinstance(values, list):
        raise LayerError(key, "a list is expected")
    if len(values) != count:
        raise LayerError(key, _length(len(values), count))
    for value in values:
        if value not in known:
            raise LayerError(key, f"layers of the kind `{str(value)[:40]}` are not modeled yet")
    return values


def _length(found: int, count: int) -> str:
    return f"it lists {found} layers, but the model has {count}"


def _numbers(key: str, values: Any, count: int) -> list[int]:
    """Return a list of layer indices, checked against the *count* of layers."""
    if not isinstance(values, list):
        raise LayerError(key, "a list is expected")
    found = [_whole(key, value) for value in values]
    if found and max(found) >= count:
        raise LayerError(
            key, f"layer {max(found)} is listed, but the {count} layers are 0 to {count - 1}"
        )
    return found


def _expand(types: Any, count: int) -> list[str]:
    """Return the kind of each layer from ``[[[kind, ...], times], ...]``."""
    kinds: list[str] = []
    for item in types if isinstance(types, list) else ():
        if not (isinstance(item, list) and len(item) == 2 and isinstance(item[0], list)):
            raise LayerError("attention_types", "lists of kinds with a number are expected")
        times = _whole("attention_types", item[1])
        if len(item[0]) * times > count:
            raise LayerError("attention_types", _length(len(item[0]) * times, count))
        kinds += item[0] * times
    return _layer_kinds("attention_types", kinds, count, ("global", "local"))


def _whole(key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 100_000:
        raise LayerError(key, "a whole number is expected")
    return value


def _positive(key: str, value: Any) -> int:
    found = _whole(key, value)
    if not found:
        raise LayerError(key, "a whole number of at least 1 is expected")
    return found
