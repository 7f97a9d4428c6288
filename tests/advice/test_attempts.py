"""Which changes are tried to reach a target, and which reach it: nothing is evaluated here."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from parcost_plugins.analysis.advice import reach
from parcost_plugins.vocabulary import Cluster, Layout, ScheduleChoice, Targets, Training

KINDS = ("one_f_one_b", "gpipe", "zb_v")


class Fake(dict[Any, Any]):
    """A study of 4 stages of 2 replicas on 16 devices, which hides gradients."""

    plugins = SimpleNamespace(offers=lambda _: KINDS)

    def __init__(self, *, pp: int = 4, micro: float = 2.0, batches: int = 1, **more: Any) -> None:
        super().__init__(
            {
                Layout: SimpleNamespace(pp=pp, dp=2, sequence_parallel=more.get("sharded", False)),
                Training: SimpleNamespace(
                    micro_batch=micro,
                    micro_batches=float(batches),
                    global_batch=64.0,
                    sequence=1000.0,
                    recompute=more.get("recompute", "none"),
                    precision=SimpleNamespace(compute="bf16"),
                ),
                Cluster: SimpleNamespace(devices=16.0, device=SimpleNamespace(bf16=1e15)),
                ScheduleChoice: SimpleNamespace(kind="gpipe"),
            }
        )


def changes(monkeypatch: pytest.MonkeyPatch, *lacks: str, **more: Any) -> list[str]:
    """Return the titles of changes, where the framework *lacks* some of them."""
    hiding = {"gradients": lambda _: True, "parameters": lambda _: False}
    monkeypatch.setattr(reach, "HIDING", hiding)
    monkeypatch.setattr(reach, "has", lambda _, name, value: f"{name} = {value}" not in lacks)
    found = dict(reach._changes(Fake(**more)))  # type: ignore[arg-type]
    for title, values in found.items():
        if title.startswith("pp = "):
            pp = values["layout.pp"]
            assert values["training.global_batch"] == "64 sequences"
            assert title == f"pp = {pp} on {values['cluster.devices']:g} devices"
            assert values["cluster.devices"] == 16 * pp / more.get("pp", 4)
        elif title.endswith("x 2"):
            assert values == {"training.micro_batch": 2 * more.get("micro", 2.0)}
        else:
            ((name, value),) = values.items()
            assert title == f"{name} = {value:g}" if name.endswith("batch") else f"{name} = {value}"
    return [*found]


def test_the_changes_that_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    assert changes(monkeypatch) == [
        "pp = 3 on 12 devices",
        "pp = 2 on 8 devices",
        "pp = 1 on 4 devices",
        "schedule.kind = one_f_one_b",
        "schedule.kind = zb_v",
        "overlap.parameters = on",
        "layout.sequence_parallel = on",
        "training.micro_batch = 1",
        "training.micro_batch x 2",
    ]
    assert changes(
        monkeypatch,
        "schedule.kind = zb_v",
        "overlap.parameters = on",
        pp=1,
        micro=3.0,
        sharded=True,
        recompute="full",
    ) == [
        "schedule.kind = one_f_one_b",
        "training.recompute = none",
        "training.micro_batch x 2",
    ]
    assert "training.micro_batch = 3" in changes(monkeypatch, micro=6.0)


def fewest_micro_batches(
    monkeypatch: pytest.MonkeyPatch, start: int, legal: Callable[[int], bool], need: int
) -> int | None:
    """Return the micro-batches found where *need* of them reach the target."""
    tried: list[int] = []

    def attempt(_: Any, title: str, values: Any) -> Any:
        m, _, rest = title.partition(" micro-batches: ")
        assert rest == f"global_batch = {4 * int(m)} sequences"  # micro-batches of 2 on 2 replicas
        assert values == {"training.global_batch": f"{4 * int(m)} sequences"}
        tried.append(int(m))
        return SimpleNamespace(study=int(m), outcome=None) if legal(int(m)) else None

    monkeypatch.setattr(reach, "try_change", attempt)
    monkeypatch.setattr(reach, "meets", lambda _, m, __: m >= need)
    targets: Any = SimpleNamespace(step_time=None)
    found: Any = reach.fewest_micro_batches(Fake(batches=start), targets)  # type: ignore[arg-type]
    assert len(set(tried)) == len(tried) <= 2 * 13
    return None if found is None else found.study


def test_the_fewest_micro_batches_by_brute_force(monkeypatch: pytest.MonkeyPatch) -> None:
    for start in range(1, 14):
        for need in range(1, 40):
            assert fewest_micro_batches(monkeypatch, start, lambda _: True, need) == max(
                start, need
            )
    for need, expected in ((4095, 4095), (4096, 4096), (4097, None)):
        assert fewest_micro_batches(monkeypatch, 1, lambda _: True, need) == expected
    assert fewest_micro_batches(monkeypatch, 3, lambda _: True, 3072) == 3072
    assert fewest_micro_batches(monkeypatch, 3, lambda _: True, 3073) is None  # the next is 6144
    assert fewest_micro_batches(monkeypatch, 2, lambda m: m % 2 == 0, 5) == 6
    targets: Any = SimpleNamespace(step_time=1.0)
    assert reach.fewest_micro_batches(Fake(), targets) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("target", "reached"),
    [
        ({}, True),
        ({"step_time": 2.0}, True),
        ({"step_time": 1.99}, False),
        ({"mfu": 0.5}, True),
        ({"mfu": 0.51}, False),
        ({"bubble": 0.1}, True),
        ({"bubble": 0.099}, False),
        ({"bubble": 0.1 / (1 + 1e-13)}, True),  # a rounding beyond
        ({"bubble": 0.1 / (1 + 1e-11)}, False),
        ({"bubble": 0.07}, False),
        ({"step_time": 2.0, "mfu": 0.5, "bubble": 0.1}, True),
        ({"step_time": 1.99, "mfu": 0.5, "bubble": 0.1}, False),
        ({"step_time": 2.0, "mfu": 0.51, "bubble": 0.1}, False),
        ({"step_time": 2.0, "mfu": 0.5, "bubble": 0.09}, False),
    ],
)
def test_a_step_is_within_every_target(
    target: dict[str, float], reached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "_values", lambda *_: (2.0, 0.5, 0.1))
    targets: Any = SimpleNamespace(**{"step_time": None, "mfu": None, "bubble": None, **target})
    assert reach.meets(targets, None, None) is reached  # type: ignore[arg-type]


def test_the_edge_of_a_bubble_that_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    targets: Any = SimpleNamespace(step_time=None, mfu=None, bubble=0.1)
    monkeypatch.setattr(reach, "_values", lambda *_: (2.0, 0.5, 0.1 * (1 + 1e-12)))
    assert reach.meets(targets, None, None)  # type: ignore[arg-type]


def outcome(seconds: float) -> Any:
    """Return an outcome whose pipeline works for 6 s and is idle for 2 s."""
    ledger = [("bubble", 0.5), ("compute", 7.0), ("bubble", 1.5), ("send_recv", 3.0)]
    lines = [SimpleNamespace(kind=kind, exposed=exposed) for kind, exposed in ledger]
    return SimpleNamespace(ledger=lines, ideal_seconds=6.0, step_seconds=seconds)


def test_the_figures_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """2e11 FLOP a token, 64 x 1000 tokens, 16 devices of 1e15 FLOP/s: 0.8 s without loss."""
    monkeypatch.setattr(reach, "flops_per_token", lambda _: 2e11)
    found = reach._values(Fake(), outcome(3.2))  # type: ignore[arg-type]
    assert found == pytest.approx((3.2, 0.25, 0.625))


def test_changes_that_reach_the_targets_are_sorted_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "flops_per_token", lambda _: 2e11)
    study: Any = Fake()
    study[Targets] = SimpleNamespace(step_time=2.5, mfu=None, bubble=None)
    steps = {"a": 4.0, "b": 2.5, "c": 3.0, "d": 2.0, "e": 5.0}

    def rows(*names: str) -> tuple[list[str], list[str]]:
        attempts = [
            reach.Attempt(title=name, outcome=outcome(steps[name]), study=study) for name in names
        ]
        monkeypatch.setattr(reach, "_attempts", lambda *_: iter(attempts))
        (section,) = reach.section(study, outcome(3.0))
        return [str(row[0]) for row in section.rows], [*section.notes]

    all_of_them = "each change alone; dependent values change as well"
    assert rows(*steps) == (["d", "b"], ["to reach: step <= 2.5 s", all_of_them])
    out_of_reach = "no single change reaches the targets; the fastest ones are listed"
    assert rows("a", "c", "e") == (
        ["c", "a", "e"], [out_of_reach, "to reach: step <= 2.5 s", all_of_them]
    )  # fmt: skip
    assert rows("e")[0] == ["e"]
    (section,) = reach.section(study, outcome(2.5))
    assert [row[0] for row in section.rows] == ["none is needed"]
    study[Targets] = SimpleNamespace(step_time=None, mfu=None, bubble=None)
    assert [*reach.section(study, outcome(3.0))] == []
    del study[Targets]
    assert [*reach.section(study, outcome(3.0))] == []


def test_a_change_counts_where_it_is_legal() -> None:
    class Changed(Fake):
        faulty = False

        def __init__(self, legal: Any) -> None:
            super().__init__()
            self.holds = legal

        def replace(self, values: Any) -> Changed:
            return Changed(values["legal"])

        def legal(self) -> Any:
            return self.holds

        def evaluate(self) -> Any:
            return outcome(1.0)

        def faults_beyond(self, before: Any) -> bool:
            return bool(before.faulty)

    study: Any = Changed(legal=True)
    made = reach.try_change(study, "t", {"legal": True})
    assert made is not None
    assert (made.title, made.outcome.step_seconds) == ("t", 1.0)
    assert reach.try_change(study, "t", {"legal": False}) is None
    study.faulty = True
    assert reach.try_change(study, "t", {"legal": True}) is None
