"""The keys of a training job, from a configuration or from a launch script and its files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from attrs import evolve

from parcost import ImportFile, ImportProblem, PlaceBeside, record
from parcost_formats.tools.collector import read_configuration, read_named_configuration
from parcost_formats.tools.file_importer import BY_HAND, FileError, error_at
from parcost_formats.tools.interpolation import resolve
from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.shell.launches import ScriptLaunch, launches
from parcost_formats.tools.shell.script_files import read_script_file, several_commands
from parcost_formats.tools.shell.scripts import ARGUMENTS, Script, ShellField, list_places
from parcost_formats.tools.shell.values import field_of
from parcost_formats.tools.tables import find_preset, is_listed, table, value_of_pattern
from parcost_formats.tools.unsupported import PROGRAM
from parcost_formats.tools.yaml_text import read_value

CONFIGURATIONS = (".yaml", ".yml", ".json")
_PAIR = re.compile(r"[+~]{0,2}([A-Za-z_][\w./@]*)=(.*)", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_/][\w./-]*")
_CONSTANTS = ("true", "false", "yes", "no", "on", "off", "null")
_FLAG = re.compile(r"--?[A-Za-z]")


@record(kw_only=True)
class JobKeys:
    """The *entries* of a job by key, and the keys whose value in the script is *unread*.

    *launcher* are the words before the program, and *environment* the assignments before it.
    *strays* are words that belong to no key. *assumed* are defaults of the script by key.
    *problems* are named files that could not be read. *script* is None for a configuration.
    """

    entries: Mapping[str, JsonEntry]
    unread: Mapping[str, ShellField]
    launcher: Sequence[ShellField] = ()
    strays: Sequence[ShellField] = ()
    assumed: dict[str, str]
    problems: Sequence[ImportProblem] = ()
    environment: Mapping[str, ShellField] = {}
    script: Script | None = None


def read_job(file: ImportFile, rules: Mapping[str, Any]) -> JobKeys:
    """Return the keys of a file; *rules* is the table of its tool.

    Raises:
        FileError: The keys cannot be read.
    """
    if file.name.endswith(CONFIGURATIONS):
        entries = read_configuration(file.name, file.text)
        return JobKeys(entries=resolve(entries), unread={}, assumed={})
    script = read_script_file(file)
    started = launches(script)
    found = [one for one in started if is_launch(one, rules)]
    title = rules["title"]
    if not found:
        if started:
            raise _reject_program(started[-1], title)
        return _of_text(file, script, rules)
    training = [one for one in found if any(_key_of(w.text) == "do_train" for w in one.arguments)]
    found = training or found
    if len({_relevant_words(one, rules) for one in found}) > 1:
        decided = [answer for one in found if one.decision for answer in one.decision.answers]
        help = f"choose one: {' | '.join(dict.fromkeys(decided))}" if decided else ""
        distinct = {tuple(word.text for word in one.arguments): one for one in found}
        error = several_commands(file, [*distinct.values()], f"commands of {title}")
        error.help = help or error.help
        raise error
    script = script.start_from(found[0].written, found[0].folder)
    file = evolve(file, neighbor=script.neighbor(file.neighbor))
    return _of_launch(file, script, found[0], rules)


def reject_trainer(job: JobKeys, title: str) -> FileError:
    """Return an error: the trainer in this job or file is not supported."""
    place = job.entries.get(PROGRAM, next(iter(job.entries.values()), JsonEntry({}, 0, 0)))
    what = f"`{place.value}`" if PROGRAM in job.entries else "this file"
    return error_at(place, f"{what}: trainers of {title} are not supported", BY_HAND)


def _reject_program(launch: ScriptLaunch, title: str) -> FileError:
    """Return an error for a script that starts a program unknown to parcost."""
    message = (
        f"`{launch.name}` is not a program of {title}, so the meaning of its arguments is unknown"
    )
    return error_at(launch.program, message, BY_HAND)


def _relevant_words(launch: ScriptLaunch, rules: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the words of a command, without keys that do not change a step.

    Runs of a loop over learning rates or seeds are one job.
    """
    listed = (*rules.get("ignored", {}).get("keys", ()), *table("trainer")["ignored"]["keys"])
    words: list[str] = []
    is_plain = False
    for word in launch.arguments:
        key = _key_of(word.text)
        if key:
            is_plain = is_listed(key, listed) and not value_of_pattern(key, rules.get("costs", {}))
        if not is_plain:
            words.append(word.text)
        if key and not _FLAG.match(word.text):
            is_plain = False  # a pair has no words behind it
    return tuple(words)


