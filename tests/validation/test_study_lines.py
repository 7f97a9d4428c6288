"""Lines of a study by what its row says, as text: nothing is bound or predicted here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from parcost_measured.validation.frameworks import profile_of
from parcost_measured.validation.hardware import domain_of
from parcost_measured.validation.recipes import Recipe, recipe_of
from parcost_measured.validation.rows import RunRow, UnmodelledError, count_unread
from parcost_measured.validation.study import write

from ..rows import try_each

Make = Callable[..., RunRow]

GATED = {"model__gated": True}
EXPERTS = {"model__experts": 8, "model__topk": 2, "model__expert_ffn": 512}
LEARNED = {**EXPERTS, "extra": {"router_force_balance": False}}
TITAN = {"source": "pytorch/torchtitan", "year": 2026}
TRAINER = {"source": "HF Trainer", "year": 2026}
BRIDGE = {"source": "NVIDIA-NeMo/Megatron-Bridge", "year": 2026}
NEMO_1 = {"source": "NVIDIA/NeMo docs", "year": 2024}
SHARDED = {**BRIDGE, "parallel__sequence_parallel": True}
MODERN = {"source": "Megatron-LM", "year": 2025}


def lines(text: str) -> dict[str, str]:
    """Return the value of each attribute, by its block and name."""
    found, block = {}, ""
    for line in text.splitlines():
        if line.endswith("{"):
            block = line.split()[0]
        elif " = " in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found[f"{block}.{name.strip()}"] = value.strip()
    return found


def stage_values(pp: int, vp: int, layers: int) -> dict[str, Any]:
    return {"parallel__pp": pp, "parallel__vp": vp, "model__layers": layers}


def sharding_lines(text: str, **more: Any) -> dict[str, Any]:
    return {"parallel__zero_stage_or_fsdp": text, **more}


#: Changes of a row, an attribute of its study, and its value or None where there is no line.
LINES: list[tuple[dict[str, Any], str, str | None]] = [
    # --- gradients of Accelerate's FSDP: 2 bytes, also where whole ones wait for a reduction
    (sharding_lines("FSDP", **TRAINER), "precision.reduction", "2 B"),
    (sharding_lines("FSDP", **TRAINER), "precision.whole_gradients", "2 B"),
    (sharding_lines("DDP", **TRAINER), "precision.whole_gradients", None),
    (sharding_lines("FSDP", **TRAINER, precision_class="fp8"), "precision.whole_gradients", None),
    (sharding_lines("FSDP", **TITAN), "precision.whole_gradients", None),
    # --- the model
    ({"model__vocab": 999_999}, "model.vocabulary", "999999"),
    ({"model__vocab": 1_000_000}, "model.vocabulary", "1_000_000"),
    ({"model__vocab": 1_234_567}, "model.vocabulary", "1_234_567"),
    ({}, "model.ffn", "12288"),
    ({"model__ffn": None}, "model.ffn", "12288"),  # 4 x 3072
    ({"model__ffn": None, "model__hidden": 1024}, "model.ffn", "4096"),
    ({"model__gated": None}, "model.gated", "on"),
    ({}, "model.gated", "off"),
    ({}, "model.norm", "layer"),
    (GATED, "model.norm", "rms"),
    ({}, "model.biases", "on"),
    (GATED, "model.biases", None),
    ({"model__activation": "squared-relu"}, "model.biases", None),
    ({"model__activation": "squared-relu"}, "model.squared_relu", "on"),
    ({}, "model.squared_relu", None),
    ({**GATED, "model__name": "GPT-OSS 20B"}, "model.biases", "on"),
    ({}, "model.positions", "2048"),
    ({"model__pos_emb": 0}, "model.positions", None),
    ({"model__pos_emb": 1}, "model.positions", "1"),
    ({"model__mtp_layers": 1}, "model.prediction_layers", "1"),
    ({"model__mtp_layers": 0}, "model.prediction_layers", None),
    ({"model__sliding_window": 512}, "model.window", "512"),
    ({"model__sliding_window": 1}, "model.window", "1"),
    ({"model__sliding_window": 0}, "model.window", None),
    ({"model__sliding_window": 512}, "model.full_every", None),
    ({"model__full_attention_layers": 4}, "model.full_every", None),
    ({"model__sliding_window": 1, "model__full_attention_layers": 4}, "model.full_every", "6"),
    ({"model__sliding_window": 1, "model__full_attention_layers": 24}, "model.full_every", "1"),
    ({"model__sliding_window": 1, "model__full_attention_layers": 60}, "model.full_every", "1"),
    ({"model__kv_lora_rank": 512, "model__attn_type": "MLA"}, "model.kv_lora", "512"),
    ({"model__q_lora_rank": 8}, "model.q_lora", None),
    ({"model__q_lora_rank": 8, "model__kv_lora_rank": 512}, "model.q_lora", "8"),
    (EXPERTS, "model.top_k", "2"),
    ({**EXPERTS, "model__experts": 1}, "model.top_k", None),
    # --- the layout
    ({"parallel__cp": 1}, "layout.cp", None),
    ({"parallel__cp": 2}, "layout.cp", "2"),
    ({"parallel__pp": 1}, "layout.pp", None),
    ({"parallel__ep": 2}, "layout.ep", "2"),
    ({"extra__expert_tensor_parallel": 1}, "layout.etp", None),
    ({"extra__expert_tensor_parallel": 2}, "layout.etp", "2"),
    ({"extra__expert_tensor_parallel": "2"}, "layout.etp", None),
    ({"parallel__tp": 1}, "layout.sequence_parallel", None),
    ({"parallel__tp": 2, "parallel__sequence_parallel": True}, "layout.sequence_parallel", "on"),
    ({}, "layout.vocabulary_multiple", "128"),
    (TITAN, "layout.vocabulary_multiple", None),
    (sharding_lines("fsdp"), "layout.zero", "3"),
    (sharding_lines("zero-3"), "layout.zero", "3"),
    (sharding_lines("stage 3"), "layout.zero", "3"),
    (sharding_lines("shard_grad_op"), "layout.zero", "3"),
    (sharding_lines("ZeRO stage 2"), "layout.zero", "2"),
    (sharding_lines("distributed optimizer"), "layout.zero", "1"),
    (sharding_lines("none"), "layout.zero", "0"),
    (sharding_lines(""), "layout.zero", "0"),
    (sharding_lines("ZeRO 3"), "layout.zero", "3"),
    (sharding_lines("DDP"), "layout.zero", "0"),
    (sharding_lines("plain data-parallel"), "layout.zero", "0"),
    (sharding_lines("ZeRO over DP 8"), "layout.zero", "1"),
    (sharding_lines("optimizer sharded over data parallel ranks"), "layout.zero", "1"),
    (sharding_lines("somehow"), "layout.zero", "1"),
    (sharding_lines("FSDP over 4 ranks", parallel__dp=16), "sharding.shard", "4"),
    (sharding_lines("FSDP over 4 ranks", parallel__dp=2, parallel__cp=4), "sharding.shard", "4"),
    (sharding_lines("FSDP over 4 ranks", parallel__dp=4), "sharding.shard", None),
    (sharding_lines("FSDP over 4 ranks", parallel__dp=2), "sharding.shard", None),
    (sharding_lines("FSDP over 4 ranks", parallel__dp=6), "sharding.shard", None),
    (sharding_lines("FSDP", parallel__dp=6), "sharding.shard", None),
    # --- the schedule
    ({"parallel__pp": 1, "schedule": "interleaved"}, "schedule.kind", None),
    ({"schedule": "1F1B"}, "schedule.kind", None),
    ({"parallel__vp": 2, "schedule": None}, "schedule.kind", "interleaved"),
    ({"parallel__vp": 2, "schedule": "ZBV"}, "schedule.kind", "zb_v"),
    ({"schedule": "1F1B (non-interleaved)"}, "schedule.kind", None),
    ({"schedule": "AFAB"}, "schedule.kind", "gpipe"),
    ({"parallel__vp": 2, "schedule": "looped BFS"}, "schedule.kind", "breadth_first"),
    ({"parallel__vp": 2}, "schedule.chunks", "2"),
    ({"parallel__vp": 1}, "schedule.chunks", None),
    ({"parallel__pp": 1, "parallel__vp": 2}, "schedule.chunks", None),
    (stage_values(2, 1, 24), "schedule.assignment", None),
    (stage_values(5, 1, 24), "schedule.assignment", None),  # one end makes it 25
    (stage_values(5, 1, 24), "schedule.count_head", "on"),
    (stage_values(5, 1, 24), "schedule.count_embedding", None),
    (stage_values(5, 1, 23), "schedule.count_head", "on"),
    (stage_values(5, 1, 23), "schedule.count_embedding", "on"),
    (stage_values(5, 2, 28), "schedule.count_embedding", "on"),  # 30 over 5 x 2
    (stage_values(5, 2, 29), "schedule.count_head", "on"),
    (stage_values(5, 2, 29), "schedule.count_embedding", None),
    (stage_values(4, 2, 20), "schedule.assignment", "fill"),  # 22 are not a multiple of 4 x 2
    (stage_values(4, 2, 20), "schedule.count_embedding", None),
    (stage_values(5, 1, 22), "schedule.assignment", "fill"),
    (stage_values(5, 1, 22), "schedule.count_head", None),
    ({**stage_values(5, 1, 23), **TITAN}, "schedule.count_head", None),
    ({**stage_values(5, 1, 23), **TITAN}, "schedule.assignment", None),
    ({**stage_values(5, 1, 23), "source": "Trainer"}, "schedule.assignment", "fill"),
    ({**stage_values(5, 1, 22), "extra__pp_partition": "embed"}, "schedule.count_embedding", "on"),
    ({**stage_values(5, 1, 23), "extra__pp_partition": "layer"}, "schedule.count_embedding", None),
    ({**stage_values(5, 1, 23), "extra__pp_partition": "layer"}, "schedule.count_head", None),
    ({**stage_values(5, 1, 25), "extra__pp_partition": "embed"}, "schedule.count_embedding", None),
    # --- kernels and loss
    ({"attention": None}, "training.flash_attention", "on"),
    ({"attention": "eager"}, "training.flash_attention", "off"),
    ({"attention": "flash"}, "training.flash_attention", "on"),
    ({"attention": "flash"}, "kernels.attention", "auto"),
    ({"attention": "flash", **MODERN}, "kernels.attention", None),
    ({"attention": "unfused, xformers"}, "kernels.attention", None),
    ({"attention": "xformers"}, "kernels.attention", "xformers"),
    ({"attention": "cuDNN", "hardware__gpu": "A100-80GB"}, "kernels.attention", "auto"),
    ({"attention": "cuDNN", "hardware__gpu": "H100-80GB"}, "kernels.attention", "cudnn"),
    ({"notes": "torch.compile"}, "kernels.mode", "compiled"),
    ({"notes": "plain"}, "kernels.mode", None),
    ({"extra": {"compile": False}, "notes": "torch.compile"}, "kernels.mode", "eager"),
    ({"extra": {"cuda_graph_impl": "none"}}, "kernels.cuda_graphs", "none"),
    ({"extra": {"cuda_graph_impl": "local"}}, "kernels.cuda_graphs", "layer"),
    ({"notes": "CUDA graphs on"}, "kernels.cuda_graphs", "layer"),
    ({"extra": {"cuda_graph": True}, "year": 2026}, "kernels.cuda_graphs", "iteration"),
    ({"extra": {"cuda_graph": True}, "year": 2025}, "kernels.cuda_graphs", "layer"),
    (
        {"extra": {"cuda_graph": True, "cuda_graph_scope": "moe_router"}, "year": 2026},
        "kernels.cuda_graphs",
        "none",
    ),
    ({"notes": "Liger kernels", **MODERN}, "training.loss_chunks", "8"),
    ({"notes": "without Liger", **MODERN}, "training.loss_chunks", None),
    ({"extra": {"liger": True}, **MODERN}, "framework.norm", "fused"),
    ({"extra": {"loss_chunks": 4}}, "training.loss_chunks", "4"),
    ({}, "kernels.cuda_graphs", None),
    ({}, "training.dropout", "on"),
    (GATED, "training.dropout", None),
    (BRIDGE, "training.dropout", None),
    ({**NEMO_1, "model__name": "GPT3-20B"}, "training.dropout", "on"),
    ({**NEMO_1, "model__name": "Nemotron-3-8B"}, "training.dropout", None),
    ({**BRIDGE, **GATED}, "training.loss", "gradient"),
    (BRIDGE, "training.loss", None),
    ({**BRIDGE, **GATED, **EXPERTS}, "training.loss", None),
    ({**TITAN, "extra": {"compile": True}, "year": 2024}, "training.loss", "eager"),
    ({**TITAN, "extra": {"compile": True}, "year": 2025}, "training.loss", "logits"),
    ({**TITAN, "extra": {"compile": True}, "year": None}, "training.loss", "eager"),
    ({**TITAN, "extra": {"compile": False}}, "training.loss", None),
    ({"extra": {"compile": True}}, "training.loss", None),
    # --- what overlaps
    ({"extra": {"grad_overlap": False}, "notes": "overlapped DP grad"}, "overlap.gradients", "off"),
    ({"notes": "Overlapped DP grad"}, "overlap.gradients", "on"),
    ({"notes": "param all-gather"}, "overlap.parameters", "on"),
    ({"notes": "TP comm overlap"}, "overlap.tensor", "pipelined"),
    ({"extra": {"async_tp": True}}, "overlap.tensor", "pipelined"),
    ({"extra": {"async_tp": 2}}, "overlap.tensor", None),
    ({"extra": {"tp_comm_overlap": True}}, "overlap.tensor", "pipelined"),
    ({"extra": {"async_tp": True}, "parallel__tp": 1}, "overlap.tensor", None),
    # Megatron-Bridge's recipes set tp_comm_overlap, but not in NVFP4; MLPerf's scripts do not.
    (SHARDED, "overlap.tensor", "pipelined"),
    (BRIDGE, "overlap.tensor", None),
    ({**SHARDED, "extra": {"tp_comm_overlap": False}}, "overlap.tensor", None),
    ({**SHARDED, "precision": "nvfp4", "precision_class": "nvfp4"}, "overlap.tensor", None),
    ({**SHARDED, "model__kv_lora_rank": 512, "model__attn_type": "MLA"}, "overlap.tensor", None),
    ({**SHARDED, "source": "MLPerf, NVIDIA, NeMo"}, "overlap.tensor", None),
    ({**SHARDED, "year": 2024}, "overlap.tensor", None),
    (MODERN, "overlap.tensor", None),
    # --- experts
    ({**EXPERTS, "notes": "forced to balance"}, "routing.distribution", "balanced"),
    ({"notes": "forced to balance"}, "routing.distribution", None),
    ({**EXPERTS, "notes": "not forced to balance"}, "routing.distribution", None),
    ({**EXPERTS, "extra": {"router_force_balance": True}}, "routing.distribution", "balanced"),
    (
        {**EXPERTS, "notes": "force-balanced", "extra": {"router_force_balance": False}},
        "routing.distribution",
        "dirichlet",
    ),
    ({**LEARNED, "notes": "no auxiliary loss"}, "routing.balancing", "none"),
    ({**LEARNED, "notes": "aux loss 0.01"}, "routing.balancing", None),
    ({**EXPERTS, "notes": "no auxiliary loss"}, "routing.balancing", None),
    ({**EXPERTS, "extra": {"moe_capacity_factor": 1.25}}, "routing.capacity_factor", "1.25"),
    (
        {**EXPERTS, "extra": {"moe_token_dispatcher": "flex/hybridep (32 ranks)"}},
        "routing.dispatcher",
        "hybridep",
    ),
    ({**EXPERTS, "notes": "qualifier: tokendrop"}, "routing.capacity_factor", "1"),
    ({"notes": "qualifier: tokendrop"}, "routing.capacity_factor", None),
    (EXPERTS, "routing.capacity_factor", None),
    ({**EXPERTS, "extra": {"moe_flex_dispatcher_backend": "DeepEP"}}, "routing.dispatcher", "deepep"),
    ({**EXPERTS, **MODERN}, "routing.dispatcher", "alltoall"),
    (MODERN, "routing.dispatcher", None),
    ({**EXPERTS, **TITAN}, "routing.dispatcher", None),
    ({**EXPERTS, "extra": {"moe_a2a_overlap": True}}, "routing.hide", "pair"),
    ({"extra": {"moe_a2a_overlap": True}}, "routing.hide", None),
    (EXPERTS, "routing.hide", None),
    # --- the host
    ({"extra": {"cpu_offloading_num_layers": 6}}, "offload.activations", "25 %"),  # of 24
    ({"extra": {"cpu_offloading_num_layers": 1}}, "offload.activations", "4.167 %"),
    ({"extra": {"cpu_offloading_num_layers": 30}}, "offload.activations", "100 %"),
    ({"extra": {"cpu_offloading_num_layers": 0}}, "offload.activations", None),
    ({"notes": "checkpoint-in-cpu"}, "offload.activations", "100 %"),
    ({"extra": {"activation_cpu_offload": True}}, "offload.activations", "100 %"),
    ({"extra": {"activation_cpu_offload": False}}, "offload.activations", None),
    ({"extra": {"optimizer_cpu_offload": True}}, "offload.optimizer", "100 %"),
    (sharding_lines("ZeRO-2 with CPU offload"), "offload.optimizer", "100 %"),
    (sharding_lines("ZeRO-2 with CPU offload"), "offload.parameters", None),
    (sharding_lines("ZeRO-3, full offload"), "offload.optimizer", "100 %"),
    (sharding_lines("ZeRO-3, full offload"), "offload.host_memory_bandwidth", "51 GB/s"),
    (sharding_lines("ZeRO-3"), "offload.host_memory_bandwidth", None),
    (sharding_lines("ZeRO-3, full offload"), "offload.parameters", "100 %"),
    (sharding_lines("FSDP2 with CPU offload"), "offload.parameters", "100 %"),
    (sharding_lines("ZeRO-3 without offload"), "offload.optimizer", None),
    (sharding_lines("FSDP, activation offload"), "offload.parameters", None),
    # --- stages in Megatron's letters
    (
        {**stage_values(2, 2, 13), "extra": {"pp_layout": "Et*3|(t*4|)*2ttL"}},
        "schedule.stages",
        "[3, 4, 4, 2]",
    ),
    (
        {**stage_values(2, 2, 13), "extra": {"pp_layout": "Et*3|(t*4|)*2ttL"}},
        "schedule.assignment",
        None,
    ),
]  # fmt: skip


@try_each("changes, name, value", LINES)
def test_a_line_of_a_study(
    changes: dict[str, Any], name: str, value: str | None, row: Make
) -> None:
    assert lines(write(row(**changes)).text).get(name) == value


def test_blocks_and_kinds_of_attention(row: Make) -> None:
    text = write(row()).text
    assert "\nmodel run {\n" in text
    assert "\ncluster {\n" in text
    for kind in ("mamba", "MLA"):  # and latent attention whose rank is not stated
        with pytest.raises(UnmodelledError, match=kind):
            write(row(model__attn_type=kind))
    assert write(row(model__attn_type="GQA")).text == text


@try_each(
    "schedule, kind",
    [
        ("ZB-1p", "zb_h1"),
        ("ZB-2p", "zb_h2"),
        ("zero bubble (ZB-H2)", "zb_h2"),
        ("zero bubble", "zb_h1"),
        ("ZBV", "zb_v"),
        ("DualPipe", "dualpipe"),
        ("DualPipeV", "dualpipe_v"),
        ("1F1B", None),
    ],
)
def test_a_schedule_by_the_name_that_papers_give_it(
    schedule: str, kind: str | None, row: Make
) -> None:
    stages = stage_values(4, 1, 8)
    assert lines(write(row(schedule=schedule, **stages)).text).get("schedule.kind") == kind


def test_a_schedule_that_is_not_known_is_not_taken_for_1f1b(row: Make) -> None:
    with pytest.raises(UnmodelledError, match="the schedule `wavefront` is unknown"):
        write(row(schedule="wavefront", **stage_values(4, 1, 8)))


def test_an_unknown_schedule_of_one_stage_is_reported(row: Make) -> None:
    """It was ignored without a word: one stage has no schedule."""
    stages = {"parallel__tp": 8, "parallel__pp": 1, "parallel__dp": 2, "batch__grad_accum": 4}
    made = [row(schedule=name, **stages) for name in ("wavefront", "none (data parallel)", "ZB-V")]
    assert count_unread(made) == {"schedule: wavefront": 1}
    assert "schedule.kind" not in lines(write(made[0]).text)


def adapter_lines(made: RunRow) -> dict[str, str]:
    found = lines(write(made).text)
    return {name.partition(".")[2]: v for name, v in found.items() if name.startswith("adapters.")}


ALL = ("query", "key", "value", "output", "gate", "up", "down")


def test_a_row_of_adapters_without_known_targets_is_not_full_training(row: Make) -> None:
    with pytest.raises(UnmodelledError, match="without targets, and the default of Megatron-LM"):
        write(row(notes="LoRA, rank 16"))
    with pytest.raises(UnmodelledError, match=r"`tuning\.rank` and `tuning\.targets`"):
        write(row(tuning={"kind": "lora"}))


@pytest.mark.parametrize(
    ("changes", "targets"),
    [
        ({"notes": "LoRA, rank 16, on q_proj and v_proj"}, {"query", "value"}),
        ({"notes": "LoRA r=16 of all-linear"}, set(ALL)),
        ({"extra": {"task": "llama2_70b_lora"}, "notes": "rank 16: linear_proj"}, {"output"}),
        ({"tuning": {"kind": "lora", "rank": 16, "targets": "attention"}}, set(ALL[:4])),
        ({"tuning": {"kind": "LoRA", "rank": 16, "targets": ["wq", "mlp"]}}, {"query", *ALL[4:]}),
    ],
)
def test_the_rank_and_the_targets_of_a_row(
    changes: dict[str, Any], targets: set[str], row: Make
) -> None:
    found = adapter_lines(row(**changes))
    assert found["rank"] == "16"
    assert {name for name in ALL if found[name] == "on"} == targets
    assert found["split"] == "one"  # tp 8, and no class of Megatron-Bridge


def test_what_a_tool_has_by_default_is_assumed_with_its_version(row: Make) -> None:
    """Megatron-Bridge 0.6, peft/lora.py: dim 32, and all four fused projections."""
    written = write(row(notes="LoRA", extra={"framework": "Megatron-Bridge"}))
    found = lines(written.text)
    assert (found["adapters.rank"], found["adapters.fused"]) == ("32", "on")
    assert found["adapters.split"] == "both"
    assert any(
        "rank, targets, dropout of the adapters: Megatron-Bridge 0.6" in one
        for one in written.assumptions
    )
    assert any("frozen weights have the type of the model" in one for one in written.assumptions)


def test_a_quantized_base_is_imported_and_another_one_is_an_error(row: Make) -> None:
    changes = {
        "parallel__tp": 1,
        "parallel__dp": 8,
        "batch__grad_accum": 1,
        "precision_class": "bf16",
    }
    text = write(row(notes="QLoRA, rank 64, all linear", **changes)).text
    assert "use catalog.quantizations.nf4\n" in text
    assert lines(text)["adapters.base"] == "nf4"
    tuning = {"kind": "lora", "rank": 8, "targets": "q, v", "base": "int8"}
    with pytest.raises(UnmodelledError, match=r"`tuning\.base` is `int8`"):
        write(row(tuning=tuning, **changes))
    with pytest.raises(UnmodelledError, match="`fp8`, but the row computes in bf16"):
        write(row(tuning={**tuning, "base": "fp8"}, **changes))


@pytest.mark.parametrize(
    ("tuning", "match"),
    [
        ({"kind": "dora", "rank": 8, "targets": "q"}, "adapters of the kind `dora`"),
        ({"kind": "lora", "rank": 8, "targets": "q, router"}, "no module is known as `router`"),
    ],
)
def test_adapters_that_are_not_modeled_are_an_error(
    tuning: dict[str, Any], match: str, row: Make
) -> None:
    with pytest.raises(UnmodelledError, match=match):
        write(row(tuning=tuning))


@pytest.mark.parametrize(
    "changes",
    [
        {"notes": "Full SFT, not LoRA"},
        {"notes": "kv_lora_rank 512"},
        {"notes": "as fast as LoRA", "tuning": {"kind": "full"}},
    ],
)
def test_a_row_without_adapters_trains_all_weights(changes: dict[str, Any], row: Make) -> None:
    made = row(**changes)
    assert not made.has_adapters
    assert adapter_lines(made) == {}


def test_settings_of_a_benchmark_hold_unless_the_row_states_them(row: Make) -> None:
    """MLPerf's Llama 2 70B has fp8 attention and an all-to-all over context-parallel ranks."""
    changes = {
        "source": "MLPerf Training v5.1",
        "model__name": "Llama-2-70B",
        "notes": "LoRA",
        "precision": "fp8",
        "precision_class": "fp8",
        "parallel__tp": 4,
        "parallel__cp": 2,
        "extra": {"framework": "nemo"},
    }
    written = write(row(**changes))
    found = lines(written.text)
    assert (found["context.algorithm"], found["adapters.narrow"]) == ("ulysses", "on")
    assert "narrow_attention = on" in written.text
    assert any("fp8_dpa, cp_comm_type as in MLPerf" in one for one in written.assumptions)
    changes["extra"] = {"framework": "nemo", "fp8_dpa": False, "cp_comm_type": "p2p"}
    text = write(row(**changes)).text
    assert lines(text)["context.algorithm"] == "ring"
    assert "narrow_attention" not in text


