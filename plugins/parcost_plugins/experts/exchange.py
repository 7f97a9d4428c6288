"""The exchange of tokens between the ranks that share one set of experts.

A layer sends every token to the ranks of its experts and the results back: two
all-to-alls forward and two backward, with the same bytes the other way round. A copy is
sent for each expert that a token visits; or, de-duplicated, one for each unit of the
fastest level, which then copies it on its own links. The two levels work as a pipeline,
so that the slower one counts.

An all-gather sends every token to every rank of the group, and a reduce-scatter adds up what
comes back. Kernels of DeepEP and HybridEP send a token once to each unit and there once to
each rank, at the rate of the multiprocessors that they take.

The busiest rank receives more than the mean, and everybody waits for it: its share of
the bytes grows, the number of messages does not. Many ranks behind the ports of one unit
even each other out, so that outer levels see less of it.

Where an expert is cut into parts, the ranks that hold them gather what each received,
and add up what they make.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from attrs import frozen

from parcost import Formula, Group, Mask, Pass, Real, Study, Work, busy, hookimpl
from parcost.numeric import any_of, maximum, minimum, ratio, sqrt, where
from parcost_plugins.vocabulary import (
    Cluster,
    CollectiveChoice,
    Layout,
    Recompute,
    Routing,
    Training,
    slowdown,
)
from parcost_plugins.vocabulary.causes import EXPERT
from parcost_plugins.vocabulary.exchange import exchange_links
from parcost_plugins.vocabulary.framework import KERNEL_DISPATCHERS
from parcost_plugins.vocabulary.operators import SHARED_EXPERTS
from parcost_plugins.vocabulary.partition import Counts, standing
from parcost_plugins.vocabulary.routing import (
    crowding,
    dispatcher_of,
    distinct,
    have_their_own,
    largest_of,
    rank_tokens,
)

DEDUPLICATED = "DeepSeek-AI 2024 (DeepSeek-V3), section 3.2.2"
GATHERED = "Megatron-Core 0.16.1, moe/token_dispatcher.py: MoEAllGatherTokenDispatcher"
KERNELS = "DeepEP, README.md and docs/README_Hybrid-EP.md"

_WINDOWS = {"none": None, "shared_experts": SHARED_EXPERTS, "pair": ""}


@frozen(kw_only=True, eq=False)
class Exchange:
    """What one rank sends for a layer and micro-batch, and to whom.

    *copies* of its *tokens* go out, one for each expert; ``lam`` is what the busiest rank
    receives over the mean.
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
        """Copies of tokens that a rank sends: one for each expert that a token visits."""
        return self.tokens * self.top

    @property
    def leaving(self) -> tuple[Real, str, dict[str, tuple[Real, str]]]:
        """Copies of tokens that leave a rank in each direction, as a formula with its inputs."""
        ranks, inputs = self.group.ranks, {"T": (self.tokens, ""), "EP": (self.group.ranks, "")}
        if self.kind == "allgather":
            return self.tokens * (ranks - 1.0), "T (EP - 1)", inputs
        if self.kind in KERNEL_DISPATCHERS:
            met = self.ranks_met
            inputs["R"] = (met, "")
            return self.tokens * met * (1.0 - 1.0 / ranks), "T R (1 - 1 / EP)", inputs
        inputs["k"] = (self.top, "")
        return self.copies * (1.0 - 1.0 / ranks), "T k (1 - 1 / EP)", inputs

    @property
    def there(self) -> Real:
        """Bytes of one copy on the way to an expert."""
        recipe, own = self.study[Training].precision, self.routing.dispatch
        width = recipe.dispatch if own is None else own
        return self.hidden * width + self.routing.scales

    @property
    def back(self) -> Real:
        """Bytes of one copy on the way back."""
        recipe, own = self.study[Training].precision, self.routing.combine
        width = recipe.combine if own is None else own
        return self.hidden * width

    @property
    def units(self) -> Real:
        """Units of the fastest level that the group spans."""
        return prod(self.group.shape[1:], start=1.0)

    @property
    def met(self) -> Real:
        """Units that a token is expected to be sent to, its own among them."""
        found = distinct(self.experts, self.top, self.units)
        limit = self.routing.node_limit
        return found if limit is None else minimum(limit, found)

    @property
    def remote(self) -> Real:
        """Of those, the units that are not its own."""
        return self.met * (self.units - 1.0) / self.units

    def outer_lam(self) -> Real:
        """Return what the busiest unit receives over the mean: its ranks even out."""
        inside = self.group.shape[0]
        shrunk = largest_of(self.units) / maximum(largest_of(self.group.ranks), 1e-300)
        return 1.0 + (self.lam - 1.0) / sqrt(inside) * where(self.group.ranks > 1, shrunk, 0.0)

    @property
    def kind(self) -> str:
        """Who sends the tokens."""
        return dispatcher_of(self.study)

    @property
    def ranks_met(self) -> Real:
        """Ranks that a token is expected to be sent to, its own among them."""
        found = distinct(self.experts, self.top, self.group.ranks)
        if self.routing.node_limit is None:
            return found
        # Experts of fewer units lie closer together; each falls on any rank of its unit.
        inside = self.group.shape[0]
        return self.met * inside * (1.0 - (1.0 - 1.0 / inside) ** (self.top / self.met))

    def priced(self, bytes_: Real, *, back: bool = False) -> tuple[Real, Real, Formula]:
        """Return the seconds of an exchange with *bytes_* per copy, the bytes and the formula.

        Results, and gradients of tokens, go *back* from experts to where the tokens came from.
        """
        if self.kind == "allgather":
            return self._gathered(bytes_, back=back)
        if self.kind in KERNEL_DISPATCHERS:
            return self._by_kernels(bytes_)
        if self.routing.deduplicate:
            return self._deduplicated(bytes_)
        n = self.copies * bytes_
        call = self.study.collective(
            "all_to_all", self.lam * n, self.group, self.study[CollectiveChoice].expert
        )
        formula = Formula(
            text=f"{call.formula.text}, n = lam T k x",
            inputs={
                **call.formula.inputs,
                "lam": (self.lam, ""),
                "T": (self.tokens, ""),
                "k": (self.top, ""),
                "x": (bytes_, "B"),
            },
            source=call.formula.source,
        )
        return call.seconds, n, formula

    def _gathered(self, bytes_: Real, *, back: bool) -> tuple[Real, Real, Formula]:
        """Price all tokens of the group gathered on each of its ranks, or their sums scattered."""
        n = self.group.ranks * self.tokens * bytes_
        call = self.study.collective("reduce_scatter" if back else "all_gather", n, self.group)
        formula = Formula(
            text=f"{call.formula.text}, n = P T x",
            inputs={
                **call.formula.inputs,
                "P": (self.group.ranks, ""),
                "T": (self.tokens, ""),
                "x": (bytes_, "B"),
            },
            source=GATHERED,
        )
        return call.seconds, n, formula

    def _by_kernels(self, bytes_: Real) -> tuple[Real, Real, Formula]:
        """Price kernels that send each token once to a unit, and there once to each rank."""
        group, routing, links = self.group, self.routing, exchange_links(self.group)
        units, rate, most = (
            getattr(routing, f"{self.kind}_{name}")
            for name in ("multiprocessors", "rate", "efficiency")
        )
        inside = self.lam * self.tokens * self.ranks_met * bytes_ * (1.0 - 1.0 / group.shape[0])
        reached = minimum(units * rate, most * links[0].bandwidth)
        once = links[0].seconds(where(group.shape[0] > 1, 1.0, 0.0), 0.0)
        seconds = inside / reached + once
        outside = self.outer_lam() * self.tokens * self.remote * bytes_
        share: Real = 1.0
        levels = ["lam T R x (1 - 1 / g) / min(m r, eta B[0]) + a[0]"]
        outer: dict[str, tuple[Real, str]] = {}
        for i, (link, size) in enumerate(zip(links[1:], group.shape[1:], strict=True), 1):
            part = share * (size - 1.0) / maximum(self.units - 1.0, 1.0)
            share = share * size
            message = link.seconds(where(size > 1, 1.0, 0.0), 0.0)
            across = outside * part / (routing.outer_efficiency * link.bandwidth)
            seconds = maximum(seconds, across + message)
            levels.append(f"lam' T D p[{i}] x / (eta' B[{i}]) + a[{i}]")
            outer |= {
                f"p[{i}]": (part, ""),
                f"B[{i}]": (link.bandwidth, "B/s"),
                f"a[{i}]": (message, "s"),
            }
        formula = Formula(
            text=f"max({', '.join(levels)}), g ranks of a unit, R ranks and D further units that a "
            "token goes to, m multiprocessors of rate r, a message of a and the part p of further "
            "units by level",
            inputs={
                "lam": (self.lam, ""),
                "lam'": (self.outer_lam(), ""),
                "T": (self.tokens, ""),
                "R": (self.ranks_met, ""),
                "D": (self.remote, ""),
                "x": (bytes_, "B"),
                "g": (group.shape[0], ""),
                "m": (units, ""),
                "r": (rate, "B/s"),
                "eta": (most, ""),
                "eta'": (routing.outer_efficiency, ""),
                "B[0]": (links[0].bandwidth, "B/s"),
                "a[0]": (once, "s"),
                **outer,
            },
            source=KERNELS,
        )
        return seconds, inside + outside, formula

    def _deduplicated(self, bytes_: Real) -> tuple[Real, Real, Formula]:
        group, links = self.group, exchange_links(self.group)
        inside = self.lam * self.copies * bytes_ * (1.0 - 1.0 / group.shape[0])
        seconds = links[0].seconds(group.shape[0] - 1.0, inside)
        outside = self.outer_lam() * self.tokens * self.remote * bytes_
        reached: Real = 1.0
        for link, most in zip(links[1:], group.shape[1:], strict=True):
            # Of the other units, those that part from this one at the level of the link.
            share = reached * (most - 1.0) / maximum(self.units - 1.0, 1.0)
            reached = reached * most
            seconds = maximum(seconds, link.seconds(most - 1.0, outside * share))
        formula = Formula(
            text="max(lam T k x (1 - 1 / g) / B[inside], lam' T D x / B[outside]) + messages, "
            "D other units for each token",
            inputs={
                "lam": (self.lam, ""),
                "lam'": (self.outer_lam(), ""),
                "T": (self.tokens, ""),
                "k": (self.top, ""),
                "D": (self.remote, ""),
                "x": (bytes_, "B"),
                "g": (group.shape[0], ""),
                "B[inside]": (links[0].bandwidth, "B/s"),
                "B[outside]": (links[-1].bandwidth, "B/s"),
            },
            source=DEDUPLICATED,
        )
        return seconds, self.tokens * (self.remote + self.top) * bytes_, formula


