"""Memory by what it is for, by stage, and set against Megatron-LM's own estimate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parcost import Figure, Formula, Outcome, Real, Section, Study, hookimpl
from parcost.numeric import ceil, minimum, ratio
from parcost_plugins.vocabulary import Cluster, Layout, MemoryBudget, Training, layers
from parcost_plugins.vocabulary.causes import FRAGMENTATION, OUTSIDE
from parcost_plugins.vocabulary.chosen import reduces_each_micro_batch
from parcost_plugins.vocabulary.held import alike
from parcost_plugins.vocabulary.operators import ENDS

_ROUNDING = 1e-9  # of a device: a model that fills some exactly needs no further one


@hookimpl
def details(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Yield what the state weighs and takes, and what the activations do."""
    if study.parameters:
        yield from _recipe(study)
    yield from _by_class(study, outcome)
    yield from _by_meter(outcome)
    yield from _by_stage(outcome)
    yield from _activations(study)
    yield from _estimate(study)


@hookimpl
def sections(study: Study, outcome: Outcome) -> Iterator[Section]:
    """List the fullest moment of every device of a pipeline."""
    stages = outcome.pipeline.stages
    if stages == 1 or study.axes:
        return
    room = study[MemoryBudget].usable * study[Cluster].device.memory
    alone = outcome.pipeline.chunks == 1
    columns = ("stage", "at its fullest", "of the usable", "micro-batches alive")
    rows: list[tuple[object, ...]] = []
    for device, (held, alive) in enumerate(
        zip(outcome.device_memory, outcome.device_alive, strict=True)
    ):
        row = (device, (held, "GiB"), (ratio(held, room), "%"))
        rows.append((*row, alive) if alone else row)
    yield Section(title="Memory by stage", columns=columns[: 3 + alone], rows=rows)


def _recipe(study: Study) -> Iterator[Figure]:
    precision, model = study[Training].precision, study.parameters
    parts = {
        "weights": precision.weights,
        "gradients": precision.gradients,
        "optimizer": precision.optimizer,
    }
    each = precision.weights + precision.gradients + precision.optimizer
    total: Real = sum((held.total * sum(held.count) for held in model), 0.0)
    inputs: dict[str, Any] = {name: (bytes_, "B") for name, bytes_ in parts.items()}
    yield _figure(
        "bytes_per_parameter", "bytes per parameter", each, "B", " + ".join(parts), **inputs
    )
    yield _figure(
        "state_total",
        "training state of the whole model",
        total * each,
        "GB",
        "N e",
        N=(total, ""),
        e=(each, "B"),
    )
    room = study[Cluster].device.memory
    yield _figure(
        "devices_for_state",
        "fewest devices whose memory holds the state",
        ceil(total * each / room - _ROUNDING),
        "",
        "N e / M, rounded up",
        N=(total, ""),
        e=(each, "B"),
        M=(room, "B"),
    )
    yield from _largest(study, each, room)


def _largest(study: Study, each: Real, room: Real) -> Iterator[Figure]:
    """Yield the largest model whose state one device holds under this sharding."""
    layout, precision = study[Layout], study[Training].precision
    kinds = alike(study)
    kind, mixed = kinds[0], any(kind.expert for kind in kinds)
    gradients = 2 if reduces_each_micro_batch(study) else 4
    held = sum(
        (
            bytes_ / kind.shards(layout.zero, since)
            for bytes_, since in (
                (precision.weights, 3),
                (precision.gradients, gradients),
                (precision.optimizer, 1),
            )
        ),
        0.0,
    )
    shards = layout.tp * layout.pp
    yield _figure(
        "largest_model",
        "largest model whose state this layout holds",
        room * shards / held,
        "G",
        "M tp pp / e, e bytes that a rank holds of each of its parameters",
        note="as if all were dense: fewer ranks share out experts" if mixed else "",
        M=(room, "B"),
        tp=(layout.tp, ""),
        pp=(layout.pp, ""),
        e=(held, "B"),
        whole=(each, "B"),
    )


#: What the training state is made of, by the tags of memory terms.
_STATE = {"weights": "weights", "gradients": "gradients", "optimizer": "optimizer state"}


