"""What hides under what, within the passes of a micro-batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest


def line(outcome: Any, name: str, pass_: str = "F") -> Any:
    return next(x for x in outcome.ledger if (x.name, x.pass_) == (name, pass_))


def test_serial_work_adds_up(make: Any) -> None:
    found = make.step(make.work("a", 2.0), make.work("b", 3.0), make.work("b", 4.0, "B"), m=5.0)
    assert found.step_seconds == 45.0
    assert line(found, "b").exposed == 15.0


def test_a_guest_hides_up_to_its_hosts(make: Any) -> None:
    host = make.work("gemm", 10.0, host="mlp")
    for seconds, exposed in ((4.0, 0.0), (10.0, 0.0), (14.0, 4.0)):
        guest = make.work("gather", seconds, window="mlp", resource="link")
        found = make.step(host, guest)
        assert found.step_seconds == 10.0 + exposed
        assert (line(found, "gather").exposed if exposed else 0.0) == exposed
        assert line(found, "gather").hidden == seconds - exposed


def test_a_guest_hides_under_no_other_work(make: Any) -> None:
    guest = make.work("gather", 4.0, window="mlp", resource="link")
    others = [
        make.work("attention", 10.0, host="attention"),
        make.work("mlp backward", 10.0, "B", host="mlp"),
        make.work("norm", 10.0),
    ]
    assert make.step(guest, *others).step_seconds == 34.0


def test_a_guest_does_not_hide_under_its_own_resource(make: Any) -> None:
    hosts = [
        make.work("gemm", 3.0, host="w"),
        make.work("all-reduce", 5.0, host="w", resource="link"),
    ]
    guest = make.work("gather", 4.0, window="w", resource="link")
    found = make.step(*hosts, guest)
    assert line(found, "gather").hidden == 3.0
    assert found.step_seconds == 9.0


def test_a_share_of_the_hosts_is_all_that_covers(make: Any) -> None:
    host = make.work("gemm", 10.0, host="w")
    guest = make.work("gather", 10.0, window="w", resource="link", share=0.75)
    assert make.step(host, guest).step_seconds == 12.5


@pytest.mark.parametrize(
    "window, alone, seconds, step, hidden",
    [
        ("w", 0.25, 8.0, 12.0, 6.0),  # 2 s have no host, and 6 s hide under 10 s
        ("w", 0.25, 16.0, 16.0, 10.0),  # 4 s have no host, and 10 of 12 s hide
        ("w", 1.0, 8.0, 18.0, 0.0),
        ("", 0.25, 8.0, 12.0, 6.0),
        ("", 0.25, 16.0, 16.0, 10.0),
    ],
)
def test_a_share_of_a_guest_that_runs_alone_has_no_host(
    make: Any, window: str, alone: float, seconds: float, step: float, hidden: float
) -> None:
    host = make.work("gemm", 10.0, host="w")
    guest = make.work("gather", seconds, window=window, resource="link", alone=alone)
    found = make.step(host, guest)
    assert found.step_seconds == pytest.approx(step)
    assert line(found, "gather").hidden == pytest.approx(hidden)
    assert line(found, "gather").exposed == pytest.approx(seconds - hidden)
    assert line(found, "gather").times == 1


def test_guests_on_one_resource_take_turns_in_order_of_name(make: Any) -> None:
    host = make.work("gemm", 10.0, host="w")
    a = make.work("a", 7.0, window="w", resource="link")
    b = make.work("b", 7.0, window="w", resource="link")
    found = make.step(host, b, a)
    assert found.step_seconds == 14.0
    assert [line(found, n).hidden for n in "ab"] == [7.0, 3.0]


def test_of_guests_on_different_resources_the_longest_counts(make: Any) -> None:
    host = make.work("gemm", 10.0, host="w")
    a = make.work("a", 13.0, window="w", resource="link")
    b = make.work("b", 15.0, window="w", resource="network")
    found = make.step(host, a, b)
    assert found.step_seconds == 15.0
    assert [line(found, n).exposed for n in "ab"] == [3.0, 2.0]


@pytest.mark.parametrize(
    "compute, share, exposed",
    [
        (10.0, 0.75, 0.0),  # 12 of 14 s, and 9 of the 10 in which the link is idle
        (6.0, 0.75, 3.0),  # 2 s stick out of 10, and of the link 9 - 6
        (6.0, 0.25, 2.0),
        (6.0, 1.0, 6.0),  # as if it were on the link
    ],
)
def test_a_guest_finds_room_on_every_resource_that_it_keeps_busy(
    make: Any, compute: float, share: float, exposed: float
) -> None:
    hosts = [make.work("gemm", compute), make.work("all-reduce", 4.0, resource="link")]
    gather = {"window": "", "resource": "network", "also": ("link",), "also_busy": (share,)}
    found = make.step(*hosts, make.work("gather", 12.0, **gather))
    assert found.step_seconds == compute + 4.0 + exposed


def test_a_host_leaves_of_a_resource_what_it_does_not_keep_busy(make: Any) -> None:
    guest = make.work("gather", 8.0, window="", resource="link")
    for share in (0.0, 0.25, 1.0):
        host = make.work("ring", 4.0, resource="network", also=("link",), also_busy=(share,))
        found = make.step(make.work("gemm", 2.0), host, guest)
        assert found.step_seconds == 6.0 + 8.0 - (2.0 + (1 - share) * 4.0)


def test_guests_of_several_resources_share_what_they_have_in_common(make: Any) -> None:
    host = make.work("gemm", 10.0)
    a = make.work("a", 6.0, window="", resource="link")
    b = make.work("b", 8.0, window="", resource="network", also=("link",), also_busy=(0.75,))
    # the link is busy for 6 s and 3/4 of 8, and there are 10
    assert make.step(host, a, b).step_seconds == 12.0


def test_exposed_work_waits_for_all_its_resources(make: Any) -> None:
    a = make.work("a", 4.0, window="", resource="network", also=("link",), also_busy=(0.25,))
    b = make.work("b", 4.0, window="", resource="link")
    # nothing to hide under: the link is busy for 1 and 4 s
    assert make.step(a, b).step_seconds == make.step(b, a).step_seconds == 5.0


def test_a_hidden_second_slows_its_hosts_down(make: Any) -> None:
    host = make.work("gemm", 10.0, host="w")
    guest = make.work("gather", 12.0, window="w", resource="link", slowdown=0.14)
    found = make.step(host, guest, m=3.0)
    slow = line(found, "slowdown by gather")
    assert slow.kind == "slowdown"
    assert slow.exposed == pytest.approx(3 * 1.4)
    assert found.step_seconds == pytest.approx(3 * (10 + 2 + 1.4))
    assert slow.formula.inputs["kappa"] == (0.14, "")
    assert slow.formula.inputs["t"] == (10.0, "s")


def test_what_slows_most_hides_first_so_that_more_work_never_helps(make: Any) -> None:
    host = make.work("gemm", 10.0, host="w")
    long = make.work("z", 50.0, window="w", resource="network")
    heavy = make.work("b", 10.0, window="w", resource="link", slowdown=0.5)
    before = make.step(host, long, heavy)
    after = make.step(host, long, heavy, make.work("a", 10.0, window="w", resource="link"))
    assert before.step_seconds == 50.0  # 5 s of them beside what `b` slows the host by
    assert after.step_seconds == 50.0


def test_work_without_slowdown_hides_under_the_slowdown_of_hosts(make: Any) -> None:
    work = make.work("layer", 10.0)
    gather = make.work("gather", 8.0, window="", resource="link", slowdown=0.25)
    for seconds, step in ((9.0, 12.0), (12.0, 12.0), (15.0, 15.0)):
        other = make.work("other", seconds, window="", resource="processor")
        assert make.step(work, gather, other).step_seconds == step


def test_what_slows_nothing_may_be_another_work_for_each_candidate(make: Any) -> None:
    """Ten seconds are twelve beside `gather`, which hides `other`, and 17 if that slows them too."""
    work = make.work("layer", 10.0)
    gather = make.work("gather", 8.0, window="", resource="link", slowdown=0.25)
    slows = np.array([0.0, 0.5])
    other = make.work("other", 12.0, window="", resource="processor", slowdown=slows)
    assert list(make.step(work, gather, other).step_seconds) == [12.0, 19.0]


def test_the_slowest_overlap_is_chosen_for_each_candidate(make: Any) -> None:
    host = make.work("gemm", 10.0, host="w")
    slower = np.array([0.1, 0.3])

    def guests(a: Any, b: Any) -> list[Any]:
        return [
            make.work("a", 8.0, window="w", resource="link", slowdown=a),
            make.work("b", 8.0, window="w", resource="link", slowdown=b),
        ]

    found = make.step(host, *guests(0.2, slower))
    alone = [make.step(host, *guests(0.2, float(b))).step_seconds for b in slower]
    assert list(found.step_seconds) == alone
    assert alone == pytest.approx([10 + 6 + 1.6 + 0.2, 10 + 6 + 2.4 + 0.4])


def test_recomputation_lengthens_the_input_gradient(make: Any) -> None:
    times = {"F": 1.0, "R": 1.0, "B": 1.0, "W": 0.0}
    works = [make.work("layer", t, k) for k, t in times.items()]
    assert make.step(*works, p=4, m=8.0).step_seconds == 33.0
    split = make.step(*works, p=4, m=8.0, schedule="zb_h1")
    assert split.step_seconds == 8 * 3 + 3 * 3  # (p - 1) max(F + B - W, F, B), B = 2


# --- fully sharded data parallel -------------------------------------------------------------


def sharded_seconds(
    make: Any, layers: int, F: float, BW: float, gather: float, scatter: float
) -> float:
    """Return one micro-batch of FSDP: prefetch hides one layer less than there are."""
    share = (layers - 1) / layers
    wire = {"resource": "link", "share": share, "window": "layers", "count": layers - 1}
    found = make.step(
        make.work("forward", F, count=layers, host="layers"),
        make.work("first gather", gather, resource="link"),
        make.work("gather", gather, **wire),
        make.work("backward", BW, "B", count=layers, host="layers"),
        make.work("last gather", gather, "B", resource="link"),
        make.work("gather again", gather, "B", **wire),
        make.work("scatter", scatter, "B", **wire),
        make.work("first scatter", scatter, "B", resource="link"),
    )
    return float(found.step_seconds)


def test_ten_sharded_layers_bound_by_compute_take_159(make: Any) -> None:
    assert sharded_seconds(make, 10, F=5, BW=10, gather=3, scatter=3) == pytest.approx(159)


def test_forty_sharded_layers_bound_by_their_wire_take_447(make: Any) -> None:
    assert sharded_seconds(make, 40, F=5, BW=4, gather=3, scatter=3) == pytest.approx(447)


# --- a whole pass as the window --------------------------------------------------------------


def test_an_empty_window_is_all_serial_work_of_the_pass(make: Any) -> None:
    works = [make.work("a", 4.0), make.work("b", 5.0, host="w"), make.work("c", 9.0, "B")]
    guest = make.work("gather", 12.0, window="", resource="link")
    found = make.step(*works, guest)
    assert line(found, "gather").hidden == 9.0
    assert found.step_seconds == 21.0


def test_an_empty_window_of_backward_is_all_of_its_parts(make: Any) -> None:
    works = [make.work(k, 4.0, k) for k in ("R", "B", "W")]
    guest = make.work("scatter", 13.0, "W", window="", resource="link")
    assert make.step(*works, guest).step_seconds == 13.0


def test_an_empty_window_leaves_to_others_what_keeps_its_resource_busy(make: Any) -> None:
    host = make.work("gemm", 10.0, host="w")
    inner = make.work("reduce", 6.0, window="w", resource="link")
    outer = make.work("gather", 6.0, window="", resource="link")
    found = make.step(host, inner, outer)
    assert line(found, "gather").hidden == 4.0
    assert found.step_seconds == 12.0


def test_an_empty_window_counts_what_its_resource_does_while_another_sticks_out(make: Any) -> None:
    host = make.work("gemm", 10.0, host="w")
    a = make.work("a", 12.0, window="w", resource="link")
    b = make.work("b", 15.0, window="w", resource="network")
    outer = make.work("c", 8.0, window="", resource="network")
    assert make.step(host, a, b, outer).step_seconds == 23.0  # the network is busy for 23 s


def test_an_empty_window_covers_with_what_sticks_out_of_others(make: Any) -> None:
    host = make.work("gemm", 10.0, host="w")
    inner = make.work("reduce", 15.0, window="w", resource="link")
    outer = make.work("gather", 14.0, window="", resource="network")
    assert make.step(host, inner, outer).step_seconds == 15.0


def test_work_of_one_op_hides_under_no_other_op(make: Any) -> None:
    """Where W runs apart from B, more of it must not hide what delays the stage before."""

    def seconds(stray: float) -> float:
        return make.step(
            make.work("gradient", 1.0, "B"),
            make.work("gather", 2.0, "B", window="", resource="link"),
            make.work("stray", stray, "W", window="nobody"),
            p=3,
            schedule="zb_h1",
        ).step_seconds

    assert seconds(0.0) == 3 * 2.0  # the gather sticks out by 1 s on each stage
    assert seconds(1.0) >= seconds(0.0)
    assert seconds(1.0) == 3 * 2.0 + 1.0


def test_where_both_are_one_op_work_hides_under_all_of_it(make: Any) -> None:
    found = make.step(
        make.work("gradient", 1.0, "B"),
        make.work("gather", 2.0, "B", window="", resource="link"),
        make.work("product", 1.0, "W"),
    )
    assert found.step_seconds == 2.0
