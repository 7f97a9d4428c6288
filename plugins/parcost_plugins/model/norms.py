"""Norms, and the residual stream that they stand on: additions and dropout.

All of it works on every token by itself. So sequence parallelism shards it over the
tensor-parallel group; without, every rank does and keeps the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Formula, Memory, Study, hookimpl
from parcost_plugins.model.rank import MASK, SAVED, rank_of, stream
from parcost_plugins.vocabulary import Parameters, Stream, on_last


@hookimpl
def parameters(study: Study) -> Iterator[Parameters]:
    """Return the gains, and LayerNorm's biases, of two norms per layer and a last one."""
    rank = rank_of(study)
    of_one = rank.model.hidden * (2 if rank.model.norm == "layer" else 1)
    source = "every rank normalises whole tokens"
    yield Parameters(
        name="layer norms",
        elements=2 * of_one,
        total=2 * of_one,
        count=rank.layers,
        replicated=True,
        source=source,
    )
    yield Parameters(
        name="final norm",
        elements=of_one,
        total=of_one,
        count=on_last(study),
        replicated=True,
        place="after",
        source=source,
    )


@hookimpl
def operators(study: Study) -> Iterator[Stream]:
    """Return the norms, and the residual additions with their dropout."""
    rank = rank_of(study)
    twice, again = tuple(2 * n for n in rank.layers), rank.layer_again
    tensor = rank.element * rank.residual
    # A norm reads one tensor and writes one; backward reads its input as well.
    yield from stream("layer norms", 2 * tensor, 3 * tensor, twice, again=again)
    yield from stream("final norm", 2 * tensor, 3 * tensor, on_last(study))
    # Two tensors become one; backward passes the gradient on and reads and writes the sum.
    yield from stream("residual additions", 3 * tensor, 2 * tensor, twice, again=again)
    if rank.training.dropout:
        moved = 2 * tensor + MASK * rank.residual
        yield from stream("residual dropout", moved, moved, twice, again=again)


@hookimpl
def memory(study: Study) -> Iterator[Memory]:
    """Return the inputs of the norms and the dropout masks.

    The input of the first norm of a layer is the layer's: what full recomputation keeps.
    """
    rank = rank_of(study)
    tensor, text, again = rank.element * rank.residual, rank.residual_text, rank.layer_again
    letters = "s b h t e"
    yield rank.saved("layer input", tensor, f"{text} e", letters)
    yield rank.saved("MLP norm input", tensor, f"{text} e", letters, again=again)
    if rank.training.dropout:
        yield rank.saved(
            "residual dropout masks",
            2 * MASK * rank.residual,
            f"2 {text}",
            "s b h t",
            again=again,
        )
    formula = Formula(text=f"{text} e", inputs=rank.inputs(letters), source=SAVED)
    yield rank.kept("final norm input", tensor, formula, on_last(study))
