"""Values that no machine has: the answer comes at once, or the limit is reported."""

from __future__ import annotations

import time

import pytest

import parcost
from parcost import SpecError
from parcost_plugins.calculators.networks.sharing import ActiveFlow, finish
from parcost_plugins.physics.neighbours import all_divisors, divisors

from ..rows import try_each

JOB = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.mixtral_8x7b
use catalog.precisions.bf16
cluster {{ devices = {devices} }}
layout {{ {layout} }}
training {{ sequence = 4096, global_batch = 64 sequences }}
{more}
"""
RATE = "bandwidth = 1 GB/s per_direction"


def job(devices: float = 16, layout: str = "tp = 2", more: str = "") -> str:
    return JOB.format(devices=int(devices), layout=layout, more=more)


def ids(text: str) -> list[str]:
    began = time.process_time()
    try:
        found = parcost.load_text(text)[0].evaluate().diagnostics
    except SpecError as error:
        found = list(error.diagnostics)
    assert time.process_time() - began < 5
    return [d.id for d in found]


@pytest.mark.parametrize(
    "text, id_",
    [
        (job(1e9, "tp = 3"), "devices-divide"),
        (job(1e15 + 1, "tp = 3"), "devices-divide"),
        (
            job(layout="ep = 7", more="model mixtral_8x7b { experts = 1000000000 }"),
            "experts-divide",
        ),
        (
            job(layout="tp = 5", more="model mixtral_8x7b { heads = 1000000008, head_dim = 128 }"),
            "heads-divide",
        ),
        (job(layout="dp = 1e30"), "layout-product"),
        (job(layout="dp = 1e31"), "out-of-range"),
        (job(1e17), "out-of-range"),
        (job(more="model mixtral_8x7b { layers = 10000000 }"), "out-of-range"),
        (job(layout="pp = 2", more="model mixtral_8x7b { layers = 99991 }"), "layers-uneven"),
        (job(more="schedule { kind = interleaved, chunks = 10000000 }"), "out-of-range"),
        ("grid g { tp = 8, dp = 2, machine = 1e15 }", "out-of-range"),
        ("pipeline p { stages = 100000, micro_batches = 8, chunks = 100 }", "pipeline-size"),
        ("dispatch d { experts = 1e12, top_k = 1e12, ranks = 8, tokens = 1 }", "out-of-range"),
    ],
)
def test_an_oversized_study_is_refused_at_once(text: str, id_: str) -> None:
    assert id_ in ids(text)


def test_a_limit_is_printed_in_digits() -> None:
    with pytest.raises(SpecError) as caught:
        parcost.load_text(job(more="model mixtral_8x7b { layers = 10000000 }"))[0].evaluate()
    (said,) = caught.value.diagnostics
    assert said.message == "`layers` must be at most 100000"
    assert said.help == "the nearest legal value is 100000"


def test_layouts_of_a_machine_of_ten_million_devices_are_counted_at_once() -> None:
    """10^7 is 2^7 5^7. With tp = 2^a, a to 3, pp divides 2^(7 - a) 5^7: (8 - a) x 8 ways."""
    text = "grid g { tp = 8, dp = 2, machine = 10000000 }"
    assert not ids(text)
    result = parcost.load_text(text)[0].evaluate().result
    assert result.figure("g.layouts") == 8 * (8 + 7 + 6 + 5)


def test_layers_by_the_million_show_how_their_timeline_begins() -> None:
    spec = "fsdp f {{ layers = {}, forward = 1 ms, backward = 2 ms, gather = 3 ms }}"
    assert not ids(spec.format(10**9))
    few, many = (
        parcost.load_text(spec.format(n))[0].evaluate().result.sections[0][1] for n in (100, 10**6)
    )
    assert many.rows == few.rows
    # both passes, a gather before each layer of both, and a reduction after each backward
    assert [few.notes, many.notes] == [["436 more rows"], ["4999936 more rows"]]


@pytest.mark.slow
def test_many_flows_share_many_resources() -> None:
    names = [f"r{i}" for i in range(300)]
    text = "sharing s {\n" + "".join(f"resource {name} {{ {RATE} }}\n" for name in names)
    over = " ".join(names)
    flows = "".join(f'flow f{i} {{ bytes = {i + 1} GB, over = "{over}" }}\n' for i in range(300))
    began = time.process_time()
    result = parcost.load_text(text + flows + "}\n")[0].evaluate().result
    assert time.process_time() - began < 10
    assert result.figure("s.seconds") == pytest.approx(300 * 301 / 2)  # all bytes, at 1 GB/s
    assert result.figure("s.f0") == pytest.approx(300)  # 1 GB, while 300 have a share each
    more = "".join(f"resource q{i} {{ {RATE} }}\n" for i in range(100))
    assert ids(text + more + flows + "}\n") == ["sharing-size"]


def test_a_flow_that_starts_later_takes_its_share_from_then_on() -> None:
    first, second = (
        ActiveFlow(bytes_=4.0, over=["a"]),
        ActiveFlow(bytes_=1.0, over=["a"], start=2.0),
    )
    assert finish({"first": first, "second": second}, {"a": 1.0}) == {"second": 4.0, "first": 5.0}


@try_each("of", [1, 2, 36, 97, 1024, 5040])
def test_divisors_are_those_that_trying_each_finds(of: int) -> None:
    assert all_divisors(of) == [d for d in range(1, of + 1) if of % d == 0]


def test_divisors_of_what_takes_too_long_are_not_looked_for() -> None:
    assert divisors(1e9 + 8, 3.0) == "2 or 4"
    assert divisors(2.0**53, 3.0) == ""
