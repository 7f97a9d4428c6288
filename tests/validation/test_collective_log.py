"""`parcost validate LOG`: the time of every size beside that of the algorithms, by hand."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

FABRIC = """
fabric mine {
  level node { size = 8 devices, bandwidth = 100 GB/s per_direction, latency = 10 us }
}
"""
SIZES = {1_000_000: 200.0, 800_000_000: 10_000.0}  # microseconds
USES = ("--use", '"mine.par"', "--use", "catalog.devices.h100_sxm")


def log(named: bool = True, ranks: int = 8) -> str:
    """Return a table of an all-reduce in the form of nccl-tests."""
    head = "# Collective test starting: all_reduce_perf\n" if named else ""
    head += "".join(
        f"#  Rank {r:2d} Group  0 Pid {40 + r} on worker-0 device {r} [0x0f] Some Card\n"
        for r in range(ranks)
    )
    head += "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
    for size, micro in SIZES.items():
        algbw = size / micro / 1e3
        half = f"{micro:9.2f} {algbw:7.2f} {algbw * 1.75:7.2f}      0"
        head += f"{size:12d} {size // 4:12d}     float     sum      -1 {half} {half}\n"
    return head


@pytest.fixture
def compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, validate: Any) -> Callable[..., Any]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.par").write_text(FABRIC, encoding="utf-8")

    def do(*arguments: str, text: str = "") -> Any:
        (tmp_path / "all_reduce.log").write_text(text or log(), encoding="utf-8")
        return validate("all_reduce.log", *arguments)

    return do


def ring(size: float) -> float:
    """Return 20 us until kernels run, 8.4 of the call, 2 x 7 messages of an eighth of the buffer."""
    return 28.4e-6 + 14 * (10e-6 + size / 8 / 100e9)


def test_each_size_stands_beside_its_prediction(compare: Callable[..., Any]) -> None:
    found = compare(*USES, "--format", "json")
    assert found.exit_code == 0, found.stderr
    (document,) = json.loads(found.stdout)["logs"]
    assert (document["operation"], document["ranks"], document["nodes"]) == ("all_reduce", 8, 1)
    assert document["bus_factor"] == 1.75
    assert [row["size_bytes"] for row in document["rows"]] == list(SIZES)
    for row, micro in zip(document["rows"], SIZES.values(), strict=True):
        assert row["measured_seconds"] == pytest.approx(micro * 1e-6)
        assert row["seconds"]["ring_simple"] == pytest.approx(ring(row["size_bytes"]))
        assert row["predicted_seconds"] == min(row["seconds"].values())
        assert row["predicted_seconds"] == row["seconds"][row["algorithm"]]
        assert row["error"] == pytest.approx(row["predicted_seconds"] / micro * 1e6 - 1)
    large = document["rows"][-1]
    assert large["algorithm"] == "ring_simple"
    assert large["predicted_seconds"] == pytest.approx(14.1684e-3)


def test_the_page_has_bus_bandwidths_and_the_errors(compare: Callable[..., Any]) -> None:
    """800 MB in 10 ms and in 14.17 ms are 140 and 99 GB/s of bus bandwidth."""
    found = compare(*USES)
    (line,) = [x for x in found.stdout.splitlines() if "800 MB" in x and "%" in x]
    cells = line.split("  ")
    assert [x.strip() for x in cells if x.strip()] == [
        "800 MB", "10 ms", "14.17 ms", "140 GB/s", "98.81 GB/s", "+41.7 %", "ring_simple",
    ]  # fmt: skip
    assert "1.75 x size / time" in found.stdout
    assert "tree_ll128" in found.stdout
    assert max(map(len, found.stdout.splitlines())) <= 80
    assert "over 8 ranks: " in compare(*USES, "--format", "md").stdout
    rows = list(csv.DictReader(StringIO(compare(*USES, "--format", "csv").stdout)))
    assert float(rows[1]["error"]) == pytest.approx(0.41684)


def test_the_name_of_the_device_picks_the_fabric_of_its_servers(
    compare: Callable[..., Any],
) -> None:
    text = log().replace("Some Card", "NVIDIA H100 80GB HBM3")
    (document,) = json.loads(compare("--format", "json", text=text).stdout)["logs"]
    assert document["uses"] == ["catalog.devices.h100_sxm", "catalog.fabrics.hgx_h100"]


@pytest.mark.parametrize(
    "arguments, text, said",
    [
        ((), log(), "`Some Card` is not a device of the catalogue; add --use catalog.devices.NAME"),
        (USES, log(named=False, ranks=2), "does not name its collective"),
        (USES, log(ranks=0), "add `--set cluster.devices=N`"),
        ((*USES, "--set", "cluster.devices=[8, 16]"), log(), "`cluster.devices` is swept"),
        ((*USES, "--select", "id=a"), log(), "`--select` applies to runs"),
        ((*USES, "--format", "html"), log(), "`--format html` applies to runs"),
        (("--use", "catalog.fabrics.hgx_h10", *USES), log(), "did you mean"),
    ],
)
def test_an_error_names_the_option_that_a_log_needs(
    compare: Callable[..., Any], arguments: tuple[str, ...], text: str, said: str
) -> None:
    found = compare(*arguments, text=text)
    assert found.exit_code == 2
    assert said in " ".join(found.stderr.split())


def test_use_is_of_logs(validate: Any) -> None:
    assert validate("--use", "catalog.fabrics.hgx_h100").exit_code == 2
