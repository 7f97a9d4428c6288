"""Counts, sizes and times of tensor parallelism, under the names that claims use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from parcost import Figure, Outcome, Real, Section, Sheet, Study
from parcost.numeric import ratio, where
from parcost_plugins.parallelism.tensor import adapters
from parcost_plugins.parallelism.tensor.group import tensor_group
from parcost_plugins.parallelism.tensor.layer_collectives import (
    SAVED_INPUT,
    messages,
    pairs,
    rows_of,
)
from parcost_plugins.physics import layers
from parcost_plugins.physics.adapters import trains_model
from parcost_plugins.physics.run_choices import tensor_overlap
from parcost_plugins.vocabulary import Gemm, Layout, Training

SOURCE = "Shoeybi et al. 2019 (Megatron-LM); Korthikanti et al. 2022"
_RING = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}


def _pairs_of_stage(found: Mapping[str, Sequence[float]], stages: Real) -> Real:
    """Return the number of GEMM pairs per stage, averaged over stages."""
    return sum(sum(count) for count in found.values()) / stages


def traffic(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Yield the communication of a rank's layers, without embedding and head."""
    sheet = _sheet(study, outcome)
    yield sheet(
        "tp_collectives_per_layer_forward",
        "tensor-parallel collectives of a layer, forward",
        "",
        "q f, f collectives of each of q pairs of products: attention and MLP",
        note="a mean over layers",
    )
    yield sheet(
        "tp_collectives_per_layer",
        "tensor-parallel collectives of a layer",
        "",
        "q (f + w), f forward and w backward",
        note="forward and backward of one micro-batch, with the gather of saved inputs",
    )
    yield sheet(
        "tp_collectives_forward",
        "tensor-parallel collectives of a forward pass",
        "",
        "f k, k pairs of products in the model",
        note="of all layers, for one micro-batch",
    )
    yield sheet(
        "tp_collectives",
        "tensor-parallel collectives of a step",
        "",
        "(f + w) k m, k pairs of products in the model, m micro-batches",
        note="all layers and micro-batches of a replica, without embedding, head and loss",
    )
    yield sheet("tp_message", "tensor-parallel message", "MB", "n", note="the whole buffer")
    yield sheet(
        "tp_sent_per_collective",
        "sent by a rank in a tensor-parallel collective",
        "MB",
        "ring (t - 1) / t n, twice around the ring in an all-reduce",
        note="by a ring",
    )
    yield sheet(
        "tp_volume_per_layer",
        "tensor-parallel volume of a layer",
        "MB",
        "q V, the rings of q pairs, forward and backward",
        note="sent by one rank for one micro-batch",
    )
    yield sheet(
        "tp_volume",
        "tensor-parallel volume of a step",
        "GB",
        "V l m, V of each of l pairs of products on a stage, m micro-batches",
        note="sent by one rank for its layers; mean over stages",
    )
    yield from _times(outcome)


def _sheet(study: Study, outcome: Outcome) -> Sheet:
    """Return a sheet with the collectives, messages and bytes of a layer as symbols."""
    layout, m, model = study[Layout], outcome.pipeline.micro_batches, study[Training].model
    rows, found = rows_of(layout), pairs(study, "F")
    on_wire = tensor_group(study)
    held = _pairs_of_stage(found, layout.pp)
    again = {
        "columns": ratio(_pairs_of_stage(pairs(study, "R", "columns"), layout.pp), held),
        "rows": ratio(_pairs_of_stage(pairs(study, "R"), layout.pp), held),
    }
    forward: Real = 0.0
    backward: Real = 0.0
    sent: Real = 0.0
    for row in rows:
        if row is SAVED_INPUT and not trains_model(study):
            continue
        times = 1.0 + again[row.side] if row.part == "forward" else 1.0
        factor = times * _RING[row.operation] * (layout.tp - 1) / layout.tp
        for message in messages(row, found, model):
            # Not every pair sends the same: these are means over pairs.
            share = where(layout.tp > 1, sum(message.times) / (held * layout.pp), 0.0)
            if row.part == "forward":
                forward += share
                backward += again[row.side] * share
            else:
                backward += share
            sent = sent + share * factor * on_wire.estimate(row.operation, message).bytes_
    for _, operation, pass_, message in adapters.exchanges(study, tensor_overlap(study)):
        share = where(layout.tp > 1, sum(message.times) / (held * layout.pp), 0.0)
        if pass_ == "F":
            forward += share
        else:
            backward += share
        factor = _RING[operation] * (layout.tp - 1) / layout.tp
        sent = sent + share * factor * on_wire.estimate(operation, message).bytes_
    buffer = on_wire.estimate("all_reduce").bytes_
    each = held * layout.pp / sum(layers(study))  # one where attention and MLP run side by side
    return Sheet(
        source=SOURCE,
        f=forward,
        w=backward,
        q=each,
        k=held * layout.pp,
        l=held,
        m=m,
        t=layout.tp,
        n=(buffer, "B"),
        V=(sent, "B"),
        ring=_RING[rows[0].operation],
    )


