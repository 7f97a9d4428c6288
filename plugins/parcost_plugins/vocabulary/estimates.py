"""Calculators without a model or a machine: a pipeline, a grid of ranks, a rough step.

They need no spec of a job: the bubble of a pipeline, the devices of a layout, the share of an
all-reduce in a step. The name of each figure contains its convention, because conventions differ
between publications.
"""

from __future__ import annotations

from parcost import (
    BYTES,
    FLOPS,
    ONE,
    SECONDS,
    Real,
    block,
    fraction,
    integer,
    quantity,
    reference,
    string,
    word,
)
from parcost_plugins.vocabulary.hardware import DENSITY
from parcost_plugins.vocabulary.link_rates import link_rate


@block("pipeline", label="required")
class PipelineSketch:
    """A pipeline of equal stages, without a model: its bubble, and its activations in flight."""

    kind: str = word(registry="schedules", default="one_f_one_b", doc="pipeline schedule")
    stages: int = integer(structural=True, maximum=1e5, doc="devices in a row (p)")
    micro_batches: int = integer(structural=True, doc="micro-batches of one replica and step (m)")
    chunks: int = integer(
        default=1, structural=True, maximum=1e5, doc="model chunks per device (v)"
    )
    forward: Real = quantity(
        SECONDS, positive=True, default=1.0, doc="forward pass of one micro-batch on one device"
    )
    backward: Real = quantity(
        SECONDS,
        positive=True,
        default="2 * forward",
        doc="backward pass of one micro-batch on one device",
    )
    weight_share: Real = fraction(
        default=0.5,
        doc=(
            "share of weight gradients in the backward pass, for schedules that run them separately"
        ),
    )
    send_recv: Real = quantity(
        SECONDS, default=0.0, doc="time of one message between neighbouring stages"
    )
    layers: Real | None = integer(
        default=None, doc="number of layers that are assigned to the stages"
    )
    kept: Real | None = quantity(
        BYTES, default=None, doc="bytes saved for backward by one layer of one micro-batch"
    )
    capacity: Real | None = quantity(
        BYTES, default=None, positive=True, doc="memory of a device, for the share"
    )
    # What crosses a boundary.
    message: Real | None = quantity(
        BYTES,
        default=None,
        positive=True,
        doc="activation of one micro-batch; by default computed from its shape",
    )
    batch: Real | None = quantity(
        ONE,
        default=None,
        positive=True,
        qualifiers={"sequences": 1.0},
        doc="sequences of one replica and step",
    )
    sequence: Real | None = integer(
        default=None, qualifiers={"tokens": 1.0}, doc="tokens of one sequence"
    )
    hidden: Real | None = integer(default=None, doc="hidden size")
    element: Real = quantity(BYTES, default=2.0, positive=True, doc="bytes of one activation")
    period: Real | None = quantity(
        SECONDS,
        default=None,
        positive=True,
        doc="time of a step, for the rate over a boundary; by default the makespan",
    )
    target: Real | None = fraction(
        positive=True, default=None, doc="target bubble, for `fewest_micro_batches`"
    )
    target_of: str = word(
        "step", "busy", default="step", doc="base of the target share: the step, or the busy time"
    )
    stage: int = integer(
        default=0, minimum=0, structural=True, doc="device of the calculation, counted from 0"
    )


@block("grid", label="required")
class Grid:
    """Ranks by parallel degrees: their number, and the coordinates of one of them."""

    tp: Real = integer(default=1, doc="tensor parallel degree")
    cp: Real = integer(default=1, doc="context parallel degree")
    pp: Real = integer(default=1, doc="pipeline parallel degree")
    dp: Real = integer(default=1, doc="data parallel degree")
    ep: Real = integer(default=1, doc="expert parallel degree")
    experts: str = word(
        "within",
        "apart",
        default="within",
        doc="expert parallelism reuses the ranks of the other degrees, or multiplies their number",
    )
    node: Real = integer(default=8, qualifiers={"devices": 1.0}, doc="devices of one node")
    order: str = string(
        default="tp-cp-dp-pp",
        doc="order of the degrees: the first varies fastest over neighbouring ranks",
    )
    machine: int | None = integer(
        default=None,
        maximum=1e12,
        structural=True,
        qualifiers={"devices": 1.0},
        doc="number of devices of a machine whose layouts are counted",
    )
    rank: Real = integer(default=0, minimum=0, doc="rank whose coordinates are printed")


