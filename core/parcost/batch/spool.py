"""Rows of which nobody knows all columns until the last: kept on disk, once they are many."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import Any, Self

_MOST_IN_MEMORY_BYTES = 8 * 2**20


class Spool:
    """Rows to be read back in order, each with a value for every column.

    Columns are in the order in which they first occurred. Values are those of JSON; what
    a row says nothing about is None.
    """

    def __init__(self) -> None:
        self.columns: dict[str, int] = {}
        self.rows = 0
        self._file = SpooledTemporaryFile(  # noqa: SIM115  closed with the spool
            _MOST_IN_MEMORY_BYTES, mode="w+", encoding="utf-8", errors="surrogatepass", newline="\n"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def add(self, row: Mapping[str, Any]) -> None:
        """Take a row."""
        for name in row:
            self.columns.setdefault(name, len(self.columns))
        values = [row.get(name) for name in self.columns]
        self._file.write(json.dumps(values, ensure_ascii=False) + "\n")
        self.rows += 1

    def __iter__(self) -> Iterator[list[Any]]:
        self._file.flush()
        self._file.seek(0)
        for line in self._file:
            values = json.loads(line)
            yield values + [None] * (len(self.columns) - len(values))