def _times(outcome: Outcome) -> Iterator[Figure]:
    """Yield the seconds of tensor-parallel communication in the ledger of a step."""
    exposed: dict[str, Real] = {}
    hidden: dict[str, Real] = {}
    compute: dict[str, Real] = {}
    for line in outcome.ledger:
        name = f"{line.name}, {line.pass_}"
        if line.plugin is not None and line.plugin.name == "tensor_parallel":
            if line.resource != "compute":
                exposed[name] = exposed.get(name, 0.0) + line.exposed
                hidden[name] = hidden.get(name, 0.0) + line.hidden
        elif line.kind == "work" and line.resource in ("compute", "hbm"):
            compute[name] = compute.get(name, 0.0) + line.exposed
    sheet = Sheet(
        source="sum over terms",
        exposed=(exposed, "s"),
        hidden=(hidden, "s"),
        compute=(compute, "s"),
    )
    yield sheet(
        "tp_seconds",
        "tensor-parallel communication of a step",
        "s",
        "sum(exposed) + sum(hidden)",
        note="of layers, embedding, head and loss",
    )
    yield sheet("tp_exposed", "exposed TP communication", "s", "sum(exposed)")
    yield sheet(
        "tp_over_compute",
        "tensor-parallel communication / compute",
        "",
        "ratio(tp_seconds, sum(compute))",
    )


def shapes(study: Study) -> Iterator[Figure]:
    """Yield the widths of a layer on one rank."""
    layout, model = study[Layout], study[Training].model
    # Latent attention makes a key of every head; its rotated part is not projected.
    k, d = (model.heads, model.nope_dim) if model.is_latent else (model.kv_heads, model.head_dim)
    keys = "key projection" + ("" if model.is_latent else ", and of the value projection")
    queries = ("columns of the query projection per rank", "a q / t")
    if model.output_gate:
        queries = ("columns of the query projection per rank, with the output gates", "2 a q / t")
    sheet = Sheet(source=SOURCE, a=model.heads, q=model.qk_dim, k=k, d=d, f=model.ffn, t=layout.tp)
    for name, title, text in (
        ("tp_query_columns", *queries),
        ("tp_kv_columns", f"columns of the {keys}, per rank", "max(k, t) d / t"),
        ("tp_mlp_columns", "columns of the first MLP matrix per rank", "f / t"),
        ("kv_columns", f"columns of the {keys}, all ranks", "k d"),
    ):
        yield sheet(name, title, "", text)


def table(study: Study) -> Section:
    """Return the weight matrices of one rank: inputs x outputs, and the number of rows."""
    rows = [
        (gemm.name, gemm.k, gemm.n, gemm.m, gemm.batch)
        for gemm in study.operators
        if isinstance(gemm, Gemm) and gemm.pass_ == "F" and any(gemm.count)
    ]
    return Section(
        title="Matrices of a rank",
        columns=("product", "inputs", "outputs", "tokens", "batch"),
        rows=[(name, *((number, "") for number in numbers)) for name, *numbers in rows],
        notes=["a column split gives each rank a share of the outputs, a row split of the inputs"],
    )
