"""Costs that a user writes in the spec itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from parcost import Formula, Study, Work
from parcost.engine.reduce import evaluate
from parcost.engine.rules import diagnose, rules

from ..rows import try_each

Bind = Callable[..., Study]


def lines(bind: Bind, text: str, **values: Any) -> dict[str, float]:
    given = [Work(name="f", seconds=1.0, pass_="F", formula=Formula(text="given"))]
    values = {name.replace("__", "."): value for name, value in values.items()}
    study = bind(values, text, terms=given)
    outcome = evaluate(study)
    assert study.faults == []
    times = {line.name: line.exposed for line in outcome.ledger}
    return times | {line.name: line.bytes_ for line in outcome.memory_lines}


def test_a_term_per_step_is_spent_once(bind: Bind) -> None:
    found = lines(bind, "term checkpoint { seconds = 3 s }", training__global_batch=32)
    assert found["checkpoint"] == 3.0


@pytest.mark.slow
def test_a_term_per_micro_batch_is_spent_in_each(bind: Bind) -> None:
    text = "term loader { seconds = 2 ms, per = micro_batch }"
    assert lines(bind, text, training__global_batch=32)["loader"] == pytest.approx(4 * 2e-3)


def test_a_term_per_layer_is_spent_in_every_layer_of_every_micro_batch(bind: Bind) -> None:
    text = "term router { seconds = 1 ms, per = layer, during = backward }"
    found = lines(bind, text, training__global_batch=32)
    assert found["router"] == pytest.approx(4 * 8 * 1e-3)


def test_a_term_stands_on_the_stage_that_it_names(bind: Bind) -> None:
    text = "term hook { seconds = 1 s, memory = 1 GB, per = micro_batch, stage = 3 }"
    study = bind({"layout.pp": 4}, text)
    (time,) = (t for _, t in study.contributions("terms") if t.name == "hook")
    (memory,) = (m for _, m in study.contributions("memory") if m.name == "hook")
    assert list(time.count) == list(memory.count) == [0.0, 0.0, 0.0, 1.0]


def test_a_term_may_be_an_expression_of_the_rest(bind: Bind) -> None:
    text = 'term store { seconds = small.hidden * 1 us, memory = 2 GB, source = "measured" }'
    found = lines(bind, text)
    assert found["store"] == 2e9  # the memory line; the time stands in the ledger
    study = bind({}, text)
    (term,) = (t for _, t in study.contributions("terms") if t.name == "store")
    assert term.seconds == pytest.approx(1024e-6)
    assert term.formula.source == "measured"


def test_a_term_may_keep_a_link_busy_while_the_pipeline_fills(bind: Bind) -> None:
    text = 'term fetch { seconds = 2 s, when = fill, resource = "net" }'
    (term,) = (t for _, t in bind({}, text).contributions("terms") if t.name == "fetch")
    assert (term.when, term.resource) == ("fill", "net")


def test_a_stage_that_there_is_not_is_an_error(bind: Bind) -> None:
    study = bind({"layout.pp": 4}, "term hook { seconds = 1 s, stage = 4 }")
    (check,) = rules(study).failed
    assert diagnose(check, study).message == "there is no stage 4: stages are 0 to 3"


def test_memory_of_a_term_is_held_once_on_every_device(bind: Bind) -> None:
    assert lines(bind, "term cache { memory = 5 GB }") == {"f": 1.0, "cache": 5e9}


@try_each(
    "text, pass_, count",
    [
        ("per = layer", "F", [5, 3]),
        ("per = layer, during = backward, stage = 0", "B", [5, 0]),
        ("per = micro_batch", "F", [1, 1]),
        ("per = micro_batch, during = backward, stage = 1", "B", [0, 1]),
        ("per = step", None, [1, 1]),
        ("per = step, stage = 1", None, [0, 1]),
    ],
)
def test_a_term_counts_by_layers_micro_batches_or_steps(
    bind: Bind, text: str, pass_: str | None, count: list[float]
) -> None:
    values = {"layout.pp": 2, "schedule.stages": [5, 3]}
    study = bind(values, f"term t {{ seconds = 2 s, memory = 3 B, {text} }}\nschedule {{ }}")
    (time,) = (t for _, t in study.contributions("terms") if t.name == "t")
    (memory,) = (m for _, m in study.contributions("memory") if m.name == "t")
    assert (time.seconds, getattr(time, "pass_", None), list(time.count)) == (2, pass_, count)
    assert list(memory.count) == [float(n > 0) for n in count]
    assert memory.once_per_device == ("stage" not in text)


def test_a_term_has_what_it_is_given_or_may_have_in_a_sweep(bind: Bind) -> None:
    def parts(text: str) -> list[str]:
        study = bind({}, f"term t {{ {text} }}")
        return [
            hook
            for hook in ("terms", "memory")
            for _, term in study.contributions(hook)
            if term.name == "t"
        ]

    assert parts("seconds = 1 s") == ["terms"]
    assert parts("memory = 1 B") == ["memory"]
    assert parts("seconds = [0 s, 1 s]") == ["terms"]
    assert parts("memory = [0 B, 1 B], seconds = 0 s") == ["memory"]


def test_the_last_stage_is_one_before_their_number(bind: Bind) -> None:
    for stage, broken in ((0, 0), (3, 0), (4, 1)):
        study = bind({"layout.pp": 4}, f"term hook {{ seconds = 1 s, stage = {stage} }}")
        found = [check.holds for check in rules(study).failed if check.id == "term-stage"]
        assert len(found) == broken
