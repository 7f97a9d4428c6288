"""How many micro-batches are alive, read off the order."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parcost.engine.orders import order_of
from parcost_plugins.schedules.interleaved import Interleaved

from ..rows import try_each


@try_each("m", [1, 3, 8, 32])
def test_gpipe_keeps_all_and_1f1b_as_many_as_there_are_stages_behind(
    m: int, gpipe: Any, one_f_one_b: Any
) -> None:
    p = 8
    assert order_of(gpipe, p, m, 1).alive == [m] * p
    assert order_of(one_f_one_b, p, m, 1).alive == [min(m, p - s) for s in range(p)]


def test_zb_h1_keeps_p_on_every_stage(zb_h1: Any) -> None:
    assert order_of(zb_h1, 8, 32, 1).alive == [8] * 8


@try_each("p, v", [(8, 2), (8, 4), (4, 3), (2, 2)])
def test_interleaving_keeps_a_few_chunks_more_than_1f1b(p: int, v: int, interleaved: Any) -> None:
    m = 4 * p
    order = order_of(interleaved, p, m, v)
    for r in range(p):
        most = max(sum(vector.alive) for vector in order.peaks[r])
        assert most == min(m * v, 2 * (p - 1 - r) + (v - 1) * p + 1)


@given(p=st.integers(1, 6), v=st.integers(2, 3), more=st.integers(0, 5), k=st.integers(1, 3))
def test_larger_groups_keep_more_chunks(p: int, v: int, more: int, k: int) -> None:
    group = p + more
    order = order_of(Interleaved(group), p, k * group, v)
    for r in range(p):
        most = max(sum(vector.alive) for vector in order.peaks[r])
        assert most == min(k * group * v, 2 * (p - 1 - r) + (v - 1) * group + 1)


@pytest.mark.parametrize("v", [2, 3])
def test_breadth_first_keeps_everything(v: int, shipped: Any) -> None:
    order = order_of(shipped["breadth_first"], 4, 6, v)
    assert [max(sum(m.alive) for m in device) for device in order.peaks] == [6 * v] * 4


def test_zb_h2_keeps_2_p_minus_1_on_every_stage(shipped: Any) -> None:
    assert order_of(shipped["zb_h2"], 8, 32, 1).alive == [15] * 8


def test_the_first_of_8_devices_keeps_23_halves_or_39_quarters_of_a_stage(interleaved: Any) -> None:
    for v, chunks in ((2, 23), (4, 39)):
        order = order_of(interleaved, 8, 32, v)
        assert max(sum(vector.alive) for vector in order.peaks[0]) == chunks


def test_zb_v_keeps_one_model_of_layers_on_every_device(zb_v: Any) -> None:
    order = order_of(zb_v, 8, 32, 2)
    for d in range(8):
        assert max(sum(vector.alive) for vector in order.peaks[d]) == 16  # half-size chunks


@given(p=st.integers(1, 4), m=st.integers(1, 5), v=st.integers(1, 3), seed=st.integers(0, 10**6))
def test_the_vectors_kept_are_those_that_no_other_beats(
    p: int, m: int, v: int, seed: int, any_order: Any
) -> None:
    schedule = any_order(seed)
    order = order_of(schedule, p, m, v)
    for d, ops in enumerate(schedule.order(p, m, v)):
        held = order.held[d]
        counts = [
            tuple(
                sum(o.kind == "F" for o in before if o.stage == x)
                - sum(o.kind in freeing for o in before if o.stage == x)
                for x in held
            )
            for before in (ops[:i] for i in range(len(ops) + 1))
            for freeing in (("W", "BW"), ("B", "BW"))
        ]
        # at the start of every backward op, and at its end
        moments = [(*counts[2 * i : 2 * i + 4],) for i, op in enumerate(ops) if op.kind != "F"]
        kept = [tuple(row) for row in order.peaks[d]]
        assert {*kept} <= {*moments}
        flat = [[*itertools.chain(*row)] for row in kept]
        for seen in moments:
            assert any(np.greater_equal(row, [*itertools.chain(*seen)]).all() for row in flat)
        for one, other in itertools.permutations(flat, 2):
            assert np.less(one, other).any()
        for i, x in enumerate(held):
            assert order.alive[x] == max(alive[i] for alive, *_ in moments)
