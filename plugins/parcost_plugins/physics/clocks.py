"""The sustained clock of a device under its power limit, and the resulting rate of GEMMs.

Example: a board of 700 W has a cap of 500 W, and 16 % of the 700 W are static. So 66 % of the
dynamic power remain, which allow 82 % of the clock:

>>> from types import SimpleNamespace
>>> device = SimpleNamespace(power=700.0, power_cap=500.0, static_power=None)
>>> kernels = SimpleNamespace(static_power=0.16, lowest_voltage=0.9)
>>> round(clock(device, kernels), 3)
0.815
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parcost import Formula, Real, attribute
from parcost.numeric import maximum, minimum, where

if TYPE_CHECKING:
    from parcost_plugins.vocabulary.hardware import Device
    from parcost_plugins.vocabulary.training import KernelChoice

SOURCE = "dynamic power is proportional to f V^2, and the voltage falls with the clock f"
#: Halvings of the width of 16 bits; negative for wider types, which need more energy per FLOP.
_HALVINGS = {"fp32": -1, "tf32": -1, "fp16": 0, "bf16": 0, "fp8": 1, "fp4": 2}


def clock(device: Device, choice: KernelChoice) -> Real:
    """Return the sustained clock of the tensor cores under the power cap / the clock without a cap.

    Under the cap a fraction x of the dynamic power remains. Dynamic power is proportional to f V^2.
    The voltage V decreases with the clock f, down to w of the nominal voltage. So f is the cube
    root of x, or ``x / w^2`` at the lowest voltage.
    """
    cap, power = device.power_cap, device.power
    if cap is None or power is None:
        return 1.0
    static = static_share(device, choice)
    return _clock_at((cap / power - static) / (1.0 - static), choice)


def static_share(device: Device, choice: KernelChoice) -> Real:
    """Return the static share of a device's design power, independent of the clock."""
    return choice.static_power if device.static_power is None else device.static_power


def _clock_at(left: Real, choice: KernelChoice) -> Real:
    """Return the clock relative to the full one, at a fraction *left* of the dynamic power."""
    left = minimum(maximum(left, 0.0), 1.0)
    floor = choice.lowest_voltage
    return where(left >= floor**3, left ** (1.0 / 3.0), left / floor**2)


def held_share(device: Device, choice: KernelChoice, compute: str) -> Real:
    """Return the sustained GEMM rate in a step / the rate of the device's fastest GEMM.

    *compute* is the data type of the GEMMs. The stated value of the device is used, or
    else its power limit; without a power or an energy per FLOP it is 1.
    """
    stated = device.narrow_sustained if _HALVINGS[compute] > 0 else device.sustained
    if stated is not None:
        return stated
    if has_law(device):
        return power_share(device, choice, compute)
    return 1.0 if device.sustained is None else device.sustained


def has_law(device: Device) -> bool:
    """Return whether the sustained rate of a device can be derived from its power."""
    return device.product_energy is not None and device.power is not None


def power_share(device: Device, choice: KernelChoice, compute: str) -> Real:
    """Return the GEMM rate at the power limit / the rate of the device's fastest GEMM.

    At full clock the power of GEMMs is the energy per FLOP times the rate. Only a fraction x of it
    is available after static and memory power, and determines the clock.
    """
    energy, power = device.product_energy, device.power
    assert energy is not None
    assert power is not None
    demand = energy * choice.narrow_energy ** _HALVINGS[compute] * _best_rate(device, compute)
    left = power * (1.0 - static_share(device, choice)) - device.memory_power
    return _clock_at(left / demand, choice)


def explain_held_share(device: Device, choice: KernelChoice, compute: str) -> Formula:
    """Return :func:`held_share` with its formula."""
    name = "narrow_sustained" if _HALVINGS[compute] > 0 else "sustained"
    if getattr(device, name) is not None:
        return attribute(device, name)
    if not has_law(device):
        if device.sustained is not None:
            return attribute(device, "sustained")
        return Formula("1, as no energy of products is stated", value=1.0)
    return Formula(
        "clock at x = (P (1 - s) - M) / (E r^h F): the cube root of x, or x / w^2",
        {
            "P": attribute(device, "power"),
            "s": static_share(device, choice),
            "M": attribute(device, "memory_power"),
            "E": attribute(device, "product_energy"),
            "r": attribute(choice, "narrow_energy"),
            "h": float(_HALVINGS[compute]),
            "F": (_best_rate(device, compute), "FLOP/s"),
            "w": attribute(choice, "lowest_voltage"),
        },
        source=SOURCE,
        value=power_share(device, choice, compute),
    )


def _best_rate(device: Device, compute: str) -> Real:
    """Return the rate of the fastest GEMM of a data type at full clock, in FLOP/s."""
    found: Real | None = getattr(device, compute)
    best = f"{compute}_matmul_efficiency" if _HALVINGS[compute] > 0 else "matmul_efficiency"
    share: Real = getattr(device, best)
    return maximum(0.0 if found is None else found, 1.0) * share
