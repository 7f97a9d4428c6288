"""Tables of kernels, of the host and of collectives, with times worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import parcost
from parcost_apps.cli import main

pytest.importorskip("scipy")

pytestmark = pytest.mark.slow

Raw = dict[str, Any]


class CommandOutput(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def calibrate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[[Iterable[Raw], Any], CommandOutput]:
    def run(rows: Iterable[Raw], *arguments: object) -> CommandOutput:
        path = tmp_path / "table.jsonl"
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
        code = main(["calibrate", str(path), *map(str, arguments)])
        return CommandOutput(code, *capsys.readouterr())

    return run


Calibrate = Callable[..., CommandOutput]


def constants(said: CommandOutput) -> dict[str, float]:
    assert said.code == 0, said.err
    return {c["name"]: c["value"] for fit in json.loads(said.out)["fits"] for c in fit["constants"]}


def stream(elements: float, efficiency: float, **more: Any) -> Raw:
    """A copy of two bytes each way at a share of 2.04 TB/s, and 2 us of which a kernel starts."""
    seconds = 2 * 2 * elements / (2.04e12 * efficiency)
    return {
        "id": f"s{elements}", "device": "NVIDIA A100-SXM4-80GB", "kernel": "copy",
        "shape": f"{elements}", "dtype": "bfloat16", "time_us": 1e6 * seconds, "clock": "device",
        "elements": elements, "element": 2, "runs": [["kernel", 2]], **more,
    }  # fmt: skip


STREAMS = [stream(2e8 * i, 0.7) for i in range(1, 11)]


def test_the_rate_of_memory_is_that_of_copies(calibrate: Calibrate, tmp_path: Path) -> None:
    out = tmp_path / "site.par"
    found = constants(calibrate(STREAMS, "--format", "json", "--out", out))
    assert found["a100_sxm_80g.memory_efficiency"] == pytest.approx(0.70, rel=0.01)
    text = out.read_text()
    assert "device measured_a100_sxm_80g extends a100_sxm_80g" in text
    assert "@measured(" in text
    assert parcost.load_text(
        'use "site.par" as site\n'
        "use catalog.models.gpt2_small\nuse catalog.precisions.bf16\nuse catalog.fabrics.dgx_a100\n"
        "cluster { devices = 8, device = site.measured_a100_sxm_80g }\n"
        "training { sequence = 1024, global_batch = 8 sequences }\n",
        str(tmp_path / "spec.par"),
    )


def test_the_rate_of_products_goes_with_their_times(calibrate: Calibrate) -> None:
    """2 m n k FLOPs at a share of 312 TFLOPS; a shape that is not the best reaches less."""

    def rate(share: float) -> float:
        rows = [
            {
                "id": f"p{n}", "device": "a100_sxm_80g", "dtype": "bfloat16",
                "products": [[n, n, n, 1]], "time_us": 1e6 * 2 * n**3 / (312e12 * share),
            }
            for n in range(8192, 16385, 1024)
        ]  # fmt: skip
        return constants(calibrate(rows, "--format", "json"))["a100_sxm_80g.matmul_efficiency"]

    assert rate(0.66) / rate(0.55) == pytest.approx(1.2, rel=0.01)
    assert 0.55 < rate(0.55) < 0.62


def test_products_in_csv_are_those_in_json(
    calibrate: Calibrate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Times, TFLOPS and counts in columns give the constant that lines of JSON give."""
    sizes = range(8192, 16385, 1024)
    rows = [
        {
            "id": f"p{n}", "device": "a100_sxm_80g", "dtype": "bfloat16",
            "products": [[n, n, n, 1]], "time_us": 2 * n**3 / 200e6,
        }
        for n in sizes
    ]  # fmt: skip
    wanted = constants(calibrate(rows, "--format", "json"))
    path = tmp_path / "gemm.csv"
    for head, cells in (
        ("device,dtype,M,N,K,time_us", [f"{2 * n**3 / 200e6:.6f}" for n in sizes]),
        ("device,dtype,m,n,k,tflops", ["200" for _ in sizes]),
    ):
        pairs = zip(sizes, cells, strict=True)
        lines = [f"a100_sxm_80g,bfloat16,{n},{n},{n},{cell}" for n, cell in pairs]
        path.write_text("\n".join([head, *lines, ""]), encoding="utf-8")
        code = main(["calibrate", str(path), "--format", "json"])
        assert constants(CommandOutput(code, *capsys.readouterr())) == pytest.approx(wanted)


