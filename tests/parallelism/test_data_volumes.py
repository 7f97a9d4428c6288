"""Bytes that a rank sends for data parallelism, from blocks of round numbers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve

from parcost import Formula, Once, Work
from parcost_plugins.parallelism.data import shard_groups, volumes
from parcost_plugins.parallelism.data.shard_groups import GRADIENTS
from parcost_plugins.physics.stage_parameters import StageKind
from parcost_plugins.vocabulary import Compression, Layout, LocalUpdates, Sharding, Training

RANKS = {"inside": 4.0, "across": 3.0}


def kind(
    *, expert: bool = False, count: tuple[float, ...] = (1.0, 0.0), elements: float = 800.0
) -> StageKind:
    """Return 3 layers of 200 parameters between 150 and 50, on 8 replicas, sharded over 4."""
    return StageKind(
        stages="stage 0", count=count, held=[], layers=3, layer=200.0, matrix=0.0, before=150.0,
        after=50.0,
        elements=elements, linear=0.0, group="data", replicas=8.0, shard=4.0, expert=expert,
        wire=dict.fromkeys(("before", "layer", "after"), 2.0),
    )  # fmt: skip


def wire(across: str = "", **more: Any) -> Any:
    return SimpleNamespace(kind=kind(**more), inside="inside", across=across)


class Fake(dict[Any, Any]):
    """Five micro-batches, gradients of 4 B and gathers of 2 B."""

    pipeline = SimpleNamespace(micro_batches=5.0)

    def __init__(self, *, zero: int = 0, **said: Any) -> None:
        local = {"workers": 1.0, "wire": 3.0, "period": 10.0}
        sharding = {"replicate": "step", "keep_last": False}
        compression = {"method": "none", "steps": 1.0}
        for block in (local, sharding, compression):
            block.update({name: said[name] for name in said if name in block})
        super().__init__(
            {
                Layout: SimpleNamespace(zero=zero, tp=2.0, cp=2.0, dp=4.0),
                Sharding: SimpleNamespace(**sharding),
                LocalUpdates: SimpleNamespace(**local),
                Compression: SimpleNamespace(**compression),
                Training: SimpleNamespace(
                    framework=SimpleNamespace(
                        replicate="step", ends_together=said.get("ends_together", False)
                    ),
                    precision=SimpleNamespace(reduction=4.0, gather=2.0, wide_gather=2.0),
                    micro_batch=3.0,
                ),
            }
        )

    def group(self, name: str) -> Any:
        return SimpleNamespace(ranks=RANKS[name])


@pytest.fixture(autouse=True)
def chosen(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """Return what is chosen: ZeRO 2 reduces each micro-batch, ZeRO 3 gathers twice."""
    found = {"each": False, "scatters": False, "reshards": True, "once": False, "first": False}
    monkeypatch.setattr(
        volumes, "shards_gradients", lambda study: study[Layout].zero >= 2 and found["each"]
    )
    monkeypatch.setattr(volumes, "scatters", lambda _: found["scatters"])
    monkeypatch.setattr(volumes, "reshards", lambda _: found["reshards"])
    monkeypatch.setattr(shard_groups, "is_tied", lambda _: found["once"])
    monkeypatch.setattr(volumes, "gathers_once", lambda _: found["first"])
    return found


REDUCED = 3 / 4 * 800 * 4  # of a reduce-scatter over four ranks
ACROSS = 2 * 2 / 3 * 800 * 4 / 4


@pytest.mark.parametrize(
    ("said", "choices", "across", "bytes_"),
    [
        ({}, {}, "", 2 * REDUCED),
        ({}, {"scatters": True}, "", REDUCED),
        ({"zero": 1}, {"scatters": True}, "", REDUCED + 3 / 4 * 800 * 2),
        ({"zero": 2}, {"scatters": True}, "", REDUCED + 3 / 4 * 800 * 2),
        ({"zero": 2}, {"scatters": True, "each": True}, "", 5 * REDUCED + 3 / 4 * 800 * 2),
        ({"zero": 1}, {"scatters": True, "each": True}, "", REDUCED + 3 / 4 * 800 * 2),
        # forward gathers 800 of a micro-batch, backward 3 x 200 and 150
        ({"zero": 3}, {"scatters": True}, "", REDUCED + 3 / 4 * 5 * 2 * (800 + 750)),
        # in the first of five micro-batches, and kept
        ({"zero": 3}, {"scatters": True, "reshards": False, "first": True}, "",
         REDUCED + 3 / 4 * 2 * 800),
        # shares of a quarter between three groups, in one all-reduce
        ({}, {}, "across", 2 * REDUCED + ACROSS),
        ({"zero": 2, "replicate": "micro_batch"}, {"each": True}, "across",
         10 * REDUCED + 5 * ACROSS + 3 / 4 * 1600),
        ({"zero": 2}, {"each": True}, "across", 10 * REDUCED + ACROSS + 3 / 4 * 1600),
        ({"zero": 2, "replicate": "micro_batch"}, {}, "across", 2 * REDUCED + ACROSS + 3 / 4 * 1600),
        # eight workers meet every ten steps, with 3 B
        ({"workers": 8.0}, {}, "", 2 * REDUCED + 2 * 7 / 8 * 800 * 3 / 10),
        ({"workers": 8.0, "zero": 1}, {}, "", 2 * REDUCED + 1200 + 2 * 7 / 8 * 800 / 4 * 3 / 10),
    ],
)  # fmt: skip
def test_bytes_sent_by_a_rank(
    said: dict[str, Any], choices: dict[str, bool], across: str, bytes_: float,
    chosen: dict[str, bool],
) -> None:  # fmt: skip
    chosen.update(choices)
    study: Any = Fake(**said)
    gathered = volumes.gathers(study, wire()) if study[Layout].zero == 3 else 0.0
    found = volumes.volume(study, wire(across)) + gathered
    assert found == pytest.approx(bytes_, rel=1e-12)


def test_experts_do_not_meet() -> None:
    study: Any = Fake(workers=8.0)
    assert volumes.volume(study, wire(expert=True)) == pytest.approx(2 * REDUCED)


@pytest.mark.parametrize(
    ("choices", "keep_last", "elements"),
    [
        ({"reshards": False}, False, 800),
        ({"reshards": False}, True, 800),
        ({}, False, 800 + 750),
        ({}, True, 800 + 550),
        ({"once": True}, False, 800 + 600),
        ({"once": True}, True, 800 + 400),
    ],
)
def test_bytes_gathered_per_micro_batch(
    choices: dict[str, bool], keep_last: bool, elements: float, chosen: dict[str, bool]
) -> None:
    chosen.update(choices)
    study: Any = Fake(keep_last=keep_last)
    assert volumes._gathered_bytes(study, wire()) == 2 * elements
    if choices.get("once"):  # as a unit of both ends, which stays gathered too
        chosen["once"] = False
        root: Any = Fake(keep_last=keep_last, ends_together=True)
        assert volumes._gathered_bytes(root, wire()) == 2 * elements


def test_a_last_layer_that_is_kept_is_gathered_once() -> None:
    """150 before and 50 after are gathered forward, and the 150 again."""
    for layers, keep_last, elements in (
        (1, False, 400 + 350),
        (1, True, 400 + 150),
        (0, True, 200 + 150),
    ):
        one: Any = SimpleNamespace(kind=evolve(kind(), layers=layers))
        study: Any = Fake(keep_last=keep_last)
        assert volumes._gathered_bytes(study, one) == 2 * elements


def test_nothing_is_sent_where_nothing_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("shard_groups", "trained_groups"):
        monkeypatch.setattr(volumes, name, lambda _: [])
    monkeypatch.setattr(volumes, "stages_of_devices", lambda _: [(0,)])
    found = {f.name: f.value for f in volumes.figures(Fake(), outcome())}  # type: ignore[arg-type]
    assert [found[name] for name in ("dp_volume", "dp_volume_replicas", "gradient_bytes")] == [
        0
    ] * 3


@pytest.mark.parametrize(
    ("method", "bytes_"),
    [
        ("none", 3 / 4 * 800 * 4),
        ("summed", 3 / 4 * 800 * 6 / 8),
        ("exchanged", 3 / 4 * 800 * 0.5),
        ("top_k", 3 * 800 * 0.01 / 2),
        ("power_sgd", 3 / 4 * 800 * 0.7),
    ],
)
def test_bytes_of_a_reduction(method: str, bytes_: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(volumes, "SUMMED", {"summed": 6})
    monkeypatch.setattr(volumes, "EXCHANGED", {"exchanged"})
    monkeypatch.setattr(volumes, "quantised_bytes", lambda _: 0.5)
    monkeypatch.setattr(volumes, "top_k_bytes", lambda _: 0.01)
    monkeypatch.setattr(volumes, "low_rank", lambda *_: (0.3, 0.4))
    study: Any = Fake(method=method)
    assert volumes._reduction(study, wire()) == pytest.approx(bytes_, rel=1e-12)


def figures(study: Any, outcome: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    held = [wire(), wire(count=(0.0, 1.0), elements=400.0)]
    for name in ("shard_groups", "trained_groups"):
        monkeypatch.setattr(volumes, name, lambda _: held)
    monkeypatch.setattr(volumes, "stages_of_devices", lambda _: [(0,), (1,)])
    return {f.name: f.value for f in volumes.figures(study, outcome)}


def outcome(*lines: Any) -> Any:
    return SimpleNamespace(
        step_seconds=7.0, pipeline=SimpleNamespace(micro_batches=5.0), ledger=lines
    )


GIVEN = Formula(text="given")


def ledger_line(
    exposed: float, hidden: float = 0.0, tag: str = GRADIENTS, when: Any = "drain"
) -> Any:
    term = Once(name="x", seconds=1.0, formula=GIVEN, when=when, tag=tag)
    return SimpleNamespace(name="x", term=term, exposed=exposed, hidden=hidden, pass_=None)


def work(pass_: Any, exposed: float, hidden: float = 0.0) -> Any:
    term = Work(name="x", seconds=1.0, formula=GIVEN, pass_=pass_)
    return SimpleNamespace(name="x", term=term, exposed=exposed, hidden=hidden, pass_=pass_)


def test_the_figures_of_two_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """800 and 400 parameters, 16 ranks of each stage, 8 replicas."""
    found = figures(Fake(), outcome(), monkeypatch)
    replicas = 2 * 7 / 8 * 800 * 4
    expected = {
        "dp_volume": 2 * REDUCED,
        "dp_volume_replicas": replicas,
        "dp_volume_against_replicas": 2 * REDUCED / replicas,
        "dp_volume_total": 2 * REDUCED * 1.5 * 16,
        "gradient_bytes": 3200,
        "gradient_chunk": 400,
        "reduction_time": 0,
        "micro_batch_for_overlap": 1,
    }
    assert found == pytest.approx(expected, rel=1e-12)
    monkeypatch.setattr(volumes, "top_k_bytes", lambda _: 0.01)
    longer = figures(Fake(method="top_k", steps=1.5), outcome(), monkeypatch)
    assert longer["equivalent_step_time"] == 10.5


def test_how_well_a_reduction_hides(monkeypatch: pytest.MonkeyPatch) -> None:
    """8 s of it, 6 s hidden; five backward passes of 10 s in all, for a micro-batch of 3."""
    lines = [
        ledger_line(2.0, 6.0),
        ledger_line(100.0, 100.0, when="end"),
        ledger_line(100.0, 100.0, tag="other"),
        work("B", 4.0, 50.0),
        work("W", 5.0),
        work("F", 100.0),
    ]
    again = SimpleNamespace(**{**vars(work("B", 1.0)), "pass_": "R"})
    lines.append(again)
    found = figures(Fake(), outcome(*lines), monkeypatch)
    assert found["reduction_time"] == 8.0
    assert found["overlap_efficiency"] == pytest.approx(0.75)
    assert found["micro_batch_for_overlap"] == 12  # 3 x 8 / 2
    brief = figures(Fake(), outcome(ledger_line(0.125, 0.375), work("B", 0.5)), monkeypatch)
    assert (brief["reduction_time"], brief["overlap_efficiency"]) == (0.5, 0.75)
    assert brief["micro_batch_for_overlap"] == 15  # 3 x 0.5 / 0.1
    more = [ledger_line(0.1), *lines]
    assert figures(Fake(), outcome(*more), monkeypatch)["micro_batch_for_overlap"] == 13
