"""Commands of torchtitan in scripts: ``train.py --job.config_file a.toml --section.key value``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from parcost import ImportFile
from parcost_formats.tools.drafts import Draft, Option
from parcost_formats.tools.file_importer import FileError, error_at
from parcost_formats.tools.megatron.devices import read_devices
from parcost_formats.tools.megatron.flags import CommandLine, read_launcher, variable_option
from parcost_formats.tools.shell.commands import SCRIPT_ENDINGS
from parcost_formats.tools.shell.launches import open_words
from parcost_formats.tools.shell.scripts import (
    ARGUMENTS,
    Script,
    ScriptCall,
    ShellField,
    list_places,
    read_script_file,
)
from parcost_formats.tools.torchtitan.python_text import texts
from parcost_formats.tools.torchtitan.toml_text import field_name, read_toml
from parcost_formats.tools.yaml_text import read_value

_FILE = "job.config_file"
_COMMAND = re.compile(r"--job\.config[_-]file\b")
_VARIABLE = re.compile(r"\bCONFIG_FILE=\S{0,300}?\.toml\b")
_STARTER = re.compile(r"(?:^|/)run_(?:llama_)?train\.sh$")
_RANKS = "NGPU"  # of `run_train.sh`
_RANKS_THERE = "8"


class TitanCommand(NamedTuple):
    """The *fields* that a command sets, the *place* of its file, and the *line* of its launcher."""

    fields: dict[str, Option]
    place: str
    line: CommandLine


def is_command(name: str, text: str) -> bool:
    """Return whether a script starts torchtitan with a configuration in TOML."""
    if not name.endswith(SCRIPT_ENDINGS):
        return False
    started = "run_train.sh" in text or "run_llama_train.sh" in text
    return bool(_COMMAND.search(text) or (started and _VARIABLE.search(text)))


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
        raise FileError("the command of torchtitan is not read")
    if len({tuple(word.text for word in arguments) for _, _, arguments in found}) > 1:
        message = f"the script has {len(found)} commands of torchtitan, and one is expected"
        raise error_at(found[1][2][0], message, "keep only one of them in the file")
    call, launcher, arguments = found[0]
    script = script.start_from(call.written, call.folder)
    given = {one.name: one for one in _arguments(arguments)}
    named = given.pop(_FILE, None)
    if named is None:
        raise error_at(arguments[0], "the command names no configuration", "add --job.config_file")
    place, fields = _read_file(file, script, named)
    ranks = read_launcher(launcher)
    if launcher and _STARTER.search(launcher[-1].text):
        ranks["nproc-per-node"] = _ranks(call, launcher[-1])
    return TitanCommand({**fields, **given}, place, CommandLine({}, ranks, (), (), (), script))


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
            f"the degrees need {product.value} devices, and the launcher starts {stated.value}"
        )
        place = Option(name="devices", key=stated.key, start=stated.start, end=stated.end)
        draft.problem(place, message)


def _read_start(
    call: ScriptCall,
) -> tuple[ScriptCall, Sequence[ShellField], Sequence[ShellField]] | None:
    """Return a command of torchtitan with the words up to its program, and the words after it."""
    words = open_words([*call.words, *call.conditional])
    for at, word in enumerate(words):
        if word.text.partition("=")[0].replace("-", "_") == f"__{_FILE}":
            programs = [
                place
                for place in range(at)
                if words[place].text.endswith((".py", ".train"))
                and not words[place].text.startswith("-")
            ]
            first = programs[0] + 1 if programs else at
            return call, words[:first], words[first:]
        if _STARTER.search(word.text) and "CONFIG_FILE" in call.environment:
            named = call.environment["CONFIG_FILE"]
            flag = named._replace(text=f"--{_FILE}={named.text}")
            return call, words[: at + 1], [flag, *words[at + 1 :]]
    return None


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
        if word is None or word.text.startswith("--"):
            if run and run[0].text.startswith("--"):
                yield _field(run)
            run = []
        if word is not None and word.unread != ARGUMENTS:
            run.append(word)


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
        texts=texts(found),
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
        FileError: It is not in the folder of the script, or it is not read.
    """
    find, path = script.neighbor(file.neighbor), named.text
    places = list_places(path, script)
    place = next((one for one in places if find(one) is not None), "")
    text = find(place) if place else None
    if text is None:
        why = next(filter(None, map(script.find_reason, places)), "")
        why = named.unread or why or "is not in the folder of the script"
        help = "put it there, or evaluate it: `parcost eval FILE.toml` with --set for the rest"
        raise error_at(named, f"`{path}` has the other keys, and {why}", help)
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
            texts=texts(entry.value),
            start=named.start,
            end=named.end,
            value=entry.value,
            assumption=why,
        )
        for key, entry in entries.items()
    }