def test_a_type_of_context_exchange_that_is_not_known_is_an_error(row: Make) -> None:
    with pytest.raises(UnmodelledError, match=r"`extra\.cp_comm_type` is `ring2`"):
        write(row(parallel__tp=4, parallel__cp=2, extra={"cp_comm_type": "ring2"}))


@pytest.mark.parametrize(
    ("notes", "dispatcher"),
    [("DeepEP dispatch", "deepep"), ("HybridEP", "hybridep"), ("without DeepEP", None)],
)
def test_the_dispatcher_that_notes_name(notes: str, dispatcher: str | None, row: Make) -> None:
    changes = {
        "source": "NVIDIA-NeMo/Megatron-Bridge performance summary",
        "model__experts": 64,
        "model__topk": 4,
        "model__expert_ffn": 1024,
        "parallel__ep": 8,
    }
    found = lines(write(row(notes=notes, **changes)).text).get("routing.dispatcher")
    assert found == dispatcher


NONE = {"hardware__internode_gbps": None}


@try_each(
    "changes, expected",
    [
        (
            {},
            [
                "  level node { size = 8 devices }",
                "  level network { bandwidth = 200 Gbps per_direction }",
            ],
        ),
        (
            {"hardware__internode": "EFA, 4 x 100", "hardware__internode_gbps": 400},
            [
                "  level node { size = 8 devices }",
                "  level network { bandwidth = 100 Gbps per_direction, ports = 4, kind = ethernet }",
            ],
        ),
        # A word between the number of ports and their rate; two ports of a device are one.
        (
            {"hardware__internode": "4x ConnectX-6 200 Gb/s", "hardware__internode_gbps": 800},
            [
                "  level node { size = 8 devices }",
                "  level network { bandwidth = 200 Gbps per_direction, ports = 4 }",
            ],
        ),
        (
            {"hardware__internode": "16x 100 Gb/s ports", "hardware__internode_gbps": 1600},
            [
                "  level node { size = 8 devices }",
                "  level network { bandwidth = 200 Gbps per_direction }",
            ],
        ),
        # 8 x 200 is not what the node has: as many ports as devices.
        (
            {"hardware__internode_gbps": 800},
            [
                "  level node { size = 8 devices }",
                "  level network { bandwidth = 100 Gbps per_direction }",
            ],
        ),
        # nor is 4 x 200
        (
            {"hardware__internode": "4 x 200"},
            [
                "  level node { size = 8 devices }",
                "  level network { bandwidth = 200 Gbps per_direction }",
            ],
        ),
        (NONE, ["  level node { size = 8 devices }"]),
        ({**NONE, "hardware__gpus_per_node": None}, []),
        ({**NONE, "hardware__intranode": "NVLink domain 4"}, ["  level node { size = 4 devices }"]),
    ],
)
def test_a_fabric_of_the_rows_own(changes: dict[str, Any], expected: list[str], row: Make) -> None:
    text = write(row(**changes)).text
    found = []
    for level in text.split("\n  level ")[1:]:
        head, *inner = level.partition("\n  }")[0].splitlines()
        values = ", ".join(" ".join(line.split()) for line in inner)
        found.append(f"  level {head} {values} }}")
    assert found == expected
    assert ("fabric site extends dgx_a100 {\n" in text) == bool(expected)
    fabric = lines(text)["cluster.fabric"]
    assert fabric == ("site" if expected else "dgx_a100")


