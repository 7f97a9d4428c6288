"""Python of OLMo-core that builds an ``ExperimentConfig``, interpreted but not run.

Command-line options have the defaults declared in the file. A script without a parser uses
OLMo-core's parser, whose options have no defaults.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Self, cast

from parcost import Importer, ImportFile, Translation, hookimpl
from parcost_formats.tools.answers import answer_to, option_attribute
from parcost_formats.tools.collector import SettingCollector, digits
from parcost_formats.tools.job_importer import JobImporter
from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.layer_settings import settings_of_full
from parcost_formats.tools.python_code import (
    BUILTINS,
    OPTIONS,
    Cell,
    CodeCall,
    CodeLibrary,
    Entity,
    Follower,
    UnreadValue,
    doubt_cells,
    option_defaults,
)
from parcost_formats.tools.python_values import (
    DottedName,
    Function,
    PythonText,
    PythonTextError,
    choose_function,
    dotted_name,
)
from parcost_formats.tools.tables import is_listed, table

TOOL = "olmo_core"
_VERSION = "OLMo-core 2.3"
_JOB = "ExperimentConfig"
_MLP_OF_EVERY = "blocks.*.feed_forward"
_MODULE = "train_module"
_PARTS_OF_JOB = ("model", "trainer")  # fields of a class that is a job
_BATCH_NAME = "global_batch_size"
# The function of `olmo_core.internal.cookbook` that makes a training module.
_COOKBOOK = "configure_train_module"
_BATCH, _SEQUENCE = f"data_loader.{_BATCH_NAME}", f"{_MODULE}.max_sequence_length"
_MICRO_NAME = "rank_microbatch_size"
_MICRO = f"{_MODULE}.{_MICRO_NAME}"
# A callback of the trainer, whose batches replace that of the data loader.
_SCHEDULER = "BatchSizeSchedulerCallback"
_SIZES, _SCHEDULES = f"{_SCHEDULER}.batch_sizes", f"{_SCHEDULER}.enabled"
_DATA, _RECOMPUTE = f"{_MODULE}.dp_config", f"{_MODULE}.ac_config"
_ANSWERS = ("--use catalog.precisions.bf16_fsdp", "--use catalog.precisions.fp32")
# Arguments of `main` or `build_config`: functions that make the parts of a job.
_BUILDERS = ("model_config_builder", "train_module_config_builder", "trainer_config_builder")
_OPTIMIZER_BUILDER = "optim_config_builder"  # of OLMo-core 1, which has no training module
_DATA_BUILDER, _FINISHER = "data_config_builder", "finalize_config"
_USUAL_SEQUENCE = 4096  # tokens
_USUAL_TOKENIZER = "dolma2"
#: What a data set computes from the lengths that it states, the first of them.
_LENGTH = "effective_sequence_length"
_LENGTHS = (_LENGTH, "sequence_length", "max_sequence_length")
_ASSUMED = "assumed"  # a cell of an object that no argument states
# Configurations that a function of another file may change, and sections that it may add.
_PARTS = (_JOB, "TrainModuleConfig", "TransformerConfig", "DataLoaderConfig")
#: An object within a configuration of the library's own, that statements of the file change.
_PART = "part"
_NOTHING = "None"  # what a statement takes away from such an object
_WINDOWS = tuple(f"block.{one}.sliding_window" for one in ("attention", "sequence_mixer"))
_HEAD_NORMS = tuple(f"block.{one}.use_head_qk_norm" for one in ("attention", "sequence_mixer"))
_WIDTH = ("hidden_size_multiplier", "hidden_size_multiple_of")
_FIRST, _LAST = (f"force_full_attention_on_{one}_layer" for one in ("first", "last"))
_ABSENT = ("ac_config", "float8_config", "tp_config", "cp_config", "pp_config", "dp_config")


class DefaultNumber(int):
    """A number from a default, or computed from one; *why* is the reason."""

    why: str

    def __new__(cls, number: int, why: str) -> Self:
        """Return *number* with the reason for which it is assumed."""
        found = super().__new__(cls, number)
        found.why = why
        return found

    def __add__(self, other: Any) -> Any:
        """Return a sum; it is assumed for the same reason as this number."""
        return _derive(self, super().__add__(other))

    def __sub__(self, other: Any) -> Any:
        """Return a difference."""
        return _derive(self, super().__sub__(other))

    def __rsub__(self, other: Any) -> Any:
        """Return a difference."""
        return _derive(self, super().__rsub__(other))

    def __mul__(self, other: Any) -> Any:
        """Return a product."""
        return _derive(self, super().__mul__(other))

    def __floordiv__(self, other: Any) -> Any:
        """Return a quotient, rounded down."""
        return _derive(self, super().__floordiv__(other))

    def __rfloordiv__(self, other: Any) -> Any:
        """Return a quotient, rounded down."""
        return _derive(self, super().__rfloordiv__(other))

    def __truediv__(self, other: Any) -> Any:
        """Return a quotient; a whole one is an integer, so that its reason is kept."""
        return _derive(self, super().__truediv__(other))

    def __pow__(self, other: Any, modulus: Any = None) -> Any:
        """Return a power."""
        return _derive(self, super().__pow__(other, modulus))

    __radd__, __rmul__ = __add__, __mul__


class DefaultWord(str):
    """A word that a default supplies; *why* says which."""

    __slots__ = ("why",)
    why: str

    def __new__(cls, word: str, why: str) -> Self:
        """Return *word* with the reason for which it is assumed."""
        found = super().__new__(cls, word)
        found.why = why
        return found


def _derive(number: DefaultNumber, found: Any) -> Any:
    """Return a result of arithmetic on a default, with its reason if it is a whole number."""
    whole = isinstance(found, int) or (isinstance(found, float) and found.is_integer())
    return DefaultNumber(int(found), number.why) if whole else found


class OlmoCore(JobImporter):
    """Training scripts of OLMo-core."""

    name = TOOL

    def recognizes(self, name: str, text: str) -> bool:
        """Return whether the text is Python that configures a training run of OLMo-core."""
        signs = ("TrainModuleConfig(", f"{_COOKBOOK}(", f"{_BUILDERS[0]}=", "TrainerConfig(")
        return name.endswith(".py") and "olmo_core" in text and any(one in text for one in signs)

    def read_file(self, file: ImportFile) -> Translation:
        """Return the settings of a script; `--recipe` chooses one of several functions."""
        entries = dict(_read_entries(file.text, file.options.recipe))
        unread = {key: one.value for key, one in entries.items() if _is_unread(one)}
        for key in unread:
            entries[key] = JsonEntry(None, entries[key].start, entries[key].end)
        assumed = {
            key: one.value.why
            for key, one in entries.items()
            if isinstance(one.value, DefaultNumber | DefaultWord)
        }
        found = SettingCollector(entries, table(TOOL), assumed)
        found.use("frameworks.pytorch_fsdp_flash", why=f"{_VERSION}: FSDP2 of PyTorch")
        _ask_for_unread(found, unread)
        _model(found)
        _batch(found)
        _layout(found)
        _precision(found)
        _recompute(found)
        return found.translation()


def _is_unread(entry: JsonEntry) -> bool:
    return isinstance(entry.value, UnreadValue)


def _read_entries(text: str, recipe: str) -> Iterator[tuple[str, JsonEntry]]:
    """Yield the settings of a file, by dotted key.

    Raises:
        PythonTextError: No function of the file returns a job configuration, several functions do,
            or parcost cannot evaluate the function.
    """
    python = PythonText(text)
    follower = Follower(python.tree, _OlmoLibrary(option_defaults(python.tree)), {})
    follower.follow_globals(python.tree.body)
    jobs = {_JOB, *_own_jobs(python.tree)}
    makers = _find_makers(follower.functions, jobs)
    builders = _find_builders(python.tree)
    if not makers and builders is None:
        message = f"no function of the file returns an `{_JOB}`"
        raise PythonTextError(message, 0, 1)
    name, place = _BUILDERS[0], cast("ast.AST", builders)
    if builders is not None:
        made = _build_job(follower, builders)
    else:
        function = choose_function(python, makers, list(makers), recipe)
        given = {one.arg: Entity(OPTIONS, function) for one in function.args.args}
        made, name, place = follower.call_function(function, given), function.name, function
    if not isinstance(made, Entity) or made.kind not in jobs:
        why = made.why if isinstance(made, UnreadValue) else "it returns another object"
        start, _ = python.place(place)
        raise PythonTextError(f"`{name}` cannot be interpreted: {why}", start, start + 3)
    _add_module(made)
    for key, word in _find_arguments(follower, python.tree, builders):
        value = follower.value(word.value, follower.globals)
        if key == _FINISHER:
            value = dotted_name(word.value) or "code"
        yield key, JsonEntry(value, *python.place(word))
    for key, cell in _flatten("", made):
        if cell.value is not None:  # None is an argument that is left out
            start, end = python.place(cell.node)
            yield key, JsonEntry(cell.value, start, end)


def _find_arguments(
    follower: Follower, tree: ast.Module, builders: ast.Call | None
) -> Iterator[tuple[str, ast.keyword]]:
    """Yield arguments by key: of schedulers of batch sizes, and unknown ones of *builders*."""
    known: Sequence[str] = table(TOOL)["arguments"]["of_main"]
    for call in (one for one in ast.walk(tree) if isinstance(one, ast.Call)):
        schedules = dotted_name(call.func).endswith(_SCHEDULER)
        for word in call.keywords if schedules or call is builders else ():
            elsewhere = word.arg == _FINISHER and dotted_name(word.value) not in follower.functions
            if word.arg and schedules:
                yield f"{_SCHEDULER}.{word.arg}", word
            elif word.arg and (word.arg not in known or elsewhere):
                yield word.arg, word


def _find_makers(
    functions: Mapping[str, Function], jobs: AbstractSet[str]
) -> Mapping[str, ast.FunctionDef]:
    """Return the functions that return a job, or that call its class if none has the annotation."""
    plain = {name: one for name, one in functions.items() if isinstance(one, ast.FunctionDef)}
    stated = {name: one for name, one in plain.items() if _return_type(one) in jobs}
    return stated or {
        name: one
        for name, one in plain.items()
        if one.returns is None
        and any(
            isinstance(call, ast.Call) and dotted_name(call.func).rpartition(".")[2] in jobs
            for call in ast.walk(one)
        )
    }


def _own_jobs(tree: ast.Module) -> Iterator[str]:
    """Yield the classes of a file that have the parts of a job under another name."""
    for one in tree.body:
        if isinstance(one, ast.ClassDef):
            parts = (it.target for it in one.body if isinstance(it, ast.AnnAssign))
            names = {part.id for part in parts if isinstance(part, ast.Name)}
            if names.issuperset(_PARTS_OF_JOB):
                yield one.name


def _find_builders(tree: ast.Module) -> ast.Call | None:
    """Return the call whose arguments are the functions that build a job, or None."""
    calls = (one for one in ast.walk(tree) if isinstance(one, ast.Call))
    return next((one for one in calls if _BUILDERS[0] in {key.arg for key in one.keywords}), None)


def _build_job(follower: Follower, call: ast.Call) -> Entity | UnreadValue:
    """Return the job that the functions named by *call* build from common components."""
    given = {one.arg: one.value for one in call.keywords if one.arg}
    names = follower.globals
    batch = follower.value(given[_BATCH_NAME], names) if _BATCH_NAME in given else None
    length: Any = DefaultNumber(
        _USUAL_SEQUENCE, f"{_VERSION}: sequence_length is {_USUAL_SEQUENCE}"
    )
    for key in ("sequence_length", "max_sequence_length"):
        length = follower.value(given[key], names) if key in given else length
    why = f"{_VERSION}: tokenizer is {_USUAL_TOKENIZER}"
    tokenizer: Any = Entity(f"TokenizerConfig.{_USUAL_TOKENIZER}", call)
    tokenizer.cells[_ASSUMED] = Cell(_USUAL_TOKENIZER, call, _ASSUMED, why)
    if "tokenizer" in given:
        tokenizer = follower.value(given["tokenizer"], names)
    dataset = Entity("dataset", call, {_LENGTH: Cell(length, call, "dataset")})
    shared = {"tokenizer": tokenizer, "dataset": dataset, "max_sequence_length": length}
    shared[_BATCH_NAME] = batch
    cells = {key: Cell(one, call, key) for key, one in shared.items()}
    common = Entity("CommonComponents", call, cells)
    made = dict(_build_parts(follower, given, common))
    model, module, trainer = (made.get(one) for one in _BUILDERS)
    sizes = dict(_trainer_sizes(trainer, length))
    if module is None and _OPTIMIZER_BUILDER in given:
        module = _split_module(call, model, sizes, made.get(_OPTIMIZER_BUILDER), length)
    elif module is None:
        module = UnreadValue(f"neither `{_BUILDERS[1]}` nor `{_OPTIMIZER_BUILDER}` is given")
    loader = Entity("loader", call, {_BATCH_NAME: Cell(batch, call, _BATCH_NAME)})
    if batch is None and _BATCH_NAME in sizes:
        loader.cells[_BATCH_NAME] = sizes[_BATCH_NAME]
    data = made.get(_DATA_BUILDER)
    own = data.cells.get("data_loader") if isinstance(data, Entity) else None
    if own is not None and isinstance(own.value, Entity) and _BATCH_NAME in own.value.cells:
        loader = own.value
    parts = {"model": model, _MODULE: module, "data_loader": loader}
    job = Entity(_JOB, call, {key: Cell(one, call, key) for key, one in parts.items()})
    finisher = follower.functions.get(dotted_name(given[_FINISHER])) if _FINISHER in given else None
    if isinstance(finisher, ast.FunctionDef):
        follower.call_function(finisher, {one.arg: job for one in finisher.args.args[:1]})
    return job


def _build_parts(
    follower: Follower, given: Mapping[str, ast.expr], common: Entity
) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a job that functions build, by the name of the argument."""
    for key in (*_BUILDERS, _OPTIMIZER_BUILDER, _DATA_BUILDER):
        function = follower.functions.get(dotted_name(given[key])) if key in given else None
        if isinstance(function, ast.FunctionDef):
            parameters = {one.arg: common for one in function.args.args[:1]}
            yield key, follower.call_function(function, parameters)
        elif key in given:
            yield key, UnreadValue(f"`{key}` is not a function of this file")


