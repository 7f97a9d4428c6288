"""Which strategies are tried, and which answer counts: nothing is evaluated here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from parcost import Check
from parcost_plugins.analysis.strategy import dimensions, plan
from parcost_plugins.analysis.strategy.plan import _Strategy, _StrategyCost
from parcost_plugins.vocabulary import Cluster, Layout, MemoryBudget, Plan, Sharding, Training

from ..rows import try_each


class Fake(dict[Any, Any]):
    """A study of the blocks that the plan reads."""

    def __init__(
        self, devices: int, node: int | None, widest: int | None = None, experts: int = 0
    ) -> None:
        fabric = SimpleNamespace(levels=[SimpleNamespace(size=node)])
        device = SimpleNamespace(memory=80.0)
        super().__init__(
            {
                Cluster: SimpleNamespace(devices=float(devices), fabric=fabric, device=device),
                Plan: SimpleNamespace(widest_tp=widest, recompute=True),
                Training: SimpleNamespace(model=SimpleNamespace(experts=experts)),
                MemoryBudget: SimpleNamespace(usable=0.5, tight=1.0, margin=0.0),
            }
        )
        self.checks: list[Check] = []
        self.asked: list[Any] = []

    def replace(self, values: Any) -> Fake:
        self.asked.append(values)
        return self

    def contributions(self, kind: str) -> list[tuple[None, Check]]:
        assert kind == "checks"
        return [(None, check) for check in self.checks]

    def evaluate(self) -> Any:
        return SimpleNamespace(memory_bytes=40.0, step_seconds=1.0)


def lines(*arguments: Any) -> list[str]:
    return [s.layout for s in plan._strategies(Fake(*arguments))]  # type: ignore[arg-type]


def zeros(devices: int) -> list[str]:
    return [f"dp = {devices}, zero = {zero}" for zero in range(4)]


def tensor(*degrees: int) -> list[str]:
    return [f"tp = {tp} with sequence parallelism, zero = 1" for tp in degrees]


def pipelines(tp: int, *degrees: int) -> list[str]:
    return [f"tp = {tp} with sequence parallelism, pp = {pp}, zero = 1" for pp in degrees]


@try_each(
    "arguments, expected",
    [
        ((1, 8), ["nothing is split"]),
        ((2, 8), [*zeros(2), *tensor(2)]),
        ((32, 8), [*zeros(32), *tensor(2, 4, 8), *pipelines(8, 2, 4)]),
        ((24, 8), [*zeros(24), *tensor(2, 4, 8), *pipelines(8, 2)]),
        ((8, None), [*zeros(8), *tensor(2, 4, 8)]),
        ((32, 8, 4), [*zeros(32), *tensor(2, 4), *pipelines(4, 2, 4, 8)]),
        ((4, 8, 1), [*zeros(4), *pipelines(1, 2, 4)]),
        # the largest of at most 8 that divides the experts
        (
            (16, 8, 8, 15),
            [*zeros(16), "ep = 5, dp = 16, zero = 1", *tensor(2, 4, 8), *pipelines(8, 2)],
        ),
        ((8, 8, 1, 4), [*zeros(8), "ep = 4, dp = 8, zero = 1", *pipelines(1, 2, 4, 8)]),
        ((2, 8, 1, 11), [*zeros(2), "ep = 1, dp = 2, zero = 1", *pipelines(1, 2)]),
    ],
)
def test_the_strategies_in_their_order(arguments: Any, expected: list[str]) -> None:
    assert lines(*arguments) == expected


def test_settings_of_each_strategy() -> None:
    study: Any = Fake(8, 4, 2, 6)
    assert [s.title for s in plan._strategies(study)] == [
        "DDP",
        "ZeRO-1",
        "ZeRO-2",
        "ZeRO-3",
        "experts within a node",
        "tensor parallel",
        "tensor and pipeline",
        "tensor and pipeline",
    ]
    found = {s.layout: s.values for s in plan._strategies(study)}
    plain = {
        "layout.tp": 1, "layout.cp": 1, "layout.ep": 1, "layout.etp": 1, "layout.pp": 1,
        "layout.zero": 0, "layout.sequence_parallel": "off", "schedule.chunks": 1,
        "schedule.kind": "one_f_one_b",
    }  # fmt: skip
    tp = {"layout.tp": 2, "layout.zero": 1, "layout.sequence_parallel": "on"}
    assert found == {
        **{layout: {**plain, "layout.zero": zero} for zero, layout in enumerate(zeros(8))},
        "ep = 3, dp = 8, zero = 1": {**plain, "layout.ep": 3, "layout.zero": 1},
        tensor(2)[0]: {**plain, **tp},
        pipelines(2, 2)[0]: {**plain, **tp, "layout.pp": 2, "layout.ep": 3},
        pipelines(2, 4)[0]: {**plain, **tp, "layout.pp": 4, "layout.ep": 3},
    }
    (one,) = plan._strategies(Fake(1, 8))  # type: ignore[arg-type]
    assert one.values == plain
    *_, last = plan._strategies(Fake(2, 8, 1))  # type: ignore[arg-type]
    assert last.values == {**plain, "layout.pp": 2, "layout.zero": 1}


STRATEGY = _Strategy(title="t", layout="l", values={"layout.tp": 2})


def answer(memory: float | None, seconds: float = 1.0, *, title: str = "t") -> _StrategyCost:
    strategy = _Strategy(title=title, layout="l", values={})
    if memory is None:
        return _StrategyCost(strategy=strategy, outcome=None, memory_limit=40.0, why="heads")
    outcome: Any = SimpleNamespace(memory_bytes=memory, step_seconds=seconds)
    return _StrategyCost(strategy=strategy, outcome=outcome, memory_limit=40.0)


def test_an_answer_fits_up_to_its_room() -> None:
    assert [answer(bytes_).fits for bytes_ in (39.0, 40.0, 40.1, None)] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("plain", "again", "recompute", "which"),
    [
        (40.0, 30.0, True, "none"),  # fits without
        (None, 30.0, True, "none"),
        (50.0, 30.0, False, "none"),
        (50.0, 30.0, True, "full"),
        (50.0, 45.0, True, "full"),
        (50.0, None, True, "none"),
    ],
)
def test_recomputing_where_it_does_not_fit_without(
    plain: float | None,
    again: float | None,
    recompute: bool,
    which: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def cost(_: Any, __: Any, more: Any, *, recomputed: bool = False) -> _StrategyCost:
        assert recomputed is (more["training.recompute"] == "full")
        return answer(again if recomputed else plain, title=more["training.recompute"])

    monkeypatch.setattr(plan, "_evaluate", cost)
    study: Any = {Plan: SimpleNamespace(recompute=recompute)}
    assert plan._answer(study, STRATEGY).strategy.title == which


def check(message: str, *, holds: bool, severity: Any = "error", **inputs: Any) -> Check:
    return Check(
        id="x", holds=holds, subject="x", message=message, inputs=inputs, severity=severity
    )


def test_a_strategy_is_legal_unless_an_error_says_otherwise() -> None:
    study: Any = Fake(8, 8)
    study.checks = [check("fine", holds=True), check("slow", holds=False, severity="warning")]
    found = plan._evaluate(study, STRATEGY, {"a": 1}, recomputed=True)
    assert study.asked == [{"layout.tp": 2, "a": 1}]
    assert found.outcome is not None
    assert (found.memory_limit, found.recomputed, found.fits) == (40.0, True, True)  # half of 80
    study.checks.append(check("{n} x {m} of {k}", holds=False, n=4.0, m=2.5, k="heads"))
    rejected = plan._evaluate(study, STRATEGY, {})
    assert (rejected.outcome, rejected.memory_limit, rejected.why) == (
        None,
        40.0,
        "4 x 2.5 of heads",
    )


def test_the_simplest_and_the_fastest_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def notes(*answers: _StrategyCost) -> list[str]:
        monkeypatch.setattr(plan, "_strategies", lambda study: study)
        monkeypatch.setattr(plan, "_answer", lambda _, one: one)
        (section,) = plan.section(answers)  # type: ignore[arg-type]
        assert [row[3] for row in section.rows] == [
            "no: heads" if one.outcome is None else "yes" if one.fits else "no" for one in answers
        ]
        return [*section.notes]

    large, a, b = answer(50.0, 1.0), answer(30.0, 3.0, title="a"), answer(30.0, 2.0, title="b")
    assert notes(large, a, b) == ["the simplest that fits: a, l", "the fastest that fits: b, l"]
    assert notes(answer(None), b, a) == ["the simplest that fits: b, l"]
    assert notes(large) == ["none fits: use more devices, or devices with more memory"]
    full: Any = _StrategyCost(
        strategy=b.strategy, outcome=b.outcome, memory_limit=40.0, recomputed=True
    )
    assert notes(full) == ["the simplest that fits: b, l, full recomputation"]


def test_a_group_reaches_the_levels_that_it_has_members_at() -> None:
    levels = [SimpleNamespace(label=name) for name in ("node", "rail", "spine")]
    links = [SimpleNamespace(name=level.label) for level in levels]
    study: Any = {Cluster: SimpleNamespace(fabric=SimpleNamespace(levels=levels))}
    for shape, reach in (
        ((8.0, 1.0, 1.0), "node"),
        ((8.0, 1.0, 2.0), "node and spine"),
        ((1.0, 4.0, 1.0), "rail"),
        ((1.0, 1.0, 1.0), "node"),  # a rank by itself
    ):
        group: Any = SimpleNamespace(links=links, shape=shape)
        assert dimensions._level_names(group, study) == reach


@try_each(
    "attribute, layout, accumulate, exchanges",
    [
        ("tp", {}, None, "all-reduces in every layer"),
        ("tp", {"sequence_parallel": True}, None, "all-gathers and reduce-scatters in every layer"),
        ("dp", {}, None, "gradients once per step, can overlap"),
        ("dp", {"zero": 1}, None, "gradients once per step, parameters once per step, can overlap"),
        (
            "dp",
            {"zero": 2},
            "shard",
            "gradients once per micro-batch, parameters once per step, can overlap",
        ),
        (
            "dp",
            {"zero": 3},
            "whole",
            "parameters in every pass, gradients once per step, can overlap",
        ),
    ],
)
def test_what_ranks_exchange_is_what_the_layout_makes_of_it(
    attribute: str, layout: dict[str, Any], accumulate: str | None, exchanges: str
) -> None:
    study: Any = {
        Layout: SimpleNamespace(**{"zero": 0, "sequence_parallel": False, "pp": 1} | layout),
        Sharding: SimpleNamespace(accumulate=accumulate),
        Training: SimpleNamespace(framework=None),
    }
    dimension = next(d for d in dimensions._DIMENSIONS if d.attribute == attribute)
    assert dimensions._communication_text(dimension, study) == exchanges
