"""Rows of measured runs, small enough to work out by hand."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import parcost
from parcost_apps.cli import main
from parcost_measured.validation.records import read
from parcost_measured.validation.rows import RunRow, _rename_keys
from parcost_measured.validation.study import write

Raw = dict[str, Any]

#: Megatron-LM of 2021: GPT of 24 layers on two nodes of eight, tp 8, pp 2, full recomputation.
MEGATRON: Raw = {
    "id": "megatron-1",
    "source": "Megatron-LM SC21 (Narayanan et al. 2021)",
    "source_locator": "table 1",
    "source_key": "megatron",
    "year": 2021,
    "model": {
        "name": "GPT 3.6B",
        "layers": 24,
        "hidden": 3072,
        "heads": 32,
        "kv_heads": 32,
        "ffn": 12288,
        "vocab": 51200,
        "seq": 2048,
        "gated": False,
        "tied": True,
        "pos_emb": 2048,
    },
    "hardware": {
        "gpu": "A100-80GB-SXM",
        "gpus": 16,
        "gpus_per_node": 8,
        "gpu_class": "A100-80GB",
        "intranode": "NVLink3/NVSwitch",
        "internode": "InfiniBand HDR, 8x200 Gb/s per node",
        "internode_gbps": 1600,
    },
    "parallel": {
        "tp": 8,
        "pp": 2,
        "vp": 1,
        "dp": 1,
        "cp": 1,
        "ep": 1,
        "zero_stage_or_fsdp": "none",
        "hsdp": None,
        "sequence_parallel": False,
    },
    "batch": {"micro": 2, "global": 16, "grad_accum": 8},
    "precision": "fp16",
    "precision_class": "fp16",
    "recompute": "full",
    "schedule": "1F1B",
    "attention": "no flash (fused scale-mask-softmax kernel)",
    "measured": {"step_time_s": 1.2, "tokens_per_s_per_gpu": 1707, "mfu": 0.3},
    "peak_tflops_assumed": 312.0,
    "notes": "",
    "confidence": "high",
    "extra": {},
}


def _change(base: Raw, changes: dict[str, Any]) -> Raw:
    made = copy.deepcopy(base)
    for path, value in changes.items():
        *steps, last = path.split(".")
        place = made
        for step in steps:
            place = place[step]
        if value is ...:
            del place[last]
        else:
            place[last] = value
    return made


@pytest.fixture(scope="session")
def raw() -> Callable[..., Raw]:
    """Return a row as JSON has it, with fields given by path changed; ``...`` removes one."""
    return lambda **changes: _change(
        MEGATRON, {k.replace("__", "."): v for k, v in changes.items()}
    )


@pytest.fixture(scope="session")
def row(raw: Callable[..., Raw]) -> Callable[..., RunRow]:
    """Return a row as the command reads it."""

    def make(**changes: Any) -> RunRow:
        found = read(RunRow, _rename_keys(raw(**changes)))
        assert not found.problems, found.problems
        made: RunRow = found.made
        return made

    return make


@pytest.fixture
def file(tmp_path: Path) -> Callable[[Iterable[Raw | str]], Path]:
    """Return a file of rows, or of lines that are none."""

    def write(rows: Iterable[Raw | str]) -> Path:
        path = tmp_path / "runs.jsonl"
        lines = [one if isinstance(one, str) else json.dumps(one) for one in rows]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return write


class CommandOutput(NamedTuple):
    """What the command says, and its exit code."""

    exit_code: int
    stdout: str
    stderr: str


@pytest.fixture
def validate(capsys: pytest.CaptureFixture[str]) -> Callable[..., CommandOutput]:
    """Return what the command says."""

    def run(*arguments: object) -> CommandOutput:
        code = main(["validate", *map(str, arguments)])
        out, err = capsys.readouterr()
        return CommandOutput(code, out, err)

    return run


#: A small model on one device, so that a row takes little time.
SMALL: Raw = {
    "model.layers": 2,
    "hardware.gpus": 1,
    "parallel.tp": 1,
    "parallel.pp": 1,
    "batch.micro": 1,
    "batch.global": 1,
    "batch.grad_accum": 1,
    "measured": {"step_time_s": 1.0},
}


@pytest.fixture
def small(raw: Callable[..., Raw]) -> Callable[..., Raw]:
    """Return the small row with an id, measured seconds of a step, and further changes."""

    def make(id: str, seconds: float, **changes: Any) -> Raw:
        own = {name.replace(".", "__"): value for name, value in SMALL.items()}
        return raw(**{**own, "id": id, "measured": {"step_time_s": seconds}, **changes})

    return make


@pytest.fixture(scope="session")
def predicted() -> float:
    """Return the seconds that the model predicts for the small row."""
    row: RunRow = read(RunRow, _rename_keys(_change(MEGATRON, SMALL))).made
    (scenario,) = parcost.load_text(write(row).text)
    return float(scenario.evaluate().result.figure("step_time"))
