"""Tools that pass on Megatron-LM arguments: ms-swift, Primus, FlagScale, YAML lists."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from parcost import ImportFile
from parcost_formats.tools.collector import read_configuration
from parcost_formats.tools.drafts import Draft, Option, texts_of
from parcost_formats.tools.file_importer import FileError, error_at
from parcost_formats.tools.interpolation import resolve
from parcost_formats.tools.json_text import JsonEntry, read_object
from parcost_formats.tools.megatron.flags import PATTERNS, known_flags
from parcost_formats.tools.tables import is_listed, table
from parcost_formats.tools.unsupported import unsupported_help
from parcost_formats.tools.yaml_text import read_mapping

_TOOLS = table("megatron_tools")
#: Maps of arguments, of recipes for runs: with flags as keys, or with their names.
_ARGUMENTS = re.compile(r"MODEL_ARGS\.(?=--)|ARGS\.|megatron_args\.")
_OWN_SECTIONS = ("language_model", "model_parallel")  # of a file for --yaml-cfg
_ACTIVATIONS = {"swiglu": "swiglu", "squaredrelu": "squared_relu"}  # flags, by activation_func
_POSITIVE = re.compile(r"0*\.?0*[1-9][\d.]{0,17}")
_QUOTED = re.compile(r"""(["'])(.*)\1""", re.DOTALL)  # for the shell that gets the arguments
#: Keys of Primus that choose DeepEP, with their values.
_TURBO = {"use_turbo_deepep": ("true",), "turbo_sync_free_moe_stage": ("2", "3")}
_DEEPEST = 8  # files that extend one another
_VARIABLE = re.compile(r"\$\{(\w{1,99})(?::([^${}]*))?\}")
_BASES = ("extends", "includes", "bases")  # keys of a file of Primus, new and old
_TRAINERS = ("pre_trainer", "post_trainer", "sft_trainer", "trainer")  # modules that have a job
_MODULE = ("name", "framework", "config", "model")  # keys of a module, beside its overrides

_SIGNS_OF_TITAN = (
    re.compile(r"^modules:", re.MULTILINE),
    re.compile(r"^ +pre_trainer:", re.MULTILINE),
    re.compile(r"^ +framework: *torchtitan\b", re.MULTILINE),
)


class ToolJob:
    """The options of a file, its tool, and its rejected or unread settings.

    *doubts* are files that could not be read, with the reasons. *left* are settings that affect
    cost and could not be used, with the reasons. *model* names a Hugging Face model, *checkpoint* a
    checkpoint with the model. The device count is the product of *devices*. *environment* has
    values of variables. *adapters* are the arguments of LoRA, and its switch as ``class``.
    """

    def __init__(self, tool: str) -> None:
        self.tool = tool
        self.version = str(_TOOLS[tool]["version"]) if tool else ""
        self.options: dict[str, Option] = {}
        self.off: set[str] = set()  # flags that the file turns off
        self.ignored: list[Option] = []
        self.rejected: list[tuple[Option, str]] = []
        self.doubts: list[Option] = []
        self.left: list[tuple[Option, str]] = []
        self.model: Option | None = None
        self.checkpoint: Option | None = None
        self.devices: list[Option] = []
        self.environment: Mapping[str, str] = {}
        self.adapters: dict[str, Option] = {}

    def add(self, option: Option) -> None:
        """Add an option: as a flag, as one without effect, or as a rejected one."""
        settings = _TOOLS[self.tool] if self.tool else {}
        name = settings.get("renames", {}).get(option.name, option.name)
        rejected = settings.get("rejected", {}).get(name)
        if settings.get("off", {}).get(name) == option.text:
            self.off.add(name)
            self.ignored.append(option)
        elif rejected is not None:
            if option.text not in rejected["keep"]:
                self.rejected.append((option, str(rejected["why"])))
            else:
                self.ignored.append(option)
        elif _is_ignored(name, settings.get("ignored", {}).get("names", ())):
            self.ignored.append(option)
        else:
            self.options[name] = option.evolve(name=name)

    def reason(self, option: Option) -> str:
        """Return why an option has no effect, if the list of the tool has its name."""
        settings = _TOOLS[self.tool] if self.tool else {}
        names = (*settings.get("ignored", {}).get("names", ()), *settings.get("rejected", ()))
        return f"{self.version}: it does not affect the step" if option.name in names else ""

    def complete(self) -> None:
        """Add the tool's defaults for options that the file does not state."""
        if not self.tool:
            return
        settings = _TOOLS[self.tool]
        defaults = dict(settings["defaults"])
        if self.model is None:
            defaults |= {} if self.doubts else settings.get("model_defaults", {})
        else:
            defaults |= {"hidden_dropout": "0.0", "attention_dropout": "0.0"}
        if self.doubts or "num_experts" not in self.options:  # a model with experts has its own
            defaults.pop("moe_token_dispatcher_type", None)
        for name in self.off:
            defaults.pop(name, None)
        for name, value in defaults.items():
            fact = f"{self.version}: {name} is {value}"
            one = Option(name=name, key=name, texts=(value,), assumption=fact)
            self.options.setdefault(name, one)


def _is_ignored(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a key matches *patterns*; with wildcards they match no flag of Megatron-LM."""
    return name in patterns or (name not in known_flags() and is_listed(name, patterns))


def is_titan_of_primus(text: str) -> bool:
    """Return whether a YAML text is a job of Primus whose framework is torchtitan."""
    return all(sign.search(text) for sign in _SIGNS_OF_TITAN)


def slime_job(draft: Draft, options: Mapping[str, Option]) -> ToolJob | None:
    """Return a supervised fine-tuning of slime; reject a job that generates within its steps."""
    settings = _TOOLS["slime"]
    found = [options[name] for name in settings["signs"] if name in options]
    if len(found) < int(settings["least"]):
        return None
    loss = options.get("loss_type")
    if loss is None or loss.text != "sft_loss":
        draft.problem(found[0], str(settings["why"]), unsupported_help("rollout"))
        return None
    job = ToolJob("slime")
    if "debug_train_only" not in options:
        job.left.append((loss, str(settings["idle"])))
    for option in options.values():
        job.add(option)
    devices = (options.get(f"actor_num_{one}") for one in ("nodes", "gpus_per_node"))
    job.devices = [one for one in devices if one is not None]
    dynamic = job.options.pop("use_dynamic_batch_size", None)
    if dynamic is not None:
        _pack_by_tokens(job, dynamic)
    else:
        fact = f"{job.version}: micro_batch_size is 1"
        size = Option(name="micro_batch_size", key="", texts=("1",), assumption=fact)
        job.options.setdefault("micro_batch_size", size)
    job.complete()
    return job


def _pack_by_tokens(job: ToolJob, dynamic: Option) -> None:
    """Mark the micro-batch as unknown: its number of samples depends on their tokens."""
    names = ("max_tokens_per_gpu", "micro_batch_size")
    limit, size = (job.options.pop(name, None) for name in names)
    job.ignored += [one for one in (limit, size) if one is not None]
    shown = "--max-tokens-per-gpu" if limit is None else " ".join([limit.key, *limit.texts])
    ranks = job.options.get("context_parallel_size", Option(name="", key="", texts=("1",)))
    length = job.options.get("seq_length")
    numbers = [one.text for one in (limit, length, ranks) if one is not None]
    count = "SAMPLES"
    if len(numbers) == 3 and all(one.isdecimal() and int(one) > 0 for one in numbers):
        tokens, sequence, cp = map(int, numbers)
        count = str(max(tokens * cp // sequence, 1))
    why = f"a micro-batch has as many samples as fit into {shown}: state their mean number"
    unread = dynamic.evolve(
        name="micro_batch_size", unread=why, answers=(f"--set training.micro_batch={count}",)
    )
    job.options["micro_batch_size"] = unread


def swift_job(options: Mapping[str, Option]) -> ToolJob:
    """Return the job of a command of ms-swift."""
    job = ToolJob("ms_swift")
    packing = options.get("packing", Option(name="packing", key="packing", texts=("false",)))
    if packing.text == "false":
        why = "without packing, `max_length` is only the maximum length"
        job.left.append((packing, why))
    own = _TOOLS["ms_swift"]["adapters"]
    lora = next((options[one] for one in own["switches"] if one in options), None)
    if lora is not None and lora.text == "lora":
        job.adapters = {one: options[one] for one in own["names"] if one in options}
        job.adapters["class"] = lora
    for option in options.values():
        if option.name == "model":
            job.model = option
        elif (option is lora and job.adapters) or option.name in job.adapters:
            continue
        elif option.name == "megatron_extra_kwargs" and not option.unread:
            _add_more(job, option)
        elif option.name != "packing" or packing.text != "false":
            job.add(option)
    if job.model is None and "num_layers" not in job.options:
        job.checkpoint = job.options.get("load")
    job.complete()
    return job


def _add_more(job: ToolJob, option: Option) -> None:
    """Add the arguments of Megatron-LM in an option that has them as a JSON object."""
    try:
        entries = read_object(option.text)
    except FileError as error:
        job.rejected.append((option, f"a JSON object is expected: {error}"))
        return
    for name, entry in entries.items():
        place = JsonEntry(entry.value, option.start, option.end)
        _add(job, name, place)


def yaml_job(file: ImportFile, entries: Mapping[str, JsonEntry]) -> ToolJob:
    """Return the job of a YAML file with these *entries*.

    The file is an experiment of Primus, or a map of Megatron-LM's arguments.

    Raises:
        FileError: The job is of another framework.
    """
    if any(_ARGUMENTS.match(key) for key in entries):
        job = ToolJob("")
        job.environment = dict(file.options.environment)
        for key, entry in entries.items():
            shown = _ARGUMENTS.sub("", key, count=1)
            quoted = _QUOTED.fullmatch(entry.value) if isinstance(entry.value, str) else None
            if not _ARGUMENTS.match(key):
                job.ignored.append(_option("", key, entry))
            elif quoted is not None:
                _add(job, shown, JsonEntry(quoted[2], entry.start, entry.end))
            else:
                _add(job, shown, entry)
        return job
    sections = {key.partition(".")[0] for key in entries}
    if sections.issuperset(_OWN_SECTIONS):
        return _own_yaml(entries)
    if "modules" in sections:
        return _primus(file, entries)
    return _flagscale(file, entries)


def _own_yaml(entries: Mapping[str, JsonEntry]) -> ToolJob:
    """Return the job of a file for ``--yaml-cfg`` of Megatron-LM: two sections, and plain names."""
    job = ToolJob("")
    gated = any(entry.value == "swiglu" for entry in entries.values())
    for key, entry in entries.items():
        section, dot, last = key.rpartition(".")
        name = last if dot and section in _OWN_SECTIONS else key
        switch = _ACTIVATIONS.get(str(entry.value)) if name == "activation_func" else None
        if name == ("bias_activation_fusion" if gated else "bias_swiglu_fusion"):
            job.ignored.append(_option("", key, entry))  # the other one decides
        elif name == "bias_swiglu_fusion":
            _add(job, "bias_activation_fusion", entry)
        elif switch is not None:
            job.add(_option(switch, key, JsonEntry(True, entry.start, entry.end)))
        elif name == "gated_linear_unit" and entry.value is True and not gated:
            job.add(_option("glu_activation", key, JsonEntry("geglu", entry.start, entry.end)))
        elif name == "gated_linear_unit" or entry.value == "gelu":
            job.ignored.append(_option("", key, entry))  # which activation_func decides
        else:
            _add(job, name, entry)
    groups = job.options.get("num_query_groups")
    if groups is not None:  # here no switch stands beside it
        query = groups.evolve(name="group_query_attention", texts=("true",), value=True)
        job.options.setdefault("group_query_attention", query)
    return job


def _flagscale(file: ImportFile, entries: Mapping[str, JsonEntry]) -> ToolJob:
    """Return the job of FlagScale: an experiment, the file of its training, or both."""
    job = ToolJob("flagscale")
    backend = entries.get("experiment.task.backend")
    if backend is not None and backend.value != "megatron":
        why = f"backend `{backend.value}` of FlagScale is not supported; supported: `megatron`"
        raise error_at(backend, why)
    places = {key: (entry.start, entry.end) for key, entry in entries.items()}
    merged = dict(entries)
    for key, entry in entries.items():
        if not key.startswith("defaults.") or not key.endswith(".train"):
            continue
        name = f"train/{entry.value}.yaml"
        text = file.neighbor(name)
        try:
            if text is None:
                raise error_at(entry, f"`{name}` is not beside this file")
            inner = read_mapping(text)
        except FileError as error:
            unread = _option("", f"train: {entry.value}", entry).evolve(unread=str(error))
            job.doubts.append(unread)
            continue
        merged |= {one: JsonEntry(it.value, entry.start, entry.end) for one, it in inner.items()}
        places |= dict.fromkeys(inner, (entry.start, entry.end))
    for key, entry in resolve(merged).items():
        placed = JsonEntry(entry.value, *places[key])
        section, last = key.partition(".")[0], key.rpartition(".")[2]
        if last in ("nnodes", "nproc_per_node") and section == "experiment":
            job.devices.append(_option(last, key, placed))
        elif section in ("system", "model", "data") and "${" not in str(entry.value):
            _add(job, last, placed)
        else:
            job.ignored.append(_option("", key, placed))
    _widen(job)
    job.complete()
    return job


def _widen(job: ToolJob) -> None:
    """Compute the FFN hidden size as FlagScale does, from two of its own keys."""
    keys = ("multiple_of", "hidden_dim_multiplier", "hidden_size")
    found = [job.options.get(key) for key in keys]
    wrong = [one for one in found if one is not None and not _POSITIVE.fullmatch(one.text)]
    job.rejected += [(one, "a number above 0 is expected") for one in wrong]
    multiple, factor, hidden = (float(one.text) if one and not wrong else 0.0 for one in found)
    place = found[0]
    if place is None or not multiple or not hidden or "ffn_hidden_size" in job.options:
        return
    width = int(int(4 * hidden * 2 / 3) * (factor or 1.0))
    text = str(int(multiple * -(-width // multiple)))
    fact = f"{job.version}: two thirds of 4 x hidden, times hidden_dim_multiplier, rounded up"
    one = place.evolve(name="ffn_hidden_size", texts=(text,), assumption=fact)
    job.options["ffn_hidden_size"] = one
    for key in keys[:2]:
        if (option := job.options.pop(key, None)) is not None:
            job.ignored.append(option)


def _primus(file: ImportFile, entries: Mapping[str, JsonEntry]) -> ToolJob:
    job = ToolJob("primus")
    job.environment = dict(file.options.environment)
    modules = {key.split(".")[1] for key in entries if key.startswith("modules.")}
    module = next((one for one in _TRAINERS if one in modules), "")
    prefix = f"modules.{module}."
    framework = entries.get(f"{prefix}framework")
    if framework is None:
        raise FileError("the file has no trainer of Primus")
    if framework.value != "megatron" or module == "post_trainer":
        shown = f"`{module}` with framework `{framework.value}`"
        why = (
            f"{shown} of Primus is not supported; supported: `pre_trainer` with framework "
            "`megatron`"
        )
        raise error_at(framework, why)
    model = entries.get(f"{prefix}model")
    if model is not None:
        named, _ = substitute(_option("", "model", model), job.environment)
        _extend(job, file, named.text, model, 0)
    for key, entry in entries.items():
        shown = key.removeprefix(f"{prefix}overrides.")
        if shown != key:
            _add(job, shown, entry)
        elif key.startswith(prefix) and key.removeprefix(prefix) not in _MODULE:
            why = f"a module of Primus has {', '.join(_MODULE)} and overrides"
            job.rejected.append((_option("", key, entry), why))
        elif key not in (f"{prefix}framework", f"{prefix}model"):
            job.ignored.append(_option("", key, entry))
    for option in [one for one in job.ignored if one.key in _TURBO]:
        if option.text in _TURBO[option.key]:  # its dispatcher replaces that of Megatron-LM
            job.ignored.remove(option)
            for name, word in (
                ("token_dispatcher_type", "flex"),
                ("flex_dispatcher_backend", "deepep"),
            ):
                job.options[f"moe_{name}"] = option.evolve(name=f"moe_{name}", texts=(word,))
    if module == "sft_trainer":  # whose file has other values than that of a pre_trainer
        for name, value in _TOOLS["primus"]["sft"].items():
            fact = f"{job.version}: {name} is {value}"
            one = Option(name=name, key=name, texts=(value,), assumption=fact)
            job.options.setdefault(name, one)
    if "lora.enabled" in job.options:  # decides over the rest of its section
        rest = [one for one in job.options if one.startswith("lora.") and one != "lora.enabled"]
        job.ignored += [job.options.pop(one) for one in rest]
    job.complete()
    return job


def _extend(job: ToolJob, file: ImportFile, name: str, place: JsonEntry, depth: int) -> None:
    """Add the keys of a model file and of the files that it extends; the file's own keys win."""
    texts = (file.neighbor(name), file.neighbor(f"models/{name}"))
    text = next((one for one in texts if one and one != file.text), None)
    option = _option("", f"model: {name}", place)
    if name in _TOOLS["primus"]["bases"]:  # whose values are the defaults of the table
        return
    last = name.rpartition("/")[2]
    known = _TOOLS["primus"]["models"].get(last)
    if text is None and known and not depth:
        fact = f"{job.version}: {name}"
        note = _TOOLS["primus"]["notes"].get(last, "")
        job.model = option.evolve(texts=(known,), assumption=f"{fact}{note}")
        for pattern, settings in _TOOLS["primus"]["model_settings"].items():
            for key, value in settings.items() if is_listed(last, [pattern]) else ():
                job.add(Option(name=key, key=key, texts=(value,), assumption=fact))
        return
    if text is None or depth > _DEEPEST:
        why = f"`{last}` is neither beside the job nor in a folder `models` there: put it there"
        job.doubts.append(option.evolve(unread=why, texts=()))
        return
    try:
        entries = read_configuration(name, text)
    except FileError as error:
        job.doubts.append(option.evolve(unread=str(error)))
        return
    for key in _BASES:
        values = entries[key].value if key in entries else []
        for one in values if isinstance(values, list) else [values]:
            base = str(one).rpartition("/")[2]
            _extend(job, file, base, place, depth + 1)
    for key, entry in entries.items():
        if key in _BASES:
            continue
        if entry.value is None:
            job.options.pop(_names(key)[0], None)
        else:
            fact = f"{job.version}: {name}"
            placed = JsonEntry(entry.value, place.start, place.end)
            _add(job, key, placed, fact)


def _add(job: ToolJob, key: str, entry: JsonEntry, why: str = "") -> None:
    """Add a key and its value as a flag."""
    name, off = _names(key)
    if entry.value is None:  # as if it were left out
        job.ignored.append(_option("", key, entry))
        return
    option = _option(name, key, entry).evolve(assumption=why)
    option, empty = substitute(option, job.environment)
    if empty:
        job.ignored.append(option)
        return
    if off and isinstance(entry.value, bool):
        option = option.evolve(texts=("false" if entry.value else "true",))
    job.add(option)


def substitute(option: Option, environment: Mapping[str, str]) -> tuple[Option, bool]:
    """Return an option with variables such as ``${TP:1}`` replaced, and whether it is null."""
    value = option.value
    if not isinstance(value, str) or "${" not in value:
        return option, False
    notes: list[str] = []
    lacking: list[str] = []

    def replace(match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        if name in environment:
            notes.append(f"--set-env {name}={environment[name]}")
            return environment[name]
        if default is None:
            lacking.append(name)
            return match[0]
        notes.append(f"`{name}` is not set in the file: its default there")
        return default

    text = _VARIABLE.sub(replace, value)
    if lacking:
        answers = tuple(f"--set-env {name}=VALUE" for name in lacking)
        why = f"`{lacking[0]}` is a variable of the environment"
        return option.evolve(unread=why, answers=answers), False
    note = "; ".join(dict.fromkeys([*notes, option.assumption])).rstrip("; ")
    found = {"true": True, "false": False}.get(text.lower(), text)
    texts = texts_of(found)
    return option.evolve(texts=texts, value=found, assumption=note), text in ("null", "")


def _names(key: str) -> tuple[str, bool]:
    """Return the flag for a key, and whether the flag has the opposite meaning."""
    name = key.lstrip("-").replace("-", "_")
    renamed = str(table("megatron")["bridge"]["renames"].get(name, name))
    plain = renamed.removeprefix("not ")
    return str(table("megatron")["aliases"].get(plain, plain)), renamed != plain


def _option(name: str, key: str, entry: JsonEntry) -> Option:
    value = entry.value
    if name in table("megatron")["switches"]["names"] and value in (0, 1):
        value = bool(value)
    return Option(
        name=name,
        key=key,
        texts=(str(value),) if name in PATTERNS and isinstance(value, list) else texts_of(value),
        start=entry.start,
        end=entry.end,
        value=value,
    )
