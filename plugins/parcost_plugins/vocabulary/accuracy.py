"""Errors of predictions against measured runs: the source of the interval of a figure.

The errors are measured / predicted, with the constants of the catalogue. Some of these were fitted
to the same runs. The errors differ most between dense and MoE models, between families of devices
and between frameworks. So each of these has a range of its own, if enough models were measured.
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
        doc=(
            "share by which a device of the family without measured runs may be faster or "
            "slower, in addition to the errors of measured devices"
        ),
    )


@block("observed", inside="accuracy", label="required")
class ObservedErrors:
    """The errors of one figure in measured runs with common properties."""

    figure: str = word("step_time", "memory", doc="figure that was predicted")
    model: str = word(
        "any", "dense", "experts", default="any", doc="kind of models: dense or with experts"
    )
    family: str = string(default="", doc="family of the devices; empty for any")
    framework: str = string(default="", doc="framework of the runs; empty for any")
    runs: int = integer(structural=True, minimum=1, doc="number of runs that were measured")
    models: int = integer(structural=True, minimum=1, doc="number of models that were measured")
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
        """The number of properties that its runs have in common."""
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
        structural=True, minimum=1, doc="number of jobs with several layouts that were measured"
    )
    layouts: int = integer(
        structural=True, minimum=1, doc="number of measured layouts of these jobs"
    )
    between: Real = quantity(ONE, positive=True, doc="standard deviation between jobs (tau)")
    within: Real = quantity(ONE, positive=True, doc="standard deviation within a job (sigma)")
    margin: Real = quantity(
        ONE,
        positive=True,
        doc="standard deviations about what one other layout predicts that hold `coverage` of the "
        "layouts, each job counted alike",
    )


@block("accuracy", label="required")
class Accuracy:
    """The errors of predictions in measured runs; written by `parcost validate --intervals`."""

    coverage: float = fraction(positive=True, doc="share of measured values that an interval holds")
    others: Family = reference("family", doc="family that a device without a family counts as")
    devices: str = string(
        default="",
        doc="devices with enough runs to know their efficiencies: labels separated by spaces",
    )
    observed: tuple[ObservedErrors, ...] = children(
        "observed", doc="errors, by what runs have in common"
    )

    job_spreads: tuple[JobSpread, ...] = children(
        "job_spread",
        doc="spread of runs, which decides the weight of anchors; without it they have none",
    )

    def spread_of(self, model: str) -> JobSpread | None:
        """Return the spread of jobs of the narrowest matching kind of model, if any."""
        found = [one for one in self.job_spreads if one.model in ("any", model)]
        return max(found, key=lambda one: one.model != "any", default=None)

    def find(self, figure: str, model: str, family: str, framework: str) -> ObservedErrors | None:
        """Return the errors of the narrowest kind of runs that matches the study, if any."""
        found = [
            one
            for one in self.observed
            if one.figure == figure and one.holds_for(model, family, framework)
        ]
        return max(found, key=lambda one: one.narrowness, default=None)

    def has_device(self, device: str) -> bool:
        """Return whether *device* has measured runs."""
        return device in self.devices.split()
