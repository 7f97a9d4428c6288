"""JSON with the place of every key and value."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from parcost import PlaceBeside, record
from parcost_formats.tools.file_importer import TOO_LARGE, FileError

MOST_KEYS = 20_000  # of a configuration
_LONGEST = 1000  # characters of a key
_BLANK = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


class JsonTextError(FileError):
    """A text is not JSON; the error has the place."""


@record
class JsonEntry:
    """The value of a key, and the span of key and value in the text.

    If the key is in a file that the text names, the span is that of the file name. *beside* is then
    the place of the key.
    """

    value: Any
    start: int
    end: int
    beside: PlaceBeside | None = None


def read_object(text: str) -> Mapping[str, JsonEntry]:
    """Return the entries of a JSON object; keys of nested objects are joined with dots.

    An inner object without entries is a value of its key.

    >>> {key: entry.value for key, entry in read_object('{"a": 1, "b": {"c": [2]}}').items()}
    {'a': 1, 'b.c': [2]}

    Raises:
        JsonTextError: The text is not a JSON object, or has a key twice.
    """
    try:
        json.loads(text)
        start = _skip(text, 0)
        if text[start] != "{":
            raise JsonTextError("an object is expected", start)
        entries: dict[str, JsonEntry] = {}
        _object(text, start, "", entries)
    except json.JSONDecodeError as error:
        raise JsonTextError(error.msg, error.pos) from None
    except ValueError as error:  # Python reads no number of so many digits
        if isinstance(error, JsonTextError):
            raise
        digits = max(re.finditer(r"\d+", text), key=lambda found: found.end() - found.start())
        raise JsonTextError(TOO_LARGE, digits.start()) from None
    except RecursionError:
        raise JsonTextError("it is nested too deeply", 0) from None
    return entries


def _object(text: str, at: int, prefix: str, entries: dict[str, JsonEntry]) -> int:
    """Add the entries of the object that starts at *at*; return the offset of its end."""
    at = _skip(text, at + 1)
    while text[at] != "}":
        start = at
        key, at = scanstring(text, at + 1, True)
        at = _skip(text, _skip(text, at) + 1)
        if text[at] == "{" and text[_skip(text, at + 1)] != "}":
            at = _object(text, at, f"{prefix}{key}.", entries)
        else:
            if f"{prefix}{key}" in entries:
                raise JsonTextError(f"the key `{prefix}{key}` is defined twice", start)
            if len(prefix) + len(key) > _LONGEST:
                message = f"a key has {_LONGEST:,} characters at most"
                raise JsonTextError(message, start)
            if len(entries) >= MOST_KEYS:
                message = f"a configuration has {MOST_KEYS:,} keys at most"
                raise JsonTextError(message, start)
            value, at = _DECODER.raw_decode(text, at)
            entries[f"{prefix}{key}"] = JsonEntry(value, start, at)
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return at + 1


def _skip(text: str, at: int) -> int:
    """Return the offset of the first non-blank character from *at* on."""
    blank = _BLANK.match(text, at)
    return at if blank is None else blank.end()
