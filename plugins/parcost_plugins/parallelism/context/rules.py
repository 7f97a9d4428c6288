"""Rules of context parallelism: divisibility, and contradicting attributes."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Mask, Real, Study
from parcost.numeric import all_of, is_array, maximum, where
from parcost_plugins.parallelism.context.exchange import ContextExchange, exchange
from parcost_plugins.parallelism.context.rulebook import RULES
from parcost_plugins.physics.attention_mask import writes_scores
from parcost_plugins.physics.context import (
    algorithm,
    sequence_parts,
    sequence_step,
    sink_algorithm,
    window_algorithm,
)
from parcost_plugins.physics.neighbours import (
    divisors,
    divisors_of_both,
    first_failure,
    multiples,
)
from parcost_plugins.vocabulary import Cluster, Context, Layout, Training

_TWO_EACH = ": each of the cp ranks has two parts, one from either end"


def words(study: Study) -> Iterator[Check]:
    """Reject attributes that have an effect only with another algorithm or model."""
    context, kind = study[Context], algorithm(study)
    yield RULES.check(
        "ulysses-without-hybrid",
        True if kind == "hybrid" else context.ulysses == 1,
        "context.ulysses",
        u=context.ulysses,
        kind=kind,
    )
    yield RULES.check(
        "latent-without-mla",
        not context.latent or study[Training].model.is_latent,
        "context.latent",
    )
    yield RULES.check(
        "latent-under-ulysses", not context.latent or kind != "ulysses", "context.latent"
    )


def splits(study: Study) -> Iterator[Check]:
    """Require that sequence, heads and ranks are divisible."""
    found = exchange(study)
    yield RULES.check(
        "context-needs-fused",
        (not writes_scores(study)) | (found.cp == 1),
        "training.flash_attention",
        cp=found.cp,
    )
    sequence, parts = study[Training].sequence, sequence_parts(study, found.cp)
    step = sequence_step(study, study[Layout].tp, found.cp)
    below, above = multiples(step, sequence)
    yield RULES.check(
        "context-divides-sequence",
        sequence % parts == 0,
        "training.sequence",
        help="take {below} or {above} tokens" + _degrees(study, sequence * found.cp / step),
        sequence=sequence,
        parts=parts,
        why="" if all_of(parts <= found.cp) else _TWO_EACH,
        below=below,
        above=above,
    )
    only = sink_algorithm(study)
    yield RULES.check(
        "context-with-sinks",
        (found.cp == 1) | (only in (None, found.kind)),
        "context.algorithm",
        only=only or "",
        kind=found.kind,
    )
    instead = window_algorithm(study)
    yield RULES.check(
        "context-with-windows",
        (found.cp == 1) | (instead is None or found.kind not in ("ring", "hybrid")),
        "context.algorithm",
        instead=instead or "",
        kind=found.kind,
    )
    if found.kind == "hybrid":
        yield _hybrid(found)
    if found.kind in ("ulysses", "hybrid"):
        yield from _heads(found)


def _hybrid(found: ContextExchange) -> Check:
    u, cp = found.context.ulysses, found.cp
    return RULES.check(
        "hybrid-degree",
        (cp == 1) | ((cp % u == 0) & (u > 1) & (u < cp)),
        "context.ulysses",
        cp=cp,
        u=u,
    )


def _heads(found: ContextExchange) -> Iterator[Check]:
    """Require that cp divides the query and KV heads of a rank; KV heads are checked only if query
    heads divide.
    """
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
        f"groups of {degrees} ranks are possible; `context.algorithm = ring` has no such limit, "
        "and "
        "`hybrid` runs a ring over such groups"
    )


def placement(study: Study) -> Iterator[Check]:
    """Warn if context-parallel groups extend beyond the fast domain, with the additional time."""
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
    yield RULES.check(
        "tp-cp-wider-than-fast-domain",
        holds,
        "layout.cp",
        notes=["a block has {n:.4g} MiB, and takes {slower:.3g} times as long"],
        factor=there.seconds / maximum(inside, 1e-300),
        reads=["layout.tp", "layout.cp"],
        tp=layout.tp,
        cp=layout.cp,
        product=layout.tp * layout.cp,
        level=group.links[0].name,
        there=there.seconds * 1e3,
        inside=inside * 1e3,
        n=found.block / 2**20,
        slower=there.seconds / maximum(inside, 1e-300),
    )


def _degrees(study: Study, shares: Real) -> str:
    """Return the degrees nearest to cp that divide the sequence into *shares*, for a help line.

    They also divide the devices left by tensor and pipeline parallelism.
    """
    layout = study[Layout]
    if is_array(shares, layout.cp, layout.tp):  # of a search or a sweep none is named
        return ""
    room = study[Cluster].devices / (layout.tp * layout.pp)
    near = divisors_of_both(shares, where(room % 1 == 0, room, 0.0), layout.cp)
    return f", or cp = {near}" if near else ""
