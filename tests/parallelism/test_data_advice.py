"""What a checklist of replicas says, row by row, and which ZeRO stage is taken.

Two ranks reduce 4 GB in four buckets of a second each, the last of which nothing hides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from parcost import Formula, Section, Study, Work
from parcost.engine.reduce import evaluate
from parcost_plugins.parallelism.data.zero_stages import _recommendation
from parcost_plugins.vocabulary import Parameters

from ..rows import mark_most

Bind = Callable[..., Study]

PAIR = {"cluster.devices": 2, "training.global_batch": 2, "overlap.gradients": "on"}


def sections(
    bind: Bind, values: dict[str, Any], text: str = "", elements: float = 1e9
) -> dict[str, Section]:
    held = [Parameters(name="all", elements=elements, total=elements, count=(1.0,))]
    work = [
        Work(name=pass_, seconds=10.0, pass_=pass_, formula=Formula(text="given"))
        for pass_ in ("F", "B", "W")
    ]
    study = bind({**PAIR, **values}, text, parameters=held, terms=work)
    asked = study.plugins.ask("sections", study=study, outcome=evaluate(study), brief=False)
    found = {section.title: section for _, section in asked}
    assert study.faults == []
    return found


def checklist(bind: Bind, values: dict[str, Any], **more: Any) -> dict[Any, Any]:
    rows = sections(bind, values, **more)["Checklist of data parallelism"].rows
    return {row[0]: tuple(row[1:]) for row in rows}


START_UP = "transfer time of a bucket exceeds its latency"
MAY_HIDE, HIDES = (
    "gradient reduction overlaps with backward",
    "share of the gradient reduction that is hidden",
)
LARGER = "larger micro-batches hide more of it"
ACCUMULATE = "micro-batches per gradient reduction"
NARROW = "bytes per reduced gradient"
VIEWS = "buckets are views of the gradients"
ROOM = "peak memory is within the limit"
LINK = "link between replicas"


@pytest.mark.slow
def test_a_checklist_says_what_was_found(bind: Bind) -> None:
    rows = checklist(bind, {})
    memory = rows[ROOM][0][0]
    assert rows == {
        START_UP: ((1e9, "B"), "yes", "at least 0 MB: ranks x latency x bandwidth"),
        MAY_HIDE: ("on", "yes", ""),
        HIDES: ((0.75, "%"), "no", LARGER),
        ACCUMULATE: (1.0, "no", "one micro-batch: every backward pass is followed by a reduction"),
        NARROW: ((4.0, "B"), "no", "16 bits halve the bytes, with rounding errors"),
        VIEWS: ("on", "yes", ""),
        ROOM: ((memory, "GiB"), "yes", ""),
        LINK: ("net", (1e9, "B/s"), "per rank and direction"),
    }


def test_a_checklist_says_what_was_chosen_otherwise(bind: Bind) -> None:
    # room for 2 GiB of 18 GB and more
    rows = checklist(
        bind,
        {
            "overlap.gradients": "off",
            "training.global_batch": 4,
            "mixed.reduction": 2,
            "sharding.bucket_copy": "on",
            "plain.memory": 4 * 2**30,
            "memory.usable": 0.5,
            "memory.margin": 0,
        },
    )
    assert rows[MAY_HIDE] == ("off", "no", "")
    assert rows[HIDES] == ((0.0, "%"), "no", LARGER)
    assert rows[ACCUMULATE] == (2.0, "yes", "")
    assert rows[NARROW] == ((2.0, "B"), "yes", "")
    assert rows[VIEWS] == ("off", "no", "copies need the memory of the gradients again")
    assert rows[ROOM][1:] == ("no", "more than 2 GiB: increase the ZeRO stage")


@pytest.mark.slow
@pytest.mark.parametrize(("bucket", "enough"), [(4e6, "yes"), (3.9e6, "no")])
def test_a_bucket_outweighs_what_all_ranks_take_to_start(
    bind: Bind, bucket: float, enough: str
) -> None:
    """Two ranks of 2 ms each at 1 GB/s: 4 MB."""
    rows = checklist(bind, {"overlap.bucket": bucket, "wire.net.latency": 2e-3})
    assert rows[START_UP] == ((bucket, "B"), enough, "at least 4 MB: ranks x latency x bandwidth")


@pytest.mark.parametrize(("target", "hides"), [(0.25, "yes"), (0.2, "no")])
def test_a_reduction_hides_that_exposes_no_more_than_the_target(
    bind: Bind, target: float, hides: str
) -> None:
    rows = checklist(bind, {"targets.exposed": target})
    assert rows[HIDES][:2] == ((0.75, "%"), hides)


def test_a_share_is_rounded_to_a_millionth(bind: Bind) -> None:
    rows = checklist(bind, {"overlap.bucket": 1.4e9})
    assert rows[HIDES][0] == (0.666667, "%")


@pytest.mark.slow
@pytest.mark.parametrize(("size", "narrow"), [(2, "yes"), (3, "no")])
def test_no_more_than_two_bytes_are_16_bits(bind: Bind, size: int, narrow: str) -> None:
    assert checklist(bind, {"mixed.reduction": size})[NARROW][1] == narrow


def test_under_zero_2_what_every_micro_batch_reduces_counts(bind: Bind) -> None:
    """Four buckets of half a second in each of two micro-batches, the last in the open."""
    rows = checklist(bind, {"layout.zero": 2, "training.global_batch": 4})
    assert rows[HIDES][0] == (0.75, "%")
    assert VIEWS not in rows


def test_traffic_of_zero_bytes_counts_as_hidden(bind: Bind) -> None:
    rows = checklist(bind, {"local_updates.workers": 2, "local_updates.period": 10})
    assert rows[HIDES] == ((1.0, "%"), "yes", "")


@pytest.mark.parametrize(
    ("values", "shown"),
    mark_most(
        [
            ({}, True),
            ({"layout.cp": 2, "training.global_batch": 1}, True),  # they hold the same too
            ({"layout.zero": 2}, True),
            ({"layout.zero": 3}, False),
            ({"layout.tp": 2, "training.global_batch": 1}, False),
        ]
    ),
)
def test_a_checklist_is_of_several_replicas_that_keep_their_parameters(
    bind: Bind, values: dict[str, Any], shown: bool
) -> None:
    assert ("Checklist of data parallelism" in sections(bind, values)) == shown


# --- ZeRO stages --------------------------------------------------------------------------

PLAN = "plan { }\n"


@pytest.mark.slow
def test_stages_are_compared_with_a_plan_block(bind: Bind) -> None:
    assert "ZeRO stages" not in sections(bind, {})
    section = sections(bind, {"plain.memory": 15e9}, PLAN)["ZeRO stages"]
    assert [row[0] for row in section.rows] == ["ZeRO 0", "ZeRO 1", "ZeRO 2", "ZeRO 3"]
    # 2 + 4 + 12 B a parameter, of which two ranks share 12, 16 and 18
    fits = ["no" if row[1][0] > 15e9 else "yes" for row in section.rows]
    assert [row[2] for row in section.rows] == fits
    assert fits[0] == "no"
    assert fits[3] == "yes"
    # half of 4 GB twice; once, and half of 2 GB; twice that with ZeRO 3
    assert [row[3][0] for row in section.rows] == pytest.approx([4e9, 3e9, 3e9, 4e9])
    assert [row[4] for row in section.rows] == pytest.approx([1, 3 / 4, 3 / 4, 1])


@pytest.mark.slow
def test_stages_that_fill_the_memory_fit(bind: Bind) -> None:
    section = sections(bind, {}, PLAN)["ZeRO stages"]
    exact = section.rows[0][1][0]
    full = sections(bind, {"plain.memory": exact}, PLAN)
    assert full["ZeRO stages"].rows[0][2] == "yes"
    last = {row[0]: row for row in full["Checklist of data parallelism"].rows}
    assert last[ROOM][2] == "yes"


@pytest.mark.slow
def test_a_model_without_gradients_sends_as_much_as_replicas(bind: Bind) -> None:
    section = sections(bind, {}, PLAN, elements=0.0)["ZeRO stages"]
    assert [row[4] for row in section.rows] == [1.0] * 4


@pytest.mark.slow
@pytest.mark.parametrize(("values", "rows"), [("0, 1", 2), ("0", None)])
def test_one_stage_alone_is_compared_with_nothing(
    bind: Bind, values: str, rows: int | None
) -> None:
    text = f'framework ours {{ offers zero {{ attribute = "layout.zero", values = "{values}" }} }}'
    found = sections(bind, {}, PLAN + text).get("ZeRO stages")
    assert (len(found.rows) if found else None) == rows


@pytest.mark.parametrize(
    ("seconds", "stage"), [((1.25, 1.2, 1.0), 0), ((1.26, 1.2, 1.0), 1), ((2.0, 1.5, 1.0), 2)]
)
def test_the_least_stage_is_taken_that_none_is_a_quarter_faster_than(
    seconds: tuple[float, ...], stage: int
) -> None:
    fitting = [(s, zero) for zero, s in enumerate(seconds)]
    assert _recommendation(fitting, 0.25) == (
        f"use ZeRO {stage}: no other stage that fits is more than 25 % faster"
    )


def test_zero_2_reduces_after_each_micro_batch(bind: Bind) -> None:
    given = {"layout.zero": 2, "training.global_batch": 8, "sharding.accumulate": "shard"}
    rows = checklist(bind, given)
    why = "the framework reduces gradients after each micro-batch"
    assert rows[ACCUMULATE] == (1.0, "no", why)
    whole = checklist(bind, {**given, "sharding.accumulate": "whole"})
    assert whole[ACCUMULATE] == (4.0, "yes", "")