@try_each(
    "size, links, gpu, fabric",
    [
        (4, "NVLink 4", "GH200 96GB", "gh200_quad"),
        (1, None, "GH200", "gh200_quad"),
        (None, None, "GH200", "gh200_nvl32"),
        (8, "NVLink 4", "GH200", "gh200_nvl32"),
        (1, "NVLink switches", "GH200", "gh200_nvl32"),
        (4, "NVLink 4", "GH200 NVL32", "gh200_nvl32"),
    ],
)
def test_superchips_in_nodes_of_four_have_no_switches(
    size: int | None, links: str | None, gpu: str, fabric: str, row: Make
) -> None:
    values = {"gpu": gpu, "gpus": 16, "gpus_per_node": size, "intranode": links}
    written = write(row(**{f"hardware__{name}": value for name, value in values.items()}))
    assert f"use catalog.fabrics.{fabric}\n" in written.text


@try_each("gpus, nodes, assumed", [(8, 8, False), (9, 8, True), (16, 8, True), (16, None, True)])
def test_a_network_is_assumed_between_nodes_alone(
    gpus: int, nodes: int | None, assumed: bool, row: Make
) -> None:
    written = write(row(**NONE, hardware__gpus=gpus, hardware__gpus_per_node=nodes))
    text = "the network of dgx_a100 is assumed: the row does not state it"
    assert (text in written.assumptions) is assumed


