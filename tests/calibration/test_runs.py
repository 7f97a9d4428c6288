"""Calibration from runs whose truth is known: a step evaluated with another value of a constant."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import parcost
from parcost_apps.cli import main
from parcost_measured.validation.records import read
from parcost_measured.validation.rows import RunRow, _rename_keys
from parcost_measured.validation.study import write

pytest.importorskip("scipy")

pytestmark = pytest.mark.slow

Raw = dict[str, Any]

#: GPT of 8 layers on a node of A100 with Megatron-LM of 2021, which has no fitted constant.
BASE: Raw = {
    "id": "r",
    "source": "Megatron-LM SC21 (Narayanan et al. 2021)",
    "source_key": "one",
    "year": 2021,
    "model": {
        "name": "GPT", "layers": 8, "hidden": 4096, "heads": 32, "kv_heads": 32, "ffn": 16384,
        "vocab": 51200, "seq": 2048, "gated": False, "tied": True, "pos_emb": 2048,
    },
    "hardware": {"gpu": "A100-80GB-SXM", "gpus": 8, "gpus_per_node": 8},
    "parallel": {"tp": 8, "pp": 1, "dp": 1, "zero_stage_or_fsdp": "none"},
    "batch": {"micro": 2, "global": 16},
    "precision": "fp16",
    "precision_class": "fp16",
    "recompute": "full",
    "measured": {"step_time_s": 1.0},
}  # fmt: skip
#: tp, pp, dp, micro, global, width
SHAPES = [
    (8, 1, 1, 2, 16, 4096), (4, 2, 1, 2, 16, 4096), (2, 2, 2, 2, 32, 4096),
    (4, 1, 2, 4, 32, 4096), (8, 1, 1, 4, 32, 6144), (2, 4, 1, 2, 16, 6144),
    (4, 2, 1, 4, 32, 6144), (8, 1, 1, 2, 16, 8192), (4, 2, 1, 2, 16, 8192),
    (8, 1, 1, 4, 16, 8192),
]  # fmt: skip


def seconds(raw: Raw, **values: str) -> float:
    """Return the step time of a row with other values of constants."""
    return _seconds(json.dumps(raw | {"id": "r"}), tuple(values.items()))


@cache
def _seconds(text: str, values: tuple[tuple[str, str], ...]) -> float:
    row: RunRow = read(RunRow, _rename_keys(json.loads(text))).made
    overrides = {name.replace("__", "."): value for name, value in values}
    (scenario,) = parcost.load_text(write(row).text, overrides=overrides)
    return float(scenario.evaluate().result.figure("step_time"))


def rows(shapes: Iterable[tuple[int, ...]] = SHAPES, **values: str) -> list[Raw]:
    found = []
    for i, (tp, pp, dp, micro, batch, width) in enumerate(shapes):
        raw = copy.deepcopy(BASE)
        raw["id"], raw["source_key"] = f"r{i}", ("one", "two")[i % 2]
        raw["model"] |= {"name": f"GPT {width} {i % 4}", "hidden": width, "ffn": 4 * width}
        raw["parallel"] |= {"tp": tp, "pp": pp, "dp": dp}
        raw["batch"] = {"micro": micro, "global": batch}
        raw["measured"] = {"step_time_s": seconds(raw, **values)}
        found.append(raw)
    return found


class CommandOutput(NamedTuple):
    code: int
    out: str
    err: str


Calibrate = Callable[..., CommandOutput]


@pytest.fixture
def calibrate(capsys: pytest.CaptureFixture[str]) -> Calibrate:
    def run(*arguments: object) -> CommandOutput:
        code = main(["calibrate", *map(str, arguments)])
        return CommandOutput(code, *capsys.readouterr())

    return run


@pytest.fixture
def file(tmp_path: Path) -> Callable[[Iterable[Raw | str]], Path]:
    def save(found: Iterable[Raw | str], name: str = "runs.jsonl") -> Path:
        path = tmp_path / name
        lines = [one if isinstance(one, str) else json.dumps(one) for one in found]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return save


File = Callable[..., Path]


def test_a_constant_comes_back_and_its_file_predicts_the_rows(
    calibrate: Calibrate, file: File, tmp_path: Path
) -> None:
    """Rows were made at 80 %; power leaves 336 - 15.1 W of 1.55 J/TFLOP x 271 TFLOPS, 91.4 %."""
    found = rows(cluster__device__sustained="80 %")
    out = tmp_path / "site.par"
    said = calibrate(file(found), "--format", "json", "--out", out, "--leave", "models")
    assert said.code == 0, said.err
    document = json.loads(said.out)
    (fit,) = document["fits"]
    (constant,) = fit["constants"]
    assert constant["name"] == "a100_sxm_40g.sustained"
    assert constant["before"] == pytest.approx((320.9 / 420.2) ** (1 / 3), rel=1e-3)
    assert constant["value"] == pytest.approx(0.80, rel=2e-3)
    assert constant["interval"][0] <= 0.801
    assert constant["bounds"] == pytest.approx([0.75, 1.0])
    assert fit["calibrated"]["mape"] < 0.2
    assert fit["uncalibrated"]["mape"] > 2.0
    (left,) = fit["left_out"]
    assert (left["leave"], left["n"]) == ("models", len(found))
    assert left["mape"] < 0.5

    text = out.read_text()
    assert "device measured_a100_sxm_80g extends a100_sxm_80g" in text
    assert "@fitted(" in text
    assert "bounds 75 % to 100 %" in text
    study = write(read(RunRow, _rename_keys(found[0])).made).text
    (tmp_path / "spec.par").write_text(
        'use "site.par" as site\n'
        + study.replace("cluster {", "cluster {\n  device = site.measured_a100_sxm_80g")
    )
    (scenario,) = parcost.load(tmp_path / "spec.par")
    step = float(scenario.evaluate().result.figure("step_time"))
    assert step == pytest.approx(found[0]["measured"]["step_time_s"], rel=3e-3)


def test_a_named_constant_of_the_framework_and_one_of_the_device(
    calibrate: Calibrate, file: File
) -> None:
    """Small layers wait for the host, large ones for the device."""
    small = [(8, 1, 1, 1, b, 1024) for b in (8, 16, 32)]
    small += [(4, 2, 1, 1, b, 1024) for b in (8, 16, 32)] + [(2, 2, 2, 1, b, 1024) for b in (8, 16)]
    found = rows(
        [*SHAPES, *small], cluster__device__sustained="80 %", training__framework__issue="60 us"
    )
    said = calibrate(file(found), "--constants", "sustained,issue", "--format", "json")
    assert said.code == 0, said.err
    values = {c["name"]: c["value"] for c in json.loads(said.out)["fits"][0]["constants"]}
    assert values["a100_sxm_40g.sustained"] == pytest.approx(0.80, rel=0.02)
    assert values["megatron_lm_2021.issue"] == pytest.approx(60e-6, rel=0.05)


def test_three_rows_are_refused(calibrate: Calibrate, file: File, tmp_path: Path) -> None:
    out = tmp_path / "site.par"
    said = calibrate(file(rows(SHAPES[:3])), "--out", out)
    assert said.code == 1
    assert "configurations that depend on it: 3" in " ".join(said.out.split())
    assert "error[nothing-fitted]" in said.err
    assert not out.exists()


def test_rows_of_one_layout_are_refused(calibrate: Calibrate, file: File) -> None:
    alike = [(8, 1, 1, 2, b, 4096) for b in range(16, 48, 4)]
    said = calibrate(file(rows(alike)))
    assert said.code == 1
    assert "all rows have one layout" in " ".join(said.out.split())


def test_a_constant_that_no_row_feels_is_refused_with_its_sensitivity(
    calibrate: Calibrate, file: File
) -> None:
    """Products in fp16 do not depend on the rate of fp8."""
    found = file(rows())
    said = calibrate(found, "--constants", "fp8_matmul_efficiency")
    assert said.code == 1
    assert "error[not-carried]" in said.err
    assert "a change of 1 % changes the step time by at most 0.000 %" in said.err


def test_constants_that_rows_cannot_tell_apart_are_refused(
    calibrate: Calibrate, file: File
) -> None:
    """A product takes the product of the two."""
    said = calibrate(file(rows()), "--constants", "sustained,matmul_efficiency")
    assert said.code == 1
    assert "cannot tell it from" in said.err


def test_rows_that_contradict_each_other_are_named_and_widen(
    calibrate: Calibrate, file: File
) -> None:
    found = rows(cluster__device__sustained="85 %")
    again = [copy.deepcopy(raw) | {"id": f"again-{raw['id']}"} for raw in found]
    for raw in again:
        raw["measured"] = {"step_time_s": 1.6 * raw["measured"]["step_time_s"]}
    wide = json.loads(calibrate(file([*found, *again]), "--format", "json").out)
    narrow = json.loads(calibrate(file(found), "--format", "json").out)

    def width(document: Any) -> float:
        constants = document["fits"][0]["constants"]
        low, high = constants[0]["interval"] if constants else (0.75, 1.0)
        return float(high / low)

    assert width(wide) > 1.05 > width(narrow)
    assert "took 60 % longer" in wide["fits"][0]["notes"][0]


def test_a_fit_that_ends_on_its_bound_is_reported(calibrate: Calibrate, file: File) -> None:
    """At 60 % the rows say less than the least of 75 %."""
    said = calibrate(file(rows(cluster__device__sustained="60 %")))
    assert "a100_sxm_40g.sustained is at its lower bound" in " ".join(said.out.split())


def test_narrower_bounds_are_kept(calibrate: Calibrate, file: File) -> None:
    found = file(rows(cluster__device__sustained="80 %"))
    said = calibrate(found, "--bounds", "sustained=85..95%", "--format", "json")
    (constant,) = json.loads(said.out)["fits"][0]["constants"]
    assert constant["value"] == pytest.approx(0.85, rel=1e-3)
    assert constant["ends_on"] == "lower"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--constants", "sustaned"), "did you mean `sustained`?"),
        (("--constants", "h100_sxm.sustained"), "no measurement concerns it"),
        (("--bounds", "sustained=50..95%"), "75 % and 100 %"),
        (("--bounds", "sustained=95..80%"), "a low and a higher bound of a100_sxm_40g.sustained"),
        (("--bounds", "sustained=80..95us"), "is in %"),
        (("--bounds", "sustained"), "NAME=LOW..HIGH"),
        (("--bounds", "issue=10..60us"), "no such constant is fitted"),
        (("--name", "a b"), "is not a label"),
        (("--folds", "1"), "--folds"),
    ],
)
def test_a_wrong_command_line_is_a_usage_error(
    calibrate: Calibrate, file: File, arguments: tuple[str, ...], said: str
) -> None:
    found = calibrate(file(rows(SHAPES[:1])), *arguments)
    assert found.code == 2
    assert said in " ".join(found.err.split())


def test_a_constant_outside_of_its_bounds_is_named(
    calibrate: Calibrate, file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    from parcost_measured.calibration import constants

    table = [
        k
        for k in constants.kinds(parcost.engine.session._installed())
        if k.attribute == "sustained"
    ]
    from attrs import evolve

    monkeypatch.setattr(
        constants, "kinds", lambda _: [evolve(k, low=93.0, high=95.0) for k in table]
    )
    said = calibrate(file(rows(SHAPES[:1])))
    assert said.code == 2
    assert "is 91.4 %, outside its bounds, 93 % to 95 %" in " ".join(said.err.split())


def bad(**changes: Any) -> Raw:
    raw = copy.deepcopy(BASE)
    for path, value in changes.items():
        *steps, last = path.split("__")
        place = raw
        for step in steps:
            place = place[step]
        if value is ...:
            del place[last]
        else:
            place[last] = value
    return raw


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (bad(model__layers="eight"), "`model.layers` is `eight`, not a whole number"),
        (bad(measured=...), "`measured` is missing"),
        (bad(id="r0"), "the id `r0` is also the id of"),
        (bad(id="x", parallel__tp=4), "= 4 ranks, but there are 8 devices"),
        (bad(id="x", measured__mfu=1.2), "no device exceeds its peak"),
        (bad(id="x", measured__step_time_s=1e-3), "is an MFU of"),
        ("{", "not JSON"),
        ("[1]", "not an object"),
    ],
)
def test_a_bad_row_is_named_by_line_and_the_others_are_fitted(
    calibrate: Calibrate, file: File, row: Raw | str, said: str
) -> None:
    path = file([*rows(cluster__device__sustained="80 %"), row])
    found = calibrate(path, "--format", "json")
    assert found.code == 1
    assert f"runs.jsonl:{len(SHAPES) + 1}" in found.err
    assert said in found.err
    assert json.loads(found.out)["fits"][0]["constants"][0]["value"] == pytest.approx(0.8, rel=2e-3)


def test_a_device_that_is_unknown_is_listed(calibrate: Calibrate, file: File) -> None:
    path = file([*rows(), bad(id="x", hardware__gpu="Cray-1")])
    found = calibrate(path, "--format", "json")
    assert "Cray-1" in json.loads(found.out)["unmodelled"][0]["reason"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.jsonl", b"", "the file is empty"),
        ("empty.log", b"", "no timings"),
        ("binary.jsonl", b"\xff\xfe\x00\x01", "not UTF-8"),
        ("binary.log", b"\xff\xfe\x00\x01", "not UTF-8"),
        ("nothing.log", b"# size count type time algbw busbw\n", "no timings"),
        ("other.jsonl", b'{"a": 1}\n', "no known table has rows of `a`"),
        ("missing.jsonl", None, "missing"),
    ],
)
def test_a_file_without_measurements_is_a_diagnostic(
    calibrate: Calibrate, tmp_path: Path, name: str, content: bytes | None, said: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    found = calibrate(path)
    assert found.code == 2
    assert said in " ".join(found.err.split())
    assert "Traceback" not in found.err


def test_a_directory_stands_for_its_files(calibrate: Calibrate, file: File, tmp_path: Path) -> None:
    path = file(rows(cluster__device__sustained="80 %"))
    (tmp_path / "left_out.jsonl").write_text('{"id": "x", "table": "host", "reason": "none"}\n')
    found = calibrate(path.parent, "--format", "json")
    assert found.code == 0, found.err
    assert "warning[passed-over]" in found.err
    (tmp_path / "none").mkdir()
    assert calibrate(tmp_path / "none").code == 2


def test_a_file_that_is_too_large_is_not_read(calibrate: Calibrate, tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    with path.open("wb") as sparse:
        sparse.truncate(300 * 2**20)
    found = calibrate(path)
    assert found.code == 2
    assert "file-too-large" in found.err


def test_without_scipy_the_command_says_how_to_get_it(
    calibrate: Calibrate, file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file(rows(SHAPES[:1]))
    monkeypatch.setitem(__import__("sys").modules, "scipy", None)
    monkeypatch.setitem(__import__("sys").modules, "scipy.optimize", None)
    found = calibrate(path)
    assert found.code == 2
    assert "pip install 'parcost[calibrate]'" in found.err


def test_the_report_in_markdown_and_as_a_table(calibrate: Calibrate, file: File) -> None:
    path = file(rows(cluster__device__sustained="80 %"))
    table = calibrate(path, "--leave", "models", "--leave", "rows", "--folds", "4")
    for words in (
        "uncalibrated",
        "calibrated, in sample",
        "models left out, 4 folds",
        "rows left out",
    ):
        assert words in table.out
    assert "device measured_a100_sxm_80g extends" in table.out
    page = calibrate(path, "--format", "md")
    assert "| constant | before | fitted | 90 % interval |" in page.out
    assert "```text" in page.out
