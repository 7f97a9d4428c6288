"""Reports as data, whole: ``--format json``. ``parcost.render.data`` says what is in it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from parcost import hookimpl
from parcost.batch.entry import Entry, Part
from parcost.files import DOCUMENT, LINES, read_lines, read_text
from parcost.render import data
from parcost.render.escapes import visible_json
from parcost.render.page import Paper

_END = "\n}\n"
_SEAL = '  "shard": {'  # a line that begins so is the seal: no other member is as far left


class Json:
    """One document: every report, then every file that has none."""

    name = "json"
    reads: Part = "full"

    def write(self, entries: Iterable[Entry], paper: Paper) -> Iterator[str]:  # noqa: ARG002
        """Yield the document as it grows: a long batch is never held as text."""
        yield from _written((entry.rejected, entry.data()) for entry in entries)

    def seal(self, pieces: Iterable[str], seal: Mapping[str, Any]) -> Iterator[str]:
        """Yield the document with the seal as its last member."""
        held = ""
        for piece in pieces:
            yield held
            held = piece
        shard = _text({"shard": seal}).removeprefix("{\n").removesuffix("\n}")
        yield held.removesuffix(_END) + f",\n{shard}{_END}"

    def sealed(self, path: Path) -> Mapping[str, Any] | None:
        """Return the seal of a shard."""
        seal = _document(path).get("shard")
        return seal if isinstance(seal, Mapping) else None

    def content(self, path: Path) -> Iterator[str]:
        """Yield the document of a shard, less its last member, which is its seal."""
        held = ""
        for line in read_lines(path, LINES):
            if line.startswith(_SEAL):
                break
            yield held
            held = line
        yield held.rstrip("\n").removesuffix(",") + _END

    def join(self, paths: Sequence[Path]) -> Iterator[str]:
        """Yield the document of all shards."""
        yield from _written(
            (kind == "rejected", told)
            for path in paths
            for document in [_document(path)]
            for kind in ("reports", "rejected")
            for told in document[kind]
        )


def _written(told: Iterable[tuple[bool, Any]]) -> Iterator[str]:
    """Yield the document of what was *told*, each with whether it has no report."""
    rejected = []
    yield _text(data.header()).removesuffix("\n}") + ',\n  "reports": ['
    separator = ""
    for refused, one in told:
        if refused:
            rejected.append(one)
            continue
        yield separator + "\n    " + _text(one).replace("\n", "\n    ")
        separator = ","
    yield ("\n  " if separator else "") + '],\n  "rejected": '
    yield _text(rejected).replace("\n", "\n  ") + _END


def _document(path: Path) -> Mapping[str, Any]:
    read = json.loads(read_text(path, DOCUMENT))
    return read if isinstance(read, Mapping) else {}


def _text(value: object) -> str:
    return visible_json(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


@hookimpl
def exporters() -> list[Json]:
    """Offer JSON."""
    return [Json()]
