"""Consistency rules of router, experts and layout."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Real, Study, block_name, hookimpl
from parcost.numeric import ceil, ceil_div, maximum, where
from parcost_plugins.parallelism.expert.exchange import exchange_of
from parcost_plugins.parallelism.expert.rulebook import RULES
from parcost_plugins.physics.neighbours import divisors_of_both
from parcost_plugins.physics.routing import (
    dispatcher_of,
    load_imbalance,
    overflow,
    routing_load,
    sends_once,
)
from parcost_plugins.vocabulary import Cluster, Layout, Model, Routing, ScheduleChoice, Training
from parcost_plugins.vocabulary.framework import KERNEL_DISPATCHERS

_PAIRING = ("one_f_one_b", "interleaved")  # of Megatron-LM, which pairs their micro-batches
_PAIRED = ("dualpipe", "dualpipe_v")  # their passes run as pairs, which hide communication


@hookimpl
def checks(study: Study) -> Iterator[Check]:
    """Return the rules of a mixture of experts; an empty list for a dense model."""
    model = study[Training].model
    if not model.experts or model.is_nominal:
        return
    yield from _shape(model, study[Layout])
    yield from _load(model, study[Routing])
    yield from _drop_checks(study)
    yield from _travel(study, model)


def _shape(model: Model, layout: Layout) -> Iterator[Check]:
    experts, ep, etp, tp = float(model.experts), layout.ep, layout.etp, layout.tp
    ranks = tp * layout.cp * layout.dp
    yield RULES.check(
        "experts-divide",
        experts % ep == 0,
        "layout.ep",
        help=_nearest_divisors(experts, ranks / etp, ep, "ep"),
        experts=experts,
        ep=ep,
    )
    yield RULES.check(
        "expert-width-divide",
        model.expert_ffn % etp == 0,
        "layout.etp",
        help=_nearest_divisors(model.expert_ffn, ranks / ep, etp, "etp"),
        width=model.expert_ffn,
        etp=etp,
    )
    yield RULES.check(
        "experts-visited",
        model.top_k <= experts,
        f"{block_name(model)}.top_k",
        top=model.top_k,
        experts=experts,
    )
    if model.shared_experts:
        yield RULES.check(
            "shared-width-divide",
            model.shared_width % tp == 0,
            "layout.tp",
            help=_nearest_divisors(model.shared_width, 0.0, tp, "tp"),
            width=model.shared_width,
            tp=tp,
        )
    if not layout.sequence_parallel:
        # Ranks of tp then hold the same tokens, of which each expert must see every one once.
        yield RULES.check(
            "experts-sequence-parallel",
            (tp == 1) | ((ep == 1) & (etp == tp)),
            "layout.sequence_parallel",
            tp=tp,
        )


def _load(model: Model, routing: Routing) -> Iterator[Check]:
    place = block_name(routing)
    said = routing.distribution
    if said == "measured":
        listed, total = len(routing.loads), sum(routing.loads)
        yield RULES.check(
            "loads-count",
            listed == model.experts and total > 0,
            f"{place}.loads",
            total=total,
            listed=listed,
            experts=model.experts,
        )
    unread = [
        name
        for name, given, for_ in (
            ("loads", bool(routing.loads), "measured"),
            ("concentration", routing.concentration is not None, "dirichlet"),
        )
        if given and said != for_ and routing.imbalance is None
    ]
    if unread:
        yield Check(
            id="routing-unread",
            holds=False,
            subject=f"{place}.{unread[0]}",
            message=f"`{unread[0]}` has no effect while the distribution is `{said}`",
            help="write `distribution = "
            f"{'measured' if unread[0] == 'loads' else 'dirichlet'}`, or leave it out",
            severity="warning",
        )


def _drop_checks(study: Study) -> Iterator[Check]:
    """Yield warnings of dropped tokens: in total if loads are given, else for the busiest rank."""
    routing = study[Routing]
    factor = routing.capacity_factor
    if factor is None:
        return
    counted = routing.distribution == "measured" and routing.imbalance is None
    if counted and not sum(routing.loads):
        return  # which has a rule of its own
    load = load_imbalance(routing.loads, len(routing.loads)) if counted else routing_load(study)
    share = overflow(routing.loads, factor) if counted else maximum(1 - factor / load, 0.0)
    whose = (
        "the tokens: the busiest expert receives"
        if counted
        else "the tokens of the busiest rank, which receives"
    )
    yield Check(
        id="capacity-drops",
        holds=factor >= load,
        subject=f"{block_name(routing)}.capacity_factor",
        message="a capacity factor of {factor:g} drops {dropped:.3g} % of "
        f"{whose} {{load:.3g}} times the mean load",
        inputs={
            "factor": factor,
            "dropped": 100 * share,
            "load": load,
            "enough": ceil(100 * load) / 100,
        },
        help="write a factor of {enough:g}, which drops no tokens, or remove the capacity factor",
        severity="warning",
        factor=factor / load,
    )


def _travel(study: Study, model: Model) -> Iterator[Check]:
    routing, exchange = study[Routing], exchange_of(study)
    place = block_name(routing)
    if routing.hide == "shared_experts" and not model.shared_experts:
        yield RULES.check("exchange-hides", False, f"{place}.hide")
    if exchange is not None and routing.hide == "pair":
        yield _pair_check(study)
    kind = dispatcher_of(study)
    if exchange is not None and kind in KERNEL_DISPATCHERS:
        taken, device = getattr(routing, f"{kind}_multiprocessors"), study[Cluster].device
        yield RULES.check(
            "dispatcher-multiprocessors",
            taken < device.multiprocessors,
            f"routing.{kind}_multiprocessors",
            device=block_name(device),
            all=device.multiprocessors,
            kind=kind,
            taken=taken,
        )
    if exchange is None or routing.node_limit is None:
        return
    limit, units = routing.node_limit, exchange.units
    per_unit = model.experts / units
    need = ceil_div(model.top_k, per_unit)
    yield RULES.check(
        "node-limit-experts",
        where(limit < units, limit * per_unit, model.top_k) >= model.top_k,
        f"{place}.node_limit",
        limit=limit,
        held=limit * per_unit,
        top=model.top_k,
        need=need,
    )
    if not sends_once(study):
        yield RULES.check("node-limit-copies", False, f"{place}.node_limit")


def _pair_check(study: Study) -> Check:
    """Return the rule that the schedule runs pairs of a forward and a backward pass."""
    schedule = study[ScheduleChoice].kind
    hides = schedule in _PAIRED
    return Check(
        id="exchange-pairs",
        holds=schedule in _PAIRING,
        subject=f"{block_name(study[Routing])}.hide",
        message="`hide = pair` needs the schedule `one_f_one_b` or `interleaved`; "
        + (
            "`{schedule}` already overlaps the all-to-all with the other pass of each pair"
            if hides
            else "`{schedule}` does not pair the forward pass of one micro-batch with the backward "
            "pass of another"
        ),
        inputs={"schedule": schedule},
        help="write `hide = none`"
        + ("" if hides else ", or `schedule.kind = one_f_one_b` or `interleaved`"),
    )


def _nearest_divisors(of: Real, ranks: Real, near: Real, name: str) -> str:
    """Return a help line with the divisors of *of* nearest to *near*.

    They also divide *ranks*, if such divisors exist."""
    found = divisors_of_both(of, ranks, near) or divisors_of_both(of, 0.0, near)
    return f"nearest legal: {name} = {found}" if found else ""
