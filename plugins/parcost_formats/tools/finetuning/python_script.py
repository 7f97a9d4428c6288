"""Python scripts with TRL's ``SFTTrainer`` or transformers' ``Trainer``, and their arguments.

The script is interpreted but not run. The arguments of ``SFTConfig`` are the keys of a job. Those
of ``LoraConfig`` and ``BitsAndBytesConfig`` become keys of TRL's command line. The values of its
options come from the command that starts the script.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from attrs import evolve

from parcost import ImportFile, ImportProblem, PlaceBeside
from parcost_formats.tools.file_importer import error_at
from parcost_formats.tools.finetuning.engine_files import KIND
from parcost_formats.tools.finetuning.job_keys import JobKeys, has_keys, plain_value
from parcost_formats.tools.finetuning.notebook import NotebookText
from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.python_code import (
    BUILTINS,
    UNPACKED,
    Cell,
    CodeCall,
    CodeLibrary,
    Entity,
    Follower,
    UnreadValue,
    entities_in,
    option_defaults,
    option_of,
)
from parcost_formats.tools.python_values import (
    DottedName,
    PythonText,
    PythonTextError,
)
from parcost_formats.tools.shell.launches import ScriptLaunch, launches
from parcost_formats.tools.shell.script_files import read_script_file, several_commands
from parcost_formats.tools.shell.scripts import Script
from parcost_formats.tools.shell.values import ShellField
from parcost_formats.tools.tables import has_sign, table
from parcost_formats.tools.unsupported import PROGRAM

_TRAINERS, _ARGUMENTS = ("SFTTrainer", "Trainer"), ("SFTConfig", "TrainingArguments")
_LOAD = ".from_pretrained"
_FROZEN, _CHECKPOINTS = "requires_grad", "gradient_checkpointing"
_FAST, _UNSLOTH = ("FastLanguageModel", "FastModel"), "FastLanguageModel()"  # of unsloth
_LAUNCHED = re.compile(r"\bnotebook_launcher\b|\btorchrun\b|\baccelerate launch\b")
_OFF = (None, False, "none")  # values of arguments that change nothing


class _Library(CodeLibrary):
    """The results of calls to other modules: objects with their arguments.

    *trainers* are the trainers that the script creates. *doubts* are calls that may change their
    model. *notes* are calls that change the size of the vocabulary.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options
        self.trainers: list[Entity] = []
        self.doubts: list[tuple[ast.AST, str]] = []
        self.notes: list[CodeCall] = []
        self.follower: Follower | None = None
        self._used: Sequence[tuple[Entity, Mapping[str, Any]]] = ()
        self._rules = table("trl")["python"]

    def call(self, follower: Follower, call: CodeCall) -> Any:
        """Return an object of a class or a loader; other functions are unknown."""
        self.follower = follower
        if call.name == "dict" and not call.arguments:
            return {name: one.value for name, one in call.keywords.items()}
        if call.name in BUILTINS:
            return super().call(follower, call)
        if call.name.endswith(tuple(self._rules["supports_bf16"])):
            return True
        owner, _, last = call.name.rpartition(".")
        if owner in _FAST and last == "from_pretrained":
            return [self._load_fast(call), UnreadValue("parcost does not read tokenizers")]
        if owner in _FAST and last == "get_peft_model":
            return self._with_fast_adapters(call)
        if call.last in self._rules["adapters_of"]:
            return self._with_adapters(call)
        if call.last in self._rules["noted"]:
            self.notes.append(call)
            return [*call.arguments]
        if call.last in self._rules["returns_model"] and call.arguments:
            if call.last == "prepare_model_for_kbit_training" and _is_model(call.arguments[0]):
                self._prepare(call.arguments[0], call)
            return call.arguments[0]
        kind = call.last if call.last[:1].isupper() else call.name
        if call.last[:1].isupper() or kind.endswith(_LOAD):
            cells = dict(call.keywords)
            names = self._rules["positional"].get(call.last, ("",))
            for name, one in zip(names, call.arguments, strict=False):
                cells.setdefault(name, Cell(one, call.node, name))
            made = Entity(kind, call.node, cells)
            if kind not in _TRAINERS:
                return made
            self._used = [(one, dict(one.cells)) for one in entities_in(made)]
            made = _copy(made, {})
            self.trainers.append(made)
            return made
        given = [*call.arguments, *(one.value for one in call.keywords.values())]
        if any(map(_is_model, given)) and call.last not in self._rules["harmless"]:
            self.doubts.append((call.node, f"`{call.last}` may change what is trained"))
        return super().call(follower, call)

    def late_changes(self) -> Iterator[tuple[ast.AST, str]]:
        """Yield attributes of the trainer's objects that are set after the trainer was created."""
        for one, before in self._used:
            for name, cell in one.cells.items():
                changed = name not in before or before[name] is not cell
                if changed and not isinstance(cell.value, UnreadValue):
                    yield cell.node, f"`{name}` is set after the trainer is created"

    def _with_adapters(self, call: CodeCall) -> Any:
        """Return a model with the adapters that a call adds to it."""
        given = dict(zip(("model", "peft_config"), call.arguments, strict=False))
        given |= {name: one.value for name, one in call.keywords.items()}
        model, adapters = given.get("model"), given.get("peft_config")
        if not isinstance(model, Entity):
            return model
        cells = {**model.cells, "peft_config": Cell(adapters, call.node, "peft_config")}
        return Entity(model.kind, call.node, cells)

    def _load_fast(self, call: CodeCall) -> Entity:
        """Return a model that unsloth loads: in 4 bits by default, and else in bf16."""
        cells = {name: Cell(one, call.node, name) for name, one in self._rules["fast"].items()}
        given = dict(zip(("model_name",), call.arguments, strict=False))
        cells |= {name: Cell(one, call.node, name) for name, one in given.items()}
        stated = {name: one for name, one in call.keywords.items() if one.value is not None}
        return Entity(
            "FastLanguageModelForCausalLM.from_pretrained", call.node, {**cells, **stated}
        )

    def _with_fast_adapters(self, call: CodeCall) -> Any:
        """Return a model with the adapters, and the activation checkpointing, that unsloth adds."""
        given = dict(call.keywords)
        named = given.pop("model", None)
        model = call.arguments[0] if call.arguments else named and named.value
        if not isinstance(model, Entity):
            return model
        cells = {
            name: Cell(one, call.node, name) for name, one in self._rules["fast_adapters"].items()
        }
        cells |= given
        checkpoints = cells.pop("use_gradient_checkpointing")
        for name in self._rules["fast_ignored"]:
            cells.pop(name, None)
        found = Entity(model.kind, call.node, dict(model.cells))
        found.cells["peft_config"] = Cell(Entity("LoraConfig", call.node, cells), call.node, "")
        found.cells[_CHECKPOINTS] = Cell(bool(checkpoints.value), checkpoints.node, "")
        if checkpoints.value == "unsloth":
            found.cells["activation_offloading"] = Cell(True, checkpoints.node, "")
        return found

    def _prepare(self, model: Entity, call: CodeCall) -> None:
        """Add activation checkpointing, and cast unquantized weights to float32, as PEFT does."""
        on = call.keywords.get("use_gradient_checkpointing")
        if on is None or on.value is not False:
            self._put(model, _CHECKPOINTS, True if on is None else on.value, call)
        self._put(model, "dtype", "float32", call)

    def _put(self, model: Entity, name: str, value: Any, call: CodeCall) -> None:
        """Set an attribute of a model, by a call that may depend on a condition."""
        if self.follower is not None:
            self.follower.put(model, name, Cell(value, call.node, name))

    def method(self, owner: Entity, call: CodeCall) -> Any:
        """Return the options of a parser; a method of a model may change the trained part."""
        if not _is_model(owner):
            return super().method(owner, call)
        if call.last == "gradient_checkpointing_enable":
            self._put(owner, _CHECKPOINTS, True, call)
        elif call.last in self._rules["noted"]:
            self.notes.append(call)
        elif call.last in self._rules["returns_model"]:
            return owner
        elif call.last not in self._rules["harmless"]:
            self.doubts.append((call.node, f"`{call.last}` may change what is trained"))
        return UnreadValue(f"`{call.name}` is code, which parcost does not run")


