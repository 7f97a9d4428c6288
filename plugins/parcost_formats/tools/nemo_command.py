"""Commands of NeMo in a shell script: ``megatron_gpt_pretraining.py model.num_layers=12``.

The words of a command replace values of the configuration that it names. That configuration is in
the same folder, or is NeMo's own. Commands of NeMo-Framework-Launcher have the keys of a training
below ``training``, and name its configuration: ``training=gpt3/5b training.trainer.num_nodes=4``.
Those of NeMo 2 name a recipe: ``nemo llm pretrain --factory llama3_8b trainer.num_nodes=2``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from attrs import evolve

from parcost import ImportFile, did_you_mean
from parcost_formats.tools.collector import read_named_configuration
from parcost_formats.tools.file_importer import FileError, error_at
from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.nemo_recipe import NeMoRecipe, read_nemo_recipe
from parcost_formats.tools.shell.launches import ScriptLaunch, launches
from parcost_formats.tools.shell.script_files import read_script_file, several_commands
from parcost_formats.tools.shell.scripts import ARGUMENTS, Script
from parcost_formats.tools.shell.values import ShellField
from parcost_formats.tools.tables import table
from parcost_formats.tools.yaml_text import read_value

_PROGRAM = re.compile(
    r"\bmegatron_gpt_(?:pretraining|continue_training|finetuning)\w*\.py\b|\blauncher_scripts/main\.py\b"
)
_FACTORY = re.compile(r"\bnemo\s+llm\s+(?:pretrain|finetune)\b")  # of NeMo 2
_CALL = re.compile(r"([a-z]\w*)\s*(\(.*\))?", re.DOTALL)
_SECTION = "training"  # of NeMo-Framework-Launcher
_PAIR = re.compile(r"[+~]{0,2}([A-Za-z_][\w./@]*)=(.*)", re.DOTALL)
_TOKENIZER = "model.tokenizer."
_TOKENIZER_FILES = ("vocab_file", "merge_file")  # of a tokenizer that its type names
_NAME = "megatron_gpt_config"  # that of NeMo, if a command names none


def is_command(text: str) -> bool:
    """Return whether a script starts a trainer of NeMo."""
    return bool(_PROGRAM.search(text) or _FACTORY.search(text))


def read_command(file: ImportFile) -> NeMoRecipe:
    """Return the keys of a command and of its configuration.

    Raises:
        FileError: The keys are unknown.
    """
    script = read_script_file(file)
    started = launches(script)
    found = [one for one in started if _PROGRAM.search(one.name) or _names_recipe(one)]
    if len({tuple(word.text for word in one.arguments) for one in found}) > 1:
        raise several_commands(file, found, "commands of NeMo")
    if not found:
        message = "the script has no command of NeMo"
        match = _PROGRAM.search(file.text) or _FACTORY.search(file.text)
        raise FileError(message, *(match.span() if match else ()))
    if _names_recipe(found[0]):
        return _read_recipe(found[0])
    script = script.start_from(found[0].written, found[0].folder)
    return _read_words(evolve(file, neighbor=script.neighbor(file.neighbor)), script, found[0])


def _names_recipe(launch: ScriptLaunch) -> bool:
    """Return whether a program is NeMo-Run's command for training."""
    first = launch.arguments[0].text if launch.arguments else ""
    return launch.name == "nemo llm" and first in ("pretrain", "finetune")


def _read_recipe(launch: ScriptLaunch) -> NeMoRecipe:
    """Return the keys of the recipe that a command of NeMo 2 names, and of its other words."""
    task, words = launch.arguments[0], launch.arguments[1:]
    named = _option(words, "factory")
    call = _CALL.fullmatch(named.text) if named is not None and not named.unread else None
    if named is None or call is None:
        why = named.unread or f"`{named.text[:60]}` is no call" if named else "it names no recipe"
        help = " | ".join(named.answers) if named else ""
        raise error_at(named or task, f"`nemo llm {task.text}`: {why}", help or "--factory NAME")
    recipe = f"{call[1]}.{task.text}_recipe"
    known = table("nemo_recipes")["recipes"]
    if recipe not in known:
        others = [one.partition(".")[0] for one in known if one.endswith(f".{task.text}_recipe")]
        help = did_you_mean(call[1], others) or f"known: {', '.join(sorted(others))}"
        raise error_at(named, f"`{call[1]}` is not in parcost's table of recipes of NeMo 2", help)
    called = f"llm.{recipe}{call[2] or '()'}"
    text = f"from nemo.collections import llm\ndef recipe():\n    return {called}\n"
    try:
        made = read_nemo_recipe(text)
    except FileError as error:
        raise error_at(named, f"`{named.text[:60]}`: {error}", error.help) from None
    for key, entry in made.entries.items():
        made.entries[key] = evolve(entry, start=named.start, end=named.end)
    for word in (*words, *launch.conditional):
        pair = _PAIR.fullmatch(word.text)
        if pair is not None and not word.text.startswith("-") and word.unread != ARGUMENTS:
            _put_word(made, launch, pair[1], pair[2], word)
    return made


