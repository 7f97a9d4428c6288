"""Two versions of studies: what differs, what it does, and what fails."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import parcost
from parcost_apps.diff.changes import NumberChange
from parcost_apps.diff.thresholds import Threshold, ThresholdError

from ..rows import mark_most, try_each

Run = Callable[..., Any]

SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 16 }
layout { tp = 2, zero = 1 }
training { sequence = 4096, micro_batch = 1, global_batch = 32 sequences }
"""


def git(*arguments: str) -> None:
    author = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *author, *arguments], check=True, capture_output=True)


def data(run_command: Run, *arguments: str, files: dict[str, str] | None = None) -> Any:
    return json.loads(run_command("diff", *arguments, "--format", "json", files=files).out)


def by_name(numbers: list[Any]) -> dict[str, Any]:
    return {number["name"]: number for number in numbers}


@pytest.mark.slow
def test_a_job_of_another_tool_is_complete_on_both_sides(run_command: Run) -> None:
    """Its file has no devices: those of `--set` are no difference."""
    text = (
        "{'train_batch_size': 128, 'train_micro_batch_size_per_gpu': 1, 'bf16': {'enabled': true}, "
        "'zero_optimization': {'stage': 2}}"
    ).replace("'", '"')
    machine = ("catalog.devices.h100_sxm", "catalog.fabrics.hgx_h100", "catalog.models.llama3_8b")
    uses = [word for entry in machine for word in ("--use", entry)]
    given = ("cluster.devices=64", "training.sequence=4096", "layout.zero=3")
    values = [word for value in given for word in ("--set", value)]
    found = data(run_command, "ds.json", *uses, *values, files={"ds.json": text})
    (study,) = found["studies"]
    changed = {one["name"] for one in study["attributes"]}
    assert "layout.zero" in changed
    assert not {"cluster.devices", "training.sequence"} & changed


@pytest.mark.slow
def test_numbers_are_those_of_both_evaluations(run_command: Run) -> None:
    found = data(run_command, "a.par", "--set", "layout.tp=4", files={"a.par": SPEC})
    (study,) = found["studies"]
    first, second = (
        parcost.load_text(SPEC.replace("tp = 2", f"tp = {tp}"))[0].evaluate().result
        for tp in (2, 4)
    )
    for name in ("step_time", "memory", "mfu"):
        number = by_name(study["figures"])[name]
        assert number["before"] == first.figure(name)
        assert number["after"] == second.figure(name)
        assert number["relative"] == pytest.approx(second.figure(name) / first.figure(name) - 1)


def test_a_share_changes_by_points(run_command: Run) -> None:
    text = run_command("diff", "a.par", "--set", "layout.tp=4", files={"a.par": SPEC}).out
    (line,) = [line for line in text.splitlines() if "MFU (" in line]
    before, after, change, relative = re.search(  # type: ignore[union-attr]
        r"([\d.]+) % +([\d.]+) % +(-[\d.]+) points +(-[\d.]+) %$", line
    ).groups()
    assert float(change) == pytest.approx(float(after) - float(before), abs=0.01)
    assert float(relative) == pytest.approx(100 * (float(after) / float(before) - 1), abs=0.05)


@pytest.mark.slow
def test_bytes_of_a_row_have_one_kind_of_prefix(run_command: Run) -> None:
    text = run_command("diff", "a.par", "--set", "layout.tp=4", files={"a.par": SPEC}).out
    (line,) = [line for line in text.splitlines() if line.strip().startswith("gradients ")]
    before, after, change = map(float, re.findall(r"([\d.]+) GiB", line))
    assert change == pytest.approx(before - after, abs=0.02)


def test_terms_add_up_to_the_change_of_the_step(run_command: Run) -> None:
    (study,) = data(run_command, "a.par", "--set", "layout.tp=8", files={"a.par": SPEC})["studies"]
    step = by_name(study["figures"])["step_time"]["difference"]
    for part in ("terms", "causes"):
        assert sum(n["difference"] for n in study[part]) == pytest.approx(step, rel=1e-9)
    memory = by_name(study["figures"])["memory"]["difference"]
    assert sum(n["difference"] for n in study["memory"]) == pytest.approx(memory, rel=1e-9)