def _copy(one: Entity, made: dict[int, Entity]) -> Entity:
    """Return a deep copy of an object, so that the branches of a condition around a trainer are
    separate.
    """
    copy = made.setdefault(id(one), Entity(one.kind, one.node))
    for name, cell in one.cells.items():
        value = cell.value
        if isinstance(value, Entity):
            value = made.get(id(value)) or _copy(value, made)
        elif isinstance(value, dict):
            value = dict(value)
        copy.cells[name] = Cell(value, cell.node, cell.key, cell.why)
    return copy


def _is_one_place(device_map: Any) -> bool:
    """Return whether *device_map* is a word or constants; other maps may differ between
    processes.
    """
    places = device_map.values() if isinstance(device_map, dict) else (device_map,)
    return all(isinstance(one, (str, int)) for one in places)


def _is_model(value: Any) -> bool:
    return isinstance(value, Entity) and value.kind.endswith(_LOAD) and "Model" in value.kind


def is_program(text: str) -> bool:
    """Return whether a Python text makes a trainer whose settings are read."""
    return all(has_sign(sign, text) for sign in table("trl")["python"]["signs"])


def find_started_job(file: ImportFile, rules: Mapping[str, Any]) -> JobKeys | None:
    """Return the job of the Python program that a script starts, None if it starts none.

    The program is in the folder of the script. If it takes the model or the batches from its
    command, the command is read with the table *rules*.

    Raises:
        FileError: The program is not followed, or the script starts several.
    """
    script = read_script_file(file)
    found: dict[tuple[str, ...], tuple[ScriptLaunch, ImportFile]] = {}
    for launch in launches(script):
        near = script.start_from(launch.written, launch.folder).neighbor(file.neighbor)
        text = near(launch.name) if launch.kind == "script" else None
        if text is not None and is_program(text) and not has_keys(launch, rules):
            words = (launch.name, *(word.text for word in launch.arguments))
            found[words] = launch, evolve(file, name=launch.name, text=text)
    if len(found) > 1:
        commands = [launch for launch, _ in found.values()]
        raise several_commands(file, commands, "programs with a trainer")
    return read_started_job(script, *next(iter(found.values()))) if found else None


