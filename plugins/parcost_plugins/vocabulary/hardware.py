"""Devices, fabrics and clusters: the hardware."""

from __future__ import annotations

from typing import Any

from parcost import (
    BYTES,
    DOLLARS,
    FLOP,
    FLOPS,
    GRAMS,
    JOULES,
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
    integers,
    quantity,
    reference,
    switch,
    word,
)
from parcost_plugins.vocabulary.accuracy import Family
from parcost_plugins.vocabulary.aliases import ALIASES
from parcost_plugins.vocabulary.attention import AttentionTable
from parcost_plugins.vocabulary.link_rates import DIRECTIONS, link_rate
from parcost_plugins.vocabulary.tuning import GENERATIONS, Tuning

DENSITY = {"dense": 1.0, "sparse": 0.5}  # 2:4 sparsity doubles a printed peak


def _matrix_peak(type_: str) -> Any:
    """Declare the peak of the tensor cores in a data type; its qualifier is dense or sparse."""
    return quantity(
        FLOPS,
        default=None,
        positive=True,
        qualifiers=DENSITY,
        must_qualify=True,
        doc=f"matrix peak in {type_}",
    )


@block(
    "device",
    label="required",
    used_with={
        ("static_power",): "a `power_cap`, or `product_energy` without `sustained`",
        ("product_energy",): "a `power`, and no `sustained`",
        ("in_one_layout",): "a recipe with a narrow type, such as FP8",
    },
    any_of={
        (
            "fp32",
            "tf32",
            "fp16",
            "bf16",
            "fp8",
            "fp4",
        ): "the peak of the compute type, such as `bf16 = 989 TFLOPS dense`",
        ("attention",): "the rate of attention: a table as `attention`, or "
        "`kernels.attention_forward_efficiency` and `attention_backward_efficiency`",
    },
)
class Device:
    """One accelerator, which runs one rank of the job."""

    year: int | None = integer(
        default=None,
        structural=True,
        doc="year in which it was announced; a rule names framework profiles of earlier releases",
    )
    memory: Real = quantity(BYTES, positive=True, doc="capacity that the driver reports")
    memory_bandwidth: Real = quantity(RATE, positive=True, doc="peak rate of the memory")
    fp32: Real | None = quantity(
        FLOPS, default=None, positive=True, doc="peak of fp32 outside matrix units"
    )
    tf32: Real | None = _matrix_peak("tf32")
    fp16: Real | None = _matrix_peak("fp16")
    bf16: Real | None = _matrix_peak("bf16")
    fp8: Real | None = _matrix_peak("fp8")
    fp4: Real | None = _matrix_peak("fp4")
    microscaling: bool = switch(
        default=False,
        doc="matrix units support block scaling factors, as in MXFP8",
    )
    in_one_layout: bool = switch(
        default=False,
        doc=(
            "fp8 and fp4 matrix products support one operand layout only, so that backward needs "
            "transposed copies"
        ),
    )
    multiprocessors: Real = integer(doc="number of multiprocessors")
    collective_multiprocessors: Real = integer(
        default=0,
        minimum=0,
        doc=(
            "multiprocessors that a collective occupies; 0 if the device has separate engines for "
            "collectives"
        ),
    )
    matmul_efficiency: Real = fraction(
        positive=True, doc="rate of the best measured matrix product / 16-bit peak"
    )
    fp8_matmul_efficiency: Real = fraction(
        positive=True,
        default="matmul_efficiency",
        doc="rate of the best measured matrix product / fp8 peak",
    )
    fp4_matmul_efficiency: Real = fraction(
        positive=True,
        default="fp8_matmul_efficiency",
        doc="rate of the best measured matrix product / fp4 peak",
    )
    block_matmul_efficiency: Real = fraction(
        positive=True,
        default="fp8_matmul_efficiency",
        doc="rate of the best measured fp8 matrix product with block scaling factors / fp8 peak",
    )
    sustained: Real | None = fraction(
        positive=True,
        default=None,
        doc=(
            "share of the product rate that a step sustains, as power may lower the clock; by "
            "default computed from `product_energy` and `power`"
        ),
    )
    narrow_sustained: Real | None = fraction(
        positive=True,
        default=None,
        doc=(
            "the same for products in fp8 and fp4; without `product_energy` the value of "
            "`sustained`"
        ),
    )
    product_energy: Real | None = quantity(
        JOULES / FLOP,
        default=None,
        positive=True,
        doc=(
            "energy of a FLOP of 16-bit products at full clock; gives the rate that the power "
            "allows"
        ),
    )
    memory_power: Real = quantity(
        WATTS,
        default=0.0,
        doc="power that memory draws during matrix products; see `product_energy`",
    )
    attention: AttentionTable | None = reference(
        "attention_table",
        default=None,
        doc=(
            "table of the rates of its attention kernels; without it the rates of `kernels` are "
            "used"
        ),
    )
    attention_efficiency: Real = fraction(
        positive=True,
        default=1.0,
        doc=(
            "factor on the rates of its attention table, if they were measured on a similar device "
            "with more power"
        ),
    )
    memory_efficiency: Real = fraction(
        positive=True, doc="share of the memory bandwidth that large memory-bound kernels achieve"
    )
    host_bandwidth: Real | None = link_rate(default=None, doc="link to the host")
    reduction_bandwidth: Real | None = quantity(
        RATE,
        default=None,
        positive=True,
        doc=(
            "rate at which a collective reduces bytes (1 / gamma); by default included in the copy"
        ),
    )
    power: Real | None = quantity(
        WATTS, default=None, doc="thermal design power, at which the rates were measured"
    )
    power_cap: Real | None = quantity(
        WATTS,
        default=None,
        positive=True,
        doc=(
            "power limit that a site sets for the board, below its design power: products and "
            "attention slow down"
        ),
    )
    static_power: Real | None = fraction(
        default=None,
        doc=("static power as a share of the design power; by default `kernels.static_power`"),
    )
    family: Family | None = reference(
        "family",
        default=None,
        doc=(
            "family of devices of the same architecture, whose errors are used if the device has "
            "no measured runs"
        ),
    )
    library: str = word(
        "any",
        registry="libraries",
        default="any",
        doc=(
            "communication library of its vendor: `auto` chooses among its algorithms; `any`: "
            "among all algorithms of plugins"
        ),
    )
    tuning: Tuning | None = reference(
        "tuning",
        default=None,
        doc="tuning table with which the library chooses algorithm and protocol",
    )
    generation: str = word(
        *GENERATIONS, default="unknown", doc="row of the tuning table for this device"
    )
    fabric: Fabric | None = reference(
        "fabric",
        default=None,
        doc=(
            "usual fabric of the device: proposed for a job without a fabric, and assumed for "
            "measured runs"
        ),
    )


