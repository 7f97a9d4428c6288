"""A search offers what the framework has; what a user asks for beyond that is rejected by rule."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import parcost
from parcost.search.best_first import SearchRequest, search
from parcost.search.space import plugin_axes, space
from parcost_apps.cli import main

from ..rows import try_each

SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
{uses}
cluster  {{ devices = 16 }}
layout   {{ tp = 2 }}
training {{ sequence = 8192, global_batch = 64 sequences, recompute = full }}
{more}
"""


def spec(framework: str = "", more: str = "") -> str:
    uses = f"use catalog.frameworks.{framework}" if framework else ""
    return SPEC.format(uses=uses, more=more)


def values(framework: str, more: str = "") -> Mapping[str, Sequence[Any]]:
    axes = plugin_axes(parcost.load_text(spec(framework, more))[0].first)
    return {name: list(axis.values) for name, axis in axes.items()}


@try_each(
    "framework, axis, expected",
    [
        ("", "layout.zero", [0, 1, 2, 3]),
        ("", "schedule.kind", ["interleaved", "one_f_one_b"]),
        ("megatron_core", "layout.zero", [0, 1, 2, 3]),
        ("megatron_core", "schedule.kind", ["interleaved", "one_f_one_b"]),
        ("megatron_lm_2021", "layout.zero", [0]),
        ("megatron_lm_2021", "layout.cp", [1]),
        ("megatron_lm_2021", "layout.sequence_parallel", ["off"]),
        ("megatron_lm_2021", "training.recompute", ["none", "full"]),
        ("megatron_lm_2023", "training.recompute", ["none", "selective", "full"]),
        ("deepspeed", "schedule.kind", ["one_f_one_b"]),
        ("deepspeed", "schedule.chunks", [1]),
        ("deepspeed", "layout.zero", [0, 1, 2, 3]),  # 2 and 3 without a pipeline
        (
            "torchtitan",
            "schedule.kind",
            ["breadth_first", "dualpipe_v", "gpipe", "interleaved", "one_f_one_b", "zb_v"],
        ),
        ("torchtitan", "layout.zero", [0, 3]),
        ("maxtext", "schedule.kind", ["breadth_first", "gpipe"]),
        ("fsdp_composer", "layout.pp", [1]),
    ],
)
def test_axes_have_what_the_framework_has(
    framework: str, axis: str, expected: Sequence[Any]
) -> None:
    assert values(framework)[axis] == expected


def test_values_left_out_of_an_axis_are_named() -> None:
    axes = plugin_axes(parcost.load_text(spec("megatron_lm_2021"))[0].first)
    assert axes["layout.zero"].lacking == [1, 2, 3]
    assert "megatron_lm_2021" in axes["layout.zero"].lacks
    assert "zb_v" in axes["schedule.kind"].lacking
    assert not axes["schedule.kind"].others


def test_an_axis_of_which_the_framework_has_nothing_stays_for_the_rule_to_refuse() -> None:
    more = 'framework ours { offers few { attribute = "layout.zero", values = "7" } }'
    assert values("", more)["layout.zero"] == [0, 1, 2, 3]


@pytest.mark.slow
def test_a_search_finds_no_layout_that_the_framework_lacks() -> None:
    (scenario,) = parcost.load_text(spec("deepspeed"))
    whole = space(scenario, {}, ["tp", "pp", "zero", "schedule", "chunks", "gradients"])
    found = search(whole, SearchRequest(keep=100, budget_seconds=1e9))
    assert found.proven
    for entry in found.best:
        chosen = entry.values
        if chosen["layout.pp"] > 1:
            assert chosen["layout.zero"] <= 1
            assert chosen["overlap.gradients"] == "off"
            assert chosen["schedule.kind"] == "one_f_one_b"


@pytest.mark.slow
def test_values_that_a_user_names_are_refused_by_the_rule_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "asked.par"
    path.write_text(spec("megatron_lm_2021"))
    over = ["--over", "zero=0,1", "--over", "tp=2,4", "--axes", "recompute", "--format", "json"]
    code = main(["search", str(path), *over])
    printed = json.loads(capsys.readouterr().out)
    assert code == 0
    assert "framework-lacks" in json.dumps(printed)
    assert all(entry["values"]["layout.zero"] == 0 for entry in printed["best"])


@pytest.mark.slow
def test_the_page_says_what_was_not_searched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "printed.par"
    path.write_text(spec("megatron_lm_2021"))
    main(["search", str(path), "--axes", "tp,zero", "--full"])
    page = " ".join(capsys.readouterr().out.split())
    assert "Not searched: zero 1, 2, 3; `megatron_lm_2021` has none" in page
