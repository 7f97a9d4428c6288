"""Figures of MoE: load balance, dropped tokens, traffic, and active parameters."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Outcome, Real, Sheet, Study, hookimpl
from parcost.numeric import any_of
from parcost_plugins.parallelism.expert.exchange import TokenExchange, token_exchange
from parcost_plugins.physics.routing import distinct_groups, rank_tokens, routing_load, sources
from parcost_plugins.vocabulary import Layout, Parameters, Routing, Training


@hookimpl(specname="figures")
def details(study: Study, outcome: Outcome, brief: bool) -> Iterator[Figure]:  # noqa: ARG001
    """Return the figures of a mixture of experts."""
    model, layout = study[Training].model, study[Layout]
    if brief or not model.experts or model.is_nominal:
        return
    held = study.parameters
    sheet = Sheet(
        E=float(model.experts),
        k=model.top_k,
        EP=layout.ep,
        ETP=layout.etp,
        N=_total([p for p in held if not p.expert]),
        R=_total([p for p in held if p.expert]),
        lam=routing_load(study),
        T=rank_tokens(study),
    )
    yield sheet(
        "active_parameters",
        "active parameters of a token",
        "",
        "N + R k / E, N all but the routed experts R",
    )
    yield sheet(
        "experts_per_device", "routed experts on a device", "", "E / EP, whole or cut in ETP slices"
    )
    yield sheet(
        "expert_tokens",
        "tokens per expert and micro-batch, mean",
        "",
        "T S k / E, S ranks that share the experts",
        S=sources(layout),
    )
    yield sheet(
        "expert_imbalance",
        "load of the busiest rank / mean load",
        "",
        "lam, of the routing",
    )
    yield from _capacity(study, sheet)
    yield from _travel(token_exchange(study), sheet)


def _total(held: list[Parameters]) -> Real:
    return sum((p.total * sum(p.count) for p in held), 0.0)


def _capacity(study: Study, sheet: Sheet) -> Iterator[Figure]:
    routing = study[Routing]
    if routing.capacity_factor is None:
        return
    sheet.symbols["f"] = routing.capacity_factor
    yield sheet(
        "expert_capacity", "capacity of an expert for the tokens of one rank", "", "ceil(T k / E f)"
    )
    if routing.loads and routing.distribution == "measured" and routing.imbalance is None:
        yield sheet(
            "dropped_tokens",
            "dropped tokens (expert at capacity)",
            "%",
            "sum(max(0, n - f m)) / (m E), n tokens of each expert, m of the mean",
            n=[float(n) for n in routing.loads],
            m=sum(routing.loads) / len(routing.loads),
            E=float(len(routing.loads)),
        )
    yield sheet("dropped_share", "tokens that the busiest rank drops", "%", "max(0, 1 - f / lam)")


def _travel(exchange: TokenExchange, sheet: Sheet) -> Iterator[Figure]:
    limit = exchange.routing.node_limit if any_of(exchange.group.ranks > 1) else None
    sheet.symbols |= {
        "G": exchange.units,
        "q": 1.0 - distinct_groups(exchange.experts, exchange.top, exchange.units) / exchange.units,
        "limit": limit,
        "c": exchange.sent_copies,
        "x": (exchange.dispatch_bytes, "B"),
        "y": (exchange.combine_bytes, "B"),
    }
    met = "G (1 - q), q the probability that a unit has none of the k experts"
    yield sheet(
        "expert_units",
        "nodes (units of the fastest level) that a token visits",
        "",
        met if limit is None else f"min(limit, {met.replace(', ', '), ', 1)}",
    )
    yield sheet("dispatch_bytes", "bytes that a rank dispatches per layer", "B", "c x")
    yield sheet("combine_bytes", "bytes that a rank sends back per layer", "B", "c y")
    yield sheet(
        "exchange_bytes",
        "bytes sent by a rank per layer and micro-batch: dispatch, combine and their gradients",
        "B",
        "2 c (x + y)",
    )
    yield sheet(
        "dispatch_outer_bytes",
        "bytes dispatched beyond the fastest level",
        "B",
        "T D x",
        T=exchange.tokens,
        D=exchange.outer_copies,
    )
