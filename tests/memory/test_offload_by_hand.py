"""Bytes and seconds of what is kept on the host, from blocks of round numbers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from parcost import Work
from parcost_plugins.memory import offload
from parcost_plugins.physics.stage_parameters import StageKind, stage_range
from parcost_plugins.vocabulary import Cluster, Layout, LocalUpdates, Offload, Sharding, Training

from ..rows import try_each


def kind(stages: tuple[int, ...] = (0,), of: int = 1) -> StageKind:
    """Return 1000 parameters that 8 ranks hold alike, of which 4 share what ZeRO shards."""
    return StageKind(
        stages="" if len(stages) == of else stage_range(stages),
        count=tuple(float(x in stages) for x in range(of)), held=[], layers=1, layer=1000.0, matrix=0.0, before=0.0, after=0.0,
        elements=1000.0, linear=0.0, group="data", replicas=8.0, shard=4.0,
        wire=dict.fromkeys(("before", "layer", "after"), 2.0),
    )  # fmt: skip


class Fake(dict[Any, Any]):
    """2 B of weights, 4 B of gradients and 12 B of optimizer state a parameter."""

    def __init__(self, *, zero: int = 0, local: dict[str, Any] | None = None, **said: Any) -> None:
        plain = {
            "optimizer": 0.0, "parameters": 0.0, "activations": 0.0, "update": "device",
            "overlap": True, "host_memory_bandwidth": None, "host_memory": None,
        }  # fmt: skip
        device = SimpleNamespace(host_bandwidth=said.pop("link", 50.0))
        super().__init__(
            {
                Offload: SimpleNamespace(**{**plain, **said}),
                LocalUpdates: SimpleNamespace(
                    **{
                        "offload": False,
                        "method": "none",
                        "outer_state": 8.0,
                        "workers": 2.0,
                        **(local or {}),
                    }
                ),
                Training: SimpleNamespace(
                    framework=SimpleNamespace(host_sums="none", update_gradients=0.0),
                    precision=SimpleNamespace(
                        weights=2.0,
                        wide_weights=2.0,
                        gradients=4.0,
                        optimizer=12.0,
                        host_update_traffic=30.0,
                    ),
                ),
                Layout: SimpleNamespace(zero=zero),
                Sharding: SimpleNamespace(accumulate="shard", reshard=True),
                Cluster: SimpleNamespace(device=device),
            }
        )


OUTER = {"offload": True, "method": "outer"}


@try_each(
    "said, bytes_",
    [
        ({}, 0.0),
        ({"optimizer": 0.5}, 6000.0),
        ({"optimizer": 0.5, "update": "host"}, 8000.0),  # and the gradients that it works on
        ({"optimizer": 0.5, "zero": 1}, 1500.0),
        ({"optimizer": 0.5, "zero": 3}, 1500.0),
        ({"parameters": 0.5}, 1000.0),
        ({"parameters": 0.5, "zero": 2}, 1000.0),
        ({"parameters": 0.5, "zero": 3}, 250.0),
        ({"parameters": 0.5, "optimizer": 0.5, "zero": 3}, 1750.0),
        ({"local": OUTER}, 8000.0),
        ({"local": OUTER, "optimizer": 0.5}, 14000.0),
        ({"local": OUTER, "zero": 1}, 2000.0),
        ({"local": {**OUTER, "workers": 1.0}}, 0.0),  # nobody to meet
        ({"local": {"offload": True}}, 0.0),
        ({"local": {"method": "outer"}}, 0.0),
    ],
)
def test_the_state_that_a_host_keeps(said: dict[str, Any], bytes_: float) -> None:
    assert offload._state(Fake(**said), kind()) == pytest.approx(bytes_)  # type: ignore[arg-type]


def test_the_fullest_host_keeps_the_stages_of_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """State of 6 kB on stages 0 and 3; a half of 100 and 300 B, of which 4 and 1 are alive."""
    monkeypatch.setattr(offload, "virtual_stages", lambda _: 4)
    for name in ("stage_kinds", "trained_kinds"):
        monkeypatch.setattr(offload, name, lambda *_: [kind((0, 3), 4), kind((3,), 4)])
    monkeypatch.setattr(offload, "_activation_bytes", lambda _: [100.0, 300.0, 0.0, 0.0])
    outcome: Any = SimpleNamespace(alive=[4.0, 1.0, 1.0, 1.0])
    for devices, expected in (
        ([(0, 1), (2,)], 6000 + 200 + 150),
        ([(2,), (0, 1)], 6000 + 200 + 150),
        ([(1,), (0, 2)], 6000 + 200),
        ([(0, 2), (1, 3)], 12000 + 150),
    ):
        monkeypatch.setattr(offload, "stages_of_devices", lambda _, found=devices: found)
        study: Any = Fake(optimizer=0.5, activations=0.5)
        assert offload.host_bytes(study, outcome) == pytest.approx(expected)
        (figure,) = offload.details(study, outcome, brief=False)
        assert figure.value == pytest.approx(expected)
    still: Any = Fake(optimizer=0.5)
    assert offload.host_bytes(still, outcome) == pytest.approx(12000)  # activations stay
    assert offload.host_bytes(Fake(), outcome) == 0.0  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"optimizer": 0.5}, {"optimizer state from and to the host": (6000.0, 50.0)}),
        ({"optimizer": 0.5, "zero": 1}, {"optimizer state from and to the host": (1500.0, 50.0)}),
        (
            {"optimizer": 0.5, "update": "host", "host_memory_bandwidth": 100.0},
            {
                "gradients to the host": (2000.0, 50.0),
                "optimizer update on the host": (15000.0, 100.0),
                "updated parameters from the host": (1000.0, 50.0),
            },
        ),
        (
            {"optimizer": 0.5, "update": "host", "zero": 2},
            {
                "gradients to the host": (500.0, 50.0),
                "updated parameters from the host": (250.0, 50.0),
            },
        ),
        ({"optimizer": 0.5, "link": None}, {}),
        ({"parameters": 0.5, "zero": 2}, {}),
        ({}, {}),
    ],
)
def test_what_travels_for_the_optimizer(
    said: dict[str, Any], expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("stage_kinds", "trained_kinds"):
        monkeypatch.setattr(offload, name, lambda *_: [kind()])
    found: Any = [*offload.terms(Fake(**said))]  # type: ignore[arg-type]
    assert {t.name: t.bytes_ for t in found} == {n: b for n, (b, _) in expected.items()}
    for term in found:
        bytes_, rate = expected[term.name]
        assert term.seconds == pytest.approx(bytes_ / rate)


def test_parameters_come_for_each_pass_that_gathers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of 1000 parameters of 2 B over the 4 ranks of a shard, at 50 B/s."""
    for name in ("stage_kinds", "trained_kinds"):
        monkeypatch.setattr(offload, name, lambda *_: [kind()])
    for again, passes in ((True, ["F", "B"]), (False, ["F"])):
        monkeypatch.setattr(offload, "reshards", lambda _, again=again: again)
        for overlap, window in ((True, ""), (False, None)):
            study: Any = Fake(parameters=0.5, zero=3, overlap=overlap)
            found: Any = [term for term in offload.terms(study) if isinstance(term, Work)]
            assert [t.pass_ for t in found] == passes
            assert [(t.bytes_, t.seconds, t.window) for t in found] == [(250.0, 5.0, window)] * len(
                passes
            )