@block("level", inside="fabric", label="required")
class Level:
    """One level of a fabric. Levels are listed from the fastest outwards."""

    size: Real | None = integer(
        default=None,
        qualifiers={"devices": 1.0, "nodes": 1.0, "units": 1.0},
        doc=(
            "number of units of the inner level that it connects: devices for the first level, "
            "nodes for the second; the last level may omit it and connects all"
        ),
    )
    bandwidth: Rate = link_rate(
        qualifiers={**DIRECTIONS, "per_unit": "ports"},
        curve=True,
        doc=(
            "bandwidth of one port, or a curve of measured points. `per_unit` is one "
            "direction of all `ports` of a unit of the level below, such as a node"
        ),
    )
    latency: Real = quantity(SECONDS, doc="start-up time of one message (alpha)")
    efficiency: Real = quantity(
        ONE,
        default=1.0,
        maximum=1.0,
        positive=True,
        doc="share of the bandwidth that long messages achieve",
    )
    ports: Real | None = integer(
        default=None,
        doc=(
            "ports by which one unit of the level below reaches this level; by default one per "
            "device"
        ),
    )
    oversubscription: Real = quantity(
        ONE,
        default=1.0,
        minimum=1.0,
        doc=(
            "downlink / uplink bandwidth of one unit of this level, which divides the bandwidth of "
            "all outer levels; 1 is non-blocking. On the outermost level it applies to the leaf "
            "switches, and divides the traffic between them. On rails it also applies to traffic "
            "between rails"
        ),
    )
    collisions: Real = quantity(
        ONE,
        default=1.0,
        minimum=1.0,
        doc=(
            "number of flows that share a hashed path (ECMP collisions), which divides the "
            "bandwidth; 1 is perfectly balanced"
        ),
    )
    kind: str = word(
        "switch",
        "mesh",
        "torus",
        "rail",
        "fat_tree",
        "dragonfly",
        "dragonfly_plus",
        "pcie",
        "ethernet",
        default="switch",
        doc=(
            "topology: with `switch`, `pcie` and `ethernet` the bandwidth is available to any "
            "peer; a mesh has one port per peer; a torus has two per dimension; rails connect "
            "devices with the same index in their nodes; a fat tree has switches of one `radix`; "
            "the units of a dragonfly are its groups, with `ports` global links each"
        ),
    )
    dimensions: tuple[int, ...] = integers(
        default=(), minimum=1, doc="units along each dimension of a torus, the nearest first"
    )
    wrap: bool = switch(
        default=True, doc="wrap-around links: the ends of a dimension of a torus are connected"
    )
    in_network: bool = switch(
        default=False, doc="the switches reduce and multicast data in the network (NVLS, SHARP)"
    )
    in_host: bool = switch(
        default=False, doc="the level is inside one host; always true for the first level"
    )
    low_latency: bool = switch(
        default=True,
        doc="the level supports the low-latency protocols of a library (LL, LL128)",
    )
    pxn: bool = switch(
        default=False,
        doc="data for another rail first moves to its device inside the node (rails)",
    )
    routing: str = word(
        "minimal",
        "valiant",
        "adaptive",
        default="adaptive",
        doc=(
            "routing of a dragonfly: direct to the group, over a random group, or the better of "
            "the two"
        ),
    )
    radix: Real | None = integer(
        default=None, minimum=2.0, doc="ports of a switch of a fat tree, half of them down"
    )
    hops: Real | None = integer(
        default=None,
        minimum=0.0,
        doc=(
            "number of switches on a route through this level; for a fat tree it follows from the "
            "radix"
        ),
    )
    hop_latency: Real = quantity(
        SECONDS, default=0.0, doc="latency of one switch, added to the latency of the level"
    )
    cable_latency: Real = quantity(
        SECONDS,
        default=0.0,
        doc="latency of all cables on a route, added to the latency of the level",
    )


