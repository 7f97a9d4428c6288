"""Arguments of Megatron-LM, and recipes of Megatron-Bridge: a model, a layout and a job.

A shell script, a list of arguments or a Python file is read. None of it is run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import prod

from parcost import Importer, ImportFile, SettingsWriter, Translation, hookimpl
from parcost_formats.tools.drafts import Draft, Option, digits
from parcost_formats.tools.file_importer import BY_HAND, FileError, error_at
from parcost_formats.tools.hub import find_entry
from parcost_formats.tools.job_importer import JobImporter
from parcost_formats.tools.keys import KeyNames
from parcost_formats.tools.megatron.adapters import read_adapters, read_swift_adapters
from parcost_formats.tools.megatron.bridge import VERSION as BRIDGE
from parcost_formats.tools.megatron.bridge import BridgeRecipe, read_overrides, read_recipe
from parcost_formats.tools.megatron.bridge_writer import BridgeWriter
from parcost_formats.tools.megatron.defaults import EVERYTHING, ToolOptions
from parcost_formats.tools.megatron.devices import read_devices
from parcost_formats.tools.megatron.engine import read_engine
from parcost_formats.tools.megatron.experts import read_exchange, read_experts
from parcost_formats.tools.megatron.flags import (
    NO_FLAG,
    CommandLine,
    command_line,
    is_known,
    known_flags,
    list_unread,
    similar,
    switch_names,
)
from parcost_formats.tools.megatron.layout import read_layout
from parcost_formats.tools.megatron.mindspeed import mindspeed_job
from parcost_formats.tools.megatron.model import has_sizes, model_answers, read_model, read_start
from parcost_formats.tools.megatron.perf_matrix import read_matrix
from parcost_formats.tools.megatron.precision import read_precision
from parcost_formats.tools.megatron.recipe_command import is_recipe_command, read_recipe_command
from parcost_formats.tools.megatron.rejections import reject, reject_other_tool
from parcost_formats.tools.megatron.schedule import read_schedule
from parcost_formats.tools.megatron.stops import check_stops
from parcost_formats.tools.megatron.tools import (
    ToolJob,
    is_titan_of_primus,
    slime_job,
    swift_job,
    yaml_job,
)
from parcost_formats.tools.megatron.training import EARLY_FRAMEWORKS, read_training
from parcost_formats.tools.megatron.writer import MegatronWriter
from parcost_formats.tools.needs import NODE_SIZE, other_nodes
from parcost_formats.tools.shell.launches import launches
from parcost_formats.tools.shell.scripts import ARGUMENTS
from parcost_formats.tools.tables import (
    is_ignored,
    is_listed,
    table,
    unknown_words,
    value_of_pattern,
)
from parcost_formats.tools.yaml_text import read_mapping

TOOL = "megatron"
_LABELS = {
    "model": "gpt",
    "framework": "",
    "precision": "",
    **dict.fromkeys(
        ("cluster", "layout", "sharding", "schedule", "context", "training", "recompute"), ""
    ),
    **dict.fromkeys(("routing", "overlap", "offload", "kernels", "adapters"), ""),
}
_VERSION = "Megatron-LM core 0.14 to 0.19"
_DOUBTS = table(TOOL)["doubts"]
#: Attributes that another file may set instead of an unread option.
_SET_ELSEWHERE = {"use_checkpoint_args": "model"}
_SIGNS = ("--tensor-model-parallel-size", "--num-layers", "--micro-batch-size", "pretrain_gpt")
_OF_DATA = re.compile(r"data|token|valid|eval|vocab")
_SIGN_OF_SWIFT = re.compile(r"\bmegatron\s+(?:sft|pt|rlhf)\b")
#: Commands of another tool with options of the same names.
_OTHER_COMMANDS = re.compile(r"^[^#\n]*\baxolotl(?:\s+train|\.cli\.train)\b", re.MULTILINE)
_SIGNS_OF_YAML = (
    re.compile(r"^MODEL_ARGS:", re.MULTILINE),
    re.compile(
        r"^(?:ARGS|megatron_args):[ \t\r]*\n(?:(?:[ #].*|\r)?\n)*? +tensor_model_parallel_size:",
        re.MULTILINE,
    ),
    re.compile(
        r"^modules:[ \t\r]*\n(?:[ \t]*(?:#.*|\r)?\n)*[ \t]+(?:pre|post|sft)_trainer:", re.MULTILINE
    ),
)
#: Of FlagScale: an experiment, and the file of its training; and of Megatron-LM's own YAML.
_SIGNS_OF_FLAGSCALE = (
    (  # arguments of Megatron-LM itself
        re.compile(r"^language_model:", re.MULTILINE),
        re.compile(r"^model_parallel:", re.MULTILINE),
        re.compile(r"^ +tensor_model_parallel_size:", re.MULTILINE),
    ),
    (
        re.compile(r"^experiment:", re.MULTILINE),
        re.compile(r"^ +backend: *megatron", re.MULTILINE),
    ),
    (
        re.compile(r"^system:", re.MULTILINE),
        re.compile(r"^model:", re.MULTILINE),
        re.compile(r"^ +tensor_model_parallel_size:", re.MULTILINE),
    ),
)
#: Sections of a ConfigContainer of Megatron-Bridge in YAML: a model and one that no other tool has.
_SECTIONS_OF_BRIDGE = (
    re.compile(r"^model:", re.MULTILINE),
    re.compile(
        r"^[ \t]+(?:tensor_model_parallel_size|grad_reduce_in_fp32|data_parallel_sharding_strategy"
        r"|overlap_grad_reduce|use_distributed_optimizer):",
        re.MULTILINE,
    ),
    re.compile(r"^(?:mixed_precision|ddp|comm_overlap):", re.MULTILINE),
)
_CLASS_OF_NEMO = re.compile(r"_target_: ['\"]?nemo\.")
_MATRIX = re.compile(r"^perf_matrix:", re.MULTILINE)  # of performance runs of Megatron-Bridge 0.1
_SIGNS_OF_RECIPES = ("megatron.bridge", "cfg.model.")


class Megatron(JobImporter):
    """Arguments and recipes."""

    name = TOOL
    keys = KeyNames(TOOL, known_flags)

    def recognizes(self, name: str, text: str) -> bool:
        """Return whether a text has flags of Megatron-LM, or is a recipe of Megatron-Bridge."""
        if name.endswith((".yaml", ".yml")):
            return not is_titan_of_primus(text) and (
                any(sign.search(text) for sign in _SIGNS_OF_YAML)
                or any(all(one.search(text) for one in signs) for signs in _SIGNS_OF_FLAGSCALE)
                or _has_sections(text)
                or bool(_MATRIX.search(text))
            )
        if name.endswith(".py"):
            return any(sign in text for sign in _SIGNS_OF_RECIPES)
        if is_recipe_command(name, text):
            return True
        if _OTHER_COMMANDS.search(text):
            return False
        return any(sign in text for sign in _SIGNS) or bool(_SIGN_OF_SWIFT.search(text))

    def read_file(self, file: ImportFile) -> Translation:
        """Return the job of a file; a script may source files beside it.

        `--recipe` chooses one of several recipes.
        """
        draft = Draft(_LABELS)
        if file.name.endswith(".py"):
            return _of_recipe(draft, read_recipe(file.text, file.options.recipe, file.neighbor))
        if is_recipe_command(file.name, file.text):
            recipe, line = read_recipe_command(file)
            read_devices(draft, line)
            return _of_recipe(draft, recipe)
        if not file.name.endswith((".yaml", ".yml")):
            return _of_command(draft, command_line(file), file)
        entries = read_mapping(file.text)
        if _MATRIX.search(file.text):
            return _of_recipe(draft, read_matrix(entries, file.name, file.options.recipe))
        if _has_sections(file.text):
            return _of_recipe(draft, read_overrides(entries, file.options.recipe, file.name))
        return _of_tool(draft, yaml_job(file, entries))


def _has_sections(text: str) -> bool:
    return all(sign.search(text) for sign in _SECTIONS_OF_BRIDGE) and not _CLASS_OF_NEMO.search(
        text
    )


def _of_command(draft: Draft, line: CommandLine, file: ImportFile) -> Translation:
    if line.problems:
        return Translation(problems=sorted(line.problems, key=lambda one: one.start))
    _require_arguments(line)
    job = swift_job(line.options) if line.swift else slime_job(draft, line.options)
    if job is None:
        _check_values(draft, line.options)
        job = mindspeed_job(draft, line.options)
        if job is None:
            reject_other_tool(draft, line.options, line.entry)
    options = ToolOptions(draft, job.options if job else line.options, _VERSION)
    _doubts(options, line)
    if job is not None:
        _start(options, job)
    elif (name := options.get("model_name")) is not None and not has_sizes(options):
        why = f"`{name.key} {name.text}` names the model, but the script has no sizes"
        draft.ask("model", why, model_answers(name.text), name)
    deepspeed = options.lookup("deepspeed")
    engine = "deepspeed" if deepspeed is not None and deepspeed.text != "false" else "core"
    if engine == "deepspeed":
        _add_engine(options, line, file)
    read_options(options, f"megatron_{engine}", line.entry)
    if job is not None and job.adapters:
        read_swift_adapters(draft, job.adapters, options)
    if job is None and engine == "core" and not draft.uses_one_of(EARLY_FRAMEWORKS):
        check_stops(options, [one.name for one in line.conditional])
    read_devices(draft, line)
    for stray in line.strays:
        if stray.unread == ARGUMENTS:
            draft.ignore(stray, "flags added by the user")
        else:
            draft.leave(stray, stray.unread)
    for option in line.repeated:
        draft.ignore(option, option.assumption)
    for option in line.conditional:
        if is_ignored(TOOL, option.name):
            draft.ignore(option)
        elif option.name not in _DOUBTS["decides"] or _is_stated(option, line):
            draft.leave(option, _reason_to_ask(option))
    for test in line.script.assumed if line.script is not None else ():
        why = f"decides a test by its default: {test.assumption}; --set-env replaces it"
        draft.ignore(Option(name="", key=test.text, start=test.start, end=test.end), why)
    for one in line.script.found if line.script is not None else ():
        why = f"the script that it starts: read from {one.assumption}"
        draft.ignore(Option(name="", key=one.text[:60], start=one.start, end=one.end), why)
    list_other_options(draft, options.rest())
    return draft.translation()


def _require_arguments(line: CommandLine) -> None:
    """Raise if a command has no argument of Megatron-LM that is known."""
    output = next((one for one in line.strays if one.key.startswith(("$(", "`"))), None)
    if output is not None and "num_layers" not in line.options:
        way = next(iter(output.answers), "")
        raise error_at(
            output,
            f"the arguments with the sizes of the model are not known: {output.unread}",
            "write its output into the script" + (f", or give it by {way}" if way else ""),
        )
    if not known_flags().intersection(line.options):
        if line.script is not None and line.script.lacking:
            other = line.script.lacking[-1]
            what = f"`{other.text}`, which the script starts or sources, is not in its folder"
            raise error_at(other, what, "copy that file into the folder of this one")
        if line.script is not None and (absent := line.script.absent):
            names = " and ".join(dict.fromkeys(f"`{one.text}`" for one in absent))
            verb = "is not there" if len(absent) == 1 else "are not there"
            what = f"no arguments of Megatron-LM: {names}, which the script sources, {verb}"
            raise error_at(
                absent[0], what, "put it at that path, which starts at the folder of this file"
            )
        for launch in launches(line.script) if line.script is not None else ():
            for word in launch.arguments:
                if word.text.endswith((".yaml", ".yml", ".json")):
                    what = (
                        f"`{word.text}` may have the arguments of `{launch.name}`: it is not read"
                    )
                    raise error_at(word, what, f"write its keys as flags, or {BY_HAND}")
        raise FileError("the file has no arguments of Megatron-LM", help=BY_HAND)


def _add_engine(options: ToolOptions, line: CommandLine, file: ImportFile) -> None:
    """Add the options of the DeepSpeed configuration that the command names, if the file exists."""
    place = options.lookup("deepspeed_config")
    find = line.script.neighbor(file.neighbor) if line.script is not None else file.neighbor
    text = find(place.text) if place is not None and not place.unread else None
    if place is None or text is None:
        if place is not None and line.script is not None:
            options.reasons[place.name] = line.script.find_reason(place.text)
        return
    if line.script is not None and not place.assumption:
        place = place.evolve(assumption=line.script.assumption(place.text, 0, len(text)))
    read_engine(options, text, place)


def _is_stated(option: Option, line: CommandLine) -> bool:
    """Return whether a flag that some branches set has the same value in the other branches."""
    stated = line.options.get(option.name)
    return stated is not None and stated.texts == option.texts


def _of_tool(draft: Draft, job: ToolJob) -> Translation:
    """Return the job of a tool's YAML file."""
    options = ToolOptions(draft, job.options, job.version or _VERSION)
    _start(options, job)
    read_options(options, "megatron_core")
    _check_words(draft, options.rest())
    list_other_options(draft, options.rest())
    return draft.translation()