def read_started_job(script: Script, launch: ScriptLaunch, program: ImportFile) -> JobKeys:
    """Return the keys of the *program* that a command of a script starts.

    Raises:
        FileError: The program makes no trainer that can be followed, or has no option of the
            command.
    """
    given: dict[str, ShellField] = {}
    for place, word in enumerate(launch.arguments):
        following = launch.arguments[place + 1 : place + 2]
        if word.text.startswith("--"):
            name, equals, value = word.text.lstrip("-").replace("-", "_").partition("=")
            own = word._replace(text=value if equals else "True")
            valued = not equals and following and not following[0].text.startswith("--")
            given[name] = following[0] if valued else own
    try:
        job = read_python_job(program, given)
    except PythonTextError as error:
        raise error_at(launch.program, f"`{launch.name}`: {error}", error.help) from None
    start, end = launch.program.start, launch.program.end
    answers = {one.unread: one.answers for one in given.values() if one.unread}
    entries = {
        key: JsonEntry(one.value, start, end, PlaceBeside(program.name, one.start, one.end))
        for key, one in job.entries.items()
    }
    problems = [
        evolve(one, start=start, end=end, beside=PlaceBeside(program.name, one.start, one.end))
        for one in job.problems
    ]
    return evolve(
        job,
        entries=entries,
        unread={
            key: word._replace(start=start, end=end, answers=answers.get(word.unread, ()))
            for key, word in job.unread.items()
        },
        problems=problems,
        launcher=launch.launcher,
        environment=script.environment_of(launch.environment),
        script=script,
    )


def read_python_job(file: ImportFile, given: Mapping[str, ShellField] | None = None) -> JobKeys:
    """Return the keys of a script with a trainer; *given* are values of options of its command.

    Raises:
        PythonTextError: The script makes no trainer that can be followed, or several.
    """
    is_notebook = file.name.endswith(".ipynb")
    python = NotebookText(file.text) if is_notebook else PythonText(file.text)
    options = {**(option_defaults(python.tree) or {})}
    for name, word in (given or {}).items():
        if name not in options:
            message = f"it declares no option `--{name}`, but the command sets it"
            raise PythonTextError(message, 0, 1)
        options[name] = UnreadValue(word.unread) if word.unread else plain_value(word.text)
    library = _Library(options)
    follower = Follower(python.tree, library, {"__name__": "__main__"})
    follower.run_file(python.tree, lambda _: False)
    if len(library.trainers) != 1:
        at = python.place(library.trainers[1].node)[0] if library.trainers else 0
        count = f"{len(library.trainers)} trainers" if library.trainers else "no trainer"
        kinds = dict.fromkeys(one.kind for one in library.trainers)
        names = "` or `".join(kinds or _TRAINERS)
        message = (
            f"the script creates {count} objects of `{names}` that can be read; exactly one is "
            "expected"
        )
        raise PythonTextError(message, at, at + 1)
    job = _Keys(python, library, given or {}).job(library.trainers[0])
    own = "a notebook is one process" if is_notebook else ""
    own = own or ("unsloth trains in one process" if _UNSLOTH in job.entries else "")
    if own and not _LAUNCHED.search(file.text) and "num_processes" not in job.entries:
        place = job.entries[PROGRAM]
        own_keys = {KIND: "NO", "num_processes": 1}
        added = {key: JsonEntry(one, place.start, place.end) for key, one in own_keys.items()}
        job = evolve(
            job,
            entries={**added, **job.entries},
            assumed={**dict.fromkeys(added, own), **job.assumed},
        )
    return job


