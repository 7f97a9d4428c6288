"""What bash makes of the words of constant scripts, and what the reader of scripts makes of them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from parcost_formats.tools.shell.scripts import read_script

BASH = shutil.which("bash")
#: A function that the scripts call; the reader notes it as a program.
_SHOW = "show() { printf '%s\\0' \"$@\"; printf 'END\\0'; }\n"


def words_of_bash(script: str) -> list[list[str]]:
    """Return the words of each call of ``show`` in a script that bash runs."""
    assert BASH is not None
    done = subprocess.run(
        [BASH, "--norc", "--noprofile", "-c", _SHOW + script],
        capture_output=True,
        env={"PATH": "/usr/bin:/bin"},
        timeout=20,
        check=False,
    )
    found: list[list[str]] = [[]]
    for word in done.stdout.decode().split("\0")[:-1]:
        if word == "END":
            found.append([])
        else:
            found[-1].append(word)
    return found[:-1]


def words_read(script: str) -> list[Sequence[str]]:
    """Return the words of each call of ``show`` that the reader finds; all have to be known."""
    found: list[Sequence[str]] = []
    for call in read_script(script).commands:
        assert not call.conditional, call.conditional
        assert call.decision is None, call.decision
        assert not any(word.unread for word in call.words), [w for w in call.words if w.unread]
        if call.words[0].text == "show":
            found.append([word.text for word in call.words[1:]])
    return found


def value_of_bash(script: str, name: str, folder: Path) -> str:
    """Return the value of a variable after a script, which bash runs in an empty *folder*."""
    assert BASH is not None
    done = subprocess.run(
        [BASH, "--norc", "--noprofile", "-c", f'{script}\nprintf "\\0%s" "${name}"'],
        capture_output=True,
        env={"PATH": "/usr/bin:/bin"},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        timeout=20,
        check=False,
    )
    return done.stdout.decode().rpartition("\0")[2]
