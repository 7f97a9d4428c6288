"""Values of attributes that matter only beside others."""

from __future__ import annotations

from collections.abc import Mapping

from block_values import OF_A_BLOCK

#: A framework of its own for a study.
_FRAMEWORK = 'framework own {{ version = "1"\n{} }}\ntraining {{ framework = own }}\n'

#: A model with sinks, in context parallelism.
_SINKS = "model small { sinks = on }\nlayout { tp = 1, cp = 2, sequence_parallel = off }"

#: A window that hides all but some tokens, over ranks that share the sequence.
_WINDOWS = "model small { window = 128 }\nlayout { tp = 1, cp = 2, sequence_parallel = off }"

#: A sequence over two ranks, and a single micro-batch.
_CONTEXT = "layout { tp = 1, cp = 2, sequence_parallel = off }"
_ONE_MICRO_BATCH = "training { global_batch = 8 sequences }\nkernels { fused_accumulation = off }"

#: Layers of a gated delta net.
_DELTA = (
    "layout {{ tp = 1, sequence_parallel = off }}\n"
    "model small {{ delta_heads = 8, full_every = 4{} }}\n"
)

#: Heads that are not a multiple of 16 bytes, in products of their own.
_SQUARED = "model small { gated = off, squared_relu = on }"
_ODD_HEADS = "kernels { attention = unfused }\nmodel small { head_dim = 108 }"

#: What a framework's host issues, and what one compiles that may.
_ISSUED = "issue = 100 us, forward_kernels = 200, backward_kernels = 400"
_COMPILED = f"{_ISSUED}, compiled_issue = 100 us"

#: ZeRO 3 over some of the replicas, in two micro-batches or more.
_SHARDED = "layout { tp = 1, zero = 3 }\ntraining { global_batch = 32 sequences }"

#: ZeRO 2 in four micro-batches, whose gradients the host adds up.
_ADDED_ON_HOST = (
    "layout { tp = 1, pp = 1, zero = 2, sequence_parallel = off }\n"
    "training { global_batch = 128 sequences }\noffload { optimizer = 100 %, host_memory_bandwidth = 200 GB/s }"
)

#: And over groups of replicas.
_HYBRID = f"{_SHARDED}\nsharding {{ shard = 4 }}"

#: Adapters beside frozen weights.
_THIN = "layout {{ tp = 1, sequence_parallel = off }}\nadapters {{ rank = 8{} }}"

#: Trained weights that are wider than activations.
_WIDE_WEIGHTS = "precision recipe { wide_weights = 4 B }\n"

#: A device that is held to less than it draws.
_BY_POWER = """
device weak {{
  memory = 80 GiB, memory_bandwidth = 3 TB/s, bf16 = 900 TFLOPS dense, fp8 = 1800 TFLOPS dense
  multiprocessors = 132, matmul_efficiency = 80 %, memory_efficiency = 90 %
  power = 700 W, fp32 = 60 TFLOPS, fp16 = 900 TFLOPS dense, product_energy = {energy} J/TFLOP
}}
cluster {{ device = weak }}
kernels {{ attention_forward_efficiency = 50 %, attention_backward_efficiency = 50 % }}
"""
_WEAK = _BY_POWER.format(energy=4)
_NARROW = "precision recipe { narrow = fp8 }\n"
_CAPPED = "device card { power = 700 W, power_cap = 350 W }\n"

#: A device that a step exceeds by less than a margin.
_FULL = "device card {{ memory = 4.85 GiB }}\nmemory {{ margin = {} % }}\n"

#: Two attention kernels of a device.
_KERNELS = """
attention_table both {{
  auto = {auto}
  attention_kernel slow {{
    kernel = {slow}, type = {slow_type}
    head_rate d128 {{ size = 128, forward = 20 %, backward = 20 % }}
  }}
  attention_kernel fast {{
    kernel = {fast}, type = {fast_type}
    head_rate d128 {{ size = 128, forward = 60 %, backward = 60 % }}
  }}
}}
device card {{ attention = both }}
"""
_FP8 = "precision recipe { narrow = fp8, narrow_attention = on }\n"
_ALL_FLASH_2 = {"auto": "flash_2", "slow": "flash_2", "fast": "flash_2"}
_WIDE = {"slow_type": "wide", "fast_type": "wide"}
_FLASH_2 = _KERNELS.format(auto="flash_2", slow="flash_2", fast="flash_3", **_WIDE)
_FLASH_3 = _KERNELS.format(auto="flash_3", slow="flash_2", fast="flash_3", **_WIDE)
_LINKED = """
transfer linked {{
  operation = all_reduce, size = 1 GB, ranks = {ranks}, algorithm = {algorithm}
  bandwidth = 450 GB/s per_direction, in_network = on
}}
"""
_ON_TWO = _LINKED.format(ranks=2, algorithm="ring_simple")
_NVLS = _LINKED.format(ranks=8, algorithm="nvls_simple")
_NARROW_BASE = "precision recipe { narrow = fp8, cast = 1 B, weight_cast = 1 B }\n"