def test_how_much_of_an_nvlink_domain_a_job_takes(row: Make) -> None:
    """A rack of 72: whole where the job fits or divides into it, else 64 where that divides."""
    for gpus, size in ((64, 72), (72, 72), (128, 64), (144, 72), (100, 72), (576, 72), (512, 64)):
        one = row(hardware__gpus=gpus, hardware__intranode="NVLink domain 72 GPUs")
        assert domain_of(one.hardware) == size, gpus
    assert domain_of(row().hardware) is None


@try_each(
    "framework, size",
    [("NeMo 25.02.01+", 4), ("NeMo 25.04", 4), ("NeMo 25.07", 64), ("Megatron-LM", 64)],
)
def test_containers_of_nemo_up_to_25_04_have_no_nvlink_between_trays(
    framework: str, size: int, row: Make
) -> None:
    rack = {"gpu": "GB200", "gpus": 128, "gpus_per_node": 4, "intranode": "NVLink domain 72 GPUs"}
    values = {f"hardware__{name}": value for name, value in rack.items()}
    written = write(row(**values, extra={"framework": framework}))
    assert f"level domain {{\n    size = {size} devices" in written.text
    assert any("does not use NVLink between nodes" in one for one in written.assumptions) is (
        size == 4
    )


def test_what_was_assumed_by_its_words(row: Make) -> None:
    written = write(row(extra={"assumed": ["two", "one"], "cpu_offloading_num_layers": 6}))
    assert written.assumptions[:2] == ["two", "one"]
    assert "activations of 6 layers are kept on the host" in written.assumptions
    assert write(row(extra={"assumed": "one"})).assumptions[0] == "one"
    filled = write(row(**stage_values(5, 1, 22))).assumptions
    assert "22 layers are not divisible: the first stages are full" in filled
    assert "# Assumed: one." in write(row(extra={"assumed": "one"})).text


