"""The command of Megatron-Bridge in a script: ``run_recipe.py --recipe NAME section.key=value``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from attrs import evolve

from parcost import ImportFile
from parcost_formats.tools.drafts import Option
from parcost_formats.tools.file_importer import FileError, error_at
from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.megatron.bridge import (
    VERSION,
    BridgeRecipe,
    library_recipes,
    read_sections,
)
from parcost_formats.tools.megatron.flags import CommandLine, read_launcher
from parcost_formats.tools.python_code import UnreadValue
from parcost_formats.tools.shell.commands import SCRIPT_ENDINGS
from parcost_formats.tools.shell.launches import ScriptLaunch, launches
from parcost_formats.tools.shell.scripts import ARGUMENTS, ShellField, read_script_file
from parcost_formats.tools.unsupported import unsupported_help, unsupported_message
from parcost_formats.tools.yaml_text import read_value

_PROGRAM = "run_recipe.py"
_COMMAND = re.compile(r"\brun_recipe\.py\b(?:[^\n|;&\\]|\\\n|\\.)*--recipe\b")
_PAIR = re.compile(r"\+{0,2}([a-z_]\w*\.[\w.]+)=(.*)", re.DOTALL)
_LENGTHS = ("model.seq_length", "dataset.seq_length")
_PLAIN = ("--dataset", "--step_func", "--recipe")


class RecipeCommand(NamedTuple):
    """The *recipe* that a command changes, and the *line* of its launcher."""

    recipe: BridgeRecipe
    line: CommandLine


def is_recipe_command(name: str, text: str) -> bool:
    """Return whether a script trains a recipe of Megatron-Bridge by its generic script."""
    return name.endswith(SCRIPT_ENDINGS) and bool(_COMMAND.search(text))


def read_recipe_command(file: ImportFile) -> RecipeCommand:
    """Return the recipe that a command names, with its overrides.

    Raises:
        FileError: The command is not read, or there are several.
    """
    script = read_script_file(file)
    started = [one for one in launches(script) if one.name.rpartition("/")[2] == _PROGRAM]
    if not started:
        raise FileError("the command of Megatron-Bridge is not read")
    if len({tuple(word.text for word in one.arguments) for one in started}) > 1:
        message = f"the script has {len(started)} commands of {VERSION}, and one is expected"
        raise error_at(started[1].program, message, "keep only one of them in the file")
    launch = started[0]
    flags, entries = _arguments(launch)
    named = flags.get("--recipe")
    if named is None or named.unread:
        why = f"`--recipe {named.text}`: {named.unread}" if named else "it names no recipe"
        help = " | ".join(named.answers) if named else "add --recipe NAME"
        raise error_at(named or launch.program, why, help)
    recipe = read_sections(entries, named.text)
    recipe.devices = None  # those of the launcher
    if named.text not in library_recipes():
        why = f"`{named.text}` is not in parcost's table of recipes, and what it sets is not known"
        recipe.doubts.append(
            Option(name="", key="--recipe", start=named.start, end=named.end, unread=why)
        )
    for flag, word in flags.items():
        _read_flag(recipe, flag, word)
    line = CommandLine({}, read_launcher(launch.launcher), (), (), (), script)
    return RecipeCommand(recipe, line)


def _read_flag(recipe: BridgeRecipe, flag: str, word: ShellField) -> None:
    """Add a flag of the generic script that the recipe itself does not have."""
    option = Option(name=flag, key=flag, texts=(word.text,), start=word.start, end=word.end)
    if flag in (*_PLAIN, "--seq_length") or (flag == "--peft_scheme" and word.text == "None"):
        return
    if flag == "--peft_scheme":
        recipe.errors.append((option, unsupported_message("lora"), unsupported_help("lora")))
    elif flag == "--packed_sequence":
        recipe.unread.append(option.evolve(unread="packed sequences: the length is that of a pack"))
    else:
        recipe.unread.append(option.evolve(unread=word.unread))


def _arguments(
    launch: ScriptLaunch,
) -> tuple[Mapping[str, ShellField], Mapping[str, JsonEntry]]:
    """Return the flags of the generic script, and the overrides by section and attribute.

    The script sets the sequence length of the model to the length of the data.
    """
    flags: dict[str, ShellField] = {}
    entries: dict[str, JsonEntry] = {}
    before = ""
    for word in [*launch.arguments, *launch.conditional]:
        pair = _PAIR.fullmatch(word.text)
        if word.unread == ARGUMENTS:
            before = ""
        elif pair is not None:
            value = UnreadValue(word.unread) if word.unread else read_value(pair[2])
            entries[pair[1]] = JsonEntry(value, word.start, word.end)
            before = ""
        elif word.text.startswith("--"):
            name, equals, text = word.text.partition("=")
            before = "" if equals else name
            flags[name] = word._replace(text=text) if equals else word
        elif before:
            flags[before] = word
            before = ""
    length = flags.get("--seq_length")
    if length is not None and _LENGTHS[1] not in entries:
        value = UnreadValue(length.unread) if length.unread else read_value(length.text)
        entries[_LENGTHS[1]] = JsonEntry(value, length.start, length.end)
    known: Sequence[str] = [one for one in _LENGTHS if one in entries]
    if _LENGTHS[1] in known:
        entries[_LENGTHS[0]] = entries[_LENGTHS[1]]
    elif known:
        why = f"`{_PROGRAM}` sets it to `{_LENGTHS[1]}`, which the command leaves to the recipe"
        entries[_LENGTHS[0]] = evolve(entries[_LENGTHS[0]], value=UnreadValue(why))
    return flags, entries
