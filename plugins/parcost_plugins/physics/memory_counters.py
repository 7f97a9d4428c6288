"""The memory of a step as shown by the counters of the PyTorch allocator and of the device. An
allocator keeps freed blocks until memory runs out.

So counters show more than a step needs, but at most the memory of the device.
"""

from __future__ import annotations

from parcost import Formula, Outcome, Real, Study, formula
from parcost.numeric import maximum
from parcost_plugins.vocabulary.causes import FRAGMENTATION, OUTSIDE
from parcost_plugins.vocabulary.hardware import Cluster

_SHOWN = "min(M + k, max(M, C))"
_BLOCKS = "k free blocks that the allocator keeps"


def used_memory(study: Study, outcome: Outcome) -> Formula:
    """Return the memory in use on the first device, in bytes, as nvidia-smi shows it."""
    needed = outcome.device_memory[0]
    symbols = _symbols(study, needed, outcome.device_reserved[0])
    return formula(f"{_SHOWN}, {_BLOCKS}", symbols, source="nvidia-smi")


def reserved_memory(study: Study, outcome: Outcome) -> Formula:
    """Return the memory that the allocator has reserved, in bytes, on the device with the highest
    value.
    """
    reserved: Real = 0.0
    for bytes_ in outcome.device_reserved:
        reserved = maximum(reserved, bytes_)
    symbols = _symbols(study, outcome.memory_bytes, reserved)
    return formula(
        f"{_SHOWN} - o, {_BLOCKS}, o outside of it",
        {**symbols, "o": (_bytes_of_tag(outcome, OUTSIDE), "B")},
        source="torch.cuda.max_memory_reserved",
    )


def allocated_memory(outcome: Outcome) -> Formula:
    """Return the memory in tensors, in bytes, on the device with the highest value."""
    return formula(
        "M - o - f, o outside of the allocator, f lost between tensors",
        M=(outcome.memory_bytes, "B"),
        o=(_bytes_of_tag(outcome, OUTSIDE), "B"),
        f=(_bytes_of_tag(outcome, FRAGMENTATION), "B"),
        source="torch.cuda.max_memory_allocated",
    )


def _symbols(study: Study, needed: Real, reserved: Real) -> dict[str, tuple[Real, str]]:
    """Return the needed bytes M, the bytes of cached blocks k, and the capacity C of a device."""
    return {
        "M": (needed, "B"),
        "k": (reserved - needed, "B"),
        "C": (study[Cluster].device.memory, "B"),
    }


def _bytes_of_tag(outcome: Outcome, tag: str) -> Real:
    """Return the bytes of memory lines with a *tag*."""
    found: Real = 0.0
    for line in outcome.memory_lines:
        if line.term.tag == tag:
            found = found + line.bytes_
    return found
