"""Help, hints and the start of the program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from parcost_apps import cli

from .command_specs import Run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "command",
    ["--help", "--version", *(f"{c} --help" for c in (
        "eval", "check", "fmt", "show", "explain", "plugins", "catalog", "figures",
        "calibrate", "validate",
    ))],
)  # fmt: skip
def test_help_imports_nothing_heavy(command: str) -> None:
    code = f"""
import sys
from parcost_apps.cli import main
assert main({command.split()!r}) == 0
heavy = {{"numpy", "lark", "attrs", "attr", "pluggy", "parcost_specs"}}
assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()
packages = {{
    "parcost_apps": (
        *("batch", "cli", "eval", "options", "search"),
        *("catalog", "check", "diff", "documentation", "editor", "explain", "export"),
        *("figures", "fmt", "import_command", "merge", "new_plugin", "plugins", "rule"),
        *("server", "show", "timeline"),
    ),
    "parcost_measured": ("calibration", "validation"),
}}
commands = [f"{{package}}.{{name}}" for package, names in packages.items() for name in names]
known = {{*packages, *commands, *(f"{{name}}.command" for name in commands)}}
known |= {{f"parcost_apps.cli.{{n}}" for n in ("group", "interrupts", "messages", "output_files")}}
known |= {{f"parcost_apps.cli.{{n}}" for n in ("colors", "pages", "process", "streams", "threads")}}
known |= {{"parcost_apps.options.jobs", "parcost_apps.batch.pictures"}}
known |= {{"parcost_formats", "parcost_formats.rendering", "parcost_formats.rendering.escapes"}}
plugins = {{n for n in sys.modules if n.startswith("parcost_") and n != "parcost_grammar"}}
assert plugins <= known, plugins - known
"""
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_no_command_at_all_prints_the_help(run: Run) -> None:
    done = run()
    assert (done.code, done.out) == (2, "")
    assert "Commands:" in done.err


def test_an_unknown_command_has_the_nearest_as_hint(run: Run) -> None:
    done = run("evaluate", "a.par")
    assert done.code == 2
    assert "there is no command `evaluate`; did you mean `eval`?" in done.err
    assert "write `parcost eval a.par`" in run("a.par").err
    assert "`h100_sxm`" in run("catalog", "h1000").err


def test_the_commands_are_listed_in_order(run: Run) -> None:
    listed = run("xyz").err.partition("commands are ")[2].splitlines()[0].split(", ")
    assert listed == sorted(listed)
    assert len(listed) > 10


def test_a_file_that_is_not_there_names_the_one_beside_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "ok.par").write_text("cluster { devices = 8 }\n")
    assert f"did you mean `{tmp_path / 'ok.par'}`?" in run("eval", str(tmp_path / "okk.par")).err


def test_a_term_ahead_of_its_file_is_noticed(run: Run) -> None:
    done = run("explain", "mfu", "a.par")
    assert done.code == 2
    assert "`parcost explain a.par mfu`" in done.err


def test_the_version_is_printed(run: Run) -> None:
    from parcost import __version__

    assert run("--version").out == f"parcost {__version__}\n"


def test_python_runs_the_package_as_the_command() -> None:
    command = [sys.executable, "-m", "parcost", "eval", "nope.par"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error[missing-file]")


class Rival:
    """An entry point of another package."""

    class dist:  # noqa: N801
        name = "rival"


def test_a_command_of_two_packages_is_an_error_that_names_both(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(cli.parcost.points, "eval", [Rival, *cli.parcost.points["eval"]])
    done = run("eval", "a.par")
    assert done.code == 3
    assert "`parcost eval` is a command of parcost and rival: uninstall all but one" in done.err
    assert "eval" in run("--help").out
    assert "(from parcost and rival)" in run("--help").out
