"""Jobs of Primus with torchtitan as the framework: YAML with its sections under `overrides`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from parcost import ImportFile, ImportProblem
from parcost_formats.tools.collector import read_configuration
from parcost_formats.tools.drafts import Draft, Option
from parcost_formats.tools.megatron.tools import substitute
from parcost_formats.tools.tables import table
from parcost_formats.tools.torchtitan.python_text import texts
from parcost_formats.tools.torchtitan.toml_text import field_name

_PRIMUS = table("torchtitan")["primus"]
_VERSION = str(_PRIMUS["version"])
_MODULE = "modules.pre_trainer."
_TURBO = "primus_turbo"
_NARROW = "-fp8.yaml"
_NARROW_ATTENTION = f"{_TURBO}.enable_attention_float8"


def read_primus(draft: Draft, file: ImportFile) -> dict[str, Option] | ImportProblem:
    """Return the fields of a job, its model file and Primus's defaults; the job's own keys win."""
    entries = read_configuration(file.name, file.text)
    if isinstance(entries, ImportProblem):
        return entries
    found: dict[str, Option] = {}
    environment = dict(file.options.environment)
    model: Option | None = None
    for key, entry in entries.items():
        shown = key.removeprefix(f"{_MODULE}overrides.")
        option = _option(shown, entry.value).evolve(start=entry.start, end=entry.end)
        option, empty = substitute(option, environment)
        if key == f"{_MODULE}model":
            model = option
        elif option.key == _NARROW_ATTENTION and option.value is True:
            why = "attention of Primus-Turbo in 8 bits is not in the language"
            answers = ["--use catalog.precisions.bf16_fsdp", "--use catalog.precisions.fp8_torchao"]
            draft.ask("precision", why, answers, option)
        elif shown == key or "sink_level" in key or shown.startswith(_TURBO):
            draft.ignore(option, "the framework decides how products run")
        elif option.value is not None and not empty:
            found[option.name] = option
    options = [] if model is None else [*_of_model(file, model)]
    for key, value in _PRIMUS["defaults"].items():
        why = f"{_VERSION}: {key} is {str(value).lower()}"
        options.append(_option(key, value).evolve(assumption=why))
    for option in options:
        found.setdefault(option.name, option)
    converters = found.get("model.converters")
    if converters is not None:  # Primus-Turbo has kernels for the types of the others
        kept = tuple(one for one in converters.texts if one != _TURBO)
        found["model.converters"] = converters.evolve(texts=kept, value=list(kept))
    return found


def _option(key: str, value: object) -> Option:
    return Option(name=field_name(key), key=key, texts=texts(value), value=value)


def _of_model(file: ImportFile, model: Option) -> Iterator[Option]:
    """Yield the fields of a model file beside the job, or those of a model that Primus brings."""
    text = file.neighbor(model.text) or file.neighbor(f"models/{model.text}")
    inner = read_configuration(model.text, text) if text else None
    family = _PRIMUS["models"].get(model.text.replace(_NARROW, ".yaml"))
    values: dict[str, object] = {"model.flavor": model.text}
    if isinstance(inner, Mapping):
        values = {key: one.value for key, one in inner.items() if key.startswith("model.")}
    elif family is not None:
        values = {"model.name": family[0], "model.flavor": family[1]}
        if model.text.endswith(_NARROW):
            values["model.converters"] = _PRIMUS["narrow"]
    for key, value in values.items():
        one = _option(key, value)
        fact = f"{_VERSION}: {model.text}"
        yield one.evolve(start=model.start, end=model.end, assumption=fact)
