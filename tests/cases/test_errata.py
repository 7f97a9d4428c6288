"""The list of errors in print is made from the table: ``pytest tests/cases --update``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROWS = [json.loads(line) for line in (HERE / "table.jsonl").read_text("utf-8").splitlines()]

DOCUMENTS = {
    "000": "A web page that models bandwidth and efficiency of parallelism",
    "001": "A page on the scaling hierarchy: three kinds of parallelism, dragonflies, experts",
    "002": "A long guide to distributed training from first principles",
    "003": "A guide to tensor against pipeline parallelism",
    "004": "A tutorial with a tool for scaling efficiency",
}

HEAD = """# Errata

What five documents on distributed training print, and what comes out when it is computed. {all} of their
worked examples are a test, not all: `tests/cases/table.jsonl` has a spec and a figure for each, of
which {agrees} are right to the precision that they print. These are the others. This page is made from
that table; `pytest tests/cases --update` writes it again.

Where a document only follows another convention, both numbers are figures under names of their own: the
bubble of the step and over busy time, a buffer's total and a rank's shard, one direction of a link and
both, dense and sparse peaks.

## Wrong in print
"""

UNCLEAR = """
## Open to reading

No inputs, or more than one way to understand them. This is how each is read.
"""


def errata_table() -> str:
    verdicts = [row["verdict"] for row in ROWS]
    parts = [HEAD.format(all=len(ROWS), agrees=verdicts.count("agrees"))]
    parts += _tables("disagrees", ("case", "what", "printed", "right", "why"))
    parts += [
        UNCLEAR,
        *_tables("ambiguous", ("case", "what", "printed", "computed", "how it is read")),
    ]
    return "\n".join(parts)


def _tables(verdict: str, columns: tuple[str, ...]) -> Iterator[str]:
    for document, title in DOCUMENTS.items():
        rows = [r for r in ROWS if r["verdict"] == verdict and r["id"].startswith(document)]
        if not rows:
            continue
        lines = [f"| {' | '.join(columns)} |", "|---|---|--:|--:|---|"]
        for row in rows:
            said, right = _number(row.get("stated"), row), _number(row["wanted"], row)
            lines.append(f"| {row['id']} | {row['what']} | {said} | {right} | {row['why']} |")
        yield "\n".join([f"### {document}: {title}", "", *lines, ""])


def _number(value: Any, row: dict[str, Any]) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        between = " to " if row["unit"] or len(value) == 2 else ", "
        return f"{between.join(_plain_number(v) for v in value)} {row['unit']}".strip()
    return f"{_plain_number(value)} {row['unit']}".strip()


def _plain_number(value: float) -> str:
    if value == int(value) and abs(value) < 1e7:
        return f"{int(value):,}"
    return f"{value:,.4g}" if abs(value) < 1e4 or abs(value) >= 1e7 else f"{value:,.0f}"


def test_the_errata_are_those_of_the_table(golden: Callable[[Path, str], None]) -> None:
    golden(HERE.parents[1] / "docs" / "errata.md", errata_table())


def test_every_error_is_listed_with_its_reason() -> None:
    text = errata_table()
    for row in ROWS:
        if row["verdict"] != "agrees":
            assert f"| {row['id']} |" in text
            assert row["why"] in text
            assert "|" not in row["what"] + row["why"]
