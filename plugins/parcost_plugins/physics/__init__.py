"""Formulas that plugins share: partition, routing, sharding, exchanges, clocks.

They read the blocks of ``parcost_plugins.vocabulary``. Any plugin may import from here; a
third-party plugin writes ``from parcost_plugins.physics import layers, on_last``.
"""

from parcost_plugins.physics.adapters import flops_per_token
from parcost_plugins.physics.interference import multiprocessors_taken, slowdown
from parcost_plugins.physics.memory_limits import MemoryLimits, memory_limits
from parcost_plugins.physics.partition import layers, on_first, on_last, virtual_stages

__all__ = [
    "MemoryLimits",
    "flops_per_token",
    "layers",
    "memory_limits",
    "multiprocessors_taken",
    "on_first",
    "on_last",
    "slowdown",
    "virtual_stages",
]
