"""What a framework keeps for backward and beside its state, tensor by tensor."""

from __future__ import annotations

from typing import Any

import pytest

import parcost
from parcost import Study
from parcost.contract.terms import MOMENTS
from parcost.engine.reduce import evaluate
from parcost.engine.rules import diagnose

from ..evaluation import details_of
from ..rows import try_each

SPEC = """
use catalog.devices.{device}
use catalog.models.llama3_8b
use catalog.precisions.{precision}
fabric f {{ level net {{ bandwidth = 100 GB/s per_direction, latency = 1 us }} }}
cluster {{ devices = {devices} }}
layout {{ {layout} }}
training {{ sequence = 8192, micro_batch = 1, global_batch = 64 sequences, {training} }}
{extra}
"""
TOKENS, HIDDEN, LAYERS, FFN, KV, VOCABULARY = 8192, 4096, 32, 14_336, 1024, 128_256
LOGITS = TOKENS * VOCABULARY
#: Parameters of the matrices of a layer.
MATRICES = HIDDEN * (2 * HIDDEN + 2 * KV) + 3 * HIDDEN * FFN


def study_of(
    training: str = "",
    extra: str = "",
    *,
    precision: str = "bf16",
    layout: str = "zero = 1",
    device: str = "h100_sxm",
    devices: int = 8,
) -> Study:
    text = SPEC.format(
        device=device,
        precision=precision,
        layout=layout,
        training=training,
        extra=extra,
        devices=devices,
    )
    (study,) = parcost.load_text(text)[0].studies()
    return study


def terms(study: Study) -> dict[str, float]:
    """Bytes of each term of memory, times how often it occurs on all virtual stages."""
    found = {}
    for _, term in study.contributions("memory"):
        counts = [term.count] if isinstance(term.count, (float, int)) else term.count
        found[term.name] = term.bytes_ * sum(counts)
    return found


def lines(study: Study) -> dict[str, Any]:
    return {line.name: line.bytes_ for line in evaluate(study).memory_lines}


# --- The loss ------------------------------------------------------------------------------------


@try_each(
    "loss, waiting, most",
    [
        # log-softmax and two gradients of its size; forward has logits, an fp32 copy and log-softmax
        ("eager", 4, max(3 * 4, 2 + 4 + 4)),
        ("softmax", 4, 4 + 2),
        ("logits", 2, 2 + 2),
        ("gradient", 2, 2),
    ],
)
def test_a_loss_holds_so_many_bytes_of_a_logit(loss: str, waiting: int, most: int) -> None:
    study = study_of(f"loss = {loss}")
    held = {"forward": 0.0, "loss": 0.0}
    for _, term in study.contributions("memory"):
        if "loss" in term.name or "logits" in term.name:
            for moment in term.moments:
                held[moment] += term.bytes_
    assert held == {"forward": waiting * LOGITS, "loss": most * LOGITS}


@pytest.mark.parametrize(
    ("framework", "forward", "rest"),
    [
        ("", 4, 0),  # the softmax, in place of the logits in fp32
        ("softmax_in_place = off", 4 + 4 + 2, 0),
        # an engine keeps the logits of two micro-batches in fp32, its own among them
        ("softmax_in_place = off, kept_logits = 2", 4 + 2 * 4, 2 * 4),
    ],
)
def test_logits_in_fp32_beside_their_softmax(framework: str, forward: int, rest: int) -> None:
    study = study_of("loss = softmax", f"framework own {{ {framework} }}")
    held = dict.fromkeys(MOMENTS, 0.0)
    for _, term in study.contributions("memory"):
        if "loss" in term.name or "logits" in term.name:
            for moment in term.moments:
                held[moment] += term.bytes_
    assert held["forward"] == forward * LOGITS
    assert held["loss"] == (4 + 2 + rest) * LOGITS  # the gradient is as wide as activations
    assert held["backward"] == held["optimizer"] == rest * LOGITS


def test_no_engine_of_pipelines_keeps_logits_where_gradients_are_sharded() -> None:
    for zero, kept in ((1, True), (2, False)):
        held = terms(study_of(extra="framework own { kept_logits = 2 }", layout=f"zero = {zero}"))
        assert ("logits kept by the pipeline engine" in held) is kept


