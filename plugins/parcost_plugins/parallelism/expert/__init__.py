"""Expert parallelism: tokens are sent to the ranks of their experts, and back.

- ``exchange`` estimates the two all-to-alls of each pass, and the cost of splitting experts.
- ``buffers`` is the memory of received tokens.
- ``rules`` are the consistency rules of router, experts and layout.
- ``adapters`` sums the gradients of adapters that experts share.
- ``details`` are figures of load balance, dropped tokens, and traffic.
- ``dispatch`` and ``placement`` answer the same questions without a training step.
"""

from __future__ import annotations

from parcost import Rulebook, hookimpl
from parcost_plugins.parallelism.expert.rulebook import RULES

PARTS = (
    "adapters",
    "buffers",
    "details",
    "dispatch",
    "exchange",
    "placement",
    "rules",
)


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Return the rulebook of this package, with a page for each rule."""
    return [RULES]
