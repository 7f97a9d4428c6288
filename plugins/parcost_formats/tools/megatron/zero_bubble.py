"""Schedules that forks add: zero bubble of sail-sg's fork, and the pipelines of Primus."""

from __future__ import annotations

from parcost_formats.tools.drafts import Option
from parcost_formats.tools.megatron.defaults import ToolOptions
from parcost_formats.tools.tables import table

_RULES = table("megatron")["zero_bubble"]
_OF_PRIMUS = "Primus"
_PRIMUS, _ALGORITHM, _PATCH = "patch_primus_pipeline", "pp_algorithm", "patch_zero_bubble"
_V, _SETUP = "zero_bubble_v_schedule", "zero_bubble_v_schedule_mem_setup"
_PLAIN, _LIMIT = "enable_zero_bubble", "zero_bubble_max_pending_backward"
_OTHER = "enable_1f1b_v"
_ANSWERS = ("--set schedule.kind=zb_h1", "--set schedule.kind=zb_h2")


def is_zero_bubble(options: ToolOptions) -> bool:
    """Return whether a job takes its schedule from one of these forks."""
    if any(options.on(one) for one in (_PRIMUS, _PATCH)):
        return True
    if options.tool.startswith(_OF_PRIMUS):
        return False
    return any(options.on(one) for one in (_V, _PLAIN)) or any(
        "zero_bubble" in one.name and one.text != "false" for one in options.rest()
    )


def read_zero_bubble(options: ToolOptions, pp: int, chunks: int | None) -> None:
    """Read the schedule of a job of *pp* stages that states a number of *chunks*, or None."""
    of_primus = options.tool.startswith(_OF_PRIMUS)
    if of_primus and not options.on(_PATCH):
        for name in (_V, _SETUP, _PLAIN, _OTHER, _LIMIT):
            options.skip(name, f"{_PATCH} is off")
        _algorithm(options, chunks)
        return
    for name in (_PRIMUS, _ALGORITHM):
        options.skip(name, f"{_PATCH} decides")
    splits = options.get("num_seq_splits")
    if splits is not None and options.whole("num_seq_splits") != 1:
        options.problem(splits, "splits of a sequence in a pipeline are not modeled")
    if options.on(_OTHER) and (option := options.get(_OTHER)):
        options.problem(option, "1F1B on a V is not modeled", "`zb_v` is supported")
    elif options.on(_V) and (option := options.get(_V)):
        options.skip(_PLAIN, f"--{_V.replace('_', '-')} decides")
        setup = options.get(_SETUP)
        word = setup.text if setup else "half" if of_primus else "zb"
        if word != "zb":
            why = f"V-{word.title()}, which trades time for memory, is not modeled"
            options.problem(setup or option, why, "`zb` (ZB-V) is supported")
        _set(options, option, "zb_v", chunks)
    elif options.on(_PLAIN) and (option := options.get(_PLAIN)):
        _plain(options, option, pp)


def _algorithm(options: ToolOptions, chunks: int | None) -> None:
    """Read the algorithm of Primus' own pipeline."""
    option = options.get(_PRIMUS)
    if option is None or not options.on(_PRIMUS):
        options.skip(_ALGORITHM, f"{_PRIMUS} is off")
        return
    named = options.get(_ALGORITHM)
    word = named.text if named else "1f1b-interleaved"
    kind = _RULES["algorithms"].get(word)
    if kind is None:
        known = ", ".join(_RULES["algorithms"])
        options.problem(named or option, f"`{word[:40]}` is not modeled", f"supported: {known}")
    elif kind != "interleaved":  # as Megatron-LM runs chunks
        _set(options, named or option, kind, chunks)


def _plain(options: ToolOptions, option: Option, pp: int) -> None:
    """Read zero bubble without a V; the search of the fork finds the order within a memory
    limit.
    """
    limit = options.get(_LIMIT)
    text = limit.text if limit and not limit.unread else ""
    kind = {str(pp): "zb_h1", str(2 * pp): "zb_h2"}.get(text)
    if kind is None or limit is None:
        reason = f"`{option.key}` searches an order within its memory limit"
        options.ask("schedule.kind", reason, _ANSWERS, option)
        return
    why = f"an order is searched with at most {text} micro-batches in flight, as in {kind}"
    options.set("schedule.kind", kind, limit, why)


def _set(options: ToolOptions, option: Option, kind: str, chunks: int | None) -> None:
    options.set("schedule.kind", kind, option)
    if kind == "zb_v" and chunks is None:
        options.set("schedule.chunks", "2", option)
