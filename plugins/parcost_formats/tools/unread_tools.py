"""Configurations of tools without an importer: rejected with the name of the tool.

Files of such a tool have keys of other tools, whose importers would misread them.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from parcost import Importer, ImportFile, ImportProblem, Translation, hookimpl
from parcost_formats.tools.file_importer import BY_HAND, error_at
from parcost_formats.tools.finetuning.notebook import code_of_notebook
from parcost_formats.tools.finetuning.python_script import is_program
from parcost_formats.tools.needs import NEEDS
from parcost_formats.tools.shell.launches import ScriptLaunch, launches
from parcost_formats.tools.shell.script_files import read_script_file
from parcost_formats.tools.shell.scripts import ScriptCall, read_script
from parcost_formats.tools.shell.words import ShellTextError
from parcost_formats.tools.tables import required_word, table

_TABLE = table("unread_tools")
_ENDINGS = (".yaml", ".yml", ".json")
_CONFIGURATIONS = (".toml", *_ENDINGS)
_FOLDER = re.compile(r"\$(?:PWD|\{PWD\})/")  # of the launch
_PROGRAMS = (".py", ".ipynb")
_RANKS = {
    "torchrun",
    "accelerate",
    "deepspeed",
    "torch.distributed.run",
    "torch.distributed.launch",
}
_RANKS |= {"srun", "mpirun"}
_SCRIPTS = (".sh", ".bash", ".sbatch", ".slurm", ".job")


class UnreadTools(Importer):
    """Files of tools without a reader."""

    name = "unread_tools"
    title = str(_TABLE["title"])
    source = str(_TABLE["source"])

    def recognizes(self, name: str, text: str) -> bool:
        """Return whether a configuration has the keys of one of the tools."""
        return next(_tools(name, text), None) is not None

    def starts(self, file: ImportFile) -> Sequence[ImportFile]:
        """Return the scripts that a shell script starts, and the configurations that it lacks."""
        if not _is_script(file):
            return ()
        texts: dict[str, str] = {}

        def neighbor(path: str) -> str | None:
            text = file.neighbor(path)
            if text is not None:
                texts[path] = text
            return text

        try:
            script = read_script(file.text, neighbor=neighbor, name=file.name)
        except ShellTextError:
            return ()
        named = [
            field.text
            for name in _TABLE["configurations"]["variables"]
            if name in script.variables
            for field in script.fields(name)
            if field.text.endswith(_CONFIGURATIONS)
        ]
        lacking = [
            path
            for call in script.commands
            for path in _configurations(_words(call))
            if "://" not in path
            and script.start_from(call.written, call.folder).find_written(path) is None
        ]
        for one in launches(script):
            near = script.start_from(one.written, one.folder).neighbor(neighbor)
            program = near(one.name) if one.kind == "script" else None
            if program is not None and is_program(program):
                texts[one.name] = program
        texts |= dict.fromkeys([*(one.text for one in script.lacking), *lacking, *named], "")
        return [ImportFile(path, text) for path, text in texts.items()]

    def explain(self, file: ImportFile) -> ImportProblem | None:
        """Return an error with the program that a script starts or is, if it belongs to no tool."""
        if file.name.endswith(_PROGRAMS):
            message = f"`{file.name}` is a program, not a recipe of a tool that parcost imports"
            if file.name.endswith(".ipynb") and not code_of_notebook(file.text).strip():
                message = f"`{file.name}` is not a notebook with code: no cell of code was found"
            help = f"name the script that starts it or the file of its settings, or {BY_HAND}"
            return ImportProblem(message=message, start=0, end=1, help=help)
        if not _is_script(file):
            return None
        try:
            started = launches(read_script_file(file))
        except ShellTextError as error:
            message = f"the script is not read: {error}"
            return error_at(error, message, f"correct it, or {BY_HAND}").problem()
        if not started:
            return None
        distributed = [one for one in started if _is_distributed(one)]
        launch = (distributed or started)[-1]
        if launch.program.unread:
            message = (
                f"`{launch.name}` is the program that the script starts: {launch.program.unread}"
            )
            help = "put the file that sets it beside the script, or write the whole command into it"
            return error_at(launch.program, message, help).problem()
        first = next(iter(launch.arguments), None)
        if first is not None and first.unread:
            message = f"`{launch.name}` has the arguments `{first.text}`: {first.unread}"
            help = f"write them into the script, or {BY_HAND}"
            return error_at(first, message, help).problem()
        message = (
            f"`{launch.name}`, which the script starts, belongs to no tool that parcost imports"
        )
        return error_at(launch.program, message, BY_HAND).problem()

    def translate(self, name: str, text: str) -> Translation:
        """Return an error with the name of the tool, and commands that describe the job."""
        tool, start = next(_tools(name, text), ({"title": "parcost imports no such tool"}, 0))
        options = " ".join(NEEDS[one] for one in NEEDS if one != "training.model")
        help = (
            "evaluate the `config.json` of its model, and state the rest: `parcost eval "
            f"config.json {options}`, with --set layout.tp, layout.pp, layout.zero and "
            "training.recompute"
        )
        help = tool.get("help", help)
        if tool.get("command"):
            help = (
                "copy the command that it starts into a script, with its variables, or evaluate "
                "the configuration that this command names: `parcost eval run.sh --use "
                "catalog.devices.h100_sxm --set cluster.devices=N`"
            )
        rejected = f"is a configuration of {tool['title']}, which parcost does not import"
        problem = ImportProblem(
            message=f"`{name}` {tool.get('message', rejected)}",
            start=start,
            end=start + 1,
            help=help,
        )
        return Translation(problems=[problem])


def _is_script(file: ImportFile) -> bool:
    return file.name.endswith(_SCRIPTS) or file.text.startswith("#!")


def _is_distributed(launch: ScriptLaunch) -> bool:
    """Return whether a command starts ranks, as `torchrun` and `accelerate launch` do."""
    words = {word.text.rpartition("/")[2] for word in launch.launcher}
    return bool(words & _RANKS)


def _words(call: ScriptCall) -> Sequence[str]:
    """Return the words of a command, followed by the assignments ahead of it."""
    ahead = [f"{name}={value.text}" for name, value in call.environment.items()]
    return [*(word.text for word in call.words), *ahead]


def _configurations(words: Sequence[str]) -> Iterator[str]:
    """Yield the files in a command that may have the keys of a job.

    Data files, and configurations of an engine or a launcher, have none of these keys.

    >>> list(_configurations("ds train.py a.yaml --deepspeed ds.json --config=b.json".split()))
    ['a.yaml', 'b.json']
    >>> list(_configurations("torchrun -m titan.train --job.config_file a.toml".split()))
    ['a.toml']
    """
    rules = _TABLE["configurations"]
    modules = [False, *(word in ("-m", "--module") for word in words)]
    program = next(
        (at for at, word in enumerate(words) if word.endswith(".py") or modules[at]), len(words)
    )
    launched = posixpath.basename("".join(words[:1])) in rules["launchers"]
    before = ""
    for at, word in enumerate(words):
        whole, equals, value = word.partition("=")
        flag, path = (whole, value) if equals else (before, word)
        path = _FOLDER.sub("", path)
        before = word if word.startswith("-") and not equals else ""
        name = flag.lstrip("-").lower()
        other = bool(name) and re.search(rules["flags"], name) is None
        if not path.endswith(_CONFIGURATIONS) or other or (launched and at < program):
            continue
        if not re.search(rules["parts"], f"{name}={posixpath.basename(path).lower()}"):
            yield path


def _tools(name: str, text: str) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Yield the tools whose signs all occur in a text, with the place of the first sign."""
    for tool in _TABLE["tools"]:
        if not name.endswith(tuple(tool.get("endings", _ENDINGS))):
            continue
        places = []
        for sign in tool["signs"]:
            word = required_word(sign)
            one = re.search(sign, text, re.MULTILINE) if word in text else None
            if one is None:
                break
            places.append(one.start() + len(one[0]) - len(one[0].lstrip()))
        else:
            yield tool, min(places)


@hookimpl
def importers() -> list[Importer]:
    """Return the importer that rejects files of tools without a reader."""
    return [UnreadTools()]
