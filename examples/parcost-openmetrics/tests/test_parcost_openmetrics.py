"""The format, read back by the parser of Prometheus."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import parcost_openmetrics
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import parcost
from parcost_apps.testing import ExporterContract

STUDY = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 8 }
layout { tp = 2, zero = 1 }
training { sequence = 4096, micro_batch = 1, global_batch = 32 sequences }
"""
SWEEP = STUDY.replace("tp = 2", "tp = [1, 2, 3]")


class TestOpenMetrics(ExporterContract):
    exporter = parcost_openmetrics.EXPORTER
    specs = (STUDY, SWEEP, STUDY.replace("32 seq", "30 seq"))

    def parse(self, written: str) -> dict[str, list[tuple[dict[str, str], float]]]:
        families = text_string_to_metric_families(written)
        return {f.name: [(s.labels, s.value) for s in f.samples] for f in families}

    def read(self, tmp_path: Path) -> Any:
        return self.parse(self.write(list(self.entries()), tmp_path))

    def test_values_are_those_of_the_report(self, tmp_path: Path) -> None:
        (scenario,) = parcost.load_text(STUDY)
        result = scenario.evaluate().result
        found = self.read(tmp_path)
        for metric, figure in (("step_time_seconds", "step_time"), ("mfu_ratio", "mfu")):
            labels, value = found[f"parcost_{metric}"][0]
            assert labels == {"file": "spec0.par", "study": "spec0"}
            assert value == pytest.approx(result.figure(figure), rel=1e-12)
        by_cause = found["parcost_step_by_cause_seconds"]
        total = sum(value for labels, value in by_cause)
        assert total == pytest.approx(result.figure("step_time"), rel=1e-12)

    def test_a_swept_attribute_is_a_label(self, tmp_path: Path) -> None:
        times = self.read(tmp_path)["parcost_step_time_seconds"]
        swept = {labels["layout_tp"]: value for labels, value in times if "layout_tp" in labels}
        (scenario,) = parcost.load_text(STUDY.replace("tp = 2", "tp = 1"))
        assert set(swept) == {"1", "2"}
        assert swept["1"] == pytest.approx(scenario.evaluate().result.figure("step_time"))

    def test_what_does_not_run_is_infeasible(self, tmp_path: Path) -> None:
        runs = self.read(tmp_path)["parcost_feasible"]
        assert [value for _, value in runs] == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
        assert runs[-1][0] == {"file": "bad.par", "study": ""}

    def test_labels_from_outside_come_back(self, tmp_path: Path) -> None:
        from attrs import evolve

        path = 'a "b" \\ c\nd.par'
        entry = evolve(next(self.entries()), path=path)
        ((labels, _),) = self.parse(self.write([entry], tmp_path))["parcost_feasible"]
        assert labels["file"] == path
