"""What crosses stages, number by number, and what rules of layers and orders say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import parcost
from parcost import LONGEST_ORDER, Edge, Op, PipelineShape, Schedule, Study, Work
from parcost.engine.rules import diagnose
from parcost_plugins.parallelism.pipeline import _ways_to_divide

from ..evaluation import details_of
from ..rows import try_each

Bind = Callable[..., Study]


def checks(study: Study) -> dict[str, Any]:
    found = {check.id: check for _, check in study.contributions("checks")}
    assert study.faults == []
    return found


def failures(study: Study, *ids: str) -> dict[str, Any]:
    return {
        id_: diagnose(check, study)
        for id_, check in checks(study).items()
        if id_ in ids and not np.all(check.holds)
    }


# --- hops ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "sent", "backward"),
    [
        ("whole", 1, None),
        ("scattered", 1 / 4, 1.0),
        ("partitioned", 1 / 4, 2.0),
        ("partitioned_forward", (1 / 4 + 1) / 2, 1.0),  # a share forward, the whole gradient back
    ],
)
def test_ranks_that_send_their_shares_gather_the_whole(
    bind: Bind, messages: str, sent: float, backward: float | None
) -> None:
    """4 ranks send a fourth each of 1024 tokens x 1024 x 2 B; 3 of 4 stages receive, 3 send."""
    values = {
        "cluster.devices": 16,
        "layout.pp": 4,
        "layout.tp": 4,
        "schedule.messages": messages,
        "training.global_batch": 8,
    }
    study = bind(values)
    found = [t for _, t in study.contributions("terms")]
    (edge,) = (t for t in found if isinstance(t, Edge))
    whole = 1024 * 1024 * 2
    assert edge.bytes_ == whole * sent
    gathers = [t for t in found if isinstance(t, Work) and "all-gather of a" in t.name]
    of = {p: [t for t in gathers if t.pass_ == p] for p in "FB"}
    assert len(of["F"]) == (backward is not None)
    assert len(of["B"]) == (backward or 0)
    expected = study.collective("all_gather", float(whole), "tp", "auto").seconds
    for gather in gathers:
        assert gather.bytes_ == whole
        assert gather.seconds == pytest.approx(expected, rel=1e-12)
        counts = tuple(
            gather.count.for_study(study) if hasattr(gather.count, "for_study") else gather.count
        )
        assert counts == ((0, 1, 1, 1) if gather.pass_ == "F" else (1, 1, 1, 0))


@pytest.mark.parametrize(("sequence_parallel", "shards"), [("on", 2.0), ("off", 1.0)])
def test_the_formula_of_a_hop_has_its_sizes(
    bind: Bind, sequence_parallel: str, shards: float
) -> None:
    """512 of 1024 tokens on a rank, 3 sequences, a width of 1024 and 2 B."""
    values = {
        "cluster.devices": 8,
        "layout.pp": 2,
        "layout.tp": 2,
        "layout.cp": 2,
        "layout.sequence_parallel": sequence_parallel,
        "training.micro_batch": 3,
        "training.global_batch": 12,
    }
    (edge,) = (t for _, t in bind(values).contributions("terms") if isinstance(t, Edge))
    assert edge.bytes_ == 512 * 3 * 1024 * 2 / shards
    inputs = {symbol: edge.formula.parts["n"].inputs[symbol] for symbol in "sbhet"}
    assert inputs == {
        "s": (512.0, ""),
        "b": (3.0, ""),
        "h": (1024.0, ""),
        "e": (2.0, "B"),
        "t": (shards, ""),
    }


def crossing(kind: str, pp: int, chunks: int) -> dict[str, float]:
    """Return the figures of a study of five micro-batches of 3 x 1024 tokens, of 2048 x 2 B."""
    (scenario,) = parcost.load_text(
        f"""
        use catalog.devices.h100_sxm
        use catalog.precisions.bf16
        model small {{ layers = 24, hidden = 2048, heads = 16, vocabulary = 1024 }}
        fabric wire {{ level net {{ bandwidth = 1 GB/s per_direction, latency = 1 ms }} }}
        cluster {{ devices = {pp} }}
        layout {{ pp = {pp} }}
        schedule {{ kind = {kind}, chunks = {chunks} }}
        training {{ sequence = 1024, micro_batch = 3, global_batch = 30 sequences }}
        """
    )
    study = scenario.first
    found = details_of(study, study.evaluate())
    return {f.name: float(f.value) for plugin, f in found if plugin.name == "pipeline"}


@pytest.mark.parametrize(
    ("kind", "pp", "chunks", "boundaries"),
    [
        ("one_f_one_b", 2, 1, 1),
        ("interleaved", 2, 3, 5),  # 0 1 0 1 0 1
        ("zb_v", 4, 2, 6),  # 0 1 2 3 3 2 1 0
        ("dualpipe", 4, 1, 3),  # either way
    ],
)
def test_what_crosses_in_a_step(kind: str, pp: int, chunks: int, boundaries: int) -> None:
    message, m = 3 * 1024 * 2048 * 2, 10
    assert crossing(kind, pp, chunks) == pytest.approx(
        {
            "pp_send_recv_bytes": message,
            "pp_send_recv_seconds": 1e-3 + message / 1e9,
            "pp_transfers_per_boundary": 2 * m * chunks,
            "pp_volume_per_boundary": 2 * m * chunks * message,
            "pp_time_per_boundary": 2 * m * chunks * (1e-3 + message / 1e9),
            "pp_volume": boundaries * 2 * m * message,
        }
    )


def test_one_stage_has_no_boundary() -> None:
    assert crossing("one_f_one_b", 1, 1) == {}


def test_a_step_is_cut_beside_calculations_too() -> None:
    (scenario,) = parcost.load_text(
        """
        use catalog.devices.h100_sxm
        use catalog.fabrics.hgx_h100
        use catalog.models.llama3_8b
        use catalog.precisions.bf16
        cluster { devices = 8 }
        training { sequence = 1024, global_batch = 16 sequences }
        exchange e { elements = 1e9, ranks = 8 }
        """
    )
    assert scenario.first.calculates
    assert (scenario.first.pipeline.stages, scenario.first.pipeline.micro_batches) == (1, 2.0)


# --- layers -------------------------------------------------------------------------------


@try_each("pp, chunks, alone", [(1, 1, False), (1, 2, True), (2, 1, False), (2, 2, False)])
def test_chunks_take_turns_between_stages(bind: Bind, pp: int, chunks: int, alone: bool) -> None:
    study = bind({"layout.pp": pp, "schedule.chunks": chunks})
    assert bool(failures(study, "chunks-alone")) == alone


BOTH = {"schedule.count_embedding": "on", "schedule.count_head": "on"}


@try_each(
    "values, most",
    [
        ({"layout.pp": 8, "schedule.assignment": "front"}, None),  # eight layers on eight stages
        ({"layout.pp": 4, "schedule.chunks": 2, "schedule.assignment": "front"}, None),
        ({"layout.pp": 8, "schedule.chunks": 2, "schedule.assignment": "front"}, 8),
        ({"layout.pp": 8, "small.layers": 6, "schedule.assignment": "front", **BOTH}, None),
        ({"layout.pp": 8, "small.layers": 5, "schedule.assignment": "front", **BOTH}, 7),
        # two on each, of which the last has none left: not even the head
        ({"layout.pp": 5, "small.layers": 6, "schedule.assignment": "fill", **BOTH}, 8),
    ],
)
def test_stages_that_have_nothing_to_do_are_refused(
    bind: Bind, values: dict[str, Any], most: int | None
) -> None:
    devices = 8 if values["layout.pp"] != 5 else 5
    found = failures(bind({"cluster.devices": devices, **values}), "layers-few")
    if most is None:
        assert found == {}
    else:
        assert found["layers-few"].help == f"choose at most {most} stages"


@try_each(
    "values, divides",
    [
        ({"layout.pp": 4, "schedule.chunks": 2}, True),
        ({"layout.pp": 4, "schedule.chunks": 2, "small.layers": 12}, False),
        ({"layout.pp": 4, "small.layers": 12}, True),
        ({"layout.pp": 4, "small.layers": 10}, False),
        ({"layout.pp": 4, "small.layers": 10, **BOTH}, True),
        ({"layout.pp": 4, "small.layers": 9, **BOTH}, False),
        ({"layout.pp": 4, "small.layers": 7, "schedule.count_head": "on"}, True),
        ({"layout.pp": 4, "small.layers": 9, "schedule.count_head": "on"}, False),
    ],
)
def test_layers_and_counted_ends_divide(bind: Bind, values: dict[str, Any], divides: bool) -> None:
    study = bind({"schedule.assignment": "even", **values})
    assert (failures(study, "layers-divide") == {}) == divides


COUNT = "count both ends as layers: "
COUNT += "`schedule.count_embedding = on` with `schedule.count_head = on`"
SHORT = "shorten the first and last stage: `schedule.assignment = short_ends`"
UNCOUNTED = f"{SHORT} without counted ends"
DEAL = "deal them unevenly: `schedule.stages = [...]` with "


@try_each(
    "layers, ends, pp, chunks, ways",
    [
        (14, 0, 4, 1, ["pp = 2 or 7 divides", COUNT, SHORT, f"{DEAL}2 times 4 and 2 times 3"]),
        (14, 0, 3, 1, ["pp = 2 or 7 divides", SHORT, f"{DEAL}2 times 5 and 1 times 4"]),
        (9, 0, 4, 1, ["pp = 3 or 9 divides", SHORT, f"{DEAL}1 times 3 and 3 times 2"]),
        # seven stages with a layer each; with an end counted, one would have no layer
        (7, 0, 4, 1, ["pp = 1 or 7 divides", SHORT, f"{DEAL}3 times 2 and 1 times 1"]),
        (6, 1, 4, 1, ["pp = 1 divides", UNCOUNTED, f"{DEAL}2 times 2 and 2 times 1"]),
        # ends that are counted already are not offered
        (13, 1, 4, 1, ["pp = 2 or 7 divides", UNCOUNTED, f"{DEAL}1 times 4 and 3 times 3"]),
        (14, 2, 3, 1, ["pp = 2 or 4 divides", UNCOUNTED, f"{DEAL}2 times 5 and 1 times 4"]),
        # chunks
        (14, 0, 4, 2, ["pp = 1 or 7 divides", COUNT, SHORT, f"{DEAL}6 times 2 and 2 times 1"]),
        (12, 0, 4, 2, ["chunks = 1 or 3 divides", SHORT]),
        (9, 0, 4, 2, [SHORT, f"{DEAL}1 times 2 and 7 times 1"]),
        # fewer layers than stages
        (3, 0, 4, 1, ["pp = 3 divides"]),
        # what is expected is no other way
        (8, 0, 4, 1, ["pp = 2 or 8 divides", SHORT, f"{DEAL}0 times 3 and 4 times 2"]),
    ],
)
def test_ways_to_divide_layers(
    layers: int, ends: int, pp: int, chunks: int, ways: list[str]
) -> None:
    assert _ways_to_divide(layers, ends, pp, chunks).split("; or ") == ways


# --- orders -------------------------------------------------------------------------------


class QueryRecorder(Schedule):
    """A schedule that exists nowhere, and remembers for how many micro-batches it was asked."""

    name = "asked"

    def __init__(self) -> None:
        self.of: list[int] = []

    def order(self, *_: int) -> list[list[Op]]:
        raise AssertionError("asked for an order that does not exist")

    def limits(self, shape: PipelineShape) -> str:
        self.of.append(shape.micro_batches)
        return "it exists nowhere"


@try_each(
    "batches, asked",
    [
        ([8, 16, 16, 24], {1, 2, 3}),
        (8, {1}),
        ([4, 8, 20, 32], {1, 4}),  # neither half a micro-batch nor two and a half
        (20, set()),
    ],
)
def test_a_schedule_gets_whole_micro_batches(bind: Bind, batches: Any, asked: set[int]) -> None:
    schedule = QueryRecorder()
    values = {"schedule.kind": "asked", "training.global_batch": batches}
    study = bind(values, schedules=[schedule])
    found = [c for _, c in study.contributions("checks") if c.id == "schedule-limits"]
    assert {c.inputs["micro_batches"] for c in found} == asked
    assert len(found) == len(asked)


@pytest.mark.parametrize("over", [0, 1])
def test_an_order_longer_than_the_limit_is_refused(bind: Bind, over: int) -> None:
    """Two stages of four chunks have eight passes for each micro-batch."""
    m = LONGEST_ORDER // 8 + over
    values = {
        "cluster.devices": 2,
        "layout.pp": 2,
        "schedule.chunks": 4,
        "training.global_batch": m,
    }
    study = bind(values)
    found = failures(study, "schedule-length")
    if not over:
        assert found == {}
        return
    assert found["schedule-length"].message == (
        f"{m} micro-batches on pp 2 x chunks 4 = 8 are {8 * m} passes; "
        f"schedules longer than {LONGEST_ORDER} passes are not simulated"
    )
    assert found["schedule-length"].help == (
        f"use larger micro-batches, at most {LONGEST_ORDER // 8} per step"
    )