#: Attributes that matter beside others: a base, and what is laid over it before and after.
BESIDE: Mapping[str, tuple[str, str, str]] = {
    **OF_A_BLOCK,
    "cluster.device": (
        "dense",
        "device other extends h100_sxm { memory_bandwidth = 1 TB/s }",
        "device other extends h100_sxm { memory_bandwidth = 1 TB/s }\ncluster { device = other }",
    ),
    "framework.bucket_growth": (
        "dense",
        _FRAMEWORK.format("bucket = 1_000_000"),
        _FRAMEWORK.format("bucket = 1_000_000, bucket_growth = 20_000_000"),
    ),
    **{
        f"adapters.{name}": (
            "dense",
            _THIN.format(""),
            _THIN.format(f", {name} = {value}"),
        )
        for name, value in (
            *((name, "off") for name in ("query", "key", "value", "output", "gate", "up", "down")),
            *((name, "on") for name in ("head", "fused", "dropout")),
            ("weights", "4 B"),
        )
    },
    "adapters.split": (
        "dense",
        "layout { tp = 2 }\nadapters { rank = 8, split = both }",
        "layout { tp = 2 }\nadapters { rank = 8, split = one }",
    ),
    **{
        f"adapters.{name}": (
            "dense",
            "layout { tp = 2, sequence_parallel = on }\nadapters { rank = 8, split = both }",
            f"layout {{ tp = 2, sequence_parallel = on }}\nadapters {{ rank = 8, split = both, {name} = on }}",
        )
        for name in ("all_to_all", "regather")
    },
    **{
        f"adapters.{name}": (
            "experts",
            "adapters { rank = 8, split = both, experts = shared }",
            f"adapters {{ rank = 8, split = both, {value} }}",
        )
        for name, value in (
            ("experts", "experts = each"),
            ("expert_rank", "experts = shared, expert_rank = 4"),
            ("shared_sum", "experts = shared, shared_sum = micro_batch"),
        )
    },
    "adapters.cast_inputs": (
        "dense",
        _WIDE_WEIGHTS + _THIN.format(""),
        _WIDE_WEIGHTS + _THIN.format(", cast_inputs = off"),
    ),
    "adapters.base": (
        "dense",
        _THIN.format(""),
        "quantization four { element = 0.5 B, scale = 4 B, scale_block = 64 }\n"
        + _THIN.format(", base = four"),
    ),
    "framework.ends_together": (
        "dense",
        _FRAMEWORK.format("") + _SHARDED,
        _FRAMEWORK.format("ends_together = on") + _SHARDED,
    ),
    "framework.host_sums": (
        "sharded",
        _FRAMEWORK.format(""),
        _FRAMEWORK.format("host_sums = fetch"),
    ),
    "framework.sent_check": (
        "dense",
        _FRAMEWORK.format("host_sums = fetch") + _ADDED_ON_HOST,
        _FRAMEWORK.format("host_sums = fetch, sent_check = 36 B") + _ADDED_ON_HOST,
    ),
    "framework.keeps_gradients": (
        "dense",
        _FRAMEWORK.format("") + _ONE_MICRO_BATCH,
        _FRAMEWORK.format("keeps_gradients = never") + _ONE_MICRO_BATCH,
    ),
    "framework.context_sums": (
        "dense",
        _FRAMEWORK.format("") + _CONTEXT,
        _FRAMEWORK.format("context_sums = 4 B") + _CONTEXT,
    ),
    "framework.context_merges": (
        "dense",
        _FRAMEWORK.format("context_sums = 2 B") + _CONTEXT,
        _FRAMEWORK.format("context_sums = 2 B, context_merges = kernels") + _CONTEXT,
    ),
    "precision.host_update_traffic": (
        "dense",
        _ADDED_ON_HOST,
        "precision recipe { host_update_traffic = 99 B }\n" + _ADDED_ON_HOST,
    ),
    "precision.weight_column_cast": (
        "dense",
        "precision recipe { narrow = fp8, weight_cast = 1 B, weight_casts = pass }",
        (
            "precision recipe { narrow = fp8, weight_cast = 1 B, weight_casts = pass\n"
            "weight_column_cast = 99 B }"
        ),
    ),
    "framework.returns_host_sums": (
        "dense",
        _FRAMEWORK.format("host_sums = fetch") + _ADDED_ON_HOST,
        _FRAMEWORK.format("host_sums = fetch, returns_host_sums = off") + _ADDED_ON_HOST,
    ),
    "framework.replicate": (
        "dense",
        _FRAMEWORK.format("") + _HYBRID,
        _FRAMEWORK.format("replicate = micro_batch") + _HYBRID,
    ),
    "framework.sink_context": (
        "dense",
        _FRAMEWORK.format("") + _SINKS,
        _FRAMEWORK.format("sink_context = ulysses") + _SINKS,
    ),
    "framework.window_context": (
        "dense",
        _FRAMEWORK.format("") + _WINDOWS,
        _FRAMEWORK.format("window_context = all_gather") + _WINDOWS,
    ),
    "cluster.fabric": (
        "dense",
        "",
        "fabric other extends net { level node { latency = 9 us } }\ncluster { fabric = other }",
    ),
    "training.model": (
        "dense",
        "",
        "model other extends small { layers = 8 }\ntraining { model = other }",
    ),
    "layout.etp": ("experts", "layout { ep = 4 }", "layout { ep = 4, etp = 2 }"),
    "training.documents": ("dense", "", "training { documents = [1024, 3072] }"),
    "collectives.context": (
        "dense",
        "layout { cp = 2 }\ncontext { algorithm = all_gather }\ncollectives { context = ring }",
        "layout { cp = 2 }\ncontext { algorithm = all_gather }\ncollectives { context = lower_bound }",
    ),
    "context.ulysses": (
        "dense",
        "layout { tp = 1, pp = 1, cp = 8 }\ncontext { algorithm = hybrid, ulysses = 2 }",
        "layout { tp = 1, pp = 1, cp = 8 }\ncontext { algorithm = hybrid, ulysses = 4 }",
    ),
    "recompute.first": (
        "dense",
        "training { recompute = full }\nrecompute { every = 3 }",
        "training { recompute = full }\nrecompute { every = 3, first = 2 }",
    ),
    "recompute.up_projection": (
        "latent",
        "training { recompute = none }",
        "training { recompute = none }\nrecompute { up_projection = on }",
    ),
    "run.speed": (
        "",
        "run { tokens = 1 T tokens, devices = 1000, speed = 300 tokens }",
        "run { tokens = 1 T tokens, devices = 1000, speed = 400 tokens }",
    ),
    "schedule.chunks": ("stages", "", "schedule { chunks = 4 }"),
    "schedule.stages": (
        "stages",
        "schedule { kind = one_f_one_b, chunks = 1 }",
        "schedule { kind = one_f_one_b, chunks = 1, stages = [5, 4, 4, 3] }",
    ),
    "schedule.count_embedding": (
        "dense",
        "model small { layers = 5 }\nschedule { stages = [3, 2] }",
        "model small { layers = 5 }\nschedule { count_embedding = on }",  # [2, 3]
    ),
    "schedule.count_head": (
        "dense",
        "model small { layers = 5 }\nschedule { stages = [2, 3] }",
        "model small { layers = 5 }\nschedule { count_head = on }",  # [3, 2]
    ),
    # Bases far down the list show these: found by trying all, which takes most of a minute.
    **{
        f"plausible.{name}": (base, "", f"plausible {{ {name} = {value} }}")
        for name, base, value in (
            ("least_tokens_per_parameter", "sharded", "1000"),
            ("tokens_per_parameter", "sharded", "0"),
            ("tokens", "sharded", "0"),
            ("device_hour", "sharded", "0 USD/s"),
            ("pue", "sharded", "0"),
            ("intensity", "sharded", "0 g/J"),
            ("mfu_fp8", "latent", "0"),
        )
    },
    "kernels.misaligned_efficiency": ("stages", "", "kernels { misaligned_efficiency = 1 }"),
    **{
        f"kernels.{name}": ("latent", "", f"kernels {{ {name} = 0 s }}")
        for name in ("indexed_time", "scattered_time")
    },
    "targets.compute_bound": ("compressed", "", "targets { compute_bound = 0 }"),
    "targets.exposed": ("compressed", "", "targets { exposed = 50 % }"),
    "targets.bubble": ("compressed", "", "targets { bubble = 0.1 % }"),
    "plan.widest_tp": ("compressed", "", "plan { widest_tp = 1 }"),
    "offload.host_memory_bandwidth": ("sharded", "", "offload { host_memory_bandwidth = 1 B/s }"),
    "targets.as_fast": ("sharded", "", "targets { as_fast = 0 }"),
    "targets.step_time": ("compressed", "", "targets { step_time = 1 ns }"),
    "datacenter.device_mtbf": ("sharded", "", "datacenter { device_mtbf = 1 s }"),
    "offload.host_memory": ("sharded", "", "offload { host_memory = 1 B }"),
    "collectives.pipeline": ("sharded", "", "collectives { pipeline = bruck }"),
    "level.dimensions": ("contexts", "", "fabric pod { level torus { dimensions = [8, 8] } }"),
    "level.hops": (
        "dense",
        "fabric net { level network { hop_latency = 1 us } }",
        "fabric net { level network { hop_latency = 1 us, hops = 5 } }",
    ),
    "level.radix": (
        "dense",
        "fabric net { level network { kind = fat_tree, hop_latency = 1 us, radix = 4 } }",
        "fabric net { level network { kind = fat_tree, hop_latency = 1 us, radix = 64 } }",
    ),
    "level.routing": (
        "dense",
        "fabric net { level network { kind = dragonfly, ports = 4, routing = minimal } }",
        "fabric net { level network { kind = dragonfly, ports = 4, routing = valiant } }",
    ),
    "precision.whole_gradients": (
        "dense",
        f"{_SHARDED}\nsharding {{ accumulate = whole }}",
        f"{_SHARDED}\nsharding {{ accumulate = whole }}\nprecision recipe {{ whole_gradients = 1 B }}",
    ),
    "device.fp32": (
        "dense",
        "device card { fp32 = 60 TFLOPS }\nprecision recipe { compute = fp32 }",
        "device card { fp32 = 30 TFLOPS }\nprecision recipe { compute = fp32 }",
    ),
    "device.fp8_matmul_efficiency": (
        "dense",
        "precision recipe { narrow = fp8 }",
        "precision recipe { narrow = fp8 }\ndevice card { fp8_matmul_efficiency = 40 % }",
    ),
    "device.fp4_matmul_efficiency": (
        "dense",
        "device card { fp4 = 4 PFLOPS dense }\nprecision recipe { narrow = fp4 }",
        (
            "device card { fp4 = 4 PFLOPS dense, fp4_matmul_efficiency = 40 % }\n"
            "precision recipe { narrow = fp4 }"
        ),
    ),
    "device.block_matmul_efficiency": (
        "dense",
        "precision recipe { narrow = fp8, scale_block = 32 }",
        (
            "precision recipe { narrow = fp8, scale_block = 32 }\n"
            "device card { block_matmul_efficiency = 40 % }"
        ),
    ),
    "plausible.mfu_fp4": (
        "dense",
        (
            "device card { fp4 = 4 PFLOPS dense }\nprecision recipe { narrow = fp4 }\n"
            "plausible { mfu_fp4 = 0.001 % }"
        ),
        (
            "device card { fp4 = 4 PFLOPS dense }\nprecision recipe { narrow = fp4 }\n"
            "plausible { mfu_fp4 = 90 % }"
        ),
    ),
    "device.product_energy": (
        "dense",
        _BY_POWER.format(energy=3),
        _BY_POWER.format(energy=4),
    ),
    "kernels.narrow_energy": (
        "dense",
        f"{_WEAK}{_NARROW}kernels {{ narrow_energy = 60 % }}",
        f"{_WEAK}{_NARROW}kernels {{ narrow_energy = 90 % }}",
    ),
    "device.memory_power": (
        "dense",
        _WEAK.replace("power = 700 W", "power = 700 W, memory_power = 1 W"),
        _WEAK.replace("power = 700 W", "power = 700 W, memory_power = 30 W"),
    ),
    "device.narrow_sustained": (
        "dense",
        "precision recipe { narrow = fp8 }",
        "precision recipe { narrow = fp8 }\ndevice card { narrow_sustained = 60 % }",
    ),
    "device.in_one_layout": (
        "dense",
        "precision recipe { narrow = fp8, weight_transpose = 1 B }\ndevice card { in_one_layout = off }",
        "precision recipe { narrow = fp8, weight_transpose = 1 B }\ndevice card { in_one_layout = on }",
    ),
    "precision.cast_transpose": (
        "dense",
        "precision recipe { narrow = fp8 }\ndevice card { in_one_layout = on }",
        "precision recipe { narrow = fp8, cast_transpose = 1 B }\ndevice card { in_one_layout = on }",
    ),
    "adapters.narrow": (
        "dense",
        _NARROW_BASE + _THIN.format(""),
        _NARROW_BASE + _THIN.format(", narrow = on"),
    ),
    "precision.frozen_cast": (
        "dense",
        _NARROW_BASE + _THIN.format(""),
        _NARROW_BASE.replace("}", ", frozen_cast = 99 B }") + _THIN.format(""),
    ),
    "precision.frozen_kernels": (
        "dense",
        _NARROW_BASE + _THIN.format(""),
        _NARROW_BASE.replace("}", ", frozen_kernels = 9 }") + _THIN.format(""),
    ),
    "precision.column_steps": (
        "dense",
        "precision recipe { narrow = fp8, column_cast = 1 B }",
        "precision recipe { narrow = fp8, column_cast = 1 B, column_steps = 99 }",
    ),
    "precision.cast_steps": (
        "dense",
        "precision recipe { narrow = fp8, cast = 1 B }",
        "precision recipe { narrow = fp8, cast = 1 B, cast_steps = 99 }",
    ),
    "kernels.cast_time": (
        "dense",
        "precision recipe { narrow = fp8, cast = 1 B, cast_steps = 99 }",
        "precision recipe { narrow = fp8, cast = 1 B, cast_steps = 99 }\nkernels { cast_time = 0 s }",
    ),
    "device.attention": ("dense", "", _FLASH_2),
    "device.family": (
        "rates",
        "",
        "family stranger { spread = 90 % }\ndevice card { family = stranger }",
    ),
    "accuracy.devices": ("rates", "", 'accuracy ours { devices = "card" }'),
    "attention_table.auto": ("dense", _FLASH_2, _FLASH_3),
    "attention_kernel.kernel": (
        "dense",
        _FLASH_2,
        _KERNELS.format(auto="flash_2", slow="flash_3", fast="flash_2", **_WIDE),
    ),
    "attention_kernel.type": (
        "dense",
        f"{_FP8}{_KERNELS.format(**_ALL_FLASH_2, slow_type='fp8', fast_type='wide')}",
        f"{_FP8}{_KERNELS.format(**_ALL_FLASH_2, slow_type='wide', fast_type='fp8')}",
    ),
    "kernels.misaligned_heads": (
        "dense",
        _ODD_HEADS,
        _ODD_HEADS.replace("unfused", "unfused, misaligned_heads = vector"),
    ),
    "model.squared_relu": (
        "dense",
        f"{_FRAMEWORK.format('squared_relu = eager')}{_SQUARED.replace('on', 'off')}",
        f"{_FRAMEWORK.format('squared_relu = eager')}{_SQUARED}",
    ),
    "schedule.messages": (
        "dense",
        "layout { pp = 2, sequence_parallel = off }",
        "layout { pp = 2, sequence_parallel = off }\nschedule { messages = scattered }",
    ),
    # A framework beside what its attributes are about.
    **{
        f"framework.{name}": (
            base,
            f"{_FRAMEWORK.format(before)}{beside}",
            f"{_FRAMEWORK.format(after)}{beside}",
        )
        for name, (base, before, after, beside) in {
            "keeps_stage_outputs": (
                "dense",
                "issue = 1 us",
                "issue = 1 us, keeps_stage_outputs = on",
                "layout { pp = 2 }",
            ),
            "mode": ("dense", _COMPILED, f"{_COMPILED}, mode = compiled", ""),
            "cuda_graphs": (
                "dense",
                f"{_ISSUED}, graph_issue = 1 us",
                f"{_ISSUED}, graph_issue = 1 us, cuda_graphs = layer",
                "",
            ),
            "compiled_issue": (
                "dense",
                f"{_COMPILED}, mode = compiled",
                f"{_COMPILED}, mode = compiled, compiled_issue = 900 us",
                "",
            ),
            "compiled_call": (
                "dense",
                f"{_COMPILED}, mode = compiled",
                f"{_COMPILED}, mode = compiled, compiled_call = 90 ms",
                "",
            ),
            "compiled_kernels": (
                "dense",
                f"{_COMPILED}, mode = compiled",
                f"{_COMPILED}, mode = compiled, compiled_kernels = 10 %",
                "",
            ),
            "core_kernels": (
                "dense",
                _ISSUED,
                f"{_ISSUED}, core_kernels = 90",
                "kernels { attention = unfused }\ntraining { recompute = selective }",
            ),
            "sharded_kernels": ("sharded", _ISSUED, f"{_ISSUED}, sharded_kernels = 9", ""),
            "list_issue": ("sharded", "", "list_issue = 9 ms", ""),
            "gathers_wait": ("sharded", "", "gathers_wait = on", ""),
            "whole_below": (
                "sharded",
                "list_issue = 9 ms",
                "list_issue = 9 ms, whole_below = 1_000_000_000",
                "",
            ),
            "routing_kernels": ("experts", _ISSUED, f"{_ISSUED}, routing_kernels = 90", ""),
            "grouped_experts": (
                "experts",
                f"{_ISSUED}, expert_kernels = 9",
                f"{_ISSUED}, expert_kernels = 9, grouped_experts = off",
                "",
            ),
            "expert_kernels": (
                "experts",
                f"{_ISSUED}, grouped_experts = off",
                f"{_ISSUED}, grouped_experts = off, expert_kernels = 9",
                "",
            ),
            "routing_backward_kernels": (
                "experts",
                _ISSUED,
                f"{_ISSUED}, routing_backward_kernels = 900",
                "",
            ),
            "grouped_kernels": (
                "experts",
                f"{_ISSUED}, grouped_experts = on",
                f"{_ISSUED}, grouped_experts = on, grouped_kernels = 90",
                "",
            ),
            "grouped_casts": (
                "experts",
                f"{_ISSUED}, grouped_experts = on",
                f"{_ISSUED}, grouped_experts = on, grouped_casts = 90",
                "precision bf16 { narrow = fp8, cast_kernels = 2 }",
            ),
            "expert_activation": (
                "experts",
                "",
                "expert_activation = traced",
                "model mixture { gated = on }",
            ),
            "expert_biases": (
                "experts",
                "",
                "expert_biases = eager",
                "model mixture { biases = on }",
            ),
            "dispatcher": (
                "experts",
                "",
                "dispatcher = deepep",
                "routing { deduplicate = off }",
            ),
            "reruns_core": ("dense", "", "reruns_core = on", "training { recompute = selective }"),
            "dropout": ("dense", "", "dropout = eager", "training { dropout = on }"),
            "softmax": ("dense", "", "softmax = eager", "kernels { attention = unfused }"),
            "router": ("experts", "", "router = fused", ""),
            "permutation": ("experts", "", "permutation = fused", ""),
            "gather_copies": ("sharded", "", "gather_copies = 16", ""),
            "loop_copies": ("sharded", "", "loop_copies = on", ""),
            "norm_kernels": (
                "dense",
                _ISSUED,
                f"{_ISSUED}, norm_kernels = 90",
                "model small { qk_norm = on }",
            ),
            "norm_backward_kernels": (
                "dense",
                _ISSUED,
                f"{_ISSUED}, norm_backward_kernels = 90",
                "model small { qk_norm = on }",
            ),
            "gathers_in_turn": (
                "experts",
                "grouped_experts = on",
                "grouped_experts = on, gathers_in_turn = on",
                (
                    "layout { ep = 2 }\ntraining { micro_batch = 8 }\n"
                    "overlap { parameters = on, bucket = 1 MB }"
                ),
            ),
            "embedding": ("dense", "", "embedding = product", ""),
            "reduction_copy": ("sharded", "", "reduction_copy = divided", ""),
            "repeats_keys": ("dense", "", "repeats_keys = on", "model small { kv_heads = 2 }"),
            "keeps_norm_outputs": (
                "dense",
                "",
                "keeps_norm_outputs = on",
                _THIN.format(", query = off, key = off, value = off"),
            ),
            "bucket_copies": ("sharded", "", "bucket_copies = on", ""),
            "update_group": (
                "sharded",
                "update_gradients = 1000 B",  # so that the optimizer needs the most memory
                "update_gradients = 1000 B, update_group = 1_000_000_000",
                "",
            ),
            "router_weights": ("experts", "", "router_weights = output", ""),
            "remakes_elementwise": (
                "dense",
                _COMPILED,
                f"{_COMPILED}, remakes_elementwise = on",
                "kernels { mode = compiled }",
            ),
            "reduces_by_matrix": (
                "sharded",
                "",
                "reduces_by_matrix = on",
                "training { loss_chunks = 16 }",
            ),
            "transfers": ("dense", "", "transfers = blocking", "layout { pp = 2 }"),
            "stops_early": (
                "dense",
                "issue = 1 us",
                "issue = 1 us, stops_early = on",
                "training { recompute = full }",
            ),
            "misaligned_heads": (
                "dense",
                "issue = 1 us",
                "issue = 1 us, misaligned_heads = vector",
                _ODD_HEADS,
            ),
            "squared_relu": (
                "dense",
                "",
                "squared_relu = eager",
                _SQUARED,
            ),
            "messages": (
                "dense",
                "issue = 1 us",
                "issue = 1 us, messages = scattered",
                "layout { pp = 2, sequence_parallel = off }",
            ),
            "interleaved_transfers": (
                "dense",
                "",
                "interleaved_transfers = blocking",
                "layout { pp = 2 }\nschedule { kind = interleaved, chunks = 2 }",
            ),
            "gather_start": (
                "dense",
                "",
                "gather_start = arrival",
                "layout { tp = 2, pp = 2, zero = 1 }\noverlap { parameters = on }",
            ),
            "interleaved_gather_start": (
                "dense",
                "",
                "interleaved_gather_start = arrival",
                (
                    "layout { tp = 2, pp = 2, zero = 1 }\nschedule { kind = interleaved, chunks = 2 }\n"
                    "overlap { parameters = on }"
                ),
            ),
            "accumulate": ("dense", "", "accumulate = whole", _SHARDED),
            "pipelined_accumulate": (
                "dense",
                "",
                "pipelined_accumulate = whole",
                f"{_SHARDED}\nlayout {{ pp = 2 }}",
            ),
            "reshard": ("dense", "", "reshard = off", _SHARDED),
            "keep_last": ("dense", "", "keep_last = on", _SHARDED),
            "contiguous_gradients": (
                "dense",
                "gradient_staging = 9_000_000_000",
                "gradient_staging = 9_000_000_000, contiguous_gradients = on",
                "layout { tp = 2, zero = 1 }",
            ),
            "pipelined_reshard": (
                "dense",
                "",
                "pipelined_reshard = off",
                f"{_SHARDED}\nlayout {{ pp = 2 }}",
            ),
            "reduce_scatter": ("dense", "", "reduce_scatter = off", "layout { tp = 2, zero = 1 }"),
            "context": (
                "dense",
                "",
                "context = all_gather",
                "layout { tp = 1, cp = 2 }",
            ),
            "assignment": (  # [3, 3, 2, 2] or [3, 3, 3, 1]
                "dense",
                "assignment = front",
                "assignment = fill",
                "model small { layers = 10 }\nlayout { pp = 4 }",
            ),
        }.items()
    },
    # What kernels take of mixtures of experts, where a framework has them.
    **{
        f"kernels.{name}": (
            base,
            f"{_FRAMEWORK.format(operators)}{beside}",
            f"{_FRAMEWORK.format(operators)}{beside}\nkernels {{ {name} = {value} }}",
        )
        for name, (base, operators, beside, value) in {
            "traced_time": (
                "experts",
                "expert_activation = traced",
                "model mixture { gated = on }",
                "9 us",
            ),
            "traced_gradient_time": (
                "experts",
                "expert_activation = traced",
                "model mixture { gated = on }",
                "9 us",
            ),
            "strided_time": (
                "experts",
                "expert_biases = eager",
                "model mixture { biases = on }",
                "9 us",
            ),
            "permuted_efficiency": ("experts", "permutation = fused", "", "1 %"),
            "eager_softmax_efficiency": (
                "dense",
                "softmax = eager",
                "kernels { attention = unfused }",
                "1 %",
            ),
        }.items()
    },
    # A host that waits for kernels.
    "kernels.launch_wait": (
        "dense",
        "framework own { issue = 1 us }\nkernels { launch_blocking = on }",
        "framework own { issue = 1 us }\nkernels { launch_blocking = on, launch_wait = 90 us }",
    ),
    # What a device keeps under a power cap.
    **{
        name: ("dense", f"{_CAPPED}{before}", f"{_CAPPED}{after}")
        for name, (before, after) in {
            "device.static_power": ("", "device card { static_power = 30 % }"),
            "kernels.static_power": ("", "kernels { static_power = 30 % }"),
            "kernels.lowest_voltage": ("", "kernels { lowest_voltage = 50 % }"),
        }.items()
    },
    # What kernels of a framework reach, where the framework has them.
    **{
        f"kernels.{name}_efficiency": (
            "dense",
            _FRAMEWORK.format(operators),
            f"{_FRAMEWORK.format(operators)}kernels {{ {name}_efficiency = 1 % }}",
        )
        for name, operators in {
            "eager_norm": "norm = eager",
            "eager_norm_gradient": "norm = eager",
            "compiled_norm_gradient": "norm = compiled",
            "composite": "norm = composite",
            "complex": "rotary = complex",
            "halves": "activation = halves",
            "eager_rotary": "rotary = eager",
        }.items()
    },
    "device.host_bandwidth": (
        "dense",
        "offload { activations = 50 % }",
        "offload { activations = 50 % }\ndevice card { host_bandwidth = 5 GB/s per_direction }",
    ),
    "device.power": (
        "dense",
        "run { tokens = 1 T tokens }\nenergy { intensity = 400 g/kWh }",
        (
            "run { tokens = 1 T tokens }\nenergy { intensity = 400 g/kWh }\n"
            "device card { power = 350 W }"
        ),
    ),
    "term.when": (
        "sharded",
        "term router { seconds = 1 s, per = step }",
        "term router { seconds = 1 s, per = step, when = drain }",
    ),
    "term.stage": (
        "stages",
        "term own { memory = 90 MB, stage = 0 }",
        "term own { memory = 90 MB, stage = 7 }",
    ),
    "tuning.start": ("library", _NVLS, f"{_NVLS}tuning table {{ start = 90 us }}"),
    "tuning.two_ranks": ("library", _ON_TWO, f"{_ON_TWO}tuning table {{ two_ranks = 50 % }}"),
    "tuning.nvls_reach": ("library", _NVLS, f"{_NVLS}tuning table {{ nvls_reach = 50 % }}"),
    "device.tuning": (
        "dense",
        "",
        (
            "use catalog.tunings.nccl_2_30\ntuning slow extends nccl_2_30 { start = 90 us }\n"
            "device card { tuning = slow }"
        ),
    ),
    "tuning.simple_ports": (
        "library",
        "collectives { card_latency = 1 us }",
        "collectives { card_latency = 1 us }\ntuning table { simple_ports = 4 }",
    ),
    "generation.nvls_tree_more_nodes": (
        "library",
        "transfer between { nodes = 4 }",
        (
            "transfer between { nodes = 4 }\n"
            "tuning table { generation hopper { nvls_tree_more_nodes = 1 GB/s } }"
        ),
    ),
    "model.full_every": (
        "dense",
        "model small { window = 1024 }",
        "model small { window = 1024, full_every = 2 }",
    ),
    "model.full_layers": (
        "dense",
        "model small { window = 1024 }",
        "model small { window = 1024, full_layers = [0, 2] }",
    ),
    "model.chunked": (
        "dense",
        "model small { window = 1024 }",
        "model small { window = 1024, chunked = on }",
    ),
    # A gated delta net in three of four layers.
    **{
        f"model.{name}": (
            "dense",
            _DELTA.format(""),
            _DELTA.format(f", {name} = {value}"),
        )
        for name, value in {
            "delta_key_heads": "4",
            "delta_key_dim": "32",
            "delta_value_dim": "32",
            "delta_convolution": "8",
        }.items()
    },
    **{
        f"kernels.{name}": (
            "dense",
            _DELTA.format(""),
            f"{_DELTA.format('')}kernels {{ {name} = 1 ns }}",
        )
        for name in ("delta_time", "delta_gradient_time")
    },
    "model.qk_norm_whole": (
        "dense",
        "model small { qk_norm = on }",
        "model small { qk_norm = on, qk_norm_whole = on }",
    ),
    "model.dense_layers": (
        "experts",
        "model mixture { dense_first = 0 }",
        "model mixture { dense_first = 0, dense_layers = [0] }",
    ),
    "memory.expandable_fragmentation": (
        "dense",
        "memory { expandable_segments = on }",
        "memory { expandable_segments = on, expandable_fragmentation = 9 % }",
    ),
    **{
        f"memory.{name}": (
            "dense",
            _FRAMEWORK.format("issue = 1 us"),
            f"{_FRAMEWORK.format('issue = 1 us')}memory {{ {name} = 50 % }}",
        )
        for name in ("error", "coverage")
    },
    "memory.margin": ("dense", _FULL.format(8), _FULL.format(1)),
}
