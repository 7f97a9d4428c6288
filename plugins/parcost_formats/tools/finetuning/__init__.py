"""Tools for fine-tuning and reinforcement learning: configurations and launch scripts.

Each tool has a table of its keys. ``[recognized]`` identifies its files, and ``[rejected]`` has the
keys that request unsupported features. Files of a tool without a reader are rejected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from attrs import evolve

from parcost import LOG_SUFFIXES, Importer, ImportFile, ImportProblem, Translation, hookimpl
from parcost_formats.tools.file_importer import BY_HAND, FileError
from parcost_formats.tools.finetuning.adapters import decides_adapters
from parcost_formats.tools.finetuning.job_keys import (
    CONFIGURATIONS,
    JobKeys,
    read_job,
    reject_trainer,
)
from parcost_formats.tools.finetuning.llamafactory_v1 import read_llamafactory_v1
from parcost_formats.tools.finetuning.nemo_rl import read_nemo_rl
from parcost_formats.tools.finetuning.notebook import code_of_notebook
from parcost_formats.tools.finetuning.openrlhf import read_openrlhf
from parcost_formats.tools.finetuning.python_script import (
    find_started_job,
    is_program,
    read_python_job,
)
from parcost_formats.tools.finetuning.readers import (
    read_axolotl,
    read_llamafactory,
    read_swift,
    read_trl,
)
from parcost_formats.tools.finetuning.torchtune import read_torchtune
from parcost_formats.tools.finetuning.verl import read_verl
from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.keys import KeyNames
from parcost_formats.tools.needs import IncompleteJobImporter
from parcost_formats.tools.subjects import SUBJECTS
from parcost_formats.tools.tables import has_sign, is_listed, table
from parcost_formats.tools.unsupported import find_unsupported_features, is_deciding

#: The reader of each tool; None if parcost can express none of its jobs.
_READERS: Mapping[str, Callable[[ImportFile, JobKeys], Translation] | None] = {
    "llamafactory": read_llamafactory,
    "llamafactory_v1": read_llamafactory_v1,
    "axolotl": read_axolotl,
    "torchtune": read_torchtune,
    "trl": read_trl,
    "ms_swift": read_swift,
    "verl": read_verl,
    "openrlhf": read_openrlhf,
    "areal": None,
    "nemo_rl": read_nemo_rl,
}


_PYTHON = (".py", ".ipynb")
#: Endings of files that start nothing: a log may quote the command that it is of.
_NO_COMMANDS = (".par", *LOG_SUFFIXES, *_PYTHON)


class TuningTool(IncompleteJobImporter):
    """Files of one tool for fine-tuning or reinforcement learning."""

    subjects = SUBJECTS

    def __init__(self, tool: str) -> None:
        self.name = tool
        self._table: Mapping[str, Any] = table(tool)
        self.title = str(self._table["title"])
        self.source = str(self._table["source"])
        self.keys = KeyNames(tool)

    def recognizes(self, name: str, text: str) -> bool:
        """Return whether a file has keys that identify the tool."""
        signs = self._table["recognized"]
        if name.endswith(CONFIGURATIONS):
            keys = _top_keys(text)
            groups = signs.get("keys", ())
            return (
                any(keys.issuperset(group) for group in groups)
                or any(sign in text for sign in signs.get("values", ()))
            ) and keys.isdisjoint(signs.get("other_keys", ()))
        if name.endswith(_PYTHON) and "python" in self._table:
            return is_program(code_of_notebook(text) if name.endswith(".ipynb") else text)
        if name.endswith(_NO_COMMANDS):
            return False
        return any(has_sign(sign, text) for sign in signs.get("commands", ())) and not any(
            has_sign(sign, text) for sign in signs.get("other_commands", ())
        )

    def read_file(self, file: ImportFile) -> Translation:
        """Return the job that a file describes, or errors for keys that parcost cannot express."""
        is_script = self.recognizes(file.name, file.text) and file.name.endswith(_PYTHON)
        if file.name.endswith(_PYTHON) and not is_script:
            message = f"{self.title}: settings in a Python file are not supported"
            help = f"import a script with the command that starts `{file.name}`, or {BY_HAND}"
            raise FileError(message, help=help)
        job = self._with_strange_keys(read_python_job(file) if is_script else self._read(file))
        lacking = list(find_unsupported_features(job.entries, self._table, whole=not job.problems))
        problems = lacking or [*self._doubts(job), *job.problems]
        if problems:
            return Translation(problems=sorted(problems, key=lambda one: one.start))
        if job.script is not None:
            file = evolve(file, neighbor=job.script.neighbor(file.neighbor))
        reader = _READERS[self.name]
        if reader is None:
            raise reject_trainer(job, self.title)
        return _name_files(_mark_assumptions(reader(file, job), job.assumed), job.entries)

    def _read(self, file: ImportFile) -> JobKeys:
        """Return the keys of a configuration or of a script."""
        is_shell = "python" in self._table and not file.name.endswith(CONFIGURATIONS)
        started = find_started_job(file, self._table) if is_shell else None
        return started or read_job(file, self._table)

    def _with_strange_keys(self, job: JobKeys) -> JobKeys:
        """Return the job with unread keys that the tool does not have added to its entries.

        They are unknown keys with any value. The import asks for keys whose name suggests an effect
        on cost.
        """
        strange = {
            key: JsonEntry(word.text, word.start, word.end)
            for key, word in job.unread.items()
            if not is_listed(key, [*self.keys])
            and not is_deciding(key, self._table)
            and not decides_adapters(key, job.entries, job.unread, self._table)
        }
        unread = {key: word for key, word in job.unread.items() if key not in strange}
        return evolve(job, entries={**job.entries, **strange}, unread=unread)

    def _doubts(self, job: JobKeys) -> Iterator[ImportProblem]:
        """Yield an error for each key that may affect cost and whose value is unknown."""
        plain = [*self._list_ignored_keys(), *table("trainer")["ignored"]["keys"]]
        for key, word in job.unread.items():
            of_adapters = decides_adapters(key, job.entries, job.unread, self._table)
            deciding = of_adapters or key == "config" or is_deciding(key, self._table)
            if not deciding and is_listed(key, plain):
                continue
            decides = " decides what is trained" if deciding else ""
            yield ImportProblem(
                message=f"`{key}`{decides}: {word.unread}",
                start=word.start,
                end=word.end,
                help=word.advice,
            )

    def _list_ignored_keys(self) -> Sequence[str]:
        found: Sequence[str] = self._table.get("ignored", {}).get("keys", ())
        return found


def _name_files(found: Translation, entries: Mapping[str, JsonEntry]) -> Translation:
    """Add the name of an engine's file to its errors, which point at the key that names the file.

    Contradicting keys of two files give one message, with both places.
    """
    messages = [one.message for one in found.problems]
    files = {
        (one.start, one.end): (key, one.value)
        for key, one in entries.items()
        if isinstance(one.value, str) and one.value.endswith(CONFIGURATIONS)
    }
    problems = [
        evolve(one, message=f"`{files[one.start, one.end][1]}`: {one.message}")
        if (one.start, one.end) in files
        and one.beside is None
        and messages.count(one.message) == 1
        and not any(f"`{shown}`" in one.message for shown in files[one.start, one.end])
        else one
        for one in found.problems
    ]
    return evolve(found, problems=problems) if problems else found


def _mark_assumptions(found: Translation, assumed: Mapping[str, str]) -> Translation:
    """Mark values that come from a default of the script; *assumed* has the reason for each key."""
    blocks = [
        evolve(
            block,
            settings=tuple(
                evolve(one, assumption=assumed[one.key])
                if one.key in assumed and not one.assumption
                else one
                for one in block.settings
            ),
        )
        for block in found.blocks
    ]
    return evolve(found, blocks=blocks)


_KEY = re.compile(r"^([A-Za-z_][\w-]*):|^[ \t]*\"([A-Za-z_]\w*)\"\s*:", re.MULTILINE)


@lru_cache(maxsize=1)  # each tool asks for those of the same file
def _top_keys(text: str) -> frozenset[str]:
    """Return the keys of the outermost mapping of a YAML text, and keys of a JSON text."""
    return frozenset(one or other for one, other in _KEY.findall(text))


@hookimpl
def importers() -> list[Importer]:
    """Return the importers of tools for fine-tuning and reinforcement learning."""
    return [TuningTool(name) for name in _READERS]
