"""What earlier runs found, by content.

An answer is kept under the hash of the environment and the question (see
:mod:`~parcost.batch.keys`) beside the hashes of what the spec imports, so finding it means
reading the spec, its answer, and every import once per run. Nothing is parsed, bound or
evaluated, and no plugin is imported.

A file of the cache appears whole or not at all, so runs may share one. It is sealed with a
digest of what is in it and of where it belongs: what is damaged, or was put in the place of
another, is not there. A cache that cannot be read or written costs time and nothing else: it
says so once. What no run has asked for in a month is removed.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from time import time
from typing import Any

from attrs import define, field, frozen

from parcost.batch.entry import Entry, Problem
from parcost.batch.keys import Environment, Import, Question, decoded, digest, location
from parcost.batch.specs import Spec

_MAGIC = b"parcost 3 "
_DIGEST = 64
_LEVEL = 1  # what is in a report repeats itself: a tenth of the size in a tenth of the time
_DAY = 24 * 3600.0
_KEPT_DAYS = 30


def default_place() -> Path:
    """Return where results are kept: the folder for caches of the platform."""
    if given := os.environ.get("XDG_CACHE_HOME"):
        return Path(given, "parcost")
    if os.name == "nt" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local, "parcost", "cache")
    return Path("~/.cache/parcost").expanduser()


@frozen(eq=False)
class Answer:
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
    _writes: bool = True

    def find(self, spec: Spec, question: Question) -> list[Entry] | None:
        """Return what is known about a file, if it is still true."""
        try:
            text = decoded(Path(spec.path).read_bytes())
        except (OSError, ValueError):
            return None
        if text is None:
            return None
        found = spec.in_directory
        key = question.key(self.environment.digest, spec.path, text, in_directory=found)
        place = self._place(key)
        try:
            data = place.read_bytes()
            known = unpacked(data, key)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._complain("read", error)
            return None
        if known is None:
            return None
        needed, entries = known
        if not all(self._holds(one, spec) for one in needed):
            return None
        self._touch(place)
        return entries

    def store(self, answer: Answer) -> None:
        """Keep an answer."""
        if answer.key:
            self._write(self._place(answer.key), answer.packed)

    def note(self, name: str, value: Any) -> None:
        """Keep a fact about the environment."""
        place = self._fact(name)
        self._write(place, _sealed(json.dumps(value).encode(), place.name))

    def noted(self, name: str) -> Any:
        """Return a fact about the environment; None if it is not known."""
        place = self._fact(name)
        try:
            data = _opened(place.read_bytes(), place.name)
        except OSError:
            return None
        return None if data is None else json.loads(data)

    def prune(self) -> None:
        """Remove what has not been asked for in a month, at most once a day."""
        stamp = self.folder / "pruned"
        try:
            if stamp.exists() and time() - stamp.stat().st_mtime < _DAY:
                return
            stamp.touch()
            for file in self.folder.glob("*/*"):
                if time() - file.stat().st_mtime > _KEPT_DAYS * _DAY:
                    file.unlink(missing_ok=True)
        except OSError:
            return  # another run does it, or nobody can

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
        """Say that *place* is in use, without writing for each question."""
        try:
            if time() - place.stat().st_mtime > _DAY:
                os.utime(place)
        except OSError:
            return

    def _write(self, place: Path, data: bytes) -> None:
        if not self._writes:
            return
        try:
            beside = place.with_name(f".{os.getpid()}-{place.name}")  # of no other run
            try:
                try:
                    beside.write_bytes(data)
                except FileNotFoundError:
                    place.parent.mkdir(parents=True, exist_ok=True)
                    beside.write_bytes(data)
                beside.replace(place)
            except BaseException:
                with suppress(OSError):
                    beside.unlink(missing_ok=True)
                raise
        except OSError as error:
            self._complain("written", error)

    def _complain(self, done: str, error: OSError) -> None:
        if self._writes:
            self._writes = False
            where = f"the cache in `{self.folder}` cannot be {done}: {error.strerror}"
            self.say(f"note: {where}; results are not remembered")


def packed(needed: Sequence[Import], entries: Sequence[Entry], key: str) -> bytes:
    """Return an answer as it is kept: a head of JSON, and behind it the texts as they are.

    *key* is what it is kept under, and can be read under alone.
    """
    texts = [entry.text.encode("utf-8", "surrogatepass") for entry in entries]
    heads = [_head(entry, len(text)) for entry, text in zip(entries, texts, strict=True)]
    head = {"imports": [[i.name, i.package, i.place, i.digest] for i in needed], "entries": heads}
    line = json.dumps(head).encode()
    return _sealed(line + b"\n" + b"".join(texts), key)


def unpacked(data: bytes, key: str) -> tuple[list[Import], list[Entry]] | None:
    """Return an answer that was packed; None if it is damaged, or not that of *key*."""
    opened = _opened(data, key)
    if opened is None:
        return None
    line, _, texts = opened.partition(b"\n")
    head = json.loads(line)
    entries = []
    start = 0
    for told in head["entries"]:
        end = start + told["size"]
        entries.append(_entry(told, texts[start:end].decode("utf-8", "surrogatepass")))
        start = end
    return [Import(*one) for one in head["imports"]], entries


def _head(entry: Entry, size: int) -> dict[str, Any]:
    return {
        "path": entry.path,
        "name": entry.name,
        "exit_code": entry.exit_code,
        "reasons": list(entry.reasons),
        "problems": [[problem.text, problem.line] for problem in entry.problems],
        "faults": list(entry.faults),
        "missing": [list(pair) for pair in entry.missing],
        "part": entry.part,
        "size": size,
    }


def _entry(told: Mapping[str, Any], text: str) -> Entry:
    return Entry(
        path=told["path"],
        name=told["name"],
        exit_code=told["exit_code"],
        reasons=tuple(told["reasons"]),
        problems=tuple(Problem(text=text, line=line) for text, line in told["problems"]),
        faults=tuple(told["faults"]),
        missing=tuple((name, hint) for name, hint in told["missing"]),
        part=told["part"],
        text=text,
        remembered=True,
    )


def _sealed(data: bytes, key: str) -> bytes:
    squeezed = zlib.compress(data, _LEVEL)
    return _MAGIC + _seal(squeezed, key) + squeezed


def _opened(data: bytes, key: str) -> bytes | None:
    start = len(_MAGIC) + _DIGEST
    seal, squeezed = data[len(_MAGIC) : start], data[start:]
    if not data.startswith(_MAGIC) or _seal(squeezed, key) != seal:
        return None
    return zlib.decompress(squeezed)


def _seal(squeezed: bytes, key: str) -> bytes:
    return sha256(key.encode() + b"\n" + squeezed).hexdigest().encode()


def _digest_of(place: Path) -> str | None:
    try:
        text = decoded(place.read_bytes())
    except (OSError, ValueError):
        return None
    return None if text is None else digest(text)
