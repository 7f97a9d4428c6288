"""The parts of an estimated step: what computes, what is sent, what idles."""

from __future__ import annotations

from attrs import frozen

from parcost import Group, Real, Study
from parcost.numeric import maximum
from parcost_plugins.vocabulary import Estimate


@frozen(kw_only=True, eq=False)
class _Wire:
    """A link of one bandwidth; see :class:`parcost.Link`."""

    name: str
    latency: Real
    bandwidth: Real

    def seconds(self, rounds: Real, bytes_: Real) -> Real:
        return rounds * self.latency + bytes_ / self.bandwidth


@frozen(kw_only=True, eq=False)
class Parts:
    """The parts of an estimated step: parameters, seconds, and the bubble's share."""

    parameters: Real
    flops_time: Real
    streaming: Real
    overhead: Real
    busy: Real
    gradients: Real
    tensor: Real
    communication: Real
    share: Real
    bubble: Real

    @property
    def step(self) -> Real:
        return self.busy + self.communication + self.bubble


def parts_of(e: Estimate, study: Study) -> Parts:
    samples = e.batch / e.dp
    N = e.parameters if e.parameters is not None else 0.0
    held = N * e.weight / e.shards
    # 6 FLOP per parameter and token: 2 forward, 4 backward.
    flops = 6.0 * N * e.sequence * samples / (e.tp * e.pp)
    flops_time = flops / (e.peak * e.utilisation) if e.peak is not None else 0.0
    streaming = (1.0 + e.activations * samples) * held / e.stream if e.stream is not None else 0.0
    overhead = e.dispatch + e.layers * e.launch
    busy = e.compute
    if busy is None:
        busy = maximum(flops_time, streaming) + overhead
    gradients, tensor = _gradients(e, study, held), _tensor(e, study, samples)
    communication = e.communication
    if communication is None:
        communication = gradients + tensor
        if e.message_time is not None:
            communication = e.messages * e.message_time
        elif e.message is not None and e.outer is not None:
            communication = e.messages * e.message / e.outer
    share = (e.pp - 1) / (e.micro_batches + e.pp - 1)
    over = (e.pp - 1) / e.micro_batches
    return Parts(
        parameters=N,
        flops_time=flops_time,
        streaming=streaming,
        overhead=overhead,
        busy=busy,
        gradients=gradients,
        tensor=tensor,
        communication=communication,
        share=share,
        bubble=busy * (share if e.bubble == "share_of_busy" else over),
    )


def _gradients(e: Estimate, study: Study, held: Real) -> Real:
    """Return the time to all-reduce the gradients over the replicas."""
    if e.outer is None:
        return 0.0
    outer = _Wire(name="outer", latency=e.outer_latency, bandwidth=e.outer)
    if e.reduction == "flat" or e.inner is None:
        return _ring(study, held, e.dp, outer)
    inner = _Wire(name="inner", latency=e.inner_latency, bandwidth=e.inner)
    within = e.dp / e.nodes
    if e.reduction == "nested_rings":
        shard = held / within
        first, across = _ring(study, held, within, inner), _ring(study, shard, e.nodes, outer)
        return first + across + _ring(study, shard, within, inner)
    levels = Group(name="dp", ranks=e.dp, shape=(within, e.nodes), links=(inner, outer))
    return study.collective("all_reduce", held, levels, "hierarchical").seconds


def _tensor(e: Estimate, study: Study, samples: Real) -> Real:
    """Return the time of the all-reduces of tensor parallelism: four in every layer."""
    if e.inner is None:
        return 0.0
    inner = _Wire(name="inner", latency=e.inner_latency, bandwidth=e.inner)
    message = samples * e.sequence * e.hidden * e.weight
    return 4.0 * e.layers / e.pp * _ring(study, message, e.tp, inner)


def _ring(study: Study, n: Real, ranks: Real, wire: _Wire) -> Real:
    group = Group(name=wire.name, ranks=ranks, shape=(ranks,), links=(wire,))
    return study.collective("all_reduce", n, group, "ring").seconds
