"""Logs of nccl-tests as fabrics: every dialect, messages by hand, and what a log leaves open."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import parcost
from parcost_formats.tools.nccl_tests import CollectiveLog

from ..rows import try_each
from .translations import names, problems, settings

IMPORTER = CollectiveLog()
HEAD = "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"


def ranks(count: int, nodes: int = 1, device: str = "Example Accelerator") -> str:
    return "".join(
        f"#  Rank {r:2d} Group  0 Pid {40 + r} on worker-{r * nodes // count} device "
        f"{r % (count // nodes)} [0x0f] {device}\n"
        for r in range(count)
    )


def rows(times: Iterable[tuple[int, float]], factor: float) -> str:
    """Return rows of a size in bytes and a time in microseconds, with the two bandwidths."""
    lines = []
    for size, micro in times:
        algbw = size / micro / 1e3
        half = f"{micro:9.2f} {algbw:7.2f} {algbw * factor:7.2f}      0"
        lines.append(f"{size:12d} {size // 4:12d}     float     sum      -1 {half} {half}\n")
    return "".join(lines)


def log(times: Iterable[tuple[int, float]], count: int, nodes: int, factor: float) -> str:
    return ranks(count, nodes) + HEAD + rows(times, factor)


def points(curve: str) -> list[tuple[float, float]]:
    """Return the points of a curve in bytes and seconds."""
    units = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "us": 1e-6, "ms": 1e-3, "s": 1.0}
    found = re.findall(r"\[([\d.e+-]+) (\w+), ([\d.e+-]+) (\w+)\]", curve)
    return [(float(a) * units[b], float(c) * units[d]) for a, b, c, d in found]


# Of 8 ranks: 8 MiB and 64 MiB; factor 2 x 7 / 8.
ONE_NODE = [(2**23, 280.0), (2**26, 1400.0)]
# Of 16 ranks on 2 nodes: 16 KiB and 16 MiB; factor 2 x 15 / 16.
TWO_NODES = [(2**14, 300.0), (2**24, 3000.0)]


def test_a_ring_inside_of_a_node_has_fourteen_messages_of_an_eighth() -> None:
    found = IMPORTER.translate("x/node.log", log(ONE_NODE, 8, 1, 1.75))
    values = settings(found)
    assert values["fabric.node.size"] == "8 devices"
    assert points(values["fabric.node.bandwidth"]) == [
        (2**20, pytest.approx(20e-6)),
        (2**23, pytest.approx(100e-6)),
    ]
    assert (
        '@measured("node.log: all_reduce over 8 ranks, as a ring")'
        in values["fabric.node.bandwidth"]
    )
    assert "per_direction" in values["fabric.node.bandwidth"]
    assert values["fabric.node.latency"] == "3.4 us"
    assert not found.missing
    assert names(found.ignored) == {"in-place", "Example Accelerator"}


def test_between_nodes_a_message_is_the_part_of_one_port() -> None:
    """A ring of 16 has 30 rounds; its 1/16 leaves a node through 8 ports."""
    found = IMPORTER.translate("net.log", log(TWO_NODES, 16, 2, 1.875))
    values = settings(found)
    assert "fabric.network.size" not in values
    assert points(values["fabric.network.bandwidth"]) == [
        (128, pytest.approx(10e-6)),
        (2**17, pytest.approx(100e-6)),
    ]
    assert values["fabric.network.latency"] == "10 us"
    (block,) = found.blocks[0].blocks
    (latency,) = [one for one in block.settings if one.name == "latency"]
    assert latency.assumption == "the time of the smallest message that was timed, 128 B"
    (one,) = found.missing
    assert one.name == "level node"
    assert "size = 8 devices" in one.reason


def test_large_messages_have_the_start_up_time_of_the_maker_of_the_device() -> None:
    text = log(ONE_NODE, 8, 1, 1.75).replace("Example Accelerator", "AMD Instinct MI300X")
    assert settings(IMPORTER.translate("a.log", text))["fabric.node.latency"] == "2.1 us"


@try_each(
    "name, rounds, share",
    [
        ("all_gather", 3, 4),
        ("reduce_scatter", 3, 4),
        ("alltoall", 3, 4),
        ("all_reduce", 6, 4),
        ("sendrecv", 1, 1),
    ],
)
def test_each_collective_has_its_messages(name: str, rounds: int, share: int) -> None:
    text = f"# Collective test starting: {name}_perf\n" + log([(2**22, 600.0)], 4, 1, 1.0)
    values = settings(IMPORTER.translate("a.log", text))
    assert points(values["fabric.node.bandwidth"]) == [
        (2**22 / share, pytest.approx(600e-6 / rounds))
    ]


ROWS = {
    "before 2.12": "  {n}  1024   float    {t}    1.22    {b}  0e+00    11.85    1.38    1.38  0e+00",
    "tags of MPI": "[1,0]<stdout>:  {n}  256  float  sum  -1  {t}  2.00  {b}  0  40.5  2.0  3.5  0",
    "no reduction": " {n}  2684  float  none  -1  {t}  412.23  {b}  0  20817  412.64  361.06  N/A",
    "time of day": "2024-01-01 10:00:00   {n}   16  bfloat16  sum  -1  {t}  1.00  {b}  0  37  1  2  0",
    "2.18": "  {n}  2048  float  sum  -1  {t}  1.23  {b}       0    30.33    0.27    0.27       0",
}  # fmt: skip


@try_each("dialect", ROWS)
def test_every_dialect_is_read(dialect: str) -> None:
    text = "# Collective test starting: all_reduce_perf\n" + ranks(2) + "NCCL version 2.14.3\n"
    for size, micro in ((2**20, 50.0), (2**21, 90.0)):
        text += ROWS[dialect].format(n=size, t=micro, b=1.0) + "\nlibrary: a line between\n"
    assert IMPORTER.recognizes("log.txt", text)
    values = settings(IMPORTER.translate("log.txt", text))
    assert points(values["fabric.node.bandwidth"]) == [
        (2**19, pytest.approx(25e-6)),
        (2**20, pytest.approx(45e-6)),
    ]


def json_log(operation: str = "all_reduce", **more: Any) -> str:
    results = [
        {
            "size": size, "count": size // 4, "type": "float", "redop": "sum", "root": "-1",
            "out_of_place": {"time": micro, "alg_bw": size / micro / 1e3, "bus_bw": 1.75 * size / micro / 1e3},
            "in_place": {"time": 1.0, "alg_bw": 1.0, "bus_bw": 1.0},
        }
        for size, micro in ONE_NODE
    ]  # fmt: skip
    devices = [
        {"rank": r, "hostname": "n0", "device": r, "device_info": "Example"} for r in range(8)
    ]
    args = [f"./{operation}_perf", "-g", "8"] if operation else []
    return json.dumps({"version": 3, "args": args, "devices": devices, "results": results, **more})


@pytest.mark.parametrize("operation", ["all_reduce", ""])
def test_json_is_read_and_has_the_ratio_of_its_bandwidths(operation: str) -> None:
    text = json_log(operation)
    assert IMPORTER.recognizes("out.json", text)
    found = settings(IMPORTER.translate("out.json", text))["fabric.node.bandwidth"]
    assert points(found) == [(2**20, pytest.approx(20e-6)), (2**23, pytest.approx(100e-6))]


def test_sizes_that_stand_twice_have_the_mean_of_their_times() -> None:
    text = log([(2**20, 80.0), (2**20, 120.0)], 8, 1, 1.75)
    found = settings(IMPORTER.translate("a.log", text))["fabric.node.bandwidth"]
    assert points(found) == [(2**17, pytest.approx(100e-6 / 14))]


@try_each(
    "text, message",
    [
        (log(ONE_NODE, 8, 1, 0.875), "matches `all_gather`, `reduce_scatter`, `all_to_all`"),
        (log(ONE_NODE, 2, 1, 1.0), "matches `all_reduce`, `broadcast`"),
        (
            log(ONE_NODE, 8, 1, 1.4),
            "the ratio of its bus and algorithm bandwidths matches no collective",
        ),
        (HEAD + rows(ONE_NODE, 1.75), "does not list the ranks"),
        (
            "# Collective test starting: broadcast_perf\n" + log(ONE_NODE, 8, 1, 1.0),
            "`broadcast` is sent in chunks",
        ),
        (log(ONE_NODE, 8, 1, 1.75) + "\n" + log(ONE_NODE, 8, 1, 1.75), "a second table of times"),
        ("nothing\n", "no timings"),
        ('{"results": 3, "out_of_place": 1}', "not the JSON that nccl-tests writes"),
        (json_log("", devices=[]), "does not list the ranks"),
        (log([(1024 * i, 10.0) for i in range(1, 1200)], 8, 1, 1.75), "1,199 sizes are more than"),
    ],
)
def test_what_a_log_leaves_open_is_an_error(text: str, message: str) -> None:
    found = problems(IMPORTER, text, "a.log")
    assert message in found[0][0]


def test_a_question_is_about_its_table_and_names_the_answer() -> None:
    text = log(ONE_NODE, 8, 1, 0.875)
    (one,) = IMPORTER.translate("a.log", text).problems
    assert text[one.start : one.end].strip() == rows(ONE_NODE, 0.875).strip()
    assert "# Collective test starting: NAME_perf" in one.help
    answer = "# Collective test starting: all_gather_perf\n" + text
    assert not IMPORTER.translate("a.log", answer).problems


@pytest.mark.slow
def test_the_curve_is_that_of_a_calibration(
    run_command: Callable[..., Any], tmp_path: Path
) -> None:
    """Calibration estimates the ring of its plugin; the importer counts its rounds."""
    pytest.importorskip("scipy")
    times = [(2**i, 30.0 + 2**i / 4e4) for i in range(16, 30, 2)]
    files = {"a.log": log(times, 16, 2, 1.875)}
    done = run_command("calibrate", "a.log", "--as", "curve", "--out", "site.par", files=files)
    assert done.code == 0, done.err
    found = settings(IMPORTER.translate("a.log", files["a.log"]))["fabric.network.bandwidth"]
    expected = points(re.sub(r"\s+", " ", (tmp_path / "site.par").read_text(encoding="utf-8")))
    assert len(expected) == len(times)
    for one, other in zip(points(found), expected, strict=True):
        assert one == pytest.approx(other, rel=1e-5)


def test_a_study_runs_on_a_measured_fabric(tmp_path: Path) -> None:
    (tmp_path / "node.log").write_text(log(ONE_NODE, 8, 1, 1.75), encoding="utf-8")
    (scenario,) = parcost.load_text(
        'use "node.log"\nuse catalog.devices.h100_sxm\nuse catalog.models.gpt2_small\n'
        "use catalog.precisions.bf16\ncluster { devices = 8 }\n"
        "training { sequence = 1024, global_batch = 8 sequences }\n",
        str(tmp_path / "job.par"),
    )
    assert scenario.evaluate().result.outcome is not None


def test_two_logs_are_a_fabric_of_two_levels(run_command: Callable[..., Any]) -> None:
    files = {"a.log": log(ONE_NODE, 8, 1, 1.75), "b.log": log(TWO_NODES, 16, 2, 1.875)}
    done = run_command("import", "a.log", "b.log", files=files)
    assert done.code == 0
    assert done.out.count("fabric measured {") == 1
    assert done.out.index("level node") < done.out.index("level network")


def test_a_log_of_a_gigabyte_is_refused(run_command: Callable[..., Any], tmp_path: Path) -> None:
    with (tmp_path / "big.log").open("wb") as file:
        file.truncate(2**30)
    done = run_command("import", "big.log", "--from", "nccl_tests")
    assert done.code == 2
    assert "big.log" in done.out + done.err


def test_wrong_elements_are_an_error() -> None:
    """A collective that gave wrong sums was not the one that the fabric carries."""
    text = log(ONE_NODE, 8, 1, 1.75)
    wrong = text.replace("      0 ", "      9 ", 1)
    assert wrong != text
    assert not IMPORTER.translate("node.log", text).problems
    (problem,) = IMPORTER.translate("node.log", wrong).problems
    assert problem.message == "9 elements are wrong at 8388608 B: the collective failed there"


@try_each(
    "tag",
    ["[0]", "[0] ", "0: ", "12: ", "[1,0]<stdout>:", "2026-01-05T10:00:00.123Z ", "worker-0: "],
)
def test_a_tag_of_a_launcher_changes_nothing(tag: str) -> None:
    text = log(ONE_NODE, 8, 1, 1.75)
    tagged = "".join(tag + line for line in text.splitlines(keepends=True))
    assert settings(IMPORTER.translate("a.log", tagged)) == settings(
        IMPORTER.translate("a.log", text)
    )


@try_each("column", [0, 5, 6, 7, 8])
def test_a_number_of_five_thousand_digits_is_an_error(column: int) -> None:
    words = rows(ONE_NODE[:1], 1.75).split()
    words[column] = "9" * 5000
    text = log(ONE_NODE, 8, 1, 1.75) + " ".join(words) + "\n"
    (problem,) = IMPORTER.translate("a.log", text).problems
    assert "5,000 digits" in problem.message


def test_a_rank_of_five_thousand_digits_is_no_rank() -> None:
    """The ratio of the bandwidths, 1.75, is that of an all-reduce of 8 ranks, and not of 7."""
    text = log(ONE_NODE, 8, 1, 1.75).replace("#  Rank  0", "#  Rank  " + "9" * 5000)
    (problem,) = IMPORTER.translate("a.log", text).problems
    assert problem.message.endswith("bus and algorithm bandwidths matches no collective")
