"""The time of a prompt and of a token: compute, memory and communication.

Compute, memory traffic and kernel launches overlap, so the longest of these times counts.
Communication does not overlap. A token passes the stages in sequence. One batch per stage keeps all
stages busy.
"""

from __future__ import annotations

from typing import Any

from attrs import evolve

from parcost import Formula, Real, formula, plain_of, record
from parcost.numeric import maximum
from parcost_plugins.inference.memory import attention_over_cache, cache_read
from parcost_plugins.inference.replica import Replica


@record(kw_only=True, eq=False)
class ServingPhase:
    """One pass through all stages: seconds of each part, and the FLOPs of one group."""

    flops: Real
    compute: Real
    weights: Real
    cache: Real
    all_reduce: Formula  # one of them
    communication: Formula
    launches: Real

    @property
    def memory(self) -> Real:
        """Seconds of reading weights and cache."""
        return self.weights + self.cache

    @property
    def seconds(self) -> Real:
        """Seconds of the whole pass."""
        busy = maximum(self.compute, self.memory) + plain_of(self.communication)
        return maximum(busy, self.launches)

    @property
    def bound(self) -> str:
        """The name of the bottleneck; "" for arrays of points."""
        parts = {
            "compute": self.compute,
            "memory bandwidth": self.memory,
            "communication": plain_of(self.communication),
        }
        if not all(isinstance(value, (float, int)) for value in (*parts.values(), self.launches)):
            return ""
        if self.launches > max(self.compute, self.memory) + parts["communication"]:
            return "the host"
        return max(parts, key=lambda name: parts[name])


def prefill(replica: Replica) -> ServingPhase:
    """Return the phase of one prompt; engines compute the logits of its last token only."""
    tokens, head = replica.serving.prompt, replica.head_flops
    products, core = tokens * (replica.flops - head) + head, tokens * replica.attention_flops
    phase = _phase(replica, tokens, products, cache=0.0, measured=None)
    apart = core / (replica.serving.tp * replica.attention_rate)
    return evolve(phase, flops=products + core, compute=phase.compute + apart)


def decode(replica: Replica) -> ServingPhase:
    """Return the phase of one token for every sequence of a batch."""
    serving = replica.serving
    cache = serving.batch * cache_read(replica, serving.context) / replica.bandwidth
    flops = serving.batch * (replica.flops + attention_over_cache(replica))
    phase = _phase(replica, serving.batch, flops, cache=cache, measured=serving.all_reduce)
    launched = serving.kernels_per_layer * serving.model.layers
    return evolve(phase, launches=launched * serving.issue)


def _phase(
    replica: Replica, tokens: Real, flops: Real, *, cache: Real, measured: Real | None
) -> ServingPhase:
    serving = replica.serving
    read = replica.read_dense + replica.read_expert * replica.visited_share(tokens)
    one, all_ = _communication(replica, tokens, measured)
    return ServingPhase(
        flops=flops,
        compute=flops / (serving.tp * replica.peak),
        weights=read * serving.weights / replica.bandwidth,
        cache=cache,
        all_reduce=one,
        communication=all_,
        launches=0.0,
    )


def _communication(
    replica: Replica, tokens: Real, measured: Real | None
) -> tuple[Formula, Formula]:
    """Return the seconds of one all-reduce of *tokens*, and of all communication in a pass.

    Attention and MLP each end in an all-reduce. Experts on other ranks need two exchanges instead,
    and an all-reduce among the ranks that share an expert.
    """
    serving, model, study = replica.serving, replica.serving.model, replica.study
    n = formula("n h e", n=tokens, h=model.hidden, e=(serving.activation, "B"))
    if measured is not None or serving.fabric is None:
        given = 0.0 if measured is None else measured
        one = formula(
            "t > 1 ? T : 0, T as the spec states it, t ranks", t=serving.tp, T=(given, "s")
        )
    else:
        one = study.collective("all_reduce", n, "tp", serving.collective).formula
    text = "k T"
    symbols: dict[str, Any] = {"k": replica.all_reduces, "T": (one, "s")}
    if serving.fabric is not None and replica.expert_layers:
        text += " + l E"
        symbols |= {"l": replica.expert_layers, "E": (_exchange(replica, n), "s")}
    if serving.fabric is not None and serving.pp > 1:
        message = study.collective("point_to_point", n, "pp").formula
        text += " + (p - 1) c"
        symbols |= {"p": float(serving.pp), "c": (message, "s")}
    return one, formula(
        f"{text}, all-reduces, exchanges of experts, and messages between stages", symbols
    )


def _exchange(replica: Replica, n: Formula) -> Formula:
    """Return the seconds of the all-to-alls of one MoE layer, for *n* bytes of tokens per group."""
    serving, study = replica.serving, replica.study
    sent = formula("n k / t", n=(n, "B"), k=serving.model.top_k, t=serving.tp)  # of every rank
    there = study.collective("all_to_all", sent, "ep").formula
    # A rank reduces what it has received, or where experts are whole, every token.
    received = formula(
        "EP > 1 ? x R / EP : n",
        EP=serving.ep,
        x=(sent, "B"),
        R=replica.ranks,
        n=(n, "B"),
    )
    among = study.collective("all_reduce", received, "etp", serving.collective).formula
    return formula("2 T + A, there and back", T=(there, "s"), A=(among, "s"))