def _put_word(
    made: NeMoRecipe, launch: ScriptLaunch, key: str, value: str, word: ShellField
) -> None:
    """Replace the value of a key of the configuration by the value in the command."""
    made.assumed.pop(key, None)
    made.unread.pop(key, None)
    if word.unread or word in launch.conditional:
        why = word.unread or "it depends on a condition whose result is unknown"
        made.unread[key] = why
        made.entries[key] = JsonEntry(None, word.start, word.end)
    else:
        made.entries[key] = JsonEntry(read_value(value), word.start, word.end)
        if word.assumption:
            made.assumed[key] = word.assumption


def _read_words(file: ImportFile, script: Script, launch: ScriptLaunch) -> NeMoRecipe:
    """Return the keys in a command, merged over its configuration."""
    made = NeMoRecipe({}, {}, {})
    is_launcher = launch.name.endswith("main.py")
    chosen: ShellField | None = None
    for word in (*launch.arguments, *launch.conditional):
        pair = _PAIR.fullmatch(word.text)
        if word.unread == ARGUMENTS or pair is None or word.text.startswith("-"):
            continue
        key, value = pair[1], pair[2]
        if is_launcher:
            if not key.startswith(f"{_SECTION}."):
                chosen = word._replace(text=value) if key == _SECTION else chosen
                continue
            key = key.removeprefix(f"{_SECTION}.")
        _put_word(made, launch, key, value, word)
    if is_launcher:
        folders, name = ["conf/training/", "training/"], chosen
    else:
        folder = _option(launch.arguments, "config-path")
        folders = [] if folder is None else [f"{folder.text.strip('/')}/"]
        name = _option(launch.arguments, "config-name")
    _add_configuration(file, script, launch, made, name, folders)
    return made


def _add_configuration(
    file: ImportFile,
    script: Script,
    launch: ScriptLaunch,
    made: NeMoRecipe,
    name: ShellField | None,
    folders: Sequence[str],
) -> None:
    """Add the keys of the configuration *name* that the command does not set."""
    place, is_launcher = launch.program, launch.name.endswith("main.py")
    plain = (name.text if name is not None else _NAME).removesuffix(".yaml")
    names = [f"{one}{plain}.yaml" for one in (*folders, "conf/", "")]
    names += [f"{plain.rpartition('/')[2]}.yaml"] if is_launcher else []
    changed = next(filter(None, map(script.find_reason, names)), "")
    texts = (file.neighbor(one) for one in names if not changed)
    text = next((one for one in texts if one is not None), None)
    if text is not None:
        for key, entry in read_named_configuration(f"{plain}.yaml", text, place).items():
            made.entries.setdefault(key, JsonEntry(entry.value, place.start, place.end))
    elif plain == _NAME and not is_launcher and not changed:
        tokenizer = any(
            key.startswith(_TOKENIZER) and not key.endswith(_TOKENIZER_FILES)
            for key in made.entries
        )
        for key, value in table("nemo")["command"].items():
            if key not in made.entries and not (tokenizer and key.startswith(_TOKENIZER)):
                made.entries[key] = JsonEntry(value, place.start, place.end)
                made.assumed[key] = f"NeMo 1: {_NAME}.yaml"
    else:
        why = changed or "is not in the folder of the script"
        help = "put it there, or evaluate it and repeat the overrides of the command with --set"
        raise error_at(name or place, f"`{plain}.yaml` has the other keys, but {why}", help)


def _option(words: Sequence[ShellField], name: str) -> ShellField | None:
    """Return the value of an option of Hydra: ``--config-name=a`` or ``--config-name a``."""
    for place, word in enumerate(words):
        start, equals, value = word.text.partition("=")
        if start == f"--{name}":
            following = words[place + 1] if place + 1 < len(words) else None
            return word._replace(text=value) if equals else following
    return None
