"""What is said of a step that does not fit, and what would make it fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parcost import Check, Formula, Memory, Study, Work
from parcost.engine.reduce import evaluate
from parcost.engine.rules import diagnose
from parcost_plugins.vocabulary import Parameters, Training

Bind = Callable[..., Study]

GIVEN = Formula(text="given")


def verdict(study: Study) -> Check:
    outcome = evaluate(study)
    asked = study.plugins.ask("outcome_checks", study=study, outcome=outcome)
    (check,) = (check for _, check in asked if check.id == "does-not-fit")
    assert study.faults == []
    return check


def bind_study(bind: Bind, parameters: float, kept: float = 0.0, **values: Any) -> Study:
    """Bind *parameters* at 16 bytes, and activations that *kept* bytes of each sequence."""

    def memory(study: Study) -> list[Memory]:
        bytes_ = kept * study[Training].micro_batch
        return [Memory(name="kept", bytes_=bytes_, formula=GIVEN, per_micro_batch=True)]

    values = {name.replace("__", "."): value for name, value in values.items()}
    return bind(
        {"mixed.gradients": 2, **values},
        parameters=[Parameters(name="all", elements=parameters, total=parameters, count=(1.0,))],
        terms=[
            Work(name="f", seconds=1.0, pass_="F", formula=GIVEN),
            Work(name="b", seconds=2.0, pass_="B", formula=GIVEN),
        ],
        memory=memory,
    )


def test_a_fitting_layout_has_no_diagnostic(bind: Bind) -> None:
    check = verdict(bind_study(bind, 1e9))
    assert check.holds


def test_the_error_of_an_oversized_layout_has_excess_stage_and_moment(bind: Bind) -> None:
    study = bind_study(
        bind, 4 * 2.0**30, kept=8 * 2.0**30, plain__memory=64 * 2**30, memory__usable=0.5
    )
    found = diagnose(verdict(study), study)
    assert found.message == (
        "stage 0 needs 72.0 GiB in forward, and 32.0 GiB are usable: 40.0 GiB too much"
    )
    assert found.notes == ("usable: 50 % of the 64 GiB of `plain`",)


def test_a_sweep_is_judged_point_by_point(bind: Bind) -> None:
    check = verdict(bind_study(bind, 7.5e9, cluster__devices=[1, 8], layout__zero=1))
    assert list(check.holds) == [False, True]  # type: ignore[arg-type]
