"""Each test of a contract fails for a plugin that breaks just this."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest

from parcost import (
    Case,
    ClosedForm,
    Collective,
    Exporter,
    Group,
    ImportedBlock,
    ImportedKey,
    ImportedValue,
    Importer,
    Op,
    Schedule,
    Translation,
)
from parcost.contract.entries import Entry
from parcost.contract.page import Paper
from parcost_apps.testing import (
    CollectiveContract,
    ExporterContract,
    ImporterContract,
    PluginContract,
    ScheduleContract,
)

from ..rows import mark_most, try_each

Wrong = Callable[..., Any]


class InTurn(Schedule):
    """A micro-batch at a time, which is right."""

    name = "in_turn"

    def order(self, stages: int, micro_batches: int, chunks: int) -> list[list[Op]]:
        if chunks > 1:
            raise AssertionError
        kinds: Sequence[Any] = ("F", "BW")
        return [[Op(k, j, s) for j in range(micro_batches) for k in kinds] for s in range(stages)]

    def limits(self, shape: Any) -> str | None:
        return None if shape.chunks == 1 else "one chunk"

    def closed_form(self, case: Case) -> Any:
        stage = [f + both for f, both in zip(case.F, case.backward, strict=True)]
        passes = case.before(stage)[-1] + stage[-1]
        return case.micro_batches * (passes + 2 * (case.stages - 1) * case.hop), True

    def lower_bound(self, case: Case) -> Any:
        return self.closed_form(case)[0]


def schedule(**wrong: Wrong) -> ScheduleContract:
    one = type("Broken", (InTurn,), wrong)()
    return type("Contract", (ScheduleContract,), {"schedule": one})()


def contract_tests(contract: type) -> list[str]:
    return [name for name in dir(contract) if name.startswith("test_")]


@pytest.mark.slow
def test_a_schedule_that_is_right_passes() -> None:
    contract = schedule()
    for name in contract_tests(ScheduleContract):
        getattr(contract, name)()


def _twice(self: Any, p: int, m: int, v: int) -> Any:
    return [[*ops, ops[0]] for ops in InTurn.order(self, p, m, v)]


def _swapped(self: Any, p: int, m: int, v: int) -> Any:
    return [ops[::-1] for ops in InTurn.order(self, p, m, v)]


def _other_devices(self: Any, p: int, m: int, v: int) -> Any:
    lists = InTurn.order(self, p, m, v)
    return lists[::-1] if m % 2 else lists


def _by_hop(self: Any, case: Case) -> Any:
    return InTurn.closed_form(self, case)[0] - np.max(case.hop), True


def _raise(self: Any, case: Case) -> Any:
    return InTurn.lower_bound(self, case) * 1.01


def _of_the_largest(self: Any, case: Case) -> Any:
    largest = float(np.max(case.hop))
    return InTurn.lower_bound(self, case) * 0 + largest * 0.1


def _refuse_everything(*_: Any) -> str:
    return "no"


def _refuse_in_silence(_: Any, shape: Any) -> str | None:
    return None if shape.chunks == 1 else " "


@try_each(
    "name, wrong",
    [
        ("test_it_has_a_name_that_a_spec_can_write", {"name": "in turn"}),
        ("test_limits_are_sentences", {"limits": _refuse_everything}),
        ("test_limits_are_sentences", {"limits": _refuse_in_silence}),
        ("test_every_pass_is_in_the_order_once_and_nothing_deadlocks", {"order": _twice}),
        ("test_a_closed_form_is_the_time_of_the_order", {"closed_form": _by_hop}),
        ("test_a_closed_form_is_the_time_of_the_order", {"order": _swapped}),
        ("test_a_lower_bound_is_never_above_the_time", {"lower_bound": _raise}),
        ("test_arrays_are_their_numbers", {"lower_bound": _of_the_largest}),
        ("test_more_micro_batches_keep_what_a_search_assumes", {"order": _other_devices}),
        ("test_frameworks_have_a_source", {"frameworks": {"PyTorch": " "}}),
    ],
)
def test_a_schedule_that_is_wrong_fails(name: str, wrong: dict[str, Any]) -> None:
    contract = schedule(**wrong)
    with pytest.raises(AssertionError):
        getattr(contract, name)()


class Flood(Collective):
    """Every rank sends all to every other one, which is right."""

    name = "flood"
    operations = frozenset({"all_reduce"})

    def seconds(self, operation: str, n: Any, group: Group) -> Any:  # noqa: ARG002
        others = group.ranks - 1
        return group.links[-1].seconds(others * self.rounds, others * n * 2)

    rounds = 2.0

    def closed_form(self, operation: str, group: Group) -> ClosedForm:  # noqa: ARG002
        return ClosedForm("2 (P - 1) (alpha + n / B)", group.links[-1])


def collective(**wrong: Any) -> CollectiveContract:
    one = type("Broken", (Flood,), wrong)()
    return type("Contract", (CollectiveContract,), {"algorithm": one})()


def test_a_collective_that_is_right_passes() -> None:
    contract = collective()
    for name in contract_tests(CollectiveContract):
        getattr(contract, name)()


def _half(self: Any, operation: str, n: Any, group: Group) -> Any:
    return Flood.seconds(self, operation, n, group) / 1000


def _plus_one(self: Any, operation: str, n: Any, group: Group) -> Any:
    return Flood.seconds(self, operation, n, group) + 1e-6


def _falling(self: Any, operation: str, n: Any, group: Group) -> Any:
    return Flood.seconds(self, operation, n, group) + (n < 2) * 1.0 * (group.ranks > 1)


def _of_the_largest_rank(self: Any, operation: str, n: Any, group: Group) -> Any:
    return Flood.seconds(self, operation, n, group) * 0 + float(np.max(group.ranks)) * n


def _rewarding(self: Any, operation: str, n: Any, group: Group) -> Any:
    return Flood.seconds(self, operation, n, group) + 1e-9 / group.links[0].latency


def _unable(_: Any, operation: str, group: Group) -> Any:  # noqa: ARG001
    return group.ranks < 8


@try_each(
    "name, wrong",
    [
        ("test_it_has_a_name_and_operations", {"operations": frozenset({"all_the_gather"})}),
        ("test_it_runs_somewhere_and_has_no_time_elsewhere", {"able": _unable}),
        ("test_a_rank_by_itself_waits_for_nothing", {"seconds": _plus_one}),
        ("test_it_beats_no_lower_bound", {"seconds": _half}),
        ("test_more_bytes_take_no_less_time", {"seconds": _falling}),
        ("test_a_slower_link_takes_no_less_time", {"seconds": _rewarding}),
        ("test_arrays_are_their_numbers", {"seconds": _of_the_largest_rank}),
        ("test_what_it_explains_comes_to_its_time", {"seconds": _plus_one}),
    ],
)
def test_a_collective_that_is_wrong_fails(name: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        getattr(collective(**wrong), name)()


SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 8 }
layout { tp = 2, zero = 1 }
training { sequence = 4096, micro_batch = 1, global_batch = 32 sequences }
"""
GOOD = '''
"""What waiting for data costs."""
from parcost import SECONDS, Once, block, formula, hookimpl, quantity

@block("loader", label="none")
class Loader:
    """The input pipeline."""
    stall: float = quantity(SECONDS, default=0.0, doc="waited for data")

@hookimpl
def blocks():
    return [Loader]

@hookimpl
def terms(study):
    stall = study[Loader].stall
    seconds = formula("stall", stall=(stall, "s"), source="ours")
    return [Once(name="data_stall", cause="data loading", seconds=seconds, when="end")]
'''