def _by_class(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Yield the memory of the fullest device at its fullest moment, by what it is for."""
    found: dict[str, Real] = dict.fromkeys((*_STATE, "activations", "rest"), 0.0)
    for line in outcome.memory_lines:
        kind = line.term.tag if line.term.tag in _STATE else "rest"
        if line.term.per_micro_batch:
            kind = "activations"
        found[kind] = found[kind] + line.bytes_
    state: Real = 0.0
    for tag, title in _STATE.items():
        state = state + found[tag]
        yield _figure(
            f"{tag}_memory", f"memory of {title}", found[tag], "GiB", "on the fullest device"
        )
    yield _figure(
        "state_memory",
        "memory of model state",
        state,
        "GiB",
        "weights + gradients + optimizer state",
    )
    yield _figure(
        "activation_memory",
        "memory of activations",
        found["activations"],
        "GiB",
        "of every micro-batch alive, on the fullest device",
    )
    share = found["activations"] / study[Cluster].device.memory
    yield _figure(
        "activation_share",
        "activations over the capacity of a device",
        share,
        "%",
        "activations / M",
        activations=(found["activations"], "B"),
        M=(study[Cluster].device.memory, "B"),
    )
    yield _figure(
        "other_memory",
        "memory of buffers, transients and overheads",
        found["rest"],
        "GiB",
        "all that is neither state nor activations",
    )


def _by_meter(outcome: Outcome) -> Iterator[Figure]:
    """Yield the memory as a framework's own counters have it: less than the driver's."""
    found: dict[str, Real] = {OUTSIDE: 0.0, FRAGMENTATION: 0.0}
    for line in outcome.memory_lines:
        if line.term.tag in found:
            found[line.term.tag] = found[line.term.tag] + line.bytes_
    held = outcome.memory_bytes - found[OUTSIDE]
    inputs = {"M": (outcome.memory_bytes, "B"), "o": (found[OUTSIDE], "B")}
    yield _figure(
        "reserved_memory",
        "memory that the allocator has reserved",
        held,
        "GiB",
        "M - o, o outside of the allocator",
        note="torch.cuda.max_memory_reserved: without driver context and communicators",
        **inputs,
    )
    yield _figure(
        "allocated_memory",
        "memory in tensors",
        held - found[FRAGMENTATION],
        "GiB",
        "M - o - f, f lost between tensors",
        note="torch.cuda.max_memory_allocated",
        **inputs,
        f=(found[FRAGMENTATION], "B"),
    )


def _by_stage(outcome: Outcome) -> Iterator[Figure]:
    """Yield every device of a pipeline at its fullest: the ends differ from the middle."""
    for device, held in enumerate(outcome.device_memory):
        yield _figure(
            f"stage_{device}_memory",
            f"memory of device {device} of the pipeline",
            held,
            "GiB",
            "at its fullest moment",
        )


def _activations(study: Study) -> Iterator[Figure]:
    """Yield what one layer and the whole model save of one micro-batch."""
    dealt = layers(study)
    in_layers: Real = 0.0
    whole: Real = 0.0
    for _, held in study.contributions("memory"):
        if not held.per_micro_batch or "forward" not in held.moments:
            continue
        counts = [held.count] * len(dealt) if isinstance(held.count, (float, int)) else held.count
        saved = held.bytes_ * sum(counts)
        whole = whole + saved
        if held.tag != ENDS:
            in_layers = in_layers + saved
    yield _figure(
        "activation_memory_per_layer",
        "activations of one layer and micro-batch",
        in_layers / sum(dealt),
        "MB",
        "saved by the layers / layers, on one rank",
    )
    yield _figure(
        "activation_memory_of_layers",
        "activations of all layers and one micro-batch",
        in_layers,
        "GB",
        "saved by the layers of all stages, on one rank of each",
    )
    yield _figure(
        "activation_memory_of_model",
        "activations of the model and one micro-batch",
        whole,
        "GB",
        "saved by the layers and the ends of all stages, on one rank of each",
    )


def _estimate(study: Study) -> Iterator[Figure]:
    """Yield what Megatron-LM's estimator says of activations on the first stage.

    It has sequence parallelism and selective recomputation in mind, and no grouped heads,
    gated MLP, or context parallelism: a cross-check for models like GPT.
    """
    training, layout = study[Training], study[Layout]
    model, cut = training.model, study.pipeline
    p, m, v = float(cut.stages), cut.micro_batches, float(cut.chunks)
    s, b, h = training.sequence, training.micro_batch, model.hidden
    one_layer = s * b * (18.0 * h + 4.0 * model.ffn)
    embedded = 8.0 * s * b * p + s * b * h * p
    alive = 1.0 + (p - 1.0) / (p * v) if cut.chunks > 1 else minimum(1.0, m / p)
    logits = s * b * 4.0 * (h + model.padded_vocabulary(layout))
    found = (one_layer * model.layers + embedded) * alive
    text = "(s b (18 h + 4 f) L + s b (8 + h) p) x alive / t"
    if cut.stages == 1:
        found = found + logits
        text += " + 4 s b (h + V) / t"
    yield _figure(
        "megatron_activation_memory",
        "activations by Megatron-LM's estimator",
        found / layout.tp,
        "MiB",
        text,
        V=(model.padded_vocabulary(layout), ""),
        s=(s, ""),
        b=(b, ""),
        h=(h, ""),
        f=(model.ffn, ""),
        L=(model.layers, ""),
        p=(p, ""),
        alive=(alive, ""),
        t=(layout.tp, ""),
    )


def _figure(
    name: str,
    title: str,
    value: Real,
    unit: str,
    text: str,
    note: str = "",
    **inputs: object,
) -> Figure:
    formula = Formula(text=text, inputs=inputs)
    return Figure(name=name, title=title, value=value, unit=unit, formula=formula, note=note)