def test_activations_travel_by_the_size_of_their_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    def names(saved: list[Any]) -> list[Any]:
        monkeypatch.setattr(offload, "_activation_bytes", lambda _: saved)
        terms: Any = offload.terms(Fake(activations=0.5))  # type: ignore[arg-type]
        return [(t.name, t.pass_, t.bytes_, t.seconds, [*t.count]) for t in terms]

    assert names([100.0, 100.0]) == [
        ("activations to the host", "F", 50.0, 1.0, [1, 1]),
        ("activations back", "B", 50.0, 1.0, [1, 1]),
    ]
    assert names([100.0, 200.0, 100.0]) == [
        ("activations to the host, stages 0, 2", "F", 50.0, 1.0, [1, 0, 1]),
        ("activations back, stages 0, 2", "B", 50.0, 1.0, [1, 0, 1]),
        ("activations to the host, stage 1", "F", 100.0, 2.0, [0, 1, 0]),
        ("activations back, stage 1", "B", 100.0, 2.0, [0, 1, 0]),
    ]
    array, equal, other = np.array([1.0, 2.0]), np.array([1.0, 2.0]), np.array([1.0, 3.0])
    assert len(names([array, equal])) == 2  # as a single evaluation of any point
    assert len(names([array, other])) == 4


def test_tensors_saved_in_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "virtual_stages", lambda _: 2)

    def memory(
        bytes_: float, count: Any, *moments: str, often: bool = True, resident: bool = False
    ) -> Any:
        return None, SimpleNamespace(
            bytes_=bytes_, count=count, moments=moments, per_micro_batch=often, resident=resident
        )

    parts = [
        memory(10.0, 3, "forward"),
        memory(100.0, (1.0, 2.0), "forward", "backward"),
        memory(1000.0, 1, "backward"),
        memory(1000.0, 1, "forward", often=False),
        memory(1000.0, 1, "forward", "loss", resident=True),  # of the head
    ]
    study: Any = SimpleNamespace(contributions=lambda _: parts)
    assert offload._activation_bytes(study) == [130.0, 230.0]


