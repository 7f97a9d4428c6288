"""Errors of predictions against measured runs: the source of the interval of a figure.

The errors are measured / predicted, with the constants of the catalogue. Some of these constants
were fitted to the same runs. The errors differ most between dense and MoE models, between families
of devices and between frameworks. So each of these has a separate range, if enough models were
measured.
"""

from __future__ import annotations

from parcost import (
    ONE,
    Real,
    block,
    children,
    fraction,
    integer,
    quantity,
    reference,
    string,
    word,
)


@block("family", label="required")
class Family:
    """Devices of one architecture, whose kernels reach similar shares of peak."""

    spread: Real = quantity(
        ONE,
        positive=True,
        doc=("additional relative error of a device of the family without measured runs"),
    )


@block("observed", inside="accuracy", label="required")
class ObservedErrors:
    """The errors of one figure in measured runs with common properties."""

    figure: str = word("step_time", "memory", doc="predicted figure")
    model: str = word(
        "any", "dense", "experts", default="any", doc="kind of models: dense or with experts"
    )
    family: str = string(default="", doc="family of the devices; empty for any")
    framework: str = string(default="", doc="framework of the runs; empty for any")
    runs: int = integer(structural=True, minimum=1, doc="number of measured runs")
    models: int = integer(structural=True, minimum=1, doc="number of measured models")
    low: Real = quantity(ONE, positive=True, doc="low end of measured / predicted")
    high: Real = quantity(ONE, positive=True, doc="high end of measured / predicted")

    def holds_for(self, model: str, family: str, framework: str) -> bool:
        """Return whether the range applies to studies of *model*, *family* and *framework*."""
        return (
            self.model in ("any", model)
            and self.family in ("", family)
            and self.framework in ("", framework)
        )

    @property
    def narrowness(self) -> int:
        """The number of common properties of its runs."""
        return (self.model != "any") + bool(self.family) + bool(self.framework)


@block("job_spread", inside="accuracy", label="required")
class JobSpread:
    """Standard deviations of ln(measured / predicted) between jobs, and between layouts of a job.

    A job is one model on one device in one precision, run by one source.
    """

    model: str = word(
        "any", "dense", "experts", default="any", doc="kind of models: dense or with experts"
    )
    jobs: int = integer(
        structural=True, minimum=1, doc="number of jobs with several measured layouts"
    )
    layouts: int = integer(
        structural=True, minimum=1, doc="number of measured layouts of these jobs"
    )
    between: Real = quantity(ONE, positive=True, doc="standard deviation between jobs (tau)")
    within: Real = quantity(ONE, positive=True, doc="standard deviation within a job (sigma)")
    margin: Real = quantity(
        ONE,
        positive=True,
        doc=(
            "half-width of the interval predicted from one other layout of the job, in standard "
            "deviations, that contains `coverage` of the layouts; all jobs have the same weight"
        ),
    )


@block("accuracy", label="required")
class Accuracy:
    """The errors of predictions in measured runs; written by `parcost validate --intervals`."""

    coverage: float = fraction(positive=True, doc="share of measured values within an interval")
    others: Family = reference("family", doc="family that is assumed for a device without one")
    devices: str = string(
        default="",
        doc="devices with enough runs to know their efficiencies: labels separated by spaces",
    )
    observed: tuple[ObservedErrors, ...] = children("observed", doc="errors of groups of runs")

    job_spreads: tuple[JobSpread, ...] = children(
        "job_spread",
        doc="spread of runs, which sets the weight of anchors; without it anchors have no weight",
    )

    def spread_of(self, model: str) -> JobSpread | None:
        """Return the spread of jobs of the most specific matching kind of model, or None."""
        found = [one for one in self.job_spreads if one.model in ("any", model)]
        return max(found, key=lambda one: one.model != "any", default=None)

    def find(self, figure: str, model: str, family: str, framework: str) -> ObservedErrors | None:
        """Return the errors of the most specific kind of runs that matches the study, or None."""
        found = [
            one
            for one in self.observed
            if one.figure == figure and one.holds_for(model, family, framework)
        ]
        return max(found, key=lambda one: one.narrowness, default=None)

    def has_device(self, device: str) -> bool:
        """Return whether *device* has measured runs."""
        return device in self.devices.split()
