"""Choices of a run, set in its spec or by its framework."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from parcost import Mask, Real, block_name, resolver, stage_number
from parcost.numeric import all_of, any_of, maximum, where
from parcost_plugins.physics.context import algorithm
from parcost_plugins.vocabulary.adapters import Adapters
from parcost_plugins.vocabulary.context import Context
from parcost_plugins.vocabulary.layout import Layout, ScheduleChoice
from parcost_plugins.vocabulary.recompute import Recompute
from parcost_plugins.vocabulary.routing import Routing
from parcost_plugins.vocabulary.sharding import Offload, Sharding
from parcost_plugins.vocabulary.training import KernelChoice, Overlap, Training

if TYPE_CHECKING:
    from parcost import Study

_NO_MODULES = Recompute()
_FP32 = 4.0  # bytes of an element


def open_window(study: Study, window: str | None) -> str | None:
    """Return the overlap *window* of a transfer, or None if the host waits for every kernel."""
    choice = study.get(KernelChoice)
    return None if choice is not None and choice.launch_blocking else window


def hides_gradients(study: Study) -> bool:
    """Return whether the gradient reduction overlaps with backward."""
    if study[KernelChoice].launch_blocking:
        return False
    stated, framework = study[Overlap].gradients, study[Training].framework
    if stated is not None:
        return stated
    return framework.gradient_overlap or shards_weights(study)


def hides_parameters(study: Study) -> bool:
    """Return whether the parameter all-gather overlaps with forward."""
    if study[KernelChoice].launch_blocking:
        return False
    stated, framework = study[Overlap].parameters, study[Training].framework
    if stated is not None:
        return stated
    if shards_weights(study):
        return not framework.gathers_wait
    return framework.parameter_overlap


def gathers_on_arrival(study: Study) -> bool:
    """Return whether a stage starts to gather parameters when its first micro-batch arrives."""
    framework = study[Training].framework
    if (stated := study[Overlap].gather_start) is not None:
        return stated == "arrival"
    usual = framework.gather_start
    if framework.interleaved_gather_start != usual and study.query(_interleaves):
        usual = framework.interleaved_gather_start
    return usual == "arrival"


def gradient_bucket(study: Study) -> Real:
    """Return the size of a gradient bucket in bytes."""
    overlap, layout = study[Overlap], study[Layout]
    if overlap.bucket is not None:
        return overlap.bucket
    training, ranks = study[Training], layout.dp * layout.cp
    if training.framework.bucket is not None:
        elements = maximum(training.framework.bucket, training.framework.bucket_growth * ranks)
        return elements * training.precision.gradients
    if zero_stage(study) >= 2:
        return overlap.least_bucket
    return maximum(overlap.least_bucket, overlap.bucket_growth * ranks)


def staged_elements(study: Study) -> Real:
    """Return the number of elements of the buffer into which gradients are copied; 0 without
    one.
    """
    training, size = study[Training], study[Overlap].bucket
    staged = training.framework.gradient_staging
    if size is None or not any_of(staged != 0):
        return staged
    return size / training.precision.reduction


def groups_experts(study: Study) -> bool:
    """Return whether one grouped GEMM computes all experts of a rank."""
    chosen = study[KernelChoice].grouped_experts
    return study[Training].framework.grouped_experts if chosen is None else chosen


def fuses_accumulation(study: Study) -> bool:
    """Return whether weight-gradient GEMMs accumulate into the gradients of earlier
    micro-batches.
    """
    chosen = study[KernelChoice].fused_accumulation
    return study[Training].framework.fused_accumulation if chosen is None else chosen


def keeps_gradients(study: Study, ranks: Real) -> Mask:
    """Return whether gradients stay allocated between steps, if *ranks* hold the same parameters.

    Fused accumulation needs a buffer, as does accumulation in a wider type.
    """
    training = study[Training]
    kept = training.framework.keeps_gradients
    if kept == "replicas":
        kept = "never" if shards_states(study) or copies_buckets(study) else kept
    if fuses_accumulation(study) or any_of(training.precision.gradient_copies != 0):
        kept = "always"
    if kept == "replicas":
        return ranks > 1
    return kept == "always" or (kept == "zero_3" and shards_weights(study))


def frees_gradients(study: Study) -> bool:
    """Return whether gradients are freed before the update, as in ZeRO 1 of DeepSpeed, which copies
    its shard.

    DeepSpeed 0.17.0, runtime/zero/stage_1_and_2.py: independent_gradient_partition_epilogue ends
    with zero_grad, as all that the step reads is in averaged_gradients.
    """
    training = study[Training]
    sums = any_of(training.precision.gradient_copies != 0)
    whole = shards_states(study) and not shards_gradients(study)
    return whole and training.framework.contiguous_gradients and not sums


def adds_behind_pass(study: Study) -> bool:
    """Return whether gradients of a micro-batch stay unsharded until they are accumulated in a
    wider type.
    """
    training = study[Training]
    wider = any_of(training.precision.gradients > training.precision.weights)
    apart = training.framework.adds_gradients == "pass" and not fuses_accumulation(study)
    return apart and wider


def accumulating_share(study: Study) -> Real:
    """Return the share of micro-batches whose gradients are accumulated by a separate kernel.

    Without an accumulation buffer, the first gradients need no addition. Fused accumulation needs
    such a buffer, and so do frameworks that zero gradients.
    """
    training = study[Training]
    if training.framework.zeroes_gradients or fuses_accumulation(study):
        return 1.0  # without a look at the micro-batches, which differ by number of stages
    has_buffer = training.precision.gradient_copies != 0
    return where(has_buffer, 1.0, 1.0 - 1.0 / maximum(training.micro_batches, 1.0))


def runs_experts_apart(study: Study) -> Real:
    """Return 1 if each expert has a separate GEMM kernel, and 0 for grouped GEMMs."""
    if not groups_experts(study):
        return 1.0
    return where(study[Training].framework.grouped_kernels > 0, 1.0, 0.0)


def recomputed_modules(study: Study) -> Recompute:
    """Return the modules that backward recomputes in layers that are not fully recomputed."""
    full, chosen = study[Training].recompute == "full", study.get(Recompute)
    if chosen is None or (full and chosen.every == 1 and chosen.layers == 0):
        return _NO_MODULES
    return chosen


def stops_early(study: Study) -> bool:
    """Return whether recomputation of a layer ends at the last tensor that backward reads.

    A compiler that chooses recomputation skips outputs that backward does not read.
    """
    chosen, framework = study.get(Recompute), study[Training].framework
    if chosen is not None and chosen.stops_early is not None:
        return chosen.stops_early
    mode = study[KernelChoice].mode or framework.mode
    return framework.stops_early or (framework.remakes_elementwise and mode == "compiled")


def tensor_overlap(study: Study) -> str:
    """Return the overlap mode of tensor-parallel collectives."""
    if study[KernelChoice].launch_blocking:
        return "off"
    return study[Overlap].tensor or study[Training].framework.tensor_overlap


#: Whether a collective may hide under compute, by the attribute of the block `overlap`.
HIDING = {"gradients": hides_gradients, "parameters": hides_parameters}


def blocks_on_transfers(study: Study) -> bool:
    """Return whether pipeline send/recv blocks the device."""
    choice, framework = study[ScheduleChoice], study[Training].framework
    if choice.transfers is not None:
        return choice.transfers == "blocking"
    usual = framework.transfers
    if framework.interleaved_transfers != usual and study.query(_interleaves):
        usual = framework.interleaved_transfers
    return usual == "blocking"


def stage_messages(study: Study) -> str:
    """Return the mode of the message from a tensor-parallel rank to the next stage, such as
    ``whole``. With sequence parallelism the hidden state of a rank is already a shard.
    """
    layout = study[Layout]
    if layout.sequence_parallel or all_of(layout.tp == 1):
        return "whole"
    return study[ScheduleChoice].messages or study[Training].framework.messages


def partitions_outputs(study: Study) -> bool:
    """Return whether a tensor-parallel rank keeps its share of a stage's output."""
    return stage_messages(study) in ("partitioned", "partitioned_forward")


