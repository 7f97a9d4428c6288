"""The command that starts LitGPT in a shell script: ``litgpt pretrain NAME --train.KEY VALUE``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from parcost import ImportFile
from parcost_formats.tools.command_keys import CommandKeys
from parcost_formats.tools.file_importer import FileError, error_at
from parcost_formats.tools.shell.script_files import read_script_file, several_commands
from parcost_formats.tools.shell.scripts import Script, ShellField
from parcost_formats.tools.tables import is_listed, table

_RULES = table("litgpt")["command"]
_TRAINS = re.compile(r"pretrain\w*|finetune\w*")
_SIGN = re.compile(rf"\blitgpt\s+(?:{_TRAINS.pattern})\b")
_IGNORED: Sequence[str] = table("litgpt")["ignored"]["keys"]


def is_command(text: str) -> bool:
    """Return whether a script starts a training of LitGPT."""
    return bool(_SIGN.search(text))


def read_command(file: ImportFile) -> CommandKeys:
    """Return the keys of the command and of its configuration.

    Raises:
        FileError: The command or the configuration cannot be read.
    """
    script = read_script_file(file)
    found = [(call, at) for call in script.commands if (at := _start(call.words)) is not None]
    if not found:
        raise FileError("the script has no training command of LitGPT")
    if len(found) > 1:
        raise several_commands(file, [call for call, _ in found], "trainings of LitGPT")
    ((call, at),) = found
    script = script.start_from(call.written, call.folder)
    program = call.words[at + 1]
    if why := _RULES["rejected"].get(program.text):
        raise error_at(program, f"`{program.text}`: {why}")
    if program.text not in _RULES["programs"]:
        known = " or ".join(one for one in _RULES["programs"] if one not in _RULES["rejected"])
        message = f"`litgpt {program.text}` is not a command of LitGPT 0.5"
        raise error_at(program, message, f"write a command that trains in the same way: {known}")
    if call.conditional:
        word = call.conditional[0]
        raise error_at(word, f"`{word.text}`: {word.unread}")
    return _read_words(file, script, call.words[at + 2 :], program.text)


def _start(words: Sequence[ShellField]) -> int | None:
    """Return the index of ``litgpt`` ahead of a subcommand that trains; None if none exists."""
    for at, word in enumerate(words[:-1]):
        if word.text.rpartition("/")[2] == "litgpt" and _TRAINS.fullmatch(words[at + 1].text):
            return at
    return None


def _read_words(
    file: ImportFile, script: Script, words: Sequence[ShellField], program: str
) -> CommandKeys:
    found = CommandKeys()
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
            raise error_at(field, f"`{key}`: {field.unread}", field.advice)
        if key == "config":
            configurations.append(field)
        else:
            found.add(key, field.text, field, word.start)
    for field in configurations:
        found.add_file(file, script, field)
    return found
