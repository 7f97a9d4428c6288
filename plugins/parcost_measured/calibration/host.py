"""Rows of host measurements: the issue time of a framework, measured by microbenchmarks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from attrs import Factory, define, frozen

from parcost import Session
from parcost_measured.calibration.constants import (
    ConstantKind,
    FrameworkConstant,
    kind_of,
    make_constant,
)
from parcost_measured.calibration.inputs import FieldError, TableRow, number, text
from parcost_measured.calibration.kernels import is_pattern
from parcost_measured.calibration.least_squares import fit
from parcost_measured.validation.rows import Flaw
from parcost_plugins.vocabulary import Framework, Training

_FEWEST = 3  # rows of one constant


@frozen(kw_only=True)
class HostMeasurements:
    """The constants measured on the host, and the numbers of rows that measure no constant.

    *rejected* are reasons why constants are not fitted; *passed* counts rows that measure no
    constant, by the operation that they time.
    """

    constants: list[FrameworkConstant]
    flaws: list[Flaw]
    rejected: list[str]
    passed: Mapping[str, int]


def issue_constants(
    placed: Iterable[TableRow | Flaw],
    framework: str,
    session: Session,
    table: Sequence[ConstantKind],
) -> HostMeasurements:
    """Return the constants of a framework that host rows measure.

    A row with `kernels` has the total time of that number of kernels. The time of a graph is a
    constant plus a time per kernel. The constant is the launch time of the host.
    """
    read = _HostRows([kind for kind in table if "host" in kind.reads])
    for one in placed:
        read.add(one)
    known = framework_block(framework, session)
    found: list[FrameworkConstant] = []
    reasons: list[str] = []
    for attribute in dict.fromkeys([*read.times, *read.chains]):
        meant = kind_of(table, "framework", attribute, framework)
        before = getattr(known, attribute)
        name = f"{framework}.{attribute}"
        if meant is None or before is None:
            reasons.append(f"`{name}`: the framework has no such constant")
            continue
        constant = make_constant(meant, framework, float(before), of=(framework,))
        rows = len(read.times.get(attribute, read.chains.get(attribute, [])))
        if rows < _FEWEST:
            reasons.append(f"`{name}`: {rows} host rows, but at least {_FEWEST} are needed")
            continue
        try:
            value, low, high = read.value(attribute)
        except ValueError as error:
            reasons.append(f"`{name}`: {error}")
            continue
        if not constant.low <= value <= constant.high:
            reasons.append(
                f"`{name}`: the rows say {constant.text(value)}, outside its bounds, "
                f"{constant.text(constant.low)} to {constant.text(constant.high)}: {meant.why}"
            )
            continue
        found.append(
            FrameworkConstant(
                constant=constant,
                value=value,
                low=low,
                high=high,
                rows=rows,
                of="rows of the host",
            )
        )
    return HostMeasurements(constants=found, flaws=read.flaws, rejected=reasons, passed=read.passed)


@define
class _HostRows:
    """Host rows, grouped by the constants of *kinds* that they measure.

    *times* are seconds of a kernel, by attribute. *chains* are numbers of kernels and the seconds
    of all of them. *passed* counts the rows that measure none.
    """

    kinds: Sequence[ConstantKind]
    flaws: list[Flaw] = Factory(list)
    times: dict[str, list[float]] = Factory(dict)
    chains: dict[str, list[tuple[float, float]]] = Factory(dict)
    passed: dict[str, int] = Factory(dict)

    def add(self, one: TableRow | Flaw) -> None:
        """Take a row, or its flaw."""
        if isinstance(one, Flaw):
            self.flaws.append(one)
            return
        try:
            what, mode = text(one.value, "what"), text(one.value, "mode")
            seconds = number(one.value, "time_us") * 1e-6
            kernels = _count(one, "kernels")
            count = _count(one, "count")
        except FieldError as error:
            self.flaws.append(one.flaw(str(error)))
            return
        used = False
        for kind in self.kinds:
            if not (is_pattern(kind.mode, mode) and is_pattern(kind.what, f"{what} {mode}")):
                continue
            if kind.attribute == "issue" and kernels is not None:
                self.times.setdefault(kind.attribute, []).append(seconds / kernels)
            elif is_pattern("chain", what) and count is not None:
                self.chains.setdefault(kind.attribute, []).append((count, seconds))
            elif kind.attribute == "issue":
                self.times.setdefault(kind.attribute, []).append(seconds)
            else:
                continue
            used = True
        if not used:
            self.passed[f"`{what}`, {mode}"] = self.passed.get(f"`{what}`, {mode}", 0) + 1

    def value(self, attribute: str) -> tuple[float, float, float]:
        """Return the value of a constant, with its lower and upper limit.

        Raises:
            ValueError: No line can be fitted to its chains.
        """
        if attribute in self.times:
            ordered = sorted(self.times[attribute])
            return median(ordered), ordered[0], ordered[-1]
        chains = self.chains[attribute]
        counts = [count for count, _ in chains]
        line = fit(counts, [seconds for _, seconds in chains], [1.0] * len(chains), counts)
        if attribute == "graph_issue":
            return line.latency, *line.latency_within
        slow, fast = line.bandwidth_within
        return 1.0 / line.bandwidth, 1.0 / fast, 1.0 / slow


def framework_block(name: str, session: Session) -> Framework:
    """Return a framework block of the catalogue."""
    (scenario,) = session.load_text(
        f"use catalog.frameworks.{name}\nuse catalog.devices.h100_sxm\n"
        "use catalog.fabrics.hgx_h100\nuse catalog.precisions.bf16\n"
        "use catalog.models.gpt2_small\ncluster { devices = 1 }\n"
        "training { sequence = 1024, global_batch = 1 sequences }\n"
    )
    found: Framework = scenario.studies()[0][Training].framework
    return found


def _count(one: TableRow, name: str) -> float | None:
    """Return a count in a row, None if it is missing or null."""
    return None if one.value.get(name) is None else number(one.value, name)
