"""Expert parallelism: tokens travel to the ranks that hold their experts, and back.

- ``exchange`` prices the two all-to-alls of each pass, and what cutting experts adds.
- ``buffers`` is the room that arriving tokens take.
- ``rules`` are what a router, its experts and the layout must agree on.
- ``details`` says how even the load is, what is dropped, and how far tokens travel.
- ``dispatch`` and ``placement`` answer the same questions without a training step.
"""

PARTS = (
    "buffers",
    "details",
    "dispatch",
    "exchange",
    "placement",
    "rules",
)
