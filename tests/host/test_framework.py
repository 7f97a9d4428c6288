"""The framework of a study: the generic one, the one that a file imports, or the one it names."""

from __future__ import annotations

import pytest

import parcost
from parcost import SpecError
from parcost_plugins.vocabulary import Training

SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster  {{ devices = 8 }}
{}
training {{ sequence = 8192, global_batch = 8 sequences, {} }}
"""


def framework_of(blocks: str = "", choice: str = "") -> str:
    study = parcost.load_text(SPEC.format(blocks, choice))[0].first
    return study[Training].framework.label


def test_a_study_that_names_no_framework_has_the_generic_one() -> None:
    assert framework_of() == "generic"


def test_a_framework_that_is_imported_takes_the_place_of_the_generic_one() -> None:
    assert framework_of("use catalog.frameworks.nemo") == "nemo"
    assert framework_of("framework ours { issue = 8 us }") == "ours"


def test_the_generic_one_can_be_named_beside_another() -> None:
    assert framework_of("use catalog.frameworks.nemo", "framework = generic") == "generic"


def test_of_two_one_has_to_be_named() -> None:
    both = "use catalog.frameworks.nemo\nuse catalog.frameworks.torchtitan"
    assert framework_of(both, "framework = torchtitan") == "torchtitan"
    with pytest.raises(SpecError) as error:
        framework_of(both)
    (found,) = error.value.diagnostics
    assert found.id == "missing-block"
    assert found.help is not None
    assert "`framework = nemo`" in found.help


def test_what_a_file_writes_of_the_generic_one_holds() -> None:
    spec = SPEC.format("framework generic { issue = 3 us }", "")
    framework = parcost.load_text(spec)[0].first[Training].framework
    assert (framework.issue, framework.forward_kernels) == (3e-6, 12)


def test_a_sweep_over_frameworks_evaluates_each() -> None:
    both = "use catalog.frameworks.nemo\nuse catalog.frameworks.torchtitan"
    spec = SPEC.format(both, "framework = [nemo, torchtitan, generic]")
    report = parcost.load_text(spec)[0].evaluate()
    assert len(report.results) == 3
