"""What a device holds, and whether it can."""

PARTS = (
    "figures",
    "fit",
    "offload",
    "overheads",
    "state",
)
