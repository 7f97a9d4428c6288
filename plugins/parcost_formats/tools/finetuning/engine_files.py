"""Keys of a Trainer job from its launcher, and from files of Accelerate and DeepSpeed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from attrs import evolve

from parcost import ImportFile, PlaceBeside
from parcost_formats.tools.accelerate import Accelerate
from parcost_formats.tools.collector import AUTO, read_configuration
from parcost_formats.tools.deepspeed import DeepSpeed
from parcost_formats.tools.file_importer import FileError
from parcost_formats.tools.finetuning.job_keys import JobKeys
from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.shell.launches import launcher_options
from parcost_formats.tools.shell.scripts import MAY_CHANGE, ShellField, list_places
from parcost_formats.tools.tables import find_preset, is_listed, table
from parcost_formats.tools.unsupported import PROGRAM
from parcost_formats.tools.yaml_text import read_mapping

KIND = "distributed_type"
COUNTS = ("num_processes", "num_machines")
_NO_FILE = (None, False, "", "none")
ENGINE_STEPS = "deepspeed_config.gradient_accumulation_steps"
_STAGE = re.compile(r"(?:zero|stage|(?<![a-z])z)[-_]?([0-3])(?!\d)")
_MORE = re.compile(r"offl|cpu|nvme|infinity|hpz|zpp|plus")  # of which a name has no details
#: Importers of files of an engine, by the key that names such a file.
_ENGINE_FILES = {"config_file": Accelerate(), "deepspeed": DeepSpeed()}


#: Sections of the configuration of Accelerate whose keys are options of its launcher, by prefix.
_FAMILIES = {"fsdp": "fsdp_config", "parallelism": "parallelism_config"}


class EngineFiles:
    """The *entries* of a job by key, including its launcher's and those of the files it names."""

    def __init__(self, rules: Mapping[str, Any], file: ImportFile, job: JobKeys) -> None:
        """Read the keys of *job* by the *rules* of its tool."""
        self.rules, self._file, self._job = rules, file, job
        self.entries = {key: one for key, one in job.entries.items() if key != PROGRAM}
        self.launcher = launcher_options(job.launcher)
        self.doubts: list[tuple[str, str, str]] = []  # of files that are not beside the job
        self.named: dict[str, str] = {}  # reasons for values that the name of such a file has
        self.is_typed = True  # the data types of DeepSpeed are in the file, or those of Trainer
        self.starts_fsdp = False  # by keys of its own
        self.bucket = ("", "")  # elements of a bucket of DeepSpeed, and why
        self.broken: dict[str, str] = {}  # tables that cannot be read, by key
        self._given = {  # files of an engine that the user adds to the job
            key: name
            for key, importer in _ENGINE_FILES.items()
            for name, text in file.others.items()
            if importer.recognizes(name, text)
        }
        self.parts: list[str] = []  # of them, those that are read here
        self.open: dict[str, ShellField] = {}  # options of the launcher that are not known

    def add_all(self) -> None:
        """Add the keys of the launcher, and of configuration files of Accelerate and DeepSpeed."""
        sections = [(flag, flag.partition("_")[0]) for flag in self.launcher if "_" in flag]
        targets = {
            flag: f"{_FAMILIES[family]}.{flag}" for flag, family in sections if family in _FAMILIES
        }
        for flag, target in {**targets, **self.rules["launcher"]}.items():
            word = self.launcher.get(flag)
            if word is None:
                continue
            key, _, value = target.partition(" ")
            entry = JsonEntry(value or _plain_word(word.text), word.start, word.end)
            if value or not word.unread:
                self.entries.setdefault(key, entry)
            else:  # it wins over a configuration, whatever it is
                self.entries[key] = entry
                self.open[key] = word
        for flag in ("config_file", "deepspeed_config_file", "deepspeed_config"):
            word = self.launcher.get(flag)
            if word is None:
                continue
            key = "deepspeed" if flag.startswith("deepspeed") else flag
            self.entries.setdefault(key, JsonEntry(word.text, word.start, word.end))
        self._name_given("config_file")
        if "config_file" in self.entries:
            self._add("config_file", "")
        other = "deepspeed_config.deepspeed_config_file"
        if other in self.entries:
            self.entries.setdefault("deepspeed", self.entries[other])
        if "deepspeed_config.zero_stage" not in self.entries:  # with which there is no such file
            self._name_given("deepspeed")
        self._add_deepspeed()
        self._add_fsdp()
        for key in self.rules["names"]["checkpoint_options"]:
            self._add_inline(key)

    def _name_given(self, key: str) -> None:
        """Use *key* as the name of an engine's file that the user adds, if the job names none."""
        keys = self.rules["names"].get(key, [key])
        stated = [self.entries[one].value for one in keys if one in self.entries]
        if key in self._given and all(value in _NO_FILE for value in stated):
            self.entries[key] = JsonEntry(self._given[key], 0, 1)

    def _add(self, key: str, ahead: str) -> bool:
        """Add the keys of the file that *key* names, with the prefix *ahead*; return whether it was
        found.
        """
        entry = self.entries[key]
        name = str(entry.value)
        named = list_places(name, self._job.script)
        places = [one for one in named if self._file.neighbor(one)]
        text = self._file.neighbor(places[0]) if places else None
        given = self._given.get("config_file" if key == "config_file" else "deepspeed", "")
        if given and key != "fsdp_config" and (not text or base_name(given) == base_name(name)):
            name, text, places = given, self._file.others[given], []
            self.parts.append(given)
        if name.lstrip().startswith("{"):
            text, name = name, "inline.json"
        script = self._job.script
        notes: dict[str, str] = {}
        own: dict[str, PlaceBeside] = {}
        written = script.find_written(name) if script is not None else None
        values, why = find_preset(self.rules, name) if not text and written is None else ({}, "")
        if text:
            try:
                other = read_configuration(
                    f"{name}.json" if text.lstrip()[:1] == "{" else name, text
                )
            except FileError as error:
                self.doubts.append(("layout.zero", f"`{name}`: {error}", key))
                return False
            values = {one: inner.value for one, inner in other.items()}
            if script is not None and places:
                notes = {
                    one: script.assumption(places[0], inner.start, inner.end)
                    for one, inner in other.items()
                }
            if places:
                own = {
                    one: PlaceBeside(places[0], inner.start, inner.end)
                    for one, inner in other.items()
                }
            if places and places[0] != name:
                notes = dict.fromkeys(other, f"`{places[0]}` beside this file, for `{name}`")
        elif not values and not (values := self._known_parts(name)):
            values, why = self._stage_in_name(key, name)
            if not values:
                self._doubt_file(key, name)
                return False
        for one, value in values.items():
            place = f"{ahead}{one}"
            if why and one in COUNTS:
                continue  # users give their own
            if (reason := why or notes.get(one, "")) and place not in self.entries:
                self._job.assumed[place] = reason
            added = JsonEntry(value, entry.start, entry.end, own.get(one))
            self.entries.setdefault(place, added)
        return True

    def _stage_in_name(self, key: str, name: str) -> tuple[dict[str, Any], str]:
        """Return the ZeRO stage in the *name* of a missing file of DeepSpeed, and the reason."""
        script = self._job.script
        stages = {*_STAGE.findall(base_name(name).lower())}
        is_written = script is not None and (script.find_written(name) or script.find_reason(name))
        if key not in self.rules["names"]["deepspeed"] or len(stages) != 1 or is_written:
            return {}, ""
        if _MORE.search(base_name(name).lower()):
            return {}, ""
        (stage,) = stages
        why = f"the name of `{base_name(name)}`, which is not beside the file"
        rest = "the file sets offloading, buckets and recomputation, which are unknown here"
        self.named[key] = f"ZeRO {stage} is assumed from {why}; {rest}"
        self.is_typed = False
        return {"zero_optimization.stage": int(stage)}, why

    def _doubt_file(self, key: str, name: str) -> None:
        """Ask for the sharding, because the file *name* of *key* is missing or unknown."""
        script = self._job.script
        changed = script.find_reason(name) if script is not None else ""
        why = f"and {changed}" if changed else "which is not beside the file"
        is_written = script is not None and script.find_written(name) is not None
        if is_written and not changed.endswith(MAY_CHANGE):
            why = "which the script writes with text that depends on a condition or a variable"
        self.doubts.append(("layout.zero", f"`{key}` names `{name}`, {why}", key))

    def _known_parts(self, name: str) -> dict[str, Any]:
        """Return the values of a file that the script writes.

        None are returned if an unknown value may affect cost.
        """
        script = self._job.script
        text = script.find_partial(name) if script is not None else None
        if script is None or text is None:
            return {}
        ending = ".json" if text.text.lstrip()[:1] == "{" else ".yaml"
        try:
            other = read_configuration(f"{name}{ending}", text.text)
        except FileError:  # it does not state one of these values
            return {}
        plain = [*self.rules["ignored"]["keys"], *COUNTS]
        unknown = [k for k, one in other.items() if script.find_unknown(name, one.start, one.end)]
        is_harmless = all(is_listed(one, plain) for one in unknown)
        return {k: one.value for k, one in other.items() if is_harmless and k not in unknown}

    def _add_inline(self, key: str) -> None:
        """Add the keys of a table that the command line contains as text."""
        entry = self.entries.get(key)
        if entry is None or entry.value is None:
            return
        if not isinstance(entry.value, str):
            self.broken[key] = "a table is expected"
            return
        try:
            inner = read_mapping(entry.value)
        except FileError as error:
            self.broken[key] = str(error)
            return
        for one, each in inner.items():
            added = JsonEntry(each.value, entry.start, entry.end)
            self.entries.setdefault(f"{key}.{one}", added)

    def _add_deepspeed(self) -> None:
        entries = self.entries
        key = next((one for one in self.rules["names"]["deepspeed"] if one in entries), "")
        inner = [one for one in entries if one.startswith("deepspeed.")]
        own = {one: entries.pop(one) for one in ("gradient_accumulation_steps",) if one in entries}
        if inner:
            place = entries[inner[0]]
            entries["deepspeed"] = JsonEntry("inline", place.start, place.end)
            for one in inner:
                entries[one.removeprefix("deepspeed.")] = entries.pop(one)
        elif key and entries[key].value is True:  # of a script with a configuration of its own
            self.is_typed = False
            if "zero_stage" in entries:
                entries["zero_optimization.stage"] = entries.pop("zero_stage")
            else:
                self.doubts.append(("layout.zero", f"`{key}` names no file", key))
        elif key and entries[key].value not in _NO_FILE:
            self._add(key, "")
        elif key:
            entries[key] = evolve(entries[key], value=None)
        steps = entries.pop("gradient_accumulation_steps", None)
        if steps is not None and steps.value != AUTO:
            entries.setdefault(ENGINE_STEPS if own else "gradient_accumulation_steps", steps)
        entries |= own
        size = entries.get("zero_optimization.reduce_bucket_size")
        if size is not None and size.value == AUTO:
            fact = "reduce_bucket_size `auto` is the square of the hidden size"
            square = "training.model.hidden * training.model.hidden"
            self.bucket = (square, f"{table('trainer')['version']}: {fact}")
        for one in [k for k, entry in entries.items() if entry.value == AUTO and _is_left(k)]:
            del entries[one]  # the trainer fills it in

    def _add_fsdp_file(self) -> None:
        """Replace a file that ``fsdp`` names by its keys, ``fsdp`` and ``fsdp_config``."""
        entries, ahead = self.entries, "fsdp file."
        named = entries.get("fsdp")
        name = str(named.value) if named is not None else ""
        if not (name.endswith(".json") or find_preset(self.rules, name)[0]):
            return
        if not self._add("fsdp", ahead):
            return
        for key in [one for one in entries if one.startswith(ahead)]:
            plain, entry = key.removeprefix(ahead), entries.pop(key)
            why = self._job.assumed.pop(key, "")
            if plain != "fsdp" and plain in entries:
                continue
            if not plain.startswith("_"):  # a comment
                entries[plain] = entry
                if why:
                    self._job.assumed[plain] = why

    def _add_fsdp(self) -> None:
        """Convert the FSDP arguments of the trainer into keys of Accelerate."""
        entries = self.entries
        self._add_fsdp_file()
        entry = entries.get("fsdp")
        file = entries.get("fsdp_config")
        is_named = file is not None and isinstance(file.value, str)
        if is_named and self._add("fsdp_config", "fsdp_config."):
            del entries["fsdp_config"]
        for key in [one for one in entries if one.startswith("fsdp_config.")]:
            plain = key.removeprefix("fsdp_config.")
            if not plain.startswith("fsdp_"):
                entries[f"fsdp_config.fsdp_{plain}"] = entries.pop(key)
        version = entries.get("fsdp_version")
        if version is not None:
            entries["fsdp_config.fsdp_version"] = entries.pop("fsdp_version")
        words = str(entry.value if entry else "").replace(",", " ").lower()
        names = re.findall(r"[a-z_0-9]+", words)
        stated = entry is not None and bool(names) and words not in ("false", "none", "[]")
        if not stated and not any(one.startswith("fsdp_config.") for one in entries):
            return
        if KIND in entries and str(entries[KIND].value).upper() != "FSDP" and not stated:
            return
        place = entry or next(e for k, e in entries.items() if k.startswith("fsdp_config."))
        version = entries.get("fsdp_config.fsdp_version")
        second = version is not None and str(version.value) == "2"
        self.starts_fsdp = KIND not in entries
        entries[KIND] = JsonEntry("FSDP", place.start, place.end)
        for name in names:
            if name in self.rules["strategies"] and name not in ("true", "false"):
                known = "fsdp_config.fsdp_reshard_after_forward"
                if known not in entries:
                    known = known if second else "fsdp_config.fsdp_sharding_strategy"
                    entries.setdefault(known, JsonEntry(name, place.start, place.end))
        if "offload" in names:
            offloads = "fsdp_config.fsdp_offload_params"
            entries.setdefault(offloads, JsonEntry(True, place.start, place.end))


def _is_left(key: str) -> bool:
    """Return whether Trainer fills in the value of a DeepSpeed key that is ``auto``."""
    return key.startswith(("zero_optimization.", "optimizer.", "scheduler.", "train_", "gradient_"))


def _plain_word(text: str) -> Any:
    return int(text) if text.isdecimal() and len(text) < 9 else text


def base_name(path: str) -> str:
    """Return the name of a file without its folder."""
    return path.rpartition("/")[2]