def test_layers_that_are_recomputed_by_what_a_row_says(row: Make) -> None:
    for detail, recompute, expected in (
        ("full recompute of 6 layers", "full", {"layers": "6"}),
        ("every 2nd layer", "full", {"every": "2"}),
        ("moe_act, core_attn", "selective", {"activation": "on"}),
    ):
        found = lines(write(row(recompute=recompute, extra={"recompute_detail": detail})).text)
        kind = "selective" if "core" in detail else "full"
        assert found["training.recompute"] == kind
        assert {
            k.removeprefix("recompute."): v for k, v in found.items() if k.startswith("recompute.")
        } == expected


def test_recomputation_that_a_row_says_by_device(row: Make) -> None:
    extra = {"recompute_detail": "mlp (H100) / core_attn (GB200), per the README"}
    for gpu, kind, mlp in (("H100-80GB-SXM", "none", True), ("GB200", "selective", False)):
        found = lines(write(row(recompute="selective", hardware__gpu=gpu, extra=extra)).text)
        assert found["training.recompute"] == kind
        assert ("recompute.mlp" in found) is mlp


DELAYED = "fp8 with delayed scaling: the row does not name the recipe"
TUNED = "gradients in bf16, as in NeMo's tuned recipes"
COMPOSER = {"source": "mosaicml/llm-foundry", "year": 2026}
DEEPSPEED = {"source": "DeepSpeed", "year": 2026}


