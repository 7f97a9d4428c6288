"""Tools that pass arguments of Megatron-LM on: ms-swift, Primus, and lists of arguments in YAML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parcost import ImportFile, ImportProblem
from parcost_plugins.importers.collector import read_configuration
from parcost_plugins.importers.drafts import Draft, Option
from parcost_plugins.importers.json_text import JsonEntry
from parcost_plugins.importers.tables import is_listed, table

_TOOLS = table("megatron_tools")
_ARGUMENTS = "MODEL_ARGS."
_DEEPEST = 8  # files that extend one another
_FALSE = "false"


class ToolJob:
    """The options of a file, the tool that has them, and what it rejects or leaves open.

    *doubts* are files that are not read, with their reasons. *model* names one of Hugging Face.
    """

    def __init__(self, tool: str) -> None:
        self.tool = tool
        self.version = str(_TOOLS[tool]["version"]) if tool else ""
        self.options: dict[str, Option] = {}
        self.ignored: list[Option] = []
        self.rejected: list[tuple[Option, str]] = []
        self.doubts: list[Option] = []
        self.model: Option | None = None

    def add(self, option: Option) -> None:
        """Add an option, or note why the tool's job cannot be read."""
        settings = _TOOLS[self.tool] if self.tool else {}
        name = settings.get("renames", {}).get(option.name, option.name)
        rejected = settings.get("rejected", {}).get(name)
        if rejected is not None:
            if option.text not in rejected["keep"]:
                self.rejected.append((option, str(rejected["why"])))
            else:
                self.ignored.append(option)
        elif is_listed(name, settings.get("ignored", {}).get("names", ())):
            self.ignored.append(option)
        else:
            self.options[name] = option.evolve(name=name)

    def complete(self) -> None:
        """Add the defaults of the tool for what the file does not state."""
        if not self.tool:
            return
        settings = _TOOLS[self.tool]
        defaults = dict(settings["defaults"])
        if self.model is None:
            defaults |= settings.get("model_defaults", {})
        else:
            defaults |= {"hidden_dropout": "0.0", "attention_dropout": "0.0"}
        for name, value in defaults.items():
            fact = f"{self.version}: {name} is {value}"
            one = Option(name=name, key=name, texts=(value,), assumption=fact)
            self.options.setdefault(name, one)


def reject_reinforcement(draft: Draft, options: Mapping[str, Option]) -> None:
    """Reject a job of slime, which generates within its steps."""
    found = [options[name] for name in _TOOLS["slime"]["signs"] if name in options]
    if len(found) > 1:
        draft.problem(found[0], str(_TOOLS["slime"]["why"]))


def swift_job(options: Mapping[str, Option]) -> ToolJob:
    """Return the job of a command of ms-swift."""
    job = ToolJob("ms_swift")
    for option in options.values():
        if option.name == "model":
            job.model = option
        else:
            job.add(option)
    job.complete()
    return job


def yaml_job(file: ImportFile) -> ToolJob | ImportProblem:
    """Return the job of a YAML file: of Primus, or a map of arguments."""
    entries = read_configuration(file.name, file.text)
    if isinstance(entries, ImportProblem):
        return entries
    if any(key.startswith(_ARGUMENTS) for key in entries):
        job = ToolJob("")
        for key, entry in entries.items():
            shown = key.removeprefix(_ARGUMENTS)
            if shown != key and shown.startswith("--"):
                _add(job, shown, entry)
            else:
                job.ignored.append(_option("", key, entry))
        return job
    return _primus(file, entries)


def _primus(file: ImportFile, entries: Mapping[str, JsonEntry]) -> ToolJob | ImportProblem:
    job = ToolJob("primus")
    modules = {key.split(".")[1] for key in entries if key.startswith("modules.")}
    module = next((one for one in ("pre_trainer", "post_trainer", "trainer") if one in modules), "")
    prefix = f"modules.{module}."
    framework = entries.get(f"{prefix}framework")
    if framework is None:
        return ImportProblem(message="no trainer of Primus is in the file", start=0, end=1)
    if framework.value != "megatron" or module == "post_trainer":
        shown = f"`{module}` with framework `{framework.value}`"
        why = f"{shown} of Primus is not read: `pre_trainer` with framework `megatron` is"
        return ImportProblem(message=why, start=framework.start, end=framework.end)
    model = entries.get(f"{prefix}model")
    if model is not None:
        _extend(job, file, str(model.value), model, 0)
    for key, entry in entries.items():
        shown = key.removeprefix(f"{prefix}overrides.")
        if shown != key:
            _add(job, shown, entry)
        elif key not in (f"{prefix}framework", f"{prefix}model"):
            job.ignored.append(_option("", key, entry))
    job.complete()
    return job


def _extend(job: ToolJob, file: ImportFile, name: str, place: JsonEntry, depth: int) -> None:
    """Add the keys of a file of a model, and of those that it extends; its own win."""
    text = file.neighbor(name) or file.neighbor(f"models/{name}")
    option = _option("", f"model: {name}", place)
    if name in _TOOLS["primus"]["bases"]:  # whose values are the defaults of the table
        return
    known = _TOOLS["primus"]["models"].get(name.rpartition("/")[2])
    if text is None and known and not depth:
        job.model = option.evolve(texts=(known,), assumption=f"{job.version}: {name}")
        return
    if text is None or depth > _DEEPEST:
        why = "this file is not beside the job, nor in a folder `models` there"
        job.doubts.append(option.evolve(unread=why))
        return
    entries = read_configuration(name, text)
    if isinstance(entries, ImportProblem):
        job.doubts.append(option.evolve(unread=entries.message))
        return
    for key in ("extends", "includes"):
        values = entries[key].value if key in entries else []
        for one in values if isinstance(values, list) else [values]:
            base = str(one).rpartition("/")[2]
            _extend(job, file, base, place, depth + 1)
    for key, entry in entries.items():
        if key in ("extends", "includes"):
            continue
        if entry.value is None:
            job.options.pop(_names(key)[0], None)
        else:
            fact = f"{job.version}: {name}"
            placed = JsonEntry(entry.value, place.start, place.end)
            _add(job, key, placed, fact)


def _add(job: ToolJob, key: str, entry: JsonEntry, why: str = "") -> None:
    """Add a key and its value as a flag has them."""
    name, off = _names(key)
    if entry.value is None:  # as if it were left out
        job.ignored.append(_option("", key, entry))
        return
    option = _option(name, key, entry).evolve(assumption=why)
    if off and isinstance(entry.value, bool):
        option = option.evolve(texts=(_FALSE if entry.value else "true",))
    job.add(option)


def _names(key: str) -> tuple[str, bool]:
    """Return the name of a flag for a key, and whether the flag turns the key off."""
    name = key.lstrip("-").replace("-", "_")
    renamed = str(table("megatron")["bridge"]["renames"].get(name, name))
    plain = renamed.removeprefix("not ")
    return str(table("megatron")["aliases"].get(plain, plain)), renamed != plain


def _option(name: str, key: str, entry: JsonEntry) -> Option:
    return Option(
        name=name,
        key=key,
        texts=_texts(entry.value),
        start=entry.start,
        end=entry.end,
        value=entry.value,
    )


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, bool):
        return ("true" if value else _FALSE,)
    if isinstance(value, list):
        return tuple(str(one) for one in value)
    return () if value is None else (str(value),)
