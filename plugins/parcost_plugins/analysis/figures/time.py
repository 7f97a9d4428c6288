"""How fast the step is, and what of it is not work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from parcost import Figure, Formula, Outcome, Real, Study, formula
from parcost_plugins.vocabulary import Cluster, Training


def tokens(study: Study) -> Formula:
    """Return the tokens of a step, over all replicas."""
    training = study[Training]
    return formula("batch s", batch=training.global_batch, s=training.sequence)


def exposed_seconds(lines: Iterable[Any]) -> Formula:
    """Return the exposed seconds of some lines of the ledger."""
    seconds: dict[str, Real] = {}
    for line in lines:
        name = f"{line.name}, {line.pass_}" if line.pass_ else line.name
        seconds[name] = seconds.get(name, 0.0) + line.exposed
    return formula("sum(t)", t=(seconds, "s"), source="exposed, by the ledger")


def speed(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Yield the step time and the tokens per second."""
    kinds = dict.fromkeys(str(line.kind) for line in outcome.ledger)
    parts = {
        kind: (exposed_seconds(line for line in outcome.ledger if line.kind == kind), "s")
        for kind in kinds
    }
    step = outcome.step_seconds
    yield Figure(
        name="step_time",
        column=1,
        title="step time",
        value=step,
        unit="s",
        formula=formula(" + ".join(parts) or "0", parts, source="exposed, by the ledger"),
        brief="",
    )
    letters = {"tokens": tokens(study), "T": (step, "s")}
    yield Figure(
        name="tokens_per_second",
        column=7,
        title="tokens per second",
        value=formula("ratio(tokens, T)", letters),
        unit="",
        brief="",
    )
    yield Figure(
        name="tokens_per_second_per_device",
        title="tokens per second and device",
        value=formula("ratio(tokens, T N)", letters, N=study[Cluster].devices),
        unit="",
        brief="",
    )


def losses(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Yield how much is bubble, and how much is communication that nothing hides."""
    bubble = bubble_seconds(outcome)
    letters = {"bubble": (bubble, "s"), "ideal": (outcome.ideal_seconds, "s")}
    yield Figure(
        name="bubble",
        column=4,
        title="pipeline bubble",
        value=formula("ratio(bubble, ideal + bubble)", letters),
        unit="%",
        note="idle share of the pipeline's makespan on the busiest device, hops left out",
        brief="idle share of the busiest device",
    )
    if outcome.pipeline.stages > 1:
        makespan = formula("ideal + bubble", letters)
        yield Figure(
            name="bubble_average",
            title="pipeline bubble, average",
            value=formula(
                "ratio(makespan - sum(busy) / p, makespan)",
                makespan=(makespan, "s"),
                busy=(list(outcome.device_seconds), "s"),
                p=outcome.pipeline.stages,
            ),
            unit="%",
            note="the same over all devices: more than the bubble where stages are uneven",
        )
    yield Figure(
        name="bubble_overhead",
        title="pipeline bubble over ideal",
        value=formula("ratio(bubble, ideal)", letters),
        unit="%",
        note="the same idle time against the busy time",
    )
    yield Figure(
        name="exposed_communication",
        column=6,
        title="exposed communication",
        value=formula(
            "ratio(exposed, T)",
            exposed=(communication_seconds(study, outcome), "s"),
            T=(outcome.step_seconds, "s"),
        ),
        unit="%",
        note="of the step, on the busiest device",
        brief="of the step",
    )


def bubble_seconds(outcome: Outcome) -> Formula:
    """Return what the pipeline idles in fill and drain."""
    return exposed_seconds(line for line in outcome.ledger if line.kind == "bubble")


def communication_seconds(study: Study, outcome: Outcome) -> Formula:
    """Return the exposed seconds of whatever keeps a link of the fabric busy."""
    links = {link.name for _, group in study.contributions("groups") for link in group.links}
    return exposed_seconds(line for line in outcome.ledger if line.resource in links)
