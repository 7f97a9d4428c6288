"""The command that starts MaxText in a shell script: ``KEY=VALUE`` after a configuration file."""

from __future__ import annotations

import re

from parcost import ImportFile
from parcost_formats.tools.command_keys import CommandKeys
from parcost_formats.tools.file_importer import FileError, error_at
from parcost_formats.tools.shell.script_files import read_script_file, several_commands
from parcost_formats.tools.shell.scripts import split_words
from parcost_formats.tools.tables import is_listed, table

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


def read_command(file: ImportFile) -> CommandKeys:
    """Return the keys of the command and of its configuration file.

    ``base.yml`` has the defaults. Another file must be in the folder of the script.

    Raises:
        FileError: The command or the file cannot be read.
    """
    script = read_script_file(file)
    calls = [
        call for call in script.commands if any(_COMMAND.search(word.text) for word in call.words)
    ]
    if not calls:
        raise FileError("the script has no command of MaxText")
    if len(calls) > 1:
        raise several_commands(file, calls, "commands of MaxText")
    words = [  # a command may be one word, which another script starts
        one
        for word in (*calls[0].words, *calls[0].conditional)
        for one in (split_words(word) if _COMMAND.search(word.text) else [word])
    ]
    found = CommandKeys()
    script = script.start_from(calls[0].written, calls[0].folder)
    for word in words:
        pair = _PAIR.fullmatch(word.text)
        if pair is not None and word.unread:
            if pair[1] not in _FREE and not is_listed(pair[1], _IGNORED):
                raise error_at(word, f"`{pair[1]}`: {word.unread}", word.advice)
        elif pair is not None:
            found.add(pair[1], pair[2], word)
        elif word.text.endswith((".yml", ".yaml")) and not word.text.endswith("base.yml"):
            found.add_file(file, script, word)
    return found
