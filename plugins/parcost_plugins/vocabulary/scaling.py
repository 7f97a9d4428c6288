"""Scaling: larger models, larger batches, more devices."""

from __future__ import annotations

from parcost import BYTES, FLOP, FLOPS, ONE, SECONDS, Real, block, fraction, integer, quantity
from parcost_plugins.vocabulary.hardware import DENSITY
from parcost_plugins.vocabulary.link_rates import link_rate


@block("scaling_law", label="required")
class ScalingLaw:
    """A power law of the loss: ``L(x) = floor + (scale / x) ** exponent``."""

    exponent: Real = quantity(
        ONE, positive=True, doc="exponent of the loss: 0.076 in parameters (Kaplan et al. 2020)"
    )
    scale: Real | None = quantity(
        ONE, default=None, positive=True, doc="model size at which the reducible loss is 1"
    )
    floor: Real = quantity(ONE, default=0.0, doc="irreducible loss")
    improvement: Real = quantity(
        ONE,
        default=2.0,
        positive=True,
        doc="desired factor of the improvement of the reducible loss",
    )
    small: Real | None = quantity(
        ONE, default=None, positive=True, doc="smaller model size, in parameters"
    )
    large: Real | None = quantity(ONE, default=None, positive=True, doc="another size")


@block("batch_scaling", label="required")
class BatchScaling:
    """Efficiency over the batch: compute grows with it, traffic does not.

    A step computes ``flops`` per sample, and sends ``bytes`` at any batch size.
    """

    flops: Real = quantity(FLOP, positive=True, doc="FLOPs of one sample, on one device")
    traffic: Real = quantity(BYTES, positive=True, doc="bytes that one device sends in a step")
    batch: Real = quantity(ONE, positive=True, default=1.0, doc="samples of a step, per device")
    peak: Real = quantity(
        FLOPS,
        positive=True,
        qualifiers=DENSITY,
        must_qualify=True,
        doc="compute of one device",
    )
    bandwidth: Real = link_rate(doc="link bandwidth of one device")
    target: Real = fraction(positive=True, default=0.9, doc="target efficiency for the batch size")


@block("equivalent", label="required")
class EquivalentDevices:
    """The number of fully efficient devices that do the same work as a job."""

    devices: Real = integer(doc="devices of the job")
    efficiency: Real = fraction(doc="efficiency of each device, compared with a single device")


@block("jitter", label="none")
class Jitter:
    """Random variation of step time over ranks: a synchronous step waits for the slowest."""

    deviation: Real = quantity(SECONDS, doc="standard deviation of the step time of a rank")
    ranks: Real | None = integer(
        default=None, doc="number of ranks that synchronise; by default the devices of the cluster"
    )
