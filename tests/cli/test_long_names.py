"""A name of 20,000 characters is cut in every message and table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
LONG = "a" * 20_000
SPEC = """\
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster  { devices = 16 }
layout   { tp = 2, zero = 1, sequence_parallel = on }
training { sequence = 8192, global_batch = 32 sequences }
"""
RUNS = Path(__file__).parents[2] / "docs" / "how-to" / "files" / "runs.jsonl"


@pytest.mark.parametrize(
    "arguments",
    [
        ("eval", "spec.par", "--set", f"{LONG}=1"),
        ("eval", "spec.par", "--format", LONG),
        ("explain", "spec.par", LONG),
        ("search", "spec.par", "--over", f"{LONG}=1,2"),
        ("search", "spec.par", "--over", LONG),
        ("rule", LONG),
        ("eval", "model.par"),
        ("check", "attribute.par"),
        ("check", "unread.par"),
        ("validate", "runs.jsonl"),
    ],
)
def test_a_long_name_is_cut(run_command: Run, arguments: tuple[str, ...]) -> None:
    row: dict[str, Any] = json.loads(RUNS.read_text(encoding="utf-8").partition("\n")[0])
    files = {"runs.jsonl": json.dumps({**row, "id": LONG}) + "\n"}
    done = run_command(
        *arguments,
        files=files,
        spec=SPEC,
        model=SPEC.replace("{ sequence", f"{{ model = {LONG}, sequence"),
        attribute=SPEC.replace("tp = 2", f"{LONG} = 2"),
        unread=f"{SPEC}let {LONG} = 3\n",
    )
    text = done.out + done.err
    assert "aaa..." in text or arguments[0] == "validate"
    assert len(text) < 8_000  # the page of `validate` lists 27 profiles