def _check_words(draft: Draft, options: Iterable[Option]) -> None:
    """Report an error for each option whose value is not the name of a known function."""
    named = {one.name: one for one in options if isinstance(one.value, str)}
    last = {name: one.evolve(value=re.split("[.:]", one.value)[-1]) for name, one in named.items()}
    for name, message, help in unknown_words(last, table(TOOL)):
        draft.problem(named[name], message, help)


def _start(options: ToolOptions, job: ToolJob) -> None:
    """Read the model that a job names, and list the keys that only the tool reads."""
    for option, why in job.rejected:
        options.problem(option, why)
    for option in job.ignored:
        options.ignore(option, job.reason(option))
    for option, why in job.left:
        options.leave(option, why)
    for option in job.doubts:
        options.doubt(option, option.unread, ["model", "dropout"])
        options.leave(option, option.unread, "model")
        options.ask_for("model", option, option.unread)
        if _has_experts(options) and "moe_token_dispatcher_type" not in options:
            options.ask_for("routing.dispatcher", option, option.unread)
    if job.model is not None:
        read_start(options, job.model)
    elif (checkpoint := job.checkpoint) is not None and (
        found := _name_in_checkpoint(checkpoint.text)
    ):
        name = checkpoint.text.rstrip("/").rpartition("/")[2]
        why = f"`{name}` is by its name {found}, as Megatron-Core stores it"
        read_start(options, checkpoint.evolve(texts=(found,), assumption=why))
    elif checkpoint is not None:
        why = f"the checkpoint `{checkpoint.text}` has it"
        options.ask("model", why, model_answers(checkpoint.text), checkpoint)
    if job.devices and all(one.text.isdecimal() for one in job.devices):
        count = prod(int(one.text) for one in job.devices)
        shown = " * ".join(one.key.rpartition(".")[2] for one in job.devices)
        options.set("cluster.devices", digits(count), job.devices[0].evolve(key=shown))
        sizes = [int(one.text) for one in job.devices]
        if len(sizes) == 2 and (note := other_nodes(*sizes)):
            options.leave(job.devices[1], note, NODE_SIZE)


