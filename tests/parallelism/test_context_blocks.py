"""Context parallelism that runs attention block by block, and adds up in fp32, as PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

import parcost
from parcost import Study, Work

from ..rows import try_each

#: Of 16 ranks with 8192 tokens each: elements of outputs and queries, of keys and values.
OUT, KEYS, R = 8192 * 128 * 128, 8192 * 8 * 2 * 128, 16


def study_of(
    sums: int = 4, mode: str = "eager", algorithm: str = "all_gather", merges: str = "operators"
) -> Study:
    text = f"""
      use catalog.devices.h100_sxm
      use catalog.fabrics.hgx_h100
      use catalog.models.llama31_405b
      use catalog.precisions.bf16
      framework own {{ context_sums = {sums} B, context_merges = {merges} }}
      cluster {{ devices = 16 }}
      layout {{ cp = 16 }}
      context {{ algorithm = {algorithm} }}
      kernels {{ mode = {mode} }}
      training {{ sequence = 131072, global_batch = 1 sequences, framework = own }}
    """
    (study,) = parcost.load_text(text)[0].studies()
    return study


def terms_of(study: Study) -> dict[tuple[str, str], Work]:
    return {
        (term.name, term.pass_): term
        for plugin, term in study.contributions("terms")
        if plugin.name == "context_parallel" and isinstance(term, Work)
    }


@try_each("algorithm", ["all_gather", "ring"])
@try_each(
    "mode, forward, backward",
    [
        # casts 6 B, two differences 12 each and a product 8; sums 10, of halves 5 and joined 8
        (
            "eager",
            (15 * (6 + 12 + 8 + 12) + 6 + 6) * OUT + 15 * 4 * KEYS,
            (16 * 10 + 4 + 6) * OUT + (10 + 15 * (5 + 8) + 16 * 8 + 15 * 4 + 4 + 6) * KEYS,
        ),
        # a merge reads a block in bf16 and the sum, and writes the sum
        (
            "compiled",
            (15 * (2 + 4 + 4) + 6) * OUT + 15 * 4 * KEYS,
            (16 * 10 + 6) * (OUT + KEYS) + 15 * 4 * KEYS,
        ),
    ],
)
def test_blocks_of_attention_are_merged_and_added_up(
    algorithm: str, mode: str, forward: int, backward: int
) -> None:
    found = terms_of(study_of(mode=mode, algorithm=algorithm))
    assert found["merges of attention outputs", "F"].bytes_ == pytest.approx(forward)
    assert found["sums of attention gradients", "B"].bytes_ == pytest.approx(backward)
    one_kernel = terms_of(study_of(0, mode, algorithm))
    assert not {name for name, _ in one_kernel} & {
        "merges of attention outputs",
        "sums of attention gradients",
    }


def test_a_gather_hides_under_the_first_block_and_gradients_go_round() -> None:
    study = study_of()
    found = terms_of(study)
    for pass_ in ("F", "B"):
        gather = found["KV all-gather", pass_]
        assert (gather.bytes_, gather.share) == (R * KEYS * 2, 1 / R)
        assert gather.window
    round_, last = found["KV gradient ring", "B"], found["last KV gradient message", "B"]
    assert (round_.bytes_, last.bytes_) == (15 * KEYS * 4, KEYS * 4)
    assert round_.window == found["KV all-gather", "B"].window
    assert last.window is None
    assert round_.seconds == pytest.approx(15 * last.seconds)
    held = {term.name: term.bytes_ for _, term in study.contributions("memory")}
    assert held["gathered gradients of keys and values"] == 2 * KEYS * 4


def test_a_ring_sends_gradients_once_more_than_keys() -> None:
    found = terms_of(study_of(algorithm="ring"))
    assert found["KV and gradient ring", "B"].bytes_ == 15 * KEYS * (2 + 4)
    last = found["last KV gradient message", "B"]
    assert (last.bytes_, last.window) == (KEYS * 4, None)
    one_kernel = terms_of(study_of(0, algorithm="ring"))
    assert ("last KV gradient message", "B") not in one_kernel


def test_a_sweep_from_one_rank_on_merges_nothing_there() -> None:
    """The search evaluates all degrees at once, and each of its best layouts alone."""
    text = """
      use catalog.devices.h100_sxm
      use catalog.fabrics.hgx_h100
      use catalog.models.llama3_8b
      use catalog.precisions.bf16
      use catalog.frameworks.transformers
      cluster { devices = 8 }
      layout { cp = CP, zero = 3 }
      training { sequence = 4096, global_batch = 32 sequences, framework = transformers }
    """

    def seconds_of(degrees: str) -> list[float]:
        (scenario,) = parcost.load_text(text.replace("CP", degrees))
        outcomes = [one.outcome for one in scenario.evaluate().results]
        return [float(s) for one in outcomes if one for s in np.atleast_1d(one.step_seconds)]

    assert seconds_of("[1, 2]") == pytest.approx([*seconds_of("1"), *seconds_of("2")], rel=1e-12)


def test_a_ring_of_transformer_engine_has_a_kernel_for_each_tensor() -> None:
    found = terms_of(study_of(2, algorithm="ring", merges="kernels"))
    rows = 8192 * 128  # heads in tokens of a rank
    # Outputs: a scale (2 passes) and 15 sums (3 each) of 2 B. Keys and values: joined.
    # Logarithms of 4 B: 2 to copy the first, 3 for each of 15 sums, 2 to read for each of 16 blocks.
    forward = (2 + 15 * 3) * 2 * OUT + 2 * 2 * KEYS + (2 + 15 * 3 + 16 * 2) * 4 * rows
    # Gradients of half a block: a copy of 1, 14 sums of 1.5, and the last of 3; keys are copied.
    backward = (2 + 15 * 3) * 2 * OUT + (1 + 14 * 1.5 + 3 + 2) * 2 * KEYS
    assert found["merges of attention outputs", "F"].bytes_ == pytest.approx(forward)
    assert found["sums of attention gradients", "B"].bytes_ == pytest.approx(backward)
    assert ("last KV gradient message", "B") not in found
    gathered = terms_of(study_of(2, algorithm="all_gather", merges="kernels"))
    assert ("merges of attention outputs", "F") not in gathered


def test_a_ring_of_transformer_engine_keeps_all_blocks_of_a_layer() -> None:
    study = study_of(2, algorithm="ring", merges="kernels")
    held = {term.name: float(term.bytes_) for _, term in study.contributions("memory")}
    assert held["KV blocks of other steps"] == 14 * 2 * KEYS
    assert held["attention outputs of all steps"] == 17 * 2 * OUT
