"""The command that starts LitGPT in a shell script: ``litgpt pretrain NAME --train.KEY VALUE``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from parcost import ImportFile
from parcost_formats.tools.collector import read_named_configuration
from parcost_formats.tools.file_importer import FileError, error_at
from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.shell.scripts import Script, ShellField, list_places, read_script
from parcost_formats.tools.tables import is_listed, table
from parcost_formats.tools.yaml_text import YamlTextError, read_mapping

_RULES = table("litgpt")["command"]
_SIGN = re.compile(r"\blitgpt\s+(?:pretrain|finetune\w*)\b")
_IGNORED: Sequence[str] = table("litgpt")["ignored"]["keys"]


class LitGptCommand(NamedTuple):
    """The *entries* of a command by key; those that are defaults of the script are *assumed*."""

    entries: Mapping[str, JsonEntry]
    assumed: Mapping[str, str] = {}


def is_command(text: str) -> bool:
    """Return whether a script starts a training of LitGPT."""
    return bool(_SIGN.search(text))


def read_command(file: ImportFile) -> LitGptCommand:
    """Return the keys of the command and of its configuration.

    Raises:
        FileError: They are not read.
    """
    environment = dict(file.options.environment)
    script = read_script(file.text, environment, file.neighbor, file.name)
    found = [(call, at) for call in script.commands if (at := _start(call.words)) is not None]
    if len(found) != 1:
        message = f"the script has {len(found)} trainings of LitGPT, and one is expected"
        raise FileError(message)
    ((call, at),) = found
    script = script.start_from(call.written, call.folder)
    program = call.words[at + 1]
    if why := _RULES["rejected"].get(program.text):
        raise error_at(program, f"`{program.text}`: {why}")
    if call.conditional:
        word = call.conditional[0]
        raise error_at(word, f"`{word.text}`: {word.unread}")
    return _read_words(file, script, call.words[at + 2 :], program.text)


def _start(words: Sequence[ShellField]) -> int | None:
    """Return the index of ``litgpt`` ahead of a subcommand that trains; None if there is none."""
    for at, word in enumerate(words[:-1]):
        if word.text.rpartition("/")[2] == "litgpt" and words[at + 1].text in _RULES["programs"]:
            return at
    return None


def _read_words(
    file: ImportFile, script: Script, words: Sequence[ShellField], program: str
) -> LitGptCommand:
    entries: dict[str, JsonEntry] = {}
    assumed: dict[str, str] = {}
    configurations: list[ShellField] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        flag, equals, value = word.text.partition("=")
        if flag.startswith("--"):
            key = flag.removeprefix("--")
            field = word._replace(text=value) if equals or not rest else rest.pop(0)
        else:
            key, field = _RULES["programs"][program], word
        if field.unread and not is_listed(key, _IGNORED):
            answers = " | ".join(field.answers) or "--set-env NAME=VALUE"
            help = f"give the variable: {answers}"
            message = f"`{key}`: {field.unread}"
            raise error_at(field, message, help)
        if key == "config":
            configurations.append(field)
            continue
        entries[key] = JsonEntry(_plain(field.text), word.start, field.end)
        assumed[key] = field.assumption
    for field in configurations:
        _add_configuration(file, script, field, entries, assumed)
    return LitGptCommand(entries, {key: why for key, why in assumed.items() if why})


def _add_configuration(
    file: ImportFile,
    script: Script,
    field: ShellField,
    entries: dict[str, JsonEntry],
    assumed: dict[str, str],
) -> None:
    """Add the keys of a configuration that the command leaves out."""
    find = script.neighbor(file.neighbor)
    place = next(filter(find, list_places(field.text, script)), "")
    text = find(place) if place else None
    if text is None:
        why = script.find_reason(field.text) or "is not in the folder of the script"
        raise error_at(field, f"`{field.text}` has the other keys, and {why}")
    for key, entry in read_named_configuration(field.text, text, field).items():
        if key not in entries:
            entries[key] = JsonEntry(entry.value, field.start, field.end)
            beside = f"`{place}` beside the script, for `{field.text}`"
            note = script.assumption(place, entry.start, entry.end)
            assumed[key] = field.assumption or note or (beside if place != field.text else "")


def _plain(text: str) -> Any:
    """Return a word of the command as a YAML value.

    >>> _plain("512"), _plain("bf16-mixed"), _plain("null")
    (512, 'bf16-mixed', None)
    """
    try:
        return read_mapping(f"value: {text}")["value"].value
    except (YamlTextError, KeyError):
        return text
