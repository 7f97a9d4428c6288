"""A plugin that does not return from its import is named when the run is interrupted."""

from __future__ import annotations

from pathlib import Path

import pytest

from parcost_apps.cli import main


def test_an_interrupt_names_the_plugin_that_was_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "endless.py"
    path.write_text("raise KeyboardInterrupt  # as Ctrl-C in a loop without an end\n")
    assert main(["plugins", "--plugin", str(path)]) == 130
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith("interrupted while plugin `endless` of")
    assert said.endswith("endless.py was imported")
