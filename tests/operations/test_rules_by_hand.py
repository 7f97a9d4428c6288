"""Rules of runs on the edge of being broken; no spec is read here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from parcost.numeric import all_of
from parcost_plugins.operations import rules
from parcost_plugins.vocabulary import (
    Checkpoint,
    Cluster,
    Data,
    Energy,
    Price,
    Reliability,
    Run,
    Serving,
    Training,
)

KNOWN = {
    Run: ("device_time", "speed", "devices"),
    Reliability: ("mtbf", "device_mtbf"),
    Checkpoint: ("blocking", "asynchronous", "interval", "shards"),
    Data: ("prefetch", "rate"),
}


class Fake(dict[Any, Any]):
    """A study of some blocks, whose attributes are None where nothing is said."""

    def __init__(self, blocks: dict[type, dict[str, Any]]) -> None:
        super().__init__(
            {
                kind: SimpleNamespace(**{**dict.fromkeys(KNOWN.get(kind, ())), **values})
                for kind, values in blocks.items()
            }
        )

    def all(self, kind: type) -> list[Any]:
        return [self[kind]] if kind in self else []


@pytest.fixture
def broken_rules(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the rules that blocks break, and whether something is left to work with."""

    def make(
        blocks: dict[type, dict[str, Any]],
        saved: Any = (),
        checkpoint_cycle: Any = None,
        **known: Any,
    ) -> tuple[str, bool]:
        found = {"size": None, "writing": None, "blocking": None, **dict(saved)}
        monkeypatch.setattr(rules, "checkpoint_cost", lambda *_: SimpleNamespace(**found))
        monkeypatch.setattr(rules, "checkpoint_cycle", lambda _: checkpoint_cycle)
        monkeypatch.setattr(rules, "job_mtbf", lambda *_: known.get("mtbf"))
        monkeypatch.setattr(rules, "failing_devices", lambda *_: known.get("failing"))
        monkeypatch.setattr(rules, "draw", lambda *_: known.get("draw"))
        checks = []
        asked = rules.input_checks(Fake(blocks))  # type: ignore[arg-type]
        while True:
            try:
                checks.append(next(asked))
            except StopIteration as end:
                broken = " ".join(c.id for c in checks if not all_of(c.holds))
                return broken, end.value

    return make


JOB: dict[type, dict[str, Any]] = {Training: {}, Cluster: {"devices": 16}}
SPEED = {"speed": 1.0, "devices": 8}
SAVED = {"blocking": 30.0, "interval": 1.0}


@pytest.mark.parametrize(
    ("blocks", "broken"),
    [
        ({}, ""),
        (JOB, ""),
        ({Run: SPEED}, ""),
        ({Run: {**SPEED, "device_time": 1.0}}, "run-known-twice"),
        ({Run: {"devices": 8}}, "run-speed-unknown"),
        ({Run: {"speed": 1.0}}, "run-devices-unknown"),
        ({**JOB, Run: {}}, ""),
        ({**JOB, Run: {"speed": 1.0}}, "run-known-twice"),
        ({**JOB, Reliability: {}}, "reliability-alone"),
        ({**JOB, Reliability: {}, Checkpoint: SAVED}, ""),
        ({Reliability: {"mtbf": 1.0}}, "reliability-devices-unknown"),
        ({Cluster: {}, Reliability: {"mtbf": 1.0}}, ""),
        ({Cluster: {}, Reliability: {"device_mtbf": 1.0}}, ""),
        ({Cluster: {}, Reliability: {"mtbf": 1.0, "device_mtbf": 1.0}}, "mtbf-known-twice"),
        ({Checkpoint: SAVED}, ""),
        ({Checkpoint: {"blocking": 30.0}}, "checkpoint-interval-unknown"),
        ({Cluster: {}, Checkpoint: {"blocking": 30.0}, Reliability: {}}, ""),
        ({Cluster: {"devices": 16}, Checkpoint: {**SAVED, "shards": 16}}, ""),
        ({Cluster: {"devices": 16}, Checkpoint: {**SAVED, "shards": 17}}, "checkpoint-shards"),
        ({Checkpoint: {**SAVED, "shards": 17}}, ""),
        ({Data: {"prefetch": True}}, "data-untrained"),
        ({**JOB, Data: {"prefetch": True}}, ""),
        ({**JOB, Data: {"prefetch": False, "rate": 1.0}}, ""),
        ({**JOB, Data: {"prefetch": False}}, "data-not-prefetched"),
        ({Price: {}}, "price-unused"),
        ({Price: {}, Serving: {}}, ""),
        ({Price: {}, **JOB}, ""),
        ({Price: {}, Run: SPEED}, ""),
    ],
)
def test_what_has_to_be_known(blocks: Any, broken: str, broken_rules: Any) -> None:
    warning = broken in ("price-unused", "energy-unused")
    assert broken_rules(blocks) == (broken, bool(broken) and not warning)


