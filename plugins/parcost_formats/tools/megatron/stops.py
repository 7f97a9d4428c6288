"""Combinations of flags that Megatron-LM rejects before the first step.

    --recompute-granularity full          # without --recompute-method: an error
    --seq-length 8192 --max-position-embeddings 4096

The table has the rules between flags; rules between numbers are below. A flag whose value is
unknown, or that only some branches of the script set, is not checked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from parcost_formats.tools.collector import SettingCollector
from parcost_formats.tools.drafts import Option
from parcost_formats.tools.tables import table

_STOPS = "Megatron-LM stops"
_OFF = ("false", "None", "null", "none")


def check_stops(options: SettingCollector, possible: Collection[str]) -> None:
    """Report the combinations of flags that Megatron-LM rejects.

    *possible* are flags of a branch that is not evaluated: rules on them are skipped.
    """
    for rule in table("megatron")["stops"]:
        option = _find(options, rule["if"])
        spared = "unless" in rule and _find(options, rule["unless"])
        if option is not None and option.key == _flag(option.name) and not spared:
            _check_rule(options, possible, rule, option)
    _check_numbers(options)


def _check_rule(
    options: SettingCollector, possible: Collection[str], rule: Mapping[str, Any], option: Option
) -> None:
    for group in rule.get("needs", ()):
        names = {_name(one) for one in group}
        unread = any((one := options.lookup(name)) and one.unread for name in names)
        if any(_find(options, one) for one in group) or names & {*possible} or unread:
            continue
        needed = " or ".join(map(_show, group))
        message = f"{_STOPS} without {needed}: {rule['why']}"
        close = [near.key for name in names if (near := options.similar(name)) is not None]
        doubt = f"; `{close[0]}` is spelled otherwise" if close else ""
        help = f"add {needed}, or remove `{option.key}`{doubt}"
        options.problem(option, message, help)
    for condition in rule.get("excludes", ()):
        other = _find(options, condition)
        for place, beside in ((option, other), (other, option)):
            if other is not None and place is not None and beside is not None:
                shown = " ".join([beside.key, *beside.texts])[:60]
                message = f"{_STOPS} if `{shown}` is set too: {rule['why']}"
                options.problem(place, message, "keep only one of them")


def _check_numbers(options: SettingCollector) -> None:
    """Check the rules between two numbers."""
    numbers = {name: _number(options.lookup(name)) for name in _NUMBERS}
    places, tokens = numbers["max_position_embeddings"], numbers["seq_length"]
    if places is not None and tokens is not None and places < tokens:
        message = f"{_STOPS}: {places} positions are fewer than the {tokens} of --seq-length"
        option = options.lookup("max_position_embeddings")
        assert option is not None
        options.problem(option, message, f"write {option.key} {tokens}")
    away, layers = numbers["cpu_offloading_num_layers"], numbers["num_layers"]
    if away is not None and layers is not None and away >= layers:
        message = f"{_STOPS}: --num-layers is {layers}, and at most {layers - 1} can be offloaded"
        option = options.lookup("cpu_offloading_num_layers")
        assert option is not None
        options.problem(option, message, f"write at most {layers - 1}")
    sizes, degree = options.lookup("hierarchical_context_parallel_sizes"), numbers[_CONTEXT]
    found = [] if sizes is None or sizes.unread else [*sizes.texts]
    if sizes is not None and len(found) == 2 and all(one.isdecimal() for one in found):
        product = int(found[0]) * int(found[1])
        if product != (degree or 1):
            message = f"{_STOPS}: {found[0]} * {found[1]} = {product} is not the degree"
            options.problem(sizes, f"{message} of context parallelism, {degree or 1}")


_CONTEXT = "context_parallel_size"
_NUMBERS = (
    *("max_position_embeddings", "seq_length", "cpu_offloading_num_layers", "num_layers"),
    _CONTEXT,
)


def _name(condition: str) -> str:
    return condition.partition("=")[0].partition(">")[0]


def _find(options: SettingCollector, condition: str) -> Option | None:
    """Return the option of a condition such as ``name>1``, if the condition is known to be true."""
    option = options.lookup(_name(condition))
    if option is None or option.unread or option.text in _OFF:
        return None
    _, equals, values = condition.partition("=")
    _, above, least = condition.partition(">")
    if equals:
        return option if option.text in values.split("|") else None
    if above:
        number = _number(option)
        return option if number is not None and number > int(least) else None
    return option


def _number(option: Option | None) -> int | None:
    known = option is not None and not option.unread and len(option.texts) == 1
    text = option.text.replace("_", "") if option is not None and known else ""
    return int(text) if text.isdecimal() and len(text) < 16 else None


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _show(condition: str) -> str:
    """Return a condition as a flag of the command line."""
    name, equals, values = condition.partition("=")
    name, above, least = name.partition(">")
    number = f" {int(least) + 1} or more" if above else ""
    value = f" {values}".replace("|", " | ") if equals else number
    return f"`{_flag(name)}{value}`"