class _Keys:
    """Collects the keys of a job from a trainer."""

    def __init__(self, python: PythonText, library: _Library, given: Collection[str] = ()) -> None:
        self._python, self._library, self._given = python, library, given
        self._rules = table("trl")["python"]
        self.entries: dict[str, JsonEntry] = {}
        self.unread: dict[str, ShellField] = {}
        self.assumed: dict[str, str] = {}
        self.problems: list[ImportProblem] = []

    def job(self, trainer: Entity) -> JobKeys:
        """Return the keys of the job of a trainer."""
        is_trl = trainer.kind == _TRAINERS[0]
        program = "trl sft" if is_trl else trainer.kind
        self.entries[PROGRAM] = JsonEntry(program, *self._python.place(trainer.node))
        late = self._library.late_changes()
        for node, why in (*self._library.doubts, *_frozen(self._python.tree), *late):
            self._problem(node, why)
        for call in self._library.notes:
            self.entries[f"{call.last}()"] = JsonEntry(True, *self._python.place(call.node))
        cells = dict(trainer.cells)
        older = next((one for one in self._rules["trainer_older"] if is_trl and one in cells), None)
        if older:  # which arguments the trainer has no more
            self.entries[f"{_TRAINERS[0]}()"] = JsonEntry(older, *self._python.place(trainer.node))
        self._arguments(cells.pop("args", None), trainer)
        self._model(cells.pop("model", None), trainer)
        self._adapters(cells.pop("peft_config", None))
        for key, cell in cells.items():
            loaded = _UNSLOTH in self.entries and key in self._rules["fast_loaded"]
            if key in self._rules["trainer_keys"] and (loaded or key not in self.entries):
                self._add(key, cell)  # in place of that of the model
            elif key not in self._rules["trainer_ignored"]:
                self._problem(cell.node, f"`{key}` of `{trainer.kind}` is not supported")
        return JobKeys(
            entries=self.entries, unread=self.unread, assumed=self.assumed, problems=self.problems
        )

    def _problem(self, node: ast.AST, message: str) -> None:
        start, end = self._python.place(node)
        help = "remove it, or evaluate the `config.json` of the model with options"
        self.problems.append(ImportProblem(message=message, start=start, end=end, help=help))

    def _add(self, key: str, cell: Cell) -> None:
        """Add the setting *key* with the value of *cell*.

        None means no limit for the keys in ``unlimited``; any other key is not set.
        """
        value, node, unlimited = cell.value, cell.node, table("trl")["unlimited"]
        start, end = self._python.place(node)
        self.assumed.pop(key, None)  # of a default
        if isinstance(value, list):  # with a part that is not known
            value = next((one for one in value if isinstance(one, UnreadValue)), value)
        if isinstance(value, DottedName) and not re.search(self._rules["constants"], value.name):
            value = UnreadValue(
                f"`{value.name}` comes from another file, which parcost does not read"
            )
        if isinstance(value, dict) and value:
            for name, one in value.items():
                self._add(f"{key}.{name}", Cell(one, node, name))
        elif isinstance(value, (UnreadValue, Entity)):
            why = value.why if isinstance(value, UnreadValue) else "it is an object"
            self.unread[key] = ShellField(key, start, end, why, "", ())
        elif value is not None or key in unlimited:
            plain = value.name if isinstance(value, DottedName) else value
            self.entries[key] = JsonEntry(plain, start, end)
            if (option := option_of(node, self._library.options)) and option not in self._given:
                self.assumed[key] = f"`{option}` has this default in the file"

    def _arguments(self, cell: Cell | None, trainer: Entity) -> None:
        """Add the arguments of the trainer."""
        if cell is None:
            return
        given = cell.value
        if not isinstance(given, Entity) or given.kind not in _ARGUMENTS:
            why = (
                given.why
                if isinstance(given, UnreadValue)
                else "they are created in code that parcost does not run"
            )
            self._problem(cell.node, f"the arguments of `{trainer.kind}` cannot be read: {why}")
            return
        for key, one in given.cells.items():
            if key == UNPACKED:
                self._problem(one.node, "arguments unpacked with `*` or `**` are not supported")
            elif key:
                self._add(key, one)
        if given.kind == _ARGUMENTS[1]:  # whose defaults are not those of SFTConfig
            tool = self._rules["arguments_by"]
            for key, value in self._rules["of_training_arguments"].items():
                if key not in self.entries and key not in self.unread:
                    self.entries[key] = JsonEntry(value, *self._python.place(trainer.node))
                    self.assumed[key] = f"{tool}: {key} is {str(value).lower()}"

    def _model(self, cell: Cell | None, trainer: Entity) -> None:
        """Add the model: its name, its types, and its quantization."""
        given = None if cell is None else cell.value
        if isinstance(given, str) and cell is not None:
            self._add("model_name_or_path", cell)
        elif _is_model(given):
            assert isinstance(given, Entity)
            if not given.kind.removesuffix(_LOAD).endswith("CausalLM"):
                self._problem(given.node, f"`{given.kind}` is not a causal language model")
            for key, one in given.cells.items():
                self._load(key, one)
        else:
            why = (
                given.why
                if isinstance(given, UnreadValue)
                else "it is created in code that parcost does not run"
            )
            node = trainer.node if cell is None else cell.node
            self._problem(node, f"the model of `{trainer.kind}` cannot be read: {why}")

    def _load(self, key: str, cell: Cell) -> None:
        """Add an argument of ``from_pretrained``."""
        if key in ("", "pretrained_model_name_or_path", "model_name"):
            if key == "model_name" and isinstance(cell.value, str):  # a copy with other weights
                cell = evolve(cell, value=re.sub(self._rules["fast_copies"], "", cell.value))
            self._add("model_name_or_path", cell)
        elif key == _UNSLOTH or key in self._rules["fast_loaded"]:
            self._add(key, cell)
        elif key == "peft_config":
            self._adapters(cell)
        elif key == "quantization_config" and isinstance(cell.value, Entity):
            for name, one in cell.value.cells.items():
                if (renamed := self._rules["quantization"].get(name)) is not None:
                    self._add(renamed, one)
        elif key == "device_map":
            if not _is_one_place(cell.value):
                return
            place = self._python.place(cell.node)
            self.entries[KIND] = JsonEntry("NO", *place)
            self.entries["num_processes"] = JsonEntry(1, *place)
            why = "a model with a `device_map` is trained by one process"
            self.assumed |= {KIND: why, "num_processes": why}
        elif key == _CHECKPOINTS or (key in self._rules["loaded"] and cell.value is not None):
            self._add(key, cell)
        elif key not in self._rules["load_ignored"]:
            self._add(f"model_init_kwargs.{key}", cell)

    def _adapters(self, cell: Cell | None) -> None:
        """Add the adapters of PEFT."""
        if cell is None or cell.value is None:
            return
        given = cell.value
        if not isinstance(given, Entity) or given.kind != "LoraConfig":
            what = given.why if isinstance(given, UnreadValue) else "only LoraConfig is supported"
            self._problem(cell.node, f"the adapters cannot be read: {what}")
            return
        self.entries["use_peft"] = JsonEntry(True, *self._python.place(given.node))
        for name, value in self._rules["adapter_defaults"].items():
            if name not in given.cells:
                key = self._rules["adapters"][name]
                self.entries[key] = JsonEntry(value, *self._python.place(given.node))
                self.assumed[key] = f"{self._rules['adapters_by']}: {name} is {value}"
        for name, one in given.cells.items():
            renamed = self._rules["adapters"].get(name)
            if renamed:
                self._add(renamed, one)
            elif renamed is None and one.value not in _OFF:
                self._problem(one.node, f"`{name}` of `LoraConfig` is not supported")


def _frozen(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Yield the statements of a script that freeze parameters."""
    for node in ast.walk(tree):
        places = [node.func] if isinstance(node, ast.Call) else []
        places += node.targets if isinstance(node, ast.Assign) else []
        names = [one.attr for one in places if isinstance(one, ast.Attribute)]
        if _FROZEN in names or f"{_FROZEN}_" in names:
            yield node, f"`{_FROZEN}` chooses the trained parameters, which is not supported"
