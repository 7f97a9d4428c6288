"""The job: the model by its flavor, the batch, and the options of the other modules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from parcost import record
from parcost_formats.tools.drafts import Option, digits
from parcost_formats.tools.tables import table
from parcost_formats.tools.torchtitan.execution import read_execution
from parcost_formats.tools.torchtitan.options import TitanOptions
from parcost_formats.tools.torchtitan.parallel import ParallelDegrees, integer, read_parallelism

_TOKENS, _STEP, _LENGTH = (
    "training.num_tokens_per_microbatch_per_dp_rank",
    "training.num_tokens_per_train_step",
    "training.max_context_length",
)
_LOCAL, _GLOBAL, _SEQUENCE = (
    "training.local_batch_size",
    "training.global_batch_size",
    "training.seq_len",
)


@record
class Flavor:
    """A catalogue model, its layer count, and whether it has experts."""

    entry: str
    layers: int
    experts: bool


def read_job(options: TitanOptions, place: str, family: str) -> None:
    """Read a configuration; its *place* and the user's *family* identify the model."""
    options.check_switches(table("torchtitan")["switches"]["names"])
    flavor = _flavor(options, place, family)
    layers = flavor.layers if flavor else None
    degrees = read_parallelism(options, layers=layers, experts=flavor.experts if flavor else True)
    if options.budget:
        _tokens(options, degrees)
    else:
        _sequences(options, degrees)
    read_execution(options, degrees)


def _known_families() -> Mapping[str, Mapping[str, Any]]:
    """Return the flavors of each family."""
    present, more = table("torchtitan")["flavors"], table("torchtitan")["more_flavors"]
    return {
        family: {**present.get(family, {}), **more.get(family, {})}
        for family in {**present, **more}
    }


def _flavor(options: TitanOptions, place: str, family: str) -> Flavor | None:
    """Read the model, from its family name or from the path of the file."""
    known = _known_families()
    name, option = options.get("model.name"), options.get("model.flavor")
    if option is None:
        return None
    stated = family or (name.text if name is not None else "")
    stated = str(table("torchtitan")["families"].get(stated, stated))
    flavor = _short(option)
    if stated and stated not in known:
        reason = f"the family `{stated}` is not in parcost's table; known: {', '.join(known)}"
        options.ask_for(name or option, reason, ["--use config.json", "--as llama3"])
        return None
    families = [stated] if stated else [one for one in known if flavor in known[one]]
    if not stated:
        of_place = _family_of(place, known, flavor)
        families = [one for one in families if one == of_place] or families
    if len(families) > 1 or (families and not stated and families[0] != of_place):
        answers = [f"--as {one}" for one in families]
        options.ask_for(
            option, f"cannot tell which model the flavor `{flavor}` belongs to", answers
        )
        return None
    found = known[families[0]].get(flavor) if families else None
    if found is None:
        of = families[0] if families else "any family"
        listed = ", ".join(known[of]) if families else ", ".join(known)
        reason = f"`{option.text}` of {of} is not in parcost's table; known: {listed}"
        options.ask_for(option, reason, [f"--use {_similar(stated, flavor)}"])
        return None
    entry = label = str(found["entry"])
    why = "" if flavor == option.text else f"{option.text} without its attention kernel"
    if "model" in found:
        options.label("model", entry)
        options.set("model.layers", str(found["layers"]), option)
        for attribute, value in found["model"].items():
            options.set(f"model.{attribute}", value, option)
    else:
        options.use(f"models.{entry}", option)
    if options.copy("training.vocab_size", "model.vocabulary") is not None:
        label = entry if "model" in found else "titan"
        options.label("model", label if "model" in found else f"{label} extends {entry}")
    options.set("training.model", label, option, why)
    return Flavor(entry, int(found["layers"]), bool(found.get("experts")))


def _family_of(place: str, known: Iterable[str], flavor: str = "") -> str:
    """Return the family in the name of a folder, or at the start of a file or function.

    >>> _family_of("models/llama3/config_registry.py/job", ["llama3", "llama4"])
    'llama3'
    >>> _family_of("models/qwen3_5/config_registry.py/qwen3_5_4b", ["qwen3"], "4B")
    ''
    """
    *folders, file, last = ["", "", *re.split(r"[/\\]", place.lower().replace("-", "_"))]
    size = re.escape(flavor.lower().replace("-", "_"))
    other = rf"(?!_\d+_{size}(?![a-z0-9]))" if size else ""  # a version of the family
    for part in (last, file):
        found = [
            one
            for one in known
            if re.match(rf"(?:sft_|train_)?{re.escape(one)}(?![a-z0-9]){other}", part)
        ]
        if found:
            return max(found, key=len)
    return next((one for one in reversed(folders) if one in known), "")


def _similar(family: str, flavor: str) -> str:
    """Return the catalogue entry that a flavor names, to choose by an option, or a file.

    The name contains a flavor of the family, or begins with the name of an entry.

    >>> _similar("deepseek_v3", "kimi_k2"), _similar("qwen3", "opt-30B-A3B-deepep")
    ('catalog.models.kimi_k2', 'catalog.models.qwen3_30b_a3b')
    >>> _similar("llama3", "34B")
    'config.json'
    """
    flavors = _known_families().get(family, {})
    near = [one for one in flavors if re.search(rf"(?<![\w.]){re.escape(one)}(?![\w.])", flavor)]
    whole = [
        str(flavors[one]["entry"]) for one in sorted(near, key=len) if "model" not in flavors[one]
    ]
    if whole:
        return f"catalog.models.{whole[-1]}"
    size = re.sub(r"[^a-z0-9]+", "_", flavor.lower())
    names = {f"{size}_", f"{family}_{size}_"}
    entries = [str(one) for one in table("hub")["names"].values() if one != family]
    found = [one for one in entries if any(name.startswith(f"{one}_") for name in names)]
    return f"catalog.models.{max(found, key=len)}" if found else "config.json"


