"""Counts, sizes and times of tensor parallelism, under the names that claims use."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Formula, Outcome, Real, Section, Study
from parcost.numeric import maximum, ratio
from parcost_plugins.parallelism.tensor.rows import (
    messages,
    pairs,
    rows_of,
)
from parcost_plugins.parallelism.tensor.wire import wire
from parcost_plugins.vocabulary import Gemm, Layout, Training, layers

SOURCE = "Shoeybi et al. 2019 (Megatron-LM); Korthikanti et al. 2022"
_RING = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0}


def traffic(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Yield what the layers of one rank tell the others. The ends are left out of counts."""
    layout, m, model = study[Layout], outcome.pipeline.micro_batches, study[Training].model
    rows, found = rows_of(layout), pairs(study, "F")
    on_wire = wire(study)
    held, repeated = (
        sum(sum(count) for count in pairs(study, pass_).values()) / layout.pp
        for pass_ in ("F", "R")
    )
    again = repeated / held if held else 0.0
    forward, backward = 0.0, 0.0
    sent: Real = 0.0
    for row in rows:
        times = 1.0 + again if row.part == "forward" else 1.0
        factor = times * _RING[row.operation] * (layout.tp - 1) / layout.tp
        for message in messages(row, found, model):
            # Not every pair sends the same: these are means over pairs.
            share = sum(message.times) / (held * layout.pp) if held else 0.0
            if row.part == "forward":
                forward += share
            else:
                backward += share
            sent = sent + share * factor * on_wire.priced(row.operation, message).bytes_
    backward += again * forward
    buffer = on_wire.priced("all_reduce").bytes_
    each = held * layout.pp / sum(layers(study))  # one where attention and MLP run side by side
    letters = {
        "f": (forward, ""),
        "w": (backward, ""),
        "q": (each, ""),
        "k": (held * layout.pp, ""),
        "l": (held, ""),
        "m": (m, ""),
    }

    def figure(
        name: str, title: str, value: Real, text: str, unit: str = "", note: str = ""
    ) -> Figure:
        formula = Formula(
            text=text,
            inputs={
                **{letter: letters[letter] for letter in letters if letter in text.split()},
                "t": (layout.tp, ""),
            },
            source=SOURCE,
        )
        return Figure(name=name, title=title, value=value, unit=unit, formula=formula, note=note)

    yield figure(
        "tp_collectives_per_layer_forward",
        "tensor-parallel collectives of a layer, forward",
        each * forward,
        "q f",
        note="with q pairs of products, a mean over layers",
    )
    yield figure(
        "tp_collectives_per_layer",
        "tensor-parallel collectives of a layer",
        each * (forward + backward),
        "q ( f + w )",
        note="forward and backward of one micro-batch; the gather of saved inputs is one",
    )
    yield figure(
        "tp_collectives_forward",
        "tensor-parallel collectives of a forward pass",
        forward * held * layout.pp,
        "f k",
        note="of all layers, for one micro-batch",
    )
    yield figure(
        "tp_collectives",
        "tensor-parallel collectives of a step",
        (forward + backward) * held * layout.pp * m,
        "( f + w ) k m",
        note="of all layers and micro-batches of a replica",
    )
    yield figure(
        "tp_message", "tensor-parallel message", buffer, "s b h e", "MB", "the whole buffer"
    )
    yield figure(
        "tp_sent_per_collective",
        "sent by a rank in a tensor-parallel collective",
        _RING[rows[0].operation] * (layout.tp - 1) / layout.tp * buffer,
        "2 (t - 1) / t n of an all-reduce, half of it of a gather",
        "MB",
        "by a ring",
    )
    yield figure(
        "tp_volume_per_layer",
        "tensor-parallel volume of a layer",
        each * sent,
        "the rings of q pairs, forward and backward",
        "MB",
        "sent by one rank for one micro-batch",
    )
    yield figure(
        "tp_volume",
        "tensor-parallel volume of a step",
        sent * held * m,
        "V l m",
        "GB",
        "sent by one rank, a mean over stages",
    )
    yield from _times(outcome)


def _times(outcome: Outcome) -> Iterator[Figure]:
    """Yield the seconds of a step that the ledger has for tensor parallelism."""
    exposed: Real = 0.0
    all_: Real = 0.0
    compute: Real = 0.0
    for line in outcome.ledger:
        if line.plugin is not None and line.plugin.name == "tensor_parallel":
            if line.resource != "compute":
                exposed, all_ = exposed + line.exposed, all_ + line.exposed + line.hidden
        elif line.kind == "work" and line.resource in ("compute", "hbm"):
            compute = compute + line.exposed
    inputs = {"exposed": (exposed, "s"), "all": (all_, "s"), "compute": (compute, "s")}
    formula = Formula(text="lines of the ledger, added up", inputs=inputs)
    for name, title, value, unit in (
        ("tp_seconds", "tensor-parallel communication of a step", all_, "s"),
        ("tp_exposed", "of which nothing hides", exposed, "s"),
        (
            "tp_over_compute",
            "tensor-parallel communication over compute",
            ratio(all_, compute),
            "",
        ),
    ):
        yield Figure(name=name, title=title, value=value, unit=unit, formula=formula)


def shapes(study: Study) -> Iterator[Figure]:
    """Yield the widths of what one rank holds of a layer."""
    layout, model = study[Layout], study[Training].model
    t, q = layout.tp, model.qk_dim
    # Latent attention makes a key of every head; its rotated part is not projected.
    k, d = (model.heads, model.nope_dim) if model.latent else (model.kv_heads, model.head_dim)
    keys = "key projection" + ("" if model.latent else ", and of the value projection")
    for name, title, value, text in (
        ("tp_query_columns", "columns of the query projection", model.heads * q / t, "a q / t"),
        ("tp_kv_columns", f"columns of the {keys}", maximum(k, t) * d / t, "max(k, t) d / t"),
        ("tp_mlp_columns", "columns of a matrix into the MLP", model.ffn / t, "f / t"),
        ("kv_columns", f"columns of the {keys}, all ranks", k * d, "k d"),
    ):
        yield Figure(
            name=name,
            title=title,
            value=value,
            unit="",
            formula=Formula(
                text=text,
                inputs={
                    "a": (model.heads, ""),
                    "q": (q, ""),
                    "k": (k, ""),
                    "d": (d, ""),
                    "f": (model.ffn, ""),
                    "t": (t, ""),
                },
                source=SOURCE,
            ),
        )


def table(study: Study) -> Section:
    """Return the matrices that one rank multiplies by: inputs x outputs, and the rows."""
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
