"""Launch scripts of tools whose configurations contain the whole job, except the devices."""

from __future__ import annotations

from attrs import evolve

from parcost import ImportFile
from parcost_formats.tools.file_importer import error_at
from parcost_formats.tools.finetuning.job_keys import JobKeys, read_job
from parcost_formats.tools.shell.commands import SCRIPT_ENDINGS
from parcost_formats.tools.tables import has_sign, table
from parcost_formats.tools.unsupported import PROGRAM


def is_launch_script(tool: str, name: str, text: str) -> bool:
    """Return whether a script starts a tool, by the commands that its table has."""
    signs = table(tool)["recognized"]["commands"]
    return name.endswith(SCRIPT_ENDINGS) and any(has_sign(one, text) for one in signs)


def read_launch_script(tool: str, file: ImportFile) -> JobKeys:
    """Return the keys of the configurations that a launch script names.

    Raises:
        FileError: The command or one of the files is not supported.
    """
    job = read_job(file, table(tool))
    for problem in job.problems:
        raise error_at(problem, problem.message, problem.help)
    return evolve(job, entries={key: one for key, one in job.entries.items() if key != PROGRAM})
