"""Routing of tokens to experts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parcost import (
    BYTES,
    ONE,
    RATE,
    Real,
    block,
    fraction,
    integer,
    integers,
    quantity,
    switch,
    word,
)
from parcost_plugins.vocabulary.framework import DISPATCHERS

if TYPE_CHECKING:
    pass


@block(
    "routing",
    label="none",
    used_with={
        (): "a model that has experts",
        (
            "distribution",
            "concentration",
            "balancing",
            "loads",
            "node_limit",
            "counts",
            "metadata",
            "hide",
            "buffer_factor",
        ): "`layout.ep` above 1",
        (
            "deepep_multiprocessors",
            "deepep_rate",
            "deepep_efficiency",
        ): "`routing.dispatcher = deepep`",
        (
            "hybridep_multiprocessors",
            "hybridep_rate",
            "hybridep_efficiency",
        ): "`routing.dispatcher = hybridep`",
        ("outer_efficiency",): "`routing.dispatcher = deepep` or `hybridep`",
        ("deduplicate",): "`routing.dispatcher = alltoall`",
    },
)
class Routing:
    """The distribution of tokens over experts, and their exchange."""

    distribution: str = word(
        "balanced",
        "uniform",
        "dirichlet",
        "measured",
        doc=(
            "distribution of tokens over experts: equal (`balanced`), uniformly random, by the "
            "popularity of experts, or measured"
        ),
    )
    concentration: Real | None = quantity(
        ONE,
        default=None,
        positive=True,
        doc=(
            "sum of the parameters of the Dirichlet distribution over all experts; the larger, "
            "the more even"
        ),
    )
    balancing: str = word(
        "auxiliary_loss",
        "none",
        doc=(
            "dirichlet: load balancing method of training, which sets the default of "
            "`concentration`"
        ),
    )
    auxiliary_concentration: Real = quantity(
        ONE, positive=True, doc="dirichlet: concentration per expert with an auxiliary loss"
    )
    free_concentration: Real = quantity(
        ONE, positive=True, doc="dirichlet: concentration per expert without load balancing"
    )
    loads: tuple[int, ...] = integers(
        default=(), doc="measured tokens of each expert, in the order of their ranks"
    )
    imbalance: Real | None = quantity(
        ONE,
        default=None,
        minimum=1.0,
        doc=(
            "tokens of the busiest rank / mean tokens per rank, in place of the value of the "
            "distribution"
        ),
    )
    capacity_factor: Real | None = quantity(
        ONE,
        default=None,
        positive=True,
        doc=(
            "capacity factor: capacity of an expert / mean load; free places are padded, excess "
            "tokens are dropped; by default dropless"
        ),
    )
    node_limit: Real | None = integer(
        default=None,
        doc="largest number of nodes (units of the fastest level) to which one token is sent",
    )
    dispatcher: str | None = word(
        *DISPATCHERS,
        default=None,
        doc=(
            "exchange of tokens with the experts: an all-to-all of copies; an all-gather of all "
            "tokens, and a reduce-scatter back; or kernels of DeepEP or HybridEP, which send a "
            "token once to each unit and there once to each rank; by default as in the framework"
        ),
    )
    deepep_multiprocessors: Real = integer(doc="multiprocessors that DeepEP kernels take")
    deepep_rate: Real = quantity(
        RATE, positive=True, doc="rate of one multiprocessor of DeepEP's kernels"
    )
    deepep_efficiency: Real = fraction(
        positive=True, doc="largest share of the bandwidth of the fastest level that DeepEP reaches"
    )
    hybridep_multiprocessors: Real = integer(doc="multiprocessors that HybridEP kernels take")
    hybridep_rate: Real = quantity(
        RATE, positive=True, doc="rate of one multiprocessor of HybridEP's kernels"
    )
    hybridep_efficiency: Real = fraction(
        positive=True,
        doc="largest share of the bandwidth of the fastest level that HybridEP reaches",
    )
    outer_efficiency: Real = fraction(
        positive=True, doc="share of the bandwidth of outer levels that both kernels reach"
    )
    deduplicate: bool = switch(
        doc=(
            "an all-to-all sends a token to each unit of the fastest level once, and copies it "
            "there"
        )
    )
    dispatch: Real | None = quantity(
        BYTES,
        default=None,
        positive=True,
        doc="bytes per element in the dispatch to the experts; by default those of an activation",
    )
    combine: Real | None = quantity(
        BYTES,
        default=None,
        positive=True,
        doc="bytes per element in the combine; by default those of an activation",
    )
    scales: Real = quantity(
        BYTES, default=0.0, doc="bytes of the scaling factors sent with each copy of a token"
    )
    metadata: Real = quantity(
        BYTES, doc="bytes sent with each copy of a token: its probability and the expert's index"
    )
    counts: Real = quantity(
        BYTES, doc="bytes of a token count per expert, gathered from every rank before the exchange"
    )
    hide: str = word(
        "none",
        "shared_experts",
        "pair",
        doc=(
            "compute that can hide the exchange: the shared experts, or all compute of the pass "
            "(`pair`: another micro-batch runs meanwhile, in the schedules `one_f_one_b` and "
            "`interleaved`)"
        ),
    )
    buffer_factor: Real = quantity(
        ONE,
        minimum=1.0,
        doc=(
            "size of the receive buffer / mean number of received tokens; the imbalance, if that "
            "is larger"
        ),
    )
