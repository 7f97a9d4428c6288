"""Memory by use and by stage, and compared with Megatron-LM's own estimate."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from parcost import Figure, Formula, Outcome, Real, Section, Sheet, Study, formula, hookimpl
from parcost.numeric import any_of, ratio, where
from parcost_plugins.physics import layers
from parcost_plugins.physics.adapters import trains_model
from parcost_plugins.physics.memory_counters import (
    allocated_memory,
    reserved_memory,
    used_memory,
)
from parcost_plugins.physics.run_choices import (
    gradient_shards,
    shards_states,
    shards_weights,
)
from parcost_plugins.physics.stage_parameters import mean_weight, stage_kinds
from parcost_plugins.vocabulary import Cluster, Layout, MemoryBudget, Offload, Training
from parcost_plugins.vocabulary.operators import ENDS

_ROUNDING = 1e-9  # of a device: a model that fills some exactly needs no further one


@hookimpl(specname="figures")
def details(study: Study, outcome: Outcome, brief: bool) -> Iterator[Figure]:
    """Yield the bytes of state and of activations, with comparisons."""
    if brief:
        return
    if study.parameters and trains_model(study):
        yield from _recipe(study)
    yield from _by_class(study, outcome)
    yield from _by_counter(study, outcome)
    yield from _by_stage(outcome)
    yield from _activations(study)
    yield from _estimate(study)


@hookimpl
def sections(study: Study, outcome: Outcome) -> Iterator[Section]:
    """Yield the peak memory of every pipeline device."""
    stages = outcome.pipeline.stages
    if stages == 1 or study.axes:
        return
    room = study[MemoryBudget].usable * study[Cluster].device.memory
    alone = outcome.pipeline.chunks == 1
    columns = ("stage", "peak memory", "of the usable", "micro-batches in flight")
    rows: list[tuple[object, ...]] = []
    for device, (held, alive) in enumerate(
        zip(outcome.device_memory, outcome.device_alive, strict=True)
    ):
        row = (device, (held, "GiB"), (ratio(held, room), "%"))
        rows.append((*row, alive) if alone else row)
    yield Section(title="Memory by stage", columns=columns[: 3 + alone], rows=rows)


def _recipe(study: Study) -> Iterator[Figure]:
    precision = study[Training].precision
    parts: dict[str, Real] = {}
    for held in study.parameters:
        parts[held.name] = parts.get(held.name, 0.0) + held.total * sum(held.count)
    sheet = Sheet(
        weights=(mean_weight(study), "B"),
        gradients=(precision.gradients, "B"),
        optimizer=(precision.optimizer, "B"),
        N=formula("sum(psi)", psi=parts),
        M=(study[Cluster].device.memory, "B"),
    )
    yield sheet(
        "bytes_per_parameter", "bytes per parameter", "B", "weights + gradients + optimizer"
    )
    yield sheet("state_total", "training state of the whole model", "GB", "N bytes_per_parameter")
    yield sheet(
        "devices_for_state",
        "smallest number of devices whose memory holds the state",
        "",
        f"ceil(state_total / M - {_ROUNDING})",
    )
    yield _largest_model(study, sheet)


def _largest_model(study: Study, sheet: Sheet) -> Figure:
    """Return the largest model whose state fits, with this sharding and offload."""
    layout, offload = study[Layout], study[Offload]
    kinds = stage_kinds(study)
    kind, mixed = kinds[0], any(kind.expert for kind in kinds)
    sheet.symbols |= {
        "tp": layout.tp,
        "pp": layout.pp,
        "W": kind.shards(shards_weights(study)),
        "G": gradient_shards(study, kind.shard),
        "O": kind.shards(shards_states(study)),
        "w": 1.0 - offload.parameters,
        "o": 1.0 - offload.optimizer,
    }
    return sheet(
        "largest_model",
        "largest model whose state fits with this layout",
        "G",
        "ratio(M tp pp, w weights / W + gradients / G + o optimizer / O), W, G and O ranks of "
        "the shards, w and o the shares on the device",
        note="computed as for a dense model: experts are sharded over fewer ranks" if mixed else "",
    )


#: Parts of the training state, by tag of memory terms.
_STATE = {"weights": "weights", "gradients": "gradients", "optimizer": "optimizer state"}


def _by_class(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Yield the highest peak memory of a device, by use."""
    found: dict[str, dict[str, Real]] = {kind: {} for kind in (*_STATE, "activations", "rest")}
    for line in outcome.memory_lines:
        kind = line.term.tag if line.term.tag in _STATE else "rest"
        if line.term.per_micro_batch:
            kind = "activations"
        found[kind][line.name] = found[kind].get(line.name, 0.0) + line.bytes_
    sheet = Sheet(
        source="on the device with the highest peak", M=(study[Cluster].device.memory, "B")
    )
    for tag, title in _STATE.items():
        held = (found[tag], "B")
        yield sheet(f"{tag}_memory", f"memory of {title}", "GiB", "sum(m)", m=held)
    yield sheet(
        "state_memory",
        "memory of model state",
        "GiB",
        "weights_memory + gradients_memory + optimizer_memory",
    )
    yield sheet(
        "activation_memory",
        "memory of activations",
        "GiB",
        "sum(m), of all micro-batches in flight",
        m=(found["activations"], "B"),
    )
    yield sheet(
        "activation_share",
        "activations / capacity of a device",
        "%",
        "activation_memory / M",
    )
    yield sheet(
        "other_memory",
        "memory of buffers, transients and overheads",
        "GiB",
        "sum(m), neither state nor activations",
        m=(found["rest"], "B"),
    )