def _of_text(file: ImportFile, script: Script, rules: Mapping[str, Any]) -> JobKeys:
    """Return the program that a script names, if its command cannot be parsed."""
    match = next(filter(None, (re.search(one, file.text) for one in _signs(rules))), None)
    start = match.start() if match else 0
    word = re.match(r"[\w./-]*", file.text[start:])
    name = word[0] if word else ""
    end = max(start + len(name), min(len(file.text), 1))
    entries = {PROGRAM: JsonEntry(name, start, end)} if name else {}
    message, help = f"the command of {rules['title']} cannot be read", ""
    if script.ended is not None:
        start, end = script.ended.start, script.ended.end
        message = f"the script exits here, before the command of {rules['title']}"
        help = "set the tested variables with --set-env NAME=VALUE, or remove the test"
    elif script.lacking:
        other = script.lacking[-1]
        start, end = other.start, other.end
        message = f"`{other.text}`, which the script starts or sources, is not in its folder"
        help = f"copy that file into the folder of this one, or {BY_HAND}"
    problem = ImportProblem(message=message, start=start, end=end, help=help)
    return JobKeys(entries=entries, unread={}, assumed={}, problems=[problem])


def _signs(rules: Mapping[str, Any]) -> Sequence[str]:
    found: Sequence[str] = rules["recognized"].get("commands", ())
    return found


def is_launch(launch: ScriptLaunch, rules: Mapping[str, Any]) -> bool:
    """Return whether a command in a script starts this tool."""
    signs = rules["recognized"]
    if any(fnmatchcase(launch.name, form) for form in signs.get("other_programs", ())):
        return False
    if any(fnmatchcase(launch.name, form) for form in signs.get("programs", ())):
        return True
    return has_keys(launch, rules)


def has_keys(launch: ScriptLaunch, rules: Mapping[str, Any]) -> bool:
    """Return whether the arguments of a command are keys that identify this tool."""
    keys = {key for word in launch.arguments if (key := _key_of(word.text))}
    return any(keys.issuperset(group) for group in rules["recognized"].get("arguments", ()))


def _key_of(text: str) -> str:
    """Return the key of ``--key=value`` or ``key=value``; "" for any other word.

    >>> _key_of("--a-b=4"), _key_of("+x.y=1"), _key_of("train.yaml")
    ('a_b', 'x.y', '')
    """
    if _FLAG.match(text):
        return text.partition("=")[0].lstrip("-").replace("-", "_")
    pair = _PAIR.fullmatch(text)
    return pair[1] if pair else ""


def _of_launch(
    file: ImportFile, script: Script, launch: ScriptLaunch, rules: Mapping[str, Any]
) -> JobKeys:
    """Return the keys of a command, and of the configuration that it names."""
    command = _Command(file, launch, rules, script)
    for conditional, words in ((False, launch.arguments), (True, launch.conditional)):
        for word in words:
            command.add(word, conditional=conditional)
        command.finish(conditional=conditional)
    unread = next((one for one in launch.arguments[:1] if one.unread), None)
    keys = {*command.unread, *command.entries} - {PROGRAM}
    if unread is not None and (unread in command.strays or not keys):
        help = "write them into the file" if unread.unread == ARGUMENTS else unread.advice
        message = f"`{unread.text}` has the keys of the job, or names their file: {unread.unread}"
        problem = ImportProblem(message=message, start=unread.start, end=unread.end, help=help)
        command.problems.append(problem)
    return JobKeys(
        entries=command.entries,
        unread=command.unread,
        launcher=launch.launcher,
        strays=command.strays,
        assumed=command.assumed,
        problems=command.problems,
        environment=script.environment_of(launch.environment),
        script=script,
    )


