"""What the catalogue says of devices without measured runs, and how far predictions are off."""

from __future__ import annotations

from pathlib import Path

import parcost
import parcost_specs
from parcost import Study
from parcost_plugins.vocabulary import Accuracy, Device

from ..rows import try_each

DEVICES = sorted(p.stem for p in (Path(parcost_specs.__file__).parent / "devices").glob("*.par"))
#: Shares of a peak, none of which anything reaches whole.
SHARES = (
    "matmul_efficiency",
    "fp8_matmul_efficiency",
    "fp4_matmul_efficiency",
    "block_matmul_efficiency",
    "memory_efficiency",
    "sustained",
    "narrow_sustained",
)


def study_of(device: str) -> Study:
    return parcost.load_text(f"use catalog.devices.{device}\n")[0].studies()[0]


def accuracy() -> Accuracy:
    return study_of("h100_sxm")[Accuracy]


@try_each("name", DEVICES)
def test_no_device_reaches_its_peak(name: str) -> None:
    device = study_of(name)[Device]
    stated = {share: value for share in SHARES if (value := getattr(device, share)) is not None}
    assert {share: value for share, value in stated.items() if value >= 1} == {}


@try_each("name", DEVICES)
def test_every_device_has_a_family(name: str) -> None:
    family = study_of(name)[Device].family
    assert family is not None
    assert 0 < family.spread < 1


@try_each("name", DEVICES)
def test_what_a_device_without_runs_holds_is_assumed_or_measured(name: str) -> None:
    """A share that was fitted to runs of another device is marked as assumed."""
    study = study_of(name)
    device = study[Device]
    for share in ("sustained", "narrow_sustained"):
        origin = study.origin(device, share)
        assert origin is not None
        if origin.how != "default" and name not in MEASURED:
            assert origin.kind in ("assumed", "measured"), f"{name}.{share}"


#: Devices of the rows that ship, whatever their number.
MEASURED = {
    "a100_sxm_40g",
    "a100_sxm_80g",
    "b200",
    "gb200",
    "gb300",
    "h100_sxm",
    "h100_sxm_96g",
    "h200_sxm",
    "v100_sxm2_16g",
    "v100_sxm2_32g",
    "v100_sxm3_32g",
}


def test_devices_with_runs_are_those_of_the_rows() -> None:
    listed = set(accuracy().devices.split())
    assert listed <= MEASURED
    assert {"a100_sxm_80g", "h100_sxm"} <= listed


def test_every_study_is_like_some_runs() -> None:
    found = accuracy()
    assert found.coverage == 0.9
    for model in ("dense", "experts"):
        assert found.find("step_time", model, "tpu", "generic") is not None
        assert found.find("memory", model, "tpu", "generic") is not None
    for one in found.observed:
        assert one.low <= 1.0 <= one.high
        assert one.models <= one.runs
