"""What one measured run of a job is worth: errors of other runs of the job with and without it.

    python benchmarks/anchors.py [RUNS.jsonl] [--update]

Jobs are groups of rows: by source, model, device and precision, and by fewer of these. Repeats of a
configuration are one layout. Each layout is predicted by the catalogue, and by the catalogue with
other layouts of its group as anchors, all that there are or as many as are drawn. Errors are means
over groups, of the layouts of each. The spread that anchors are believed by is that of the jobs
left when the group is left out. With --update the table in docs/calibration.md is updated.
Composed rows are left out. It takes two minutes.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cache
from math import exp, log
from pathlib import Path
from statistics import fmean

from parcost import Session
from parcost.plugins.discovery import load as load_plugins
from parcost.plugins.selection import PluginSelection
from parcost_measured.validation.anchors import MeasuredJobs
from parcost_measured.validation.evaluation import evaluate_cases, write_studies
from parcost_measured.validation.rows import read_files, shipped_runs
from parcost_measured.validation.scores import group_by, quantile
from parcost_measured.validation.summary import ScoredRow, device_of, summarize
from parcost_plugins.physics.anchor_causes import choose_factors, step_parts
from parcost_plugins.physics.shrinkage import Spread, leave_one_out, shrink, spread_of

PAGE = Path(__file__).parents[1] / "docs" / "calibration.md"
START = "<!-- made by `python benchmarks/anchors.py --update` -->\n"
END = "<!-- end of anchors -->\n"
SESSION = Session()
DRAWS = 20  # of anchors of each layout, where there are more than one
COUNTS = (1, 2, 3, 5, 10)
GROUPS: dict[str, Callable[[ScoredRow], Hashable]] = {
    "source, model, device, precision": lambda one: (
        one.row.source_key, one.row.model.name, device_of(one.row), one.row.numbers
    ),
    "source, model, device": lambda one: (
        one.row.source_key, one.row.model.name, device_of(one.row)
    ),
    "model, device": lambda one: (one.row.model.name, device_of(one.row)),
    "source, device (other models)": lambda one: (one.row.source_key, device_of(one.row)),
}  # fmt: skip


def scored_rows(path: Path | None) -> Sequence[ScoredRow]:
    """Return the rows of a file, or those that ship, with their predictions."""
    plugins = load_plugins()
    named = shipped_runs(plugins) if path is None else (str(path), path)
    assert named is not None
    rows = read_files([named])
    with tempfile.TemporaryDirectory() as folder:
        cases = [*write_studies(rows.placed, Path(folder))]
        evaluated = [*evaluate_cases(cases, PluginSelection(), None, {}, lambda _: None)]
    return summarize(evaluated, rows.flaws, rows.unknown, {}).rows


@cache
def parts_of(text: str) -> Mapping[str, float]:
    """Return the predicted seconds of a study by part."""
    outcome = SESSION.load_text(text)[0].evaluate().result.outcome
    assert outcome is not None
    return {name: float(seconds) for name, seconds in step_parts(outcome).items()}


class Layout:
    """One measured layout: ln(measured / predicted), its model, and whether that has experts."""

    def __init__(self, rows: Sequence[ScoredRow]) -> None:
        """Take the median of the repeats of a layout."""
        self.residual = quantile([log(one.ratio) for one in rows], 0.5)
        self.parts = parts_of(rows[0].written.text)
        self.predicted = sum(self.parts.values())
        self.seconds = exp(self.residual) * self.predicted
        self.model = rows[0].row.model.name
        self.is_sparse = rows[0].row.is_sparse


def layouts_by_group(
    rows: Sequence[ScoredRow], key: Callable[[ScoredRow], Hashable]
) -> list[list[Layout]]:
    """Return the layouts of each group that has several."""
    groups = group_by(rows, key).values()
    found = [
        [Layout(same) for same in group_by(group, lambda one: one.row.configuration).values()]
        for group in groups
    ]
    return [group for group in found if len(group) > 1]


def spread_without(groups: Sequence[Sequence[Layout]], left_out: int) -> Spread:
    """Return the spread of the other groups with a model of the same kind."""
    kind = groups[left_out][0].is_sparse
    others = [g for i, g in enumerate(groups) if i != left_out and g[0].is_sparse == kind]
    return spread_of([[one.residual for one in group] for group in others])


def error(predicted: float, measured: float) -> float:
    """Return the error of a time, by logarithms over the catalogue's prediction."""
    return abs(exp(predicted - measured) - 1)


def drawn(
    others: Sequence[Layout], count: int, generator: random.Random
) -> Iterator[Sequence[Layout]]:
    """Yield anchors: each single one, or *count* that are drawn, some times."""
    if count == 1:
        yield from ([one] for one in others)
        return
    for _ in range(DRAWS):
        yield generator.sample(others, count)