@pytest.mark.slow
def test_attributes_that_are_written_stand_before_those_that_follow(run_command: Run) -> None:
    files = {"a.par": SPEC, "b.par": SPEC.replace("tp = 2", "tp = 4")}
    (study,) = data(run_command, "a.par", "b.par", files=files)["studies"]
    first, *rest = study["attributes"]
    assert first == {"name": "layout.tp", "before": "2", "after": "4", "follows": False}
    assert {"name": "layout.dp", "before": "8", "after": "4", "follows": True} in rest
    page = run_command("diff", "a.par", "b.par").out
    assert "layout.tp  2       4      b.par:7" in page
    assert "derived attributes that differ: layout.dp" in page


@pytest.mark.slow
def test_a_comment_is_no_change(run_command: Run) -> None:
    files = {"a.par": SPEC, "b.par": f"# a comment\n{SPEC}"}
    found = data(run_command, "a.par", "b.par", files=files)
    assert [study["changed"] for study in found["studies"]] == [False]
    assert "0 studies differ, 1 is the same" in run_command("diff", "a.par", "b.par").out


@pytest.mark.slow
def test_directories_are_compared_file_by_file(run_command: Run) -> None:
    files = {
        "old/same.par": SPEC,
        "new/same.par": SPEC,
        "old/deep/a.par": SPEC,
        "new/deep/a.par": SPEC.replace("zero = 1", "zero = 0"),
        "old/gone.par": SPEC,
        "new/more.par": SPEC,
        "new/bad.par": "layout {",
    }
    done = run_command("diff", "old", "new", files=files)
    assert done.code == 2
    assert "1 study differs, 1 is the same, 1 added, 1 removed, 1 not evaluated" in done.out
    assert "only in new: more" in done.out
    assert "only in old: gone" in done.out
    assert "new/bad.par" in done.err
    found = data(run_command, "old", "new")
    assert [study["name"] for study in found["studies"]] == ["deep/a"]
    assert found["same"] == ["same"]


def test_studies_of_a_file_are_compared_by_name(run_command: Run) -> None:
    studies = "study one { layout { tp = 4 } }\nstudy two { layout { tp = 8 } }\n"
    files = {"a.par": SPEC + studies, "b.par": SPEC + studies.replace("tp = 8", "tp = 2")}
    page = run_command("diff", "a.par", "b.par", files=files).out
    assert "1 study differs, 1 is the same" in page
    assert "layout.tp  8       2" in page


def test_studies_without_a_common_name_get_a_line_that_helps(run_command: Run) -> None:
    studies = "study one { layout { tp = 4 } }\nstudy two { layout { tp = 8 } }\n"
    files = {"a.par": SPEC + studies, "b.par": SPEC + studies.replace("study ", "study other_")}
    page = " ".join(run_command("diff", "a.par", "b.par", files=files).out.split())
    assert "give them the same names, or keep one study on each side" in page
    assert "only in b.par: other_one, other_two" in page


@pytest.mark.slow
def test_a_cell_has_a_value_without_its_reason(run_command: Run) -> None:
    """A reason of 60 letters would cut words in a column of 23; `--full` has it."""
    why = "this reason has_words_that_are_longer_than_any_column of a table"
    files = {
        name: f'{SPEC}study a {{ layout {{ tp = {tp} @assumed("{why}") }} }}\n'
        for name, tp in (("a.par", 4), ("b.par", 8))
    }
    page = run_command("diff", "a.par", "b.par", files=files).out
    assert "layout.tp  4 (assumed)  8 (assumed)" in page
    full = run_command("diff", "a.par", "b.par", "--full").out
    assert "reason" in full
    assert max(map(len, full.splitlines())) <= 80


def test_a_job_that_does_not_fit_is_compared(run_command: Run) -> None:
    large = SPEC.replace("tp = 2, zero = 1", "tp = 1, zero = 0")
    files = {"a.par": SPEC, "b.par": large}
    page = run_command("diff", "a.par", "b.par", files=files).out
    assert "fits in memory -> does not fit in memory" in page
    assert "stage 0 needs" in page
    assert "step time" in page


