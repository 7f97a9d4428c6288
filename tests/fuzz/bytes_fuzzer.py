"""Throws broken files at parcost: only diagnostics may come back, and quickly.

    python tests/fuzz/bytes_fuzzer.py --inputs 1000000 --seed 7 --minutes 60

Every input is a file of the repository, or a piece of one, after a few accidents: to
its bytes, to its lines, to its tokens. It is parsed, laid out and, unless
``--only-parse``, bound and checked; ``--evaluate`` goes on to a report. An exception
that is not a `SpecError`, a plugin that fails, two seconds for one input or 500 MB for
the process are a failure, which is printed as small as it could be made. An input
depends on the seed and its number alone.
"""

from __future__ import annotations

import argparse
import random
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from parcost import SpecError
from parcost.language.diagnostic_text import render
from parcost.language.format import format_text
from parcost.language.parse import parse, tables
from parcost.language.text import Source
from parcost_formats.rendering.diagnostics import as_data

if TYPE_CHECKING:
    from parcost.engine.session import Session

MOST_SECONDS = 2.0
MOST_BYTES = 500 * 10**6
ROOT = Path(__file__).parents[2]

# A whole study, so that more than binding is reached; and what is rare in real files.
SNIPPETS = (
    """\
use catalog.devices.h100_sxm
use catalog.models.llama3_8b
fabric net {
  level node { size = 8 devices, bandwidth = 450 GB/s per_direction, latency = 3 us }
  level rail { bandwidth = curve([64 KiB, 52 us], [1 GiB, 5 ms]), latency = 14 us }
}
cluster { devices = 16, fabric = net }
layout { tp = [2, 4], pp = 2, dp = cluster.devices / (tp * pp), sequence_parallel = on }
training { sequence = 8192, micro_batch = 1, global_batch = 32 sequences }
expect { mfu = 41 % +- 3 %, memory <= 80 GiB }
""",
    'let x = 1\nlet y = x > 2 && !(x == 3) ? min(x, [1, 2]) : -x\nrequires plugin "x" ">= 1"\n',
    "model big extends small { layers = 2 }\nmodel small extends big { layers = 3 }\n",
    "study a { layout { tp = 4 } }\nstudy b { layout { tp = 8 } }\n",
    'use "tests/errors/circular_import.par"\nuse "../../etc/passwd" as p\n',
    '\ufeff# comment\r\n\r\nblock x @measured("here") {}\r\n',
)
NASTY = (
    *("0", "-1", "1e308", "1e400", "9" * 400, "1_000", "0.1e-400", "nan", "inf", "%", "3 %"),
    *("[]", "[[]]", "[1, 2, 3]", "range(0, 1000000000)", "divisors(720720)", "min()", "a.b.c"),
    *("{", "}", "(", ")", "[", "]", "=", ",", "+-", "?", ":", "@", '"', "#", "\n", "\r", "\0"),
    *("(" * 200, "-" * 200, "{ a " * 60, "1 + " * 300, "x = 1, " * 100, "\x1b[2J", "é", "漢", "𝟙"),
    *("use catalog.", "let a = a\n", "let a = b\nlet b = a\n", "extends", "study", "expect {"),
)

Accident = Callable[[random.Random, str], str]


@cache
def corpus() -> tuple[str, ...]:
    """Return every spec of the repository, and the snippets."""
    folders = ("specs", "tests", "examples")
    files = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.par"))
    texts = [path.read_bytes().decode("utf-8", "replace") for path in files]
    return (*texts, *SNIPPETS)


def text_of(seed: int, number: int) -> str:
    """Return input *number* of *seed*."""
    rng = random.Random(seed * 1_000_003 + number)
    text = rng.choice(SNIPPETS if rng.random() < 0.3 else corpus())
    if len(text) > 1500 and rng.random() < 0.8:
        text = _piece(rng, text)
    for _ in range(rng.choice((1, 1, 2, 3, 5, 8))):
        text = rng.choice(ACCIDENTS)(rng, text)
    return text


def _piece(rng: random.Random, text: str) -> str:
    lines = text.splitlines(keepends=True)
    first = rng.randrange(len(lines))
    return "".join(lines[first : first + rng.randrange(1, 40)])


def _split_text(rng: random.Random, text: str) -> tuple[str, str, str]:
    first = rng.randrange(len(text) + 1)
    last = min(first + int(rng.expovariate(0.1)), len(text))
    return text[:first], text[first:last], text[last:]


def _bytes(rng: random.Random, text: str) -> str:
    data = bytearray(text.encode("utf-8", "replace"))
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(data) + 1)
        data[at : at + rng.randrange(2)] = rng.randbytes(rng.randrange(3))
    return bytes(data).decode("utf-8", "replace")


def _lose(rng: random.Random, text: str) -> str:
    before, _, after = _split_text(rng, text)
    return before + after


