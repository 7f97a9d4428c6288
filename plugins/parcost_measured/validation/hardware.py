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
from parcost_measured.validation.rows import Hardware
from parcost_plugins.vocabulary import Device, Fabric


@frozen
class HardwareEntry:
    """A device of the catalogue, by a pattern of what sources call it."""

    pattern: str
    device: str

    @property
    def fabric(self) -> str:
        """The fabric of the catalogue whose nodes hold the device."""
        return block_name(_fabric(self.device))

    @property
    def level(self) -> str:
        """The level of this fabric inside of the network: a server, or an NVLink domain."""
        return block_name(_fabric(self.device).levels[-2])


#: The first whose pattern is found counts: narrower names stand before wider ones.
ENTRIES = (
    HardwareEntry(r"GB300", "gb300"),
    HardwareEntry(r"GB200", "gb200"),
    HardwareEntry(r"GH200.*(144|141)", "gh200_144g"),
    HardwareEntry(r"GH200", "gh200"),
    HardwareEntry(r"B300", "b300"),
    HardwareEntry(r"B200", "b200"),
    HardwareEntry(r"B100", "b100"),
    HardwareEntry(r"H200.*NVL", "h200_nvl"),
    HardwareEntry(r"H200", "h200_sxm"),
    HardwareEntry(r"H100.*NVL\b", "h100_nvl"),
    HardwareEntry(r"H100.*PCI", "h100_pcie"),
    HardwareEntry(r"H100.*96 ?G", "h100_sxm_96g"),
    HardwareEntry(r"H100", "h100_sxm"),
    HardwareEntry(r"H800", "h800_sxm"),
    HardwareEntry(r"H20\b", "h20"),
    HardwareEntry(r"A800", "a800_sxm_80g"),
    HardwareEntry(r"A100.*(40 ?G.*PCI|PCI.*40 ?G)", "a100_pcie_40g"),
    HardwareEntry(r"A100.*PCI", "a100_pcie_80g"),
    HardwareEntry(r"A100.*40 ?G", "a100_sxm_40g"),
    HardwareEntry(r"A100", "a100_sxm_80g"),
    HardwareEntry(r"V100.*(16 ?G.*PCI|PCI.*16 ?G)", "v100_pcie_16g"),
    HardwareEntry(r"V100.*PCI", "v100_pcie_32g"),
    HardwareEntry(r"V100.*16 ?G", "v100_sxm2_16g"),
    HardwareEntry(r"V100", "v100_sxm2_32g"),
    HardwareEntry(r"L40S", "l40s"),
    HardwareEntry(r"L40\b", "l40"),
    HardwareEntry(r"L4\b", "l4"),
    HardwareEntry(r"A40\b", "a40"),
    HardwareEntry(r"A10G?\b", "a10"),
    HardwareEntry(r"T4\b", "t4"),
    HardwareEntry(r"6000.*Ada", "rtx_6000_ada"),
    HardwareEntry(r"A6000", "rtx_a6000"),
    HardwareEntry(r"5090", "rtx_5090"),
    HardwareEntry(r"4090", "rtx_4090"),
    HardwareEntry(r"3090", "rtx_3090"),
    HardwareEntry(r"MI355X", "mi355x"),
    HardwareEntry(r"MI350X", "mi350x"),
    HardwareEntry(r"MI325X", "mi325x"),
    HardwareEntry(r"MI300A", "mi300a"),
    HardwareEntry(r"MI300X", "mi300x"),
    HardwareEntry(r"MI250X", "mi250x_gcd"),
    HardwareEntry(r"MI250", "mi250_gcd"),
    HardwareEntry(r"MI210", "mi210"),
    HardwareEntry(r"MI100", "mi100"),
    HardwareEntry(r"Gaudi ?-?3", "gaudi3"),
    HardwareEntry(r"Gaudi ?-?2", "gaudi2"),
    HardwareEntry(r"v6e|Trillium", "tpu_v6e"),
    HardwareEntry(r"v5p", "tpu_v5p"),
    HardwareEntry(r"v5e|v5 ?lite", "tpu_v5e"),
    HardwareEntry(r"v4", "tpu_v4"),
)


def entry_of(hardware: Hardware) -> HardwareEntry | None:
    """Return the catalogue entry for *hardware*, None if there is none."""
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


def device_names() -> str:
    """Return the names of supported devices, for a message."""
    return ", ".join(dict.fromkeys(entry.device for entry in ENTRIES))


#: Fabrics of this cluster, by the fabric with the same nodes.
JEAN_ZAY: Mapping[str, str] = {"dgx_a100": "jean_zay", "dgx_v100": "jean_zay_v100"}


def fabric_of(hardware: Hardware, entry: HardwareEntry) -> str:
    """Return the fabric of the catalogue for a row, by its cluster and its device."""
    if re.search(r"Jean Zay", hardware.internode or "", re.IGNORECASE):
        return JEAN_ZAY.get(entry.fabric, entry.fabric)
    return entry.fabric


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

    In a rack of 72, a job whose size is not divisible by 72 takes 64.
    """
    found = re.search(r"domain (\d+)", hardware.intranode or "", re.IGNORECASE)
    if not found:
        return None
    size = int(found[1])
    usual = size - size % 16
    if hardware.gpus <= size or not hardware.gpus % size or hardware.gpus % usual:
        return size
    return usual
