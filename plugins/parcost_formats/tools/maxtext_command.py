"""The command that starts MaxText in a shell script: ``KEY=VALUE`` after a configuration file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from parcost import ImportFile
from parcost_formats.tools.collector import read_named_configuration
from parcost_formats.tools.file_importer import FileError, error_at
from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.shell.scripts import list_places, read_script
from parcost_formats.tools.tables import is_listed, table
from parcost_formats.tools.yaml_text import YamlTextError, read_mapping

_COMMAND = re.compile(
    r"\bmaxtext\.(?:trainers\.)?[\w.$]*train|\bMaxText/train\.py|\bMaxText\.train"
    r"|\bMaxText[/.]\$\{?EXECUTABLE\b"
)
_FREE = (
    "run_name",
    "base_output_directory",
    "dataset_path",
    "tokenizer_path",
    "load_parameters_path",
)
_IGNORED = table("maxtext")["ignored"]["keys"]
_PAIR = re.compile(r"([a-z][a-z0-9_]*)=(.*)", re.DOTALL)


def is_command(text: str) -> bool:
    """Return whether a script starts the trainer of MaxText."""
    return bool(_COMMAND.search(text))


class CommandKeys(NamedTuple):
    """The *entries* of a command by key; those that are defaults of the script are *assumed*."""

    entries: Mapping[str, JsonEntry]
    assumed: Mapping[str, str] = {}


def read_command(file: ImportFile) -> CommandKeys:
    """Return the keys of the command and of its configuration file.

    ``base.yml`` has the defaults. Another file must be in the folder of the script.

    Raises:
        FileError: They are not read.
    """
    environment = dict(file.options.environment)
    script = read_script(file.text, environment, file.neighbor, file.name)
    calls = [
        call for call in script.commands if any(_COMMAND.search(word.text) for word in call.words)
    ]
    if len(calls) != 1:
        message = f"the script has {len(calls)} commands of MaxText, and one is expected"
        raise FileError(message)
    words = [*calls[0].words, *calls[0].conditional]
    entries: dict[str, JsonEntry] = {}
    assumed: dict[str, str] = {}
    script = script.start_from(calls[0].written, calls[0].folder)
    for word in words:
        pair = _PAIR.fullmatch(word.text)
        if pair is not None and word.unread:
            if pair[1] not in _FREE and not is_listed(pair[1], _IGNORED):
                message = f"`{pair[1]}`: {word.unread}"
                help = "give the variable: --set-env NAME=VALUE"
                raise error_at(word, message, help)
        elif pair is not None:
            entries[pair[1]] = JsonEntry(_plain(pair[2]), word.start, word.end)
            assumed[pair[1]] = word.assumption
        elif word.text.endswith((".yml", ".yaml")) and not word.text.endswith("base.yml"):
            find = script.neighbor(file.neighbor)
            places = list_places(word.text, script)
            name = next(filter(find, places), places[-1])
            text = find(name)
            if text is None:
                why = script.find_reason(name) or "is not in the folder of the script"
                raise error_at(word, f"`{name}` has the other keys, and {why}")
            for key, entry in read_named_configuration(name, text, word).items():
                if key not in entries:
                    entries[key] = JsonEntry(entry.value, word.start, word.end)
                    note = script.assumption(name, entry.start, entry.end)
                    assumed[key] = word.assumption or note
    return CommandKeys(entries, {key: why for key, why in assumed.items() if why})


def _plain(text: str) -> object:
    """Return a text as a YAML value.

    >>> _plain("4096"), _plain("True"), _plain("full"), _plain("")
    (4096, True, 'full', None)
    """
    try:
        return read_mapping(f"value: {text}")["value"].value
    except (YamlTextError, KeyError):
        return text
