"""Keys and values that every rank collects before attention, as Llama 3 was trained."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Pass, Work, busy
from parcost_plugins.parallelism.context.exchange import Exchange
from parcost_plugins.vocabulary.causes import CONTEXT


def collected(found: Exchange) -> Iterator[Work]:
    """Yield the gathers of each pass, and the reduce-scatter of gradients in backward.

    Backward gathers again: to keep all keys and values of every layer would undo what
    splitting the sequence saves.
    """
    group, n = found.all_ranks, found.cp * found.block
    rows: list[tuple[str, str, Pass, str]] = [
        ("KV all-gather", "all_gather", "F", "n = s b w e"),
        ("KV all-gather", "all_gather", "R", "n = s b w e"),
        ("KV all-gather", "all_gather", "B", "n = s b w e"),
        ("KV gradient reduce-scatter", "reduce_scatter", "B", "n = s b w g"),
    ]
    for name, operation, pass_, text in rows:
        bytes_ = n if operation == "all_gather" else found.cp * found.block_gradients
        if any(count := found.counts.get(pass_, ())):
            call = found.study.collective(operation, bytes_, group, found.algorithm)
            yield Work(
                name=name,
                cause=CONTEXT,
                seconds=call.seconds,
                pass_=pass_,
                formula=found.formula(call.formula, text),
                count=count,
                bytes_=bytes_,
                **busy(group.flat),
            )
