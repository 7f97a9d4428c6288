"""Causes: the categories of step time and of device memory.

Every term has a cause, and a report sums up by cause. Reports, pictures and JSON print the names
defined here; terminals, pages and charts use their colors. The colors are distinguishable with
color blindness (mostly from Okabe and Ito 2008). A plugin may use other causes. The core adds the
pipeline bubble.
"""

from __future__ import annotations

from parcost import Cause

# Of time.
COMPUTE = Cause("compute", color="#0072B2")
TENSOR = Cause("TP communication", "tensor", "tp", color="#E69F00")
CONTEXT = Cause("CP communication", "context", "cp", color="#56B4E9")
EXPERT = Cause("EP communication", "expert", "ep", color="#CC79A7")
DATA = Cause("DP communication", "data", "dp", color="#009E73")
HOPS = Cause("pipeline send/recv", "hops", "send/recv", "p2p", "pp", color="#D55E00")
OPTIMIZER = Cause("optimizer", color="#B8A500")
HOST = Cause("host", color="#7A5195")
PRECISION = Cause("precision", color="#A65E2E")
OFFLOAD = Cause("offload", color="#4C9F9F")
LOADING = Cause("data loading", color="#5B8C3A")
STRAGGLERS = Cause("stragglers", color="#B04A6F")
OTHER = Cause("other", color="#B0B6BC")  # the color of every cause that has none

#: Tags of memory outside of the framework's allocator, and of fragmentation.
OUTSIDE, FRAGMENTATION = "outside of the allocator", "fragmentation"

# Of memory.
WEIGHTS = Cause("weights", color="#0072B2")
GRADIENTS = Cause("gradients", color="#009E73")
OPTIMIZER_STATE = Cause("optimizer state", color="#B8A500")
ACTIVATIONS = Cause("activations", color="#CC79A7")
BUFFERS = Cause("buffers", color="#56B4E9")
OVERHEADS = Cause("overheads", color="#8C8C8C")
