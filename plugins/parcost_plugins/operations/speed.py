"""The throughput of a run, from its steps or from published values."""

from __future__ import annotations

import sys

from parcost import Formula, Outcome, Real, Study, formula, record
from parcost.numeric import maximum
from parcost_plugins.operations.goodput import useful_share
from parcost_plugins.vocabulary import Cluster, Run, Training


@record(kw_only=True, eq=False)
class Speed:
    """Throughput in *tokens* per second of wall time, on *devices* devices, with its *source*.

    *useful* is the share of wall time spent in steps; the rest is lost to failures. *busy* is the
    share of a step in which kernels run, the mean of all devices; 1 if only the whole run is known.
    """

    tokens: Real
    devices: Real
    useful: Real
    source: str
    busy: Real | Formula = 1.0


def step_speed(study: Study, outcome: Outcome) -> Speed:
    """Return the throughput of the steps of *study*, reduced by losses to failures."""
    training = study[Training]
    share = useful_share(study)
    stages = outcome.kernel_seconds
    step = maximum(outcome.step_seconds, sys.float_info.min)  # 0 where nothing is modeled
    tokens = training.global_batch * training.sequence / step
    return Speed(
        tokens=tokens * share,
        devices=study[Cluster].devices,
        useful=share,
        source="tokens of a step / step time",
        busy=formula(
            "ratio(sum(t), p T), mean over the pipeline",
            t=({f"device {i}": seconds for i, seconds in enumerate(stages)}, "s"),
            p=float(len(stages)),
            T=(outcome.step_formula, "s"),
            source="time in which kernels run on each device",
        ),
    )


def published_throughput(study: Study) -> Speed | None:
    """Return the throughput of a published run, None if unknown.

    Device-hours include all losses. A published throughput is taken as the throughput of the steps.
    """
    run = study.get(Run)
    if run is None:
        return None
    devices = run_devices(study, run)
    if run.device_time is not None:
        return Speed(
            tokens=run.tokens * devices / run.device_time,
            devices=devices,
            useful=1.0,
            source="tokens / (published device-hours / devices)",
        )
    if run.speed is not None:
        share = useful_share(study)
        return Speed(
            tokens=run.speed * devices * share,
            devices=devices,
            useful=share,
            source="published tokens per second and device, times devices",
        )
    return None


def run_devices(study: Study, run: Run) -> Real:
    """Return the number of devices of a run: its own, or the cluster's."""
    return study[Cluster].devices if run.devices is None else run.devices
