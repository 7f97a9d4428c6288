"""Documents say what is true: their examples run, and what is made from code is current."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import parcost
from parcost.plugins.discovery import load
from parcost_apps.cli import main
from parcost_apps.documentation import interface as api
from parcost_apps.documentation import language, rules

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FENCE = re.compile(r"^```(?P<language>[^\n]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)


def examples(*languages: str) -> list[Any]:
    found = []
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        for match in _FENCE.finditer(text):
            if match["language"] in languages:
                line = text.count("\n", 0, match.start()) + 1
                found.append(pytest.param(match["text"], id=f"{path.name}:{line}"))
    return found


@pytest.mark.parametrize("text", examples("par"))
def test_a_fragment_of_a_spec_is_well_formed(text: str) -> None:
    from parcost.language.parse import parse
    from parcost.language.text import Source

    _, problems = parse(Source("example.par", text))
    assert not problems


@pytest.mark.parametrize("text", examples("par", "par study"))
def test_a_spec_in_a_document_is_laid_out_as_fmt_does(text: str) -> None:
    from parcost.language.format import format_text

    assert format_text(text) == text


@pytest.mark.parametrize("text", examples("par study"))
def test_a_whole_spec_evaluates(text: str) -> None:
    for scenario in parcost.load_text(text, "example.par"):
        assert scenario.evaluate().exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize("text", examples("python test"))
def test_an_example_runs(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    exec(compile(text, "example.py", "exec"), {"__name__": "example"})


def plugin_in(text: str, name: str) -> ModuleType:
    module = ModuleType(name)
    exec(compile(text, f"{name}.py", "exec"), module.__dict__)
    return module


SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster  { devices = 16 }
layout   { tp = 4, pp = 2, zero = 1, sequence_parallel = on }
training { sequence = 8192, global_batch = 16 sequences, recompute = full }
"""


def guide() -> list[str]:
    text = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
    return [m["text"] for m in _FENCE.finditer(text) if m["language"] == "python"]


def test_the_first_plugin_adds_its_block_and_its_term() -> None:
    plugins = load(("loader", plugin_in(guide()[0], "parcost_loader")))
    (scenario,) = parcost.load_text(SPEC + "loader { stall = 3 ms }\n", plugins=plugins)
    outcome = scenario.evaluate().result.outcome
    assert outcome is not None
    (line,) = [line for line in outcome.ledger if line.name == "data_stall"]
    assert (line.exposed, line.hidden) == (0.003, 0.0)
    assert line.plugin is not None
    assert line.plugin.name == "loader"


def step_and_memory(text: str, plugin: ModuleType) -> tuple[float, float]:
    (scenario,) = parcost.load_text(text, plugins=load(("ema", plugin)))
    outcome = scenario.evaluate().result.outcome
    assert outcome is not None
    return float(outcome.step_seconds), float(outcome.memory_bytes)


@pytest.mark.slow
def test_the_plugin_of_the_tutorial_grows_as_its_page_says() -> None:
    """16 layers of 54,534,144 parameters on a rank, a head of 131,334,144 and a norm of 4,096."""
    text = (ROOT / "docs" / "tutorial" / "plugin.md").read_text(encoding="utf-8")
    fences = [(m["language"], m["text"]) for m in _FENCE.finditer(text)]
    (job,) = [fence for language, fence in fences if language == "par study"]
    steps = [fence for language, fence in fences if language == "python tutorial"]
    held = 16 * 54_534_144 + 131_334_144 + 4_096
    moved = 10 * held / (3.35e12 * 0.896)
    before = step_and_memory(job, ModuleType("nothing"))
    plugin = ModuleType("ema")

    def added(more: str = "") -> tuple[float, float]:
        after = step_and_memory(job + more, plugin)
        return after[0] - before[0], after[1] - before[1]

    def grow() -> None:
        exec(compile(steps.pop(0), "ema.py", "exec"), plugin.__dict__)

    grow()
    assert added() == pytest.approx((moved, 0.0), rel=1e-9)
    assert f"{moved * 1e3:.2f} ms" in text
    grow()
    assert added() == (0.0, 0.0)
    assert added("ema { element = 4 B }") == pytest.approx((moved, 0.0), rel=1e-9)
    assert added("ema { element = 4 B, every = 10 }")[0] == pytest.approx(moved / 10, rel=1e-9)
    grow()
    assert added("ema { element = 4 B }")[1] == pytest.approx(4 * held, rel=1e-9)
    assert added("ema { element = 4 B, sharded = on }")[1] == pytest.approx(2 * held, rel=1e-9)
    grow()
    whole = job.replace("zero = 1", "zero = 0") + "ema { element = 4 B, sharded = on }"
    (scenario,) = parcost.load_text(whole, plugins=load(("ema", plugin)))
    assert "ema-needs-zero" in [d.id for d in scenario.evaluate().diagnostics]
    grow()
    (scenario,) = parcost.load_text(job + "ema { element = 4 B }", plugins=load(("ema", plugin)))
    result = scenario.evaluate().result
    share = moved / float(result.figure("step_time"))
    assert result.figure("ema_share") == pytest.approx(share, rel=1e-9)
    assert not steps