def test_the_framework_decides_of_the_loss_where_a_run_does_not() -> None:
    eager = terms(study_of(extra="framework own { loss = eager }"))
    assert eager["gradients of the loss in fp32"] == (3 * 4 - 4 - 2) * LOGITS
    other = terms(study_of("loss = softmax", "framework own { loss = eager }"))
    assert "gradients of the loss in fp32" not in other


# --- Narrow types --------------------------------------------------------------------------------


@try_each(
    "device, precision, copies",
    [
        ("h100_sxm", "fp8_delayed", 2),  # the weight, and its transpose
        ("b200", "fp8_delayed", 1),  # products take any layout
        ("h100_sxm", "fp8_param_gather", 1),  # the parameter itself is narrow
        ("b200", "fp8_param_gather", 0),
        ("b200", "mxfp8", 2.0625),
        ("b200", "mxfp8_nemo", 0),
    ],
)
def test_narrow_copies_of_the_weights(device: str, precision: str, copies: float) -> None:
    found = terms(study_of(precision=precision, device=device))
    assert found.get("narrow weights", 0.0) == copies * LAYERS * MATRICES


@pytest.mark.parametrize(("precision", "bytes_"), [("bf16", 2), ("fp8_delayed", 2 + 1)])
def test_the_core_keeps_its_own_output_beside_a_narrow_one(precision: str, bytes_: int) -> None:
    found = terms(study_of(precision=precision))
    kept = sum(size for name, size in found.items() if name.startswith("attention output"))
    assert kept == bytes_ * TOKENS * HIDDEN * LAYERS


def test_deepspeeds_bf16_keeps_gradients_of_a_micro_batch() -> None:
    plain, kept = study_of(), study_of(precision="bf16_deepspeed")
    assert terms(kept)["gradients of a micro-batch"] == pytest.approx(terms(plain)["gradients"] / 2)


# --- Gradients on their way ----------------------------------------------------------------------


@pytest.mark.parametrize(("elements", "expected"), [(0, 0.0), (500_000_000, 2e9)])
def test_gradients_are_staged_in_a_buffer_of_a_size(elements: int, expected: float) -> None:
    found = terms(study_of(extra=f"framework own {{ gradient_staging = {elements} }}"))
    assert found.get("gradient staging", 0.0) == expected


#: Parameters of the model; of its largest tensor, the head with the last norm; elements of a bucket.
PARAMETERS = LAYERS * (MATRICES + 2 * HIDDEN) + 2 * HIDDEN * VOCABULARY + HIDDEN
HEAD, BUCKET = HIDDEN * VOCABULARY + HIDDEN, 500_000_000


def deepspeed_terms(
    zero: int, devices: int = 8, extra: str = "", name: str = "deepspeed", batch: int = 64
) -> dict[str, float]:
    use = f"use catalog.frameworks.{name}\n{extra}"
    chosen = f"framework = {name}, global_batch = {batch} sequences"
    text = SPEC.replace("global_batch = 64 sequences, ", "").format(
        device="h100_sxm",
        precision="bf16_zero",
        layout=f"zero = {zero}",
        training=chosen,
        extra=use,
        devices=devices,
    )
    (study,) = parcost.load_text(text)[0].studies()
    return terms(study)


@try_each(
    "zero, devices, batch, copied",
    [
        # On one rank and on eight neither a bucket of 1 GB nor, whole, the norm's copy of the head
        # (4.2 GB in float64) has room for a joined shard of 2 B beside its copy in fp32.
        (1, 1, 64, 2 + 4),
        (1, 8, 64, 4),  # 2 GB fit that copy, 4 GB no longer beside them
        (1, 64, 64, 0),  # 250 MB fit the bucket, and 500 MB the copy
        # From the second micro-batch on a shard that was added up is free.
        (2, 8, 8, 4),
        (2, 8, 64, 0),
        (2, 1, 64, 4),
    ],
)
def test_deepspeed_joins_and_casts_a_shard_of_gradients_for_the_update(
    zero: int, devices: int, batch: int, copied: int
) -> None:
    found = deepspeed_terms(zero, devices, batch=batch)["gradients of the update"]
    assert found == pytest.approx(copied * PARAMETERS / devices)


