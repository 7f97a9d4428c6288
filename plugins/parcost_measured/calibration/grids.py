"""Predicted times of rows on a grid of constants, and interpolation between grid points.

Times are proportional to powers of a constant, or independent of it. So logarithms are interpolated
linearly, over the logarithms of the constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from parcost_measured.calibration.constants import Constant

#: Relative step of a constant between two grid points; with 7 %, half a kink is 1.75 %.
_STEP = 0.07
_FEWEST, _MOST = 5, 25  # points of an axis
_MOST_WHOLE = 7  # of one of whole numbers
_MOST_POINTS = 800  # of all axes of a row together
MOST_AXES = 5


@frozen(kw_only=True)
class Measurement:
    """A measured time, and the properties by which rows are grouped.

    Rows of one *configuration* count once; rows of one *layout* have the same *layout*. *place* is
    the file and the line.
    """

    id: str
    place: str
    seconds: float
    configuration: str
    model: str
    source: str
    device: str
    layout: tuple[object, ...]


@frozen(kw_only=True, eq=False)
class TimeGrid:
    """Rows that depend on the same constants, and the logarithms of their predicted seconds.

    *axes* are indices of constants, *points* the logarithms of their values on each axis; *logs*
    has an axis for rows and one for each constant.
    """

    rows: Sequence[Measurement]
    axes: Sequence[int]
    points: Sequence[NDArray[np.float64]]
    logs: NDArray[np.float64]

    def predict(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return log(predicted seconds) of each row at *values*, the logs of all constants."""
        found = self.logs
        for axis, points in zip(reversed(self.axes), reversed(self.points), strict=True):
            place, share = bracket(points, float(values[axis]))
            found = found[..., place] * (1.0 - share) + found[..., place + 1] * share
        return found

    def slopes(self, values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
        """Return d log(seconds) / d log(constant), of shape (rows, constants)."""
        import numpy as np

        found = np.zeros((len(self.rows), count))
        for axis, points in zip(self.axes, self.points, strict=True):
            step = float(points[1] - points[0])
            low, high = values.copy(), values.copy()
            low[axis] = max(values[axis] - step, points[0])
            high[axis] = min(values[axis] + step, points[-1])
            found[:, axis] = (self.predict(high) - self.predict(low)) / (high[axis] - low[axis])
        return found


def bracket(points: NDArray[np.float64], value: float) -> tuple[int, float]:
    """Return the index of the grid point below *value*, and the fraction of the way to the next."""
    import numpy as np

    place = int(np.clip(np.searchsorted(points, value) - 1, 0, len(points) - 2))
    return place, float((value - points[place]) / (points[place + 1] - points[place]))


def axes_of(constants: Sequence[Constant]) -> list[NDArray[np.float64]]:
    """Return the grid values of each constant, from its lower to its upper bound.

    The longest axes have fewer points if the grid would be too large.
    """
    from math import ceil, log, prod

    counts = []
    for constant in constants:
        most = _MOST_WHOLE if constant.kind.whole else _MOST
        wanted = ceil(log(constant.high / constant.low) / _STEP) + 1
        counts.append(min(max(wanted, _FEWEST), most))
    while prod(counts) > _MOST_POINTS and max(counts) > 2:
        counts[counts.index(max(counts))] -= 1
    return [_axis(c, count) for c, count in zip(constants, counts, strict=True)]


def _axis(constant: Constant, count: int) -> NDArray[np.float64]:
    import numpy as np

    found = np.geomspace(constant.low, constant.high, count)
    if constant.kind.whole:
        found = np.unique(np.round(found))
    found[0], found[-1] = constant.low, constant.high
    return found


def set_text(constant: Constant, values: Sequence[float]) -> str:
    """Return a sweep over *values* as text of a spec."""
    from parcost_measured.calibration.constants import SCALES

    unit = constant.kind.unit
    if constant.kind.whole:
        return "[" + ", ".join(f"{value:.0f}" for value in values) + "]"
    texts = [f"{value / SCALES[unit]:.15g} {unit}".strip() for value in values]
    return texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
