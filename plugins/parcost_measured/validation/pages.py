"""The summary as a page, for terminals, Markdown and graphical formats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from parcost.contract.entries import Entry
from parcost.contract.page import Column, Heading, Item, Line, Paper, Row, Table
from parcost.language.numbers import percent
from parcost_apps.batch.entries import charts_of
from parcost_formats.rendering import markdown
from parcost_formats.rendering.text import draw
from parcost_measured.validation.frameworks import GENERIC
from parcost_measured.validation.intervals import COVERAGE, FOLDS, Coverage
from parcost_measured.validation.picture import histogram, scatter
from parcost_measured.validation.rows import Flaw
from parcost_measured.validation.scores import Score, group_by
from parcost_measured.validation.summary import (
    APART,
    FEWEST_LAYOUTS,
    FEWEST_ROWS,
    NOISE,
    Ranking,
    ScoredRow,
    Summary,
    SummaryGroup,
    ordered_share,
)

_TITLES = {
    "source": "By source",
    "device": "By device",
    "nodes": "By nodes",
    "model": "Dense or MoE",
    "precision": "By precision",
    "framework": "By framework",
}
_NAMES = {
    ("all", "all"): "all rows",
    ("once", "once"): "each configuration once",
    ("core", "core"): "at most 2 per source, device and model",
    ("adapters", "adapters"): "adapters on frozen weights (not above)",
    ("composed", "composed"): "composed step times (not above)",
    ("framework", GENERIC.framework): "not stated",
}
_MOST_FLAWS = 20


def to_table(summary: Summary, paper: Paper, worst: int) -> str:
    """Return the summary as text for a terminal."""
    return draw([*page(summary, worst)], paper)


def to_markdown(summary: Summary, worst: int) -> str:
    """Return the summary in Markdown."""
    return markdown.draw([*page(summary, worst)])


def page(summary: Summary, worst: int) -> Iterator[Item]:
    """Yield the items of the page; *worst* is the number of rows with large errors to list."""
    sources = len(summary.groups_by("source"))
    yield Heading(
        f"Predicted against measured: {len(summary.rows):,} runs of {_count(sources, 'source')}", 1
    )
    yield Line(
        "Error of the step time, predicted / measured - 1. Constant MFU (const. MFU): one rate for "
        "each class of device and precision, the median of these rows; a star marks where it is "
        "more accurate. Rejected: runs that completed in reality but are predicted not to fit."
    )
    yield Heading("Step time")
    yield _overall(summary)
    yield from _histogram(summary)
    for dimension, title in _TITLES.items():
        if groups := summary.groups_by(dimension):
            yield Heading(title)
            yield Table(_columns(dimension), [_row(group) for group in groups])
    yield from _adapters(summary)
    yield from _worse(summary)
    yield from _profiles(summary)
    yield from _ranking(summary)
    yield from _memory(summary)
    yield from _intervals(summary)
    yield from _worst_rows(summary, worst)
    yield from _excluded_rows(summary)


def _overall(summary: Summary) -> Table:
    rows = [_row(group) for name in ("all", "once", "core") for group in summary.groups_by(name)]
    if means := summary.mean_over("source"):
        blank = ["", "", ""]
        rows.append(
            Row(["mean over sources", "", percent(means[0]), *blank, percent(means[1]), ""])
        )
    rows += [_row(group) for name in APART for group in summary.groups_by(name)[:1]]
    return Table(_columns("rows"), rows)


def _adapters(summary: Summary) -> Iterator[Item]:
    """Yield the rows that train adapters on frozen weights, by device."""
    if not summary.adapters:
        return
    yield Heading("Adapters on frozen weights, by device")
    yield Line("LoRA and QLoRA. These rows are in no other table, fit or interval.")
    groups = summary.groups_by("adapters")[1:]
    yield Table(_columns("device"), [_row(group) for group in groups])


def _columns(first: str) -> list[Column]:
    titles = ("n", "MAPE", "median", "signed", "p90", "const. MFU", "rejected")
    return [Column(first), *(Column(title, "right") for title in titles)]


def _row(group: SummaryGroup) -> Row:
    s = group.step
    cells = [_NAMES.get((group.dimension, group.name), group.name), f"{s.n:,}", *_scores(s)]
    constant = percent(group.baseline.mape) + (" *" if group.baseline.mape < s.mape else "")
    return Row([*cells, constant, f"{group.rejected:,}"])


def _scores(s: Score) -> list[str]:
    return [percent(s.mape), percent(s.median), percent(s.mean, signed=True), percent(s.p90)]


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _histogram(summary: Summary) -> Iterator[Item]:
    bars = histogram([one.error for one in summary.rows])
    if bars:
        yield Heading("Predicted over measured", 3)
        columns = [Column("error", "right"), Column("rows", "right"), Column("")]
        yield Table(columns, [Row([bar.title, f"{bar.rows:,}", "=" * bar.length]) for bar in bars])


def _worse(summary: Summary) -> Iterator[Item]:
    """Yield the larger groups in which a constant MFU predicts better."""
    yield Heading("Where a constant MFU is more accurate")
    found = summary.worse
    if not found:
        yield Line(f"In no group of {FEWEST_ROWS} or more rows.")
        return
    columns = [Column("by"), Column("group"), *(Column(t, "right") for t in _WORSE)]
    rows = []
    for group in found:
        name = _NAMES.get((group.dimension, group.name), group.name)
        errors = (group.step.mape, group.baseline.mape)
        rows.append(Row([group.dimension, name, f"{group.step.n:,}", *map(percent, errors)]))
    yield Table(columns, rows)


_WORSE = ("n", "MAPE", "const. MFU")


def _profiles(summary: Summary) -> Iterator[Item]:
    """Yield the profiles of frameworks: years, the runs that check them, and newer rows."""
    if not summary.profiles:
        return
    yield Heading("Profiles of frameworks")
    yield Line(
        "A profile describes releases of certain years. Newer rows may run different code. The "
        "values of a profile without rows come from the code that was read, and from no run."
    )
    columns = [Column("profile"), *(Column(t, "right") for t in _AGES), Column("checked by")]
    rows = []
    for one in summary.profiles:
        years = f"{one.first_year} to {one.last_year}" if one.last_year else "not stated"
        if one.last_year and one.first_year == one.last_year:
            years = f"{one.last_year}"
        error = "" if one.step is None else percent(one.step.mape)
        rows.append(Row([one.name, years, f"{one.rows:,}", f"{one.newer:,}", error, one.checked]))
    yield Table(columns, rows)


_AGES = ("years", "rows", "newer", "MAPE")


def _ranking(summary: Summary) -> Iterator[Item]:
    yield Heading("Choice of a layout")
    if not summary.rankings:
        yield Line(f"No job was measured in {FEWEST_LAYOUTS} layouts or more.")
        return
    assert summary.regret is not None
    assert summary.chance is not None
    noise = f"{100 * NOISE:g} %"
    yield Line(
        f"A group has {FEWEST_LAYOUTS} or more layouts of one source with equal model, sequence, "
        "batch, precision, recomputation and number of devices. Repeats count by their median; "
        f"layouts whose repeats differ by more than {noise} are left out. Regret: additional step "
        "time of the layout predicted to be best, compared with the best. Pairs: layouts that "
        f"differ by more than {noise}, and the share in the right order."
    )
    rows = [
        _rank_row(source, found)
        for source, found in group_by(summary.rankings, lambda one: one.source).items()
    ]
    rows.append(_rank_row("all", summary.rankings))
    columns = [Column("source"), *(Column(t, "right") for t in _RANKED)]
    yield Table(columns, rows)


def _rank_row(name: str, found: Sequence[Ranking]) -> Row:
    """Return the table row of a source: its groups of layouts, mean regrets, and ordered pairs."""
    n, ordered = len(found), ordered_share(found)
    return Row(
        [
            name,
            f"{n:,}",
            f"{sum(one.layouts for one in found):,}",
            percent(sum(one.regret for one in found) / n),
            percent(sum(one.chance for one in found) / n),
            f"{sum(one.pairs for one in found):,}",
            "" if ordered is None else percent(ordered),
        ]
    )


_RANKED = ("groups", "layouts", "regret", "by chance", "pairs", "right order")


def _memory(summary: Summary) -> Iterator[Item]:
    yield Heading("Peak memory, by kind of measurement")
    group = summary.all
    if group is None or group.memory is None:
        yield Line("No selected row has measured memory.")
        return
    columns = [Column("measured"), *(Column(t, "right") for t in ("n", *_SCORES))]
    rows = [Row([name, f"{s.n:,}", *_scores(s)]) for name, s in summary.memory]
    rows.append(Row(["all", f"{group.memory.n:,}", *_scores(group.memory)]))
    yield Table(columns, rows)


_SCORES = ("MAPE", "median", "signed", "p90")


def _intervals(summary: Summary) -> Iterator[Item]:
    yield Heading(f"{100 * COVERAGE:g} % intervals")
    if not any(group.held for group in summary.groups_by("all")):
        yield Line("Predictions have no intervals.")
        return
    yield Line(
        "Coverage: share of measured values inside the predicted interval. Half-width: half of "
        "the interval / prediction, median over rows. The shipped intervals are computed from "
        "the shipped rows."
    )
    for figure, found in summary.left_out.items():
        held = found.left_out
        yield Line(
            f"Cross-validation in {FOLDS} folds of models: intervals of the "
            f"{figure.replace('_', ' ')} hold {percent(held.share)} of {held.n:,} rows, with a "
            f"half-width of {percent(held.half_width)}."
        )
    columns = [Column("rows"), *(Column(title, "right") for title in _HELD)]
    dimensions = ("all", "model", "device", "framework", "source")
    groups = [group for name in dimensions for group in summary.groups_by(name)]
    yield Table(columns, [_coverage_row(group) for group in groups if group.held is not None])


_HELD = ("n", "coverage", "half-width", "n (memory)", "coverage", "half-width")


def _coverage_row(group: SummaryGroup) -> Row:
    name = _NAMES.get((group.dimension, group.name), group.name)
    return Row([name, *_coverage_cells(group.held), *_coverage_cells(group.memory_held)])


def _coverage_cells(found: Coverage | None) -> list[str]:
    if found is None:
        return ["", "", ""]
    return [f"{found.n:,}", percent(found.share), percent(found.half_width)]


def _worst_rows(summary: Summary, worst: int) -> Iterator[Item]:
    found = summary.worst(worst)
    if not found:
        return
    yield Heading("Worst rows")
    columns = [
        Column("row", flexible=True),
        *(Column(title, "right") for title in ("measured", "predicted", "error")),
    ]
    yield Table(columns, [_worst_row(one) for one in found])


def _worst_row(one: ScoredRow) -> Row:
    measured, predicted = one.row.measured.step_time_s, one.prediction.step_time
    return Row(
        [one.row.id, f"{measured:.4g} s", f"{predicted:.4g} s", percent(one.error, signed=True)]
    )


def _excluded_rows(summary: Summary) -> Iterator[Item]:
    yield Heading("Left out")
    if not (summary.unmodelled or summary.flaws or summary.unknown):
        yield Line("No row was left out, and no field was unknown.")
    for title, flaws in (
        ("that cannot be modeled", summary.unmodelled),
        ("with contradictions or schema errors", summary.flaws),
    ):
        if flaws:
            yield Line(f"{_count(len(flaws), 'row')} {title}:")
            yield _flaws(flaws)
    if summary.unknown:
        names = ", ".join(f"`{name}` ({n:,})" for name, n in summary.unknown.items())
        yield Line(f"Unknown fields (ignored): {names}.")
    if slowed := sum(one.row.slowdown[1] > 0 for one in summary.rows):
        yield Line(
            f"{_count(slowed, 'row')} lost time to a machine fault that is not modeled. The "
            "source gives a range of the lost time: its middle is added to the prediction, and "
            "its ends to the interval."
        )
    if summary.unread:
        names = ", ".join(f"`{name}` ({n:,})" for name, n in summary.unread.items())
        yield Line(f"Fields that parcost does not use: {names}.")


def _flaws(flaws: Sequence[Flaw]) -> Table:
    rows = [Row([flaw.id or f"line {flaw.line}", flaw.reason]) for flaw in flaws[:_MOST_FLAWS]]
    if len(flaws) > _MOST_FLAWS:
        rows.append(Row([f"and {len(flaws) - _MOST_FLAWS:,} more", ""]))
    return Table([Column("row"), Column("reason", flexible=True)], rows)


def to_entry(summary: Summary, worst: int) -> Entry:
    """Return the summary with its chart, for a graphical format."""
    whole = list(page(summary, worst))
    charts = [scatter(summary.rows)] if summary.rows else []
    title = "Predicted against measured"
    return Entry(path="", name=title, part="charts", text=charts_of(whole, charts))
