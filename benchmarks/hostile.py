"""A seeded campaign of hostile inputs; what it may meet is a diagnostic, soon and in little memory.

    python benchmarks/hostile.py --count 1000000 --seed 7 --jobs 2 --log hostile.jsonl
    python benchmarks/hostile.py --kind command --count 500

Kinds: bytes and tokens of the specs of this repository after accidents (`byte`, `token`), specs
over the whole vocabulary that are evaluated (`structured`), command lines, files that are none,
and plugins. Without ``--kind`` each takes its share of the count. A fault is anything but a
diagnostic: an exception, a shipped plugin that fails, 2 s or 500 MB before evaluation starts.

An input depends on the seed, its kind and its number. The log has a line for each fault and for
each chunk of inputs, so that a campaign that was stopped goes on where it was: run it again with
the same log.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import multiprocessing
import os
import random
import re
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / "laws"), str(ROOT / "tests" / "fuzz")]

import bytes_fuzzer  # noqa: E402
from spec_faults import MOST_SECONDS, SlowError, alarm, describe, faults  # noqa: E402
from spec_generator import Generator, bases  # noqa: E402

from parcost import Figure, Formula, Memory, SpecError, Work, hookimpl  # noqa: E402
from parcost.contract.plugin import Plugin  # noqa: E402
from parcost.engine.session import Session  # noqa: E402
from parcost.language.diagnostic_text import render  # noqa: E402
from parcost.language.errors import ParcostError  # noqa: E402
from parcost.plugins.discovery import Plugins  # noqa: E402

MOST_BYTES = 500 * 10**6
CHUNK = 250
#: Of a million inputs.
SHARES = {
    "byte": 442_000,
    "token": 450_000,
    "structured": 100_000,
    "command": 3_000,
    "file": 4_000,
    "plugin": 1_000,
}


class Observation(NamedTuple):
    """What became of an input: what went wrong, if anything, and the seconds before evaluation."""

    fault: str
    seconds: float


class Chunk(NamedTuple):
    """Inputs that are run in one go."""

    kind: str
    seed: int
    first: int
    count: int


@cache
def generator() -> Generator:
    return Generator()


@cache
def session() -> Session:
    return Session(generator().plugins)


# --- bytes, tokens and specs ---------------------------------------------------------------


def text_of(kind: str, rng: random.Random) -> str:
    """Return a short piece of a spec after accidents to its bytes and lines, or its tokens."""
    f = bytes_fuzzer
    text = rng.choice(f.SNIPPETS if rng.random() < 0.5 else f.corpus())
    lines = text.splitlines(keepends=True)
    if len(text) > 600:
        first = rng.randrange(len(lines))
        text = "".join(lines[first : first + rng.randrange(1, 20)])
    accidents = (f._tokens, f._graft, f._insert) if kind == "token" else _BYTES  # noqa: SLF001
    for _ in range(rng.choice((1, 1, 2, 3))):
        text = rng.choice(accidents)(rng, text)
    return text[:4000]


_BYTES = (
    bytes_fuzzer._bytes,  # noqa: SLF001
    bytes_fuzzer._lose,  # noqa: SLF001
    bytes_fuzzer._repeat,  # noqa: SLF001
    bytes_fuzzer._truncate,  # noqa: SLF001
    bytes_fuzzer._lines,  # noqa: SLF001
)


def bind(text: str) -> str:
    """Load and bind *text*; a diagnostic is as good as none."""
    try:
        for scenario in session().load_text(text, "hostile.par")[:4]:
            _ = scenario.first
            scenario.release()
    except SpecError as error:
        for diagnostic in error.diagnostics:
            render(diagnostic)
    return ""


def byte(rng: random.Random) -> Observation:
    return measure(lambda: bind(text_of("byte", rng)))


def token(rng: random.Random) -> Observation:
    return measure(lambda: bind(text_of("token", rng)))


def structure(rng: random.Random) -> Observation:
    """Evaluate a spec of the generator, with details and sections where it is the fiftieth."""
    case = generator().random(rng.randrange(10**9), 0, light=True)
    depth = 2 if rng.random() < 0.02 else 0
    start, before = time.process_time(), [0.0]

    def note_binding() -> None:
        before[0] = before[0] or time.process_time() - start

    seen = measure(
        lambda: next(faults(session(), case.text, depth=depth, when_bound=note_binding), ""), 30.0
    )
    seconds = before[0] or seen.seconds
    fault = seen.fault or (f"slow: {seconds:.1f} s" if seconds > MOST_SECONDS else "")
    return Observation(f"{fault} <- {case.base}: {case.set}" if fault else "", seconds)


def measure(run: Callable[[], str], seconds: float = MOST_SECONDS) -> Observation:
    """Return the outcome of an input and its CPU time."""
    start = time.process_time()
    fault = ""
    try:
        with alarm(5 * seconds):
            fault = run()
    except SlowError:
        fault = f"hang: more than {5 * seconds:g} s"
    except Exception as error:  # noqa: BLE001  # whatever it is, it is a finding
        fault = describe(error)
    spent = time.process_time() - start
    if not fault and spent > seconds:
        fault = f"slow: {spent:.1f} s"
    return Observation(fault, spent)


# --- command lines ----------------------------------------------------------------------------

_COMMANDS = (
    "eval",
    "check",
    "show",
    "explain",
    "fmt",
    "figures",
    "search",
    "timeline",
)
_COMMANDS += ("calibrate", "catalog", "merge", "plugins", "nothing", "")
_WORDS = ("--format", "json", "jsonl", "csv", "md", "table", "github", "xml", "--set", "--study")
_WORDS += ("layout.tp=2", "layout.tp=[1, 2]", "layout.tp", "=", "a.b.c=1", "training.sequence=-1")
_WORDS += ("--ranks", "--ranks=0-9", "--ranks=9-0", "--stages", "--stages=x", "--top", "3", "-1")
_WORDS += ("--shard", "1/2", "0/0", "--diff", "--check", "--help", "--", "-", "\x1b[2J", "\u202e")
_WORDS += (
    "step_time",
    "mfu",
    "bubble",
    "--plugin",
    "nothing.py",
    "--without",
    "analysis.advice",
    "",
)
_WORDS += ("x" * 5000, "%s%n", "--set=layout.pp=1e300", "--jobs", "0", "--strict", "--version")


@cache
def workplace() -> Path:
    """Return a temporary folder with a few specs, removed at exit."""
    folder = tempfile.TemporaryDirectory(prefix="parcost-hostile-")
    _KEPT.append(folder)
    path = Path(folder.name)
    for name, spec in bases().items():
        if name in ("transfer", "placed", "planned"):
            (path / f"{name}.par").write_text(spec.text)
    (path / "broken.par").write_text("layout { tp = \n")
    return path


_KEPT: list[Any] = []


def command(rng: random.Random) -> Observation:
    """Give the command line some words; it may answer with 0 to 2, and 3 is a fault."""
    paths = ["transfer.par", "placed.par", "planned.par", "broken.par", "none.par", ".", "a/../.."]
    words = [rng.choice(_COMMANDS)]
    words += [rng.choice(rng.choice((paths, _WORDS))) for _ in range(rng.randrange(5))]
    if words[0] == "calibrate":  # without a file it fits all runs that ship, for minutes
        words.append(rng.choice(paths))
    return measure(lambda: _run_command(words), 10.0)


def _run_command(words: list[str]) -> str:
    from parcost_apps.cli import main

    here, output = Path.cwd(), io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="replace")
    os.chdir(workplace())
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = main(words)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 2
    finally:
        os.chdir(here)
    output.flush()
    text = output.buffer.getvalue().decode("utf-8", "replace")  # type: ignore[attr-defined]
    if code not in (0, 1, 2) or "Traceback" in text:
        return f"exit {code}: {text[-300:]!r} <- {words}"
    return ""


# --- files ------------------------------------------------------------------------------------


def file(rng: random.Random) -> Observation:
    """Read a file that is none, or import one."""
    with tempfile.TemporaryDirectory(prefix="parcost-hostile-") as folder:
        path = Path(folder) / "a.par"
        what = rng.choice(_FILES)
        what(rng, path)
        if rng.random() < 0.5:
            outer = Path(folder) / "outer.par"
            outer.write_text('use "a.par"\nuse "a.par" as b\n')
            path = outer
        return measure(lambda: _read(path, what.__name__))


def _read(path: Path, what: str) -> str:
    try:
        for scenario in session().load(path, keep=False):
            _ = scenario.first
            scenario.release()
    except SpecError as error:
        for diagnostic in error.diagnostics:
            render(diagnostic)
    except ParcostError as error:
        return f"{describe(error)} <- {what}"
    return ""


def _fifo(rng: random.Random, path: Path) -> None:  # noqa: ARG001
    os.mkfifo(path)


def _device(rng: random.Random, path: Path) -> None:
    path.symlink_to(rng.choice(("/dev/zero", "/dev/null", "/dev/random", "/dev/stdin")))


def _folder(rng: random.Random, path: Path) -> None:  # noqa: ARG001
    path.mkdir()


def _link_loop(rng: random.Random, path: Path) -> None:  # noqa: ARG001
    path.symlink_to(path)


def _random_bytes(rng: random.Random, path: Path) -> None:
    path.write_bytes(rng.randbytes(rng.randrange(1, 2000)))


def _sparse_file(rng: random.Random, path: Path) -> None:
    with path.open("wb") as sparse:
        sparse.truncate(rng.choice((10**6, 4 * 2**20, 4 * 2**20 + 1, 10**9, 10**12)))


def _newlines(rng: random.Random, path: Path) -> None:
    path.write_text(rng.choice("\n#a{[(") * rng.choice((1000, 100_000)))


def _no_permission(rng: random.Random, path: Path) -> None:
    path.write_text("layout {}\n")
    path.chmod(rng.choice((0, 0o222)))


def _self_import(rng: random.Random, path: Path) -> None:  # noqa: ARG001
    path.write_text('use "a.par"\nuse "./a.par" as x\n')


def _outside_link(rng: random.Random, path: Path) -> None:
    path.symlink_to(rng.choice(("/etc/passwd", "/proc/self/mem", "/proc/self/environ", "/")))


def _marks(rng: random.Random, path: Path) -> None:
    marks = ("\ufeff", "\x00", "\u202e", "\x1b]0;x\x07", "\r", "\u2028")
    path.write_text(rng.choice(marks) + "layout {" + rng.choice(marks) + "}\n")


_FILES = (
    _fifo,
    _device,
    _folder,
    _link_loop,
    _random_bytes,
    _sparse_file,
    _newlines,
    _no_permission,
    _self_import,
)
_FILES += (_outside_link, _marks)


# --- plugins ----------------------------------------------------------------------------------

_HOOKS = (
    "terms",
    "memory",
    "figures",
    "details",
    "sections",
    "checks",
    "outcome_checks",
    "calculations",
)
_HOOKS += ("groups", "pipelines", "operators", "parameters", "flops", "axes", "views", "blocks")
_HOOKS += ("collectives", "schedules", "kernels", "exporters", "catalogues", "no_such_hook")
#: Hooks whose offers other plugins call: whoever calls one first meets what is wrong with it.
_SHARED = {"collectives"}
_PLUGIN_SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama32_1b
use catalog.precisions.bf16
cluster { devices = 8 }
layout { tp = 2 }
training { sequence = 1024, global_batch = 8 sequences }
"""


