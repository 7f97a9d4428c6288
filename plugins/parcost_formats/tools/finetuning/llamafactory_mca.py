"""Jobs of LLaMA-Factory in Megatron-Core, by its adapter (MCA), which has keys of both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from attrs import evolve

from parcost import ImportedBlock, ImportedKey, ImportedValue, Translation
from parcost_formats.tools.collector import OFF, SettingCollector, digits
from parcost_formats.tools.drafts import Option
from parcost_formats.tools.file_importer import error_at
from parcost_formats.tools.finetuning.job_keys import JobKeys
from parcost_formats.tools.finetuning.trainer import read_devices
from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.megatron import translate_recipe
from parcost_formats.tools.megatron.bridge import read_sections
from parcost_formats.tools.tables import is_listed, table
from parcost_formats.tools.unsupported import PROGRAM

_RULES = table("llamafactory")["megatron"]
#: Keys of jobs whose model has experts.
_DISPATCH = frozenset(("moe_grouped_gemm", "moe_layer_recompute", "moe_shared_expert_overlap"))
_STEPS = "gradient_accumulation_steps"
_LISTED = [
    one
    for tool in ("trainer", "llamafactory")
    for one in (
        *table(tool)["ignored"]["keys"],
        *table(tool).get("megatron", {}).get("ignored", ()),
    )
]


def is_megatron_job(job: JobKeys) -> bool:
    """Return whether a job has keys of Megatron, or the switch of its adapter."""
    switches = (job.entries.get("use_mca"), job.environment.get("USE_MCA"))
    stated = [str(getattr(one, "value", getattr(one, "text", ""))) for one in switches]
    is_on = any(one.lower() in ("1", "true", "y") for one in stated)
    return is_on or not job.entries.keys().isdisjoint(_RULES["signs"])


def read_megatron_job(job: JobKeys) -> Translation:
    """Return the job; its batch is micro-batch x accumulation steps x replicas."""
    entries = {key: one for key, one in job.entries.items() if key != PROGRAM}
    engine = entries.get("deepspeed")
    if engine is not None and engine.value not in OFF:
        message = (
            "`deepspeed`: the job also has keys of Megatron-Core or use_mca: only one of the two "
            "engines trains"
        )
        help = "remove `deepspeed`, or the keys of Megatron-Core and use_mca"
        raise error_at(engine, message, help)
    sections: dict[str, JsonEntry] = {}
    names: dict[str, str] = {}
    assumed = dict(job.assumed)
    for path, value in {**_RULES["defaults"], **_find_defaults(entries)}.items():
        key = path.partition(".")[2]
        sections[path], names[path] = JsonEntry(value, 0, 0), key
        if key not in entries:
            assumed[key] = f"{_RULES['version']}: {key} is {str(value).lower()}"
    ignored: list[Option] = []
    frozen = {one.name for one in _frozen_keys(entries)}
    for key, entry in entries.items():
        if key == _STEPS or key in frozen:
            continue
        if is_listed(key, _LISTED):
            ignored.append(Option(name="", key=key, start=entry.start, end=entry.end))
            continue
        section = "ddp" if f"ddp.{key}" in _RULES["defaults"] else "model"
        path = _RULES["paths"].get(key, f"{section}.{key}")
        sections[path], names[path] = entry, key
    recipe = read_sections(sections, names=names, assumed=assumed)
    recipe.ignored += ignored
    read = translate_recipe(recipe, _RULES["framework"], _RULES["version"])
    return read if read.problems else _add_batch(read, entries, job)


def _find_defaults(entries: Mapping[str, JsonEntry]) -> Mapping[str, object]:
    """Return the defaults that depend on other keys: models/model_config.py of mcore_adapter."""
    wide, experts = (
        one in entries and entries[one].value not in (None, 1)
        for one in ("tensor_model_parallel_size", "expert_model_parallel_size")
    )
    found: dict[str, object] = {"model.sequence_parallel": wide and experts}
    if experts or not _DISPATCH.isdisjoint(entries):
        found["model.moe_token_dispatcher_type"] = "allgather"
    return found


def _add_batch(read: Translation, entries: dict[str, JsonEntry], job: JobKeys) -> Translation:
    """Return a job with its steps of accumulation, its devices, and a note on short sequences."""
    found = SettingCollector(entries, table("llamafactory"))
    read_devices(found, entries, job)
    steps = found.whole(_STEPS) or 1
    why = "batch per device x gradient accumulation steps x replicas"
    batch = ImportedValue(
        name="global_batch", value=f"(micro_batch * {steps} * layout.dp) sequences", assumption=why
    )
    if _STEPS in entries:
        place = entries[_STEPS]
        own = ImportedValue(
            name="micro_batches", value=digits(steps), key=_STEPS, start=place.start, end=place.end
        )
    else:
        why = f"{table('trainer')['version']}: {_STEPS} is 1"
        own = ImportedValue(name="micro_batches", value="1", assumption=why)
    blocks = [_replace(one, [own, batch]) if one.kind == "training" else one for one in read.blocks]
    blocks += [one for one in found.translation().blocks if one.kind == "cluster"]
    reason = "without packing, `cutoff_len` is only the maximum length"
    packed = found.switch("packing")
    short = [] if packed else [ImportedKey(name="packing", reason=reason)]
    return evolve(read, blocks=blocks, missing=[*read.missing, *short, *_frozen_keys(entries)])


def _frozen_keys(entries: Mapping[str, JsonEntry]) -> Iterator[ImportedKey]:
    """Yield the keys of adapters or of a quantized model, which are assumed to have no effect."""
    reason = f"assumed without effect: {_RULES['version']} trains all weights, in 16 bits"
    for key, form in _RULES["frozen"].items():
        entry = entries.get(key)
        if entry is not None and fnmatchcase(str(entry.value).lower(), form):
            yield ImportedKey(name=key, start=entry.start, end=entry.end, reason=reason)


def _replace(block: ImportedBlock, values: Sequence[ImportedValue]) -> ImportedBlock:
    """Return a block in which some values replace the values of the same names."""
    names = {one.name for one in values}
    return evolve(
        block, settings=[*(one for one in block.settings if one.name not in names), *values]
    )
