"""Jobs of Primus with torchtitan as the framework: YAML with its sections under `overrides`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from parcost import ImportFile
from parcost_formats.tools.collector import read_configuration
from parcost_formats.tools.drafts import Draft, Option, texts_of
from parcost_formats.tools.file_importer import FileError
from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.megatron.tools import substitute
from parcost_formats.tools.tables import table, value_of_pattern
from parcost_formats.tools.torchtitan.toml_text import field_name
from parcost_formats.tools.yaml_text import read_mapping

_PRIMUS = table("torchtitan")["primus"]
_VERSION = str(_PRIMUS["version"])
_MODULE = "modules.pre_trainer."
_OVERRIDES = f"{_MODULE}overrides."
_CONFIG = "pre_trainer.yaml"  # of Primus, whose values are the defaults of the table
_TURBO = "primus_turbo"
_NARROW = "-fp8.yaml"
_NARROW_ATTENTION = f"{_TURBO}.enable_attention_float8"


def read_primus(draft: Draft, file: ImportFile) -> dict[str, Option]:
    """Return the fields of a job, its model and configuration; overrides take precedence."""
    return _JobReader(draft, file).read(read_mapping(file.text))


class _JobReader:
    """Reads a job and the files that it names, into options by the names of their fields."""

    def __init__(self, draft: Draft, file: ImportFile) -> None:
        self._draft = draft
        self._file = file
        self._environment = dict(file.options.environment)
        self._fields: dict[str, Option] = {}
        self._files: dict[str, Mapping[str, Option] | None] = {}  # None while one is read

    def read(self, entries: Mapping[str, JsonEntry]) -> dict[str, Option]:
        """Return the fields of a job; keys without effect, and unknown keys, go to the draft."""
        named: dict[str, Option] = {}
        for key, entry in entries.items():
            option = _option(key.removeprefix(_OVERRIDES), entry)
            part = key.removeprefix(_MODULE)
            if option.key != key:
                self._add([option])
            elif key != part and part in ("config", "model"):
                named[part], _ = substitute(option, self._environment)
            elif reason := value_of_pattern(key, _PRIMUS["reasons"]):
                self._draft.ignore(option, reason)
            elif key != part:
                why = "a module of Primus has name, framework, config, model and overrides"
                self._draft.problem(option, why)
            else:
                self._draft.leave(option)
        if "model" in named:
            self._add(self._read_model(named["model"]))
        config = named.get("config", Option(name="config", key="config", texts=(_CONFIG,)))
        self._add(self._read_base(config, config.text).values())
        found = {name: one for name, one in self._fields.items() if self._decides(one)}
        converters = found.get("model.converters")
        if converters is not None:  # Primus-Turbo has kernels for the types of the others
            kept = tuple(one for one in converters.texts if one != _TURBO)
            found["model.converters"] = converters.evolve(texts=kept, value=list(kept))
        return found

    def _add(self, options: Iterable[Option]) -> None:
        """Add fields that earlier files do not set; null hides fields of later files."""
        for option in options:
            found, empty = substitute(option, self._environment)
            self._fields.setdefault(found.name, found.evolve(value=None) if empty else found)

    def _decides(self, option: Option) -> bool:
        """Return whether a field is of torchtitan and set; list it in the draft if it is not."""
        if option.key == _NARROW_ATTENTION and option.value is True:
            why = "attention of Primus-Turbo in 8 bits is not modeled"
            answers = ["--use catalog.precisions.bf16_fsdp", "--use catalog.precisions.fp8_torchao"]
            self._draft.ask("precision", why, answers, option)
        elif option.key.startswith(_TURBO):
            self._draft.ignore(option, "the framework decides how matrix products run")
        elif "sink_level" in option.key:
            self._draft.ignore(option, "it only affects the log")
        else:
            return option.value is not None
        return False

    def _read_model(self, model: Option) -> Iterable[Option]:
        """Return the fields of a model file beside the job, or of a model that Primus ships."""
        found = self._read_file(model, model.text)
        if found is not None:
            return found.values()
        family = _PRIMUS["models"].get(model.text.replace(_NARROW, ".yaml"))
        values: dict[str, object] = {"model.flavor": model.text}
        if family is not None:
            values = {"model.name": family[0], "model.flavor": family[1]}
            if model.text.endswith(_NARROW):
                values["model.converters"] = _PRIMUS["narrow"]
        fact = f"{_VERSION}: {model.text}"
        return [_option(key, _entry(value, model), fact) for key, value in values.items()]

    def _read_base(self, place: Option, name: str) -> Mapping[str, Option]:
        """Return the options of the configuration *name*, beside the job or shipped by Primus.

        *place* is the key of the job that names it. A missing file is an error at *place*.
        """
        found = self._read_file(place, name)
        if found is not None:
            return found
        if name == _CONFIG:
            return {
                key: _option(key, _entry(value), f"{_VERSION}: {key} is {str(value).lower()}")
                for key, value in _PRIMUS["defaults"].items()
            }
        if name not in _PRIMUS["bases"]:
            why = place.unread or f"the file `{name}` is neither beside the job nor part of Primus"
            fix = " ".join(place.answers) or "put it there, or write its sections as overrides"
            self._draft.problem(place, why, fix)
        return {}

    def _read_file(self, place: Option, name: str) -> Mapping[str, Option] | None:
        """Return the options of a file beside the job, with those of the files it builds on.

        A section of the file replaces the same section of included files. It is merged with the
        same section of extended files. Return None if there is no such file.
        """
        text = self._file.neighbor(name) or self._file.neighbor(f"models/{name}")
        if not text:
            return None
        if name in self._files:
            found = self._files[name]
            if found is None:
                self._draft.problem(place, f"the file `{name}` includes itself")
            return found or {}
        try:
            inner = read_configuration(name, text)
        except FileError as error:
            line = text.count("\n", 0, error.start) + 1
            self._draft.problem(place, f"line {line} of `{name}` is not read: {error}")
            return {}
        self._files[name] = None
        own = {key: _option(key, _entry(one.value, place)) for key, one in inner.items()}
        for word in ("includes", "extends"):
            bases: dict[str, Option] = {}
            for one in dict.fromkeys(own.pop(word).texts if word in own else ()):
                bases |= self._read_base(place, one.rpartition("/")[2])
            replaced = {key.partition(".")[0] for key in own} if word == "includes" else set()
            rest = {key: one for key, one in bases.items() if key.partition(".")[0] not in replaced}
            own = {**rest, **own}
        self._files[name] = own
        return own


def _option(key: str, entry: JsonEntry, fact: str = "") -> Option:
    return Option(
        name=field_name(key),
        key=key,
        texts=texts_of(entry.value),
        value=None if entry.value == {} else entry.value,
        start=entry.start,
        end=entry.end,
        assumption=fact,
    )


def _entry(value: object, place: Option | None = None) -> JsonEntry:
    """Return a value as an entry at the place of a key of the job."""
    return JsonEntry(value, place.start if place else 0, place.end if place else 0)
