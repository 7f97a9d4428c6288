"""Shares and rates that survive a step of nothing, as when the plugins that price it are off."""

from __future__ import annotations

import sys

from parcost import Real
from parcost.numeric import maximum


def ratio(part: Real, whole: Real) -> Real:
    """Return ``part / whole``; nothing of nothing is 0, anything else is infinite.

    >>> ratio(1.0, 4.0), ratio(0.0, 0.0), ratio(1e9, 0.0)
    (0.25, 0.0, inf)
    """
    return part / maximum(whole, sys.float_info.min)
