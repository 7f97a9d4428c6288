"""Figures of speed: step time, throughput, and lost time."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Formula, Outcome, Study, attribute, exposed_seconds, formula
from parcost_plugins.vocabulary import Anchor, Cluster, Training
from parcost_plugins.vocabulary.anchor import step_time_note


def tokens(study: Study) -> Formula:
    """Return the tokens of a step, over all replicas."""
    training = study[Training]
    symbols = {
        "batch": attribute(training, "global_batch"),
        "s": attribute(training, "sequence"),
    }
    return formula("batch s", symbols)


def speed(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Yield the step time and the tokens per second."""
    yield Figure(
        name="step_time",
        column=1,
        title="step time",
        value=outcome.step_seconds,
        unit="s",
        formula=outcome.step_formula,
        brief="from the catalogue" if study.all(Anchor) else "",
    )
    symbols = {"tokens": tokens(study), "T": (outcome.step_formula, "s")}
    yield Figure(
        name="tokens_per_second",
        column=7,
        title="tokens/s",
        value=formula("ratio(tokens, T)", symbols),
        unit="",
        note=step_time_note(study),
        brief=step_time_note(study),
    )
    yield Figure(
        name="tokens_per_second_per_device",
        title="tokens/s per device",
        value=formula("ratio(tokens, T N)", symbols, N=attribute(study[Cluster], "devices")),
        unit="",
        note=step_time_note(study),
        brief=step_time_note(study),
    )


def losses(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Yield the pipeline bubble and the exposed communication."""
    bubble = bubble_seconds(outcome)
    symbols = {"bubble": (bubble, "s"), "ideal": (outcome.ideal_seconds, "s")}
    yield Figure(
        name="bubble",
        column=4,
        title="pipeline bubble",
        value=formula("ratio(idle, T)", idle=(bubble, "s"), T=(outcome.step_formula, "s")),
        unit="%",
        note="of the step, on the busiest device",
        brief="of the step",
    )
    yield Figure(
        name="bubble_of_makespan",
        title="bubble of the pipeline's makespan",
        value=formula("ratio(bubble, ideal + bubble)", symbols),
        unit="%",
        note="on the busiest device, excluding pipeline send/recv; equal stages have "
        "(p - 1) / (v m + p - 1) with v chunks",
        detail=True,
    )
    if outcome.pipeline.stages > 1:
        makespan = formula("ideal + bubble", symbols)
        yield Figure(
            name="bubble_average",
            title="mean idle share of the pipeline's makespan",
            value=formula(
                "ratio(makespan - sum(busy) / p, makespan)",
                makespan=(makespan, "s"),
                busy=(list(outcome.device_seconds), "s"),
                p=outcome.pipeline.stages,
            ),
            unit="%",
            note="mean over devices; with uneven stages it exceeds the bubble",
        )
    yield Figure(
        name="bubble_overhead",
        title="bubble / ideal pipeline time",
        value=formula("ratio(bubble, ideal)", symbols),
        unit="%",
        note="idle time / busy time of the busiest device",
    )
    yield Figure(
        name="exposed_communication",
        column=6,
        title="exposed communication",
        value=formula(
            "ratio(exposed, T)",
            exposed=(communication_seconds(study, outcome), "s"),
            T=(outcome.step_formula, "s"),
        ),
        unit="%",
        note="of the step, on the busiest device, excluding compute slowdown",
        brief="of the step, excluding compute slowdown",
    )


def bubble_seconds(outcome: Outcome) -> Formula:
    """Return the seconds that the pipeline idles in fill and drain."""
    return exposed_seconds(line for line in outcome.ledger if line.kind == "bubble")


def communication_seconds(study: Study, outcome: Outcome) -> Formula:
    """Return the exposed seconds of all terms on links of the fabric."""
    links = {link.name for _, group in study.contributions("groups") for link in group.links}
    return exposed_seconds(line for line in outcome.ledger if line.resource in links)
