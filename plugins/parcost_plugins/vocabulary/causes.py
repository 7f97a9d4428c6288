"""Causes: what the time of a step, and the memory of a device, is spent on.

Every term names its cause, and a report sums by it. A cause is one of these words or any
other; it is printed as it is written. The pipeline bubble is the core's own.
"""

from __future__ import annotations

# Of time.
COMPUTE = "compute"
TENSOR = "tensor"
CONTEXT = "context"
EXPERT = "expert"
DATA = "data"
HOPS = "hops"
OPTIMIZER = "optimizer"
HOST = "host"
PRECISION = "precision"
OFFLOAD = "offload"
LOADING = "data loading"
STRAGGLERS = "stragglers"

#: Tags of memory that the allocator of the framework does not hold, and that it loses.
OUTSIDE, FRAGMENTATION = "outside of the allocator", "fragmentation"

# Of memory.
WEIGHTS = "weights"
GRADIENTS = "gradients"
OPTIMIZER_STATE = "optimizer state"
ACTIVATIONS = "activations"
BUFFERS = "buffers"
OVERHEADS = "overheads"
