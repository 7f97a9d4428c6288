"""The clock that a device holds under a power cap. A definition, not a cost.

A board of 700 W is capped to 500 W; 16 % of the 700 W are static. So 66 % of the dynamic power
remain, which is 82 % of its clock:

>>> from types import SimpleNamespace
>>> device = SimpleNamespace(power=700.0, power_cap=500.0, static_power=None)
>>> kernels = SimpleNamespace(static_power=0.16, lowest_voltage=0.9)
>>> round(clock(device, kernels), 3)
0.815
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parcost import Real
from parcost.numeric import maximum, minimum, where

if TYPE_CHECKING:
    from parcost_plugins.vocabulary.hardware import Device
    from parcost_plugins.vocabulary.training import KernelChoice


def clock(device: Device, choice: KernelChoice) -> Real:
    """Return the clock that matrix units hold under the power cap, over that without.

    After static power a part x of their dynamic power remains. It is proportional to f V^2, and the
    voltage V falls with the clock f. The lowest voltage is w of the nominal one. So f is the cube
    root of x, or ``x / w^2`` at the lowest voltage.
    """
    cap, power = device.power_cap, device.power
    if cap is None or power is None:
        return 1.0
    static = choice.static_power if device.static_power is None else device.static_power
    left = minimum(maximum((cap / power - static) / (1.0 - static), 0.0), 1.0)
    floor = choice.lowest_voltage
    return where(left >= floor**3, left ** (1.0 / 3.0), left / floor**2)
