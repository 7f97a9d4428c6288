"""The roofline of the device, with the matrix products of the step."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from math import log
from typing import Any

from parcost import PASS_NAMES, Chart, Outcome, Study, formula, hookimpl
from parcost.numeric import is_array
from parcost_plugins.kernels.operator_times import operators_by_type
from parcost_plugins.kernels.rates import KernelMachine, matmul, result_traffic, sizes
from parcost_plugins.vocabulary import Gemm, KernelChoice

_WIDER = 4.0  # than the products reach, the roof on both sides
_NARROWEST, _HEIGHT = 480.0, 320.0  # width in pixels for placing names without overlap
_LETTER, _LINE, _DOT = 5.6, 12.0, 5.0  # pixels: of a letter, a line, and half of a point
_BESIDE = 9  # pixels between a point and its name
_SIDES = {"above": (0, -13), "below": (0, 13), "right": (1, 0), "left": (-1, 0)}
_SOURCE = "Williams, Waterman, Patterson 2009"


@hookimpl
def charts(study: Study, outcome: Outcome) -> Iterator[Chart]:  # noqa: ARG001
    """Return the roofline chart with a point for each GEMM."""
    points = [*_points(study)]
    if not points:
        return
    roofs = [*_roofs(study, points)]
    names = [*_labels(points, roofs)]
    yield Chart(
        name="roofline",
        title="Roofline and matrix products",
        place=40,
        notes=[
            "x: FLOPs of a matrix product per byte. y: its FLOP/s. No product is above the roof.",
            "If the name of a product does not fit here, see its mark or the table.",
        ],
        spec=_spec({row["side"] for row in names}),
        columns={
            "called": "product",
            "pass_": "pass",
            "intensity": "arithmetic intensity (FLOP/B)",
            "rate": "reaches",
            "share": "of the roof",
            "formula": "formula",
        },
        rows=[*roofs, *points, *names],
    )


def _points(study: Study) -> Iterator[dict[str, Any]]:
    choice, machine = study[KernelChoice], KernelMachine.from_study(study)
    _, model = study.plugins.offers("kernels")[choice.model]
    for gemm in operators_by_type(study):
        timed = model.price(gemm, study) if isinstance(gemm, Gemm) else None
        if timed is None or is_array(timed.value, gemm.flops) or not timed.value > 0:
            continue
        operand, result = sizes(gemm, machine.precision).operand, result_traffic(gemm, machine)
        read, written = gemm.m * gemm.k + gemm.k * gemm.n, gemm.m * gemm.n
        bytes_ = gemm.batch * (operand * read + result * written)
        peak = matmul(gemm, machine).peak
        intensity, rate = gemm.flops / bytes_, gemm.flops / timed.value
        roof = min(peak, intensity * machine.device.memory_bandwidth)
        yield {
            "kind": "product",
            "called": gemm.name,
            "pass_": PASS_NAMES.get(gemm.pass_, gemm.pass_),
            "peak": peak,
            "at": intensity,
            "intensity": (intensity, ""),
            "tera": rate / 1e12,
            "rate": (rate, "FLOP/s"),
            "share": (rate / roof, "%"),
            "formula": formula("FLOPs / t", FLOPs=(gemm.flops, "FLOP"), t=(timed.value, "s")),
        }


def _roofs(study: Study, points: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the corners of the roof of each data type in use."""
    bandwidth = KernelMachine.from_study(study).device.memory_bandwidth
    reached = [point["intensity"][0] for point in points]
    for peak in dict.fromkeys(point["peak"] for point in points):
        ridge = peak / bandwidth
        ends = (min(*reached, ridge) / _WIDER, ridge, max(*reached, ridge) * _WIDER)
        for place, intensity in enumerate(ends):
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
                "at": intensity,
                "intensity": (intensity, ""),
                "tera": roof.value / 1e12,
                "rate": (roof.value, "FLOP/s"),
                "end": ("slope", "ridge", "flat")[place],
                "limit": ((bandwidth, "B/s"), (ridge, "FLOP/B"), (peak, "FLOP/s"))[place],
                "formula": roof,
            }


