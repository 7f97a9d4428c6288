"""``parcost calibrate --anchor``: measured runs of one job correct its prediction.

    parcost calibrate job.par --anchor train.log --out anchors.par

Each run is compared with its prediction, also after correction by the other runs. The written file
has the valid runs, for ``use`` in specs of the job.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from parcost import ImportedBlock, ImportedValue, Translation, block_name
from parcost.contract.importers import ImportOptions
from parcost.contract.page import Heading, Item
from parcost_apps.cli.messages import Reporter
from parcost_formats.rendering import markdown
from parcost_formats.rendering.text import draw
from parcost_measured.anchors.labels import label_of
from parcost_measured.anchors.spec import whole_anchor
from parcost_plugins.physics.anchoring import Anchoring, find_anchoring
from parcost_plugins.vocabulary import Anchor

if TYPE_CHECKING:
    from parcost import Report, Result, Scenario, Session
    from parcost.contract.page import Paper

_FIGURES = ("step_time", "anchored_step_time", "anchored_reserved", "anchored_allocated")


def evaluate_anchors(
    paths: Sequence[str], anchors: Sequence[str], session: Session
) -> tuple[Report, str]:
    """Return the report of the job with its anchors, and the text of the valid anchors.

    Raises:
        SpecError: The spec or a file of anchors cannot be read.
        click.UsageError: There is not exactly one spec.
    """
    scenario = _job(paths, anchors, session)
    report = scenario.evaluate()
    found = None if report.axes else find_anchoring(report.result.study)
    if found is None:
        message = "an anchor needs one run: the spec must have a training step and no sweep"
        raise click.UsageError(message)
    return report, _text(report.result, found)


def _job(paths: Sequence[str], anchors: Sequence[str], session: Session) -> Scenario:
    """Return the study of the job with its anchors; a spec with an `anchor` may be the job."""
    if len(paths) > 1:
        raise click.UsageError(f"`--anchor` needs one job, not {len(paths)} files")
    specs = [name for name in anchors if name.endswith(".par")]
    if not paths and not specs:
        message = "give the spec of the job: `parcost calibrate job.par --anchor train.log`"
        raise click.UsageError(message)
    path = paths[0] if paths else specs[0]
    others = tuple(name for name in anchors if paths or name != path)
    found = session.load(path, reading=ImportOptions(anchors=others))
    if len(found) != 1:
        raise click.UsageError(f"`{path}` has {len(found)} studies; an anchor needs exactly one")
    return found[0]


def _text(result: Result, found: Anchoring) -> str:
    """Return the valid anchors as text of a file, "" if none exist."""
    from parcost.language.format import format_text
    from parcost_formats.imports.spec_text import spec_lines

    counting = {one.name for one in found.compared if not one.reason}
    written = result.study.as_written()
    blocks = []
    for anchor in result.study.all(Anchor):
        name = block_name(anchor)
        if name in counting:
            values = whole_anchor(written, anchor)
            settings = [ImportedValue(name=n, value=value) for n, value in values.items()]
            label = name if anchor.label else label_of(result.study.name)  # type: ignore[attr-defined]
            blocks.append(ImportedBlock(kind="anchor", label=label, settings=settings))
    lines = [line.text for line in spec_lines(Translation(blocks=blocks))]
    return format_text("\n".join(lines)) if blocks else ""


def page(report: Report) -> Iterator[Item]:
    """Yield the report: step time and memory with and without anchors, and each anchor."""
    from parcost_formats.rendering.full_report import section_page
    from parcost_formats.rendering.screen import figure_table

    result = report.result
    yield Heading(f"Anchors of {report.name}", 1, aside=report.path)
    names = {figure.name for _, figure in result.figures}
    yield figure_table(result, [name for name in _FIGURES if name in names])
    for _, section in result.sections:
        if section.title == "Anchors":
            yield from section_page(section)


def render(report: Report, text: str, format_: str, paper: Paper) -> str:
    """Return the report in a format; *text* is the text of the anchors, "" to omit it."""
    if format_ == "json":
        return json.dumps(_document(report, text), indent=2) + "\n"
    if format_ == "md":
        return markdown.draw([*page(report)]) + (f"\n```text\n{text}```\n" if text else "")
    return draw([*page(report)], paper) + (f"\n{text}" if text else "")


def show_problems(report: Report) -> bool:
    """Print the problems in files of anchors; return whether there are any."""
    wrong = [one for one in report.result.diagnostics if one.id.startswith("import")]
    Reporter()(wrong)
    return bool(wrong)


def _document(report: Report, text: str) -> dict[str, Any]:
    """Return the report as data: seconds, bytes, and errors in percent."""
    result = report.result
    found = find_anchoring(result.study)
    assert found is not None
    interval = result.interval("anchored_step_time")
    return {
        "schema_version": 1,
        "spec": report.path,
        "step_time_seconds": float(result.figure("step_time")),
        "anchored_step_time_seconds": float(result.figure("anchored_step_time")),
        "interval": None if interval is None else [float(interval.low), float(interval.high)],
        "coverage": None if interval is None else interval.coverage,
        "weight": found.step.weight,
        "layouts": found.step.layouts,
        "reserved_offset_bytes": found.reserved,
        "allocated_offset_bytes": found.allocated,
        "anchors": [
            {
                "name": one.name,
                "measured_seconds": one.seconds,
                "predicted_seconds": one.predicted or None,
                "error_by_others_percent": _percent(found.left_out.get(one.layout)),
                "reserved_bytes": None if one.reserved is None else one.reserved[0],
                "predicted_reserved_bytes": None if one.reserved is None else one.reserved[1],
                "allocated_bytes": None if one.allocated is None else one.allocated[0],
                "predicted_allocated_bytes": None if one.allocated is None else one.allocated[1],
                "counts": not one.reason,
                "reason": one.reason,
            }
            for one in found.compared
        ],
        "catalogue": text,
    }


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 3)