def test_verdicts_of_several_studies_fit_the_page(run_command: Run) -> None:
    large = SPEC.replace("tp = 2, zero = 1", "tp = 1, zero = 0")
    studies = "study a {}\nstudy another_of_a_long_name {}\n"
    files = {"a.par": SPEC + studies, "b.par": large + studies}
    page = run_command("diff", "a.par", "b.par", files=files).out
    assert "does not" in page
    assert max(map(len, page.splitlines())) <= 80


@pytest.mark.slow
def test_a_refused_job_has_its_reason(run_command: Run) -> None:
    page = run_command("diff", "a.par", "--set", "layout.tp=3", files={"a.par": SPEC}).out
    assert "fits in memory -> invalid" in page
    assert "16 devices are not divisible by tp 3" in page


@pytest.mark.slow
def test_points_of_a_sweep_are_compared_each(run_command: Run) -> None:
    swept = SPEC.replace("micro_batch = 1", "micro_batch = [1, 2]")
    found = data(run_command, "a.par", "--set", "layout.zero=2", files={"a.par": swept})
    points = [study["at"]["training.micro_batch"] for study in found["studies"]]
    assert points == [1.0, 2.0]


def test_sweeps_without_a_common_point_differ_in_attributes(run_command: Run) -> None:
    files = {"a.par": SPEC, "b.par": SPEC.replace("micro_batch = 1", "micro_batch = [2, 4]")}
    page = run_command("diff", "a.par", "b.par", files=files).out
    assert "1 points -> 2 others" in page
    assert re.search(r"training.micro_batch +1 +\[2, 4\]", page)


def test_a_study_that_becomes_invalid_fails_a_limit(run_command: Run) -> None:
    bad = ("diff", "a.par", "--set", "layout.tp=3")
    done = run_command(*bad, "--fail-on", "step_time > 2 %", files={"a.par": SPEC})
    assert done.code == 1
    assert "step_time has no value after the change: 16 devices are not divisible" in done.err
    assert "-> invalid" in done.out
    assert "Figures" not in done.out
    assert run_command(*bad).code == 0


@pytest.mark.parametrize(
    ("limit", "code"),
    mark_most(
        [
            ("step_time > +1000 %", 0),
            ("step_time > -99 %", 1),
            ("step_time < +1000 %", 1),
            ("memory >= 0 %", 0),
            ("memory <= 0 %", 1),
        ]
    ),
)
def test_a_change_beyond_a_limit_fails(run_command: Run, limit: str, code: int) -> None:
    """A tp of 4 takes another time, and less memory."""
    done = run_command(
        "diff", "a.par", "--set", "layout.tp=4", "--fail-on", limit, files={"a.par": SPEC}
    )
    assert done.code == code
    assert ("and the limit is" in done.err) == bool(code)


@pytest.mark.parametrize("text", ["", "step_time", "step_time > 2", "> 2 %", "step_time = 2 %"])
def test_a_limit_that_is_none_is_an_error(run_command: Run, text: str) -> None:
    with pytest.raises(ThresholdError):
        Threshold.parse(text)
    done = run_command(
        "diff", "a.par", "--set", "layout.tp=4", "--fail-on", text, files={"a.par": SPEC}
    )
    assert done.code == 2
    assert "write 'step_time > +2 %'" in done.err


def test_a_limit_of_no_figure_is_an_error(run_command: Run) -> None:
    arguments = ["diff", "a.par", "--set", "layout.tp=4", "--fail-on", "step_tim > 2 %"]
    done = run_command(*arguments, files={"a.par": SPEC})
    assert done.code == 2
    assert "did you mean `step_time`?" in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.par"], "give two files, a revision and files, or a file and --set"),
        (
            ["a.par", "./a.par", "--set", "layout.tp=4"],
            "write `parcost diff a.par --set layout.tp=4`",
        ),
        (["nothing.par", "a.par"], "`nothing.par` is neither a file nor a git revision"),
        (["a" * 20_000, "a.par"], "` is neither a file nor a git revision"),
        (["--upload-pack=x", "a.par"], "No such option"),
    ],
)
def test_sides_that_are_none_are_an_error(
    run_command: Run, arguments: list[str], message: str
) -> None:
    done = run_command("diff", *arguments, files={"a.par": SPEC})
    assert done.code == 2
    assert message in done.err