def exchange_of(study: Study) -> Exchange | None:
    """Return the exchange of *study*, or None where experts do not leave their rank."""
    model, ep = study[Training].model, study[Layout].ep
    alone = isinstance(ep, float) and ep == 1.0
    return None if not model.experts or model.nominal or alone else exchanged(study)


def exchanged(study: Study) -> Exchange:
    """Return the exchange of a study with experts: nothing travels in a group of one rank."""
    model = study[Training].model
    return Exchange(
        study=study,
        group=study.group("ep"),
        tokens=rank_tokens(study),
        top=model.top_k,
        experts=float(model.experts),
        lam=crowding(study),
        routing=study[Routing],
        hidden=model.hidden,
    )


@hookimpl
def terms(study: Study) -> Iterator[Work]:
    """Price the exchange of every layer with experts, and the collectives of cut experts."""
    model = study[Training].model
    if not model.experts or model.nominal:
        return
    count, again = _counts(study)
    if not any(count):
        return
    exchange = exchange_of(study)
    if exchange is not None:
        yield from _exchanged(exchange, count, again)
    yield from _cut(study, count, again)


def _counts(study: Study) -> tuple[Counts, Counts]:
    """Return the layers with experts of each virtual stage, and those run again in backward."""
    count, chosen = standing(study, moe=True), study.get(Recompute)
    if chosen is not None and chosen.moe:
        return count, count
    return count, standing(study, moe=True, recomputed=True)


