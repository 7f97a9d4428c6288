"""Peaks that cannot all be dense: vendors also state sparse peaks, which are twice as high.

On devices with tensor cores the dense peak doubles if the type has half the bits. All data sheets
with both peaks agree. A factor of four or one means that one of the peaks is sparse. Some devices
differ, so the rule accepts two peaks with provenance.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Mask, Real, Study, block_name
from parcost_plugins.physics.clocks import has_law, static_share
from parcost_plugins.rules.rulebook import RULES
from parcost_plugins.vocabulary import Cluster, Device, KernelChoice

_WIDTHS = (("tf32", "fp16"), ("tf32", "bf16"), ("fp16", "fp8"), ("bf16", "fp8"), ("fp8", "fp4"))

#: Attributes of the rates of products and attention, including the cap.
_REACHED = ("gemm_efficiency", "attention_forward_efficiency", "attention_backward_efficiency")


def rules(study: Study) -> Iterator[Check]:
    """Return the rules that compare neighbouring data types of the device in use.

    A peak that is twice too high conflicts with both neighbouring types; it is reported once.
    """
    device = study[Cluster].device
    reported: Mask = False
    for wide, narrow in _WIDTHS:
        slow: Real | None = getattr(device, wide)
        fast: Real | None = getattr(device, narrow)
        if slow is not None and fast is not None and not _have_sources(study, device, wide, narrow):
            good = (fast / slow > 1.5) & (fast / slow < 3.0)
            yield _check(device, wide, narrow, good | reported, slow, fast)
            reported = reported | (good ^ True)
    yield from _power(study, device)


def _power(study: Study, device: Device) -> Iterator[Check]:
    """Require that the design power exceeds a power cap, which leaves power for compute."""
    kernels = study[KernelChoice]
    if has_law(device):
        power = device.power
        share = static_share(device, kernels)
        memory = device.memory_power
        assert power is not None
        yield RULES.check(
            "power-low",
            power * (1.0 - share) > memory,
            f"{block_name(device)}.power",
            power=power,
            share=100.0 * share,
            memory=memory,
        )
    if device.power_cap is not None:
        yield from _power_cap(device, kernels, device.power_cap)


def _power_cap(device: Device, kernels: KernelChoice, cap: Real) -> Iterator[Check]:
    """Require that a *cap* in W is below the design power and leaves power for compute."""
    power = device.power
    yield RULES.check(
        "power-cap-without-power", power is not None, f"{block_name(device)}.power_cap", cap=cap
    )
    if power is None:
        return
    share = static_share(device, kernels)
    inputs = {"cap": cap, "power": power, "least": share * power, "share": 100.0 * share}
    yield RULES.check(
        "power-cap-low", cap > share * power, f"{block_name(device)}.power_cap", inputs=inputs
    )
    yield RULES.check(
        "power-cap-idle", cap <= power, f"{block_name(device)}.power_cap", inputs=inputs
    )
    given = [name for name in _REACHED if getattr(kernels, name) is not None]
    if given:
        yield RULES.check(
            "power-cap-unread",
            False,
            f"{block_name(device)}.power_cap",
            given=" and ".join(f"`kernels.{name}`" for name in given),
        )


def _have_sources(study: Study, device: Device, *names: str) -> bool:
    """Return whether each of these figures has a source."""
    origins = [study.origin(device, name) for name in names]
    return all(origin is not None and origin.source for origin in origins)


def _check(device: Device, wide: str, narrow: str, holds: Mask, slow: Real, fast: Real) -> Check:
    return RULES.check(
        "sparse-peak",
        holds,
        f"{block_name(device)}.{narrow}",
        factor=slow / fast,
        narrow=narrow,
        wide=wide,
        fast=fast / 1e12,
        slow=slow / 1e12,
        ratio=fast / slow,
    )
