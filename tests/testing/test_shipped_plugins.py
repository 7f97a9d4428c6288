"""What ships keeps the contracts that third parties test against."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parcost.plugins.discovery import load
from parcost_apps.testing import CollectiveContract, ExporterContract, ScheduleContract

PLUGINS = load()
SCHEDULES = {name: one for name, (_, one) in PLUGINS.offers("schedules").items()}
COLLECTIVES = {name: one for name, (_, one) in PLUGINS.offers("collectives").items()}
EXPORTERS = {name: one for name, (_, one) in PLUGINS.offers("exporters").items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEDULES)
class TestSchedules(ScheduleContract):
    """Every schedule, on fewer shapes than a plugin has to pass."""

    shapes = tuple((p, m, v) for p in (1, 2, 4) for m in (1, 3, 4, 8, 12) for v in (1, 2, 3))

    @pytest.fixture(autouse=True)
    def _schedule(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(type(self), "schedule", SCHEDULES[name], raising=False)


#: They run on a switch that reduces, or by the table that a device names.
MACHINES = {"nvls", "collnet_direct", "collnet_chain", "nccl"}
MACHINES |= {name for name, one in COLLECTIVES.items() if getattr(one, "pair", None)}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(COLLECTIVES.keys() - MACHINES))
class TestCollectives(CollectiveContract):
    @pytest.fixture(autouse=True)
    def _algorithm(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(type(self), "algorithm", COLLECTIVES[name], raising=False)


STUDY = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 8 }
layout { tp = 2, zero = 1 }
training { sequence = 4096, micro_batch = 1, global_batch = 32 sequences }
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPORTERS)
class TestExporters(ExporterContract):
    specs = (
        STUDY,
        STUDY.replace("tp = 2", "tp = [1, 2, 3]"),
        STUDY.replace("32 seq", "30 seq"),
        STUDY + "expect { mfu > 90 % }",
    )

    @pytest.fixture(autouse=True)
    def _exporter(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(type(self), "exporter", EXPORTERS[name], raising=False)

    def parse(self, written: Any) -> Any:
        if self.exporter.name == "json":
            return json.loads(written)
        return written