def _labels(
    points: Sequence[Mapping[str, Any]], roofs: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Yield the name of each GEMM at its first point, if there is space.

    A name overlaps no point and no other name in a chart of the narrowest page.
    """
    ends = [[log(row[name]) for row in roofs] for name in ("at", "tera")]
    (left, right), (low, high) = ((min(axis), max(axis)) for axis in ends)

    def pixels(row: Mapping[str, Any]) -> tuple[float, float]:
        x = (log(row["at"]) - left) / (right - left)
        y = (high - log(row["tera"])) / (high - low)
        return _NARROWEST * x, _HEIGHT * y

    taken = [_box(*pixels(row), 2 * _DOT, 2 * _DOT) for row in points]
    taken += [_box(*pixels(row), 12 * _DOT, 4 * _DOT) for row in roofs]
    named = {row["called"]: row for row in reversed(points)}
    for name, row in sorted(named.items(), key=lambda pair: float(pair[1]["at"])):
        x, y = pixels(row)
        width = _LETTER * len(name)
        for side, (dx, dy) in _SIDES.items():
            box = _box(x + dx * (width / 2.0 + _BESIDE), y + dy, width, _LINE)
            if not any(_overlap(box, one) for one in taken):
                taken.append(box)
                yield {**row, "kind": "name", "side": side, "label": name}
                break


def _box(x: float, y: float, width: float, height: float) -> tuple[float, float, float, float]:
    return x - width / 2.0, y - height / 2.0, x + width / 2.0, y + height / 2.0


def _overlap(
    one: tuple[float, float, float, float], other: tuple[float, float, float, float]
) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


_X = {
    "field": "intensity",
    "type": "quantitative",
    "scale": {"type": "log", "nice": False},
    "axis": {"title": "arithmetic intensity (FLOP/B)", "format": ",.12~g", "tickCount": 6},
}
_Y = {
    "field": "tera",
    "type": "quantitative",
    "scale": {"type": "log", "nice": False},
    "axis": {"title": "rate (TFLOP/s)", "format": ",.12~g", "tickCount": 6},
}
_CORNER = {"color": "#8C8C8C", "size": 16}
_NAME = {"field": "label", "type": "nominal"}
_ENDS: Mapping[str, Mapping[str, Any]] = {
    "slope": {"align": "left", "dx": 18, "dy": -12},
    "ridge": {"align": "right", "dx": -8, "dy": 4},
    "flat": {"align": "right", "dx": -4, "dy": 12},
}


def _rows_that(**cells: str | int) -> dict[str, Any]:
    """Return the Vega-Lite filter for rows with these values."""
    return {"transform": [{"filter": {"field": f, "equal": v}} for f, v in cells.items()]}


def _spec(sides: Container[str]) -> dict[str, Any]:
    passes = {"field": "pass_", "type": "nominal", "legend": {"title": None}}
    return {
        "height": _HEIGHT,
        "layer": [
            {
                **_rows_that(kind="roof"),
                "mark": {"type": "line", "color": "#8C8C8C", "strokeWidth": 2, "point": _CORNER},
                "encoding": {"x": _X, "y": _Y, "detail": {"field": "peak", "type": "nominal"}},
            },
            *(
                {
                    **_rows_that(kind="roof", end=end),
                    "mark": {"type": "text", "fontSize": 11, **place},
                    "encoding": {"x": _X, "y": _Y, "text": {**_NAME, "field": "limit_text"}},
                }
                for end, place in _ENDS.items()
            ),
            {
                **_rows_that(kind="product"),
                "mark": {"type": "point", "filled": True, "size": 70, "opacity": 0.8},
                "encoding": {"x": _X, "y": _Y, "color": passes, "shape": passes},
            },
            *(
                {
                    **_rows_that(kind="name", side=side),
                    "mark": {"type": "text", "fontSize": 10, **_label_offset(dx, dy)},
                    "encoding": {"x": _X, "y": _Y, "text": _NAME},
                }
                for side, (dx, dy) in _SIDES.items()
                if side in sides
            ),
        ],
    }


def _label_offset(dx: int, dy: int) -> dict[str, Any]:
    align = {0: "center", 1: "left", -1: "right"}[dx]
    return {"align": align, "baseline": "middle", "dx": dx * _BESIDE, "dy": dy}
