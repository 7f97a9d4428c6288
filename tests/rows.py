"""Tests of many small rows, where a test for each row would cost more than what it tests."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest


def try_each(
    names: str, rows: Iterable[Any], ids: Callable[[Any], object] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that tries every row in one test, and lists all rows that fail.

    It is written like ``pytest.mark.parametrize``. Rows share the fixtures of the test.
    """
    keys = [name.strip() for name in names.split(",")]
    values = [row if len(keys) > 1 else (row,) for row in rows]
    given = [dict(zip(keys, row, strict=True)) for row in values]
    assert given

    def describe(row: Mapping[str, Any]) -> str:
        return ", ".join(str(ids(value) if ids else value) for value in row.values())

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)
        fixtures = [one for name, one in signature.parameters.items() if name not in keys]

        @functools.wraps(test)
        def try_rows(**shared: Any) -> None:
            __tracebackhide__ = True
            failures: list[BaseException] = []
            for row in given:
                try:
                    test(**shared, **row)
                except (Exception, pytest.fail.Exception) as failure:  # noqa: BLE001
                    failure.add_note(f"row: {describe(row)}")
                    failures.append(failure)
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(given)} rows fail", failures)

        try_rows.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return try_rows

    return decorate


def mark_most(rows: Iterable[Any], every: int = 5) -> list[Any]:
    """Return the rows of ``pytest.mark.parametrize``, of which one in *every* is fast."""
    marked = []
    for number, row in enumerate(rows):
        values = row if isinstance(row, tuple) else (row,)
        slow = [pytest.mark.slow] if number % every else []
        marked.append(pytest.param(*values, marks=slow))
    return marked