def test_zero_3_of_deepspeed_updates_in_groups() -> None:
    for devices, extra, group in (
        (1, "", 1e9),
        (64, "", PARAMETERS / 64),
        (8, "framework deepspeed { update_group = 100_000_000 }", 1e8),
    ):
        found = deepspeed_terms(3, devices, extra)
        assert found["gradients of the update"] == pytest.approx((2 + 4) * group)
        assert found["copy of a gradient for its norm"] == pytest.approx(8 * HEAD / devices)


@pytest.mark.parametrize("devices", [1, 8, 64])
def test_deepspeed_has_a_bucket_on_any_number_of_ranks(devices: int) -> None:
    first, second, third = (deepspeed_terms(zero, devices) for zero in (1, 2, 3))
    shard = PARAMETERS / devices
    for found in (first, second, third):
        assert found["gradient staging"] == 2 * BUCKET
    assert first["copy of a shard of gradients"] == pytest.approx(2 * shard)
    assert second["copy of a shard of gradients"] == pytest.approx(2 * shard if devices < 64 else 0)
    assert first["copy of a gradient for its norm"] == pytest.approx(8 * min(HEAD, shard))
    # Backward of ZeRO 3 joins the bucket shard by shard, and one gradient is whole: the head's.
    assert third["joined gradients"] == 2 * BUCKET
    if devices > 1:
        assert third["unsharded gradients"] == 2 * HEAD
        assert third["unsharded gradients of the ends"] == 0


@try_each(
    "zero, batch, more, gradients, copies",
    [
        # whole gradients, freed by the end of the reductions; the shard is copied behind backward
        (1, 64, "", "forward backward loss end_of_backward", "end_of_backward optimizer"),
        (1, 8, "", "end_of_backward", "end_of_backward optimizer"),
        (
            1,
            64,
            "overlap { gradients = on }",
            "forward backward loss end_of_backward",
            "backward end_of_backward optimizer",
        ),
        (
            2,
            64,
            "",
            "forward backward loss end_of_backward optimizer gather",
            "backward end_of_backward optimizer",
        ),
    ],
)
def test_deepspeed_frees_gradients_ahead_of_the_update(
    zero: int, batch: int, more: str, gradients: str, copies: str
) -> None:
    use = f"use catalog.frameworks.deepspeed\n{more}"
    study = study_of(
        "framework = deepspeed", use, precision="bf16_zero", layout=f"zero = {zero}"
    ).replace({"training.global_batch": batch})
    moments = {term.name: " ".join(term.moments) for _, term in study.contributions("memory")}
    assert moments["gradients"] == gradients
    assert moments["copy of a shard of gradients"] == copies


def test_deepspeed_has_two_buckets_where_reductions_overlap() -> None:
    extra = "overlap { gradients = on, bucket = 400 MB }"
    assert deepspeed_terms(2, extra=extra)["gradient staging"] == 2 * 400e6
    assert deepspeed_terms(3, extra=extra)["gradient staging"] == 400e6


def test_deepspeed_of_2023_joins_the_gradients_that_it_reduces() -> None:
    """Stage 1 had no bucket that is allocated whole: as many gradients as there are are joined."""
    found = deepspeed_terms(1, name="megatron_deepspeed_2023")
    assert found["gradient staging"] == 2 * BUCKET
    assert "copy of a shard of gradients" not in found
    assert found["gradients of the update"] == pytest.approx(4 * PARAMETERS / 8)
    assert deepspeed_terms(1, 1, name="megatron_deepspeed_2023")["gradient staging"] == 0


def test_gradients_in_fp32_are_not_copied_for_the_update() -> None:
    found = terms(study_of("framework = deepspeed", "use catalog.frameworks.deepspeed"))
    assert found["gradients of the update"] == 0


def test_the_share_of_an_update_on_the_host_is_copied_there() -> None:
    use = "use catalog.frameworks.deepspeed"
    here, there = (
        terms(study_of("framework = deepspeed", use + more, precision="fp16"))
        for more in ("", "\noffload { optimizer = 75 % }")
    )
    name = "gradients of the update"
    assert there[name] == here[name] / 4


