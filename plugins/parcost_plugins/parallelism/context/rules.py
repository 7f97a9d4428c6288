"""Rules of context parallelism: divisibility, and contradicting attributes."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Mask, Real, Study
from parcost.numeric import all_of, is_array, maximum, where
from parcost_plugins.parallelism.context.exchange import ContextExchange, exchange
from parcost_plugins.vocabulary import Cluster, Context, Layout, Training
from parcost_plugins.vocabulary.attention_reach import writes_scores
from parcost_plugins.vocabulary.context import (
    algorithm,
    sequence_parts,
    sequence_step,
    sink_algorithm,
)
from parcost_plugins.vocabulary.neighbours import (
    divisors,
    divisors_of_both,
    first_failure,
    multiples,
)

_TWO_EACH = ": each of the cp ranks has two, one from either end"


def words(study: Study) -> Iterator[Check]:
    """Reject attributes of another algorithm or model."""
    context, kind = study[Context], algorithm(study)
    yield Check(
        id="ulysses-without-hybrid",
        holds=True if kind == "hybrid" else context.ulysses == 1,
        subject="context.ulysses",
        message="`ulysses = {u}` is the group size of a hybrid, and the algorithm is `{kind}`",
        inputs={"u": context.ulysses, "kind": kind},
        help="`algorithm = hybrid` exchanges within {u} ranks; `algorithm = ulysses` within cp",
    )
    yield Check(
        id="latent-without-mla",
        holds=not context.latent or study[Training].model.is_latent,
        subject="context.latent",
        message="the model has no latent attention: there are no compressed keys and values",
        help="leave `latent` out: whole keys and values are sent",
    )
    yield Check(
        id="latent-under-ulysses",
        holds=not context.latent or kind != "ulysses",
        subject="context.latent",
        message="`ulysses` exchanges whole heads: compressed keys and values cannot be sent",
        help="leave `latent` out, or write `algorithm = ring`, `all_gather` or `hybrid`",
    )


def splits(study: Study) -> Iterator[Check]:
    """Require that sequence, heads and ranks are divisible."""
    found = exchange(study)
    yield Check(
        id="context-needs-fused",
        holds=(not writes_scores(study)) | (found.cp == 1),
        subject="training.flash_attention",
        message="context parallelism (cp = {cp}) needs fused attention, and this attention writes "
        "its scores to memory",
        inputs={"cp": found.cp},
        help="write `training.flash_attention = on` and `kernels.attention = auto`",
    )
    sequence, parts = study[Training].sequence, sequence_parts(study, found.cp)
    step = sequence_step(study, study[Layout].tp, found.cp)
    below, above = multiples(step, sequence)
    yield Check(
        id="context-divides-sequence",
        holds=sequence % parts == 0,
        subject="training.sequence",
        message="a sequence of {sequence} tokens is not divisible by {parts} parts{why}",
        inputs={
            "sequence": sequence,
            "parts": parts,
            "why": "" if all_of(parts <= found.cp) else _TWO_EACH,
            "below": below,
            "above": above,
        },
        help="take {below} or {above} tokens" + _degrees(study, sequence * found.cp / step),
    )
    only = sink_algorithm(study)
    yield Check(
        id="context-with-sinks",
        holds=(found.cp == 1) | (only in (None, found.kind)),
        subject="context.algorithm",
        message="the framework has `{only}` alone for attention with sinks, not `{kind}`",
        inputs={"only": only or "", "kind": found.kind},
        help="write `algorithm = {only}`; for a newer release, `framework.sink_context`",
    )
    if found.kind == "hybrid":
        yield _hybrid(found)
    if found.kind in ("ulysses", "hybrid"):
        yield from _heads(found)


def _hybrid(found: ContextExchange) -> Check:
    u, cp = found.context.ulysses, found.cp
    return Check(
        id="hybrid-degree",
        holds=(cp == 1) | ((cp % u == 0) & (u > 1) & (u < cp)),
        subject="context.ulysses",
        message="`algorithm = hybrid` with cp = {cp} cannot have all-to-all groups of {u} ranks",
        inputs={"cp": cp, "u": u},
        help="write a `ulysses` that divides cp, except 1 (`algorithm = ring`) and cp "
        "(`algorithm = ulysses`)",
    )


def _heads(found: ContextExchange) -> Iterator[Check]:
    """Require that query and KV heads per rank divide; KV heads only where query heads do."""
    u = found.trading
    queries = found.heads % u == 0
    for id_, heads, holds, name in (
        ("ulysses-heads", found.heads, queries, "heads"),
        (
            "ulysses-kv-heads",
            found.kv_heads,
            (found.kv_heads % u == 0) | (queries ^ True),
            "KV heads",
        ),
    ):
        yield Check(
            id=id_,
            holds=holds,
            subject="layout.cp" if found.kind == "ulysses" else "context.ulysses",
            message="{heads} {name} of a tensor-parallel rank are not divisible by the "
            "all-to-all group of {u} ranks (Ulysses)",
            inputs={"heads": heads, "name": name, "u": u},
            help="" if all_of(holds) else _nearest_degrees(holds, heads, u),
        )


def _nearest_degrees(holds: Mask, heads: Real, u: Real) -> str:
    """Return the degrees nearest to the first failing one that divide the heads, as text."""
    degrees = divisors(first_failure(holds, heads), first_failure(holds, u))
    return (
        f"groups of {degrees} ranks divide them; `context.algorithm = ring` has no such limit, and "
        "`hybrid` runs a ring over such groups"
    )


def placement(study: Study) -> Iterator[Check]:
    """Warn if the context-parallel ranks leave their fast domain, with the cost."""
    found, layout = exchange(study), study[Layout]
    group = found.all_ranks
    stays: Mask = True
    for members in group.shape[1:]:
        stays = stays & (members <= 1)
    tp_first: Mask = layout.tp > 1
    holds = stays | (tp_first ^ True)
    if all_of(holds):
        return
    there = study.collective("point_to_point", found.block, group, found.algorithm)
    inside = group.links[0].seconds(1.0, found.block)
    yield Check(
        id="tp-cp-wider-than-fast-domain",
        severity="warning",
        holds=holds,
        subject="layout.cp",
        message="tp {tp} x cp {cp} = {product} ranks reach beyond one `{level}`: sending a block "
        "of "
        "keys and values takes {there:.3g} ms, and would take {inside:.3g} ms inside",
        inputs={
            "tp": layout.tp,
            "cp": layout.cp,
            "product": layout.tp * layout.cp,
            "level": group.links[0].name,
            "there": there.seconds * 1e3,
            "inside": inside * 1e3,
            "n": found.block / 2**20,
            "slower": there.seconds / maximum(inside, 1e-300),
        },
        notes=["a block has {n:.4g} MiB, and takes {slower:.3g} times as long"],
        help="choose degrees whose product divides a `{level}`; a ring hides the messages if "
        "computing "
        "on a block takes longer, which the figure `cp_overlap` shows",
        factor=there.seconds / maximum(inside, 1e-300),
    )


def _degrees(study: Study, shares: Real) -> str:
    """Return the degrees nearest to cp that divide *shares* of the sequence, for a help line.

    They also divide the devices left by tensor and pipeline parallelism.
    """
    layout = study[Layout]
    if is_array(shares, layout.cp, layout.tp):  # of a search or a sweep none is named
        return ""
    room = study[Cluster].devices / (layout.tp * layout.pp)
    near = divisors_of_both(shares, where(room % 1 == 0, room, 0.0), layout.cp)
    return f", or cp = {near}" if near else ""
