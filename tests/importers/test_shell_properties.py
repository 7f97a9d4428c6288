"""Generated scripts: constants have the words of bash, and no word that may differ is certain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import product
from random import Random

import pytest

from parcost_formats.tools.shell.scripts import read_script

from ..rows import mark_most, try_each
from .bash_scripts import BASH, words_of_bash

pytestmark = pytest.mark.skipif(BASH is None, reason="there is no bash")
_UNKNOWN = ("U", "V")
_VALUES = ("", "1", "x")


class _ScriptWriter:
    """Writes a script of a few statements; each word of its call is a flag of its own."""

    def __init__(self, seed: int, *, constant: bool) -> None:
        self._random = Random(seed)
        self._constant = constant
        self._count = 0

    def script(self) -> str:
        body = "\n".join(self._statement(3) for _ in range(self._random.randint(2, 7)))
        call = 'show "${L[@]}" $A "--b=$B" --c=$C'
        return f'A=--a B=b C=1\nL=(--l)\nf() {{ B="$1"; }}\n{body}\n{call}\n'

    def _pick(self, *options: str) -> str:
        return self._random.choice(options)

    def _flag(self) -> str:
        self._count += 1
        return f"--f{self._random.randint(0, 5)}"

    def _value(self) -> str:
        known = ("1", "x", "$C", '"$B"', "${C}2", "$((C+1))", "$(echo $C)", "${B:-d}", "'a b'")
        unknown = () if self._constant else ("$U", '"${V:-1}"', "${U}x", '"${U:+--u}"', "$V")
        return self._pick(*known, *unknown)

    def _test(self) -> str:
        known = ('[ "$C" = 1 ]', "[[ $B == b* ]]", "(( C > 1 ))", '[ -z "$B" ]', "true", "false")
        unknown = ('[ "$U" = 1 ]', '[[ -n "$V" ]]', '[ "$V" != x ]', '[[ "$U" == "$V" ]]')
        first = self._pick(*known, *(() if self._constant else unknown * 2))
        if self._random.random() < 0.2:
            return f"{first} {self._pick('&&', '||')} {self._pick(*known)}"
        return first

    def _statement(self, depth: int) -> str:
        kinds = ["set", "set", "append", "append", "text", "number", "call"]
        kinds += ["if", "if", "case", "for", "chain", "while", "group"] if depth else []
        kind = self._pick(*kinds)
        inner = lambda: self._statement(depth - 1)  # noqa: E731
        if kind == "set":
            return f"B={self._value()}"
        if kind == "append":
            return f"L+=({self._flag()} {self._pick('', self._flag())})"
        if kind == "text":
            return (
                f'A="$A {self._flag()}"' if self._random.random() < 0.6 else f"A+=' {self._flag()}'"
            )
        if kind == "number":
            return "C=$(($C*2))" if self._random.random() < 0.5 else "C=3"
        if kind == "call":
            return f"f {self._value()}"
        if kind == "if":
            other = f"else {inner()}; " if self._random.random() < 0.5 else ""
            return f"if {self._test()}; then {inner()}; {other}fi"
        if kind == "case":
            word = self._pick("$C", '"$B"', *(() if self._constant else ("$U", '"$V"')))
            return f"case {word} in 1) {inner()};; x|b) {inner()};; *) {inner()};; esac"
        if kind == "for":
            return f"for i in 1 2; do {inner()}; {self._pick('C=$i', ':', 'break')}; done"
        if kind == "chain":
            return (
                f"{self._test()} {self._pick('&&', '||')} {self._pick('{ ' + inner() + '; }', ':')}"
            )
        if kind == "while":
            return f"n=0; while [ $n -lt 2 ]; do n=$((n+1)); {inner()}; done"
        return self._pick("( " + inner() + " )", "{ " + inner() + "; }")


def _words(script: str, environment: dict[str, str]) -> tuple[list[str], bool]:
    """Return the words that are certain, and whether there are no others."""
    found = read_script(script, environment)
    (call,) = found.commands
    certain = [word for word in call.words[1:] if not word.unread and not word.assumption]
    if found.assumed:  # what a default decides is assumed, whatever it leaves
        return [], False
    complete = len(certain) == len(call.words) - 1 and not call.conditional
    complete = complete and call.decision is None
    return [word.text for word in certain], complete


def _check_constant_script(seed: int) -> None:
    script = _ScriptWriter(seed, constant=True).script()
    (expected,) = words_of_bash(script)
    assert _words(script, {}) == (expected, True), script


def _check_environments(seed: int) -> None:
    script = _ScriptWriter(seed, constant=False).script()
    certain, complete = _words(script, {})
    for values in product(_VALUES, repeat=len(_UNKNOWN)):
        environment = dict(zip(_UNKNOWN, values, strict=True))
        set_all = "".join(f"{name}={value}\n" for name, value in environment.items())
        (expected,) = words_of_bash(set_all + script)
        assert _words(script, environment) == (expected, True), (environment, script)
        missing = Counter(certain) - Counter(expected)
        assert not missing, (environment, missing, script)
        assert not complete or certain == expected, (environment, script)


@try_each("seed", range(25))
def test_a_constant_script_has_the_words_of_bash(seed: int) -> None:
    _check_constant_script(seed)


@pytest.mark.parametrize("seed", mark_most(range(25)))
def test_a_word_is_certain_only_if_each_environment_has_it(seed: int) -> None:
    _check_environments(seed)


@pytest.mark.slow
@pytest.mark.parametrize("check", [_check_constant_script, _check_environments])
def test_many_scripts(check: Callable[[int], None]) -> None:
    for seed in range(100, 500):
        check(seed)
