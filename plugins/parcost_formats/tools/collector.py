"""The result of an importer under construction: settings, blocks, and keys without effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from attrs import evolve

from parcost import (
    ImportedKey,
    Translation,
)
from parcost_formats.tools.answers import answer_to, option_attribute
from parcost_formats.tools.drafts import Draft, Option, digits, key_of
from parcost_formats.tools.file_importer import FileError, Place, error_at
from parcost_formats.tools.json_text import JsonEntry, read_object
from parcost_formats.tools.tables import is_listed, unknown_words, value_of_pattern
from parcost_formats.tools.yaml_text import read_mapping

__all__ = ["AUTO", "OFF", "TRUTHS", "SettingCollector", "cost_reason", "digits"]
__all__ += ["read_configuration", "read_named_configuration"]
AUTO = "auto"
#: Words of switches, as the parser of transformers reads them.
TRUTHS = {
    **dict.fromkeys(("true", "yes", "t", "y", "1"), True),
    **dict.fromkeys(("false", "no", "f", "n", "0"), False),
}
#: Attributes for which no question is asked if another key of a file sets them.
_BATCHES = tuple(
    f"training.{one}" for one in ("micro_batch", "micro_batches", "global_batch", "sequence")
)
#: Values of a key that is off.
OFF: tuple[Any, ...] = (None, False, 0, "", "none", "None", "null", {}, [])


def cost_reason(key: str, value: Any, rules: Mapping[str, Any]) -> str:
    """Return the reason why the value of a key decides the cost: of the first pattern of *rules*
    that matches.

    A rule is either the reason, which applies unless the key is off, or a table. The table has the
    reason as ``why``, and all values without effect as ``keep``.

    >>> rules = {"mode": {"keep": ["default"], "why": "graphs"}, "sparse_*": "zeros"}
    >>> cost_reason("mode", "default", rules), cost_reason("mode", "tuned", rules)
    ('', 'graphs')
    >>> cost_reason("sparse_n", 2, rules)
    'zeros'
    """
    rule: Any = value_of_pattern(key, rules)
    if isinstance(rule, Mapping):
        return "" if value is None or str(value).lower() in rule["keep"] else str(rule["why"])
    return "" if value in OFF else str(rule)


def read_configuration(name: str, text: str) -> Mapping[str, JsonEntry]:
    """Parse a JSON or YAML file into entries by key.

    Raises:
        FileError: The file is not JSON or YAML.
    """
    return read_object(text) if name.endswith(".json") else read_mapping(text)


def read_named_configuration(name: str, text: str, place: Place) -> Mapping[str, JsonEntry]:
    """Parse a file that a word or a key at *place* names.

    Raises:
        FileError: The file is not JSON or YAML; the error is at *place*.
    """
    try:
        return read_configuration(name, text)
    except FileError as error:
        raise error_at(place, f"`{name}`: {error}", error.help) from None


class SettingCollector(Draft):
    """Collects the settings of a configuration.

    Blocks are named as in a spec: ``layout`` or ``precision mixed extends bf16``. Methods that
    return the value of a key mark it as read. Keys that are never read are looked up in the
    *table*, among its keys without effect.
    """

    def __init__(
        self,
        entries: Mapping[str, JsonEntry],
        table: Mapping[str, Any],
        assumed: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Read *entries* by a table; *assumed* are defaults that a library of the tool states, by
        key.
        """
        super().__init__()
        self._assumed = assumed
        self._entries = entries
        self._table = table
        self._keys: set[str] = set()  # that were read
        self._results: set[str] = set()  # of them, those that set or list something
        self._missing: list[ImportedKey] = []
        self.parts: Sequence[str] = ()  # other files whose keys are among the entries

    # Values

    def __contains__(self, key: str) -> bool:
        """Return whether the file has the key, with a value other than null."""
        return key in self._entries and self._entries[key].value is not None

    def keys_below(self, section: str) -> list[str]:
        """Return the keys of the file that are a section or below one."""
        return [key for key in self._entries if f"{key}.".startswith(f"{section}.")]

    def value(self, key: str, default: Any = None) -> Any:
        """Return the value of a key; the default if it is missing or null."""
        if key not in self._entries:
            return default
        self._keys.add(key)
        value = self._entries[key].value
        return default if value is None else value

    def whole(self, key: str, *, least: int = 1) -> int | None:
        """Return the whole number of a key."""
        value = self.value(key)
        if value is None or value == AUTO:
            return None
        number = _whole(value)
        if number is None or number < least:
            large = type(value) in (int, float) and value >= 10**18
            expected = "below 10^18" if large else f"of at least {least}"
            self.problem(key, f"a whole number {expected} is expected")
            return None
        return number

    def number(self, key: str, default: float | None = None, *, most: float = 1e6) -> float | None:
        """Return the number of a key, from 0 to *most*; the default if it is missing or null."""
        value = self.value(key, default)
        if value is None or value == AUTO:
            return None
        with suppress(TypeError, ValueError, OverflowError):
            if not isinstance(value, bool) and 0.0 <= float(value) <= most:
                return float(value)
        self.problem(key, f"a number{' from 0 to 1' if most == 1.0 else ''} is expected")
        return None

    def switch(self, key: str) -> bool | None:
        """Return whether a key is on; None if it is missing."""
        value = self.value(key)
        if value is None or value == AUTO:
            return None
        if isinstance(value, bool):
            return value
        truth = TRUTHS.get(str(value).lower())
        if truth is not None:
            return truth
        self.problem(key, "true or false is expected")
        return None

    def word(self, key: str, words: Mapping[str, str]) -> str | None:
        """Return the entry of *words* for a key's value; report an error for any other value."""
        value = self.value(key)
        if value is None or value == AUTO:
            return None
        found = words.get(str(value).lower())
        if found is None:
            known = ", ".join(dict.fromkeys(words))
            self.problem(key, f"`{value}` is not known", f"known: {known}")
        return found

    # Results

    def set(
        self, path: str, value: str, option: Option | str, assumption: str = "", remark: str = ""
    ) -> None:
        """Set an attribute from a key; report a conflict if another key has set another value."""
        before, place = self.value_of(path), self.option(option)
        if before is not None and before.end and before.value != value:
            message = (
                f"`{before.key}` and `{place.key}` set `{path}` to different values: "
                f"{before.value} and {value}"
            )
            self.problems += [
                evolve(error_at(one, message).problem(), beside=one.beside)
                for one in (before, place)
            ]
        else:
            super().set(path, value, place, assumption, remark)

    def option(self, option: Option | str) -> Option:
        """Return an option, or that of a key with its place, for a setting or for a list."""
        if not option or isinstance(option, Option):
            return super().option(option)
        self._results.add(option)
        entry, why = self._entries[option], self._assumed.get(option, "")
        return Option(
            name=option,
            key=option,
            start=entry.start,
            end=entry.end,
            assumption=why,
            beside=entry.beside,
        )

    def copy(self, key: str, path: str, unit: str = "", *, least: int = 1) -> int | None:
        """Set an attribute to the whole number of a key, with a *unit*, and return the number."""
        number = self.whole(key, least=least)
        if number is not None:
            self.set(path, f"{digits(number)}{unit}", key)
        return number

    def copy_switch(self, key: str, path: str, on: str = "on", off: str = "off") -> bool | None:
        """Set an attribute to *on* or *off* by a switch; return whether the switch is on."""
        state = self.switch(key)
        if state is not None:
            self.set(path, on if state else off, key)
        return state

    def copy_word(self, key: str, words: Mapping[str, str], path: str) -> str | None:
        """Set an attribute to the entry of *words* for a key's value, and return the entry."""
        word = self.word(key, words)
        if word is not None:
            self.set(path, word, key)
        return word

    def assume_table(
        self,
        defaults: Mapping[str, Mapping[str, str]],
        blocks: Mapping[str, str],
        version: str = "",
    ) -> None:
        """Assume each of *defaults*, by path of the attribute; *blocks* are the names of blocks.

        Each reason begins with *version*, the version of the tool.
        """
        for path, default in defaults.items():
            why = f"{version}: {default['why']}" if version else default["why"]
            self.assume(_rename(path, blocks), default["value"], why)

    def is_assumed(self, key: str) -> bool:
        """Return whether the value of a key is a default that a library of the tool states."""
        return key in self._assumed

    def rebase_framework(self, base: str) -> None:
        """Change the base of a framework block that extends an entry to the entry *base*."""
        self.blocks = {
            f"{name.rpartition(' extends ')[0]} extends {base}"
            if name.startswith("framework ") and " extends " in name
            else name: settings
            for name, settings in self.blocks.items()
        }

    def recipe(self) -> tuple[str, str]:
        """Return the precision block ("" if none), and the catalogue entry that it extends."""
        block = next((name for name in self.blocks if name.startswith("precision ")), "")
        known = "catalog.precisions."
        used = [one.removeprefix(known) for one in self.uses if one.startswith(known)]
        return block, block.rpartition(" extends ")[2] or next(iter(used), "")

    def leave_open(self, key: str, reason: str, attribute: str = "") -> None:
        """List a key that affects cost but could not be used; another file may set the
        *attribute*.
        """
        self._missing.append(evolve(key_of(self.option(key), reason), attribute=attribute))

    def lack(self, name: str, reason: str, attribute: str) -> None:
        """List a value that the blocks need but the file lacks; another file may set it."""
        self._missing.append(ImportedKey(name=name, reason=reason, attribute=attribute))

    # Tables

    def read_table(self, blocks: Mapping[str, str] | None = None) -> None:
        """Set the integers and switches of the table; *blocks* renames blocks of the table."""
        for key, path in self._table.get("numbers", {}).items():
            if not self.is_auto(key):
                self.copy(key, _rename(path, blocks or {}))
        for key, path in self._table.get("switches", {}).items():
            if not self.is_auto(key):
                self.copy_switch(key, _rename(path, blocks or {}))

    def is_auto(self, key: str) -> bool:
        """Return whether the value of a key is left to a trainer (``auto``), and list it."""
        if self.value(key) != AUTO:
            return False
        what = self._table.get("open", {}).get(key, "")
        how = f"; {what}" if what else ""
        if all(one.name != key for one in self._missing):
            attribute = self._table.get("attributes", {}).get(key, "")
            why = f"`auto`: the arguments of the trainer decide{how}"
            self.leave_open(key, why, attribute)
        return True

    def translation(self) -> Translation:
        """Return all that was found."""
        for key, message, help in unknown_words(self._entries, self._table):
            self.problem(key, message, help)
        if not self.problems:
            self.unknown += self._unread_keys()
        return evolve(super().translation(), missing=self._missing, parts=self.parts)

    def _unread_keys(self) -> list[ImportedKey]:
        """List the keys that nothing has read; return those that the table does not have."""
        listed = self._table["ignored"]["keys"]
        reasons: Mapping[str, str] = self._table.get("reasons", {})
        costs: Mapping[str, Any] = self._table.get("costs", {})
        unknown: list[ImportedKey] = []
        for key, entry in self._entries.items():
            if key in self._results:
                continue
            reason, cost = value_of_pattern(key, reasons), cost_reason(key, entry.value, costs)
            if cost:
                self.leave_open(key, cost)
            elif entry.value is None or entry.value == {}:  # as if it were left out
                self.ignore(key)
            elif key in self._keys:
                self.ignore(key, reason or "read beside other keys")
            elif reason or value_of_pattern(key, costs) or is_listed(key, listed):
                self.ignore(key, reason)
            else:
                unknown.append(self._make_unknown_key(key, entry))
        return unknown

    def _make_unknown_key(self, key: str, entry: JsonEntry) -> ImportedKey:
        """Return a key that is in no list, with the option that sets its attribute, if any."""
        attribute = ""
        if answer := answer_to(key, self._table):
            attribute = option_attribute(answer)
            stated = self.value_of(attribute)
            if stated is not None and stated.end and attribute in _BATCHES:  # that one decides
                return ImportedKey(name=key, start=entry.start, end=entry.end)
            title = self._table.get("title", "the tool")
            answers = self.answers_to(attribute, answer)
            self.ask(attribute, f"`{key}` is not in parcost's table of {title}", answers, key)
        return ImportedKey(name=key, start=entry.start, end=entry.end, attribute=attribute)


def _rename(path: str, blocks: Mapping[str, str]) -> str:
    """Return the path of an attribute of a table; *blocks* renames blocks."""
    block, _, name = path.rpartition(".")
    return f"{blocks.get(block, block)}.{name}"


def _whole(value: Any) -> int | None:
    """Return a value as a whole number, if it is one.

    A text with a leading zero is not accepted, because tools disagree on ``010``.

    >>> _whole(8), _whole(5e8), _whole("5e8"), _whole(True), _whole(0.5), _whole("x"), _whole("010")
    (8, 500000000, 500000000, None, None, None, None)
    """
    if isinstance(value, str):
        if value[:1] == "0" and value[1:].isdecimal():
            return None
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if abs(value) < 1e18 and value == int(value) else None
