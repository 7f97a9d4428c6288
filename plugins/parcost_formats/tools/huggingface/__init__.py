"""``config.json`` of Hugging Face transformers, read as a block ``model``.

A configuration states sizes. Norms, biases and other properties depend on the code of the model
type. The table has them for each model type, with the defaults of the configuration class. A model
type without an entry is rejected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import product

from attrs import evolve

from parcost import (
    ImportedKey,
    Importer,
    ImportFile,
    ImportOptions,
    Translation,
    hookimpl,
    record,
)
from parcost_formats.tools.collector import SettingCollector
from parcost_formats.tools.file_importer import FileError, error_at
from parcost_formats.tools.finetuning.adapters import read_adapters
from parcost_formats.tools.hub import read_hub_model
from parcost_formats.tools.huggingface.families import TABLE, is_set, nearest_family
from parcost_formats.tools.huggingface.model import ABSENT, Configuration
from parcost_formats.tools.job_importer import JobImporter
from parcost_formats.tools.json_text import JsonEntry, read_object
from parcost_formats.tools.keys import KeyNames
from parcost_formats.tools.subjects import MODEL_SUBJECTS

TOOL = "huggingface"
_NOTHING = JsonEntry("", 0, 1)
_TIED = "tie_word_embeddings"


def _peft_names() -> frozenset[str]:
    """Return the keys of an `adapter_config.json`."""
    own, plain = TABLE["peft"]["adapters"], TABLE["peft"]["ignored"]["keys"]
    lists = [own[name] for name in ("kinds", "rank", "targets", "dropout", "rejected")]
    return frozenset().union(plain, *lists)


class HuggingFace(JobImporter):
    """Configurations of models."""

    name = TOOL
    subjects = MODEL_SUBJECTS
    describes = ("model",)
    keys = KeyNames(TOOL, _peft_names)

    def recognizes(self, name: str, text: str) -> bool:
        """Return whether the text is JSON with keys that identify a model configuration."""
        return name.endswith(".json") and any(
            all(f'"{key}"' in text for key in group.split()) for group in TABLE["identify"]
        )

    def read_file(self, file: ImportFile) -> Translation:
        """Return the model that a configuration describes, read with the options of the user."""
        return _translation(file.name, read_object(file.text), file.options)


@record(kw_only=True)
class _TextPart:
    """The entries of the text model, below *prefix*, and its vision or audio *towers*.

    *kind* is the entry of *model_type*. *left* are entries of other parts.
    """

    prefix: str
    entries: Mapping[str, JsonEntry]
    model_type: str
    kind: JsonEntry
    towers: Sequence[str]
    left: Sequence[str]


def _translation(
    name: str, entries: Mapping[str, JsonEntry], options: ImportOptions
) -> Translation:
    """Return the model of the text part; a file that describes no such model is an error."""
    if "peft_type" in entries:
        return _read_adapters(entries)
    for key, what in TABLE["formats"].items():
        if key in entries and "model_type" not in entries:
            advice = "write the `model` block by hand, or use one of `catalog.models`"
            raise error_at(entries[key], f"{what} {ABSENT}", advice)
    outer = entries.get("model_type", _NOTHING)
    outer_type = str(outer.value)
    part = _text_part(entries, outer)
    composite = outer_type in TABLE["composite"] or bool(part.towers)
    lacking = TABLE["lacking"]["types"]
    if outer_type in lacking and not options.family:
        raise error_at(
            outer, f"`{outer_type}`: {lacking[outer_type]} {ABSENT}", TABLE["help"]["lacking"]
        )
    if composite and not options.text_only:
        raise _tower_error(outer, part.towers)
    model_type = options.family or part.model_type
    if not options.family:
        _check_head(entries, model_type)
    if model_type in lacking:
        raise error_at(
            part.kind, f"`{model_type}`: {lacking[model_type]} {ABSENT}", TABLE["help"]["lacking"]
        )
    if model_type not in TABLE["families"]:
        raise _unknown_type(part.kind, model_type, part.entries, bool(options.family))
    left = [
        ImportedKey(
            name=key,
            start=entries[key].start,
            end=entries[key].end,
            reason="only the text model is evaluated",
        )
        for key in part.left
    ]
    marks = list(_marks(options, part, composite))
    names = [f"{one} (left out by --text-only)" for one in part.towers]
    if composite and not names:
        names = ["the default vision tower (left out by --text-only)"]
    if options.family:
        names.append(f"model_type (read as {options.family} by --as)")
    missing = [
        ImportedKey(name=one, start=outer.start, end=outer.end, reason="; ".join(marks))
        for one in names
    ]
    found = Configuration(
        name, part.entries, model_type, part.prefix, marks, by_keys=bool(options.family)
    )
    return evolve(found.translation(left), missing=missing)


def _read_adapters(entries: Mapping[str, JsonEntry]) -> Translation:
    """Return the adapters of an `adapter_config.json` of PEFT, and its model."""
    kind, rules = entries["peft_type"], TABLE["peft"]
    if str(kind.value).lower() != "lora":
        advice = (
            "only LoRA is supported; write the `model` block by hand, or use one of "
            "`catalog.models`"
        )
        raise error_at(kind, f"PEFT adapters of the kind `{kind.value}` are {ABSENT}", advice)
    found = SettingCollector(entries, rules)
    key = "base_model_name_or_path"
    name = found.value(key)
    if isinstance(name, str):
        read_hub_model(found, key, name)
    read_adapters(found, rules, key)
    return found.translation()


def _text_part(entries: Mapping[str, JsonEntry], outer: JsonEntry) -> _TextPart:
    """Return the part of a configuration that describes its text model."""
    towers = [
        tower
        for tower in TABLE["towers"]["keys"]
        if any(key.startswith(f"{tower}.") for key in entries)
    ]
    prefix = next(
        (one for one in TABLE["text_parts"]["keys"] if any(k.startswith(one) for k in entries)), ""
    )
    beside = tuple(f"{tower}." for tower in towers)
    inner = {
        key.removeprefix(prefix): entry
        for key, entry in entries.items()
        if key.startswith(prefix) and (prefix or not key.startswith(beside))
    }
    if prefix and _TIED in entries:  # the head of a model with towers is stated beside them
        inner.setdefault(_TIED, entries[_TIED])
    kind = inner.get("model_type", outer) if prefix else outer
    default = TABLE["composite"].get(str(outer.value), "")
    if default and (not prefix or "model_type" not in inner):
        kind = JsonEntry(default, outer.start, outer.end)
    read = {*inner} if not prefix else {f"{prefix}{key}" for key in inner} | {_TIED}
    return _TextPart(
        prefix=prefix,
        entries=inner,
        model_type=str(kind.value) if isinstance(kind.value, str) else "",
        kind=kind,
        towers=towers,
        left=[key for key in entries if key not in read],
    )


def _check_head(entries: Mapping[str, JsonEntry], model_type: str) -> None:
    """Reject a class whose head gives no logits over a vocabulary."""
    entry = entries.get("architectures", _NOTHING)
    names = entry.value if isinstance(entry.value, list) else [entry.value]
    for name, (ending, what) in product(map(str, names), TABLE["heads"].items()):
        if name.endswith(ending):
            advice = TABLE["help"]["lacking"]
            if model_type in TABLE["families"]:
                advice = (
                    f"`--as {model_type}` evaluates this model with the head of a language model"
                )
            raise error_at(entry, f"`{name}`: {what} {ABSENT}", advice)


def _tower_error(outer: JsonEntry, towers: Sequence[str]) -> FileError:
    """Return an error for a model with towers, such as a vision encoder."""
    kinds = sorted({TABLE["towers"]["kinds"].get(tower, "vision") for tower in towers})
    shown = " and ".join(kinds or ["vision"])
    several = "towers" if len(kinds) > 1 else "tower"
    return error_at(
        outer,
        f"`{outer.value}` has a {shown} {several}, which is not modeled yet",
        "evaluate the text part with `--text-only`; parameters and time of the tower are then "
        "left out",
    )


def _marks(options: ImportOptions, part: _TextPart, composite: bool) -> Iterator[str]:
    """Yield the reasons why the model is not exactly the one in the file."""
    if options.family:
        yield f"read as {options.family} because of --as"
    if composite:
        parts = ", ".join(f"`{tower}`" for tower in part.towers) or "the default vision tower"
        yield f"--text-only leaves out the parameters and the time of {parts}"


def _unknown_type(
    entry: JsonEntry, model_type: str, keys: Mapping[str, JsonEntry], asked: bool
) -> FileError:
    """Return an error for an unknown type, with the known type whose keys are most similar."""
    known = f"{len(TABLE['families'])} types are known, such as {', '.join(TABLE['nearest'])}"
    if asked:
        near = get_close_matches(model_type, TABLE["families"], n=1, cutoff=0.5)
        found = f"did you mean `{near[0]}`? " if near else ""
        message = f"`--as {model_type}`: models of the type `{model_type}` are not known"
        return error_at(entry, message, f"{found}{known}")
    message = f"models of the type `{model_type}` are not known"
    if not model_type:
        message = "the file has no `model_type`, which decides norms, biases and heads"
        if isinstance(getattr(keys.get("model_type"), "value", None), list):
            message = "`model_type` is one word, such as `llama`"
    for key, what in TABLE["lacking"]["keys"].items():
        if is_set(keys, key):
            return error_at(entry, f"{message}; `{key}`: {what} {ABSENT}", TABLE["help"]["lacking"])
    nearest = nearest_family(keys)
    advice = f"`--as {nearest}` reads its keys as those of `{nearest}`; " if nearest else ""
    return error_at(entry, message, f"{advice}{known}; or write the `model` block by hand")


@hookimpl
def importers() -> list[Importer]:
    """Return the importer of configurations of Hugging Face."""
    return [HuggingFace()]