@stage_number
def _interleaves(study: Study) -> bool:
    return study[ScheduleChoice].chunks > 1


@stage_number
def _is_pipelined(study: Study) -> bool:
    return study[Layout].pp > 1


def reduces_each_micro_batch(study: Study) -> bool:
    """Return whether ZeRO reduces gradients in every micro-batch."""
    sharding, framework = study.get(Sharding), study[Training].framework
    stated = None if sharding is None else sharding.accumulate
    if stated is not None:
        return stated == "shard"
    found = framework.accumulate
    if framework.pipelined_accumulate not in (None, found) and study.query(_is_pipelined):
        found = framework.pipelined_accumulate
    return found == "shard"


def replicates_each_micro_batch(study: Study) -> bool:
    """Return whether hybrid sharding all-reduces shards in every micro-batch."""
    sharding, framework = study.get(Sharding), study[Training].framework
    stated = None if sharding is None else sharding.replicate
    return (stated or framework.replicate) == "micro_batch"


def zero_stage(study: Study) -> int:
    """Return the ZeRO stage: 0 for plain data parallelism, or if no plugin provides ZeRO."""
    return 0 if study.get(Sharding) is None else study[Layout].zero


def shards_states(study: Study) -> bool:
    """Return whether a rank holds and updates only its shard of the optimizer state."""
    return zero_stage(study) >= 1