def _exchanged(exchange: Exchange, count: Counts, again: Counts) -> Iterator[Work]:
    study, routing = exchange.study, exchange.routing
    there = exchange.priced(exchange.there)
    announced = exchange.priced(exchange.there + routing.metadata)
    back = exchange.priced(exchange.back, back=True)
    if exchange.kind == "allgather":  # gradients of results are gathered, those of tokens summed
        tokens, results = exchange.priced(exchange.there, back=True), exchange.priced(exchange.back)
    else:
        tokens, results = back, there
    rows: list[tuple[str, Pass, tuple[Real, Real, Formula], Counts]] = [
        ("expert dispatch", "F", announced, count),
        ("expert combine", "F", back, count),
        ("expert combine gradient", "B", results, count),
        ("expert dispatch gradient", "B", tokens, count),
    ]
    if any(again):
        rows += [
            ("expert dispatch", "R", announced, again),
            ("expert combine", "R", back, again),
        ]
    for name, pass_, priced, times in rows:
        yield _work(study, name, pass_, priced, times, exchange.group)
    if exchange.kind != "alltoall" or not any_of(routing.counts > 0):
        return
    gathered = exchange.group.ranks * exchange.experts * routing.counts
    call = study.collective("all_gather", gathered, exchange.group)
    counts = (where(routing.counts > 0, call.seconds, 0.0), gathered, call.formula)
    yield _work(study, "token counts all-gather", "F", counts, count, exchange.group)
    if any(again):
        yield _work(study, "token counts all-gather", "R", counts, again, exchange.group)