@try_each(
    "number, relative",
    [
        (NumberChange(name="t", before=2.0, after=3.0), 0.5),
        (NumberChange(name="t", before=-2.0, after=-3.0), -0.5),
        (NumberChange(name="t", before=0.0, after=3.0), float("inf")),
        (NumberChange(name="t", before=0.0, after=0.0), 0.0),
        (NumberChange(name="t", before=None, after=3.0), float("inf")),
    ],
)
def test_a_relative_change_is_of_the_size_before(number: NumberChange, relative: float) -> None:
    assert number.relative == relative


# --- revisions of git ---------------------------------------------------------------------


@pytest.fixture
def repository(own_folder: Path) -> Path:
    """Return a repository with a spec that imports another, changed since its only commit."""
    git("init", "-q", "-b", "main", ".")
    (own_folder / "lib").mkdir()
    (own_folder / "lib/site.par").write_text(SPEC)
    (own_folder / "specs").mkdir()
    (own_folder / "specs/a.par").write_text('use "../lib/site.par"\nlayout { pp = 1 }\n')
    (own_folder / "specs/b.par").write_text(SPEC)
    git("add", ".")
    git("commit", "-q", "-m", "one")
    (own_folder / "lib/site.par").write_text(SPEC.replace("tp = 2", "tp = 4"))
    return own_folder


@pytest.mark.slow
def test_a_revision_is_compared_with_the_files_of_now(run_command: Run, repository: Path) -> None:
    done = run_command("diff", "main", "--", "specs/")
    assert done.code == 0
    assert "1 study differs, 1 is the same" in done.out
    assert re.search(r"layout\.tp +2 +4 ", done.out)
    assert repository.exists()


@pytest.mark.slow
def test_two_revisions_are_compared(run_command: Run, repository: Path) -> None:
    git("commit", "-q", "-a", "-m", "two")
    (repository / "lib/site.par").write_text("nothing at all")
    found = data(run_command, "HEAD~1..HEAD", "specs")
    (study,) = found["studies"]
    assert study["name"] == "a"
    assert study["attributes"][0]["name"] == "layout.tp"


@pytest.mark.slow
def test_three_dots_compare_with_the_commit_at_which_a_branch_left(
    run_command: Run, repository: Path
) -> None:
    git("stash", "-q")
    git("checkout", "-q", "-b", "topic")
    git("stash", "pop", "-q")
    git("commit", "-q", "-a", "-m", "on topic")
    git("checkout", "-q", "main")
    (repository / "specs/b.par").write_text(SPEC.replace("tp = 2", "tp = 8"))
    git("commit", "-q", "-a", "-m", "on main")
    (study,) = data(run_command, "main...topic", "specs")["studies"]
    assert study["name"] == "a"
    assert len(data(run_command, "main..topic", "specs")["studies"]) == 2
    git("checkout", "-q", "--orphan", "alone")
    git("commit", "-q", "-m", "no parent")
    done = run_command("diff", "main...alone", "specs")
    assert done.code == 2
    assert "`main` and `alone` have no common commit in this clone" in done.err


@pytest.mark.slow
def test_a_folder_below_the_top_is_its_own_start(
    run_command: Run, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository / "specs")
    assert "1 study differs, 1 is the same" in run_command("diff", "main", "--", ".").out


def test_a_second_revision_apart_is_named(run_command: Run, repository: Path) -> None:
    assert repository.is_dir()
    done = run_command("diff", "main", "HEAD")
    assert done.code == 2
    assert "write two revisions as one word, `main..HEAD`" in done.err


def test_a_file_that_a_revision_lacks_is_an_error(run_command: Run, repository: Path) -> None:
    (repository / "specs/c.par").write_text(SPEC)
    done = run_command("diff", "main", "--", "specs/c.par")
    assert done.code == 2
    assert "there is no file" in done.err


