"""The pipeline: its schedule, and the layers of each stage."""

from __future__ import annotations

from collections.abc import Sequence

from parcost_formats.tools.drafts import Option
from parcost_formats.tools.megatron.defaults import ToolOptions
from parcost_formats.tools.megatron.zero_bubble import read_zero_bubble
from parcost_plugins.vocabulary.stages_text import Stage, StagesTextError, stages

#: Frameworks of Megatron-Core, and what they do with layers that do not divide by the stages.
DIVIDING = ("megatron_core", "nemo")
MUST_DIVIDE = (
    "Megatron-Core stops if the layers are not divisible by the stages, unless one of these sets "
    "the split: "
    "{first}, {last}, {layout}"
)
#: The names of these three in the configuration of a model.
IN_MODEL = (
    *("num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage"),
    "pipeline_model_parallel_layout",
)
_LAYOUT = "pipeline_model_parallel_layout"
_VIRTUAL = "num_virtual_stages_per_pipeline_rank"
_PER_VIRTUAL = "num_layers_per_virtual_pipeline_stage"
_ALONE = "standalone_embedding_stage"  # with no layers
_FIRST, _LAST = "decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers"
_EMBEDDING, _LOSS = (
    "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split",
)


def read_schedule(options: ToolOptions, framework: str) -> None:
    """Read the schedule, virtual stages per device, and the layers of stages in a *framework*."""
    degree = options.whole("pipeline_model_parallel_size")
    pp = degree or 1
    names, unread = [_VIRTUAL, _PER_VIRTUAL, _LAYOUT], options.lookup(_LAYOUT)
    if degree == 1 and unread is not None and unread.unread:
        names.remove(_LAYOUT)
        options.skip(_LAYOUT, "one stage has all layers")
    ways = [one for name in names if (one := options.get(name))]
    if len([one for one in ways if one.name != _LAYOUT]) > 1:
        shown = " and ".join(one.key for one in ways)
        for one in ways:
            options.problem(one, f"{shown} cannot be combined", "keep only one of them")
        return
    chunks = _chunks(options, pp)
    if any(one.name == _LAYOUT for one in ways):
        _stages(options, pp, chunks)
    elif _FIRST in options or _LAST in options:
        _end_stages(options, pp, chunks or 1)
    elif pp > 1 and options.on(_ALONE):
        _stages_without_first(options, pp, chunks or 1)
    for name, attribute in ((_EMBEDDING, "count_embedding"), (_LOSS, "count_head")):
        options.copy_switch(name, f"schedule.{attribute}")
    _counts(options)
    if framework in DIVIDING and pp > 1 and not options.has("schedule.stages"):
        _divide(options, pp * (chunks or 1), framework)
    _method(options)
    read_zero_bubble(options, pp, chunks)
    options.copy("microbatch_group_size_per_virtual_pipeline_stage", "schedule.group")
    option = options.get("no_overlap_p2p_communication")
    if option is not None:
        if chunks and chunks > 1 and option.text != "false":
            if pp == 2:
                why = (
                    "without it Megatron-LM interleaves only with 3 stages or more, but there are 2"
                )
                options.problem(option, why, f"remove `{option.key}`")
            options.set("schedule.transfers", "blocking", option)
        else:
            options.ignore(option, "without interleaving, Megatron-LM always waits for messages")


def _divide(options: ToolOptions, stages: int, framework: str) -> None:
    """Assume that the layers are divisible by the stages, unless the file shows it."""
    layers = options.whole("num_layers")
    counted = options.on(_EMBEDDING) + options.on(_LOSS)
    if not any(one in options for one in (_LAYOUT, _FIRST, _LAST)) and (
        layers is None or (layers + counted) % stages
    ):
        flags = (f"--{name.replace('_', '-')}" for name in (_FIRST, _LAST, _LAYOUT))
        names = flags if framework == "megatron_core" else IN_MODEL
        why = MUST_DIVIDE.format(**dict(zip(("first", "last", "layout"), names, strict=True)))
        options.assume("schedule.assignment", "even", why)
        for path in ("layout.pp", "schedule.chunks"):
            options.remark(path, why)


def _method(options: ToolOptions) -> None:
    """Read ``schedules_method`` of FlagScale and MindSpeed: ``dualpipev``, with two chunks."""
    option = options.get("schedules_method")
    if option is None or option.text in ("None", "null", "1f1b"):
        return
    if option.text != "dualpipev":
        options.problem(option, f"`{option.text[:40]}` is not known", "dualpipev is")
        return
    options.set("schedule.kind", "dualpipe_v", option)
    options.set("schedule.chunks", "2", option)


def _counts(options: ToolOptions) -> None:
    """Read the modules that Megatron-DeepSpeed balances: ``type:transformer``."""
    option = options.get("pp_partition_method")
    if option is None:
        return
    kinds = option.text.strip("'\"").lower().removeprefix("type:").split("|")
    if not option.text.strip("'\"").lower().startswith("type:") or "transformer" not in kinds:
        options.leave(option, "the stages have the same layers here: `schedule { stages }`")
    elif "embedding" in kinds:
        for name in ("count_embedding", "count_head"):
            options.set(f"schedule.{name}", "on", option)
    else:
        options.ignore(option, "the stages have the same layers")


