"""Configurations in Python that commands name: ``--module llama3 --config llama3_8b``."""

from __future__ import annotations

import re
from typing import NamedTuple

from parcost import ImportFile
from parcost_formats.tools.drafts import Option
from parcost_formats.tools.file_importer import error_at
from parcost_formats.tools.python_values import PythonTextError
from parcost_formats.tools.shell.scripts import Script
from parcost_formats.tools.tables import table
from parcost_formats.tools.torchtitan.python_text import read_configuration

MODULE, CONFIG = "module", "config"
_FILE = "config_registry.py"
_LIBRARY = re.compile(r"(?:torchtitan(?:_recipes)?\.(?:tests\.)?models\.)?(\w+)")
_FOLDERS = ("", "torchtitan/models/", "torchtitan/experiments/", "torchtitan/")
_START = """\
from torchtitan.models.{module}.config_registry import {name}
from torchtitan.trainer import Trainer

def job() -> Trainer.Config:
    return {name}()
"""
_LOCAL, _LENGTH = "training.local_batch_size", "training.seq_len"
_TOKENS, _CONTEXT = "training.num_tokens_per_microbatch_per_dp_rank", "training.max_context_length"
_BUDGETS = {_TOKENS, _CONTEXT, "training.num_tokens_per_train_step"}


class RegistryJob(NamedTuple):
    """The *fields* of a configuration, those *unread*, and the *place* of its function."""

    fields: dict[str, Option]
    unread: tuple[Option, ...]
    place: str


def read_registry(
    file: ImportFile, script: Script, given: dict[str, Option], place: Option
) -> RegistryJob:
    """Return the configuration that the flags *given* name; they are taken from the fields.

    Raises:
        FileError: It is neither beside the script nor in the table.
    """
    module, named = (given.pop(one, None) for one in (MODULE, CONFIG))
    if module is None or named is None:
        missing = CONFIG if named is None else MODULE
        raise error_at(place, "the command names no configuration", f"add --{missing}")
    for one in (module, named):
        if one.unread:
            answers = " | ".join(one.answers) or "--set-env NAME=VALUE"
            message = f"`{one.key}` names the configuration: {one.unread}"
            raise error_at(one, message, f"give the variable: {answers}")
    path, text, recipe = _find(file, script, module, named)
    try:
        found = read_configuration(text, recipe)
    except PythonTextError as error:
        raise error_at(named, f"`{path}`: {error}", error.help) from None
    why = script.assumption(path, 0, len(text)) or module.assumption or named.assumption
    moved = {
        name: one.evolve(start=named.start, end=named.end, assumption=one.assumption or why)
        for name, one in found.options.items()
    }
    unread = tuple(one.evolve(start=named.start, end=named.end) for one in found.unread)
    if not recipe and _BUDGETS & {*given}:
        moved = _in_tokens(moved)
    return RegistryJob(moved, unread, f"{path}/{named.text}")


def _find(file: ImportFile, script: Script, module: Option, named: Option) -> tuple[str, str, str]:
    """Return the path and the text of a configuration, and the function in it that makes it.

    The name is empty for a configuration of the library: its file has one function.
    """
    find, name = script.neighbor(file.neighbor), named.text
    folder = module.text.replace(".", "/")
    paths = [f"{start}{folder}/{_FILE}" for start in _FOLDERS]
    for path in (*paths, _FILE):
        text = find(path)
        if text is not None and f"def {name}(" in text:
            return path, text, name
    match = _LIBRARY.fullmatch(module.text)
    family = match[1] if match else ""
    own = table("torchtitan")["registry"].get(name, {})
    if family and own.get("model.name") == family:
        return f"models/{family}/{_FILE}", _START.format(module=family, name=name), ""
    message = f"`{name}` is a function of `{paths[0]}`, which is not in the folder of the script"
    command = f"parcost eval {_FILE} --recipe {name}"
    help = f"put it there, or evaluate it: `{command}` with --set for the rest"
    raise error_at(named, message, help)


def _in_tokens(fields: dict[str, Option]) -> dict[str, Option]:
    """Return fields of a configuration with its batch in tokens, as since 2026-08."""
    local, length = fields.pop(_LOCAL), fields.pop(_LENGTH)
    tokens = int(local.text) * int(length.text)
    fields[_TOKENS] = local.evolve(name=_TOKENS, texts=(str(tokens),), value=tokens)
    fields[_CONTEXT] = length.evolve(name=_CONTEXT)
    return fields
