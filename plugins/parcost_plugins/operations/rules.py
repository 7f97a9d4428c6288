"""Rules of runs: required inputs, and contradictions."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from parcost import Check, Real, Study
from parcost.numeric import all_of
from parcost_plugins.operations.account import draw
from parcost_plugins.operations.checkpoint import checkpoint_cost
from parcost_plugins.operations.goodput import failing_devices, job_mtbf, rhythm
from parcost_plugins.vocabulary import (
    Checkpoint,
    Cluster,
    Data,
    Energy,
    PlausibleRange,
    Price,
    Reliability,
    Run,
    Serving,
    Training,
)
from parcost_plugins.vocabulary.plausibility import plausibility


def input_checks(study: Study) -> Generator[Check, None, bool]:
    """Yield every rule; return whether an error was found."""
    broken = False
    for check in _rules(study):
        yield check
        broken = broken or (check.severity == "error" and not all_of(check.holds))
    return broken


def _rules(study: Study) -> Iterator[Check]:
    for schema, rules in (
        (Run, _run),
        (Reliability, _reliability),
        (Checkpoint, _checkpoint),
        (Data, _data),
        (Energy, _energy),
        (Price, _price),
    ):
        if study.all(schema):
            yield from rules(study)
    if study.get(PlausibleRange) is not None:
        yield from _plausibility(study)


def _plausibility(study: Study) -> Iterator[Check]:
    """Warn of implausible tokens, prices and electricity."""
    for run in study.all(Run):
        yield from plausibility(
            study,
            "tokens",
            run.tokens,
            "run.tokens",
            unit="T tokens",
            scale=1e12,
            remedy="write for example `15 T tokens`",
        )
        if study.all(Training) and study.parameters:
            yield from plausibility(
                study,
                "tokens_per_parameter",
                run.tokens / _parameters(study),
                "run.tokens",
                unit="tokens per parameter",
                remedy="write the tokens of the whole run; fine-tuning has fewer than training "
                "from scratch, and may allow this rule",
            )
    for price in study.all(Price):
        yield from plausibility(
            study,
            "device_hour",
            price.device_hour,
            "price.device_hour",
            unit="USD/h",
            scale=1 / 3600,
            remedy="write the price of one device and hour, not of a node",
        )
    for energy in study.all(Energy):
        yield from plausibility(
            study,
            "intensity",
            energy.intensity,
            "energy.intensity",
            unit="kg/kWh",
            scale=1e3 / 3.6e6,
            remedy="write the unit `g/kWh`: grids emit 20 to 1100 g/kWh",
        )
        yield from plausibility(
            study,
            "pue",
            energy.pue,
            "energy.pue",
            remedy="write total power / power of the machines, such as 1.1",
        )


def _parameters(study: Study) -> Real:
    """Return the parameters of the model, including all experts."""
    held: Real = sum(
        (each.total * sum(each.count) for each in study.parameters if not each.adapter), 0.0
    )
    return held


def _run(study: Study) -> Iterator[Check]:
    run = study[Run]
    given = [name for name in ("device_time", "speed") if getattr(run, name) is not None]
    yield Check(
        id="run-known-twice",
        holds=len(given) <= (0 if study.all(Training) else 1),
        subject=f"run.{given[0]}" if given else "run.tokens",
        message="{given} {say} the speed of the run, and {too}",
        inputs={
            "given": " and ".join(f"`{name}`" for name in given),
            "say": "states" if len(given) == 1 else "state",
            "too": "so does the step" if study.all(Training) else "one of them is enough",
        },
        help="leave out {given}, or the training job" if study.all(Training) else "leave one out",
    )
    yield Check(
        id="run-speed-unknown",
        holds=bool(study.all(Training)) or bool(given),
        subject="run.tokens",
        message="the speed of the run is unknown: there is no training job",
        help="write `device_time = 82_432 h` or `speed = 380 tokens` per second and device",
    )
    yield _devices_check(study, "run", run.devices is not None)


def _reliability(study: Study) -> Iterator[Check]:
    reliability = study[Reliability]
    known = job_mtbf(study, reliability) is not None
    yield _devices_check(study, "reliability", known)
    yield Check(
        id="reliability-alone",
        holds=bool(study.all(Checkpoint)) or not study.all(Training),
        subject="reliability.restart",
        message="a failure loses the whole run: there is no `checkpoint`",
        help="write `checkpoint {{ storage = 1 TB/s }}` or `checkpoint {{ blocking = 30 s }}`",
    )
    devices = failing_devices(study, reliability)
    yield Check(
        id="mtbf-known-twice",
        holds=reliability.mtbf is None or reliability.device_mtbf is None,
        subject="reliability.mtbf",
        message="`mtbf` and `device_mtbf` both give the mean time between failures of the job",
        inputs={"devices": devices if devices is not None else "all"},
        help="leave one out: `mtbf` is `device_mtbf` / {devices} devices",
    )


def _checkpoint(study: Study) -> Iterator[Check]:
    checkpoint = study[Checkpoint]
    saved = checkpoint_cost(study, checkpoint)
    direct = checkpoint.blocking is not None
    yield Check(
        id="checkpoint-size-unknown",
        holds=direct or saved.size is not None,
        subject="checkpoint",
        message="the size of a checkpoint is unknown: there is no training job",
        help="write `size = 405 G * 12 B`, or `blocking = 30 s`",
    )
    yield Check(
        id="checkpoint-rate-unknown",
        holds=direct or checkpoint.asynchronous or saved.size is None or saved.writing is not None,
        subject="checkpoint",
        message="the write rate of a checkpoint is unknown",
        help="write `storage = 2 TB/s`, the rate of all writers together, `node_bandwidth`, "
        "or `blocking = 30 s`",
    )
    copies = saved.blocking is not None or saved.size is None
    yield Check(
        id="checkpoint-copy-unknown",
        holds=direct or not checkpoint.asynchronous or copies,
        subject="checkpoint.asynchronous",
        message="the copy rate of a shard from device to host is unknown",
        help="write `host_bandwidth = 25 GB/s` and the number of `shards`",
    )
    yield Check(
        id="checkpoint-interval-unknown",
        holds=checkpoint.interval is not None or bool(study.all(Reliability)),
        subject="checkpoint",
        message="the interval between checkpoints is unknown: without a failure rate the optimum "
        "cannot be computed",
        help="write `interval = 30 min`, or `reliability {{ restart = 10 min }}`",
    )
    if checkpoint.shards is not None and study.get(Cluster) is not None:
        yield Check(
            id="checkpoint-shards",
            holds=checkpoint.shards <= study[Cluster].devices,
            subject="checkpoint.shards",
            message="{shards} shards are more than the {devices} devices of the cluster",
            inputs={"shards": checkpoint.shards, "devices": study[Cluster].devices},
            help="write `shards` of at most {devices}",
        )
    yield from _rhythm(study, checkpoint)


def _rhythm(study: Study, checkpoint: Checkpoint) -> Iterator[Check]:
    found = rhythm(study)
    if found is None:
        return
    if checkpoint.asynchronous and found.saved.writing is not None:
        yield Check(
            id="checkpoint-background",
            holds=found.saved.writing.value <= found.interval,
            subject="checkpoint.interval",
            message="writing a checkpoint takes {writing:.4g} s in the background, and the next "
            "one comes after {interval:.4g} s",
            inputs={"writing": found.saved.writing.value, "interval": found.interval},
            help="write an `interval` of {writing:.4g} s or more, or use faster storage",
        )
    if found.mtbf is not None:
        cycle = found.interval + found.blocking + found.restart
        yield Check(
            id="fails-too-often",
            holds=cycle <= found.mtbf,
            subject="reliability.restart",
            severity="warning",
            message="a checkpoint, the work before it and a restart take {cycle:.4g} s, and the "
            "job fails every {mtbf:.4g} s",
            inputs={
                "cycle": cycle,
                "mtbf": found.mtbf,
            },
            factor=cycle / found.mtbf,
            help="goodput is very sensitive to all three here: measure them",
        )


def _data(study: Study) -> Iterator[Check]:
    data = study[Data]
    yield Check(
        id="data-untrained",
        holds=bool(study.all(Training)),
        subject="data",
        message="`data` needs a training job, and the spec has none",
    )
    yield Check(
        id="data-not-prefetched",
        holds=data.prefetch or data.rate is not None,
        subject="data.prefetch",
        message="without prefetching every step waits for its batch: the rate of loaders is needed",
        help="write `rate = 2 M tokens`, the tokens per second of all loaders together",
    )


def _energy(study: Study) -> Iterator[Check]:
    energy = study[Energy]
    yield Check(
        id="power-unknown",
        holds=draw(study, energy) is not None,
        subject="energy",
        message="the power of a device is unknown",
        help="write `power = 700 W`, the design power of one device",
    )
    yield _devices_used_check(study, "energy")


def _price(study: Study) -> Iterator[Check]:
    yield _devices_used_check(study, "price")


def _devices_used_check(study: Study, kind: str) -> Check:
    spent = (
        bool(study.all(Training))
        or bool(study.all(Run))
        or (kind == "price" and bool(study.all(Serving)))
    )
    return Check(
        id=f"{kind}-unused",
        holds=spent,
        subject=kind,
        severity="warning",
        message=f"`{kind}` has no effect without a `run` block, and the spec has none",
        help="write `run {{ tokens = 15 T tokens, device_time = 30 M h }}`",
    )


def _devices_check(study: Study, kind: str, known: bool) -> Check:
    return Check(
        id=f"{kind}-devices-unknown",
        holds=known or study.get(Cluster) is not None,
        subject=kind,
        message=f"`{kind}` needs the number of devices: the spec has no cluster",
        help="write `devices = 1024`" + (", or `mtbf = 3 h`" if kind == "reliability" else ""),
    )