def _add_module(job: Entity) -> None:
    """Add the training module of OLMo-core 1, which model and trainer configure."""
    parts = {name: cell.value for name, cell in job.cells.items()}
    trainer, dataset, node = parts.get("trainer"), parts.get("dataset"), job.node
    if _MODULE in parts or not isinstance(trainer, Entity) or not isinstance(node, ast.Call):
        return
    length = dataset.cells.get("sequence_length") if isinstance(dataset, Entity) else None
    sequence = None if length is None else length.value
    sizes = dict(_trainer_sizes(trainer, sequence))
    module = _split_module(node, parts.get("model"), sizes, parts.get("optim"), sequence)
    job.cells[_MODULE] = Cell(module, node, _MODULE)
    job.cells.pop("optim", None)
    if _BATCH_NAME in sizes:
        loader = Entity("loader", node, {_BATCH_NAME: sizes[_BATCH_NAME]})
        job.cells["data_loader"] = Cell(loader, node, "data_loader")


def _split_module(
    call: ast.Call, model: Any, sizes: Mapping[str, Cell], optimizer: Any, length: Any
) -> Entity:
    """Return the training module of OLMo-core 1, which model and trainer configure.

    *sizes* are the batch sizes of the trainer.
    """
    cells = {"max_sequence_length": Cell(length, call, _SEQUENCE)}
    if isinstance(model, Entity):
        for key in [*model.cells]:
            if key.endswith("_config") or key == "compile":
                cells["compile_model" if key == "compile" else key] = model.cells.pop(key)
    if _MICRO_NAME in sizes:
        cells[_MICRO_NAME] = sizes[_MICRO_NAME]
    if optimizer is not None:
        cells["optim"] = Cell(optimizer, call, "optim")
    return Entity("TrainModuleConfig", call, cells)


