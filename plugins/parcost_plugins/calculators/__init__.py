"""Questions that need no step: each block has figures of its own."""

PARTS = ("data", "networks", "roofline", "sheets", "transfers")
