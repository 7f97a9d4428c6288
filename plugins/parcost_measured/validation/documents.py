"""The summary for programs: JSON with errors in percent, CSV with a line per row."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from typing import Any

from parcost_formats.rendering.escapes import csv_cell
from parcost_measured.validation.intervals import Coverage
from parcost_measured.validation.rows import Flaw
from parcost_measured.validation.scores import Score
from parcost_measured.validation.summary import (
    APART,
    DIMENSIONS,
    ScoredRow,
    Summary,
    device_class,
    memory_basis,
)

_DIGITS = 4


def to_json(summary: Summary) -> str:
    """Return the summary as a document; errors are in percent."""
    document = {
        "rows": len(summary.rows),
        "groups": _groups(summary),
        "mean_over_sources": _means(summary),
        "memory": {basis: _score(found) for basis, found in summary.memory},
        "intervals_left_out": {
            figure: _coverage(found.left_out) for figure, found in summary.left_out.items()
        },
        "ranking": _ranking(summary),
        "worse_than_constant_mfu": _worse(summary),
        "profiles": [
            {
                "name": one.name,
                "first_year": one.first_year,
                "last_year": one.last_year,
                "checked": one.checked,
                "rows": one.rows,
                "newer": one.newer,
                "mape": None if one.step is None else _percent(one.step.mape),
            }
            for one in summary.profiles
        ],
        "rejected": [one.row.id for one in summary.rows if not one.prediction.fits],
        "unmodelled": [_flaw(one) for one in summary.unmodelled],
        "flaws": [_flaw(one) for one in summary.flaws],
        "unknown_fields": dict(summary.unknown),
        "unread_fields": dict(summary.unread),
        "runs": [*_runs(summary.rows)],
        "adapters": [*_runs(summary.adapters)],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _means(summary: Summary) -> Mapping[str, float | None]:
    found = summary.mean_over("source")
    own, baseline = found or (None, None)
    return {"mape": _percent(own), "baseline": _percent(baseline)}


def _score(found: Score | None) -> Any:
    if found is None:
        return None
    return {
        "n": found.n,
        "mape": _percent(found.mape),
        "median": _percent(found.median),
        "mean": _percent(found.mean),
        "p90": _percent(found.p90),
    }


def _coverage(found: Coverage | None) -> Any:
    if found is None:
        return None
    share, half_width = _percent(found.share), _percent(found.half_width)
    return {"n": found.n, "coverage": share, "half_width": half_width}


def _ends(ends: tuple[float, float] | None) -> tuple[float | None, float | None]:
    return ends or (None, None)


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, _DIGITS)


def _flaw(flaw: Flaw) -> Mapping[str, Any]:
    return {
        "file": flaw.file,
        "line": flaw.line,
        "id": flaw.id,
        "kind": flaw.kind,
        "reason": flaw.reason,
    }


def _runs(rows: Sequence[ScoredRow]) -> Iterator[Mapping[str, Any]]:
    for one in rows:
        yield {**_columns(one), "assumptions": list(one.written.assumptions)}


def _columns(one: ScoredRow) -> Mapping[str, Any]:
    row, p = one.row, one.row.parallel
    measured = row.measured.memory_gb
    low, high = _ends(one.prediction.step_interval)
    memory_low, memory_high = _ends(one.memory_interval)
    return {
        "id": row.id,
        "source": row.source_key,
        "model": row.model.name,
        "device": device_class(row),
        "devices": row.hardware.gpus,
        "precision": row.numbers,
        "framework": one.written.framework,
        "layout": f"tp{p.tp} cp{p.cp} pp{p.pp} dp{p.dp} ep{p.ep} vp{p.vp}",
        "measured_seconds": row.measured.step_time_s,
        "predicted_seconds": one.prediction.step_time,
        "predicted_seconds_low": low,
        "predicted_seconds_high": high,
        "held": one.step_in_interval,
        "error_percent": _percent(one.error),
        "baseline_seconds": one.baseline,
        "measured_memory_bytes": None if measured is None else measured * 1e9,
        "predicted_memory_bytes": one.predicted_memory,
        "predicted_memory_low_bytes": memory_low,
        "predicted_memory_high_bytes": memory_high,
        "memory_held": one.memory_held,
        "memory_error_percent": _percent(one.memory_error),
        "memory_basis": "" if measured is None else memory_basis(row),
        "fits": one.prediction.fits,
        "core": bool(row.core),
        "adapters": row.has_adapters,
    }


def to_csv(summary: Summary) -> str:
    """Return a CSV line for each scored row."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    lines = [_columns(one) for one in summary.all_rows]
    if lines:
        writer.writerow(lines[0])
    for line in lines:
        writer.writerow([_cell(value) for value in line.values()])
    return out.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return csv_cell(value) if isinstance(value, str) else repr(value)


def _groups(summary: Summary) -> dict[str, Any]:
    return {
        dimension: {
            group.name: {
                **_score(group.step),
                "baseline": _score(group.baseline),
                "memory": _score(group.memory),
                "rejected": group.rejected,
                "interval": _coverage(group.held),
                "memory_interval": _coverage(group.memory_held),
                "worst": list(group.worst),
            }
            for group in summary.groups_by(dimension)
        }
        for dimension in (*DIMENSIONS, *APART)
        if dimension in DIMENSIONS or summary.groups_by(dimension)
    }


def _ranking(summary: Summary) -> dict[str, Any]:
    return {
        "groups": len(summary.rankings),
        "regret": _percent(summary.regret),
        "chance": _percent(summary.chance),
        "pairs": _percent(summary.pairs),
        "by_group": [
            {
                "name": one.name,
                "layouts": one.layouts,
                "regret": _percent(one.regret),
                "chance": _percent(one.chance),
                "ordered": one.ordered,
                "pairs": one.pairs,
            }
            for one in summary.rankings
        ],
    }


def _worse(summary: Summary) -> list[dict[str, Any]]:
    return [
        {
            "dimension": group.dimension,
            "name": group.name,
            "n": group.step.n,
            "mape": _percent(group.step.mape),
            "baseline": _percent(group.baseline.mape),
        }
        for group in summary.worse
    ]