@pytest.mark.parametrize(
    "row, said",
    [
        ("a100_sxm_80g,bfloat16,8192,8192,x,200", "`time_us` is missing"),
        ("a100_sxm_80g,bfloat16,8192,8192,8192,0", "`time_us` is 0"),
        ("a100_sxm_80g,bfloat16", "`time_us` is missing"),
        ("a100_sxm_80g,bfloat16,-1,-1,8192,200", "`products` is not a list"),
        ("a100_sxm_80g,bfloat16,1e999,1,1,200", "`time_us` is missing"),
    ],
)
def test_a_bad_row_of_csv_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], row: str, said: str
) -> None:
    path = tmp_path / "gemm.csv"
    path.write_text(f"device,dtype,m,n,k,tflops\n{row}\n", encoding="utf-8")
    assert main(["calibrate", str(path)]) in (1, 2)
    err = capsys.readouterr().err
    assert "gemm.csv:2" in err
    assert said in err


def test_the_rate_of_attention_by_kernel_head_and_direction(calibrate: Calibrate) -> None:
    """Forward 4 b h s k d FLOPs at 55 % of 989 TFLOPS, backward 10 at 45 %; long sequences."""
    rows = [
        {
            "id": f"a{seq}{direction}", "device": "H100", "kernel": "flash3", "dtype": "bfloat16",
            "batch": 4, "heads": 16, "head_dim": 128, "head_dim_v": 128, "seq_q": seq,
            "seq_k": seq, "causal": False, "direction": direction,
            "time_us": 1e6 * flops * 4 * 16 * seq**2 * 128 / (989e12 * rate),
        }
        for direction, flops, rate in (("forward", 4, 0.55), ("backward", 10, 0.45))
        for seq in (2**15, 2**16, 2**17, 3 * 2**15, 5 * 2**14, 7 * 2**14)
    ]  # fmt: skip
    found = constants(calibrate(rows, "--format", "json"))
    assert found["h100_kernels.flash_3.d128.forward"] == pytest.approx(0.55, rel=0.03)
    assert found["h100_kernels.flash_3.d128.backward"] == pytest.approx(0.45, rel=0.03)


def test_the_host_issues_a_kernel_in_the_median_of_its_rows(calibrate: Calibrate) -> None:
    """Of layers with 12 kernels in 240, 252 and 264 us, one takes 21 us."""
    rows = [
        {"id": f"h{t}", "what": "llama layer issue", "mode": "eager", "count": 8, "kernels": 12,
         "time_us": t}
        for t in (240, 252, 264)
    ]  # fmt: skip
    said = calibrate(rows, "--framework", "megatron_core", "--format", "json")
    assert said.code == 0, said.err
    (host,) = json.loads(said.out)["host"]
    assert host["name"] == "megatron_core.issue"
    assert host["value"] == pytest.approx(21e-6)
    assert (host["low"], host["high"]) == (pytest.approx(20e-6), pytest.approx(22e-6))


def test_layers_of_the_kit_are_read_and_other_rows_counted(calibrate: Calibrate) -> None:
    """A count of no kernels is a flaw: it is never taken for one kernel."""
    rows = [
        {"id": f"h{t}", "what": "llama layer forward", "mode": "eager", "count": 8, "kernels": 12,
         "time_us": t}
        for t in (240, 252, 264)
    ]  # fmt: skip
    other = {"id": "o", "what": "layer_norm", "mode": "eager", "count": 1, "time_us": 9}
    none = {**rows[0], "id": "none", "kernels": 0}
    found = calibrate([*rows, other, none], "--format", "json")
    assert found.code == 1
    assert "`kernels` is 0, and must be above 0" in found.err
    document = json.loads(found.out)
    assert document["passed_over"] == ["1 rows of host: no constant is of `layer_norm`, eager"]
    assert [(one["rows"], one["value"]) for one in document["host"]] == [(3, pytest.approx(21e-6))]


def test_attention_without_a_mask_that_is_named_is_a_flaw(calibrate: Calibrate) -> None:
    row = {
        "id": "a", "device": "H100", "kernel": "flash3", "dtype": "bfloat16", "batch": 4,
        "heads": 16, "head_dim": 128, "seq_q": 2**15, "seq_k": 2**15, "direction": "forward",
        "time_us": 9e3,
    }  # fmt: skip
    assert "`causal` is missing" in calibrate([row]).err
    assert '`causal` is "no", neither true nor false' in calibrate([{**row, "causal": "no"}]).err


def test_a_graph_has_a_fixed_part(calibrate: Calibrate) -> None:
    """12 us and 1.5 us a kernel."""
    rows = [
        {"id": f"g{n}", "what": "chain of small kernels", "mode": "graph replay", "count": n,
         "time_us": 12 + 1.5 * n}
        for n in (1, 10, 50, 200, 1000)
    ]  # fmt: skip
    (host,) = json.loads(calibrate(rows, "--format", "json").out)["host"]
    assert host["name"] == "generic.graph_issue"
    assert host["value"] == pytest.approx(12e-6, rel=1e-6)


