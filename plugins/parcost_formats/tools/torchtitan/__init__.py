"""Configurations of torchtitan: TOML up to 0.2.2, with its commands, and functions of Python since.

Python is parsed, and none of it is run.
"""

from __future__ import annotations

import re

from parcost import (
    Importer,
    ImportFile,
    ImportOptions,
    ImportProblem,
    SettingsWriter,
    Translation,
    hookimpl,
)
from parcost_formats.tools.answers import answer_to, option_attribute
from parcost_formats.tools.collector import cost_reason
from parcost_formats.tools.drafts import Draft, Option, texts_of
from parcost_formats.tools.job_importer import JobImporter
from parcost_formats.tools.megatron.flags import CommandLine
from parcost_formats.tools.megatron.tools import is_titan_of_primus
from parcost_formats.tools.tables import is_ignored, is_listed, table
from parcost_formats.tools.torchtitan.command import is_command, read_command, set_devices
from parcost_formats.tools.torchtitan.job import read_job
from parcost_formats.tools.torchtitan.options import TitanOptions
from parcost_formats.tools.torchtitan.primus import read_primus
from parcost_formats.tools.torchtitan.python_text import read_configuration
from parcost_formats.tools.torchtitan.toml_text import field_name, read_toml
from parcost_formats.tools.torchtitan.writer import TorchtitanTomlWriter, TorchtitanWriter

TOOL = "torchtitan"
_FEWEST = 2  # sections that tell a file of torchtitan from others
_SWITCHES = (("true",), ("false",))  # texts of a field that is on or off
_STATED = ("layout.", "kernels.")  # blocks whose attributes no switch of a fork changes
_NUMERIC = ("training.", "parallelism.")  # sections that have no numbers as text
_NUMBER = re.compile(r"\s*[+-]?[0-9][0-9_.]*\s*")
_KINDS = (
    *("precision", "cluster", "layout", "sharding", "schedule", "context", "training"),
    *("recompute", "routing", "overlap", "offload", "kernels", "model"),
)
_SECTION = re.compile(r"^\[(\w+)[\w.]*\]", re.MULTILINE)
_SECTIONS = {"job", "model", "parallelism", "experimental", "activation_checkpoint", "optimizer"}


class Torchtitan(JobImporter):
    """Configurations in TOML and Python."""

    name = TOOL

    def recognizes(self, name: str, text: str) -> bool:
        """Return whether a text is a configuration of torchtitan."""
        if is_command(name, text):
            return True
        if name.endswith(".py"):
            made = ("Trainer.Config", "JobConfig(")
            return "torchtitan" in text and any(part in text for part in made)
        if name.endswith((".yaml", ".yml")):
            return is_titan_of_primus(text)
        sections = set(_SECTION.findall(text)) if name.endswith(".toml") else set()
        return "training" in sections and len(sections & _SECTIONS) >= _FEWEST

    def read_file(self, file: ImportFile) -> Translation:
        """Return the job of the configuration that the options of the user choose."""
        draft = Draft(dict.fromkeys(_KINDS, ""))
        if is_command(file.name, file.text):
            fields, place, line, python, unread = read_command(file)
            for option in unread:
                draft.leave(option, option.unread)
            return _translation(draft, fields, place, file.options, python=python, line=line)
        python = file.name.endswith(".py")
        place = file.name
        if python:
            found = read_configuration(file.text, file.options.recipe)
            for option in found.unread:
                draft.leave(option, option.unread)
            options, place = dict(found.options), f"{file.name}/{found.name}"
        elif file.name.endswith((".yaml", ".yml")):
            options = read_primus(draft, file)
        else:
            options = _of_toml(draft, file.text)
        return _translation(draft, options, place, file.options, python=python)


def _of_toml(draft: Draft, text: str) -> dict[str, Option]:
    """Return the options of a TOML text; synonyms of a field must agree."""
    found: dict[str, Option] = {}
    for key, entry in read_toml(text).items():
        name = field_name(key)
        option = Option(
            name=name,
            key=key,
            texts=texts_of(entry.value),
            start=entry.start,
            end=entry.end,
            value=entry.value,
        )
        text = entry.value if isinstance(entry.value, str) else ""
        if name.startswith(_NUMERIC) and _NUMBER.fullmatch(text):
            draft.problem(option, "a number is expected, but this is text", "leave out the quotes")
            continue
        before = found.setdefault(name, option)
        if before.texts != option.texts:
            message = f"`{before.key}` and `{key}` set the same field to different values"
            for one in (before, option):
                draft.problem(one, message)
    return found


def _translation(
    draft: Draft,
    fields: dict[str, Option],
    place: str,
    chosen: ImportOptions,
    *,
    python: bool,
    line: CommandLine | None = None,
) -> Translation:
    """Return the job of *fields*; *line* has the launcher of a script."""
    if not any(name.startswith(("parallelism.", "training.", "model.")) for name in fields):
        message = "the file has no section of torchtitan"
        none = ImportProblem(message=message, start=0, end=1)
        return Translation(problems=draft.translation().problems or [none])
    options = TitanOptions(draft, fields, python=python)
    read_job(options, place, chosen.family)
    if line is not None:
        set_devices(draft, line)
    tables = table(TOOL)
    for option in options.rest():
        if option.name in tables["reasons"]:
            draft.ignore(option, tables["reasons"][option.name])
        elif is_listed(option.name, tables["unread"]):
            value = None if option.texts in ((), ("false",)) else " ".join(option.texts)
            if reason := cost_reason(option.name, value, tables["unread"]):
                draft.leave(option, reason)
            else:
                draft.ignore(option, "it is the default")
        elif is_ignored(TOOL, option.name):
            draft.ignore(option)
        else:
            answer = answer_to(option.name, tables)
            if answer and not _is_switch_beside(draft, option, option_attribute(answer)):
                answers = draft.answers_to(option_attribute(answer), answer)
                options.ask_for(
                    option,
                    option.unread or f"not in parcost's table of {Torchtitan.title}",
                    answers,
                )
            draft.leave(option, option.unread, option_attribute(answer) if answer else "")
    return draft.translation()


def _is_switch_beside(draft: Draft, option: Option, path: str) -> bool:
    """Return whether a field is a switch, and the file states the attribute that it may set."""
    stated = draft.value_of(path) if path.startswith(_STATED) else None
    return stated is not None and not stated.assumption and option.texts in _SWITCHES


@hookimpl
def importers() -> list[Importer]:
    """Return the importer of configurations of torchtitan."""
    return [Torchtitan()]


@hookimpl
def settings_writers() -> list[SettingsWriter]:
    """Return the writer of configurations of torchtitan."""
    return [TorchtitanWriter(), TorchtitanTomlWriter()]
