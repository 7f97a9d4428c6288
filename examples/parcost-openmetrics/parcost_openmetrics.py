"""Reports as OpenMetrics: ``parcost eval --format openmetrics``.

A family of metrics must be contiguous, so the text is written after the last report. Names
end in their base unit, as the specification asks: seconds, bytes, ratio.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from parcost import Exporter, hookimpl
from parcost.contract.entries import Entry, Part
from parcost.contract.page import Paper

_UNITS = ("seconds", "bytes", "ratio", "joules", "watts")
_ESCAPES = {"\\": r"\\", "\n": r"\n", '"': r"\""}

#: The labels of a metric, and its value.
_Sample = tuple[Mapping[str, str], float]


class OpenMetrics(Exporter):
    """A gauge for each figure, with a sample for each point of each study."""

    name = "openmetrics"
    reads: Part = "data"

    def write(self, entries: Iterable[Entry], paper: Paper) -> Iterator[str]:  # noqa: ARG002
        """Yield the families of all *entries*, and the mark of the end."""
        families: dict[str, list[_Sample]] = {}
        for entry in entries:
            for name, labels, value in _samples(entry):
                families.setdefault(name, []).append((labels, value))
        for name, samples in sorted(families.items()):
            yield f"# TYPE {name} gauge\n"
            if name.endswith(_UNITS):
                yield f"# UNIT {name} {name.rpartition('_')[2]}\n"
            for labels, value in samples:
                shown = ",".join(f'{label}="{_escape(text)}"' for label, text in labels.items())
                yield f"{name}{{{shown}}} {value!r}\n"
        yield "# EOF\n"


def _samples(entry: Entry) -> Iterator[tuple[str, Mapping[str, str], float]]:
    base = {"file": entry.path, "study": entry.name or ""}
    if entry.rejected:
        yield "parcost_feasible", base, 0.0
        return
    found = entry.data()
    axes = {name: _label(name) for name in found["axes"]}
    for point in found.get("points") or [_only_point(found)]:
        labels = {**base, **{axes[name]: _text(point[name]) for name in axes}}
        yield "parcost_feasible", labels, float(bool(point["feasible"]))
        for name, value in point.items():
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if name not in axes and is_number:
                yield _metric(name), labels, float(value)
    if not axes:
        for cause, seconds in _by_cause(found).items():
            yield "parcost_step_by_cause_seconds", {**base, "cause": cause}, seconds


def _only_point(found: Mapping[str, Any]) -> Mapping[str, Any]:
    (result,) = found["results"]
    figures = {name: one["value"] for name, one in result.get("figures", {}).items()}
    return {**figures, "feasible": result["feasible"]}


def _by_cause(found: Mapping[str, Any]) -> Mapping[str, float]:
    sums: dict[str, float] = {}
    for result in found["results"]:
        for line in result.get("ledger", ()):
            sums[line["cause"]] = sums.get(line["cause"], 0.0) + line["exposed_seconds"]
    return sums


def _text(value: Any) -> str:
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def _metric(name: str) -> str:
    """Return the name of the metric of a figure.

    >>> _metric("mfu_fraction"), _metric("west.step_time_seconds")
    ('parcost_mfu_ratio', 'parcost_west_step_time_seconds')
    """
    name = re.sub(r"_fraction$", "_ratio", name)
    return "parcost_" + re.sub(r"[^A-Za-z0-9_]", "_", name)


def _label(name: str) -> str:
    """Return the label of a swept attribute: ``layout_tp``."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def _escape(text: str) -> str:
    escaped = "".join(_ESCAPES.get(c, c) for c in text)
    return "".join(c if c.isprintable() else f"\\\\x{ord(c):02x}" for c in escaped)


EXPORTER = OpenMetrics()


@hookimpl
def exporters() -> list[OpenMetrics]:
    """Offer the format."""
    return [EXPORTER]
