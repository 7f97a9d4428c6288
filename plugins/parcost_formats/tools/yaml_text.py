"""YAML with the place of every key and value.

The text is composed into nodes, and no objects are constructed. The value of a node follows from
its tag. Texts that are too long for a configuration, or that grow by their aliases, are rejected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from parcost_formats.tools.file_importer import LARGEST, FileError
from parcost_formats.tools.json_text import JsonEntry

if TYPE_CHECKING:
    from yaml import Node

LONGEST = 262_144  # characters of a file
MOST_VALUES = 10_000  # with those that aliases repeat
_DEEPEST = 50
_TAG = "tag:yaml.org,2002:"
_PLAIN = ("str", "int", "float", "bool", "null", "timestamp", "map", "seq", "merge", "value")
_TRUE = ("yes", "true", "on")
_OF_SPECIFICATION = ("binary", "omap", "pairs", "set")


class YamlTextError(FileError):
    """An error with its place: a text is not a YAML configuration."""


def read_mapping(text: str) -> Mapping[str, JsonEntry]:
    """Return the entries of a YAML mapping; keys of nested mappings are joined with dots.

    A sequence of plain values is a list. Items of other sequences have their index as a key.

    Raises:
        YamlTextError: The text is not YAML, too large, or has a tag that constructs an object.
    """
    try:
        import yaml
    except ImportError:
        help = "pip install 'parcost[yaml]'"
        raise YamlTextError("this format needs PyYAML, which is not installed", help=help) from None
    if len(text) > LONGEST:
        message = f"{len(text):,} characters are more than the {LONGEST:,} of a configuration"
        raise YamlTextError(message, LONGEST)
    try:
        root = _compose(text)
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark.index if error.problem_mark else 0
        reason = error.problem or str(error)
        if error.context and reason.startswith("but "):  # the half of a sentence
            reason = f"{error.context}, {reason}"
        raise YamlTextError(reason, at) from None
    except yaml.YAMLError as error:
        raise YamlTextError(" ".join(str(error).split()), getattr(error, "position", 0)) from None
    except RecursionError:
        raise YamlTextError("it is nested too deeply") from None
    if root is None or _kind(root) != "map":
        raise YamlTextError("a mapping is expected", 0, len(text))
    return _EntryReader().entries(root)


def _compose(text: str) -> Node | None:
    """Return the tree of a text; composing ends at more nodes than its values and keys may have.

    Raises:
        YamlTextError: The text has more nodes.
    """
    import yaml

    class CountingLoader(yaml.SafeLoader):  # type: ignore[misc]  # it has no types
        """Counts the nodes of a text."""

        nodes = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            self.nodes += 1
            if self.nodes > 2 * MOST_VALUES:
                at = self.peek_event().start_mark.index
                raise YamlTextError(f"it has more than {MOST_VALUES:,} values", at)
            return super().compose_node(parent, index)

    found: Node | None = yaml.compose(text, Loader=CountingLoader)
    return found


def _kind(node: Node) -> str:
    """Return the tag of a node, without the prefix of the YAML specification.

    Raises:
        YamlTextError: The tag would construct an object.
    """
    kind = str(node.tag).removeprefix(_TAG)
    if kind in _PLAIN and node.tag != kind:
        return kind
    start, end = node.start_mark.index, node.end_mark.index
    shown = f"!!{kind}" if str(node.tag).startswith(_TAG) else str(node.tag)
    if kind in _OF_SPECIFICATION:
        raise YamlTextError(f"values of `{shown}` are not supported", start, end)
    raise YamlTextError(
        f"the tag `{shown}` asks for an object, which parcost does not construct",
        start,
        end,
        "write the plain value",
    )


class _EntryReader:
    """Converts YAML nodes into entries; the number of visited nodes is limited."""

    def __init__(self) -> None:
        self._count = 0

    def entries(self, root: Node) -> dict[str, JsonEntry]:
        found: dict[str, JsonEntry] = {}
        for name, entry in self._mapping(root, "", 0):
            if name in found:
                message = f"the key `{name}` is defined twice"
                raise YamlTextError(message, entry.start, entry.end)
            found[name] = entry
        return found

    def _mapping(self, node: Node, prefix: str, depth: int) -> Iterator[tuple[str, JsonEntry]]:
        """Yield the entries of a mapping; its own keys override those of merged mappings."""
        pairs = [(key, value) for key, value in node.value if _kind(key) != "merge"]
        own = {self._name(key) for key, _ in pairs}
        for key, value in node.value:
            if _kind(key) != "merge":
                continue
            for source in value.value if _kind(value) == "seq" else [value]:
                if _kind(source) != "map":
                    at = key.start_mark.index, key.end_mark.index
                    raise YamlTextError("a merge key takes mappings", *at)
                for key2, value2 in source.value:
                    if self._name(key2) not in own and _kind(key2) != "merge":
                        own.add(self._name(key2))
                        pairs.append((key2, value2))
        for key, value in pairs:
            name = f"{prefix}{self._name(key)}"
            start, end = key.start_mark.index, key.end_mark.index
            if value.start_mark.index >= start:  # an alias stands elsewhere
                end = max(end, value.end_mark.index)
            yield from self._value(value, name, start, end, depth + 1)

    def _value(
        self, node: Node, name: str, start: int, end: int, depth: int
    ) -> Iterator[tuple[str, JsonEntry]]:
        """Yield the entries of a value: one, or those of its items."""
        self._visit(start, end, depth)
        kind = _kind(node)
        if kind == "map":
            if not node.value:
                yield name, JsonEntry({}, start, end)
            yield from self._mapping(node, f"{name}.", depth)
        elif kind == "seq":
            if all(_kind(item) not in ("map", "seq") for item in node.value):
                for _ in node.value:
                    self._visit(start, end, depth)
                yield name, JsonEntry([_scalar(item) for item in node.value], start, end)
                return
            for index, item in enumerate(node.value):
                place = item.start_mark.index, item.end_mark.index
                yield from self._value(item, f"{name}.{index}", *place, depth + 1)
        else:
            yield name, JsonEntry(_scalar(node), start, end)

    def _visit(self, start: int, end: int, depth: int) -> None:
        self._count += 1
        if self._count > MOST_VALUES:
            message = f"it has more than {MOST_VALUES:,} values, aliases expanded"
            raise YamlTextError(message, start, end)
        if depth > _DEEPEST:
            raise YamlTextError("it is nested too deeply", start, end)

    def _name(self, key: Node) -> str:
        if _kind(key) in ("map", "seq"):
            raise YamlTextError("a key is a plain value", key.start_mark.index, key.end_mark.index)
        return str(key.value)


def _scalar(node: Node) -> Any:
    """Return the value of a scalar node."""
    text, kind = str(node.value), _kind(node)
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() in _TRUE
    try:
        if kind == "int":
            found = _whole_number(node)
            return found if abs(found) <= LARGEST else text
        if kind == "float":
            return float(text.replace("_", ""))
    except ValueError:  # sexagesimal numbers and infinity are not of configurations
        return text
    return text


def _whole_number(node: Node) -> int:
    """Return a whole number as tools that use PyYAML read it: 8 for ``010``."""
    from yaml.constructor import SafeConstructor

    found: int = SafeConstructor().construct_yaml_int(node)
    return found


def read_value(text: str) -> Any:
    """Return a text as a YAML value, or unchanged if it is not YAML.

    A number with a zero ahead stays text: YAML reads ``010`` as 8, and Python as 10.

    >>> read_value("512"), read_value("bf16-mixed"), read_value("null"), read_value("")
    (512, 'bf16-mixed', None, None)
    >>> read_value("010")
    '010'
    """
    if text[:1] == "0" and text.isdecimal() and len(text) > 1:
        return text
    try:
        return read_mapping(f"value: {text}")["value"].value
    except (YamlTextError, KeyError):
        return text
