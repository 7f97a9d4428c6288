"""`parcost calibrate LOG`: logs in every dialect, lines that come back, blocks that price as measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

import parcost
from parcost_measured.calibration.command import command
from parcost_measured.calibration.least_squares import fit
from parcost_plugins.vocabulary import collective_timings as tables

from ..rows import try_each

SIZES = [8.0 * 4**i for i in range(14)]  # to 0.5 GB


def ring(n: float, ranks: int, alpha: float, bandwidth: float) -> float:
    """2 (P - 1) messages of n / P, worked out apart from the product."""
    return 2 * (ranks - 1) * (alpha + n / ranks / bandwidth)


def log(ranks: int, nodes: int, alpha: float, bandwidth: float, *, header: bool = True) -> str:
    """Return a log in the dialect of 2.12 to 2.17."""
    lines = ["# nThread 1 nGpus 1 minBytes 8 maxBytes 536870912 step: 4(factor)", "#"]
    if header:
        lines += [
            f"#  Rank {r:2d} Group  0 Pid {40 + r} on worker-{r * nodes // ranks} device "
            f"{r % (ranks // nodes)} [0x0f] Example Accelerator"
            for r in range(ranks)
        ]
    lines += [
        "#       size         count      type   redop    root     time   algbw   busbw #wrong"
    ]
    for n in SIZES:
        micro = ring(n, ranks, alpha, bandwidth) * 1e6
        algbw = n / micro / 1e3
        busbw = algbw * 2 * (ranks - 1) / ranks
        row = f"{n:12.0f} {n / 4:12.0f}     float     sum      -1 {micro:8.5f} {algbw:.2f} {busbw:.2f}"
        lines.append(f"{row}      0 {micro:8.5f} {algbw:.2f} {busbw:.2f}    N/A")
    return "\n".join([*lines, "# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 100.0"])


def run(text: str, *arguments: str) -> Result:
    return CliRunner().invoke(command, ["-", *arguments], input=text, standalone_mode=True)


@pytest.mark.slow
def test_a_line_comes_back_from_a_log_on_one_node() -> None:
    done = run(log(8, 1, 3e-6, 450e9), "--operation", "all_reduce")
    assert done.exit_code == 0, done.output
    assert "bandwidth = 450 GB/s per_direction" in done.stdout
    assert "latency   = 3 us" in done.stdout
    assert "size      = 8 devices" in done.stdout


def test_the_algorithm_bandwidth_is_printed_beside_the_link() -> None:
    """Over 8 ranks n / T of a ring tends to B / (2 x 7 / 8) = 257 of 450 GB/s."""
    timings = "\n".join(f"{n:.0f}, {ring(n, 8, 0.0, 450e9):.9e} s" for n in SIZES)
    done = run(timings, "--operation", "all_reduce", "--ranks", "8")
    assert "bandwidth of a rank (1 / beta) 450 GB/s" in done.stdout
    assert "algorithm bandwidth            257.1 GB/s" in done.stdout


@pytest.mark.slow
def test_ports_of_a_node_share_what_a_ring_over_nodes_achieves() -> None:
    done = run(log(16, 2, 10e-6, 400e9), "--operation", "all_reduce")
    assert "level network" in done.stdout
    assert "bandwidth = 50 GB/s per_direction" in done.stdout
    assert "bandwidth = 100 GB/s" in run(log(16, 2, 1e-5, 4e11), "--ports", "4").stdout


def test_the_block_prices_the_collective_as_it_was_measured(tmp_path: Path) -> None:
    """With a curve every point comes back, whatever its shape."""
    slow = [(n, 50e-6 + n / 3e9 + (n / 2e9 if n > 1e6 else 0.0)) for n in SIZES]
    text = "size_bytes,time_us\n" + "\n".join(f"{n:.0f},{t * 1e6:.6f}" for n, t in slow)
    out = tmp_path / "site.par"
    done = run(
        text, "--operation", "all_reduce", "--ranks", "4", "--as", "curve", "--out", str(out)
    )
    assert done.exit_code == 0, done.output
    (tmp_path / "spec.par").write_text(
        'use "site.par" as site\n'
        "use catalog.devices.h100_sxm\nuse catalog.models.gpt2_small\nuse catalog.precisions.bf16\n"
        "cluster { devices = 4, fabric = site.measured }\n"
        "training { sequence = 1024, global_batch = 4 sequences }\n"
    )
    (scenario,) = parcost.load(tmp_path / "spec.par")
    study = scenario.studies()[0]
    for n, seconds in slow:
        assert study.collective("all_reduce", n, "dp", "ring").seconds == pytest.approx(
            seconds, rel=1e-5
        )


@pytest.mark.slow
def test_the_written_block_is_canonical(tmp_path: Path) -> None:
    from parcost.language.format import format_text

    out = tmp_path / "site.par"
    done = run(
        log(8, 1, 3e-6, 450e9), "--operation", "all_reduce", "--as", "curve", "--out", str(out)
    )
    assert done.exit_code == 0, done.output
    assert "fabric" not in done.stdout
    assert format_text(out.read_text()) == out.read_text()


@pytest.mark.slow
def test_logs_of_both_levels_make_a_whole_fabric(tmp_path: Path) -> None:
    for name, nodes, bandwidth in (("in.log", 1, 250e9), ("across.log", 2, 160e9)):
        text = "# Collective test starting: all_reduce_perf\n" + log(16, nodes, 5e-6, bandwidth)
        (tmp_path / name).write_text(text)
    paths = [str(tmp_path / name) for name in ("in.log", "across.log")]
    done = CliRunner().invoke(command, paths)
    assert done.exit_code == 0, done.output
    assert "size      = 16 devices" in done.stdout
    assert "bandwidth = 250 GB/s per_direction" in done.stdout
    assert "bandwidth = 20 GB/s per_direction" in done.stdout  # 160 over eight ports
    assert "Add the levels" not in done.stdout


@pytest.mark.slow
def test_logs_that_contradict_each_other_widen_the_interval(tmp_path: Path) -> None:
    for name, bandwidth in (("day.log", 200e9), ("night.log", 300e9)):
        text = "# Collective test starting: all_reduce_perf\n" + log(8, 1, 5e-6, bandwidth)
        (tmp_path / name).write_text(text)
    paths = [str(tmp_path / name) for name in ("day.log", "night.log")]
    done = CliRunner().invoke(command, paths)
    assert "warning[contradictory-logs]" in done.stderr
    assert "200 GB/s" in done.stderr
    assert "300 GB/s" in done.stderr
    assert "90 % interval 200 to 300 GB/s" in done.stdout


def test_an_interval_holds_what_timings_with_noise_were_made_from() -> None:
    """Of 100 fits to timings that are off by 3 % the interval holds the truth in about 90."""
    import numpy as np

    rng = np.random.default_rng(5)
    held = 0
    for _ in range(100):
        seconds = [(2e-6 + n / 1e11) * float(np.exp(0.03 * rng.normal())) for n in SIZES]
        line = fit(SIZES, seconds, [1.0] * len(SIZES), SIZES)
        held += line.bandwidth_within[0] <= 1e11 <= line.bandwidth_within[1]
    assert 80 <= held <= 98


@pytest.mark.slow
@given(
    alpha=st.floats(1e-7, 1e-4),
    bandwidth=st.floats(1e9, 1e12),
    sizes=st.lists(st.integers(0, 33), min_size=2, max_size=20, unique=True),
)
def test_exact_timings_give_the_line_back(alpha: float, bandwidth: float, sizes: list[int]) -> None:
    n = [float(2**i) for i in sizes]
    found = fit(n, [alpha + x / bandwidth for x in n], [1.0] * len(n), n)
    for x in n:
        assert found.seconds(1.0, x) == pytest.approx(alpha + x / bandwidth, rel=1e-6)
    assert found.largest_error < 1e-6


def test_no_parameter_is_negative() -> None:
    """The best line through a knee that starts late has a negative start-up time."""
    found = fit([1.0, 2.0], [1.0, 3.0], [1.0, 1.0], [1.0, 2.0])
    assert found.latency == 0.0
    assert found.bandwidth == pytest.approx((1 + (2 / 3) ** 2) / (1 + 2 / 3))


@try_each(
    "line, size, micro",
    [
        (
            "  32768  8192   float    13.39    1.22    1.22  0e+00    11.85    1.38    1.38  0e+00",
            32768,
            13.39,
        ),
        (
            "[1,0]<stdout>:  1024  256  float  sum  -1  41.97  0.02  0.05  0  40.56  0.03  0.05  0",
            1024,
            41.97,
        ),
        (
            " 8589934592  268435456  float  none  -1  20837  412.23  360.71  0  20817  412.64  361.06  N/A",
            8589934592,
            20837,
        ),
        (
            "2024-01-01 10:00:00   64   16  bfloat16  sum  -1  39.25  0.00  0.00  0  37.05  0.00  0.00  0",
            64,
            39.25,
        ),
    ],
)
def test_every_dialect_of_a_row_is_read(line: str, size: float, micro: float) -> None:
    (found,) = tables.read(line)
    assert found.sizes == [size]
    assert found.seconds == [pytest.approx(micro * 1e-6)]


def test_a_banner_between_rows_is_passed_over() -> None:
    lines = log(8, 1, 1e-6, 1e11).splitlines()
    lines.insert(14, "NCCL version 2.14.3+cuda11.7")
    (found,) = tables.read("\n".join(lines))
    assert len(found.sizes) == len(SIZES)
    assert (found.ranks, found.nodes, found.device) == (8, 1, "Example Accelerator")


def test_the_newer_header_says_which_collective_it_was() -> None:
    (found,) = tables.read("# Collective test starting: alltoall_perf\n" + log(2, 2, 1e-6, 1e10))
    assert found.operation == "all_to_all"


@pytest.mark.slow
def test_json_is_read() -> None:
    rows = [{"size": n, "out_of_place": {"time": ring(n, 2, 6e-6, 1e11) * 1e6}} for n in SIZES]
    devices = [{"rank": r, "hostname": "n0", "device_info": "Example"} for r in range(2)]
    text = json.dumps({"args": ["./all_reduce_perf"], "devices": devices, "results": rows})
    done = run(text)
    assert "bandwidth = 100 GB/s per_direction" in done.stdout
    assert "latency   = 6 us" in done.stdout


def test_the_ratio_of_the_bandwidths_tells_the_collective() -> None:
    assert tables.guess(tables.Timings(sizes=[1], seconds=[1], factor=1.875), 16) == ["all_reduce"]
    may = tables.guess(tables.Timings(sizes=[1], seconds=[1], factor=0.875), 8)
    assert may == ["all_gather", "reduce_scatter", "all_to_all"]


@try_each(
    "text, arguments, said",
    [
        ("nothing here\n", (), "no timings"),
        ("", (), "no timings"),
        ('{"results": 3}', (), "not the JSON that nccl-tests writes"),
        (log(8, 1, 1e-6, 1e11, header=False), (), "add --ranks"),
        (log(2, 1, 1e-6, 1e11), (), "its bandwidths fit all_reduce, broadcast; add --operation"),
        (log(8, 1, 1e-6, 1e11), ("--algorithm", "rings"), "is not provided by a plugin"),
        (log(8, 1, 1e-6, 1e11), ("--operation", "all_to_all", "--algorithm", "ring"), "pairwise"),
        (log(8, 1, 1e-6, 1e11), ("--nodes", "3"), "are not divisible by 3 nodes"),
        (log(8, 1, 1e-6, 1e11) + "\n" + log(8, 1, 1e-6, 1e11), (), "choose one with --table 1"),
        (log(8, 1, 1e-6, 1e11), ("--table", "2"), "no table 2"),
        ("8, 3 us\n", ("--operation", "all_reduce", "--ranks", "4"), "two sizes at least"),
        ("8, 3 us\n8 MB, 1 us\n", ("--operation", "all_reduce", "--ranks", "4"), "no bandwidth"),
    ],
)
def test_an_invalid_log_is_an_error(text: str, arguments: tuple[str, ...], said: str) -> None:
    done = run(text, *arguments)
    assert done.exit_code == 2
    assert said in done.stderr
    assert not done.stdout


def test_a_file_that_exists_is_not_written_over(tmp_path: Path) -> None:
    out = tmp_path / "site.par"
    out.write_text("mine")
    done = run(log(8, 1, 1e-6, 1e11), "--operation", "all_reduce", "--out", str(out))
    assert done.exit_code == 2
    assert "exists already" in done.stderr
    assert out.read_text() == "mine"


@try_each("name", ["allreduce", "AllReduce", "all-reduce", "all_redcue"])
def test_an_operation_that_is_misspelt_is_named(name: str) -> None:
    done = run(log(8, 1, 3e-6, 200e9), "--operation", name)
    assert done.exit_code == 2
    assert "did you mean `all_reduce`?" in done.output


def test_the_help_lists_the_operations() -> None:
    words = " ".join(run("", "--help").output.split())
    assert "all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all" in words


@pytest.mark.parametrize(
    "text",
    [
        "1 MiB, -85.6 us\n2 MiB, 170 us\n",
        "# size count type redop root time algbw busbw\n 1048576 262144 float sum -1 -85.6 1.0 1.7\n",
        '{"results": [{"size": 1048576, "out_of_place": {"time": -85.6}}]}',
    ],
)
def test_a_negative_time_is_an_error(text: str) -> None:
    with pytest.raises(tables.UnreadableError, match=r"a time is negative: -85\.6 us at 1\.048"):
        tables.read(text)


@pytest.mark.parametrize(
    ("algorithm", "needed"), [("nvls", "in_network = on"), ("nccl", "tuning"), ("torus", "kind")]
)
def test_inputs_missing_from_the_log_are_an_error(
    algorithm: str, needed: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Times without rounds and bytes were handed to LAPACK, which wrote its own complaint."""
    done = run(log(8, 1, 3e-6, 450e9), "--operation", "all_reduce", "--algorithm", algorithm)
    assert done.exit_code == 2
    assert f"`{algorithm}` does not support all_reduce over 8 ranks" in done.output
    assert needed in done.output
    assert "SVD" not in done.output
    written = capfd.readouterr()
    assert "DLASCL" not in written.out + written.err