def _name_in_checkpoint(checkpoint: str) -> str:
    """Return the known model that a checkpoint of Megatron-Core has as its name, or "".

    >>> _name_in_checkpoint("out/Qwen3-8B-mcore/"), _name_in_checkpoint("out/Qwen3-8B-run2-mcore")
    ('Qwen3-8B', '')
    """
    name, _, ending = checkpoint.rstrip("/").rpartition("/")[2].rpartition("-")
    return name if ending.lower() == "mcore" and find_entry(name)[0] else ""


def _reason_to_ask(option: Option) -> str:
    """Return the reason why a flag is uncertain, with the options that supply it."""
    return " | ".join([option.unread, *option.answers]).replace(" | ", "; ", 1)


def translate_recipe(
    recipe: BridgeRecipe, framework: str = "nemo", tool: str = BRIDGE
) -> Translation:
    """Return the job of a recipe that another tool passes to Megatron-Bridge, or *framework*.

    *tool* has the defaults, with its version.
    """
    return _of_recipe(Draft(_LABELS), recipe, framework, tool)


def _of_recipe(
    draft: Draft, recipe: BridgeRecipe, framework: str = "nemo", tool: str = BRIDGE
) -> Translation:
    options = ToolOptions(draft, recipe.options, tool)
    for option, message, help in recipe.errors:
        draft.problem(option, message, help)
    for option in recipe.doubts:
        options.doubt(option, option.unread, EVERYTHING)
        draft.leave(option, option.unread)
    if recipe.precision is not None:
        options.doubt(recipe.precision, recipe.precision.unread, ["precision"])
        options.check_default("training.precision")
    if recipe.model is not None:
        read_start(options, recipe.model)
    elif "num_layers" not in options:
        draft.ask("model", "the file names no model", ["--use catalog.models.llama31_8b"])
    if recipe.devices is not None:
        draft.set("cluster.devices", digits(int(recipe.devices.text)), recipe.devices)
    read_options(options, framework)
    if recipe.adapters:
        read_adapters(draft, recipe.adapters, options, tool)
    _check_words(draft, recipe.ignored)
    for option in recipe.ignored:
        draft.ignore(option, option.assumption)
    for option in recipe.unread:
        draft.leave(option, option.unread)
    list_other_options(draft, options.rest())
    return draft.translation()


