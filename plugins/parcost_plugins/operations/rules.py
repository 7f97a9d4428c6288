"""Rules of runs: required inputs, and contradictions."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from parcost import Check, Real, Study, sum_counts
from parcost.numeric import all_of
from parcost_plugins.operations.checkpoint import checkpoint_cost
from parcost_plugins.operations.goodput import checkpoint_cycle, failing_devices, job_mtbf
from parcost_plugins.operations.resources import draw
from parcost_plugins.operations.rulebook import RULES
from parcost_plugins.vocabulary import (
    Adapters,
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
        if study.all(Training) and study.parameters and not study.all(Adapters):
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
            remedy="write the price of one device per hour, not of a node",
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
        (each.total * sum_counts(each.count) for each in study.parameters if not each.adapter), 0.0
    )
    return held


def _run(study: Study) -> Iterator[Check]:
    run = study[Run]
    given = [name for name in ("device_time", "speed") if getattr(run, name) is not None]
    yield RULES.check(
        "run-known-twice",
        len(given) <= (0 if study.all(Training) else 1),
        f"run.{given[0]}" if given else "run.tokens",
        help="leave out {given}, or the training job" if study.all(Training) else "leave one out",
        given=" and ".join(f"`{name}`" for name in given),
        say="states" if len(given) == 1 else "state",
        too="the training step also sets it" if study.all(Training) else "write only one of them",
    )
    yield RULES.check("run-speed-unknown", bool(study.all(Training)) or bool(given), "run.tokens")
    yield _devices_check(study, "run", run.devices is not None)


def _reliability(study: Study) -> Iterator[Check]:
    reliability = study[Reliability]
    known = job_mtbf(study, reliability) is not None
    yield _devices_check(study, "reliability", known)
    yield RULES.check(
        "reliability-alone",
        bool(study.all(Checkpoint)) or not study.all(Training),
        "reliability.restart",
    )
    devices = failing_devices(study, reliability)
    yield RULES.check(
        "mtbf-known-twice",
        reliability.mtbf is None or reliability.device_mtbf is None,
        "reliability.mtbf",
        devices=devices if devices is not None else "all",
    )


def _checkpoint(study: Study) -> Iterator[Check]:
    checkpoint = study[Checkpoint]
    saved = checkpoint_cost(study, checkpoint)
    direct = checkpoint.blocking is not None
    yield RULES.check("checkpoint-size-unknown", direct or saved.size is not None, "checkpoint")
    yield RULES.check(
        "checkpoint-rate-unknown",
        direct or checkpoint.asynchronous or saved.size is None or saved.writing is not None,
        "checkpoint",
    )
    copies = saved.blocking is not None or saved.size is None
    yield RULES.check(
        "checkpoint-copy-unknown",
        direct or not checkpoint.asynchronous or copies,
        "checkpoint.asynchronous",
    )
    yield RULES.check(
        "checkpoint-interval-unknown",
        checkpoint.interval is not None or bool(study.all(Reliability)),
        "checkpoint",
    )
    if checkpoint.shards is not None and study.get(Cluster) is not None:
        yield RULES.check(
            "checkpoint-shards",
            checkpoint.shards <= study[Cluster].devices,
            "checkpoint.shards",
            shards=checkpoint.shards,
            devices=study[Cluster].devices,
        )
    yield from _checkpoint_interval_checks(study, checkpoint)


def _checkpoint_interval_checks(study: Study, checkpoint: Checkpoint) -> Iterator[Check]:
    found = checkpoint_cycle(study)
    if found is None:
        return
    if checkpoint.asynchronous and found.saved.writing is not None:
        yield RULES.check(
            "checkpoint-background",
            found.saved.writing.value <= found.interval,
            "checkpoint.interval",
            writing=found.saved.writing.value,
            interval=found.interval,
        )
    if found.mtbf is not None:
        cycle = found.interval + found.blocking + found.restart
        yield RULES.check(
            "fails-too-often",
            cycle <= found.mtbf,
            "reliability.restart",
            factor=cycle / found.mtbf,
            cycle=cycle,
            mtbf=found.mtbf,
        )


def _data(study: Study) -> Iterator[Check]:
    data = study[Data]
    yield RULES.check("data-untrained", bool(study.all(Training)), "data")
    yield RULES.check(
        "data-not-prefetched", data.prefetch or data.rate is not None, "data.prefetch"
    )


def _energy(study: Study) -> Iterator[Check]:
    energy = study[Energy]
    yield RULES.check("power-unknown", draw(study, energy) is not None, "energy")
    yield _devices_used_check(study, "energy")


def _price(study: Study) -> Iterator[Check]:
    yield _devices_used_check(study, "price")


def _devices_used_check(study: Study, kind: str) -> Check:
    spent = (
        bool(study.all(Training))
        or bool(study.all(Run))
        or (kind == "price" and bool(study.all(Serving)))
    )
    return RULES.check(f"{kind}-unused", spent, kind)


def _devices_check(study: Study, kind: str, known: bool) -> Check:
    has_devices = known or study.get(Cluster) is not None
    return RULES.check(f"{kind}-devices-unknown", has_devices, kind)
