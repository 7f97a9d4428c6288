"""The notebook of the tutorial runs, and shows tables and pictures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

import parcost

NOTEBOOK = Path(__file__).parents[2] / "docs" / "tutorial" / "notebook.ipynb"
EXECUTE = """
import json, sys
import nbclient, nbformat
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=300).execute()
cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
print(json.dumps([[dict(o) for o in cell.outputs] for cell in cells]))
"""


@pytest.fixture(scope="module")
def outputs() -> list[dict[str, Any]]:
    """Return the data that each code cell shows, by media type; text for what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", EXECUTE, str(NOTEBOOK)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    shown = []
    for cell in json.loads(done.stdout):
        data: dict[str, Any] = {}
        for output in cell:
            assert output["output_type"] != "error", output
            data |= output.get("data", {})
            data.setdefault("text", output.get("text", ""))
        shown.append(data)
    return shown


def spec() -> str:
    first = next(c for c in json.loads(NOTEBOOK.read_text())["cells"] if c["cell_type"] == "code")
    return "".join(first["source"]).partition('"""')[2].partition('"""')[0]


@pytest.mark.slow
def test_tables_are_those_of_the_study(outputs: list[dict[str, Any]]) -> None:
    (study,) = parcost.load_text(spec())
    result = study.evaluate().result
    assert "<td>step time</td>" in outputs[0]["text/html"]
    numbers = [float(text) for text in outputs[1]["text/plain"].strip("()").split(",")]
    wanted = [result.figure(name) for name in ("step_time", "mfu", "memory")]
    assert numbers == pytest.approx(wanted, rel=1e-12)


@pytest.mark.slow
def test_pictures_are_drawn(outputs: list[dict[str, Any]]) -> None:
    drawn = [data["image/svg+xml"] for data in outputs if "image/svg+xml" in data]
    assert len(drawn) == 3
    for text in drawn:
        titles = [node.text for node in ET.fromstring(text).iter() if node.tag.endswith("}title")]
        assert all(title and ("formula: " in title or "terms: " in title) for title in titles)


@pytest.mark.slow
def test_a_search_has_a_table_and_a_frame(outputs: list[dict[str, Any]]) -> None:
    result, frame = outputs[6], outputs[7]
    assert result["text/plain"].startswith("<SearchResult of ")
    assert result["text/html"].count("<tr>") == 6
    assert "rank" in frame["text/plain"]


@pytest.mark.slow
def test_a_line_is_explained(outputs: list[dict[str, Any]]) -> None:
    assert "M = 8192" in outputs[-1]["text"]
