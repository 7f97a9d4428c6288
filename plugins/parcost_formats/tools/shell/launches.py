"""The program that a command launches by launchers such as ``torchrun`` and ``srun``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from parcost_formats.tools.shell.scripts import Script, ScriptCall, split_words
from parcost_formats.tools.shell.values import Decision, ShellField

_PYTHONS = ("python", "python3")
#: Modules that launch another module or script.
_LAUNCHING_MODULES = (
    *("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"),
    *("deepspeed.launcher.runner", "colossalai.cli", "torchrun"),
)
#: Programs whose first argument is a subcommand, such as ``swift sft``.
_WITH_COMMANDS = (
    *("swift", "megatron", "llamafactory-cli", "trl", "axolotl", "xtuner", "lightning", "nemo"),
    *("primus-cli", "automodel", "tune"),
)
#: Programs with a subcommand that launches another program: of Lightning Fabric.
_LAUNCHING_COMMANDS = (("lightning", "run"), ("fabric", "run"))
_MODULES = ("-m", "--module")
#: Names of torchrun, and the options of it that decide the devices.
_TORCHRUN = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
_COUNTS = ("nnodes", "nproc-per-node")
_LIKE = 0.75  # of the letters of an option, in order
_ATTACHED = re.compile(r"(-[NnG])(\d{1,8})")  # a short option with its value
#: Options of numactl without a value, and short ones with theirs: ``-N0``.
_SWITCHES_OF_NUMACTL = ("-l", "--localalloc", "-a", "--all", "-b", "--balancing", "-H", "-s")
_SHORT_WITH_VALUE = re.compile(r"-[A-Za-z].+")
_ELASTIC = re.compile(r"(--nnodes=|)(\d{1,8}):(\d{1,8})")
#: A command that prints the path of a file of Python.
_PRINTED = re.compile(r"\$\(\s*python3?\s.*\.py\b", re.DOTALL)
#: What a program that submits jobs starts behind ``--``.
_STARTED = (*_PYTHONS, "torchrun", "accelerate", "deepspeed", "uv", "srun", "mpirun", "bash", "sh")


class ScriptLaunch(NamedTuple):
    """A program that a script launches.

    *kind* is ``script`` (a file of Python), ``module`` or ``command``. *name* is the file, the
    module, or the command with its first word: ``swift sft``. *launcher* are the words before it,
    and *arguments* the words after it. *conditional* are words that only some branches of undecided
    tests add. *decision* is the test that the launch itself depends on. *environment* are
    assignments ahead of the command. *written* are the texts of files that the script writes by
    here-documents before it, by path. *folder* is the current folder, relative to the folder of the
    script. *place* is the place of the command in the file.
    """

    kind: str
    name: str
    program: ShellField
    launcher: Sequence[ShellField]
    arguments: Sequence[ShellField]
    conditional: Sequence[ShellField]
    environment: dict[str, ShellField]
    decision: Decision | None
    written: Mapping[str, ShellField]
    folder: str
    place: tuple[int, int]


def launches(script: Script) -> Sequence[ScriptLaunch]:
    """Return the programs that a script launches, in their order.

    >>> from parcost_formats.tools.shell.scripts import read_script
    >>> (one,) = launches(read_script("torchrun --nproc_per_node 8 -m pkg.train --lr 1"))
    >>> one.kind, one.name, [word.text for word in one.arguments]
    ('module', 'pkg.train', ['--lr', '1'])
    """
    found = [find_launch(call) for call in script.commands]
    return [one for one in found if one is not None]


def open_words(words: Sequence[ShellField]) -> Sequence[ShellField]:
    """Return the words, with a word that holds a whole command line split into words."""
    found: list[ShellField] = []
    for word in words:
        inner = " --" in word.text and not word.text.startswith("--")
        found += split_words(word) if inner else [word]
    found = _without_binding(found)
    counts = _misspellings_of_counts(found)
    return [one for place in range(len(found)) for one in _plain_counts(found, place, counts)]


def _without_binding(words: Sequence[ShellField]) -> list[ShellField]:
    """Return the words without the options of ``numactl``, whose ``-N 0`` is no number of nodes.

    >>> from parcost_formats.tools.shell.scripts import read_script
    >>> (call,) = read_script("numactl -N 0 --membind=0 torchrun --nnodes 2 a.py").commands
    >>> [word.text for word in open_words(call.words)]
    ['numactl', 'torchrun', '--nnodes', '2', 'a.py']
    """
    bases = [word.text.rpartition("/")[2] for word in words]
    if "numactl" not in bases:
        return list(words)
    start = end = bases.index("numactl") + 1
    while end < len(words) and words[end].text.startswith("-"):
        text = words[end].text
        whole = "=" in text or text in _SWITCHES_OF_NUMACTL or _SHORT_WITH_VALUE.fullmatch(text)
        end += 1 if whole else 2
    return [*words[:start], *words[end:]]


def _plain_counts(
    words: Sequence[ShellField], place: int, misspelled: Mapping[int, str]
) -> Sequence[ShellField]:
    """Return the word at *place*: ``-N4`` of srun becomes two words, and an elastic count is
    unknown.

    *misspelled* are misspelled options of torchrun by place; their counts are unknown, too.

    >>> from parcost_formats.tools.shell.scripts import read_script
    >>> (call,) = read_script("srun -N4 torchrun --nnodes=2:4 --max_restarts 3 a.py").commands
    >>> [(word.text, word.unread) for word in open_words(call.words)][1:5:3]
    [('-N', ''), ('--nnodes=2:4', 'the job is elastic, from 2 to 4 nodes')]
    """
    word = words[place]
    if attached := _ATTACHED.fullmatch(word.text):
        ahead = [one.text.rpartition("/")[2] for one in words[:place]]
        if "srun" in ahead and not any(one.endswith(".py") for one in ahead):
            return [word._replace(text=one) for one in attached.groups()]
    for at in (place, place - 1):
        if at in misspelled:
            option, _, value = words[at].text.partition("=")
            why = f"`{option}` is not an option of torchrun; `{misspelled[at]}` was probably meant"
            if at < place:
                return [word] if value else [word._replace(unread=why)]
            plain = f"{misspelled[at]}={value}" if value else misspelled[at]
            return [word._replace(text=plain, unread=why if value else word.unread)]
    elastic = _ELASTIC.fullmatch(word.text)
    if elastic and (elastic[1] or (place and words[place - 1].text == "--nnodes")):
        option, least, most = elastic.groups()
        if int(least) == int(most):
            return [word._replace(text=f"{option}{most}")]
        return [word._replace(unread=f"the job is elastic, from {least} to {most} nodes")]
    return [word]


def _misspellings_of_counts(words: Sequence[ShellField]) -> Mapping[int, str]:
    """Return the options of torchrun that are misspelled, by place, as they were probably meant.

    >>> from parcost_formats.tools.shell.scripts import read_script
    >>> (call,) = read_script("torchrun --nnodez=2 --nproc_per_node 8 a.py --nodes 2").commands
    >>> [(word.text, word.unread) for word in open_words(call.words)][1]
    ('--nnodes=2', '`--nnodez` is not an option of torchrun; `--nnodes` was probably meant')
    """
    bases = (word.text.rpartition("/")[2] for word in words)
    start = next((place for place, base in enumerate(bases) if base in _TORCHRUN), len(words))
    found: dict[int, str] = {}
    given = {word.text.partition("=")[0].lstrip("-").replace("_", "-") for word in words}
    for place in range(start + 1, len(words)):
        option, before = words[place].text.partition("=")[0], words[place - 1].text
        is_value = before.startswith("-") and "=" not in before
        if option.endswith(".py") or option in _MODULES or not (option[:1] == "-" or is_value):
            break  # the options of the program follow
        name = option.removeprefix("--").replace("_", "-")
        if not option.startswith("--") or name in _COUNTS:
            continue
        for meant in {*get_close_matches(name, _COUNTS, n=1, cutoff=_LIKE)} - given:
            found[place] = f"--{meant.replace('-', '_') if '_' in option else meant}"
    return found


def launcher_options(words: Sequence[ShellField]) -> dict[str, ShellField]:
    """Return the flags of a launcher by name, each with its value."""
    found: dict[str, ShellField] = {}
    for place, word in enumerate(words):
        if not word.text.startswith("-"):
            continue
        name, equals, _ = word.text.lstrip("-").replace("-", "_").partition("=")
        following = words[place + 1] if place + 1 < len(words) else word
        if equals:
            found[name] = word._replace(text=word.text.partition("=")[2])
        elif following.text.startswith("-") or following is word:
            found[name] = word._replace(text="true")
        else:
            found[name] = following
    return found


def find_launch(call: ScriptCall) -> ScriptLaunch | None:
    """Return the program that a command launches, None if it launches none."""
    words = open_words(call.words)
    found = _program_name(words)
    if found is None:
        return None
    kind, place, count = found
    program = words[place]
    name = " ".join(word.text for word in words[place : place + count])
    if kind == "command":  # of a program that may stand in a folder
        first, _, rest = name.partition(" ")
        name = f"{first.rpartition('/')[2]} {rest}".rstrip()
    return ScriptLaunch(
        kind,
        name,
        program,
        words[:place],
        words[place + count :],
        call.conditional,
        dict(call.environment),
        call.decision,
        call.written,
        call.folder,
        call.place,
    )


def _program_name(words: Sequence[ShellField]) -> tuple[str, int, int] | None:
    """Return the kind of program, the index of its name, and the number of words in the name."""
    at = _after_marker(words)
    while at < len(words):
        text = words[at].text
        base = text.rpartition("/")[2]
        following = words[at + 1].text if at + 1 < len(words) else ""
        if text in _MODULES and following and at:
            if following not in _LAUNCHING_MODULES:
                return "module", at + 1, 1
            at += 2
            continue
        if base.endswith(".py") and not text.startswith("-"):
            return "script", at, 1
        if words[at].unread and _PRINTED.match(text):
            return "script", at, 1
        if (base, following) in _LAUNCHING_COMMANDS:
            at += 2
            continue
        if base in _WITH_COMMANDS and following:
            if base == "tune":
                return _recipe_of_tune(words, at)
            if not following.startswith("-"):
                return "command", at, 2
        at += 1
    return None


def _after_marker(words: Sequence[ShellField]) -> int:
    """Return the index after ``--``, which ends the options of a program that submits jobs."""
    texts = [word.text for word in words]
    for place in range(len(texts) - 1):
        following = texts[place + 1].rpartition("/")[2]
        if texts[place] == "--" and (texts[0] == "ray" or following in _STARTED):
            return place + 1
    return 0


def _recipe_of_tune(words: Sequence[ShellField], at: int) -> tuple[str, int, int] | None:
    """Return the recipe of ``tune run``: the word ahead of ``--config``."""
    for place in range(at + 2, len(words) - 1):
        if words[place + 1].text.startswith("--config"):
            return "command", place, 1
    return None
