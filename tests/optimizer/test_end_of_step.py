"""What a step ends with on every rank: the norm over the whole job, and its share of the update."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from parcost import Study
from parcost.engine.reduce import evaluate
from parcost_plugins.vocabulary import Parameters

from ..rows import try_each

Bind = Callable[..., Study]


def parameters_record(elements: float, *, expert: bool = False) -> Parameters:
    name = "experts" if expert else "others"
    return Parameters(name=name, elements=elements, total=elements, count=(1.0,), expert=expert)


def terms(study: Study) -> dict[str, Any]:
    found = {term.name: term for _, term in study.contributions("terms")}
    assert study.faults == []
    return found


def test_the_norm_is_added_up_over_every_device_of_the_job(bind: Bind) -> None:
    values = {"mixed.norm_traffic": 12, "layout.tp": 2, "layout.pp": 2, "wire.net.latency": 1e-3}
    study = bind(
        values, parameters=[Parameters(name="p", elements=1e6, total=1e6, count=(1.0, 1.0))]
    )
    term = terms(study)["all-reduce of the gradient norm"]
    # eight devices, not the two replicas: at best three rounds of a millisecond
    assert term.seconds >= 3e-3
    assert (term.when, term.bytes_, term.resource) == ("end", 4.0, "net")


@pytest.mark.parametrize(("zero", "bytes_"), [(0, 4e9), (1, 4e9), (2, 0.5e9)])
def test_a_buffer_of_gradients_is_zeroed(bind: Bind, zero: int, bytes_: float) -> None:
    """Gradients of 4 B of a billion parameters, of which ZeRO 2 leaves an eighth on a rank."""
    text = "framework buffered { zeroes_gradients = on }\n"
    values = {"layout.zero": zero, "training.framework": "buffered"}
    term = terms(bind(values, text, parameters=[parameters_record(1e9)]))[
        "zeroing of the gradient buffer"
    ]
    assert term.bytes_ == bytes_
    assert term.seconds == pytest.approx(bytes_ / 0.5e12)  # half of 1 TB/s
    assert "zeroing of the gradient buffer" not in terms(bind(parameters=[parameters_record(1e9)]))


@try_each(
    "values, bytes_",
    [
        ({"sharding.bucket_copy": "on"}, 2 * (4 + 2) * 1e9),
        ({"sharding.bucket_copy": "on", "cluster.devices": 1}, 0),
        ({"sharding.bucket_copy": "off"}, None),
        ({"sharding.bucket_copy": "on", "layout.zero": 1}, None),
    ],
)
def test_buckets_that_are_no_views_are_filled_and_emptied(
    bind: Bind, values: dict[str, Any], bytes_: float | None
) -> None:
    """Gradients of 4 B go into buckets of 2 B, and back when they are reduced."""
    given = {"mixed.reduction": 2, **values}
    term = terms(bind(given, parameters=[parameters_record(1e9)])).get(
        "copies into and out of gradient buckets"
    )
    assert (term.bytes_ if term else None) == bytes_
    if term:
        assert term.seconds == pytest.approx(bytes_ / 0.5e12)  # half of 1 TB/s


AVERAGES = "framework divides { gradient_average = scaled, gradient_check = on }\n"


@try_each(
    "values, scaling, check",
    [
        # 8 ranks; gradients of 4 B are read and written, and read for the norm
        ({}, 8e9, 4e9),
        ({"layout.zero": 1}, 8e9, 4e9),
        ({"layout.zero": 2}, None, None),
        ({"layout.tp": 2}, 8e9, 4e9),
        ({"layout.cp": 8}, 8e9, 4e9),  # one replica of 8 ranks
        ({"cluster.devices": 1}, 0, 4e9),  # a factor of 1 is skipped
        ({"sharding.bucket_copy": "on"}, None, 4e9),  # copied and scaled at once
        ({"sharding.gradient_average": "collective"}, None, 4e9),
        ({"sharding.gradient_average": "scaled_experts"}, None, 4e9),
        ({"sharding.gradient_check": "off"}, 8e9, None),
        ({"mixed.gradients": 2}, 4e9, 2e9),
    ],
)
def test_gradients_are_scaled_and_checked_ahead_of_their_reduction(
    bind: Bind, values: dict[str, Any], scaling: float | None, check: float | None
) -> None:
    given = {"training.framework": "divides", **values}
    found = terms(bind(given, AVERAGES, parameters=[parameters_record(1e9)]))
    for name, bytes_ in (("scaling of gradients", scaling), ("check of gradients for NaN", check)):
        term = found.get(name)
        assert (term.bytes_ if term else None) == bytes_
        if term and bytes_ is not None:
            assert term.seconds == pytest.approx(bytes_ / 0.5e12)  # half of 1 TB/s
            assert (term.when, term.resource) == ("end", "hbm")


@pytest.mark.parametrize(
    ("sent", "devices", "scaling", "message"),
    [
        (2, 8, 4 + 2 + 2 + 2 + 2 + 4, 2),  # cast, scaled in 16 bits, and copied back
        (4, 8, 4 + 4, 0),
        (2, 1, 0, 0),  # nothing is sent
    ],
)
def test_sums_in_a_wider_type_are_sent_in_that_of_messages(
    bind: Bind, sent: int, devices: int, scaling: int, message: int
) -> None:
    """DeepSpeed's BF16_Optimizer under ZeRO 1: sums of 4 B, of which no rank has a shard alone."""
    values = {
        "training.framework": "divides", "layout.zero": 1, "mixed.gradient_copies": 2,
        "mixed.reduction": sent, "mixed.norm_traffic": 12, "cluster.devices": devices,
    }  # fmt: skip
    study = bind(values, AVERAGES, parameters=[parameters_record(1e9)])
    found = terms(study)
    assert found["scaling of gradients"].bytes_ == scaling * 1e9
    assert found["gradient norm and clipping"].bytes_ == 12e9
    assert found["zeroing of the gradient buffer"].bytes_ == 4e9
    held = {term.name: term for _, term in study.contributions("memory")}
    copy = held["gradients in the type of the message"]
    assert (copy.bytes_, copy.moments) == (message * 1e9, ("optimizer",))


