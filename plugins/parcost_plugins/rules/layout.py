"""The degrees of the layout are whole and multiply up to the devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from parcost import Check, Mask, Real, Study, block_name
from parcost.numeric import all_of, divides, is_array, maximum, where
from parcost_plugins.physics.context import sequence_step
from parcost_plugins.physics.neighbours import (
    all_divisors,
    divisors_of_both,
    multiples,
    next_to,
    tensor_degrees,
)
from parcost_plugins.physics.partition import possible_cuts, stages
from parcost_plugins.physics.run_choices import shards_states
from parcost_plugins.rules.rulebook import RULES
from parcost_plugins.vocabulary import Cluster, Layout, ScheduleChoice, Training


def rules(study: Study) -> Iterator[Check]:
    """Return the rules that relate layout and cluster.

    A mistake is reported once: if a degree is invalid, the product is not compared with the
    devices.
    """
    layout, devices = study[Layout], study[Cluster].devices
    tp, cp, pp, dp = layout.tp, layout.cp, stages(study), layout.dp
    ranks = tp * cp * pp
    whole = divides(ranks, devices)
    product = "tp {tp} x pp {pp}" if all_of(cp == 1) else "tp {tp} x cp {cp} x pp {pp}"
    inputs = {"tp": tp, "cp": cp, "pp": pp, "dp": dp, "devices": devices, "ranks": ranks}
    yield Check(
        id="devices-few",
        holds=ranks <= devices,
        subject="cluster.devices" if all_of(ranks <= devices) else _last_set(study),
        message=product + " = {ranks} devices are needed, but the cluster has {devices}",
        inputs={**inputs, "fitting": _nearest_fit(study)},
        help="take {ranks} devices or a multiple of them{fitting}",
    )
    below, above = multiples(ranks, devices)
    subject, near = ("layout.pp", "") if all_of(whole) else _changeable_attribute(study)
    yield Check(
        id="devices-divide",
        holds=where(ranks <= devices, devices % ranks, 0.0) == 0.0,
        subject=subject,
        message="{devices} devices are not divisible by " + product + " = {ranks}",
        inputs={**inputs, "below": below, "above": above},
        help=near + "take {below} or {above} devices",
    )
    yield Check(
        id="layout-product",
        holds=where(whole, ranks * dp, devices) == devices,
        subject="layout.dp",
        message=product + " x dp {dp} = {product}, but the cluster has {devices} devices",
        inputs={**inputs, "product": ranks * dp, "fitting": maximum(devices // ranks, 1.0)},
        help="write dp = {fitting}, or leave it out: it is computed from the others",
    )
    yield from _experts(study)
    yield RULES.check(
        "zero-alone",
        True if not shards_states(study) else _copies(study) > 1,
        "layout.zero",
        reads=["layout.dp"],
        zero=layout.zero,
    )


def _copies(study: Study) -> Real:
    """Return the number of ranks with the same parameters: the larger of dense and expert
    counts.
    """
    layout = study[Layout]
    ranks: Real = layout.dp * layout.cp
    if not study[Training].model.experts:
        return ranks
    return maximum(ranks, layout.tp * ranks / (layout.ep * layout.etp))


def _nearest_fit(study: Study) -> str:
    """Return the largest valid degree below one that is too large, for a help line."""
    for name, degree, legal in _legal_degrees(study, ("pp", "cp", "tp")):
        fitting = [n for n in legal if n < degree]
        if fitting:
            return f", or {name} = {fitting[-1]}"
    return ""


def _legal_degrees(study: Study, names: Sequence[str]) -> Iterator[tuple[str, Real, Sequence[int]]]:
    """Yield each degree with its valid values: divisors of the devices, other degrees fixed.

    The valid values also divide the split dimension. The result is empty for a sweep.
    """
    layout, devices = study[Layout], study[Cluster].devices
    degrees = {"tp": layout.tp, "cp": layout.cp, "pp": stages(study)}
    ranks = layout.tp * layout.cp * degrees["pp"]
    if is_array(devices, ranks) or devices % 1:
        return
    for name in names:
        degree = degrees[name]
        if divides(ranks / degree, devices):
            legal = {"tp": _tensor, "cp": _context, "pp": _stages}[name]
            yield name, degree, legal(study, int(devices * degree / ranks))


def _experts(study: Study) -> Iterator[Check]:
    """Require that experts exist if they are split, and enough ranks for them."""
    layout = study[Layout]
    ep, etp = layout.ep, layout.etp
    split: Mask = (ep == 1) & (etp == 1)
    if all_of(split):
        return
    model = study[Training].model
    experts = getattr(model, "experts", 0.0)
    yield RULES.check(
        "experts-missing",
        split | (experts > 0),
        "layout.ep" if not all_of(ep == 1) else "layout.etp",
        ep=ep,
        etp=etp,
        model=block_name(model),
    )
    ranks, parts = layout.tp * layout.cp * layout.dp, ep * etp
    yield RULES.check(
        "experts-ranks",
        ranks % parts == 0,
        "layout.ep",
        help=_divisors_of_experts(study, ranks),
        notes=["a stage has tp x cp x dp = etp x ep x edp ranks"],
        reads=["layout.dp"],
        tp=layout.tp,
        cp=layout.cp,
        dp=layout.dp,
        ep=ep,
        etp=etp,
        ranks=ranks,
        parts=parts,
    )


def _divisors_of_experts(study: Study, ranks: Real) -> str:
    """Return the nearest valid ep, or the nearest etp if no ep is valid."""
    layout, model = study[Layout], study[Training].model
    ep, etp = layout.ep, layout.etp
    if all_of(divides(etp, ranks)):
        near = divisors_of_both(ranks / etp, getattr(model, "experts", 0.0), ep)
        return f"ep = {near} divides" if near else ""
    split = model.expert_ffn if getattr(model, "experts", 0.0) else 0.0
    near = divisors_of_both(ranks / ep, split, etp)
    return f"etp = {near} divides" if near else ""


def _changeable_attribute(study: Study) -> tuple[str, str]:
    """Return the attribute to change if degrees do not divide the devices, and the start of a help
    line.

    It is a swept degree, a degree set from outside, or the only degree that does not divide the
    devices. If no degree has a valid value, it is the number of devices.
    """
    layout, devices = study[Layout], study[Cluster].devices
    degrees = {"tp": layout.tp, "cp": layout.cp, "pp": stages(study)}
    swept = [f"layout.{name}" for name, degree in degrees.items() if is_array(degree)]
    if swept or is_array(devices):
        return [*swept, "cluster.devices"][0], ""
    valid = {
        name: near
        for name, degree, legal in _legal_degrees(study, tuple(degrees))
        if (near := next_to(degree, legal))
    }
    if not valid:
        return "cluster.devices", ""

    name = max(valid, key=lambda name: (_is_set(study, name), not divides(degrees[name], devices)))
    outside = _is_set(study, "devices") and not _is_set(study, name)
    subject = "cluster.devices" if outside else f"layout.{name}"
    return subject, f"{name} = {valid[name]} divides, or "


def _last_set(study: Study) -> str:
    """Return the degree that was set from outside, or the devices if no degree was."""
    names = [] if _is_set(study, "devices") else ["pp", "cp", "tp"]
    return next((f"layout.{name}" for name in names if _is_set(study, name)), "cluster.devices")


def _is_set(study: Study, name: str) -> bool:
    """Return whether a value was set outside the file, for example by ``--set``."""
    origin = study.origin(study[Cluster if name == "devices" else Layout], name)
    return origin is not None and origin.how == "set"


def _tensor(study: Study, devices: int) -> list[int]:
    """Return the tensor-parallel degrees that divide *devices*, heads, MLP and sequence.

    With sequence parallelism, 1 is left out because it would not shard anything.
    """
    model, layout = study[Training].model, study[Layout]
    if is_array(model.heads, model.kv_heads, model.ffn):
        return []
    legal = tensor_degrees(int(model.heads), int(model.kv_heads), int(model.ffn))
    least = 2 if layout.sequence_parallel else 1
    return [
        tp
        for tp in legal
        if tp >= least and devices % tp == 0 and _cuts_sequence(study, tp, layout.cp)
    ]


def _context(study: Study, devices: int) -> list[int]:
    """Return the context-parallel degrees that divide *devices*, and the sequence."""
    tp = study[Layout].tp
    return [cp for cp in all_divisors(devices) if _cuts_sequence(study, tp, cp)]


def _cuts_sequence(study: Study, tp: Real, cp: Real) -> bool:
    return all_of(study[Training].sequence % sequence_step(study, tp, cp) == 0)


def _stages(study: Study, devices: int) -> list[int]:
    """Return the numbers of stages that divide *devices* and the layers."""
    choice, found = study[ScheduleChoice], all_divisors(devices)
    if choice.stages:
        return found
    possible = set(possible_cuts(study))
    return [pp for pp in found if pp * choice.chunks in possible]
