"""The cache of answers of earlier runs, addressed by content.

The key of an answer is the hash of its environment and question (see
:mod:`~parcost.batch.fingerprints`). The hashes of the imports of the spec stand beside it. A lookup
reads the spec, its answer, and every import once per run. Nothing is parsed, bound or evaluated,
and no plugin is imported.

Files of the cache are written atomically, so runs may share one. Each has a digest of its content
and of its key: a damaged or misplaced file counts as missing. A cache that cannot be read or
written costs time only, with one warning. Answers that no run has read for a month are removed.

SQLite was tried. It is as fast, but needs the digests too, and keeps a fourth of the answers on a
full disk. Its locks are unreliable in network folders. diskcache unpickles what it reads
(`docs/runtime.md`).
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from time import time
from typing import Any, TypeVar

from attrs import define, field, frozen

from parcost.batch.files import Spec
from parcost.batch.fingerprints import Environment, Import, Question, digest, location
from parcost.contract.entries import Entry
from parcost.language.errors import SpecError
from parcost.system.files import CACHED, SPEC, read_bytes, read_text

T = TypeVar("T")

_MAGIC = b"parcost 3 "
_DIGEST = 64
_LEVEL = 1  # what is in a report repeats itself: a tenth of the size in a tenth of the time
_MOST_UNPACKED = 2**30  # bytes of one answer
_OURS = re.compile(r"[0-9a-f]{2}/(\.\d+-)?[0-9a-f]{62}|facts/(\.\d+-)?\w+-[0-9a-f]{64}")
_DAY = 24 * 3600.0
_KEPT_DAYS = 30
_PRIVATE_FOLDER, _PRIVATE_FILE = 0o700, 0o600


def default_place() -> Path:
    """Return where results are kept: the folder for caches of the platform."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if given.is_absolute():  # "relative paths are to be ignored", says the XDG specification
        return given / "parcost"
    if os.name == "nt" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local, "parcost", "cache")
    return Path("~/.cache/parcost").expanduser()


@frozen(eq=False)
class CachedResult:
    """The entries of one file, packed to be kept, and where: *key* is empty if they are not."""

    entries: Sequence[Entry]
    key: str = ""
    packed: bytes = field(default=b"", repr=False)


@define(eq=False)
class Cache:
    """Answers in *folder*; *say* tells the user, once, that it is of no use."""

    folder: Path
    environment: Environment
    say: Callable[[str], None]
    _texts: dict[Path, str | None] = field(factory=dict)
    _packaged: dict[Import, bool] = field(factory=dict)  # which every spec names alike
    _complained: bool = False

    def find(self, spec: Spec, question: Question) -> list[Entry] | None:
        """Return what is known about a file, if it is still true."""
        try:
            text = read_text(spec.path, SPEC)
        except SpecError:  # reading it for its report says so
            return None
        found = spec.in_directory
        key = question.key(self.environment.digest, spec.path, text, in_directory=found)
        place = self._place(key)
        data = self._read(place)
        known = None if data is None else _attempt(lambda: unpack(data, key))
        if known is None:
            return None
        needed, entries = known
        if not all(self._holds(one, spec) for one in needed):
            return None
        self._touch(place)
        return entries

    def store(self, answer: CachedResult) -> None:
        """Keep an answer."""
        if answer.key:
            self._write(self._place(answer.key), answer.packed)

    def note(self, name: str, value: Any) -> None:
        """Keep a fact about the environment."""
        place = self._fact(name)
        self._write(place, _with_digest(json.dumps(value).encode(), place.name))

    def fact(self, name: str) -> Any:
        """Return a fact about the environment; None if it is not known."""
        place = self._fact(name)
        data = self._read(place)
        opened = None if data is None else _attempt(lambda: _without_digest(data, place.name))
        return None if opened is None else _attempt(lambda: json.loads(opened))

    def prune(self) -> None:
        """Remove what has not been asked for in a month, at most once a day."""
        stamp = self.folder / "pruned"
        try:
            if stamp.exists() and time() - stamp.stat().st_mtime < _DAY:
                return
            stamp.touch(_PRIVATE_FILE)
            for file in self.folder.glob("*/*"):
                if _OURS.fullmatch(f"{file.parent.name}/{file.name}") is None:
                    continue  # the folder may hold other things as well
                days = 1 if file.name.startswith(".") else _KEPT_DAYS  # of a run that was killed
                if time() - file.stat().st_mtime > days * _DAY:
                    file.unlink(missing_ok=True)
        except OSError:
            return  # another run does it, or none can

    def _holds(self, one: Import, spec: Spec) -> bool:
        """Whether an import still says what it said, and is still called so."""
        if one.package and one in self._packaged:
            return self._packaged[one]
        place = location(one, spec.path, self.environment.packages)
        if place is None:
            return False
        if place not in self._texts:
            self._texts[place] = _digest_of(place)
        holds = self._texts[place] == one.digest
        if one.package:
            self._packaged[one] = holds
            return holds
        called = str(place) if Path(spec.path).is_absolute() else os.path.relpath(place)
        return holds and os.path.normpath(called) == one.name

    def _place(self, key: str) -> Path:
        return self.folder / key[:2] / key[2:]

    def _fact(self, name: str) -> Path:
        return self.folder / "facts" / f"{name}-{self.environment.digest}"

    def _touch(self, place: Path) -> None:
        """Mark *place* as in use, without a write for each question."""
        try:
            if time() - place.stat().st_mtime > _DAY:
                os.utime(place)
        except OSError:
            return

    def _read(self, place: Path) -> bytes | None:
        """Return what is kept at *place*, if anything."""
        try:
            return read_bytes(place, CACHED)
        except SpecError as error:
            (found,) = error.diagnostics
            if found.id != "missing-file":
                self._complain(found.message)
            return None

    def _write(self, place: Path, data: bytes) -> None:
        """Keep *data* at *place*, for this user alone; the next result is tried all the same."""
        if len(data) > CACHED.limit:
            return
        beside = place.with_name(f".{os.getpid()}-{place.name}")  # of no other run
        try:
            try:
                try:
                    _write_private(beside, data)
                except FileNotFoundError:
                    self._make_folders(place.parent)
                    _write_private(beside, data)
                beside.replace(place)
            except BaseException:
                with suppress(OSError):  # the first error is the one to report
                    beside.unlink(missing_ok=True)
                raise
        except OSError as error:
            self._complain(f"`{place}` cannot be written: {error.strerror}")

    def _make_folders(self, folder: Path) -> None:
        """Make *folder* of the cache, which only this user can read."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        for one in (self.folder, folder):
            one.mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)

    def _complain(self, reason: str) -> None:
        if not self._complained:
            self._complained = True
            where = f"the cache in `{self.folder}` fails: {reason}"
            self.say(f"note: {where}; results are not remembered where it does")


def _attempt(read: Callable[[], T]) -> T | None:
    """Return ``read()``; None where what is kept is not as this version writes it."""
    try:
        return read()
    except (ValueError, KeyError, TypeError, AttributeError, zlib.error):
        return None


def _write_private(path: Path, data: bytes) -> None:
    """Write a file that its owner alone may read."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        handle = os.open(path, flags, _PRIVATE_FILE)
    except FileExistsError:  # a run that was killed had the same number
        path.unlink()
        handle = os.open(path, flags, _PRIVATE_FILE)
    with os.fdopen(handle, "wb") as file:
        file.write(data)