class _MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def plugin(rng: random.Random) -> Observation:
    """Evaluate a spec beside a plugin that answers some hooks with anything."""
    hooks = {rng.choice(_HOOKS): _answer(rng) for _ in range(rng.choice((1, 1, 2)))}
    offered = {name: hookimpl(lambda a=answer: _give(a)) for name, answer in hooks.items()}
    answers = {name: repr(answer)[:100] for name, answer in hooks.items()}
    deep = rng.random() < 0.1 or bool({"details", "sections"} & set(hooks))
    return measure(lambda: _run_with(SimpleNamespace(**offered), answers, deep=deep), 10.0)


def _give(answer: Any) -> Any:
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _answer(rng: random.Random) -> Any:
    formula = rng.choice((Formula(text="?"), None, Formula(text="{x", inputs={"x": "y"})))  # type: ignore[dict-item]
    number = rng.choice((1.0, -1.0, 0.0, float("nan"), float("inf"), 1e308, None, "x", 10**400))
    name = rng.choice(("mine", "", "\x1b[2J", 7, None, "[red]", "a\nb"))
    return rng.choice(
        (
            *(None, 7, "text", [None], [7], ["text"], [[]], {"a": 1}, object(), [object], range(3)),
            *(ValueError("no\nway"), SystemExit(3), _MuteError(), MemoryError(), RecursionError()),
            [Work(name=name, seconds=number, pass_="F", formula=formula)],
            [Work(name=name, seconds=number, pass_="?", formula=formula, count=(1.0, 2.0))],
            [Memory(name=name, bytes_=number, formula=formula)],
            [Figure(name=name, title=name, value=number, unit="s", formula=formula)],
            [SimpleNamespace(name=name)],
        )
    )


