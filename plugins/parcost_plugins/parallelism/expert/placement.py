"""The best placement of experts, and its saving.

`placement NAME` has a group of devices (a node, a leaf) for each `source`. It also has the tokens
that the group routes to each expert. Each expert is placed on the group with most of its tokens,
with equal counts per group; the assignment is optimal. The saving is relative to a baseline: the
listed order of experts, or a random placement, where one of G tokens stays local.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from parcost import (
    BYTES,
    SECONDS,
    Check,
    Figure,
    Formula,
    Real,
    Section,
    Sheet,
    Study,
    block,
    block_name,
    children,
    formula,
    fraction,
    hookimpl,
    integer,
    integers,
    quantity,
    word,
)
from parcost.numeric import all_of
from parcost_plugins.parallelism.expert.assignment import best_assignment
from parcost_plugins.parallelism.expert.rulebook import RULES
from parcost_plugins.vocabulary.answers import mark_details
from parcost_plugins.vocabulary.link_rates import link_rate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Tokens = NDArray[np.float64]  # of each group, for each expert

_HEADLINES = ("local_share", "baseline_local_share", "seconds", "speedup", "gain")


@block("source", inside="placement", label="required")
class TokenSource:
    """A group of devices with a fast network, and the experts that its tokens go to."""

    tokens: tuple[int, ...] = integers(doc="tokens that the source routes to each expert, in order")


@block("placement", label="required")
class Placement:
    """Experts to be placed on groups of devices, or the stated result of a placement."""

    sources: tuple[TokenSource, ...] = children("source", doc="groups, each with its tokens")
    groups: Real | None = integer(
        default=None,
        minimum=2.0,
        doc="number of groups, if `local_share` is set without sources",
    )
    local_share: Real | None = fraction(
        default=None,
        doc="share of the tokens that stay in their group, in place of `source` blocks",
    )
    baseline: str = word(
        "listed",
        "blind",
        default="blind",
        doc="placement to compare with: experts as listed, group by group, or a random placement",
    )
    baseline_remote: Real | None = fraction(
        default=None,
        positive=True,
        doc="share of tokens that left their group before, in place of a baseline",
    )
    token: Real | None = quantity(
        BYTES,
        default=None,
        positive=True,
        doc="size of one copy of a token, for the exchange times",
    )
    bandwidth: Real | None = link_rate(default=None, doc="bandwidth of a group to the other groups")
    before: Real | None = quantity(
        SECONDS, default=None, positive=True, doc="measured time of the exchange before"
    )
    after: Real | None = quantity(
        SECONDS, default=None, positive=True, doc="measured time of the exchange with the placement"
    )
    exchange_share: Real | None = fraction(
        default=None,
        doc="share of the step time that the exchange took before, for the gain in throughput",
    )
    throughput_gain: Real | None = fraction(
        default=None,
        maximum=None,
        doc="published gain in throughput, from which the share of the exchange is computed",
    )


class _PlacementTimes(NamedTuple):
    """Seconds of the exchange before and after the placement."""

    before: Real | Formula
    after: Real | Formula


@hookimpl
def blocks() -> list[type]:
    """Return the blocks of placements."""
    return [Placement, TokenSource]


@hookimpl
def calculations(study: Study) -> Iterator[Figure | Section | Check]:
    """Return the figures of every `placement`."""
    for one in study.all(Placement):
        rules = list(_rules(one))
        yield from rules
        if all(all_of(rule.holds) for rule in rules):
            yield from mark_details(_placement_figures(one), *_HEADLINES)


def _rules(one: Placement) -> Iterator[Check]:
    name, counts = block_name(one), [len(s.tokens) for s in one.sources]
    if not one.sources:
        known = one.local_share is not None or (one.before is not None and one.after is not None)
        yield RULES.check("placement-unknown", known, name, name=name)
        blind = one.local_share is not None and one.baseline_remote is None
        yield RULES.check(
            "placement-baseline", not blind or one.groups is not None, name, name=name
        )
        return
    experts, groups = counts[0], len(counts)
    yield RULES.check(
        "placement-experts", len(set(counts)) == 1, name, counts=", ".join(map(str, counts))
    )
    yield RULES.check(
        "placement-divides", experts % groups == 0, name, experts=experts, groups=groups
    )
    yield RULES.check(
        "placement-empty", sum(map(sum, (s.tokens for s in one.sources))) > 0, name, name=name
    )


def _placement_figures(one: Placement) -> Iterator[Figure | Section]:
    import numpy as np

    times: _PlacementTimes | None = None
    if one.before is not None and one.after is not None:
        times = _PlacementTimes(one.before, one.after)
    if one.sources:
        tokens = np.array([s.tokens for s in one.sources], dtype=np.float64)
        home = _group_of_experts(tokens)
        listed = [i * len(tokens) // tokens.shape[1] for i in range(tokens.shape[1])]
        local = _local_tokens(tokens, home)
        remote_before = _remote_before(one, len(tokens), 1 - _local_tokens(tokens, listed))
        yield from _shares(one, local, remote_before)
        yield _table(one, home)
        if times is None and one.token is not None and one.bandwidth is not None:
            symbols = {"x": (one.token, "B"), "B": (one.bandwidth, "B/s")}
            blind = float(tokens.sum() / len(tokens)) * remote_before
            crossing = _boundary_tokens(tokens, listed) if one.baseline == "listed" else blind
            times = _PlacementTimes(
                *(
                    formula("n x / B, n tokens over the busiest boundary", symbols, n=crossed)
                    for crossed in (crossing, _boundary_tokens(tokens, home))
                )
            )
    elif one.local_share is not None:
        remote_before = _remote_before(one, one.groups, None)
        yield from _shares(one, one.local_share, remote_before)
    if times is not None:
        yield from _gains(one, times)


def _group_of_experts(tokens: Tokens) -> list[int]:
    """Return the group of each expert, with an equal number per group."""
    import numpy as np

    groups, experts = tokens.shape
    each = experts // groups
    worth = np.repeat(tokens, each, axis=0).T  # a column for every place
    return [column // each for column in best_assignment(worth)]


def _local_tokens(tokens: Tokens, home: Sequence[int]) -> float:
    kept = sum(tokens[group, expert] for expert, group in enumerate(home))
    return float(kept / tokens.sum())


def _boundary_tokens(tokens: Tokens, home: Sequence[int]) -> float:
    """Return the tokens that the busiest group sends or receives across its boundary."""
    out, into = tokens.sum(axis=1), tokens.sum(axis=1) * 0.0
    for expert in range(tokens.shape[1]):
        own = tokens[home[expert], expert]
        out[home[expert]] -= own
        into[home[expert]] += tokens[:, expert].sum() - own
    return float(max(out.max(), into.max()))


def _remote_before(one: Placement, groups: Real | None, listed: Real | None) -> Real:
    if one.baseline_remote is not None:
        return one.baseline_remote
    if one.baseline == "listed" and listed is not None:
        return listed
    assert groups is not None
    return 1 - 1 / groups


def _shares(one: Placement, local: Real, remote_before: Real) -> Iterator[Figure]:
    sheet = Sheet(block_name(one), local=local, before=remote_before)
    yield sheet("local_share", "tokens that stay in their group", "%", "local, of all tokens")
    yield sheet(
        "baseline_local_share", "tokens that stayed in their group before", "%", "1 - before"
    )
    yield sheet(
        "global_load_removed",
        "saved traffic between groups",
        "%",
        "1 - ratio(1 - local, before)",
    )


def _gains(one: Placement, times: _PlacementTimes) -> Iterator[Figure]:
    sheet = Sheet(
        block_name(one),
        before=(times.before, "s"),
        after=(times.after, "s"),
        share=one.exchange_share,
        claim=one.throughput_gain,
    )
    yield sheet("seconds_before", "exchange before", "s", "before")
    yield sheet("seconds", "time of the exchange with the placement", "s", "after")
    yield sheet("speedup", "time of the exchange before / after", "", "ratio(before, after)")
    sheet.symbols["saved"] = sheet.formula("ratio(before - after, before)")
    if one.exchange_share is not None:
        yield sheet("gain", "throughput gain", "%", "ratio(1, 1 - share saved) - 1")
    if one.throughput_gain is not None:
        yield sheet(
            "implied_share",
            "implied share of the exchange in the step",
            "%",
            "ratio(1 - 1 / (1 + claim), saved)",
        )


def _table(one: Placement, home: Sequence[int]) -> Section:
    rows = [
        (block_name(source), ", ".join(str(e) for e, g in enumerate(home) if g == group))
        for group, source in enumerate(one.sources)
    ]
    return Section(title=f"Placement {block_name(one)}", columns=("group", "experts"), rows=rows)
