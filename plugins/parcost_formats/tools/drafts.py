"""A translation under construction: settings of blocks, and the keys without effect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
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
from parcost_formats.tools.json_text import JsonEntry

#: A multiple for which the rows of the tables are the least that tp divides.
EXACT_ROWS = "ceil(training.model.vocabulary / layout.tp)"
_DIGITS = 15  # of an integer that every float holds
_SWITCHED = ("", "true", "false")
#: The value of a key that a trainer decides.
AUTO = "auto"
#: Words of switches, as the parser of transformers reads them.
TRUTHS = {
    **dict.fromkeys(("true", "yes", "t", "y", "1"), True),
    **dict.fromkeys(("false", "no", "f", "n", "0"), False),
}


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

    @property
    def is_open(self) -> bool:
        """Whether the tool decides the value, as for null and ``auto`` of a configuration."""
        return False

    @property
    def is_large(self) -> bool:
        """Whether the value is a number of too many digits."""
        return self.is_single and (self.number or 0) >= 10**_DIGITS

    @property
    def whole(self) -> int | None:
        """The value as a whole number below 10^15; None for another value."""
        text = self.text.replace("_", "")
        known = self.is_single and text.isascii() and text.isdecimal() and len(text) <= _DIGITS
        return int(text) if known else None

    @property
    def number(self) -> float | None:
        """The value as a number; None for another value."""
        try:
            return float(self.text) if self.is_single else None
        except ValueError:
            return None

    @property
    def truth(self) -> bool | None:
        """Whether a switch is on, as a flag without a value is; None for another value."""
        known = len(self.texts) <= 1 and self.text in _SWITCHED and self.value not in ([], {})
        return self.text != "false" and self.value != "" if known else None

    @property
    def word(self) -> str:
        """The value as a word, "" for several values."""
        return self.text if len(self.texts) == 1 else ""

    def evolve(self, **changes: Any) -> Option:
        """Return an option like this one, with *changes*."""
        return evolve(self, **changes)


@record(kw_only=True)
class KeyOption(Option):
    """A key of a configuration whose tool converts values: a text may be a number or a switch."""

    @property
    def is_open(self) -> bool:
        """Whether the value is null, or left to a trainer (``auto``)."""
        return self.value is None or self.value == AUTO

    @property
    def whole(self) -> int | None:
        """The value as a whole number.

        A text with a leading zero is none, because tools disagree on ``010``.

        >>> [make_key_option("", JsonEntry(one, 0, 0)).whole for one in (8, 5e8, "5e8", True, 0.5)]
        [8, 500000000, 500000000, None, None]
        >>> [make_key_option("", JsonEntry(one, 0, 0)).whole for one in ("x", "010", 1e15)]
        [None, None, None]
        """
        number = None if self.text[:1] == "0" and self.text[1:].isdecimal() else self.number
        known = number is not None and abs(number) < 10**_DIGITS and number.is_integer()
        return int(number) if number is not None and known else None

    @property
    def number(self) -> float | None:
        """The value as a number; None for another value."""
        with suppress(TypeError, ValueError, OverflowError):
            return None if isinstance(self.value, bool) else float(self.value)
        return None

    @property
    def truth(self) -> bool | None:
        """Whether a switch is on, by the words of YAML and of transformers; None for others."""
        return TRUTHS.get(str(self.value).lower())

    @property
    def word(self) -> str:
        """The value as a word in lower case."""
        return str(self.value).lower()


def make_key_option(key: str, entry: JsonEntry, assumption: str = "") -> KeyOption:
    """Return a key of a configuration with its place."""
    return KeyOption(
        name=key,
        key=key,
        texts=texts_of(entry.value),
        start=entry.start,
        end=entry.end,
        assumption=assumption,
        value=entry.value,
        beside=entry.beside,
    )


def texts_of(value: Any) -> tuple[str, ...]:
    """Return a value as texts; switches are ``true`` or ``false``.

    >>> texts_of(True), texts_of(-1), texts_of(["model", "loss"]), texts_of(None)
    (('true',), ('-1',), ('model', 'loss'), ())
    """
    if value is None:
        return ()
    if isinstance(value, list):
        return tuple(map(str, value))
    return (str(value).lower() if isinstance(value, bool) else str(value),)


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
        self.missing: list[ImportedKey] = []
        self.sought: set[str] = set()  # keys that were looked up, and that the file lacks

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

    def leave_open(self, key: Option | str, reason: str, attribute: str = "") -> None:
        """List a key that affects cost but could not be used; another file may set the
        *attribute*.
        """
        self.missing.append(evolve(key_of(self.option(key), reason), attribute=attribute))

    def lack(self, name: str, reason: str, attribute: str) -> None:
        """List a value that the blocks need but the file lacks; another file may set it."""
        self.missing.append(ImportedKey(name=name, reason=reason, attribute=attribute))

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
            missing=tuple(self.missing),
            sought=frozenset(self.sought),
        )


def key_of(option: Option, reason: str) -> ImportedKey:
    """Return an option as a key that sets nothing."""
    return ImportedKey(name=option.key, start=option.start, end=option.end, reason=reason)


def digits(number: int) -> str:
    """Return an integer as text of a spec.

    >>> digits(128256), digits(8192)
    ('128_256', '8192')
    """
    return f"{number:_}" if number >= 10_000 else str(number)
