"""How even the load is, what is dropped, how far tokens travel, and what a token meets."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Formula, Outcome, Real, Study, formula, hookimpl
from parcost_plugins.experts.exchange import Exchange, exchanged
from parcost_plugins.vocabulary import Layout, Parameters, Routing, Training
from parcost_plugins.vocabulary.routing import (
    capacity,
    expert_tokens,
    of_routing,
    overflow,
    rank_tokens,
)


@hookimpl
def details(study: Study, outcome: Outcome) -> Iterator[Figure]:  # noqa: ARG001
    """Return the figures of a mixture of experts."""
    model, layout = study[Training].model, study[Layout]
    if not model.experts or model.nominal:
        return
    experts = float(model.experts)
    yield _figure("active_parameters", "parameters that a token meets", *_active(study))
    yield _figure(
        "experts_per_device",
        "routed experts on a device",
        experts / layout.ep / layout.etp,
        "E / (EP ETP)",
        {"E": experts, "EP": layout.ep, "ETP": layout.etp},
    )
    yield _figure(
        "expert_tokens",
        "tokens of the mean expert per micro-batch",
        expert_tokens(study),
        "T k / E, T tokens of all ranks that share the experts",
        {"k": model.top_k, "E": experts},
    )
    yield _figure(
        "expert_imbalance",
        "tokens of the busiest rank over the mean",
        of_routing(study),
        "1 + z sigma / mu",
        {},
    )
    yield from _capacity(study, experts)
    yield from _travel(exchanged(study))


def _active(study: Study) -> tuple[Real, str, dict[str, Real]]:
    model, held = study[Training].model, study.parameters
    every = _total([p for p in held if not p.expert])
    routed = _total([p for p in held if p.expert])
    return (
        every + routed * model.top_k / model.experts,
        "N + R k / E, N all but the routed experts R",
        {"N": every, "R": routed, "k": model.top_k, "E": float(model.experts)},
    )


def _total(held: list[Parameters]) -> Real:
    return sum((p.total * sum(p.count) for p in held), 0.0)


def _capacity(study: Study, experts: Real) -> Iterator[Figure]:
    routing, model = study[Routing], study[Training].model
    if routing.capacity_factor is None:
        return
    factor, tokens = routing.capacity_factor, rank_tokens(study)
    yield _figure(
        "expert_capacity",
        "places of an expert for the tokens of one rank",
        capacity(factor, tokens, model.top_k, experts),
        "ceil(f T k / E)",
        {"f": factor, "T": tokens, "k": model.top_k, "E": experts},
    )
    if routing.loads and routing.distribution == "measured" and routing.imbalance is None:
        yield Figure(
            name="dropped_tokens",
            title="tokens that find no place at their expert",
            value=overflow(routing.loads, factor),
            unit="%",
            formula=Formula(
                text="sum of max(0, n - f T / E) over T, n tokens of each expert",
                inputs={"f": (factor, ""), "T": (sum(routing.loads), ""), "E": (experts, "")},
            ),
        )
    load = of_routing(study)
    yield Figure(
        name="dropped_share",
        title="tokens that the busiest rank drops",
        value=formula("max(0, 1 - f / lam)", f=factor, lam=load),
        unit="%",
    )


def _travel(exchange: Exchange) -> Iterator[Figure]:
    sizes = {"E": exchange.experts, "k": exchange.top}
    text, inputs = "G (1 - C(E - E / G, k) / C(E, k))", {**sizes, "G": exchange.units}
    if (limit := exchange.routing.node_limit) is not None:
        text, inputs = f"min(limit, {text})", {**inputs, "limit": limit}
    yield _figure(
        "expert_units",
        "units of the fastest level that a token visits",
        exchange.met,
        text,
        inputs,
    )
    copies, count, letters = exchange.leaving
    for name, title, each in (
        ("dispatch_bytes", "bytes that a rank dispatches per layer", exchange.there),
        ("combine_bytes", "bytes that a rank sends back per layer", exchange.back),
    ):
        yield Figure(
            name=name,
            title=title,
            value=formula(f"{count} x", {**letters, "x": (each, "B")}),
            unit="B",
        )
    yield Figure(
        name="exchange_bytes",
        title="bytes that leave a rank in a layer and micro-batch: there and back, twice",
        value=formula(
            f"2 {count} (x + y)", {**letters, "x": (exchange.there, "B"), "y": (exchange.back, "B")}
        ),
        unit="B",
    )
    further = exchange.units - 1.0 if exchange.kind == "allgather" else exchange.remote
    yield Figure(
        name="dispatch_outer_bytes",
        title="of these, bytes that leave the fastest level, one copy for each unit",
        value=formula("T D x", T=exchange.tokens, D=further, x=(exchange.there, "B")),
        unit="B",
    )


def _figure(name: str, title: str, value: Real, text: str, inputs: dict[str, Real]) -> Figure:
    return Figure(
        name=name,
        title=title,
        value=value,
        unit="",
        formula=Formula(text=text, inputs={k: (v, "") for k, v in inputs.items()}),
    )
