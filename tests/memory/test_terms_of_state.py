"""What ZeRO, staging, compression and local updates hold: each buffer by hand, per rank."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from attrs import evolve

from parcost import Study
from parcost_plugins.vocabulary import Parameters

from ..rows import mark_most, try_each

Bind = Callable[..., Study]


def part(elements: float, count: Sequence[float] = (1.0,), place: Any = "layer") -> Parameters:
    name = f"{place} {elements}"
    return Parameters(name=name, elements=elements, total=elements, count=count, place=place)


#: An embedding of 700, three layers of 110, and a head of 500.
PARTS = [part(700, place="before"), part(110, (3.0,)), part(500, place="after")]
ALL = 700 + 3 * 110 + 500
#: Gradients of a layer at 2 B beside the head's copy at 4 B, its own copy at the first layer, and
#: both of the embedding behind it.
WHOLE = {
    "unsharded gradients": 2 * 110 + 4 * 500,
    "unsharded gradients at the end": (2 + 4) * 110,
    "unsharded gradients of the ends": (2 + 4) * 700,
}
#: Those of a unit that has both ends wait for the layers, where one layer has both.
TIED = {
    "unsharded gradients": 2 * (700 + 500) + (2 + 4) * 110,
    "unsharded gradients at the end": 2 * (700 + 500) + (2 + 4) * 110,
    "unsharded gradients of the ends": (2 + 4) * (700 + 500),
}


def terms(study: Study) -> dict[str, Any]:
    return {
        term.name: term
        for plugin, term in study.contributions("memory")
        if plugin.name in ("memory.state", "memory.overheads", "parallelism.data.zero")
    }


def sizes(study: Study) -> dict[str, Any]:
    found = {name: np.max(term.bytes_) for name, term in terms(study).items()}
    return {name: float(bytes_) for name, bytes_ in found.items() if bytes_}


def compute(term: Any) -> Any:
    """Return what the formula of *term* comes to, up to the words behind a comma."""
    text, depth = term.formula.text, 0
    for at, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            text = text[:at]
            break
    text = re.sub(r"(?<=[\w)]) (?=[\w(])", " * ", text.replace(" x ", " * "))
    inputs = {symbol: value for symbol, (value, _) in term.formula.inputs.items()}
    text = re.sub(r"^(.+) \? (.+) : (.+)$", r"(\2) if \1 else \3", text)
    return eval(text, {"max": max, "min": min}, inputs)


@pytest.mark.parametrize(
    ("zero", "values", "expected"),
    mark_most([
        (0, {}, {}),
        (1, {}, {}),
        # a bucket of 4 B for each element, or as large as it may be
        (2, {}, {"gradient bucket": 4 * ALL}),
        (2, {"overlap.bucket": 900}, {"gradient bucket": 900}),
        (2, {"sharding.accumulate": "whole", "training.global_batch": 64}, {}),
        # a single micro-batch is the last one
        (2, {"sharding.accumulate": "whole"}, {"gradient bucket": 4 * ALL}),
        (3, {"sharding.accumulate": "whole"}, {"gathered layers": 2 * 220, "gathered last layer": 2 * 110, "gathered embedding and head": 2 * (700 - 110), **WHOLE}),
        # two layers of three, the head, and what the embedding exceeds the second layer and it by
        (3, {}, {"gathered layers": 2 * 220, "gathered last layer": 2 * 110, "gathered embedding and head": 2 * (700 - 110), **WHOLE}),
        (3, {"sharding.accumulate": "whole", "training.global_batch": 64}, {"gathered layers": 2 * 220, "gathered last layer": 2 * 110, "gathered embedding and head": 2 * 590}),
        (3, {"sharding.prefetch": 0}, {"gathered layers": 2 * 110, "gathered last layer": 2 * 110, "gathered embedding and head": 2 * 700, **WHOLE}),
        (3, {"sharding.prefetch": 7}, {"gathered layers": 2 * 330, "gathered last layer": 2 * 110, "gathered embedding and head": 2 * 500, **WHOLE}),
        (3, {"sharding.reshard": "off"}, {"gathered layers": 2 * 330, "gathered embedding and head": 2 * 1200, **WHOLE}),
        # an embedding that is the head as well stays gathered
        (3, {"small.tied": "on"}, {"gathered layers": 2 * 220, "gathered last layer": 2 * 110, "gathered embedding and head": 2 * 1200, **TIED}),
        # so do those of an embedding and a head in one unit: 500 of the head are made before
        (3, {"plainly.ends_together": "on"}, {"gathered layers": 2 * 220, "gathered last layer": 2 * 110, "gathered embedding and head": 2 * 1200, "unsharded gradients": 2 * 500 + 6 * 110, "unsharded gradients at the end": 2 * 500 + 6 * 110, "unsharded gradients of the ends": 6 * 1200}),
        # FSDP2 gathers on a stream of its own: the embedding of 700, of which a layer of 110 ahead
        # is in use in passes, or both ends
        (3, {"plainly.gather_copies": 1}, {"gathered layers": 2 * 220, "gathered last layer": 2 * 110, "gathered embedding and head": 2 * 590, "reserved by the stream of gathers": 2 * 700, "reserved by the stream of gathers, beside layers": 2 * 590, **WHOLE}),
        (3, {"plainly.gather_copies": 1, "small.tied": "on"}, {"gathered layers": 2 * 220, "gathered last layer": 2 * 110, "gathered embedding and head": 2 * 1200, "reserved by the stream of gathers": 2 * 1200, "reserved by the stream of gathers, beside layers": 2 * 1090, **TIED}),
        # where the gradients are sharded nothing is copied for them
        (0, {"sharding.bucket_copy": "on", "mixed.reduction": 5}, {"gradient buckets": 5 * ALL}),
        (1, {"sharding.bucket_copy": "on"}, {}),
        (0, {"compression.method": "top_k", "compression.residual": 3}, {"compression residual": 3 * ALL}),
        (0, {"local_updates.workers": 2, "local_updates.method": "outer", "local_updates.outer_state": 7}, {"outer optimizer state": 7 * ALL}),
        (1, {"local_updates.workers": 2, "local_updates.method": "outer", "local_updates.outer_state": 7}, {"outer optimizer state": 7 * ALL / 4}),
        (0, {"local_updates.workers": 2}, {}),
        (0, {"local_updates.workers": 2, "local_updates.method": "outer", "local_updates.offload": "on"}, {}),
        # a buffer of 400 gradients, or as many as there are
        (0, {"plainly.gradient_staging": 400}, {"gradient staging": 4 * 400}),
        (2, {"plainly.gradient_staging": 9e9}, {"gradient staging": 4 * ALL}),
        (3, {"plainly.gradient_staging": 400}, {"gathered layers": 2 * 220, "gathered last layer": 2 * 110, "gathered embedding and head": 2 * 590, **WHOLE}),
    ]),
)  # fmt: skip
def test_buffers_beside_the_state(
    bind: Bind, zero: int, values: dict[str, Any], expected: dict[str, float]
) -> None:
    text = "framework plainly { }\n" if any("plainly" in v for v in values) else ""
    chosen = {"training.framework": "plainly"} if text else {}
    if zero == 3:  # and not when the loss has freed its tensors
        chosen["sharding.keep_last"] = "on"
    given = {"layout.zero": zero, "small.layers": 3, **values, **chosen}
    held = bind(given, text, parameters=PARTS)
    state = ("weights", "gradients", "optimizer state")
    assert {n: b for n, b in sizes(held).items() if n not in state} == pytest.approx(expected)
    for name, term in terms(held).items():
        if term.bytes_ and name != "communicators":
            assert compute(term) == pytest.approx(term.bytes_), name
    # Nothing of it where a single rank holds the parameters, but what never travels.
    alone = sizes(bind({**given, "cluster.devices": 1, "local_updates.workers": 1}, text, parameters=PARTS))  # fmt: skip
    assert set(alone) == set(state)


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "times"), [(1, 0), (2, 1)])
def test_two_ranks_are_enough_for_buffers(bind: Bind, devices: int, times: int) -> None:
    text = "framework plainly { gradient_staging = 100 }\n"
    given = {"cluster.devices": devices, "training.framework": "plainly"}
    chosen = {
        "compression.method": "top_k",
        "compression.residual": 3,
        "sharding.bucket_copy": "on",
    }
    found = terms(bind({**given, **chosen}, text, parameters=[part(880)]))
    assert found["gradient staging"].bytes_ == times * 4 * 100
    assert found["gradient buckets"].bytes_ == times * 4 * 880
    assert found["compression residual"].bytes_ == times * 3 * 880
    found = terms(bind({"cluster.devices": devices, "layout.zero": 2}, parameters=[part(880)]))
    assert found["gradient bucket"].bytes_ == times * 4 * 880
    found = terms(bind({"cluster.devices": devices, "layout.zero": 3}, parameters=[part(880)]))
    assert found["gathered layers"].bytes_ == times * 2 * 2 * 880 / 8
    outer = {"local_updates.method": "outer", "local_updates.outer_state": 7}
    workers = {"cluster.devices": 2, "local_updates.workers": devices}
    found = terms(bind({**outer, **workers}, parameters=[part(880)]))
    state = found.get("outer optimizer state")  # none of a single worker
    assert (state.bytes_ if state else 0) == times * 7 * 880


def test_ends_beside_narrow_layers_are_gathered_wide(bind: Bind) -> None:
    """Layers of 110 B and ends of 2 B a parameter: 700 before one layer, 500 behind two."""
    parts = [PARTS[0], evolve(PARTS[1], linear=True), PARTS[2]]
    given = {"layout.zero": 3, "small.layers": 3, "mixed.gather": 1, "mixed.wide_gather": 2}
    found = sizes(bind(given, parameters=parts))
    assert found["gathered layers"] == 2 * 110
    assert found["gathered embedding and head"] == 2 * 700 - 110
    kept = sizes(bind({**given, "sharding.reshard": "off"}, parameters=parts))
    assert kept["gathered embedding and head"] == 2 * (700 + 500)


@try_each(
    "values, each",
    [
        ({"layout.zero": 3}, 6),
        ({"layout.zero": 3, "training.global_batch": 8}, 4 / 8),
        ({"layout.zero": 3, "sharding.accumulate": "shard"}, 4 / 8),
        ({"layout.zero": 1}, 4),
    ],
)
def test_whole_gradients_have_a_type_of_their_own(
    bind: Bind, values: dict[str, Any], each: float
) -> None:
    given = {"mixed.whole_gradients": 6, "sharding.accumulate": "whole"}
    found = sizes(bind({**given, "training.global_batch": 16, **values}, parameters=[part(880)]))
    assert found["gradients"] == each * 880


@try_each(
    "zero, accumulate, batch, shards",
    [
        (0, "shard", 16, (1, 1, 1)),
        (1, "shard", 16, (1, 1, 8)),
        (2, "shard", 16, (1, 8, 8)),
        (2, "whole", 16, (1, 1, 8)),
        (2, "whole", 8, (1, 8, 8)),  # one micro-batch, which is the last
        (3, "shard", 16, (8, 8, 8)),
        (3, "whole", 16, (8, 1, 8)),
        (3, "whole", 8, (8, 8, 8)),
    ],
)
def test_state_is_shared_out_from_its_stage_on(
    bind: Bind, zero: int, accumulate: str, batch: int, shards: tuple[int, int, int]
) -> None:
    values = {"layout.zero": zero, "sharding.accumulate": accumulate}
    values["training.global_batch"] = batch
    copies = {"mixed.gradient_copies": 3, "offload.optimizer": 0.25}
    found = sizes(bind({**values, **copies}, parameters=[part(880)]))
    weights, gradients, optimizer = shards
    names = ("weights", "gradients", "gradients of a micro-batch", "optimizer state")
    assert {name: found[name] for name in names} == {
        "weights": 2 * 880 / weights,
        "gradients": 4 * 880 / gradients,
        "gradients of a micro-batch": 3 * 880 / gradients,
        "optimizer state": 12 * 880 / optimizer * 0.75,
    }


#: Bytes of gradients at 4 B on each of 8 ranks, by moment: all, those of the head and a layer, none.
_ALL, _LAST = 4 * ALL, 4 * (500 + 110)


@try_each(
    "kept, values, loss, backward, reserved",
    [
        ("always", {}, _ALL, _ALL, 0),
        ("never", {}, 0, _LAST, 0),
        ("never", {"training.global_batch": 16}, _ALL, _ALL, 0),  # of the first micro-batch
        ("never", {"mixed.gradient_copies": 2}, _ALL, _ALL, 0),  # a buffer in a wider type
        ("never", {"kernels.fused_accumulation": "on"}, _ALL, _ALL, 0),
        ("never", {"layout.zero": 3}, 0, _LAST / 8, 0),
        ("replicas", {}, _ALL, _ALL, 0),
        (
            "replicas",
            {"cluster.devices": 1, "training.global_batch": 1},
            0,
            _LAST,
            0,
        ),  # nothing is reduced
        ("replicas", {"sharding.bucket_copy": "on"}, 0, _LAST, 0),
        ("replicas", {"layout.zero": 3}, 0, _LAST / 8, _ALL / 8),
        ("zero_3", {"layout.zero": 1}, 0, _LAST, 0),
        ("zero_3", {"layout.zero": 3}, _ALL / 8, _ALL / 8, 0),
    ],
)
def test_gradients_of_one_micro_batch_exist_as_backward_makes_them(
    bind: Bind, kept: str, values: dict[str, Any], loss: float, backward: float, reserved: float
) -> None:
    """By the framework: a buffer, buckets, or tensors that a step sets to None."""
    text = f"framework plainly {{ keeps_gradients = {kept} }}\n"
    given = {"small.layers": 3, "training.framework": "plainly", **values}
    found = [
        term
        for name, term in terms(bind(given, text, parameters=PARTS)).items()
        if "gradients" in name and "unsharded" not in name and "copy" not in name
        and name not in ("gradients of a micro-batch", "gradient buckets")
    ]  # fmt: skip

    def sum_bytes(moment: str, field: str = "moments") -> float:
        return sum(float(t.bytes_) for t in found if moment in getattr(t, field))

    ranks = 8 if values.get("layout.zero") == 3 else 1
    for moment in ("end_of_backward", "optimizer", "gather"):
        assert (sum_bytes(moment), sum_bytes(moment, "cached")) == (_ALL / ranks, 0)
    assert (sum_bytes("forward"), sum_bytes("loss")) == (loss, loss)
    assert sum_bytes("backward") == pytest.approx(backward)
    # blocks of the stream of reductions, which its allocator keeps
    assert sum_bytes("loss", "cached") == reserved
    assert sum_bytes("backward", "cached") == pytest.approx(max(reserved - backward, 0))


@pytest.mark.parametrize(("head", "largest"), [(90, 90), (50, 70)])
def test_gradients_by_matrix_are_whole_of_the_largest(
    bind: Bind, head: float, largest: float
) -> None:
    text = "framework plainly { reduces_by_matrix = on }\n"
    layer = [part(70, (3.0,)), part(40, (3.0,))]
    study = bind(
        {"layout.zero": 3, "small.layers": 3, "training.framework": "plainly"},
        text,
        parameters=[*layer, part(head, place="after")],
    )
    # nothing is copied for the wire: 4 B of the reduction
    assert terms(study)["unsharded gradients"].bytes_ == 4 * largest


def test_gradients_of_a_micro_batch_are_cast_one_by_one_and_not_staged(bind: Bind) -> None:
    text = "framework plainly { gradient_staging = 400 }\n"
    given = {"mixed.gradient_copies": 2, "small.layers": 3, "training.framework": "plainly"}
    found = terms(bind(given, text, parameters=PARTS))
    # 4 B for each of 700 elements of the embedding, the largest
    assert found["copy of a gradient to add"].bytes_ == 4 * 700
    assert "gradient staging" not in found
    layer = terms(bind(given, text, parameters=[part(110, (3.0,)), part(90, place="after")]))
    assert layer["copy of a gradient to add"].bytes_ == 4 * 110


@pytest.mark.parametrize(
    ("values", "whole"),
    [
        ({}, ALL),
        ({"training.global_batch": 32}, ALL),  # of each of several micro-batches
        ({"layout.zero": 1}, ALL),  # a rank of ZeRO 1 has the gradients of all parameters
        ({"kernels.fused_accumulation": "on"}, 0),
        ({"mixed.gradients": 2}, 0),  # the sums are the gradients
    ],
)
def test_gradients_that_are_added_behind_the_pass_are_held_until_then(
    bind: Bind, values: dict[str, Any], whole: float
) -> None:
    """2 B for each parameter, as nanotron's FP32GradientAccumulator: all of them at the end."""
    text = "framework plainly { adds_gradients = pass }\n"
    given = {"small.layers": 3, "training.framework": "plainly", **values}
    found = terms(bind(given, text, parameters=PARTS))
    held = {
        moment: sum(
            float(term.bytes_)
            for name, term in found.items()
            if name.startswith("gradients of a micro-batch") and moment in term.moments
        )
        for moment in ("forward", "loss", "backward", "end_of_backward", "optimizer", "gather")
    }
    # the head and a layer, of 500 and 110 parameters, where all activations are alive
    backward = 2 * (500 + 110) if whole else 0
    assert held.pop("backward") == pytest.approx(backward)
    assert held.pop("end_of_backward") == 2 * whole
    assert set(held.values()) == {0}