class _Command:
    """The keys of a command, read word by word.

    *key* is the key of the last flag, *place* the flag, and *values* are the words after it.
    """

    def __init__(
        self, file: ImportFile, launch: ScriptLaunch, rules: Mapping[str, Any], script: Script
    ) -> None:
        self.file = file
        self.script = script
        self.rules = rules
        program = launch.program
        self.entries = {PROGRAM: JsonEntry(launch.name, program.start, program.end)}
        self.unread: dict[str, ShellField] = {}
        self.assumed: dict[str, str] = {}
        self.strays: list[ShellField] = []
        self.problems: list[ImportProblem] = []
        self.key, self.place = "", program
        self.values: list[ShellField] = []

    def add(self, word: ShellField, *, conditional: bool) -> None:
        """Read the next word."""
        name = _key_of(word.text)
        if name:
            self.finish(conditional=conditional)
            self.key, self.place = name, word
            whole, equals, value = word.text.partition("=")
            if equals:
                self.values.append(word._replace(text=value))
            elif conditional or word.unread:
                self.values.append(word)
            if not _FLAG.match(whole):  # a pair is complete
                self.finish(conditional=conditional)
        elif word.unread == ARGUMENTS:
            return
        elif self.key and not word.text.endswith(CONFIGURATIONS[:2]):
            self.values.append(word)
        elif word.text.endswith(CONFIGURATIONS) or self.key:
            self._add_configuration(word)
            self.key, self.values = "", []
        else:
            self.strays.append(word)

    def finish(self, *, conditional: bool) -> None:
        """Add the last flag with the words after it."""
        key, values = self.key, self.values
        self.key, self.values = "", []
        if not key:
            return
        doubt = next((one for one in values if one.unread), None)
        if conditional:
            why = "it depends on a condition whose result is unknown"
            self.unread.setdefault(key, values[0]._replace(unread=values[0].unread or why))
        elif doubt is not None and not (len(values) == 1 and self._is_written(doubt.text)):
            self.unread[key] = doubt
        elif len(values) == 1 and (
            key == "config"
            or (key.startswith("config") and values[0].text.endswith(CONFIGURATIONS[:2]))
        ):
            self._add_configuration(values[0])
        else:
            plain = [plain_value(one.text) for one in values]
            value = True if not plain else plain[0] if len(plain) == 1 else plain
            end = values[-1].end if values else self.place.end
            self.entries[key] = JsonEntry(value, self.place.start, end)
            self.assumed.pop(key, None)  # of a configuration ahead of it
            given = (one.assumption for one in (self.place, *values) if one.assumption)
            if why := next(given, ""):
                self.assumed[key] = why

    def _is_written(self, path: str) -> bool:
        """Return whether the script writes a file of this name, whose folder may be unknown."""
        file = self.script.find_written(path)
        return file is not None and not file.unread

    def _add_configuration(self, word: ShellField) -> None:
        """Add the keys of the configuration that *word* names."""
        if self._add_shipped_keys(word):
            return
        try:
            _add_file(self, word)
        except FileError as error:
            self.problems.append(error.problem())

    def _add_shipped_keys(self, word: ShellField) -> bool:
        """Add the keys of a configuration that the tool ships; return whether the tool has it."""
        keys, why = find_preset(self.rules, word.text)
        if self.script.find_written(word.text) is not None:
            return False
        if any(map(self.file.neighbor, list_places(word.text, self.script))):
            return False
        for one, value in keys.items():
            if one not in self.entries:
                self.entries[one] = JsonEntry(value, word.start, word.end)
                self.assumed[one] = why
        return bool(keys)


def _add_file(command: _Command, word: ShellField) -> None:
    """Add the keys of a configuration that a command names; arguments of the command take
    precedence.

    Raises:
        FileError: The file is missing, or is not supported.
    """
    name = word.text if word.text.endswith(CONFIGURATIONS) else f"{word.text}.yaml"
    places = list_places(name, command.script)
    place, text = next(
        ((one, text) for one in places if (text := command.file.neighbor(one))), ("", None)
    )
    partial = command.script.find_partial(name) if text is None else None
    if partial is not None:
        place, text = name, partial.text
    if text is None:
        why = command.script.find_reason(name) or "is not beside the script"
        message = f"`{word.text}` has the keys of the job, but {why}"
        help = "put it there, or evaluate it and repeat the overrides of the command with --set"
        raise error_at(word, message, help)
    is_beside = partial is None and command.script.find_written(place) is None
    for key, entry in resolve(read_named_configuration(name, text, word)).items():
        if key in command.entries:
            continue
        unknown = command.script.find_unknown(place, entry.start, entry.end)
        if unknown is not None:
            unread = field_of([unknown])._replace(start=word.start, end=word.end)
            command.unread.setdefault(key, unread)
            continue
        own = PlaceBeside(place, entry.start, entry.end) if is_beside else None
        command.entries[key] = JsonEntry(entry.value, word.start, word.end, own)
        why = word.assumption or command.script.assumption(place, entry.start, entry.end)
        why = why or (f"`{place}` beside the script, for `{name}`" if place != name else "")
        if why:
            command.assumed[key] = why


def plain_value(text: str) -> Any:
    """Return a word of the command line as a YAML value.

    >>> plain_value("4096"), plain_value("True"), plain_value("full"), plain_value("1e-5")
    (4096, True, 'full', '1e-5')
    """
    if not text or len(text) > 60 or "\n" in text:
        return text
    if text.isascii() and text.isdecimal():
        return int(text) if text[:1] != "0" or text == "0" else text
    if _WORD.fullmatch(text) and text.lower() not in _CONSTANTS:
        return text
    return read_value(text)