@pytest.mark.parametrize(
    ("values", "bytes_"),
    [
        ({"layout.ep": 4}, 8e9),  # 2 ranks hold an expert, and 8 another parameter
        ({"layout.ep": 2, "layout.tp": 2, "layout.etp": 1}, 0),  # a factor of 4 / 4
        ({"layout.ep": 4, "cluster.devices": 4}, 8e9),  # 1 / 4
    ],
)
def test_a_collective_that_averages_leaves_experts_to_be_scaled(
    bind: Bind, values: dict[str, Any], bytes_: float
) -> None:
    given = {"sharding.gradient_average": "scaled_experts", **values}
    parts = [parameters_record(1e9), parameters_record(1e9, expert=True)]
    found = terms(bind(given, parameters=parts))
    assert "scaling of gradients" not in found
    assert found["scaling of gradients of experts"].bytes_ == bytes_
    assert "check of gradients for NaN" not in found


def test_a_sweep_of_ranks_scales_where_there_are_several(bind: Bind) -> None:
    given = {"training.framework": "divides", "layout.tp": [1, 8]}
    found = terms(bind(given, AVERAGES, parameters=[parameters_record(1e9)]))
    assert list(found["scaling of gradients"].bytes_) == [8e9, 0]


def test_without_clipping_there_is_no_norm_to_add_up(bind: Bind) -> None:
    assert "all-reduce of the gradient norm" not in terms(bind(parameters=[parameters_record(1e9)]))


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_experts_are_updated_by_the_ranks_that_hold_them(bind: Bind, zero: int) -> None:
    values = {"layout.zero": zero, "layout.ep": 4}
    found = terms(
        bind(values, parameters=[parameters_record(1e9), parameters_record(1e9, expert=True)])
    )
    assert found["optimizer update"].bytes_ == pytest.approx(30e9 / 8)
    assert found["optimizer update of experts"].bytes_ == pytest.approx(30e9 / 2)


@pytest.mark.slow
def test_context_parallel_ranks_share_the_update(bind: Bind) -> None:
    values = {"layout.zero": 1, "layout.cp": 4}  # two replicas of four ranks
    found = terms(bind(values, parameters=[parameters_record(1e9)]))
    assert found["optimizer update"].bytes_ == pytest.approx(30e9 / 8)
    lines = evaluate(bind(values, parameters=[parameters_record(1e9)])).memory_lines
    state = {line.name: line.bytes_ for line in lines}["optimizer state"]
    assert state == pytest.approx(12e9 / 8)


