"""The exchange of tokens among the ranks that share one set of experts.

A layer sends every token to the ranks of its experts, and the results back. These are two
all-to-alls in forward and two in backward, with the same bytes. One copy is sent for each expert of
a token. With de-duplication, one copy is sent to each unit of the fastest level, which copies it on
its own links. The two levels work as a pipeline, so the slower one determines the time.

An all-gather sends every token to every rank of the group, and a reduce-scatter adds up the
results. Kernels of DeepEP and HybridEP send a token once to each unit, and inside the unit once to
each rank. Their number of SMs limits their rate.

All ranks wait for the busiest rank, which receives more bytes than the mean, in the same number of
messages. Outer levels have less imbalance, because the loads of many ranks in a unit average out.

If the exchange is hidden by another micro-batch, it runs during the compute of that micro-batch.
The exchange of passes without a partner is exposed: the first forward, the last backward, and
pipeline warm-up. On average over p stages these are the passes of p micro-batches.

If an expert is split (ETP), the ranks with its parts gather their inputs and add up their outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from attrs import evolve

from parcost import (
    Communication,
    Formula,
    Group,
    Link,
    Mask,
    Pass,
    Real,
    Study,
    Work,
    formula,
    hookimpl,
    link_resources,
    occurs,
    plain_of,
    record,
    stage_number,
)
from parcost.numeric import any_of, maximum, minimum, ratio, sqrt, where
from parcost_plugins.physics import slowdown
from parcost_plugins.physics.exchange import exchange_links
from parcost_plugins.physics.partition import Counts, layer_counts
from parcost_plugins.physics.routing import (
    busiest_rank_load,
    dispatcher_of,
    distinct_groups,
    have_own_tokens,
    largest_of,
    rank_tokens,
    ranks_in_units,
)
from parcost_plugins.physics.run_choices import open_window, recomputed_modules
from parcost_plugins.vocabulary import Cluster, CollectiveChoice, Layout, Routing, Training
from parcost_plugins.vocabulary.causes import EXPERT
from parcost_plugins.vocabulary.framework import KERNEL_DISPATCHERS
from parcost_plugins.vocabulary.operators import SHARED_EXPERTS

DEDUPLICATED = "DeepSeek-AI 2024 (DeepSeek-V3), section 3.2.2"
GATHERED = "Megatron-Core 0.16.1, moe/token_dispatcher.py: MoEAllGatherTokenDispatcher"
KERNELS = "DeepEP, README.md and docs/README_Hybrid-EP.md"
_WINDOWS = {"none": None, "shared_experts": SHARED_EXPERTS, "pair": ""}


@record(kw_only=True, eq=False)
class TokenExchange:
    """The messages of one rank for a layer and micro-batch.

    *copies* of its *tokens* are sent, one for each expert; ``lam`` is the load of the busiest rank
    over the mean.
    """

    study: Study
    group: Group
    tokens: Real
    top: Real
    experts: Real
    lam: Real
    routing: Routing
    hidden: Real

    @property
    def copies(self) -> Real:
        """Copies of tokens that a rank sends: one for each expert of a token, and padding."""
        return self.slots_per_copy * self.tokens * self.top

    @property
    def slots_per_copy(self) -> Real:
        """Slots in a message per copy of a token; above 1 if a capacity leaves slots empty."""
        return 1.0 if self.routing.capacity_factor is None else self.lam

    @property
    def sent_copies(self) -> Formula:
        """The copies of tokens that leave a rank in each direction."""
        if self.kind == "allgather":
            return formula("T (EP - 1)", T=self.tokens, EP=self.group.ranks)
        if self.kind in KERNEL_DISPATCHERS:
            symbols = {"T": self.tokens, "R": self.destination_ranks, "EP": self.group.ranks}
            return formula("T R (1 - 1 / EP)", symbols)
        symbols = {"T": self.tokens, "k": self.top, "EP": self.group.ranks}
        if self.routing.capacity_factor is None:
            return formula("T k (1 - 1 / EP)", symbols)
        return formula("f T k (1 - 1 / EP), f with padding", {**symbols, "f": self.slots_per_copy})

    @property
    def dispatch_bytes(self) -> Real:
        """Bytes of one token copy sent to an expert."""
        recipe, own = self.study[Training].precision, self.routing.dispatch
        width = recipe.dispatch if own is None else own
        return self.hidden * width + self.routing.scales

    @property
    def combine_bytes(self) -> Real:
        """Bytes of one token copy sent back."""
        recipe, own = self.study[Training].precision, self.routing.combine
        width = recipe.combine if own is None else own
        return self.hidden * width

    @property
    def metadata(self) -> Real:
        """Bytes that give the place of a copy and its weight.

        A gathered token has a flag of a byte and a probability for every expert.
        """
        if self.kind == "allgather":
            return self.experts * (1.0 + self.study[Training].precision.activation)
        return self.routing.metadata

    @property
    def sends_weights_apart(self) -> bool:
        """Whether the routing weights, and their gradients, are sent in a separate exchange.

        Source: Megatron-Core 0.16.1, moe/token_dispatcher.py: token_dispatch.
        """
        plain = self.kind == "alltoall" and not self.routing.deduplicate
        weighed = self.study[Training].framework.router_weights == "activation"
        return plain and weighed and any_of(self.routing.metadata > 0)

    @property
    def units(self) -> Real:
        """Units of the fastest level that the group spans."""
        return prod(self.group.shape[1:], start=1.0)

    @property
    def destination_units(self) -> Real:
        """Expected number of units that a token is sent to, including its own."""
        found = distinct_groups(self.experts, self.top, self.units)
        limit = self.routing.node_limit
        return found if limit is None else minimum(limit, found)

    @property
    def remote_units(self) -> Real:
        """Expected number of units that a token is sent to, without its own."""
        return self.destination_units * (self.units - 1.0) / self.units

    @property
    def outer_copies(self) -> Real:
        """Copies of one token that leave its unit.

        Kernels and ``deduplicate`` send one copy to each unit. Otherwise one copy goes to each
        expert, together with padding.
        """
        if self.kind == "allgather":
            return self.units - 1.0
        if self.kind in KERNEL_DISPATCHERS or self.routing.deduplicate:
            return self.remote_units
        return self.slots_per_copy * self.top * (self.units - 1.0) / self.units

    def unit_imbalance(self) -> Real:
        """The load of the busiest unit / the mean load; the loads of the ranks in a unit average
        out.
        """
        inside = self.group.shape[0]
        shrunk = largest_of(self.units) / maximum(largest_of(self.group.ranks), 1e-300)
        return 1.0 + (self.lam - 1.0) / sqrt(inside) * shrunk

    @property
    def kind(self) -> str:
        """The name of the token dispatcher."""
        return dispatcher_of(self.study)

    @property
    def destination_ranks(self) -> Real:
        """Expected number of ranks that a token is sent to, including its own."""
        found = distinct_groups(self.experts, self.top, self.group.ranks)
        if self.routing.node_limit is None:
            return found
        return ranks_in_units(self.destination_units, self.group.shape[0], self.top)

    def estimate(self, bytes_: Real, *, back: bool = False) -> tuple[Formula, Real]:
        """Return the seconds of one direction of the exchange, and its bytes; *bytes_* is per copy.

        *back* is the direction from experts to the ranks of the tokens: results, and gradients of
        tokens.
        """
        if self.kind == "allgather":
            return self._estimate_gather(bytes_, back=back)
        if self.kind in KERNEL_DISPATCHERS:
            return self._estimate_kernels(bytes_)
        if self.routing.deduplicate:
            return self._estimate_deduplication(bytes_)
        n = formula("lam T k x", lam=self.lam, T=self.tokens, k=self.top, x=(bytes_, "B"))
        algorithm = self.study[CollectiveChoice].expert
        call = self.study.collective("all_to_all", n, self.group, algorithm)
        return call.formula, self.copies * bytes_

    def _estimate_gather(self, bytes_: Real, *, back: bool) -> tuple[Formula, Real]:
        """Estimate the all-gather of all tokens of the group, or the reduce-scatter *back*."""
        n = formula("P T x", P=self.group.ranks, T=self.tokens, x=(bytes_, "B"), source=GATHERED)
        call = self.study.collective("reduce_scatter" if back else "all_gather", n, self.group)
        return call.formula, n.value

    def _estimate_kernels(self, bytes_: Real) -> tuple[Formula, Real]:
        """Estimate kernels that send each token once to a unit, and inside the unit once to each
        rank.
        """
        group, routing, links = self.group, self.routing, exchange_links(self.group)
        units, rate, most = (
            getattr(routing, f"{self.kind}_{name}")
            for name in ("multiprocessors", "rate", "efficiency")
        )
        inside = formula(
            "lam T R x (1 - 1 / g), to R ranks for each token",
            lam=self.lam,
            T=self.tokens,
            R=self.destination_ranks,
            x=(bytes_, "B"),
            g=group.shape[0],
        )
        outside = self._unit_bytes(bytes_)
        part: list[Real] = []
        message: list[Real] = []
        bandwidth: list[Real] = []
        share: Real = 1.0
        for link, size in zip(links[1:], group.shape[1:], strict=True):
            part.append(share * (size - 1.0) / maximum(self.units - 1.0, 1.0))
            share = share * size
            message.append(link.seconds(where(size > 1, 1.0, 0.0), 0.0))
            bandwidth.append(link.bandwidth)
        seconds = formula(
            "max(n / min(m r, eta B_in) + a_in, max(N p / (eta' B) + a)), m multiprocessors of "
            "rate r, a message of a and the part p of further units by level",
            {
                "n": (inside, "B"),
                "m": units,
                "r": (rate, "B/s"),
                "eta": most,
                "B_in": (links[0].bandwidth, "B/s"),
                "a_in": (links[0].seconds(where(group.shape[0] > 1, 1.0, 0.0), 0.0), "s"),
                "N": (outside, "B"),
                "p": part,
                "eta'": routing.outer_efficiency,
                "B": (bandwidth, "B/s"),
                "a": (message, "s"),
            },
            source=KERNELS,
        )
        return self._exchange(seconds, bytes_), inside.value + outside.value

    def _unit_bytes(self, bytes_: Real) -> Formula:
        """Return the bytes that leave a unit: one copy of a token for each other unit."""
        return formula(
            "lam' T D x, D other units for each token",
            {"lam'": self.unit_imbalance()},
            T=self.tokens,
            D=self.remote_units,
            x=(bytes_, "B"),
        )

    def _estimate_deduplication(self, bytes_: Real) -> tuple[Formula, Real]:
        group, links = self.group, exchange_links(self.group)
        inside = formula(
            "lam T k x (1 - 1 / g)",
            lam=self.lam,
            T=self.tokens,
            k=self.top,
            x=(bytes_, "B"),
            g=group.shape[0],
        )
        outside = self._unit_bytes(bytes_)
        times = [_travel(links[0], group.shape[0] - 1.0, inside, 1.0)]
        reached: Real = 1.0
        for link, most in zip(links[1:], group.shape[1:], strict=True):
            # The other units that are reached through this level.
            share = reached * (most - 1.0) / maximum(self.units - 1.0, 1.0)
            reached = reached * most
            times.append(_travel(link, most - 1.0, outside, share))
        seconds = formula("max(t)", t=(times, "s"), source=DEDUPLICATED)
        sent = self.tokens * (self.remote_units + self.top) * bytes_
        return self._exchange(seconds, bytes_), sent

    def _exchange(self, seconds: Formula, bytes_: Real) -> Formula:
        """Return *seconds* with the communication behind it: an all-to-all of all copies of
        tokens.
        """
        copies = self.copies * bytes_
        return evolve(seconds, communication=Communication("all_to_all", copies, self.group))


def _travel(link: Link, rounds: Real, n: Formula, part: Real) -> Formula:
    """Return the time to send a *part* of *n* bytes in *rounds* rounds over a link."""
    return Formula(
        text="time of messages over one link",
        inputs={"rounds": rounds, "n": (n, "B"), "part": part},
        value=link.seconds(rounds, n.value * part),
    )


def exchange_of(study: Study) -> TokenExchange | None:
    """Return the exchange of *study*, None if tokens do not leave their ranks."""
    model, ep = study[Training].model, study[Layout].ep
    alone = isinstance(ep, float) and ep == 1.0
    return None if not model.experts or model.is_nominal or alone else token_exchange(study)


def token_exchange(study: Study) -> TokenExchange:
    """Return the exchange of an MoE study; a group of one rank sends nothing."""
    model = study[Training].model
    return TokenExchange(
        study=study,
        group=study.group("ep"),
        tokens=rank_tokens(study),
        top=model.top_k,
        experts=float(model.experts),
        lam=busiest_rank_load(study),
        routing=study[Routing],
        hidden=model.hidden,
    )


@hookimpl
def terms(study: Study) -> Iterator[Work]:
    """Estimate the exchange of every MoE layer, and the collectives of split experts."""
    model = study[Training].model
    if not model.experts or model.is_nominal:
        return
    count, again = _counts(study)
    if not occurs(count):
        return
    exchange = exchange_of(study)
    if exchange is not None:
        yield from _exchange_work(exchange, count, again)
    yield from _expert_tensor_work(study, count, again)


def _counts(study: Study) -> tuple[Counts, Counts]:
    """Return the MoE layers of each virtual stage, and those recomputed in backward."""
    count = layer_counts(study, moe=True)
    if recomputed_modules(study).moe:
        return count, count
    return count, layer_counts(study, moe=True, recomputed=True)


def _exchange_work(exchange: TokenExchange, count: Counts, again: Counts) -> Iterator[Work]:
    study, routing = exchange.study, exchange.routing
    there = exchange.estimate(exchange.dispatch_bytes)
    apart = exchange.sends_weights_apart
    more = 0.0 if apart else exchange.metadata
    announced = exchange.estimate(exchange.dispatch_bytes + more) if any_of(more > 0) else there
    back = exchange.estimate(exchange.combine_bytes, back=True)
    if exchange.kind == "allgather":  # gradients of results are gathered, those of tokens summed
        flags = exchange.experts * study[Training].precision.activation
        tokens, results = (
            exchange.estimate(exchange.dispatch_bytes + flags, back=True),
            exchange.estimate(exchange.combine_bytes),
        )
    else:
        tokens, results = back, there
    latency: Real = 0.0
    if exchange.group.pair.also:  # of empty copies, which travel alike in both directions
        latency = plain_of(exchange.estimate(0.0)[0])
    rows: list[tuple[str, Pass, tuple[Formula, Real], Counts]] = [
        ("expert dispatch", "F", announced, count),
        ("expert combine", "F", back, count),
        ("expert combine gradient", "B", results, count),
        ("expert dispatch gradient", "B", tokens, count),
    ]
    if occurs(again):
        rows += [
            ("expert dispatch", "R", announced, again),
            ("expert combine", "R", back, again),
        ]
    if apart:
        weights = exchange.estimate(exchange.metadata)
        rows += [
            ("routing weights dispatch", "F", weights, count),
            ("routing weights dispatch gradient", "B", weights, count),
        ]
        if occurs(again):
            rows.append(("routing weights dispatch", "R", weights, again))
    for name, pass_, cost, times in rows:
        yield _work(study, name, pass_, cost, times, exchange.group, latency)
    if exchange.kind != "alltoall" or not any_of(routing.counts > 0):
        return
    gathered = formula(
        "P E c, c bytes of a count",
        P=exchange.group.ranks,
        E=exchange.experts,
        c=(routing.counts, "B"),
    )
    call = study.collective("all_gather", gathered, exchange.group)
    seconds = formula("c > 0 ? t : 0", c=(routing.counts, "B"), t=(call.formula, "s"))
    counts, group = (seconds, gathered.value), exchange.group
    yield _work(study, "token counts all-gather", "F", counts, count, group, call.latency)
    if occurs(again):
        yield _work(study, "token counts all-gather", "R", counts, again, group, call.latency)


def _expert_tensor_work(study: Study, count: Counts, again: Counts) -> Iterator[Work]:
    """Yield the collectives among ranks that hold parts of the same experts (ETP)."""
    layout, training = study[Layout], study[Training]
    if isinstance(layout.etp, float) and layout.etp == 1.0:
        return
    group, model = study.group("etp"), training.model
    own = rank_tokens(study) * model.top_k * busiest_rank_load(study)
    own = own * model.hidden * training.precision.activation
    apart = have_own_tokens(layout)
    alike: Mask = not apart if isinstance(apart, bool) else ~apart
    for name, operation, bytes_, here in (
        ("expert tensor all-gather", "all_gather", layout.etp * own, apart),
        ("expert tensor reduce-scatter", "reduce_scatter", layout.etp * own, apart),
        ("expert tensor all-reduce", "all_reduce", own, alike),
    ):
        if not any_of(here):
            continue
        there = where(here, 1.0, 0.0)
        n = formula("i N, i 1 where ranks do so", i=there, N=(bytes_, "B"))
        call = study.collective(operation, n, group)
        cost = (formula("i > 0 ? t : 0", i=there, t=(call.formula, "s")), n.value)
        latency = there * call.latency
        yield _work(study, name, "F", cost, count, group, latency)
        yield _work(study, f"{name}, backward", "B", cost, count, group, latency)
        if occurs(again):
            yield _work(study, name, "R", cost, again, group, latency)


@stage_number
def _share_alone(study: Study) -> Real:
    """Return the share of passes without a partner, ``min(1, p / m)``, which hide no exchange.

    Megatron-LM, core/pipeline_parallel: passes of combined_1f1b.py and of schedules.py
    (get_pp_rank_microbatches). Rank r warms up with ``2 (p - r - 1) + (v - 1) p + 1`` of m v.
    """
    if study[Routing].hide != "pair":
        return 0.0
    return minimum(1.0, study[Layout].pp / study[Training].micro_batches)


def _work(
    study: Study,
    name: str,
    pass_: Pass,
    cost: tuple[Formula, Real],
    count: Sequence[float],
    group: Group,
    latency: Real,
) -> Work:
    seconds, bytes_ = cost
    kind = dispatcher_of(study)
    taken = slowdown(study)
    if kind in KERNEL_DISPATCHERS:
        own, of = getattr(study[Routing], f"{kind}_multiprocessors"), study[Cluster].device
        taken = ratio(own, maximum(of.multiprocessors - own, 0.0))
    return Work(
        name=name,
        cause=EXPERT,
        seconds=seconds,
        pass_=pass_,
        count=count,
        window=open_window(study, _WINDOWS[study[Routing].hide]),
        alone=study.query(_share_alone),
        slowdown=taken,
        bytes_=bytes_,
        latency=latency,
        **link_resources(group.pair),
    )
