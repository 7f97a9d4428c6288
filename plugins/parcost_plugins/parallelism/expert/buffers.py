"""Memory of tokens that arrive at their experts, and of results that leave them."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Memory, Study, formula, hookimpl, map_counts
from parcost.numeric import maximum
from parcost_plugins.parallelism.expert.exchange import exchange_of
from parcost_plugins.physics.partition import layer_counts
from parcost_plugins.vocabulary.causes import BUFFERS


@hookimpl
def memory(study: Study) -> Iterator[Memory]:
    """Return the buffers of received tokens and of results of one layer; layers reuse them."""
    exchange = exchange_of(study)
    if exchange is None:
        return
    room = maximum(exchange.lam, exchange.routing.buffer_factor)
    token = exchange.dispatch_bytes + exchange.combine_bytes
    gathers = exchange.kind == "allgather"
    places = "P T" if gathers else "T k f"
    text = f"P > 1 ? {places} x : 0, x bytes of a {'token' if gathers else 'copy'} there and back"
    symbols = {"k": exchange.top, "f": room}
    yield Memory(
        name="expert exchange buffers",
        cause=BUFFERS,
        bytes_=formula(
            text,
            {} if gathers else symbols,
            T=exchange.tokens,
            P=exchange.group.ranks,
            x=(token, "B"),
            source="buffers for all tokens that may arrive, and for their results",
        ),
        count=map_counts(min, layer_counts(study, moe=True), 1),
        once_per_device=True,
    )