@pytest.mark.slow
def test_files_of_a_revision_have_the_names_that_git_gives_them(
    run_command: Run, repository: Path
) -> None:
    (repository / "specs/wrong.par").write_text("layout { tp = x y }\n")
    git("add", ".")
    git("commit", "-q", "-a", "-m", "two")
    done = run_command("diff", "HEAD~1..HEAD", "--", "specs")
    assert re.search(r"layout\.tp +2 +4 +HEAD:lib/site\.par:", done.out)
    assert "HEAD:specs/wrong.par" in done.err
    gone = run_command("diff", "HEAD~1..HEAD", "--", "specs/wrong.par")
    assert gone.code == 2
    assert "parcost-temporary" not in done.out + done.err + gone.out + gone.err


def test_a_limit_of_nothing_that_is_compared_is_refused(run_command: Callable[..., Any]) -> None:
    (one, two) = (f"study {name} {{ }}\n{SPEC}" for name in ("a", "b"))
    both = {"one.par": one + "study c { }\n", "two.par": two + "study d { }\n"}
    done = run_command("diff", "one.par", "two.par", "--fail-on", "step_time > 2 %", files=both)
    assert done.code == 2
    assert "no study has the same name on both sides" in done.err


@pytest.mark.slow
def test_a_whole_path_is_compared_with_the_revision(run_command: Run, repository: Path) -> None:
    found = data(run_command, "main", str(repository / "specs"))["studies"]
    assert found == data(run_command, "main", "specs")["studies"]
    assert [study["name"] for study in found] == ["a"]


@pytest.mark.usefixtures("repository")
def test_a_file_outside_of_the_repository_is_refused(
    run_command: Run, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other") / "a.par"
    other.write_text(SPEC, encoding="utf-8")
    done = run_command("diff", "main", "--", str(other))
    assert done.code == 2
    assert "is outside the repository" in done.err


MEGATRON = (
    "TP={}\ntorchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --tensor-model-parallel-size "
    "$TP --num-layers 16 --hidden-size 2048 --ffn-hidden-size 8192 --num-attention-heads 32 "
    "--seq-length 4096 --micro-batch-size 1 --global-batch-size 32 --bf16 --vocab-size 32000 "
    "--attention-dropout 0 --hidden-dropout 0 --use-distributed-optimizer\n"
)
MACHINE = ("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100")


def test_directories_of_other_tools_are_jobs(run_command: Run) -> None:
    """The model is in a file of its own, which is the same in both; a README is not read."""
    config = {"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192}
    config |= {"num_hidden_layers": 16, "num_attention_heads": 32, "vocab_size": 32000}
    files = {
        f"{folder}/{name}": text
        for folder, degree in (("old", 2), ("new", 4), ("also", 2))
        for name, text in (
            ("config.json", json.dumps(config)),
            ("run.sh", MEGATRON.format(degree)),
            ("labels.json", "[1, 2]"),
        )
    }
    (study,) = data(run_command, "old", "new", *MACHINE, files=files)["studies"]
    changes = {one["name"]: (one["before"], one["after"]) for one in study["attributes"]}
    assert changes["layout.tp"] == ("2", "4")
    found = data(run_command, "old", "also", *MACHINE, files=files)
    assert not found["studies"]
    assert len(found["same"]) == 1
    done = run_command("check", "old", files=files)
    assert "name the files of other tools, such as old/config.json old/labels.json" in done.out


def test_a_script_that_another_one_sources_makes_a_difference(run_command: Run) -> None:
    script = "source ./degree.sh\n" + MEGATRON.partition("\n")[2]
    files = {f"{one}/run.sh": script for one in ("old", "new")}
    files |= {"old/degree.sh": "TP=2\n", "new/degree.sh": "TP=4\n"}
    (study,) = data(run_command, "old/run.sh", "new/run.sh", *MACHINE, files=files)["studies"]
    assert "layout.tp" in {one["name"] for one in study["attributes"]}


def test_a_change_without_an_effect_says_that_no_figure_changes(run_command: Run) -> None:
    given = ("--set", "overlap.chunks=4")  # of messages that nothing cuts here
    done = run_command("diff", "a.par", *given, files={"a.par": SPEC})
    assert "No figure and no term changes." in done.out
    moved = run_command("diff", "a.par", "--set", "layout.tp=4", files={"a.par": SPEC})
    assert "No figure" not in moved.out
