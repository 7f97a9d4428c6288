"""Configurations of torchtitan: TOML up to 0.2.2, and functions of Python since.

Python is parsed, and none of it is run.
"""

from __future__ import annotations

from parcost import Importer, ImportProblem, SettingsWriter, Translation, hookimpl
from parcost_plugins.importers.drafts import Draft, Option, OptionSet
from parcost_plugins.importers.needs import NEEDS
from parcost_plugins.importers.python_values import PythonTextError
from parcost_plugins.importers.subjects import SUBJECTS
from parcost_plugins.importers.tables import is_ignored, table
from parcost_plugins.importers.torchtitan.job import read_job
from parcost_plugins.importers.torchtitan.python_text import read_configuration, texts
from parcost_plugins.importers.torchtitan.toml_text import TomlTextError, read_toml
from parcost_plugins.importers.torchtitan.writer import TorchtitanTomlWriter, TorchtitanWriter

TOOL = "torchtitan"
_KINDS = (
    *("precision", "cluster", "layout", "sharding", "schedule", "context", "training"),
    *("recompute", "routing", "overlap", "offload", "kernels"),
)


class Torchtitan(Importer):
    """Configurations in TOML and Python."""

    name = TOOL
    title = str(table(TOOL)["title"])
    source = str(table(TOOL)["source"])
    needs = NEEDS
    subjects = SUBJECTS

    def recognizes(self, name: str, text: str) -> bool:
        """Return whether a text is a configuration of torchtitan."""
        if name.endswith(".py"):
            return "torchtitan" in text and "Trainer.Config" in text
        return name.endswith(".toml") and "[parallelism]" in text and "[training]" in text

    def translate(self, name: str, text: str) -> Translation:
        """Return the job that a configuration describes."""
        draft = Draft(dict.fromkeys(_KINDS, ""))
        try:
            if name.endswith(".py"):
                found = read_configuration(text)
                for option in found.unread:
                    draft.leave(option, option.unread)
                return _translation(draft, dict(found.options), python=True)
            return _translation(draft, _of_toml(text), python=False)
        except (PythonTextError, TomlTextError) as error:
            problem = ImportProblem(message=str(error), start=error.start, end=error.end)
            return Translation(problems=[problem])


def _of_toml(text: str) -> dict[str, Option]:
    return {
        _name(key): Option(
            name=_name(key),
            key=key,
            texts=texts(entry.value),
            start=entry.start,
            end=entry.end,
            value=entry.value,
        )
        for key, entry in read_toml(text).items()
    }


def _name(key: str) -> str:
    """Return the name of a field in the table.

    >>> _name("quantize.linear.float8.filter_fqns"), _name("training.batch_size")
    ('float8.filter_fqns', 'training.local_batch_size')
    """
    for before, now in table(TOOL)["sections"].items():
        key = now + key.removeprefix(before) if key.startswith(before) else key
    return str(table(TOOL)["aliases"].get(key, key))


def _translation(draft: Draft, fields: dict[str, Option], *, python: bool) -> Translation:
    if not any(name.startswith(("parallelism.", "training.", "model.")) for name in fields):
        message = "the file has no section of torchtitan"
        return Translation(problems=[ImportProblem(message=message, start=0, end=1)])
    options = OptionSet(draft, fields)
    read_job(options, python=python)
    tables = table(TOOL)
    for option in options.rest():
        if option.name in tables["reasons"]:
            draft.ignore(option, tables["reasons"][option.name])
        elif is_ignored(TOOL, option.name):
            draft.ignore(option)
        elif option.name in tables["unread"]:
            if option.texts in ((), ("",), ("false",), ("fused",)):
                draft.ignore(option, "it is the default")
            else:
                draft.leave(option, tables["unread"][option.name])
        else:
            draft.leave(option, option.unread)
    return draft.translation()


@hookimpl
def importers() -> list[Importer]:
    """Offer configurations of torchtitan."""
    return [Torchtitan()]


@hookimpl
def settings_writers() -> list[SettingsWriter]:
    """Offer configurations of torchtitan."""
    return [TorchtitanWriter(), TorchtitanTomlWriter()]
