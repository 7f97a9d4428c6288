"""Shards: the part of a batch for each of several machines, and their merge.

Shard ``2/8`` is the second eighth of the files, in their order. The shards in sequence are the
whole batch. A shard is a file of JSON lines, whatever the format of the run: one line for each
entry, and a checksum line. ``parcost merge`` writes the format from these entries, as a run does
from the entries of its workers. The checksum line names the run and the part, and has a digest of
the lines above. If it is missing, the shard is incomplete; if the digest differs, the shard was
edited. A shard of a run in csv, shortened:

    {"path":"a.par","name":"a","exit_code":0,...,"part":"points","text":"[{\\"path\\":..."}
    {"shard":{"number":2,"of":8,"run":"5f0c...","format":"csv",...,"digest":"e3b0..."}}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, TypeVar

from attrs import asdict, evolve, field

from parcost.contract.entries import PARTS, Entry, Part
from parcost.language.errors import ParcostError
from parcost.language.json_encoding import encode
from parcost.records import frozen
from parcost_apps.batch.saved_entries import entry_head
from parcost_formats.rendering.view import KINDS, Kind

T = TypeVar("T")
_LONGEST = 32  # characters of a shard's name


class ShardError(ParcostError):
    """A file is not a shard, or the shards do not cover one run."""


@frozen(kw_only=True)
class Shard:
    """Part *number* of *of* parts of the run whose hash is *run*.

    The run writes *format* from a *part* of entries; its pages have a *kind*. *digest* is the hash
    of the lines of the shard, once they are written.
    """

    number: int
    of: int
    run: str = ""
    format: str = ""
    part: Part = "data"
    kind: Kind = "line"
    digest: str = field(default="", repr=False)

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Return the shard in a text such as ``2/8``.

        >>> shard = Shard.parse("2/8")
        >>> shard.number, shard.of
        (2, 8)

        Raises:
            ShardError: The text is not a shard.
        """
        number, _, of = text.partition("/")
        digits = number.isdecimal() and of.isdecimal() and len(text) <= _LONGEST
        if not (digits and 1 <= int(number) <= int(of)):
            raise ShardError(f"`{text}` is not a shard; write 1/8, 2/8, ... 8/8")
        return cls(number=int(number), of=int(of))

    def share(self, files: Sequence[T]) -> Sequence[T]:
        """Return the files of the shard.

        >>> [Shard(number=n, of=3).share("abcdefgh") for n in (1, 2, 3)]
        ['ab', 'cde', 'fgh']
        """
        first, last = (len(files) * n // self.of for n in (self.number - 1, self.number))
        return files[first:last]

    @classmethod
    def from_checksum(cls, checksum: Mapping[str, Any], path: str) -> Shard:
        """Return the shard that the checksum line of the file at *path* describes.

        Raises:
            ShardError: The line is not in the format of this version.
        """
        try:
            return cls(
                number=int(checksum["number"]),
                of=int(checksum["of"]),
                run=str(checksum["run"]),
                format=str(checksum["format"]),
                part=PARTS[PARTS.index(checksum["part"])],
                kind=KINDS[KINDS.index(checksum["kind"])],
                digest=str(checksum["digest"]),
            )
        except (KeyError, TypeError, ValueError):
            needed = "it has no number, of, run, format, part, kind and digest"
            raise ShardError(f"the checksum line of `{path}` is damaged: {needed}") from None

    def lines(self, entries: Iterable[Entry]) -> Iterator[str]:
        """Yield the lines of *entries*, and the checksum line."""
        hashed = sha256(self._title)
        for entry in entries:
            line = encode({**entry_head(entry), "text": entry.text})
            hashed.update(line.encode() + b"\n")
            yield line + "\n"
        yield encode({"shard": asdict(evolve(self, digest=hashed.hexdigest()))}) + "\n"

    @property
    def _title(self) -> bytes:
        """The part of the checksum line that the digest covers, next to the lines."""
        return encode(asdict(evolve(self, digest=""))).encode() + b"\n"

    def matches(self, lines: Iterable[str]) -> bool:
        """Return whether *lines* have the digest of the shard."""
        hashed = sha256(self._title)
        for line in lines:
            hashed.update(line.rstrip("\r\n").encode("utf-8", "backslashreplace") + b"\n")
        return hashed.hexdigest() == self.digest


def run_of(environment: str, question: str, paths: Sequence[str]) -> str:
    """Return the hash of a run, from its code, its options and its files."""
    hashed = sha256()
    for text in (environment, question, *paths):
        data = text.encode("utf-8", "surrogatepass")
        hashed.update(b"%d:" % len(data) + data)
    return hashed.hexdigest()[:16]