def _chunks(options: ToolOptions, pp: int) -> int | None:
    """Read the number of virtual stages per device."""
    option = options.get(_VIRTUAL)
    chunks = options.whole(_VIRTUAL)
    if option is None:
        option = options.get(_PER_VIRTUAL)
        each = options.whole(_PER_VIRTUAL)
        layers = options.whole("num_layers")
        if option is None or each is None:
            return None
        if layers is None:
            options.leave(option, "without --num-layers the number of chunks is unknown")
            return None
        whole = layers + options.on(_EMBEDDING) + options.on(_LOSS)
        if whole % (pp * each):
            why = f"{whole} layers / pp {pp} / {each} is not a whole number of chunks"
            near = [n for n in range(1, whole + 1) if not whole % (pp * n)]
            legal = f"legal are {', '.join(map(str, near[:12]))}" if near else ""
            options.problem(option, why, legal)
            return None
        chunks = whole // pp // each
    if chunks is not None:
        _interleave(options, option, chunks)
    return chunks


def _interleave(options: ToolOptions, option: Option, chunks: int) -> None:
    if chunks > 1:
        options.set("schedule.kind", "interleaved", option)
        options.set("schedule.chunks", str(chunks), option)
    else:
        options.ignore(option, "one chunk per device means no interleaving")


def _stages(options: ToolOptions, pp: int, chunks: int | None) -> None:
    """Read explicitly listed stages; flags that also state *chunks* must agree with them."""
    option = options.get(_LAYOUT)
    assert option is not None
    try:
        found = stages(" ".join(option.texts))
    except StagesTextError as error:
        options.problem(option, str(error), "such as Et*3|(tt|)*29|L")
        return
    layers = options.whole("num_layers")
    count = sum(stage.layers for stage in found)
    if len(found) % pp:
        options.problem(option, f"{len(found)} stages are not a multiple of pp {pp}")
    elif layers is not None and count != layers:
        options.problem(option, f"it has {count} layers, but --num-layers is {layers}")
    elif not _predicts(options, option, found):
        return
    elif chunks is not None and chunks != len(found) // pp:
        other = options.get(_VIRTUAL) or options.get(_PER_VIRTUAL) or option
        shown = (
            f"{option.key} has {len(found) // pp} chunks per device, but {other.key} has {chunks}"
        )
        for one in (option, other):
            options.problem(one, shown, "keep only one of them")
    else:
        _interleave(options, option, len(found) // pp)
        _list(options, option, [stage.layers for stage in found])
        for name in (_VIRTUAL, _PER_VIRTUAL):
            beside = options.get(name)
            if beside is not None:
                why = (
                    f"{option.key} sets the same number of chunks; Megatron-LM rejects both "
                    "together"
                )
                options.leave(beside, why)


def _predicts(options: ToolOptions, option: Option, found: Sequence[Stage]) -> bool:
    """Return whether the stages hold as many MTP layers as the model has."""
    model = options.whole("mtp_num_layers", least=0) or 0
    count = sum(stage.predict for stage in found)
    if count != model:
        message = f"it has {count} layers that predict further tokens, and the model {model}"
        options.problem(option, message)
        return False
    if count != found[-1].predict:
        why = "MTP layers are on the stage of the head here"
        options.leave(option, why)
    return True


def _end_stages(options: ToolOptions, pp: int, chunks: int) -> None:
    """Read the layer counts of the first and last stage, if they differ from the others."""
    first, last = options.whole(_FIRST), options.whole(_LAST)
    option = options.get(_FIRST) or options.get(_LAST)
    layers = options.whole("num_layers")
    if option is None:
        return
    stated = (first or 0) + (last or 0)
    between = pp - (first is not None) - (last is not None)
    if pp < 2 or (layers is None and (chunks > 1 or not between)):
        options.leave(option, "it needs --num-layers and more than one stage")
        return
    if layers is None:  # the model is another file, or one of the catalogue
        rest_of = f"training.model.layers - {stated}"
        if between > 1:
            rest_of = f"({rest_of}) / {between}"
        ends = [str(one) for one in (first, last) if one is not None]
        at = 1 if first is not None else 0
        _list(options, option, [*ends[:at], *[rest_of] * between, *ends[at:]])
        return
    rest = layers - stated
    if rest < 0 or (between and rest % between) or (not between and rest):
        options.problem(
            option, f"the remaining {rest} layers are not divisible by {between} stages"
        )
        return
    each = rest // between if between else 0
    devices = [each] * pp
    devices[0] = first if first is not None else each
    devices[-1] = last if last is not None else each
    if any(count % chunks for count in devices):
        options.problem(option, f"layers per device are not divisible by {chunks} chunks")
        return
    _list(options, option, [count // chunks for count in devices] * chunks)
    if options.get(_FIRST) is not None and (other := options.get(_LAST)) is not None:
        options.ignore(other, f"read with {option.key}")


def _stages_without_first(options: ToolOptions, pp: int, chunks: int) -> None:
    """Read the layers of stages whose first stage has only the embedding."""
    option = options.get(_ALONE)
    layers = options.whole("num_layers")
    if option is None:
        return
    if layers is None or chunks > 1:
        options.leave(option, "the first stage has no layers: `schedule { stages }` lists them")
    elif layers % (pp - 1):
        why = f"{layers} layers are not divisible by the {pp - 1} stages after the embedding"
        options.problem(option, why)
    else:
        _list(options, option, [0, *[layers // (pp - 1)] * (pp - 1)])


def _list(options: ToolOptions, option: Option, layers: Sequence[int | str]) -> None:
    if len(layers) > 1:
        shown = ", ".join(str(count) for count in layers)
        options.set("schedule.stages", f"[{shown}]", option)