def _check_values(draft: Draft, options: Mapping[str, Option]) -> None:
    """Reject values of switches; the argument parser of Megatron-LM does not accept them."""
    for name in sorted(switch_names()):
        option = options.get(name)
        if option is not None and option.texts and not option.unread:
            shown = " ".join(option.texts)[:40]
            help = f"leave out `{option.key}`" if option.text == "false" else "leave out the value"
            draft.problem(option, f"it is a flag without a value, but {shown} is given", help)


def _is_configuration(option: Option) -> bool:
    """Return whether a flag of a fork names a file that may contain other flags."""
    tables = table(TOOL)
    known = is_known(option.name) or option.name in known_flags() or is_ignored(TOOL, option.name)
    listed = option.name in tables["unread"] or option.name in tables["reasons"]
    names_file = option.text.endswith((".yaml", ".yml", ".toml")) and len(option.texts) == 1
    return names_file and not known and not listed and not _OF_DATA.search(option.name)


def _has_experts(options: ToolOptions) -> bool:
    return (
        "num_experts" in options or (options.whole("expert_model_parallel_size", least=0) or 1) > 1
    )


def _doubts(options: ToolOptions, line: CommandLine) -> None:
    """Mark the attributes whose default is uncertain because of conditional or unread flags."""
    for option in line.conditional:
        path = _DOUBTS["decides"].get(option.name, "")
        if path and not is_ignored(TOOL, option.name) and not _is_stated(option, line):
            options.ask_for(path, option, option.unread)
    for stray in line.strays:
        if stray.unread not in (ARGUMENTS, NO_FLAG):
            options.doubt(stray, stray.unread, EVERYTHING)
    if line.partial:
        first = next(iter(line.options.values()))
        about = [one for one in EVERYTHING if one != "model"]
        place = first.evolve(answers=())  # another variable than that of the flag
        options.doubt(place, "the file has only the arguments of a model", about)


