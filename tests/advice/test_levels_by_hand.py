"""Levels that a step keeps busy, and the bandwidth that would do, by hand and brute force."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from parcost_plugins.analysis.advice import changes, levels
from parcost_plugins.analysis.advice.levels import level_uses, regime, sufficient_bandwidths
from parcost_plugins.vocabulary import Cluster, Plan, Targets


class Fake(dict[Any, Any]):
    """A study of three links, two of which are levels of its fabric."""

    def __init__(self, slack: float = 0.05) -> None:
        found = [SimpleNamespace(label=name) for name in ("node", "net", "idle")]
        fabric = SimpleNamespace(levels=found)
        super().__init__(
            {Cluster: SimpleNamespace(fabric=fabric), Targets: SimpleNamespace(slack=slack)}
        )

    def group(self, name: str) -> Any:
        assert name == "job"
        names = ("node", "net", "idle", "other")
        return SimpleNamespace(links=[SimpleNamespace(name=n, bandwidth=7.0) for n in names])


def line(resource: str, exposed: float, hidden: float, kind: str = "work") -> Any:
    return SimpleNamespace(
        resource=resource, limit=resource, exposed=exposed, hidden=hidden, kind=kind
    )


def test_the_seconds_of_each_level() -> None:
    compute = next(iter(levels._COMPUTE))
    lines = [
        line(compute, 6.0, 2.0),
        line("node", 1.0, 3.0, "send_recv"),
        line("node", 0.5, 0.5, "once"),
        line("net", 0.0, 0.25),
        line("net", 50.0, 50.0, "bubble"),
        line("other", 5.0, 5.0),
    ]
    study: Any = Fake()
    outcome: Any = SimpleNamespace(ledger=lines)
    found = level_uses(study, outcome)
    assert [(at.name, at.busy, at.exposed, at.compute, at.ratio) for at in found] == [
        ("node", 5.0, 1.5, 8.0, 0.625),
        ("net", 0.25, 0.0, 8.0, 0.03125),
    ]
    assert level_uses(study, SimpleNamespace(ledger=lines[1:])) == []  # type: ignore[arg-type]


def test_names_of_ratios() -> None:
    targets: Any = SimpleNamespace(compute_bound=0.5, near_ridge=1.0, communication_bound=2.0)
    names = [
        "compute-bound",
        "near the ridge point",
        "communication-bound",
        "strongly communication-bound",
    ]
    for ratio, name in ((0.5, 0), (0.6, 1), (1.0, 1), (1.1, 2), (2.0, 2), (2.1, 3)):
        assert regime(ratio, targets) == names[name]


def least_bandwidth(now: float, needs: float) -> float | None:
    """Return the first of a geometric grid that is no less than *needs*, in two rounds."""
    low, high = (now * end for end in (1e-3, 1e3))
    for _ in range(2):
        n = 60
        grid = [low * (high / low) ** (i / n) for i in range(n)] + [high]
        place = next((i for i, tried in enumerate(grid) if tried >= needs), None)
        if place is None:
            return None
        low, high = grid[max(place - 1, 0)], grid[place]
    return high


class Hashable(SimpleNamespace):
    """A level that a dictionary may have."""

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


@pytest.mark.parametrize("slack", [0.05, 0.5])
def test_the_bandwidth_that_would_do(slack: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of 1 s, and 3 B and 40 B at 10 B/s now: 0.3 s and 4 s beside each other."""

    def seconds(_: Any, values: Any) -> Any:
        rates = {level.label: whole for (level, _), whole in values.items()}
        return 1.0 + 3.0 / rates["a"] + 40.0 / rates["b"]

    monkeypatch.setattr(changes, "evaluate_arrays", seconds)
    monkeypatch.setattr(
        changes, "points", lambda outcome, n: outcome if len(outcome) == n else None
    )
    sought: Any = [
        SimpleNamespace(name=name, level=Hashable(label=name, bandwidth=10.0)) for name in "ab"
    ]
    study: Any = Fake(slack)
    assert sufficient_bandwidths(study, sought) == {
        "a": pytest.approx(least_bandwidth(10.0, 3.0 / (5.0 * slack)), rel=1e-9),
        "b": pytest.approx(least_bandwidth(10.0, 40.0 / (1.3 * slack)), rel=1e-9),
    }


def test_a_level_that_does_not_matter_needs_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        changes, "evaluate_arrays", lambda _, values: next(iter(values.values())) * 0 + 3
    )
    monkeypatch.setattr(changes, "points", lambda outcome, _: outcome)
    at: Any = SimpleNamespace(name="a", level=Hashable(label="a", bandwidth=10.0))
    least = 0.01
    assert sufficient_bandwidths(Fake(0.0), [at]) == {"a": pytest.approx(least)}  # type: ignore[arg-type]
    monkeypatch.setattr(
        changes, "evaluate_arrays", lambda _, values: 1e30 / next(iter(values.values())) ** 2
    )
    assert sufficient_bandwidths(Fake(), [at]) == {}  # type: ignore[arg-type]
    monkeypatch.setattr(changes, "evaluate_arrays", lambda *_: None)
    assert sufficient_bandwidths(Fake(), [at]) == {}  # type: ignore[arg-type]
    assert sufficient_bandwidths(Fake(), []) == {}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("plan", "target", "asked"),
    [(False, None, False), (True, None, True), (False, 1.0, True), (True, 1.0, True)],
)
def test_bandwidths_are_looked_for_where_a_plan_or_a_target_asks(
    plan: bool, target: float | None, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = SimpleNamespace(
        name="a", level=Hashable(label="a", bandwidth=10.0), busy=2.0, exposed=1.0, ratio=0.25
    )
    monkeypatch.setattr(levels, "level_uses", lambda *_: [at])
    monkeypatch.setattr(levels, "sufficient_bandwidths", lambda *_: {"a": 4.0})
    study: Any = Fake()
    study[Targets] = SimpleNamespace(
        step_time=None, mfu=target, bubble=None, slack=0.05,
        compute_bound=0.5, near_ridge=1.0, communication_bound=2.0,
    )  # fmt: skip
    if plan:
        study[Plan] = SimpleNamespace()
    outcome: Any = None
    (section,) = levels.section(study, outcome)
    row = ("a", (2.0, "s"), (1.0, "s"), 0.25, "compute-bound", (10.0, "B/s"))
    assert section.rows == [(*row, (4.0, "B/s")) if asked else row]
    assert len(section.columns) == len(section.rows[0])
