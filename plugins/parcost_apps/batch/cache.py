"""The cache of results of earlier runs, addressed by content.

The key of a result is the hash of its environment and question (see
:mod:`~parcost_apps.batch.fingerprints`). The hashes of the imports of the spec are stored with it.
A lookup reads the spec, its result, and each import only once per run. Nothing is parsed, bound or
evaluated, and no plugin is imported.

Files of the cache are written atomically, so runs may share one. Each has a digest of its content
and of its key: a damaged or misplaced file counts as missing. A cache that cannot be read or
written costs time only, with one warning. Results that no run has read for a month are removed.

SQLite was tried. It is as fast, but needs the digests, too. If the disk is full, it keeps a fourth
of the results. Its locks are unreliable in network folders. diskcache unpickles the files that it
reads (`docs/runtime.md`).
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

from attrs import field

from parcost.contract.entries import Entry
from parcost.language.errors import SpecError
from parcost.records import define, frozen
from parcost.system.files import CACHED, SPEC, read_bytes, read_text
from parcost_apps.batch.files import Spec
from parcost_apps.batch.fingerprints import Environment, Import, Question, digest, location
from parcost_apps.batch.saved_entries import entry_head, read_entry

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
    """Return the default cache folder: the platform's folder for user caches."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if given.is_absolute():  # "relative paths are to be ignored", says the XDG specification
        return given / "parcost"
    if os.name == "nt" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local, "parcost", "cache")
    return Path("~/.cache/parcost").expanduser()


@frozen(eq=False)
class CachedResult:
    """The entries of one file, with their *packed* form and its *key* ("" if not to be cached)."""

    entries: Sequence[Entry]
    key: str = ""
    packed: bytes = field(default=b"", repr=False)


@define(eq=False)
class Cache:
    """Cache of results in *folder*; *say* is called with one warning if it is unusable."""

    folder: Path
    environment: Environment
    say: Callable[[str], None]
    _texts: dict[Path, str | None] = field(factory=dict)
    _packaged: dict[Import, bool] = field(factory=dict)  # which every spec names alike
    _complained: bool = False

    def find(self, spec: Spec, question: Question) -> list[Entry] | None:
        """Return the cached entries of a spec; None if there are none, or an import has changed."""
        try:
            text = read_text(spec.path, SPEC)
        except SpecError:  # reading it for its report says so
            return None
        found = spec.in_directory
        key = question.key(
            self.environment.digest, spec.path, text, in_directory=found, reading=spec.reading
        )
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
        """Write a result to the cache, if it has a key."""
        if answer.key:
            self._write(self._place(answer.key), answer.packed)

    def store_value(self, name: str, value: Any) -> None:
        """Store a value about the environment, under *name*."""
        place = self._fact(name)
        self._write(place, _with_digest(json.dumps(value).encode(), place.name))

    def fact(self, name: str) -> Any:
        """Return the stored value about the environment called *name*, or None."""
        place = self._fact(name)
        data = self._read(place)
        opened = None if data is None else _attempt(lambda: _without_digest(data, place.name))
        return None if opened is None else _attempt(lambda: json.loads(opened))

    def prune(self) -> None:
        """Remove results that were not read for a month; runs at most once a day."""
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
        """Return whether an import has the same content and the same name as when it was cached."""
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
        """Refresh the time stamp of the file at *place*, at most once a day."""
        try:
            if time() - place.stat().st_mtime > _DAY:
                os.utime(place)
        except OSError:
            return

    def _read(self, place: Path) -> bytes | None:
        """Return the content of the cache file at *place*, or None."""
        try:
            return read_bytes(place, CACHED)
        except SpecError as error:
            (found,) = error.diagnostics
            if found.id != "missing-file":
                self._complain(found.message)
            return None

    def _write(self, place: Path, data: bytes) -> None:
        """Write *data* to *place*, readable by this user only; a failure is a warning."""
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
        """Create *folder* of the cache, readable by this user only."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        for one in (self.folder, folder):
            one.mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)

    def _complain(self, reason: str) -> None:
        if not self._complained:
            self._complained = True
            where = f"the cache in `{self.folder}` cannot be used: {reason}"
            self.say(
                f"note: {where}; results that cannot be cached are computed again in the next run"
            )


def _attempt(read: Callable[[], T]) -> T | None:
    """Return ``read()``; None if the content is not in the format of this version."""
    try:
        return read()
    except (ValueError, KeyError, TypeError, AttributeError, zlib.error):
        return None


def _write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner may read."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        handle = os.open(path, flags, _PRIVATE_FILE)
    except FileExistsError:  # a run that was killed had the same number
        path.unlink()
        handle = os.open(path, flags, _PRIVATE_FILE)
    with os.fdopen(handle, "wb") as file:
        file.write(data)


def make_private(folder: Path) -> None:
    """Restrict a folder, left readable for others by an older version, to its owner."""
    try:
        status = folder.stat()
        if status.st_mode & 0o077 and status.st_uid == os.getuid():
            folder.chmod(_PRIVATE_FOLDER)
    except (OSError, AttributeError):  # it is not there yet, or users have no numbers here
        return


def pack(needed: Sequence[Import], entries: Sequence[Entry], key: str) -> bytes:
    """Return a result in its cached form: a line of JSON, followed by the texts of the entries.

    *key* is hashed into it, so that :func:`unpack` rejects a file under another key.
    """
    texts = [entry.text.encode("utf-8", "surrogatepass") for entry in entries]
    heads = [{**entry_head(e), "size": len(text)} for e, text in zip(entries, texts, strict=True)]
    head = {"imports": [[i.name, i.package, i.place, i.digest] for i in needed], "entries": heads}
    line = json.dumps(head).encode()
    return _with_digest(line + b"\n" + b"".join(texts), key)


def unpack(data: bytes, key: str) -> tuple[list[Import], list[Entry]] | None:
    """Return the imports and entries of a packed result; None if damaged, or of another key."""
    opened = _without_digest(data, key)
    if opened is None:
        return None
    line, _, texts = opened.partition(b"\n")
    head = json.loads(line)
    entries = []
    start = 0
    for one in head["entries"]:
        end = start + one["size"]
        entries.append(read_entry(one, texts[start:end].decode("utf-8", "surrogatepass")))
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