def shards_gradients(study: Study) -> bool:
    """Return whether a rank holds only its shard of the gradients, reduced in every micro-batch."""
    return zero_stage(study) >= 2 and reduces_each_micro_batch(study)


def sums_of_host(study: Study) -> str:
    """Return the mode of gradient accumulation on a host that runs the update, such as ``fetch``.

    It is ``none`` if no optimizer state is on the host.
    """
    sums, offload = study[Training].framework.host_sums, study[Offload]
    if sums == "none" or not any_of(offload.optimizer != 0) or offload.update != "host":
        return "none"
    return sums


def host_sums(study: Study) -> str:
    """Return the mode in which gradient shards accumulate on the host; ``none`` if they do not."""
    sums = sums_of_host(study)
    return sums if sums != "none" and shards_gradients(study) else "none"


def accumulates_whole(study: Study) -> Mask:
    """Return whether gradients with ZeRO 2 and 3 stay unsharded until the last of several
    micro-batches.

    With a single micro-batch, gradients are reduced when they are computed.
    """
    if zero_stage(study) < 2 or reduces_each_micro_batch(study):
        return False
    return study[Training].micro_batches > 1


def gradient_shards(study: Study, shards: Real) -> Real:
    """Return the number of ranks over which gradients are sharded: *shards*, or 1."""
    if zero_stage(study) < 2:
        return 1.0
    return where(accumulates_whole(study), 1.0, shards)


def shards_weights(study: Study) -> bool:
    """Return whether a rank holds only its shard of the weights, and gathers the rest."""
    return zero_stage(study) == 3


def residual_bytes(study: Study) -> Real:
    """Return the bytes of an element of the residual stream.

    Autocast does not cast a float32 embedding, so all residual additions are in float32.
    """
    adapters, precision = study.get(Adapters), study[Training].precision
    narrow = precision.activation
    whole, gathered = precision.wide_weights, precision.gather
    if adapters is not None:
        whole, gathered = adapters.weights, narrow
    held, sharded = maximum(narrow, whole), maximum(narrow, gathered)
    # If they are equal, ZeRO is not read: a search asks for layers once for all of its stages.
    return sharded if any_of(held != sharded) and shards_weights(study) else held


