"""Labels of blocks, made from arbitrary names."""

from __future__ import annotations

import re


def label_of(name: str) -> str:
    """Return a name as a valid label.

    >>> label_of("llama3-70b.rank0"), label_of("8b"), label_of("")
    ('llama3_70b_rank0', 'run_8b', 'run_')
    """
    found = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
    return found if re.match(r"[A-Za-z]", found) else f"run_{found}"