@try_each(
    "class_, said, more, recipe",
    [
        ("bf16", "bf16", {}, Recipe("bf16")),
        ("bf16", "pure bf16", {}, Recipe("bf16_pure")),
        ("bf16", "pure bf16", TITAN, Recipe("bf16_pure")),
        ("fp16", "pure fp16", {}, Recipe("fp16")),
        ("fp8", "fp8", {}, Recipe("fp8_delayed", assumed=DELAYED)),
        ("fp8", "fp8 delayed", {}, Recipe("fp8_delayed")),
        ("fp8", "fp8 blockwise", {}, Recipe("fp8_blockwise")),
        ("fp8", "fp8 rowwise", {}, Recipe("fp8_current")),
        (
            "mxfp4",
            "mxfp4",
            {},
            Recipe("nvfp4", assumed="mxfp4 is modeled as nvfp4: the catalogue has no mxfp4 recipe"),
        ),
        ("nvfp4", "nvfp4", {}, Recipe("nvfp4")),
        ("nvfp4", "nvfp4, fp8 attention", {}, Recipe("nvfp4", attention=True)),
        ("mxfp8", "mxfp8", {"extra": {"fp8_dpa": True}}, Recipe("mxfp8", attention=True)),
        ("bf16", "bf16", TITAN, Recipe("bf16_fsdp")),
        ("fp8", "fp8", TITAN, Recipe("fp8_torchao", assumed=DELAYED)),
        ("fp8", "fp8 rowwise", TITAN, Recipe("fp8_torchao_rows")),
        ("mxfp8", "mxfp8", TITAN, Recipe("mxfp8", "bf16_fsdp")),
        ("nvfp4", "nvfp4", TITAN, Recipe("nvfp4", "bf16_fsdp")),
        ("fp8", "torchao delayed", COMPOSER, Recipe("fp8_torchao")),
        ("fp8", "fp8 delayed", COMPOSER, Recipe("fp8_delayed", "bf16_fsdp")),
        ("fp32", "fp32", COMPOSER, Recipe("fp32")),
        ("tf32", "tf32", TITAN, Recipe("tf32")),
        ("bf16", "bf16", DEEPSPEED, Recipe("bf16_deepspeed")),
        ("fp16", "fp16", DEEPSPEED, Recipe("fp16")),
        ("bf16", "bf16", BRIDGE, Recipe("bf16_nemo", "", TUNED)),
        ("fp8", "fp8", BRIDGE, Recipe("fp8_delayed_nemo", "", DELAYED)),
        ("nvfp4", "nvfp4", BRIDGE, Recipe("nvfp4", "bf16_nemo", TUNED)),
        ("fp16", "fp16", BRIDGE, Recipe("fp16")),
    ],
)
def test_the_recipe_of_a_row(
    class_: str, said: str, more: dict[str, Any], recipe: Recipe, row: Make
) -> None:
    one = row(precision=said, precision_class=class_, **more)
    assert recipe_of(one, profile_of(one)) == recipe