def regathers_inputs(study: Study) -> bool:
    """Return whether adapters save shards of their inputs, and gather them again in backward."""
    adapters, training = study.get(Adapters), study[Training]
    if adapters is None or not study[Layout].sequence_parallel or adapters.split != "both":
        return False  # without reading an attribute that has no effect here
    graphs = study[KernelChoice].cuda_graphs or training.framework.cuda_graphs
    return graphs == "none" and training.recompute != "full" and adapters.regather


#: Targets of adapters whose input is the output of a norm.
NORMED = ("query", "key", "value", "gate", "up", "head")


def adapter_casts(study: Study, target: str) -> Real:
    """Return the casts of the input of the adapter of *target*, in forward and in backward.

    PEFT casts it to float32 for float32 matrices, and autocast casts it back to the type of GEMMs.
    A norm with a float32 weight has a float32 output. A compiler fuses the casts with other
    kernels.
    """
    adapters, precision = study[Adapters], study[Training].precision
    if (study[KernelChoice].mode or study[Training].framework.mode) == "compiled":
        return 0.0
    narrow = precision.activation
    trained = precision.gather if shards_weights(study) else precision.wide_weights
    peft = adapters.cast_inputs and adapters.base is None
    casts = where(trained > narrow, 2.0, 0.0) if peft else 0.0
    return where(residual_bytes(study) > narrow, 1.0, casts) if target in NORMED else casts


def copies_buckets(study: Study) -> bool:
    """Return whether a rank copies whole gradients into buckets to reduce them."""
    sharding = study.get(Sharding)
    return sharding is not None and not shards_states(study) and sharding.bucket_copy


def gradient_average(study: Study) -> str:
    """Return the mode of averaging gradients over ranks, such as ``scaled``."""
    sharding, framework = study.get(Sharding), study[Training].framework
    stated = None if sharding is None else sharding.gradient_average
    return stated or framework.gradient_average


def checks_gradients(study: Study) -> bool:
    """Return whether gradients are checked for NaN before their reduction."""
    sharding, framework = study.get(Sharding), study[Training].framework
    stated = None if sharding is None else sharding.gradient_check
    return framework.gradient_check if stated is None else stated


def scatters(study: Study) -> bool:
    """Return whether gradients are reduce-scattered rather than all-reduced."""
    own = study[Training].framework.reduce_scatter
    return shards_weights(study) or (shards_states(study) and own)


def reshards(study: Study) -> bool:
    """Return whether ZeRO 3 drops gathered parameters after the forward pass."""
    sharding, framework = study.get(Sharding), study[Training].framework
    stated = None if sharding is None else sharding.reshard
    if stated is not None:
        return stated
    found = framework.reshard
    if framework.pipelined_reshard not in (None, found) and study.query(_is_pipelined):
        found = framework.pipelined_reshard
    return found


def gathers_once(study: Study) -> bool:
    """Return whether stages of a pipeline gather parameters in the first micro-batch (ZeRO 3).

    They stay gathered until their unsharded gradients are reduced.
    """
    kept = not (reshards(study) or reduces_each_micro_batch(study))
    return kept and bool(study.query(_is_pipelined))


def gathers_per_micro_batch(study: Study) -> Real:
    """Return the number of gathers of a parameter per forward pass, averaged over the step (ZeRO
    3).
    """
    return 1.0 / study[Training].micro_batches if gathers_once(study) else 1.0


def heads_on_vectors(study: Study) -> bool:
    """Return whether GEMMs of heads whose size is not a multiple of 16 bytes run on CUDA cores."""
    chosen = study[KernelChoice].misaligned_heads
    return (chosen or study[Training].framework.misaligned_heads) == "vector"


def saved_by_loss(study: Study) -> str:
    """Return the tensors that the cross entropy saves, as a word."""
    training = study[Training]
    if training.loss is not None:
        return training.loss
    found, mode = training.framework.loss, study[KernelChoice].mode or training.framework.mode
    return "logits" if (found, mode) == ("eager", "compiled") else found