def make_private(folder: Path) -> None:
    """Restrict a folder of this user, left open by an older version, to its owner."""
    try:
        status = folder.stat()
        if status.st_mode & 0o077 and status.st_uid == os.getuid():
            folder.chmod(_PRIVATE_FOLDER)
    except (OSError, AttributeError):  # it is not there yet, or users have no numbers here
        return


def pack(needed: Sequence[Import], entries: Sequence[Entry], key: str) -> bytes:
    """Return an answer as it is kept: a head of JSON, and behind it the texts as they are.

    *key* is what it is kept under, and can be read under alone.
    """
    texts = [entry.text.encode("utf-8", "surrogatepass") for entry in entries]
    heads = [{**e.head(), "size": len(text)} for e, text in zip(entries, texts, strict=True)]
    head = {"imports": [[i.name, i.package, i.place, i.digest] for i in needed], "entries": heads}
    line = json.dumps(head).encode()
    return _with_digest(line + b"\n" + b"".join(texts), key)


def unpack(data: bytes, key: str) -> tuple[list[Import], list[Entry]] | None:
    """Return an answer that was packed; None if it is damaged, or not that of *key*."""
    opened = _without_digest(data, key)
    if opened is None:
        return None
    line, _, texts = opened.partition(b"\n")
    head = json.loads(line)
    entries = []
    start = 0
    for one in head["entries"]:
        end = start + one["size"]
        entries.append(Entry.of(one, texts[start:end].decode("utf-8", "surrogatepass")))
        start = end
    return [Import(*one) for one in head["imports"]], entries


def _with_digest(data: bytes, key: str) -> bytes:
    squeezed = zlib.compress(data, _LEVEL)
    return _MAGIC + _seal(squeezed, key) + squeezed


def _without_digest(data: bytes, key: str) -> bytes | None:
    start = len(_MAGIC) + _DIGEST
    seal, squeezed = data[len(_MAGIC) : start], data[start:]
    if not data.startswith(_MAGIC) or _seal(squeezed, key) != seal:
        return None
    unpacker = zlib.decompressobj()
    found = unpacker.decompress(squeezed, _MOST_UNPACKED)
    return found if unpacker.eof else None


def _seal(squeezed: bytes, key: str) -> bytes:
    return sha256(key.encode() + b"\n" + squeezed).hexdigest().encode()


def _digest_of(place: Path) -> str | None:
    try:
        return digest(read_text(place, SPEC))
    except SpecError:
        return None
