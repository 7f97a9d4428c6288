"""Rows as studies, against what each row means, worked out by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import parcost
from parcost import Study
from parcost_measured.validation.rows import RunRow, UnmodelledError
from parcost_measured.validation.study import StudyText, write
from parcost_plugins.kernels.rates import kernel_name
from parcost_plugins.physics.context import algorithm
from parcost_plugins.physics.partition import layers as dealt
from parcost_plugins.physics.run_choices import (
    blocks_on_transfers,
    gradient_bucket,
    hides_gradients,
    hides_parameters,
    tensor_overlap,
)
from parcost_plugins.vocabulary import (
    Cluster,
    KernelChoice,
    Layout,
    Overlap,
    Routing,
    ScheduleChoice,
    Sharding,
    Training,
)

from ..rows import try_each

Make = Callable[..., RunRow]

#: What turns the row of Megatron-LM into one of FSDP under Composer, on two nodes of eight.
FSDP: dict[str, Any] = {
    "source": "mosaicml/llm-foundry training benchmarks",
    "year": 2025,
    "parallel__tp": 1,
    "parallel__pp": 1,
    "parallel__dp": 16,
    "parallel__zero_stage_or_fsdp": "FSDP full_shard (ZeRO-3)",
    "batch__micro": 4,
    "batch__global": 128,
    "batch__grad_accum": 2,
    "precision": "fp8 mixed",
    "precision_class": "fp8",
    "hardware__gpu": "H100-80GB-SXM",
    "schedule": "none (data parallel)",
    "attention": "flash (flash-attn 2 / Triton)",
}
#: And into one of experts, by Megatron-Bridge on a part of an NVLink domain.
EXPERTS: dict[str, Any] = {
    "source": "NVIDIA-NeMo/Megatron-Bridge performance summary",
    "year": 2026,
    "model__experts": 64,
    "model__topk": 4,
    "model__expert_ffn": 1024,
    "model__shared_experts": 1,
    "model__dense_layers": 2,
    "model__gated": True,
    "hardware__gpu": "GB200",
    "hardware__gpus": 128,
    "hardware__gpus_per_node": 4,
    "hardware__intranode": "GB200 NVL72 (NVLink domain 72 GPUs)",
    "hardware__internode_gbps": None,
    "parallel__tp": 1,
    "parallel__pp": 4,
    "parallel__vp": 2,
    "parallel__dp": 32,
    "parallel__ep": 16,
    "parallel__zero_stage_or_fsdp": "distributed optimizer (ZeRO-1)",
    "batch__micro": 1,
    "batch__global": 1024,
    "batch__grad_accum": 32,
    "precision": "mxfp8",
    "precision_class": "mxfp8",
    "recompute": "selective",
    "schedule": "interleaved 1F1B",
    "attention": "flash (cuDNN/TE fused)",
    "notes": "MoE benchmark: token distribution force-balanced, dropless.",
    "extra": {"recompute_detail": "layernorm,moe_act"},
}


def study(written: StudyText) -> Study:
    (scenario,) = parcost.load_text(written.text)
    (found,) = scenario.studies()
    return found


def test_a_row_of_megatron_lm(row: Make) -> None:
    made = study(write(row()))
    layout, training, overlap = made[Layout], made[Training], made[Overlap]
    assert (layout.tp, layout.pp, layout.cp, layout.dp, layout.zero) == (8, 2, 1, 1, 0)
    assert layout.sequence_parallel is False
    assert layout.vocabulary_multiple == 128
    assert (training.micro_batch, training.global_batch, training.micro_batches) == (2, 16, 8)
    assert (training.recompute, training.flash_attention, training.dropout) == ("full", False, True)
    assert training.precision.label == "fp16"
    assert training.framework.label == "megatron_lm_2021"
    model = training.model
    assert (model.layers, model.hidden, model.heads, model.ffn) == (24, 3072, 32, 12288)
    assert (model.norm, model.biases, model.gated, model.tied) == ("layer", True, False, True)
    assert model.positions == 2048
    assert (overlap.gradients, overlap.parameters, overlap.tensor) == (None, None, None)
    assert (hides_gradients(made), hides_parameters(made)) == (False, False)
    assert tensor_overlap(made) == "off"
    assert blocks_on_transfers(made)
    assert made[Cluster].device.label == "a100_sxm_80g"
    node, network = made[Cluster].fabric.levels
    assert node.size == 8
    assert network.bandwidth == 200e9 / 8  # 1600 Gb/s of a node on 8 ports, one direction


def test_a_row_of_fsdp(row: Make) -> None:
    made = study(write(row(**FSDP)))
    layout, training = made[Layout], made[Training]
    assert (layout.tp, layout.pp, layout.dp, layout.zero) == (1, 1, 16, 3)
    assert training.micro_batches == 2
    assert training.flash_attention is True
    assert training.dropout is False
    assert hides_gradients(made)
    recipe = training.precision
    # Narrow products of fp8, and the state of FSDP: the shard is the fp32 master.
    assert recipe.narrow == "fp8"
    assert (recipe.weights, recipe.gradients, recipe.optimizer, recipe.gather) == (4, 4, 8, 2)
    assert made[Cluster].device.label == "h100_sxm"
    assert training.framework.label == "fsdp_composer"


def test_a_row_with_experts(row: Make) -> None:
    made = study(write(row(**EXPERTS)))
    layout, training = made[Layout], made[Training]
    model = training.model
    assert (model.experts, model.top_k, model.expert_ffn) == (64, 4, 1024)
    assert (model.shared_experts, model.dense_first, model.norm) == (1, 2, "rms")
    assert (layout.ep, layout.pp, layout.dp, layout.zero) == (16, 4, 32, 1)
    schedule = made[ScheduleChoice]
    assert (schedule.kind, schedule.chunks) == ("interleaved", 2)
    assert not schedule.stages  # 24 layers divide over 8 virtual stages
    domain, network = made[Cluster].fabric.levels
    assert domain.size == 64  # 128 devices are not a multiple of 72
    assert network.bandwidth == 400e9 / 8  # the row does not say: the catalogue's
    assert made[Cluster].device.label == "gb200"


@try_each(
    "extra, expected",
    [
        ({"compile": True}, "mode = compiled"),
        ({"compile": False}, "mode = eager"),
        ({"cuda_graph_impl": "full_iteration"}, "cuda_graphs = iteration"),
        (
            {"cuda_graph_impl": "local", "cuda_graph_scope": "full_iteration"},
            "cuda_graphs = iteration",
        ),
        (
            {"cuda_graph_impl": "transformer_engine", "cuda_graph_scope": "['attn', 'moe_router']"},
            "cuda_graphs = layer",
        ),
        (
            {"cuda_graph_impl": "transformer_engine", "cuda_graph_scope": "['moe_router']"},
            "cuda_graphs = none",
        ),
    ],
)
def test_what_was_compiled_and_captured(extra: dict[str, Any], expected: str, row: Make) -> None:
    assert expected in " ".join(write(row(**{**FSDP, "extra": extra})).text.split())


@pytest.mark.parametrize(
    ("year", "attention"), [(2024, "flash_2"), (2025, "cudnn"), (None, "cudnn")]
)
def test_attention_of_nemo_on_hopper_by_the_year(
    year: int | None, attention: str, row: Make
) -> None:
    """The launcher of 2024 sets NVTE_FUSED_ATTN = 0, which leaves FlashAttention 2."""
    gpu = {"hardware__gpu": "H100-80GB-SXM", "hardware__gpu_class": "H100"}
    made = study(write(row(**{**EXPERTS, **gpu, "year": year, "source": "NVIDIA NeMo"})))
    assert kernel_name(made) == attention


def test_how_tokens_reach_experts(row: Make) -> None:
    extra = {"moe_a2a_overlap": True, "moe_flex_dispatcher_backend": "hybridep"}
    made = study(write(row(**{**EXPERTS, "extra": extra})))
    routing = made[Routing]
    assert (routing.distribution, routing.dispatcher, routing.hide) == (
        "balanced",
        "hybridep",
        "pair",
    )


@try_each(
    "more, framework",
    [
        ({}, "nemo"),
        ({"extra": {"release": "26.04"}}, "nemo"),
        ({"extra": {"release": "26.06.01"}}, "nemo_2026_06"),
        ({"extra": {"release": "26.08"}, "hardware__gpu": "H100-80GB-SXM"}, "nemo"),
        ({"extra": {"release": "26.08"}, "precision_class": "bf16", "precision": "bf16"}, "nemo"),
    ],
)
def test_the_release_of_a_container_is_a_version_of_its_framework(
    more: dict[str, Any], framework: str, row: Make
) -> None:
    mxfp8 = {"precision_class": "mxfp8", "precision": "mxfp8"}
    assert write(row(**{**EXPERTS, **mxfp8, **more})).framework == framework


@try_each(
    "more, dispatcher, capacity",
    [
        ({"notes": "Dropless, all-to-all dispatcher."}, "alltoall", None),
        ({"notes": "Table qualifier: tokendrop."}, None, 1.0),
        ({"extra": {"moe_flex_dispatcher_backend": "deepep"}}, "deepep", None),
        ({"source": "Megatron-LM README"}, "alltoall", None),
    ],
)
def test_who_sends_tokens_and_who_drops_them(
    more: dict[str, Any], dispatcher: str | None, capacity: float | None, row: Make
) -> None:
    routing = study(write(row(**{**EXPERTS, **more})))[Routing]
    assert (routing.dispatcher, routing.capacity_factor) == (dispatcher, capacity)


def test_what_gpt_oss_has_beside_other_models(row: Make) -> None:
    made = study(write(row(**{**EXPERTS, "model__name": "gpt-oss-120b"})))
    model = made[Training].model
    assert (model.sinks, model.biases, model.clamped) == (True, True, True)


def test_keys_reach_ranks_that_share_a_sequence(row: Make) -> None:
    split = {**FSDP, "parallel__dp": 8, "parallel__cp": 2, "batch__grad_accum": 4}
    assert algorithm(study(write(row(**split)))) == "all_gather"
    megatron = {"year": 2024, "parallel__tp": 4, "parallel__cp": 2}
    assert algorithm(study(write(row(**megatron)))) == "ring"


def test_sinks_reach_ranks_that_share_a_sequence_by_all_to_all(row: Make) -> None:
    """Transformer Engine has no other algorithm for them; other frameworks have their own."""
    split = {"model__name": "GPT-OSS 20B", "parallel__tp": 1, "parallel__cp": 2}
    bridge = {**EXPERTS, **split, "parallel__ep": 2}
    assert algorithm(study(write(row(**bridge)))) == "ulysses"
    composer = {**FSDP, **split, "parallel__dp": 8, "batch__grad_accum": 4}
    assert algorithm(study(write(row(**composer)))) == "all_gather"


@try_each(
    "source, year, ranks, elements",
    [
        ("Megatron-LM", 2025, 2, 40e6),
        ("Megatron-LM", 2025, 41, 41e6),
        ("Megatron-LM", 2025, 64, 64e6),
        ("NVIDIA-NeMo/Megatron-Bridge", 2026, 512, 134.217728e6),
    ],
)
def test_buckets_of_gradients_in_16_bits(
    source: str, year: int, ranks: int, elements: float, row: Make
) -> None:
    parallel = {"parallel__tp": 1, "parallel__pp": 1, "parallel__dp": ranks}
    batch = {"batch__micro": 1, "batch__grad_accum": 1, "batch__global": ranks}
    changes = {"hardware__gpus": ranks, "hardware__gpus_per_node": None}
    made = study(write(row(source=source, year=year, **parallel, **batch, **changes)))
    assert gradient_bucket(made) == 2 * elements


def test_assumptions_are_comments_and_a_list(row: Make) -> None:
    written = write(row(**EXPERTS))
    assert "the network of nvl72 is assumed: the row does not state it" in written.assumptions
    for assumption in written.assumptions:
        assert f"# Assumed: {assumption}.\n" in written.text
    assert written.text.startswith("# megatron-1\n")


def test_named_modules_are_recomputed(row: Make) -> None:
    text = write(row(**EXPERTS)).text
    assert "recompute {\n  norms      = on\n  activation = on\n}" in text
    assert "recompute       = none" in text


@try_each(
    "said, zero",
    [
        ("none (plain data parallel)", 0),
        ("ZeRO stage 1 (DeepSpeed)", 1),
        ("ZeRO-2", 2),
        ("FSDP (ZeRO-3) over 64 ranks", 3),
        ("distributed optimizer (ZeRO-1)", 1),
        ("FSDP shard_grad_op (ZeRO-2)", 3),
    ],
)
def test_words_for_sharded_state(said: str, zero: int, row: Make) -> None:
    changes = {**FSDP, "parallel__zero_stage_or_fsdp": said}
    assert study(write(row(**changes)))[Layout].zero == zero


def test_shard_grad_op_keeps_parameters_gathered(row: Make) -> None:
    changes = {**FSDP, "parallel__zero_stage_or_fsdp": "FSDP shard_grad_op (ZeRO-2)"}
    assert study(write(row(**changes)))[Sharding].reshard is False


@pytest.mark.parametrize(
    "changes",
    [
        {"parallel__hsdp": {"shard": 8, "replicate": 2}},
        {"parallel__zero_stage_or_fsdp": "FSDP over 8 ranks x 2 DP"},
    ],
)
def test_hybrid_sharding(changes: dict[str, Any], row: Make) -> None:
    assert study(write(row(**{**FSDP, **changes})))[Sharding].shard == 8


def test_ports_that_the_row_counts(row: Make) -> None:
    """Four ports of 200 Gb/s for eight devices."""
    changes = {"hardware__internode": "InfiniBand HDR, 4 x 200 Gb/s per node"}
    made = study(write(row(**changes, hardware__internode_gbps=800)))
    network = made[Cluster].fabric.levels[-1]
    assert (network.bandwidth, network.ports) == (25e9, 4)


@try_each(
    "gpu, internode, efficiencies",
    [
        ("A100-80GB-SXM", "4x Omni-Path 100 Gb/s per node (Jean Zay)", (0.78, 0.41)),
        ("V100-32GB-SXM2", "4x Omni-Path 100 Gb/s per node (Jean Zay)", (0.37, 0.14)),
        ("V100-32GB-SXM2", "4x Omni-Path 100 Gb/s per node", (0.81, 0.9)),
        ("V100-32GB-SXM2", "4x HDR100 InfiniBand 100 Gb/s", (0.81, 0.9)),
    ],
)
def test_messages_pass_through_the_host_on_jean_zay(
    gpu: str, internode: str, efficiencies: tuple[float, float], row: Make
) -> None:
    """All-reduces on Jean Zay: 40.5 Gb/s through one port of an A100 node, 54.6 through two of V100."""
    hardware = {"gpu": gpu, "internode": internode, "internode_gbps": 400}
    made = study(write(row(**{f"hardware__{name}": value for name, value in hardware.items()})))
    node, network = made[Cluster].fabric.levels[-2:]
    assert (network.bandwidth, network.ports) == (12.5e9, 4)
    assert (node.efficiency, network.efficiency) == pytest.approx(efficiencies)


@try_each(
    "gpu, device, fabric",
    [
        ("H100-96GB-SXM (HBM2e, 500 W)", "h100_sxm_96g", "hgx_h100"),
        ("V100-16GB-SXM2", "v100_sxm2_16g", "dgx_v100"),
        ("V100-32GB-SXM (DGX-2)", "v100_sxm3_32g", "dgx_2"),
        ("A100 40GB PCIe", "a100_pcie_40g", "pcie4_roce_200g"),
        ("NVIDIA H100 PCIe", "h100_pcie", "pcie5_roce_400g"),
        ("H200-141GB-SXM", "h200_sxm", "hgx_h200"),
        ("AMD Instinct MI300X", "mi300x", "mi300x_node"),
        ("TPU v5p", "tpu_v5p", "tpu_v5p_pod"),
        ("GB300", "gb300", "gb300_nvl72"),
    ],
)
def test_words_for_devices(gpu: str, device: str, fabric: str, row: Make) -> None:
    text = write(row(hardware__gpu=gpu)).text
    assert f"use catalog.devices.{device}\n" in text
    assert f"use catalog.fabrics.{fabric}\n" in text


@try_each(
    "said, kernel",
    [
        ("FlashAttention-3", "flash_3"),
        ("flash attention v2", "flash_2"),
        ("cuDNN fused attention", "cudnn"),
        ("Triton", "triton"),
        # One of the two: the framework's, by its time.
        ("flash (flash-attn 2 / Triton)", None),
        # Transformer Engine chooses, and so does a framework of which no kernel is named.
        ("flash (TE/cuDNN fused)", None),
        ("flash (cuDNN via TE)", None),
        ("flash (PyTorch SDPA)", None),
        ("no flash (fused softmax)", None),
    ],
)
def test_words_for_attention(said: str, kernel: str | None, row: Make) -> None:
    made = study(write(row(**{**FSDP, "attention": said})))
    assert made[KernelChoice].attention == kernel
    assert made[Training].flash_attention is not said.startswith("no")


@pytest.mark.parametrize(("year", "kernel"), [(2024, "triton_1"), (2025, "flash_2")])
def test_the_kernel_of_a_framework_by_its_time(year: int, kernel: str, row: Make) -> None:
    """Benchmarks of LLM Foundry took the kernel of Triton until March 2024."""
    changes = {**FSDP, "year": year, "hardware__gpu": "A100-80GB-SXM", "precision": "bf16 mixed"}
    made = study(write(row(**{**changes, "precision_class": "bf16"})))
    assert kernel_name(made) == kernel


@pytest.mark.parametrize(("container", "kernel"), [("24.05", "flash_2"), ("24.09", "cudnn")])
def test_the_kernel_of_a_container_of_nemo(container: str, kernel: str, row: Make) -> None:
    """Scripts of DGX Cloud turn cuDNN's attention off for 24.05, and on for 24.09."""
    changes = {
        "year": 2024,
        "hardware__gpu": "H100-80GB-SXM",
        "attention": "flash (TE/cuDNN fused)",
    }
    made = study(write(row(**changes, extra={"framework": f"NeMo {container}"})))
    assert kernel_name(made) == kernel


