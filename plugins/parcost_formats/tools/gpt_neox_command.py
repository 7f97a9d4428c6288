"""The command that starts GPT-NeoX: ``deepy.py train.py -d FOLDER model.yml local.yml``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from attrs import field, frozen

from parcost import ImportFile
from parcost_formats.tools.collector import read_named_configuration
from parcost_formats.tools.file_importer import FileError, error_at
from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.shell.commands import SCRIPT_ENDINGS
from parcost_formats.tools.shell.launches import ScriptLaunch, launches
from parcost_formats.tools.shell.script_files import read_script_file, several_commands
from parcost_formats.tools.shell.scripts import (
    Script,
    ShellField,
    count_at_end,
    count_nodes,
    list_places,
)

_COMMAND = re.compile(r"\bdeepy\.py[\"']?(?:[^\n|;&\\]|\\\n|\\.)*\btrain\.py")
_FOLDERS = ("-d", "--conf_dir")
_OPTIONS = (  # of `deepy.py`
    *_FOLDERS,
    *("--hostfile", "-H", "--wandb_group", "--wandb_team", "--eval_results_prefix"),
)
_OF_NODE = ("--gpus-per-node", "--ntasks-per-node", "--gres")
_FOLDER = re.compile(r"^\$(?:PWD|\{PWD\})/")  # of the launch
_NAME = re.compile(r"/[\w.-]+$")  # behind a folder that may be unknown
_ENDINGS = (".yml", ".yaml", ".json")


@frozen
class NeoxFiles:
    """The *texts* of the configurations of a command, by name, and the words that name them.

    *scheduler* has options of ``#SBATCH`` lines. *assumed* are reasons by name of a file. *keys*
    are keys that options of a fork set, by name.
    """

    texts: dict[str, str] = field(factory=dict)
    words: dict[str, ShellField] = field(factory=dict)
    assumed: dict[str, str] = field(factory=dict)
    scheduler: Mapping[str, ShellField] = field(factory=dict)
    keys: dict[str, JsonEntry] = field(factory=dict)

    def read(self, name: str) -> Mapping[str, JsonEntry]:
        """Return the entries of a file, at the word that names it.

        Raises:
            FileError: The file cannot be read.
        """
        word = self.words[name]
        found = read_named_configuration(name, self.texts[name], word)
        return {key: JsonEntry(one.value, word.start, word.end) for key, one in found.items()}

    def count_devices(self) -> tuple[int, str, ShellField] | None:
        """Return the devices that the scheduler reserves, with the option that has them."""
        nodes = count_nodes(self.scheduler)
        for key in _OF_NODE:
            each = count_at_end(self.scheduler.get(key))
            if nodes and each:
                return nodes * each, key, self.scheduler[key]
        return None


def is_command(name: str, text: str) -> bool:
    """Return whether a script starts the trainer of GPT-NeoX."""
    return name.endswith(SCRIPT_ENDINGS) and bool(_COMMAND.search(text))


def read_command(file: ImportFile) -> NeoxFiles:
    """Return the configurations that a script names, which must be in its folder.

    Raises:
        FileError: One of them is not, or the script has several commands.
    """
    script = read_script_file(file)
    started = [one for one in launches(script) if one.name.rpartition("/")[2] == "deepy.py"]
    started = [
        one for one in started if any(word.text.endswith("train.py") for word in one.arguments)
    ]
    if not started:
        raise FileError("the command of GPT-NeoX cannot be read")
    if len({tuple(word.text for word in one.arguments) for one in started}) > 1:
        raise several_commands(file, started, "commands of GPT-NeoX")
    launch = started[0]
    script = script.start_from(launch.written, launch.folder)
    found = NeoxFiles(scheduler=script.scheduler, keys=dict(_keys(launch)))
    for word, path in _configurations(launch):
        _add(found, file, script, word, path)
    if not found.texts:
        message = "the command names no configuration"
        raise error_at(launch.program, message, "name the files of the run: MODEL.yml LOCAL.yml")
    return found


def _takes_value(flag: str) -> bool:
    """Return whether the word after an option is its value, for ``deepy.py`` or for a fork."""
    return flag in _OPTIONS or (flag.startswith("--") and "=" not in flag)


def _keys(launch: ScriptLaunch) -> Iterator[tuple[str, JsonEntry]]:
    """Yield the keys set by options that ``deepy.py`` does not have: these belong to a fork."""
    words = launch.arguments
    for word, following in pairwise(words):
        name, equals, value = word.text.partition("=")
        if name.startswith("--") and name not in _OPTIONS:
            text = value if equals else following.text
            yield name.removeprefix("--").replace("-", "_"), JsonEntry(text, word.start, word.end)


def _configurations(launch: ScriptLaunch) -> Iterator[tuple[ShellField, str]]:
    """Yield the words that name configurations, with their paths.

    Raises:
        FileError: One of them is unknown.
    """
    folder, before = "", ""
    paths: list[ShellField] = []
    seen = False
    for word in launch.arguments:
        text, flag, before = word.text, before, word.text
        if flag in _FOLDERS:
            folder = f"{text.rstrip('/')}/"
        elif _takes_value(flag) or text.startswith("-") or not seen:
            seen = seen or text.endswith("train.py")
        elif word.unread and not _NAME.search(text):
            raise error_at(word, f"`{text}` names a configuration: {word.unread}", word.advice)
        else:
            paths.append(word)
    for word in paths:
        named = _FOLDER.sub("", word.text)
        named = named if named.endswith(_ENDINGS) else f"{named}.yml"
        yield word, named if named.startswith("/") else f"{folder}{named}"


def _add(found: NeoxFiles, file: ImportFile, script: Script, word: ShellField, path: str) -> None:
    """Add a configuration.

    Raises:
        FileError: The configuration is not in the folder of the script.
    """
    find, places = script.neighbor(file.neighbor), list_places(path, script)
    place = next((one for one in places if find(one) is not None), "")
    text = find(place) if place else None
    if text is None:
        reasons: Sequence[str] = [why for one in places if (why := script.find_reason(one))]
        why = reasons[0] if reasons else "is not in the folder of the script"
        help = "put it there, or evaluate the files of the run: `parcost eval MODEL.yml LOCAL.yml`"
        raise error_at(word, f"`{path}` has keys of the job, but {why}", help)
    found.texts[place], found.words[place] = text, word
    why = word.assumption or script.assumption(place, 0, len(text))
    if place != path:
        why = why or f"`{place}` beside the script, for `{path}`"
    if why:
        found.assumed[place] = why
