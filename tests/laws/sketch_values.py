"""Values of attributes of calculators, which need no training step."""

from __future__ import annotations

from collections.abc import Mapping

#: Errors of measured runs, by a label and the low end.
_ERRORS = (
    "accuracy {} {{ coverage = 90 %, others = kin, observed steps {{ figure = step_time, "
    "runs = 9, models = 3, low = {}, high = 1.1 }} }}\n"
)

#: Of calculators by themselves: a spec, what is written in it before, and what after.
SKETCHES: Mapping[str, tuple[str, str, str]] = {
    **{
        f"estimate.{name}": (
            (
                "estimate e { dp = 64, parameters = 7 G, peak = 989 TFLOPS dense, batch = 8, "
                "sequence = 4096, inner = 450 GB/s per_direction, outer = 50 GB/s per_direction, @ }"
            ),
            "reduction = hierarchical",
            after,
        )
        for name, after in {
            "reduction": "reduction = flat",
            "node": "reduction = hierarchical, node = 4 devices",
            "nodes": "reduction = hierarchical, nodes = 4",
            "outer_latency": "reduction = hierarchical, outer_latency = 1 ms",
        }.items()
    },
    **{
        f"exchange.{name}": (
            "exchange x { elements = 1e9, ranks = 8, method = int8, @ }",
            "scale = 4 B, block = 256",
            after,
        )
        for name, after in {
            "scale": "scale = 8 B, block = 256",
            "block": "scale = 4 B, block = 64",
        }.items()
    },
    "state.micro_batches": (
        (
            "use catalog.precisions.bf16\nlink wire { bandwidth = 1 GB/s per_direction }\n"
            "state s { parameters = 1 G, dp = 8, zero = 3, link = wire, @ }"
        ),
        "micro_batches = 1",
        "micro_batches = 4",
    ),
    "grid.ep": ("grid g { dp = 8, experts = apart, @ }", "ep = 2", "ep = 4"),
    "network.dimensions": (
        "network n { kind = torus, devices = 64, bandwidth = 1 GB/s per_direction, @ }",
        "dimensions = [8, 8]",
        "dimensions = [4, 16]",
    ),
    "network.exposed": (
        (
            "network n { kind = fat_tree, devices = 1024, radix = 64, oversubscription = 3, "
            "volume = 1 GB, bandwidth = 1 GB/s per_direction, @ }"
        ),
        "exposed = 50 %",
        "exposed = 25 %",
    ),
    **{
        f"pipeline.{name}": ("pipeline p { stages = 4, micro_batches = 8, @ }", before, after)
        for name, before, after in (
            ("chunks", "kind = interleaved, chunks = 2", "kind = interleaved, chunks = 4"),
            ("weight_share", "kind = zb_h1", "kind = zb_h1, weight_share = 20 %"),
            ("kept", "layers = 8, kept = 1 GB", "layers = 8, kept = 2 GB"),
            (
                "capacity",
                "layers = 8, kept = 1 GB, capacity = 80 GB",
                "layers = 8, kept = 1 GB, capacity = 4 GB",
            ),
            ("layers", "kept = 1 GB, layers = 8", "kept = 1 GB, layers = 16"),
            ("period", "message = 1 MB, period = 1 ms", "message = 1 MB, period = 2 ms"),
            (
                "batch",
                "batch = 1, sequence = 64, hidden = 64",
                "batch = 2, sequence = 64, hidden = 64",
            ),
            (
                "sequence",
                "batch = 1, sequence = 64, hidden = 64",
                "batch = 1, sequence = 65, hidden = 64",
            ),
            (
                "hidden",
                "batch = 1, sequence = 64, hidden = 64",
                "batch = 1, sequence = 64, hidden = 65",
            ),
            (
                "element",
                "batch = 1, sequence = 64, hidden = 64",
                "batch = 1, sequence = 64, hidden = 64, element = 4 B",
            ),
        )
    },
    **{
        f"transfer.{name}": (
            "transfer t { size = 1 GB, bandwidth = 50 GB/s per_direction, @ }",
            before,
            after,
        )
        for name, before, after in (
            (
                "dimensions",
                "operation = all_reduce, ranks = 64, kind = torus, dimensions = [8, 8]",
                "operation = all_reduce, ranks = 64, kind = torus, dimensions = [4, 4, 4]",
            ),
            (
                "wrap",
                "operation = all_reduce, ranks = 64, kind = torus, dimensions = [8, 8]",
                "operation = all_reduce, ranks = 64, kind = torus, dimensions = [8, 8], wrap = off",
            ),
            (
                "pieces",
                (
                    "operation = all_reduce, nodes = 4, ranks_per_node = 8, pieces = 2, "
                    "network_bandwidth = 9 GB/s per_direction, algorithm = hierarchical_pipelined"
                ),
                (
                    "operation = all_reduce, nodes = 4, ranks_per_node = 8, pieces = 4, "
                    "network_bandwidth = 9 GB/s per_direction, algorithm = hierarchical_pipelined"
                ),
            ),
        )
    },
    "transfer.level": (
        (
            "use catalog.devices.h100_sxm\nuse catalog.fabrics.hgx_h100\ncluster { devices = 16 }\n"
            "transfer t { operation = all_reduce, size = 1 GB, ranks = 8, @ }"
        ),
        'level = "node"',
        'level = "network"',
    ),
    **{
        name: (
            "use catalog.devices.h100_sxm\nuse catalog.devices.a100_sxm_80g\n" + text,
            "device = h100_sxm",
            "device = a100_sxm_80g",
        )
        for name, text in {
            "machine.device": "machine m { @ }",
            "roofline.device": "use catalog.fabrics.hgx_h100\nroofline r { @ }",
            "serving.device": "use catalog.models.llama3_8b\nserving s { @, compute = bf16, "
            "weights = 2 B, activation = 2 B }",
        }.items()
    },
    **{
        name: (
            "use catalog.devices.h100_sxm\nuse catalog.fabrics.hgx_h100\n"
            "use catalog.fabrics.dgx_a100\n" + text,
            "fabric = hgx_h100",
            "fabric = dgx_a100",
        )
        for name, text in {
            "roofline.fabric": "roofline r { @ }",
            "serving.fabric": "use catalog.models.llama3_8b\nserving s { @, compute = bf16, "
            "weights = 2 B, activation = 2 B, tp = 2 }",
        }.items()
    },
    "serving.issue": (
        (
            "use catalog.devices.h100_sxm\nuse catalog.models.llama3_8b\nserving s { "
            "compute = bf16, weights = 2 B, activation = 2 B, kernels_per_layer = 10, @ }"
        ),
        "issue = 100 us",
        "issue = 200 us",
    ),
    "training.framework": (
        (
            "use catalog.devices.h100_sxm\nuse catalog.fabrics.hgx_h100\n"
            "use catalog.models.gpt2_small\nuse catalog.precisions.bf16\n"
            "use catalog.frameworks.megatron_deepspeed\ncluster { devices = 1 }\n"
            "training { sequence = 256, global_batch = 1 sequences, @ }"
        ),
        "framework = generic",
        "framework = megatron_deepspeed",
    ),
    "training.accuracy": (
        (
            f"{_ERRORS.format('narrow', '0.9')}{_ERRORS.format('wide', '0.5')}"
            "family kin { spread = 30 % }\n"
            "use catalog.devices.h100_sxm\nuse catalog.fabrics.hgx_h100\n"
            "use catalog.models.gpt2_small\nuse catalog.precisions.bf16\n"
            "cluster { devices = 1 }\n"
            "training { sequence = 256, global_batch = 1 sequences, @ }"
        ),
        "accuracy = narrow",
        "accuracy = wide",
    ),
    "accuracy.others": (
        (
            "family near { spread = 10 % }\nfamily far { spread = 60 % }\n"
            "accuracy ours { coverage = 90 %, @, observed steps { figure = step_time, runs = 9, "
            "models = 3, low = 0.9, high = 1.1 } }\n"
            "use catalog.attention_tables.h100_kernels\n"
            "device bare { memory = 80 GiB, memory_bandwidth = 3 TB/s, bf16 = 900 TFLOPS dense, "
            "multiprocessors = 100, matmul_efficiency = 80 %, memory_efficiency = 90 %, "
            "attention = h100_kernels }\n"
            "use catalog.fabrics.hgx_h100\nuse catalog.models.gpt2_small\n"
            "use catalog.precisions.bf16\ncluster { devices = 1 }\n"
            "training { sequence = 256, global_batch = 1 sequences }"
        ),
        "others = near",
        "others = far",
    ),
    "serving.model": (
        (
            "use catalog.devices.h100_sxm\nuse catalog.models.llama3_8b\nuse catalog.models.llama32_1b\n"
            "serving s { @, compute = bf16, weights = 2 B, activation = 2 B }"
        ),
        "model = llama3_8b",
        "model = llama32_1b",
    ),
    **{
        name: (
            "use catalog.precisions.bf16\nuse catalog.precisions.fp32\n" + text,
            "precision = bf16",
            "precision = fp32",
        )
        for name, text in {
            "state.precision": "state s { parameters = 1 G, @ }",
            "zero.precision": "zero z { parameters = 1 G, ranks = 8, @ }",
        }.items()
    },
}