@pytest.mark.parametrize(("tp", "each"), [(1, 12), (2, 16 / 2)])
def test_an_eager_loss_on_a_share_of_the_vocabulary_has_an_exponential_more(
    tp: int, each: float
) -> None:
    """The backward pass of PyTorch's parallel loss: log-softmax, gradient, exponential and sum."""
    study = study_of("loss = eager", layout=f"tp = {tp}")
    held = [t for _, t in study.contributions("memory") if "loss" in t.name or "logits" in t.name]
    assert sum(t.bytes_ for t in held if "loss" in t.moments) == each * LOGITS
    # Logits of 2 B, and their copy in 4 B, are freed. The first gradient of 4 B takes the 6 B that
    # they leave, the second needs a new block, and 2 B are left over.
    assert sum(t.bytes_ for t in held if "loss" in t.cached) == 2 / tp * LOGITS


def test_no_block_of_logits_is_left_over_where_they_are_in_fp32_or_in_chunks() -> None:
    name = "block of the freed logits"
    assert terms(study_of("loss = eager", precision="fp32"))[name] == 0
    assert name not in terms(study_of("loss = eager, loss_chunks = 2"))
    assert name not in terms(study_of("loss = logits"))


def test_a_compiler_reduces_matrix_by_matrix() -> None:
    layout = "zero = 3"
    layer = terms(study_of(precision="bf16_fsdp", layout=layout))
    matrix = terms(
        study_of(
            precision="bf16_fsdp",
            layout=layout,
            extra="framework own { reduces_by_matrix = on }",
        )
    )
    # The head is larger than a layer, and than any matrix: its copy leaves beside a layer.
    head = HIDDEN * VOCABULARY + HIDDEN
    assert layer["unsharded gradients"] == 4 * head + 2 * (MATRICES + 2 * HIDDEN)
    assert matrix["unsharded gradients"] == 4 * head


def test_gathered_inputs_are_kept_whole_where_they_are_not_gathered_again() -> None:
    layout = "tp = 4, sequence_parallel = on"
    share = terms(study_of(layout=layout))
    whole = terms(study_of(layout=layout, extra="framework own { keeps_gathers = on }"))
    for name in ("attention input", "MLP input"):
        assert share[name] == 2 * TOKENS * HIDDEN * LAYERS / 4
        assert whole[name] == 2 * TOKENS * HIDDEN * LAYERS
    assert whole["MLP norm input"] == share["MLP norm input"]


@pytest.mark.parametrize(
    ("mode", "framework", "kept"),
    [
        ("eager", "remakes_elementwise = on", True),
        ("compiled", "remakes_elementwise = on", False),
        ("compiled", "", True),
    ],
)
def test_a_compiled_layer_keeps_no_outputs_of_norms_and_activations(
    mode: str, framework: str, kept: bool
) -> None:
    found = terms(study_of(extra=f"kernels {{ mode = {mode} }}\nframework own {{ {framework} }}"))
    for name in ("attention input", "MLP input", "MLP activation"):
        assert (name in found) == kept
        assert (f"{name}, recomputed" in found) != kept
    assert found["MLP gate and up"] == 2 * 2 * TOKENS * FFN * LAYERS


@pytest.mark.parametrize(
    ("mode", "training", "width"),
    [("eager", "", HIDDEN), ("compiled", "", 0), ("compiled", "dropout = on", HIDDEN)],
)
def test_a_compiled_layer_keeps_the_output_of_its_mlp_only_if_backward_reads_it(
    mode: str, training: str, width: int
) -> None:
    """The residual addition needs none of its inputs in backward; a mask of dropout is applied."""
    study = study_of(
        f"recompute = full, {training}",
        f"""kernels {{ mode = {mode} }}
        framework own {{ remakes_elementwise = on, stops_early = on }}
        recompute {{ alternate = on }}""",
    )
    assert terms(study).get("MLP output", 0.0) == 2 * TOKENS * width * LAYERS
    assert terms(study)["MLP gate"] == 2 * TOKENS * FFN * LAYERS
    assert not [o for o in study.operators if o.pass_ == "R" and o.name == "MLP down projection"]


# --- Recomputation of named operators ------------------------------------------------------------

INPUT = 2 * TOKENS * HIDDEN * LAYERS


def kept_bytes(study: Study) -> float:
    """Bytes of the layers that wait for backward."""
    return sum(
        term.bytes_ * sum(term.count)
        for _, term in study.contributions("memory")
        if term.per_micro_batch and term.tag != "ends" and not isinstance(term.count, float)
    )


