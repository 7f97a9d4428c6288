"""Layers of stages as ``--pipeline-model-parallel-layout`` has them."""

from __future__ import annotations

from collections.abc import Sequence


def stage_text(layers: Sequence[int], predict: int = 0) -> str:
    """Return the layout of stages with these *layers* each; *predict* MTP layers join the head.

    >>> stage_text([3, 4, 4, 2])
    'Et*3|t*4|t*4|t*2L'
    >>> stage_text([1, 0], predict=1)
    'Et|mL'
    """
    parts = [f"t*{count}" if count > 1 else "t" * count for count in layers]
    parts[0] = f"E{parts[0]}"
    parts[-1] = f"{parts[-1]}{'m' * predict}L"
    return "|".join(parts)
