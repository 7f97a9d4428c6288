"""Scripts of constants have the words that bash gives them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from parcost_formats.tools.shell.scripts import read_script
from parcost_formats.tools.shell.words import ShellTextError

from ..rows import try_each
from .bash_scripts import BASH, words_of_bash, words_read

pytestmark = pytest.mark.skipif(BASH is None, reason="there is no bash")

SCRIPTS = [
    'A=1; B="$A 2"; show $B "$B" \'$B\' ${A}x',
    'A=(1 "2 3" 4); show "${A[@]}" ${A[@]} "${A[*]}" ${#A[@]} ${A[1]} "${A[-1]}" ${!A[@]}',
    'A=(a b); A+=(c "d e"); B=("${A[@]}" f); show "${B[@]:1:3}" "${B[@]: -1}" "x${A[@]}y"',
    'declare -A M=([a]=1 [b]="2 3"); M[c]=4; show "${M[a]}" "${M[b]}" ${M[c]} ${#M[@]}',
    'X=; show a $X b "$X" ${X:-d} ${X-e} ${Y:-"f g"} "${Y:-f g}" ${Y:-f g}',
    'show ${X:=5} $X; show "${X:+set}" ${Z:-${X}9}',
    "P=a/b.c.d; show ${P%.*} ${P%%.*} ${P#*/} ${P##*.} ${P/b/X} ${P//./_} ${P:2} ${P:0:3} ${P: -3:2}",
    "P=aXbX; show ${P/X} ${P//X/} ${P/#a/z} ${P/%X/z} ${P^^} ${P,,} ${P^} ${#P}",
    "N=8; show $((N*2+1)) $((N/3)) $((-N/3)) $((N%3)) $((N**2)) $((N>3&&N<9)) $((N==8?1:2)) $((1<<4|3))",
    "N=3; ((N+=4)); let N*=2; show $N; ((N++)); show $N $((N--)) $N $((++N)) $(( (N) ))",
    "i=010; show $((i)) $((0x1F)) $((~5)) $((!0)) $((5^1)) $((i=4,i+1)) $i",
    "if [ a = a ] && [ 1 -lt 2 ]; then X=1; else X=2; fi; show $X",
    'if [[ abc == a* && ! -z x ]]; then X=1; fi; [[ "a*" == "a*" ]] && Y=1; [[ ab == "a*" ]] || Z=1; show $X $Y $Z',
    "X=7b; case $X in 8b) S=1;; 7?|9) S=2;; *) S=3;; esac; show $S",
    "X=a; case $X in a) A=1;& b) B=2;; c) C=3;; esac; show $A $B",
    'X=x; if [ "$X" != x ]; then R=1; elif (( 3 > 2 )); then R=2; else R=3; fi; show $R',
    'for i in 1 2 {3..5}; do A+=(--x $i); done; show "${A[@]}" $i',
    'for ((i=0; i<3; i++)); do S="$S$i,"; done; show "$S"',
    'i=0; while [ $i -lt 4 ]; do i=$((i+1)); [ $i -eq 2 ] && continue; L="$L $i"; done; show $L',
    "i=0; until ((i>=3)); do ((i++)); if ((i==2)); then break; fi; done; show $i",
    'f() { local x=$1; y=$2; show "$x" $# "$@"; }; x=0; f 1 "2 3"; show $x "$y"',
    'f() { echo "$1-$2"; }; show $(f a b) "$(f "c d" e)"',
    "f() { if [ $1 -gt 2 ]; then return 1; fi; V=$1; return 0; }; f 1 && A=1; f 3 || B=2; show $A $B $V",
    'set -- a "b c" d; show $# $1 "$2" "${@:2}"; shift; show "$@" $#',
    'show $(printf "%s " a b c) $(printf "%02d-%s" 3 x) "$(printf "%d\\n" 1 2)" $(seq 2 4) $(seq 3)',
    'show $(expr 3 + 4) $(expr 3 \\* 4) `echo x y` "`echo "a  b"`" $(basename /a/b.sh .sh) $(dirname a/b/c)',
    'printf -v V "%s=%d" a 3; show $V',
    'C="show a \'b c\'"; eval $C; eval "$C d"; eval "X=3"; show $X',
    'show {a,b}{1,2} x{,y} {1..3} {3..1} {01..03} {a..c} {0..10..5} {x} "{a,b}" a{b',
    'show \'a b\'"c d"e\\ f $\'g\\th\' "a\\"b\\$c" \\\n  next # comment',
    'A="--x 1\n  --y 2"; show $A; show "$A"',
    'A=( # a comment\n --a 1 # another\n --b 2\n)\nshow "${A[@]}"',
    'X=$(cat <<EOF\na $((1+1))\nEOF\n); show "$X"; Y=$(cat <<"EOF"\n$X\nEOF\n); show "$Y"',
    'X=0; (X=2; show $X); { Y=3; }; show "$X" $Y',
    'X=1; X=2 true; show $X; export X=3 Y=4; show $X $Y; unset X; show "$X" ${X:-u}',
    'B=; ! false && A=1; true || B=1; false || C=1; show $A "$B" $C',
    "N=X; X=5; show ${!N} ${!N:-3}; X=(1 2); X[1]=7; X[2]=8; show ${X[@]} $X",
    "function g { show in $1; }; g x; g() { show again; }; g",
    'X=a; X+=b; X+="c d"; show "$X" ${#X}; A=(1); A+=x; show ${A[@]}',
    'E=(); show "${E[@]}" ${E[@]} end ${#E[@]}; show a"${E[@]}"b "${E[*]}"',
    'x="a  b"; y=$x; show "$y" $y; z="${x// /_}"; show $z; show ${x:+--flag "$x"}',
    '[ -z "" ] && A=1; [ -n "" ] || B=1; [ "" ] || C=1; [ x ] && D=1; [ ! x ] || E=1; show $A $B $C $D $E',
    "[[ 08 -eq 8 ]] 2>/dev/null; [ 08 -eq 8 ] && A=1; [[ 3+1 -eq 4 ]] && B=1; show $A $B",
    "[ a = a -a b = b ] && A=1; [ a = b -o b = b ] && B=1; [[ a = b || ( c = c && d = d ) ]] && C=1; show $A $B $C",
    "X=5; [[ $X -ge 5 ]] && [[ $X -le 5 ]] && A=1; [[ a < b ]] ; show $A",
    'L="1,2,3"; show ${L//,/ } "${L//,/ }" ${L%%,*} ${L##*,}',
    "a=1; b=a; show $((b+1)) $((a+b)) $(( ${a}2 + 1 ))",
    'A=(x y z); for i in ${!A[@]}; do R="$R$i${A[$i]}"; done; show $R ${A[$((1+1))]} ${#A[0]}',
    'A=(1 2 3); unset A; A=(9); show ${A[@]}; B=("a b" c); for x in "${B[@]}"; do show "$x"; done',
    'X="$(f() { echo in; }; f)"; show $X; : ${D:=4}; show $D; : "$((Q=3))"; show $Q',
    "for m in a b; do case $m in a) V+=(1);; b) V+=(2);; esac; done; show ${V[@]}",
    'show "${U-none}" "${U:-}" x; U=; show "${U-none}" "${U+yes}" "${U:+no}"',
    'show a=b c=$((1)) --x="y z" --p={1,2}; A="*"; show "$A"',
    "i=1; while true; do i=$((i*2)); if [ $i -gt 20 ]; then break; fi; done; show $i",
    'A=(1 2 3); IFS=","; show "${A[*]}" "${A[@]}"; X="a,b c"; show $X; unset IFS; show $X',
    'A=(1 2); X=$(IFS=", "; echo "${A[*]}"); show "[$X]"; IFS=":"; Y=/a:/b; for y in $Y; do show $y; done',
    'IFS=$\'\\n\'; X="a b\nc"; show $X; f() { local IFS=-; show "$*"; }; f 1 2',
    'D=/x; show "${T:-"$D/y z"}" "a${T:-b"c d"e}f"',
    '[ -z "$Q" ] && Q=3; if [ -z ${R} ]; then R=4; fi; show $Q $R',
    'A=(1 2 3 4); show "${A[@]:1}" "${A[@]::2}" "${A[@]/%/x}" "${A[@]#1}"',
    'f() { A="$*"; B=("$@"); }; f 1 "2 3"; show "$A" "${B[1]}"; g() { f "$@" 4; }; g 7; show "$A"',
    'X=1,3,4; N=$(($(echo $X | grep -o "," | wc -l)+1)); M=$(echo $X | tr "," "\\n" | wc -l); show $N $M',
    "X=1,3,4; N=$(echo \"$X\" | awk -F',' '{print NF}'); M=`echo ${X} | awk -F \",\" '{print NF}'`; show $N $M",
    'X="1 3"; N=$(wc -w <<< "$X"); M=$(tr " " "," <<< "$X"); L=$(echo -n $X | tr -d " " | wc -c); show $N $M $L',
    "X=1,3,4; N=$(echo $X | tr -cd , | wc -c); M=$(echo $X | sed 's/,/ /g' | wc -w); show $N $M",
    'X=1,3,4; IFS="," read -r -a A <<< "$X"; IFS=, read -ra B <<< $X; show ${#A[@]} ${B[1]} $X',
    'X="7 8"; read -ra A <<< "$X"; show ${#A[@]} ${A[@]}; N=$(echo | awk -F, "{print NF}"); show $N',
]


@try_each("script", SCRIPTS)
def test_words_are_those_of_bash(script: str) -> None:
    expected = words_of_bash(script)
    assert expected
    assert words_read(script) == expected


STARTED = "show ${TP:-8} ${PP:-2} $#"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("TP=4 bash run.sh", ["4", "2", "0"]),
        ("TP=4 PP=1 ./run.sh a b", ["4", "1", "2"]),
        ("env TP=4 bash -x run.sh", ["4", "2", "0"]),
        ("TP=4; bash run.sh", ["8", "2", "0"]),
        ("export TP=4; bash run.sh", ["4", "2", "0"]),
        ("f() { PP=3 bash run.sh; }; TP=4 f", ["4", "3", "0"]),
        ("f() { :; }; TP=4 f; export TP; bash run.sh", ["8", "2", "0"]),
        ("TP=4 bash -c 'bash run.sh'", ["4", "2", "0"]),
    ],
)
def test_variables_ahead_of_a_command_are_those_of_the_script_that_it_starts(
    script: str, words: list[str], tmp_path: Path
) -> None:
    assert BASH is not None
    (tmp_path / "run.sh").write_text(f'show() {{ echo "$@"; }}\n{STARTED}\n', "utf-8")
    (tmp_path / "run.sh").chmod(0o755)
    command = [BASH, "--noprofile", "--norc", "-c", script]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, check=True, env={"PATH": "/usr/bin:/bin"}
    )
    assert done.stdout.decode().split() == words
    found = read_script(script, neighbor=lambda name: STARTED if name == "run.sh" else None)
    assert [word.text for word in found.commands[0].words[1:]] == words


@try_each(
    "script, unread",
    [
        ("A=$A; show $A", "`A` is not set in the file"),
        ('export A="${A}"; show $A', "`A` is not set in the file"),
        ('A="${A}" show $A', "`A` is not set in the file"),
        ("A=$A:/lib; show $A", ""),
        ("A=3; A=$A; show $A", ""),
    ],
)
def test_a_variable_that_keeps_its_value_is_one_of_the_environment(
    script: str, unread: str
) -> None:
    (call,) = read_script(script).commands
    words = [*call.words[1:], *call.environment.values()]
    assert words[-1].unread == unread


def test_slurm_hands_variables_on() -> None:
    script = "sbatch -N 2 --export=ALL,TP=4,PP=$X run.sh"
    found = read_script(script, neighbor=lambda name: STARTED if name == "run.sh" else None)
    (call,) = found.commands
    assert [word.text for word in call.words[1:]] == ["4", "$X", "0"]
    assert call.words[2].unread == "`X` is not set in the file"


def test_a_script_that_submits_itself_is_read_once() -> None:
    script = 'if [ -z "$SLURM_JOB_ID" ]; then\n  sbatch "$0" "$@"\n  exit\nfi\nshow 1'
    found = read_script(script, neighbor=lambda _: script, name="jobs/run.sh")
    assert [[word.text for word in one.words] for one in found.commands] == [["show", "1"]]


def test_a_script_of_a_repository_is_found_beside_the_one_that_starts_it() -> None:
    script = 'cd $REPOSITORY\nsrun bash "$REPOSITORY/examples/llama/run.sh" 2>&1 | tee log'
    found = read_script(script, neighbor=lambda name: STARTED if name == "run.sh" else None)
    assert [word.text for word in found.commands[0].words] == ["show", "8", "2", "0"]
    (place,) = found.found
    assert place.assumption == "`run.sh` beside this file"
    assert script[place.start : place.end] == '"$REPOSITORY/examples/llama/run.sh"'
    alone = read_script(script)
    assert [one.text for one in alone.lacking] == ["$REPOSITORY/examples/llama/run.sh"]
    above = read_script(
        "bash ../run.sh", neighbor=lambda name: STARTED if name == "run.sh" else None
    )
    assert [one.text for one in above.lacking] == ["../run.sh"]


def test_an_unknown_place_in_an_array_names_its_variable() -> None:
    (call,) = read_script("A=(1 2)\nshow ${A[$TASK]}\n").commands
    unread = call.words[1].unread
    assert "TASK" in unread
    assert "(" not in unread


@try_each(
    "command",
    [
        "nvidia-smi -L | wc -l",
        "echo $U | wc -w",
        "echo 1 | awk '{print $1 * 2}'",
        "echo 1 | sort -u",
    ],
)
def test_the_output_of_other_pipelines_is_unknown(command: str) -> None:
    (*_, call) = read_script(f"N=$({command})\nshow $N\n").commands
    assert call.words[1].unread


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("show a \\\n  # the rest\n  --b 1\n", "a comment above it ends the previous command"),
        ("show a \\ # the rest\n  --b 1\n", "`\\` continues a line only as its last character"),
        ("show a \\ \n  --b 1\n", "`\\` continues a line only as its last character"),
        ("show a\n--b=$X\n", "the line above has no `\\` at its end"),
    ],
)
def test_an_option_that_bash_runs_as_a_command(script: str, reason: str) -> None:
    assert BASH is not None
    command = [BASH, "--noprofile", "--norc", "-c", f"show() {{ :; }}; {script}"]
    done = subprocess.run(command, capture_output=True, check=False, env={"PATH": "/usr/bin:/bin"})
    assert b"--b" in done.stderr
    assert b"command not found" in done.stderr
    with pytest.raises(ShellTextError) as caught:
        read_script(script)
    assert str(caught.value).endswith(reason)
    assert script[caught.value.start :].startswith("--b")