def test_the_guide_to_hiding_has_the_numbers_of_its_job() -> None:
    text = (ROOT / "docs" / "guide" / "hiding.md").read_text(encoding="utf-8")
    (job,) = [m["text"] for m in _FENCE.finditer(text) if m["language"] == "par study"]
    found = []
    for overlap in ("off", "on"):
        (scenario,) = parcost.load_text(job, overrides={"overlap.gradients": overlap})
        outcome = scenario.evaluate().result.outcome
        assert outcome is not None
        lines = {line.name: line for line in outcome.ledger}
        line = lines["gradient reduce-scatter"]
        slower = lines.get("slowdown by gradient reduce-scatter")
        slow = 0.0 if slower is None else slower.exposed
        found.append((line.exposed, line.hidden, slow, outcome.step_seconds))
    rows = [
        row for row in text.splitlines() if row.startswith(("| gradient", "| slow", "| the st"))
    ]
    for row, values in zip(rows, zip(*found, strict=True), strict=True):
        _, *shown = row.strip("|").split("|")
        assert [float(cell.replace(",", "")) for cell in shown] == [
            pytest.approx(float(value) * 1e3, abs=0.006) for value in values
        ]
    off, on = (step for *_, step in found)
    assert f"{(off - on) * 1e3:.2f} ms" in text


def test_the_first_plugin_fits_on_one_screen() -> None:
    assert len(guide()[0].splitlines()) <= 30


def test_the_entry_point_of_the_first_plugin_is_one() -> None:
    text = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
    first = next(m["text"] for m in _FENCE.finditer(text) if m["language"] == "toml")
    points = tomllib.loads(first)["project"]["entry-points"]
    assert points == {"parcost": {"loader": "parcost_loader"}}


@pytest.mark.slow
def test_the_schedule_of_the_guide_is_gpipe() -> None:
    plugins = load(("mine", plugin_in(guide()[1], "mine")))
    steps = []
    for kind in ("gpipe", "my_gpipe"):
        (scenario,) = parcost.load_text(SPEC, plugins=plugins, overrides={"schedule.kind": kind})
        steps.append(scenario.evaluate().result.figure("step_time"))
    assert steps[0] == pytest.approx(steps[1], rel=1e-12)


def test_the_collective_of_the_guide_can_be_named() -> None:
    plugins = load(("flood", plugin_in(guide()[2], "flood")))
    (scenario,) = parcost.load_text(SPEC, plugins=plugins)
    study = scenario.studies()[0]
    call = study.collective("all_reduce", 8e6, "tp", "flood")
    link = study.group("tp").flat
    assert call.seconds == pytest.approx(3 * (link.latency + 8e6 / link.bandwidth))


def test_the_calculation_of_the_guide_needs_no_step() -> None:
    plugins = load(("mine", plugin_in(guide()[3], "mine")))
    text = "shipment west { size = 5 TB, bandwidth = 10 Gbps }\n"
    (scenario,) = parcost.load_text(text, plugins=plugins)
    report = scenario.evaluate()
    assert report.exit_code == 0
    assert report.result.outcome is None
    assert report.result.figure("west.seconds") == pytest.approx(5e12 * 8 / 10e9)


def test_the_reference_is_current(request: pytest.FixtureRequest) -> None:
    path = ROOT / "docs" / "language.md"
    if request.config.getoption("update"):
        language.main([str(path)])
    text = path.read_text(encoding="utf-8")
    assert text == language.insert(text, language.reference(load()))


def test_the_figures_of_the_guide_are_those_of_a_report() -> None:
    text = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    table = text.partition("| figure |")[2].partition("\n\n")[0]
    (scenario,) = parcost.load_text(SPEC)
    figures = [figure.name for _, figure in scenario.evaluate().result.figures]
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == figures


