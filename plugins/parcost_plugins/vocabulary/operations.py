"""A whole run: data, failures, checkpoints, days, cost, energy.

None of these blocks changes the step time unless it is in the spec. Typical values for unmeasured
sites are in ``datacenter``, which the prelude sets.
"""

from __future__ import annotations

from parcost import (
    BYTES,
    DOLLARS,
    GRAMS,
    JOULES,
    ONE,
    RATE,
    SECONDS,
    WATTS,
    Real,
    block,
    fraction,
    integer,
    quantity,
    switch,
    word,
)


@block(
    "datacenter",
    label="none",
    used_with={
        ("pue", "host_power", "activity", "idle_power"): "a block `energy`",
        ("waiting_activity",): "a block `energy` and a step",
    },
)
class Datacenter:
    """Properties of a site: failure rates, and power of other equipment than devices."""

    device_mtbf: Real = quantity(
        SECONDS, positive=True, doc="mean time between failures of one device that stop a job"
    )
    pue: Real = quantity(
        ONE,
        minimum=1.0,
        doc="power usage effectiveness (PUE): power of the site / power of its computing equipment",
    )
    host_power: Real = quantity(
        ONE,
        minimum=1.0,
        doc="factor for hosts and network: power of devices, hosts and network / power of devices",
    )
    activity: Real = fraction(
        doc="power of a device that computes, as a share of the range from idle to design power"
    )
    waiting_activity: Real = fraction(
        doc="the same for a device that waits for the network, the host or another stage"
    )
    idle_power: Real = fraction(doc="power of an idle device, as a share of its design power")


@block("run", label="none", example="run { tokens = 15e12 }")
class Run:
    """A whole training run over a number of tokens.

    Its duration follows from the step time, or without a step from published values.
    """

    tokens: Real = quantity(
        ONE, positive=True, qualifiers={"tokens": 1.0}, doc="tokens of the whole run"
    )
    device_time: Real | None = quantity(
        SECONDS,
        default=None,
        positive=True,
        doc="published device-hours of the run: 82_432 h",
    )
    speed: Real | None = quantity(
        ONE,
        default=None,
        positive=True,
        qualifiers={"tokens": 1.0},
        doc="published tokens per second and device",
    )
    devices: Real | None = integer(
        default=None, doc="devices of the run; by default those of the cluster"
    )


@block("reliability", label="none")
class Reliability:
    """The failure rate of the job, and the cost of a failure."""

    restart: Real = quantity(
        SECONDS,
        doc="restart time after a failure: detection, scheduling, loading (R)",
    )
    mtbf: Real | None = quantity(
        SECONDS,
        default=None,
        positive=True,
        doc="mean time between failures of the whole job (M); by default `device_mtbf` / devices",
    )
    device_mtbf: Real | None = quantity(
        SECONDS,
        default=None,
        positive=True,
        doc="mean time between failures of one device; by default `datacenter.device_mtbf`",
    )
    devices: Real | None = integer(
        default=None,
        doc="number of devices whose failure stops the job; by default those of the cluster",
    )
    lost: Real = fraction(default=0.0, doc="share of time that is lost to slow nodes")


@block(
    "checkpoint",
    label="optional",
    used_with={
        ("nodes",): "`checkpoint.node_bandwidth`: a `storage` takes all writers together",
    },
)
class Checkpoint:
    """How state is saved, and how often."""

    interval: Real | None = quantity(
        SECONDS,
        default=None,
        positive=True,
        doc="interval between two checkpoints; by default the optimum",
    )
    optimum: str = word(
        "daly",
        "young",
        default="daly",
        doc="formula of the optimal interval, if no interval is set",
    )
    blocking: Real | None = quantity(
        SECONDS,
        default=None,
        doc="time that training waits for a checkpoint (C_w); computed if not set",
    )
    size: Real | None = quantity(
        BYTES,
        default=None,
        positive=True,
        doc="size of one checkpoint; by default parameters x bytes_per_parameter",
    )
    bytes_per_parameter: Real | None = quantity(
        BYTES,
        default=None,
        positive=True,
        doc="saved bytes per parameter; by default weights and optimizer state of the recipe",
    )
    asynchronous: bool = switch(
        default=False, doc="asynchronous checkpoint: training continues after the copy to the hosts"
    )
    storage: Real | None = quantity(
        RATE, default=None, positive=True, doc="write rate of the storage, for all writers together"
    )
    node_bandwidth: Real | None = quantity(
        RATE, default=None, positive=True, doc="write rate of one node to the storage"
    )
    nodes: Real | None = integer(
        default=None,
        doc="number of nodes that write; by default the units of the first level of the fabric",
    )
    serialisation: Real | None = quantity(
        RATE,
        default=None,
        positive=True,
        doc="rate at which a host serialises one shard into a file",
    )
    shards: Real | None = integer(
        default=None,
        doc=(
            "number of shards, one per device; by default the number of devices with different "
            "state"
        ),
    )
    host_bandwidth: Real | None = quantity(
        RATE,
        default=None,
        positive=True,
        doc="rate of the copy from one device to its host; by default the link of the device",
    )


@block("data", label="optional")
class Data:
    """The supply of training data."""

    stall: Real = quantity(
        SECONDS, default=0.0, doc="measured time that every step waits for its batch"
    )
    rate: Real | None = quantity(
        ONE,
        default=None,
        positive=True,
        qualifiers={"tokens": 1.0},
        doc="tokens per second that all loaders deliver together",
    )
    prefetch: bool = switch(
        default=True, doc="prefetching: the next batch is loaded during the step"
    )


@block("price", label="none", example="price { device_hour = 2.5 USD/h }")
class Price:
    """The price of devices."""

    device_hour: Real = quantity(
        DOLLARS / SECONDS, doc="price of one device per hour, including hosts and network: 2 USD/h"
    )


@block(
    "energy",
    label="optional",
    used_with={
        (
            "waiting_activity",
        ): "a step: devices of a published run are assumed to compute all the time",
    },
)
class Energy:
    """The power of devices, and its carbon emissions."""

    power: Real | None = quantity(
        WATTS,
        default=None,
        positive=True,
        doc="design power of a device; by default that of `device`",
    )
    activity: Real = fraction(
        default="datacenter.activity",
        doc="power of a device that computes, as a share of the range from idle to design power",
    )
    waiting_activity: Real = fraction(
        default="datacenter.waiting_activity",
        doc="the same for a device that waits for the network, the host or another stage",
    )
    idle_power: Real = fraction(
        default="datacenter.idle_power",
        doc="power of an idle device, as a share of its design power",
    )
    host_power: Real = quantity(
        ONE,
        minimum=1.0,
        default="datacenter.host_power",
        doc="factor for hosts and network: power of devices, hosts and network / power of devices",
    )
    pue: Real = quantity(
        ONE,
        minimum=1.0,
        default="datacenter.pue",
        doc="power usage effectiveness (PUE): power of the site / power of its computing equipment",
    )
    intensity: Real | None = quantity(
        GRAMS / JOULES, default=None, doc="carbon dioxide per energy drawn: 400 g/kWh"
    )
