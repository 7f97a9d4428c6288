"""Files of runs that are wrong: each row by line and reason, and the others kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from parcost import SpecError
from parcost_measured.validation.rows import Rows, RunRow, files_of, read_files, shipped_runs

Write = Callable[[Iterable[Any]], Path]
Raw = Callable[..., dict[str, Any]]


def reading(path: Path) -> Rows:
    return read_files([("runs.jsonl", path)])


#: Changes of a good row, and the reported reason.
BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"model__layers": "24"}, "malformed", "`model.layers` is `24`, not a whole number"),
    ({"model__layers": 2.5}, "malformed", "`model.layers` is 2.5, not a whole number"),
    ({"model__layers": 0}, "malformed", "`model.layers` is 0, but it must be at least 1"),
    ({"model__tied": 1}, "malformed", "`model.tied` is 1, not true or false"),
    ({"hardware__gpus": True}, "malformed", "`hardware.gpus` is True, not a whole number"),
    ({"extra": [1]}, "malformed", "`extra` is [1], not an object"),
    ({"notes": {}}, "malformed", "`notes` is {}, not a text"),
    ({"notes": ["x" * 56]}, "malformed", f"`notes` is ['{'x' * 56}'], not a text"),
    ({"notes": ["x" * 57]}, "malformed", f"`notes` is ['{'x' * 55}..., not a text"),
    ({"model": []}, "malformed", "`model` is [], not an object"),
    ({"measured__step_time_s": ...}, "malformed", "`measured.step_time_s` is missing"),
    ({"batch__global": ...}, "malformed", "`batch.global` is missing"),
    ({"measured__step_time_s": 0}, "malformed", "is 0, but it must be above 0"),
    ({"measured__step_time_s": None}, "malformed", "`measured.step_time_s` is null, not a number"),
    ({"measured__step_time_s": 10**400}, "malformed", "not a number"),
    # They overflowed, and took the rest of the file with them.
    ({"batch__global": 1e308}, "malformed", "which is implausible"),
    ({"model__seq": 1e300}, "malformed", "which is implausible"),
    ({"measured__step_time_s": 1e308}, "malformed", "which is implausible"),
    ({"measured__step_time_s": 1e-308}, "malformed", "which is implausible"),
    ({"measured__memory_gb": 1e300}, "malformed", "which is implausible"),
    ({"measured__memory_gb": 1e-308}, "malformed", "which is implausible"),
    ({"precision_class": "bf61"}, "malformed", "did you mean `bf16`?"),
    ({"parallel__dp": 2}, "contradictory", "tp 8 x pp 2 x cp 1 x dp 2 = 32 ranks, but there are 16"),
    ({"parallel__ep": 3}, "contradictory", "ep 3 does not divide the 8 ranks of a stage"),
    ({"parallel__ep": 2}, "contradictory", "ep 2 needs experts, but the model has none"),
    ({"batch__grad_accum": 4}, "contradictory", "2 x 4 x dp 1 = 8 sequences, but the global batch is 16"),
    ({"batch__micro": 3}, "contradictory", "16 sequences are not divisible by micro-batches of 3"),
    ({"model__heads": 31}, "contradictory", "31 heads are not divisible by 32 key-value heads"),
    ({"model__experts": 8}, "contradictory", "`model.topk` is missing, but the model has experts"),
    ({"parallel__vp": 20}, "contradictory", "24 layers are too few for 2 stages of 20 chunks"),
    ({"measured__mfu": 1.2}, "absurd", "`measured.mfu` is 1.2: no device exceeds its peak"),
    ({"measured__tflops_per_gpu": 400}, "absurd", "400 TFLOP/s are beyond the peak of 312"),
    ({"measured__tokens_per_s_per_gpu": 9e4}, "absurd", "1707 per second and device, and"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "kind", "reason"), BAD, ids=[str(case[0]) for case in BAD])
def test_a_bad_row_is_named_and_the_next_is_kept(
    changes: dict[str, Any], kind: str, reason: str, raw: Raw, file: Write
) -> None:
    rows = reading(file([raw(**changes), raw(id="good")]))
    assert [placed.row.id for placed in rows.placed] == ["good"]
    assert any(reason in flaw.reason for flaw in rows.flaws), [flaw.text for flaw in rows.flaws]
    flaw = next(flaw for flaw in rows.flaws if reason in flaw.reason)
    assert (flaw.file, flaw.line, flaw.id, flaw.kind) == ("runs.jsonl", 1, "megatron-1", kind)


def test_all_errors_of_a_row_are_reported_at_once(raw: Raw, file: Write) -> None:
    rows = reading(file([raw(model__layers=-1, source=..., hardware__gpus="8")]))
    assert len(rows.flaws) == 3


def test_lines_that_are_no_json_are_named(raw: Raw, file: Write) -> None:
    lines = ["{", "", "[1]", '{"id": NaN}', "[" * 100_000, raw()]
    rows = reading(file(lines))
    assert [flaw.line for flaw in rows.flaws] == [1, 3, 4, 5]
    assert "not JSON" in rows.flaws[0].reason
    assert "the row is [1], not an object" in rows.flaws[1].reason
    assert "`NaN` is not a number of JSON" in rows.flaws[2].reason
    assert "nested too deeply" in rows.flaws[3].reason
    assert len(rows.placed) == 1


def test_the_second_row_of_an_id_is_left_out(raw: Raw, file: Write) -> None:
    rows = reading(file([raw(), raw(id="b"), raw(measured__step_time_s=1.21)]))
    assert [placed.line for placed in rows.placed] == [1, 2]
    (flaw,) = rows.flaws
    assert flaw.line == 3
    assert flaw.reason == "the id `megatron-1` is also the id of runs.jsonl:1"


def test_unknown_fields_are_counted_and_the_row_is_kept(raw: Raw, file: Write) -> None:
    rows = reading(file([raw(colour="red"), raw(id="b", colour="blue", model__tint=1)]))
    assert rows.unknown == {"colour": 2, "model.tint": 1}
    assert len(rows.placed) == 2
    assert not rows.flaws


def test_optional_fields_of_a_row_may_be_null(raw: Raw, file: Write) -> None:
    changes = dict.fromkeys(("model__kv_heads", "hardware__internode", "recompute"), None)
    (placed,) = reading(file([raw(**changes)])).placed
    assert placed.row.recompute is None


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(SpecError):
            reading(path)
    latin = tmp_path / "latin.jsonl"
    latin.write_bytes(b'{"id": "\xe9"}\n')
    with pytest.raises(SpecError, match="not UTF-8"):
        reading(latin)


def test_a_line_that_is_too_long_is_an_error(file: Write) -> None:
    with pytest.raises(SpecError, match="line 1 of"):
        reading(file(["x" * (2**20 + 1)]))


def test_a_directory_stands_for_its_files_of_runs(tmp_path: Path, raw: Raw) -> None:
    (tmp_path / "b.jsonl").write_text(json.dumps(raw()) + "\n")
    (tmp_path / "a.jsonl").write_text(json.dumps(raw(id="a")) + "\n")
    (tmp_path / "kernels.jsonl").write_text('{"id": "k", "time_us": 3}\n')
    (tmp_path / "notes.txt").write_text("x")
    assert [Path(name).name for name, _ in files_of(tmp_path)] == ["a.jsonl", "b.jsonl"]


def test_a_directory_without_any_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no file of runs"):
        files_of(tmp_path)


def test_nodes_are_counted_up(row: Callable[..., RunRow]) -> None:
    assert row().nodes == 2
    assert row(hardware__gpus_per_node=None).nodes is None
    assert row(hardware__gpus_per_node=10).nodes == 2


def test_micro_batches_of_a_replica(row: Callable[..., RunRow]) -> None:
    """64 sequences over 4 replicas, 2 at a time."""
    assert row(batch__global=64, parallel__dp=4).micro_batches == 8
    assert row(batch__global=64, parallel__dp=4, batch__micro=1).micro_batches == 16


def test_what_follows_from_a_row(row: Callable[..., RunRow]) -> None:
    assert row(hardware__gpus=17).nodes == 3
    for experts, sparse in ((None, False), (0, False), (1, False), (2, True)):
        assert row(model__experts=experts).is_sparse is sparse
    assert row(extra={"dup_group": "x"}).configuration == "x"
    assert row().configuration == "megatron-1"
    for precision, class_, numbers in (
        ("BFloat16", None, "bf16"),
        ("float8", None, "fp8"),
        ("mxfp8 and bf16", None, "mxfp8"),
        ("mxfp8", "bf16", "bf16"),
        (None, None, None),
        ("int4", None, None),
    ):
        assert row(precision=precision, precision_class=class_).numbers == numbers


#: What is on the edge of a contradiction, and whether it is one. A step of 2 s of 16 sequences
#: of 2048 tokens on 16 devices is a rate of 1024 tokens per second and device.
EDGES: list[tuple[dict[str, Any], bool]] = [
    ({}, True),
    ({"measured": {"step_time_s": 2, "tokens_per_s_per_gpu": 1074}}, True),
    ({"measured": {"step_time_s": 2, "tokens_per_s_per_gpu": 1076}}, False),
    ({"measured": {"step_time_s": 2, "tokens_per_s_per_gpu": 974}}, True),
    ({"measured": {"step_time_s": 2, "tokens_per_s_per_gpu": 972}}, False),
    ({"measured": {"step_time_s": 2, "mfu": 1.0, "hfu": 1.0}}, True),
    ({"measured": {"step_time_s": 2, "mfu": 1.01}}, False),
    ({"measured": {"step_time_s": 2, "hfu": 1.01}}, False),
    ({"measured": {"step_time_s": 2, "tflops_per_gpu": 312}}, True),
    ({"measured": {"step_time_s": 2, "tflops_per_gpu": 312.1}}, False),
    ({"measured": {"step_time_s": 2, "tflops_per_gpu": 400}, "peak_tflops_assumed": None}, True),
    ({"parallel__tp": 2, "parallel__cp": 2, "parallel__dp": 2, "batch__grad_accum": 4}, True),
    ({"parallel__tp": 2, "parallel__cp": 2, "parallel__dp": 2, "batch__grad_accum": 8}, False),
    ({"parallel__tp": 2, "parallel__cp": 2, "parallel__dp": 2, "batch__grad_accum": None}, True),
    ({"parallel__tp": 2, "parallel__cp": 4, "batch__micro": 1, "batch__grad_accum": 16}, True),
    ({"parallel__tp": 4, "parallel__pp": 4}, True),
    # 16 sequences for 16 replicas, two at a time
    (
        {"parallel__tp": 1, "parallel__pp": 1, "parallel__dp": 16, "batch__grad_accum": None},
        False,
    ),
    ({"parallel__tp": 4, "parallel__pp": 2}, False),
    ({"model__experts": 8, "model__topk": 8, "parallel__ep": 8}, True),
    ({"model__experts": 8, "model__topk": 9, "parallel__ep": 8}, False),
    ({"model__experts": 0, "model__topk": 1}, False),
    ({"model__experts": None, "model__topk": 1}, False),
    ({"model__experts": 8, "model__topk": 2, "parallel__ep": 16}, False),  # of 8 of a stage
    # 2 tp x 2 cp x 4 dp ranks of one stage
    (
        {
            "parallel__tp": 2, "parallel__cp": 2, "parallel__dp": 4, "parallel__pp": 1,
            "parallel__ep": 16, "model__experts": 16, "model__topk": 2, "batch__grad_accum": 2,
        },
        True,
    ),
    ({"parallel__hsdp": {"shard": 1, "replicate": 1}}, True),
    ({"parallel__hsdp": {"shard": 2, "replicate": 2}}, False),
    ({"parallel__hsdp": True}, True),
    (
        {
            "parallel__tp": 1, "parallel__cp": 2, "parallel__dp": 4, "batch__grad_accum": 2,
            "parallel__hsdp": {"shard": 4, "replicate": 2},
        },
        True,
    ),
    ({"model__kv_heads": 8}, True),
    ({"model__kv_heads": 6}, False),
    ({"model__kv_heads": None}, True),
    ({"model__hidden": 3080}, False),
    ({"model__hidden": 3080, "model__head_dim": 128}, True),
    ({"parallel__vp": 13}, True),  # 26 chunks for 24 layers and two ends
    ({"parallel__vp": 13, "model__layers": 23}, False),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "good"), EDGES)
def test_the_edge_of_a_contradiction(
    changes: dict[str, Any], good: bool, raw: Raw, file: Write
) -> None:
    rows = reading(file([raw(**changes)]))
    assert (len(rows.placed), bool(rows.flaws)) == (int(good), not good), rows.flaws


def test_the_first_catalogue_with_a_file_of_runs_ships_it(tmp_path: Path) -> None:
    def plugins(*names: str) -> Any:
        found = {n: (None, SimpleNamespace(name=n, root=tmp_path / n)) for n in names}
        return SimpleNamespace(offers=lambda _: found)

    path = tmp_path / "b" / "measured" / "runs.jsonl"
    path.parent.mkdir(parents=True)
    path.touch()
    (tmp_path / "c" / "measured" / "runs.jsonl").mkdir(parents=True)
    assert shipped_runs(plugins("a", "c", "b")) == ("b/measured/runs.jsonl", path)
    assert shipped_runs(plugins("a", "c")) is None


@pytest.mark.parametrize(
    ("name", "first", "taken"),
    [
        ("runs.jsonl", '{"measured": {}}', True),
        ("runs.jsonl", '{"parallel": {}}', True),
        ("runs.jsonl", '{"time_us": 3}', False),
        ("runs.jsonl", '["measured"]', False),
        ("runs.jsonl", '"measured"', False),
        ("runs.jsonl", "{", True),  # reading it says what is wrong
        ("runs.jsonl", "x" * (2**20 + 1), True),
        ("runs.json", '{"measured": {}}', False),
    ],
)
def test_which_files_of_a_directory_have_runs(
    name: str, first: str, taken: bool, tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_text('{"measured": {}}\n')
    (tmp_path / name).write_text(first + "\n")
    found = [Path(file).name for file, _ in files_of(tmp_path)]
    assert found == ["a.jsonl", *([name] if taken else [])]


def test_a_composed_row_is_apart_from_measured_ones(raw: Any, tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text(json.dumps(raw(synthetic=True)) + "\n", encoding="utf-8")
    rows = read_files([("runs.jsonl", path)])
    assert (len(rows.placed), len(rows.flaws), len(rows.apart)) == (0, 0, 1)
