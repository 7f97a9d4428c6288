"""A factor for each part of a step, for measured layouts with different mixes of parts.

Parts are compute, network and host. Their factors minimize, over layouts j and parts k,

    sum_j ((T_j - sum_k f_k x_jk) / (sigma T_j))^2 + sum_k (ln f_k / tau_k)^2

If the layouts do not distinguish two parts, a ridge prior keeps their factors near 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import log
from pathlib import Path
from statistics import fmean
from typing import Any

from parcost import Outcome, Real, record
from parcost.numeric import sqrt
from parcost_plugins.vocabulary.causes import CONTEXT, DATA, EXPERT, HOPS, HOST, TENSOR

_NETWORK = frozenset(map(str, (CONTEXT, DATA, EXPERT, HOPS, TENSOR)))
STEP_PARTS = ("compute", "network", "host")


@cache
def table() -> Mapping[str, Any]:
    """Return the prior deviations of the factors, and the limits of the fit and of anchors."""
    import tomllib

    return tomllib.loads(Path(__file__).with_name("anchor_causes.toml").read_text(encoding="utf-8"))


def step_parts(outcome: Outcome) -> dict[str, Real]:
    """Return the seconds of a step by part (compute, network, host); their sum is the step."""
    found: dict[str, Real] = dict.fromkeys(STEP_PARTS, 0.0)
    for cause, seconds in outcome.seconds_by_cause.items():
        part = "network" if cause in _NETWORK else "host" if cause == HOST else "compute"
        found[part] = found[part] + seconds
    return found


@record(kw_only=True)
class CauseFactors:
    """The factor of each part, and the *covariance* of the logarithms of factors."""

    factors: Mapping[str, float]
    covariance: Sequence[Sequence[float]]
    within: float

    def seconds(self, parts: Mapping[str, Real]) -> Real:
        """Return the seconds of a layout with these predicted *parts*."""
        total: Real = 0.0
        for name, factor in self.factors.items():
            total = total + factor * parts[name]
        return total

    def deviation(self, parts: Mapping[str, Real]) -> Real:
        """Return the standard deviation of the logarithm of the step time."""
        total = self.seconds(parts)
        shares = [factor * parts[name] / total for name, factor in self.factors.items()]
        variance: Real = self.within**2
        for row, one in zip(self.covariance, shares, strict=True):
            for entry, other in zip(row, shares, strict=True):
                variance = variance + entry * one * other
        return sqrt(variance)


def fit_factors(
    seconds: Sequence[float], parts: Sequence[Mapping[str, float]], within: float
) -> CauseFactors:
    """Return the factors fitted to the measured *seconds* of layouts with predicted *parts*."""
    import numpy as np

    known = table()
    prior = np.diag([known["spread"][name] ** -2 for name in STEP_PARTS])
    order = np.argsort(seconds, kind="stable")  # the order of layouts cannot matter
    measured = np.asarray(seconds, dtype=np.float64)[order]
    predicted = np.array([[one[name] for name in STEP_PARTS] for one in parts])[order]
    scale = within * measured
    logs = np.zeros(len(STEP_PARTS))
    for _ in range(known["fit"]["steps"]):
        explained = predicted * np.exp(logs)
        off = (measured - explained.sum(axis=1)) / scale
        slope = -explained / scale[:, None]
        curvature = slope.T @ slope + prior
        step = np.linalg.solve(curvature, slope.T @ off + prior @ logs)
        logs = logs - np.clip(step, -known["fit"]["largest"], known["fit"]["largest"])
        if abs(step).max() < known["fit"]["smallest"]:
            break
    return CauseFactors(
        factors=dict(zip(STEP_PARTS, np.exp(logs).tolist(), strict=True)),
        covariance=np.linalg.inv(curvature).tolist(),
        within=within,
    )


def choose_factors(
    seconds: Sequence[float],
    parts: Sequence[Mapping[str, float]],
    others: Sequence[float],
    within: float,
) -> tuple[CauseFactors | None, Sequence[float]]:
    """Return factors by cause, and the leave-one-out error of each layout.

    The factors are None if these errors are no smaller than *others*, the errors with a common
    factor.
    """
    if len(others) < table()["fit"]["fewest"]:
        return None, others
    apart = left_out_by_cause(seconds, parts, within)
    if fmean(map(abs, apart)) >= fmean(map(abs, others)):
        return None, others
    return fit_factors(seconds, parts, within), apart


def left_out_by_cause(
    seconds: Sequence[float], parts: Sequence[Mapping[str, float]], within: float
) -> list[float]:
    """Return ln(measured / predicted) of each layout, with factors fitted to the other layouts."""
    found = []
    for i, one in enumerate(seconds):
        rest = [j for j in range(len(seconds)) if j != i]
        fitted = fit_factors([seconds[j] for j in rest], [parts[j] for j in rest], within)
        found.append(log(one / float(fitted.seconds(parts[i]))))
    return found
