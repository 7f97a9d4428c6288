"""A resolved spec is a spec, and means what it was made from, to the last bit."""

from __future__ import annotations

from pathlib import Path

import pytest

import parcost
from parcost_formats.rendering.resolved_spec import render_spec

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SPECS = sorted(
    [*(ROOT / "specs" / "runs").glob("*.par"), *(ROOT / "specs" / "examples").glob("*.par")]
)
GOOD = """
use catalog.devices.h100_sxm
use catalog.models.llama3_8b
use catalog.precisions.bf16
layout   { tp = 2, zero = 1, sequence_parallel = on }
training { sequence = 8192, global_batch = 32 sequences, recompute = full }
"""


def outcome(scenario: parcost.Scenario) -> tuple[list[object], object]:
    result = scenario.evaluate().result
    assert result.legal
    found = result.outcome
    if found is None:
        return sorted((f.name, f.value) for _, f in result.figures), None
    return [(x.name, x.exposed, x.hidden) for x in found.ledger], found.memory_bytes


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_shipped_studies_resolved_cost_the_same(path: Path) -> None:
    for scenario in parcost.load(path):
        if not scenario.axes:
            (again,) = parcost.load_text(render_spec(scenario.studies()[0]))
            assert outcome(again) == outcome(scenario), scenario.name


def test_resolving_twice_changes_nothing_but_where_values_are_from() -> None:
    first = next(s for path in SPECS for s in parcost.load(path) if not s.axes)
    once = render_spec(first.studies()[0])
    twice = render_spec(parcost.load_text(once)[0].studies()[0])
    bare = [[line.partition("# ")[0].rstrip() for line in t.splitlines()] for t in (once, twice)]
    strip = [list(filter(None, lines)) for lines in bare]
    assert strip[0] == strip[1]


def test_imported_blocks_with_one_name_stay_distinct(tmp_path: Path) -> None:
    level = "level node {{ size = 8 devices, bandwidth = {} GB/s per_direction, latency = 1 us }}"
    site = f"fabric net {{\n  {level.format(300)}\n}}\n"
    (tmp_path / "site.par").write_text(site, encoding="utf-8")
    own = f"fabric net {{\n  {level.format(100)}\n}}\n"
    path = tmp_path / "a.par"
    path.write_text(
        'use "site.par" as site\n' + own + "cluster { devices = 8, fabric = site.net }\n" + GOOD,
        encoding="utf-8",
    )
    (scenario,) = parcost.load(path)
    text = render_spec(scenario.studies()[0])
    assert {"fabric net {", "fabric net_2 {"} <= set(text.splitlines())
    (again,) = parcost.load_text(text)
    assert outcome(again) == outcome(scenario)


def test_a_measured_curve_stays_a_curve() -> None:
    fabric = """fabric net {
  level node {
    size = 8 devices, latency = 1 us
    bandwidth = curve([64 KiB, 52 us], [1 MiB, 120 us], [1 GiB, 300 GB/s])
  }
}
"""
    (scenario,) = parcost.load_text(fabric + "cluster { devices = 8 }\n" + GOOD)
    (again,) = parcost.load_text(render_spec(scenario.studies()[0]))
    assert outcome(again) == outcome(scenario)


def test_names_that_a_sweep_is_written_with_come_along(tmp_path: Path) -> None:
    """Also those of an import, and at each value of what is evaluated by itself."""
    (tmp_path / "site.par").write_text("let nodes = [1, 2]\n", encoding="utf-8")
    path = tmp_path / "a.par"
    path.write_text(
        'use "site.par" as site\n'
        "use catalog.fabrics.hgx_h100\n"
        "let life = 6 h\n"
        "let stages = [1, 2]\n"
        "let batch = site.nodes * 32\n"
        "cluster { devices = 8 * site.nodes }\n"
        "reliability { mtbf = life / site.nodes, restart = mtbf / 100 }\n"
        "checkpoint { interval = 1 h, blocking = 10 s }\n"
        "layout { pp = stages, zero = 1 }\n"
        + GOOD.replace("layout   { tp = 2, zero = 1, sequence_parallel = on }\n", "").replace(
            "= 32 seq", "= batch * stages seq"
        ),
        encoding="utf-8",
    )
    (scenario,) = parcost.load(path)
    expected = [row["step_time"] for row in scenario.evaluate().rows()]
    texts = [render_spec(study) for study in scenario.studies()]
    assert [text.splitlines()[:4] for text in texts] == [
        [f"let {line}" for line in lines]
        for lines in (
            ["batch = site_nodes * 32", "stages = 1", "site_nodes = [1, 2]", "life = 6 h"],
            ["batch = site_nodes * 32", "stages = 2", "site_nodes = [1, 2]", "life = 6 h"],
        )
    ]
    found = [row["step_time"] for t in texts for row in parcost.load_text(t)[0].evaluate().rows()]
    assert found == expected