@pytest.mark.parametrize(
    ("accumulate", "bytes_"),
    # Of 3 in 4 micro-batches: 4 B three times of a shard, or 2 B read to add them to 4 B.
    [("shard", 0.75 * 12e9 / 8), ("whole", 0.75 * 10e9)],
)
def test_a_rank_accumulates_whole_gradients_where_it_keeps_them(
    bind: Bind, accumulate: str, bytes_: float
) -> None:
    values = {
        "training.global_batch": 32,
        "layout.zero": 2,
        "sharding.accumulate": accumulate,
        "kernels.fused_accumulation": "off",
    }
    (added,) = accumulation(bind, values, [parameters_record(1e9)])
    assert added.bytes_ == pytest.approx(bytes_)


def accumulation(bind: Bind, values: Mapping[str, Any], parameters: Sequence[Parameters]) -> Any:
    study = bind({**values, "kernels.memory_bound": "on"}, parameters=parameters)
    terms = [term for _, term in study.contributions("terms")]
    return [term for term in terms if term.name.startswith("gradient accumulation")]


@pytest.mark.slow
def test_a_sweep_to_no_clipping_adds_up_no_norm(bind: Bind) -> None:
    values = {"mixed.norm_traffic": [0, 1, 12], "wire.net.latency": 1e-3}
    found = terms(bind(values, parameters=[parameters_record(1e9)]))
    alone = terms(bind({**values, "mixed.norm_traffic": 1}, parameters=[parameters_record(1e9)]))
    name = "all-reduce of the gradient norm"
    each = alone[name].seconds
    assert each > 2e-3
    assert list(found[name].seconds) == [0, each, each]
    streamed = found["gradient norm and clipping"]
    assert list(streamed.bytes_) == [0, 1e9, 12e9]
    # 1 TB/s at 50 %
    assert list(streamed.seconds) == [0, 2e-3, 24e-3]


@pytest.mark.parametrize(("where", "bytes_"), [("host", 0.75 * 30e9), ("device", 30e9)])
def test_the_device_skips_updates_of_the_host(bind: Bind, where: str, bytes_: float) -> None:
    values = {"offload.optimizer": 0.25, "offload.update": where, "plain.host_bandwidth": 1e9}
    (found,) = [
        term
        for plugin, term in bind(values, parameters=[parameters_record(1e9)]).contributions("terms")
        if plugin.name == "optimizer" and term.name == "optimizer update"
    ]
    assert found.bytes_ == bytes_


@try_each(
    "fused, expected",
    [
        ("on", {"table": (2 * 5 + 3) * 2}),
        ("off", {"table": 2 * 5 + 3, "matrix": (2 * 5 + 3) * 7, "experts": (2 * 5 + 3) * 11}),
    ],
)
@try_each("zero, shards, of_experts", [(1, 1, 1), (2, 8, 2), (3, 8, 2)])
def test_gradients_that_no_product_adds_are_read_added_and_written(
    bind: Bind, fused: str, expected: dict[str, int], zero: int, shards: int, of_experts: int
) -> None:
    """In 3 B the gradient of a micro-batch, in 5 B the sum, read and written.

    A shard comes in the 5 B of the sum. One of two micro-batches is added to another, or both to
    the buffer that fused products have.
    """
    values = {
        "training.global_batch": 16,
        "mixed.gradients": 5,
        "mixed.activation": 3,
        "layout.ep": 4,
        "layout.zero": zero,
    }
    parts = [
        Parameters(name=name, elements=n, total=n, count=(1.0,), place=place, expert=expert)  # type: ignore[arg-type]
        for name, n, place, expert in (
            ("table", 1.0, "before", False),
            ("matrix", 7.0, "layer", False),
            ("experts", 11.0, "layer", True),
        )
    ]  # fmt: skip
    added = accumulation(bind, {**values, "kernels.fused_accumulation": fused}, parts)
    found = {term.name.partition(", ")[2]: 2 * term.bytes_ for term in added}
    expected_bytes = {
        name: bytes_ * (15 / 13 if zero > 1 else 1) / (of_experts if name == "experts" else shards)
        for name, bytes_ in expected.items()
    }
    assert found == pytest.approx(expected_bytes)