def _trainer_sizes(trainer: Any, length: Any) -> Iterator[tuple[str, Cell]]:
    """Yield the batch sizes of a trainer of OLMo-core 1 in tokens, by the names of OLMo-core 2.

    OLMo-core 1.0 counts sequences of *length*, and has another name for the micro-batch.
    """
    if not isinstance(trainer, Entity):
        return
    first = "microbatch_size" in trainer.cells
    names = {_BATCH_NAME: _BATCH_NAME, "microbatch_size" if first else _MICRO_NAME: _MICRO_NAME}
    for name, key in names.items():
        cell = trainer.cells.get(name)
        if cell is None:
            continue
        value = cell.value
        if first and isinstance(value, int) and isinstance(length, int):
            value = length * value
        elif first and not isinstance(value, UnreadValue):
            value = UnreadValue(f"`{name}` of OLMo-core 1.0 counts sequences of an unknown length")
        yield key, Cell(value, cell.node, key)


def _return_type(function: ast.FunctionDef) -> str:
    return dotted_name(function.returns).rpartition(".")[2] if function.returns is not None else ""


def _flatten(prefix: str, entity: Entity) -> Iterator[tuple[str, Cell]]:
    for name, cell in entity.cells.items():
        value = cell.value
        if isinstance(value, Entity):
            if value.kind != _PART:
                yield f"{prefix}{name}", Cell(value.kind, cell.node, name)
            yield from _flatten(f"{prefix}{name}.", value)
        elif value is None and entity.kind == _PART:
            yield f"{prefix}{name}", Cell(_NOTHING, cell.node, name)
        elif isinstance(value, DottedName):
            yield f"{prefix}{name}", Cell(value.name.rpartition(".")[2], cell.node, name)
        else:
            yield f"{prefix}{name}", cell


