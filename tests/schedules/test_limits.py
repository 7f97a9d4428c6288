"""What schedules say of pipelines that they do not run in, in the user's words."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

import parcost
from parcost import PipelineShape, SpecError
from parcost.engine.orders import order_of

from ..rows import try_each

HALF = "with one chunk per device"
V_SHAPED = (
    "it has two model chunks per device, one on the way down and one on the way up: chunks = 2"
)


def shape_of(p: int, m: int, v: int) -> PipelineShape:
    return PipelineShape(stages=p, micro_batches=m, chunks=v)


@try_each(
    "name, p, m, v, why",
    [
        ("gpipe", 4, 8, 2, "it has one model chunk per device: chunks = 1"),
        ("one_f_one_b", 4, 8, 2, "it has one model chunk per device: chunks = 1"),
        ("interleaved", 4, 8, 1, f"{HALF} nothing interleaves: take chunks = 2, or one_f_one_b"),
        ("interleaved", 4, 10, 2, "micro-batches pass in groups of 4: use 8 or 12 micro-batches"),
        ("interleaved", 4, 3, 2, "micro-batches pass in groups of 4: use 4 micro-batches"),
        ("breadth_first", 4, 8, 1, f"{HALF} it is gpipe: choose chunks = 2, or gpipe"),
        ("zb_h1", 1, 8, 1, "one stage has no bubble to fill: take pp = 2 or more, or one_f_one_b"),
        ("zb_h2", 4, 8, 2, "it has one model chunk per device: chunks = 1"),
        ("zb_v", 1, 8, 2, "one stage has no bubble to fill: take pp = 2 or more, or one_f_one_b"),
        ("zb_v", 4, 8, 1, V_SHAPED),
        ("dualpipe", 4, 8, 2, "its two stages per device are its two directions: chunks = 1"),
        ("dualpipe", 5, 16, 1, "devices are used in mirrored pairs: pp = 4 or 6"),
        (
            "dualpipe",
            4,
            6,
            1,
            (
                "both directions take half of the micro-batches, and need at least "
                "2 pp = 8 to fill: use 8 micro-batches"
            ),
        ),
        (
            "dualpipe",
            4,
            11,
            1,
            (
                "both directions take half of the micro-batches, and need at least "
                "2 pp = 8 to fill: use 10 or 12 micro-batches"
            ),
        ),
        ("dualpipe_v", 4, 7, 2, "it takes 2 pp = 8 micro-batches to fill: use 8 micro-batches"),
        ("dualpipe_v", 4, 8, 1, V_SHAPED),
        ("chimera", 3, 6, 1, "devices are used in mirrored pairs: pp = 2 or 4"),
        ("chimera", 4, 6, 1, "micro-batches pass in units of pp = 4: use 4 or 8 micro-batches"),
        ("chimera", 4, 8, 2, "it has one model chunk per device: chunks = 1"),
    ],
)
def test_a_schedule_says_why_it_does_not_run_and_what_would(
    name: str, p: int, m: int, v: int, why: str, shipped: Any
) -> None:
    assert shipped[name].limits(shape_of(p, m, v)) == why


@pytest.mark.slow
@pytest.mark.parametrize("name, v", [("dualpipe", 1), ("dualpipe_v", 2)])
def test_what_the_limits_of_a_dual_pipe_let_through_has_an_order(
    name: str, v: int, shipped: Any
) -> None:
    """With one device the two directions never meet, and the order of one runs out."""
    schedule = shipped[name]
    sizes = product(range(1, 9), range(1, 41))
    legal = [(p, m) for p, m in sizes if not schedule.limits(shape_of(p, m, v))]
    assert all((1, m) in legal for m in range(2, 41)) == (name == "dualpipe_v")
    for p, m in legal:
        order_of(schedule, p, m, v, blocking=False)


SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_70b
use catalog.precisions.bf16
cluster  {{ devices = 32 }}
layout   {{ tp = 8, pp = 4, zero = 1, sequence_parallel = on }}
training {{ sequence = 8192, global_batch = {m} sequences }}
schedule {{ {schedule} }}
"""


def complaint(schedule: str, m: int = 16) -> str:
    (scenario,) = parcost.load_text(SPEC.format(schedule=schedule, m=m))
    try:
        found = scenario.check()
    except SpecError as error:
        found = error.diagnostics
    errors = [d.message for d in found if d.severity.value == "error"]
    return errors[0] if errors else ""


def test_a_group_that_does_not_fill_the_devices_is_refused() -> None:
    assert complaint("kind = interleaved, chunks = 2, group = 3") == (
        "`interleaved` does not run with pp 4 x chunks 2 = 8 and 16 micro-batches: "
        "a group of 3 micro-batches does not fill 4 devices: group = 4"
    )


def test_micro_batches_that_no_group_divides_are_refused_for_the_group_in_the_spec() -> None:
    assert complaint("kind = interleaved, chunks = 2, group = 8") == ""
    assert complaint("kind = interleaved, chunks = 2, group = 6") == (
        "`interleaved` does not run with pp 4 x chunks 2 = 8 and 16 micro-batches: "
        "micro-batches pass in groups of 6: use 12 or 18 micro-batches"
    )


def test_the_group_changes_memory_and_time() -> None:
    text = SPEC.format(schedule="kind = interleaved, chunks = 2, group = [4, 8, 16]", m=16)
    (scenario,) = parcost.load_text(text)
    results = scenario.evaluate().results
    alive = [result.outcome.alive[0] for result in results if result.outcome]
    # The first device starts 2 (p - 1) + g + 1 chunks, of which the first chunk has g and p more
    # once the second one's turn is over.
    assert alive[0] < alive[1] < alive[2]


def test_blocking_messages_take_longer_than_overlapped_ones() -> None:
    times = {}
    for transfers in ("overlapped", "blocking"):
        text = SPEC.format(schedule=f"transfers = {transfers}", m=16)
        (scenario,) = parcost.load_text(text)
        times[transfers] = scenario.evaluate().result.figure("step_time")
    assert times["overlapped"] < times["blocking"]