def test_energy_is_of_a_run_and_its_power_is_known(broken_rules: Any) -> None:
    assert broken_rules({Energy: {}}) == ("power-unknown energy-unused", True)
    assert broken_rules({Energy: {}}, draw=700.0) == ("energy-unused", False)
    assert broken_rules({Energy: {}, Serving: {}}, draw=700.0) == ("energy-unused", False)
    assert broken_rules({Energy: {}, **JOB}, draw=0.0) == ("", False)


def test_devices_that_fail_are_known_by_their_mtbf(broken_rules: Any) -> None:
    assert broken_rules({Reliability: {}}, mtbf=3.0) == ("", False)


SIZE, RATE, COPY = "checkpoint-size-unknown", "checkpoint-rate-unknown", "checkpoint-copy-unknown"


@pytest.mark.parametrize(
    ("asynchronous", "saved", "broken"),
    [
        (False, {}, SIZE),
        (False, {"size": 1.0}, RATE),
        (False, {"size": 1.0, "writing": 1.0}, ""),
        (True, {}, SIZE),
        (True, {"size": 1.0}, COPY),
        (True, {"size": 1.0, "writing": 1.0}, COPY),
        (True, {"size": 1.0, "blocking": 1.0}, ""),
    ],
)
def test_how_long_saving_takes(
    asynchronous: bool, saved: dict[str, float], broken: str, broken_rules: Any
) -> None:
    block = {"asynchronous": asynchronous, "interval": 1.0}
    assert broken_rules({Checkpoint: block}, saved) == (broken, bool(broken))
    assert broken_rules({Checkpoint: {**block, "blocking": 30.0}}, saved) == ("", False)


@pytest.mark.parametrize(
    ("asynchronous", "writing", "mtbf", "broken"),
    [
        (True, 5.0, None, ""),
        (True, 5.1, None, "checkpoint-background"),
        (False, 5.1, None, ""),
        (True, None, None, ""),
        # 5 s of work, 3 s that block and 2 s of a restart
        (False, None, 10.0, ""),
        (False, None, 9.9, "fails-too-often"),
        (True, 5.1, 9.9, "checkpoint-background fails-too-often"),
    ],
)
def test_the_rhythm_of_saving(
    asynchronous: bool, writing: float | None, mtbf: float | None, broken: str, broken_rules: Any
) -> None:
    known = None if writing is None else SimpleNamespace(value=writing)
    saved = SimpleNamespace(writing=known)
    checkpoint_cycle = SimpleNamespace(
        saved=saved, interval=5.0, blocking=3.0, restart=2.0, mtbf=mtbf
    )
    block = {"asynchronous": asynchronous, **SAVED}
    assert broken_rules({Checkpoint: block}, checkpoint_cycle=checkpoint_cycle) == (
        broken,
        "background" in broken,
    )


def test_a_warning_before_an_error_leaves_nothing_either(broken_rules: Any) -> None:
    blocks = {Energy: {}, Price: {}, Run: {"devices": 8}}
    assert broken_rules(blocks, draw=1.0) == ("run-speed-unknown", True)


def test_the_words_of_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "failing_devices", lambda *_: None)
    monkeypatch.setattr(rules, "job_mtbf", lambda *_: 1.0)
    one, both = (
        next(rules._run(Fake({**JOB, Run: values})))  # type: ignore[arg-type]
        for values in ({"speed": 1.0}, {"speed": 1.0, "device_time": 1.0})
    )
    assert (one.inputs["say"], one.inputs["given"]) == ("states", "`speed`")
    assert (both.inputs["say"], both.inputs["given"]) == ("state", "`device_time` and `speed`")
    checkpoint_cycle = SimpleNamespace(
        saved=SimpleNamespace(writing=None), interval=5.0, blocking=3.0, restart=2.0, mtbf=9.0
    )
    monkeypatch.setattr(rules, "checkpoint_cycle", lambda _: checkpoint_cycle)
    checkpoint: Any = SimpleNamespace(asynchronous=False)
    (check,) = rules._checkpoint_interval_checks(Fake({}), checkpoint)  # type: ignore[arg-type]
    assert check.inputs == {"cycle": 10.0, "mtbf": 9.0}