@block("fabric", label="required")
class Fabric:
    """The network between devices: nested levels."""

    levels: tuple[Level, ...] = children("level", doc="levels, from the fastest outwards")


@block("plausible", label="none")
class PlausibleRange:
    """The largest plausible value of each quantity, and the smallest value of some.

    A value beyond it probably has a wrong unit or is another quantity.
    """

    device_bandwidth: Real = link_rate(
        doc="bandwidth of one device, on the levels inside of the outermost"
    )
    network_bandwidth: Real = link_rate(
        doc="bandwidth of one device, on the outermost of several levels"
    )
    latency: Real = quantity(SECONDS, positive=True, doc="latency of one message")
    memory: Real | None = quantity(BYTES, default=None, doc="memory of one device")
    memory_bandwidth: Real | None = quantity(
        RATE, default=None, doc="memory bandwidth of one device"
    )
    peak: Real | None = quantity(
        FLOPS, default=None, doc="peak rate of one device, in the narrowest type"
    )
    power: Real | None = quantity(WATTS, default=None, doc="power of one device")
    sequence: Real | None = quantity(ONE, default=None, doc="tokens of a sequence")
    batch: Real | None = quantity(ONE, default=None, doc="tokens of a step")
    micro_batch: Real | None = quantity(
        ONE, default=None, doc="tokens of a micro-batch, of one context-parallel rank"
    )
    bucket: Real | None = quantity(BYTES, default=None, doc="gradients of one bucket")
    least_bucket: Real | None = quantity(
        BYTES, default=None, doc="smallest plausible gradient bucket"
    )
    tokens: Real | None = quantity(ONE, default=None, doc="tokens of a run")
    tokens_per_parameter: Real | None = quantity(
        ONE, default=None, doc="tokens of a run per parameter of the model"
    )
    least_tokens_per_parameter: Real | None = quantity(
        ONE, default=None, doc="fewest tokens per parameter of a run from scratch"
    )
    mfu: Real | None = fraction(default=None, doc="share of the peak of a type of 16 bits or more")
    mfu_fp8: Real | None = fraction(default=None, doc="share of the peak of fp8")
    mfu_fp4: Real | None = fraction(default=None, doc="share of the peak of fp4")
    device_hour: Real | None = quantity(
        DOLLARS / SECONDS, default=None, doc="price of one device per hour"
    )
    intensity: Real | None = quantity(
        GRAMS / JOULES, default=None, doc="carbon intensity of electricity"
    )
    pue: Real | None = quantity(ONE, default=None, doc="PUE of a data centre")


@block(
    "cluster",
    example="cluster { devices = 64 }",
    aliases=ALIASES["cluster"],
)
class Cluster:
    """The devices of the job and the fabric that connects them."""

    device: Device = reference(
        "device", default="device", doc="device of the catalogue or of this file"
    )
    devices: Real = integer(doc="number of devices of the job")
    fabric: Fabric = reference("fabric", default="fabric", doc="network of the devices")