def _short(option: Option) -> str:
    """Return the name of a flavor without a variant suffix."""
    for ending in sorted(table("torchtitan")["variants"]["names"], key=len, reverse=True):
        if option.text.endswith(ending):
            return option.text.removesuffix(ending)
    return option.text


def _sequences(options: TitanOptions, degrees: ParallelDegrees) -> None:
    """Read a batch given in sequences."""
    if options.copy(_SEQUENCE, "training.sequence") is None:
        options.default(_SEQUENCE, "training.sequence", "2048", "seq_len is 2048")
    local = options.whole(_LOCAL)
    option = options.get(_LOCAL)
    count = local or 8
    part = options.get("parallelism.pipeline_parallel_microbatch_size")
    parts = options.get("parallelism.pipeline_parallel_microbatches")
    if degrees.pp > 1 and options.release == "0.0":
        _parts_of_batch(options, parts, degrees, count)
        _global(options, degrees, count)
        return
    if parts is not None:
        options.ignore(parts, "it has no effect without stages")
    if degrees.pp > 1:
        each = options.whole("parallelism.pipeline_parallel_microbatch_size") or 1
        if count % each:
            near = part or option
            if near is not None:
                options.problem(near, f"a local batch of {count} is not a multiple of {each}")
            return
        why = "pipeline_parallel_microbatch_size is 1"
        name = "parallelism.pipeline_parallel_microbatch_size"
        options.set_or_assume(name, "training.micro_batch", digits(each), why)
    else:
        if part is not None:
            options.ignore(part, "it has no effect without stages")
        options.set_or_assume(
            _LOCAL, "training.micro_batch", digits(count), "local_batch_size is 8"
        )
    _global(options, degrees, count)


def _parts_of_batch(
    options: TitanOptions, option: Option | None, degrees: ParallelDegrees, local: int
) -> None:
    """Read the number of micro-batches in a local batch, by default the number of stages."""
    name = "parallelism.pipeline_parallel_microbatches"
    number = options.whole(name) or degrees.pp * degrees.chunks
    near = option or options.get(_LOCAL) or options.get("parallelism.pipeline_parallel_degree")
    if local % number and near is not None:
        message = f"a local batch of {local} is not divisible by {number} micro-batches"
        options.problem(near, message)
    else:
        why = "pipeline_parallel_microbatches is the number of stages"
        options.set_or_assume(name, "training.micro_batch", digits(local // number), why)


def _global(options: TitanOptions, degrees: ParallelDegrees, local: int) -> None:
    option = options.get(_GLOBAL)
    number = integer(options, _GLOBAL)
    if option is None or number is None or number < 0:
        why = "the default of global_batch_size is local_batch_size x data-parallel degree"
        value = f"({digits(local)} * layout.dp) sequences"
        if option is not None and number is not None:
            options.set("training.global_batch", value, option, options.why(why))
        else:
            options.default(_GLOBAL, "training.global_batch", value, why)
        return
    once = local * (degrees.replicas or 0)  # sequences in one run of the pipeline
    if degrees.pp > 1 and once and number > once and number % once == 0:
        runs = f"{number} sequences / ({degrees.replicas} replicas * {local})"
        reason = (
            f"torchtitan fills and drains the pipeline for each local batch, {runs} = "
            f"{number // once} times per step, but parcost runs it once: evaluate the batch of one "
            f"run and multiply its time by {number // once}, or evaluate the whole batch as one "
            "run, with fewer bubbles"
        )
        answers = [f"--set 'training.global_batch={one} sequences'" for one in (once, number)]
        options.ask("training.global_batch", reason, answers, option)
        return
    options.set("training.global_batch", f"{digits(number)} sequences", option)


def _tokens(options: TitanOptions, degrees: ParallelDegrees) -> None:
    """Read a batch given in tokens."""
    length = options.copy(_LENGTH, "training.sequence")
    if length is None:
        options.default(_LENGTH, "training.sequence", "2048", "max_context_length is 2048")
    tokens = options.whole(_TOKENS)
    option = options.get(_TOKENS)
    count, each = tokens or 16_384, length or 2048
    if count % each:
        near = option or options.get(_LENGTH)
        if near is not None:
            message = f"{count} tokens is not a whole number of sequences of {each}"
            help = f"{count // each * each or each} tokens are"
            options.problem(near, message, help)
        return
    why = "num_tokens_per_microbatch_per_dp_rank is 16,384"
    options.set_or_assume(_TOKENS, "training.micro_batch", digits(count // each), why)
    several = options.get("parallelism.num_pp_microbatches")
    if degrees.pp > 1:
        parts = options.whole("parallelism.num_pp_microbatches") or 1
    else:
        parts = 1
        if several is not None:
            options.ignore(several, "it has no effect without stages")
    step = options.get(_STEP)
    number = integer(options, _STEP)
    if step is None or number is None or number < 0:
        value = f"({digits(count * parts)} * layout.dp) tokens"
        if several is not None and degrees.pp > 1:
            options.set("training.global_batch", value, several)
        else:
            why = "num_tokens_per_train_step is one micro-batch per replica"
            options.default(_STEP, "training.global_batch", value, why)
        return
    options.set("training.global_batch", f"{digits(number)} tokens", step)
    if degrees.pp > 1 and several is not None:
        if degrees.replicas and number > count * parts * degrees.replicas:
            why = "the pipeline runs once over the whole batch here"
            options.leave(several, why)
        else:
            options.ignore(several, "it follows from the batch and the micro-batch")
