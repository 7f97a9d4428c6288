"""Pages of ``parcost show`` about placement: ``--ranks`` and ``--stages``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

from parcost import Curve, Diagnostic, Real, Section, SpecError, Study, hookimpl, ops_of
from parcost.numeric import ceil, is_array
from parcost_plugins.physics import layers
from parcost_plugins.topology.decomposition import Decomposition, has_experts
from parcost_plugins.topology.ranks import DEGREES, Ranks
from parcost_plugins.topology.tiers import tiers
from parcost_plugins.vocabulary import Cluster, Layout, ScheduleChoice

_MOST_RANKS = 1_000_000
_MOST_LISTED = 10_000_000  # members of groups, which take some seconds


@hookimpl
def sections(study: Study, name: str, rows: Sequence[int]) -> Iterable[Section]:
    """Return the page called *name*."""
    if name == "ranks":
        return [_ranks(study, rows)]
    if name == "stages":
        return [_stages(study, rows), _fabric(study)]
    return []


def _ranks(study: Study, only: Sequence[int]) -> Section:
    ranks = _ranks_of_job(study)
    wanted = _select_rows(study, only, ranks.count, "rank")
    degrees = [name for name in DEGREES if name in ranks.groups]
    several = [name for name in _group_names(ranks) if ranks.groups[name].shape[1] > 1]
    listed = len(wanted) * sum(ranks.groups[name].shape[1] for name in several)
    if listed > _MOST_LISTED:
        message = f"the groups of {len(wanted):,} ranks list {listed:,} members"
        help = f"at most {_MOST_LISTED:,} are listed; select ranks: `--ranks=0-7`"
        raise SpecError([Diagnostic("show-size", message, help=help, place=study.path)])
    rows = [
        (
            rank,
            *(ranks.coordinate(name, rank) for name in degrees),
            *(int(unit[rank]) for unit in ranks.units.values()),
            *(ranks.members(name, rank) for name in several),
        )
        for rank in wanted
    ]
    return Section(
        title="Process groups of the ranks",
        columns=("rank", *degrees, *ranks.units, *(f"{name} group" for name in several)),
        rows=rows,
        notes=[*_order(study), *_counts(ranks, several), *_levels(study, several)],
    )


def _counts(ranks: Ranks, names: Sequence[str]) -> Iterator[str]:
    """Yield the number of process groups: 8 x 4 x 4 ranks have 16, 32 and 32."""
    if names:
        shapes = [(name, *ranks.groups[name].shape) for name in names]
        each = [f"{count} {name} groups of {members}" for name, count, members in shapes]
        total = sum(count for _, count, _ in shapes)
        yield f"process groups: {', '.join(each)}; {total} in all, each rank is in {len(shapes)}"


def _levels(study: Study, names: Sequence[str]) -> Iterator[str]:
    """Yield the fabric levels crossed by the groups of each name."""
    placed = {group.name: group for _, group in study.contributions("groups")}
    each = []
    for name in names:
        if name in placed:
            joined = zip(placed[name].shape, placed[name].links, strict=True)
            crossed = [link.name for units, link in joined if units > 1]
            each.append(f"{name} over {' and '.join(crossed)}")
    if each:
        yield f"levels over which groups communicate: {', '.join(each)}"


def _group_names(ranks: Ranks) -> Iterator[str]:
    """Yield the names of the groups; groups with equal ranks are listed once."""
    seen: set[bytes] = set()
    for name, members in ranks.groups.items():
        key = repr(members.shape).encode() + members.tobytes()
        if name in DEGREES or key not in seen:
            yield name
        seen.add(key)


def _order(study: Study) -> list[str]:
    layout = study[Layout]
    said = [f"order {layout.order}: neighbouring ranks differ in the first degree"]
    if has_experts(study):
        said.append("experts are cut by etp, ep, edp and pp over the same ranks")
    return said


def _stages(study: Study, only: Sequence[int]) -> Section:
    ranks, layout, choice = _ranks_of_job(study), study[Layout], study[ScheduleChoice]
    held, dealt = _stages_by_device(study), layers(study)
    ends = list(accumulate(dealt))
    group = study.group("pp")
    rows = []
    for stage in _select_rows(study, only, layout.pp, "stage"):
        on = ranks.select(pp=stage)
        replica = ranks.select(pp=stage, dp=0)
        numbers = [n for v in held[stage] for n in range(ends[v] - dealt[v], ends[v])]
        extras = [
            *(["embedding"] if 0 in held[stage] else []),
            *(["head"] if len(dealt) - 1 in held[stage] else []),
        ]
        last = stage == layout.pp - 1
        rows.append(
            (
                stage,
                numbers,
                ", ".join(extras) or "-",
                len(on),
                replica,
                *(ranks.unit(level, replica) for level in ranks.units),
                "-" if last else group.hop_after(stage).name,
            )
        )
    return Section(
        title="Stages of the pipeline",
        columns=(
            "stage",
            "layers",
            "other parts",
            "ranks",
            "ranks of replica 0",
            *ranks.units,
            "next stage over",
        ),
        rows=rows,
        notes=[
            f"schedule {choice.kind}, {sum(dealt)} layers on {len(dealt)} virtual stages",
            *_neighbour_notes(study),
        ],
    )


def _neighbour_notes(study: Study) -> Iterator[str]:
    """Yield how many stage boundaries leave a unit, and whether another order has fewer."""
    layout = study[Layout]
    if layout.pp == 1:
        return
    cut = Decomposition.from_study(study)
    nearest = layout.tp * layout.cp
    for tier in tiers(study[Cluster])[:-1]:
        apart = _boundaries_between_units(cut.dense, layout.pp, tier.capacity)
        close = _boundaries_between_units(nearest, layout.pp, tier.capacity)
        said = f"{apart} of {layout.pp - 1} boundaries between stages lead out of a `{tier.name}`"
        if close < apart:
            said += (
                f'; only {close} with `order = "tp-cp-pp-dp"`, which moves replicas further apart'
            )
        yield said


def _boundaries_between_units(stride: Real, stages: int, capacity: Real) -> int:
    """Return the number of stage boundaries of the first replica that are between units."""
    units = [int(stage * stride // capacity) for stage in range(stages)]
    return sum(here != there for here, there in pairwise(units))


def _stages_by_device(study: Study) -> list[list[int]]:
    """Return the virtual stages of each device, in the schedule."""
    cut = study.pipeline
    _, schedule = study.plugins.offers("schedules")[cut.schedule]
    lists = schedule.order(cut.stages, int(cut.micro_batches), cut.chunks)
    return [sorted({op.stage for entry in entries for op in ops_of(entry)}) for entries in lists]


def _fabric(study: Study) -> Section:
    """Return a drawing of the nested levels, outermost first."""
    found = tiers(study[Cluster])
    rows = []
    for depth, tier in enumerate(reversed(found)):
        level, inner = tier.level, found[len(found) - 2 - depth] if depth < len(found) - 1 else None
        kind = level.kind
        if level.dimensions:
            kind += " " + " x ".join(map(str, level.dimensions))
        rows.append(
            (
                f"{'   ' * (depth - 1)}{'└─ ' if depth else ''}{tier.name}",
                ceil(tier.capacity / tier.below),  # the last one is not full
                inner.name if inner else "device",
                kind,
                tier.ports * tier.below,
                (tier.rate, "B/s"),
                (tier.latency, "s"),
                "measured" if isinstance(level.bandwidth, Curve) else "",
            )
        )
    return Section(
        title="Fabric",
        columns=("level", "units", "unit", "kind", "ports per unit", "port", "latency", ""),
        rows=rows,
        notes=["port: bandwidth that one port achieves, per direction"],
    )


def _ranks_of_job(study: Study) -> Ranks:
    layout, devices = study[Layout], study[Cluster].devices
    if is_array(devices, layout.tp, layout.cp, layout.dp, layout.ep, layout.etp):
        message = "a sweep has several placements"
        help = "choose one value: `--set layout.tp=8`"
        raise SpecError([Diagnostic("show-sweep", message, help=help, place=study.path)])
    if devices > _MOST_RANKS:
        message = f"{devices:,.0f} ranks are too many to list"
        help = f"the limit is {_MOST_RANKS:,}"
        raise SpecError([Diagnostic("show-size", message, help=help, place=study.path)])
    return Ranks.from_study(study)


def _select_rows(study: Study, only: Sequence[int], count: int, what: str) -> Sequence[int]:
    wrong = [number for number in only if not 0 <= number < count]
    if wrong:
        message = f"there is no {what} {wrong[0]}: they are 0 to {count - 1}"
        place = study.path or study.name
        raise SpecError([Diagnostic("show-selection", message, place=place)])
    return only or range(count)
