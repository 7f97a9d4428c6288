"""A pair lasts as long as all its messages on one resource, wherever they hide."""

from __future__ import annotations

from parcost import Formula, Work
from parcost.engine.pairs import pair_times
from parcost.engine.stage_costs import load

NOTHING = Formula(text="given", inputs={})


def step(host: float) -> float:
    """Return the seconds of a pair: 10 s of messages in each half, under *host* seconds."""
    works = [
        Work(name=f"{kind} {pass_}", seconds=seconds, pass_=pass_, formula=NOTHING, **rest)
        for pass_ in ("B", "F")
        for kind, seconds, rest in (
            ("compute", host, {"resource": "compute", "host": "kernels"}),
            ("message", 10.0, {"resource": "network", "window": "kernels"}),
        )
    ]
    both = load(works, 0)
    return pair_times(both, both, 1.0).seconds


def test_messages_that_hide_keep_their_link_busy() -> None:
    assert step(0.0) == 20.0  # nothing but messages, one after another
    assert step(10.0) == 20.0  # all of them hidden: the link has 20 s to do all the same
    assert step(30.0) == 60.0


def test_more_work_never_shortens_a_pair() -> None:
    steps = [step(float(host)) for host in range(40)]
    assert steps == sorted(steps)
