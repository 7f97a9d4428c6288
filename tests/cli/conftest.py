"""Fixtures of the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .command_specs import Run


@pytest.fixture
def run(run_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in a directory of its own; files are written there first (`lib__a` in `lib`)."""
    monkeypatch.delenv("PARCOST_DEBUG", raising=False)

    def do(*arguments: str, **files: str) -> Any:
        return run_command(
            *arguments, **{name.replace("__", "/"): text for name, text in files.items()}
        )

    return do
