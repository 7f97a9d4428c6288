"""Ulysses: all-to-alls before and after attention, from sequence shards to heads."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Pass, Real, Work, formula, link_resources, occurs
from parcost_plugins.parallelism.context.exchange import ContextExchange
from parcost_plugins.vocabulary.causes import CONTEXT

ULYSSES = "Jacobs et al. 2023 (DeepSpeed-Ulysses)"


def all_to_all_work(found: ContextExchange) -> Iterator[Work]:
    """Yield the four all-to-alls of a pass: of queries, keys, values and outputs.

    Backward sends the gradient of each in the other direction.
    """
    if isinstance(found.trading, float) and found.trading == 1.0:
        return
    context = found.context
    passes: list[tuple[Pass, Real, str]] = [
        ("F", context.key_value, "e"),
        ("R", context.key_value, "e"),
        ("B", context.gradients, "g"),
    ]
    for pass_, element, symbol in passes:
        if not occurs(count := found.counts.get(pass_, ())):
            continue
        widths = shares(found)
        calls = {
            name: found.study.collective(
                "all_to_all",
                found.size(f"s / c b width {symbol}", width=width),
                found.inner,
                found.algorithm,
            )
            for name, width in widths.items()
        }
        times = {name: call.formula for name, call in calls.items()}
        yield Work(
            name="heads all-to-all",
            cause=CONTEXT,
            seconds=formula("sum(t), of queries, keys, values and outputs", t=(times, "s")),
            pass_=pass_,
            count=count,
            bytes_=found.tokens * element * sum(widths.values(), 0.0),
            latency=sum((call.latency for call in calls.values()), 0.0),
            **link_resources(found.inner.pair),
        )


def shares(found: ContextExchange) -> dict[str, Real]:
    """Return the exchanged elements per token on a tensor-parallel rank, by tensor."""
    model = found.model
    return {
        "q": found.heads * model.qk_dim,
        "k": found.kv_heads * model.qk_dim,
        "v": found.kv_heads * model.value_dim,
        "o": found.heads * model.value_dim,
    }
