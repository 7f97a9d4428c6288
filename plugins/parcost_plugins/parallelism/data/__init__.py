"""Data parallelism and ZeRO: gradients are reduced, and parameters gathered.

- ZeRO 0 reduces gradients once per step, after (and under) the last backward pass.
- ZeRO 1 scatters the same sums and gathers the updated parameters.
- ZeRO 2 keeps only a share of the gradients, so it reduces in every micro-batch.
- ZeRO 3 keeps only a share of the parameters too, so it gathers them for each pass.
"""

from __future__ import annotations

from parcost import Once, Study, Work, hookimpl
from parcost_plugins.parallelism.data import replicated, sharded, tied
from parcost_plugins.vocabulary import Layout


@hookimpl
def terms(study: Study) -> list[Work | Once]:
    """Price the traffic of the ZeRO stage that the layout asks for."""
    if study[Layout].zero == 3:
        return [*sharded.passes(study), *tied.reduction(study)]
    return [
        *replicated.reduction(study),
        *replicated.gather(study),
        *tied.reduction(study),
    ]
