"""Which order of the degrees over the devices would be faster."""

from __future__ import annotations

import itertools

import pytest

import parcost
from parcost_plugins.analysis.advice.changes import Change, Effect
from parcost_plugins.analysis.advice.levers import section

SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster {{ devices = {devices} }}
layout {{ {layout}, zero = 1, sequence_parallel = on }}
training {{ sequence = 4096, global_batch = 32 sequences, recompute = full }}
"""


def result(layout: str, devices: int = 32) -> parcost.Result:
    text = SPEC.format(layout=layout, devices=devices)
    return parcost.load_text(text)[0].evaluate().result


def helps(found: parcost.Result) -> parcost.Section:
    (section,) = [s for _, s in found.sections if s.title == "Levers"]
    return section


def step(layout: str) -> float:
    return float(result(layout).figure("step_time"))


@pytest.mark.slow
@pytest.mark.parametrize("order", ["dp-tp-pp", "pp-dp-tp"])
def test_an_order_that_spreads_tensor_parallel_ranks_names_a_better_one(order: str) -> None:
    degrees = "tp = 8, pp = 2"
    section = helps(result(f'{degrees}, order = "{order}"'))
    ((title, (seconds, _), (change, _)),) = [r for r in section.rows if "layout.order" in r[0]]
    assert seconds == pytest.approx(step(f"{degrees}, {title.partition('.')[2]}"), rel=1e-12)
    now = step(f'{degrees}, order = "{order}"')
    assert change == pytest.approx(seconds / now - 1)
    assert change < -0.1
    assert title.startswith('layout.order = "tp-')  # on neighbouring devices


@pytest.mark.slow
def test_where_no_order_is_faster_none_is_named() -> None:
    section = helps(result("tp = 8, pp = 2"))
    assert not [row for row in section.rows if "layout.order" in row[0]]
    assert "4 other values of `layout.order` were tried; none is faster" in section.notes
    best = min(
        step(f'tp = 8, pp = 2, order = "{"-".join(names)}"')
        for names in itertools.permutations(("tp", "dp", "pp"))
    )
    assert step("tp = 8, pp = 2") <= best * 1.001


@pytest.mark.parametrize(
    ("count", "note"),
    [
        (1, "1 other value of `layout.order` was tried; it is not faster"),
        (2, "2 other values of `layout.order` were tried; none is faster"),
    ],
)
def test_orders_are_counted_in_words(count: int, note: str) -> None:
    orders = [Change(None, "order", "tp-dp")] * count
    found = section((), orders, [Effect(1.0, -0.0009, 0.0)] * count)
    assert ([*found.rows], [*found.notes]) == ([], [note])
    found = section((), orders, [Effect(1.0, -0.001, 0.0)] * count)
    assert [*found.rows] == [('layout.order = "tp-dp"', (1.0, "s"), (-0.001, "%"))]


@pytest.mark.slow
def test_devices_of_one_node_have_no_better_order() -> None:
    section = helps(result('tp = 2, order = "dp-tp"', devices=8))
    assert not [row for row in section.rows if "layout.order" in row[0]]
    assert not [note for note in section.notes if "order" in note]