@try_each(
    "keep, width",
    [
        ("", 0),
        ("keep_qkv = on", HIDDEN + 2 * KV),
        ("keep_core = on", HIDDEN),
        ("keep_output = on", HIDDEN),
        ("keep_up = on", 2 * FFN),
        ("keep_down = on", HIDDEN),
        ("keep_qkv = on, keep_output = on", 2 * HIDDEN + 2 * KV),
        # queries, values, the core's output, gate and down; not keys, output and up
        ("alternate = on", HIDDEN + KV + HIDDEN + FFN + HIDDEN),
    ],
)
def test_whole_layers_keep_what_is_named_besides_their_input(keep: str, width: int) -> None:
    study = study_of("recompute = full", f"recompute {{ {keep} }}")
    statistics = 4 * 32 * TOKENS * LAYERS if "core" in keep or "alternate" in keep else 0
    assert kept_bytes(study) == INPUT + 2 * width * TOKENS * LAYERS + statistics


def test_saved_tensors_are_not_recomputed() -> None:
    def recomputed_terms(keep: str) -> dict[str, float]:
        study = study_of("recompute = full", f"recompute {{ {keep} }}")
        return {op.name: op.flops for op in study.operators if op.pass_ == "R"}

    every, some = recomputed_terms(""), recomputed_terms("alternate = on")
    assert "attention core" not in some
    assert "MLP down projection" not in some
    assert some["attention output projection"] == every["attention output projection"]
    # of q, k, v the keys are made again, and of gate and up the latter
    columns = (HIDDEN + 2 * KV) / KV
    assert some["QKV projection"] == pytest.approx(every["QKV projection"] / columns)
    up = "MLP gate and up projection"
    assert some[up] == pytest.approx(every[up] / 2)
    assert "QKV projection" not in recomputed_terms("keep_qkv = on")


def test_naming_operators_has_no_effect_unless_layers_are_recomputed() -> None:
    text = SPEC.format(
        device="h100_sxm",
        precision="bf16",
        layout="zero = 1",
        training="",
        extra="recompute { alternate = on }",
        devices=8,
    )
    (scenario,) = parcost.load_text(text)
    (warned,) = [d for d in scenario.evaluate().diagnostics if d.id == "no-effect"]
    assert warned.help == "it needs `training.recompute = full`"


# --- Offloading layers ---------------------------------------------------------------------------


def test_layers_that_are_offloaded_leave_their_share_on_the_device() -> None:
    by_layers = evaluate(study_of(extra="offload { layers = 8 }")).memory_bytes
    by_share = evaluate(study_of(extra="offload { activations = 25 % }")).memory_bytes
    assert by_layers == by_share
    assert by_layers < evaluate(study_of()).memory_bytes


# --- Counters ------------------------------------------------------------------------------------


def test_the_allocator_has_reserved_less_than_the_device_has_lost() -> None:
    study = study_of("recompute = full")
    outcome = evaluate(study)
    found = {f.name: f.value for _, f in details_of(study, outcome)}
    held = lines(study)
    outside = held["driver context and libraries"] + held["communicators"]
    assert found["reserved_memory"] == pytest.approx(outcome.memory_bytes - outside)
    assert found["allocated_memory"] == pytest.approx(
        outcome.memory_bytes - outside - held["fragmentation"]
    )


def test_a_device_shows_blocks_of_the_last_update_that_a_verdict_does_not_count() -> None:
    """8B in ZeRO 1 on 8 devices, by hand: a norm in 8 B of the largest tensor, an update in 4 B.

    The largest tensor is the embedding, and its copy has no room for the gradients of the update.
    The eager loss leaves a block of logits in 2 B, and has three more in fp32. Of 8,192 tokens they
    have 4.203 GB: the copy of a shard in 2 B, 2.008 GB, and the gradients of the update in fp32,
    4.015 GB, take two of them. The copy for the norm, of the head and its norm, is larger by 33 kB.
    """
    use = "use catalog.frameworks.deepspeed"
    study = study_of("framework = deepspeed", use, precision="bf16_zero")
    kept = 8 * VOCABULARY * HIDDEN + 2 * LOGITS
    for capacity, shown in ((200e9, kept), (1e9, 0.0)):  # full memory has no free blocks
        large = study.replace({"h100_sxm.memory": capacity})
        outcome = evaluate(large)
        assert "copy of a gradient for its norm" not in lines(large)
        asked = details_of(large, outcome)
        found = {figure.name: figure.value for _, figure in asked}
        assert found["used_memory"] == pytest.approx(outcome.memory_bytes + shown, rel=1e-6)


