"""What a file of another tool leaves to the tool's defaults is on the first screen."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from parcost import (
    DecidingSubject,
    ImportedBlock,
    ImportedValue,
    Importer,
    ImportQuestion,
    Translation,
)
from parcost.language.text import Source
from parcost_formats.imports.spec_text import spec_lines
from parcost_formats.imports.translation import translate

Run = Callable[..., Any]

SCRIPT = """--num-layers 4 --hidden-size 1024 --num-attention-heads 16 --vocab-size 32000
--seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 16
"""
MACHINE = (
    *("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100"),
    *("--set", "cluster.devices=8"),
)


def assumed(out: str) -> dict[str, str]:
    (report,) = json.loads(out)["reports"]
    (result,) = report["results"]
    assert all(one["reason"] for one in result["assumed"])
    return {one["attribute"]: one["value"] for one in result["assumed"]}


@pytest.mark.slow
def test_assumed_values_are_on_the_screen_and_in_json(run_command: Run) -> None:
    page = run_command("eval", "train.args", *MACHINE, files={"train.args": SCRIPT})
    assert "Assumed: training.precision = fp32 (Megatron-LM" in " ".join(page.out.split())
    assert "more: --full" in " ".join(page.out.split())
    done = run_command(
        "eval", "train.args", *MACHINE, "--format", "json", files={"train.args": SCRIPT}
    )
    found = assumed(done.out)
    assert (found["training.precision"], found["layout.zero"]) == ("fp32", "0")
    assert "model.layers" not in found  # which the file states


@pytest.mark.slow
def test_an_imported_spec_says_the_same(run_command: Run) -> None:
    texts = {"train.args": SCRIPT}
    before = run_command("eval", "train.args", *MACHINE, "--format", "json", files=texts)
    spec = run_command("import", "train.args", *MACHINE, files=texts).out
    after = run_command("eval", "job.par", "--format", "json", job=spec)
    assert assumed(after.out) == assumed(before.out)


class Half(Importer):
    """An importer that assumes a precision, and asks for it where the file says `ask`."""

    name = "half"
    subjects = (
        DecidingSubject(
            name="precision", attributes=["training.precision", "precision", "catalog.precisions"]
        ),
    )

    def recognizes(self, name: str, text: str) -> bool:  # noqa: ARG002
        return True

    def translate(self, name: str, text: str) -> Translation:  # noqa: ARG002
        why = "" if text == "ask" else "half 1.0: bf16"
        use = ImportedValue(name="use", value="catalog.precisions.bf16", end=1, assumption=why)
        batch = ImportedValue(name="sequence", value="64", key="s", end=1)
        asked = ImportQuestion(attribute="precision", reason="why not")
        return Translation(
            blocks=[ImportedBlock(kind="training", settings=[batch])],
            uses=[use],
            questions=[asked] if text == "ask" else [],
        )


def test_an_assumed_entry_of_a_catalogue_is_a_reference_with_its_reason() -> None:
    lines = [line.text for line in spec_lines(translate(Half(), Source("a.half", "x")))]
    assert '  precision = bf16 @assumed("half 1.0: bf16")' in lines


def test_an_entry_that_its_importer_asks_about_is_assumed() -> None:
    (use,) = translate(Half(), Source("a.half", "ask")).uses
    assert use.assumption == "why not"


def test_a_value_of_the_command_line_is_not_assumed(run_command: Run) -> None:
    given = (*MACHINE, "--set", "layout.zero=1", "--format", "json")
    done = run_command("eval", "train.args", *given, files={"train.args": SCRIPT})
    assert "layout.zero" not in assumed(done.out)


@pytest.mark.slow
def test_constants_of_the_catalogue_are_not_listed(run_command: Run) -> None:
    spec = """use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
use catalog.frameworks.megatron_core
cluster { devices = 8 }
layout { tp = 8 }
training { sequence = 2048, global_batch = 8 sequences }
"""
    done = run_command("eval", "job.par", "--format", "json", job=spec)
    assert assumed(done.out) == {}