def _run_with(module: Any, answers: dict[str, str], *, deep: bool) -> str:
    try:
        every = [*generator().plugins.whole.loaded, Plugin("hostile", module=module)]
        plugins = Plugins(tuple(sorted(every, key=lambda one: one.name)))
        (scenario,) = Session(plugins).load_text(_PLUGIN_SPEC)
        report = scenario.evaluate()
        for result in report.results:
            if deep:
                _ = result.details, result.sections
            for fault in result.faults:
                if fault.plugin.name != "hostile" and not _SHARED & set(answers):
                    return f"{fault.plugin.name} is blamed: {fault.message} <- {answers}"
    except ParcostError as error:
        str(error)
    except SystemExit:
        return f"SystemExit <- {answers}"
    except Exception as error:  # noqa: BLE001  # whatever it is, it is a finding
        return f"{describe(error)} <- {answers}"
    return ""


KINDS: dict[str, Callable[[random.Random], Observation]] = {
    "byte": byte,
    "token": token,
    "structured": structure,
    "command": command,
    "file": file,
    "plugin": plugin,
}

# --- the campaign -----------------------------------------------------------------------------


def peak() -> int:
    """Return the most memory that this process ever held, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


#: What the process held before: tests run inputs in processes that have run others.
HELD = peak()


def run_chunk(chunk: Chunk) -> dict[str, Any]:
    """Return the outcomes of the inputs of *chunk*."""
    found: list[dict[str, Any]] = []
    start, slowest, before = time.process_time(), (0.0, 0), peak()
    for number in range(chunk.first, chunk.first + chunk.count):
        rng = random.Random(f"{chunk.seed} {chunk.kind} {number}")
        seen = KINDS[chunk.kind](rng)
        fault, now = seen.fault, peak()
        if (
            not fault
            and now > max(before, HELD + MOST_BYTES)
            and chunk.kind not in ("command", "plugin")
        ):
            fault = f"memory: {now / 1e6:.0f} MB"
        before = max(before, now)
        slowest = max(slowest, (seen.seconds, number))
        if fault:
            found.append({"fault": fault, "number": number})
    return {
        **chunk._asdict(),
        "faults": found,
        "seconds": round(time.process_time() - start, 3),
        "slowest": slowest,
        "peak": before,
    }


def chunks(kinds: dict[str, int], seed: int) -> Iterator[Chunk]:
    """Yield the chunks of a campaign, those of all kinds in turn."""
    left = [
        [Chunk(kind, seed, first, min(CHUNK, count - first)) for first in range(0, count, CHUNK)]
        for kind, count in kinds.items()
    ]
    ranked = [(i / len(some), chunk) for some in left for i, chunk in enumerate(some)]
    yield from (chunk for _, chunk in sorted(ranked))


def inputs_by_kind(count: int) -> dict[str, int]:
    """Return how many inputs of each kind a campaign of *count* has, one of each at least."""
    whole = sum(SHARES.values())
    return {kind: max(1, round(count * share / whole)) for kind, share in SHARES.items()}


def campaign(
    kinds: dict[str, int], seed: int, jobs: int, log: Path | None, minutes: float
) -> list[dict[str, Any]]:
    """Run the chunks of a campaign that the log lacks; return the lines of all chunks."""
    done = (
        [json.loads(line) for line in log.read_text().splitlines()] if log and log.exists() else []
    )
    known = {(line["kind"], line["seed"], line["first"], line["count"]) for line in done}
    todo = [chunk for chunk in chunks(kinds, seed) if tuple(chunk) not in known]
    deadline = time.monotonic() + 60 * minutes
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(log.open("a")) if log else io.StringIO()
        results: Iterator[dict[str, Any]] = map(run_chunk, todo)
        if jobs > 1:
            context = multiprocessing.get_context("spawn")
            pool = stack.enter_context(context.Pool(jobs, maxtasksperchild=100))
            results = pool.imap_unordered(run_chunk, todo)
        for line in results:
            done.append(line)
            out.write(json.dumps(line) + "\n")
            out.flush()
            for fault in line["faults"]:
                print(f"{line['kind']} {fault['number']}: {fault['fault'][:400]}", flush=True)
            if time.monotonic() > deadline:
                break
    return done


def summary(lines: list[dict[str, Any]]) -> str:
    """Return a table of a campaign, and its faults by kind."""
    rows = [f"{'kind':12}{'inputs':>9}{'faults':>8}{'ms each':>9}{'worst s':>9}{'peak MB':>9}"]
    names: Counter[str] = Counter()
    for kind in KINDS:
        some = [line for line in lines if line["kind"] == kind]
        if not some:
            continue
        inputs = sum(line["count"] for line in some)
        faulty = [fault["fault"] for line in some for fault in line["faults"]]
        names.update(
            f"{kind}: {re.sub(r'[0-9]+', '#', f.partition(' <- ')[0])[:160]}" for f in faulty
        )
        each = 1000 * sum(line["seconds"] for line in some) / inputs
        worst = max(line["slowest"][0] for line in some)
        most = max(line["peak"] for line in some) / 1e6
        rows.append(f"{kind:12}{inputs:>9,}{len(faulty):>8}{each:>9.2f}{worst:>9.3f}{most:>9.0f}")
    rows += [f"{count:>6} x {name}" for name, count in names.most_common()]
    return "\n".join(rows)


def main() -> int:
    """Run a campaign; return 1 if there was a fault."""
    parser = argparse.ArgumentParser(description="Give parcost hostile inputs.")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=KINDS, help="this kind alone")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--log", type=Path, help="goes on where the log ends")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    options = parser.parse_args()
    kinds = {options.kind: options.count} if options.kind else inputs_by_kind(options.count)
    lines = campaign(kinds, options.seed, options.jobs, options.log, options.minutes)
    print(summary(lines))
    return int(any(line["faults"] for line in lines))


if __name__ == "__main__":
    sys.exit(main())
