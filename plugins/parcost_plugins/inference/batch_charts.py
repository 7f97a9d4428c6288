"""Charts of the throughput of ``serving`` blocks over batch size: memory and compute bound."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import evolve

from parcost import Chart, Study, block_name, formula
from parcost.numeric import all_of, is_array
from parcost_plugins.inference.memory import ServingMemory
from parcost_plugins.inference.replica import Replica
from parcost_plugins.inference.rules import prerequisites
from parcost_plugins.inference.speed import decode
from parcost_plugins.vocabulary import Serving
from parcost_plugins.vocabulary.causes import COMPUTE, DATA, HOST

_BATCHES = tuple(float(2**power) for power in range(11))


def batch_charts(study: Study) -> Iterator[Chart]:
    """Yield a chart for each block: tokens/s per device over batch size."""
    for serving in study.all(Serving):
        if all(all_of(check.holds) for check in prerequisites(serving)):
            rows = [*_rows(study, serving)]
            if rows:
                yield Chart(
                    name="batch",
                    title=f"Tokens/s of a device over the batch: {block_name(serving)}",
                    place=65,
                    notes=[
                        "While decoding is memory-bound, a larger batch is nearly free.",
                        "Hollow points do not fit in memory.",
                    ],
                    spec=_SPEC,
                    columns={
                        "batch": "batch",
                        "rate": "tokens/s per device",
                        "seconds": "time per output token (TPOT)",
                        "bound": "bound by",
                        "fits": "memory",
                        "formula": "formula",
                    },
                    rows=rows,
                )


def _rows(study: Study, serving: Serving) -> Iterator[dict[str, Any]]:
    for batch in _BATCHES:
        changed = evolve(serving, batch=batch)  # type: ignore[misc]  # a block is one
        replica = Replica.from_serving(study, changed)
        token, memory = decode(replica), ServingMemory.from_replica(replica)
        held = memory.held + memory.cache + memory.overhead
        if is_array(token.seconds, held, replica.devices):
            return
        in_flight = min(serving.batches, serving.pp)
        rate = formula(
            "n g b / (t N), b batches in different stages",
            n=batch,
            g=serving.attention_replicas,
            b=in_flight,
            t=(token.seconds, "s"),
            N=replica.devices,
        )
        yield {
            "batch": batch,
            "rate": rate.value,
            "seconds": (token.seconds, "s"),
            "bound": token.bound,
            "fits": "fits" if held <= memory.usable else "does not fit",
            "formula": rate,
        }


_BOUNDS = {
    "domain": ["compute", "memory bandwidth", "communication", "the host"],
    "range": [COMPUTE.color, "#E69F00", DATA.color, HOST.color],
}
_SPEC = {
    "height": 260,
    "encoding": {
        "x": {
            "field": "batch",
            "type": "quantitative",
            "scale": {"type": "log", "base": 2},
            "axis": {"title": "batch (sequences)", "values": list(_BATCHES), "format": ",.12~g"},
        },
        "y": {
            "field": "rate",
            "type": "quantitative",
            "axis": {"title": "tokens/s per device", "format": ",.12~g"},
        },
    },
    "layer": [
        {"mark": {"type": "line", "color": "#8C8C8C"}},
        {
            "mark": {"type": "point", "size": 70, "opacity": 1, "strokeWidth": 2},
            "encoding": {
                "color": {
                    "field": "bound",
                    "type": "nominal",
                    "scale": _BOUNDS,
                    "legend": {"title": "bound by"},
                },
                "fillOpacity": {
                    "field": "fits",
                    "type": "ordinal",
                    "scale": {"domain": ["fits", "does not fit"], "range": [1, 0]},
                    "legend": None,
                },
                "fill": {
                    "field": "bound",
                    "type": "nominal",
                    "scale": _BOUNDS,
                    "legend": None,
                },
            },
        },
    ],
}
