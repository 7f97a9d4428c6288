"""Lists of all setting names of each tool, for one release or several.

`benchmarks/tool_keys.py` extracts them from the packages of the tools. A list begins with the names
of its first release. Each further release lists added names after ``+``, and removed ones after
``-``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from parcost import record
from parcost_formats.tools import tables
from parcost_formats.tools.tables import table

#: Lists that a tool has beside its own: fine-tuning tools pass the arguments of a trainer on.
_ALSO: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("llamafactory", "axolotl", "trl", "ms_swift"), ("trainer", "deepspeed", "accelerate")
    ),
    "megatron": ("megatron_bridge", "primus", "slime", "mindspeed"),
    "gpt_neox": ("deepspeed",),
}
#: Parts of a table whose keys are names of settings.
_PARTS = (
    *("numbers", "switches", "aliases", "reasons", "costs", "unread", "open", "attributes"),
    *("deciding", "elsewhere"),
)


@record
class KeyRelease:
    """The *names* of all settings of a release; *title* is the tool, version and package."""

    title: str
    names: frozenset[str]


def releases(tool: str) -> Iterator[KeyRelease]:
    """Yield the releases of a tool that have a list, the oldest first."""
    place = files(__name__) / f"{tool}.txt"
    names: set[str] = set()
    title = ""
    for line in place.read_text(encoding="utf-8").splitlines() if place.is_file() else ():
        if line.startswith("="):
            if title:
                yield KeyRelease(title, frozenset(names))
            title = line[1:].strip()
        elif line.startswith("-"):
            names.discard(line[1:])
        elif not line.startswith("#"):
            names.add(line.removeprefix("+"))
    if title:
        yield KeyRelease(title, frozenset(names))


class KeyNames(Collection[str]):
    """The names of all settings of a tool; its lists are read on first access.

    *more* returns names that its importer has beside them.

    >>> "parallelism.tensor_parallel_degree" in KeyNames("torchtitan")
    True
    """

    def __init__(self, tool: str, more: Callable[[], Collection[str]] = tuple) -> None:
        self._tool = tool
        self._more = more

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    @property
    def _names(self) -> frozenset[str]:
        return keys_of(self._tool).union(self._more())


@cache
def keys_of(tool: str) -> frozenset[str]:
    """Return every name in some release of a tool, including the names of its table."""
    tools = (tool, *_ALSO.get(tool, ()))
    lists = [one.names for name in tools for one in releases(name)]
    return frozenset().union(*lists, *map(_table_names, tools))


def _table_names(tool: str) -> Collection[str]:
    rules: Mapping[str, Any] = table(tool) if (files(tables) / f"{tool}.toml").is_file() else {}
    parts = [name for part in _PARTS for name in rules.get(part, {}) if isinstance(name, str)]
    listed = rules.get("ignored", {})
    rejected = [name for name in rules.get("rejected", {}) if "*" not in name]
    words = [one for found in rules.get("names", {}).values() for one in found]
    stated = [one.removeprefix("*.") for key in ("keys", "names") for one in listed.get(key, ())]
    plain = [name for name in stated if "*" not in name]
    known = rules.get("known", {}).get("keys", ())
    decides = rules.get("doubts", {}).get("decides", ())
    return frozenset((*parts, *rejected, *plain, *words, *known, *decides))