def compute_errors(
    anchors: Sequence[Layout], layout: Layout, spread: Spread, margin: float
) -> tuple[float, float, float, float, float]:
    """Return errors of a layout: of the catalogue, w = 1, shrunk, by cause; and if 90 % hold it."""
    residuals = [one.residual for one in anchors]
    shrunk = shrink(residuals, spread)
    low, high = shrunk.ends(margin)
    causes, _ = choose_factors(
        [one.seconds for one in anchors],
        [one.parts for one in anchors],
        leave_one_out(residuals, spread) if len(residuals) > 1 else [0.0],
        spread.within,
    )
    shift = shrunk.shift
    if causes is not None:
        shift = log(float(causes.seconds(layout.parts)) / layout.predicted)
        reach = margin * float(causes.deviation(layout.parts))
        off = [log(one.seconds / float(causes.seconds(one.parts))) for one in anchors]
        low = exp(shift + min(-reach, *off))
        high = exp(shift + max(reach, *off))
    return (
        error(0.0, layout.residual),
        error(shrunk.mean, layout.residual),
        error(shrunk.shift, layout.residual),
        error(shift, layout.residual),
        float(low <= exp(layout.residual) <= high),
    )


def anchored_errors(
    groups: Sequence[Sequence[Layout]], count: int, *, others_only: bool = False
) -> tuple[int, float, float, float, float, float]:
    """Return the number of groups, and their mean errors and coverage with *count* anchors.

    They are of the catalogue, of the anchors alone (w = 1), shrunk, and by cause from three on.
    Coverage is that of 90 % intervals. With *others_only* anchors are of another model.
    """
    means: list[tuple[float, ...]] = []
    for position, group in enumerate(groups):
        spread = spread_without(groups, position)
        margin = MeasuredJobs(
            model="",
            jobs=[
                [one.residual for one in other]
                for i, other in enumerate(groups)
                if i != position and other[0].is_sparse == group[0].is_sparse
            ],
        ).margin
        generator = random.Random(position)
        found: list[tuple[float, ...]] = []
        for layout in group:
            others = [
                one
                for one in group
                if one is not layout and not (others_only and one.model == layout.model)
            ]
            if len(others) < count:
                continue
            cases = [
                compute_errors(some, layout, spread, margin)
                for some in drawn(others, count, generator)
            ]
            found.append(tuple(map(fmean, zip(*cases, strict=True))))
        if found:
            means.append(tuple(map(fmean, zip(*found, strict=True))))
    plain, raw, shrunk, by_cause, held = map(fmean, zip(*means, strict=True))
    return len(means), plain, raw, shrunk, by_cause, held


def tables(rows: Sequence[ScoredRow]) -> list[str]:
    """Return the tables in Markdown."""
    lines = [
        "| anchors of the same | groups | none | one, w = 1 | one | three | sigma | tau |",
        "| :-- | --: | --: | --: | --: | --: | --: | --: |",
    ]
    for name, key in GROUPS.items():
        groups = layouts_by_group(rows, key)
        apart = "other" in name
        count, plain, raw, shrunk, *_ = anchored_errors(groups, 1, others_only=apart)
        three = anchored_errors(groups, 3, others_only=apart)[3]
        spread = spread_of([[one.residual for one in group] for group in groups])
        lines.append(
            f"| {name} | {count} | {100 * plain:.1f} % | {100 * raw:.1f} % | {100 * shrunk:.1f} % "
            f"| {100 * three:.1f} % | {spread.within:.3f} | {spread.between:.3f} |"
        )
    jobs = layouts_by_group(rows, next(iter(GROUPS.values())))
    lines += [
        "",
        "| anchors | groups | none | w = 1 | one factor | by cause | less error | 90 % holds |",
        "| --: | --: | --: | --: | --: | --: | --: | --: |",
    ]
    for number in COUNTS:
        count, plain, raw, shrunk, by_cause, held = anchored_errors(jobs, number)
        lines.append(
            f"| {number} | {count} | {100 * plain:.1f} % | {100 * raw:.1f} % "
            f"| {100 * shrunk:.1f} % | {100 * by_cause:.1f} % "
            f"| {100 * (1 - by_cause / plain):.0f} % | {100 * held:.0f} % |"
        )
    return lines


def main() -> None:
    """Print the tables, and write them into the page if that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", nargs="?", type=Path)
    parser.add_argument("--update", action="store_true")
    asked = parser.parse_args()
    text = "\n".join(tables(scored_rows(asked.path))) + "\n"
    print(text)
    if asked.update:
        before, rest = PAGE.read_text(encoding="utf-8").split(START)
        PAGE.write_text(f"{before}{START}\n{text}\n{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
