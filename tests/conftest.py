"""Shared fixtures: golden files, and short ways to bind and evaluate a text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="rewrite golden files")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compare text with a file; ``pytest --update`` rewrites the file, for review."""

    def compare(path: Path, actual: str) -> None:
        if request.config.getoption("update"):
            path.write_text(actual, encoding="utf-8")
        assert actual == path.read_text(encoding="utf-8")

    return compare
