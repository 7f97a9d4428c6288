"""Lets the tests of this folder, and `benchmarks/editor.py`, import the client by name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from editor_client import Editor


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("editor")


@pytest.fixture(scope="module")
def editor(folder: Path) -> Iterator[Editor]:
    """One server for all tests of a module, which use documents of different names."""
    running = Editor(folder)
    yield running
    assert running.stop() == 0
    assert not running.messages
