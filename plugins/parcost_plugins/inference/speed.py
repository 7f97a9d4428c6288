"""How long a prompt and a token take: compute, memory, and what ranks tell one another.

Compute and memory traffic run side by side, so the longer counts; communication waits for
both. A host that issues kernels one by one does so meanwhile, and whoever takes longer counts.
A token passes the stages one after another, and as many batches as there are stages
keep all of them busy.
"""

from __future__ import annotations

from attrs import frozen

from parcost import Real
from parcost.numeric import maximum, where
from parcost_plugins.inference.memory import cache_read
from parcost_plugins.inference.replica import Replica


@frozen(kw_only=True, eq=False)
class Phase:
    """One pass through all stages: seconds of each part, and the FLOPs of one group."""

    flops: Real
    compute: Real
    weights: Real
    cache: Real
    all_reduce: Real  # one of them
    communication: Real
    launches: Real

    @property
    def memory(self) -> Real:
        """Seconds of reading weights and cache."""
        return self.weights + self.cache

    @property
    def seconds(self) -> Real:
        """The whole pass."""
        return maximum(maximum(self.compute, self.memory) + self.communication, self.launches)

    @property
    def bound(self) -> str:
        """What sets the pace, in words; nothing for many points at once."""
        parts = {
            "compute": self.compute,
            "memory bandwidth": self.memory,
            "communication": self.communication,
        }
        if not all(isinstance(value, (float, int)) for value in (*parts.values(), self.launches)):
            return ""
        if self.launches > max(self.compute, self.memory) + self.communication:
            return "the host"
        if parts["communication"] <= max(parts["compute"], parts["memory bandwidth"]):
            parts.pop("communication")
        return max(parts, key=lambda name: parts[name])


def prefill(replica: Replica) -> Phase:
    """Return the pass of one prompt."""
    tokens = replica.serving.prompt
    flops = tokens * (replica.flops + replica.attention_flops)
    return _phase(replica, tokens, flops, cache=0.0, measured=None)


def decode(replica: Replica) -> Phase:
    """Return the pass of one token of every sequence of a batch."""
    serving = replica.serving
    cache = serving.batch * cache_read(replica, serving.context) / replica.bandwidth
    flops = serving.batch * replica.flops
    phase = _phase(replica, serving.batch, flops, cache=cache, measured=serving.all_reduce)
    launched = serving.kernels_per_layer * serving.model.layers
    return Phase(
        flops=phase.flops,
        compute=phase.compute,
        weights=phase.weights,
        cache=phase.cache,
        all_reduce=phase.all_reduce,
        communication=phase.communication,
        launches=launched * serving.issue,
    )


def _phase(
    replica: Replica, tokens: Real, flops: Real, *, cache: Real, measured: Real | None
) -> Phase:
    serving = replica.serving
    dense = replica.dense / serving.tp
    expert = replica.expert * replica.hit(tokens) / replica.ranks
    one, all_ = _communication(replica, tokens, measured)
    return Phase(
        flops=flops,
        compute=flops / (serving.tp * replica.peak),
        weights=(dense + expert) * serving.weights / replica.bandwidth,
        cache=cache,
        all_reduce=one,
        communication=all_,
        launches=0.0,
    )


def _communication(replica: Replica, tokens: Real, measured: Real | None) -> tuple[Real, Real]:
    """Return one all-reduce of *tokens*, and all that a pass sends.

    Attention and MLP each end in an all-reduce. Experts on other ranks take two exchanges
    instead, and an all-reduce among those that share one expert.
    """
    serving, model, study = replica.serving, replica.serving.model, replica.study
    if serving.fabric is None:
        one = 0.0 if measured is None else where(serving.tp > 1, measured, 0.0)
        return one, one * replica.all_reduces
    n = tokens * model.hidden * serving.activation
    if measured is None:
        one = study.collective("all_reduce", n, "tp", serving.collective).seconds
    else:
        one = where(serving.tp > 1, measured, 0.0)
    total = one * replica.all_reduces
    if replica.expert_layers:
        total = total + replica.expert_layers * _exchange(replica, n)
    if serving.pp > 1:
        hop = study.collective("point_to_point", n, "pp").seconds
        total = total + (serving.pp - 1) * hop
    return one, total


def _exchange(replica: Replica, n: Real) -> Real:
    """Return what one layer of experts sends for *n* bytes of tokens of every group."""
    serving, study = replica.serving, replica.study
    sent = n * serving.model.top_k / serving.tp  # of every rank
    there_and_back = 2.0 * study.collective("all_to_all", sent, "ep").seconds
    # A rank reduces what it has received, or where experts are whole, every token.
    received = where(serving.ep > 1, sent * replica.ranks / serving.ep, n)
    among = study.collective("all_reduce", received, "etp", serving.collective).seconds
    return there_and_back + among