def read_options(options: ToolOptions, framework: str, entry: Option | None = None) -> None:
    """Read all options of a job into its draft; *entry* is the training script."""
    reject(options, entry)
    own = table(TOOL)["own_scripts"]
    if entry is not None and not re.search(own["pattern"], entry.key):
        options.doubt(entry.evolve(texts=()), own["why"], own["about"])
    options.check_switches(sorted(switch_names()))
    for name, found in table(TOOL)["elsewhere"].items():
        option = options.get(name)
        if options.has_engine and name.startswith("deepspeed"):
            continue
        if option is not None and option.text != "false":
            why = options.reasons.get(name) or found["why"]
            options.doubt(option, why, found["about"])
            options.leave(option, why, _SET_ELSEWHERE.get(name, ""))
    for option in [one for one in options.rest() if _is_configuration(one)]:
        rule = table(TOOL)["elsewhere"]["yaml_cfg"]
        options.get(option.name)
        options.doubt(option, rule["why"], rule["about"])
        options.leave(option, rule["why"])
    other = next((one for one in table(TOOL)["other_models"] if one in options), "")
    if other:
        option = options.lookup(other)
        assert option is not None
        options.ask_for("model", option, table(TOOL)["other_models"][other])
    if other or options.has("training.model"):
        read_exchange(options)
    else:
        read_model(options)
        read_experts(options)
    read_layout(options)
    read_schedule(options, framework)
    read_precision(options)
    read_training(options, framework)


