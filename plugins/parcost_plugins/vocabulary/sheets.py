"""Data sheets: a link, a machine or the state of a model, without a study.

Vendors state a rate per lane or a total of both directions; papers state a number of parameters.
These blocks state the convention, and derive the other values.
"""

from __future__ import annotations

from parcost import BYTES, ONE, RATE, Real, block, fraction, integer, quantity, reference, word
from parcost_plugins.vocabulary.hardware import Device
from parcost_plugins.vocabulary.link_rates import link_rate
from parcost_plugins.vocabulary.training import Precision


@block("link", label="required")
class LinkSheet:
    """A link from its data sheet, described by port or by lane."""

    bandwidth: Real | None = link_rate(
        default=None, doc="bandwidth of one port; by default computed from its lanes"
    )
    lane: Real | None = quantity(
        RATE, default=None, positive=True, doc="raw rate of one lane in one direction"
    )
    lanes: Real = integer(default=1, doc="lanes of one port")
    payload_bits: Real = integer(default=1, doc="payload bits in a block of the line code")
    line_bits: Real = integer(default=1, doc="bits that are sent for a block: 130 for 128 in PCIe")
    ports: Real = integer(default=1, doc="ports of the device or node")
    reference: LinkSheet | None = reference("link", default=None, doc="link to compare with")
    demand: Real | None = quantity(
        RATE, default=None, positive=True, doc="traffic on it in one direction"
    )


@block("machine", label="required")
class MachineSheet:
    """A machine of equal devices: its peak rates and memory in total."""

    device: Device = reference("device", default="device", doc="device of the machine")
    devices: Real = integer(default=1, doc="number of devices")
    compute: str = word(
        "fp32", "tf32", "fp16", "bf16", "fp8", "fp4", default="bf16", doc="type of the matrix peak"
    )


@block("state", label="required")
class StateSheet:
    """The state of a model with a parameter count: its bytes, and their distribution."""

    parameters: Real = quantity(ONE, positive=True, doc="parameters of the model (N)")
    precision: Precision = reference("precision", default="precision", doc="precision recipe")
    tp: Real = integer(default=1, doc="tensor parallel degree")
    pp: Real = integer(default=1, doc="pipeline parallel degree")
    dp: Real = integer(default=1, doc="replicas")
    zero: int = integer(
        default=0, minimum=0, maximum=3, structural=True, doc="ZeRO stage over the replicas"
    )
    micro_batches: Real = integer(
        default=1,
        doc=(
            "micro-batches per step: with ZeRO 2 and 3 each one reduces gradients, with ZeRO 3 "
            "each one gathers weights"
        ),
    )
    layers: Real | None = integer(
        default=None, doc="layers of the model, for the state of one layer"
    )
    capacity: Real | None = quantity(BYTES, default=None, positive=True, doc="memory of one device")
    usable: Real = fraction(default=1.0, positive=True, doc="usable share of the capacity")
    devices: Real = integer(
        default="tp * pp * dp", doc="number of devices whose memory is added up"
    )
    link: LinkSheet | None = reference(
        "link", default=None, doc="link over which a replica reduces its gradients"
    )
    device: Device | None = reference(
        "device", default=None, doc="device whose memory is read once per decoded token"
    )
