"""The memory of every device: what its driver shows, or where nobody says, its data sheet.

Vendors print GB. Memory comes in stacks and chips of powers of two, so that most of them mean
2^30 bytes, and some do not; error correction of GDDR takes a sixteenth of it.
"""

from __future__ import annotations

from pathlib import Path

import parcost
import parcost_specs
from parcost_plugins.vocabulary import Device

from ..rows import try_each

DEVICES = sorted(p.stem for p in (Path(parcost_specs.__file__).parent / "devices").glob("*.par"))
MIB, GIB = 2.0**20, 2.0**30

#: MiB that nvidia-smi shows, or rocm-smi in bytes, with error correction as the device ships.
DRIVER = {
    "a10": 23_028,
    "a100_pcie_40g": 40_960,
    "a100_pcie_80g": 81_920,
    "a100_sxm_40g": 40_960,
    "a100_sxm_80g": 81_920,
    "a40": 46_068,
    "a800_sxm_80g": 81_920,
    "b200": 183_359,
    "b300": 275_040,
    "gb200": 189_471,
    "gb300": 284_208,
    "gh200": 97_871,
    "h100_nvl": 95_830,
    "h100_pcie": 81_559,
    "h100_sxm": 81_559,
    "h20": 97_871,
    "h200_nvl": 143_771,
    "h200_sxm": 143_771,
    "h800_sxm": 81_559,
    "l4": 23_034,
    "l40": 46_068,
    "l40s": 46_068,
    "mi210": 65_520,
    "mi250_gcd": 65_520,
    "mi250x_gcd": 65_520,
    "mi300x": 206_141_652_992 / MIB,
    "mi325x": 262_128,
    "mi350x": 294_896,
    "mi355x": 294_896,
    "rtx_3090": 24_576,
    "rtx_4090": 24_564,
    "rtx_5090": 32_607,
    "rtx_6000_ada": 49_140,
    "rtx_a6000": 49_140,
    "t4": 15_360,
    "v100_pcie_16g": 16_160,
    "v100_pcie_32g": 32_510,
    "v100_sxm2_16g": 16_160,
    "v100_sxm2_32g": 32_510,
    "v100_sxm3_32g": 32_510,
}
#: GB on the data sheet, where no driver is known: stacks of HBM, and so of 2^30 bytes.
SHEET = {
    "b100": 180,
    "gaudi2": 96,
    "gaudi3": 128,
    "gh200_144g": 144,
    "h100_sxm_96g": 96,
    "inferentia2": 32,
    "mi100": 32,
    "mi300a": 128,
    "tpu_v2": 16,
    "tpu_v3": 32,
    "tpu_v4": 32,
    "tpu_v5e": 16,
    "tpu_v5p": 95,
    "tpu_v6e": 32,
    "tpu_v7": 192,
    "trainium1": 32,
    "trainium2": 96,
    "trainium3": 144,
}


def capacity(name: str) -> float:
    (scenario,) = parcost.load_text(f"use catalog.devices.{name}\n")
    (study,) = scenario.studies()
    return study[Device].memory  # type: ignore[return-value]


def test_every_device_is_in_one_of_the_tables() -> None:
    assert sorted([*DRIVER, *SHEET]) == DEVICES


@try_each("name, mebibytes", DRIVER.items())
def test_a_device_has_what_its_driver_shows(name: str, mebibytes: float) -> None:
    # The driver keeps some to itself: an H100 has 81,559 of 81,920 MiB.
    assert capacity(name) == mebibytes * MIB


@try_each("name, gibibytes", SHEET.items())
def test_a_device_has_what_its_data_sheet_prints(name: str, gibibytes: float) -> None:
    assert capacity(name) == gibibytes * GIB
