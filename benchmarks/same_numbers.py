"""Whether a change of the engine changes a number of an evaluation.

    python benchmarks/same_numbers.py --write before.jsonl     # at the revision to compare with
    python benchmarks/same_numbers.py --compare before.jsonl   # at the one to check

Three sources: `parcost eval` of all shipped specs, `parcost validate` on the published runs, and
random studies, each one layout of a random space of `benchmarks/agreement.py`. All numbers of a
report have to agree within 1e-12: figures, ledger, memory, sections, formulas with their inputs.
Texts may differ, but a number under a new name is reported.
Exit code 1 if one does not.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import random
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import agreement

import parcost
from parcost_apps.cli import main as parcost_main
from parcost_formats.rendering.report_data import report

ROOT = Path(__file__).resolve().parents[1]
SPECS = ("specs/examples", "specs/runs", "specs/documents", "docs/start/specs")
DISAGREE = 1e-12
_MOST_DRAWN = 40  # layouts of a space, until one is legal


def _output(*words: str) -> str:
    """Return the output of a command."""
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(io.StringIO()):
        parcost_main(list(words))
    return printed.getvalue()


def shipped_specs() -> Iterator[tuple[str, Any]]:
    """Yield the report of each shipped spec."""
    for folder in SPECS:
        for line in _output("eval", str(ROOT / folder), "--format", "jsonl").splitlines():
            row = json.loads(line.replace(f"{ROOT}/", ""))
            yield f"{row['path']}: {row['name']}", row


def published_runs() -> Iterator[tuple[str, Any]]:
    """Yield the prediction of each published run."""
    for row in csv.DictReader(io.StringIO(_output("validate", "--format", "csv"))):
        yield row["id"], {name: _number(text) for name, text in row.items()}


def random_layouts(count: int) -> Iterator[tuple[str, Any]]:
    """Yield the report of a legal layout of each of *count* random spaces, if one is drawn."""
    for seed in range(count):
        text, axes, _ = agreement.drawn(seed)
        (scenario,) = parcost.load_text(text)
        rng = random.Random(seed)
        for _ in range(_MOST_DRAWN):
            values = {name: rng.choice(items) for name, items in axes.items()}
            try:
                found = scenario.replace(values).evaluate()
            except parcost.SpecError:
                continue
            if found.result.outcome is not None:
                row = json.loads(report(found, sections=False))
                row.pop("path", None)
                yield f"random {seed}: {values}", row
                break


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def main() -> int:
    """Write or compare all numbers, and return 1 where some differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--write", type=Path)
    parser.add_argument("--compare", type=Path)
    parser.add_argument("--count", type=int, default=450, help="random spaces")
    given = parser.parse_args()
    known: dict[str, Any] = {}
    if given.compare is not None:
        with given.compare.open(encoding="utf-8") as lines:
            known = dict(json.loads(line) for line in lines)
    written = given.write.open("w", encoding="utf-8") if given.write is not None else None
    counts = dict.fromkeys(("shipped_specs", "published_runs", "random_layouts"), 0)
    wrong = 0
    for source in (shipped_specs, published_runs, random_layouts):
        rows = random_layouts(given.count) if source is random_layouts else source()
        for name, row in rows:
            counts[source.__name__] += 1
            if written is not None:
                written.write(json.dumps([name, row]) + "\n")
            elif said := list(_different(name, known.pop(name, None), row))[:5]:
                wrong += 1
                print(*said, sep="\n", flush=True)
    for name in known:
        print(f"{name}: gone")
    print(f"{counts}: {wrong} differ, {len(known)} are gone")
    return 1 if wrong or known else 0


def _different(where: str, one: Any, other: Any) -> Iterator[str]:
    """Yield where two values, or values inside of them, differ."""
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            yield from _different(f"{where}, {i}", a, b)
    elif isinstance(one, dict) and isinstance(other, dict):
        for key in {**one, **other}:
            yield from _different(f"{where}, {key}", one.get(key), other.get(key))
    elif isinstance(one, (float, int)) and isinstance(other, (float, int)):
        if not math.isclose(one, other, rel_tol=DISAGREE, abs_tol=1e-300):
            yield f"{where}: {one} is {other} now"
    elif one != other and not (isinstance(one, str) and isinstance(other, str)):
        yield f"{where}: {str(one)[:200]} is {str(other)[:200]} now"


if __name__ == "__main__":
    sys.exit(main())