@block("estimate", label="required")
class Estimate:
    """A back-of-envelope step: busy time, then collectives, then a bubble, without overlap."""

    compute: Real | None = quantity(
        SECONDS, default=None, doc="busy time of a device; computed if not set"
    )
    communication: Real | None = quantity(
        SECONDS, default=None, doc="exposed communication time; computed if not set"
    )
    devices: Real = integer(default="tp * pp * dp", doc="devices of the job")
    tp: Real = integer(default=1, doc="tensor parallel degree")
    pp: Real = integer(default=1, doc="pipeline parallel degree")
    dp: Real = integer(default=1, doc="replicas")
    shards: Real = integer(
        default="tp * pp",
        doc="number of ranks over which the model is sharded; 1 without sharding",
    )
    micro_batches: Real = integer(default=1, doc="micro-batches per replica and step (m)")
    bubble: str = word(
        "idle",
        "share_of_busy",
        default="idle",
        doc=(
            "formula of the bubble time: busy x (p - 1) / m, or, as in some tools, busy x (p - 1) "
            "/ (m + p - 1), which is shorter"
        ),
    )
    # What is computed.
    parameters: Real | None = quantity(
        ONE, default=None, positive=True, doc="parameters of the model (N)"
    )
    batch: Real = quantity(
        ONE, default=1.0, positive=True, qualifiers={"sequences": 1.0}, doc="samples of one step"
    )
    sequence: Real = integer(default=1, qualifiers={"tokens": 1.0}, doc="tokens of one sample")
    peak: Real | None = quantity(
        FLOPS,
        default=None,
        positive=True,
        qualifiers=DENSITY,
        must_qualify=True,
        doc="matrix peak of a device",
    )
    utilisation: Real = fraction(
        default=1.0, positive=True, doc="share of the peak that is achieved"
    )
    weight: Real = quantity(BYTES, default=2.0, doc="bytes of one parameter, and of its gradient")
    layers: Real = integer(default=1, minimum=0, doc="layers of the model")
    hidden: Real = integer(default=1, doc="hidden size, for tensor parallelism")
    # What an untrimmed tool adds to it.
    stream: Real | None = link_rate(
        default=None, doc="bandwidth of the link that all weights cross in a step, with offloading"
    )
    activations: Real = fraction(
        default=0.0,
        maximum=None,
        doc="bytes of activations / bytes of weights, also streamed for each sample",
    )
    dispatch: Real = quantity(SECONDS, default=0.0, doc="overhead once per step")
    launch: Real = quantity(SECONDS, default=0.0, doc="overhead once per layer")
    # What is sent.
    messages: Real = quantity(
        ONE,
        default=1.0,
        positive=True,
        doc="number of messages sent one after another, with the next two attributes",
    )
    message: Real | None = quantity(
        BYTES,
        default=None,
        doc="time of one message between nodes, in place of the following attributes",
    )
    message_time: Real | None = quantity(
        SECONDS, default=None, doc="time of one message, in place of the following attributes"
    )
    node: Real = integer(default=8, qualifiers={"devices": 1.0}, doc="devices of one node")
    inner: Real | None = link_rate(default=None, doc="bandwidth of a device within the node")
    inner_latency: Real = quantity(SECONDS, default=0.0, doc="latency of a message within the node")
    outer: Real | None = link_rate(default=None, doc="bandwidth of a device between nodes")
    outer_latency: Real = quantity(SECONDS, default=0.0, doc="latency of a message between nodes")
    reduction: str = word(
        "flat",
        "hierarchical",
        "nested_rings",
        default="flat",
        doc="all-reduce of the gradients: one ring over all replicas on the outer link; "
        "reduce-scatter, all-reduce across, all-gather; or three all-reduces, within, across "
        "and within again, as some tools count",
    )
    nodes: Real = integer(
        default="max(1, dp * tp / node)", doc="number of nodes over which gradients are reduced"
    )
    target: Real = fraction(
        positive=True, default=0.9, doc="share of the peak that defines `batch_for_target`"
    )
    baseline: Estimate | None = reference("estimate", default=None, doc="estimate to compare with")
