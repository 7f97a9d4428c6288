"""A translation under construction: settings of blocks, and the keys without effect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from attrs import evolve

from parcost import (
    ImportedBlock,
    ImportedKey,
    ImportedValue,
    ImportProblem,
    ImportQuestion,
    PlaceBeside,
    Translation,
    record,
)

#: A multiple for which the rows of the tables are the least that tp divides.
EXACT_ROWS = "ceil(training.model.vocabulary / layout.tp)"
_DIGITS = 15  # of an integer that every float holds
_SWITCHED = ("", "true", "false")


@record(kw_only=True)
class Option:
    """An option in a file: its *key* as written, and the *texts* of its values.

    *name* is its name in the table. *unread* is the reason why its value is unknown. *answers* are
    options of the command line that supply it. *assumption* is the reason for an assumed value.
    *value* is the typed value, in formats that have types. *beside* is the place of a key in a file
    that the option names.
    """

    name: str
    key: str
    texts: Sequence[str] = ()
    start: int = 0
    end: int = 0
    unread: str = ""
    assumption: str = ""
    value: Any = None
    answers: Sequence[str] = ()
    beside: PlaceBeside | None = None

    @property
    def text(self) -> str:
        """The first text of its values."""
        return self.texts[0] if self.texts else ""

    @property
    def shown(self) -> str:
        """Its values for a message."""
        texts = ", ".join(self.texts) if isinstance(self.value, list) else " ".join(self.texts)
        shown = f"[{texts}]" if isinstance(self.value, list) else texts
        return shown[:40] or "nothing"

    @property
    def is_single(self) -> bool:
        """Whether the option has exactly one value, which is not in a list."""
        return len(self.texts) == 1 and not isinstance(self.value, list)

    def evolve(self, **changes: Any) -> Option:
        """Return an option like this one, with *changes*."""
        return evolve(self, **changes)


class Draft:
    """The blocks of a translation under construction, attribute by attribute.

    Its methods take an option, or the key of one among the options of the file.
    """

    def __init__(self, labels: Mapping[str, str] = MappingProxyType({})) -> None:
        """Make empty blocks in the order of *labels*, the label of each kind of block.

        Other blocks are named with their labels: ``precision mixed extends bf16``.
        """
        self._labels = dict(labels)
        self.blocks: dict[str, dict[str, ImportedValue]] = {kind: {} for kind in labels}
        self.uses: dict[str, ImportedValue] = {}
        self.problems: list[ImportProblem] = []
        self._ignored: list[ImportedKey] = []
        self.unknown: list[ImportedKey] = []
        self._questions: list[ImportQuestion] = []

    def option(self, option: Option | str) -> Option:
        """Return an option itself, or that of a key."""
        return Option(name=option, key=option) if isinstance(option, str) else option

    def set(
        self, path: str, value: str, option: Option | str, assumption: str = "", remark: str = ""
    ) -> None:
        """Set an attribute, such as ``layout.tp``, to a value from *option*.

        Diagnostics about the value add the *remark*.
        """
        option = self.option(option)
        kind, _, name = path.rpartition(".")
        why = assumption or option.assumption
        if why and option.assumption and option.assumption != why:
            why = f"{why}; {option.assumption}"
        self.blocks.setdefault(kind, {})[name] = ImportedValue(
            name=name,
            value=value,
            key=option.key,
            start=option.start,
            end=option.end,
            assumption=why,
            remark=remark,
            beside=option.beside,
        )

    def assume(self, path: str, value: str, why: str, option: Option | None = None) -> None:
        """Set an attribute that no key states, unless it is set; *why* is the reason.

        *option* is a related key.
        """
        kind, _, name = path.rpartition(".")
        start, end = (option.start, option.end) if option else (0, 0)
        self.blocks.setdefault(kind, {}).setdefault(
            name, ImportedValue(name=name, value=value, start=start, end=end, assumption=why)
        )

    def remark(self, path: str, text: str) -> None:
        """Add a remark to diagnostics about an attribute, if it is set."""
        kind, _, name = path.rpartition(".")
        if (one := self.blocks.get(kind, {}).get(name)) is not None:
            self.blocks[kind][name] = evolve(one, remark=text)

    def use(self, entry: str, option: Option | str | None = None, why: str = "") -> None:
        """Use an entry of the catalogue, such as ``precisions.fp32``."""
        place, value = self.option(option or ""), f"catalog.{entry}"
        self.uses.setdefault(
            value,
            ImportedValue(
                name="use",
                value=value,
                key=place.key,
                start=place.start,
                end=place.end,
                assumption=why or place.assumption,
            ),
        )

    def uses_one_of(self, entries: Iterable[str]) -> str:
        """Return the first of *entries* of a catalogue that is used, "" if none is."""
        return next((one for one in entries if one in self.uses), "")

    def label(self, kind: str, label: str) -> None:
        """Give the block of a *kind* a label."""
        self._labels[kind] = label

    def set_recipe(self, base: str, label: str, option: Option | None, why: str) -> None:
        """Set the precision to *base*, or to a block *label* that extends *base* if the file has
        such a block.

        *option* sets it; without an option, it is assumed for the reason *why*.
        """
        name = base
        if self.has("precision."):
            name = label
            self.label("precision", f"{label} extends {base}")
        if option is not None:
            self.set("training.precision", name, option)
        else:
            self.assume("training.precision", name, why)

    def has(self, path: str) -> bool:
        """Return whether an attribute, or any of a block (``layout.``), is set."""
        kind, _, name = path.rpartition(".")
        found = self.blocks.get(kind, {})
        return name in found if name else bool(found)

    def value_of(self, path: str) -> ImportedValue | None:
        """Return an attribute that is set."""
        kind, _, name = path.rpartition(".")
        return self.blocks.get(kind, {}).get(name)

    def setting(self, path: str) -> str:
        """Return the text of an attribute, "" if it is not set."""
        one = self.value_of(path)
        return "" if one is None else one.value

    def problem(self, option: Option | str, message: str, help: str = "") -> None:
        """Add an error at *option*."""
        option = self.option(option)
        found = ImportProblem(
            message=f"`{option.key}`: {message}",
            start=option.start,
            end=option.end,
            help=help,
            beside=option.beside,
        )
        if found not in self.problems:
            self.problems.append(found)

    def ask(
        self,
        attribute: str,
        reason: str,
        answers: Sequence[str],
        option: Option | str | None = None,
        *,
        partial: bool = False,
    ) -> None:
        """Ask for an attribute, or a kind of block, that affects cost and is unknown.

        *partial*: the file states a part of the value.
        """
        place = self.option(option or "")
        self._questions.append(
            ImportQuestion(
                attribute=attribute,
                reason=reason,
                answers=tuple(answers),
                start=place.start,
                end=place.end,
                partial=partial,
            )
        )

    def answers_to(self, attribute: str, answer: str) -> Sequence[str]:
        """Return options that settle an unknown key: the value that the file states comes first."""
        stated = self.value_of(attribute)
        if stated is None or stated.assumption or not stated.end:
            return (answer,)
        setting = f"{attribute}={stated.value}"
        own = f"--set '{setting}'" if " " in setting else f"--set {setting}"
        return tuple(dict.fromkeys([own, answer]))

    def ignore(self, option: Option | str, reason: str = "") -> None:
        """List a key that has no effect on cost."""
        self._ignored.append(key_of(self.option(option), reason))

    def leave(self, option: Option, reason: str = "", attribute: str = "") -> None:
        """List a key that may affect cost but is not supported; another file may set the
        *attribute*.
        """
        self.unknown.append(evolve(key_of(option, reason), attribute=attribute))

    def translation(self) -> Translation:
        """Return the translation; it has no blocks if the file has errors."""
        if self.problems:
            return Translation(problems=sorted(self.problems, key=lambda one: one.start))
        named = ((name.partition(" "), found) for name, found in self.blocks.items() if found)
        blocks = [
            ImportedBlock(
                kind=kind, label=self._labels.get(kind, label), settings=tuple(found.values())
            )
            for (kind, _, label), found in named
        ]
        return Translation(
            blocks=blocks,
            uses=tuple(self.uses.values()),
            ignored=tuple(self._ignored),
            unknown=tuple(self.unknown),
            questions=tuple(self._questions),
        )


class OptionSet:
    """The options of a file by name; reading one marks it as used."""

    def __init__(self, draft: Draft, options: Mapping[str, Option]) -> None:
        self.draft = draft
        self._options = options
        self._read: set[str] = set()

    def get(self, name: str) -> Option | None:
        """Return an option whose value is known, if the file has it."""
        option = self._options.get(name)
        if option is None:
            return None
        if not option.unread:
            self._read.add(name)
            return option
        if name not in self._read:
            self.draft.leave(option, option.unread)
            self._read.add(name)
        return None

    def has(self, name: str) -> bool:
        """Return whether the file has an option, read or not."""
        return name in self._options

    def lookup(self, name: str) -> Option | None:
        """Return an option, even one whose value is unknown, if the file has it."""
        return self._options.get(name)

    def similar(self, name: str) -> Option | None:
        """Return an option that is probably a misspelling of *name*, None without one."""
        close = get_close_matches(name, self._options, n=1, cutoff=0.9)
        return self._options[close[0]] if close else None

    def find_enabled_option(self, name: str) -> Option | None:
        """Return an option whose value is known, if the file has it and it is not off."""
        option = self.get(name)
        return None if option is None or option.text == "false" else option

    def ignore(self, names: Iterable[str], reason: str) -> None:
        """List the options in *names* that the file has as options without effect on cost."""
        for name in names:
            if option := self.get(name):
                self.draft.ignore(option, reason)

    def skip(self, name: str, reason: str) -> None:
        """List an option as one without effect on cost, with any value."""
        option = self._options.get(name)
        if option is not None and name not in self._read:
            self._read.add(name)
            self.draft.ignore(option, reason)

    def whole(self, name: str, least: int = 0) -> int | None:
        """Return an option as an integer of at least *least*; report an error for another value."""
        option = self.get(name)
        if option is None:
            return None
        text = option.text.replace("_", "")
        known = option.is_single and text.isascii() and text.isdecimal() and len(text) <= _DIGITS
        if not known or int(text) < least:
            expected = "a whole number" if not least else "a whole number of at least 1"
            shown = option.shown
            if option.is_single and text.isascii() and text.isdecimal() and len(text) > _DIGITS:
                expected = f"a whole number below 10^{_DIGITS}"
            self.draft.problem(option, f"{expected} is expected, but {shown} is given")
            return None
        return int(text)

    def number(self, name: str) -> float | None:
        """Return an option as a number; report an error for another value."""
        option = self.get(name)
        if option is None:
            return None
        try:
            found = float(option.text)
        except ValueError:
            found = -1.0
        if not option.is_single or not 0 <= found < 1e15:
            shown = option.shown
            self.draft.problem(option, f"a number is expected, but {shown} is given")
            return None
        return found

    def word(self, name: str, *known: str) -> str | None:
        """Return the value of an option; report an error if it is not one of *known*."""
        option = self.get(name)
        if option is None:
            return None
        if len(option.texts) == 1 and (not known or option.text in known):
            return option.text
        shown = " ".join(option.texts)[:40] or "nothing"
        self.draft.problem(option, f"{shown} is not known", f"known: {', '.join(known)}")
        return None

    def on(self, name: str) -> bool:
        """Return whether a switch is on."""
        return self.state(name) is True

    def state(self, name: str) -> bool | None:
        """Return whether a switch is on or off; None if the file lacks it."""
        option = self.get(name)
        if option is None:
            return None
        if not _is_switch(option) or option.value == "" or len(option.texts) > 1:
            shown = " ".join(option.texts)[:40] or f"{option.value!r}"
            self.draft.problem(option, f"it is a flag without a value, but {shown} is given")
        return option.text != "false"

    def check_switches(self, names: Iterable[str]) -> None:
        """Report an error for each switch in *names* that has a value other than true or false."""
        for name in names:
            option = self._options.get(name)
            if option is None or option.unread or _is_switch(option):
                continue
            message = f"{option.text[:40] or repr(option.value)} is not a value of a switch"
            self.draft.problem(option, message, "true or false is expected")

    def copy(self, name: str, path: str, least: int = 0) -> int | None:
        """Set an attribute to an integer option, and return the integer."""
        found = self.whole(name, least)
        if found is not None:
            self.draft.set(path, digits(found), self._options[name])
        return found

    def copy_switch(self, name: str, path: str, on: str = "on", off: str = "off") -> Option | None:
        """Set an attribute to *on* or *off* by a switch, and return its option."""
        option = self.get(name)
        if option is not None:
            self.draft.set(path, off if option.text == "false" else on, option)
        return option

    def default(self, name: str, path: str, value: str, why: str) -> None:
        """Set an attribute to its default if the file does not state it; *name* is its option."""
        option = self._options.get(name)
        if option is not None and option.unread:
            why = f"{option.key} is not read: {option.unread}; {why}"
        self.draft.assume(path, value, why, option if option and option.unread else None)

    def rest(self) -> Sequence[Option]:
        """Return the options that are not read."""
        return [option for name, option in self._options.items() if name not in self._read]


def _is_switch(option: Option) -> bool:
    """Return whether an option is a flag without a value, true, or false."""
    return option.text in _SWITCHED and option.value not in ([], {})


def key_of(option: Option, reason: str) -> ImportedKey:
    """Return an option as a key that sets nothing."""
    return ImportedKey(name=option.key, start=option.start, end=option.end, reason=reason)


def digits(number: int) -> str:
    """Return an integer as text of a spec.

    >>> digits(128256), digits(8192)
    ('128_256', '8192')
    """
    return f"{number:_}" if number >= 10_000 else str(number)
