"""What recomputing each part saves and costs: the table against evaluations of its own."""

from __future__ import annotations

import pytest

import parcost

SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster {{ devices = 8 }}
layout {{ tp = 1, zero = 1 }}
training {{ sequence = 4096, global_batch = 16 sequences, recompute = {whole} }}
recompute {{ norms = {norms} }}
"""


def report(whole: str, norms: str = "off") -> parcost.Result:
    (scenario,) = parcost.load_text(SPEC.format(whole=whole, norms=norms))
    return scenario.evaluate().result


def table(whole: str, norms: str = "off") -> dict[str, tuple[object, ...]]:
    sections = [s for _, s in report(whole, norms).sections]
    (section,) = [s for s in sections if s.title == "Memory saved by recomputation"]
    return {row[0]: tuple(row[1:]) for row in section.rows}


@pytest.mark.slow
def test_a_row_is_the_difference_of_two_jobs() -> None:
    rows = table("none")
    before, after = report("none").outcome, report("full").outcome
    assert before is not None
    assert after is not None
    memory, flops, seconds, worth, mark = rows["training.recompute = full"]
    saved = before.memory_bytes - after.memory_bytes
    added = after.step_seconds - before.step_seconds
    assert memory == (pytest.approx(-saved), "B")
    assert seconds == (pytest.approx(added), "s")
    assert flops == (pytest.approx(after.flops - before.flops), "FLOP")
    assert worth == (pytest.approx(saved / added / 1e3), "B")
    assert mark == ""


@pytest.mark.slow
def test_norms_save_two_inputs_of_each_layer() -> None:
    """32 layers hold the outputs of two norms: 4,096 tokens x 4,096 x 2 B, and fragments of it."""
    memory = table("none")["recompute.norms = on"][0]
    held = 32 * 2 * 4096 * 4096 * 2
    assert isinstance(memory, tuple)
    assert -memory[0] == pytest.approx(held, rel=0.15)


@pytest.mark.slow
def test_rows_do_not_depend_on_what_is_in_use() -> None:
    plain, used = table("none"), table("selective", norms="on")
    assert {name: row[:-1] for name, row in used.items()} == {
        name: row[:-1] for name, row in plain.items()
    }
    assert [name for name, row in used.items() if row[-1] == "in use"] == [
        "recompute.norms = on",
        "training.recompute = selective",
    ]


@pytest.mark.slow
def test_the_most_bytes_for_each_second_stand_first() -> None:
    (section,) = [
        s for _, s in report("none").sections if s.title == "Memory saved by recomputation"
    ]
    worth = [row[4][0] for row in section.rows if row[4] != "-"]
    assert worth == sorted(worth, reverse=True)
    assert section.rows[-1][0] == "training.recompute = selective"
    assert (
        "recomputing the attention core saves no memory: its kernel does not store scores"
        in section.notes
    )
