"""Attributes of levels without an effect: all links, or all terms, are the same without them.

For attributes of other blocks, reads are recorded (``used_with`` of :func:`parcost.block`).
Attributes of levels are always read, so the groups of ranks are placed again without each of them.
Only attributes in the study's own file that differ from the default are reported, and no values
with provenance.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import evolve

from parcost import Check, Figure, Group, Real, Study, block_type
from parcost.numeric import any_of
from parcost_plugins.physics.exchange import direct_links, exchange_links, relayed_share
from parcost_plugins.vocabulary import Cluster, Level, ScheduleChoice, Training, Transfer


def rules(study: Study) -> Iterator[Check]:
    """Warn of attributes of levels without which all links are the same, and of ``pairs``."""
    yield from _levels(study)
    choice = study[ScheduleChoice]
    if _is_written(study, choice, "overlap") and not choice.kind.startswith("dualpipe"):
        yield Check(
            id="no-effect",
            holds=False,
            subject="schedule.overlap",
            message="`schedule.overlap` has no effect",
            help="it needs a schedule that runs a forward and a backward pass at once: dualpipe, "
            "dualpipe_v",
            severity="warning",
        )


def term_rules(study: Study) -> Iterator[Check]:
    """Warn of attributes of levels without effect on any term.

    Only for a valid study, as its terms are estimated twice.
    """
    yield from _levels(study, of_terms=True)


#: Attributes of a level that may have no effect on links, and the condition for an effect.
_OF_LEVELS = {
    "efficiency": "a group of ranks that crosses the level",
    "ports": "a group of ranks that crosses the level",
    "collisions": "a group of ranks that crosses the level",
    "oversubscription": "a group that reaches beyond a unit of the level, or beyond a leaf of the "
    "outermost, or leaves its rail",
    "pxn": "a group of several ranks in each node that crosses the rails",
    "routing": "a group of ranks that crosses the level, whose links are fewer than its groups",
    "radix": "a `hop_latency`, or an `oversubscription` of its leaves",
    "hops": "a `hop_latency`",
    "in_network": "an all-reduce that is faster in the switches of the level",
    "hop_latency": "a group of ranks that crosses the level through a switch",
    "cable_latency": "a group of ranks that crosses the level",
}


def _levels(study: Study, *, of_terms: bool = False) -> Iterator[Check]:
    """Warn of attributes of levels without effect on any link, or *of_terms* on any term."""
    cluster: Any = study.get(Cluster)
    training = study.get(Training)
    if cluster is None or training is None:
        return
    transfers = study.all(Transfer)
    names = {t.level for t in transfers}
    alone = not any(t.group == "job" for t in transfers)
    links = None
    for level in cluster.fabric.levels:
        if level.label in names:
            continue
        for attribute, waits_for in _OF_LEVELS.items():
            if not _is_written(study, level, attribute):
                continue
            # A ring on rails may avoid the slower links between rails.
            on_rails = attribute == "oversubscription" and level.kind == "rail"
            if of_terms != (attribute == "in_network" or on_rails):
                continue
            plain = evolve(level, **{attribute: block_type(Level).defaults[attribute]})
            others = tuple(plain if one is level else one for one in cluster.fabric.levels)
            changed = evolve(cluster, fabric=evolve(cluster.fabric, levels=others))
            other = study.with_blocks({Cluster: (changed,)})
            if of_terms:
                same = _are_equal(_times(study), _times(other))
            else:
                links = _links(study, job=not alone) if links is None else links
                same = _are_equal(links, _links(other, job=not alone))
            if same:
                yield Check(
                    id="no-effect",
                    holds=False,
                    subject=f"{level.label}.{attribute}",
                    message="`{attribute}` of level `{level}` has no effect",
                    inputs={
                        "attribute": attribute,
                        "level": level.label,
                        "waits_for": waits_for,
                    },
                    help="it needs {waits_for}",
                    severity="warning",
                )


def _links(study: Study, *, job: bool) -> list[Real]:
    """Return the latencies and bandwidths of all links used by the groups of a study."""
    numbers: list[Real] = []
    for _, group in study.contributions("groups"):
        if group.name != "job" or job:
            numbers += _numbers(group)
    return numbers


def _times(study: Study) -> list[Real]:
    """Return the seconds of all terms and transfers."""
    terms = [term for _, term in study.contributions("terms")]
    figures = [f for _, f in study.contributions("calculations") if isinstance(f, Figure)]
    return [*(getattr(t, "seconds", 0.0) for t in terms), *(f.value for f in figures)]


def _numbers(group: Group) -> Iterator[Real]:
    by_level = zip(
        group.shape,
        group.links,
        group.pairs,
        exchange_links(group),
        direct_links(group),
        strict=True,
    )
    whole = [link for link in (group.flat, group.pair, group.hop) if any_of(group.ranks > 1)]
    crossed = [link for g, *links in by_level if any_of(g > 1) for link in links]
    for link in (*whole, *crossed):
        yield link.latency
        yield link.bandwidth
    yield relayed_share(group)


def _are_equal(these: list[Real], those: list[Real]) -> bool:
    return not any(any_of(a != b) for a, b in zip(these, those, strict=True))


def _is_written(study: Study, block: object, attribute: str) -> bool:
    origin = study.origin(block, attribute)
    if origin is None or origin.how != "given" or origin.kind:
        return False
    return any_of(getattr(block, attribute) != block_type(type(block)).defaults.get(attribute))
