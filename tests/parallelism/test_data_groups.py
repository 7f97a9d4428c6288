"""Who reduces with whom: context-parallel ranks, experts, shards within a job, workers apart.

The plain study's link does 1 GB/s without latency: a ring of P ranks reduce-scatters n
bytes in (P - 1) / P n / 1e9 seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from parcost import Formula, Study, Work
from parcost.engine.reduce import evaluate
from parcost.engine.rules import diagnose
from parcost.language.diagnostics import Severity
from parcost_plugins.parallelism.data.shard_groups import _groups
from parcost_plugins.vocabulary import Layout, LocalUpdates, Parameters, Sharding

from ..rows import try_each

Bind = Callable[..., Study]

NODES = """
fabric nodes {
  level node { size = 2 devices, bandwidth = 10 GB/s per_direction, latency = 0 s }
  level net { bandwidth = 1 GB/s per_direction, latency = 0 s }
}
"""
HYBRID = {"sharding.shard": 2, "cluster.devices": 8}
GIVEN = Formula(text="given")


def parameters_record(
    elements: float, count: Sequence[float] = (1.0,), place: Any = "layer", expert: bool = False
) -> Parameters:
    return Parameters(
        name=f"{place} {count} {expert}",
        elements=elements,
        total=elements,
        count=count,
        place=place,
        expert=expert,
    )


def ours(study: Study) -> dict[str, Any]:
    found = [term for plugin, term in study.contributions("terms") if ".data" in plugin.name]
    assert study.faults == []
    return {f"{term.name} {getattr(term, 'pass_', '')}".strip(): term for term in found}


def failures(study: Study) -> dict[str, Any]:
    checks = [check for _, check in study.contributions("checks")]
    assert study.faults == []
    return {check.id: check for check in checks if not np.all(check.holds)}


def nodes(bind: Bind, values: dict[str, Any], **more: Any) -> Study:
    return bind({"cluster.fabric": "nodes", **values}, text=NODES, **more)


# --- context-parallel ranks and experts ---------------------------------------------------


def test_context_parallel_ranks_reduce_gradients_with_the_replicas(bind: Bind) -> None:
    # cp 2 x dp 4 hold the same: 2 x 7/8 x 4 GB
    study = bind({"layout.cp": 2}, parameters=[parameters_record(1e9)])
    assert ours(study)["gradient all-reduce"].seconds == pytest.approx(2 * 7 / 8 * 4)


def test_experts_reduce_over_the_ranks_that_hold_the_same_ones(bind: Bind) -> None:
    # dp 8 with ep 4: two ranks hold the same experts, eight the same of all else.
    study = bind(
        {"layout.ep": 4}, parameters=[parameters_record(1e9), parameters_record(2e9, expert=True)]
    )
    found = ours(study)
    assert found["gradient all-reduce"].seconds == pytest.approx(2 * 7 / 8 * 4)
    assert found["gradient all-reduce of experts"].seconds == pytest.approx(2 * 1 / 2 * 8)


def test_experts_are_sharded_over_their_own_replicas(bind: Bind) -> None:
    values = {"layout.ep": 4, "layout.zero": 1}
    study = bind(values, parameters=[parameters_record(1e9), parameters_record(2e9, expert=True)])
    lines = {line.name: line.bytes_ for line in evaluate(study).memory_lines}
    assert lines["optimizer state"] == pytest.approx(12e9 / 8)
    assert lines["optimizer state of experts"] == pytest.approx(24e9 / 2)
    update = {t.name: t.bytes_ for _, t in study.contributions("terms")}
    assert update["optimizer update"] == pytest.approx(30e9 / 8)
    assert update["optimizer update of experts"] == pytest.approx(60e9 / 2)


def test_stages_without_experts_have_none_to_reduce(bind: Bind) -> None:
    study = bind(
        {"layout.pp": 2, "layout.ep": 2},
        parameters=[
            parameters_record(1e6, (4.0, 4.0)),
            parameters_record(1e6, (0.0, 4.0), expert=True),
        ],
    )
    assert {n: list(t.count) for n, t in ours(study).items() if "experts" in n} == {
        "gradient all-reduce of experts, stage 1": [0.0, 1.0]
    }


# --- hybrid sharding ----------------------------------------------------------------------


def test_shards_within_a_node_reduce_inside_and_their_shares_across(bind: Bind) -> None:
    # Two ranks of a node share out 4 GB at 10 GB/s; of each half, four nodes add up 2 GB.
    study = nodes(bind, {**HYBRID, "layout.zero": 1}, parameters=[parameters_record(1e9)])
    found = ours(study)
    inside = found["gradient reduce-scatter"]
    assert (inside.resource, inside.seconds) == ("node", pytest.approx(1 / 2 * 4e9 / 10e9))
    across = found["all-reduce of gradient shards"]
    assert (across.resource, across.bytes_) == ("net", pytest.approx(2e9))
    assert across.seconds == pytest.approx(2 * 3 / 4 * 2)
    gather = found["parameter all-gather"]
    assert (gather.resource, gather.seconds) == ("node", pytest.approx(1 / 2 * 2e9 / 10e9))


@try_each("often, times", [("step", 1), ("micro_batch", 3)])
@try_each("zero", [2, 3])
def test_shares_cross_once_per_step_or_with_every_micro_batch(
    bind: Bind, zero: int, often: str, times: int
) -> None:
    values = {**HYBRID, "layout.zero": zero, "sharding.replicate": often}
    values["training.global_batch"] = 24  # three micro-batches on eight ranks
    study = nodes(bind, values, parameters=[parameters_record(1e8, (8.0,))])
    net = [line for line in evaluate(study).ledger if line.resource == "net"]
    seconds = sum(line.exposed + line.hidden for line in net if "norm" not in line.name)
    assert seconds == pytest.approx(times * 2 * 3 / 4 * 8e8 * 4 / 2 / 1e9)


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_shares_of_a_single_micro_batch_cross_alike_either_way(bind: Bind, zero: int) -> None:
    """Once in a step and once in a micro-batch are the same where a step has one."""
    parameters = [
        parameters_record(1e8, (8.0,)),
        parameters_record(3e8, place="before"),
        parameters_record(2e8, place="after"),
    ]
    backward = Work(name="w", seconds=9.0, pass_="W", formula=GIVEN)
    found = []
    for often in ("step", "micro_batch"):
        values = {**HYBRID, "layout.zero": zero, "sharding.replicate": often}
        values |= {"overlap.gradients": "on", "training.global_batch": 8}
        found.append(evaluate(nodes(bind, values, parameters=parameters, terms=[backward])))
    step, every = found
    assert step.step_seconds == pytest.approx(every.step_seconds, rel=1e-12)
    assert sum(line.hidden for line in step.ledger if line.resource == "net") > 0


@pytest.mark.slow
def test_hybrid_sharding_holds_a_share_of_its_own_group(bind: Bind) -> None:
    study = nodes(bind, {**HYBRID, "layout.zero": 3}, parameters=[parameters_record(1e9, (8.0,))])
    lines = {line.name: line.bytes_ for line in evaluate(study).memory_lines}
    assert lines["weights"] == pytest.approx(8e9 * 2 / 2)
    assert lines["optimizer state"] == pytest.approx(8e9 * 12 / 2)


def test_a_shard_over_all_ranks_is_no_hybrid(bind: Bind) -> None:
    whole = bind(
        {"sharding.shard": 8, "layout.zero": 3}, parameters=[parameters_record(1e9, (8.0,))]
    )
    plain = bind({"layout.zero": 3}, parameters=[parameters_record(1e9, (8.0,))])
    assert evaluate(whole).step_seconds == evaluate(plain).step_seconds
    assert not any("shard" in name for name in ours(whole))


@pytest.mark.slow
@pytest.mark.parametrize("zero", [1, 2, 3])
def test_a_sweep_over_shards_gives_what_each_gives_alone(bind: Bind, zero: int) -> None:
    def study(shard: Any) -> Study:
        values = {"sharding.shard": shard, "layout.zero": zero}
        return nodes(bind, values, parameters=[parameters_record(1e8, (8.0,))])

    together = evaluate(study([1, 2, 4, 8]))
    alone = [evaluate(study(shard)) for shard in (1, 2, 4, 8)]
    np.testing.assert_allclose(together.step_seconds, [o.step_seconds for o in alone], rtol=1e-12)
    np.testing.assert_allclose(together.memory_bytes, [o.memory_bytes for o in alone], rtol=1e-12)


def test_a_shard_that_does_not_divide_names_those_that_do(bind: Bind) -> None:
    study = bind({"sharding.shard": 3, "layout.zero": 1}, parameters=[parameters_record(1e9)])
    found = diagnose(failures(study)["shard-divides"], study)
    assert found.message == (
        "shards of 3 ranks do not divide the 8 ranks (dp 8 x cp 1) that hold the same parameters"
    )
    assert found.help == "shard over 2 or 4 ranks"


def test_a_shard_without_zero_shards_nothing(bind: Bind) -> None:
    study = bind({"sharding.shard": 2}, parameters=[parameters_record(1e9)])
    assert "shard-without-zero" in failures(study)


def test_a_shard_with_expert_parallelism_is_an_error(bind: Bind) -> None:
    study = bind(
        {"sharding.shard": 2, "layout.zero": 1, "layout.ep": 2},
        parameters=[parameters_record(1e9), parameters_record(1e9, expert=True)],
    )
    assert "shard-of-experts" in failures(study)


@pytest.mark.parametrize(
    "values",
    [
        {"sharding.reshard": "off"},
        {"sharding.keep_last": "on"},
        {"sharding.accumulate": "whole", "layout.zero": 1},
    ],
)
def test_choices_that_change_nothing_are_warned_of(bind: Bind, values: dict[str, Any]) -> None:
    check = failures(bind(values, parameters=[parameters_record(1e9)]))["sharding-unused"]
    assert check.severity == "warning"


@pytest.mark.parametrize("zero", [2, 3])
def test_gradients_that_are_sharded_may_be_kept_whole(bind: Bind, zero: int) -> None:
    values = {"sharding.accumulate": "whole", "layout.zero": zero}
    assert "sharding-unused" not in failures(bind(values, parameters=[parameters_record(1e9)]))


# --- when gradients are reduced, and what stays gathered ----------------------------------


def fsdp(bind: Bind, **more: Any) -> Study:
    """Bind ten layers of 5 s forward and 10 s backward, gathers and reductions of 3 s."""
    values = {name.replace("__", "."): value for name, value in more.items()}
    values = {
        "cluster.devices": 2,
        "training.global_batch": 2,
        "layout.zero": 3,
        "mixed.reduction": 2,
        "small.layers": 10,
        "overlap.gradients": "on",
        "overlap.parameters": "on",
        **values,
    }
    terms = [
        Work(name="F", seconds=5.0, pass_="F", formula=GIVEN, count=(10.0,)),
        Work(name="B", seconds=5.0, pass_="B", formula=GIVEN, count=(10.0,)),
        Work(name="W", seconds=5.0, pass_="W", formula=GIVEN, count=(10.0,), host="weights"),
    ]
    return bind(values, parameters=[parameters_record(3e9, (10.0,))], terms=terms)


def step(study: Study) -> float:
    lines = evaluate(study).ledger
    assert study.faults == []
    return float(sum(line.exposed for line in lines if not line.name.startswith("optimizer")))


def test_keeping_the_last_layer_saves_its_gather(bind: Bind) -> None:
    assert step(fsdp(bind)) == pytest.approx(159)
    assert step(fsdp(bind, sharding__keep_last="on")) == pytest.approx(156)


def test_parameters_kept_from_forward_are_not_gathered_again(bind: Bind) -> None:
    # forward as before, 3 + 50; backward 100 and the last reduction
    kept = fsdp(bind, sharding__reshard="off")
    assert step(kept) == pytest.approx(53 + 103)
    assert not any(name.endswith("all-gather B") for name in ours(kept))
    lines = {line.name: line.bytes_ for line in evaluate(kept).memory_lines}
    assert lines["gathered layers"] == 10 * 3e9 * 2


def test_without_prefetch_every_gather_of_backward_shows(bind: Bind) -> None:
    study = fsdp(bind, sharding__prefetch=0)
    # forward as before, 3 + 50; backward gathers show, reductions but the last hide: 30 + 100 + 3
    assert step(study) == pytest.approx(53 + 133)
    lines = {line.name: line.bytes_ for line in evaluate(study).memory_lines}
    assert lines["gathered layers"] == 3e9 * 2


def test_gathers_without_prefetch_wait_in_the_micro_batch_that_reduces(bind: Bind) -> None:
    """Of four micro-batches the last reduces: nine gathers of 3 s wait there, for one another."""
    more = {"training__global_batch": 8, "overlap__gradients": "off"}
    ahead = fsdp(bind, sharding__accumulate="whole", **more)
    study = fsdp(bind, sharding__accumulate="whole", sharding__prefetch=0, **more)
    assert step(ahead) == pytest.approx(4 * (53 + 103) + 30)
    assert step(study) == pytest.approx(4 * (53 + 103) + 30 + 27)


def test_prefetching_two_layers_holds_three(bind: Bind) -> None:
    lines = evaluate(fsdp(bind, sharding__prefetch=2)).memory_lines
    found = {line.name: line.bytes_ for line in lines}
    assert found["gathered layers"] == 3 * 3e9 * 2


def test_whole_gradients_are_reduced_once_and_held_whole(bind: Bind) -> None:
    more = {"training__global_batch": 8, "overlap__gradients": "off"}
    shares = fsdp(bind, **more)
    whole = fsdp(bind, sharding__accumulate="whole", **more)
    # four micro-batches with ten reductions of 3 s each, or ten in all
    assert step(shares) - step(whole) == pytest.approx(3 * 30)
    found = {line.name: line.bytes_ for line in evaluate(whole).memory_lines}
    assert found["gradients"] == 3e10 * 4
    assert "unsharded gradients" not in found


def test_zero_2_with_whole_gradients_reduces_like_zero_1(bind: Bind) -> None:
    values = {"training.global_batch": 32, "layout.zero": 2, "sharding.accumulate": "whole"}
    two = bind(values, parameters=[parameters_record(1e9)])
    one = bind({**values, "layout.zero": 1}, parameters=[parameters_record(1e9)])
    assert evaluate(two).step_seconds == evaluate(one).step_seconds


def test_an_embedding_tied_on_one_stage_stays_gathered(bind: Bind) -> None:
    values = {"layout.zero": 3, "small.layers": 10, "small.tied": "on"}
    parameters = [parameters_record(1e9, place="before"), parameters_record(3e9, (10.0,))]
    tied = bind(values, parameters=parameters)
    assert "embedding parameter all-gather F" in ours(tied)
    assert "embedding parameter all-gather B" not in ours(tied)
    found = {line.name: line.bytes_ for line in evaluate(tied).memory_lines}
    assert found["gathered embedding and head"] == 1e9 * 2  # beside two layers
    apart = bind({**values, "small.tied": "off"}, parameters=parameters)
    assert "embedding parameter all-gather B" in ours(apart)


# --- workers that train apart -------------------------------------------------------------

WORKERS = {"local_updates.workers": 4, "local_updates.period": 100}


@pytest.mark.parametrize("zero", [0, 1])
def test_workers_reduce_among_their_own_and_meet_now_and_then(bind: Bind, zero: int) -> None:
    study = nodes(bind, {**WORKERS, "layout.zero": zero}, parameters=[parameters_record(1e9)])
    found = ours(study)
    name = "gradient reduce-scatter" if zero else "gradient all-reduce"
    assert found[name].resource == "node"
    # a quarter of 2 x 3/4 x 4 B, by a hundred steps; of a half under ZeRO 1
    meeting = found["outer all-reduce"]
    shard = 2 if zero else 1
    assert (meeting.resource, meeting.seconds) == ("net", pytest.approx(6 / 100 / shard))


def test_workers_of_one_rank_reduce_nothing_else(bind: Bind) -> None:
    values = {"local_updates.workers": 8, "local_updates.period": 10, "local_updates.wire": 2}
    found = ours(bind(values, parameters=[parameters_record(1e9)]))
    assert found["gradient all-reduce"].seconds == 0
    assert found["outer all-reduce"].seconds == pytest.approx(2 * 7 / 8 * 2 / 10)


def test_parts_that_meet_in_turn_send_the_same_bytes(bind: Bind) -> None:
    whole = bind(WORKERS, parameters=[parameters_record(1e9)])
    parts = bind({**WORKERS, "local_updates.fragments": 10}, parameters=[parameters_record(1e9)])
    name = "outer all-reduce"
    assert ours(parts)[name].bytes_ == pytest.approx(ours(whole)[name].bytes_)
    assert ours(parts)[name].seconds == pytest.approx(ours(whole)[name].seconds)


def test_steps_that_go_on_hide_a_meeting(bind: Bind) -> None:
    def exposed_seconds(overlap: int) -> Any:
        study = bind(
            {**WORKERS, "local_updates.overlap_steps": overlap},
            parameters=[parameters_record(1e9)],
            terms=[Work(name="b", seconds=2.0, pass_="B", formula=GIVEN)],
        )
        lines = evaluate(study).ledger
        return sum(line.exposed for line in lines if line.name.startswith("outer"))

    # a meeting takes 6 s; steps of one micro-batch have 2 s of backward each
    assert exposed_seconds(0) == pytest.approx(6 / 100)
    assert exposed_seconds(1) == pytest.approx(4 / 100)
    assert exposed_seconds(3) == pytest.approx(0)


def test_an_outer_optimizer_holds_eight_bytes_a_parameter(bind: Bind) -> None:
    outer = {**WORKERS, "local_updates.method": "outer"}
    lines = evaluate(bind(outer, parameters=[parameters_record(1e9)])).memory_lines
    assert {line.name: line.bytes_ for line in lines}["outer optimizer state"] == 8e9
    away = bind({**outer, "local_updates.offload": "on"}, parameters=[parameters_record(1e9)])
    assert "outer optimizer state" not in {line.name for line in evaluate(away).memory_lines}


@try_each(
    "values, id_",
    [
        ({"local_updates.workers": 3}, "workers-divide"),
        ({"local_updates.workers": 2, "layout.ep": 2}, "workers-experts"),
        ({**WORKERS, "local_updates.fragments": 101}, "fragments-many"),
        (
            {**WORKERS, "local_updates.fragments": 10, "local_updates.overlap_steps": 11},
            "overlap-long",
        ),
        ({"local_updates.period": 10}, "workers-one"),
    ],
)
def test_workers_that_cannot_meet_so_are_errors(
    bind: Bind, values: dict[str, Any], id_: str
) -> None:
    study = bind(values, parameters=[parameters_record(1e9), parameters_record(1e9, expert=True)])
    diagnostic = diagnose(failures(study)[id_], study)
    expected = Severity.WARNING if id_ == "workers-one" else Severity.ERROR
    assert diagnostic.severity is expected
    assert "{" not in diagnostic.message


@try_each(
    "workers, zero, shard, groups",
    [
        (1, 0, 1, ("dp", "")),
        (1, 1, 8, ("dp", "")),
        (1, 1, 4, ("shard", "replicate")),
        (2, 0, 4, ("shard", "")),  # the four ranks of each of two workers
        (2, 1, 4, ("shard", "")),
        (2, 1, 2, ("shard", "replicate")),
    ],
)
def test_gradients_of_eight_replicas_are_reduced_over_groups(
    workers: float, zero: int, shard: float, groups: tuple[str, str]
) -> None:
    study: Any = {
        LocalUpdates: SimpleNamespace(workers=float(workers)),
        Layout: SimpleNamespace(zero=zero),
        Sharding: SimpleNamespace(shard=float(shard)),
    }
    kind: Any = SimpleNamespace(shard=float(shard), replicas=8.0, expert=False, group="dp")
    assert _groups(study, kind) == groups
    kind.expert = True
    assert _groups(study, kind) == ("dp", "")
