"""Reports as Parquet: ``--format parquet --out FILE``.

The rows and columns of ``csv``, with their types, compressed by column: for data frames and query
engines. DuckDB writes the file. It is installed with the extra ``parquet``, and is the smallest
library that writes Parquet.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from parcost import FileExporter, MissingExtraError, PluginError, hookimpl
from parcost.contract.entries import Entry, Part
from parcost.system.temporary import temporary_folder

_TYPES = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "VARCHAR"}
_LAST = ("verdict", "feasible", "reason")
_FORMAT = "FORMAT parquet, CODEC zstd, USE_TMP_FILE false"  # the target is a new one anyway
_LARGEST = 2**63


class Parquet(FileExporter):
    """A row per point."""

    name = "parquet"
    reads: Part = "points"

    def save(self, entries: Iterable[Entry], path: Path) -> None:
        """Write the file at *path*.

        Raises:
            OSError: The disk is full.
            MissingExtraError: DuckDB is not installed.
            PluginError: DuckDB cannot write every row.
        """
        try:
            import duckdb
        except ImportError:
            message = "Parquet needs DuckDB, which is not installed"
            otherwise = "`--format csv` and `jsonl` need no further package"
            raise MissingExtraError(message, "parquet", otherwise) from None
        with temporary_folder() as folder:
            lines = folder.path / "points.jsonl"
            columns, rows = _spool(entries, lines)
            kinds = ", ".join(f"{_quote(n, chr(39))}: '{kind}'" for n, kind in columns.items())
            order = ", ".join(_quote(name, '"') for name in columns)
            source = f"{_quote(str(lines), chr(39))}, columns = {{{kinds}}}"
            query = f"SELECT {order} FROM read_json({source}, format = 'newline_delimited')"  # noqa: S608  quoted
            target = _quote(str(path), "'")
            settings: dict[str, Any] = {
                "temp_directory": str(folder.path),
                "autoinstall_known_extensions": False,
            }
            try:
                with duckdb.connect(":memory:", config=settings) as database:
                    database.execute("SET preserve_insertion_order = true")
                    database.execute(f"COPY ({query}) TO {target} ({_FORMAT})")
                    counted = database.execute(f"SELECT count(*) FROM read_parquet({target})")  # noqa: S608  quoted
                    found = (counted.fetchone() or (0,))[0]
            except duckdb.IOException as error:  # no defect: a full disk, or a folder that is gone
                raise OSError(" ".join(str(error).split())) from error
            except duckdb.Error as error:
                raise PluginError(f"Parquet cannot be written: {error}") from error
        if found != rows:
            raise PluginError(f"Parquet cannot be written: the file has {found} of {rows} rows")


def _spool(entries: Iterable[Entry], path: Path) -> tuple[dict[str, str], int]:
    """Write the points as lines of JSON; return the types of their columns, and their number."""
    rows = 0
    kinds: dict[str, str] = {"path": "VARCHAR", "name": "VARCHAR"}
    with path.open("w", encoding="utf-8") as file:
        for entry in entries:
            for row in entry.data():
                point = {_unicode_text(name): _unicode_text(value) for name, value in row.items()}
                file.write(json.dumps(point, ensure_ascii=False) + "\n")
                rows += 1
                for name, value in point.items():
                    kinds[name] = _common_type(kinds.get(name, ""), value)
    last = {name: kinds.pop(name, "VARCHAR") for name in _LAST}
    return {name: kind or "DOUBLE" for name, kind in (kinds | last).items()}, rows


def _unicode_text(value: Any) -> Any:
    """Return a text with invalid Unicode, such as raw bytes of a file name, escaped as in csv."""
    if not isinstance(value, str):
        return value
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


def _common_type(kind: str, value: Any) -> str:
    """Return the column type that holds both the type so far and *value*."""
    if value is None:
        return kind
    new = _TYPES[type(value)]
    if new == "BIGINT" and abs(value) >= _LARGEST:
        new = "DOUBLE"
    if kind in ("", new):
        return new
    return "DOUBLE" if {kind, new} == {"BIGINT", "DOUBLE"} else "VARCHAR"


def _quote(text: str, mark: str) -> str:
    return mark + text.replace(mark, mark * 2) + mark


@hookimpl
def exporters() -> list[Parquet]:
    """Return the exporter of Parquet."""
    return [Parquet()]
