"""The degrees of the layout are whole and multiply up to the devices."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Mask, Real, Study, block_name
from parcost.numeric import all_of, divides, is_array, maximum, where
from parcost_plugins.vocabulary import Cluster, Layout, ScheduleChoice, Training
from parcost_plugins.vocabulary.neighbours import all_divisors, divisors, multiples, next_to
from parcost_plugins.vocabulary.partition import assignment, end_layers, stages


def rules(study: Study) -> Iterator[Check]:
    """Return the rules that join the layout and the cluster.

    A mistake is reported once: what does not divide is not compared with the product
    as well, which a dp that follows from it cannot meet.
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
        subject="cluster.devices",
        message=product + " = {ranks} devices are needed, and the cluster has {devices}",
        inputs={**inputs, "fitting": _fitting(study)},
        help="take {ranks} devices or a multiple of them{fitting}",
    )
    below, above = multiples(ranks, devices)
    yield Check(
        id="devices-divide",
        holds=where(ranks <= devices, devices % ranks, 0.0) == 0.0,
        subject="layout.pp",
        message="{devices} devices are not divisible by " + product + " = {ranks}",
        inputs={**inputs, "below": below, "above": above},
        help=_degrees(study, whole) + "take {below} or {above} devices",
    )
    yield Check(
        id="layout-product",
        holds=where(whole, ranks * dp, devices) == devices,
        subject="layout.dp",
        message=product + " x dp {dp} = {product}, and the cluster has {devices} devices",
        inputs={**inputs, "product": ranks * dp, "fitting": maximum(devices // ranks, 1.0)},
        help="dp = {fitting}, or leave it out: it follows from the others",
    )
    yield from _experts(study)
    yield Check(
        id="zero-alone",
        holds=True if layout.zero == 0 else dp > 1,
        subject="layout.zero",
        message="zero {zero} shards nothing: there is one data-parallel rank",
        inputs={"zero": layout.zero},
        severity="warning",
    )


def _fitting(study: Study) -> str:
    """Return the largest degree that fits in place of one that is too large, for a help line."""
    layout, devices = study[Layout], study[Cluster].devices
    pp = stages(study)
    degrees = {"pp": pp, "cp": layout.cp, "tp": layout.tp}
    if is_array(devices, *degrees.values()) or devices % 1:
        return ""
    for name, degree in degrees.items():
        others = layout.tp * layout.cp * pp / degree
        room = devices // others
        if room >= 1 and divides(others, devices):
            known = _stages(study, int(room)) if name == "pp" else all_divisors(int(room))
            fitting = [n for n in known if n < degree]
            if fitting:
                return f", or {name} = {fitting[-1]}"
    return ""


def _experts(study: Study) -> Iterator[Check]:
    """Require that experts are there to be split, over the ranks that there are."""
    layout = study[Layout]
    ep, etp = layout.ep, layout.etp
    split: Mask = (ep == 1) & (etp == 1)
    if all_of(split):
        return
    model = study[Training].model
    experts = getattr(model, "experts", 0.0)
    yield Check(
        id="experts-missing",
        holds=split | (experts > 0),
        subject="layout.ep" if not all_of(ep == 1) else "layout.etp",
        message="ep {ep} x etp {etp} split experts, and the model `{model}` has none",
        inputs={"ep": ep, "etp": etp, "model": block_name(model)},
        help="leave ep and etp out, or give the model its `experts`",
    )
    ranks, parts = layout.tp * layout.cp * layout.dp, ep * etp
    yield Check(
        id="experts-ranks",
        holds=ranks % parts == 0,
        subject="layout.ep",
        message="tp {tp} x cp {cp} x dp {dp} = {ranks} ranks of a stage are not divisible by "
        "ep {ep} x etp {etp} = {parts}",
        inputs={
            "tp": layout.tp,
            "cp": layout.cp,
            "dp": layout.dp,
            "ep": ep,
            "etp": etp,
            "ranks": ranks,
            "parts": parts,
        },
        notes=["a stage has tp x cp x dp = etp x ep x edp ranks"],
        help=_divisors_of_experts(ranks, ep, etp),
    )


def _divisors_of_experts(ranks: Real, ep: Real, etp: Real) -> str:
    """Return the nearest legal ep, or the nearest etp where none is."""
    if not all_of(divides(etp, ranks)):
        near = divisors(ranks, etp)
        return f"etp = {near} divides" if near else ""
    near = divisors(ranks // etp, ep)
    return f"ep = {near} divides" if near else ""


def _degrees(study: Study, whole: Mask) -> str:
    """Return the degrees next to those given that divide, as the start of a help line."""
    if all_of(whole):
        return ""
    layout = study[Layout]
    tp, cp, pp, left = layout.tp, layout.cp, stages(study), study[Cluster].devices
    for name, degree in (("tp", tp), ("cp", cp), ("pp", pp)):
        if name == "pp":
            near = "" if is_array(left, pp) or left % 1 else next_to(pp, _stages(study, int(left)))
            return f"pp = {near} divides, or " if near else ""
        if not all_of(divides(degree, left)):
            near = divisors(left, degree)
            return f"{name} = {near} divides, or " if near else ""
        left = left // degree
    return ""


def _stages(study: Study, devices: int) -> list[int]:
    """Return the numbers of stages that divide *devices*, and among which layers divide."""
    choice, found = study[ScheduleChoice], all_divisors(devices)
    if choice.stages:
        return found
    layers = study[Training].model.layers + sum(end_layers(study))
    if assignment(study) != "even":
        return [pp for pp in found if pp * choice.chunks <= layers]
    return [pp for pp in found if layers % (pp * choice.chunks) == 0]
