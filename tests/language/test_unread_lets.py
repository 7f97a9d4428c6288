"""A `let` that nothing reads is reported: its value is never evaluated, nor its mistakes."""

from __future__ import annotations

import parcost

from ..rows import try_each

JOB = """\
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
{lets}
cluster {{ devices = {devices} }}
layout {{ zero = 1 }}
training {{ sequence = 8192, micro_batch = 1, global_batch = 128 sequences }}
{more}
"""


def unread_names(lets: str, devices: str = "16", more: str = "") -> list[str]:
    text = JOB.format(lets=lets, devices=devices, more=more)
    warnings = (d for scenario in parcost.load_text(text) for d in scenario.warnings)
    found = {d.message for d in warnings if d.id == "no-effect"}
    return sorted(message.split("let ")[1].strip("`") for message in found)


@try_each("lets", ["let z = nosuch * 2", "let z = 5 GB + 3 s", "let z = 1/0", "let z = z"])
def test_a_mistake_that_nothing_reads_is_named(lets: str) -> None:
    assert unread_names(lets) == ["z"]


def test_lets_that_read_one_another_are_read_by_nothing() -> None:
    assert unread_names("let a = b\nlet b = a") == ["a", "b"]


def test_a_let_is_read_by_way_of_another() -> None:
    assert unread_names("let a = 8\nlet b = 2 * a", devices="b") == []


def test_a_claim_reads() -> None:
    assert unread_names("let least = 10 %", more="expect { mfu >= least }") == []


def test_a_let_that_another_study_reads_is_read() -> None:
    more = "study one { layout { pp = wide } }\nstudy two { let deep = 2 }"
    assert unread_names("let wide = 2", more=more) == ["deep"]
