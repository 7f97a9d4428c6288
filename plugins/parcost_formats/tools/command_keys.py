"""The keys of a job that a command states, and the keys of the file that it names."""

from __future__ import annotations

from attrs import field, frozen

from parcost import ImportFile
from parcost_formats.tools.collector import read_named_configuration
from parcost_formats.tools.file_importer import error_at
from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.shell.scripts import Script, ShellField, list_places
from parcost_formats.tools.yaml_text import read_value


@frozen
class CommandKeys:
    """The *entries* of a command by key; *assumed* has the reasons of defaults of the script."""

    entries: dict[str, JsonEntry] = field(factory=dict)
    assumed: dict[str, str] = field(factory=dict)

    def add(self, key: str, text: str, word: ShellField, start: int | None = None) -> None:
        """Add a key with the YAML value *text*, from *word*, or from *start* to its end."""
        self.entries[key] = JsonEntry(
            read_value(text), word.start if start is None else start, word.end
        )
        self._assume(key, word.assumption)

    def add_file(self, file: ImportFile, script: Script, word: ShellField) -> None:
        """Add the keys of the configuration that *word* names, unless the command sets them.

        Raises:
            FileError: The configuration is not beside the script, or cannot be read.
        """
        find, places = script.neighbor(file.neighbor), list_places(word.text, script)
        place = next(filter(find, places), "")
        text = find(place) if place else None
        if text is None:
            reasons = filter(None, map(script.find_reason, places))
            why = next(reasons, "is not in the folder of the script")
            help = "put it there, or evaluate it and repeat the overrides of the command with --set"
            raise error_at(word, f"`{word.text}` has the other keys, but {why}", help)
        beside = f"`{place}` beside the script, for `{word.text}`" if place != word.text else ""
        for key, entry in read_named_configuration(word.text, text, word).items():
            if key not in self.entries:
                self.entries[key] = JsonEntry(entry.value, word.start, word.end)
                note = script.assumption(place, entry.start, entry.end)
                self._assume(key, word.assumption or note or beside)

    def _assume(self, key: str, why: str) -> None:
        if why:
            self.assumed[key] = why