def list_other_options(draft: Draft, options: Iterable[Option]) -> None:
    """List the options that nothing reads."""
    tables = table(TOOL)
    strange: list[Option] = []
    switches = switch_names()
    for option in options:
        rule = tables["unread"].get(option.name, "")
        if not isinstance(rule, str):
            list_unread(draft, option, rule)
        elif option.text == "false" and (
            option.name in switches or (option.value is False and is_known(option.name))
        ):
            draft.ignore(option, "it is off")
        elif option.name in tables["reasons"]:
            draft.ignore(option, tables["reasons"][option.name])
        elif is_ignored(TOOL, option.name):
            draft.ignore(option)
        elif rule:
            draft.leave(option, rule)
        elif option.name in known_flags():
            draft.ignore(option, "not used by this model")
        elif is_known(option.name):
            draft.leave(option, option.unread or "its effect on a cost is not modeled")
            _question_fork(draft, option)
        else:
            strange.append(option)
    close = similar(strange)
    for option in strange:
        draft.leave(option, option.unread or close.get(option.name, ""))
        _question_fork(draft, option)


def _question_fork(draft: Draft, option: Option) -> None:
    """Reject a flag of a fork, or ask for the attribute that its name suggests."""
    rules = table(TOOL)["fork_flags"]
    if option.text in ("false", "None", "null", "0"):
        return
    why = value_of_pattern(option.name, rules["rejected"])
    if why and not is_known(option.name):
        draft.problem(option, why)
    asked = next((rules["asks"][one] for one in rules["asks"] if is_listed(option.name, [one])), ())
    if asked:
        draft.ask(asked[0], f"`{option.key}` may set it, but is not supported", asked[1:], option)
    wide = draft.uses_one_of(f"catalog.precisions.{one}" for one in ("bf16", "fp16", "fp32"))
    if wide and is_listed(option.name, rules["narrow"]):
        answers = ["--use catalog.precisions.fp8_delayed", f"--use {wide}"]
        draft.ask(
            "precision", f"`{option.key}` may compute matrix products in 8 bits", answers, option
        )


@hookimpl
def importers() -> list[Importer]:
    """Return the importer of arguments of Megatron-LM."""
    return [Megatron()]


@hookimpl
def settings_writers() -> list[SettingsWriter]:
    """Return the writer of arguments of Megatron-LM and recipes of Megatron-Bridge."""
    return [MegatronWriter(), BridgeWriter()]
