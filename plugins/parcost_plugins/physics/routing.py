"""Routing of tokens to experts: sources, counts and imbalance.

Load is uneven even if all experts are equally likely, because token counts are random: the largest
of many counts is above their mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parcost import Mask, Real
from parcost.numeric import all_of, any_of, divides, is_array, log, maximum, sqrt, where
from parcost_plugins.vocabulary.framework import KERNEL_DISPATCHERS
from parcost_plugins.vocabulary.layout import Layout
from parcost_plugins.vocabulary.routing import Routing
from parcost_plugins.vocabulary.training import KernelChoice, Training

if TYPE_CHECKING:
    from parcost import Study

EULER = 0.5772156649015329  # Euler's constant: the mean of a Gumbel distribution


def dispatcher_of(study: Study) -> str:
    """Return the name of the token dispatcher."""
    return study[Routing].dispatcher or study[Training].framework.dispatcher


def sends_once(study: Study) -> bool:
    """Return whether a token is sent only once to each node (unit of the fastest level)."""
    kind = dispatcher_of(study)
    return kind in KERNEL_DISPATCHERS or (kind == "alltoall" and study[Routing].deduplicate)


def has_fixed_counts(study: Study) -> bool:
    """Return whether experts have a fixed number of tokens, by a capacity factor or a CUDA graph of
    a step.
    """
    chosen = study[KernelChoice].cuda_graphs or study[Training].framework.cuda_graphs
    return study[Routing].capacity_factor is not None or chosen == "iteration"


def rank_tokens(study: Study) -> Real:
    """Return the tokens of a micro-batch that one rank sends to its router."""
    layout, training = study[Layout], study[Training]
    tokens = training.sequence * training.micro_batch / layout.cp
    return tokens / layout.tp if layout.sequence_parallel else tokens


def have_own_tokens(layout: Layout) -> Mask:
    """Return whether ranks with parts of the same experts have different tokens.

    Tensor-parallel ranks without sequence parallelism have the same tokens.
    """
    return True if layout.sequence_parallel else layout.tp == 1


def sources(layout: Layout) -> Real:
    """Return the number of ranks with different tokens that share one set of experts."""
    return where(have_own_tokens(layout), layout.ep * layout.etp, layout.ep)


def expert_tokens(study: Study) -> Real:
    """Return the tokens of a micro-batch that an expert receives from all ranks, on average."""
    model = study[Training].model
    return rank_tokens(study) * sources(study[Layout]) * model.top_k / model.experts


def busiest_rank_load(study: Study) -> Real:
    """Return the tokens that the busiest rank processes / mean tokens per rank.

    With a capacity factor every rank processes its full capacity, in whole tokens.
    """
    factor = study[Routing].capacity_factor
    if factor is None:
        return routing_load(study)
    model, tokens = study[Training].model, rank_tokens(study)
    experts = float(model.experts)
    return capacity(factor, tokens, model.top_k, experts) * experts / (tokens * model.top_k)


def routing_load(study: Study) -> Real:
    """Return the tokens routed to the busiest rank / mean tokens per rank."""
    routing, layout, model = study[Routing], study[Layout], study[Training].model
    if routing.imbalance is not None:
        return routing.imbalance
    if all_of(layout.ep == 1):
        return 1.0
    if routing.distribution == "balanced":
        return 1.0
    if routing.distribution == "measured":
        return load_imbalance(routing.loads, layout.ep)
    assignments = rank_tokens(study) * sources(layout) * model.top_k
    uneven = routing.distribution == "dirichlet"
    return random_load(assignments, layout.ep, concentration_of(study) if uneven else None)


def concentration_of(study: Study) -> Real:
    """Return the sum of the parameters of the Dirichlet distribution of tokens over experts (its
    concentration).
    """
    routing = study[Routing]
    if routing.concentration is not None:
        return routing.concentration
    free = routing.balancing == "none"
    each = routing.free_concentration if free else routing.auxiliary_concentration
    return each * study[Training].model.experts


def random_load(assignments: Real, bins: Real, concentration: Real | None = None) -> Real:
    """Return the expected maximum of *bins* counts / their mean, with random tokens.

    With a *concentration* the popularity of bins is Dirichlet-distributed, with parameters that add
    up to it. Without it all bins are equally likely. The estimate is the expected maximum of normal
    deviates. Its error is 3 % if a bin has at least 20 tokens and the result is below 2. It is
    about 8 % for Dirichlet distributions, which have heavier tails.

    >>> round(random_load(4096.0, 64.0), 4)
    1.2974
    """
    mean = assignments / bins
    variance = mean * (1.0 - 1.0 / bins)
    if concentration is not None:
        variance = variance * (1.0 + (assignments - 1.0) / (concentration + 1.0))
    return 1.0 + largest_of(bins) * sqrt(variance) / mean


def largest_of(count: Real) -> Real:
    """Return the expected maximum of *count* standard normal deviates; 0 for one."""
    many = maximum(count, 2.0)
    root = sqrt(2.0 * log(many))
    found = root - (log(log(many)) + log(4.0 * 3.141592653589793)) / (2.0 * root) + EULER / root
    return where(count > 1, found, 0.0)


def load_imbalance(loads: tuple[int, ...], ranks: Real) -> Real:
    """Return the largest load of a rank / the mean load, if experts with *loads* are distributed
    over *ranks*.

    >>> load_imbalance((4, 2, 1, 1), 2.0)
    1.5
    """
    if not any(loads):
        return 1.0  # which a rule rejects
    if not is_array(ranks):
        each = max(int(len(loads) // ranks), 1)
        sums = [sum(loads[i : i + each]) for i in range(0, len(loads), each)]
        return max(sums) * len(sums) / sum(sums)
    found: Real = 1.0
    for count in {float(r) for r in ranks.flat}:  # type: ignore[union-attr]
        if divides(count, float(len(loads))):
            found = where(ranks == count, load_imbalance(loads, count), found)
    return found


def overflow(loads: tuple[int, ...], factor: Real) -> Real:
    """Return the share of tokens dropped with a capacity of *factor* times the mean.

    >>> overflow((4, 2, 1, 1), 1.25)
    0.1875
    """
    places = factor * sum(loads) / len(loads)
    return sum((maximum(load - places, 0.0) for load in loads), 0.0) / sum(loads)


def distinct_groups(experts: Real, top: Real, groups: Real) -> Real:
    """Return the expected number of *groups* that hold the *top* experts of a token.

    All choices of *top* out of *experts* are equally likely.

    >>> round(distinct_groups(256.0, 8.0, 8.0), 6)
    5.294652
    """
    elsewhere = experts - experts / groups  # experts outside of a given group
    nowhere: Real = 1.0  # the chance that all of them are there
    most = top if not is_array(top) else top.max()  # type: ignore[union-attr]
    for i in range(int(most)):
        factor = maximum(elsewhere - i, 0.0) / maximum(experts - i, 1.0)
        nowhere = nowhere * where(i < top, factor, 1.0)
        if not any_of(nowhere > 0):
            break
    return groups * (1.0 - nowhere)


def ranks_in_units(units: Real, inside: Real, top: Real) -> Real:
    """Return the expected number of ranks that hold the *top* experts, in *units* units of *inside*
    ranks.

    With a limit of units, the experts of a token are divided evenly among these units.

    >>> ranks_in_units(4.0, 8.0, 8.0)
    7.5
    """
    return units * inside * (1.0 - (1.0 - 1.0 / inside) ** (top / units))


def capacity(factor: Real, tokens: Real, top: Real, experts: Real) -> Real:
    """Return the capacity of an expert for the tokens of one rank, in tokens.

    >>> capacity(1.25, 4096.0, 2.0, 8.0), capacity(1.1, 4000.0, 2.0, 8.0)
    (1280.0, 1100.0)
    """
    return -((-(tokens * top / experts) * factor) // 1)