def module(folder: Path, text: str) -> ModuleType:
    path = folder / "a_loader.py"
    path.write_text(text, encoding="utf-8")
    found = ModuleType("a_loader")
    found.__file__ = str(path)
    sys.modules["a_loader"] = found
    exec(compile(text, str(path), "exec"), vars(found))
    return found


def plugin(folder: Path, text: str) -> PluginContract:
    names = {
        "plugin": module(folder, text),
        "name": "a_loader",
        "spec": SPEC + "loader { stall = 3 ms }\n",
        "plain": SPEC,
        "swept": {"loader.stall": [0.001, 0.002]},
    }
    return type("Contract", (PluginContract,), names)()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", mark_most([n for n in contract_tests(PluginContract) if "prints" not in n], 4)
)
def test_a_plugin_that_is_right_passes(name: str, tmp_path: Path) -> None:
    getattr(plugin(tmp_path, GOOD), name)()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, old, new",
    mark_most(
        [
            ("test_it_loads", "def terms(study):", "def terms(study, colour):"),
            ("test_its_blocks_are_documented", 'doc="waited for data"', 'doc=" "'),
            ("test_its_blocks_are_documented", '"""The input pipeline."""', ""),
            (
                "test_it_imports_what_is_public",
                "from parcost import SECONDS",
                "import parcost.engine.replay\nfrom parcost import SECONDS",
            ),
            (
                "test_it_imports_what_is_public",
                "from parcost import SECONDS",
                "from parcost_plugins.memory import fit\nfrom parcost import SECONDS",
            ),
            (
                "test_the_spec_is_evaluated_without_faults",
                "    return [Once",
                "    1 / 0\n    return [Once",
            ),
            ("test_it_takes_part_in_the_spec", 'block("loader"', 'block("reader"'),
            ("test_other_specs_are_as_before", "stall = study[Loader].stall", "stall = 1.0"),
            (
                "test_an_evaluation_repeats",
                "stall = study[Loader].stall",
                "stall = __import__('random').random()",
            ),
            (
                "test_every_formula_computes_its_number",
                'formula("stall", stall=(stall, "s"), source="ours")',
                'parcost_formula("stall", {"stall": (stall, "s")}, value=2 * stall, is_expression=True)',
            ),
            (
                "test_arrays_are_their_numbers",
                "stall = study[Loader].stall",
                "import numpy; stall = float(numpy.max(study[Loader].stall))",
            ),
        ]
    ),
)
def test_a_plugin_that_is_wrong_fails(name: str, old: str, new: str, tmp_path: Path) -> None:
    assert old in GOOD
    text = GOOD.replace(old, new)
    if "parcost_formula" in text:
        text = text.replace(
            "from parcost import", "from parcost import Formula as parcost_formula,"
        )
    if "reader" in text:  # a block that the spec does not write
        text = text.replace("study[Loader].stall", "0.0")
    contract = plugin(tmp_path, text)
    if "reader" in text:
        type(contract).spec = SPEC
    with pytest.raises(AssertionError):
        getattr(contract, name)()


