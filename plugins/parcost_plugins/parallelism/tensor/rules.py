"""Rules of tensor parallelism: divisibility, and requirements of overlap."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Mask, Real, Study
from parcost.numeric import all_of, any_of, ceil_div, minimum, where
from parcost_plugins.parallelism.tensor.rulebook import RULES
from parcost_plugins.physics.context import sequence_step
from parcost_plugins.physics.neighbours import (
    first_failure,
    multiples,
    next_to,
    tensor_degrees,
)
from parcost_plugins.physics.run_choices import tensor_overlap
from parcost_plugins.vocabulary import Layout, Overlap, Training

PADDED_TO = (
    128.0  # rows per rank, Megatron-LM's default: offered to a vocabulary that does not divide
)


def divisibility(study: Study) -> Iterator[Check]:
    """Require that the degree divides heads, MLP and sequence.

    If the query heads fail, KV heads, MLP and sequence are not reported too.
    """
    layout, training = study[Layout], study[Training]
    model, tp = training.model, layout.tp
    heads = model.heads % tp == 0
    copies = minimum(model.kv_heads % tp, tp % model.kv_heads)
    inputs = {"tp": tp, "heads": model.heads, "kv": model.kv_heads, "ffn": model.ffn}
    rules: list[tuple[str, Mask, str]] = [
        ("heads-divide", heads, "{heads} heads are not divisible by tp = {tp}"),
        (
            "kv-heads-divide",
            where(heads, copies, 0.0) == 0,
            "{kv} KV heads are not divisible by tp = {tp}, nor tp by them",
        ),
        (
            "ffn-divide",
            where(heads, model.ffn % tp, 0.0) == 0,
            "an FFN hidden size of {ffn} is not divisible by tp = {tp}",
        ),
    ]
    for id_, holds, message in rules:
        yield Check(
            id=id_,
            holds=holds,
            subject="layout.tp",
            message=message,
            inputs=inputs,
            help="" if all_of(holds) else _nearest_degrees(holds, **inputs),
        )
    step = PADDED_TO * tp
    yield RULES.check(
        "vocabulary-divide",
        model.padded_vocabulary(layout) % tp == 0,
        "layout.tp",
        vocabulary=model.vocabulary,
        tp=tp,
        multiple=PADDED_TO,
        padded=ceil_div(model.vocabulary, step) * step,
    )
    yield from _sequence_rules(study, heads)


def _sequence_rules(study: Study, heads: Mask) -> Iterator[Check]:
    layout, sequence = study[Layout], study[Training].sequence
    if not layout.sequence_parallel:
        return
    tp, cp = layout.tp, layout.cp
    below, above = multiples(sequence_step(study, tp, cp), sequence)
    shares = tp * cp
    named = "tp = {shares}" if all_of(cp == 1) else "tp x cp = {shares}"
    yield Check(
        id="sequence-divide",
        holds=where(heads, sequence % shares, 0.0) == 0,
        subject="training.sequence",
        message="a sequence of {sequence} tokens is not divisible by " + named,
        inputs={
            "sequence": sequence,
            "shares": shares,
            "below": below,
            "above": above,
        },
        help="take {below} or {above} tokens: sequence parallelism gives every rank an equal part",
    )
    yield RULES.check("sequence-parallel-alone", any_of(tp > 1), "layout.sequence_parallel", tp=tp)


def _nearest_degrees(holds: Mask, tp: Real, heads: Real, kv: Real, ffn: Real) -> str:
    """Return the degrees nearest to the first failing one that divide heads and MLP, as text."""
    values = [first_failure(holds, value) for value in (tp, heads, kv, ffn)]
    tp, heads, kv, ffn = values
    found = next_to(tp, tensor_degrees(int(heads), int(kv), int(ffn)))
    return f"nearest legal: tp = {found}" if found else ""


def overlap(study: Study) -> Iterator[Check]:
    """Require that each mode of ``overlap.tensor`` can split its tensors into equal parts."""
    mode, layout, training = tensor_overlap(study), study[Layout], study[Training]
    if mode == "split_batch":
        b = training.micro_batch
        yield RULES.check(
            "split-batch-halves", b % 2 == 0, "training.micro_batch", b=b, above=b + 1
        )
    if mode != "pipelined":
        return
    yield RULES.check("pipelined-needs-shards", layout.sequence_parallel, "overlap.tensor")
    q = study[Overlap].chunks
    tokens = training.sequence * training.micro_batch / layout.cp
    yield RULES.check("chunks-divide", tokens % q == 0, "overlap.chunks", tokens=tokens, q=q)
