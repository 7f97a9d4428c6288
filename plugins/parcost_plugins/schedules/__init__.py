"""Pipeline schedules: op orders, and closed forms where one is proven."""

PARTS = (
    "breadth_first",
    "chimera",
    "details",
    "dual_pipe",
    "gpipe",
    "interleaved",
    "one_f_one_b",
    "zb_v",
    "zero_bubble",
)
