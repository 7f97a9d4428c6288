"""The job as it was read, in a few lines: model, devices, layout, batch and precision.

An importer may misread a file without an error. These lines show the most important values, so that
the reader can compare them with the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from parcost.contract.page import Column, Item, Row, Table
from parcost.contract.schema import block_name, block_type
from parcost.language.numbers import quantity
from parcost.numeric import any_of
from parcost_plugins.vocabulary import (
    Adapters,
    Cluster,
    Layout,
    Offload,
    Recompute,
    ScheduleChoice,
    Sharding,
    Training,
)

if TYPE_CHECKING:
    from parcost.contract.study import Study
    from parcost.numeric import Real
    from parcost.report.result import Result

_DEGREES = ("tp", "cp", "pp", "dp", "ep", "etp")
_HOSTED = ("optimizer", "parameters", "activations")


def job_table(*results: Result) -> Iterator[Item]:
    """Yield a table of the most important values that all *results* with a step share.

    Studies with only calculations have no such values.
    """
    training = [result for result in results if result.study.trains]
    timed = [result for result in training if result.outcome is not None]
    rows = [_rows(result) for result in timed or training]
    shared = [row for row in rows[0] if all(row in other for other in rows)] if rows else []
    if shared:
        yield Table((Column(), Column(flexible=True)), [Row(row) for row in shared])


def _rows(result: Result) -> Sequence[tuple[str, str]]:
    return (
        ("model", _model(result)),
        ("layout", _layout(result.study)),
        ("training", _training(result.study)),
        ("precision", _precision(result.study)),
    )


def _model(result: Result) -> str:
    """Return the name, the size and the shape of the model, and its trained part."""
    study = result.study
    model, adapters = study[Training].model, study.get(Adapters)
    parts = [_size(f.value) for _, f in result.figures if f.name == "parameters"]
    parts.append(f"{quantity(model.layers)} layers")
    if not model.is_nominal:
        parts.append(f"hidden size {quantity(model.hidden)}")
    if model.experts:
        parts.append(f"{quantity(model.experts)} experts, top {quantity(model.top_k)}")
    if adapters is not None:
        base = "" if adapters.base is None else f" on {block_name(adapters.base)}"
        parts.append(f"LoRA rank {quantity(adapters.rank)}{base}")
    return f"{block_name(model)}: {', '.join(parts)}"


def _size(parameters: Real) -> str:
    """Return a number of parameters in the field's words.

    >>> _size(70_553_706_496), _size(124_439_808)
    ('70.55 billion parameters', '124.4 million parameters')
    """
    unit, word = (1e9, "billion") if any_of(parameters >= 1e9) else (1e6, "million")
    return f"{quantity(parameters / unit)} {word} parameters"


def _layout(study: Study) -> str:
    """Return the devices, the degrees above 1, the ZeRO stage, and the schedule."""
    cluster, layout, sharding = study[Cluster], study[Layout], study.get(Sharding)
    degrees = {name: getattr(layout, name) for name in _DEGREES}
    parts = [
        f"{n.upper()} {quantity(d)}" for n, d in degrees.items() if any_of(d != 1) or n == "dp"
    ]
    parts.append(f"ZeRO {layout.zero}")
    if sharding is not None and any_of(sharding.shard != layout.dp * layout.cp):
        parts[-1] += f" over {quantity(sharding.shard)} ranks"
    if any_of(layout.tp != 1):
        parts.append(f"SP {quantity(layout.sequence_parallel)}")
    if layout.pp > 1:
        schedule = study[ScheduleChoice]
        chunks = f" with {schedule.chunks} chunks" if schedule.chunks > 1 else ""
        parts.append(f"schedule {schedule.kind}{chunks}")
    return f"{quantity(cluster.devices)} {block_name(cluster.device)}: {', '.join(parts)}"


def _training(study: Study) -> str:
    """Return the batch, its division, and the settings that save memory."""
    training, offload = study[Training], study.get(Offload)
    packed = ", packed" if training.documents or training.document is not None else ""
    batch, length = quantity(training.global_batch), quantity(training.sequence)
    hosted = {name: getattr(offload, name, 0.0) for name in _HOSTED}
    parts = [
        f"{batch} sequence{'' if batch == '1' else 's'} of {length} tokens{packed}",
        f"micro-batch {quantity(training.micro_batch)}",
        f"recompute {_recompute(training.recompute, study.get(Recompute))}",
        *(
            f"{quantity(share, '%')} of {name} on the host"
            for name, share in hosted.items()
            if any_of(share != 0)
        ),
    ]
    return ", ".join(parts)


def _recompute(kind: str, recompute: Recompute | None) -> str:
    """Return the kind of recomputation, with further parts and numbers of layers in brackets."""
    if recompute is None:
        return kind
    defaults = block_type(Recompute).defaults
    values = {name: getattr(recompute, name) for name in defaults}
    texts = [
        name if value is True else f"{name} {quantity(value)}"
        for name, value in values.items()
        if value not in (None, defaults[name])
    ]
    more = ", ".join(texts)
    if kind == "none":
        return more or kind
    return f"{kind} ({more})" if texts else kind


def _precision(study: Study) -> str:
    """Return the types of the GEMMs, the recipe, and the framework."""
    training = study[Training]
    recipe = training.precision
    narrow = "" if recipe.narrow == "none" else f" with {recipe.narrow} linear layers"
    named = "" if block_name(recipe) == recipe.compute else f" ({block_name(recipe)})"
    return f"{recipe.compute}{narrow}{named}; framework {block_name(training.framework)}"