def test_the_sharded_state_of_a_row_names_its_framework_first(row: Make) -> None:
    said = {"source": "Megatron-LM", "year": 2026}
    one = row(**said, parallel__zero_stage_or_fsdp="DeepSpeed ZeRO-1")
    assert profile_of(one).framework == "megatron_deepspeed"
    assert profile_of(row(**said)).framework == "megatron_core"
    assert profile_of(row(**{**BRIDGE, "year": 2024})).title == "NeMo of 2024"


@try_each(
    "name, framework",
    [
        ("HF Trainer", "transformers"),
        ("transformers 4.51", "transformers"),
        ("LLaMA-Factory", "transformers"),
        ("NeMo Automodel 26.04", "pytorch_fsdp_flash"),
        ("OLMo-core", "pytorch_fsdp_flash"),
        ("nanotron", "nanotron"),
        ("Levanter", "maxtext"),
    ],
)
def test_a_row_has_the_framework_that_an_importer_of_its_tool_writes(
    name: str, framework: str, row: Make
) -> None:
    named = row(source="A paper", year=2026, extra={"framework": name})
    assert profile_of(named).framework == framework


def test_the_release_from_which_a_framework_is_another(row: Make) -> None:
    """From 26.06 on, of experts in mxfp8 on Blackwell."""
    whole = {**BRIDGE, **EXPERTS, "precision_class": "mxfp8", "hardware__gpu": "GB200"}
    for release, changes, framework in (
        ("26.06", {}, "nemo_2026_06"),
        ("26.05", {}, "nemo"),
        ("27.01", {}, "nemo_2026_06"),
        ("25.12", {}, "nemo"),
        ("", {}, "nemo"),
        ("26.06", {"hardware__gpu": "H100"}, "nemo"),
        ("26.06", {"precision_class": "bf16"}, "nemo"),
        ("26.06", {"model__experts": None}, "nemo"),
        ("26.06", {"source": "Megatron-LM"}, "megatron_core"),
        ("26.06", {"year": 2024}, "nemo_2024"),
        ("26.05", {"year": 2025}, "nemo"),
        ("26.05", {"year": None}, "nemo"),
    ):
        one = row(**{**whole, "extra": {"release": release}, **changes})
        assert profile_of(one).framework == framework, (release, changes)
    for round_, framework in (("v6.0", "nemo_2026_06"), ("v5.1", "nemo"), ("6.1", "nemo_2026_06")):
        one = row(**{**whole, "extra": {"mlperf_round": round_}})
        assert profile_of(one).framework == framework, round_
    for said, framework in (("NeMo 24.09", "nemo_2024_09"), ("NeMo 24.05", "nemo_2024")):
        one = row(**{**BRIDGE, "year": 2024, "extra": {"framework": said}})
        assert profile_of(one).framework == framework, said
    # DGX Cloud's recipe of GPT-3 runs the scripts of NeMo 1 in a container of 2025.
    recent = {**BRIDGE, "year": 2025, "extra": {"framework": "NeMo 25.02"}}
    for place, framework in (
        ("nemo_megatron/README_175b.md", "nemo_2024_09"),
        ("llama3.1/README.md", "nemo"),
    ):
        assert profile_of(row(**recent, source_locator=place)).framework == framework, place


