"""A plugin that does not return from its import, or from a hook, is named after Ctrl-C."""

from __future__ import annotations

from pathlib import Path

import pytest

from parcost_apps.cli import main

SPEC = Path(__file__).parents[2] / "specs/examples/minimal.par"


def test_an_interrupt_names_the_plugin_that_was_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "endless.py"
    path.write_text("raise KeyboardInterrupt  # as Ctrl-C in a loop without an end\n")
    assert main(["plugins", "--plugin", str(path)]) == 130
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith("interrupted while plugin `endless` of")
    assert said.endswith("endless.py was imported")


@pytest.mark.slow
def test_an_interrupt_names_the_plugin_and_its_hook(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "asleep.py"
    path.write_text(
        "from parcost import hookimpl\n\n@hookimpl\ndef terms(study):\n    raise KeyboardInterrupt\n"
    )
    assert main(["eval", str(SPEC), "--plugin", str(path)]) == 130
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith("interrupted while plugin `asleep` of")
    assert said.endswith("was asked for `terms`")
