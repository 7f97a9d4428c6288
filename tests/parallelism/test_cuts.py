"""How frameworks cut layers that do not divide, against cuts worked out by hand.

Megatron-Core: ``get_num_layers_to_build`` of ``core/transformer/transformer_block.py`` gives the
first and last stage their stated numbers, and the rest has to divide; with
``pipeline_model_parallel_layout`` a stage has any number. torchtitan:
``generate_llm_fqn_per_model_part`` counts the embedding and the head as a layer each, gives the
remainder to the first stages, and takes the two from the first and last stage.
"""

from __future__ import annotations

from typing import Any

import pytest

import parcost
from parcost.engine.rules import rules
from parcost_plugins.physics.partition import layers

from ..rows import try_each

_SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
use catalog.frameworks.{framework}
model cut extends llama3_8b {{ layers = {layers} }}
cluster {{ devices = {pp} }}
layout {{ pp = {pp} }}
schedule {{ kind = {kind}, chunks = {chunks} }}
training {{ model = cut, sequence = 4096, micro_batch = 1, global_batch = {batch} sequences }}
"""


def cut(framework: str, count: int, pp: int, chunks: int = 1) -> Any:
    """Return the study of *count* layers on the stages of a framework."""
    kind = "interleaved" if chunks > 1 else "one_f_one_b"
    values = {"framework": framework, "layers": count, "pp": pp, "chunks": chunks, "kind": kind}
    (scenario,) = parcost.load_text(_SPEC.format(batch=4 * pp, **values))
    return scenario.first


def broken_rules(study: Any) -> set[str]:
    """Return the ids of the rules that the study breaks."""
    return {check.id for check in rules(study).failed}


# Each stage has the ceiling; the first and the last are short of it by what is too much.
SHORT_ENDS = [
    (61, 4, (15, 16, 16, 14)),  # 64 - 61 = 3: one and two fewer
    (61, 8, (7, *[8] * 6, 6)),
    (61, 16, (3, *[4] * 14, 2)),
    (61, 32, (1, *[2] * 29, 1, 1)),  # three stages lack one: the ends cannot lack more
    (62, 4, (15, 16, 16, 15)),
    (62, 16, (3, *[4] * 14, 3)),
    (46, 4, (11, 12, 12, 11)),
    (46, 8, (5, *[6] * 6, 5)),
    (46, 16, (2, *[3] * 14, 2)),  # 48 with both ends
    (126, 4, (31, 32, 32, 31)),
    (126, 16, (7, *[8] * 14, 7)),  # as Llama 3 405B was trained
    (94, 4, (23, 24, 24, 23)),
    (94, 16, (5, *[6] * 14, 5)),
    (48, 16, (3,) * 16),  # divides: nothing changes
    (48, 5, (9, 10, 10, 10, 9)),
]


@pytest.mark.parametrize("framework", ["generic", "megatron_core", "nemo"])
@pytest.mark.parametrize(("count", "pp", "expected"), SHORT_ENDS)
def test_megatron_shortens_the_first_and_the_last_stage(
    framework: str, count: int, pp: int, expected: tuple[int, ...]
) -> None:
    study = cut(framework, count, pp)
    assert sum(expected) == count
    assert layers(study) == expected
    assert not broken_rules(study) & {"layers-divide", "layers-few"}


@try_each(
    "count, pp, chunks, expected",
    [
        (126, 16, 8, (0, *[1] * 126, 0)),  # embedding and head have stages of their own
        (61, 4, 4, (3, *[4] * 14, 2)),
        (62, 4, 2, (7, *[8] * 6, 7)),
        (94, 8, 2, (5, *[6] * 14, 5)),
    ],
)
def test_chunks_are_cut_as_stages_are(
    count: int, pp: int, chunks: int, expected: tuple[int, ...]
) -> None:
    assert layers(cut("megatron_core", count, pp, chunks)) == expected


@try_each(
    "count, pp, expected",
    [
        (61, 16, (3, *[4] * 14, 2)),  # 63 = 15 x 4 + 3
        (61, 8, (7, *[8] * 6, 6)),
        (62, 16, (3, *[4] * 14, 3)),  # 64
        (62, 4, (15, 16, 16, 15)),
        (46, 8, (5, *[6] * 6, 5)),
        (126, 16, (7, *[8] * 14, 7)),
        (94, 16, (5, *[6] * 14, 5)),
        (48, 8, (6, 7, *[6] * 5, 5)),  # 50 = 2 x 7 + 6 x 6, though 48 divides
    ],
)
def test_torchtitan_counts_both_ends(count: int, pp: int, expected: tuple[int, ...]) -> None:
    assert layers(cut("torchtitan", count, pp)) == expected


@try_each(
    "count, pp, expected",
    [
        (61, 16, (*[4] * 13, *[3] * 3)),
        (62, 8, (*[8] * 6, 7, 7)),
        (46, 4, (12, 12, 11, 11)),
        (126, 16, (*[8] * 14, 7, 7)),
        (94, 8, (*[12] * 6, 11, 11)),
        (48, 16, (3,) * 16),
    ],
)
def test_megatron_deepspeed_gives_the_first_stages_one_more(
    count: int, pp: int, expected: tuple[int, ...]
) -> None:
    assert layers(cut("megatron_deepspeed", count, pp)) == expected


@pytest.mark.parametrize("framework", ["maxtext", "megatron_lm_2021", "megatron_lm_2023"])
def test_frameworks_that_only_divide_refuse_other_cuts(framework: str) -> None:
    assert "layers-divide" in broken_rules(cut(framework, 61, 16))


def test_a_pipeline_has_at_most_two_stages_more_than_layers() -> None:
    assert "layers-few" not in broken_rules(cut("generic", 62, 64))
    assert "layers-few" in broken_rules(cut("generic", 61, 64))
