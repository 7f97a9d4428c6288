"""``plot``: the pictures of a report or a search, shown in a notebook or saved."""

from __future__ import annotations

from pathlib import Path

import pytest

import parcost

SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 8 }
layout { tp = 2, zero = 1 }
training { sequence = 4096, micro_batch = 1, global_batch = 32 sequences }
"""


@pytest.fixture(scope="module")
def report() -> parcost.Report:
    (scenario,) = parcost.load_text(SPEC)
    return scenario.evaluate()


def test_a_picture_is_picked_by_its_name(report: parcost.Report) -> None:
    assert repr(report.plot("step")) == "<Plot of step>"
    assert "memory" in repr(report.plot())
    with pytest.raises(KeyError, match="did you mean `memory`"):
        report.plot("memmory")


@pytest.mark.slow
def test_pictures_are_saved_by_the_suffix_of_their_name(
    report: parcost.Report, tmp_path: Path
) -> None:
    plot = report.plot("step")
    for suffix, first in (("svg", b"<svg "), ("png", b"\x89PNG"), ("html", b"<!doctype html>")):
        path = tmp_path / f"step.{suffix}"
        plot.save(path)
        assert path.read_bytes()[: len(first)].lower() == first.lower()
    with pytest.raises(ValueError, match=r"they are \.html, \.png, \.svg"):
        plot.save(tmp_path / "step.bmp")


@pytest.mark.slow
def test_a_search_draws_its_layouts() -> None:
    (scenario,) = parcost.load_text(SPEC)
    over = {"layout.tp": [1, 2, 4], "layout.pp": [1, 2]}
    found = parcost.search_layouts(scenario, over=over, axes=list(over), every=True)
    assert len(found.fastest) > len(found.best) / 2
    assert {"image/svg+xml", "text/plain"} <= set(found.plot()._repr_mimebundle_())