@pytest.mark.parametrize(
    ("tokens", "norm", "update", "shard"),
    [
        (8192, 1, 0, 0),
        (8193, 0, 0, 0),  # a block of 4.2032 GB, of three
        (7826, 1, 1, 0),  # 4.01494 GB, less than 4.01513
        (3915, 1, 1, 0),  # 2.0085 GB
        (3913, 1, 1, 1),  # 2.0074 GB, less than 2.00757
    ],
)
def test_an_update_takes_blocks_of_the_loss_that_are_large_enough(
    tokens: int, norm: int, update: int, shard: int
) -> None:
    """A block has 4 B for each of 128,256 logits of a token."""
    use = "use catalog.frameworks.deepspeed"
    study = study_of("framework = deepspeed", use, precision="bf16_zero")
    found = {
        term.name.removesuffix(", at the loss"): float(term.bytes_)
        for _, term in study.replace({"training.sequence": tokens}).contributions("memory")
        if tuple(term.cached) == ("loss",) and term.name.endswith("at the loss")
    }
    assert found == pytest.approx(
        {
            "copy of a gradient for its norm": norm * 8 * (VOCABULARY * HIDDEN + HIDDEN),
            "gradients of the update": update * 4 * PARAMETERS / 8,
            "copy of a shard of gradients": shard * 2 * PARAMETERS / 8,
        }
    )


# --- How full is too full ------------------------------------------------------------------------


@try_each(
    "share, expected",
    [(1.06, []), (1.04, ["memory-tight"]), (0.94, ["memory-tight"]), (0.92, ["does-not-fit"])],
)
def test_a_device_that_is_nearly_full_is_a_warning(share: float, expected: list[str]) -> None:
    needs = evaluate(study_of("recompute = full")).memory_bytes
    device = f"device h100_sxm {{ memory = {share * needs:.0f} B }}"
    study = study_of("recompute = full", device)
    asked = study.plugins.ask("outcome_checks", study=study, outcome=evaluate(study))
    failed = [check for _, check in asked if not check.holds]
    assert [check.id for check in failed] == expected
    if expected == ["memory-tight"]:
        assert failed[0].severity == "warning"
        said = diagnose(failed[0], study).message
        assert f"{100 / share:.3g} % of the" in said


def test_a_search_may_choose_what_is_tight() -> None:
    study = study_of()
    (room,) = [room for _, room in study.contributions("capacities")]
    assert room == pytest.approx(1.08 * 81_559 * 2**20)
    assert [usable for _, usable in study.contributions("usable_memory")] == [81_559 * 2**20]


@pytest.mark.slow
def test_the_head_s_gradient_and_a_gather_take_the_memory_that_the_loss_has_freed() -> None:
    """Per logit an eager loss frees 10 of 12 B before the product, logits 2 of 4, a gradient none."""
    head, narrow = 2 * HIDDEN * VOCABULARY, "gathered last layer"
    layer = 2 * (MATRICES + 2 * HIDDEN)
    for loss, freed in (("eager", 10), ("softmax", 4), ("logits", 2), ("gradient", 0)):
        found = terms(study_of(f"loss = {loss}", layout="zero = 3"))
        assert found["whole gradient of the head"] == max(head - freed * LOGITS, 0), loss
        left = max(freed * LOGITS - head, 0)  # for the gather of the last layer
        assert found[narrow] == max(layer - left, 0), loss
        kept = study_of(f"loss = {loss}", "sharding { keep_last = on }", layout="zero = 3")
        assert terms(kept)[narrow] == layer
    chunks = terms(study_of("loss = eager, loss_chunks = 8", layout="zero = 3"))
    assert chunks["whole gradient of the head"] == head
    assert "whole gradient of the head" not in terms(study_of(layout="zero = 2"))
