"""Algorithms that are named where they cannot run."""

from __future__ import annotations

from typing import Any

import pytest

import parcost

from ..rows import try_each

TEXT = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama32_1b
use catalog.precisions.bf16
cluster {{ devices = 96 }}
layout {{ tp = {tp}, {layout} }}
training {{ sequence = 8192, global_batch = 96 sequences }}
collectives {{ {choice} }}
fabric hgx_h100 {{ level node {{ in_network = {reduces} }} }}
"""


def ids(tp: int, choice: str, layout: str = "zero = 0", reduces: str = "off") -> dict[str, Any]:
    text = TEXT.format(tp=tp, choice=choice, layout=layout, reduces=reduces)
    (scenario,) = parcost.load_text(text)
    found = scenario.check()
    return {d.id: d for d in found if d.id.startswith("collective")}


@pytest.mark.slow
def test_a_runnable_algorithm_passes() -> None:
    assert not ids(8, "tensor = ring, data = hierarchical")
    assert not ids(8, "tensor = nvls", reduces="on")
    assert not ids(1, "tensor = nvls")  # no group to run over
    assert not ids(1, "tensor = direct")
    assert "collective-unable" in ids(2, "tensor = collnet_direct")


@try_each(
    "tp, choice, layout, reduces, said, hint",
    [
        (8, "tensor = nvls", "zero = 0", "off", "whose level has `in_network = on`", "`auto`"),
        (16, "tensor = nvls", "zero = 0", "on", "16 ranks of `tp`, 8 on each node", "`auto`"),
        (8, "data = halving_doubling", "zero = 1", "off", "power of two", "are 8 and 16"),
        (8, "data = torus", "zero = 0", "off", "`kind = torus`", "`auto`"),
        (8, "data = nccl", "zero = 0", "off", "it needs `tuning`", "`auto`"),
        (8, "data = collnet_direct", "zero = 0", "off", "`in_network = on`", "`auto`"),
    ],
)
def test_an_algorithm_that_cannot_run_is_refused_with_its_requirement(
    tp: int, choice: str, layout: str, reduces: str, said: str, hint: str
) -> None:
    found = ids(tp, choice, layout, reduces)["collective-unable"]
    assert said in found.message
    assert found.help is not None
    assert hint in found.help
    assert found.labels


@pytest.mark.slow
def test_a_switch_without_reduction_has_help_that_enables_it() -> None:
    """The spec in the help is one that lets the algorithm run."""
    hint = ids(8, "tensor = nvls")["collective-unable"].help
    assert hint is not None
    turned_on = "fabric hgx_h100 { level node { in_network = on } }"
    assert f"`{turned_on}`" in hint
    assert not ids(8, "tensor = nvls", reduces="on")


def test_an_algorithm_for_experts_says_nothing_of_a_dense_model() -> None:
    assert not ids(8, "expert = pairwise")


@try_each(
    "choice, layout, operation, group, does",
    [
        ("data = bruck", "zero = 1", "reduce_scatter", "dp_cp", "`all_gather` and `all_to_all`"),
        ("data = bruck", "zero = 0", "all_reduce", "dp_cp", "`all_gather` and `all_to_all`"),
        ("tensor = direct", "zero = 0", "all_reduce", "tp", "`point_to_point`"),
        ("pipeline = bruck", "pp = 2", "point_to_point", "pp", "`all_gather` and `all_to_all`"),
        ("context = bruck", "cp = 2", "point_to_point", "cp", "`all_gather` and `all_to_all`"),
    ],
)
def test_an_operation_outside_of_a_named_algorithm_is_an_error(
    choice: str, layout: str, operation: str, group: str, does: str
) -> None:
    found = ids(8, choice, layout)["collective-operation"]
    said = choice.partition(" = ")[2]
    assert found.message == (
        f"`{said}` does not support `{operation}`, which group `{group}` needs; it supports {does}"
    )
    assert found.labels[0].span.text == choice


def test_points_whose_algorithm_can_are_evaluated_beside_those_whose_cannot() -> None:
    text = TEXT.format(tp=8, choice="data = [auto, ring, tree]", layout="zero = 1", reduces="off")
    rows = parcost.load_text(text)[0].evaluate().rows()
    assert [row["feasible"] for row in rows] == [True, True, False]
    assert "`tree` does not support `reduce_scatter`" in rows[2]["reason"]
    alone = TEXT.format(tp=8, choice="data = ring", layout="zero = 1", reduces="off")
    step = parcost.load_text(alone)[0].evaluate().result.figure("step_time")
    assert rows[1]["step_time"] == step


def test_an_algorithm_that_adds_nothing_up_leaves_the_norm_of_the_gradients_to_another() -> None:
    """Gradients of 8 bits travel by all-to-all and all-gather; no all-reduce is left but that."""
    text = TEXT.format(tp=8, choice="data = bruck", layout="zero = 0", reduces="off")
    report = parcost.load_text(text + "compression { method = int8 }\n")[0].evaluate()
    assert report.result.legal
    outcome = report.result.outcome
    assert outcome is not None
    (norm,) = (line for line in outcome.ledger if line.name == "all-reduce of the gradient norm")
    assert 0 < norm.exposed < 1e-3
    assert "bruck" not in norm.formula.text


def test_an_algorithm_for_experts_that_a_dense_model_lacks_is_idle() -> None:
    text = TEXT.format(tp=8, choice="expert = ring", layout="zero = 0", reduces="off")
    (said,) = (d for d in parcost.load_text(text)[0].check() if d.id == "no-effect")
    assert said.message == "`collectives.expert` has no effect"
    assert said.help == "it needs a model that has experts and `layout.ep` above 1"


@pytest.mark.parametrize("shard, needs", [(12, False), (6, True), (4, True)])
def test_groups_that_share_out_a_state_apart_sum_what_each_of_them_has(
    shard: int, needs: bool
) -> None:
    """Twelve ranks of data in shards of six are two replicas, whose gradients are added up."""
    layout = f"zero = 3 }}\nsharding {{ shard = {shard}"
    found = ids(8, "data = pat", layout)
    assert set(found) == ({"collective-operation"} if needs else set())
    if needs:
        assert "`pat` does not support `all_reduce`" in found["collective-operation"].message
