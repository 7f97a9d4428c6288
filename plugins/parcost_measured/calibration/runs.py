"""Measured runs as grids: each row is a study, evaluated over the constants that it depends on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import click
from attrs import evolve, frozen

from parcost import ParcostError, Study, block_name
from parcost_measured.calibration.constants import Constant, ConstantKind, kind_of, make_constant
from parcost_measured.calibration.grids import MOST_AXES, Measurement, TimeGrid, axes_of, set_text
from parcost_measured.validation.evaluation import Prediction, RowResult, write_studies
from parcost_measured.validation.rows import Flaw, Rows, RunRow
from parcost_measured.validation.summary import device_class, excess
from parcost_plugins.physics.clocks import has_law, held_share
from parcost_plugins.vocabulary import Cluster, Device, KernelChoice, Training

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from parcost import Session

_FIGURES = ("step_time", "mfu", "flops_per_device")


@frozen(kw_only=True)
class Signature:
    """The properties that determine the constants of a row."""

    device: str
    framework: str
    fabric: str


@frozen(kw_only=True, eq=False)
class Studies:
    """The studies of rows; for each row id its constants, and the path that sets each constant."""

    cases: Sequence[tuple[RowResult, Path]]
    constants: Mapping[str, Mapping[str, Constant]]
    unmodelled: Sequence[Flaw]


def studies(rows: Rows, folder: Path, session: Session, table: Sequence[ConstantKind]) -> Studies:
    """Return the studies of *rows*, written into *folder*, and the constants they depend on."""
    known: dict[Signature, Mapping[str, Constant]] = {}
    cases: list[tuple[RowResult, Path]] = []
    constants: dict[str, Mapping[str, Constant]] = {}
    unmodelled: list[Flaw] = []
    for case, path in write_studies(rows.placed, folder):
        if path is None:
            unmodelled.append(case.flaw("unmodelled", case.reason))
            continue
        try:
            study = _study(session, path)
        except ParcostError as error:
            unmodelled.append(case.flaw("unmodelled", error.first_message))
            continue
        signature = Signature(
            device=block_name(study[Cluster].device),
            framework=block_name(study[Training].framework),
            fabric=_fabric(study),
        )
        if signature not in known:
            known[signature] = dict(_constants(study, signature, table))
        cases.append((case, path))
        constants[case.placed.row.id] = known[signature]
    return Studies(cases=cases, constants=constants, unmodelled=unmodelled)


def _study(session: Session, path: Path) -> Study:
    (scenario,) = session.load(path, keep=False)
    study: Study = scenario.first
    return study


def _fabric(study: Study) -> str:
    """Return the name of the catalogue fabric from which the levels of a study come."""
    fabric = study[Cluster].fabric
    for level in fabric.levels:
        origin = study.origin(level, "latency")
        if origin is not None and origin.span is not None:
            name = origin.span.source.name
            if name.startswith("catalog/"):
                return PurePosixPath(name).stem
    return block_name(fabric)


def _constants(
    study: Study, signature: Signature, table: Sequence[ConstantKind]
) -> Iterator[tuple[str, Constant]]:
    """Yield the constants of *study* that runs may fit, each with the path that sets it."""
    cluster, framework = study[Cluster], study[Training].framework
    places = [
        ("device", cluster.device, "cluster.device", signature.device, ""),
        ("framework", framework, "training.framework", signature.framework, ""),
        *(
            (
                "level",
                level,
                f"cluster.fabric.{block_name(level)}",
                block_name(level),
                signature.fabric,
            )
            for level in cluster.fabric.levels
        ),
    ]
    for block, value, path, label, inside in places:
        for attribute in dict.fromkeys(k.attribute for k in table if k.block == block):
            found, stated = _value_of(study, value, attribute)
            kind = kind_of(table, block, attribute, label)
            if kind is None or "runs" not in kind.reads or not isinstance(found, (int, float)):
                continue
            origin = study.origin(value, stated)
            span = None if origin is None else origin.span
            own = span is not None and not inside and span.source.name.startswith("catalog/")
            written = PurePosixPath(span.source.name).stem if own and span is not None else label
            yield (
                f"{path}.{attribute}",
                make_constant(
                    kind_of(table, block, attribute, written) or kind,
                    written,
                    float(found),
                    inside=inside,
                    fitted=origin is not None and origin.kind == "fitted",
                    of=(label,),
                ),
            )


def _value_of(study: Study, value: object, attribute: str) -> tuple[object, str]:
    """Return the value of an attribute, and the name of the attribute from which it is derived.

    The sustained rate of a device that states none is derived from its power limit.
    """
    found = getattr(value, attribute, None)
    if found is None and attribute in _HELD and isinstance(value, Device) and has_law(value):
        types = [name for name in _HELD[attribute] if getattr(value, name) is not None]
        if types:
            return held_share(value, study[KernelChoice], types[0]), "product_energy"
    return found, attribute


#: And types of products, of which a device has one.
_HELD = {"sustained": ("bf16", "fp16"), "narrow_sustained": ("fp8", "fp4")}


def candidates(found: Studies) -> list[Constant]:
    """Return each constant on which a row depends, once, with all blocks that inherit it."""
    merged: dict[str, Constant] = {}
    for constants in found.constants.values():
        for constant in constants.values():
            before = merged.get(constant.name)
            labels = dict.fromkeys([*(before.of if before else ()), *constant.of])
            merged[constant.name] = evolve(before or constant, of=tuple(labels))
    return list(merged.values())


def fitted_constants(found: Studies) -> list[Constant]:
    """Return the constants that the catalogue marks as fitted.

    For devices without any, return the constants that the table marks as default.
    """
    known = candidates(found)
    picked = {c.name for c in known if c.fitted}
    for constants in found.constants.values():
        device = [c for c in constants.values() if c.kind.block == "device"]
        if not any(c.fitted for c in device):
            picked |= {c.name for c in device if c.kind.default}
    return [c for c in known if c.name in picked]


def grids(
    found: Studies,
    constants: Sequence[Constant],
    session: Session,
    progress: Callable[[int], None],
) -> tuple[list[TimeGrid], list[Flaw], list[Flaw]]:
    """Return the rows as grids, the rows that fail to evaluate, and the implausible rows."""
    places = {c.name: i for i, c in enumerate(constants)}
    groups: dict[tuple[tuple[str, int], ...], list[tuple[RowResult, Path]]] = {}
    for case, path in found.cases:
        own = found.constants[case.placed.row.id].items()
        axes = tuple((where, places[c.name]) for where, c in own if c.name in places)
        if len(axes) > MOST_AXES:
            names = ", ".join(constants[i].name for _, i in axes)
            raise click.UsageError(
                f"{len(axes)} constants affect `{case.placed.row.id}`, but the limit is "
                f"{MOST_AXES}: {names}; choose fewer with --constants"
            )
        groups.setdefault(axes, []).append((case, path))
    made_: list[TimeGrid] = []
    unmodelled: list[Flaw] = []
    absurd: list[Flaw] = []
    done = 0
    for axes, cases in groups.items():
        points = axes_of([constants[i] for _, i in axes])
        values = {
            where: set_text(constants[i], list(axis))
            for (where, i), axis in zip(axes, points, strict=True)
        }
        rows: list[Measurement] = []
        logs: list[NDArray[np.float64]] = []
        for case, path in cases:
            done += 1
            progress(done)
            evaluated = _evaluate_mesh(session, path, values, tuple(len(axis) for axis in points))
            if isinstance(evaluated, str):
                unmodelled.append(case.flaw("unmodelled", evaluated))
                continue
            prediction, log = evaluated
            if reason := excess(evolve(case, prediction=prediction)):
                absurd.append(case.flaw("absurd", reason))
                continue
            rows.append(measurement(case.placed.row, f"{case.placed.file}:{case.placed.line}"))
            logs.append(log)
        if rows:
            made_.append(_grid(rows, axes, points, logs))
    return made_, unmodelled, absurd


def _grid(
    rows: Sequence[Measurement],
    axes: Sequence[tuple[str, int]],
    points: Sequence[NDArray[np.float64]],
    logs: Sequence[NDArray[np.float64]],
) -> TimeGrid:
    import numpy as np

    return TimeGrid(
        rows=rows,
        axes=[i for _, i in axes],
        points=[np.log(axis) for axis in points],
        logs=np.array(logs),
    )


def _evaluate_mesh(
    session: Session, path: Path, values: Mapping[str, str], shape: tuple[int, ...]
) -> tuple[Prediction, NDArray[np.float64]] | str:
    """Return the first point's prediction and the natural logarithms of all step times, or
    an error text."""
    import numpy as np

    try:
        (scenario,) = session.load(path, values, keep=False)
        report = scenario.evaluate()
        if len(report.results) != 1:
            return "a constant changes the structure of the study, so it cannot be varied"
        result = report.result
        if result.outcome is None or result.infeasible:
            return next((one.message for one in result.diagnostics), "the study is invalid")
        step, mfu, speed = (np.asarray(result.figure(name), float) for name in _FIGURES)
        order = [name for name, _ in scenario.axes]
    except KeyError:
        return "the study has no step"
    except ParcostError as error:
        return error.first_message
    finally:
        if "scenario" in locals():
            scenario.release()
    if not np.isfinite(step).all():
        return "the step time is infinite"
    prediction = Prediction(
        step_time=float(step.flat[0]),
        memory=0.0,
        fits=True,
        model_flops=float(speed.flat[0] * step.flat[0]),
        peak=float(speed.flat[0] / mfu.flat[0]) if mfu.flat[0] else 0.0,
    )
    return prediction, _reorder(np.log(step), list(values), order, shape)


def _reorder(
    logs: NDArray[np.float64], wanted: Sequence[str], order: Sequence[str], shape: tuple[int, ...]
) -> NDArray[np.float64]:
    """Return the mesh with its axes in the order of *wanted*, which may differ from that of a
    scenario.

    The path that sets an attribute may differ from the name of its axis. Their last parts are
    equal; for fabric levels, the last two.
    """
    import numpy as np

    if logs.size == 1:  # nothing depends on any of them
        return np.array(np.broadcast_to(logs.reshape(()), shape))

    def place(path: str) -> int:
        *_, block, attribute = path.split(".")
        alike = [i for i, name in enumerate(order) if name.split(".")[-1] == attribute]
        exact = [i for i in alike if order[i].split(".")[-2:-1] == [block]]
        return (exact or alike)[0]

    at = [place(path) for path in wanted]
    sizes = [0] * len(at)
    for axis, size in zip(at, shape, strict=True):
        sizes[axis] = size
    whole = np.broadcast_to(logs, (int(np.prod(sizes)),)) if logs.ndim < 2 else logs
    return np.transpose(whole.reshape(sizes), at)


def evaluate_exactly(
    found: Studies, values: Mapping[str, tuple[Constant, float]], session: Session
) -> dict[str, float]:
    """Return the seconds of each row at *values*, evaluated without interpolation."""
    seconds: dict[str, float] = {}
    for case, path in found.cases:
        settings = {
            where: set_text(*_single_value(values[c.name]))
            for where, c in found.constants[case.placed.row.id].items()
            if c.name in values
        }
        evaluated = _evaluate_mesh(session, path, settings, (1,) * len(settings))
        if not isinstance(evaluated, str):
            seconds[case.placed.row.id] = evaluated[0].step_time
    return seconds


def _single_value(pair: tuple[Constant, float]) -> tuple[Constant, list[float]]:
    constant, value = pair
    return constant, [value]


def measurement(row: RunRow, place: str) -> Measurement:
    """Return the measured time of *row*, with its groups."""
    p = row.parallel
    return Measurement(
        id=row.id,
        place=place,
        seconds=row.measured.step_time_s,
        configuration=row.configuration,
        model=row.model.name,
        source=row.source_key,
        device=device_class(row),
        layout=(p.tp, p.pp, p.cp, p.dp, p.vp, p.ep, p.zero_stage_or_fsdp, row.batch.micro),
    )


def contradictions(rows: Rows) -> list[tuple[str, str, float]]:
    """Return groups of rows that differ only in step time.

    A group has the places of the fastest and the slowest row, and their ratio of step times minus
    1.
    """
    groups: dict[Any, list[tuple[float, str]]] = {}
    for one in rows.placed:
        r = one.row
        key = (r.source_key, r.model, r.hardware, r.parallel, r.batch, r.precision, r.numbers)
        rest = (r.recompute, r.schedule, r.attention, repr(sorted(r.extra.items(), key=str)))
        text = repr((key, rest))
        groups.setdefault(text, []).append((r.measured.step_time_s, f"{one.file}:{one.line}"))
    found = []
    for same in groups.values():
        (least, first), (most, last) = min(same), max(same)
        if most > least * 1.2:
            found.append((first, last, most / least - 1.0))
    return found
