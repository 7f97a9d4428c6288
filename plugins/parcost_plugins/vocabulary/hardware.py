"""Devices, fabrics and clusters: what the money buys."""

from __future__ import annotations

from parcost import (
    BYTES,
    FLOPS,
    ONE,
    RATE,
    SECONDS,
    WATTS,
    Rate,
    Real,
    block,
    children,
    fraction,
    integer,
    quantity,
    reference,
    word,
)

_DENSITY = {"dense": 1.0, "sparse": 0.5}  # 2:4 sparsity doubles a printed peak
_DIRECTION = {"per_direction": 1.0, "bidirectional": 0.5}


@block("device", label="required")
class Device:
    """One accelerator, as a rank of the job sees it."""

    memory: Real = quantity(BYTES, positive=True, doc="capacity that the driver reports")
    memory_bandwidth: Real = quantity(RATE, positive=True, doc="peak rate of the memory")
    fp32: Real | None = quantity(
        FLOPS, default=None, positive=True, doc="peak of fp32 outside matrix units"
    )
    tf32: Real | None = quantity(
        FLOPS,
        default=None,
        positive=True,
        qualifiers=_DENSITY,
        must_qualify=True,
        doc="matrix peak in tf32",
    )
    fp16: Real | None = quantity(
        FLOPS,
        default=None,
        positive=True,
        qualifiers=_DENSITY,
        must_qualify=True,
        doc="matrix peak in fp16",
    )
    bf16: Real | None = quantity(
        FLOPS,
        default=None,
        positive=True,
        qualifiers=_DENSITY,
        must_qualify=True,
        doc="matrix peak in bf16",
    )
    fp8: Real | None = quantity(
        FLOPS,
        default=None,
        positive=True,
        qualifiers=_DENSITY,
        must_qualify=True,
        doc="matrix peak in fp8",
    )
    fp4: Real | None = quantity(
        FLOPS,
        default=None,
        positive=True,
        qualifiers=_DENSITY,
        must_qualify=True,
        doc="matrix peak in fp4",
    )
    multiprocessors: Real = integer(doc="units that tiles of a matrix product are spread over")
    matmul_efficiency: Real = fraction(
        positive=True, doc="best matrix product measured, of the 16-bit peak"
    )
    fp8_matmul_efficiency: Real = fraction(
        positive=True,
        default="matmul_efficiency",
        doc="best matrix product measured, of the fp8 peak",
    )
    fp4_matmul_efficiency: Real = fraction(
        positive=True,
        default="fp8_matmul_efficiency",
        doc="best matrix product measured, of the fp4 peak",
    )
    attention_forward_efficiency: Real = fraction(
        positive=True, doc="fused attention, forward, of the 16-bit peak"
    )
    attention_backward_efficiency: Real = fraction(
        positive=True, doc="fused attention, backward, of the 16-bit peak"
    )
    memory_efficiency: Real = fraction(
        positive=True, doc="large streaming kernels, of the memory bandwidth"
    )
    host_bandwidth: Real | None = quantity(
        RATE, default=None, qualifiers=_DIRECTION, must_qualify=True, doc="link to the host"
    )
    power: Real | None = quantity(WATTS, default=None, doc="thermal design power")


@block("level", inside="fabric", label="required")
class Level:
    """One level of a fabric. Levels are written from the fastest outwards."""

    size: Real | None = integer(
        default=None,
        qualifiers={"devices": 1.0, "nodes": 1.0, "units": 1.0},
        doc="units of the level below that it joins: devices for the first level, nodes for "
        "the second; the last level may leave it out and joins all",
    )
    bandwidth: Rate = quantity(
        RATE,
        positive=True,
        qualifiers=_DIRECTION,
        must_qualify=True,
        curve=True,
        doc="of one port; measured points may stand in place of it",
    )
    latency: Real = quantity(SECONDS, doc="start-up time of one message (alpha)")
    efficiency: Real = quantity(
        ONE,
        default=1.0,
        maximum=1.0,
        positive=True,
        doc="achieved by long messages, of the bandwidth",
    )
    ports: Real | None = integer(
        default=None,
        doc="ports by which one unit of the level below reaches this level; "
        "one per device where it is left out",
    )
    oversubscription: Real = quantity(
        ONE,
        default=1.0,
        minimum=1.0,
        doc="downlink over uplink of one unit of this level; divides the bandwidth of every "
        "level further out, and 1 is non-blocking",
    )
    kind: str = word(
        "switch",
        "mesh",
        default="switch",
        doc="a switch gives the bandwidth to any peer; a mesh has one port per peer",
    )


@block("fabric", label="required")
class Fabric:
    """The network between devices: nested levels."""

    levels: tuple[Level, ...] = children("level", doc="from the fastest outwards")


@block("cluster")
class Cluster:
    """The devices of the job and the fabric that joins them."""

    device: Device = reference("device", default="device", doc="which accelerator")
    devices: Real = integer(doc="how many take part in the job")
    fabric: Fabric = reference("fabric", default="fabric", doc="which network")