def _cookbook_module(node: Any, given: Mapping[str, Cell]) -> Entity:
    """Return the training module that a function of OLMo-core's cookbook makes.

    The kind of data parallelism and the recomputation depend on the release.
    """
    why = f"{_VERSION}: {_COOKBOOK} of the cookbook"

    def make(kind: str, **values: Any) -> Entity:
        return Entity(kind, node, {key: Cell(one, node, key) for key, one in values.items()})

    def differs(what: str) -> UnreadValue:
        return UnreadValue(f"`{_COOKBOOK}` sets it, depending on the release: {what}")

    cells = dict(given)
    narrow, degree, shard, budget = (
        cells.pop(one, None)
        for one in ("float8_enabled", "cp_degree", "dp_shard_degree", "activation_memory_budget")
    )
    for one in ("activation_checkpointing_enabled", "learning_rate"):
        cells.pop(one, None)
    kept = budget is not None and budget.value == 1
    parts = {
        "compile_model": True,
        "dp_config": make(
            "TransformerDataParallelConfig",
            name=differs("fsdp or hsdp of 32 devices"),
            param_dtype=DefaultWord("bfloat16", why),
            reduce_dtype=DefaultWord("float32", why),
        ),
        "ac_config": None
        if kept
        else make("ActivationConfig", mode=differs("modules or a budget")),
        "optim": make("SkipStepAdamWConfig"),
    }
    module = make("TransformerTrainModuleConfig", **parts)
    if narrow is not None:
        module.cells["float8_config"] = Cell(
            Entity("Float8Config", node, {"enabled": narrow}), node, ""
        )
    if degree is not None and degree.value is not None:
        ring = Entity("TransformerContextParallelConfig.llama3", node, {"degree": degree})
        module.cells["cp_config"] = Cell(ring, node, "")
    if shard is not None:
        data = module.cells["dp_config"].value
        data.cells["shard_degree"] = Cell(differs("read or ignored"), node, "")
    module.cells.update(cells)
    return module


