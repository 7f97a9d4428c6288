"""Two measures of a schedule: the makespan and the span.

A step ends when the last device ends: the makespan. Without a barrier before the optimizer the next
step fills while this one drains. Then only the span counts: the time from the first to the last
pass of the busiest device. Publications on zero-bubble schedules state the span.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Formula, Outcome, Study, formula, hookimpl
from parcost.numeric import is_array


@hookimpl(specname="figures")
def details(study: Study, outcome: Outcome, brief: bool) -> Iterator[Figure]:
    """Yield the span of the busiest device, from the timeline of a single point."""
    cut = outcome.pipeline
    if brief or study.axes or cut.stages == 1 or is_array(outcome.makespan_seconds):
        return
    devices = outcome.timeline()
    span, ideal = max(ops[-1].end - ops[0].start for ops in devices), outcome.ideal_seconds
    longest = Formula(
        text="maximum over devices of last end - first start, by replay",
        inputs={"schedule": cut.schedule, "m": cut.micro_batches},
        value=span,
    )
    yield Figure(
        name="longest_span",
        title="longest time from the first to the last pass of a device",
        value=longest,
        unit="s",
        note="time of a step without a barrier before the optimizer, including send/recv",
    )
    yield Figure(
        name="span_bubble",
        title="pipeline bubble without a barrier before the optimizer",
        value=formula("span > 0 ? 1 - ideal / span : 0", ideal=(ideal, "s"), span=(longest, "s")),
        unit="%",
        note="idle share of `longest_span`, including send/recv",
    )
