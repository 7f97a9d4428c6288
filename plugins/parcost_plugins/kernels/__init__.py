"""How long operators take on the device: models of kernel time, and what uses them."""

PARTS = (
    "constant",
    "picture",
    "pricing",
    "roofline",
    "tiled",
)