def test_two_timings_say_nothing_of_the_error() -> None:
    """Any two points lie on a line: its error is not known, and not 0.0 %."""
    done = run("size_B time_us\n1000 10\n1000000 20\n", "--operation", "all_reduce", "--ranks", "8")
    assert done.exit_code == 0, done.output
    assert "0.0%" not in done.output
    assert done.output.count("two sizes") == 2


@pytest.mark.slow
def test_the_device_of_a_log_without_one_is_an_option() -> None:
    text = "size_B time_us\n" + "".join(
        f"{2**i} {3 + 2**i * 1.75 / 478.6e3}\n" for i in (20, 25, 30)
    )
    options = ("--operation", "all_reduce", "--ranks", "8")
    assert "fit-above-line-rate" not in run(text, *options).stderr
    assert "450 GB/s" in run(text, *options, "--device", "h100_sxm").stderr


@pytest.mark.slow
@pytest.mark.parametrize(("bandwidth", "warned"), [(478.6e9, True), (369e9, False)])
def test_a_fit_above_the_line_rate_of_its_device_is_a_warning(
    bandwidth: float, warned: bool
) -> None:
    """NVLink 4 of an H100 has eighteen links of 25 GB/s in each direction."""
    text = log(8, 1, 3e-6, bandwidth).replace("Example Accelerator", "NVIDIA H100 80GB HBM3")
    done = run(text, "--operation", "all_reduce")
    assert done.exit_code == 0, done.output
    assert ("450 GB/s" in done.stderr) == warned
    assert ("fit-above-line-rate" in done.stderr) == warned
