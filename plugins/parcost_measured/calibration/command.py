"""``parcost calibrate``: constants of a device, fabric or framework from measurements.

Imports are in the functions: a list of the commands imports only this module.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from parcost_apps import options
from parcost_apps.cli.interrupts import Interrupts
from parcost_apps.cli.messages import Progress, write_message
from parcost_apps.cli.output_files import OutputFile

if TYPE_CHECKING:
    from parcost import Session
    from parcost.plugins.selection import PluginSelection
    from parcost_measured.calibration.constants import Constant, ConstantKind, FrameworkConstant
    from parcost_measured.calibration.grids import Measurement, TimeGrid
    from parcost_measured.calibration.inputs import Input
    from parcost_measured.calibration.logs import NetworkLink, Options
    from parcost_measured.calibration.report import CalibrationReport, Part
    from parcost_measured.calibration.runs import Studies
    from parcost_measured.calibration.solve import FitProblem, LeaveOutErrors
    from parcost_measured.validation.rows import Flaw, Rows

_FLAWED = 1
_MOST_REPORTED = 50
_LABEL = r"[A-Za-z_][A-Za-z0-9_]*"


@click.command("calibrate")
@click.argument("paths", metavar="[RUNS|LOGS|TABLES]...", nargs=-1)
@click.option(
    "--constants",
    metavar="NAME,...",
    help="Constants to fit to runs: h100_sxm.sustained, or sustained for all devices; by "
    "default the constants marked as fitted in the catalogue.",
)
@click.option(
    "--bounds",
    multiple=True,
    metavar="NAME=LOW..HIGH",
    help="Narrower bounds than the physical ones: issue=10..60us. May be repeated.",
)
@click.option(
    "--leave",
    type=click.Choice(["models", "sources", "rows"]),
    multiple=True,
    help="Unit that a fold of cross-validation leaves out: models by default.",
)
@click.option("--folds", type=click.IntRange(2, 100), default=8, show_default=True,
              help="Number of folds; with --leave sources, one per source.")  # fmt: skip
@click.option(
    "--format",
    "format_",
    type=click.Choice(["table", "json", "md"]),
    default="table",
    show_default=True,
    help="Format of the report on stdout.",
)
@click.option("--name", default="measured", show_default=True, help="Label of the blocks.")
@click.option("--out", type=click.Path(dir_okay=False), help="Write a catalogue file.")
@click.option(
    "--device",
    metavar="NAME",
    help="The device of kernel tables, and of logs without one: h100_sxm.",
)
@click.option(
    "--framework",
    metavar="NAME",
    help="The framework of launch-time rows; generic by default.",
)
@click.option(
    "--operation",
    metavar="NAME",
    help="The collective, if a log does not name it: all_reduce, all_gather, reduce_scatter, "
    "broadcast, reduce, all_to_all, point_to_point.",
)
@click.option("--ranks", type=click.IntRange(2), help="Number of ranks, if a log does not have it.")
@click.option("--nodes", type=click.IntRange(1), help="Number of nodes of the ranks.")
@click.option(
    "--ports", type=click.IntRange(1), help="Network ports per node; by default one per rank."
)
@click.option(
    "--algorithm",
    metavar="NAME",
    help="Collective algorithm: ring by default, if ring supports the operation.",
)
@click.option("--table", type=click.IntRange(1), help="Number of the table in a log with several.")
@click.option(
    "--as",
    "form",
    type=click.Choice(["auto", "line", "curve"]),
    default="auto",
    show_default=True,
    help="line fits a latency and a bandwidth, curve keeps every point, auto chooses.",
)
@click.option(
    "--anchor",
    "anchors",
    multiple=True,
    metavar="FILE|TEXT",
    help="A measured run of the job in the spec: a log of Megatron-LM, "
    "NeMo, torchtitan or the HF Trainer, rows of runs, a spec with an `anchor`, or "
    "--anchor 'step_time = 4.1 s'. May be repeated.",
)
@options.selection
def command(
    paths: tuple[str, ...],
    constants: str | None,
    bounds: tuple[str, ...],
    leave: tuple[str, ...],
    folds: int,
    format_: str,
    name: str,
    out: str | None,
    device: str | None,
    framework: str | None,
    operation: str | None,
    ranks: int | None,
    nodes: int | None,
    ports: int | None,
    algorithm: str | None,
    table: int | None,
    form: str,
    anchors: tuple[str, ...],
    selection: PluginSelection,
) -> int:
    """Fit named constants to measurements, and write them as a catalogue file.

    Runs are rows in the format of `parcost validate`. Tables (.jsonl) are written by
    benchmarks/measure: matrix products, attention, element-wise kernels, kernel launch times of
    the host, and collectives. A log of Megatron-LM gives the memory that its allocator reserves.
    Any other file is a log of nccl-tests or rccl-tests, or two columns of size and time. A
    directory stands for its .jsonl and .log files. The default is the published runs of the
    package. With --anchor, the argument is a spec, and measured runs of its job correct its
    predictions.
    """
    import re

    from parcost_measured.calibration import constants as known
    from parcost_measured.calibration.inputs import inputs
    from parcost_measured.calibration.logs import Options

    if not re.fullmatch(_LABEL, name):
        raise click.UsageError(f"`--name {name}` is not a label: letters, digits and underscores")
    if out is not None:
        _require_new(Path(out))
    session = options.session(selection)
    if anchors:
        return _anchor(paths, anchors, session, format_, out)
    if device is not None:
        _require_device(device)
    if framework is not None:
        _require_framework(framework, session)
    table_ = known.kinds(session.plugins)
    files, passed = inputs(paths) if paths else ([_shipped_input(session)], [])
    by_rows = any(one.content in ("runs", "products", "attention", "streams") for one in files)
    if by_rows:
        from parcost_measured.calibration.solve import require_scipy

        require_scipy()
    asked = Options(
        operation=operation,
        ranks=ranks,
        nodes=nodes,
        ports=ports,
        algorithm=algorithm,
        table=table,
        form=form,
        device=device or "",
    )
    picked_names = [n.strip() for n in (constants or "").split(",") if n.strip()]
    given = [one for one in files if one.content == "runs"]
    if (picked_names or bounds) and not given:
        raise click.UsageError("`--constants` and `--bounds` apply to runs, but no file has runs")
    for one in passed:
        write_message(f"warning[passed-over]: no constant is fitted to the table `{one}`")
    interrupts = Interrupts()
    with interrupts, OutputFile(None, interrupts) as target:
        work = _Calibration(
            session, table_, picked_names, bounds, leave or ("models",), folds, interrupts
        )
        report = work.report(files, asked, device or "", framework or "generic", name)
        _write_messages(work, report)
        target.put(_text(report, format_, target, inside=out is None))
    if out is not None and report.text:
        _write(report.text, out)
    return _FLAWED if work.flaws or work.explicit or not report.text else 0


def _write_messages(work: _Calibration, report: CalibrationReport) -> None:
    """Print flaws of rows, warnings of networks, and constants that no row measures."""
    for flaw in work.flaws[:_MOST_REPORTED]:
        write_message(f"error[{flaw.kind}-row]: {flaw.text}")
    if len(work.flaws) > _MOST_REPORTED:
        write_message(f"error: {len(work.flaws) - _MOST_REPORTED:,} more rows have the same error")
    for network in report.networks:
        for warning in network.warnings:
            write_message(warning)
    for text in work.explicit:
        write_message(f"error[not-carried]: {text}")
    if not report.text:
        write_message(
            "error[nothing-fitted]: the data determine no constant, so no file is written"
        )


def _anchor(
    paths: Sequence[str],
    anchors: Sequence[str],
    session: Session,
    format_: str,
    out: str | None,
) -> int:
    """Print the comparison of measured runs with the job of a spec; write the valid ones."""
    from parcost_measured.calibration.anchors import evaluate_anchors, render, show_problems

    _require_plain_anchors()
    report, text = evaluate_anchors(paths, anchors, session)
    flawed = show_problems(report)
    interrupts = Interrupts()
    with interrupts, OutputFile(None, interrupts) as target:
        target.put(render(report, "" if out else text, format_, target.paper()))
    if not text:
        write_message("error[no-anchor-counts]: every anchor was excluded, so no file is written")
    elif out is not None:
        _write(text, out)
    return _FLAWED if flawed or not text else 0


def _require_plain_anchors() -> None:
    """Reject options of a fit together with `--anchor`, which does no fit."""
    context = click.get_current_context()
    default = click.core.ParameterSource.DEFAULT
    used = {"paths", "anchors", "format_", "out", "files", "without"}
    for parameter in context.command.params:
        name = parameter.name or ""
        if name not in used and context.get_parameter_source(name) not in (default, None):
            raise click.UsageError(f"`{parameter.opts[0]}` has no effect with `--anchor`")


def _require_new(path: Path) -> None:
    """Reject a file that exists, and one in a folder that does not."""
    if os.path.exists(path):
        raise click.UsageError(f"{path} exists already; remove it or choose another name")
    if not os.path.isdir(path.parent):
        raise click.UsageError(f"{path} cannot be written: there is no folder {path.parent}")


def _require_device(name: str) -> None:
    """Reject a device that is unknown in rows of runs."""
    from parcost_measured.validation.hardware import ENTRIES

    names = list(dict.fromkeys(entry.device for entry in ENTRIES))
    if name not in names:
        raise click.UsageError(f"`--device {name}`: no such device; {_hint(name, names)}")


def _require_framework(name: str, session: Session) -> None:
    """Reject a framework that is in no catalogue."""
    names = [
        file.name.removesuffix(".par")
        for _, catalogue in session.plugins.offers("catalogues").values()
        for file in (catalogue.root / "frameworks").iterdir()
    ]
    if name not in names:
        raise click.UsageError(f"`--framework {name}`: no such framework; {_hint(name, names)}")


def _hint(name: str, names: Sequence[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, names, n=1)
    return f"did you mean `{close[0]}`?" if close else "they are " + ", ".join(sorted(names))


def _text(report: CalibrationReport, format_: str, target: OutputFile, *, inside: bool) -> str:
    from attrs import evolve

    from parcost_measured.calibration import report as made

    if format_ == "json":
        return made.to_json(report)
    shown = report if inside else evolve(report, text="")
    return made.to_markdown(shown) if format_ == "md" else made.to_table(shown, target.paper())


def _shipped_input(session: Session) -> Input:
    from parcost_measured.calibration.inputs import Input
    from parcost_measured.validation.rows import shipped_runs

    found = shipped_runs(session.plugins)
    if found is None:
        raise click.UsageError("no catalogue has measured runs; name files: RUNS, LOGS, TABLES")
    return Input(*found, "runs")


class _Calibration:
    """One calibration: its inputs, fits and flaws."""

    def __init__(
        self,
        session: Session,
        table: Sequence[ConstantKind],
        names: Sequence[str],
        bounds: Sequence[str],
        leave: Sequence[str],
        folds: int,
        interrupts: Interrupts,
    ) -> None:
        self.session, self.table = session, table
        self.names, self.bounds = names, bounds
        self.leave, self.folds = leave, folds
        self.interrupts = interrupts
        self.flaws: list[Flaw] = []
        self.explicit: list[str] = []  # constants that the user named and data do not carry
        self.unmodelled: list[Flaw] = []
        self.passed: list[str] = []
        self.rejected: list[str] = []

    def report(
        self, files: Sequence[Input], asked: Options, device: str, framework: str, name: str
    ) -> CalibrationReport:
        """Return the report on the files."""
        from attrs import evolve

        from parcost_measured.calibration import spec
        from parcost_measured.calibration.report import CalibrationReport, entries

        kernels = [one for one in files if one.content in ("products", "attention", "streams")]
        parts = [*self._runs(files), *self._kernels(kernels, device)]
        networks = self._networks(files, asked)
        report = CalibrationReport(
            parts=parts,
            networks=networks,
            host=self._host(files, framework),
            allocator=self._allocator(files, framework),
            rejected=self.rejected,
            unmodelled=self.unmodelled,
            passed=self.passed,
        )
        texts = [spec.blocks(name, entries(report))]
        if networks:
            notes = [note for network in networks for note in network.notes]
            if not any(network.level.size for network in networks):
                notes.append("Add the levels inside of a node.")
            texts.append(spec.fabric(name, [network.level for network in networks], notes))
        return evolve(report, text="\n".join(text for text in texts if text))

    def _networks(self, files: Sequence[Input], asked: Options) -> Sequence[NetworkLink]:
        """Return the fabric levels measured by logs and tables of collectives."""
        from parcost_measured.calibration import inputs, logs

        found: list[logs.Log] = []
        for one in files:
            if one.content == "log":
                found.append(logs.fit_log(one.name, logs.read(one.name, asked), asked))
            elif one.content == "collectives":
                tables, flaws = logs.rows(inputs.objects(one))
                self.flaws += flaws
                for label, timings in tables:
                    try:
                        found.append(logs.fit_log(label, timings, asked))
                    except click.UsageError as error:  # one job of many
                        self.rejected.append(error.message)
        return logs.levels(found, asked.form)

    def _host(self, files: Sequence[Input], framework: str) -> Sequence[FrameworkConstant]:
        """Return the constants of a framework that are measured by rows of its host time."""
        from parcost_measured.calibration import host, inputs

        rows = [row for one in files if one.content == "host" for row in inputs.objects(one)]
        if not rows:
            return []
        measured = host.issue_constants(rows, framework, self.session, self.table)
        self.flaws += measured.flaws
        self.rejected += measured.rejected
        for what, n in measured.passed.items():
            self.passed.append(f"{n:,} rows of host: no constant is of {what}")
        return measured.constants

    def _allocator(self, files: Sequence[Input], framework: str) -> Sequence[FrameworkConstant]:
        """Return the constants of a framework that logs of its allocator measure."""
        from parcost_measured.calibration import allocator, host

        memory = {one.name: one.path for one in files if one.content == "memory"}
        if not memory:
            return []
        before = float(host.framework_block(framework, self.session).fragmentation)
        reserved, flaws, rejected = allocator.fragmentation(memory, framework, before, self.table)
        self.flaws += flaws
        self.rejected += rejected
        return reserved

    # --- runs -------------------------------------------------------------------------------

    def _runs(self, all_files: Sequence[Input]) -> list[Part]:
        from attrs import evolve

        from parcost.system.temporary import temporary_folder
        from parcost_measured.calibration import constants, runs
        from parcost_measured.calibration.report import Part
        from parcost_measured.calibration.solve import fit, problem
        from parcost_measured.validation.rows import read_files

        files = [one for one in all_files if one.content == "runs"]
        if not files:
            return []
        rows = read_files([(one.name, one.path) for one in files])
        self.flaws += rows.flaws
        self.unmodelled += rows.flaws_apart
        if not rows.placed:
            self.rejected.append("runs: every row has an error")
            return []
        for field, count in rows.unknown.items():
            write_message(
                f"warning[unknown-field]: the unknown field `{field}` of {count:,} rows is ignored"
            )
        with temporary_folder() as folder:
            found = runs.studies(rows, folder.path, self.session, self.table)
            self.unmodelled += found.unmodelled
            known = runs.candidates(found)
            if not known:
                self.rejected.append("runs: no row can be modelled")
                return []
            if self.names:
                wanted = constants.select_constants(self.names, known, self.table)
            else:
                wanted = runs.fitted_constants(found)
            wanted = self._restrict(wanted)
            grids = self._time_grids(found, wanted)
            if not grids:
                self.rejected.append("runs: no row can be evaluated")
                return []
            task = problem(wanted, grids)
            fitted = fit(task, _model, self.folds)
            values = {v.constant.name: (v.constant, v.value) for v in fitted.values}
            off, after = None, fitted.after
            if values:
                off, after = self._evaluate_exactly(task, found, values, fitted.after)
        if self.names:
            self.explicit += [f"`{one.constant}`: {one.reason}" for one in fitted.rejected]
        # A value of the catalogue that was fitted may have seen the rows that are left out.
        again = dict.fromkeys([*values, *(c.name for c in wanted if c.fitted)])
        left = [self._leave_out(task, list(again), one) for one in self.leave] if values else []
        return [
            Part(
                title="runs",
                rows=task.rows,
                fit=evolve(fitted, after=after),
                left=left,
                interpolation=off,
                notes=_contradictions(rows),
            )
        ]

    def _restrict(self, wanted: Sequence[Constant]) -> list[Constant]:
        """Return the *wanted* constants with the bounds of the command line."""
        from parcost_measured.calibration import constants

        restricted = constants.restrict(wanted, self.bounds)
        if wrong := constants.bounds_errors(restricted):
            raise click.UsageError("; ".join(wrong))
        return restricted

    def _time_grids(self, found: Studies, wanted: Sequence[Constant]) -> Sequence[TimeGrid]:
        """Return the step time of each row over values of the *wanted* constants."""
        from parcost_measured.calibration import runs

        progress = Progress()

        def show(done: int) -> None:
            self.interrupts.check()
            progress.show(f"{done:,} of {len(found.cases):,} rows")

        grids, unmodelled, absurd = runs.grids(found, wanted, self.session, show)
        progress.clear()
        self.unmodelled += unmodelled
        self.flaws += absurd
        return grids

    def _evaluate_exactly(
        self,
        task: FitProblem,
        found: Studies,
        values: Mapping[str, tuple[Constant, float]],
        after: Sequence[float],
    ) -> tuple[float, list[float]]:
        """Return the largest interpolation error, and the errors of exactly evaluated times."""
        from parcost_measured.calibration import runs

        seconds = runs.evaluate_exactly(found, values, self.session)
        errors = [
            seconds[row.id] / row.seconds - 1.0 if row.id in seconds else error
            for row, error in zip(task.rows, after, strict=True)
        ]
        off = max(abs((1 + a) / (1 + b) - 1) for a, b in zip(after, errors, strict=True))
        return off, errors

    def _leave_out(self, task: FitProblem, names: Sequence[str], what: str) -> LeaveOutErrors:
        from parcost_measured.calibration.solve import leave_out

        key: Callable[[Measurement], Hashable] = {
            "models": _model,
            "sources": lambda row: row.source,
            "rows": lambda row: row.configuration,
        }[what]
        count = len({row.source for row in task.rows}) if what == "sources" else self.folds
        return leave_out(task, names, key, what, count)

    # --- tables -----------------------------------------------------------------------------

    def _kernels(self, files: Sequence[Input], device: str) -> list[Part]:
        from parcost_measured.calibration.inputs import objects
        from parcost_measured.calibration.kernels import Tables
        from parcost_measured.calibration.report import Part
        from parcost_measured.calibration.solve import fit, leave_out, problem

        parts = []
        for content in dict.fromkeys(one.content for one in files):
            tables = Tables(self.session, self.table, device)
            for one in files:
                if one.content == content:
                    tables.add(objects(one), content)
                    self.interrupts.check()
            self.flaws += tables.flaws
            self.passed += [f"{n:,} rows of {content}: {why}" for why, n in tables.passed.items()]
            grids: list[TimeGrid] = tables.grids()
            if not grids:
                self.rejected.append(f"{content}: no row determines a constant")
                continue
            task = problem(tables.constants, grids)
            fitted = fit(task, _model, self.folds)
            names = [value.constant.name for value in fitted.values]
            left = [leave_out(task, names, _model, "shapes", self.folds)] if names else []
            parts.append(Part(title=content, rows=task.rows, fit=fitted, left=left))
        return parts


def _model(row: Measurement) -> Hashable:
    return row.model


def _write(text: str, out: str) -> None:
    from parcost.language.escapes import escape_line

    path = Path(out)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise click.UsageError(f"{out} exists already; remove it or choose another name") from error
    except OSError as error:
        raise click.UsageError(f"{out} cannot be written: {error.strerror}") from error
    write_message(escape_line(f"wrote {out}"))


def _contradictions(rows: Rows) -> list[str]:
    """Return a note on each pair of rows of one run whose step times differ."""
    from parcost.language.numbers import percent
    from parcost_measured.calibration import runs

    return [
        f"{first} and {last} have the same configuration, but {last} took {percent(more, 0)} "
        "longer: no constants fit both"
        for first, last, more in runs.contradictions(rows)[:_MOST_REPORTED]
    ]
