"""Fair shares of flows, and exchanges over rails."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import parcost
from parcost import Figure
from parcost_plugins.calculators.networks.sharing import ActiveFlow, finish

from ..rows import try_each

RESOURCES = "abcd"
ROUTES = st.lists(st.sampled_from(RESOURCES), min_size=1, max_size=4, unique=True)
BANDWIDTHS = st.fixed_dictionaries({r: st.floats(1.0, 100.0) for r in RESOURCES})


def first_rates(flows: dict[str, list[str]], bandwidths: dict[str, float]) -> dict[str, float]:
    """Return the rate of each flow while none has ended: by the end of one byte of it."""
    return {
        name: 1.0
        / finish(
            {f: ActiveFlow(bytes_=1.0 if f == name else 1e9, over=o) for f, o in flows.items()},
            bandwidths,
        )[name]
        for name in flows
    }


def figures(text: str) -> dict[str, object]:
    (scenario,) = parcost.load_text(text)
    (study,) = scenario.studies()
    found = [answer for _, answer in study.contributions("calculations")]
    return {f.name.partition(".")[2]: f.value for f in found if isinstance(f, Figure)}


@given(st.lists(ROUTES, min_size=1, max_size=8), BANDWIDTHS)
def test_each_flow_has_a_full_resource_on_which_none_is_faster(
    routes: list[list[str]], bandwidths: dict[str, float]
) -> None:
    """That is what max-min fair means."""
    flows = {str(i): route for i, route in enumerate(routes)}
    rates = first_rates(flows, bandwidths)
    used = {r: sum(rates[f] for f in flows if r in flows[f]) for r in RESOURCES}
    for resource, bandwidth in bandwidths.items():
        assert used[resource] <= bandwidth * (1 + 1e-9)
    for flow, route in flows.items():
        assert any(
            used[r] == pytest.approx(bandwidths[r])
            and rates[flow] == pytest.approx(max(rates[f] for f in flows if r in flows[f]))
            for r in route
        )


@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=6), st.floats(1.0, 50.0))
def test_flows_on_one_link_end_together_with_all_their_bytes(
    sizes: list[float], bandwidth: float
) -> None:
    """The link is never idle: the last flow ends when all bytes have passed, which is the
    rule that seconds on the same resource add up."""
    flows = {str(i): ActiveFlow(bytes_=size, over=["link"]) for i, size in enumerate(sizes)}
    ends = finish(flows, {"link": bandwidth})
    assert max(ends.values()) == pytest.approx(sum(sizes) / bandwidth)


def test_narrow_resources_are_shared_as_wide_ones_are() -> None:
    """Of half a byte a second, what is stopped by a tenth elsewhere leaves the rest."""
    flows = {"a": ["x"], "b": ["x", "y"], "c": ["z"]}
    rates = first_rates(flows, {"x": 0.5, "y": 0.1, "z": 0.2})
    assert rates == pytest.approx({"a": 0.4, "b": 0.1, "c": 0.2})


def test_of_two_flows_the_shorter_ends_at_twice_its_bytes() -> None:
    flows = {"a": ActiveFlow(bytes_=3.0, over=["x"]), "b": ActiveFlow(bytes_=1.0, over=["x"])}
    assert finish(flows, {"x": 0.5}) == {"b": 4.0, "a": 8.0}


def test_a_flow_that_comes_later_takes_its_share_from_then_on() -> None:
    """2 B alone for 1 s at 1 B/s, then 1 B each at half of it."""
    flows = {
        "a": ActiveFlow(bytes_=2.0, over=["x"]),
        "b": ActiveFlow(bytes_=1.0, over=["x"], start=1.0),
    }
    assert finish(flows, {"x": 1.0}) == {"a": 3.0, "b": 3.0}


def test_a_flow_on_an_idle_link_has_no_wait() -> None:
    flows = {
        "a": ActiveFlow(bytes_=1.0, over=["x"]),
        "b": ActiveFlow(bytes_=1.0, over=["x"], start=5.0),
    }
    assert finish(flows, {"x": 1.0}) == {"a": 1.0, "b": 6.0}


def test_nothing_to_move_takes_no_time() -> None:
    assert finish({"a": ActiveFlow(bytes_=0.0, over=["x"])}, {"x": 1.0}) == {"a": 0.0}


@pytest.mark.parametrize(
    "flow, message",
    [
        (
            'bytes = 1 GB, over = "spine"',
            "`s` has a flow `f` over `spine`, but no resource of this name",
        ),
        ('bytes = 1 GB, over = ""', "`s` has no flow over any resource"),
    ],
)
def test_a_flow_goes_over_something_that_is_described(flow: str, message: str) -> None:
    text = f"sharing s {{ resource port {{ bandwidth = 50 GB/s per_direction }}\nflow f {{ {flow} }} }}"
    (scenario,) = parcost.load_text(text)
    (found,) = scenario.evaluate().diagnostics
    assert (found.id, found.message) == ("flow-over-nothing", message)
    assert found.help == "write one of its resources: `port`"


def test_flows_are_followed_one_point_at_a_time() -> None:
    text = """
    sharing s {
      resource port { bandwidth = 50 GB/s per_direction }
      flow f { bytes = [1 GB, 2 GB], over = "port" }
    }
    """
    (scenario,) = parcost.load_text(text)
    assert "sharing-sweep" in {d.id for d in scenario.evaluate().diagnostics}


# --- rails ------------------------------------------------------------------------------------

EXCHANGE = """
rail_exchange x {
  bytes_per_rank = 64 MB, per_node = 8, nodes = 8
  inside = 450 GB/s per_direction, outside = 50 GB/s per_direction
"""


def test_an_exchange_in_two_levels_sends_fewer_and_larger_messages() -> None:
    """64 MB over 8 x 8: 56 MB leave either way, in 56 messages of 1 MB or 7 of 8 MB (EX-B5)."""
    found = figures(EXCHANGE + "}")
    assert found["direct_seconds"] == pytest.approx(1.120e-3)
    assert found["two_level_seconds"] == pytest.approx(1.244e-3, rel=5e-4)
    assert found["pipelined_seconds"] == pytest.approx(1.120e-3)
    assert (found["direct_messages"], found["two_level_messages"]) == (56, 7)
    assert (found["direct_message_bytes"], found["two_level_message_bytes"]) == (1e6, 8e6)
    assert found["port_bytes"] == 56e6


@try_each("g, k", [(1, 4), (2, 3), (4, 4), (8, 2), (3, 5), (8, 1)])
def test_bytes_and_messages_are_those_of_every_pair_of_ranks(g: int, k: int) -> None:
    """Rank 0 sends one block to each rank; those to its place in other nodes stay on its rail."""
    text = f"""
    rail_exchange x {{
      bytes_per_rank = {g * k} MB, per_node = {g}, nodes = {k}
      inside = 450 GB/s per_direction, outside = 50 GB/s per_direction
    }}
    """
    found = figures(text)
    peers = [(node, place) for node in range(k) for place in range(g) if (node, place) != (0, 0)]
    inside = [p for p in peers if p[0] == 0]
    outside = [p for p in peers if p[0] != 0]
    assert found["direct_messages"] == len(outside)
    assert found["inside_bytes"] == pytest.approx(1e6 * len(inside))
    assert found["port_bytes"] == pytest.approx(1e6 * len(outside))
    assert found["crossing_bytes"] == pytest.approx(1e6 * sum(place != 0 for _, place in outside))
    assert found["pxn_bytes"] == pytest.approx(1e6 * k * (g - 1))


def test_rails_that_are_joined_narrowly_slow_down_what_crosses_them() -> None:
    """Seven eighths of 56 MB leave the leaf, at half the bandwidth: 49 MB x 2 / 50 GB/s."""
    found = figures(EXCHANGE + "oversubscription = 2 }")
    assert found["direct_seconds"] == pytest.approx(1.96e-3)
    assert found["two_level_seconds"] == pytest.approx(1.244e-3, rel=5e-4)
