"""The job: model by its flavor, batch, and what the other parts of the package read."""

from __future__ import annotations

from parcost import record
from parcost_plugins.importers.drafts import Option, OptionSet, digits
from parcost_plugins.importers.tables import table
from parcost_plugins.importers.torchtitan.execution import read_execution
from parcost_plugins.importers.torchtitan.parallel import ParallelDegrees, integer, read_parallelism

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
_DEFAULT = "the default of torchtitan"


@record
class Flavor:
    """A model of the catalogue, the number of its layers, and whether it has experts."""

    entry: str
    layers: int
    experts: bool


def read_job(options: OptionSet, *, python: bool) -> None:
    """Read a configuration; one in *python* has the defaults of the main branch."""
    flavor = _flavor(options)
    budget = python and not any(options.has(name) for name in (_LOCAL, _GLOBAL, _SEQUENCE))
    layers = flavor.layers if flavor else None
    experts = flavor.experts if flavor else True
    degrees = read_parallelism(options, layers=layers, experts=experts, python=python)
    if budget:
        _tokens(options, degrees)
    else:
        _sequences(options, degrees)
    read_execution(options, pp=degrees.pp, zero=degrees.zero, recent=budget)


def _flavor(options: OptionSet) -> Flavor | None:
    """Read which model it is."""
    draft = options.draft
    flavors = table("torchtitan")["flavors"]
    name, option = options.get("model.name"), options.get("model.flavor")
    if option is None:
        return None
    if name is None:
        families = [family for family, known in flavors.items() if _short(option) in known]
    else:
        families = [name.text] if name.text in flavors else []
    if name is not None and not families:
        draft.problem(name, f"`{name.text}` is not known", f"known are {', '.join(flavors)}")
        return None
    if len(families) != 1:
        draft.problem(option, "the family of this flavor is not known", "name it in the file")
        return None
    known = flavors[families[0]]
    found = known.get(_short(option))
    if found is None:
        message = f"`{option.text}` of {families[0]} is in no catalogue"
        draft.problem(option, message, f"known are {', '.join(known)}")
        return None
    entry = str(found["entry"])
    why = "" if _short(option) == option.text else f"{option.text} without its attention kernel"
    draft.use(f"catalog.models.{entry}", option=option)
    draft.set("training.model", entry, option, why)
    return Flavor(entry, int(found["layers"]), bool(found.get("experts")))


def _short(option: Option) -> str:
    """Return a flavor without the ending of a variant."""
    for ending in sorted(table("torchtitan")["variants"]["names"], key=len, reverse=True):
        if option.text.endswith(ending):
            return option.text.removesuffix(ending)
    return option.text


def _sequences(options: OptionSet, degrees: ParallelDegrees) -> None:
    """Read a batch that is counted in sequences."""
    draft = options.draft
    if options.copy(_SEQUENCE, "training.sequence", 1) is None:
        options.default(_SEQUENCE, "training.sequence", "2048", _DEFAULT)
    local = options.whole(_LOCAL, 1)
    option = options.get(_LOCAL)
    count = local or 8
    part = options.get("parallelism.pipeline_parallel_microbatch_size")
    if degrees.pp > 1:
        each = options.whole("parallelism.pipeline_parallel_microbatch_size", 1) or 1
        if count % each:
            near = part or option
            if near is not None:
                draft.problem(near, f"a local batch of {count} is no multiple of {each}")
            return
        if part is not None:
            draft.set("training.micro_batch", digits(each), part)
        else:
            name = "parallelism.pipeline_parallel_microbatch_size"
            options.default(name, "training.micro_batch", "1", _DEFAULT)
    else:
        if part is not None:
            draft.ignore(part, "without stages it is not read")
        if option is not None and local is not None:
            draft.set("training.micro_batch", digits(local), option)
        else:
            options.default(_LOCAL, "training.micro_batch", "8", _DEFAULT)
    _global(options, degrees, count)


def _global(options: OptionSet, degrees: ParallelDegrees, local: int) -> None:
    draft = options.draft
    option = options.get(_GLOBAL)
    number = integer(options, _GLOBAL)
    if option is None or number is None or number < 0:
        why = f"{_DEFAULT}: a local batch of each replica"
        value = f"({digits(local)} * layout.dp) sequences"
        if option is not None and number is not None:
            draft.set("training.global_batch", value, option, why)
        else:
            options.default(_GLOBAL, "training.global_batch", value, why)
        return
    draft.set("training.global_batch", f"{digits(number)} sequences", option)
    if degrees.pp > 1 and degrees.replicas and number > local * degrees.replicas:
        why = "the pipeline runs once over the whole batch here, and for each local batch there"
        draft.leave(option, why)


def _tokens(options: OptionSet, degrees: ParallelDegrees) -> None:
    """Read a batch that is counted in tokens."""
    draft = options.draft
    length = options.copy(_LENGTH, "training.sequence", 1)
    if length is None:
        options.default(_LENGTH, "training.sequence", "2048", _DEFAULT)
    tokens = options.whole(_TOKENS, 1)
    option = options.get(_TOKENS)
    count, each = tokens or 16_384, length or 2048
    if count % each:
        near = option or options.get(_LENGTH)
        if near is not None:
            message = f"{count} tokens are no whole sequences of {each}"
            help = f"{count // each * each or each} tokens are"
            draft.problem(near, message, help)
        return
    if option is not None:
        draft.set("training.micro_batch", digits(count // each), option)
    else:
        options.default(_TOKENS, "training.micro_batch", digits(count // each), _DEFAULT)
    several = options.get("parallelism.num_pp_microbatches")
    if degrees.pp > 1:
        parts = options.whole("parallelism.num_pp_microbatches", 1) or 1
    else:
        parts = 1
        if several is not None:
            draft.ignore(several, "without stages it is not read")
    step = options.get(_STEP)
    number = integer(options, _STEP)
    if step is None or number is None or number < 0:
        value = f"({digits(count * parts)} * layout.dp) tokens"
        if several is not None and degrees.pp > 1:
            draft.set("training.global_batch", value, several)
        else:
            why = f"{_DEFAULT}: the tokens of a micro-batch for each replica"
            options.default(_STEP, "training.global_batch", value, why)
        return
    draft.set("training.global_batch", f"{digits(number)} tokens", step)
    if degrees.pp > 1 and several is not None:
        if degrees.replicas and number > count * parts * degrees.replicas:
            why = "the pipeline runs once over the whole batch here"
            draft.leave(several, why)
        else:
            draft.ignore(several, "it follows from the batch and the micro-batch")