def failures(**said: Any) -> list[tuple[str, Any]]:
    study: Any = Fake(**said)
    return [
        (check.id, check.inputs.get("share"))
        for check in offload.checks(study)
        if not np.all(check.holds)
    ]


def test_rules_of_what_is_offloaded() -> None:
    assert failures() == []
    assert failures(optimizer=0.25) == []
    assert failures(optimizer=0.25, link=None) == [("offload-needs-host-bandwidth", 25.0)]
    assert failures(activations=0.5, link=None) == [("offload-needs-host-bandwidth", 50.0)]
    assert failures(parameters=0.5, zero=3) == []
    assert failures(parameters=0.5, zero=2) == [("offload-needs-sharding", None)]
    rate = "offload-needs-host-memory-bandwidth"
    assert failures(optimizer=0.25, update="host") == [(rate, 25.0)]
    assert failures(optimizer=0.25, update="host", host_memory_bandwidth=1.0) == []
    assert failures(update="host") == []
    assert failures(local={"offload": True}) == []
    assert failures(local={"offload": True}, link=None) == [("offload-needs-host-bandwidth", None)]
    # points of a sweep: none, and a half
    shares = np.array([0.0, 0.5])
    sweeps: list[Any] = [{"parameters": shares, "zero": 2}, {"optimizer": shares, "update": "host"}]
    for said in sweeps:
        study: Any = Fake(**said)
        broken = [c for c in offload.checks(study) if not np.all(c.holds)]
        assert [[*map(bool, np.broadcast_to(c.holds, 2))] for c in broken] == [[True, False]]
    without: Any = Fake(activations=shares, link=None)
    (check,) = offload.checks(without)
    assert np.array_equal(check.holds, [True, False])


def test_a_host_holds_as_much_as_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    GiB = 2.0**30
    monkeypatch.setattr(offload, "host_bytes", lambda *_: 3 * GiB)
    outcome: Any = None
    for room, holds in ((2.9, False), (3.0, True), (3.1, True)):
        fake: Any = Fake(optimizer=0.5, host_memory=room * GiB)
        (check,) = offload.outcome_checks(fake, outcome)
        assert check.holds is holds
        assert check.inputs == {"needs": 3.0, "room": pytest.approx(room)}
    assert [*offload.outcome_checks(Fake(), outcome)] == []  # type: ignore[arg-type]


def test_a_share_of_activations_leaves_the_device() -> None:
    (found,) = offload.memory(Fake(activations=0.25))  # type: ignore[arg-type]
    assert (found.bytes_, found.of_activations) == (0.0, -0.25)
    assert [*offload.memory(Fake())] == []  # type: ignore[arg-type]
