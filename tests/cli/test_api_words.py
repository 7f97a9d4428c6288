"""What objects say of themselves in a shell or a notebook."""

from __future__ import annotations

import sys

import pytest

import parcost

SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 8 }
layout { tp = 8, zero = 1, sequence_parallel = on }
training { sequence = 2048, global_batch = 8 sequences }
"""


def test_objects_are_short_in_a_shell() -> None:
    (scenario,) = parcost.load_text(SPEC, "<b>.par")
    report = scenario.evaluate()
    for thing in (scenario, report, report.result, report.result.study):
        assert len(repr(thing)) < 200
        assert "\n" not in repr(thing)
    assert "step_time = " in repr(report)
    assert "feasible" in repr(report.result)


def test_a_report_is_a_table_in_a_notebook_and_escapes_names() -> None:
    (scenario,) = parcost.load_text(SPEC, "<b>.par")
    html = scenario.evaluate()._repr_html_()
    assert "&lt;b&gt;.par" in html
    assert "<b>" not in html
    assert "<td>step time</td>" in html


def test_a_figure_that_is_misspelt_is_suggested() -> None:
    (scenario,) = parcost.load_text(SPEC)
    with pytest.raises(KeyError, match="did you mean `activation_memory`"):
        scenario.evaluate().result.figure("activation_memry")


def test_the_package_lists_its_names() -> None:
    assert {"load", "evaluate", "Report", "hookimpl"} <= set(dir(parcost))


@pytest.mark.slow
def test_help_lists_functions_and_classes() -> None:
    import pydoc

    text = pydoc.plain(pydoc.render_doc(parcost))
    for name in ("load(path", "load_text(text", "class Report", "class Scenario"):
        assert name in text


@pytest.mark.slow
def test_a_sweep_is_a_data_frame() -> None:
    (scenario,) = parcost.load_text(SPEC)
    report = scenario.replace({"layout.tp": [1, 2]}).evaluate()
    frame = report.to_pandas(["step_time", "mfu"])
    assert list(frame.columns) == ["layout.tp", "step_time", "mfu", "verdict", "feasible", "reason"]
    for tp, seconds in zip(frame["layout.tp"], frame["step_time"], strict=True):
        single = scenario.replace({"layout.tp": int(tp)}).evaluate().result
        assert seconds == pytest.approx(single.figure("step_time"), rel=1e-12)


def test_a_data_frame_without_pandas_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    (scenario,) = parcost.load_text(SPEC)
    with pytest.raises(ImportError, match=r"pip install 'parcost\[notebook\]'"):
        scenario.evaluate().to_pandas()
