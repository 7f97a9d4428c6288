"""Lines of a script that change a variable: bash's value is read, or none."""

from __future__ import annotations

import pytest

from parcost_plugins.importers.megatron import Megatron

from .megatron_files import reasons, settings, small, translate

FLAG = "--tensor-model-parallel-size"


@pytest.mark.parametrize(
    "line",
    [
        "let TP=8",
        "let 'TP *= 2'",
        "printf -v TP 8",
        "eval TP=8",
        'eval "TP=8"',
        "X=TP=8; eval $X",
        ": $((TP=8))",
        'echo "$((TP=8))"',
        "((TP*=2))",
        "(( TP = 8 ))",
        "((TP++))",
        "((++TP))",
        ": $((TP++))",
        ": $[TP=8]",
        "X=TP; declare $X=8",
        "X=TP; export ${X}=8",
        "X=TP; printf -v $X 8",
        "X=TP; read $X <<< 8",
        "for TP in 1 2 8; do :; done",
        "for ((TP=1; TP<8; TP++)); do :; done",
        "unset TP",
        "(TP=2)",
        "( cd /tmp; TP=2 )",
        "TP=8 &",
        "echo 8 | { TP=8; }",
        "{ TP=8; } | cat",
        "{ TP=8; } &",
        "g(){ local TP=8; }; g",
        "g(){ TP=8; }; g",
        "function g { TP=8; }; TP=4; g",
        "readonly TP\nTP=8",
        "declare -r TP\nTP=8",
        "declare -n R=TP; R=8",
        "declare -i TP; TP=2+2",
        "TP[0]=8",
        "read TP",
        "read -r TP <<< 8",
        "read TP <<< 8",
        "mapfile -t TP",
        ". ./other.sh",
        "source other.sh",
        "false && TP=8",
        "[ 1 = 2 ] && cd /tmp && TP=8",
        "while read -r line; do TP=8; done < file",
        "command eval TP=8",
        "if true; then TP+=8; fi",
        "g() ( TP=8 ); g",
        "T=P; export T$T=8",
        "trap 'TP=8' DEBUG",
        'export "TP=8"',
        "declare 'TP=8'",
        "declare -n R; R=TP; R=8",
        "exec {TP}>&1",
        'f() { eval "$1=8"; }; TP=4; f TP',
        "f() { local -n R=$1; R=8; }; TP=4; f TP",
    ],
)
def test_a_change_that_is_not_followed_leaves_the_variable_unread(line: str) -> None:
    text = f"TP=4\n{line}\npython a.py {small(f'{FLAG} $TP')}\n"
    found = translate(Megatron(), "run.sh", text)
    assert "`TP`" in reasons(found)[FLAG]
    assert settings(found)["layout.tp"].assumption


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("TP=8 true", "4"),
        ("TP=8 PP=2 python b.py", "4"),
        ("TP=8", "8"),
        ("export TP=8", "8"),
        ("export PP=2 TP=8", "8"),
        ("readonly PP=2", "4"),
        ("unset PP", "4"),
        ("((TP == 8))", "4"),
        ("X=$((TP * 2)); TP=$X", "8"),
        ("# let TP=8", "4"),
        ("source venv/bin/activate", "4"),
        (". other.sh\nTP=8", "8"),
        ("echo TP=8 2>&1 | tee log", "4"),
        ("X=$(TP=8; echo $TP)", "4"),
        ("case $X in a) PP=1;; esac", "4"),
        ("cd /tmp && TP=8", "8"),
        ("TP=\\\n8", "8"),
        ("TP=$((-7 / 2 + 8))", "5"),
    ],
)
def test_a_simple_assignment_has_the_value_of_bash(line: str, value: str) -> None:
    text = f"TP=4\n{line}\npython a.py {small(f'{FLAG} $TP')}\n"
    found = translate(Megatron(), "run.sh", text)
    setting = settings(found)["layout.tp"]
    assert (setting.value, setting.assumption) == (value, "")


def test_a_prefix_of_the_launch_leaves_the_variable() -> None:
    text = f"TP=4\nTP=8 torchrun a.py {small(f'{FLAG} $TP')}\n"
    assert settings(translate(Megatron(), "run.sh", text))["layout.tp"].value == "4"


def test_a_function_that_launches_is_not_read_ahead_of_what_it_takes() -> None:
    text = f"TP=4\nmain() {{ python a.py {small(f'{FLAG} $TP')}; }}\nTP=8\nmain\n"
    assert "behind a function" in reasons(translate(Megatron(), "run.sh", text))[FLAG]
