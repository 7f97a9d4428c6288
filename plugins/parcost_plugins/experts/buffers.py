"""The room that tokens take which arrive at their experts, and results that leave them."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Formula, Memory, Study, hookimpl
from parcost.numeric import maximum, where
from parcost_plugins.experts.exchange import exchange_of
from parcost_plugins.vocabulary.causes import BUFFERS
from parcost_plugins.vocabulary.partition import each, standing


@hookimpl
def memory(study: Study) -> Iterator[Memory]:
    """Return the buffers of an exchange: one layer's, whichever it is."""
    exchange = exchange_of(study)
    if exchange is None:
        return
    room = maximum(exchange.lam, exchange.routing.buffer_factor)
    token = exchange.there + exchange.back
    gathers = exchange.kind == "allgather"
    places = exchange.group.ranks * exchange.tokens if gathers else exchange.copies * room
    yield Memory(
        name="expert exchange buffers",
        cause=BUFFERS,
        bytes_=where(exchange.group.ranks > 1, places * token, 0.0),
        formula=Formula(
            text="P T x, x bytes of a token there and back"
            if gathers
            else "T k f x, x bytes of a copy there and back",
            inputs={
                "T": (exchange.tokens, ""),
                "P": (exchange.group.ranks, ""),
                "k": (exchange.top, ""),
                "f": (room, ""),
                "x": (token, "B"),
            },
            source="a place for every token that may arrive, and for its result",
        ),
        count=each(min, standing(study, moe=True), 1),
        once_per_device=True,
    )