def test_fused_attention_in_a_framework_that_had_none(row: Make) -> None:
    assert study(write(row(attention="flash")))[KernelChoice].attention == "auto"


def test_every_entry_of_hardware_is_in_the_catalogue() -> None:
    from parcost_measured.validation.hardware import ENTRIES

    for kind in ("device", "fabric"):
        names = {Path(path.name).stem for path in (files("parcost_specs") / f"{kind}s").iterdir()}
        assert {getattr(entry, kind) for entry in ENTRIES} - names == set(), kind


def test_an_unknown_device_cannot_be_modelled(row: Make) -> None:
    with pytest.raises(UnmodelledError, match="the device `Cerebras WSE-3` is not one of gb300"):
        write(row(hardware__gpu="Cerebras WSE-3"))


def test_attention_that_the_language_lacks_cannot_be_modelled(row: Make) -> None:
    with pytest.raises(UnmodelledError, match="attention of the type `mamba`"):
        write(row(model__attn_type="mamba"))


def test_precision_is_read_from_the_words_where_the_class_is_missing(row: Make) -> None:
    text = write(row(precision="bfloat16 mixed", precision_class=None)).text
    assert "precision       = bf16\n" in text
    with pytest.raises(UnmodelledError, match="no precision"):
        write(row(precision=None, precision_class=None))


