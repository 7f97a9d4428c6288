"""What a hook returns is a record, and one validator looks at every field of it."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

import parcost
from parcost import Axis, Check, Edge, Figure, Formula, Goal, Link, Memory, Objective, Once, Work
from parcost.contract import hookspecs
from parcost.contract.fields import Record
from parcost.contract.figures import Interval, Section
from parcost.contract.groups import Group
from parcost.contract.pipelines import Pipeline
from parcost.contract.validation import answer_types, problem
from parcost_plugins.vocabulary import Gemm, ModelFlops, Parameters

from ..rows import try_each

HOOKS = [name for name, spec in vars(hookspecs).items() if hasattr(spec, "parcost_spec")]
#: Answers that are no records: classes to derive from, numbers and words.
PLAIN = {type, str, float, parcost.Collective, parcost.Schedule, parcost.KernelModel}
PLAIN |= {parcost.Exporter, parcost.contract.offers.FileExporter, parcost.Importer}
PLAIN |= {parcost.TimelineExporter, parcost.TimelineFileExporter}
PLAIN |= {parcost.FileReader, parcost.SettingsWriter}


class Wire(Link):
    """A level that takes no time."""

    name, latency, bandwidth = "wire", 0.0, 1.0

    def seconds(self, rounds: Any, bytes_: Any) -> Any:  # noqa: ARG002
        return 0.0


F, WIRE = Formula("by hand"), Wire()
RECORDS: list[Any] = [
    Work(name="odd", seconds=1.0, pass_="F", formula=F),
    Edge(name="odd", seconds=1.0, formula=F),
    Once(name="odd", seconds=1.0, when="end", formula=F),
    Memory(name="odd", bytes_=1.0, formula=F),
    Check(id="odd", holds=True, subject="", message="odd"),
    Figure(name="odd", title="odd", value=1.0, unit="", formula=F),
    Interval(name="odd", low=1.0, high=2.0, coverage=0.9, formula=F),
    Section(title="odd", columns=("a",), rows=[("x",)]),
    Group(name="odd", ranks=2.0, shape=(2.0,), links=(WIRE,)),
    Pipeline(schedule="odd", stages=1, micro_batches=1.0),
    Axis(attribute="layout.tp", values=[1, 2]),
    Objective(name="odd", title="odd", unit="", cost=abs, value=abs),
    Goal(),
    Gemm(name="odd", m=1.0, n=1.0, k=1.0, pass_="F", count=(1.0,)),
    Parameters(name="odd", elements=1.0, total=1.0, count=(1.0,)),
    ModelFlops(name="odd", per_token=1.0, kind="matmul"),
]
#: Fields without a rule of their own: functions, formulas, mappings and what only pages read.
WITHOUT = {"formula", "upper", "cost", "value of Objective", "hop_after", "inputs", "others"}
WITHOUT |= {"rows", "lacking", "members", "value of Axis", "complexity of Goal"}


@try_each("hook", HOOKS)
def test_what_a_hook_returns_is_a_record_or_a_class_of_the_contract(hook: str) -> None:
    for type_ in answer_types(hook):
        assert issubclass(type_, Record) or type_ in PLAIN


@try_each("record", RECORDS, ids=lambda r: type(r).__name__)
def test_every_field_of_a_record_is_looked_at(record: Any) -> None:
    assert problem(record) == ""
    looked = 0
    for field in attrs.fields(type(record)):
        of = f"{field.name} of {type(record).__name__}"
        if {field.name, of} & WITHOUT:
            continue
        looked += 1
        found = problem(changed(record, field.name, object()))
        assert found.startswith("gave "), of
        assert "object" in found, of
    assert looked > 1


def changed(record: Any, name: str, value: Any) -> Any:
    """Return a copy of *record* with another value that no converter has seen."""
    found = attrs.evolve(record)
    object.__setattr__(found, name, value)
    return found


@try_each(
    "record, name, value, error",
    [
        (RECORDS[0], "share", -0.1, "the term `odd` share = -0.1, which is negative or not finite"),
        (RECORDS[0], "also", ("x",), "the term `odd` also_busy = (), which is not one share for"),
        (RECORDS[0], "count", (), "the term `odd` count = (), which is neither a count nor"),
        (RECORDS[3], "freed_at_b", 1.1, "the term `odd` freed_at_b = 1.1, which is not between 0"),
        (
            RECORDS[3],
            "of_activations",
            -1.1,
            "the term `odd` of_activations = -1.1, which is not a share",
        ),
        (RECORDS[5], "column", 1.5, "the figure `odd` column = 1.5, which is not a whole number"),
        (RECORDS[5], "detail", 1, "the figure `odd` detail = 1, which is neither true nor false"),
        (RECORDS[6], "coverage", np.array([0.9, 0.9]), "the interval of `odd` coverage = array("),
        (RECORDS[7], "notes", "no", "the section 'odd' notes = 'no', which is not a list of texts"),
        (RECORDS[7], "rows", [("x", "y")], "the section 'odd' the row ('x', 'y'), where 1 cells"),
        (RECORDS[8], "strides", (-1.0,), "the group `odd` strides = (-1.0,), which is not a shape"),
        (RECORDS[8], "links", (), "the group `odd` links = (), not one for each level"),
        (RECORDS[9], "stages", 0, "the pipeline stages = 0, which is not a whole number above 0"),
        (RECORDS[9], "stages", 2.0, "the pipeline stages = 2.0, which is not a whole number above"),
        (
            RECORDS[12],
            "budget_seconds",
            -1,
            "a goal budget_seconds = -1, which is negative or not finite",
        ),
    ],
)
def test_a_field_out_of_its_range_is_named_with_its_record(
    record: Any, name: str, value: Any, error: str
) -> None:
    assert problem(changed(record, name, value)).startswith(f"gave {error}")


@attrs.frozen(kw_only=True)
class Sparse(parcost.Operator):
    """An operator of a plugin's own, with a rule of its own."""

    name: str
    dense: float
    kept: float

    def problem(self) -> str:
        return f"kept {self.kept:g} of {self.dense:g}" if self.kept > self.dense else ""


def test_an_own_record_has_rules_by_its_types_and_its_own() -> None:
    assert problem(Sparse(name="gate", dense=4.0, kept=2.0)) == ""
    wrong = Sparse(name="gate", dense=4.0, kept="2")  # type: ignore[arg-type]
    assert problem(wrong) == "gave the Sparse 'gate' kept = '2', which is not a number"
    assert problem(Sparse(name="gate", dense=4.0, kept=5.0)) == "kept 5 of 4"
