"""The parts of an estimated step: compute, communication, idle time."""

from __future__ import annotations

from typing import Any

from parcost import Formula, Group, Link, Real, Sheet, Study, block_name, formula, record
from parcost_plugins.vocabulary import Estimate


@record(kw_only=True, eq=False)
class _EstimateLink(Link):
    """A link of one bandwidth; see :class:`parcost.Link`."""

    name: str
    latency: Real
    bandwidth: Real

    def seconds(self, rounds: Real, bytes_: Real) -> Real:
        return rounds * self.latency + bytes_ / self.bandwidth


def parts_of(e: Estimate, study: Study) -> Sheet:
    """Return the parts of an estimate in seconds: compute, streaming, communication, idle."""
    N = e.parameters if e.parameters is not None else 0.0
    sheet = Sheet(
        block_name(e),
        N=N,
        w=(e.weight, "B"),
        s=e.sequence,
        batch=e.batch,
        dp=e.dp,
        tp=e.tp,
        pp=e.pp,
        p=e.pp,
        m=e.micro_batches,
        L=e.layers,
        k=e.messages,
        n=(e.message, "B"),
        shards=e.shards,
        peak=(e.peak, "FLOP/s"),
        utilisation=e.utilisation,
    )
    symbols = sheet.symbols
    symbols["samples"] = sheet.formula("batch / dp")
    symbols["held"] = sheet.formula("N w / shards"), "B"
    # 6 FLOP per parameter and token: 2 forward, 4 backward.
    symbols["flops"] = sheet.formula("6 N s samples / (tp pp)"), "FLOP"
    compute = streaming = None
    if e.peak is not None:
        compute = sheet.formula("flops / (peak utilisation)")
    if e.stream is not None:
        streaming = sheet.formula("(1 + a samples) held / B", a=e.activations, B=(e.stream, "B/s"))
    symbols["compute"], symbols["streaming"] = (compute or 0.0, "s"), (streaming or 0.0, "s")
    if e.compute is not None:
        symbols["busy"] = (e.compute, "s")
    else:
        symbols["busy"] = (
            sheet.formula(
                "max(compute, streaming) + dispatch + L launch",
                dispatch=(e.dispatch, "s"),
                launch=(e.launch, "s"),
            ),
            "s",
        )
    symbols["gradients"] = (_gradients(e, study, symbols["held"][0]), "s")
    symbols["tensor"] = (_tensor(e, study, sheet), "s")
    if e.communication is not None:
        communication: Any = e.communication
    elif e.message_time is not None:
        communication = sheet.formula("k t", t=(e.message_time, "s"))
    elif e.message is not None and e.outer is not None:
        communication = sheet.formula("k n / B", B=(e.outer, "B/s"))
    else:
        communication = sheet.formula("gradients + tensor")
    symbols["communication"] = (communication, "s")
    of_busy = e.bubble == "share_of_busy"
    idle = "busy (p - 1) / (m + p - 1)" if of_busy else "busy (p - 1) / m"
    symbols["idle"] = sheet.formula(idle), "s"
    symbols["step_time"] = symbols["T"] = sheet.formula("busy + communication + idle"), "s"
    symbols["efficiency"] = sheet.formula("ratio(busy, T)"), "%"
    return sheet


def _gradients(e: Estimate, study: Study, held: Formula) -> Formula | float:
    """Return the seconds of the gradient all-reduce over the replicas."""
    if e.outer is None:
        return 0.0
    outer = _EstimateLink(name="outer", latency=e.outer_latency, bandwidth=e.outer)
    n: Any = held.value
    if e.reduction == "flat" or e.inner is None:
        return _ring(study, n, e.dp, outer)
    inner = _EstimateLink(name="inner", latency=e.inner_latency, bandwidth=e.inner)
    within = e.dp / e.nodes
    if e.reduction == "nested_rings":
        shard = n / within
        return formula(
            "first + across + last, rings within a node, over nodes, and within a node",
            first=(_ring(study, n, within, inner), "s"),
            across=(_ring(study, shard, e.nodes, outer), "s"),
            last=(_ring(study, shard, within, inner), "s"),
        )
    levels = Group(name="dp", ranks=e.dp, shape=(within, e.nodes), links=(inner, outer))
    return study.collective("all_reduce", n, levels, "hierarchical").formula


def _tensor(e: Estimate, study: Study, sheet: Sheet) -> Formula | float:
    """Return the seconds of the tensor-parallel all-reduces: four per layer."""
    if e.inner is None:
        return 0.0
    inner = _EstimateLink(name="inner", latency=e.inner_latency, bandwidth=e.inner)
    n: Any = sheet.formula("samples s h w", h=e.hidden).value
    return sheet.formula("4 L / pp t", t=(_ring(study, n, e.tp, inner), "s"))


def _ring(study: Study, n: Real, ranks: Real, wire: _EstimateLink) -> Formula:
    group = Group(name=wire.name, ranks=ranks, shape=(ranks,), links=(wire,))
    return study.collective("all_reduce", n, group, "ring").formula
