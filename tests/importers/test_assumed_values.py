"""What a file of another tool leaves to the tool's defaults is on the first screen."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from parcost import (
    ImportedBlock,
    ImportedValue,
    Importer,
    ImportQuestion,
    ImportSubject,
    Translation,
)
from parcost.language.text import Source
from parcost_formats.imports.spec_text import spec_lines
from parcost_formats.imports.translation import translate

from ..rows import mark_most

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
        ImportSubject(
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


@pytest.mark.slow
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


SYSTEM = ("--use", "catalog.systems.dgx_h100")
MEGATRON = f"""#!/bin/bash
N=$(nvidia-smi -L | wc -l)
torchrun --nproc_per_node $N pretrain_gpt.py {" ".join(SCRIPT.split())} --bf16
"""
TRL = """#!/bin/bash
N=$(nvidia-smi -L | wc -l)
torchrun --nproc_per_node $N train.py --model_name_or_path Qwen/Qwen2.5-7B --bf16 true \\
  --fsdp full_shard --gradient_checkpointing true \\
  --per_device_train_batch_size 1 --gradient_accumulation_steps 8 --model_max_length 4096
"""


@pytest.mark.parametrize(
    "script", [MEGATRON, TRL, MEGATRON.replace("torchrun --nproc_per_node", "mpirun -np")]
)
@pytest.mark.slow
def test_devices_of_a_system_for_an_unknown_count_are_the_first_assumption(
    run_command: Run, script: str
) -> None:
    flag = "-np" if "mpirun" in script else "--nproc_per_node"
    files = {"train.sh": script}
    page = " ".join(run_command("eval", "train.sh", *SYSTEM, files=files).out.split())
    expected = f"Assumed: dgx_h100.devices = 8 (catalog.systems.dgx_h100; line 3: `{flag} $("
    assert expected in page
    written = run_command("import", "train.sh", *SYSTEM, files=files).out
    assert 'devices = 8 @assumed("catalog.systems.dgx_h100; line 3: ' in written
    again = run_command("eval", "job.par", job=written).out
    assert expected in " ".join(again.split())


@pytest.mark.parametrize(
    "script",
    mark_most(
        [
            MEGATRON.replace("--nproc", "--nnodes 2 --nproc"),
            TRL.replace("--nproc", "--nnodes 2 --nproc"),
            MEGATRON.replace("torchrun --nproc_per_node $N", "#SBATCH --nodes=2\nsrun python"),
        ],
        3,
    ),
)
def test_a_system_is_no_answer_for_the_devices_of_two_nodes(run_command: Run, script: str) -> None:
    done = run_command("eval", "train.sh", *SYSTEM, files={"train.sh": script})
    assert "`cluster.devices` is not known" in done.err
    assert "--set cluster.devices=16" in done.err


@pytest.mark.slow
def test_a_stated_count_is_no_assumption(run_command: Run) -> None:
    given = (*SYSTEM, "--set", "cluster.devices=4")
    files = {"train.sh": MEGATRON}
    assert (
        "catalog.systems.dgx_h100;" not in run_command("eval", "train.sh", *given, files=files).out
    )
    written = run_command("import", "train.sh", *given, files=files).out
    assert "devices = 4  # --set cluster.devices=4" in written


@pytest.mark.slow
def test_a_spec_that_adds_a_system_to_such_a_script_states_the_count(run_command: Run) -> None:
    spec = 'use "train.sh"\nuse catalog.systems.dgx_h100\n'
    files = {"train.sh": MEGATRON}
    assert (
        "`cluster.devices` is not known"
        in run_command("eval", "job.par", job=spec, files=files).err
    )
    stated = f"{spec}cluster dgx_h100 {{ devices = 8 }}\n"
    assert run_command("eval", "job.par", job=stated, files=files).code == 0
