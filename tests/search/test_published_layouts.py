"""Published layouts are in the space of a search, and the documentation has their places."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from parcost.search.layout_search import layout_search
from parcost.search.result import plain_value

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def load_benchmark() -> Any:
    """Return the program that measures published layouts."""
    path = ROOT / "benchmarks" / "published_layouts.py"
    spec = importlib.util.spec_from_file_location("published", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["published"] = module
    spec.loader.exec_module(module)
    return module


published = load_benchmark()
RESULTS = json.loads(published.RESULTS.read_text(encoding="utf-8"))


def test_four_published_runs_are_measured() -> None:
    assert list(RESULTS) == ["llama", "deepseek", "megatron", "mixtral"] == list(published.JOBS)


@pytest.mark.parametrize("name", RESULTS)
def test_the_published_layout_is_a_point_of_the_space(name: str) -> None:
    job = published.JOBS[name]
    whole = layout_search(published.load_job(job), over=job.over).space
    axes = {axis.attribute: [plain_value(value) for value in axis.values] for axis in whole.axes}
    for path, value in job.layout.items():
        assert path in axes, path
        assert value in axes[path], (path, value, axes[path])
    assert whole.size == RESULTS[name]["size"]


@pytest.mark.parametrize("name", RESULTS)
def test_both_layouts_take_what_the_documentation_says(name: str) -> None:
    scenario, kept = published.load_job(published.JOBS[name]), RESULTS[name]
    for values, result in (
        (published.JOBS[name].layout, kept["published"]),
        (kept["best"]["values"], kept["best"]),
    ):
        again = published.evaluate(scenario, values)
        assert float(again.outcome.step_seconds) == pytest.approx(result["step_seconds"], rel=0.02)
        assert published.verdict(again) == result["verdict"]


def test_a_distance_over_ten_percent_has_a_mechanism() -> None:
    page = (ROOT / "docs" / "guide" / "search.md").read_text(encoding="utf-8")
    for result in RESULTS.values():
        distance = result["published"]["step_seconds"] / result["best"]["step_seconds"] - 1.0
        if distance > 0.1:
            assert result["terms"]
            assert f"`{result['terms'][0][0]}`" in page


def test_the_table_of_the_documentation_is_current(request: pytest.FixtureRequest) -> None:
    path = ROOT / "docs" / "guide" / "search.md"
    page = path.read_text(encoding="utf-8")
    before, begin, rest = page.partition("<!-- published layouts -->\n\n")
    assert begin
    old, end, after = rest.partition("\n\n<!-- end -->")
    assert end
    if request.config.getoption("update"):
        path.write_text(f"{before}{begin}{published.table()}{end}{after}", encoding="utf-8")
        return
    assert old == published.table()
