"""The input files and their contents: runs, tables of kernels or host, or logs."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from math import inf, prod
from pathlib import Path
from typing import Any, Literal, TypeVar

import click
from attrs import frozen

from parcost.system.files import read_lines
from parcost_measured.calibration.allocator import is_memory_log
from parcost_measured.validation.records import is_number
from parcost_measured.validation.rows import RUNS, Flaw

T = TypeVar("T")
Content = Literal[
    "runs", "products", "attention", "streams", "host", "collectives", "memory", "log"
]

#: By the fields that a row of a table has; the first counts.
_FIELDS: Sequence[tuple[Content, Sequence[str]]] = (
    ("runs", ("measured",)),
    ("runs", ("parallel",)),
    ("products", ("products",)),
    ("attention", ("seq_q",)),
    ("streams", ("runs", "elements")),
    ("collectives", ("collective", "message_bytes")),
    ("host", ("what", "mode", "count")),
)


@frozen
class Input:
    """A file, its kind of content, and its name in messages."""

    name: str
    path: Path
    content: Content


@frozen
class TableRow:
    """A JSON object of a table, and its line number."""

    value: Mapping[str, Any]
    file: str
    line: int

    def flaw(self, reason: str, kind: str = "malformed") -> Flaw:
        """Return a flaw of the row."""
        id = self.value.get("id")
        named = id if isinstance(id, str) else ""
        return Flaw(file=self.file, line=self.line, id=named, kind=kind, reason=reason)


def inputs(names: Sequence[str]) -> tuple[list[Input], list[str]]:
    """Return the input files in *names*, and the files of directories that are skipped.

    In a directory, tables (`.jsonl`) and logs (`.log`) are read.
    """
    from parcost.system.files import failure

    found: list[Input] = []
    passed: list[str] = []
    for name in names:
        path = Path(name)
        if name == "-" or not os.path.isdir(path):
            content = _content_of_file(path) if name != "-" else "log"
            if content is None:
                raise click.UsageError(f"{name}: {_kind_error(path)}")
            found.append(Input(name, path, content))
            continue
        inside = sorted(p for p in path.iterdir() if p.suffix in (".jsonl", ".log"))
        if not inside:
            message = f"`{name}` has nothing to calibrate from: neither `.jsonl` nor `.log`"
            raise failure("missing-file", message, name)
        for each in inside:
            content = _content_of_file(each)
            if content is None:
                passed.append(str(each))
            else:
                found.append(Input(str(each), each, content))
    return found, passed


def _content_of_file(path: Path) -> Content | None:
    if path.suffix == ".jsonl":
        return _content(path)
    if path.suffix == ".csv" and _has_products(_first_row(path)):
        return "products"
    return "memory" if is_memory_log(path) else "log"


def _has_products(head: str) -> bool:
    """Return whether the header of a CSV table has the sizes of a matrix product."""
    return {"m", "n", "k"} <= {name.strip().lower() for name in head.split(",")}


def _first_row(path: Path) -> str:
    return next((line for line in read_lines(path, RUNS) if line.strip()), "")


def _content(path: Path) -> Content | None:
    """Return the content of the table at *path*, None if its rows are unknown."""
    text = _first_row(path)
    if not text:
        raise click.UsageError(f"{path}: the file is empty")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return "runs"  # reading it says what is wrong
    if not isinstance(value, Mapping):
        return "runs"
    return next((c for c, names in _FIELDS if all(name in value for name in names)), None)


def _kind_error(path: Path) -> str:
    value = json.loads(_first_row(path))
    names = ", ".join(f"`{name}`" for name in list(value)[:8])
    kinds = "; ".join(
        f"{content}: {', '.join(fields)}" for content, fields in dict(reversed(_FIELDS)).items()
    )
    return f"no known table has rows of {names}; {kinds}"


def objects(one: Input) -> Iterator[TableRow | Flaw]:
    """Yield the rows of a table, and the lines that are not valid rows."""
    if one.path.suffix == ".csv":
        yield from _products(one)
        return
    for number, line in enumerate(read_lines(one.path, RUNS), 1):
        if not line.strip():
            continue
        reason = ""
        try:
            value = json.loads(line)
            if not isinstance(value, Mapping):
                reason = "the line is not an object"
        except RecursionError:
            reason = "the line is not JSON: nested too deeply"
        except ValueError as error:
            reason = f"the line is not JSON: {error}"
        if reason:
            yield Flaw(file=one.name, line=number, id="", kind="unreadable", reason=reason)
        else:
            yield TableRow(value, one.name, number)


def _products(one: Input) -> Iterator[TableRow | Flaw]:
    """Yield the rows of a CSV table of matrix products, with the fields of JSON rows."""
    reader = csv.reader(read_lines(one.path, RUNS))
    names = [name.strip().lower() for name in next(reader)]
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                row = {name: cell.strip() for name, cell in zip(names, cells, strict=False)}
                yield TableRow(_product(row), one.name, reader.line_num)
    except csv.Error as error:
        reason = f"the line is not CSV: {error}"
        yield Flaw(file=one.name, line=reader.line_num, id="", kind="unreadable", reason=reason)


def _product(row: Mapping[str, str]) -> Mapping[str, Any]:
    """Return a row with its matrix product in one field; TFLOPS become microseconds."""
    found: dict[str, Any] = {name: text for name, text in row.items() if text}
    for name in ("m", "n", "k", "count", "time_us", "tflops"):
        with suppress(KeyError, ValueError):  # the checks of a row name what is no number
            found[name] = float(found[name])
    sizes = [found.pop(name, None) for name in ("m", "n", "k")]
    found["products"] = [[*sizes, found.pop("count", 1.0)]]
    if "time_us" not in found and all(map(is_number, (*sizes, found.get("tflops")))):
        found["time_us"] = 2e-6 * prod(sizes) / (found["tflops"] or inf)
    return found


# --- fields ---------------------------------------------------------------------------------


class FieldError(ValueError):
    """A field of a row is missing or of a wrong type."""


def number(row: Mapping[str, Any], name: str, *, above: float = 0.0) -> float:
    """Return the number in a field, which must exceed *above*.

    Raises:
        FieldError: The field is missing or invalid.
    """
    if name not in row:
        raise FieldError(f"`{name}` is missing{_hint(name, row)}")
    value = row[name]
    if not is_number(value):
        raise FieldError(f"`{name}` is {_value_text(value)}, not a number")
    if value <= above:
        raise FieldError(f"`{name}` is {value:g}, and must be above {above:g}")
    return float(value)


def text(row: Mapping[str, Any], name: str) -> str:
    """Return the text in a field.

    Raises:
        FieldError: The field is missing or invalid.
    """
    return _value_of_type(row, name, str, "not a text")


def boolean(row: Mapping[str, Any], name: str) -> bool:
    """Return the bool in a field.

    Raises:
        FieldError: The field is missing or invalid.
    """
    return _value_of_type(row, name, bool, "neither true nor false")


def _value_of_type(row: Mapping[str, Any], name: str, kind: type[T], otherwise: str) -> T:
    if name not in row:
        raise FieldError(f"`{name}` is missing{_hint(name, row)}")
    value = row[name]
    if not isinstance(value, kind):
        raise FieldError(f"`{name}` is {_value_text(value)}, {otherwise}")
    return value


def _hint(name: str, row: Mapping[str, Any]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, [str(other) for other in row], n=1)
    return f"; the row has `{close[0]}`" if close else ""


def _value_text(value: Any) -> str:
    shown = json.dumps(value, default=str)
    return shown if len(shown) <= 40 else shown[:37] + "..."
