"""One dispatch of tokens to experts, calculated without a model or a step.

A block `dispatch NAME { ranks = 64, ... }` yields the peers of a rank, its bytes, and the tokens of
the busiest rank. It also yields whether bytes or messages bound the time. All results are expected
values for uniform routing, or for a concentration that makes some experts more popular.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import (
    BYTES,
    ONE,
    SECONDS,
    Check,
    Figure,
    Real,
    Sheet,
    Study,
    block,
    block_name,
    hookimpl,
    integer,
    quantity,
)
from parcost.numeric import minimum
from parcost_plugins.physics.routing import distinct_groups, random_load, ranks_in_units
from parcost_plugins.vocabulary.answers import mark_details
from parcost_plugins.vocabulary.link_rates import link_rate

_HEADLINES = ("bytes_per_rank", "peers", "imbalance", "outer_seconds", "seconds", "straggler")


@block("dispatch", label="required")
class Dispatch:
    """One dispatch of tokens from some ranks to experts spread evenly over them."""

    ranks: Real = integer(doc="number of ranks, which send tokens and hold the experts")
    experts: Real = integer(doc="number of experts over all ranks")
    tokens: Real = integer(doc="tokens per rank")
    top_k: Real = integer(default=1, maximum=1e4, doc="experts per token")
    token: Real = quantity(BYTES, positive=True, doc="bytes sent for one copy of a token")
    units: Real = integer(default=1, doc="number of nodes (or other units) of the ranks")
    unit_limit: Real | None = integer(
        default=None, doc="largest number of units to which one token is sent"
    )
    concentration: Real | None = quantity(
        ONE,
        default=None,
        positive=True,
        doc="sum of the parameters of a Dirichlet distribution of the popularity of experts",
    )
    capacity_factor: Real | None = quantity(
        ONE, default=None, positive=True, doc="capacity of an expert relative to its mean load"
    )
    bandwidth: Real | None = link_rate(default=None, doc="bandwidth of the port of a rank")
    message: Real = quantity(SECONDS, default=0.0, doc="time per message, for messages in sequence")
    taper: Real = quantity(
        ONE,
        default=1.0,
        minimum=1.0,
        doc=(
            "bandwidth of the ports of a unit / bandwidth of its links to other units (taper): 2 "
            "halves the outgoing rate"
        ),
    )


@hookimpl
def blocks() -> list[type]:
    """Return the block ``dispatch``."""
    return [Dispatch]


@hookimpl
def calculations(study: Study) -> Iterator[Figure | Check]:
    """Return the figures of every dispatch in the study."""
    for one in study.all(Dispatch):
        yield from _rules(one)
        yield from mark_details((*_volumes(one), *_loads(one)), *_HEADLINES)


def _rules(one: Dispatch) -> Iterator[Check]:
    name = block_name(one)
    for id_, attribute, holds, message, inputs, help_ in (
        (
            "dispatch-experts",
            "experts",
            one.experts % one.ranks == 0,
            "{experts} experts are not divisible by {ranks} ranks",
            {"experts": one.experts, "ranks": one.ranks},
            "write `ranks` that divide the experts",
        ),
        (
            "dispatch-visits",
            "top_k",
            one.top_k <= one.experts,
            "top_k = {top} is more than the {experts} experts",
            {"top": one.top_k, "experts": one.experts},
            "write `top_k` of at most {experts}",
        ),
        (
            "dispatch-units",
            "units",
            one.ranks % one.units == 0,
            "{ranks} ranks are not divisible by {units} units",
            {"ranks": one.ranks, "units": one.units},
            "write `units` that divide the ranks",
        ),
    ):
        yield Check(
            id=id_,
            holds=holds,
            subject=f"{name}.{attribute}",
            message=message,
            inputs=inputs,
            help=help_,
        )


def _sheet(one: Dispatch) -> Sheet:
    """Return the symbols of a dispatch: P ranks, T tokens of each, k of E experts.

    With a limit of units, a token visits the same number of ranks as in a step.
    """
    ranks = distinct_groups(one.experts, one.top_k, one.ranks)
    if one.unit_limit is not None:
        units = minimum(one.unit_limit, distinct_groups(one.experts, one.top_k, one.units))
        ranks = ranks_in_units(units, one.ranks / one.units, one.top_k)
    sheet = Sheet(
        block_name(one),
        source="expected value under random routing",
        P=one.ranks,
        E=one.experts,
        T=one.tokens,
        k=one.top_k,
        x=(one.token, "B"),
        G=one.units,
        limit=one.unit_limit,
        f=one.capacity_factor,
        B=(one.bandwidth, "B/s"),
        o=(one.message, "s"),
        taper=one.taper,
        q=1 - ranks / one.ranks,
        q_G=1 - distinct_groups(one.experts, one.top_k, one.units) / one.units,
        lam=random_load(one.ranks * one.tokens * one.top_k, one.ranks, one.concentration),
    )
    sheet.symbols["mu"] = sheet.formula("T k")
    return sheet


def _volumes(one: Dispatch) -> Iterator[Figure]:
    sheet = _sheet(one)
    yield sheet("experts_per_rank", "experts on a rank", "", "E / P")
    yield sheet(
        "bytes_per_rank", "bytes that a rank dispatches, one copy for each expert", "B", "T k x"
    )
    yield sheet("sent_bytes", "bytes that leave a rank", "B", "T k x (1 - 1 / P)")
    yield sheet("bytes", "bytes that all ranks dispatch, one copy for each expert", "B", "P T k x")
    yield sheet(
        "training_bytes",
        "bytes that leave a rank in a layer's training step",
        "B",
        "4 T k x (1 - 1 / P), there and back, forward and backward",
    )
    met = "G (1 - q_G)"
    yield sheet(
        "units_per_token",
        "units that a token visits",
        "",
        f"{met if one.unit_limit is None else f'min(limit, {met})'}, q_G the chance that a unit "
        "has none of the k experts",
    )
    yield sheet(
        "ranks_per_token",
        "ranks that a token visits",
        "",
        "P (1 - q), q the probability that a rank has none of the k experts",
    )
    yield sheet(
        "outer_bytes",
        "bytes that leave a unit, one copy of a token to each unit",
        "B",
        "T units_per_token (G - 1) / G x",
    )
    if one.bandwidth is not None:
        yield sheet(
            "outer_seconds",
            "time of the bytes that leave a unit, through one port",
            "s",
            "outer_bytes / B",
        )


def _loads(one: Dispatch) -> Iterator[Figure]:
    sheet = _sheet(one)
    yield sheet(
        "peers",
        "peers that a rank sends to",
        "",
        "(P - 1) (1 - q^T), q the probability that a rank has none of the k experts of a token",
    )
    yield sheet("density", "share of peers that a rank sends to", "%", "peers / max(P - 1, 1)")
    yield sheet(
        "imbalance",
        "load of the busiest rank / mean load",
        "",
        "lam, 1 + z sigma / mu of the largest of P loads",
    )
    yield sheet("busiest_tokens", "tokens that the busiest rank receives", "", "lam mu")
    if one.capacity_factor is not None:
        yield sheet(
            "capacity", "capacity of an expert for the tokens of one rank", "", "ceil(T k / E f)"
        )
    yield sheet("message_seconds", "time for the messages of a rank", "s", "peers o")
    if one.bandwidth is not None:
        yield sheet(
            "receive_seconds", "time for the bytes of the busiest rank", "s", "lam mu x / B"
        )
        yield sheet(
            "seconds",
            "time of the dispatch",
            "s",
            "receive_seconds max(taper (1 - 1 / G), 1) + message_seconds",
        )
        yield sheet(
            "straggler",
            "slowdown by uneven loads and tapered links",
            "",
            "seconds / (mu x / B + message_seconds)",
        )