class _OlmoLibrary(CodeLibrary):
    """The results of OLMo-core functions: objects with the arguments of the call.

    *options* are defaults of the command line, None for OLMo-core's own parser.
    """

    def __init__(self, options: Mapping[str, Any] | None) -> None:
        self.options = options or {}
        self._declared = options is not None
        self._follower: Follower | None = None

    def call(self, follower: Follower, call: CodeCall) -> Any:
        """Return an object of a class, or the result of a Python function on numbers."""
        self._follower = follower
        name, node, arguments, keywords = call
        plain = [one for one in arguments if isinstance(one, int | float)]
        if name in ("int", "float", "max", "min") and len(plain) == len(arguments) > 0:
            chosen = {"max": max, "min": min}.get(name, lambda one: one[0])(plain)
            found = int(chosen) if name == "int" else chosen
            default = next((one for one in plain if isinstance(one, DefaultNumber)), None)
            return _derive(default, found) if default is not None else found
        if name in BUILTINS:
            return super().call(follower, call)
        if call.last[:1].isupper() or name.rpartition(".")[0][:1].isupper():
            kind = next(one for one in name.split(".") if one[:1].isupper())
            order = table(TOOL)["positional"].get(kind, ())
            if kind.endswith("Config") and len(arguments) > len(order):
                return UnreadValue(f"`{name}` has arguments without a name")
            placed = zip(order, arguments, strict=False)
            named = {key: Cell(one, node, key) for key, one in placed}
            return Entity(name, node, {**named, **keywords})
        if name.endswith(f"cookbook.{_COOKBOOK}") and not arguments:
            return _cookbook_module(node, keywords)
        given = [*arguments, *(one.value for one in keywords.values())]
        for one in given:
            if isinstance(one, Entity) and one.kind.partition(".")[0].endswith(_PARTS):
                self._doubt(
                    follower, one, node, f"`{name}`, a function of another file, may change it"
                )
        return super().call(follower, call)

    def _doubt(self, follower: Follower, entity: Entity, node: Any, why: str) -> None:
        """Mark the attributes of a configuration, including missing ones, as uncertain."""
        doubt_cells(follower, entity, why)
        if entity.kind.endswith("TrainModuleConfig"):
            for name in _ABSENT:
                if name not in entity.cells:
                    follower.put(entity, name, Cell(UnreadValue(why), node, name))

    def method(self, owner: Entity, call: CodeCall) -> Any:
        """Return the result of a method, such as the padded vocabulary size of a tokenizer."""
        if call.last == "padded_vocab_size":
            size = table(TOOL)["tokenizers"].get(owner.kind.rpartition(".")[2])
            if not size:
                return UnreadValue("the tokenizer is unknown")
            padded = -(-size // 128) * 128
            assumed = owner.cells.get(_ASSUMED)
            return DefaultNumber(padded, assumed.why) if assumed else padded
        if call.last in table(TOOL)["methods"]["harmless"]:
            return owner
        if owner.kind.partition(".")[0].endswith(_PARTS) and self._follower is not None:
            self._doubt(self._follower, owner, call.node, f"`{call.name}` may change it")
        return super().method(owner, call)

    def attribute(self, follower: Follower, owner: Entity, node: Any) -> Any:
        """Return an attribute of an object, or the default of an option of the command line."""
        if owner.kind == OPTIONS:
            if not self._declared:
                return None
            found = super().attribute(follower, owner, node)
            if isinstance(found, int) and not isinstance(found, bool):
                return DefaultNumber(found, f"`{node.attr}` has this default in the file")
            return found
        whole = owner.kind.partition(".")[0] in ("TransformerConfig", _PART)
        if whole and node.attr in table(TOOL)["parts"]["names"] and node.attr not in owner.cells:
            follower.put(owner, node.attr, Cell(Entity(_PART, node), node, node.attr))
        names = _LENGTHS if node.attr == _LENGTH else (node.attr,)
        cell = next((owner.cells[one] for one in names if one in owner.cells), None)
        return cell.value if cell else UnreadValue(f"`{node.attr}` has no value in this file")


def _ask_for_unread(found: SettingCollector, unread: Mapping[str, UnreadValue]) -> None:
    """Ask for each attribute whose key has a value computed by code."""
    rules = table(TOOL)
    for key, value in unread.items():
        answer = rules["decides"].get(key, "")
        if not answer and not is_listed(key, rules["ignored"]["keys"]):
            answer = answer_to(key, rules)
        if answer:
            found.ask(option_attribute(answer), f"`{key}`: {value.why}", [answer], key)


def _model(found: SettingCollector) -> None:
    """Read the model from its class method, such as ``llama2_7B``; the call may override sizes."""
    rules = table(TOOL)
    key = "model"
    name = str(found.value(key, "")).rpartition(".")[2]
    own = rules["models"].get(name)
    count = None if own is None else _count_layers(found, own)
    windows = {one: _read_window(found, f"model.{one}", count) for one in _WINDOWS}
    width = None if own is None else _read_width(found, own)
    known = (*rules["sizes"], *rules["harmless"], *_HEAD_NORMS, *(_WIDTH if width else ()))
    known += tuple(f"{one}.*" for one, read in windows.items() if read)
    strange = [
        one
        for one in found.keys_below("model")
        if one != key and not is_listed(one.removeprefix("model."), known)
    ]
    if own is None or strange:
        place = strange[0] if strange else key
        what = f"`{strange[0]}` may change it" if strange else f"`{name}` is not in parcost's table"
        answers = ["--use config.json", "--use catalog.models.olmo2_7b"]
        found.ask("model", what, answers, place if place in found else "")
        return
    entry = own.get("entry")
    block = f"model olmo extends {entry}" if entry else "model olmo"
    if entry:
        found.use(f"models.{entry}", key)
    else:
        for attribute, value in {**rules["family"][own["family"]], **own["sizes"]}.items():
            text = digits(value) if isinstance(value, int) else value
            found.assume(f"{block}.{attribute}", text, f"{_VERSION}: {name}")
    for one, attribute in rules["sizes"].items():
        found.copy(f"model.{one}", f"{block}.{attribute}")
    if width is not None:
        found.set(f"{block}.ffn", digits(width), f"model.{_WIDTH[0]}")
    for one, read in windows.items():
        for attribute, text in read.items():
            found.set(f"{block}.{attribute}", text, f"model.{one}")
    for one in _HEAD_NORMS:
        if found.switch(f"model.{one}"):
            found.set(f"{block}.qk_norm_whole", "off", f"model.{one}")
    found.assume("training.model", "olmo", f"{_VERSION}: {name}")


def _count_layers(found: SettingCollector, own: Mapping[str, Any]) -> int | None:
    """Return the layer count of a model: of the file, or of its class method."""
    return found.whole("model.n_layers") or own.get("layers") or own["sizes"]["layers"]


def _read_width(found: SettingCollector, own: Mapping[str, Any]) -> int | None:
    """Return the MLP width computed from two arguments and two thirds of 4 x d_model."""
    hidden = own.get("hidden") or own.get("sizes", {}).get("hidden")
    factor, multiple = found.value(f"model.{_WIDTH[0]}"), found.whole(f"model.{_WIDTH[1]}")
    if not isinstance(factor, int | float) or not multiple or hidden is None:
        return None
    return -(-int(factor * int(8 * hidden / 3)) // multiple) * multiple


def _read_window(found: SettingCollector, key: str, count: int | None) -> Mapping[str, str]:
    """Return the length of the attention window, and the layers with full attention.

    If the first layer has full attention, the pattern starts at the second. Several window lengths
    in one model are not supported.
    """
    if found.value(key) == _NOTHING:
        return {"window": "0", "full_every": "0"}
    pattern = found.value(f"{key}.pattern")
    if count is None or not isinstance(pattern, list) or not pattern:
        return {}
    lengths = {one for one in pattern if one != -1}
    if len(lengths) != 1 or not all(isinstance(one, int) and one > 0 for one in lengths):
        return {}
    first, last = (found.value(f"{key}.{one}", True) is True for one in (_FIRST, _LAST))
    full = [
        layer
        for layer in range(count)
        if (first and not layer)
        or (last and layer == count - 1)
        or pattern[(layer - first) % len(pattern)] == -1
    ]
    return {"window": digits(lengths.pop()), **dict(settings_of_full(full, count))}


def _batch(found: SettingCollector) -> None:
    """Read the batch sizes, given in tokens."""
    sequence = found.whole(_SEQUENCE)
    if sequence is None:
        if found.value(_SEQUENCE) is None and not found.keys_below(_SEQUENCE):
            found.ask(
                "training.sequence", "no `max_sequence_length`", ["--set training.sequence=4096"]
            )
        return
    found.set("training.sequence", digits(sequence), _SEQUENCE)
    sizes, batch = found.value(_SIZES), _BATCH
    if found.value(_SCHEDULES, True) is False:
        found.skip(_SIZES, "the scheduler of batch sizes is off")
    elif isinstance(sizes, list) and len(sizes) == 1 and isinstance(sizes[0], int):
        batch = _SIZES
    elif _SIZES in found:
        known = [one for one in sizes if isinstance(one, int)] if isinstance(sizes, list) else []
        counts = [digits(one // sequence) for one in known] or ["512"]
        answers = [f"--set 'training.global_batch={one} sequences'" for one in counts]
        reason = "the batch size changes during the run, but parcost evaluates one batch size"
        found.ask("training.global_batch", reason, answers, _SIZES)
    for key, path in ((_MICRO, "micro_batch"), (batch, "global_batch")):
        tokens = sizes[0] if key == _SIZES else found.whole(key)
        if tokens is None:
            if not found.keys_below(key):
                ways = {"micro_batch": "1", "global_batch": "512 sequences"}
                answer = f"--set 'training.{path}={ways[path]}'"
                found.ask(f"training.{path}", f"no `{key}`", [answer])
        elif tokens % sequence:
            message = f"{tokens} tokens are not a multiple of max_sequence_length = {sequence}"
            found.problem(key, message)
        else:
            unit = " sequences" if path == "global_batch" else ""
            value = f"{digits(tokens // sequence)}{unit}"
            if found.is_assumed(_SEQUENCE) and not found.is_assumed(key):  # for another length
                value = {
                    "micro_batch": f"{digits(tokens)} / training.sequence",
                    "global_batch": f"{digits(tokens)} tokens",
                }[path]
            found.set(f"training.{path}", value, key)


def _layout(found: SettingCollector) -> None:
    """Read the degrees, and the shard group of the weights."""
    for name, path in (("tp", "tp"), ("cp", "cp"), ("pp", "pp"), ("ep", "ep")):
        section = f"{_MODULE}.{name}_config"
        degree = found.whole(f"{section}.degree")
        if degree is not None:
            found.set(f"layout.{path}", digits(degree), f"{section}.degree")
            if name == "tp" and degree > 1:
                why = f"{_VERSION}: tensor parallelism shards norms (SequenceParallel)"
                found.assume("layout.sequence_parallel", "on", why)
            if name == "tp" and found.switch(f"{section}.enable_async"):
                found.set("overlap.tensor", "pipelined", f"{section}.enable_async")
        elif not found.keys_below(section) and name != "ep":
            found.assume(f"layout.{path}", "1", f"{_VERSION}: no {name}_config")
        elif found.keys_below(section):
            answers = [f"--set layout.{path}=2"]
            found.ask(f"layout.{path}", f"the degree of `{name}_config` is unknown", answers)
    kind = str(found.value(f"{_MODULE}.cp_config", "")).rpartition(".")[2]
    algorithm = table(TOOL)["context"].get(kind)
    if algorithm is not None:
        found.set("context.algorithm", algorithm, f"{_MODULE}.cp_config")
    elif kind:
        answers = ["--set context.algorithm=ring", "--set context.algorithm=ulysses"]
        found.ask("context.algorithm", f"`{kind}` is not read", answers)
    if found.keys_below(f"{_MODULE}.pp_config"):
        points = f"{_MODULE}.pp_config.split_points"
        if points in found:
            reason = "`split_points`, which sets the layers of each stage, is not supported"
            found.ask("schedule.stages", reason, ["--set 'schedule.stages=(8, 8)'"], points)
        schedule = f"{_MODULE}.pp_config.schedule"
        words: Mapping[str, str] = table(TOOL)["schedules"]
        word = words.get(str(found.value(schedule, "")).lower())
        if word is not None:
            found.set("schedule.kind", word, schedule)
            if word == "interleaved":
                found.assume("schedule.chunks", "2", f"{_VERSION}: two stages for each rank")
        else:
            found.ask(
                "schedule.kind",
                "the schedule is not supported",
                ["--set schedule.kind=one_f_one_b"],
            )
    _data_parallel(found)


def _data_parallel(found: SettingCollector) -> None:
    key = f"{_DATA}.name"
    if not found.keys_below(_DATA):
        found.assume("layout.zero", "0", f"{_VERSION}: no dp_config")
        return
    kind = str(found.value(key, ""))
    if kind not in ("fsdp", "hsdp", "ddp"):
        found.ask(
            "layout.zero", "this kind of data parallelism is not supported", ["--set layout.zero=3"]
        )
        return
    found.set("layout.zero", "0" if kind == "ddp" else "3", key)
    shard, copies = (found.whole(f"{_DATA}.{one}") for one in ("shard_degree", "num_replicas"))
    if kind != "hsdp":
        return
    if shard is not None:
        found.set("sharding.shard", digits(shard), f"{_DATA}.shard_degree")
    elif copies is not None:
        value = f"layout.dp * layout.cp / {copies}"
        found.set("sharding.shard", value, f"{_DATA}.num_replicas")
    else:
        reason = f"{_VERSION}: hsdp shards within a node, but the file does not state its size"
        found.ask("sharding.shard", reason, ["--set sharding.shard=8"], key)


def _precision(found: SettingCollector) -> None:
    """Read the data types, and the optimizer."""
    narrow = f"{_MODULE}.float8_config.enabled"
    kind = str(found.value(f"{_MODULE}.optim", "")).rpartition(".")[2]
    if kind not in table(TOOL)["optimizers"]["names"]:
        reason = (
            "precision recipes have the optimizer state of Adam, but the optimizer is "
            f"{kind or 'unknown'}"
        )
        found.ask("precision", reason, _ANSWERS)
    elif found.keys_below(f"{_MODULE}.float8_config") and found.value(narrow, True) is not False:
        reason = "matrix products in 8 bits by torchao, with a recipe that is not supported"
        answers = ("--use catalog.precisions.fp8_torchao", "--use catalog.precisions.bf16_fsdp")
        found.ask("precision", reason, answers, narrow if narrow in found else "")
    types = [f"{_DATA}.param_dtype", f"{_DATA}.reduce_dtype", f"{_MODULE}.autocast_precision"]
    weights, reduced, cast = (found.value(one) for one in types)
    own = found.value("model.dtype", "float32")
    if own != "float32":
        found.ask("precision", f"weights in {own} are not supported", _ANSWERS, "model.dtype")
    elif weights == "bfloat16" and reduced in (None, "float32", "bfloat16"):
        found.use("precisions.bf16_fsdp", types[0])
        if reduced == "bfloat16":
            block = "precision olmo extends bf16_fsdp"
            found.set(f"{block}.reduction", "2 B", types[1])
            found.assume("training.precision", "olmo", "the settings of this file")
    elif weights in (None, "float32") and cast is None:
        found.use(
            "precisions.fp32", why=f"{_VERSION}: param_dtype is the type of the model, float32"
        )
    else:
        found.ask(
            "precision", "the data types of parameters and matrix products cannot be read", _ANSWERS
        )
    if found.switch(f"{_MODULE}.compile_model"):
        found.set("kernels.mode", "compiled", f"{_MODULE}.compile_model")


def _recompute(found: SettingCollector) -> None:
    """Read which blocks are recomputed."""
    key = f"{_RECOMPUTE}.mode"
    if not found.keys_below(_RECOMPUTE):
        found.assume("training.recompute", "none", f"{_VERSION}: no ac_config")
        return
    mode = str(found.value(key, "full"))
    every = found.whole(f"{_RECOMPUTE}.block_interval")
    modules = found.value(f"{_RECOMPUTE}.modules")
    place = key if key in found else ""
    if mode == "full" or (mode == "selected_blocks" and every is not None):
        found.set_or_assume(place, "training.recompute", "full", f"{_VERSION}: mode is full")
        if mode == "selected_blocks" and every is not None:
            found.set("recompute.every", digits(every), f"{_RECOMPUTE}.block_interval")
    elif modules == [_MLP_OF_EVERY]:
        found.set("training.recompute", "none", f"{_RECOMPUTE}.modules")
        found.set("recompute.mlp", "on", f"{_RECOMPUTE}.modules")
    else:
        answers = [f"--set training.recompute={one}" for one in ("full", "selective", "none")]
        why = f"mode `{mode}` is not supported"
        if isinstance(modules, list) and modules:
            read = f"of lists of modules, `{_MLP_OF_EVERY}` alone is read"
            place, why = f"{_RECOMPUTE}.modules", f"`{str(modules[0])[:60]}`: {read}"
        found.ask("training.recompute", why, answers, place)


@hookimpl
def importers() -> list[Importer]:
    """Return the importer of training scripts of OLMo-core."""
    return [OlmoCore()]
