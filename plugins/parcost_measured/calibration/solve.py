"""Robust bounded least squares over grids; constants that the data do not determine are not
changed.

Residuals are logarithms of predicted over measured seconds. Outliers have less weight (`soft_l1`).
A configuration has the same weight, however often it was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from parcost import MissingExtraError
from parcost_measured.calibration.grids import Measurement, TimeGrid
from parcost_measured.validation.scores import Score, group_by, score, weights_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from parcost_measured.calibration.constants import Constant

#: Scale of residuals beyond which outliers are damped: releases of one software differ by 5.9 %.
_SCALE = 0.06
#: Sensitivity from which a row supports a constant: the effect of doubling it exceeds noise.
CARRIES = 0.03
FEWEST = 6  # configurations that carry a constant
FEWEST_EACH = 3  # configurations for each constant together
_ALIKE = 0.98  # correlation from which two constants are one
_NORMAL_90 = 1.645
_EDGE = 1e-3  # of the bounds: where a fit ends on one
_OUTLIER = 4.0  # robust standard deviations


@frozen(kw_only=True)
class RejectedConstant:
    """A constant that is not fitted, and the reason."""

    constant: str
    reason: str


@frozen(kw_only=True)
class FitValue:
    """A fitted constant in SI units, with its 90 % confidence interval.

    *sensitivity* is the mean change of a step in percent per percent of the constant. *carrying* is
    the number of configurations that depend on it.
    """

    constant: Constant
    value: float
    low: float
    high: float
    sensitivity: float
    carrying: int
    bound: str = ""  # which bound it ended on


@frozen(kw_only=True, eq=False)
class Fit:
    """Fitted and rejected constants; *before* and *after* are relative errors of all rows."""

    values: Sequence[FitValue]
    rejected: Sequence[RejectedConstant]
    before: Sequence[float]
    after: Sequence[float]
    outliers: Sequence[tuple[Measurement, float]]
    spread: float
    correlations: Sequence[tuple[str, str, float]]
    condition: float


@frozen(kw_only=True, eq=False)
class LeaveOutErrors:
    """Errors of held-out rows, predicted with constants fitted without them."""

    what: str
    folds: int
    errors: Sequence[float]
    substituted: Mapping[str, int]  # constants that a fold could not fit, and in how many folds


@frozen(kw_only=True, eq=False)
class Component:
    """Constants that share rows, and their fit problem; *places* are the indices of the rows."""

    constants: frozenset[int]
    task: FitProblem
    places: NDArray[np.intp]


@frozen(kw_only=True, eq=False)
class FitProblem:
    """Constants, grids of rows, and the arrays that every fit of them needs."""

    constants: Sequence[Constant]
    grids: Sequence[TimeGrid]
    rows: Sequence[Measurement]
    measured: NDArray[np.float64]
    weights: NDArray[np.float64]
    start: NDArray[np.float64]
    components: Sequence[Component] = ()  # none where all is one

    def logs(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the logarithms of predicted seconds, row by row."""
        import numpy as np

        return np.concatenate([grid.predict(values) for grid in self.grids])

    def slopes(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sensitivity of each row to each constant, of shape (rows, constants)."""
        import numpy as np

        return np.concatenate([grid.slopes(values, len(self.constants)) for grid in self.grids])

    def errors(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return predicted / measured - 1, row by row."""
        import numpy as np

        return np.exp(self.logs(values) - self.measured) - 1.0


def problem(constants: Sequence[Constant], grids: Sequence[TimeGrid]) -> FitProblem:
    """Return the problem of fitting *constants* to the rows of *grids*."""
    import numpy as np

    rows = [row for grid in grids for row in grid.rows]
    whole = FitProblem(
        constants=constants,
        grids=grids,
        rows=rows,
        measured=np.log([row.seconds for row in rows]),
        weights=np.array(weights_of([row.configuration for row in rows])),
        start=np.log([constant.start for constant in constants]),
    )
    return evolve(whole, components=_components(whole))


def _components(whole: FitProblem) -> list[Component]:
    """Return the independent parts of a problem, which share no constant."""
    import numpy as np

    groups: list[tuple[set[int], list[int]]] = []
    for i, grid in enumerate(whole.grids):
        shared = [group for group in groups if group[0] & set(grid.axes)]
        constants, members = set(grid.axes), [i]
        for group in shared:
            constants |= group[0]
            members += group[1]
            groups.remove(group)
        groups.append((constants, members))
    ends = np.cumsum([0, *(len(grid.rows) for grid in whole.grids)])
    found = []
    for constants, members in groups:
        if not constants:
            continue
        places = np.concatenate([np.arange(ends[i], ends[i + 1]) for i in sorted(members)])
        part = FitProblem(
            constants=whole.constants,
            grids=[whole.grids[i] for i in sorted(members)],
            rows=[whole.rows[i] for i in places],
            measured=whole.measured[places],
            weights=whole.weights[places],
            start=whole.start,
        )
        found.append(Component(constants=frozenset(constants), task=part, places=places))
    return found


def require_scipy() -> None:
    """Require scipy; the error has the command that installs it."""
    try:
        import scipy.optimize  # noqa: F401
    except ImportError:
        message = "fitting needs scipy, which is not installed"
        raise MissingExtraError(message, "calibrate") from None


def fit(task: FitProblem, groups: Callable[[Measurement], Hashable], folds: int) -> Fit:
    """Return the fit of the supported constants, with jackknife standard errors."""
    slopes = task.slopes(task.start)
    free, rejected = _select_constants(task, slopes)
    values = task.start
    while free:
        values = _solve(task, free, task.start)
        slopes = task.slopes(values)
        twin = _indistinguishable_pair(task, free, slopes, values)
        if twin is None:
            break
        kept, dropped, correlation = twin
        free = [i for i in free if i != dropped]
        rejected.append(
            RejectedConstant(
                constant=task.constants[dropped].name,
                reason=f"the rows cannot tell it from `{task.constants[kept].name}`: their "
                f"correlation is {correlation:+.3f}",
            )
        )
    before = task.errors(task.start)
    values, wide = _drop_wide(task, free, values)
    rejected += wide
    free = [i for i in free if task.constants[i].name not in {one.constant for one in wide}]
    while True:
        slopes = task.slopes(values)
        error, spread, outliers = _deviations(task, free, slopes, values)
        jackknife = _jackknife(task, free, values, groups, folds)
        found = [
            _value(task, i, values, float(max(e, j)), slopes)
            for i, e, j in zip(free, error, jackknife, strict=True)
        ]
        unknown = [k for k, value in enumerate(found) if value.low <= value.constant.low
                  and value.high >= value.constant.high]  # fmt: skip
        if not unknown:
            break
        least = min(unknown, key=lambda k: found[k].sensitivity * found[k].carrying)
        name = task.constants[free[least]].name
        reason = "its interval over the folds spans all of its bounds: the rows do not determine it"
        rejected.append(RejectedConstant(constant=name, reason=reason))
        free = [i for i in free if i != free[least]]
        values = _solve(task, free, task.start)
    after = task.errors(values)
    return Fit(
        values=found,
        rejected=rejected,
        before=before.tolist(),
        after=after.tolist(),
        outliers=outliers,
        spread=spread,
        correlations=_correlations(task, free, slopes, values),
        condition=_condition(task, free, slopes, values),
    )


def _drop_wide(
    task: FitProblem,
    free: Sequence[int],
    values: NDArray[np.float64],
) -> tuple[NDArray[np.float64], list[RejectedConstant]]:
    """Remove constants whose confidence interval is wider than their bounds from the fit."""
    import numpy as np

    rejected: list[RejectedConstant] = []
    left = list(free)
    while left:
        slopes = task.slopes(values)
        errors, _, _ = _deviations(task, left, slopes, values)
        widest = max(range(len(left)), key=lambda k: errors[k] / _span_of(task.constants[left[k]]))
        constant = task.constants[left[widest]]
        half = _NORMAL_90 * errors[widest]
        if half < _span_of(constant) / 2:
            break
        text = f"its interval, a factor of {np.exp(half):.3g} each way, is wider than its bounds"
        rejected.append(RejectedConstant(constant=constant.name, reason=text))
        left.pop(widest)
        values = _solve(task, left, task.start) if left else task.start
    return values, rejected


def _span_of(constant: Constant) -> float:
    from math import log

    return log(constant.high / constant.low)


def _select_constants(
    task: FitProblem, slopes: NDArray[np.float64]
) -> tuple[list[int], list[RejectedConstant]]:
    """Return the constants on which enough rows depend, and the rejections of the others."""
    import numpy as np

    rejected: list[RejectedConstant] = []
    free: list[int] = []
    for i, constant in enumerate(task.constants):
        rows = np.flatnonzero(np.abs(slopes[:, i]) >= CARRIES)
        configurations = {task.rows[int(k)].configuration for k in rows}
        layouts = {task.rows[int(k)].layout for k in rows}
        most = float(np.abs(slopes[:, i]).max(initial=0.0))
        if not configurations:
            reason = (
                f"no row depends on it: a change of 1 % changes the step time by at most "
                f"{most:.3f} %, and {CARRIES:g} % is needed"
            )
        elif len(configurations) < FEWEST:
            reason = (
                f"configurations that depend on it: {len(configurations)} of the {FEWEST} needed "
                f"(a change of 1 % changes the step time by at most {most:.2f} %)"
            )
        elif len(layouts) < 2:
            reason = "all rows have one layout: measure a second one"
        else:
            free.append(i)
            continue
        rejected.append(RejectedConstant(constant=constant.name, reason=reason))
    total = len({row.configuration for row in task.rows})
    while len(free) * FEWEST_EACH > total:
        weakest = min(free, key=lambda i: float(np.abs(slopes[:, i]).sum()))
        free.remove(weakest)
        text = f"{total} configurations are too few for this number of constants"
        rejected.append(RejectedConstant(constant=task.constants[weakest].name, reason=text))
    return free, rejected


def _solve(
    task: FitProblem,
    free: Sequence[int],
    start: NDArray[np.float64],
    picked: NDArray[np.bool_] | None = None,
) -> NDArray[np.float64]:
    """Return the logs of all constants; only those in *free* are fitted, to the *picked* rows."""
    values = start
    for part in task.components:
        own = [i for i in free if i in part.constants]
        rows = None if picked is None else picked[part.places]
        if own and (rows is None or rows.any()):
            values = _solve_jointly(part.task, own, values, rows)
    return values


def _solve_jointly(
    task: FitProblem,
    free: Sequence[int],
    start: NDArray[np.float64],
    picked: NDArray[np.bool_] | None,
) -> NDArray[np.float64]:
    """Return the natural logarithms of all constants.

    The constants with the indices *free* affect the same rows, and are fitted together.
    """
    import numpy as np
    from scipy.optimize import least_squares

    heavy = np.sqrt(task.weights if picked is None else task.weights * picked)
    use = np.flatnonzero(heavy)
    low = np.log([task.constants[i].low for i in free])
    high = np.log([task.constants[i].high for i in free])

    def full_vector(x: NDArray[np.float64]) -> NDArray[np.float64]:
        values = start.copy()
        values[list(free)] = x
        return values

    def residuals(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(((task.logs(full_vector(x)) - task.measured) * heavy)[use])

    def slopes(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray((task.slopes(full_vector(x))[:, list(free)] * heavy[:, None])[use])

    best = None
    edge = 1e-6 * (high - low)
    for first in (start[list(free)], (low + high) / 2):
        found = least_squares(
            residuals,
            np.clip(first, low + edge, high - edge),
            jac=slopes,
            bounds=(low, high),
            loss="soft_l1",
            f_scale=_SCALE,
            xtol=1e-6,
        )
        if best is None or found.cost < best.cost:
            best = found
    assert best is not None
    return full_vector(best.x)


def _normal(
    task: FitProblem, free: Sequence[int], slopes: NDArray[np.float64], values: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the weighted sensitivities, the residuals, and the robust weights."""
    import numpy as np

    residuals = task.logs(values) - task.measured
    heavy = task.weights / np.sqrt(1.0 + task.weights * (residuals / _SCALE) ** 2)
    return slopes[:, list(free)] * np.sqrt(heavy)[:, None], residuals, heavy


def _deviations(
    task: FitProblem, free: Sequence[int], slopes: NDArray[np.float64], values: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float, list[tuple[Measurement, float]]]:
    """Return standard errors (White's sandwich), the spread of residuals, and outliers."""
    import numpy as np

    columns, residuals, heavy = _normal(task, free, slopes, values)
    # Rows may have different error variances: the sandwich estimator of White (1980).
    inverse = np.linalg.pinv(columns.T @ columns)
    filling = columns.T @ (columns * (heavy * residuals**2)[:, None])
    rows = len({row.configuration for row in task.rows})
    small = rows / max(rows - len(free), 1)
    errors = np.sqrt(np.clip(np.diag(inverse @ filling @ inverse), 0.0, None) * small)
    spread = float(np.sqrt((heavy * residuals**2).sum() / heavy.sum()))
    robust = 1.4826 * float(np.median(np.abs(residuals - np.median(residuals))))
    limit = max(_OUTLIER * robust, 3.0 * _SCALE)
    outliers = [
        (row, float(np.expm1(residual)))
        for row, residual in zip(task.rows, residuals, strict=True)
        if abs(residual) > limit
    ]
    outliers.sort(key=lambda pair: -abs(pair[1]))
    return np.asarray(errors), spread, outliers


def _indistinguishable_pair(
    task: FitProblem, free: Sequence[int], slopes: NDArray[np.float64], values: NDArray[np.float64]
) -> tuple[int, int, float] | None:
    """Return two constants that the rows cannot distinguish, the one to fit first; or None."""
    columns, _, _ = _normal(task, free, slopes, values)
    for one, other, correlation in _pairs(columns):
        if abs(correlation) > _ALIKE:
            norms = (columns**2).sum(axis=0)
            kept, dropped = (one, other) if norms[one] >= norms[other] else (other, one)
            return free[kept], free[dropped], correlation
    return None


def _pairs(columns: NDArray[np.float64]) -> list[tuple[int, int, float]]:
    """Return pairs of fitted values with their correlation, strongest first."""
    import numpy as np

    inverse = np.linalg.pinv(columns.T @ columns)
    size = np.sqrt(np.clip(np.diag(inverse), 1e-300, None))
    norms = np.sqrt((columns**2).sum(axis=0))
    alike = columns.T @ columns / np.clip(np.outer(norms, norms), 1e-300, None)
    pairs = []
    for i in range(len(size)):
        for j in range(i):
            shared = float(inverse[i, j] / (size[i] * size[j]))
            # Equal columns have no inverse: use the correlation of the columns instead.
            if alike[i, j] ** 2 > 1.0 - 1e-9:
                shared = -float(alike[i, j])
            pairs.append((j, i, shared))
    return sorted(pairs, key=lambda pair: -abs(pair[2]))


def _correlations(
    task: FitProblem, free: Sequence[int], slopes: NDArray[np.float64], values: NDArray[np.float64]
) -> list[tuple[str, str, float]]:
    columns, _, _ = _normal(task, free, slopes, values)
    named = [task.constants[i].name for i in free]
    return [(named[i], named[j], c) for i, j, c in _pairs(columns) if abs(c) > 0.5]


def _condition(
    task: FitProblem, free: Sequence[int], slopes: NDArray[np.float64], values: NDArray[np.float64]
) -> float:
    """Return the condition number of the sensitivities, with normalised columns."""
    import numpy as np

    if not free:
        return 1.0
    columns, _, _ = _normal(task, free, slopes, values)
    norms = np.sqrt((columns**2).sum(axis=0))
    return float(np.linalg.cond(columns / np.where(norms > 0, norms, 1.0)))


def _jackknife(
    task: FitProblem,
    free: Sequence[int],
    values: NDArray[np.float64],
    groups: Callable[[Measurement], Hashable],
    folds: int,
) -> NDArray[np.float64]:
    """Return jackknife standard errors: from fits that leave out one fold of the groups each."""
    import numpy as np

    parts = parts_of([groups(row) for row in task.rows], folds)
    count = max(parts, default=0) + 1
    if count < 2 or not free:
        return np.zeros(len(free))
    at = np.array(parts)
    found = np.array([_solve(task, free, values, at != part)[list(free)] for part in range(count)])
    spread = ((found - found.mean(axis=0)) ** 2).sum(axis=0)
    return np.asarray(np.sqrt(spread * (count - 1) / count))


def _value(
    task: FitProblem,
    i: int,
    values: NDArray[np.float64],
    error: float,
    slopes: NDArray[np.float64],
) -> FitValue:
    import numpy as np

    constant, value = task.constants[i], float(np.exp(values[i]))
    low, high = np.log(constant.low), np.log(constant.high)
    edge = _EDGE * (high - low)
    bound = "lower" if values[i] - low < edge else "upper" if high - values[i] < edge else ""
    carrying = {
        row.configuration
        for row, slope in zip(task.rows, slopes[:, i], strict=True)
        if abs(slope) >= CARRIES
    }
    changes = np.abs(slopes[:, i])
    return FitValue(
        constant=constant,
        value=value,
        low=max(value * float(np.exp(-_NORMAL_90 * error)), constant.low),
        high=min(value * float(np.exp(_NORMAL_90 * error)), constant.high),
        sensitivity=float(changes[changes > 0].mean()) if (changes > 0).any() else 0.0,
        carrying=len(carrying),
        bound=bound,
    )


# --- leaving out ----------------------------------------------------------------------------


def parts_of(groups: Sequence[Hashable], folds: int) -> list[int]:
    """Return the fold that leaves out each row; all rows of a group are in one fold.

    Groups go to the smallest fold, the largest group first, so that folds are of similar size.

    >>> parts_of(["a", "b", "a", "c"], 2)
    [0, 1, 0, 1]
    """
    members = group_by(range(len(groups)), lambda i: groups[i])
    sizes = [0] * max(1, min(folds, len(members)))
    found = [0] * len(groups)
    for _, rows in sorted(members.items(), key=lambda item: (-len(item[1]), str(item[0]))):
        part = sizes.index(min(sizes))
        sizes[part] += len(rows)
        for row in rows:
            found[row] = part
    return found


def leave_out(
    task: FitProblem,
    fitted: Sequence[str],
    groups: Callable[[Measurement], Hashable],
    what: str,
    folds: int,
) -> LeaveOutErrors:
    """Return the errors of all rows, each predicted with constants fitted without its fold.

    A constant that the other rows do not determine takes the mean of the determined constants of
    the same attribute. If none is determined, it takes the middle of its bounds. The value fitted
    with the left-out rows is not used.
    """
    import numpy as np

    parts = np.array(parts_of([groups(row) for row in task.rows], folds))
    errors = np.zeros(len(task.rows))
    free = [i for i, c in enumerate(task.constants) if c.name in fitted]
    missing: dict[str, int] = {}
    count = int(parts.max()) + 1 if len(parts) else 0
    for part in range(count):
        rest = parts != part
        able = [i for i in free if _configurations(task, i, rest) >= FEWEST]
        start = task.start.copy()
        for i in free:
            if i not in able:
                start[i] = _midpoint(task.constants[i])
        values = _solve(task, able, start, rest) if able else start
        for i in free:
            if i not in able:
                alike = [
                    k for k in able if task.constants[k].kind.attribute
                    == task.constants[i].kind.attribute
                ]  # fmt: skip
                if alike:
                    mean = float(np.mean(values[alike]))
                    low, high = np.log(task.constants[i].low), np.log(task.constants[i].high)
                    values[i] = min(max(mean, low), high)
                name = task.constants[i].name
                missing[name] = missing.get(name, 0) + 1
        errors[~rest] = task.errors(values)[~rest]
    return LeaveOutErrors(what=what, folds=count, errors=errors.tolist(), substituted=missing)


def _configurations(task: FitProblem, i: int, picked: NDArray[np.bool_]) -> int:
    import numpy as np

    depends = np.abs(task.slopes(task.start)[:, i]) >= CARRIES
    rows = np.flatnonzero(depends & picked)
    return len({task.rows[int(k)].configuration for k in rows})


def _midpoint(constant: Constant) -> float:
    from math import log

    return (log(constant.low) + log(constant.high)) / 2


def score_of_errors(errors: Sequence[float]) -> Score:
    """Return the score of *errors*, at least one."""
    found = score(errors)
    assert found is not None
    return found
