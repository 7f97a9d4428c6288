"""The sequence traded for heads: all-to-alls before and after attention (Ulysses)."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Pass, Real, Work, busy
from parcost_plugins.parallelism.context.exchange import Exchange
from parcost_plugins.vocabulary.causes import CONTEXT

ULYSSES = "Jacobs et al. 2023 (DeepSpeed-Ulysses)"


def traded(found: Exchange) -> Iterator[Work]:
    """Yield the four all-to-alls of a pass: of queries, keys, values and outputs.

    Backward sends the gradient of each the other way.
    """
    if isinstance(found.trading, float) and found.trading == 1.0:
        return
    context = found.context
    passes: list[tuple[Pass, Real, str]] = [
        ("F", context.key_value, "e"),
        ("R", context.key_value, "e"),
        ("B", context.gradients, "g"),
    ]
    for pass_, element, letter in passes:
        if not any(count := found.counts.get(pass_, ())):
            continue
        widths = shares(found)
        calls = [
            found.study.collective(
                "all_to_all", found.tokens * width * element, found.inner, found.algorithm
            )
            for width in widths.values()
        ]
        formula = found.formula(
            calls[0].formula,
            f"of q, k, v and o: n = (s / c) b {letter} times the width of each",
            **{f"width of {name}": (width, "") for name, width in widths.items()},
        )
        yield Work(
            name="heads all-to-all",
            cause=CONTEXT,
            seconds=sum((call.seconds for call in calls), 0.0),
            pass_=pass_,
            formula=formula,
            count=count,
            bytes_=found.tokens * element * sum(widths.values(), 0.0),
            **busy(found.inner.pair),
        )


def shares(found: Exchange) -> dict[str, Real]:
    """Return the elements of a token that a tensor-parallel rank trades, by tensor."""
    model = found.model
    return {
        "q": found.heads * model.qk_dim,
        "k": found.kv_heads * model.qk_dim,
        "v": found.kv_heads * model.value_dim,
        "o": found.heads * model.value_dim,
    }
