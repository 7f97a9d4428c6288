"""The degrees of the layout are whole and multiply up to the devices."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Mask, Real, Study
from parcost.numeric import all_of, divides, maximum, where
from parcost_plugins.rules.nearest import divisors, multiples
from parcost_plugins.vocabulary import Cluster, Layout


def rules(study: Study) -> Iterator[Check]:
    """Return the rules that join the layout and the cluster.

    A mistake is reported once: what does not divide is not compared with the product
    as well, which a dp that follows from it cannot meet.
    """
    layout, devices = study[Layout], study[Cluster].devices
    tp, pp, dp = layout.tp, layout.pp, layout.dp
    ranks = tp * pp
    whole = divides(ranks, devices)
    inputs = {"tp": tp, "pp": pp, "dp": dp, "devices": devices, "ranks": ranks}
    yield Check(
        id="devices-few",
        holds=ranks <= devices,
        subject="cluster.devices",
        message="tp {tp} x pp {pp} = {ranks} devices are needed, and the cluster has {devices}",
        inputs=inputs,
    )
    below, above = multiples(ranks, devices)
    yield Check(
        id="devices-divide",
        holds=where(ranks <= devices, devices % ranks, 0.0) == 0.0,
        subject="layout.pp",
        message="{devices} devices do not divide by tp {tp} x pp {pp} = {ranks}",
        inputs={**inputs, "below": below, "above": above},
        help=_degrees(devices, tp, pp, whole) + "take {below} or {above} devices",
    )
    yield Check(
        id="layout-product",
        holds=where(whole, ranks * dp, devices) == devices,
        subject="layout.dp",
        message="tp {tp} x pp {pp} x dp {dp} = {product}, and the cluster has {devices} devices",
        inputs={**inputs, "product": ranks * dp, "fitting": maximum(devices // ranks, 1.0)},
        help="dp = {fitting}, or leave it out: it follows from the others",
    )
    yield Check(
        id="zero-alone",
        holds=True if layout.zero == 0 else dp > 1,
        subject="layout.zero",
        message="zero {zero} shards nothing: there is one data-parallel rank",
        inputs={"zero": layout.zero},
        severity="warning",
    )


def _degrees(devices: Real, tp: Real, pp: int, whole: Mask) -> str:
    """Return the degrees next to those given that divide, as the start of a help line."""
    if all_of(whole):
        return ""
    if all_of(divides(tp, devices)):
        near = divisors(devices // tp, pp)
        return f"pp = {near} divides, or " if near else ""
    near = divisors(devices, tp)
    return f"tp = {near} divides, or " if near else ""