@pytest.mark.slow
def test_buffers_of_a_device_stand_once_on_it(bind: Bind) -> None:
    found = terms(bind({"layout.zero": 2, "plain.memory": 1e12}, parameters=PARTS))
    assert found["gradient bucket"].once_per_device
    assert found["gradient bucket"].moments == ("backward", "loss", "end_of_backward")
    gathered = terms(bind({"layout.zero": 3}, parameters=PARTS))
    assert gathered["gathered layers"].once_per_device
    layers = ("forward", "backward", "end_of_backward", "gather")
    assert gathered["gathered layers"].moments == layers
    assert gathered["gathered last layer"].moments == ("loss",)
    assert gathered["unsharded gradients"].moments == ("backward",)
    assert gathered["unsharded gradients of the ends"].moments == ("optimizer",)
    text = "framework plainly { gradient_staging = 1 }\n"
    staging = terms(bind({"training.framework": "plainly"}, text, parameters=PARTS))[
        "gradient staging"
    ]
    assert (staging.bytes_, staging.once_per_device) == (4, True)
    assert staging.moments == ("backward", "loss", "end_of_backward", "optimizer")
    kept = terms(bind({"layout.zero": 3, "sharding.reshard": "off"}, parameters=PARTS))
    assert not kept["gathered layers"].once_per_device