def _cut(study: Study, count: Counts, again: Counts) -> Iterator[Work]:
    """Yield what ranks tell one another that hold parts of the same experts."""
    layout, training = study[Layout], study[Training]
    if isinstance(layout.etp, float) and layout.etp == 1.0:
        return
    group, model = study.group("etp"), training.model
    own = rank_tokens(study) * model.top_k * crowding(study)
    own = own * model.hidden * training.precision.activation
    apart = have_their_own(layout)
    alike: Mask = not apart if isinstance(apart, bool) else ~apart
    for name, operation, bytes_, here in (
        ("expert tensor all-gather", "all_gather", layout.etp * own, apart),
        ("expert tensor reduce-scatter", "reduce_scatter", layout.etp * own, apart),
        ("expert tensor all-reduce", "all_reduce", own, alike),
    ):
        if not any_of(here):
            continue
        n = where(here, bytes_, 0.0)
        call = study.collective(operation, n, group)
        priced = (where(here, call.seconds, 0.0), n, call.formula)
        yield _work(study, name, "F", priced, count, group)
        yield _work(study, f"{name}, backward", "B", priced, count, group)
        if any(again):
            yield _work(study, name, "R", priced, again, group)


def _work(
    study: Study,
    name: str,
    pass_: Pass,
    priced: tuple[Real, Real, Formula],
    count: Sequence[float],
    group: Group,
) -> Work:
    seconds, bytes_, formula = priced
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
        formula=formula,
        count=count,
        window=_WINDOWS[study[Routing].hide],
        slowdown=taken,
        bytes_=bytes_,
        **busy(group.pair),
    )
