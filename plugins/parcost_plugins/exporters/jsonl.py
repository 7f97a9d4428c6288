"""Reports as lines of JSON: ``--format jsonl``, for batches of any length.

One line for each study, and one for each file without a report. A line is what stands for
it in the document of ``--format json``, less ``sections``: advice prices a study many times
over, which nobody waits for in a batch.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from parcost import hookimpl
from parcost.batch.entry import Entry, Part
from parcost.files import LINES, read_lines
from parcost.render import data
from parcost.render.encode import encoded
from parcost.render.page import Paper


class JsonLines:
    """A line per study, as soon as it is known."""

    name = "jsonl"
    reads: Part = "data"

    def write(self, entries: Iterable[Entry], paper: Paper) -> Iterator[str]:  # noqa: ARG002
        """Yield the lines."""
        head = encoded(data.header()).removesuffix("}") + ","
        for entry in entries:
            yield head + entry.text.removeprefix("{") + "\n"

    def seal(self, pieces: Iterable[str], seal: Mapping[str, Any]) -> Iterator[str]:
        """Yield the lines, and one with the seal."""
        yield from pieces
        yield encoded({"shard": seal}) + "\n"

    def sealed(self, path: Path) -> Mapping[str, Any] | None:
        """Return the seal of a shard."""
        last = next(iter(deque(_lines(path), maxlen=1)), "{}")
        read = json.loads(last)
        seal = read.get("shard") if isinstance(read, Mapping) else None
        return seal if isinstance(seal, Mapping) else None

    def content(self, path: Path) -> Iterator[str]:
        """Yield the lines of a shard, less the last, which is its seal."""
        held = ""
        for line in _lines(path):
            if held:
                yield held
            held = line

    def join(self, paths: Sequence[Path]) -> Iterator[str]:
        """Yield the lines of all shards, less the seals."""
        for path in paths:
            yield from self.content(path)


def _lines(path: Path) -> Iterator[str]:
    yield from read_lines(path, LINES)


@hookimpl
def exporters() -> list[JsonLines]:
    """Offer lines of JSON."""
    return [JsonLines()]