def freed_by_loss(study: Study) -> Real:
    """Return the bytes per logit that the loss frees before the gradients of the head are computed.

    The gradient of the logits is then complete, and the other tensors of the loss are freed. A
    chunked loss accumulates the gradient of the head chunk by chunk, and frees nothing.
    """
    training, e = study[Training], study[Training].precision.activation
    if training.loss_chunks > 1:
        return 0.0
    match saved_by_loss(study):
        case "eager":
            whole = _FP32 + maximum(2 * _FP32 - e, 0.0)
            return where(study[Layout].tp > 1, 4 * _FP32 - e, whole)
        case "softmax":
            return _FP32
        case "logits":
            return e
    return 0.0


def keeps_last_layer(study: Study) -> bool:
    """Return whether the last layer stays gathered from forward to backward (ZeRO 3)."""
    stated = study[Sharding].keep_last
    return study[Training].framework.keep_last if stated is None else stated


def _framework_value(name: str) -> Callable[[Study], Any]:
    """Return a function that returns an attribute of the framework."""
    return lambda study: getattr(study[Training].framework, name)


def _choose_word(condition: Callable[[Study], bool], yes: str, no: str) -> Callable[[Study], str]:
    """Return a function that returns *yes* or *no*, by a condition."""
    return lambda study: yes if condition(study) else no


#: Attributes that the framework decides if no spec gives them, and the function of their values.
_BY_FRAMEWORK: tuple[tuple[type, str, Callable[[Study], Any]], ...] = (
    (Overlap, "gather_start", _choose_word(gathers_on_arrival, "arrival", "step")),
    (Overlap, "tensor", tensor_overlap),
    (ScheduleChoice, "transfers", _choose_word(blocks_on_transfers, "blocking", "overlapped")),
    (ScheduleChoice, "messages", _framework_value("messages")),
    (ScheduleChoice, "assignment", _framework_value("assignment")),
    (Sharding, "accumulate", _choose_word(reduces_each_micro_batch, "shard", "whole")),
    (Sharding, "replicate", _choose_word(replicates_each_micro_batch, "micro_batch", "step")),
    (Sharding, "reshard", reshards),
    (Sharding, "keep_last", keeps_last_layer),
    (Sharding, "gradient_average", gradient_average),
    (Sharding, "gradient_check", checks_gradients),
    (Recompute, "stops_early", stops_early),
    (KernelChoice, "mode", _framework_value("mode")),
    (KernelChoice, "misaligned_heads", _framework_value("misaligned_heads")),
    (KernelChoice, "cuda_graphs", _framework_value("cuda_graphs")),
    (KernelChoice, "grouped_experts", _framework_value("grouped_experts")),
    (KernelChoice, "fused_accumulation", fuses_accumulation),
    (Context, "algorithm", algorithm),
    (Routing, "dispatcher", _framework_value("dispatcher")),
    (Training, "loss", saved_by_loss),
)


@resolver(Overlap, "gradients")
def _gradients(study: Study) -> tuple[bool, str]:
    return hides_gradients(study), _framework_or_zero(study, "gradient_overlap")


@resolver(Overlap, "parameters")
def _parameters(study: Study) -> tuple[bool, str]:
    return hides_parameters(study), _framework_or_zero(study, "parameter_overlap")


def _framework_or_zero(study: Study, name: str) -> str:
    """Return the reason why a collective overlaps by default: the framework, or ZeRO 3."""
    own = getattr(study[Training].framework, name)
    return "by zero = 3" if shards_weights(study) and not own else _by_framework(study)


def _by_framework(study: Study) -> str:
    return f"by framework {block_name(study[Training].framework)}"


def _build_resolver(value: Callable[[Study], Any]) -> Callable[[Study], tuple[Any, str]]:
    """Return a resolver that computes *value*, and names the framework as the reason."""
    return lambda study: (value(study), _by_framework(study))


for _block, _name, _value in _BY_FRAMEWORK:
    resolver(_block, _name)(_build_resolver(_value))
