"""Whatever a field holds, a row is read or named, and written or rejected."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parcost_measured.validation.rows import UnmodelledError, read_files
from parcost_measured.validation.study import write

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 4096),
    st.floats(allow_nan=False),
    st.text(max_size=12),
    st.sampled_from(["FSDP", "full", "mxfp8", "MLA", "flash", "NVLink domain 72", 'a" # {']),
    st.lists(st.integers(0, 3), max_size=2),
    st.dictionaries(st.sampled_from(["shard", "replicate", "x"]), st.integers(0, 9), max_size=2),
)


def places(value: Any, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, inner in value.items():
        yield (*before, name)
        if isinstance(inner, dict):
            yield from places(inner, (*before, name))


EXTRA = [
    ("extra", name)
    for name in ("recompute_detail", "pp_partition", "grad_overlap", "cpu_offloading_num_layers")
]
EXTRA += [("extra", name) for name in ("dup_group", "framework", "assumed", "memory_basis")]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_value_anywhere(data: st.DataObject, raw: Any, tmp_path: Path) -> None:
    made = raw()
    for _ in range(data.draw(st.integers(1, 3))):
        *steps, last = data.draw(st.sampled_from([*places(made), *EXTRA]))
        place = made
        for step in steps:
            place = place[step] if isinstance(place, dict) and step in place else {}
        if isinstance(place, dict):
            place[last] = data.draw(VALUES)
    path = tmp_path / "runs.jsonl"
    path.write_text(json.dumps(made) + "\n", encoding="utf-8")
    rows = read_files([("runs.jsonl", path)])
    assert len(rows.placed) + bool(rows.flaws) == 1
    for placed in rows.placed:
        try:
            text = write(placed.row).text
        except UnmodelledError:
            continue
        # What a row holds never ends a comment or opens a block.
        for line in text.splitlines():
            assert line.count("{") + line.count("}") <= 2 or line.startswith("#"), line


def test_no_word_of_a_row_stands_outside_of_comments(raw: Any, tmp_path: Path) -> None:
    made = raw(id="EVIL", source="EVIL Megatron", model__name="EVIL", recompute="full")
    made["notes"] = made["hardware"]["internode"] = "EVIL"
    made["schedule"] = "EVIL 1F1B"
    path = tmp_path / "runs.jsonl"
    path.write_text(json.dumps(made) + "\n", encoding="utf-8")
    (placed,) = read_files([("runs.jsonl", path)]).placed
    lines = write(placed.row).text.splitlines()
    assert [line for line in lines if "EVIL" in line and not line.startswith("# ")] == []
