"""Which device is fullest, when, and of what."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from parcost import Op


def memory_lines(outcome: Any) -> dict[str, Any]:
    return {x.name: x.bytes_ for x in outcome.memory_lines}


@pytest.fixture(scope="session")
def step(make: Any) -> Any:
    works = [make.work("f", 1.0), make.work("b", 2.0, "B")]

    def run(*memory: Any, **pipeline: Any) -> Any:
        return make.step(*works, *memory, **pipeline)

    return run


def test_activations_are_held_as_often_as_micro_batches_are_alive(make: Any, step: Any) -> None:
    activations = make.memory("activations", 10.0, per_micro_batch=True)
    weights = make.memory("weights", 7.0)
    for schedule, alive in (
        ("gpipe", (16,) * 4),
        ("one_f_one_b", (4, 3, 2, 1)),
        ("zb_h1", (4,) * 4),
    ):
        found = step(activations, weights, p=4, m=16.0, schedule=schedule)
        assert found.alive == list(alive)
        assert found.device_memory == [7.0 + 10.0 * n for n in alive]
        assert found.memory_bytes == 7.0 + 10.0 * alive[0]
        assert (found.memory_device, found.memory_moment) == (0, "forward")
        assert memory_lines(found) == {"activations": 10.0 * alive[0], "weights": 7.0}


def test_stages_hold_what_they_count(make: Any, step: Any) -> None:
    layers = make.memory("layers", 10.0, count=(7, 8, 8, 7), per_micro_batch=True)
    embedding = make.memory("embedding", 100.0, count=(1, 0, 0, 0))
    head = make.memory("head", 300.0, count=(0, 0, 0, 1))
    found = step(layers, embedding, head, p=4, m=16.0)
    assert found.device_memory == [380.0, 240.0, 160.0, 370.0]
    assert memory_lines(found) == {"layers": 280.0, "embedding": 100.0}


def test_a_transient_counts_only_at_its_moment(make: Any, step: Any) -> None:
    activations = make.memory("activations", 10.0, per_micro_batch=True)
    for moment, most in (
        ("forward", 80.0),
        ("backward", 80.0),
        ("loss", 80.0),
        ("end_of_backward", 60.0),
        ("optimizer", 50.0),
        ("gather", 50.0),
    ):
        transient = make.memory("transient", 40.0, moments=(moment,))
        other = make.memory("weights", 10.0)
        found = step(activations, transient, other, p=3, m=9.0)
        assert found.memory_bytes == most
        assert found.memory_moment == moment


@pytest.mark.parametrize("schedule", ["one_f_one_b", "gpipe"])
def test_the_loss_is_over_when_a_layer_is_recomputed(make: Any, step: Any, schedule: str) -> None:
    """The last stage has 1 micro-batch in flight with 1F1B, and all of them with GPipe."""
    m = np.array([1.0, 2.0, 8.0])
    alive = np.array([1.0, 1.0, 1.0]) if schedule == "one_f_one_b" else m
    for layer, most in (
        (6.0, 10 * alive + 3 * alive + 4),
        (20.0, 10 * alive + 3 * (alive - 1) + 20),
    ):
        terms = (
            make.memory("kept", 10.0, count=(0, 1), per_micro_batch=True),
            make.memory(
                "softmax", 3.0, count=(0, 1), per_micro_batch=True, moments=("forward", "loss")
            ),
            make.memory("gradient", 4.0, count=(0, 1), moments=("loss",)),
            make.memory("layer", layer, count=(0, 1), moments=("backward",)),
        )
        found = step(*terms, p=2, m=m, schedule=schedule)
        assert list(found.memory_bytes) == list(most)
        for i, one in enumerate(m):
            alone = step(*terms, p=2, m=float(one), schedule=schedule)
            assert alone.memory_bytes == most[i]
            expected = {"kept": 10 * alive[i], "softmax": 3 * (alive[i] - (layer == 20.0))}
            held = memory_lines(alone)
            assert {name: held.get(name, 0.0) for name in expected} == expected
            assert alone.memory_moment == ("backward" if layer == 20.0 else "loss")


def test_the_loss_of_a_pass_waits_for_its_weight_gradients_in_part(make: Any, step: Any) -> None:
    ops = [Op("F", 0, 0), Op("F", 1, 0), Op("B", 0, 0), Op("B", 1, 0), Op("W", 0, 0), Op("W", 1, 0)]
    found = step(
        # of 8 bytes the weight gradient needs 2; it is B of the first that runs, so 2 + 8 are left
        make.memory("softmax", 8.0, per_micro_batch=True, freed_at_b=0.75, moments=("loss",)),
        make.memory("layer", 20.0, moments=("backward",)),
        m=2.0, schedule=make.listed("hand", lambda *_: [ops]),
    )  # fmt: skip
    assert memory_lines(found) == {"softmax": 10.0, "layer": 20.0}


def test_the_loss_on_one_chunk_is_held_while_the_other_runs_back(make: Any, step: Any) -> None:
    # B of chunk 0 begins beside a micro-batch that waits on chunk 1
    ops = [
        Op("F", 0, 0), Op("F", 0, 1), Op("BW", 0, 1), Op("F", 1, 0), Op("F", 1, 1), Op("BW", 0, 0),
        Op("BW", 1, 1), Op("BW", 1, 0),
    ]  # fmt: skip
    found = step(
        make.memory("kept", 10.0, per_micro_batch=True),
        make.memory("softmax", 5.0, count=(0, 1), per_micro_batch=True, moments=("loss",)),
        make.memory("layer", 20.0, once_per_device=True, moments=("backward",)),
        v=2, m=2.0, schedule=make.listed("hand", lambda *_: [ops]),
    )  # fmt: skip
    assert memory_lines(found) == {"kept": 30.0, "softmax": 5.0, "layer": 20.0}


def test_a_cached_block_is_reserved_and_not_needed(make: Any, step: Any) -> None:
    activations = make.memory("activations", 10.0, per_micro_batch=True)
    norm = make.memory("norm", 4.0, moments=("optimizer",), cached=("backward", "loss"))
    states = make.memory("states", 13.0, moments=("optimizer",))
    (found, without) = (step(activations, *one, m=4.0) for one in ((norm, states), (states,)))
    assert found.device_memory == [17.0]  # 13 + 4 in the optimizer, 10 in the passes
    assert found.device_reserved == [17.0]
    assert without.device_reserved == without.device_memory == [13.0]
    several = step(activations, norm, states, p=2, m=4.0)
    assert several.device_memory == [20.0, 17.0]
    assert several.device_reserved == [24.0, 17.0]  # two micro-batches alive, and the block
    assert memory_lines(several) == {"activations": 20.0}


def test_no_micro_batch_is_alive_while_the_optimizer_runs(make: Any, step: Any) -> None:
    activations = make.memory("activations", 10.0, per_micro_batch=True)
    update = make.memory("update", 45.0, moments=("optimizer",))
    found = step(activations, update, p=4, m=8.0)
    assert memory_lines(found) == {"update": 45.0}
    assert found.device_memory == [45.0] * 4


def test_a_layer_of_a_micro_batch_is_left_at_the_end_of_backward(make: Any, step: Any) -> None:
    kept = make.memory("kept", 10.0, count=(3, 3), per_micro_batch=True)
    offloaded = make.memory("offload", 0.0, of_activations=-0.25)
    spread = make.memory("spread", 0.0, of_activations=0.1)
    gradients = make.memory("gradients", 100.0, moments=("end_of_backward",))
    found = step(kept, offloaded, spread, gradients, p=2, m=1.0)
    assert found.memory_moment == "end_of_backward"
    assert memory_lines(found) == {"gradients": 100.0, "kept": 7.5, "spread": 0.75}
    assert found.device_memory == [108.25, 108.25]


def test_once_per_device_memory_is_not_repeated_per_chunk(make: Any, step: Any) -> None:
    context = make.memory("context", 5.0, once_per_device=True)
    weights = make.memory("weights", 7.0)
    found = step(context, weights, p=2, m=4.0, v=3, schedule="interleaved")
    assert memory_lines(found) == {"context": 5.0, "weights": 21.0}


def test_chunks_of_a_device_are_fullest_together_and_not_each(make: Any, step: Any) -> None:
    # One device, two chunks: F0 F0 BW.. would need both; here chunk 0 peaks before chunk 1.
    ops = [
        Op("F", 0, 0), Op("F", 1, 0), Op("F", 2, 0), Op("F", 0, 1), Op("BW", 0, 1), Op("BW", 0, 0),
        Op("F", 1, 1), Op("BW", 1, 1), Op("BW", 1, 0), Op("F", 2, 1), Op("BW", 2, 1), Op("BW", 2, 0),
    ]  # fmt: skip
    schedule = make.listed("hand", lambda *_: [ops])
    found = step(
        make.memory("small", 1.0, count=(1, 0), per_micro_batch=True),
        make.memory("large", 10.0, count=(0, 1), per_micro_batch=True),
        v=2, m=3.0, schedule=schedule,
    )  # fmt: skip
    assert memory_lines(found) == {"small": 3.0, "large": 10.0}
    assert found.alive == [3.0, 1.0]


def test_the_moment_with_the_most_bytes_need_not_have_the_most_micro_batches(
    make: Any, step: Any
) -> None:
    # Chunk 0 alone is alive three times, or once beside two of chunk 1.
    ops = [
        Op("F", 0, 0), Op("F", 1, 0), Op("F", 2, 0), Op("F", 0, 1), Op("BW", 0, 1), Op("BW", 0, 0),
        Op("F", 1, 1), Op("F", 2, 1), Op("BW", 2, 1), Op("BW", 1, 1), Op("BW", 1, 0), Op("BW", 2, 0),
    ]  # fmt: skip
    schedule = make.listed("hand", lambda *_: [ops])
    for small, large, expected in ((10.0, 1.0, (30.0, 1.0)), (1.0, 10.0, (2.0, 20.0))):
        found = step(
            make.memory("small", small, count=(1, 0), per_micro_batch=True),
            make.memory("large", large, count=(0, 1), per_micro_batch=True),
            v=2, m=3.0, schedule=schedule,
        )  # fmt: skip
        assert memory_lines(found) == dict(zip(("small", "large"), expected, strict=True))


def test_the_fullest_device_and_moment_are_found_for_each_candidate(make: Any, step: Any) -> None:
    head = np.array([1.0, 100.0, 5.0])
    update = np.array([1.0, 1.0, 100.0])
    found = step(
        make.memory("activations", 10.0, per_micro_batch=True),
        make.memory("head", head, count=(0, 1)),
        make.memory("update", update, count=(1, 0), moments=("optimizer",)),
        p=2,
        m=4.0,
    )
    assert list(found.memory_bytes) == [20.0, 110.0, 100.0]
    assert list(found.memory_device) == [0, 1, 0]
    assert list(found.memory_moment) == ["forward", "forward", "optimizer"]
    assert list(memory_lines(found)["activations"]) == [20.0, 10.0, 0.0]


def test_micro_batches_may_differ_between_candidates(make: Any, step: Any) -> None:
    batches = np.array([1.0, 2.0, 8.0, 2.0])
    found = step(make.memory("activations", 10.0, per_micro_batch=True), p=4, m=batches)
    assert list(found.memory_bytes) == [10.0, 20.0, 40.0, 20.0]
    assert [list(alive) for alive in found.alive] == [
        [1, 2, 4, 2],
        [1, 2, 3, 2],
        [1, 2, 2, 2],
        [1] * 4,
    ]
    assert list(found.step_seconds) == [12.0, 15.0, 33.0, 15.0]
