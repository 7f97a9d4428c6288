"""The shards of a run as files: read, checked, and put in the order of the run."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path

from parcost.contract.entries import Entry
from parcost.language.errors import error_text
from parcost.system.files import SHARD, read_lines
from parcost_apps.batch.saved_entries import read_entry
from parcost_apps.eval.shards import Shard, ShardError


def read_shard(path: str) -> Shard:
    """Return the shard in the file at *path*, after checking the digest of its lines.

    Raises:
        ShardError: The file is not a shard, or was cut short or edited.
        SpecError: The file cannot be read.
    """
    last = "".join(deque(read_lines(Path(path), SHARD), maxlen=1))  # the last one
    try:
        found = json.loads(last or "{}")
    except (ValueError, RecursionError):
        found = None
    checksum = found.get("shard") if isinstance(found, Mapping) else None
    if not isinstance(checksum, Mapping):
        raise ShardError(
            f"`{path}` is not a complete shard: its last line, a checksum, is missing; "
            "`parcost eval --shard 1/4 --out FILE` writes shards"
        )
    shard = Shard.from_checksum(checksum, path)
    if not shard.matches(_lines(path)):
        raise ShardError(
            f"`{path}` is shard {shard.number}/{shard.of}, but it was truncated or changed after "
            "it was written: write it again"
        )
    return shard


def entries_of(path: str) -> Iterator[Entry]:
    """Yield the entries of the shard in the file at *path*.

    Raises:
        ShardError: A line is not an entry.
    """
    for number, line in enumerate(_lines(path), 1):
        try:
            found = json.loads(line)
            entry = read_entry(found, str(found["text"]))
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ShardError(
                f"line {number} of `{path}` is not an entry: {error_text(error)}"
            ) from error
        yield entry


def _lines(path: str) -> Iterator[str]:
    """Yield the lines of a shard except the last, which is its checksum line."""
    before = ""
    for line in read_lines(Path(path), SHARD):
        if before:
            yield before
        before = line


def join_files(shards: Mapping[str, Shard]) -> list[str]:
    """Return the paths of *shards* in the order of the run.

    Raises:
        ShardError: The shards belong to several runs, or some are missing, or given twice.
    """
    first, *_ = shards
    one = shards[first]
    found: dict[int, str] = {}
    for path, shard in shards.items():
        if (shard.run, shard.of) != (one.run, one.of):
            said = "they were made with other files, options or versions"
            raise ShardError(f"`{path}` belongs to another run than `{first}`: {said}")
        if shard.number in found:
            other = found[shard.number]
            raise ShardError(f"`{other}` and `{path}` are both shard {shard.number}/{shard.of}")
        found[shard.number] = path
    missing = [str(n) for n in range(1, one.of + 1) if n not in found]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        numbers = ", ".join(missing[:20]) + (", ..." if len(missing) > 20 else "")
        noun = "shard" if len(missing) == 1 else "shards"
        raise ShardError(f"{noun} {numbers} of {one.of} {are} missing")
    return [found[number] for number in sorted(found)]
