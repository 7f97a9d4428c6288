"""The goal of a search, from the block ``search``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from parcost import Check, Goal, Limit, Mask, Real, Study
from parcost.numeric import all_of
from parcost_plugins.physics import flops_per_token, memory_limits
from parcost_plugins.physics.partition import layers
from parcost_plugins.search_space.objective import peak_of
from parcost_plugins.search_space.rulebook import RULES
from parcost_plugins.vocabulary import Cluster, Layout, ScheduleChoice, Search, Training


def goal(study: Study) -> Goal:
    """Return the goal of a study."""
    search = study[Search]
    return Goal(
        objective=search.objective,
        axes=[name.strip() for name in search.axes.split(",") if name.strip()],
        limits=list(limits(study)),
        keep=search.top,
        budget_seconds=search.budget,
        subject="search",
        complexity=complexity,
        tolerance=search.tolerance,
    )


def complexity(study: Study) -> Sequence[float]:
    """Return the complexity of a layout: degrees above 1, uneven stages, chunks, ZeRO stage.

    Another kind of parallelism is more effort than another ZeRO stage.
    """
    layout, choice = study[Layout], study[ScheduleChoice]
    degrees = (layout.tp, layout.cp, layout.pp, layout.ep, layout.etp)
    uneven = len(set(layers(study))) > 1
    used = sum(float(degree) > 1.0 for degree in degrees)
    return (used, float(uneven), float(choice.chunks), float(layout.zero))


def limits(study: Study) -> Iterator[Limit]:
    """Yield the limits that the block sets."""
    search, devices = study[Search], study[Cluster].devices
    tokens = study[Training].global_batch * study[Training].sequence
    if search.most_memory is not None:
        yield _limit("most_memory", "memory <= {:g} GiB", search.most_memory, 2.0**30)
    if all_of(search.headroom > 0.0):
        says = f"memory headroom >= {search.headroom * 100.0:g} %"
        most = (1.0 - search.headroom) * memory_limits(study).usable
        yield Limit(name="headroom", says=says, holds=lambda _s, bytes_: bytes_ <= most)
    if search.longest_step is not None:
        yield _limit("longest_step", "step <= {:g} s", search.longest_step)
    if search.most_devices is not None:
        few = devices <= search.most_devices
        says = f"devices <= {search.most_devices:g}"
        yield Limit(name="most_devices", says=says, holds=lambda _s, _b: few)
    if search.least_tokens_per_second is not None:
        longest = tokens / search.least_tokens_per_second
        says = f"tokens per second >= {search.least_tokens_per_second:g}"
        yield Limit(name="least_tokens_per_second", says=says, holds=lambda s, _b: s <= longest)
    if search.deadline is not None and search.tokens is not None:
        yield _deadline(search.deadline, search.tokens, tokens)
    peak = peak_of(study)
    if search.least_mfu is not None and peak is not None:
        slowest = flops_per_token(study) * tokens / (search.least_mfu * devices * peak)
        says = f"MFU >= {search.least_mfu * 100:g} %"
        yield Limit(name="least_mfu", says=says, holds=lambda s, _b: s <= slowest)


def rules(study: Study) -> Iterator[Check]:
    """Require that all inputs of the limits are given."""
    search = study[Search]
    if (search.deadline is None) is not (search.tokens is None):
        lacks = "tokens" if search.tokens is None else "deadline"
        yield RULES.check(
            "deadline-lacks",
            False,
            f"search.{'deadline' if lacks == 'tokens' else 'tokens'}",
            lacks=lacks,
        )


def _limit(name: str, says: str, most: Real, unit: float = 1.0) -> Limit:
    def holds(seconds: Real, bytes_: Real) -> Mask:
        return (bytes_ if name == "most_memory" else seconds) <= most

    return Limit(name=name, says=says.format(most / unit), holds=holds)


def _deadline(deadline: Real, wanted: Real, tokens: Real) -> Limit:
    longest = deadline * tokens / wanted
    says = f"{wanted:.4g} tokens within {deadline / 86400:.4g} days"
    return Limit(name="deadline", says=says, holds=lambda s, _b: s <= longest)