def test_links_lead_somewhere() -> None:
    for path in [*DOCUMENTS, ROOT / ".github" / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{path.name}: {target}"


# --- README -----------------------------------------------------------------------------


def commands() -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = [m["text"] for m in _FENCE.finditer(text) if m["language"] == "sh"]
    return [line for block in blocks for line in block.splitlines() if line]


def test_the_readme_has_one_command_to_run_and_one_to_test() -> None:
    run, test = commands()
    assert run.startswith("python3 -m venv .venv && .venv/bin/pip install")
    assert " && .venv/bin/parcost eval specs/runs/" in run
    assert test.startswith("python3 -m venv .venv && .venv/bin/pip install")
    assert test.endswith(" && .venv/bin/python -m pytest -q")


def test_the_readme_counts_the_entries_of_the_catalogue() -> None:
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    folders = ("models", "devices", "fabrics", "precisions")
    counts = [len(list((ROOT / "specs/parcost_specs" / one).glob("*.par"))) for one in folders]
    words = "lists {} models, {} accelerators, {} fabrics and {} precision recipes."
    assert words.format(*counts) in text


@pytest.mark.slow
def test_the_report_of_the_readme_is_what_its_command_prints(
    golden: Callable[[Path, str], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)
    _, _, arguments = commands()[0].partition(".venv/bin/parcost ")
    assert main(shlex.split(arguments)) == 0
    printed = capsys.readouterr().out
    path = ROOT / "README.md"
    text = path.read_text(encoding="utf-8")
    shown = re.compile(r"(?<=```text\n).*?(?=^```$)", re.DOTALL | re.MULTILINE)
    golden(path, shown.sub(lambda _: printed, text, count=1))


def test_the_readme_is_read_in_ten_minutes() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.slow
def test_the_commands_of_the_readme_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks: dict[str, str] = {}
    for found in _FENCE.finditer(text):
        blocks.setdefault(found["language"], found["text"])
    (tmp_path / "my_job.par").write_text(blocks["par"], encoding="utf-8")
    (tmp_path / "specs").symlink_to(ROOT / "specs")
    monkeypatch.chdir(tmp_path)
    lines = [line for line in blocks["console"].splitlines() if line]
    assert len(lines) == 5
    for line in lines:
        program, *arguments = shlex.split(line, comments=True)
        assert program == "parcost"
        assert main(arguments) == 0, line
        assert capsys.readouterr().out.strip(), line


@pytest.mark.slow
def test_the_whole_catalogue_and_every_spec_is_checked() -> None:
    assert main(["check", str(ROOT / "specs")]) == 0


@pytest.mark.slow
def test_the_documents_can_be_made_by_the_documented_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "parcost_apps.documentation.language"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == language.reference(load())


# --- The Python interface -----------------------------------------------------------------


def test_the_pages_of_the_rules_are_current(request: pytest.FixtureRequest) -> None:
    folder = ROOT / "docs" / "rules"
    if request.config.getoption("update"):
        rules.main([str(folder)])
    found = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}
    assert found == rules.rules_reference(load())


def test_the_index_of_the_rules_leads_to_each_rule() -> None:
    folder = ROOT / "docs" / "rules"
    index = (folder / "index.md").read_text(encoding="utf-8")
    linked = re.findall(r"^\| \[`([\w-]+)`\]\((\w+\.md)#([\w-]+)\)", index, re.MULTILINE)
    assert len(linked) == sum(
        len(re.findall(r"^## ", page.read_text(encoding="utf-8"), re.MULTILINE))
        for page in folder.glob("*.md")
        if page.name != "index.md"
    )
    for id_, page, anchor in linked:
        assert id_ == anchor
        assert f"\n## {id_}\n" in (folder / page).read_text(encoding="utf-8")


def test_the_page_of_the_python_interface_is_current(golden: Callable[[Path, str], None]) -> None:
    golden(ROOT / "docs" / "api.md", api.api_reference())


@pytest.mark.parametrize(("package", "name"), [("vocabulary", "offers_of"), ("physics", "layers")])
def test_the_page_of_shared_functions_is_current(
    package: str, name: str, golden: Callable[[Path, str], None]
) -> None:
    page = api.package_reference(f"parcost_plugins.{package}")
    assert f"### `{name}`" in page
    golden(ROOT / "docs" / f"{package}.md", page)


def test_the_core_set_is_small_and_explained() -> None:
    assert len(api.CORE_SET) == len(set(api.CORE_SET)) <= 40
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    table = text.partition("## The core set")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", table, re.MULTILINE)
    assert [name for name, _ in rows] == list(api.CORE_SET)
    assert all(described.endswith((".", "`")) for _, described in rows), rows


def test_the_page_of_the_python_interface_has_every_public_name_with_a_description() -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    entries = re.findall(r"^### `(\w+)`\n\n(.*?)(?=^##|\Z)", text, re.DOTALL | re.MULTILINE)
    names = [name for name, _ in entries]
    assert sorted([*names, "__version__"]) == parcost.__all__
    assert all(described.strip() for _, described in entries)
    assert "### `evaluate`\n\n```text\nevaluate(path: str | Path, " in text
    assert "| `figure(name: str) -> Real` |" in text
    assert "### `RATE`\n\nDimension of values in `B/s`." in text


def test_the_example_of_the_python_interface_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    (example,) = [m["text"] for m in _FENCE.finditer(text) if m["language"] == "python"]
    *statements, last = example.splitlines()
    names: dict[str, Any] = {}
    exec("\n".join(statements), names)
    assert eval(last, names) > 0


def test_every_module_of_the_runtime_page_exists() -> None:
    page = (ROOT / "docs/runtime.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]*`) \|", page, re.MULTILINE)
    modules = [name for row in rows for name in re.findall(r"`([\w/]+)`", row)]
    assert len(modules) >= 8
    for name in modules:
        path = ROOT / ("plugins" if name.startswith("parcost_") else "core/parcost") / name
        assert path.is_dir() or path.with_suffix(".py").is_file(), name


def test_the_table_of_commands_has_each_command() -> None:
    table = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `parcost ([\w-]+)", table, re.MULTILINE))
    assert named == {one.name for one in entry_points(group="parcost.commands")}
