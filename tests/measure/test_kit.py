"""The kit that measures kernels, with the backend of NumPy at tiny sizes."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
Row = Mapping[str, Any]


@pytest.fixture(scope="module")
def kit() -> Iterator[ModuleType]:
    sys.path.insert(0, str(ROOT))
    try:
        import benchmarks.measure.__main__ as found

        yield found
    finally:
        sys.path.remove(str(ROOT))


@pytest.fixture(scope="module")
def tables(kit: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tables")
    arguments = ["--out", str(out), "--backend", "numpy", "--tiny", "--seconds", "0.01"]
    assert kit.main([*arguments, "--device", "h100_sxm"]) == 0
    return out


def rows(path: Path) -> Sequence[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def benchmark(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        f"bench_{name}", ROOT / "benchmarks" / f"{name}.py"
    )
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.mark.usefixtures("kit")
def test_every_case_is_a_row_or_is_left_out_with_its_reason(tables: Path) -> None:
    from benchmarks.measure.cases import TABLES

    written = [
        row for name in TABLES if (path := tables / f"{name}.jsonl").exists() for row in rows(path)
    ]
    left = rows(tables / "left_out.jsonl")
    assert all(row["reason"] for row in left)
    names = [row["id"] for row in [*written, *left]]
    assert len(names) == len(set(names))
    samples = sum("second" in row for row in written)
    cases = sum(1 for of in TABLES.values() for _ in of(True))
    # A load has a row for each sample: those but the first are no further case.
    assert len(names) - samples + 1 == cases


def test_rates_of_products_are_operations_over_seconds(tables: Path) -> None:
    for row in rows(tables / "products.jsonl"):
        ((m, n, k, count),) = row["products"]
        assert row["tflops"] == pytest.approx(
            2 * m * n * k * count / row["time_us"] / 1e6, rel=0.01, abs=1e-4
        )


def test_a_copy_on_the_device_reads_and_writes(tables: Path) -> None:
    (row,) = rows(tables / "copies.jsonl")
    assert row["bytes"] == 2 * 4096
    assert row["gb_per_s"] == pytest.approx(8192 / row["time_us"] / 1e3, rel=0.01)


def test_a_second_run_measures_nothing_twice(
    kit: ModuleType, tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (tables / "products.jsonl").read_bytes()
    arguments = ["--out", str(tables), "--backend", "numpy", "--tiny", "--only", "products"]
    assert kit.main([*arguments, "--device", "h100_sxm"]) == 0
    assert (tables / "products.jsonl").read_bytes() == before
    assert "0 measured" in capsys.readouterr().out


def test_a_row_that_was_cut_off_is_measured_anew(kit: ModuleType, tmp_path: Path) -> None:
    arguments = ["--out", str(tmp_path), "--backend", "numpy", "--tiny", "--only", "products"]
    assert kit.main(arguments) == 0
    table = tmp_path / "products.jsonl"
    whole = rows(table)
    table.write_text(table.read_text(encoding="utf-8")[:-40], encoding="utf-8")
    assert kit.main(arguments) == 0
    assert [row["id"] for row in rows(table)] == [row["id"] for row in whole]


@pytest.mark.slow
def test_the_tables_are_those_that_the_benchmarks_score(tables: Path) -> None:
    kernels, streams = benchmark("kernels"), benchmark("streams")
    raw = rows(tables / "products.jsonl")[0]
    # A product too small to be scored is read all the same: its fields are those of the table.
    assert kernels.products(tables / "products.jsonl") == []
    assert kernels.DEVICES[raw["device"]] == "h100_sxm"
    found = streams.rows(tables / "streams.jsonl")
    by_name = {row["id"]: row for row in rows(tables / "streams.jsonl")}
    added = by_name["measure-h100_sxm-streams-add-eager-forward-16x32"]
    at = list(by_name).index(added["id"])
    # Two tensors of 512 elements in and one out, of two bytes each.
    assert found[at].moved == {"plain": 3 * 512 * 2.0}
    assert found[at].seconds == pytest.approx(added["time_us"] * 1e-6)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "prodcts"], "no table 'prodcts'; there are"),
        (["--seconds", "0"], "is no time between 0 and 3600 seconds"),
        (["--seconds", "soon"], "is no time between 0 and 3600 seconds"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    kit: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    with pytest.raises(SystemExit) as stopped:
        kit.main(["--out", str(tmp_path), *arguments])
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err


def test_without_torch_the_error_says_what_to_install(
    kit: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "benchmarks.measure.torch_backend", raising=False)
    assert kit.main(["--out", str(tmp_path)]) == 2
    assert "pip install 'parcost[measure]'" in capsys.readouterr().err


def test_a_folder_that_is_a_file_is_an_error(
    kit: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file"
    path.write_text("", encoding="utf-8")
    assert kit.main(["--out", str(path), "--backend", "numpy", "--tiny"]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_a_table_that_is_none_is_named_with_its_line(
    kit: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "products.jsonl").write_text('{"a": 1}\n{"id": "b"}\n', encoding="utf-8")
    arguments = ["--out", str(tmp_path), "--backend", "numpy", "--tiny", "--only", "products"]
    assert kit.main(arguments) == 2
    assert "products.jsonl:1 is no row of a table" in capsys.readouterr().err


@pytest.mark.usefixtures("kit")
def test_a_case_that_fails_leaves_the_others(tmp_path: Path) -> None:
    from benchmarks.measure.backend import Timing
    from benchmarks.measure.numpy_backend import NumpyBackend
    from benchmarks.measure.tables import measure

    class Small(NumpyBackend):
        """A device whose memory holds no product in fp16."""

        def product(self, case: Any) -> Timing:
            if case.dtype == "float16":
                raise MemoryError("1 GiB is not there")
            return super().product(case)

    said: list[str] = []
    written, left = measure(
        Small(), tmp_path, ["products"], seconds=0.01, tiny=True, say=said.append
    )
    assert (written, left) == (3, 2)
    reasons = [row["reason"] for row in rows(tmp_path / "left_out.jsonl")]
    assert "MemoryError: 1 GiB is not there" in reasons
