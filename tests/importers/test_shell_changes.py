"""Lines of a script that change a variable: bash's value is read, or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from parcost_formats.tools.megatron import Megatron
from parcost_formats.tools.shell.scripts import read_script

from ..rows import try_each
from .bash_scripts import BASH, value_of_bash
from .megatron_files import settings, small, translate

FLAG = "--tensor-model-parallel-size"
LINES = [
    *("let TP=8", "let 'TP *= 2'", "printf -v TP 8", "eval TP=8", 'eval "TP=8"', "X=TP=8; eval $X"),
    *(": $((TP=8))", 'echo "$((TP=8))"', "((TP*=2))", "(( TP = 8 ))", "((TP++))", "((++TP))"),
    *(": $((TP++))", ": $[TP=8]", "X=TP; declare $X=8", "X=TP; export ${X}=8"),
    *("X=TP; printf -v $X 8", "for TP in 1 2 8; do :; done"),
    *("for ((TP=1; TP<8; TP++)); do :; done", "unset TP", "(TP=2)", "( cd /tmp; TP=2 )"),
    *("TP=8 &", "echo 8 | { TP=8; }", "{ TP=8; } | cat", "{ TP=8; } &", "g(){ local TP=8; }; g"),
    *("g(){ TP=8; }; g", "function g { TP=8; }; TP=4; g", "TP[0]=8", "false && TP=8"),
    *("[ 1 = 2 ] && cd /tmp && TP=8", "command eval TP=8", "if true; then TP+=8; fi"),
    *("g() ( TP=8 ); g", "T=P; export T$T=8", 'export "TP=8"', "declare 'TP=8'"),
    *('f() { eval "$1=8"; }; TP=4; f TP', "TP=8 true", "TP=8 PP=2 :", "TP=8", "export TP=8"),
    *("export PP=2 TP=8", "readonly PP=2", "unset PP", "((TP == 8))", "X=$((TP * 2)); TP=$X"),
    *(
        "# let TP=8",
        "echo TP=8 2>&1 | cat",
        "X=$(TP=8; echo $TP)",
        "X=a; case $X in a) TP=2;; esac",
    ),
    *("cd /tmp && TP=8", "TP=\\\n8", "TP=$((-7 / 2 + 8))", "declare -i TP=8", "false || TP=8"),
    *("f() { TP=8; return; TP=2; }; f", "f() { exit; TP=2; }; (f)", "TP=8; break", "TP=2; : exit"),
    *("if [ -n 1 ]; then TP=2; else TP=3; fi", "while false; do TP=8; done", "! true || TP=8"),
    *("f() { local TP; TP=2; g; }; g() { TP=3; }; f", "eval 'f() { TP=8; }'; f", "TP+=1; TP+=2"),
    *("X='TP=8; Y=1'; eval \"$X\"", "set -- 8; TP=$1", "f() { TP=$#; }; f a 'b c' d", "TP=(8 9)"),
    *("f() { TP=$(($1+$2)); }; f 1 7", "export -n TP", "{ TP=8; }; (exit 3)"),
]
UNREAD = [
    *("X=TP; read $X <<< 8", "readonly TP\nTP=8", "declare -r TP\nTP=8", "declare -n R=TP; R=8"),
    *("declare -i TP; TP=2+2", "read TP", "read -r TP <<< 8", "read TP <<< 8", "mapfile -t TP"),
    *(". ./other.sh", "source other.sh", "while read -r line; do TP=8; done < file"),
    *("trap 'TP=8' DEBUG", "declare -n R; R=TP; R=8", "exec {TP}>&1", "declare -i TP; TP+=2"),
    *("f() { local -n R=$1; R=8; }; TP=4; f TP", "declare -n R=TP; TP=4; R=8", "$CMD; eval $X"),
    *(
        "if grep -q x y; then TP=8; fi",
        "[ $X = 1 ] && TP=8",
        "ls /x && TP=8",
        "declare -u TP; TP=a",
    ),
    *("for f in *.txt; do TP=8; done", "while [ $X -lt 2 ]; do TP=8; break; done", "TP=$(nproc)"),
    *("f() { if [ -f x ]; then TP=8; return; fi; }; f", "for i in 1 2; do [ -f x ] && TP=$i; done"),
    *("for i in 1 2; do [ -f x ] && break; TP=8; done", "case $X in a) TP=8;; esac", "TP=$X"),
    *("case a in a) ;;& *) TP=8;; esac", "select TP in 1 2; do break; done", "TP=${X:?}"),
    *("if [[ abc =~ b ]]; then TP=8; fi", "until ping -c 1 host; do TP=8; done", "TP=$RANDOM"),
]


def _read(line: str) -> tuple[str, str]:
    """Return the value of ``$TP`` behind a line, and why it is not known."""
    calls = read_script(f"TP=4\n{line}\nshow --tp=$TP\n").commands
    (word,) = [word for word in calls[-1].words if word.text.startswith("--tp=")]
    return word.text.removeprefix("--tp="), word.unread


@pytest.mark.skipif(BASH is None, reason="there is no bash")
@pytest.mark.parametrize("line", LINES)
def test_a_value_that_follows_from_constants_is_that_of_bash(line: str, tmp_path: Path) -> None:
    assert _read(line) == (value_of_bash(f"TP=4\n{line}\n", "TP", tmp_path), "")


@try_each("line", UNREAD)
def test_a_change_that_is_not_followed_leaves_the_variable_unread(line: str) -> None:
    _, why = _read(line)
    assert why


def test_a_value_that_is_not_read_is_listed_with_its_reason() -> None:
    text = f"TP=4\nread TP\npython a.py {small(f'{FLAG} $TP')}\n"
    found = Megatron().translate("run.sh", text)
    assert "`TP` is changed by `read`" in str([*found.unknown, *found.questions])


@try_each(
    "line, value",
    [
        ("source venv/bin/activate", "4"),
        (". other.sh\nTP=8", "8"),
        ("case $X in a) PP=1;; esac", "4"),
        ("if [ -f x ]; then TP=4; fi", "4"),
        ("if [ -f x ]; then TP=8; else TP=8; fi", "8"),
        ("[ -f x ] || exit 1\nTP=8", "8"),
        ("if [ $# -gt 1 ]; then echo usage; exit 1; fi\nTP=8", "8"),
        ("TP=8 torchrun b.py", "4"),
        ('[ -z "${RUN:-}" ] && exit 1\nTP=8', "8"),
        ('[[ -n "${RUN:-}" ]] || { echo none; exit 1; }\nTP=8', "8"),
        ('end() { exit 3; }\nif [ "${RUN:-}" = "" ]; then end; fi\nTP=8', "8"),
        ('for N in RUN HOME; do\nif [[ -z "${!N:-}" ]]; then exit 2; fi\ndone\nTP=8', "8"),
    ],
)
def test_what_all_ways_through_a_script_agree_on_holds(line: str, value: str) -> None:
    text = f"TP=4\n{line}\npython a.py {small(f'{FLAG} $TP')}\n"
    setting = settings(translate(Megatron(), "run.sh", text))["layout.tp"]
    assert (setting.value, setting.assumption) == (value, "")


def test_a_prefix_of_the_launch_leaves_the_variable() -> None:
    text = f"TP=4\nTP=8 torchrun a.py {small(f'{FLAG} $TP')}\n"
    assert settings(translate(Megatron(), "run.sh", text))["layout.tp"].value == "4"


def test_a_function_that_launches_takes_what_is_set_ahead_of_its_call() -> None:
    text = f"TP=4\nmain() {{ python a.py {small(f'{FLAG} $TP')}; }}\nTP=8\nmain\n"
    assert settings(translate(Megatron(), "run.sh", text))["layout.tp"].value == "8"
