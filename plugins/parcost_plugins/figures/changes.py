"""What a faster part does to the whole: Amdahl's law, in both directions."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Study
from parcost_plugins.figures.naming import figures_of
from parcost_plugins.figures.ratio import ratio
from parcost_plugins.vocabulary import Change


def changes(study: Study) -> Iterator[Figure]:
    """Yield the figures of every ``change`` block."""
    for change in study.all(Change):
        say = figures_of(change)
        times = {"a": (change.before, "s"), "b": (change.after, "s")}
        saved = 1.0 - change.after / change.before
        yield say(
            "speedup", "speed-up of the part", change.before / change.after, "", "a / b", **times
        )
        yield say("saved", "share of the part that is saved", saved, "%", "1 - b / a", **times)
        if change.share is not None:
            step = 1.0 - change.share * saved
            inputs = {"x": (change.share, ""), **times}
            yield say(
                "step_gain",
                "throughput gained",
                1.0 / step - 1.0,
                "%",
                "1 / (1 - x (1 - b / a)) - 1",
                **inputs,
            )
        if change.gain is not None:
            inputs = {"g": (change.gain, ""), **times}
            yield say(
                "implied_share",
                "share of the step that the part must have been",
                ratio(1.0 - 1.0 / (1.0 + change.gain), saved),
                "%",
                "(1 - 1 / (1 + g)) / (1 - b / a)",
                **inputs,
            )
