"""Host time: a pass on a stage takes as long as its kernels or their launches, whichever is longer.

Within a pass the host launches kernels ahead of the device, so the longer time counts. It does not
run ahead beyond a pass. The queue of a device holds about a thousand kernels. 1F1B waits for the
messages of a stage, and frameworks read the loss. The time per kernel is the framework's ``issue``.
The number of kernels in a layer is counted in its code.

A collective is one kernel with any algorithm. A CUDA graph of a layer takes one launch per pass. A
CUDA graph of a whole step takes almost no host time. The graph of a layer contains its experts only
if a capacity fixes their shapes.

With ``kernels.launch_blocking`` the host waits for every kernel: host and device times add up, with
the delay of a synchronization (``launch_wait``). They also add up if a framework synchronizes
before it gathers a list of shards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from operator import add
from typing import Any, NamedTuple

from parcost import (
    Check,
    Formula,
    Once,
    Pass,
    Real,
    Study,
    Work,
    attribute,
    block_name,
    formula,
    hookimpl,
    map_counts,
    occurs,
    record,
)
from parcost.numeric import any_of, is_array, maximum, where
from parcost_plugins.frameworks.rulebook import RULES
from parcost_plugins.physics import on_first, on_last
from parcost_plugins.physics.adapters import trains_model
from parcost_plugins.physics.attention_mask import writes_scores
from parcost_plugins.physics.partition import layer_counts
from parcost_plugins.physics.routing import has_fixed_counts
from parcost_plugins.physics.run_choices import (
    accumulating_share,
    adapter_casts,
    fuses_accumulation,
    gathers_per_micro_batch,
    groups_experts,
    open_window,
    regathers_inputs,
    shards_gradients,
    shards_weights,
    tensor_overlap,
)
from parcost_plugins.physics.stage_parameters import stage_kinds
from parcost_plugins.vocabulary import (
    Adapters,
    Framework,
    KernelChoice,
    Layout,
    Overlap,
    Routing,
    Training,
)
from parcost_plugins.vocabulary.causes import HOST

NAME = "waiting for the host"
PROCESSOR = "processor"  # the resource: it issues kernels one after another
QUEUE = "queue"  # of the device: it is empty while the host reads what the device counted
SOURCE = "kernels in the order of the framework; the longer of host and device time counts"
_PAIRS = 2  # of products in a layer, with an all-reduce behind each in either pass
_BIAS_KERNELS = (2.0, 4.0)  # a product and a sum; products and sums for the bias and the weight
#: Kernels of an adapter forward (two products, a scale and a sum) and as many for the gradient of
#: its input; and its weight gradients.
ADAPTER_KERNELS, ADAPTER_WEIGHT_KERNELS = 4.0, 2.0
#: Collectives beside column-parallel and row-parallel matrices, forward and backward, by what is
#: split, and with or without sequence parallelism.
ADAPTER_CALLS = {
    ("both", True): ((1.0, 1.0), (2.0, 2.0)),
    ("both", False): ((1.0, 2.0), (2.0, 1.0)),
    ("one", True): ((1.0, 2.0), (1.0, 1.0)),
    ("one", False): ((0.0, 1.0), (1.0, 0.0)),
}
#: Kernels of a gated delta net beyond those of attention: a product, copies and a convolution,
#: gates and decays, repeated heads and the chunked rule, as transformers issues them with
#: flash-linear-attention, less the attention core and the rotary embedding.
DELTA_KERNELS, DELTA_GRADIENT_KERNELS = 21.0, 25.0
_ATTENTION = ("query", "key", "value", "output")
_BACKWARD = 2  # gradients of each operator outside of a dense layer: of its input and weights


@record
class _Launches:
    """The kernels and collectives that the host issues for one layer or operator."""

    kernels: Real
    calls: Real = 0.0

    def times(self, parts: float) -> _Launches:
        """Return the launches of a micro-batch that is split into *parts*."""
        return _Launches(parts * self.kernels, parts * self.calls)


@hookimpl
def terms(study: Study) -> Iterator[Work | Once]:
    """Estimate the issue time of the host; the excess over device time is exposed."""
    framework = study[Training].framework
    if graphs(study) != "iteration":
        yield from _layers(study, framework)
        yield from _lists(study, framework)
        yield from _delta_nets(study)
        yield from _experts(study, framework)
        yield from _adapters(study, framework)
        yield from _ends(study, framework)
    yield from _update(study, framework)


@hookimpl
def checks(study: Study) -> Iterator[Check]:
    """Require that the framework supports compilation or CUDA graphs, if the spec turns them on."""
    framework = study[Training].framework
    yield RULES.check(
        "too-many-weight-kernels",
        framework.weight_kernels <= framework.backward_kernels,
        f"{block_name(framework)}.weight_kernels",
        weights=framework.weight_kernels,
        backward=framework.backward_kernels,
    )
    yield RULES.check(
        "compiles-no-layers",
        mode(study) == "eager" or framework.compiled_issue is not None,
        "kernels.mode" if study[KernelChoice].mode else f"{block_name(framework)}.mode",
        framework=block_name(framework),
    )
    yield RULES.check(
        "captures-no-graphs",
        graphs(study) == "none" or framework.graph_issue is not None,
        "kernels.cuda_graphs"
        if study[KernelChoice].cuda_graphs
        else f"{block_name(framework)}.cuda_graphs",
        framework=block_name(framework),
    )


def graphs(study: Study) -> str:
    """Return the scope of CUDA graphs."""
    return study[KernelChoice].cuda_graphs or study[Training].framework.cuda_graphs


def mode(study: Study) -> str:
    """Return the execution mode of layers: eager or compiled."""
    return study[KernelChoice].mode or study[Training].framework.mode


def _layers(study: Study, framework: Framework) -> Iterator[Work]:
    gathered = framework.sharded_kernels
    if any_of(gathered != 0) and not shards_weights(study):
        gathered = 0.0
    often = gathers_per_micro_batch(study)
    forward, backward, weights = _calls(study)
    products, norms = _attention(study)
    issued_forward = framework.forward_kernels + products + norms * framework.norm_kernels
    every, again = layer_counts(study), layer_counts(study, recomputed=True)
    core: Real = 0.0
    if study[Training].recompute == "selective" and writes_scores(study):
        again, core = every, framework.core_kernels
    elif study[Training].recompute == "selective" and framework.reruns_core:
        again, core = every, 1.0
    rest = maximum(framework.backward_kernels - framework.weight_kernels, 0.0)
    rest = rest + products + norms * framework.norm_backward_kernels
    made = framework.weight_kernels + products + _sums(study) if trains_model(study) else 0.0
    passes: list[tuple[Pass, _Launches, Sequence[float]]] = [
        ("F", _Launches(issued_forward, often * gathered + forward), every),
        ("R", _Launches(core) if core else _Launches(issued_forward, forward), again),
        ("B", _Launches(rest, 2 * gathered + backward), every),
        ("W", _Launches(made, weights), every),
    ]
    captured = graphs(study) == "layer"
    parts = 2.0 if tensor_overlap(study) == "split_batch" else 1.0
    for pass_, issued, count in passes:
        if captured and (pass_ == "W" or (pass_ == "R" and core)):
            continue  # a part of the graph of the backward pass
        if captured:
            seconds = _graph_seconds(framework, parts)
        elif mode(study) == "compiled":
            seconds = _compiled_seconds(issued, framework, parts, apart=pass_ == "W")
        else:
            seconds = _eager_seconds(issued.times(parts), study)
        yield from _work(study, NAME, pass_, seconds, count)


def _attention(study: Study) -> tuple[float, float]:
    """Return the GEMMs and the norms of attention beyond those of the layer counted in the code.

    These are norms of queries and keys. For latent attention they are the down and up projections,
    with a norm between them.
    """
    training = study[Training]
    model = training.model
    if not model.is_latent:
        return 0.0, 2.0 if model.qk_norm else 0.0
    compressed = 1.0 if model.q_lora else 0.0
    counted = 3.0 if training.framework.separate_projections else 1.0
    return 3.0 + compressed - counted, 1.0 + compressed


def _sums(study: Study) -> Real:
    """Return the kernels per layer that add gradients to those of earlier micro-batches.

    Without fused accumulation there is one kernel for each weight, bias and norm vector.
    """
    training = study[Training]
    if fuses_accumulation(study) or shards_gradients(study):
        return 0.0
    weights, model = training.framework.weight_kernels, training.model
    vectors = model.norms * model.norm_vectors + weights * (1.0 if model.biases else 0.0)
    summed = weights + vectors + sum(_attention(study))
    return where(weights > 0, summed, 0.0) * accumulating_share(study)


def _calls(study: Study) -> tuple[Real, Real, Real]:
    """Return the number of tensor-parallel collectives per layer: forward, backward, and for weight
    gradients.
    """
    layout, overlap = study[Layout], study[Overlap]
    forward: Real = 2.0 * _PAIRS if layout.sequence_parallel else 1.0 * _PAIRS
    kept = study[Training].framework.keeps_gathers or not trains_model(study)
    again = layout.sequence_parallel and not kept
    weights: Real = 1.0 * _PAIRS if again else 0.0
    if tensor_overlap(study) == "pipelined":  # products and transfers replacing a product
        forward = forward * (2.0 * overlap.chunks - 1.0)
    shared = where(layout.tp > 1, 1.0, 0.0)
    return shared * forward, shared * forward, shared * weights


def _delta_nets(study: Study) -> Iterator[Work]:
    """Yield the launch time of a gated delta net, minus the launch time of the attention that it
    replaces.
    """
    if not study[Training].model.delta_heads or graphs(study) == "layer":
        return
    passes: list[tuple[Pass, Real, Sequence[float]]] = [
        ("F", DELTA_KERNELS, layer_counts(study, delta=True)),
        ("R", DELTA_KERNELS, layer_counts(study, delta=True, recomputed=True)),
        ("B", DELTA_GRADIENT_KERNELS, layer_counts(study, delta=True)),
    ]
    yield from _eager_work(study, "gated delta nets", passes)


def _eager_work(
    study: Study, part: str, passes: Sequence[tuple[Pass, Real, Sequence[float]]]
) -> Iterator[Work]:
    """Yield the launch time of kernels: *part* has their pass, their number, and their
    occurrences.
    """
    for pass_, kernels, count in passes:
        seconds = _eager_seconds(_Launches(kernels), study)
        yield from _work(study, f"{NAME}, {part}", pass_, seconds, count)


def _lists(study: Study, framework: Framework) -> Iterator[Work]:
    """Yield the host time of lists of shards: a gather in both passes, and a reduction."""
    if not shards_weights(study) or not _is_set(framework.list_issue):
        return
    ranks = next(kind.shard for kind in stage_kinds(study) if not kind.expert)
    collectives: list[tuple[Pass, float]] = [("F", 1.0), ("B", 2.0)]
    for parameters in study.parameters:
        if parameters.expert:
            continue
        large = where(parameters.elements >= framework.whole_below, 1.0, 0.0)
        for pass_, times in collectives:
            yield Work(
                name=f"lists of shards: {parameters.name}",
                cause=HOST,
                seconds=formula(
                    "c N tau, c collectives of N ranks",
                    c=times * large,
                    N=ranks,
                    tau=(framework.list_issue, "s"),
                    origins=partial(_seconds_of, framework, tau="list_issue"),
                    source="lists with one tensor per rank, each of which is copied",
                ),
                pass_=pass_,
                count=parameters.count,
                resource=PROCESSOR,
            )


def _experts(study: Study, framework: Framework) -> Iterator[Work]:
    """Yield the launch time of MoE layers that exceeds that of dense layers."""
    model, layout = study[Training].model, study[Layout]
    if not model.experts or (graphs(study) == "layer" and study[Routing].capacity_factor):
        return
    local, each = model.experts / layout.ep, framework.expert_kernels
    casts: Real = 0.0
    if groups_experts(study):
        each = framework.grouped_kernels
        precision = study[Training].precision
        if precision.narrow != "none":
            casts = framework.grouped_casts * precision.cast_kernels
    biased = model.biases and framework.expert_biases == "eager"
    of_bias = _BIAS_KERNELS if biased else (0.0, 0.0)
    forward = framework.routing_kernels + local * (each + casts + of_bias[0])
    backward = framework.routing_backward_kernels + local * (_BACKWARD * each + casts + of_bias[1])
    passes: list[tuple[Pass, Real, Sequence[float]]] = [
        ("F", forward, layer_counts(study, moe=True)),
        ("R", forward, layer_counts(study, moe=True, recomputed=True)),
        ("B", backward, layer_counts(study, moe=True)),
    ]
    yield from _eager_work(study, "experts", passes)
    if not has_fixed_counts(study):
        yield from _token_count_work(study, framework)


def _token_count_work(study: Study, framework: Framework) -> Iterator[Work]:
    """Yield the exposed time if the host reads the number of tokens of each expert.

    The host cannot issue ahead: the device is idle until the next kernel is issued.
    """
    seconds = formula(
        "tau, of the first kernel after the counts",
        tau=(framework.issue, "s"),
        source=SOURCE,
        origins=partial(_seconds_of, framework, tau="issue"),
    )
    passes: tuple[tuple[Pass, bool | None], ...] = (("F", None), ("R", True))
    for pass_, recomputed in passes:
        count = layer_counts(study, moe=True, recomputed=recomputed)
        if occurs(count) and _takes_time(seconds):
            yield Work(
                name="waiting for token counts",
                cause=HOST,
                seconds=seconds,
                pass_=pass_,
                count=count,
                resource=QUEUE,
            )


def _adapters(study: Study, framework: Framework) -> Iterator[Work]:
    """Yield the launch time of adapters, and of kernels that dequantize the base weights."""
    adapters, captured = study.get(Adapters), graphs(study) == "layer"
    if adapters is None or captured:
        return
    model = study[Training].model
    groups = adapters.groups(gated=model.gated)
    attention = [targets for targets in groups if targets[0] in _ATTENTION]
    each = 0.0 if adapters.base is None else adapters.base.kernels
    both, dropout = layer_counts(study), 1.0 if adapters.dropout else 0.0
    again = layer_counts(study, recomputed=True)
    others = [targets for targets in groups if targets not in attention]
    mlp = 3.0 if model.gated else 2.0
    parts: list[_AdaptedPart] = [_AdaptedPart("attention", attention, both, again, 4.0)]
    if model.experts:
        dense, again_dense, moe, again_moe = (
            layer_counts(study, moe=is_moe, recomputed=on)
            for is_moe in (False, True)
            for on in (None, True)
        )
        one_by_one = adapters.experts == "each" and not groups_experts(study)
        routed = model.experts / study[Layout].ep if one_by_one else 1.0
        shared = 1.0 if model.shared_experts else 0.0
        parts.append(_AdaptedPart("MLP", others, dense, again_dense, mlp))
        parts.append(_AdaptedPart("experts", others, moe, again_moe, 0.0, routed, shared))
    else:
        parts.append(_AdaptedPart("MLP", others, both, again, mlp))
    for part in parts:
        sets, dequantized = part.routed + part.parallel, each * part.matrices
        found = sets * len(part.groups)
        casts = sets * sum((adapter_casts(study, one[0]) for one in part.groups), 0.0)
        rest = found * (ADAPTER_KERNELS + dropout) + casts + dequantized
        joined, forward, backward = _adapter_calls(study, adapters, part)
        passes: list[tuple[Pass, _Launches, Sequence[float]]] = [
            ("F", _Launches(rest + joined, forward), part.every),
            ("R", _Launches(rest + joined, forward), part.rerun),
            ("B", _Launches(rest + joined, backward), part.every),
            ("W", _Launches(found * ADAPTER_WEIGHT_KERNELS), part.every),
        ]
        for pass_, issued, count in passes:
            seconds = (
                _compiled_seconds(issued, framework, 1.0, apart=True)
                if mode(study) == "compiled"
                else _eager_seconds(issued, study)
            )
            yield from _work(study, f"{NAME}, adapters of {part.name}", pass_, seconds, count)


class _AdaptedPart(NamedTuple):
    """A part of a layer with adapters: the layers *every* and *rerun*, and its number of matrices.

    *routed* is the number of sets of matrices, and *parallel* the number that tensor parallelism
    splits.
    """

    name: str
    groups: Sequence[tuple[str, ...]]
    every: Sequence[float]
    rerun: Sequence[float]
    matrices: float
    routed: Real = 0.0
    parallel: float = 1.0


def _adapter_calls(study: Study, adapters: Adapters, part: _AdaptedPart) -> tuple[Real, Real, Real]:
    """Return the copies of gathered columns, and the collectives forward and backward."""
    layout = study[Layout]
    if adapters.split is None:
        return 0.0, 0.0, 0.0
    columns, rows = ADAPTER_CALLS[adapters.split, layout.sequence_parallel]
    if regathers_inputs(study):  # gathered apart, saved as shards and gathered again
        columns = (columns[0] + 1.0, columns[1] + 2.0)
    several = part.parallel * where(layout.tp > 1, 1.0, 0.0)
    beside = [rows if one[0] in ("output", "down") else columns for one in part.groups]
    joined = float(len(beside)) if adapters.split == "both" else 0.0
    forward, backward = (sum((one[i] for one in beside), 0.0) for i in (0, 1))
    return several * joined, several * forward, several * backward


def _ends(study: Study, framework: Framework) -> Iterator[Work]:
    count = map_counts(add, on_first(study), on_last(study))
    passes: list[tuple[Pass, Real, Sequence[float]]] = [
        ("F", framework.outer_kernels, count),
        ("B", _BACKWARD * framework.outer_kernels, count),
    ]
    yield from _eager_work(study, "embedding and head", passes)


def _update(study: Study, framework: Framework) -> Iterator[Once]:
    seconds = _eager_seconds(_Launches(framework.update_kernels), study)
    if _takes_time(seconds):
        yield Once(
            name=f"{NAME}, update",
            cause=HOST,
            seconds=seconds,
            when="end",
            count=layer_counts(study),
            resource=PROCESSOR,
        )


def _eager_seconds(issued: _Launches, study: Study) -> Formula:
    choice, framework = study[KernelChoice], study[Training].framework
    if not choice.launch_blocking or not _is_set(framework.issue):
        return formula(
            "(k + c) tau, k kernels and c collectives",
            k=issued.kernels,
            c=issued.calls,
            tau=(framework.issue, "s"),
            source=SOURCE,
            origins=partial(_seconds_of, framework, tau="issue"),
        )
    return formula(
        "(k + c) (tau + w), k kernels and c collectives, each of which the host waits for",
        k=issued.kernels,
        c=issued.calls,
        tau=(framework.issue, "s"),
        w=(choice.launch_wait, "s"),
        source=SOURCE,
        origins=partial(_origins_of_waits, framework, choice),
    )


def _origins_of_waits(framework: Framework, choice: KernelChoice) -> dict[str, Any]:
    return {**_seconds_of(framework, tau="issue"), **_seconds_of(choice, w="launch_wait")}


def _compiled_seconds(
    issued: _Launches, framework: Framework, parts: float, *, apart: bool
) -> Formula:
    """Return the issue seconds of a compiled layer; weight gradients (*apart*) add no call."""
    symbols = {"tau": "issue"}
    if framework.compiled_issue is not None:
        symbols["u"] = "compiled_issue"
    call: dict[str, Any] = {}
    if not apart:
        symbols["a"], call["a"] = "compiled_call", (framework.compiled_call, "s")
    return formula(
        f"q ({'' if apart else 'a + '}x k u + c tau), q functions, x of k kernels are left and c "
        "collectives",
        call,
        q=parts,
        x=framework.compiled_kernels,
        k=issued.kernels,
        u=(0.0 if framework.compiled_issue is None else framework.compiled_issue, "s"),
        c=issued.calls,
        tau=(framework.issue, "s"),
        source=SOURCE,
        origins=partial(_seconds_of, framework, **symbols),
    )


def _graph_seconds(framework: Framework, parts: float) -> Formula:
    each = 0.0 if framework.graph_issue is None else framework.graph_issue
    return formula(
        "q g, q graphs",
        q=parts,
        g=(each, "s"),
        source=SOURCE,
        origins=partial(
            _seconds_of,
            framework,
            **({} if framework.graph_issue is None else {"g": "graph_issue"}),
        ),
    )


def _seconds_of(block: object, **symbols: str) -> dict[str, Any]:
    """Return the attributes of a *block* by symbol, as the origins of seconds."""
    return {symbol: (attribute(block, name), "s") for symbol, name in symbols.items()}


def _work(
    study: Study, name: str, pass_: Pass, seconds: Formula, count: Sequence[float]
) -> Iterator[Work]:
    """Yield the term unless it is zero; all work of the device can hide it."""
    if occurs(count) and _takes_time(seconds):
        yield Work(
            name=name,
            cause=HOST,
            seconds=seconds,
            pass_=pass_,
            count=count,
            resource=PROCESSOR,
            window=open_window(study, ""),
        )


def _takes_time(seconds: Formula) -> bool:
    """Return whether a term takes time; true for a swept term."""
    return _is_set(seconds.value)


def _is_set(value: Real) -> bool:
    return is_array(value) or bool(value)
