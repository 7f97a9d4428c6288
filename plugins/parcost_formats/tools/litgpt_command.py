"""The command that starts LitGPT in a shell script: ``litgpt pretrain NAME --train.KEY VALUE``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from parcost import ImportFile, ImportProblem
from parcost_formats.tools.collector import read_configuration
from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.shell.scripts import Script, ShellField, list_places, read_script
from parcost_formats.tools.shell.words import ShellTextError
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


def read_command(file: ImportFile) -> LitGptCommand | ImportProblem:
    """Return the keys of the command and of its configuration, or the reason why not."""
    try:
        environment = dict(file.options.environment)
        script = read_script(file.text, environment, file.neighbor, file.name)
    except ShellTextError as error:
        return ImportProblem(message=str(error), start=error.start, end=error.end)
    found = [(call, at) for call in script.commands if (at := _start(call.words)) is not None]
    if len(found) != 1:
        message = f"the script has {len(found)} trainings of LitGPT, and one is expected"
        return ImportProblem(message=message, end=min(len(file.text), 1))
    ((call, at),) = found
    script = script.start_from(call.written, call.folder)
    program = call.words[at + 1]
    if why := _RULES["rejected"].get(program.text):
        return ImportProblem(
            message=f"`{program.text}`: {why}", start=program.start, end=program.end
        )
    if call.conditional:
        word = call.conditional[0]
        return ImportProblem(
            message=f"`{word.text}`: {word.unread}", start=word.start, end=word.end
        )
    return _read_words(file, script, call.words[at + 2 :], program.text)


def _start(words: Sequence[ShellField]) -> int | None:
    """Return the index of ``litgpt`` ahead of a subcommand that trains; None if there is none."""
    for at, word in enumerate(words[:-1]):
        if word.text.rpartition("/")[2] == "litgpt" and words[at + 1].text in _RULES["programs"]:
            return at
    return None


def _read_words(
    file: ImportFile, script: Script, words: Sequence[ShellField], program: str
) -> LitGptCommand | ImportProblem:
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
            return ImportProblem(message=message, start=field.start, end=field.end, help=help)
        if key == "config":
            configurations.append(field)
            continue
        entries[key] = JsonEntry(_plain(field.text), word.start, field.end)
        assumed[key] = field.assumption
    for field in configurations:
        problem = _add_configuration(file, script, field, entries, assumed)
        if problem is not None:
            return problem
    return LitGptCommand(entries, {key: why for key, why in assumed.items() if why})


def _add_configuration(
    file: ImportFile,
    script: Script,
    field: ShellField,
    entries: dict[str, JsonEntry],
    assumed: dict[str, str],
) -> ImportProblem | None:
    """Add the keys of a configuration that the command leaves out."""
    find = script.neighbor(file.neighbor)
    place = next(filter(find, list_places(field.text, script)), "")
    text = find(place) if place else None
    if text is None:
        why = script.find_reason(field.text) or "is not in the folder of the script"
        message = f"`{field.text}` has the other keys, and {why}"
        return ImportProblem(message=message, start=field.start, end=field.end)
    other = read_configuration(field.text, text)
    if isinstance(other, ImportProblem):
        message = f"`{field.text}`: {other.message}"
        return ImportProblem(message=message, start=field.start, end=field.end)
    for key, entry in other.items():
        if key not in entries:
            entries[key] = JsonEntry(entry.value, field.start, field.end)
            beside = f"`{place}` beside the script, for `{field.text}`"
            note = script.assumption(place, entry.start, entry.end)
            assumed[key] = field.assumption or note or (beside if place != field.text else "")
    return None


def _plain(text: str) -> Any:
    """Return a word of the command as a YAML value.

    >>> _plain("512"), _plain("bf16-mixed"), _plain("null")
    (512, 'bf16-mixed', None)
    """
    try:
        return read_mapping(f"value: {text}")["value"].value
    except (YamlTextError, KeyError):
        return text
