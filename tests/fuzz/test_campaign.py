"""A little of the campaign of hostile inputs; `benchmarks/hostile.py` runs as much as is wanted."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "hostile.py"


def _campaign() -> ModuleType:
    spec = spec_from_file_location("hostile", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


hostile = _campaign()


def faults(kind: str, count: int, seed: int) -> list[str]:
    """Return the faults of inputs, from a process of its own, whose memory is that of the inputs."""
    code = (
        "import json, sys; from runpy import run_path; hostile = run_path(sys.argv[1]);"
        "from types import SimpleNamespace as N; sys.modules['hostile'] = N(**hostile);"
        "chunk = hostile['Chunk'](sys.argv[2], int(sys.argv[4]), 0, int(sys.argv[3]));"
        "print(json.dumps(hostile['run_chunk'](chunk)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(FILE), kind, str(count), str(seed)],
        capture_output=True,
        check=True,
        text=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])["faults"]
    return [f"{fault['number']}: {fault['fault']}" for fault in found]


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, count",
    [
        *[("byte", 800), ("token", 800), ("structured", 250)],
        *[("command", 50), ("file", 60), ("plugin", 40)],
    ],
)
def test_hostile_inputs_end_in_diagnostics(kind: str, count: int) -> None:
    assert not faults(kind, count, seed=2)


@pytest.mark.slow
def test_a_campaign_goes_on_where_its_log_ends(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    first = hostile.campaign({"byte": hostile.CHUNK + 5}, 3, 1, log, 0.0)
    assert [line["first"] for line in first] == [0]
    again = hostile.campaign({"byte": hostile.CHUNK + 5}, 3, 1, log, 1.0)
    assert sorted(line["first"] for line in again) == [0, hostile.CHUNK]
    assert len([json.loads(line) for line in log.read_text().splitlines()]) == 2
    assert "byte" in hostile.summary(again)


def test_a_fault_is_found_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: str) -> str:
        raise ValueError("no 7")

    monkeypatch.setattr(hostile, "bind", broken)
    line = hostile.run_chunk(hostile.Chunk("byte", 1, 0, 3))
    assert len(line["faults"]) == 3
    assert "3 x byte: ValueError in " in hostile.summary([line])
