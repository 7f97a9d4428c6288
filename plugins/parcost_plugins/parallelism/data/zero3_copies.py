"""Device copies of sharded parameters around the collectives.

A framework that gathers many parameters at once copies them out of a receive buffer. It also copies
gradients into a send buffer. Both occur in every pass with such a collective. No other kernel uses
the memory of the device during the copy.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Pass, Real, Study
from parcost_plugins.vocabulary import Stream, Training
from parcost_plugins.vocabulary.run_choices import reduces_each_micro_batch, reshards

SOURCE = "the framework's copies out of and into the buffers of its collectives"


def copies(study: Study) -> Iterator[Stream]:
    """Yield the copies of gathered parameters, and of gradients that are reduced.

    Gradients that are reduced once per step are spread over its micro-batches.
    """
    framework = study[Training].framework
    gathered: list[Pass] = ["F", "B"] if reshards(study) else ["F"]
    share = 1.0 if reduces_each_micro_batch(study) else 1.0 / study[Training].micro_batches
    kinds: tuple[tuple[str, Real, Real, list[Pass]], ...] = (
        ("copies of gathered parameters", framework.gather_copy, 1.0, gathered),
        ("copies of gradients to be reduced", framework.reduction_copy, share, ["B"]),
    )
    for name, each, times, passes in kinds:
        if isinstance(each, float) and each == 0.0:
            continue
        for pass_ in passes:
            for held, count, elements in _elements_by_count(study):
                yield Stream(
                    name=f"{name}: {held}",
                    bytes_=times * each * elements,
                    kernels=times,
                    pass_=pass_,
                    count=count,
                    source=SOURCE,
                )


def _elements_by_count(study: Study) -> Iterator[tuple[str, tuple[float, ...], Real]]:
    """Yield groups of parameters with equal counts per stage: name, counts, elements on a rank.

    The name is the name of the first tensor.
    """
    held: dict[tuple[float, ...], tuple[str, Real]] = {}
    for parameters in study.parameters:
        count = tuple(float(n) for n in parameters.count)
        name, elements = held.get(count, (parameters.name, 0.0))
        held[count] = name, elements + parameters.elements
    for count, (name, elements) in held.items():
        yield name, count, elements
