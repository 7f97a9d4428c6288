"""The clock that a device holds under a power cap. A definition, not a cost.

A board of 700 W that is held to 500 W keeps 66 % of the power that its clock moves, where 16 % of
the 700 are drawn in any case; that is 82 % of its clock:

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

    What the clock does not move leaves them a part x of the power that they had. They draw as
    f V^2, and the voltage V falls with the clock f down to w of what it was: f is the cube root
    of x, or x / w^2 once the voltage stays.
    """
    cap, power = device.power_cap, device.power
    if cap is None or power is None:
        return 1.0
    static = choice.static_power if device.static_power is None else device.static_power
    left = minimum(maximum((cap / power - static) / (1.0 - static), 0.0), 1.0)
    floor = choice.lowest_voltage
    return where(left >= floor**3, left ** (1.0 / 3.0), left / floor**2)
