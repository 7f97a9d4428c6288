"""Warnings that a spec switches off with a comment: where it counts, and what is rejected."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import parcost
from parcost import SpecError
from parcost.language.format import format_text
from parcost.language.text import Source
from parcost_apps.check.command import command

from ..rows import try_each

USES = """\
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
"""
#: Warns twice in `layout`: ZeRO and sequence parallelism have no ranks to shard over.
SPEC = """\
cluster { devices = 1 }
%s
layout {%s
  tp = 1
  zero = 1%s
  %s
  sequence_parallel = on
}
training { sequence = 4096, global_batch = 8 sequences, recompute = full }
"""
BOTH = {"zero-alone", "sequence-parallel-alone"}
ALLOW = "# parcost: allow zero-alone, one device is a dry run"


def spec(above: str = "", head: str = "", line: str = "", between: str = "") -> str:
    return USES + SPEC % (above, f"  {head}", f"  {line}", between)


def warned(text: str) -> set[str]:
    (scenario,) = parcost.load_text(text)
    return {d.id for d in scenario.check()}


@try_each(
    "text, left",
    [
        (spec(), BOTH),
        (spec(line=ALLOW), {"sequence-parallel-alone"}),
        (spec(above=ALLOW), {"sequence-parallel-alone"}),
        (
            spec(above=ALLOW.replace("parcost: allow", "Parcost: Allow")),
            {"sequence-parallel-alone"},
        ),
        (spec(head=ALLOW), {"sequence-parallel-alone"}),
        (spec(between=ALLOW), BOTH),  # above another attribute
        (spec(above=ALLOW + "\n# a remark\n\n# another"), {"sequence-parallel-alone"}),
        (
            spec(above=f"{ALLOW}\n# parcost: allow sequence-parallel-alone: a dry run as well"),
            set(),
        ),
        (
            spec(
                above="# parcost: allow does-not-fit-x".replace(
                    "does-not-fit-x", "memory-tight, no"
                )
            ),
            BOTH,
        ),
    ],
)
def test_a_comment_is_about_its_line_or_what_is_below(text: str, left: set[str]) -> None:
    assert warned(text) == left


def test_an_attribute_over_several_lines_and_a_block_on_one() -> None:
    text = USES + (
        "cluster { devices = 1 }\n"
        f"layout {{ tp = 1, zero = 1 }}  {ALLOW}\n"
        "training { sequence = 4096, global_batch = 8 sequences, recompute = full }\n"
    )
    assert warned(text) == set()
    assert warned(text.replace(ALLOW, "")) == {"zero-alone"}


@try_each(
    "comment, id, said",
    [
        ("# parcost: allow zero-alone", "missing-reason", "without a reason"),
        ("# parcost: allow zero-alone,  ", "missing-reason", "without a reason"),
        ("# parcost: allow zero-alonne, because", "unknown-rule", "`zero-alone`"),
        (
            "# parcost: allow heads-divide, we pad",
            "not-allowable",
            "only warnings can be switched off",
        ),
        (
            "# parcost: ignore zero-alone, because",
            "malformed-allowance",
            "is not an `allow` comment",
        ),
        ("# parcost:", "malformed-allowance", "parcost: allow ID, REASON"),
        ("# Parcost: Allow zero-alonne, because", "unknown-rule", "`zero-alone`"),
    ],
)
def test_an_allowance_that_is_none_is_an_error(comment: str, id: str, said: str) -> None:
    (scenario,) = parcost.load_text(spec(line=comment))
    with pytest.raises(SpecError) as caught:
        scenario.check()
    (found,) = caught.value.diagnostics
    assert found.id == id
    assert said in f"{found.message} {found.help}"
    with pytest.raises(SpecError):
        scenario.evaluate()


def test_a_text_and_other_comments_allow_nothing() -> None:
    text = spec(line="# see parcost: it warns\n# Parcost: allowing nothing").replace(
        "sequence_parallel = on", 'sequence_parallel = on\n  order = "tp-cp-dp-pp"'
    )
    assert warned(text) == BOTH


def test_what_is_switched_off_is_a_part_of_the_result() -> None:
    (scenario,) = parcost.load_text(spec(line=ALLOW))
    report = scenario.evaluate()
    assert {d.id for d in report.diagnostics} & BOTH == {"sequence-parallel-alone"}
    (one,) = report.suppressions
    assert (one.diagnostic.id, one.reason) == ("zero-alone", "one device is a dry run")
    assert one.allowance.span.text == ALLOW


def test_it_counts_in_the_file_where_the_attribute_stands(tmp_path: Path) -> None:
    head = USES + "cluster { devices = 1 }\n"
    tail = "training { sequence = 4096, global_batch = 8 sequences, recompute = full }\n"
    (tmp_path / "layout.par").write_text(f"layout {{\n  zero = 1  {ALLOW}\n}}\n")
    main = tmp_path / "main.par"
    main.write_text(f'use "layout.par"\n{head}{tail}')
    (scenario,) = parcost.load(main)
    assert scenario.check() == []
    assert [one.reason for one in scenario.evaluate().suppressions] == ["one device is a dry run"]
    # The importing file overrides the attribute, which has no comment there.
    main.write_text(f'use "layout.par"\n{head}layout {{ zero = 2 }}\n{tail}')
    (scenario,) = parcost.load(main)
    assert [d.id for d in scenario.check()] == ["zero-alone"]


def test_a_comment_above_a_study_is_about_all_of_it() -> None:
    study = "study %s {\n  layout { zero = 1 }\n}\n"
    tail = "training { sequence = 4096, global_batch = 8 sequences, recompute = full }\n"
    text = f"{USES}cluster {{ devices = 1 }}\n{tail}{ALLOW}\n{study % 'a'}{study % 'b'}"
    first, second = parcost.load_text(text)
    assert [d.id for d in first.check()] == []
    assert [d.id for d in second.check()] == ["zero-alone"]


def test_a_sweep_keeps_what_is_switched_off_apart() -> None:
    text = spec(line=ALLOW).replace("zero = 1", "zero = [1, 2]")
    (scenario,) = parcost.load_text(text)
    report = scenario.evaluate()
    assert "zero-alone" not in {d.id for d in report.diagnostics}
    assert {one.diagnostic.id for one in report.suppressions} == {"zero-alone"}


def test_the_formatter_keeps_allowances() -> None:
    text = spec(above=ALLOW, line=ALLOW)
    laid_out = format_text(text)
    assert laid_out.count(ALLOW) == 2
    assert warned(laid_out) == warned(text) == {"sequence-parallel-alone"}


@pytest.mark.slow
def test_thousands_of_allowances_are_read_in_a_moment() -> None:
    """Each looks at its own line: the time of a comment does not grow with the others."""
    lines = (
        f"link l{i} {{ bandwidth = 1 GB/s per_direction }}  # parcost: allow zero-alone, r"
        for i in range(2000)
    )
    calls = 0
    position = Source.position

    def count(source: Source, offset: int) -> tuple[int, int]:
        nonlocal calls
        calls += 1
        return position(source, offset)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Source, "position", count)
        (scenario,) = parcost.load_text("\n".join(lines))
    assert len(scenario.module.allowances) == 2000
    assert calls < 2000 * 20


# --- the command ---------------------------------------------------------------------------


def check(path: Path, *arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(command, [str(path), *arguments], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return int(result.return_value), result.stdout, result.stderr


@pytest.mark.slow
def test_check_lists_what_is_switched_off(tmp_path: Path) -> None:
    path = tmp_path / "a.par"
    path.write_text(spec(line=ALLOW))
    code, text, message = check(path)
    assert code == 0
    assert "zero-alone" not in text
    assert "1 warning switched off:\n  zero-alone: one device is a dry run\n" in message
    assert "`parcost rule sequence-parallel-alone`" in message
    found = json.loads(check(path, "--format", "json")[1])
    assert [d["id"] for d in found["diagnostics"]] == ["sequence-parallel-alone"]
    (one,) = found["suppressions"]
    assert (one["id"], one["reason"]) == ("zero-alone", "one device is a dry run")
    assert one["comment"]["line"] == one["line"] == 9


@pytest.mark.slow
def test_check_warns_of_an_allowance_that_does_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.par"
    path.write_text(spec(line="# parcost: allow sparse-peak, its data sheet says so"))
    code, text, _ = check(path)
    assert code == 0
    assert "warning[unused-allowance]: `sparse-peak` gives no warning here" in text
    # Whether a device is nearly full is known once a step is evaluated.
    path.write_text(spec(line="# parcost: allow memory-tight, it is a test"))
    assert "unused-allowance" not in check(path)[1]


def test_an_allowance_that_one_study_of_several_needs_is_used(tmp_path: Path) -> None:
    path = tmp_path / "a.par"
    tail = "training { sequence = 4096, global_batch = 8 sequences, recompute = full }\n"
    studies = "study a { cluster { devices = 1 } }\nstudy b { cluster { devices = 8 } }\n"
    path.write_text(f"{USES}layout {{\n  zero = 1  {ALLOW}\n}}\n{tail}{studies}")
    assert check(path)[1] == ""


@pytest.mark.slow
def test_sarif_has_rules_and_suppressions(tmp_path: Path) -> None:
    path = tmp_path / "a.par"
    path.write_text(spec(line=ALLOW))
    (run,) = json.loads(check(path, "--format", "sarif")[1])["runs"]
    rules = {rule["id"]: rule for rule in run["tool"]["driver"]["rules"]}
    assert set(rules) == BOTH
    rule = rules["zero-alone"]
    assert rule["name"] == "ZeroAlone"
    assert rule["shortDescription"]["text"] == "ZeRO needs two or more data-parallel ranks"
    assert rule["fullDescription"]["text"]
    assert rule["help"]["markdown"].startswith("# zero-alone\n")
    assert rule["defaultConfiguration"] == {"level": "warning"}
    by_id = {result["ruleId"]: result for result in run["results"]}
    assert by_id["zero-alone"]["suppressions"] == [
        {"kind": "inSource", "justification": "one device is a dry run"}
    ]
    assert "suppressions" not in by_id["sequence-parallel-alone"]


SCRIPT = """\
#!/bin/bash
torchrun --nproc_per_node 8 pretrain_gpt.py \\
  --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 \\
  --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 32 --bf16 \\
  --vocab-size 32000 --make-such-thing-up 3 {comment}
"""


@pytest.mark.slow
def test_a_shell_script_may_switch_warnings_off(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    comment = "# parcost: allow import-unknown, ours, it only logs"
    path = tmp_path / "job.par"
    path.write_text('use "train.sh"\nuse catalog.devices.h100_sxm\nuse catalog.fabrics.hgx_h100\n')
    script.write_text(SCRIPT.format(comment=""))
    assert "warning[import-unknown]" in check(path)[1]
    script.write_text(SCRIPT.format(comment=comment))
    _, text, message = check(path)
    assert "import-unknown" not in text
    assert "import-unknown: ours, it only logs" in message
