"""Options of a configuration of torchtitan, with its release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from parcost_formats.tools.answers import option_attribute
from parcost_formats.tools.collector import SettingCollector
from parcost_formats.tools.drafts import Draft, Option
from parcost_formats.tools.tables import is_listed, table


class TitanOptions(SettingCollector):
    """The options of a file by names of the table; *release* is the version of the file.

    *python* says whether it is a Python function, of the main branch; *budget* whether its batches
    are counted in tokens.
    """

    def __init__(self, draft: Draft, options: Mapping[str, Option], *, python: bool) -> None:
        super().__init__(options, draft=draft)
        sequences = ("local_batch_size", "global_batch_size", "seq_len")
        self.python = python
        self.budget = python and not any(f"training.{name}" in options for name in sequences)
        self.release, self.framework = self._find_release(options)
        for field, reason in table("torchtitan")["rejected"].items():
            if self.on(field):
                draft.problem(options[field], reason)
        for field, found in table("torchtitan")["deciding"].items():
            option, answers = options.get(field), [found] if isinstance(found, str) else found
            if option is not None and option.unread:
                self.ask_for(option, option.unread, [*option.answers, *answers])

    def _find_release(self, options: Mapping[str, Option]) -> tuple[str, str]:
        """Return the release, identified by keys that only it has, and its framework."""
        if self.python:
            release = "main of 2026-08" if self.budget else "main of 2026"
            return release, "torchtitan_2026_08" if self.budget else "torchtitan"
        keys = [one.key for one in options.values()]
        found = next(
            version
            for version in table("torchtitan")["versions"]
            if not version["keys"] or any(is_listed(key, version["keys"]) for key in keys)
        )
        return str(found["name"]), str(found["framework"])

    def is_open(self, name: str) -> bool:
        """Return whether an option of the file has an unknown value."""
        option = self.lookup(name)
        return option is not None and bool(option.unread)

    def ask_for(self, option: Option, reason: str, answers: Sequence[str]) -> None:
        """Ask for the attribute, or the kind of block, that the last of the *answers* sets."""
        self.ask(option_attribute(answers[-1]), f"`{option.key}`: {reason}", answers, option)

    def default(self, name: str, path: str, value: str, why: str) -> None:
        """Set an attribute to the default of the release, if the file does not state it."""
        super().default(name, path, value, self.why(why))

    def why(self, fact: str) -> str:
        """Return an assumption, with the tool and its release."""
        return f"torchtitan {self.release}: {fact}"
