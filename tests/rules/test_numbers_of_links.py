"""Which numbers of links count as read, and what stands for an attribute nobody writes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import parcost
from parcost import Group
from parcost.engine.attribute_reads import _default
from parcost_plugins.frameworks import features
from parcost_plugins.rules import unread_attributes
from parcost_plugins.topology.links import AlphaBeta
from parcost_plugins.vocabulary import (
    Cluster,
    Layout,
    Overlap,
    ScheduleChoice,
    Training,
)

from ..rows import try_each


def link(number: float) -> AlphaBeta:
    return AlphaBeta(name="l", latency=number, bandwidth=10 * number)


def group(*shape: float, **more: Any) -> Group:
    """Return a group whose links have latencies of 1, 2 and so on, by level."""
    ranks = 1.0
    for g in shape:
        ranks *= g
    links = tuple(link(i + 1.0) for i in range(len(shape)))
    return Group(name=more.pop("name", "g"), ranks=ranks, shape=shape, links=links, **more)


def latencies(found: list[Any]) -> list[float]:
    """Return the latencies of links, each followed by its bandwidth, and a share at the end."""
    *numbers, share = found
    assert share == 0.0
    assert [10 * number for number in numbers[::2]] == numbers[1::2]
    return numbers[::2]


def test_links_count_where_a_group_crosses_them() -> None:
    """The flat link, a pair's and a hop's; then of each level those of three kinds of calls."""
    whole = SimpleNamespace(flat=link(7.0), pair=link(8.0), hop=link(9.0))

    def numbers(*shape: float) -> list[float]:
        one = group(*shape)
        stub: Any = SimpleNamespace(
            shape=one.shape, links=one.links, pairs=one.links, ranks=one.ranks, **vars(whole)
        )
        return latencies([*unread_attributes._numbers(stub)])

    assert numbers(4.0, 1.0) == [7, 8, 9, 1, 1, 1, 1]
    assert numbers(1.0, 4.0) == [7, 8, 9, 2, 2, 2, 2]
    assert numbers(2.0, 2.0) == [7, 8, 9, 1, 1, 1, 1, 2, 2, 2, 2]
    assert numbers(2.0, 1.0) == [7, 8, 9, 1, 1, 1, 1]
    assert numbers(1.0, 1.0) == []


def test_the_job_counts_where_a_transfer_is_of_it() -> None:
    groups = [(None, group(2.0, name="job")), (None, group(1.0, 3.0, name="tp"))]
    study: Any = SimpleNamespace(contributions=lambda _: groups)
    of = {name: [*unread_attributes._numbers(g)] for _, g in groups for name in [g.name]}
    assert unread_attributes._links(study, job=False) == of["tp"]
    assert unread_attributes._links(study, job=True) == [*of["job"], *of["tp"]]
    assert unread_attributes._are_equal([1.0, 2.0], [1.0, 2.0])
    assert not unread_attributes._are_equal([1.0, 2.0], [1.0, 2.5])
    assert not unread_attributes._are_equal([1.0, 2.5], [2.0, 2.5])


def test_seconds_of_a_study() -> None:
    """Of terms that have some, and of figures; a section has none."""
    terms = [(None, SimpleNamespace(seconds=2.0)), (None, SimpleNamespace())]
    formula = parcost.Formula(text="given")
    figure = parcost.Figure(name="f", title="f", value=5.0, unit="s", formula=formula)
    answers = {"terms": terms, "calculations": [(None, figure), (None, SimpleNamespace())]}
    study: Any = SimpleNamespace(contributions=answers.__getitem__)
    assert unread_attributes._times(study) == [2.0, 0.0, 5.0]


def test_a_default_may_be_another_attribute() -> None:
    layout, overlap, schedule = (
        Layout(dp=6.0, tp=2, pp=3),
        Overlap(bucket=1.0, least_bucket=1.0, bucket_growth=0.0),
        ScheduleChoice(overlap=0.0),
    )
    blocks = {Overlap: (overlap,), ScheduleChoice: (schedule,), Layout: (layout,)}
    study: Any = SimpleNamespace(blocks=blocks)
    assert _default(study, overlap, "chunks") == 2  # `layout.tp`
    assert _default(study, schedule, "group") == 3  # `layout.pp`
    assert _default(study, layout, "tp") == 1
    assert _default(study, schedule, "kind") == "one_f_one_b"  # a word is no path
    assert _default(SimpleNamespace(blocks={}), overlap, "chunks") is None  # type: ignore[arg-type]


def test_no_level_of_a_study_without_a_job() -> None:
    for blocks in ({}, {Cluster: SimpleNamespace()}, {Training: SimpleNamespace()}):
        assert [*unread_attributes._levels(blocks)] == []  # type: ignore[arg-type]


@pytest.mark.parametrize(("groups", "job"), [(("tp",), False), (("tp", "job"), True), ((), False)])
def test_links_of_the_job_count_where_a_transfer_crosses_them(
    groups: tuple[str, ...], job: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def links(_: Any, *, job: bool) -> list[float]:
        asked.append(job)
        return [1.0]

    monkeypatch.setattr(unread_attributes, "_links", links)
    monkeypatch.setattr(unread_attributes, "_is_written", lambda _, __, name: name == "efficiency")
    monkeypatch.setattr(unread_attributes, "evolve", lambda one, **_: one)
    levels = (SimpleNamespace(label="node"), SimpleNamespace(label="named"))
    blocks = {
        Cluster: SimpleNamespace(fabric=SimpleNamespace(levels=levels)),
        Training: SimpleNamespace(),
    }
    transfers = [SimpleNamespace(level="named", group=name) for name in ("own", *groups)]
    study: Any = SimpleNamespace(
        get=blocks.get, all=lambda _: transfers, with_blocks=lambda _: study
    )
    (check,) = unread_attributes._levels(study)
    assert (check.subject, check.holds, check.severity) == ("node.efficiency", False, "warning")
    assert asked == [job, job]


# --- the nearest that a framework has -----------------------------------------------------


@try_each(
    "values, kind, value, near",
    [
        ("1, 2, 4", "quantity", 3.0, "2 or 4"),
        ("4, 1, 2", "quantity", 8, "4"),
        ("1, 2.5", "quantity", 3.0, "1 or 2.5"),
        ("1, 2", "quantity", "many", "1 or 2"),
        ("one_f_one_b, gpipe", "word", "one_f_one", "`one_f_one_b`"),
        ("one_f_one_b, one_f_two_b", "word", "one_f_one", "`one_f_one_b`"),
        ("none, full", "word", "zzz", "`none` or `full`"),
        ("abcdefghij", "word", "abcdeXXXXX", "`abcdefghij`"),
    ],
)
def test_the_nearest_of_an_offer(values: str, kind: str, value: Any, near: str) -> None:
    offer: Any = SimpleNamespace(attribute="a.b", values=values, beyond="any")
    assert features._nearest_values(offer, value, kind) == near
