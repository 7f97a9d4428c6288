"""The kernels of element-wise operators, for the implementations of frameworks.

Each kernel reads and writes whole tensors. Its traffic per element is counted in tensors of
activations, tensors of fp32 and masks of a byte. The counts come from the operations of the code. A
fused operator moves only its inputs and outputs, an unfused one also the intermediate tensors.
Kernels with one number per token have negligible traffic, but take issue time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from parcost import Pass, Real, occurs
from parcost_plugins.physics.partition import Counts
from parcost_plugins.physics.passes import COUNTED, LayerSpan
from parcost_plugins.vocabulary import Stream, Training
from parcost_plugins.vocabulary.operators import StepKind, StreamKind

FP32 = 4.0  # bytes of an element in full precision


class Traffic(NamedTuple):
    """The memory traffic per element of the kernels in one pass, and the number of kernels."""

    kernels: Real
    tensors: Real  # elements as wide as activations
    wide: Real = 0.0  # elements in fp32
    masks: float = 0.0  # elements of dropout masks, of a byte each
    kind: StreamKind = "plain"
    steps: Real = 0.0  # elements that are made one by one
    step_kind: StepKind = ""

    def bytes_(self, element: Real) -> Real:
        """Return the bytes moved per element, for activations of *element* bytes."""
        return self.tensors * element + self.wide * FP32 + self.masks


class Passes(NamedTuple):
    """The kernels of the forward pass and of the backward pass."""

    forward: Traffic
    backward: Traffic


#: A norm reads one tensor and writes one. Backward reads it and the gradient and writes one; the
#: gradients of gain and bias are sums over tokens, which a fused kernel gathers on the way (and
#: adds up in a second, small one), and others read both tensors again for.
NORMS: Mapping[str, Passes] = {
    "fused": Passes(Traffic(1, 2), Traffic(2, 3, kind="norm_gradient")),
    "compiled": Passes(Traffic(1, 2), Traffic(2, 5, kind="compiled_norm_gradient")),
    "eager": Passes(
        Traffic(1, 2, kind="eager_norm"), Traffic(2, 5, kind="eager_norm_gradient")
    ),
    # Operator by operator: the input in fp32, its square, their mean, with epsilon, the root, the
    # product, the cast back, times the gain; and the derivative of each, in the other direction,
    # where that of the square copies its input, to the power of 1.
    "composite": Passes(
        Traffic(8, 4, 7, kind="composite"), Traffic(16, 8, 19, kind="composite")
    ),
}  # fmt: skip

#: Of a gated activation: gate and up in, product out; dy, gate and up in, two gradients out.
#: Apart, the activation of the gate and the product are kernels, and three are behind them.
GATED: Mapping[str, Passes] = {
    "fused": Passes(Traffic(1, 3), Traffic(1, 5)),
    "compiled": Passes(Traffic(1, 3), Traffic(1, 5)),
    "eager": Passes(Traffic(2, 5), Traffic(3, 9)),
    # Halves of one tensor are not contiguous, and their gradients are joined in one more kernel.
    "halves": Passes(Traffic(2, 5, kind="halves"), Traffic(4, 13, kind="halves")),
}
#: Those that keep the activated gate, which the product behind it read.
APART = ("eager", "halves")
#: Of one without a gate, which is one kernel unless it is a squared ReLU.
PLAIN = Passes(Traffic(1, 2), Traffic(1, 3))
#: Operator by operator: a ReLU and its square; backward, the derivative of the square copies its
#: input, to the power of 1, then times 2, then times the gradient, which that of the ReLU masks.
SQUARED_RELU: Mapping[str, Passes] = {
    "fused": PLAIN,
    "eager": Passes(Traffic(2, 4), Traffic(4, 10)),
}

#: Of the gate, up and routing weight of an expert's tokens, which change in number: compiled for
#: any number. Behind it a sum over each token is the gradient of its routing weight.
WEIGHED: Mapping[str, Passes] = {
    "traced": Passes(
        Traffic(1, 3, steps=1, step_kind="traced"),
        Traffic(1, 5, steps=2, step_kind="traced_gradient"),
    ),
}
WEIGHED_SUM = Traffic(1, 3)
#: Gate and up are clamped apart and joined; backward compares three times, masks both gradients
#: and joins them. Elements are those of a half.
CLAMPED = Passes(
    Traffic(2, 4, steps=2, step_kind="strided"),
    Traffic(6, 7, masks=8, steps=5, step_kind="strided"),
)
CLAMPED_JOINED = Passes(Traffic(1, 4), Traffic(1, 4))
#: The bias of an expert times the routing weight of each token, added to the expert's output.
#: Backward has a product and a sum for the bias, and one for the weight.
EXPERT_BIAS_PRODUCT = Passes(
    Traffic(1, 1, steps=1, step_kind="strided"),
    Traffic(2, 4, steps=2, step_kind="strided"),
)
EXPERT_BIAS_SUM = Passes(Traffic(1, 3), Traffic(2, 2))
#: Outputs of all experts in one tensor; of backward, their gradients.
EXPERT_BIAS_JOINED = Passes(Traffic(1, 2), Traffic(1, 2))

#: Queries and keys are rotated apart: two of each kernel, on the elements of both.
ROTARY: Mapping[str, Passes] = {
    "fused": Passes(Traffic(2, 2), Traffic(2, 2)),
    "compiled": Passes(Traffic(2, 2), Traffic(2, 2)),
    # Times the cosine; a half is negated, the halves are joined, times the sine; the sum of both.
    "eager": Passes(
        Traffic(10, 10, kind="eager_rotary"), Traffic(10, 10, kind="eager_rotary")
    ),
    # The same, whose halves are slices: the gradient of each is padded with zeros, and both are
    # added up, in an order of its own that is copied back.
    "sliced": Passes(
        Traffic(10, 10, kind="eager_rotary"), Traffic(20, 17, kind="eager_rotary")
    ),
    # A cast to fp32, the product of complex numbers, and a cast back.
    "complex": Passes(
        Traffic(6, 2, 4, kind="complex"), Traffic(6, 2, 4, kind="complex")
    ),
}  # fmt: skip

#: A cast from float32 to the type of activations, and of the gradient on the way back.
CAST = Passes(Traffic(1, 1, 1), Traffic(1, 1, 1))
#: The branch and the stream in, their sum out; of backward, the sum of the gradients of both.
RESIDUAL = Passes(Traffic(1, 3), Traffic(1, 3))
#: Dropout of the branch, with its mask. Fused with the addition, forward adds the mask alone.
DROPOUT: Mapping[str, Passes] = {
    "fused": Passes(Traffic(0, 0, masks=1), Traffic(1, 2, masks=1)),
    "eager": Passes(Traffic(1, 2, masks=1), Traffic(1, 2, masks=1)),
}

#: Softmax over stored scores: fused with their scale and mask, or behind a kernel for each.
SOFTMAX: Mapping[str, Passes] = {
    "fused": Passes(Traffic(1, 2), Traffic(1, 3)),
    "eager": Passes(Traffic(3, 6, kind="eager_softmax"), Traffic(3, 7, kind="eager_softmax")),
}

#: Cross entropy of each logit, by what it keeps.
LOSS: Mapping[str, Passes] = {
    # A cast to fp32; a log-softmax that reads three times and writes, as a row fits in no cache;
    # backward fills a gradient with zeros, reads it twice and the output once, writes, and casts.
    "eager": Passes(Traffic(3, 1, 5), Traffic(4, 1, 6)),
    # On a share of the vocabulary: cast, maximum, difference, exponential, sum and quotient, and a
    # dozen of kernels on a number for each token; backward scales and casts.
    "softmax": Passes(
        Traffic(20, 1, 9, kind="parallel_loss"), Traffic(6, 1, 3, kind="parallel_loss")
    ),
    # Two sums over the logits; backward turns them into their gradient.
    "logits": Passes(Traffic(2, 2), Traffic(1, 2)),
    # Reads the logits for their maximum and sum, reads them again and writes the gradient in their
    # place; backward scales it.
    "gradient": Passes(Traffic(2, 3), Traffic(1, 2)),
}  # fmt: skip

#: A cross entropy of PyTorch under autocast, without backward: a log-softmax that reads three times
#: and writes, a cast of its output to fp32, and the loss of each token.
METRIC = Traffic(3, 5, 1)

#: Scores of the router in fp32: softmax and top-k; or those, masks, scatters and sums apart.
ROUTER: Mapping[str, Passes] = {
    "fused": Passes(Traffic(1, 0, 2), Traffic(1, 0, 3)),
    "eager": Passes(Traffic(12, 0, 6), Traffic(10, 0, 7)),
}


class Fusion(NamedTuple):
    """The implementation of the element-wise operators of a run, as keys of the tables above."""

    norm: str
    activation: str
    squared_relu: str
    rotary: str
    dropout: str
    softmax: str
    router: str
    permutation: str
    loss: str
    separate_projections: bool

    @classmethod
    def from_training(cls, training: Training, mode: str) -> Fusion:
        """Return the fusions of the framework of *training*, for eager or compiled layers."""
        framework = training.framework
        found = cls(*(getattr(framework, name) for name in cls._fields))
        if mode == "compiled":
            # Within a layer a compiler leaves one kernel of each; and of the loss, its logits.
            loss = "logits" if found.loss == "eager" else found.loss
            found = cls(
                norm="compiled",
                activation="compiled",
                squared_relu="fused",
                rotary="compiled",
                dropout="fused",
                softmax="fused",
                router="fused",
                permutation=found.permutation,
                loss=loss,
                separate_projections=found.separate_projections,
            )
        return found if training.loss is None else found._replace(loss=training.loss)


def copies(implementation: str, top_k: Real) -> tuple[Passes, Passes]:
    """Return the passes that copy tokens to experts, and that add up their outputs.

    In fused kernels, a token is read once and each of its *top_k* copies is written, or the
    reverse. In eager code each copy is read and written. The sum starts from zeros, and is read and
    written for each copy: by `scatter_add_` in forward, and as the gradient of an index in
    backward.
    """
    if implementation == "fused":
        one_way = Traffic(1, 1.0 + 1.0 / top_k, kind="permuted")
        return Passes(one_way, one_way), Passes(one_way, one_way)
    spread, moved_ = Traffic(1, 2), 3.0 + 1.0 / top_k
    scattered = Traffic(2, moved_, steps=1, step_kind="scattered")
    indexed = Traffic(2, moved_, steps=1, step_kind="indexed")
    return Passes(spread, indexed), Passes(scattered, spread)


def repetition(times: Real) -> Passes:
    """Return the passes that copy a tensor *times* over, and add up the gradients of the copies."""
    return Passes(Traffic(1, 1.0 + times), Traffic(1, 1.0 + times))


#: A row of the embedding for every token in, a token out.
LOOKUP = Traffic(1, 2)
#: The gradient is read, and the rows that it is added to are read and written.
SCATTER = Traffic(1, 3)
#: Copies that arrive for several experts of a rank, in the order of the experts.
SORTED = Passes(Traffic(1, 2), Traffic(1, 2))
#: A sum of two gradients of the same tensor.
ADDED = Traffic(1, 3)
#: A tensor in, and out in another order or beside others.
COPIED = Traffic(1, 2)
#: The same, and its gradient on the way back.
REORDERED = Passes(COPIED, COPIED)
#: The gradient of a bias: a sum over tokens.
SUMMED = Traffic(1, 1)
#: Zeros, for a gradient that is added to.
FILLED = Traffic(1, 1)


def norm_passes(implementation: str, wide: Real) -> Passes:
    """Return the kernels of a norm whose input is in fp32 where *wide* is 1.

    If every operator is a kernel, a norm with fp32 input needs no casts.
    """
    passes, spared = NORMS[implementation], 2.0 * wide
    if implementation != "composite":
        return passes
    forward, backward = (
        one._replace(
            kernels=one.kernels - spared, tensors=one.tensors - spared, wide=one.wide - spared
        )
        for one in passes
    )
    return Passes(forward, backward)


def residual_passes(wide: Real) -> Passes:
    """Return the kernels of a residual addition to a stream in fp32 where *wide* is 1.

    The gradient of the branch is then cast to the type of activations.
    """
    (forward, backward), narrow = RESIDUAL, 2.0 * wide
    return Passes(
        forward._replace(tensors=forward.tensors - narrow, wide=narrow),
        Traffic(backward.kernels + wide, backward.tensors - narrow, 2.0 * narrow),
    )


def elementwise(
    name: str,
    passes: Passes,
    elements: Real,
    element: Real,
    span: LayerSpan,
    *,
    host: str = "",
    times: Real = 1.0,
) -> Iterator[Stream]:
    """Yield the passes of an operator on *elements* of *element* bytes.

    It runs in *times* parts, each with kernels of its own.
    """
    runs: list[tuple[Pass, Traffic, Counts]] = [
        ("F", passes.forward, span.count),
        ("B", passes.backward, span.count),
    ]
    if occurs(span.reruns):
        runs.append(("R", passes.forward, span.reruns))
    for pass_, traffic, count in runs:
        yield traffic_stream(name, traffic, elements, element, pass_, count, host=host, times=times)


def traffic_stream(
    name: str,
    traffic: Traffic,
    elements: Real,
    element: Real,
    pass_: Pass,
    count: Sequence[float],
    *,
    host: str = "",
    times: Real = 1.0,
) -> Stream:
    """Return one pass of an operator, with its memory traffic."""
    return Stream(
        name=name,
        bytes_=traffic.bytes_(element) * elements,
        kernels=times * traffic.kernels,
        kind=traffic.kind,
        steps=traffic.steps * elements,
        step_kind=traffic.step_kind,
        pass_=pass_,
        count=count,
        host=host,
        source=COUNTED,
    )
