"""Device copies of sharded parameters around the collectives.

A framework that gathers many parameters at once copies them out of a receive buffer. The copies
have the type of the all-gather. It also copies gradients into a send buffer, in the type of the
reduction. Both occur in every pass with such a collective. The copies do not overlap with other
memory traffic. For a layer of 1000 parameters in bf16, gathered in bf16 and reduced in fp32:

    copy out    1000 x (2 + 2) bytes in forward, and again in backward
    copy in     1000 x (2 + 4) bytes

A compiled loop over layers copies other tensors from one iteration to the next. These are
prefetched weights, and gradients that are reduced in the next iteration, in the type of the GEMMs:

    copies      1000 x (2 + 2) bytes in forward, and twice that in backward

Frozen parameters have no gradients to copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from parcost import Pass, Real, Study
from parcost.numeric import any_of
from parcost_plugins.parallelism.data.shard_groups import keeps_ends
from parcost_plugins.physics.adapters import gathered_bytes
from parcost_plugins.physics.run_choices import (
    gathers_per_micro_batch,
    reduces_each_micro_batch,
    reshards,
)
from parcost_plugins.physics.stage_parameters import group_by_count, trained_parameters
from parcost_plugins.vocabulary import Parameters, Stream, Training

SOURCE = "the framework's copies out of and into the buffers of its collectives"
LOOP = "openxla/xla pull request 5473: copies of weights against hazards of read after write"


def copies(study: Study) -> Iterator[Stream]:
    """Yield the copies of gathered parameters, and of gradients that are reduced.

    A copy once per step is averaged over its micro-batches.
    """
    framework, precision = study[Training].framework, study[Training].precision
    gathered: list[Pass] = ["F", "B"] if reshards(study) else ["F"]
    out, made = framework.gather_copies, precision.wide_gather
    into, moved = {
        "none": (0.0, 0.0),
        "joined": (1.0, made + precision.reduction),
        "divided": (2.0, 4.0 * made),
    }[framework.reduction_copy]

    often = gathers_per_micro_batch(study)

    def copy_bytes(parameters: Parameters) -> Real:
        return 2.0 * often * out * gathered_bytes(study, parameters)

    if framework.loop_copies:
        yield from _loop_copies(study, gathered)
    # Parameters and micro-batches differ by number of stages: without copies neither is read.
    if any_of(out != 0):
        for pass_ in gathered:
            name, held = "copies of gathered parameters", study.parameters
            if pass_ == "B":
                held = [one for one in held if _is_gathered_again(study, one)]
            yield from _streams(name, held, copy_bytes, often * out, [pass_])
    if not into:
        return
    share = 1.0 if reduces_each_micro_batch(study) else 1.0 / study[Training].micro_batches
    yield from _streams(
        "copies of gradients into the reduction buffer",
        trained_parameters(study),
        lambda _: share * moved,
        share * into,
        ["B"],
    )


def _is_gathered_again(study: Study, parameters: Parameters) -> bool:
    """Return whether backward gathers *parameters* again: layers, and a unit before the layers."""
    return parameters.place == "layer" or (parameters.place == "before" and not keeps_ends(study))


def _loop_copies(study: Study, gathered: Iterable[Pass]) -> Iterator[Stream]:
    """Yield the copies from an iteration to the next: of parameters, and of their gradients."""
    moved = 2.0 * study[Training].precision.wide_gather

    def copy_bytes(parameters: Parameters) -> Real:
        return 2.0 * gathered_bytes(study, parameters)

    layers = [one for one in study.parameters if one.place == "layer"]
    yield from _streams(
        "copies of parameters for the next layer", layers, copy_bytes, 1.0, gathered, LOOP
    )
    trained = [one for one in trained_parameters(study) if one.place == "layer"]
    name = "copies of gradients for the next layer"
    yield from _streams(name, trained, lambda _: moved, 1.0, ["B"], LOOP)


def _streams(
    name: str,
    parameters: Iterable[Parameters],
    each: Callable[[Parameters], Real],
    kernels: Real,
    passes: Iterable[Pass],
    source: str = SOURCE,
) -> Iterator[Stream]:
    """Yield a stream for each group of *parameters* with equal counts per stage, named after the
    first.

    *each* is the bytes moved for a parameter.
    """
    groups = group_by_count(parameters)
    for pass_ in passes:
        for count, group in groups.items():
            yield Stream(
                name=f"{name}: {group[0].name}",
                bytes_=sum((one.elements * each(one) for one in group), start=0.0),
                kernels=kernels,
                pass_=pass_,
                count=count,
                source=source,
            )
