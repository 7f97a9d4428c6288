"""Values that a hint names: a study that takes one breaks the rule no more, nor its like."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

import parcost
from parcost import SpecError

from ..rows import mark_most

DENSE = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_70b
use catalog.precisions.bf16
cluster { devices = 64 }
layout { zero = 1, sequence_parallel = on }
training { sequence = 8192, micro_batch = 1, global_batch = 960 sequences }
"""
SPARSE = DENSE.replace("llama3_70b", "mixtral_8x7b")
RULES = {
    "tp": {"devices-divide", "devices-few", "heads-divide", "kv-heads-divide", "ffn-divide"}
    | {"sequence-divide", "sequence-parallel-alone"},
    "cp": {"devices-divide", "devices-few", "context-divides-sequence", "sequence-divide"},
    "pp": {"devices-divide", "devices-few", "layers-divide"},
    "ep": {"experts-divide", "experts-ranks"},
    "etp": {"expert-width-divide", "experts-ranks"},
}
ATTRIBUTES = {"devices": "cluster.devices", "tokens": "training.sequence"}
LENGTH_RULES = {"context-divides-sequence", "sequence-divide"}


def helps(spec: str, values: Mapping[str, int]) -> dict[str, str]:
    """Return the help of every rule that a study breaks, by the id of the rule."""
    overrides = {path: str(value) for path, value in values.items()}
    try:
        (scenario,) = parcost.load_text(spec, overrides=overrides)
        return {d.id: d.help or "" for d in scenario.check()}
    except SpecError as error:
        return {d.id: d.help or "" for d in error.diagnostics}


def proposals(text: str) -> list[tuple[str, int]]:
    """Return the attributes and the values that a help line names.

    >>> proposals("tp = 2 or 4 divides, or take 6 or 9 devices")
    [('layout.tp', 2), ('layout.tp', 4), ('cluster.devices', 6), ('cluster.devices', 9)]
    """
    found = [
        (f"layout.{name}", int(value))
        for name, values in re.findall(r"\b(e?tp|cp|pp|ep) = ([\d or]+)", text)
        for value in re.findall(r"\d+", values)
    ]
    for values, word in re.findall(r"take ([\d or]+) (devices|tokens)", text):
        found += [(ATTRIBUTES[word], int(value)) for value in re.findall(r"\d+", values)]
    return found


def assert_named_values_pass(spec: str, values: Mapping[str, int], id: str) -> None:
    for path, value in proposals(helps(spec, values)[id]):
        passes = {id} | RULES.get(path.removeprefix("layout."), set())
        passes |= LENGTH_RULES if path == "training.sequence" else set()
        left = passes & set(helps(spec, {**values, path: value}))
        # rules of attributes that the hint leaves as they are may fail as before
        assert not left - (set(helps(spec, values)) - {id}), (path, value)
        assert id not in left


@pytest.mark.parametrize(
    ("values", "help"),
    [
        # 60 is not a multiple of n x 4, but for tp = 1 (and 3, 5, 15, which divide no 64 heads)
        ({"cluster.devices": 60, "layout.tp": 8, "layout.pp": 4}, "take 32 or 64 devices"),
        # 64 is not a multiple of n x 3; with tp = 6 none of n x 6
        ({"cluster.devices": 64, "layout.tp": 6, "layout.pp": 3}, "take 54 or 72 devices"),
        # 48 = 8 x 6, and 80 layers are cut into any of 1, 2, 3 and 6 stages
        (
            {"cluster.devices": 48, "layout.tp": 8, "layout.pp": 5},
            "pp = 3 or 6 divides, or take 40 or 80 devices",
        ),
    ],
)
def test_a_degree_is_named_where_the_other_degrees_divide_with_it(
    values: dict[str, int], help: str
) -> None:
    assert helps(DENSE, values)["devices-divide"] == help


@pytest.mark.parametrize("devices", mark_most([24, 48, 60, 64, 120]))
@pytest.mark.parametrize("tp", [2, 6, 8])
@pytest.mark.parametrize(("cp", "pp"), [(1, 3), (1, 4), (2, 5), (3, 1)])
def test_degrees_that_are_named_divide(devices: int, tp: int, cp: int, pp: int) -> None:
    values = {"cluster.devices": devices, "layout.tp": tp, "layout.cp": cp, "layout.pp": pp}
    found = helps(DENSE, values)
    for id in {"devices-divide", "devices-few"} & set(found):
        assert_named_values_pass(DENSE, values, id)


@pytest.mark.parametrize("ep", mark_most([3, 12, 16, 64]))
@pytest.mark.parametrize(("tp", "etp"), [(1, 1), (4, 1), (4, 2), (4, 3)])
@pytest.mark.parametrize("devices", [32, 64])
def test_degrees_of_experts_pass_each_rule_of_theirs(
    devices: int, tp: int, ep: int, etp: int
) -> None:
    values = {"cluster.devices": devices, "layout.tp": tp, "layout.ep": ep, "layout.etp": etp}
    found = helps(SPARSE, values)
    for id in {"experts-divide", "experts-ranks"} & set(found):
        for path, value in proposals(found[id]):
            left = helps(SPARSE, {**values, path: value})
            assert id not in left
            if path == "layout.ep" and etp != 3:
                assert not {"experts-divide", "experts-ranks"} & set(left)


def test_eight_experts_have_one_nearest_degree() -> None:
    found = helps(SPARSE, {"cluster.devices": 32, "layout.tp": 2, "layout.ep": 64})
    assert found["experts-divide"] == "nearest legal: ep = 8"
    assert found["experts-ranks"] == "ep = 8 divides"


def test_a_sequence_has_one_nearest_length() -> None:
    """8192 is not a multiple of tp 8 x cp 3 = 24, nor of two parts for each of three ranks."""
    found = helps(DENSE, {"cluster.devices": 96, "layout.tp": 8, "layout.cp": 3})
    assert found["context-divides-sequence"] == "take 8184 or 8208 tokens, or cp = 2 or 4"
    assert found["sequence-divide"].startswith("take 8184 or 8208 tokens:")


@pytest.mark.parametrize(
    ("tp", "cp"), mark_most([(1, 3), (2, 3), (8, 3), (8, 5), (16, 6), (3, 5), (7, 2)])
)
@pytest.mark.parametrize("sequence", [8192, 8190, 4100])
def test_lengths_that_are_named_meet_both_rules(tp: int, cp: int, sequence: int) -> None:
    values = {"cluster.devices": 4 * tp * cp, "layout.tp": tp, "layout.cp": cp}
    values["training.sequence"] = sequence
    found = helps(DENSE, values)
    for id in LENGTH_RULES & set(found):
        for path, value in proposals(found[id]):
            if path == "training.sequence":
                assert not LENGTH_RULES & set(helps(DENSE, {**values, path: value}))
        assert_named_values_pass(DENSE, values, id)
