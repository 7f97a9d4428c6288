"""A search and single evaluations agree on every layout of small random spaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

import parcost
from parcost.search.best_first import SearchRequest, search
from parcost.search.space import space

pytestmark = pytest.mark.slow

#: Spaces in which some layout is legal.
SEEDS = [
    1,
    2,
    5,
    6,
    7,
    8,
    9,
    11,
    12,
    14,
    15,
    16,
    19,
    21,
    22,
    23,
    24,
    25,
    26,
    28,
    29,
    30,
    32,
    33,
    34,
    36,
]

Compare = Callable[..., tuple[list[str], int]]

REFERENCES = """
use catalog.devices.h100_sxm
use catalog.devices.b200
use catalog.fabrics.hgx_h100
use catalog.fabrics.hgx_b200
use catalog.precisions.bf16
use catalog.precisions.fp8_blockwise
use catalog.models.llama3_8b
cluster { device = h100_sxm, devices = 32, fabric = hgx_h100 }
training { precision = bf16, sequence = 4096, global_batch = 64 sequences }
"""


@pytest.mark.parametrize("seed", SEEDS)
def test_every_layout_and_the_winner_are_those_of_single_evaluations(
    seed: int, spaces: Callable[[int], Any], compare: Compare
) -> None:
    said, legal = compare(*spaces(seed))
    assert not said
    assert legal


def test_devices_fabrics_precisions_and_orders_are_axes_like_any_other(compare: Compare) -> None:
    axes = {
        "cluster.device": ["h100_sxm", "b200"],
        "cluster.fabric": ["hgx_h100", "hgx_b200"],
        "training.precision": ["bf16", "fp8_blockwise"],
        "cluster.devices": [16, 32],
        "layout.tp": [1, 4],
        "layout.zero": [1, 3],
    }
    said, legal = compare(REFERENCES, axes)
    assert (said, legal) == ([], 64)


def test_the_order_of_ranks_is_an_axis(compare: Compare) -> None:
    orders = ['"tp-cp-dp-pp"', '"tp-pp-cp-dp"', '"dp-tp-cp-pp"']
    said, legal = compare(REFERENCES, {"layout.order": orders, "layout.pp": [1, 2, 4]})
    assert (said, legal) == ([], 9)


def test_pairs_on_a_device_with_two_stages_are_bounded_from_below(compare: Compare) -> None:
    """A micro-batch that is added runs in two pairs there, which save something each."""
    text = REFERENCES + "layout { tp = 8, sequence_parallel = on }\n"
    axes = {
        "schedule.kind": ["dualpipe_v"],
        "schedule.chunks": [2],
        "layout.pp": [1, 2],
        "training.micro_batch": [1, 2],
        "training.recompute": ["none", "full"],
    }
    said, legal = compare(text, axes)
    assert not said
    assert legal


def test_an_axis_of_one_value_is_not_taken_for_the_schedule(compare: Compare) -> None:
    kinds = ["breadth_first", "one_f_one_b", "gpipe"]
    axes = {"layout.pp": [1], "schedule.chunks": [1], "schedule.kind": kinds, "layout.tp": [1, 2]}
    said, legal = compare(REFERENCES, axes)
    assert (said, legal) == ([], 4)


def test_a_range_that_fractions_spell_is_an_axis(compare: Compare) -> None:
    axes = {"overlap.bucket": ["25 MB", "100 MB"], "layout.tp": [1, 2]}
    said, legal = compare(REFERENCES, axes)
    assert (said, legal) == ([], 4)


@pytest.mark.parametrize("model", ["gpt3_1_3b", "deepseek_v3_mtp"])
def test_ends_meet_where_the_schedule_runs_whatever_it_does_elsewhere(
    model: str, compare: Compare
) -> None:
    """A tied embedding is held once in a V, also beside layouts for which there is none."""
    text = REFERENCES.replace("llama3_8b", model).replace("sequence = 4096", "sequence = 2048")
    text = text.replace("devices = 32", "devices = 16").replace("64 sequences", "32 sequences")
    if model == "deepseek_v3_mtp":
        text += "model small extends deepseek_v3_mtp { layers = 7, experts = 16, ffn = 4096 }\n"
        text = text.replace("training {", "training { model = small,")
    axes = {
        "schedule.kind": ["one_f_one_b", "dualpipe", "chimera", "dualpipe_v", "zb_v"],
        "schedule.chunks": [1, 2],
        "layout.pp": [1, 2, 4],
        "training.micro_batch": [1, 2],
    }
    said, legal = compare(text, axes)
    assert not said
    assert legal


def test_a_sweep_in_the_spec_leaves_the_choices_what_they_are() -> None:
    """Else every value of every choice would be bound on its own, which takes minutes."""
    swept = REFERENCES.replace("devices = 32", "devices = [16, 32]")
    kinds = []
    for text in (REFERENCES, swept):
        (scenario,) = parcost.load_text(text)
        found = space(scenario, dict(scenario.axes), ["schedule", "recompute", "tp", "chunks"])
        kinds.append([axis.attribute for axis in found.choices])
    assert kinds[0] == kinds[1] == ["schedule.kind", "training.recompute"]


@pytest.mark.parametrize("seed", [1, 5, 8, 12, 16, 21, 24, 28, 33, 36])
def test_nothing_that_is_listed_beats_the_front(seed: int, spaces: Callable[[int], Any]) -> None:
    text, axes = spaces(seed)
    (scenario,) = parcost.load_text(text)
    whole, request = space(scenario, axes, list(axes)), SearchRequest(keep=5, budget_seconds=1e9)
    found, both = search(whole, request), search(whole, evolve(request, front=True))
    assert [x.values for x in found.best] == [x.values for x in both.best]
    front = [(one.seconds, one.bytes_) for one in found.front]
    assert front == [(one.seconds, one.bytes_) for one in both.front]
    assert front[0] == (found.best[0].seconds, found.best[0].bytes_)
    for one in found.best:
        at = (one.seconds, one.bytes_)
        assert at in front or any(a <= at[0] and b <= at[1] for a, b in front)
        assert not any(at[0] < a and at[1] < b for a, b in front)


@pytest.mark.parametrize("first", ["", ", first_bucket = 1 MB"])
def test_stages_without_adapters_have_no_gradients_in_arrays_either(
    first: str, compare: Compare
) -> None:
    """Embedding and head are stages of their own where 6 layers have 8 stages."""
    text = (
        REFERENCES
        + f"""
    model small extends llama3_8b {{ layers = 6 }}
    adapters {{ rank = 16 }}
    schedule {{ count_embedding = on, count_head = on }}
    overlap {{ gradients = on{first} }}
    """
    )
    axes = {
        "layout.pp": [1, 2],
        "schedule.chunks": [1, 3, 4],
        "schedule.kind": ["one_f_one_b", "breadth_first"],
        "layout.zero": [0, 1, 2, 3],
        "layout.cp": [1, 4],
    }
    said, legal = compare(text.replace("training {", "training { model = small,"), axes)
    assert not said
    assert legal
