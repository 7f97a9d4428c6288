"""What constants of a script do not decide is asked for, with options to copy."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from parcost_formats.tools.shell.launches import launches
from parcost_formats.tools.shell.scripts import ScriptCall, read_script
from parcost_formats.tools.shell.values import ShellField
from parcost_formats.tools.shell.words import ShellTextError

from ..rows import try_each

FP8 = """
A=(--bf16)
if [ "$DTYPE" = fp8 ]; then
    A+=(--fp8-format hybrid --vocab-size 100)
elif [ "$DTYPE" = bf16 ]; then
    A+=(--vocab-size 100)
else
    exit 1
fi
python train.py "${A[@]}" --lr 1
"""


def call(text: str, **environment: str) -> ScriptCall:
    return read_script(text, environment).commands[-1]


def texts(fields: Sequence[ShellField]) -> str:
    return " ".join(field.text for field in fields)


@pytest.mark.parametrize("started", [False, True])
def test_a_variable_of_a_branch_that_is_not_executed_is_empty(started: bool) -> None:
    inner = 'if [ "$1" != none ]; then L="--load $1"; fi\npython train.py $L --lr 1\n'
    if started:
        found = read_script("bash run.sh none", {}, {"run.sh": inner}.get).commands[-1]
    else:
        found = call(inner.replace("$1", "$D"), D="none")
    assert texts(found.words) == "python train.py --lr 1"
    assert not found.conditional


def test_what_all_branches_share_holds_and_the_rest_raises_a_question() -> None:
    found = call(FP8)
    assert texts(found.words) == "python train.py --bf16 --vocab-size 100 --lr 1"
    assert texts(found.conditional) == "--fp8-format hybrid"
    assert found.conditional[0].answers == ("--set-env DTYPE=fp8", "--set-env DTYPE=bf16")
    assert "`A` is set inside `if`, which parcost does not evaluate" in found.conditional[0].unread


@pytest.mark.parametrize(
    ("dtype", "words"),
    [
        ("fp8", "python train.py --bf16 --fp8-format hybrid --vocab-size 100 --lr 1"),
        ("bf16", "python train.py --bf16 --vocab-size 100 --lr 1"),
    ],
)
def test_an_answer_decides(dtype: str, words: str) -> None:
    found = call(FP8, DTYPE=dtype)
    assert (texts(found.words), found.conditional) == (words, [])


@try_each(
    "script, answers",
    [
        ('if [ -n "$X" ]; then T=2; else T=4; fi', ("--set-env X=1", "--set-env X=")),
        ('[[ -z "$X" ]] && T=2 || T=4', ("--set-env X=1", "--set-env X=")),
        ("if [ $X -gt 4 ]; then T=2; else T=4; fi", ("--set-env X=5", "--set-env X=4")),
        ('case "$X" in a) T=1;; b|c) T=2;; esac', tuple(f"--set-env X={x}" for x in "abc")),
        ("if [ $1 = a ]; then T=2; else T=4; fi", ("--set-env 1=a", "--set-env 1=")),
        ("if [ -f x ]; then T=2; else T=4; fi", ("--set-env T=2", "--set-env T=4")),
        ("T=$(nvidia-smi | wc -l)", ("--set-env T=VALUE",)),
        ("T=$2", ("--set-env T=VALUE",)),
        ("T=$NODES", ("--set-env NODES=VALUE",)),
        ("T=$((NODES * 8))", ("--set-env NODES=VALUE",)),
        ("X=$Y; if [ $X = 1 ]; then T=2; else T=4; fi", ("--set-env X=1", "--set-env X=")),
        (
            'if [ "$Z" ]; then X=1; else X=2; fi; if [ $X = 1 ]; then T=2; else T=3; fi',
            ("--set-env Z=1", "--set-env Z="),
        ),
    ],
)
def test_answers_are_the_values_of_the_tests(script: str, answers: tuple[str, ...]) -> None:
    found = call(f"{script}\npython a.py --tp $T")
    assert found.words[-1].unread
    assert found.words[-1].answers == answers


@try_each(
    "script, value, assumption",
    [
        ("T=${N:-4}", "4", "`N` is not set in the file: its default there"),
        ("T=${2:-4}", "4", "argument 2 of the script is unknown: its default"),
        (': "${T:=4}"', "4", "`T` is not set in the file: its default there"),
        ("N=${N:-4}; if [ $N -gt 2 ]; then T=8; else T=1; fi", "8", "`N` is not set in the file"),
        ('[ -z "$T" ] && T=4', "4", "`T` is not set in the file: its default there"),
        ("if [ -z ${N} ]; then N=4; fi; T=$((N*2))", "8", "`N` is not set in the file"),
        (
            "T=4; while [ $# -gt 0 ]; do case $1 in --t) T=$2; shift;; esac; shift; done",
            "4",
            "without arguments of the script",
        ),
        ('T=4; for a in "$@"; do export "$a"; done', "4", "without arguments of the script"),
    ],
)
def test_a_default_of_the_script_is_assumed(script: str, value: str, assumption: str) -> None:
    word = call(f"{script}\npython a.py --tp $T").words[-1]
    assert (word.text, word.unread) == (value, "")
    assert assumption in word.assumption


def test_the_environment_replaces_a_value_and_says_so() -> None:
    word = call("T=4\npython a.py --tp $T", T="8").words[-1]
    assert (word.text, word.assumption) == ("8", "--set-env T=8, in place of 4")
    assert call("T=${T:-4}; T=$((T*2)); python a.py --tp $T", T="8").words[-1].text == "16"


def test_a_piece_under_a_test_keeps_the_flag_ahead_of_it() -> None:
    found = call('X="--a 1"; if [ $D ]; then X="$X --b 2"; fi; python a.py $X --c 3')
    assert texts(found.words) == "python a.py --a 1 --c 3"
    assert texts(found.conditional) == "--b 2"
    found = call("python a.py ${D:+--b 2} --c 3")
    assert (texts(found.words), texts(found.conditional)) == ("python a.py --c 3", "--b 2")


def test_launches_in_both_branches_are_one_with_what_they_share() -> None:
    text = "if [ $N ]; then torchrun a.py --tp 1 --x; else torchrun a.py --tp 2 --x; fi"
    (found,) = read_script(text).commands
    assert texts(found.words) == "torchrun a.py --tp ... --x"
    assert found.words[3].answers == ("--set-env N=1", "--set-env N=")


def test_a_script_that_exits_without_a_variable_is_started_with_it() -> None:
    """A second launch in the branch that exits is named with the options that choose one."""
    text = 'if [ -z "${N:-}" ]; then torchrun a.py --tp 1; exit; fi\ntorchrun a.py --tp 2'
    found = read_script(text).commands
    assert [texts(one.words) for one in found] == ["torchrun a.py --tp 2", "torchrun a.py --tp 1"]
    assert found[1].decision is not None
    assert found[1].decision.answers == ("--set-env N=", "--set-env N=1")
    assert texts(call(text, N="1").words) == "torchrun a.py --tp 2"


def test_a_constant_of_a_command_in_a_here_document_is_stated() -> None:
    """The folder is a default of the script; the degree is a constant of its own."""
    text = 'D=${D:-x}\nA="--tp 4"\nC="cd $D; python $D/a.py $A"\nsbatch <<E\nsrun sh -c "$C"\nE\n'
    *_, program, flag, degree = call(text).words
    assert "`D` is not set in the file" in program.assumption
    assert (flag.text, flag.assumption) == ("--tp", "")
    assert (degree.text, degree.assumption) == ("4", "")
    assert text[degree.start : degree.end] == "4"


def test_a_neighbor_is_sourced_and_a_missing_one_is_named() -> None:
    text = 'D="$(cd "$(dirname "$0")" && pwd)"\nT=2\n. $D/models/x.sh\npython a.py --tp $T $A'
    files = {"models/x.sh": "A='--layers 3'\n"}
    found = read_script(text, {}, files.get, "dir/run.sh").commands[-1]
    assert texts(found.words) == "python a.py --tp 2 --layers 3"
    found = read_script(text).commands[-1]
    assert "may be set by `. ./models/x.sh` in line 3" in found.words[3].unread
    assert "`. ./models/x.sh` in line 3 may set it" in found.words[4].unread


@try_each(
    "script, kind, name, launcher, arguments",
    [
        (
            "python3 -m verl.trainer.main_ppo a.b=1 +c=2",
            "module",
            "verl.trainer.main_ppo",
            "python3 -m",
            "a.b=1 +c=2",
        ),
        (
            "deepspeed --module openrlhf.cli.train_ppo_ray --lr 1",
            "module",
            "openrlhf.cli.train_ppo_ray",
            "deepspeed --module",
            "--lr 1",
        ),
        (
            "ray job submit --address=x -- python3 train.py --tp 4",
            "script",
            "train.py",
            "ray job submit --address=x -- python3",
            "--tp 4",
        ),
        (
            "accelerate launch --config_file c.yaml -m trl.sft --lr 1",
            "module",
            "trl.sft",
            "accelerate launch --config_file c.yaml -m",
            "--lr 1",
        ),
        ("NPROC_PER_NODE=2 swift sft --model m", "command", "swift sft", "", "--model m"),
        ("llamafactory-cli train x.yaml", "command", "llamafactory-cli train", "", "x.yaml"),
        (
            "tune run --nproc_per_node 8 full_finetune_distributed --config c a=1",
            "command",
            "full_finetune_distributed",
            "tune run --nproc_per_node 8",
            "--config c a=1",
        ),
        (
            "python -m torch.distributed.run --nproc-per-node 8 -m pkg.mod --x",
            "module",
            "pkg.mod",
            "python -m torch.distributed.run --nproc-per-node 8 -m",
            "--x",
        ),
        (
            "srun -N 2 bash -c 'nohup torchrun --nnodes 2 dir/t.py --x 1 > log 2>&1 &'",
            "script",
            "dir/t.py",
            "srun -N 2 torchrun --nnodes 2",
            "--x 1",
        ),
        ('ssh host "cd x && torchrun t.py --x"', "script", "t.py", "torchrun", "--x"),
        ("sbatch -N 2 --wrap='python t.py --x'", "script", "t.py", "python", "--x"),
        ("sbatch <<E\n#SBATCH -N 2\npython t.py --x\nE\n", "script", "t.py", "python", "--x"),
        (
            "cat > run.sh <<'E'\npython t.py --x $1\nE\nbash run.sh 5",
            "script",
            "t.py",
            "python",
            "--x 5",
        ),
        ('C="python t.py\n --x 1"\necho $C\neval $C', "script", "t.py", "python", "--x 1"),
    ],
)
def test_the_launched_program(
    script: str, kind: str, name: str, launcher: str, arguments: str
) -> None:
    (found,) = launches(read_script(script))
    assert (found.kind, found.name) == (kind, name)
    assert (texts(found.launcher), texts(found.arguments)) == (launcher, arguments)


def test_assignments_ahead_of_a_launch_are_its_environment() -> None:
    (found,) = launches(read_script("N=2\nNPROC_PER_NODE=$N swift sft --model m"))
    assert found.environment["NPROC_PER_NODE"].text == "2"


def test_a_word_of_a_composed_command_has_its_place() -> None:
    text = 'C="python a.py --tp 4"\neval "$C --pp 2"\n'
    found = call(text)
    for word in found.words[1:]:
        assert text[word.start : word.end] == word.text


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [
        "A=(a b)\n" + "A=(${A[@]} ${A[@]})\n" * 40,
        "A=a\n" + "A=$A$A\n" * 40,
        "A=(--x)\n" + "if [ $X ]; then A+=(${A[@]}); fi\n" * 60 + "python a.py ${A[@]}",
        "A=x\n" + 'if [ $X ]; then A="$A $A"; fi\n' * 60 + "python a.py --y $A",
        "A=({1..900000000})",
        "A=(" + "{a,b}" * 25 + ")",
        "for i in {1..2000}; do for j in {1..2000}; do A+=($i); done; done",
        "while true; do while true; do while true; do X=1; done; done; done",
        "f() { f; }; f",
        'A=\'eval "$A"\'; eval "$A"',
        "if true; then " * 500,
        "$(" * 500,
        "f() )",
        "A\0B",
    ],
    ids=range(14),
)
def test_what_grows_too_much_is_an_error(script: str) -> None:
    with pytest.raises(ShellTextError):
        read_script(script)


def test_a_script_that_sources_itself_ends() -> None:
    with pytest.raises(ShellTextError):
        read_script(". ./x.sh", {}, lambda _: ". ./x.sh")


def test_an_assumption_is_kept_in_a_composed_command() -> None:
    words = call('T=${T:-4}\nC="python a.py --tp $T --pp 2"\neval $C').words
    assert [bool(word.assumption) for word in words] == [False, False, False, True, False, False]


def test_a_word_to_replace_in_angle_brackets_is_no_redirection() -> None:
    found = call("python a.py --model <path to it> --size=<N> --flag < in > out\n")
    assert texts(found.words) == "python a.py --model <path to it> --size=<N> --flag"


def test_an_addition_that_a_default_decides_leaves_the_rest_as_it_is() -> None:
    text = 'N=${N:-1}; X="--tp 4"; if [ $N = 1 ]; then X="$X --pp 2"; fi; python a.py $X'
    words = call(text).words
    assert [bool(word.assumption) for word in words] == [False] * 4 + [True] * 2


def test_a_default_that_decides_a_test_is_listed() -> None:
    text = "T=${T:-bf16}\nA=(--bf16)\nif [ $T = fp8 ]; then A+=(--fp8); fi\npython a.py ${A[@]}\n"
    (test,) = read_script(text).assumed
    assert (test.text, test.assumption) == ("T", "`T` is not set in the file: its default there")
    assert text[test.start : test.end] == "A+=(--fp8)"
    assert read_script(text, {"T": "fp8"}).assumed == []
