"""``plot``: the pictures of a report or a search, shown in a notebook or saved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import parcost
from parcost import Exporter
from parcost.contract.entries import Entry, Part
from parcost.report.plots import Plot

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


@pytest.mark.slow
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
    with pytest.raises(ValueError, match=r"the formats are \.html, \.png, \.svg"):
        plot.save(tmp_path / "step.bmp")


@pytest.mark.slow
def test_a_search_draws_its_layouts() -> None:
    (scenario,) = parcost.load_text(SPEC)
    over = {"layout.tp": [1, 2, 4], "layout.pp": [1, 2]}
    found = parcost.search_layouts(scenario, over=over, axes=list(over), every=True)
    assert len(found.fastest) > len(found.best) / 2
    assert {"image/svg+xml", "text/plain"} <= set(found.plot()._repr_mimebundle_())


def plot_of(picture: object, *, drawing: bool = True) -> Plot:
    """Return a plot with one format, which writes what *picture* returns or raises."""

    class Strip(Exporter):
        name = "strip"
        reads: Part = "charts" if drawing else "data"

        def write(self, entries: Any, paper: Any) -> Iterator[str]:  # noqa: ARG002
            yield "half"
            if isinstance(picture, BaseException):
                raise picture
            yield f"{picture}"

    class Plugins:
        def offers(self, _: str) -> Any:
            return {"strip": ("strips", Strip())}

    entry = Entry(path="a.par", name="a", part="charts", text='{"page": [], "charts": []}')
    return Plot(entry=entry, plugins=Plugins())  # type: ignore[arg-type]


def test_a_saved_picture_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "a.strip"
    plot_of(" and half").save(target)
    assert target.read_text() == "half and half"
    with pytest.raises(parcost.PluginError, match=r"strips failed to write `strip`: .*no ink"):
        plot_of(ValueError("no ink")).save(target)
    with pytest.raises(KeyboardInterrupt):
        plot_of(KeyboardInterrupt()).save(target)
    assert target.read_text() == "half and half"
    assert [path.name for path in tmp_path.iterdir()] == ["a.strip"]


def test_a_picture_that_cannot_be_saved_is_an_error_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "a.strip").mkdir()
    for place in (tmp_path / "a.strip", tmp_path / "missing" / "a.strip"):
        with pytest.raises(OSError):
            plot_of("").save(place)
