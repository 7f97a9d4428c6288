"""Where a step is tight, what may be changed, and what travels to the host: by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from parcost import Formula, Memory, Outcome, Study, Work
from parcost.engine.reduce import evaluate
from parcost.engine.rules import diagnose
from parcost_plugins.memory import figures, fit, offload
from parcost_plugins.schedules.interleaved import Interleaved
from parcost_plugins.vocabulary import Parameters

from ..rows import mark_most, try_each

Bind = Callable[..., Study]

GIVEN = Formula(text="given")
GIB = 2**30


def part(elements: float, count: Sequence[float] = (1.0,)) -> Parameters:
    return Parameters(name="all", elements=elements, total=elements, count=count)


def memory_term(bytes_: Any, count: Any = 1.0, **more: Any) -> Memory:
    name = f"kept {bytes_} {count}"
    return Memory(name=name, bytes_=bytes_, formula=GIVEN, count=count, per_micro_batch=True, **more)  # fmt: skip


# --- Verdicts -----------------------------------------------------------------------------------


def outcome(gibibytes: Any) -> Outcome:
    """Return an outcome of so much memory, on stage 3 in backward."""
    return SimpleNamespace(  # type: ignore[return-value]
        memory_bytes=gibibytes * GIB, memory_device=3, memory_moment="backward"
    )


@try_each(
    "needs, fits, roomy",
    [
        # 100 GiB, of which 80 are usable: it fits up to 76, and is tight up to 86.4.
        (70.0, True, True),
        (76.0, True, True),
        (76.1, True, False),
        (80.1, True, False),
        (86.3, True, False),
        # what does not fit is not tight as well
        (86.5, False, True),
    ],
)
def test_a_step_fits_is_tight_or_is_too_large(
    bind: Bind, needs: float, fits: bool, roomy: bool
) -> None:
    values = {"plain.memory": 100 * GIB, "memory.usable": 0.8, **LIMITS}
    study = bind({**values, "training.global_batch": [8, 16]}, parameters=[part(100)])
    found = {check.id: check for check in fit.outcome_checks(study, outcome(needs))}
    assert (found["does-not-fit"].holds, found["memory-tight"].holds) == (fits, roomy)
    assert fit.capacities(study) == [pytest.approx(86.4 * GIB)]
    assert fit.usable_memory(study) == [80 * GIB]


LIMITS = {"memory.tight": 0.95, "memory.margin": 0.08}


def test_verdicts_say_how_much_of_what(bind: Bind) -> None:
    values = {"plain.memory": 80 * GIB, "memory.usable": 0.95, **LIMITS}
    study = bind({**values, "training.global_batch": [8, 16]}, parameters=[part(100)])
    fits, tight = fit.outcome_checks(study, outcome(100.0))
    found = diagnose(fits, study)
    assert found.message == (
        "stage 3 needs 100.0 GiB in backward, and 76.0 GiB are usable: 24.0 GiB too much"
    )
    assert found.notes == ("usable: 95 % of the 80 GiB of `plain`",)
    _, tight = fit.outcome_checks(study, outcome(79.8))
    assert tight.severity == "warning"
    found = diagnose(tight, study)
    assert found.message == "stage 3 needs 79.8 GiB in backward, 105 % of the 76.0 GiB usable"
    assert found.notes == ("may run out of memory: tight means 95 to 108 % of the usable memory",)


# --- Figures ------------------------------------------------------------------------------------


def values_of(found: Any) -> dict[str, Any]:
    return {figure.name: figure.value for figure in found}


@pytest.mark.parametrize(
    ("values", "alive"),
    mark_most(
        [
            ({"layout.pp": 4, "training.global_batch": 16}, 1),
            ({"layout.pp": 8, "training.global_batch": 2}, 2 / 8),
            ({"layout.pp": 4, "training.global_batch": 16, "schedule.chunks": 2}, 1 + 3 / 8),
        ],
        3,
    ),
)
def test_megatrons_estimate_on_stages(bind: Bind, values: dict[str, Any], alive: float) -> None:
    # 1024 tokens of width 1024: 18 h and 4 f of 4096 a layer, 8 layers; on the first stage 8 B of
    # ids and a byte of mask for each of its micro-batches, as many as there are stages
    if "schedule.chunks" in values:
        values = {**values, "schedule.kind": "interleaved"}
    study = bind(values, schedules=[Interleaved()])
    stages = values["layout.pp"]
    expected = 1024 * (8 * (18 * 1024 + 4 * 4096) + (8 + 1024) * stages) * alive
    (found,) = values_of(figures._estimate(study)).values()
    assert found == pytest.approx(expected, rel=1e-12)


def test_megatrons_estimate_on_one_stage_has_the_logits(bind: Bind) -> None:
    values = {"layout.tp": 2, "training.micro_batch": 4, "training.global_batch": 32}
    study = bind({**values, "layout.vocabulary_multiple": 128})
    # two micro-batches of 4 sequences on one stage: all are alive; 1000 rows are padded to 1024
    tokens = 4 * 1024
    layers = tokens * (8 * (18 * 1024 + 4 * 4096) + 8 + 1024)
    (found,) = values_of(figures._estimate(study)).values()
    assert found == pytest.approx((layers + 4 * tokens * (1024 + 1024)) / 2, rel=1e-12)


def test_what_a_state_weighs_and_how_many_devices_hold_it(bind: Bind) -> None:
    parts = [part(300, (2.0, 3.0)), part(70, (1.0, 0.0))]
    study = bind({"layout.pp": 2, "layout.tp": 2, "plain.memory": 1000.0}, parameters=parts)
    found = values_of(figures._recipe(study))
    assert found["bytes_per_parameter"] == 2 + 4 + 12
    assert found["state_total"] == 18 * (5 * 300 + 70)
    assert found["devices_for_state"] == 29  # 28.26
    # two devices for each of the two stages hold 18 B of each parameter
    assert found["largest_model"] == pytest.approx(1000 * 4 / 18)
    exact = bind({"plain.memory": 1800.0}, parameters=[part(300, (1.0,))])
    assert values_of(figures._recipe(exact))["devices_for_state"] == 3


@pytest.mark.slow
def test_memory_by_kind_and_by_counter(bind: Bind) -> None:
    study = bind(
        {
            "memory.context": 11e9,
            "memory.communicator": 1e9,
            "memory.fragmentation": 0.25,
            "plain.memory": 200e9,
            "layout.tp": 8,
        },
        parameters=[part(1e9)],
        memory=[memory_term(4e9), Memory(name="buffer", bytes_=3e9, formula=GIVEN)],
        terms=[Work(name="f", seconds=1.0, pass_="F", formula=GIVEN)],
    )
    held = evaluate(study)
    found = values_of(figures.details(study, held, brief=False))
    # state of 18 B; activations of 4 GB, a quarter of which is lost between tensors
    assert held.memory_bytes == 18e9 + 4e9 + 1e9 + 3e9 + 12e9
    assert found["state_memory"] == 18e9
    assert found["activation_memory"] == 4e9
    assert found["activation_share"] == 4 / 200
    assert found["other_memory"] == 1e9 + 3e9 + 12e9
    assert found["reserved_memory"] == 26e9
    assert found["allocated_memory"] == 25e9
    assert found["stage_0_memory"] == 38e9


@pytest.mark.slow
def test_activations_of_layers_and_ends(bind: Bind) -> None:
    memory = [
        memory_term(700, (2.0, 5.0)),
        memory_term(30),  # on each stage
        memory_term(11, (0.0, 1.0), tag="ends"),
        Memory(name="passing", bytes_=5000, formula=GIVEN, count=(1.0, 1.0)),
        memory_term(9000, (1.0, 1.0), moments=("backward",)),
    ]
    study = bind({"layout.pp": 2}, parameters=[part(1, (1.0, 1.0))], memory=memory)
    found = values_of(figures._activations(study))
    assert found == {
        "activation_memory_per_layer": (7 * 700 + 2 * 30) / 8,
        "activation_memory_of_layers": 7 * 700 + 2 * 30,
        "activation_memory_of_model": 7 * 700 + 2 * 30 + 11,
    }


@pytest.mark.slow
def test_stages_are_listed_where_there_are_some(bind: Bind) -> None:
    def rows(values: dict[str, Any], stages: int) -> list[tuple[Any, ...]]:
        study = bind(
            {"training.global_batch": 16, **values},
            parameters=[part(1e9, (1.0,) * stages)],
            memory=[memory_term(1e9)],
            schedules=[Interleaved()],
        )
        return [
            (section.columns, *section.rows)
            for section in figures.sections(study, evaluate(study))
        ]  # fmt: skip

    assert rows({}, 1) == []
    assert rows({"layout.pp": 2, "training.global_batch": [8, 16]}, 2) == []
    columns = ("stage", "peak memory", "of the usable", "micro-batches in flight")
    room = {"plain.memory": 100e9, "memory.usable": 0.8}
    (found,) = rows({"layout.pp": 2, **room}, 2)
    assert found[0] == columns
    assert found[1] == (0, (20e9, "GiB"), (20 / 80, "%"), 2)
    assert found[2] == (1, (19e9, "GiB"), (19 / 80, "%"), 1)
    chunks = {"layout.pp": 2, "schedule.kind": "interleaved", "schedule.chunks": 2, **room}
    (found,) = rows(chunks, 4)
    assert found[0] == columns[:3]
    assert [len(row) for row in found[1:]] == [3, 3]


# --- What is on the host ------------------------------------------------------------------------

LINK = {"plain.host_bandwidth": 10.0, "offload.host_memory_bandwidth": 3.0}


def on_host(study: Study) -> Any:
    return offload.host_bytes(study, evaluate(study))


@try_each(
    "values, bytes_",
    [
        ({}, 0),
        ({"offload.optimizer": 0.5}, 0.5 * (12 + 4)),  # with the gradients that it works on
        ({"offload.optimizer": 0.5, "offload.update": "device"}, 0.5 * 12),
        ({"offload.optimizer": 0.5, "layout.zero": 1}, 0.5 * (12 + 4) / 8),
        ({"offload.parameters": 0.5}, 0.5 * 2),
        ({"offload.parameters": 0.5, "layout.zero": 2}, 0.5 * 2),
        ({"offload.parameters": 0.5, "layout.zero": 3}, 0.5 * 2 / 8),
        (
            {
                "local_updates.offload": "on",
                "local_updates.method": "outer",
                "local_updates.workers": 2,
                "local_updates.outer_state": 7,
            },
            7,
        ),
        (
            {
                "local_updates.method": "outer",
                "local_updates.workers": 2,
                "local_updates.outer_state": 7,
            },
            0,
        ),
        (
            {
                "local_updates.offload": "on",
                "local_updates.workers": 2,
                "local_updates.outer_state": 7,
            },
            0,
        ),
        (
            {"offload.optimizer": 0.25, "offload.parameters": 0.5, "layout.zero": 3},
            (0.25 * 16 + 0.5 * 2) / 8,
        ),
    ],
)
def test_state_on_the_host(bind: Bind, values: dict[str, Any], bytes_: float) -> None:
    study = bind({**LINK, **values}, parameters=[part(1000)])
    assert on_host(study) == pytest.approx(1000 * bytes_)


@pytest.mark.slow
def test_activations_on_the_host_are_those_of_the_fullest_stage(bind: Bind) -> None:
    values = {**LINK, "layout.pp": 2, "offload.activations": 0.5, "offload.optimizer": 0.5}
    given = {"training.global_batch": 16, "offload.update": "device", **values}

    def study(counts: tuple[float, float]) -> Study:
        return bind(given, parameters=[part(1000, (1.0, 3.0))], memory=[memory_term(800, counts)])

    # two micro-batches are alive on the first stage; state is 12 B for each parameter
    assert on_host(study((50.0, 1.0))) == 0.5 * (2 * 50 * 800 + 12 * 1000)
    assert on_host(study((1.0, 1.0))) == 0.5 * (800 + 3 * 12 * 1000)


def work(study: Study) -> list[tuple[Any, ...]]:
    return [
        (
            term.name,
            getattr(term, "pass_", "end"),
            term.bytes_,
            term.seconds,
            tuple(np.atleast_1d(term.count)),
            term.resource,
            getattr(term, "window", None),
        )
        for term in offload.terms(study)
    ]


def test_state_that_the_host_updates(bind: Bind) -> None:
    study = bind(
        {**LINK, "offload.optimizer": 0.5, "layout.zero": 1, "mixed.update_traffic": 30},
        parameters=[part(800)],
    )
    # half of an eighth: 50 parameters of which gradients go, weights come, and all is worked on
    assert work(study) == [
        ("gradients to the host", "end", 200, 20, (1,), "host", None),
        ("optimizer update on the host", "end", 1500, 500, (1,), "host memory", None),
        ("updated parameters from the host", "end", 100, 10, (1,), "host", None),
    ]
    study = bind({**LINK, "offload.optimizer": 0.5, "offload.update": "device"}, parameters=[part(800)])  # fmt: skip
    assert work(study) == [
        ("optimizer state from and to the host", "end", 4800, 480, (1,), "host", None)
    ]


@try_each("reshard, passes", [("on", "FB"), ("off", "F")])
@try_each("overlap, window", [("on", ""), ("off", None)])
def test_parameters_come_for_each_gather(
    bind: Bind, reshard: str, passes: str, overlap: str, window: str | None
) -> None:
    values = {"offload.parameters": 0.5, "sharding.reshard": reshard, "offload.overlap": overlap}
    study = bind({**LINK, **values, "layout.zero": 3}, parameters=[part(800)])
    assert work(study) == [
        ("updated parameters to the host", "end", 100, 10, (1,), "host", None),  # by the device
        *(("parameters from the host", pass_, 100, 10, (1,), "host", window) for pass_ in passes),
    ]
    whole = bind({**LINK, **values, "layout.zero": 2}, parameters=[part(800)])
    assert work(whole) == []
    none = bind({**LINK, "layout.zero": 3, "offload.overlap": overlap}, parameters=[part(800)])
    assert work(none) == []


@pytest.mark.parametrize(("overlap", "window"), [("on", ""), ("off", None)])
def test_activations_travel_with_those_of_like_stages(
    bind: Bind, overlap: str, window: str | None
) -> None:
    values = {**LINK, "layout.pp": 4, "offload.activations": 0.5, "offload.overlap": overlap}
    study = bind(values, memory=[memory_term(700, (3.0, 1.0, 1.0, 2.0)), memory_term(700.0, (0.0, 1.0, 1.0, 1.0))])  # fmt: skip
    found = work(study)
    unlike = [(", stages 0, 3", 1050, (1, 0, 0, 1)), (", stages 1 to 2", 700, (0, 1, 1, 0))]
    assert found == [
        (f"{name}{stages}", pass_, bytes_, bytes_ / 10, count, "host", window)
        for stages, bytes_, count in unlike
        for name, pass_ in (("activations to the host", "F"), ("activations back", "B"))
    ]
    alike = bind(values, memory=[memory_term(700)])
    assert [term[:5] for term in work(alike)] == [
        (name, pass_, 350, 35, (1, 1, 1, 1))
        for name, pass_ in (("activations to the host", "F"), ("activations back", "B"))
    ]


def test_a_sweep_sends_the_activations_of_each_of_its_points(bind: Bind) -> None:
    values = {**LINK, "layout.pp": 2, "offload.activations": 0.5}
    study = bind(values, memory=[memory_term(np.array([100.0, 700.0]), (1.0, 3.0))])
    sent = [term for term in work(study) if term[1] == "F"]
    assert [list(term[2]) for term in sent] == [[50, 350], [150, 1050]]
    share = bind({**LINK, "offload.activations": [0, 0.5]}, memory=[memory_term(100)])
    assert [list(term[2]) for term in work(share)] == [[0, 50]] * 2


def failures(study: Study) -> list[str]:
    return sorted(check.id for check in offload.checks(study) if not np.all(check.holds))


@pytest.mark.parametrize(
    ("values", "expected"),
    mark_most([
        ({}, []),
        ({"local_updates.offload": "on"}, ["offload-needs-host-bandwidth"]),
        ({"local_updates.offload": "on", **LINK}, []),
        ({"offload.activations": 0.5, **LINK}, []),
        ({"offload.parameters": 0.5, "layout.zero": 3, **LINK}, []),
        ({"offload.parameters": 0.5, "layout.zero": 2, **LINK}, ["offload-needs-sharding"]),
        ({"offload.optimizer": 0.5, "plain.host_bandwidth": 10.0}, ["offload-needs-host-memory-bandwidth"]),
        ({"offload.optimizer": 0.5, "plain.host_bandwidth": 10.0, "offload.update": "device"}, []),
        ({"plain.host_bandwidth": 10.0}, []),
    ], 4),
)  # fmt: skip
def test_requirements_of_offloading(
    bind: Bind, values: dict[str, Any], expected: list[str]
) -> None:
    assert failures(bind(values, parameters=[part(800)])) == expected
    assert not work(bind({"offload.activations": 0.5}, memory=[memory_term(100)]))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"offload.optimizer": 0.25, "plain.host_bandwidth": 1.0}, "the host updates 25 % of the optimizer state: host memory bandwidth is needed to time the CPU optimizer update"),
        ({"offload.activations": 0.25}, "25 % of the saved activations is offloaded, but the device has no `host_bandwidth`"),
    ],
)  # fmt: skip
def test_insufficient_offload_memory_is_an_error_with_the_share(
    bind: Bind, values: dict[str, Any], message: str
) -> None:
    study = bind(values)
    (check,) = [check for check in offload.checks(study) if not np.all(check.holds)]
    assert diagnose(check, study).message == message


def test_a_host_is_full_at_its_last_byte(bind: Bind) -> None:
    for room, holds in ((8000, True), (7999, False)):
        values = {"offload.optimizer": 0.5, "offload.host_memory": room}
        study = bind({**LINK, **values}, parameters=[part(1000)])
        (check,) = offload.outcome_checks(study, evaluate(study))
        assert check.holds is holds
    study = bind({**LINK, "offload.optimizer": 0.5, "offload.host_memory": 2**30}, parameters=[part(2**28)])  # fmt: skip
    (check,) = offload.outcome_checks(study, evaluate(study))
    assert diagnose(check, study).message == (
        "a device offloads 2.0 GiB, but the host memory has 1.0 GiB per device"
    )


def test_the_share_on_the_host_is_off_the_device(bind: Bind) -> None:
    (found,) = offload.memory(bind({"offload.activations": 0.25, **LINK}))
    assert (found.of_activations, found.bytes_) == (-0.25, 0)
    assert found.formula.inputs["share"][0] == found.of_activations
    assert not list(offload.memory(bind({})))