def test_a_table_of_collectives_is_a_link(calibrate: Calibrate) -> None:
    """An all-reduce over 8 ranks: 14 messages of an eighth, 3 us and 250 GB/s each."""
    rows = [
        {"id": f"c{n}", "collective": "all_reduce", "message_bytes": n, "ranks": 8, "nodes": 1,
         "gpu": "X", "time_us": 1e6 * 14 * (3e-6 + n / 8 / 250e9)}
        for n in (2**p for p in range(14, 32, 2))
    ]  # fmt: skip
    (link,) = json.loads(calibrate(rows, "--format", "json").out)["links"]
    assert link["latency_seconds"] == pytest.approx(3e-6)
    assert link["bandwidth_bytes_per_second"] == pytest.approx(250e9)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({**stream(3e9, 0.7), "time_us": ...}, "`time_us` is missing"),
        ({**stream(3e9, 0.7), "time_us": "fast"}, '`time_us` is "fast", not a number'),
        ({**stream(3e9, 0.7), "time_us": 0}, "must be above 0"),
        ({**stream(3e9, 0.7), "device": "Cray-1"}, "the device `Cray-1` is not one of"),
        ({**stream(3e9, 0.7), "runs": [["norms", "slow", "forward"]]}, "is not an operator"),
        ({**stream(3e9, 0.7), "runs": [["kernel", "two"]]}, "is not an operator"),
        ({**stream(3e9, 0.7), "elements": ...}, "`elements` is missing"),
        ({**stream(3e9, 0.7), "id": "s200000000.0"}, "is also used by"),
    ],
)
def test_a_bad_row_is_named_and_the_others_are_fitted(
    calibrate: Calibrate, row: Raw, said: str
) -> None:
    bad = {name: value for name, value in row.items() if value is not ...}
    found = calibrate([*STREAMS, bad], "--format", "json")
    assert found.code == 1
    assert "table.jsonl:11" in found.err
    assert said in found.err
    (fit,) = json.loads(found.out)["fits"]
    assert fit["constants"][0]["value"] == pytest.approx(0.7, rel=0.01)


def test_a_table_without_times_fits_nothing(calibrate: Calibrate) -> None:
    rows = [{n: v for n, v in row.items() if n != "time_us"} for row in STREAMS]
    found = calibrate(rows)
    assert found.code == 1
    assert found.err.count("`time_us` is missing") == len(rows)
    assert "error[nothing-fitted]" in found.err


def test_an_unknown_framework_is_named_with_the_nearest(calibrate: Calibrate) -> None:
    row = {"id": "h", "what": "issue", "mode": "eager", "count": 1, "time_us": 9}
    found = calibrate([row], "--framework", "megatron_cor")
    assert found.code == 2
    assert "did you mean `megatron_core`?" in " ".join(found.err.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--device", "h100_sxn"), "did you mean `h100_sxm`?"),
        (("--framework", "megatron_cor"), "did you mean `megatron_core`?"),
        (("--out", "nowhere/found.par"), "there is no folder nowhere"),
    ],
)
def test_names_are_looked_up_before_any_row(
    calibrate: Calibrate, arguments: tuple[str, str], message: str
) -> None:
    found = calibrate(STREAMS, *arguments)
    assert (found.code, found.out) == (2, "")
    assert message in " ".join(found.err.split())


def test_a_job_of_one_size_does_not_stop_the_others(calibrate: Calibrate) -> None:
    rows = [
        {"collective": "all_reduce", "message_bytes": n, "ranks": ranks, "nodes": 1,
         "time_us": 1e6 * 2 * (ranks - 1) * (3e-6 + n / ranks / 250e9)}
        for ranks, n in ((8, 2**20), (8, 2**24), (8, 2**28), (4, 2**20))
    ]  # fmt: skip
    document = json.loads(calibrate(rows, "--format", "json").out)
    assert document["links"][0]["bandwidth_bytes_per_second"] == pytest.approx(250e9)
    assert "over 4: a start-up time and a bandwidth need timings of two" in document["refused"][0]


def test_logs_of_several_devices_are_refused(calibrate: Calibrate) -> None:
    rows = [
        {"collective": "all_reduce", "message_bytes": n, "ranks": 8, "nodes": 1, "gpu": gpu,
         "time_us": 1e6 * 14 * (3e-6 + n / 8 / 250e9)}
        for gpu in ("V100", "A100") for n in (2**20, 2**24, 2**28)
    ]  # fmt: skip
    found = calibrate(rows)
    assert found.code == 2
    assert "the logs are from V100, A100" in found.err


def test_products_of_a_type_that_a_named_device_lacks_are_passed_over(calibrate: Calibrate) -> None:
    """A V100 multiplies nothing in bf16, however often the table says so."""
    row = {
        "id": "p", "device": "A100-SXM", "kernel": "gemm", "dtype": "bf16", "time_us": 900.0,
        "products": [[8192, 8192, 8192, 1]],
    }  # fmt: skip
    said = calibrate([row], "--device", "v100_sxm2_32g")
    assert said.code == 1
    assert "multiplies nothing in bf16" in said.err + said.out
