"""The result of an importer under construction: settings, blocks, and keys without effect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from attrs import evolve

from parcost import (
    ImportedKey,
    Translation,
)
from parcost_formats.tools.answers import answer_to, option_attribute
from parcost_formats.tools.drafts import (
    AUTO,
    TRUTHS,
    Draft,
    Option,
    digits,
    make_key_option,
)
from parcost_formats.tools.file_importer import FileError, Place, error_at
from parcost_formats.tools.json_text import JsonEntry, read_object
from parcost_formats.tools.tables import is_listed, unknown_words, value_of_pattern
from parcost_formats.tools.unsupported import find_strange_models
from parcost_formats.tools.yaml_text import read_mapping

__all__ = ["AUTO", "OFF", "TRUTHS", "SettingCollector", "cost_reason", "digits"]
__all__ += ["read_configuration", "read_named_configuration"]
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
    """Collects the settings of a configuration or a command.

    Blocks are named as in a spec: ``layout`` or ``precision mixed extends bf16``. Methods that
    return the value of a key mark it as read. Keys that are never read are looked up in the
    *table*, among its keys without effect.
    """

    def __init__(
        self,
        entries: Mapping[str, JsonEntry | Option],
        table: Mapping[str, Any] = MappingProxyType({}),
        assumed: Mapping[str, str] = MappingProxyType({}),
        draft: Draft | None = None,
    ) -> None:
        """Read *entries* by a table; *assumed* are defaults that a library of the tool states, by
        key.

        A *draft* that is given gets all that is found too.
        """
        super().__init__()
        vars(self).update(vars(draft or self))
        self._assumed = assumed
        self._entries = entries
        self._table = table
        self._keys: set[str] = set()  # that were read
        self._results: set[str] = set()  # of them, those that set or list something
        self.parts: Sequence[str] = ()  # other files whose keys are among the entries

    # Values

    def __contains__(self, key: str) -> bool:
        """Return whether the file has the key, with a value other than null."""
        entry = self._entries.get(key)
        if entry is None:
            self.sought.add(key)
        return isinstance(entry, Option) or (entry is not None and entry.value is not None)

    def lookup(self, key: str) -> Option | None:
        """Return an option, even one whose value is unknown, if the file has it."""
        entry = self._entries.get(key)
        if entry is None:
            self.sought.add(key)
            return None
        if isinstance(entry, Option):
            return entry
        return make_key_option(key, entry, self._assumed.get(key, ""))

    def get(self, key: str) -> Option | None:
        """Return an option whose value is known, if the file has it."""
        option = self.lookup(key)
        if option is not None and option.unread and key not in self._keys:
            self.leave(option, option.unread)
        self._keys.add(key)
        return None if option is None or option.unread else option

    def find_enabled_option(self, key: str) -> Option | None:
        """Return an option whose value is known, if the file has it and it is not off."""
        option = self.get(key)
        return None if option is None or option.text == "false" else option

    def similar(self, key: str) -> Option | None:
        """Return an option that is probably a misspelling of *key*, None without one."""
        close = get_close_matches(key, self._entries, n=1, cutoff=0.9)
        return self.lookup(close[0]) if close else None

    def keys_below(self, section: str) -> list[str]:
        """Return the keys of the file that are a section or below one."""
        found = [key for key in self._entries if f"{key}.".startswith(f"{section}.")]
        if not found:
            self.sought.add(f"{section}.*")
        return found

    def rest(self) -> Sequence[Option]:
        """Return the options that are not read."""
        return [one for key in self._entries if key not in self._keys and (one := self.lookup(key))]

    def value(self, key: str, default: Any = None) -> Any:
        """Return the value of a key; the default if it is missing or null."""
        option = self.get(key)
        return default if option is None or option.value is None else option.value

    def _option_with_value(self, key: str) -> Option | None:
        option = self.get(key)
        return None if option is None or option.is_open else option

    def whole(self, key: str, *, least: int = 1) -> int | None:
        """Return the whole number of a key."""
        option = self._option_with_value(key)
        if option is None:
            return None
        number = option.whole
        if number is None or number < least:
            limit = "below 10^15" if option.is_large else f"of at least {least}"
            self.problem(key, f"a whole number {limit} is expected, but {option.shown} is given")
            return None
        return number

    def number(self, key: str, default: float | None = None, *, most: float = 1e6) -> float | None:
        """Return the number of a key, from 0 to *most*; the default if it is missing or null."""
        option = self._option_with_value(key)
        if option is None:
            return None if self.value(key) == AUTO else default
        number = option.number
        if number is None or not 0.0 <= number <= most:
            range = " from 0 to 1" if most == 1.0 else ""
            self.problem(key, f"a number{range} is expected, but {option.shown} is given")
            return None
        return number

    def switch(self, key: str) -> bool | None:
        """Return whether a key is on; None if it is missing."""
        option = self._option_with_value(key)
        if option is not None:
            self.check_switches([key])
        return None if option is None else option.truth

    def on(self, key: str) -> bool:
        """Return whether a key is on, and in the file."""
        return self.switch(key) is True

    def check_switches(self, keys: Iterable[str]) -> None:
        """Report an error for each of *keys* that is neither on nor off."""
        for key in keys:
            option = self.lookup(key)
            if option is not None and option.truth is None and not option.unread:
                is_flag = option.value is None
                what = "it is a flag without a value" if is_flag else "true or false is expected"
                self.problem(key, f"{what}, but {option.shown} is given")

    def word(self, key: str, words: Mapping[str, str]) -> str | None:
        """Return the entry of *words* for a key's value; report an error for any other value."""
        option = self._option_with_value(key)
        if option is None:
            return None
        found = words.get(option.word)
        if found is None:
            known = ", ".join(dict.fromkeys(words))
            self.problem(key, f"`{option.shown}` is not known", f"known: {known}")
        return found

    def choice(self, key: str, *known: str) -> str | None:
        """Return the value of a key; report an error if it is not one of *known*."""
        return self.word(key, {one: one for one in known})

    # Results

    def set(
        self, path: str, value: str, option: Option | str, assumption: str = "", remark: str = ""
    ) -> None:
        """Set an attribute from a key; report a conflict if another key has set another value.

        An :class:`Option` in place of a key replaces an earlier value without a conflict.
        """
        before, place = self.value_of(path), self.option(option)
        if isinstance(option, str) and before and before.end and before.value != value:
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
        """Return an option, or that of a key, which then sets or lists something."""
        if not isinstance(option, str):
            return option
        self._results.add(option)
        return self.lookup(option) or super().option(option)

    def ignore_all(self, keys: Iterable[str], reason: str) -> None:
        """List those of *keys* that the file has as options without effect on cost."""
        for key in keys:
            if option := self.get(key):
                self.ignore(option, reason)

    def skip(self, key: str, reason: str) -> None:
        """List an option as one without effect on cost, with any value."""
        if key in self._entries and key not in self._keys:
            self._keys.add(key)
            self.ignore(key, reason)

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

    def set_or_assume(self, key: str, path: str, value: str, why: str) -> None:
        """Set an attribute to a value that a key decides, or that is its default without the key.

        *why* is the reason for the default.
        """
        if self._option_with_value(key) is not None:
            self.set(path, value, key)
        else:
            self.default(key, path, value, why)

    def default(self, key: str, path: str, value: str, why: str) -> None:
        """Set an attribute to its default if the file does not state it; *key* is its option."""
        option = self.lookup(key)
        unread = option if option is not None and option.unread else None
        if unread is not None:
            why = f"{unread.key} is not read: {unread.unread}; {why}"
        self.assume(path, value, why, unread)

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
        if all(one.name != key for one in self.missing):
            attribute = self._table.get("attributes", {}).get(key, "")
            why = f"`auto`: the arguments of the trainer decide{how}"
            self.leave_open(key, why, attribute)
        return True

    def translation(self) -> Translation:
        """Return all that was found."""
        for key, message, help in unknown_words(self._entries, self._table):
            self.problem(key, message, help)
        if not self.problems:
            unread = self._unread_keys()
            strange = ((one.name, self._entries[one.name]) for one in unread)
            plain = {key: entry for key, entry in strange if isinstance(entry, JsonEntry)}
            self.problems += find_strange_models(plain)
            self.unknown += unread
        return evolve(super().translation(), parts=self.parts)

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

    def _make_unknown_key(self, key: str, entry: JsonEntry | Option) -> ImportedKey:
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
