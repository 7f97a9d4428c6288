"""Every message that a user sees for bad input, as files to review."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import parcost
from parcost import SpecError
from parcost.language.diagnostic_text import render
from parcost.language.diagnostics import Diagnostic

from ..rows import try_each

HERE = Path(__file__).parent.parent
FILES = sorted((HERE / "errors").glob("*.par"))


def diagnostics_of(path: Path) -> list[Diagnostic]:
    """Return everything that evaluating *path* says."""
    try:
        return [d for s in parcost.load(path) for d in s.evaluate().diagnostics]
    except SpecError as error:
        return list(error.diagnostics)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_message(
    path: Path, golden: Callable[[Path, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(HERE)
    found = diagnostics_of(path.relative_to(HERE))
    assert found
    golden(path.with_suffix(".txt"), "\n\n".join(render(d) for d in found) + "\n")


def message(path: Path) -> str:
    return "\n\n".join(render(d) for d in diagnostics_of(path))


def test_a_missing_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert message(Path("nowhere.par")) == (
        "error[missing-file]: there is no file `nowhere.par`\n --> nowhere.par"
    )


def test_a_directory_is_not_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("specs").mkdir()
    assert message(Path("specs")) == (
        "error[unreadable-file]: `specs` is a directory, not a file\n --> specs"
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_says_so(tmp_path: Path) -> None:
    path = tmp_path / "secret.par"
    path.write_text("cluster { devices = 8 }\n")
    path.chmod(0)
    assert "error[unreadable-file]" in message(path)
    assert "Permission denied" in message(path)


def test_a_file_that_is_not_utf8_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("latin.par").write_bytes(b"# ok\n# caf\xe9\n")
    assert message(Path("latin.par")) == (
        "error[not-utf8]: `latin.par` is not UTF-8: byte 0xe9 on line 2\n"
        " --> latin.par\n"
        "  = help: save the file as UTF-8"
    )


@pytest.mark.parametrize("text", ["", "\n", "# nothing here\n"])
def test_an_empty_file_says_what_it_lacks(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.par").write_text(text)
    assert message(Path("empty.par")).startswith(
        "error[empty-file]: `empty.par` is empty\n --> empty.par\n"
    )


def test_a_file_that_is_too_large_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Path("large.par").open("wb") as file:
        file.truncate(5_000_000)
    assert message(Path("large.par")).startswith("error[file-too-large]: `large.par` has ")


@pytest.mark.slow
def test_nothing_is_reported_twice() -> None:
    for path in FILES:
        found = [
            (d.id, d.message, d.labels[0].span.start if d.labels else 0)
            for d in diagnostics_of(path)
        ]
        assert len(found) == len(set(found)), path.name


SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama32_1b
use catalog.precisions.bf16
cluster { devices = 8 }
training { sequence = 2048, global_batch = 8 sequences }
"""


def only_diagnostic(text: str, **values: str) -> Diagnostic:
    """Return the one error of a spec."""
    try:
        (scenario,) = parcost.load_text(text)
        named = {name.replace("__", "."): value for name, value in values.items()}
        diagnostics = scenario.replace(named).evaluate().diagnostics
    except SpecError as error:
        diagnostics = error.diagnostics
    (found,) = [d for d in diagnostics if d.severity.value == "error"]
    return found


@try_each(
    "block, help",
    [
        ("price { device_hour = 2 USD }", "write `2 USD/h`"),
        ("price { device_hour = 2 }", "write a unit of USD/s, such as `USD/h`, `USD/s`"),
        ("layout { capacity_factor = 1.2 }", "`capacity_factor` is an attribute of `routing`"),
        (
            "expect { dropout >= 1 }",
            "`dropout` is an attribute of `adapters` and of `training`; figures are",
        ),
        ("memory { usable = 194 % }", "the nearest legal value is 100 %"),
        ("memory { usable = 1.94 }", "the nearest legal value is 1"),
        ("memory { usable = 90 }", "write `90 %`"),
    ],
)
def test_help_proposes_what_to_write(block: str, help: str) -> None:
    assert help in (only_diagnostic(SPEC + block).help or "")


def test_a_share_in_percent_is_bounded_in_percent() -> None:
    found = only_diagnostic(SPEC + "memory { usable = 194 % }")
    assert found.message == "`usable` must be at most 100 %"
    assert found.labels[0].text == "this is 194 %"
    assert (
        only_diagnostic(SPEC + "memory { usable = 1.94 }").message == "`usable` must be at most 1"
    )


def test_a_name_that_goes_on_is_closer_than_one_that_differs() -> None:
    found = only_diagnostic(SPEC.replace("h100_sxm", "h100"))
    assert found.help == (
        "did you mean `catalog.devices.h100_nvl` or `catalog.devices.h100_pcie` or "
        "`catalog.devices.h100_sxm` or `catalog.devices.h100_sxm_96g`?"
    )


def test_many_attributes_are_not_all_listed() -> None:
    help = only_diagnostic(SPEC + "kernels { zzz = 1 }").help or ""
    assert help.startswith("it has `model`")
    assert help.endswith(" more")
    assert help.count("`") < 30


def test_what_is_set_from_outside_is_shown_as_it_was_given() -> None:
    text = render(only_diagnostic(SPEC, layout__tp="2.5"))
    assert "layout.tp = 2.5" in text
    assert "let " not in text
