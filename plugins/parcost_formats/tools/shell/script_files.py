"""The commands of a script that belong to one training.

    pip install -r requirements.txt
    torchrun --nproc_per_node 8 train.py --lr 1e-4      # the only training
    python convert_checkpoint.py --in a --out b

Programs that convert, evaluate or prepare are left out if there are others. Of several trainings
the user chooses one by its line: ``run.sh:2``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from parcost import ImportFile
from parcost_formats.tools.file_importer import FileError
from parcost_formats.tools.shell.launches import ScriptLaunch, find_launch
from parcost_formats.tools.shell.scripts import Script, ScriptCall, read_script

_Command: TypeAlias = ScriptCall | ScriptLaunch

#: Programs that train nothing, by parts of their paths, unless a part says that they train.
_CHORE = re.compile(
    r"(?:^|[/._-])(?:(?:de)?convert|conver[st]|preprocess|prepare|tokeniz|download|upload|eval|"
    r"evaluat|infer|inference|generat|merge|export|plot|benchmark|serve|server)[a-z]*(?=[/._-]|$)"
    r"|(?:^|/)(?:tasks|tools)/|checkpoint/util"
)
_TRAINING = re.compile(r"train|sft|dpo|grpo|ppo|tune|tuning", re.IGNORECASE)


def read_script_file(file: ImportFile) -> Script:
    """Return the variables and commands of a script, with the values given to its environment.

    Raises:
        ShellTextError: The text is not a script.
        FileError: The user chooses a line on which the script starts no program.
    """
    environment = {"HOME": "~", **dict(file.options.environment)}
    script = read_script(file.text, environment, file.neighbor, file.name)
    chosen = file.options.recipe
    started = [call for call in script.commands if find_launch(call) is not None]
    if chosen:
        kept = [call for call in started if chosen.isdecimal() and _is_at(file, call, chosen)]
        if not kept and started:
            message = f"`{file.name}:{chosen}`: the script starts no program on this line"
            raise FileError(message, *started[0].place, help=help_to_choose(file, started))
    else:
        chores = [call for call in started if _is_chore(call)]
        kept = [call for call in started if call not in chores] or started
    dropped = {id(call) for call in started} - {id(call) for call in kept}
    return script._replace(commands=[one for one in script.commands if id(one) not in dropped])


def several_commands(file: ImportFile, commands: Sequence[_Command], what: str) -> FileError:
    """Return an error for several *commands*; *what* names them."""
    message = f"the script has {len(commands)} {what}, but exactly one is expected"
    return FileError(message, *commands[1].place, help=help_to_choose(file, commands))


def help_to_choose(file: ImportFile, commands: Iterable[_Command]) -> str:
    """Return how to choose one of several commands."""
    lines = dict.fromkeys(_line(file, command.place[0]) for command in commands)
    if len(lines) < 2:  # a loop, or a function that is called twice
        return "keep only one of them in the file"
    return "choose one by its line: " + " | ".join(f"{file.name}:{line}" for line in lines)


def _line(file: ImportFile, at: int) -> int:
    return file.text.count("\n", 0, at) + 1


def _is_at(file: ImportFile, call: ScriptCall, line: str) -> bool:
    """Return whether a command is on a line, or on a continuation of the line."""
    first, last = (_line(file, at) for at in call.place)
    return len(line) < 9 and first <= int(line) <= last


def _is_chore(call: ScriptCall) -> bool:
    launch = find_launch(call)
    return (
        launch is not None
        and launch.kind != "command"
        and bool(_CHORE.search(launch.name.lower()))
        and not _TRAINING.search(launch.name.rpartition("/")[2])
    )
