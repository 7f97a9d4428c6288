"""Values of attributes that matter only beside others of their block, or in other layouts."""

from __future__ import annotations

from collections.abc import Mapping

_OVER_NODES = "layout { tp = 1, ep = 16 }\nrouting { deduplicate = off, dispatcher = hybridep }"
_SLOW = {"efficiency": "10 %", "rate": "1 GB/s", "multiprocessors": "1"}  # of kernels of experts
_CONTEXT = "layout { tp = 1, cp = 2, sequence_parallel = off }"
_ALL_REDUCES = "layout { tp = 8, sequence_parallel = off }\ncollectives { tensor = lower_bound }"
#: A base, a block, what stands beside the attributes in it, and a value of each.
_ROWS: tuple[tuple[str, str, str, Mapping[str, str]], ...] = (
    ("compressed", "compression", "method = one_bit", {"sign_traffic": "1 KiB"}),
    ("compressed", "compression", "method = bf16", {"cast_traffic": "1 KiB"}),
    (
        *("compressed", "compression", "method = int8"),
        {"block": "1", "scale": "64 B", "quantise_traffic": "1 KiB"},
    ),
    (
        *("compressed", "compression", "method = power_sgd"),
        {"rank": "64", "factor": "64 B", "minimum_rate": "100", "project_traffic": "1 KiB"},
    ),
    (
        *("experts", "routing", "distribution = dirichlet"),
        {"balancing": "none", "auxiliary_concentration": "0.1"},
    ),
    (
        *("experts", "routing", "distribution = dirichlet, balancing = none"),
        {"free_concentration": "0.1"},
    ),
    *(
        ("experts", "routing", f"deduplicate = off, dispatcher = {kind}", {f"{kind}_{name}": value})
        for kind in ("deepep", "hybridep")
        for name, value in _SLOW.items()
    ),
)

#: A base, and what is laid over it before and after.
OF_A_BLOCK: Mapping[str, tuple[str, str, str]] = {
    **{
        f"{kind}.{name}": (
            base,
            f"{kind} {{ {beside} }}",
            f"{kind} {{ {beside}, {name} = {value} }}",
        )
        for base, kind, beside, values in _ROWS
        for name, value in values.items()
    },
    "routing.outer_efficiency": (
        "experts",
        _OVER_NODES,
        f"{_OVER_NODES}\nrouting {{ outer_efficiency = 1 % }}",
    ),
    "collectives.launch": (
        "transfer",
        "transfer flat { launched = on }\ncollectives { launch = 1 us }",
        "transfer flat { launched = on }\ncollectives { launch = 1 ms }",
    ),
    "targets.mfu": ("dense", "", "targets { mfu = 99 % }"),
    "context.algorithm": (
        "dense",
        f"{_CONTEXT}\ncontext {{ algorithm = ring }}",
        f"{_CONTEXT}\ncontext {{ algorithm = all_gather }}",
    ),
    "level.in_network": (
        "dense",
        _ALL_REDUCES,
        f"{_ALL_REDUCES}\nfabric net {{ level node {{ in_network = on }} }}",
    ),
    "schedule.overlap": (
        "dense",
        "schedule { kind = dualpipe }",
        "schedule { kind = dualpipe, overlap = 50 % }",
    ),
}
