"""Sets of layers per virtual stage, and the operators of their passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from operator import mul, sub
from typing import Literal

from parcost import Pass, Real, map_counts, occurs, record
from parcost_plugins.physics.partition import Counts
from parcost_plugins.vocabulary import Gemm

COUNTED = "counted from the tensors that each operator reads and writes"
SPLIT = "Shoeybi et al. 2019 (Megatron-LM), section 3"


@record(eq=False)
class LayerSpan:
    """A set of layers: their number, and the number of recomputed ones, on each virtual stage.

    *rivals* are recomputed layers of another, larger kind. Only one layer is recomputed at a time.
    If both kinds are on a stage, the tensors of the larger kind count.
    """

    count: Counts
    _again: Counts | Callable[[], Counts]
    _rivals: Counts | Callable[[], Counts] | None = None

    @cached_property
    def reruns(self) -> Counts:
        """The number of recomputed layers on each virtual stage, evaluated on first access."""
        return self._again() if callable(self._again) else self._again

    @property
    def rivals(self) -> Counts | None:
        """The number of recomputed layers of another kind, or None."""
        return self._rivals() if callable(self._rivals) else self._rivals

    def rerun_all(self, wanted: bool = True) -> LayerSpan:
        """Return the same layers, all recomputed if *wanted*."""
        return LayerSpan(self.count, self.count, self._rivals) if wanted else self

    def rerun_none(self, kept: bool = True) -> LayerSpan:
        """Return the same layers, none recomputed if their outputs are *kept*."""
        return single_run(self.count) if kept else self

    def times(self, factor: int) -> LayerSpan:
        """Return the span of a part that occurs *factor* times in each layer."""
        count, again = map_counts(mul, self.count, factor), map_counts(mul, self.reruns, factor)
        return LayerSpan(count, again, self.rivals)

    @cached_property
    def kept_count(self) -> Counts:
        """The number of layers that are not recomputed."""
        return map_counts(sub, self.count, self.reruns)

    @cached_property
    def held_count(self) -> Counts:
        """Return 1 on each stage with a recomputed layer, whose tensors are in memory during
        recomputation, else 0.
        """
        rivals = self.rivals
        if rivals is None:
            return map_counts(_at_most_one, self.reruns)
        return map_counts(_one_without_rivals, self.reruns, rivals)


def linear(
    name: str,
    m: Real,
    n: Real,
    k: Real,
    span: LayerSpan,
    *,
    batch: Real = 1.0,
    load: Real = 1.0,
    role: Literal["linear", "expert", "head", "router", "adapter"] = "linear",
    host: str = "",
    source: str = SPLIT,
    again: Real | None = None,
    trained: bool,
) -> Iterator[Gemm]:
    """Yield the GEMMs of a linear layer with *k* inputs and *n* outputs.

    Forward multiplies *m* tokens by the weights; backward multiplies the gradient of the output by
    the weights and by the input. Communication with the name *host* can overlap with them.
    Recomputation computes *again* of the outputs, or all. *load* is the number of tokens / the mean
    over all ranks. Weights that are not *trained* have no gradient.
    """
    passes: list[tuple[Pass, Real, Real, Real, Counts]] = [
        ("F", m, n, k, span.count),
        ("B", m, k, n, span.count),
    ]
    if trained:
        passes.append(("W", n, k, m, span.count))
    if occurs(span.reruns):
        passes.append(("R", m, n if again is None else again, k, span.reruns))
    for pass_, rows, columns, inner, count in passes:
        yield Gemm(
            name=name,
            m=rows,
            n=columns,
            k=inner,
            pass_=pass_,
            count=count,
            batch=batch,
            load=load,
            host=host,
            role=role,
            source=source,
        )


def single_run(count: Counts) -> LayerSpan:
    """Return the span of a part that is never recomputed, such as parts outside of layers."""
    return LayerSpan(count, map_counts(_zero, count))


def _zero(_: float) -> int:
    return 0


def _at_most_one(n: int) -> int:
    return min(n, 1)


def _one_without_rivals(n: int, rivals: int) -> int:
    return min(n, 1) * (1 - min(rivals, 1))