def test_a_name_of_a_row_ends_no_comment(row: Make) -> None:
    text = write(row(id="x\nterm t { seconds = 1 s }\u2028")).text
    assert text.startswith("# x term t { seconds = 1 s }\n")


DEEPSPEED = {
    "source": "BigScience (BLOOM) engineering chronicles",
    "year": 2022,
    "parallel__zero_stage_or_fsdp": "DeepSpeed ZeRO-1",
}


@pytest.mark.parametrize(
    ("gpu", "gpus", "waits"),
    [("A100-80GB-SXM", 320, True), ("A100-80GB-SXM", 160, False), ("V100-32GB", 512, False)],
)
def test_large_runs_of_bigscience_waited_for_each_kernel(
    gpu: str, gpus: int, waits: bool, row: Make
) -> None:
    """Its chronicle: without CUDA_LAUNCH_BLOCKING=1 jobs of 320 A100 always hang."""
    made = write(row(**DEEPSPEED, hardware__gpu=gpu, hardware__gpus=gpus, parallel__dp=gpus // 16))
    assert ("launch_blocking" in made.text) is waits
    assert any("CUDA_LAUNCH_BLOCKING" in one for one in made.assumptions) is waits


@try_each(
    "config, pp, lines",
    [
        ("config_DGXB200_8x8x1xtp1pp1cp1_8b_fp4.sh", 1, ["bucket       = 768e6 * 2 B"]),
        ("like config_C880A_8xB300_2x8x2xtp1pp1cp1_8b.sh (one node)", 1, ["bucket "]),
        ("config_GB200_128x4x240xtp2pp4ep32cp1_mxfp8_full_cg.sh", 4, ["gather_start = arrival"]),
        ("config_GB300_2x4x3xtp1pp1cp1ep1_mxfp8.sh", 1, []),
        (
            "config_DGXH100_16x8x1xtp2pp1cp1ep4.sh",
            1,
            ["bucket     = 768e6 * 2 B", "parameters = off"],
        ),
    ],
)
def test_submissions_to_mlperf_have_the_buckets_of_their_files(
    config: str, pp: int, lines: list[str], row: Make
) -> None:
    more = {"extra__config": config, "extra__framework": "nemo", "extra__mlperf_round": "v6.0"}
    text = write(row(**more, parallel__pp=pp, parallel__dp=64 // pp)).text
    for line in ("bucket ", "gather_start", "parameters = "):
        assert (line in text) is any(line.strip() in one for one in lines)
    assert all(" ".join(one.split()) in " ".join(text.split()) for one in lines)


NEMO = {"source": "NVIDIA-NeMo/Megatron-Bridge performance summary", "year": 2026}
BOTH = {"extra__pp_partition": "type:transformer|embedding"}
TORCHTITAN = {"source": "pytorch/torchtitan", "year": 2025}


@try_each(
    "changes, layers, pp, vp, expected",
    [
        # DeepSpeed of 2022 balanced what its pattern matches: seven on each, the rest on the last.
        (DEEPSPEED, 78, 12, 1, [7] * 11 + [1]),
        # BLOOM counted embedding and head as a layer each: 72 over 12.
        ({**DEEPSPEED, **BOTH}, 70, 12, 1, [5, *[6] * 10, 5]),
        # Since September 2023 it minimizes the difference: 3, 3, 2, 2.
        ({**DEEPSPEED, "year": 2024}, 10, 4, 1, [3, 3, 2, 2]),
        # Llama 3.1 405B over 8 stages of 8 chunks: 128 over 64.
        (NEMO, 126, 8, 8, [1, *[2] * 62, 1]),
        # The head alone: 64 over 16.
        (NEMO, 63, 16, 1, [4] * 15 + [3]),
        # DeepSeek-V3: neither divides, so that stages are filled.
        (NEMO, 61, 16, 1, [4] * 15 + [1]),
        # torchtitan: 34 over 4 is 9, 9, 8, 8, of which embedding and head are one each.
        (TORCHTITAN, 32 + 1, 4, 1, [8, 9, 9, 7]),
    ],
)
def test_layers_that_do_not_divide(
    changes: dict[str, Any],
    layers: int,
    pp: int,
    vp: int,
    expected: Sequence[int],
    row: Make,
) -> None:
    """No list of stages is written: the framework's rule deals them, or its options do."""
    made = row(
        model__layers=layers,
        parallel__tp=1,
        parallel__pp=pp,
        parallel__vp=vp,
        parallel__dp=1,
        hardware__gpus=pp,
        hardware__gpus_per_node=pp,
        batch__micro=1,
        batch__global=4 * pp,
        batch__grad_accum=4 * pp,
        **changes,
    )
    text = write(made).text
    assert "  stages " not in text
    (scenario,) = parcost.load_text(text)
    assert list(dealt(scenario.first)) == expected
    assert sum(expected) == layers


def test_a_row_is_no_proof_against_its_framework(row: Make) -> None:
    """It ran with ZeRO 3, which the tensor-parallel Megatron-LM of 2021 did not have."""
    old = {"source": "Megatron-LM SC21", "year": 2021}
    (scenario,) = parcost.load_text(write(row(**old, parallel__zero_stage_or_fsdp="ZeRO-3")).text)
    assert "framework-lacks" not in [d.id for d in scenario.evaluate().result.diagnostics]


@pytest.mark.parametrize(("year", "parallel"), [(2021, False), (2023, True)])
def test_sequence_parallelism_that_a_row_does_not_state(
    year: int, parallel: bool, row: Make
) -> None:
    more = {"source": "Megatron-LM", "year": year, "parallel__tp": 8, "parallel__dp": 1}
    made = study(write(row(**more, hardware__gpus=8, parallel__sequence_parallel=None)))
    assert made[Layout].sequence_parallel is parallel
