"""Causes: the categories of step time and of device memory.

Every term names its cause, and a report sums by it. Reports, pictures and JSON all print a cause
as it is written here. A plugin may use other words. The core adds the pipeline bubble.
"""

from __future__ import annotations

from parcost import Cause

# Of time.
COMPUTE = "compute"
TENSOR = Cause("TP communication", "tensor", "tp")
CONTEXT = Cause("CP communication", "context", "cp")
EXPERT = Cause("EP communication", "expert", "ep")
DATA = Cause("DP communication", "data", "dp")
HOPS = Cause("pipeline send/recv", "hops", "send/recv", "p2p", "pp")
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
