"""Consistency rules of router, experts and layout."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Real, Study, block_name, hookimpl
from parcost.numeric import ceil, ceil_div, maximum, where
from parcost_plugins.parallelism.expert.exchange import exchange_of
from parcost_plugins.vocabulary import Cluster, Layout, Model, Routing, ScheduleChoice, Training
from parcost_plugins.vocabulary.framework import KERNEL_DISPATCHERS
from parcost_plugins.vocabulary.neighbours import divisors_of_both
from parcost_plugins.vocabulary.routing import (
    dispatcher_of,
    load_imbalance,
    overflow,
    routing_load,
    sends_once,
)

_PAIRING = ("one_f_one_b", "interleaved")  # of Megatron-LM, which pairs their micro-batches
_PAIRED = ("dualpipe", "dualpipe_v")  # their passes run as pairs, which hide communication


@hookimpl
def checks(study: Study) -> Iterator[Check]:
    """Return the rules of a mixture of experts; a dense model has none."""
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
    yield Check(
        id="experts-divide",
        holds=experts % ep == 0,
        subject="layout.ep",
        message="{experts} experts are not divisible by ep = {ep}",
        inputs={"experts": experts, "ep": ep},
        help=_nearest_divisors(experts, ranks / etp, ep, "ep"),
    )
    yield Check(
        id="expert-width-divide",
        holds=model.expert_ffn % etp == 0,
        subject="layout.etp",
        message="an expert hidden size of {width} is not divisible by etp = {etp}",
        inputs={"width": model.expert_ffn, "etp": etp},
        help=_nearest_divisors(model.expert_ffn, ranks / ep, etp, "etp"),
    )
    yield Check(
        id="experts-visited",
        holds=model.top_k <= experts,
        subject=f"{block_name(model)}.top_k",
        message="top_k = {top} is more than the {experts} experts",
        inputs={"top": model.top_k, "experts": experts},
        help="write `top_k` of at most {experts}",
    )
    if model.shared_experts:
        yield Check(
            id="shared-width-divide",
            holds=model.shared_width % tp == 0,
            subject="layout.tp",
            message="a hidden size of shared experts of {width} is not divisible by tp = {tp}",
            inputs={"width": model.shared_width, "tp": tp},
            help=_nearest_divisors(model.shared_width, 0.0, tp, "tp"),
        )
    if not layout.sequence_parallel:
        # Ranks of tp then hold the same tokens, of which each expert must see every one once.
        yield Check(
            id="experts-sequence-parallel",
            holds=(tp == 1) | ((ep == 1) & (etp == tp)),
            subject="layout.sequence_parallel",
            message="{tp} tensor-parallel ranks would each send the same tokens to the experts",
            inputs={"tp": tp},
            help="write `sequence_parallel = on`, or ep = 1 with etp = {tp}",
        )


def _load(model: Model, routing: Routing) -> Iterator[Check]:
    place = block_name(routing)
    said = routing.distribution
    if said == "measured":
        listed, total = len(routing.loads), sum(routing.loads)
        yield Check(
            id="loads-count",
            holds=listed == model.experts and total > 0,
            subject=f"{place}.loads",
            message="`loads` lists {listed} experts, with {total} tokens in all; the model has "
            "{experts} "
            "experts",
            inputs={"total": total, "listed": listed, "experts": model.experts},
            help="list a number of tokens for each of {experts} experts, not all 0",
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
    """Yield warnings of dropped tokens: in total for counted loads, else at the busiest rank."""
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
        help="a factor of {enough:g} drops none; without a capacity factor experts take all tokens",
        severity="warning",
        factor=factor / load,
    )


def _travel(study: Study, model: Model) -> Iterator[Check]:
    routing, exchange = study[Routing], exchange_of(study)
    place = block_name(routing)
    if routing.hide == "shared_experts" and not model.shared_experts:
        yield Check(
            id="exchange-hides",
            holds=False,
            subject=f"{place}.hide",
            message="`hide = shared_experts` hides the exchange of experts under shared experts, "
            "and "
            "the model has none: all of it is exposed",
            help="write `hide = pair` or `hide = none`",
            severity="warning",
        )
    if exchange is not None and routing.hide == "pair":
        yield _pair_check(study)
    kind = dispatcher_of(study)
    if exchange is not None and kind in KERNEL_DISPATCHERS:
        taken, device = getattr(routing, f"{kind}_multiprocessors"), study[Cluster].device
        yield Check(
            id="dispatcher-multiprocessors",
            holds=taken < device.multiprocessors,
            subject=f"routing.{kind}_multiprocessors",
            message="the kernels of `{kind}` take {taken} multiprocessors, and device `{device}` "
            "has "
            "{all}: none is left to compute",
            inputs={
                "device": block_name(device),
                "all": device.multiprocessors,
                "kind": kind,
                "taken": taken,
            },
            help="write fewer than {all}",
        )
    if exchange is None or routing.node_limit is None:
        return
    limit, units = routing.node_limit, exchange.units
    per_unit = model.experts / units
    need = ceil_div(model.top_k, per_unit)
    yield Check(
        id="node-limit-experts",
        holds=where(limit < units, limit * per_unit, model.top_k) >= model.top_k,
        subject=f"{place}.node_limit",
        message="with node_limit = {limit} a token reaches {held} experts, and top_k is {top}",
        inputs={"limit": limit, "held": limit * per_unit, "top": model.top_k, "need": need},
        help="write `node_limit` of at least {need}",
    )
    if not sends_once(study):
        yield Check(
            id="node-limit-copies",
            holds=False,
            subject=f"{place}.node_limit",
            message="`node_limit` saves nothing if every expert gets its own copy of a token",
            help="write `deduplicate = on`, which sends one copy to each node",
            severity="warning",
        )


def _pair_check(study: Study) -> Check:
    """Return the rule that the schedule runs passes forward beside others backward."""
    schedule = study[ScheduleChoice].kind
    hides = schedule in _PAIRED
    return Check(
        id="exchange-pairs",
        holds=schedule in _PAIRING,
        subject=f"{block_name(study[Routing])}.hide",
        message="`hide = pair` is for the schedules `one_f_one_b` and `interleaved`; "
        + (
            "the pairs of `{schedule}` hide the exchange already"
            if hides
            else "`{schedule}` runs no micro-batch forward beside another one backward"
        ),
        inputs={"schedule": schedule},
        help="write `hide = none`"
        + ("" if hides else ", or `schedule.kind = one_f_one_b` or `interleaved`"),
    )


def _nearest_divisors(of: Real, ranks: Real, near: Real, name: str) -> str:
    """Return the divisors of *of* (and of *ranks* if whole) nearest to *near*, as a help line."""
    found = divisors_of_both(of, ranks, near) or divisors_of_both(of, 0.0, near)
    return f"nearest legal: {name} = {found}" if found else ""
