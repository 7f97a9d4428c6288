"""Arguments of Megatron-LM, and recipes of Megatron-Bridge: a model, a layout and a job.

A shell script, a list of arguments or a Python file is read. None of it is run.
"""

from __future__ import annotations

from collections.abc import Iterable

from parcost import Importer, ImportFile, ImportProblem, SettingsWriter, Translation, hookimpl
from parcost_plugins.importers.drafts import Draft, Option, OptionSet
from parcost_plugins.importers.megatron.bridge import BridgeRecipe, read_recipe
from parcost_plugins.importers.megatron.bridge_writer import BridgeWriter
from parcost_plugins.importers.megatron.devices import read_devices
from parcost_plugins.importers.megatron.experts import read_experts
from parcost_plugins.importers.megatron.flags import (
    CommandLine,
    command_line,
    known_flags,
    similar,
)
from parcost_plugins.importers.megatron.layout import read_layout
from parcost_plugins.importers.megatron.model import read_model
from parcost_plugins.importers.megatron.precision import read_precision
from parcost_plugins.importers.megatron.schedule import read_schedule
from parcost_plugins.importers.megatron.training import read_training
from parcost_plugins.importers.megatron.writer import MegatronWriter
from parcost_plugins.importers.needs import NEEDS
from parcost_plugins.importers.python_values import PythonTextError
from parcost_plugins.importers.shell.scripts import ARGUMENTS
from parcost_plugins.importers.shell.words import ShellTextError
from parcost_plugins.importers.subjects import SUBJECTS
from parcost_plugins.importers.tables import is_ignored, table

TOOL = "megatron"
_LABELS = {
    "model": "gpt",
    "framework": "",
    "precision": "",
    **dict.fromkeys(
        ("cluster", "layout", "sharding", "schedule", "context", "training", "recompute"), ""
    ),
    **dict.fromkeys(("routing", "overlap", "offload", "kernels"), ""),
}
#: What another file may set in place of an option that is not read.
_SET_ELSEWHERE = {"use_checkpoint_args": "model"}
_SIGNS = ("--tensor-model-parallel-size", "--num-layers", "--micro-batch-size", "pretrain_gpt")
_SIGNS_OF_RECIPES = ("megatron.bridge", "cfg.model.")


class Megatron(Importer):
    """Arguments and recipes."""

    name = TOOL
    title = str(table(TOOL)["title"])
    source = str(table(TOOL)["source"])
    needs = NEEDS
    subjects = SUBJECTS

    def recognizes(self, name: str, text: str) -> bool:
        """Return whether a text has flags of Megatron-LM, or is a recipe of Megatron-Bridge."""
        signs = _SIGNS_OF_RECIPES if name.endswith(".py") else _SIGNS
        return any(sign in text for sign in signs)

    def translate(self, name: str, text: str) -> Translation:
        """Return the job that the arguments or a recipe describe."""
        return self.read(ImportFile(name, text))

    def read(self, file: ImportFile) -> Translation:
        """Return the job of a file; a script may source files beside it."""
        draft = Draft(_LABELS)
        try:
            if file.name.endswith(".py"):
                return _of_recipe(draft, read_recipe(file.text))
            return _of_command(draft, command_line(file))
        except (PythonTextError, ShellTextError) as error:
            problem = ImportProblem(message=str(error), start=error.start, end=error.end)
            return Translation(problems=[problem])


def _of_command(draft: Draft, line: CommandLine) -> Translation:
    if line.problems:
        return Translation(problems=sorted(line.problems, key=lambda one: one.start))
    if not known_flags().intersection(line.options):
        message = "the file has no arguments of Megatron-LM"
        return Translation(problems=[ImportProblem(message=message, start=0, end=1)])
    options = OptionSet(draft, line.options)
    _read(options, "megatron_core")
    read_devices(draft, line)
    for stray in line.strays:
        if stray.unread == ARGUMENTS:
            draft.ignore(stray, "what a user adds to the flags")
        else:
            draft.leave(stray, stray.unread)
    for option in line.repeated:
        draft.ignore(option, "it stands there twice")
    for option in line.conditional:
        if is_ignored(TOOL, option.name):
            draft.ignore(option)
        else:
            draft.leave(option, _asked(option))
    _rest(draft, options.rest())
    return draft.translation()


def _asked(option: Option) -> str:
    """Return why a flag is not certain, with the options that settle it."""
    return " | ".join([option.unread, *option.answers]).replace(" | ", "; ", 1)


def _of_recipe(draft: Draft, recipe: BridgeRecipe) -> Translation:
    options = OptionSet(draft, recipe.options)
    if recipe.model is not None:
        entry = table(TOOL)["bridge"]["models"].get(recipe.model.text)
        if entry is not None:
            draft.use(f"catalog.models.{entry}", option=recipe.model)
            draft.set("training.model", str(entry), recipe.model)
        else:
            why = "the catalogue has no such model: add one by --use or by a `model` block"
            draft.leave(recipe.model, why, "model")
    _read(options, "nemo")
    for option in recipe.ignored:
        draft.ignore(option, option.assumption)
    for option in recipe.unread:
        draft.leave(option, option.unread)
    _rest(draft, options.rest())
    return draft.translation()


def _read(options: OptionSet, framework: str) -> None:
    for name, why in table(TOOL)["refused"].items():
        option = options.get(name)
        if option is not None and option.text != "false":
            options.draft.problem(option, why)
    read_model(options)
    read_experts(options)
    read_layout(options)
    read_schedule(options)
    read_precision(options)
    read_training(options, framework)


def _rest(draft: Draft, options: Iterable[Option]) -> None:
    """List the options that nothing reads."""
    tables = table(TOOL)
    strange: list[Option] = []
    switches = frozenset(tables["switches"]["names"])
    for option in options:
        if option.text == "false" and option.name in switches:
            draft.ignore(option, "it is off")
        elif option.name in tables["reasons"]:
            draft.ignore(option, tables["reasons"][option.name])
        elif is_ignored(TOOL, option.name):
            draft.ignore(option)
        elif option.name in tables["unread"]:
            draft.leave(option, tables["unread"][option.name], _SET_ELSEWHERE.get(option.name, ""))
        elif option.name in known_flags():
            draft.ignore(option, "nothing here reads it")
        else:
            strange.append(option)
    close = similar(strange)
    for option in strange:
        draft.leave(option, option.unread or close.get(option.name, ""))


@hookimpl
def importers() -> list[Importer]:
    """Offer arguments of Megatron-LM."""
    return [Megatron()]


@hookimpl
def settings_writers() -> list[SettingsWriter]:
    """Offer arguments of Megatron-LM and recipes of Megatron-Bridge."""
    return [MegatronWriter(), BridgeWriter()]
