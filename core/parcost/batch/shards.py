"""A part of a batch for each of several machines, and how the parts find together again.

Shard ``2/8`` is the second eighth of the files, in their order, so that the shards one
after another are the whole. What is written of a shard ends in a seal, which says of which
run it is which part, and holds a digest of what stands before it: without a seal it was cut
short, and with another digest it was edited. ``parcost merge`` reads the seals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, TypeVar

from attrs import asdict, field, frozen

from parcost.diagnostics import ParcostError

T = TypeVar("T")
_LONGEST = 32  # characters of a shard's name


class ShardError(ParcostError):
    """A shard is none, or shards are not the whole of one run."""


@frozen(kw_only=True)
class Shard:
    """Number *number* of *of* shards of the run whose hash is *run*.

    *digest* is that of what was written of it, where that is known.
    """

    number: int
    of: int
    run: str = ""
    digest: str = field(default="", repr=False)

    @classmethod
    def parsed(cls, text: str) -> Shard:
        """Return the shard that *text* names.

        >>> Shard.parsed("2/8")
        Shard(number=2, of=8, run='')

        Raises:
            ShardError: It names none.
        """
        number, _, of = text.partition("/")
        digits = number.isdecimal() and of.isdecimal() and len(text) <= _LONGEST
        if not (digits and 1 <= int(number) <= int(of)):
            raise ShardError(f"`{text}` is no shard; write 1/8, 2/8, ... 8/8")
        return cls(number=int(number), of=int(of))

    def part(self, files: Sequence[T]) -> Sequence[T]:
        """Return the files of the shard.

        >>> [Shard(number=n, of=3).part("abcdefgh") for n in (1, 2, 3)]
        ['ab', 'cde', 'fgh']
        """
        first, last = (len(files) * n // self.of for n in (self.number - 1, self.number))
        return files[first:last]

    def sealed(self) -> dict[str, Any]:
        """Return the seal."""
        return asdict(self)

    def watched(self, pieces: Iterable[str], seal: dict[str, Any]) -> Iterator[str]:
        """Yield *pieces* as they are; after the last, *seal* holds their digest."""
        hashed = sha256(f"{self.number}/{self.of} {self.run}\n".encode())  # the seal counts too
        for piece in pieces:
            hashed.update(_as_written(piece))
            yield piece
        seal["digest"] = hashed.hexdigest()

    def holds(self, pieces: Iterable[str]) -> bool:
        """Say whether *pieces* are what was written of the shard."""
        found: dict[str, Any] = {}
        for _ in self.watched(pieces, found):
            pass
        return bool(found["digest"] == self.digest)

    @classmethod
    def of_seal(cls, seal: Mapping[str, Any], path: str) -> Shard:
        """Return the shard of a seal, found in the file at *path*."""
        try:
            numbers = {name: int(seal[name]) for name in ("number", "of")}
            return cls(**numbers, run=str(seal["run"]), digest=str(seal["digest"]))
        except (KeyError, TypeError, ValueError):
            needed = "it holds no number, of, run and digest"
            raise ShardError(f"the seal of `{path}` is damaged: {needed}") from None


def _as_written(text: str) -> bytes:
    """Return *text* as it stands in a file, less what the ends of lines are on some systems."""
    return text.replace("\r", "").encode("utf-8", "backslashreplace")


def run_of(environment: str, question: str, paths: Sequence[str]) -> str:
    """Return the hash of a run: what is asked, of which files, of which code."""
    hashed = sha256()
    for text in (environment, question, *paths):
        data = text.encode("utf-8", "surrogatepass")
        hashed.update(b"%d:" % len(data) + data)
    return hashed.hexdigest()[:16]


def whole(shards: Mapping[str, Shard]) -> list[str]:
    """Return the files of *shards* in the order of the run.

    Raises:
        ShardError: They are of several runs, or some are missing, or given twice.
    """
    first, *_ = shards
    one = shards[first]
    found: dict[int, str] = {}
    for path, shard in shards.items():
        if (shard.run, shard.of) != (one.run, one.of):
            said = "other files, options or versions went into them"
            raise ShardError(f"`{path}` is of another run than `{first}`: {said}")
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
