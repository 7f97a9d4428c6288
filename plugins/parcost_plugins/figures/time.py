"""How fast the step is, and what of it is not work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from parcost import Figure, Formula, Outcome, Real, Study
from parcost.numeric import ratio
from parcost_plugins.vocabulary import Cluster, Training


def tokens(study: Study) -> Real:
    """Return the tokens of a step, over all replicas."""
    training = study[Training]
    return training.global_batch * training.sequence


def speed(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Yield the step time and the tokens per second."""
    step, devices, trained = outcome.step_seconds, study[Cluster].devices, tokens(study)
    yield Figure(
        name="step_time",
        column=1,
        title="step time",
        value=step,
        unit="s",
        formula=_parts(outcome),
        brief="",
    )
    inputs = {"tokens": (trained, ""), "T": (step, "s")}
    yield Figure(
        name="tokens_per_second",
        column=7,
        title="tokens per second",
        value=ratio(trained, step),
        unit="",
        formula=Formula(text="tokens / T", inputs=inputs),
        brief="",
    )
    yield Figure(
        name="tokens_per_second_per_device",
        title="tokens per second and device",
        value=ratio(trained, step * devices),
        unit="",
        formula=Formula(text="tokens / (T N)", inputs={**inputs, "N": (devices, "")}),
        brief="",
    )


def _parts(outcome: Outcome) -> Formula:
    """Return the step as the sum of the kinds of lines that its ledger has."""
    parts: dict[str, Real] = {}
    for line in outcome.ledger:
        parts[line.kind] = parts.get(line.kind, 0.0) + line.exposed
    inputs = {kind: (seconds, "s") for kind, seconds in parts.items()}
    return Formula(text=" + ".join(parts) or "0", inputs=inputs, source="exposed, by the ledger")


def losses(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Yield how much is bubble, and how much is communication that nothing hides."""
    step, ideal = outcome.step_seconds, outcome.ideal_seconds
    bubble = bubble_seconds(outcome)
    inputs = {"bubble": (bubble, "s"), "ideal": (ideal, "s")}
    yield Figure(
        name="bubble",
        column=4,
        title="pipeline bubble",
        value=ratio(bubble, ideal + bubble),
        unit="%",
        formula=Formula(text="bubble / (ideal + bubble)", inputs=inputs),
        note="idle share of the pipeline's makespan on the busiest device, hops left out",
        brief="idle share of the busiest device",
    )
    if outcome.pipeline.stages > 1:
        yield _average_bubble(outcome, ideal + bubble)
    yield Figure(
        name="bubble_overhead",
        title="pipeline bubble over ideal",
        value=ratio(bubble, ideal),
        unit="%",
        formula=Formula(text="bubble / ideal", inputs=inputs),
        note="the same idle time against the busy time",
    )
    exposed = communication_seconds(study, outcome)
    yield Figure(
        name="exposed_communication",
        column=6,
        title="exposed communication",
        value=ratio(exposed, step),
        unit="%",
        formula=Formula(text="exposed / T", inputs={"exposed": (exposed, "s"), "T": (step, "s")}),
        note="of the step, on the busiest device",
        brief="of the step",
    )


def _average_bubble(outcome: Outcome, makespan: Real) -> Figure:
    busy = outcome.device_seconds
    average = _sum(busy) / len(busy)
    return Figure(
        name="bubble_average",
        title="pipeline bubble, average",
        value=ratio(makespan - average, makespan),
        unit="%",
        formula=Formula(
            text="(makespan - busy) / makespan",
            inputs={"busy": (average, "s"), "makespan": (makespan, "s")},
        ),
        note="the same over all devices: more than the bubble where stages are uneven",
    )


def bubble_seconds(outcome: Outcome) -> Real:
    """Return what the pipeline idles in fill and drain."""
    return _sum(line.exposed for line in outcome.ledger if line.kind == "bubble")


def communication_seconds(study: Study, outcome: Outcome) -> Real:
    """Return the exposed seconds of whatever keeps a link of the fabric busy."""
    links = {link.name for _, group in study.contributions("groups") for link in group.links}
    return _sum(line.exposed for line in outcome.ledger if line.resource in links)


def _sum(seconds: Iterable[Real]) -> Real:
    return sum(seconds, 0.0)
