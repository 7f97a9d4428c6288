"""Figures of the bytes that a rank of data parallelism sends, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from parcost import Formula, Work

from ..rows import mark_most
from .data_terms import FOUR, LOW_RANK, OVERLAP, Bind, details, ours, parameters_record

GIVEN = Formula(text="given")


@pytest.mark.parametrize(
    ("zeros", "values"),
    mark_most(
        [
            ((0, 1, 2, 3), {}),
            ((1, 2, 3), {"layout.cp": 2}),
            ((1, 2, 3), {"sharding.shard": 2}),
            ((1, 2, 3), {"sharding.shard": 4, "sharding.replicate": "micro_batch"}),
            ((2, 3), {"sharding.accumulate": "whole"}),
            ((3,), {"sharding.accumulate": "whole", "sharding.shard": 2}),
            ((3,), {"sharding.reshard": "off"}),
            ((3,), {"sharding.keep_last": "on"}),
            ((3,), {"small.tied": "on"}),
            ((0, 1, 3), {"local_updates.workers": 4, "local_updates.period": 5}),
            ((0, 2), {"local_updates.workers": 2, "local_updates.wire": 3}),
            *(
                (zeros, {"compression.method": method, "compression.scale": scale})
                for zeros, method, scale in (
                    ((0, 1, 2, 3), "fp16", 0),
                    ((0, 1), "bf16", 0),
                    ((0, 1, 2, 3), "int8", 4),
                    ((0, 2), "int4", 6),
                    ((0,), "one_bit", 4),
                    ((0,), "top_k", 0),
                )
            ),
            ((0,), LOW_RANK),
            ((0,), {**LOW_RANK, "compression.minimum_rate": 20}),
        ]
    ),
)
def test_the_volume_is_what_the_links_carry(
    bind: Bind, zeros: tuple[int, ...], values: dict[str, Any]
) -> None:
    """All links carry 1 GB/s: the seconds of all terms in a step are the gigabytes sent."""
    for zero in zeros:
        study = bind(
            {**values, "layout.zero": zero, "training.global_batch": 24, "small.layers": 5},
            parameters=[
                parameters_record(2e9, place="before"),
                parameters_record(1024.0 * 3072, (5.0,)),
                parameters_record(1024.0 * 300, (10.0,)),
                parameters_record(1024.0, (10.0,)),
                parameters_record(3e9, place="after"),
            ],
        )
        m = study.pipeline.micro_batches
        seconds = sum(
            term.seconds * np.sum(term.count) * (m if isinstance(term, Work) else 1.0)
            for term in ours(study)
            if term.resource != "hbm"
        )
        assert details(study)["dp_volume"] == pytest.approx(seconds * 1e9, rel=1e-9), zero


def test_one_replica_of_nothing_sends_nothing(bind: Bind) -> None:
    values = {"cluster.devices": 1, "training.global_batch": 1}
    found = details(bind(values, parameters=[parameters_record(0.0)]))
    volumes = ("dp_volume", "dp_volume_replicas", "dp_volume_total", "gradient_bytes")
    assert [found[name] for name in volumes] == [0.0] * 4


@pytest.mark.parametrize(("tied", "gathered"), [("on", 44 + 40), ("off", 44 + 40 + 4)])
def test_a_few_parameters_are_gathered_to_the_byte(bind: Bind, tied: str, gathered: int) -> None:
    """Four before five layers of eight each; forward all, backward all but a tied embedding."""
    values = {**FOUR, "layout.zero": 3, "small.layers": 5, "small.tied": tied}
    study = bind(
        values, parameters=[parameters_record(4.0, place="before"), parameters_record(8.0, (5.0,))]
    )
    assert details(study)["dp_volume"] == 3 / 4 * (4 * 44 + 2 * gathered)


def test_experts_send_over_their_own_replicas(bind: Bind) -> None:
    """Eight replicas of 4 GB, and two of the 8 GB of experts."""
    found = details(
        bind(
            {"layout.ep": 4},
            parameters=[parameters_record(1e9), parameters_record(2e9, expert=True)],
        )
    )
    plain = 2 * 7 / 8 * 4e9 + 2 * 1 / 2 * 8e9
    assert found["dp_volume"] == pytest.approx(plain)
    assert found["dp_volume_replicas"] == pytest.approx(plain)
    assert found["gradient_bytes"] == pytest.approx(12e9)


@pytest.mark.slow
def test_the_stage_that_holds_most_sends_most_and_all_of_them_the_total(bind: Bind) -> None:
    """24 devices: two stages, of four layers each and one with the head besides."""
    values = {"cluster.devices": 24, "layout.tp": 2, "layout.cp": 3, "layout.pp": 2}
    values |= {"training.sequence": 1152, "layout.zero": 1, "mixed.reduction": 4}
    for head in ((0.0, 1.0), (1.0, 0.0)):
        study = bind(
            values,
            parameters=[parameters_record(1e9, (4.0, 4.0)), parameters_record(3e9, head, "after")],
        )
        found = details(study)
        # six ranks hold the same: 5/6 of 4 B reduced and of 2 B gathered
        assert found["dp_volume"] == pytest.approx(5 / 6 * 6 * 7e9)
        assert found["dp_volume_replicas"] == pytest.approx(2 * 5 / 6 * 4 * 7e9)
        assert found["dp_volume_against_replicas"] == pytest.approx(6 / 8)
        assert found["dp_volume_total"] == pytest.approx(5 / 6 * 6 * 11e9 * 12)
        assert found["gradient_bytes"] == pytest.approx(28e9)
        assert found["gradient_chunk"] == pytest.approx(28e9 / 6)
        assert "equivalent_step_time" not in found


@pytest.mark.parametrize(
    ("values", "part"),
    [
        ({"compression.method": "fp16"}, 2 * 1e9 / 2),
        ({"compression.method": "top_k", "compression.density": 0.01}, 0.01 * (4 + 4) * 1e9),
    ],
)
def test_a_ring_sends_gradients_as_they_are_compressed(
    bind: Bind, values: dict[str, Any], part: float
) -> None:
    """Half of 2 B for each on two ranks; of top-k a rank passes on whole parts of the others."""
    values = {"cluster.devices": 2, "mixed.reduction": 4, **values}
    found = details(bind(values, parameters=[parameters_record(1e9)]))
    assert found["gradient_chunk"] == pytest.approx(part)


def test_steps_that_progress_less_are_worth_more_of_them(bind: Bind) -> None:
    values = {"compression.method": "fp16", "compression.steps": 1.5}
    found = details(bind(values, parameters=[parameters_record(1e9)]))
    assert found["equivalent_step_time"] == pytest.approx(1.5 * found["step"])


@pytest.mark.slow
def test_a_micro_batch_whose_backward_pass_is_as_long_as_the_reduction(bind: Bind) -> None:
    """1.2 s on two ranks, of which three quarters hide; three sequences take 340 ms backward.

    The reduction and its compression count, but neither what is gathered nor a forward pass.
    """
    values = {
        **OVERLAP,
        "cluster.devices": 2,
        "training.micro_batch": 3,
        "training.global_batch": 12,
        "overlap.bucket": 3e8,
    }
    work_ = [
        Work(name=p, seconds=s, pass_=p, formula=GIVEN)  # type: ignore[arg-type]
        for p, s in (("F", 7.0), ("B", 0.2), ("W", 0.1), ("R", 0.04))
    ]
    zero = bind(values, parameters=[parameters_record(3e8)], terms=work_)
    found = details(zero)
    assert found["reduction_time"] == pytest.approx(1.2)
    # the pass has 340 ms, of which three quarters of the buckets see 3/4
    assert found["overlap_efficiency"] == pytest.approx(0.75 * 0.34 / 1.2)
    assert found["micro_batch_for_overlap"] == 11  # 3 x 1.2 / 0.34 = 10.6
    one = details(
        bind({**values, "layout.zero": 1}, parameters=[parameters_record(3e8)], terms=work_)
    )
    assert one["reduction_time"] == pytest.approx(0.6)
    assert one["micro_batch_for_overlap"] == 6  # 5.3
    squeezed = {**values, "compression.method": "fp16", "compression.cast_traffic": 5}
    half = details(bind(squeezed, parameters=[parameters_record(3e8)], terms=work_))
    assert half["reduction_time"] == pytest.approx(0.6 + 1.5e9 / 0.5e12)
