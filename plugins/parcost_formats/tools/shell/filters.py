"""Filter commands that scripts use to count devices."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from parcost_formats.tools.shell.file_edits import edit_by_sed

_INPUT = "/dev/stdin"
_ESCAPES = {"\\n": "\n", "\\t": "\t", "[:space:]": " \n\t"}
_PLAIN = re.compile(r"[\w,;:/ ]+")  # a pattern of `grep` that stands for itself
_FIELDS = re.compile(r"\s*\{\s*print\s+NF;?\s*\}\s*")


def filter_text(words: Sequence[str], text: str) -> str | None:
    """Return the output of a filter command for *text*; None for an unsupported command.

    >>> filter_text(["grep", "-o", ","], "0,1,2\\n")
    ',\\n,\\n'
    >>> filter_text(["wc", "-l"], ",\\n,\\n")
    '2\\n'
    >>> filter_text(["awk", "-F,", "{print NF}"], "0,1,2\\n")
    '3\\n'
    """
    name, *arguments = words or [""]
    return _FILTERS[name](arguments, text) if name in _FILTERS else None


def _count(arguments: Sequence[str], text: str) -> str | None:
    counts = {"-l": text.count("\n"), "-w": len(text.split()), "-c": len(text.encode())}
    (option,) = arguments if len(arguments) == 1 else ("",)
    return f"{counts[option]}\n" if option in counts else None


def _translate(arguments: Sequence[str], text: str) -> str | None:
    options = "".join(one[1:] for one in arguments[:-1] if re.fullmatch(r"-[cds]+", one))
    sets = [_ESCAPES.get(one, one) for one in arguments if not re.fullmatch(r"-[cds]+", one)]
    if any(re.search(r"[-\\\[]", one) or not one for one in sets):
        return None
    if options in ("d", "cd", "dc") and len(sets) == 1:
        return "".join(char for char in text if (char in sets[0]) is ("c" in options))
    if options or len(sets) != 2:
        return None
    first, second = sets
    second += second[-1] * (len(first) - len(second))
    return text.translate(dict(zip(map(ord, first), second, strict=False)))


def _find(arguments: Sequence[str], text: str) -> str | None:
    if len(arguments) != 2 or arguments[0] != "-o" or not _PLAIN.fullmatch(arguments[1]):
        return None
    return "".join(
        f"{arguments[1]}\n" * line.count(arguments[1])
        for line in text.removesuffix("\n").split("\n")
    )


def _count_fields(arguments: Sequence[str], text: str) -> str | None:
    separator, program = _option(arguments, "-F")
    if program is None or not _FIELDS.fullmatch(program) or (separator and len(separator) > 1):
        return None
    if separator == "\\":
        return None
    between = None if separator in ("", " ") else separator
    lines = text.removesuffix("\n").split("\n") if text else []
    counts = [len(one.split(between)) if one else 0 for one in lines]
    return "".join(f"{count}\n" for count in counts)


def _option(arguments: Sequence[str], name: str) -> tuple[str, str | None]:
    """Return the value of an option, separate or joined to it, and the single word after it."""
    words = list(arguments)
    value = ""
    if words and words[0].startswith(name):
        value = words.pop(0).removeprefix(name)
        if not value and words:
            value = words.pop(0)
    return value, words[0] if len(words) == 1 else None


def _edit(arguments: Sequence[str], text: str) -> str | None:
    found = edit_by_sed(text, [*arguments, _INPUT])
    return found[0] if found is not None and [*found[1]] == [_INPUT] else None


_FILTERS: Mapping[str, Callable[[Sequence[str], str], str | None]] = {
    "wc": _count,
    "tr": _translate,
    "grep": _find,
    "sed": _edit,
    "awk": _count_fields,
    "gawk": _count_fields,
}