def _by_counter(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Yield the memory as shown by counters of the device and of the framework."""
    for name, title, found in (
        ("used_memory", "memory in use on the first device", used_memory(study, outcome)),
        (
            "reserved_memory",
            "memory that the allocator has reserved",
            reserved_memory(study, outcome),
        ),
        ("allocated_memory", "memory in tensors", allocated_memory(outcome)),
    ):
        yield Figure(name=name, title=title, value=found, unit="GiB", note=found.source)


def _by_stage(outcome: Outcome) -> Iterator[Figure]:
    """Yield the peak memory of every pipeline device; the first and the last one differ from the
    others.
    """
    sheet = Sheet()
    for device, held in enumerate(outcome.device_memory):
        yield sheet(
            f"stage_{device}_memory",
            f"memory of device {device} of the pipeline",
            "GiB",
            Formula(
                text=_TERMS_OF_STAGE,
                value=held,
                explain=partial(_terms_of_stage, outcome, device),
            ),
        )


_TERMS_OF_STAGE = "sum(m), of a device at its peak"


def _terms_of_stage(outcome: Outcome, device: int) -> Formula:
    """Return the sum of the terms on a *device*, at the moment of its peak."""
    moments = outcome.memory_by_moment()[device].values()
    peak = outcome.device_memory[device]
    terms: dict[str, Real] = {}
    rest: Real = 1.0  # where no moment has the peak yet
    for lines in moments:
        here = sum((line.bytes_ for line in lines), 0.0)
        chosen = where(here >= peak * (1.0 - _ROUNDING), rest, 0.0)
        rest = rest - chosen
        for line in lines:
            if any_of(chosen * line.bytes_ != 0):
                terms[line.name] = terms.get(line.name, 0.0) + chosen * line.bytes_
    return formula(_TERMS_OF_STAGE, m=(terms, "B"))


def _activations(study: Study) -> Iterator[Figure]:
    """Yield the activation bytes of one layer and of the whole model, for one micro-batch."""
    dealt = layers(study)
    in_layers: dict[str, Real] = {}
    at_ends: dict[str, Real] = {}
    for _, held in study.contributions("memory"):
        if not held.per_micro_batch or "forward" not in held.moments:
            continue
        counts = [held.count] * len(dealt) if isinstance(held.count, (float, int)) else held.count
        part = at_ends if held.tag == ENDS else in_layers
        part[held.name] = part.get(held.name, 0.0) + held.bytes_ * sum(counts)
    sheet = Sheet(
        source="on one rank of each stage",
        m=(in_layers, "B"),
        m_e=(at_ends, "B"),
        L=float(sum(dealt)),
    )
    yield sheet(
        "activation_memory_per_layer",
        "activations of one layer and micro-batch",
        "MB",
        "sum(m) / L",
    )
    yield sheet(
        "activation_memory_of_layers",
        "activations of all layers and one micro-batch",
        "GB",
        "sum(m), saved by the layers of all stages",
    )
    yield sheet(
        "activation_memory_of_model",
        "activations of the model and one micro-batch",
        "GB",
        "sum(m) + sum(m_e), saved by the layers and the ends of all stages",
    )


def _estimate(study: Study) -> Iterator[Figure]:
    """Yield Megatron-LM's estimate of activations on the first stage.

    It assumes sequence parallelism and selective recomputation. It does not support GQA, gated MLPs
    or context parallelism, so it is a cross-check for GPT models.
    """
    training, layout = study[Training], study[Layout]
    model, cut = training.model, study.pipeline
    sheet = Sheet(
        s=training.sequence,
        b=training.micro_batch,
        h=model.hidden,
        f=model.ffn,
        L=model.layers,
        V=model.padded_vocabulary(layout),
        t=layout.tp,
        p=float(cut.stages),
        v=float(cut.chunks),
        m=cut.micro_batches,
    )
    alive = "1 + (p - 1) / (p v)" if cut.chunks > 1 else "min(1, m / p)"
    sheet.symbols["alive"] = sheet.formula(alive)
    ends = " + 4 s b (h + V) / t" if cut.stages == 1 else ""
    yield sheet(
        "megatron_activation_memory",
        "activations by Megatron-LM's estimator",
        "MiB",
        f"(s b (18 h + 4 f) L + s b (8 + h) p) alive / t{ends}",
    )
