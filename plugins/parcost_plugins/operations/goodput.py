"""Goodput: the share of wall time that is useful work."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Real, Study, formula, record
from parcost.numeric import maximum
from parcost_plugins.operations import failures
from parcost_plugins.operations.checkpoint import CheckpointCost, checkpoint_cost
from parcost_plugins.vocabulary import Checkpoint, Cluster, Datacenter, Reliability

_SHORTEST = 1e-6  # seconds: the best interval between checkpoints that cost nothing is none


@record(kw_only=True, eq=False)
class CheckpointCycle:
    """Checkpoints and failures of a job: *interval* tau, *blocking* C, *restart* R, *mtbf* M.

    Times are in seconds. M is None without failures.
    """

    interval: Real
    blocking: Real
    saved: CheckpointCost
    mtbf: Real | None
    restart: Real
    lost: Real

    @property
    def useful_share(self) -> Real:
        """The share of wall time that is useful work."""
        if self.mtbf is None:
            return failures.useful_fraction_without_failures(self.interval, self.blocking)
        share = failures.useful_fraction(self.interval, self.blocking, self.mtbf, self.restart)
        return share * (1.0 - self.lost)


def useful_share(study: Study) -> Real:
    """Return the share of wall time that is useful work; 1 by default."""
    found = checkpoint_cycle(study)
    return 1.0 if found is None else found.useful_share


def checkpoint_cycle(study: Study) -> CheckpointCycle | None:
    """Return the checkpoints and failures of *study*, None if unknown."""
    checkpoint = study.get(Checkpoint)
    if checkpoint is None:
        return None
    saved = checkpoint_cost(study, checkpoint)
    reliability = study.get(Reliability)
    mtbf = None if reliability is None else job_mtbf(study, reliability)
    if saved.blocking is None:
        return None
    blocking = saved.blocking.value
    interval = checkpoint.interval
    if interval is None:
        if mtbf is None:
            return None
        optimum = failures.young if checkpoint.optimum == "young" else failures.daly
        interval = maximum(optimum(blocking, mtbf), _SHORTEST)
        if checkpoint.asynchronous and saved.writing is not None:
            interval = maximum(interval, saved.writing.value)
    return CheckpointCycle(
        interval=interval,
        blocking=blocking,
        saved=saved,
        mtbf=mtbf,
        restart=0.0 if reliability is None else reliability.restart,
        lost=0.0 if reliability is None else reliability.lost,
    )


def failing_devices(study: Study, reliability: Reliability) -> Real | None:
    """Return the number of devices whose failure stops the job, None if unknown."""
    if reliability.devices is not None:
        return reliability.devices
    cluster = study.get(Cluster)
    return None if cluster is None else cluster.devices


def job_mtbf(study: Study, reliability: Reliability) -> Real | None:
    """Return the mean time between failures of the job in seconds, None if unknown."""
    if reliability.mtbf is not None:
        return reliability.mtbf
    devices = failing_devices(study, reliability)
    return None if devices is None else _device_rate(study, reliability) / devices


def _device_rate(study: Study, reliability: Reliability) -> Real:
    given = reliability.device_mtbf
    return study[Datacenter].device_mtbf if given is None else given


def goodput(study: Study) -> Iterator[Figure]:
    """Yield the goodput."""
    found = checkpoint_cycle(study)
    if found is None:
        return
    symbols = {"tau": (found.interval, "s"), "C": (found.blocking, "s")}
    if found.mtbf is None:
        useful = formula("tau / (tau + C)", symbols, source=failures.DALY)
    else:
        useful = formula(
            "(1 - lost) tau / (M exp(min(R / M, 700)) expm1(min((tau + C) / M, 700)))",
            symbols,
            M=(found.mtbf, "s"),
            R=(found.restart, "s"),
            lost=found.lost,
            source=failures.DALY,
        )
    yield Figure(
        name="goodput",
        title="goodput",
        value=useful,
        unit="%",
        note="share of wall time, excluding checkpoints, failures and lost work",
    )


def losses(study: Study) -> Iterator[Figure]:
    """Yield the mean time between failures, the checkpoint figures, and the losses of wall time."""
    reliability, checkpoint = study.get(Reliability), study.get(Checkpoint)
    mtbf = None if reliability is None else job_mtbf(study, reliability)
    if reliability is not None and mtbf is not None:
        yield from _mtbf(study, reliability, mtbf)
    if checkpoint is None:
        return
    yield from _checkpoint(checkpoint_cost(study, checkpoint))
    found = checkpoint_cycle(study)
    if found is None:
        return
    yield Figure(
        name="checkpoint.interval",
        title="useful work between checkpoints",
        value=formula("tau, as given, or the optimum", tau=(found.interval, "s")),
        unit="s",
    )
    if mtbf is not None:
        yield from _optima(found, mtbf)


def _mtbf(study: Study, reliability: Reliability, mtbf: Real) -> Iterator[Figure]:
    devices = failing_devices(study, reliability)
    one = formula("M, of a device", M=(_device_rate(study, reliability), "s"))
    job = formula("M, of the job", M=(mtbf, "s"))
    if devices is not None:
        if reliability.mtbf is None:
            job = formula("M / N", M=(one, "s"), N=devices)
        else:
            one = formula("M N", M=(mtbf, "s"), N=devices)
    yield Figure(name="mtbf", title="mean time between failures of the job", value=job, unit="h")
    yield Figure(
        name="device_mtbf", title="mean time between failures of a device", value=one, unit="h"
    )


def _checkpoint(saved: CheckpointCost) -> Iterator[Figure]:
    for name, title, value, unit in (
        ("size", "size of a checkpoint", saved.size, "B"),
        ("shard", "checkpoint of one device", saved.shard, "B"),
        ("writing", "time to write a checkpoint", saved.writing, "s"),
        ("blocking", "blocking time of a checkpoint", saved.blocking, "s"),
    ):
        if value is not None:
            yield Figure(name=f"checkpoint.{name}", title=title, value=value, unit=unit)


def _optima(found: CheckpointCycle, mtbf: Real) -> Iterator[Figure]:
    C, M = found.blocking, mtbf
    inputs = {"C": (C, "s"), "M": (M, "s")}
    yield Figure(
        name="checkpoint.young",
        title="interval between checkpoints (Young)",
        value=formula("sqrt(2 C M)", inputs, source=failures.YOUNG),
        unit="s",
    )
    yield Figure(
        name="checkpoint.daly",
        title="interval between checkpoints (Daly)",
        value=formula(
            "C < 2 M ? sqrt(2 C M) (1 + sqrt(C / (2 M)) / 3 + C / (18 M)) - C : M",
            inputs,
            source=failures.DALY,
        ),
        unit="s",
    )
    yield Figure(
        name="goodput_first_order",
        title="goodput to first order",
        value=formula(
            "1 - C / tau - tau / (2 M) - R / M",
            {**inputs, "tau": (found.interval, "s"), "R": (found.restart, "s")},
            source=failures.YOUNG,
        ),
        unit="%",
        note="accurate if checkpoint, interval and restart are short compared to M",
    )
