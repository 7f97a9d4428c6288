"""A run beyond its steps: data, failures, checkpoints, days, cost, energy.

None of these blocks changes the step time unless it is in the spec. Typical values of machines that
are not measured are in ``datacenter``, which the prelude fills.
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
    """Properties of a site: failure rates, and power beside the devices."""

    device_mtbf: Real = quantity(
        SECONDS, positive=True, doc="mean time between failures that stop a job, of one device"
    )
    pue: Real = quantity(
        ONE,
        minimum=1.0,
        doc="power usage effectiveness (PUE): power of the site / power of its computers",
    )
    host_power: Real = quantity(
        ONE, minimum=1.0, doc="devices, their hosts and their network, over the devices alone"
    )
    activity: Real = fraction(
        doc="of the way from idle to the design power, that a device draws while it computes"
    )
    waiting_activity: Real = fraction(
        doc="the same while it waits for the network, the host or another stage"
    )
    idle_power: Real = fraction(doc="of its design power, that an idle device draws")


@block("run", label="none", example="run { tokens = 15e12 }")
class Run:
    """A whole training run over a number of tokens.

    Its duration follows from the step time, or without a step from published values.
    """

    tokens: Real = quantity(
        ONE, positive=True, qualifiers={"tokens": 1.0}, doc="that are trained on"
    )
    device_time: Real | None = quantity(
        SECONDS,
        default=None,
        positive=True,
        doc="that all devices took together, where it was published: 82_432 h",
    )
    speed: Real | None = quantity(
        ONE,
        default=None,
        positive=True,
        qualifiers={"tokens": 1.0},
        doc="tokens per second and device while it runs, where that was published",
    )
    devices: Real | None = integer(
        default=None, doc="of the run; those of the cluster where it is left out"
    )


@block("reliability", label="none")
class Reliability:
    """The failure rate of the job, and the cost of a failure."""

    restart: Real = quantity(
        SECONDS, doc="from a failure until work goes on: detection, scheduling, loading (R)"
    )
    mtbf: Real | None = quantity(
        SECONDS,
        default=None,
        positive=True,
        doc="mean time between failures of the whole job (M); device_mtbf over the devices "
        "where it is left out",
    )
    device_mtbf: Real | None = quantity(
        SECONDS,
        default=None,
        positive=True,
        doc="the same of one device; datacenter.device_mtbf where both are left out",
    )
    devices: Real | None = integer(
        default=None, doc="that can stop the job; those of the cluster where it is left out"
    )
    lost: Real = fraction(default=0.0, doc="of the time between failures, lost to slow nodes")


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
        doc="useful work between two checkpoints; the optimum where it is left out",
    )
    optimum: str = word(
        "daly", "young", default="daly", doc="whose optimum, where no interval is given"
    )
    blocking: Real | None = quantity(
        SECONDS,
        default=None,
        doc="for which training stands still (C_w); worked out where it is left out",
    )
    size: Real | None = quantity(
        BYTES,
        default=None,
        positive=True,
        doc="of one checkpoint; parameters times bytes_per_parameter where it is left out",
    )
    bytes_per_parameter: Real | None = quantity(
        BYTES,
        default=None,
        positive=True,
        doc="saved; weights and optimizer state of the recipe where it is left out",
    )
    asynchronous: bool = switch(
        default=False, doc="training goes on once the state is copied to the hosts"
    )
    storage: Real | None = quantity(
        RATE, default=None, positive=True, doc="at which the storage takes all writers together"
    )
    node_bandwidth: Real | None = quantity(
        RATE, default=None, positive=True, doc="at which one node writes to the storage"
    )
    nodes: Real | None = integer(
        default=None,
        doc="that write; units of the fabric's first level where it is left out",
    )
    serialisation: Real | None = quantity(
        RATE, default=None, positive=True, doc="at which the host of one shard makes it into a file"
    )
    shards: Real | None = integer(
        default=None,
        doc="that the state is cut into, one to a device; devices that hold different state "
        "where it is left out",
    )
    host_bandwidth: Real | None = quantity(
        RATE,
        default=None,
        positive=True,
        doc="at which one device copies to its host; the device's link where it is left out",
    )


@block("data", label="optional")
class Data:
    """The supply of training data."""

    stall: Real = quantity(
        SECONDS, default=0.0, doc="that every step waits for its batch, where it was measured"
    )
    rate: Real | None = quantity(
        ONE,
        default=None,
        positive=True,
        qualifiers={"tokens": 1.0},
        doc="tokens per second that all loaders deliver together",
    )
    prefetch: bool = switch(
        default=True, doc="the next batch is loaded during the step, and not before it"
    )


@block("price", label="none", example="price { device_hour = 2.5 USD/h }")
class Price:
    """The price of devices."""

    device_hour: Real = quantity(
        DOLLARS / SECONDS, doc="of one device, with its share of everything: 2 USD/h"
    )


@block(
    "energy",
    label="optional",
    used_with={
        ("waiting_activity",): "a step: devices of a published run are taken to compute all the "
        "time",
    },
)
class Energy:
    """The power of devices, and its carbon emissions."""

    power: Real | None = quantity(
        WATTS,
        default=None,
        positive=True,
        doc="design power of a device; the device's own where it is left out",
    )
    activity: Real = fraction(
        default="datacenter.activity",
        doc="of the way from idle to the design power, that a device draws while it computes",
    )
    waiting_activity: Real = fraction(
        default="datacenter.waiting_activity",
        doc="the same while it waits for the network, the host or another stage",
    )
    idle_power: Real = fraction(
        default="datacenter.idle_power", doc="of its design power, that an idle device draws"
    )
    host_power: Real = quantity(
        ONE,
        minimum=1.0,
        default="datacenter.host_power",
        doc="devices, their hosts and their network, over the devices alone",
    )
    pue: Real = quantity(
        ONE,
        minimum=1.0,
        default="datacenter.pue",
        doc="power usage effectiveness (PUE): power of the site / power of its computers",
    )
    intensity: Real | None = quantity(
        GRAMS / JOULES, default=None, doc="carbon dioxide per energy drawn: 400 g/kWh"
    )
