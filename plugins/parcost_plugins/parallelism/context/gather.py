"""All-gather of keys and values before attention, as in the training of Llama 3."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Pass, Work, link_resources, occurs
from parcost_plugins.parallelism.context.exchange import ContextExchange
from parcost_plugins.vocabulary.causes import CONTEXT


def gather_work(found: ContextExchange) -> Iterator[Work]:
    """Yield the all-gathers of each pass, and the reduce-scatter of gradients in backward.

    Backward gathers again, because saving all keys and values of every layer would need too much
    memory.
    """
    group = found.all_ranks
    rows: list[tuple[str, str, Pass, str]] = [
        ("KV all-gather", "all_gather", "F", "s b w e"),
        ("KV all-gather", "all_gather", "R", "s b w e"),
        ("KV all-gather", "all_gather", "B", "s b w e"),
        ("KV gradient reduce-scatter", "reduce_scatter", "B", "s b w g"),
    ]
    for name, operation, pass_, text in rows:
        if occurs(count := found.counts.get(pass_, ())):
            n = found.size(text)
            call = found.study.collective(operation, n, group, found.algorithm)
            yield Work(
                name=name,
                cause=CONTEXT,
                seconds=call.formula,
                pass_=pass_,
                count=count,
                bytes_=n.value,
                latency=call.latency,
                **link_resources(group.flat),
            )
