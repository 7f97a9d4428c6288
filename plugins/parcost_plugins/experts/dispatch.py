"""One dispatch of tokens to experts, worked out without a model or a step.

How many peers a rank sends to, how many bytes, how many tokens the busiest rank gets,
and whether bytes or messages bound the time: `dispatch NAME { ranks = 64, ... }`.
Everything is an expectation over routing by even chance, unless a concentration says
that some experts are more popular.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import (
    BYTES,
    ONE,
    RATE,
    SECONDS,
    Check,
    Figure,
    Formula,
    Real,
    Study,
    block,
    called,
    hookimpl,
    integer,
    quantity,
)
from parcost.numeric import maximum, minimum
from parcost_plugins.vocabulary.answers import outlined
from parcost_plugins.vocabulary.routing import capacity, distinct, of_chance

_DIRECTION = {"per_direction": 1.0, "bidirectional": 0.5}
_HEADLINES = ("bytes_per_rank", "peers", "imbalance", "outer_seconds", "seconds", "straggler")


@block("dispatch", label="required")
class Dispatch:
    """One dispatch of tokens from some ranks to experts that are spread evenly over them."""

    ranks: Real = integer(doc="ranks that send, and that hold the experts")
    experts: Real = integer(doc="experts over all ranks")
    tokens: Real = integer(doc="tokens of each rank")
    top_k: Real = integer(default=1, maximum=1e4, doc="experts that a token visits")
    token: Real = quantity(BYTES, positive=True, doc="one copy of a token")
    units: Real = integer(default=1, doc="nodes, or other units, that the ranks are spread over")
    unit_limit: Real | None = integer(default=None, doc="most units that one token is sent to")
    concentration: Real | None = quantity(
        ONE,
        default=None,
        positive=True,
        doc="the sum of the parameters of a Dirichlet distribution of the experts' popularity",
    )
    capacity_factor: Real | None = quantity(
        ONE, default=None, positive=True, doc="places of an expert over its mean load"
    )
    bandwidth: Real | None = quantity(
        RATE,
        default=None,
        positive=True,
        qualifiers=_DIRECTION,
        must_qualify=True,
        doc="of the port of a rank",
    )
    message: Real = quantity(SECONDS, default=0.0, doc="spent on each message, one after another")
    taper: Real = quantity(
        ONE,
        default=1.0,
        minimum=1.0,
        doc="how much narrower links between units are than the ports behind them",
    )


@hookimpl
def blocks() -> list[type]:
    """Offer the block."""
    return [Dispatch]


@hookimpl
def calculations(study: Study) -> Iterator[Figure | Check]:
    """Work out every dispatch of the study."""
    for one in study.all(Dispatch):
        yield from _rules(one)
        yield from outlined((*_volumes(one), *_loads(one)), *_HEADLINES)


def _rules(one: Dispatch) -> Iterator[Check]:
    name = called(one)
    for id_, attribute, holds, message, inputs in (
        (
            "dispatch-experts",
            "experts",
            one.experts % one.ranks == 0,
            "{experts} experts do not divide by {ranks} ranks",
            {"experts": one.experts, "ranks": one.ranks},
        ),
        (
            "dispatch-visits",
            "top_k",
            one.top_k <= one.experts,
            "a token visits {top} of {experts} experts",
            {"top": one.top_k, "experts": one.experts},
        ),
        (
            "dispatch-units",
            "units",
            one.ranks % one.units == 0,
            "{ranks} ranks do not divide by {units} units",
            {"ranks": one.ranks, "units": one.units},
        ),
    ):
        yield Check(
            id=id_, holds=holds, subject=f"{name}.{attribute}", message=message, inputs=inputs
        )


def _volumes(one: Dispatch) -> Iterator[Figure]:
    P, T, k, x = one.ranks, one.tokens, one.top_k, one.token
    sent = T * k * x
    yield _figure(
        one, "experts_per_rank", "experts on a rank", one.experts / P, "E / P",
        {"E": one.experts, "P": P},
    )  # fmt: skip
    yield _figure(
        one, "bytes_per_rank", "bytes of all copies of a rank", sent, "T k x",
        {"T": T, "k": k}, x, unit="B",
    )  # fmt: skip
    yield _figure(
        one, "sent_bytes", "bytes that leave a rank", sent * (1 - 1 / P), "T k x (1 - 1 / P)",
        {"T": T, "k": k, "P": P}, x, unit="B",
    )  # fmt: skip
    yield _figure(
        one, "bytes", "bytes of all copies of all ranks", P * sent, "P T k x",
        {"P": P, "T": T, "k": k}, x, unit="B",
    )  # fmt: skip
    yield _figure(
        one, "training_bytes", "bytes that leave a rank in a layer's training step",
        4 * sent * (1 - 1 / P), "4 T k x (1 - 1 / P): there and back, forward and backward",
        {"T": T, "k": k, "P": P}, x, unit="B",
    )  # fmt: skip
    met = distinct(one.experts, k, one.units)
    met = met if one.unit_limit is None else minimum(one.unit_limit, met)
    remote = met * (one.units - 1) / one.units
    yield _figure(
        one, "units_per_token", "units that a token visits", met,
        "min(limit, G (1 - C(E - E / G, k) / C(E, k)))",
        {"G": one.units, "E": one.experts, "k": k},
    )  # fmt: skip
    yield _figure(
        one, "ranks_per_token", "ranks that a token visits", distinct(one.experts, k, P),
        "P (1 - C(E - E / P, k) / C(E, k))", {"P": P, "E": one.experts, "k": k},
    )  # fmt: skip
    outer = T * remote * x
    yield _figure(
        one, "outer_bytes", "bytes that leave a unit, one copy for each other unit", outer, "T D x",
        {"T": T, "D": remote}, x, unit="B",
    )  # fmt: skip
    if one.bandwidth is not None:
        yield _figure(
            one, "outer_seconds", "time for these through one port", outer / one.bandwidth,
            "T D x / B", {"T": T, "D": remote}, x, one.bandwidth, unit="s",
        )  # fmt: skip


def _loads(one: Dispatch) -> Iterator[Figure]:
    P, T, k, x = one.ranks, one.tokens, one.top_k, one.token
    missed = 1 - distinct(one.experts, k, P) / P
    peers = (P - 1) * (1 - missed**T)
    yield _figure(
        one, "peers", "peers that a rank sends to", peers, "(P - 1) (1 - q^T)",
        {"P": P, "T": T, "q": missed},
    )  # fmt: skip
    yield _figure(
        one, "density", "share of peers that a rank sends to", peers / maximum(P - 1, 1.0),
        "1 - q^T", {"T": T, "q": missed}, unit="%",
    )  # fmt: skip
    lam = of_chance(P * T * k, P, one.concentration)
    mean = T * k
    yield _figure(
        one, "imbalance", "tokens of the busiest rank over the mean", lam, "1 + z sigma / mu",
        {"mu": mean},
    )  # fmt: skip
    yield _figure(
        one, "busiest_tokens", "tokens that the busiest rank receives", lam * mean, "lam mu",
        {"lam": lam, "mu": mean},
    )  # fmt: skip
    if one.capacity_factor is not None:
        places = capacity(one.capacity_factor, T, k, one.experts)
        yield _figure(
            one, "capacity", "places of an expert for the tokens of one rank", places,
            "ceil(f T k / E)", {"f": one.capacity_factor, "T": T, "k": k, "E": one.experts},
        )  # fmt: skip
    messages = peers * one.message
    yield _figure(
        one, "message_seconds", "time for the messages of a rank", messages, "peers o",
        {"peers": peers}, unit="s",
    )  # fmt: skip
    if one.bandwidth is not None:
        receive = lam * mean * x / one.bandwidth
        shared = {"lam": lam, "mu": mean}
        yield _figure(
            one,
            "receive_seconds",
            "time for the bytes of the busiest rank",
            receive,
            "lam mu x / B",
            shared,
            x,
            one.bandwidth,
            unit="s",
        )
        crossing = receive * maximum(one.taper * (1 - 1 / one.units), 1.0)
        yield _figure(
            one,
            "seconds",
            "time of the dispatch",
            crossing + messages,
            "lam mu x max(1, f (1 - 1 / G)) / B + peers o",
            {**shared, "f": one.taper, "G": one.units, "peers": peers},
            x,
            one.bandwidth,
            unit="s",
        )
        yield _figure(
            one,
            "straggler",
            "time against a dispatch of even loads over links that are not tapered",
            (crossing + messages) / (mean * x / one.bandwidth + messages),
            "busiest and tapered / even",
            shared,
        )


def _figure(
    one: Dispatch,
    name: str,
    title: str,
    value: Real,
    text: str,
    inputs: dict[str, Real],
    token: Real | None = None,
    bandwidth: Real | None = None,
    *,
    unit: str = "",
) -> Figure:
    letters: dict[str, tuple[Real, str]] = {letter: (v, "") for letter, v in inputs.items()}
    if token is not None:
        letters["x"] = (token, "B")
    if bandwidth is not None:
        letters["B"] = (bandwidth, "B/s")
    return Figure(
        name=f"{called(one)}.{name}",
        title=f"{called(one)}: {title}",
        value=value,
        unit=unit,
        formula=Formula(text=text, inputs=letters, source="expectation under routing by chance"),
    )
