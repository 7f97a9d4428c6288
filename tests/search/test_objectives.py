"""What layouts are compared by and limited to, for a step of two million tokens by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import parcost
from parcost_plugins.search_space.goal import limits, rules
from parcost_plugins.search_space.objective import all_of, flops_per_token, peak_of
from parcost_plugins.vocabulary import Cluster, Price, Search, Training

from ..rows import try_each


class Fake(dict[Any, Any]):
    """1000 sequences of 2000 tokens on 100 devices of 6 PFLOP/s: 6 TFLOP a token."""

    flops = (SimpleNamespace(per_token=1.5e12), SimpleNamespace(per_token=0.5e12))

    def __init__(self, *, compute: str = "bf16", **search: Any) -> None:
        names = ["most_memory", "longest_step", "most_devices", "least_tokens_per_second"]
        names += ["deadline", "tokens", "least_mfu"]
        super().__init__(
            {
                Search: SimpleNamespace(**{**dict.fromkeys(names), "headroom": 0.0, **search}),
                Cluster: SimpleNamespace(
                    devices=100.0, device=SimpleNamespace(bf16=6e15, fp8=None)
                ),
                Training: SimpleNamespace(
                    global_batch=1000.0,
                    sequence=2000.0,
                    precision=SimpleNamespace(compute=compute),
                ),
            }
        )


def test_time_of_a_token() -> None:
    study: Any = Fake()
    assert flops_per_token(study) == 6e12  # forward and twice as much backward
    assert (peak_of(study), peak_of(Fake(compute="fp8"))) == (6e15, None)  # type: ignore[arg-type]


def test_every_objective_by_its_cost_and_value() -> None:
    """A step of 40 s is 2 ms of a device for a token, of which 1 ms is ideal."""
    study: Any = Fake()
    study[Price] = SimpleNamespace(device_hour=3.0 / 3600)  # of a second
    found = {one.name: one for one in all_of(study)}
    values = {name: one.value(one.cost(40.0)) for name, one in found.items()}
    assert values == {
        "step_time": 40.0,
        "tokens_per_second_per_device": pytest.approx(500.0, rel=1e-12),
        "mfu": pytest.approx(0.5, rel=1e-12),
        # a million tokens are 2000 s of a device
        "cost_per_million_tokens": pytest.approx(2000 * 3.0 / 3600, rel=1e-12),
        "fewest_devices": 100.0,
    }
    assert [name for name, one in found.items() if one.largest] == [
        "tokens_per_second_per_device", "mfu"
    ]  # fmt: skip
    assert found["mfu"].cost(40.0) == pytest.approx(2.0)
    fewest = found["fewest_devices"]
    costs = [fewest.cost(seconds) for seconds in (0.0, 1.0, 3.0, 99.0)]
    assert costs == pytest.approx([100.0, 100.5, 100.75, 100.99])
    assert [fewest.value(cost) for cost in costs] == [100.0] * 4
    every = list(all_of(Fake(compute="fp8")))  # type: ignore[arg-type]
    assert [one.needs for one in every if one.needs] == [
        "the peak `fp8` of the device", "`price { device_hour = 2.50 USD/h }`"
    ]  # fmt: skip
    bare = [one.name for one in every if not one.needs]
    assert bare == ["step_time", "tokens_per_second_per_device", "fewest_devices"]


@try_each(
    "search, says, longest",
    [
        ({"longest_step": 1.5}, "step <= 1.5 s", 1.5),
        # of 2e6 tokens a step
        ({"least_tokens_per_second": 5e5}, "tokens per second >= 500000", 4.0),
        # 2e6 of 1e9 tokens in a day of 86400 s
        ({"deadline": 86400.0, "tokens": 1e9}, "1e+09 tokens within 1 days", 172.8),
        # 6e12 x 2e6 FLOP on 100 devices at half of 6e15
        ({"least_mfu": 0.5}, "MFU >= 50 %", 40.0),
    ],
)
def test_the_longest_step_of_a_limit(search: dict[str, float], says: str, longest: float) -> None:
    (found,) = limits(Fake(**search))  # type: ignore[arg-type]
    assert (found.name, found.says) == (next(iter(search)), says)
    assert found.holds(longest, 0.0)
    assert found.holds(longest * (1 - 1e-12), 1e99)
    assert not found.holds(longest * (1 + 1e-12), 0.0)


def test_a_limit_of_memory_and_of_devices() -> None:
    (memory,) = limits(Fake(most_memory=3 * 2.0**30))  # type: ignore[arg-type]
    assert memory.says == "memory <= 3 GiB"
    assert [memory.holds(1e99, 2.0**30 * n) for n in (2.9, 3, 3.1)] == [True, True, False]
    for most, holds in ((99.0, False), (100.0, True), (101.0, True)):
        (devices,) = limits(Fake(most_devices=most))  # type: ignore[arg-type]
        assert (devices.says, devices.holds(1.0, 1.0)) == (f"devices <= {most:g}", holds)


def test_limits_that_cannot_be_judged() -> None:
    nothing: list[Any] = [
        {},
        {"deadline": 1.0},
        {"tokens": 1.0},
        {"least_mfu": 0.5, "compute": "fp8"},
    ]
    for search in nothing:
        assert [*limits(Fake(**search))] == []  # type: ignore[arg-type]
    for search, lacks in (({"deadline": 1.0}, "tokens"), ({"tokens": 1.0}, "deadline")):
        (check,) = rules(Fake(**search))  # type: ignore[arg-type]
        assert (check.holds, check.inputs["lacks"]) == (False, lacks)
        assert check.subject == f"search.{next(iter(search))}"
    assert [*rules(Fake())] == []  # type: ignore[arg-type]
    assert [*rules(Fake(deadline=1.0, tokens=1.0))] == []  # type: ignore[arg-type]


def test_degrees_that_a_search_tries_divide_and_end() -> None:
    """4,160 is 64 x 65: 65 ranks or sequences are more than the 64 that are tried."""
    (found,) = parcost.load_text("""
    use catalog.devices.h100_sxm
    use catalog.fabrics.hgx_h100
    use catalog.models.mixtral_8x7b
    use catalog.precisions.bf16
    cluster  { devices = 4160 }
    training { sequence = 4160, micro_batch = 1, global_batch = 4160 sequences }
    """)
    axes = {axis.attribute: axis for _, axis in found.studies()[0].contributions("axes")}
    up_to_64 = [n for n in range(1, 65) if 4160 % n == 0]
    assert list(axes["layout.cp"].values) == up_to_64
    assert list(axes["training.micro_batch"].values) == up_to_64
    assert list(axes["layout.tp"].values) == [1, 2, 4, 8, 16, 32]  # of 32 heads
    assert list(axes["layout.etp"].values) == [1, 2, 4, 8]
    assert list(axes["layout.ep"].values) == [1, 2, 4, 8]  # of 8 experts
