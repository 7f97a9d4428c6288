"""Hints: what somebody meant who wrote a word of another tool, or a unit too few."""

from __future__ import annotations

import pytest

import parcost
from parcost import SpecError
from parcost.language.diagnostics import Diagnostic

USES = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
"""
BLOCKS = {
    "cluster": "cluster { devices = 64 }",
    "layout": "layout { tp = 2, zero = 1, sequence_parallel = on }",
    "training": "training { sequence = 8192, micro_batch = 1, global_batch = 128 sequences }",
}


def diagnostics_of(text: str = "", **blocks: str) -> list[Diagnostic]:
    spec = "\n".join([USES, *(BLOCKS | blocks).values(), text])
    try:
        (scenario,) = parcost.load_text(spec)
        return list(scenario.evaluate().diagnostics)
    except SpecError as error:
        return list(error.diagnostics)


def helps(text: str = "", **blocks: str) -> str:
    return "\n".join(d.help or "" for d in diagnostics_of(text, **blocks))


def test_a_name_that_begins_with_a_digit_is_spelled_out() -> None:
    assert helps("schedule { kind = 1f1b }") == "did you mean `one_f_one_b`?"


def test_capitals_are_no_other_name() -> None:
    assert helps(layout="layout { TP = 8, zero = 1 }") == "did you mean `tp`?"


def test_an_entry_of_a_catalogue_is_found_by_its_last_name() -> None:
    assert helps("use llama31_405b") == "did you mean `use catalog.models.llama31_405b`?"


def test_a_name_in_quotes_is_told_from_a_string() -> None:
    said = helps(cluster='cluster { devices = 64, device = "h100" }')
    assert said == "a name stands without quotes; did you mean `h100_sxm`?"


def test_a_rate_in_bits_lacks_its_second() -> None:
    transfer = "transfer t { operation = all_reduce, size = 1 GB total, ranks = 8, "
    said = helps(transfer + "bandwidth = 400 Gb per_direction }")
    assert said == "write `400 Gb/s per_direction`"
    assert not diagnostics_of(transfer + "bandwidth = 400 Gb/s per_direction }")


@pytest.mark.parametrize("batch", ["64 sequences * 4", "64 * 4 sequences"])
def test_a_word_inside_of_a_product_is_moved_behind_it(batch: str) -> None:
    training = f"training {{ sequence = 8192, micro_batch = 1, global_batch = {batch} }}"
    said = helps(training=training)
    assert said == "the word stands behind the whole value: write `(64 * 4) sequences`"
    assert not diagnostics_of(training=training.replace(batch, "(64 * 4) sequences"))


def test_a_block_is_no_attribute_and_the_attribute_is_named() -> None:
    assert "did you mean `kind`? it is one of the schedules" in helps(
        "pipeline p { schedule = gpipe, stages = 4, micro_batches = 8, forward = 2 ms }"
    )


def test_stages_that_are_proposed_divide_the_layers_too() -> None:
    """61 layers go on 1 or 61 stages, and of 64 devices only 1 divides."""
    said = helps(
        "model odd extends llama3_8b { layers = 61 }",
        layout="layout { pp = 12, zero = 1 }",
        training="training { model = odd, sequence = 8192, micro_batch = 1, "
        "global_batch = 128 sequences }",
    )
    assert "pp = 1 divides" in said
    assert "pp = 8" not in said


def test_a_second_block_is_a_second_study() -> None:
    assert "studies that differ in it" in helps("cluster { devices = 32 }")


def test_groups_that_a_border_cuts_do_not_reach_beyond_it() -> None:
    heads = "model three extends llama3_8b { heads = 24, kv_heads = 24, hidden = 3072 }"
    (said,) = (
        d.message
        for d in diagnostics_of(
            heads,
            cluster="cluster { devices = 24 }",
            layout="layout { tp = 3, zero = 1 }",
            training="training { model = three, sequence = 8190, micro_batch = 1, "
            "global_batch = 128 sequences }",
        )
        if d.id == "tp-wider-than-fast-domain"
    )
    assert said.startswith("tensor-parallel groups of 3 do not divide the 8 devices of level")
