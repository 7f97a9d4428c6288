"""Worked examples of five documents on distributed training, each computed by a spec.

``table.jsonl`` has a line for each: what is asked, in our words; a spec that asks it; the
figure that answers; the number that the document states; and the number that is right.
A spec states facts and does no arithmetic: it is the product that computes.

``agrees``
    the document is right: the figure is what it states, to the precision that it prints.
``disagrees``
    it is not: the figure is ``wanted``, and ``why`` says what went wrong.
``ambiguous``
    it can be read in several ways, or leaves its inputs out: ``why`` says how it is read.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parcost
from parcost.language.diagnostics import Severity
from parcost.language.units import unit

from ..rows import try_each

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ROWS = [json.loads(line) for line in (HERE / "table.jsonl").read_text("utf-8").splitlines()]
TABLE = {row["id"]: row for row in ROWS}
ROUNDED = 1e-8  # numbers in the table have ten digits
EVERY_ID = "e03ca2d638d88b12c32acc65703391c5f063a073161f685b66274a009e6778e5"


@cache
def result_of(spec: str) -> parcost.Result:
    """Evaluate a spec, or the file of that name; rows that ask several things share it."""
    named = spec.endswith(".par")
    loaded = parcost.load(ROOT / spec) if named else parcost.load_text(f"{spec}\n", "case.par")
    result = loaded[0].evaluate().result
    assert [f"{fault.plugin}: {fault.message}" for fault in result.faults] == []
    assert [d.message for d in result.diagnostics if d.severity is Severity.ERROR] == []
    return result


def answers(row: dict[str, Any]) -> Any:
    """Return the figure, or figures, that the row asks for, in its unit.

    ``a over b`` compares two figures. Of a sweep it is the largest.
    """
    result = result_of(row["spec"])
    if " over " in row["figure"]:
        one, other = row["figure"].split(" over ")
        return result.figure(one) / result.figure(other)
    size = unit(row["unit"])[0] if row["unit"] else 1.0
    found = [np.max(result.figure(name)).item() / size for name in row["figure"].split()]
    return found if len(found) > 1 else found[0]


@pytest.mark.slow
@try_each("id_", TABLE)
def test_the_product_computes_what_is_right(id_: str) -> None:
    row = TABLE[id_]
    within = row.get("within", ROUNDED)
    assert answers(row) == pytest.approx(row["wanted"], rel=within, abs=1e-12)


@try_each("id_", [id_ for id_, row in TABLE.items() if row["verdict"] == "agrees"])
def test_it_is_what_the_document_prints_where_that_is_right(id_: str) -> None:
    row = TABLE[id_]
    found, stated, printed = answers(row), row["stated"], row.get("printed", 0.0)
    if not isinstance(stated, list):
        assert abs(found - stated) <= printed * (1 + 1e-9)
    elif isinstance(found, list):
        assert found == stated
    else:
        least, most = stated
        assert least - printed <= found <= most + printed


@try_each("id_", [i for i, row in TABLE.items() if row["verdict"] == "disagrees"])
def test_it_is_not_what_the_document_prints_where_that_is_wrong(id_: str) -> None:
    row = TABLE[id_]
    stated = row["stated"]
    if isinstance(stated, list):
        least, most = stated
        assert not least <= answers(row) <= most
    else:
        assert answers(row) != pytest.approx(stated, rel=1e-3)


def test_every_case_is_there_once() -> None:
    assert len(ROWS) == len(TABLE) == 341
    assert hashlib.sha256(" ".join(sorted(TABLE)).encode()).hexdigest() == EVERY_ID
    assert Counter(row["verdict"] for row in ROWS) == {
        "agrees": 223,
        "disagrees": 85,
        "ambiguous": 33,
    }


def test_printed_errors_have_a_reason() -> None:
    for row in ROWS:
        assert row["what"]
        assert (row["verdict"] == "agrees") or row["why"], row["id"]


ARITHMETIC = re.compile(r"\blet\b|[^\s\"]\s+[*+/]\s|\s-\s|[*+]|\d\s*/\s*\d|\w\(")


@try_each("spec", sorted({row["spec"] for row in ROWS}))
def test_a_spec_states_facts_and_does_no_arithmetic(spec: str) -> None:
    facts = re.sub(r'"[^"]*"', "", spec)
    assert not ARITHMETIC.search(facts)


def sentences(text: str) -> list[str]:
    """Return what a text says, sentence by sentence, in small letters without punctuation."""
    parts = (re.sub(r"[^a-z0-9 ]", "", part.lower()) for part in re.split(r"[.;:!?]\s", text))
    return [said for part in parts if len((said := " ".join(part.split())).split()) > 3]


def test_nothing_is_copied_from_the_documents() -> None:
    """``foreign.txt`` has digests of the sentences that the cases were collected with."""
    foreign = set((HERE / "foreign.txt").read_text("utf-8").split())
    for row in ROWS:
        for said in sentences(f"{row['what']}. {row.get('why', '')}. "):
            assert hashlib.sha256(said.encode()).hexdigest()[:12] not in foreign, said
