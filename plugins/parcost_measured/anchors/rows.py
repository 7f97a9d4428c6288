"""Rows of RUNS.jsonl as anchors: layout and batch as settings, model and device as job.

The framework of the spec is assumed to be that of the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from parcost import ImportedBlock, ImportedKey, ImportedValue, ImportProblem, Translation
from parcost.language.writer import provenance
from parcost_measured.anchors.labels import label_of
from parcost_measured.validation.hardware import entry_of
from parcost_measured.validation.rows import PlacedRow, RunRow, read_text
from parcost_plugins.vocabulary.anchor import write_settings

_FIELDS = ("measured", "parallel")  # of a row


def has_rows(text: str) -> bool:
    """Return whether the first line of a text is a measured run."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and all(name in value for name in _FIELDS)


def read_rows(name: str, text: str) -> Translation:
    """Return the anchors of all rows; invalid rows are listed by line and reason."""
    found = read_text(name, text)
    places = [0]
    for line in text.splitlines(keepends=True):
        places.append(places[-1] + len(line))

    def place(number: int) -> dict[str, Any]:
        start = places[number - 1]
        return {"start": start, "end": start + max(1, len(text[start : places[number]].rstrip()))}

    unread = [
        ImportedKey(
            name=f"line {flaw.line}" + (f" ({flaw.id})" if flaw.id else ""),
            reason=flaw.reason,
            **place(flaw.line),
        )
        for flaw in (*found.flaws, *found.flaws_apart)
    ]
    if not found.placed:
        problems = [
            ImportProblem(message=f"{key.name}: {key.reason}", start=key.start, end=key.end)
            for key in unread
        ]
        return Translation(problems=problems)
    labels: set[str] = set()
    blocks = []
    for one in found.placed:
        label = label_of(one.row.id)
        while label in labels:
            label += "_"
        labels.add(label)
        blocks.append(_block(label, one, place(one.line)))
    return Translation(blocks=blocks, unknown=unread)


def _block(label: str, one: PlacedRow, place: Mapping[str, Any]) -> ImportedBlock:
    row = one.row
    source = f"{one.file}:{one.line}, {row.source}"
    measured = f"{row.measured.step_time_s:.8g} s{provenance('measured', source)}"
    settings = [
        ImportedValue(name="step_time", value=measured, key="step_time_s", **place),
        ImportedValue(name="settings", value=f'"{write_settings(dict(_settings(row)))}"', **place),
        ImportedValue(name="job", value=f'"{write_settings(dict(_job(row)))}"', **place),
    ]
    return ImportedBlock(kind="anchor", label=label, settings=settings)


def _settings(row: RunRow) -> Iterator[tuple[str, str]]:
    """Yield the layout and the batch of a row; missing degrees are 1."""
    p = row.parallel
    yield "cluster.devices", str(row.hardware.gpus)
    for name in ("tp", "pp", "cp", "dp"):
        yield f"layout.{name}", str(getattr(p, name))
    if row.is_sparse:
        yield "layout.ep", str(p.ep)
    if p.pp > 1:
        yield "schedule.kind", "interleaved" if p.vp > 1 else "one_f_one_b"
        yield "schedule.chunks", str(p.vp)
    if p.sequence_parallel is not None and p.tp > 1:
        yield "layout.sequence_parallel", "on" if p.sequence_parallel else "off"
    yield "training.sequence", str(row.model.seq)
    yield "training.micro_batch", str(row.batch.micro)
    yield "training.global_batch", f"{row.batch.global_} sequences"
    if row.recompute in ("none", "selective", "full"):
        yield "training.recompute", row.recompute


_DIMENSIONS = {
    "layers": "layers",
    "hidden": "hidden",
    "heads": "heads",
    "kv_heads": "kv_heads",
    "ffn": "ffn",
    "experts": "experts",
    "topk": "top_k",
}
#: The narrow type of a class of precision; others have none.
_NARROW = {"fp8": "fp8", "mxfp8": "fp8", "nvfp4": "fp4", "mxfp4": "fp4"}


def _job(row: RunRow) -> Iterator[tuple[str, str]]:
    """Yield the values that identify the job of a row."""
    entry = entry_of(row.hardware)
    yield "device", entry.device if entry is not None else label_of(row.hardware.gpu)
    for name, attribute in _DIMENSIONS.items():
        value = getattr(row.model, name)
        if value is not None:
            yield f"model.{attribute}", str(value)
    numbers = row.numbers
    if numbers is not None:
        yield "precision.narrow", _NARROW.get(numbers, "none")
        if numbers not in _NARROW:
            yield "precision.compute", numbers
