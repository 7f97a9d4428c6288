"""The command of Megatron-Bridge in a script: ``run_recipe.py --recipe NAME section.key=value``.

The launchers ``train.sh`` and ``setup_experiment.py`` of 2026 take the same arguments. Flags such
as ``--tp 4`` set the same keys as overrides; overrides take precedence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from attrs import evolve

from parcost import ImportFile
from parcost_formats.tools.collector import read_named_configuration
from parcost_formats.tools.drafts import Option
from parcost_formats.tools.file_importer import FileError, error_at
from parcost_formats.tools.interpolation import resolve
from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.megatron.bridge import (
    VERSION,
    BridgeRecipe,
    library_recipes,
    read_sections,
    reject_recipe,
)
from parcost_formats.tools.megatron.flags import CommandLine, read_launcher
from parcost_formats.tools.python_code import UnreadValue
from parcost_formats.tools.shell.commands import SCRIPT_ENDINGS
from parcost_formats.tools.shell.launches import ScriptLaunch, launches
from parcost_formats.tools.shell.script_files import read_script_file, several_commands
from parcost_formats.tools.shell.scripts import (
    ARGUMENTS,
    Script,
    ScriptCall,
    ShellField,
    list_places,
)
from parcost_formats.tools.tables import is_listed, table
from parcost_formats.tools.unsupported import unsupported_help, unsupported_message
from parcost_formats.tools.yaml_text import read_value

_TABLE: Mapping[str, Any] = table("megatron")["bridge"]["command"]
_PROGRAM = "run_recipe.py"
#: Programs that submit the command: they state the devices of the job.
_SUBMITTERS = ("setup_experiment.py", "train.sh")
_COMMAND = re.compile(
    r"\b(?:run_recipe\.py|setup_experiment\.py|training/train\.sh)\b(?:[^\n|;&\\]|\\\n|\\.)*--recipe\b"
)
_PAIR = re.compile(r"\+{0,2}([a-z_]\w*\.[\w.]+|mixed_precision)=(.*)", re.DOTALL)
_FLAG = re.compile(r"--?[A-Za-z][\w-]*(?:=.*)?", re.DOTALL)
_LENGTHS = ("model.seq_length", "dataset.seq_length")
_TP, _SEQUENCE_PARALLEL = "model.tensor_model_parallel_size", "model.sequence_parallel"
#: Names of the flags of a launcher, by those of a program that submits jobs.
_COUNTS = {"nodes": "nodes", "gpus_per_node": "gpus-per-node"}
_ADAPTERS = ("peft", "lora", "dora")
_READ = ("peft", "lora")  # beside a recipe that has adapters
#: The task in the name of a recipe, by words of its name and of a mode.
_TASKS = {"pretrain": "pretrain", "sft": "sft", "finetune": "sft"}
_NO_OVERRIDE = "it is neither an override (section.key=value) nor the value of a flag"


class RecipeCommand(NamedTuple):
    """The *recipe* of a command with its overrides, and the *line* of its launcher."""

    recipe: BridgeRecipe
    line: CommandLine


def is_recipe_command(name: str, text: str) -> bool:
    """Return whether a script trains a recipe of Megatron-Bridge by its generic script."""
    return name.endswith(SCRIPT_ENDINGS) and bool(_COMMAND.search(text))


class _Started(NamedTuple):
    """A program that trains a recipe: its *launcher* words and its arguments."""

    program: ShellField
    launcher: Sequence[ShellField]
    arguments: Sequence[ShellField]
    conditional: Sequence[ShellField]
    command: ScriptCall | ScriptLaunch


class _Flag(NamedTuple):
    """A flag as the command writes it, and its value."""

    shown: str
    word: ShellField


def read_recipe_command(file: ImportFile) -> RecipeCommand:
    """Return the recipe that a command names, with its overrides.

    Raises:
        FileError: The command is not read, or there are several.
    """
    script = read_script_file(file)
    started = _programs(script)
    if not started:
        raise FileError("the command of Megatron-Bridge cannot be read")
    if len({tuple(word.text for word in one.arguments) for one in started}) > 1:
        raise several_commands(file, [one.command for one in started], f"commands of {VERSION}")
    launch = started[0]
    flags, entries, strays = _arguments([*launch.arguments, *launch.conditional])
    names = {
        path: flags[name].shown
        for name, path in _TABLE["paths"].items()
        if name in flags and entries[path].start == flags[name].word.start
    }
    named = flags["recipe"].word if "recipe" in flags else None
    if named is None or named.unread:
        why = f"`--recipe {named.text}`: {named.unread}" if named else "it names no recipe"
        help = " | ".join(named.answers) if named else "add --recipe NAME"
        raise error_at(named or launch.program, why, help)
    if (other := flags.get("config_file")) is not None:
        entries = {**_file_entries(other.word, script, file.neighbor), **entries}
    recipe = read_sections(entries, named.text, names)
    recipe.devices = None  # those of the launcher
    if named.text not in library_recipes():
        why = f"`{named.text}` is not in parcost's table of recipes, so its settings are unknown"
        recipe.doubts.append(
            Option(name="", key="--recipe", start=named.start, end=named.end, unread=why)
        )
        reject_recipe(recipe, named.text, named.start, named.end)
    for name, flag in flags.items():
        _read_flag(recipe, name, flag)
        if name in _TABLE["modes"]:
            _check_mode(recipe, flag, named.text)
    for word in strays:
        one = Option(name="", key=word.text[:60], start=word.start, end=word.end)
        recipe.unread.append(one.evolve(unread=word.unread or _NO_OVERRIDE))
    counts = {
        _COUNTS[name]: _option(flags[name], _COUNTS[name]) for name in _COUNTS if name in flags
    }
    launcher = {**read_launcher(launch.launcher), **counts}
    return RecipeCommand(recipe, CommandLine({}, launcher, (), (), (), script))


def _file_entries(
    word: ShellField, script: Script, neighbor: Callable[[str], str | None]
) -> Mapping[str, JsonEntry]:
    """Return the overrides in the YAML file that *word* names; overrides of the command replace
    them.

    Raises:
        FileError: The file is not there, or is no YAML.
    """
    near = script.neighbor(neighbor)
    texts = (near(place) for place in list_places(word.text, script) if not word.unread)
    text = next((one for one in texts if one is not None), None)
    if text is None:
        why = word.unread or "it is not beside the script"
        raise error_at(word, f"`{word.text}` changes the recipe: {why}", "put it there")
    found = resolve(read_named_configuration(word.text, text, word))
    return {key: JsonEntry(one.value, word.start, word.end) for key, one in found.items()}


def _programs(script: Script) -> Sequence[_Started]:
    """Return the programs that train a recipe, scripts of shell among them."""
    found = [
        _Started(one.program, one.launcher, one.arguments, one.conditional, one)
        for one in launches(script)
        if one.name.rpartition("/")[2] in (_PROGRAM, *_SUBMITTERS)
    ]
    for call in script.commands:
        names = [word.text.rpartition("/")[2] for word in call.words]
        at = next((at for at, name in enumerate(names) if name in _SUBMITTERS), None)
        if at is not None and names[at].endswith(".sh") and "--recipe" in names:
            words = call.words[at + 1 :]
            found.append(_Started(call.words[at], call.words[:at], words, call.conditional, call))
    return found


def _option(flag: _Flag, name: str) -> Option:
    shown, word = flag
    return Option(
        name=name, key=shown, texts=(word.text,), start=word.start, end=word.end, unread=word.unread
    )


def _read_flag(recipe: BridgeRecipe, name: str, flag: _Flag) -> None:
    """Add a flag of the generic script that the recipe itself does not have."""
    option = _option(flag, flag.shown)
    text = flag.word.text.lower()
    if name in ("recipe", "seq_length", *_COUNTS, *_TABLE["paths"]):
        return
    adapts = name == "peft_scheme" and text != "none"
    adapts = adapts or (name in _TABLE["modes"] and text in _ADAPTERS)
    if adapts and not (recipe.adapters and text in _READ):
        recipe.errors.append((option, unsupported_message("lora"), unsupported_help("lora")))
    elif name == "config_file":
        recipe.ignored.append(option.evolve(assumption="its values are read"))
    elif name == "packed_sequence":
        recipe.unread.append(option.evolve(unread="packed sequences: the length of a pack"))
    elif name not in ("peft_scheme", *_TABLE["modes"]) and not is_listed(name, _TABLE["plain"]):
        recipe.unread.append(option)


def _check_mode(recipe: BridgeRecipe, flag: _Flag, named: str) -> None:
    """Report an error for a mode that contradicts the recipe name, because the script stops with an
    error.
    """
    words = named.lower().split("_")
    task = next((_TASKS[word] for word in words if word in _TASKS), "")
    mode = _TASKS.get(flag.word.text.lower(), "")
    if not mode or not task or mode == task:
        return
    other = next((one for one in library_recipes() if one == named.replace(task, mode)), "")
    message = (
        f"`{flag.word.text}` is incompatible with the recipe `{named}`, a recipe of {task}: "
        f"`{_PROGRAM}` stops"
    )
    fix = f"--recipe {other}, or " if other else ""
    recipe.errors.append((_option(flag, flag.shown), message, f"{fix}{flag.shown} {task}"))


def _arguments(
    words: Sequence[ShellField],
) -> tuple[Mapping[str, _Flag], Mapping[str, JsonEntry], Sequence[ShellField]]:
    """Return the flags by name, the overrides by section and attribute, and the other words.

    The script sets the sequence length of the model to the length of the data. The flag of tensor
    parallelism sets sequence parallelism, too.
    """
    flags: dict[str, _Flag] = {}
    pairs: dict[str, JsonEntry] = {}
    strays: list[ShellField] = []
    before: _Flag | None = None
    for word in words:
        pair = _PAIR.fullmatch(word.text)
        if word.unread == ARGUMENTS:
            before = None
        elif pair is not None:
            value = UnreadValue(word.unread) if word.unread else read_value(pair[2])
            pairs[pair[1]] = JsonEntry(value, word.start, word.end)
            before = None
        elif _FLAG.fullmatch(word.text):
            shown, equals, text = word.text.partition("=")
            found = _Flag(shown, word._replace(text=text) if equals else word)
            flags[_flag_name(shown)] = found
            before = None if equals else found
        elif before is not None:
            flags[_flag_name(before.shown)] = _Flag(before.shown, word)
            before = None
        elif word.text:
            strays.append(word)
    entries = {
        _TABLE["paths"][name]: _entry(flag.word)
        for name, flag in flags.items()
        if name in _TABLE["paths"]
    }
    tp = entries.get(_TP)
    if tp is not None:
        sequence = tp.value if isinstance(tp.value, UnreadValue) else tp.value not in (None, 1)
        entries[_SEQUENCE_PARALLEL] = evolve(tp, value=sequence)
    entries |= pairs
    length = flags.get("seq_length")
    if length is not None and _LENGTHS[1] not in entries:
        entries[_LENGTHS[1]] = _entry(length.word)
    known: Sequence[str] = [one for one in _LENGTHS if one in entries]
    if _LENGTHS[1] in known:
        entries[_LENGTHS[0]] = entries[_LENGTHS[1]]
    elif known:
        why = f"`{_PROGRAM}` sets it to `{_LENGTHS[1]}`, but the command leaves it to the recipe"
        entries[_LENGTHS[0]] = evolve(entries[_LENGTHS[0]], value=UnreadValue(why))
    return flags, entries, strays


def _entry(word: ShellField) -> JsonEntry:
    text = "null" if word.text == "None" else word.text
    value = UnreadValue(word.unread) if word.unread else read_value(text)
    return JsonEntry(value, word.start, word.end)


def _flag_name(shown: str) -> str:
    """Return the name of a flag: ``tp`` for ``-tp`` and ``--tp``, ``seq_length`` for ``-sl``."""
    name = shown.lstrip("-").replace("-", "_")
    return str(_TABLE["short"].get(name, name))