def test_a_layout_that_contradicts_the_row_cannot_be_modelled(row: Make) -> None:
    for said, reason in (("Et|tx|L", "`x` is not a layer"), ("Ett|ttL", "4 layers on 2 stages")):
        with pytest.raises(UnmodelledError, match=reason):
            write(row(**stage_values(2, 1, 8), extra={"pp_layout": said}))


def test_fields_that_change_nothing_are_counted(row: Make) -> None:
    rows = [
        row(extra={"delay_wgrad": True, "submitter": "A", "release": "26.04"}),
        row(extra={"delay_wgrad": False, "colour": "red"}),
    ]
    assert count_unread(rows) == {"extra.colour": 1, "extra.delay_wgrad": 1}


def test_a_loss_that_the_source_gives_is_read(row: Make) -> None:
    """BigScience, 25 February 2022: all TFLOPs are better by 1 to 5 % after a fix."""
    lost = row(extra={"nic_era": "before PCIe/NUMA fix (1-5% slower)"})
    assert lost.slowdown == (0.01, 0.05)
    assert "the run was 1 % to 5 % slower than this study" in write(lost).text
    for said in ({}, {"nic_era": "after PCIe/NUMA fix"}):
        assert row(extra=said).slowdown == (0.0, 0.0)
        assert "slower" not in write(row(extra=said)).text
    with pytest.raises(UnmodelledError, match="write `1-5% slower`"):
        write(row(extra={"nic_era": "slower"}))
