"""Tables that grow by a row as it is measured, and are gone on with where they end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .backend import Backend, Facts, Missing, Reading, Timing
from .cases import TABLES, Attention, Case, Collective, Copy, Host, Load, Product, Row, Stream

SOURCE = "benchmarks/measure"
FLOPS = "fwd 2*b*h*nonmasked*(dqk+dv); bwd 2*b*h*nonmasked*(3*dqk+2*dv)"
#: busbw over algbw, as nccl-tests has it.
BUS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "all_gather": lambda ranks: (ranks - 1) / ranks,
    "reduce_scatter": lambda ranks: (ranks - 1) / ranks,
    "all_to_all": lambda ranks: (ranks - 1) / ranks,
    "broadcast": lambda ranks: 1.0,  # noqa: ARG005
}


class Table:
    """A file of rows, one a line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known: set[str] = set()
        if path.exists():
            lines = path.read_text(encoding="utf-8").splitlines()
            for number, line in enumerate(lines, 1):
                try:
                    self.known.add(json.loads(line)["id"])
                except (ValueError, TypeError, KeyError):
                    # A run that was cut off leaves the last line unfinished.
                    if number < len(lines):
                        raise ValueError(f"{path}:{number} is no row of a table") from None
                    whole = "".join(f"{each}\n" for each in lines[:-1])
                    path.write_text(whole, encoding="utf-8")

    def add(self, row: Row) -> None:
        """Write a row."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        self.known.add(row["id"])


def measure(
    backend: Backend,
    out: Path,
    names: list[str],
    *,
    seconds: float,
    tiny: bool,
    say: Callable[[str], None],
) -> tuple[int, int]:
    """Measure the tables *names*, and return how many rows were written and left out."""
    written = left = 0
    skipped = Table(out / "left_out.jsonl")
    for name in names:
        table = Table(out / f"{name}.jsonl")
        cases = [c for c in TABLES[name](tiny) if _id(backend.facts, name, c) not in table.known]
        for case, rows in measurements(backend, cases, seconds):
            here = f"{name} {case.id}"
            if isinstance(rows, Missing):
                left += 1
                say(f"{here}: left out, {rows}")
                identity = _id(backend.facts, name, case)
                if identity not in skipped.known:
                    skipped.add({"id": identity, "table": name, "reason": str(rows)})
                continue
            for number, row in enumerate(rows):
                table.add({"id": _id(backend.facts, name, case, number), **row})
            written += 1
            say(f"{here}: {rows[-1]['time_us']:.6g} us")
    return written, left


def measurements(
    backend: Backend, cases: list[Case], seconds: float
) -> Iterator[tuple[Case, list[Row] | Missing]]:
    """Yield the rows of each case, or why it has none."""
    together = [case for case in cases if isinstance(case, Collective)]
    if together:
        done = 0
        try:
            for each, timing in backend.collectives(together):
                yield each, [collective(backend, each, timing)]
                done += 1
        except Missing as error:
            for each in together[done:]:
                yield each, error
    for case in cases:
        if isinstance(case, Collective):
            continue
        try:
            yield case, list(rows(backend, case, seconds))
        except Missing as error:
            yield case, error
        except (RuntimeError, MemoryError, NotImplementedError) as error:
            # One case that fails must not end a run of hundreds.
            text = str(error).strip().partition("\n")[0][:200]
            yield case, Missing(f"{type(error).__name__}: {text}")
        backend.release()


def rows(backend: Backend, case: Case, seconds: float) -> Iterator[Row]:
    """Yield the rows of one case."""
    facts = backend.facts
    match case:
        case Product():
            timing = backend.product(case)
            rate = {"tflops": _rate(case.flops, timing)}
            yield {**base(facts, timing), **case.row(), **rate, **state(timing.reading)}
        case Attention():
            timing = backend.attention(case)
            more = {
                "kernel_version": facts.software,
                "tflops": _rate(case.flops, timing),
                "flops_convention": FLOPS,
            }
            yield {**base(facts, timing), **case.row(), **more, **state(timing.reading)}
        case Stream():
            timing = backend.stream(case)
            clock = "device" if timing.clock == "device" else "events"
            more = {"framework": f"{case.row()['framework']}, {facts.software}", "clock": clock}
            yield {**base(facts, timing), **case.row(), **more, **state(timing.reading)}
        case Host():
            timing = backend.host(case)
            busy = timing.busy * 1e6 if timing.busy else None
            more = {
                "cpu": facts.cpu,
                "software": facts.software,
                "kernels": timing.kernels,
                "device_us": busy,
            }
            yield {**base(facts, timing), **case.row(), **more}
        case Copy():
            timing = backend.copy(case)
            row = case.row()
            rate = {"gb_per_s": round(row["bytes"] / timing.seconds / 1e9, 3), "tflops": None}
            yield {**base(facts, timing), "framework": facts.software, **row, **rate}
        case Load():
            for sample in backend.load(case, seconds):
                timing = Timing(sample.seconds, "events", reading=sample.reading)
                rate = {"second": round(sample.second, 2), "tflops": _rate(case.flops, timing)}
                yield {**base(facts, timing), **case.row(), **rate, **state(sample.reading)}
        case _:
            raise TypeError(case)


def collective(backend: Backend, case: Collective, timing: Timing) -> Row:
    """Return the row of a collective."""
    algorithm = case.message_bytes / timing.seconds / 1e9
    found = base(backend.facts, timing)
    return {
        **found,
        **case.row(),
        "gpu": backend.facts.device,
        "ranks": backend.ranks,
        "nodes": 1,
        "gpus_per_node": backend.ranks,
        "intranode": "not stated",
        "internode": "none (single node)",
        "internode_gbps": None,
        "dtype": "bfloat16",
        "algbw_GBps": round(algorithm, 3),
        "busbw_GBps": round(algorithm * BUS[case.collective](backend.ranks), 3),
        "from_memory": False,
        "confidence": "high",
    }


def base(facts: Facts, timing: Timing) -> Row:
    """Return the fields that rows of all tables have."""
    today = datetime.now(UTC).date()
    driver = f", driver {facts.driver}" if facts.driver else ""
    found: dict[str, Any] = {
        "source": SOURCE,
        "source_locator": f"{facts.name}{driver}, {facts.software}, {today}",
        "year": today.year,
        "device": facts.device,
        "time_us": round(timing.seconds * 1e6, 4),
        "clock": timing.clock,
        "notes": timing.notes,
    }
    if timing.kernel:
        found["kernel"] = timing.kernel
    return found


def state(reading: Reading) -> Row:
    """Return the fields of the state of a device."""
    return {
        "sm_mhz": reading.sm_mhz,
        "power_w": reading.power_w,
        "temperature_c": reading.temperature_c,
        "limits": reading.limits,
    }


def _rate(flops: float, timing: Timing) -> float:
    return round(flops / timing.seconds / 1e12, 4)


def _id(facts: Facts, table: str, case: Case, number: int = 0) -> str:
    sample = f"-{number}" if isinstance(case, Load) else ""
    return f"measure-{facts.device}-{table}-{case.id}{sample}".replace(" ", "_")