def _repeat(rng: random.Random, text: str) -> str:
    before, piece, after = _split_text(rng, text)
    return before + piece * min(rng.choice((2, 3, 200)), 20_000 // (len(piece) or 1)) + after


def _insert(rng: random.Random, text: str) -> str:
    before, piece, after = _split_text(rng, text)
    return before + rng.choice(NASTY) + (piece if rng.random() < 0.5 else "") + after


def _graft(rng: random.Random, text: str) -> str:
    before, _, after = _split_text(rng, text)
    return before + _split_text(rng, rng.choice(corpus()))[1] + after


def _truncate(rng: random.Random, text: str) -> str:
    return _split_text(rng, text)[0]


def _lines(rng: random.Random, text: str) -> str:
    lines = text.splitlines(keepends=True) or [""]
    one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    if rng.random() < 0.5:
        lines[one], lines[other] = lines[other], lines[one]
    else:
        lines.insert(one, lines[other])
    return "".join(lines)


def _tokens(rng: random.Random, text: str) -> str:
    tokens = [match[0] for match in tables().tokens.finditer(text)]
    others = [match[0] for match in tables().tokens.finditer(rng.choice(SNIPPETS))]
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(tokens))
        tokens[at] = rng.choice((rng.choice(others), rng.choice(NASTY), rng.choice(tokens), ""))
    return "".join(tokens)


ACCIDENTS: tuple[Accident, ...] = (
    *(_bytes, _lose, _repeat, _insert, _graft, _truncate, _lines),
    *(_tokens, _tokens, _tokens),
)


def read(text: str) -> None:
    """Parse *text*, lay it out, and show what is wrong with it."""
    source = Source("fuzz.par", text)
    tree, found = parse(source)
    for diagnostic in found:
        render(diagnostic)
        as_data(diagnostic)
    laid_out = format_text(text)
    if found:
        assert laid_out == text, "a broken file was laid out"
    else:
        assert parse(Source("fuzz.par", laid_out)) == (tree, []), "laying out changed the tree"
        assert format_text(laid_out) == laid_out, "laying out twice differs from once"


def check(text: str, *, evaluate: bool = False) -> None:
    """Bind *text*, check its studies and, if asked, say what they cost."""
    session = _session()
    try:
        scenarios = session.load_text(text, "fuzz.par")
    except SpecError as error:
        str(error)
        return
    for scenario in scenarios[:4]:
        try:
            found = scenario.check()
            if evaluate:
                report = scenario.evaluate()
                found = report.diagnostics
                faults = [fault for result in report.results for fault in result.faults]
                assert not faults, faults
        except SpecError as error:
            found = error.diagnostics
        for diagnostic in found:
            render(diagnostic)


@cache
def _session() -> Session:
    from parcost.engine.session import Session

    return Session()


def failure(run: Callable[[str], None], text: str) -> str | None:
    """Return what goes wrong with *text*, or None."""
    start = time.process_time()
    try:
        with _alarm(10 * MOST_SECONDS):
            run(text)
    except Exception as error:  # noqa: BLE001  # whatever it is, it is a finding
        last = error.__traceback__
        while last is not None and last.tb_next is not None:
            last = last.tb_next
        where = f"{last.tb_frame.f_code.co_qualname}, line {last.tb_lineno}" if last else ""
        return f"{type(error).__name__} in {where}: {str(error)[:200]}"
    seconds = time.process_time() - start
    return f"slow: {seconds:.1f} s" if seconds > MOST_SECONDS else None


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    def ring(_: int, __: FrameType | None) -> None:
        raise TimeoutError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def smallest(run: Callable[[str], None], text: str, failure_text: str) -> str:
    """Return a part of *text* that fails in the same way, after at most a minute."""
    kind = failure_text.partition(":")[0]
    deadline = time.monotonic() + 60
    size = max(len(text) // 2, 1)
    while size and time.monotonic() < deadline:
        at = 0
        while at < len(text) and time.monotonic() < deadline:
            shorter = text[:at] + text[at + size :]
            if (failure(run, shorter) or "").partition(":")[0] == kind:
                text = shorter
            else:
                at += size
        size //= 2
    return text


def main() -> int:
    """Run the fuzzer; return 1 if anything failed."""
    parser = argparse.ArgumentParser(description="Throw broken files at parcost.")
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--only-parse", action="store_true", help="neither bind nor check")
    parser.add_argument("--evaluate", action="store_true", help="go on to a report")
    parser.add_argument("--failures", type=int, default=5, help="stop after as many kinds")
    options = parser.parse_args()

    def run(text: str) -> None:
        read(text)
        if not options.only_parse:
            check(text, evaluate=options.evaluate)

    deadline = time.monotonic() + 60 * options.minutes
    kinds: dict[str, int] = {}
    slowest, done = (0.0, 0), 0
    for number in range(options.first, options.first + options.inputs):
        if time.monotonic() > deadline or len(kinds) >= options.failures:
            break
        text = text_of(options.seed, number)
        start = time.process_time()
        failure_text = failure(run, text)
        slowest = max(slowest, (time.process_time() - start, number))
        done += 1
        if failure_text is None:
            continue
        kind = failure_text.partition(":")[0]
        kinds[kind] = kinds.get(kind, 0) + 1
        if kinds[kind] == 1:
            print(
                f"--seed {options.seed} --first {number}: {failure_text}\n{smallest(run, text, failure_text)!r}\n"
            )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        f"{done} inputs, {sum(kinds.values())} failures of {len(kinds)} kinds; "
        f"slowest {slowest[0]:.2f} s (input {slowest[1]}), peak {peak / 1e6:.0f} MB"
    )
    return int(bool(kinds) or peak > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main())
