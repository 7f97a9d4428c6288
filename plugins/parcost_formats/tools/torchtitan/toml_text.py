"""TOML with the place of every key.

The standard library reads the values without places, so the place of a key is its line.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from parcost import record
from parcost_formats.tools.file_importer import LARGEST, TOO_LARGE, FileError
from parcost_formats.tools.python_values import text_offset
from parcost_formats.tools.tables import table
from parcost_formats.tools.yaml_text import LONGEST

_HEADER = re.compile(r"[ \t]*\[([^\[\]]+)\][ \t]*(?:#.*)?")
_KEY = re.compile(r"""[ \t]*((?:[\w.-]|"[^"]*"|'[^']*')+)[ \t]*=""")
_WHERE = re.compile(r"\(at line (\d+), column (\d+)\)")
_LONG_KEY = re.compile(r"""(?<![\w"'-])(?:[\w"'-]+[ \t]*\.[ \t]*){32}""")
_COMMENT = re.compile(r"""^((?:[^"'#]|"(?:[^"\\]|\\.)*"|'[^']*')*)#.*$""")


class TomlTextError(FileError):
    """An error with its place: a text is not valid TOML."""


@record
class TomlEntry:
    """The value of a key, and the span of key and value in the text."""

    value: Any
    start: int
    end: int


def field_name(key: str) -> str:
    """Return the name of a field in the table.

    >>> field_name("quantize.linear.float8.filter_fqns"), field_name("training.batch_size")
    ('float8.filter_fqns', 'training.local_batch_size')
    """
    for before, now in table("torchtitan")["sections"].items():
        key = now + key.removeprefix(before) if key.startswith(before) else key
    return str(table("torchtitan")["aliases"].get(key, key))


def read_toml(text: str) -> Mapping[str, TomlEntry]:
    """Return the entries of a TOML text by dotted key.

    >>> {key: entry.value for key, entry in read_toml("[a.b]\\nc = 1").items()}
    {'a.b.c': 1}

    Raises:
        TomlTextError: The text is not TOML, is too long, or has keys of too many parts.
    """
    if len(text) > LONGEST:
        message = f"{len(text):,} characters are more than the {LONGEST:,} of a configuration"
        raise TomlTextError(message, LONGEST, LONGEST + 1)
    if long_key := _LONG_KEY.search(text):  # the time to read one grows with its square
        raise TomlTextError("a key has more than 32 parts", *long_key.span())
    try:
        values = dict(_flat(tomllib.loads(text), ""))
    except tomllib.TOMLDecodeError as error:
        found = _WHERE.search(str(error))
        at = text_offset(text, int(found[1]), int(found[2])) if found else max(len(text) - 1, 0)
        message = _WHERE.sub("", str(error)).strip()
        raise TomlTextError(f"not TOML: {message}", at, at + 1) from None
    except ValueError:  # Python reads no number of so many digits
        digits = max(re.finditer(r"\w+", text), key=lambda found: found.end() - found.start())
        raise TomlTextError(TOO_LARGE, *digits.span()) from None
    except RecursionError:
        raise TomlTextError("it is nested too deeply", 0, 1) from None
    places = dict(_places(text))
    for key, value in values.items():
        numbers = value if isinstance(value, list) else [value]
        if any(isinstance(one, int) and abs(one) > LARGEST for one in numbers):
            raise TomlTextError(TOO_LARGE, *places.get(key, (0, 1)))
    return {  # a section without keys has no entry, and a key with an empty table has one
        key: TomlEntry(value, *places.get(key, (0, 0)))
        for key, value in values.items()
        if value != {} or key in places
    }


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _places(text: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield dotted keys, each with the span of its line."""
    section, at = "", 0
    for line in text.splitlines(keepends=True):
        header, key = _HEADER.fullmatch(line.rstrip("\r\n")), _KEY.match(line)
        if header:
            section = f"{_plain(header[1])}."
        elif key:
            shown = line.rstrip()
            comment = _COMMENT.match(shown)
            shown = comment[1].rstrip() if comment else shown
            yield section + _plain(key[1]), (at + key.start(1), at + len(shown))
        at += len(line)


def _plain(key: str) -> str:
    return "".join(key.split()).replace('"', "").replace("'", "")
