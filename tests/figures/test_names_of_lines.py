"""Figures find the terms that they add up by plugin, kind and tag: never by English names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

import parcost
from parcost.contract.terms import Edge, Memory, Once, Work
from parcost.contract.validation import validate
from parcost.plugins import discovery
from parcost_plugins.vocabulary import Training

SPECS = Path(__file__).parents[2] / "specs"
COVERED = (
    "examples/context_parallel.par",
    "examples/compressed_step.par",
    "examples/diloco.par",
    "examples/fsdp.par",
    "examples/hsdp.par",
    "examples/minimal.par",
    "examples/mixture_of_experts.par",
    "examples/offload.par",
    "examples/tensor_parallel.par",
    "documents/002_gpt3.par",
)

RING = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
model many_heads extends llama3_8b { kv_heads = 32, vocabulary = 1024 }
cluster { device = h100_sxm, devices = 64, fabric = hgx_h100 }
layout { tp = 2, cp = 4, zero = 1, sequence_parallel = on }
training {
  model = many_heads, precision = bf16
  sequence = 131072 tokens, micro_batch = 1, global_batch = 128 sequences
}
context { algorithm = ring }
recompute { mlp = on }  # so that the peak is in a backward pass
"""


def _rename(hook: str, answer: Any, blame: Any) -> tuple[Any, str]:
    """Validate a term, and give it a name of which no word is left, in the same order."""
    answers, complaint = validate(hook, answer, blame)
    return [_coded(one) for one in answers], complaint


def _coded(answer: Any) -> Any:
    if not isinstance(answer, (Work, Edge, Once, Memory)):
        return answer
    return attrs.evolve(answer, name="q" + "".join(f"{ord(x):04x}" for x in answer.name))


def _answers(result: parcost.Result) -> dict[str, Any]:
    return {figure.name: figure.value for _, figure in (*result.figures, *result.details)}


def _report(report: parcost.Report) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the figures of the first point, and the rows of the sections that read the ledger."""
    result = report.results[0]
    study, plugins = result.study, result.study.plugins
    readers = [
        position
        for position, plugin in enumerate(plugins.implementers("sections"))
        if plugin.name.startswith("data_parallel")
    ]
    sections = {
        section.title: section.rows
        for one in readers  # those of others evaluate fifty changes of the study
        for _, section in plugins.ask(
            "sections", only=one, study=study, outcome=result.outcome, brief=False
        )
    }
    return _answers(result), sections


@pytest.mark.slow
@pytest.mark.parametrize("path", COVERED)
def test_no_figure_depends_on_the_name_of_a_line(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _same_under_other_names(SPECS / path, monkeypatch)


def _same_under_other_names(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = [_report(r) for r in parcost.evaluate(path)]
    monkeypatch.setattr(discovery, "validate", _rename)
    after = [_report(r) for r in parcost.evaluate(path)]
    assert len(before) == len(after) > 0
    for (figures, sections), (renamed, again) in zip(before, after, strict=True):
        assert figures.keys() == renamed.keys()
        for name, value in figures.items():
            np.testing.assert_allclose(renamed[name], value, rtol=1e-12, err_msg=name)
        assert sections == again


def test_a_ring_buffer_is_no_gradient_of_the_model(tmp_path: Path) -> None:
    """Under ZeRO 1 gradients are whole, and the optimizer's state is shared by 32 ranks.

    By hand, for tp 2: 32 layers of attention 4 x 4096 x 4096 / 2 and MLP 3 x 4096 x 14336 / 2,
    embedding and head 2 x 1024 x 4096 / 2, and norms of 65 x 4096.
    """
    path = tmp_path / "ring.par"
    path.write_text(RING)
    (report,) = parcost.evaluate(path)
    layer = (4 * 4096 * 4096 + 3 * 4096 * 14336) / 2
    held = 32 * layer + 1024 * 4096 + 65 * 4096
    lines = {line.name: line.bytes_ for line in report.result.outcome.memory_lines}
    assert "gradients of a KV block" in lines
    precision = report.result.study[Training].precision
    gradients = held * precision.gradients
    assert report.result.figure("gradients_memory") == pytest.approx(gradients, rel=1e-9)
    state = held * (precision.weights + precision.gradients + precision.optimizer / 32)
    assert report.result.figure("state_memory") == pytest.approx(state, rel=1e-9)


@pytest.mark.slow
def test_the_checklist_counts_every_bucket_of_the_reduction(tmp_path: Path) -> None:
    """Under ZeRO 2 the last bucket of each micro-batch never hides: the share says so."""
    path = tmp_path / "zero2.par"
    path.write_text(RING.replace("zero = 1", "zero = 2"))
    (report,) = parcost.evaluate(path)
    outcome = report.result.outcome
    lines = [
        line
        for line in outcome.ledger
        if line.name.startswith(("gradient reduce-scatter", "last gradient bucket"))
    ]
    assert len(lines) == 2
    exposed = sum(line.exposed for line in lines)
    total = exposed + sum(line.hidden for line in lines)
    (rows,) = (
        s.rows for _, s in report.result.sections if s.title == "Checklist of data parallelism"
    )
    (share,) = (
        row[1][0] for row in rows if row[0] == "share of the gradient reduction that is hidden"
    )
    assert share == pytest.approx(1 - exposed / total, abs=1e-6)