@pytest.mark.slow
def test_a_plugin_that_prints_fails(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    plugin(tmp_path, GOOD).test_it_prints_nothing(capfd)
    noisy = plugin(
        tmp_path, GOOD.replace("    stall = study", "    print('here')\n    stall = study")
    )
    with pytest.raises(AssertionError):
        noisy.test_it_prints_nothing(capfd)


class Lines(Exporter):
    """A line for each entry, which is right."""

    name = "lines"

    def write(self, entries: Any, paper: Paper) -> Iterator[str]:  # noqa: ARG002
        for entry in entries:
            yield f"{entry.path!r}\n"


class Raw(Lines):
    """A path that drives a terminal."""

    def write(self, entries: Any, paper: Paper) -> Iterator[str]:  # noqa: ARG002
        for entry in entries:
            yield f"{entry.path}\n"


class ReportNames(Lines):
    """It takes every entry for a report."""

    def write(self, entries: Any, paper: Paper) -> Iterator[str]:  # noqa: ARG002
        for entry in entries:
            assert entry.name is not None
            yield entry.name


class First(Lines):
    """It takes a run for never empty."""

    def write(self, entries: Any, paper: Paper) -> Iterator[str]:  # noqa: ARG002
        found: list[Entry] = list(entries)
        assert found, "nothing to write"
        yield f"{len(found)}"


class Counter(Lines):
    """It counts what it has ever written."""

    lines = 0

    def write(self, entries: Any, paper: Paper) -> Iterator[str]:  # noqa: ARG002
        for _ in entries:
            Counter.lines += 1
            yield f"{Counter.lines}"


class Odd(Lines):
    """It reads a part that no entry has."""

    reads = "odd"  # type: ignore[assignment]


def exporter(one: Exporter) -> ExporterContract:
    return type("Contract", (ExporterContract,), {"exporter": one, "specs": (SPEC,)})()


def test_an_exporter_that_is_right_passes(tmp_path: Path) -> None:
    contract = exporter(Lines())
    contract.test_it_has_a_name_and_reads_a_part()
    for name in contract_tests(ExporterContract)[1:]:
        getattr(contract, name)(tmp_path)


@pytest.mark.parametrize(
    "one, name",
    [
        (Raw(), "test_names_from_outside_are_escaped"),
        (ReportNames(), "test_it_writes_every_kind_of_report"),
        (First(), "test_it_writes_nothing_of_nothing"),
        (Counter(), "test_it_writes_the_same_twice"),
        (Odd(), "test_it_has_a_name_and_reads_a_part"),
    ],
)
def test_an_exporter_that_is_wrong_fails(one: Exporter, name: str, tmp_path: Path) -> None:
    arguments = () if "reads_a_part" in name else (tmp_path,)
    with pytest.raises(AssertionError):
        getattr(exporter(one), name)(*arguments)


class Settings(Importer):
    """Lines of a name, a colon and a value, which is right."""

    name = "settings"
    title = "a launcher of ours"
    known: ClassVar[dict[str, str]] = {"tensor": "layout.tp"}

    def recognizes(self, name: str, text: str) -> bool:
        return name.endswith(".settings") and bool(text)

    def translate(self, name: str, text: str) -> Translation:  # noqa: ARG002
        found, unknown, at = [], [], 0
        for line in text.splitlines(keepends=True):
            key, _, value = line.strip().partition(": ")
            if key in self.known and value.isdigit():
                path = self.known[key]
                one = ImportedValue(
                    name=path.partition(".")[2], value=value, key=key, start=at, end=at + len(key)
                )
                found.append(ImportedBlock(kind=path.partition(".")[0], settings=[one]))
            elif key:
                unknown.append(ImportedKey(name=key, start=at, end=at + len(key)))
            at += len(line)
        return Translation(blocks=found, unknown=unknown)


def importer(one: Importer) -> ImporterContract:
    names = {
        "importer": one,
        "file": "job.settings",
        "text": "tensor: 8\n",
        "expected": {"layout.tp": "8"},
        "unknown": ("tensor: 8\ncolour: red\n", "colour"),
    }
    return type("Contract", (ImporterContract,), names)()


def test_an_importer_that_is_right_passes() -> None:
    contract = importer(Settings())
    for name in contract_tests(ImporterContract):
        getattr(contract, name)()


def _importer(**wrong: Any) -> Importer:
    return type("Broken", (Settings,), wrong)()  # type: ignore[no-any-return]


def _parse_strictly(self: Any, name: str, text: str) -> Translation:
    text.index(":")
    return Settings.translate(self, name, text)


def _silent(self: Any, name: str, text: str) -> Translation:
    return Translation(blocks=Settings.translate(self, name, text).blocks)


def _far(self: Any, name: str, text: str) -> Translation:  # noqa: ARG001
    one = ImportedValue(name="tp", value="8", start=99, end=100)
    return Translation(blocks=[ImportedBlock(kind="layout", settings=[one])])


def _keeping(self: Any, name: str, text: str) -> Translation:
    self.before = [*getattr(self, "before", []), *Settings.translate(self, name, text).blocks]
    return Translation(blocks=list(self.before))


@try_each(
    "one, name",
    [
        (_importer(recognizes=lambda *_: True), "test_it_recognizes_its_files_and_no_specs"),
        (_importer(known={"tensor": "layout.pp"}), "test_it_reads_the_example"),
        (_importer(known={"tensor": "layout.colour"}), "test_what_it_reads_is_a_spec"),
        (_importer(known={"tensor": "colours.red"}), "test_what_it_reads_is_a_spec"),
        (_importer(translate=_far), "test_places_are_in_the_text"),
        (_importer(translate=_silent), "test_an_unknown_key_is_listed"),
        (_importer(translate=_parse_strictly), "test_it_raises_for_no_text"),
        (_importer(translate=_keeping), "test_it_reads_the_same_twice"),
    ],
)
def test_an_importer_that_is_wrong_fails(one: Importer, name: str) -> None:
    with pytest.raises((AssertionError, ValueError)):
        getattr(importer(one), name)()
