"""The roofline of the device, and where the matrix products of the step stand below it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parcost import Chart, Outcome, Study, formula, hookimpl
from parcost.numeric import is_array
from parcost_plugins.kernels.pricing import operators_by_type
from parcost_plugins.kernels.rates import KernelMachine, matmul, sizes
from parcost_plugins.vocabulary import Gemm, KernelChoice

_PASSES = {"F": "forward", "R": "recompute", "B": "backward", "W": "weight gradients"}
_WIDER = 4.0  # than the products reach, the roof on both sides
_SOURCE = "Williams, Waterman, Patterson 2009"


@hookimpl
def charts(study: Study, outcome: Outcome) -> Iterator[Chart]:  # noqa: ARG001
    """Return the roofline with a point for each matrix product."""
    points = [*_points(study)]
    if not points:
        return
    yield Chart(
        name="roofline",
        title="The roofline and the matrix products",
        place=40,
        notes=["FLOPs of a product over its bytes, and over its time. Nothing is above the roof."],
        spec=_SPEC,
        columns={
            "called": "product",
            "pass_": "pass",
            "intensity": "FLOPs for each byte",
            "rate": "reaches",
            "share": "of the roof",
            "formula": "formula",
        },
        rows=[*_roofs(study, points), *points],
    )


def _points(study: Study) -> Iterator[dict[str, Any]]:
    choice, machine = study[KernelChoice], KernelMachine.of(study)
    _, model = study.plugins.offers("kernels")[choice.model]
    for gemm in operators_by_type(study):
        priced = model.price(gemm, study) if isinstance(gemm, Gemm) else None
        if priced is None or is_array(priced.value, gemm.flops) or not priced.value > 0:
            continue
        operand, result, _ = sizes(gemm, machine.precision)
        read, written = gemm.m * gemm.k + gemm.k * gemm.n, gemm.m * gemm.n
        bytes_ = gemm.batch * (operand * read + result * written)
        peak = matmul(gemm, machine).peak
        intensity, rate = gemm.flops / bytes_, gemm.flops / priced.value
        roof = min(peak, intensity * machine.device.memory_bandwidth)
        yield {
            "kind": "product",
            "called": gemm.name,
            "pass_": _PASSES.get(gemm.pass_, gemm.pass_),
            "peak": peak,
            "intensity": (intensity, ""),
            "tera": rate / 1e12,
            "rate": (rate, "FLOP/s"),
            "share": (rate / roof, "%"),
            "formula": formula("FLOPs / t", FLOPs=(gemm.flops, "FLOP"), t=(priced.value, "s")),
        }


def _roofs(study: Study, points: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the corners of the roof of each type that products run in."""
    bandwidth = KernelMachine.of(study).device.memory_bandwidth
    reached = [point["intensity"][0] for point in points]
    for peak in dict.fromkeys(point["peak"] for point in points):
        ridge = peak / bandwidth
        ends = (min(*reached, ridge) / _WIDER, ridge, max(*reached, ridge) * _WIDER)
        for intensity in ends:
            roof = formula(
                "min(F, I B)",
                F=(peak, "FLOP/s"),
                I=intensity,
                B=(bandwidth, "B/s"),
                source=_SOURCE,
            )
            yield {
                "kind": "roof",
                "called": "roof",
                "peak": peak,
                "intensity": (intensity, ""),
                "tera": roof.value / 1e12,
                "rate": (roof.value, "FLOP/s"),
                "formula": roof,
            }


_X = {
    "field": "intensity",
    "type": "quantitative",
    "scale": {"type": "log", "nice": False},
    "axis": {"title": "FLOPs for each byte (FLOP/B)", "format": "~s", "tickCount": 6},
}
_Y = {
    "field": "tera",
    "type": "quantitative",
    "scale": {"type": "log", "nice": False},
    "axis": {"title": "rate (TFLOP/s)", "format": "~s", "tickCount": 6},
}
_CORNER = {"color": "#8C8C8C", "size": 16}
_SPEC = {
    "height": 320,
    "layer": [
        {
            "transform": [{"filter": {"field": "kind", "equal": "roof"}}],
            "mark": {"type": "line", "color": "#8C8C8C", "strokeWidth": 2, "point": _CORNER},
            "encoding": {"x": _X, "y": _Y, "detail": {"field": "peak", "type": "nominal"}},
        },
        {
            "transform": [{"filter": {"field": "kind", "equal": "product"}}],
            "mark": {"type": "point", "filled": True, "size": 70, "opacity": 0.8},
            "encoding": {
                "x": _X,
                "y": _Y,
                "color": {"field": "pass_", "type": "nominal", "legend": {"title": None}},
                "shape": {"field": "pass_", "type": "nominal", "legend": {"title": None}},
            },
        },
    ],
}
