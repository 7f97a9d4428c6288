"""The device and the fabric of the catalogue for a row.

Sources name devices in their own words: the first pattern that matches `hardware.gpu` selects the
catalogue entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache

from attrs import frozen

from parcost import block_name, load_text
from parcost_measured.validation.names import DEVICES
from parcost_measured.validation.rows import Hardware
from parcost_plugins.vocabulary import Device, Fabric


@frozen
class HardwareEntry:
    """A device of the catalogue, with a pattern of its names in sources."""

    pattern: str
    device: str

    @property
    def fabric(self) -> str:
        """The fabric of the catalogue whose nodes hold the device."""
        return block_name(_fabric(self.device))


#: The first whose pattern is found counts.
ENTRIES = tuple(HardwareEntry(*row) for row in DEVICES.items())


def entry_of(hardware: Hardware) -> HardwareEntry | None:
    """Return the catalogue entry for *hardware*, None if none exists."""
    for entry in ENTRIES:
        if re.search(entry.pattern, hardware.gpu, re.IGNORECASE):
            return entry
    return None


@cache
def _catalogue_device(name: str) -> Device:
    (scenario,) = load_text(f"use catalog.devices.{name}\n")
    (device,) = scenario.first.all(Device)
    return device


def _fabric(device: str) -> Fabric:
    fabric = _catalogue_device(device).fabric
    assert fabric is not None, device
    return fabric


def families_of(devices: Iterable[str]) -> Mapping[str, str]:
    """Return the family of each device of the catalogue, by name; "" if it has none."""
    families = {name: _catalogue_device(name).family for name in devices if name}
    return {name: block_name(one) if one is not None else "" for name, one in families.items()}


def attention_kernels_of(device: str) -> frozenset[str]:
    """Return the attention kernels that have a measured rate on a device of the catalogue."""
    table = _catalogue_device(device).attention
    return frozenset(() if table is None else (kernel.kernel for kernel in table.kernels))


def device_names() -> str:
    """Return the names of supported devices, for a message."""
    return ", ".join(dict.fromkeys(entry.device for entry in ENTRIES))


#: Fabrics of this cluster, by the fabric with the same nodes.
JEAN_ZAY: Mapping[str, str] = {"dgx_a100": "jean_zay", "dgx_v100": "jean_zay_v100"}


#: Nodes of up to four superchips, by the fabric of a rack whose switches join all of them.
NODES: Mapping[str, tuple[str, int]] = {"gh200_nvl32": ("gh200_quad", 4)}


def fabric_of(hardware: Hardware, entry: HardwareEntry) -> str:
    """Return the fabric of the catalogue for a row, by its cluster, its nodes and its device."""
    if re.search(r"Jean Zay", hardware.internode or "", re.IGNORECASE):
        return JEAN_ZAY.get(entry.fabric, entry.fabric)
    node, size = NODES.get(entry.fabric, ("", 0))
    rack = re.search(
        r"NVL ?\d|domain|switch", f"{hardware.gpu} {hardware.intranode}", re.IGNORECASE
    )
    if not rack and 1 <= (hardware.gpus_per_node or 0) <= size:
        return node
    return entry.fabric


@cache
def inner_level(fabric: str) -> str:
    """Return the level of a fabric below the network: a server, or an NVLink domain."""
    (scenario,) = load_text(f"use catalog.fabrics.{fabric}\n")
    return block_name(scenario.first.all(Fabric)[0].levels[-2])


@frozen
class HardwareNetwork:
    """The outermost level of a row's fabric: ports per node, Gb/s per port, and its kind."""

    ports: int
    gbps: float
    kind: str | None


def network_of(hardware: Hardware) -> HardwareNetwork | None:
    """Return the network between the nodes of a row, None if its bandwidth is unknown.

    `internode_gbps` is the total of a node; the text may state the number of ports. Several ports
    of one device count as one, so that the text never changes the bandwidth of a device.
    """
    if hardware.internode_gbps is None or hardware.gpus_per_node is None:
        return None
    text = hardware.internode or ""
    ports = hardware.gpus_per_node
    printed = re.search(r"(\d+) ?x ?(?:[A-Za-z][\w-]* )*(\d+)", text)
    if printed and int(printed[1]) * float(printed[2]) == hardware.internode_gbps:
        ports = min(int(printed[1]), ports)
    kind = "ethernet" if re.search(r"RoCE|Ethernet|EFA", text, re.IGNORECASE) else None
    return HardwareNetwork(ports, hardware.internode_gbps / ports, kind)


def domain_of(hardware: Hardware) -> int | None:
    """Return the number of devices used in each NVLink domain, if `intranode` states its size.

    In a rack of 72, a job whose size is not divisible by 72 uses 64 devices.
    """
    found = re.search(r"domain (\d+)", hardware.intranode or "", re.IGNORECASE)
    if not found:
        return None
    size = int(found[1])
    usual = size - size % 16
    if hardware.gpus <= size or not hardware.gpus % size or hardware.gpus % usual:
        return size
    return usual