@pytest.mark.parametrize(
    ("values", "communicators"),
    [
        ({"cluster.devices": 1}, 0),
        ({}, 1),  # dp, which is the job
        ({"layout.cp": 8}, 1 + 1),  # cp, and what holds the same parameters: the job
        ({"layout.cp": 2}, 1 + 1),
        ({"layout.tp": 8}, 1),
        ({"layout.tp": 2}, 1 + 1 + 1),  # tp, dp, the job
        ({"layout.pp": 8}, 1),
        ({"layout.pp": 8, "small.tied": "on"}, 1 + 1),  # and the two ends
        ({"layout.pp": 2, "layout.tp": 4}, 2 + 1 + 1),  # tp, pp, the job, the norm over both
        ({"layout.pp": 2, "layout.tp": 2}, 3 + 1 + 1),
        # four shards and their two replicas
        ({"sharding.shard": 4}, 1 + 1),
        ({"sharding.shard": 4, "local_updates.workers": 2}, 1 + 1),
        ({"sharding.shard": 2, "local_updates.workers": 2}, 1 + 1 + 1),
        ({"sharding.shard": 1, "local_updates.workers": 1}, 1),
    ],
)  # fmt: skip
def test_communicators(bind: Bind, values: dict[str, Any], communicators: int) -> None:
    stages = int(values.get("layout.pp", 1))
    study = bind(
        {"memory.communicator": 10, "memory.context": 7, **values},
        parameters=[part(100, (1.0,) * stages)],
    )
    found = terms(study)
    assert found["communicators"].bytes_ == 10 * communicators
    assert found["driver context and libraries"].bytes_ == 7
    assert found["communicators"].once_per_device
    assert found["driver context and libraries"].once_per_device


@pytest.mark.parametrize(
    ("layout", "communicators"),
    [
        ({"layout.ep": 8}, 1 + 1),  # ep, and dp for all but the experts
        ({"layout.ep": 4}, 1 + 1 + 1),  # and the replicas of the experts
        ({"layout.ep": 2, "layout.etp": 2}, 2 + 1 + 1),
    ],
)
def test_communicators_of_experts(bind: Bind, layout: dict[str, Any], communicators: int) -> None:
    experts = Parameters(name="e", elements=1.0, total=8.0, count=(1.0,), expert=True)
    study = bind({"memory.communicator": 10, **layout}, parameters=[part(100), experts])
    assert terms(study)["communicators"].bytes_ == 10 * communicators
    dense = bind({"memory.communicator": 10, **layout}, parameters=[part(100)])
    assert terms(dense)["communicators"].bytes_ == 10
