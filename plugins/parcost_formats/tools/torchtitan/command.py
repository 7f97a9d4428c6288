"""Commands of torchtitan in scripts: ``train.py --job.config_file a.toml --section.key value``.

Since 2026 a command names a configuration in Python: ``--module llama3 --config llama3_8b``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from parcost import ImportFile
from parcost_formats.tools.drafts import Draft, Option, texts_of
from parcost_formats.tools.file_importer import FileError, error_at
from parcost_formats.tools.megatron.devices import read_devices
from parcost_formats.tools.megatron.flags import CommandLine, read_launcher, variable_option
from parcost_formats.tools.shell.commands import SCRIPT_ENDINGS
from parcost_formats.tools.shell.launches import open_words
from parcost_formats.tools.shell.script_files import read_script_file, several_commands
from parcost_formats.tools.shell.scripts import (
    ARGUMENTS,
    Script,
    ScriptCall,
    ShellField,
    list_places,
)
from parcost_formats.tools.torchtitan.registry import CONFIG, MODULE, read_registry
from parcost_formats.tools.torchtitan.toml_text import field_name, read_toml
from parcost_formats.tools.yaml_text import read_value

_FILE = "job.config_file"
_COMMAND = re.compile(r"--job\.config[_-]file\b")
_VARIABLE = re.compile(r"\bCONFIG_FILE=\S{0,300}?\.toml\b")
_FLAG = re.compile(r"\s--module[ =]")
_CHOICES = re.compile(r"\bMOD(?:ULE|EL)="), re.compile(r"\bCONFIG=")
_NAMES = {MODULE: ("MODULE", "MODEL"), CONFIG: ("CONFIG",)}  # variables of `run_train.sh`
_MODIFIER = re.compile(r"([a-z][\w-]*):([a-z][\w-]*)")  # the class of a part: `loss:chunked`
_PARTS = ("activation_checkpoint", "dataloader", "loss", "lr_scheduler", "model_spec", "optimizer")
_RECOMPUTE = re.compile(r"(full|selective|memory[-_]budget|none)(?:[-_]ac)?")
_STARTER = re.compile(r"(?:^|/)run_(?:llama_)?train\.sh$")
_RANKS = "NGPU"  # of `run_train.sh`
_RANKS_THERE = "8"


class TitanCommand(NamedTuple):
    """The *fields* that a command sets, the *place* of its file, and the *line* of its launcher.

    *python* says whether that file is in Python, and *unread* are calls in it that are not read.
    """

    fields: dict[str, Option]
    place: str
    line: CommandLine
    python: bool = False
    unread: Sequence[Option] = ()


def is_command(name: str, text: str) -> bool:
    """Return whether a script starts torchtitan with a configuration."""
    if not name.endswith(SCRIPT_ENDINGS):
        return False
    started = "run_train.sh" in text or "run_llama_train.sh" in text
    return bool(
        _COMMAND.search(text)
        or (started and _VARIABLE.search(text))
        or (started and all(one.search(text) for one in _CHOICES))
        or ("torchtitan.train" in text and _FLAG.search(text))
    )


def read_command(file: ImportFile) -> TitanCommand:
    """Return the fields of a command; its arguments win over its file.

    Raises:
        FileError: The file is not in the folder of the script, or there are several commands.
    """
    script = read_script_file(file)
    calls = (
        call._replace(environment=script.environment_of(call.environment))
        for call in script.commands
    )
    found = [one for call in calls if (one := _read_start(call)) is not None]
    if not found:
        raise FileError("the command of torchtitan cannot be read")
    if len({tuple(word.text for word in arguments) for _, _, arguments in found}) > 1:
        raise several_commands(file, [call for call, _, _ in found], "commands of torchtitan")
    call, launcher, arguments = found[0]
    script = script.start_from(call.written, call.folder)
    given = {one.name: one for one in _arguments(arguments)}
    named = given.pop(_FILE, None)
    ranks = read_launcher(launcher)
    if launcher and _STARTER.search(launcher[-1].text):
        ranks["nproc-per-node"] = _ranks(call, launcher[-1])
    line = CommandLine({}, ranks, (), (), (), script)
    if named is None:
        first = arguments[0]
        near = Option(name="", key="", start=first.start, end=first.end)
        job = read_registry(file, script, given, near)
        return TitanCommand(
            {**job.fields, **given}, job.place, line, python=True, unread=job.unread
        )
    place, fields = _read_file(file, script, named)
    return TitanCommand({**fields, **given}, place, line)


def set_devices(draft: Draft, line: CommandLine) -> None:
    """Set the device count of the launcher, which must equal the product of the degrees."""
    if not draft.has("cluster.devices"):
        read_devices(draft, line)
        return
    other = Draft({"cluster": ""})
    read_devices(other, line)
    product, stated = draft.value_of("cluster.devices"), other.value_of("cluster.devices")
    if product is not None and stated is not None and stated.value != product.value:
        message = (
            f"the degrees need {product.value} devices, but the launcher starts {stated.value}"
        )
        place = Option(name="devices", key=stated.key, start=stated.start, end=stated.end)
        draft.problem(place, message)


def _read_start(
    call: ScriptCall,
) -> tuple[ScriptCall, Sequence[ShellField], Sequence[ShellField]] | None:
    """Split a command of torchtitan after the name of its program."""
    words = open_words([*call.words, *call.conditional])
    for at, word in enumerate(words):
        flag = word.text.partition("=")[0].replace("-", "_")
        programs = [
            place
            for place in range(at)
            if words[place].text.endswith((".py", ".train"))
            and not words[place].text.startswith("-")
        ]
        if flag == f"__{_FILE}" or (
            flag == f"__{MODULE}" and programs and words[programs[0]].text.endswith(".train")
        ):
            first = programs[0] + 1 if programs else at
            return call, words[:first], words[first:]
        if _STARTER.search(word.text) and (flags := _flags_of_starter(call)):
            return call, words[: at + 1], [*flags, *words[at + 1 :]]
    return None


def _flags_of_starter(call: ScriptCall) -> Sequence[ShellField]:
    """Return the flags that ``run_train.sh`` makes of variables."""
    file = call.environment.get("CONFIG_FILE")
    if file is not None:
        return [file._replace(text=f"--{_FILE}={file.text}")]
    found = {
        name: next((call.environment[one] for one in names if one in call.environment), None)
        for name, names in _NAMES.items()
    }
    named = found[CONFIG]
    if named is None or not (named.text or named.unread):
        return []
    return [one._replace(text=f"--{key}={one.text}") for key, one in found.items() if one]


def _ranks(call: ScriptCall, starter: ShellField) -> Option:
    """Return the ranks of a node that ``run_train.sh`` starts."""
    word = call.environment.get(_RANKS)
    if word is None:
        why = f"torchtitan: run_train.sh starts {_RANKS_THERE} ranks"
        start, end = starter.start, starter.end
        own = (_RANKS_THERE,)
        return Option(name=_RANKS, key=_RANKS, texts=own, start=start, end=end, assumption=why)
    return variable_option(_RANKS, _RANKS, word)


def _arguments(words: Sequence[ShellField]) -> Iterator[Option]:
    """Yield the fields that the arguments of a command set."""
    run: list[ShellField] = []
    for word in [*words, None]:
        modifier = _MODIFIER.fullmatch(word.text) if word is not None else None
        if modifier and modifier[1].replace("-", "_") not in _PARTS:
            modifier = None
        if word is None or word.text.startswith("--") or modifier:
            if run and run[0].text.startswith("--"):
                yield _field(run)
            run = []
        if word is not None and modifier:
            yield _part(word, modifier[1], modifier[2])
        elif word is not None and word.unread != ARGUMENTS:
            run.append(word)


def _part(word: ShellField, name: str, choice: str) -> Option:
    """Return the class of a part of the configuration: ``activation-checkpoint:full``."""
    name, mode = name.replace("-", "_"), _RECOMPUTE.fullmatch(choice)
    known = name == "activation_checkpoint" and mode is not None
    return Option(
        name=f"{name}.mode" if known else name,
        key=word.text,
        texts=(mode[1].replace("-", "_"),) if known and mode else (),
        start=word.start,
        end=word.end,
        unread=word.unread or ("" if known else "parcost does not know this choice"),
        assumption=word.assumption,
        answers=word.answers,
    )


def _field(run: Sequence[ShellField]) -> Option:
    """Return the field of a flag with the words after it; a bare flag is on, or off with `no-`."""
    first, *rest = run
    key, equals, value = first.text.partition("=")
    plain = key.lstrip("-").replace("-", "_")
    words = [*([value] if equals else []), *(one.text for one in rest)]
    section, dot, last = plain.rpartition(".")
    off = not words and (last.startswith("no_") or plain.startswith("no_"))
    if off:
        plain = f"{section}{dot}{last.removeprefix('no_')}".removeprefix("no_")
    values = [read_value(one) if len(one) < 60 else one for one in words] or [not off]
    if len(values) == 1 and isinstance(values[0], str) and "," in values[0]:
        values = [values[0].split(",")]
    found = values[0] if len(values) == 1 else values
    return Option(
        name=field_name(plain),
        key=key,
        texts=texts_of(found),
        start=first.start,
        end=max(first.end, run[-1].end),
        unread=next((one.unread for one in run if one.unread), ""),
        assumption=next((one.assumption for one in run if one.assumption), ""),
        answers=next((one.answers for one in run if one.unread), ()),
        value=found,
    )


def _read_file(file: ImportFile, script: Script, named: Option) -> tuple[str, dict[str, Option]]:
    """Return the path of a configuration, and its fields.

    Raises:
        FileError: The configuration is not in the folder of the script, or cannot be read.
    """
    find, path = script.neighbor(file.neighbor), named.text
    places = list_places(path, script)
    place = next((one for one in places if find(one) is not None), "")
    text = find(place) if place else None
    if text is None:
        why = next(filter(None, map(script.find_reason, places)), "")
        why = named.unread or why or "is not in the folder of the script"
        help = "put it there, or evaluate it: `parcost eval FILE.toml` with --set for the rest"
        raise error_at(named, f"`{path}` has the other keys, but {why}", help)
    try:
        entries = read_toml(text)
    except FileError as error:
        raise error_at(named, f"`{path}`: {error}", error.help) from None
    why = script.assumption(place, 0, len(text)) or named.assumption
    if place != path:
        why = why or f"`{place}` beside the script, for `{path}`"
    return path, {
        field_name(key): Option(
            name=field_name(key),
            key=key,
            texts=texts_of(entry.value),
            start=named.start,
            end=named.end,
            value=entry.value,
            assumption=why,
        )
        for key, entry in entries.items()
    }
