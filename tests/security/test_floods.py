"""Files of millions of signs are rejected, or read, in little memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FLOODS = {
    "newlines": "\n",
    "lines of Windows": "\r\n",
    "blanks": " ",
    "blank lines": " \n",
    "newlines and a mistake": "\n",
    "commas": ",",
    "parentheses": "(",
    "brackets": "[",
    "braces": "{",
    "comments": "#\n",
    "blocks": "a{}\n",
    "mistakes": "a = \n",
    "quotes": '"\n',
    "signs of nothing": "$",
}
MOST_MIB = 250
# Not `ru_maxrss`: across fork and exec it keeps the largest size of the process of the tests.
PARSE = """
import sys
from pathlib import Path
from parcost.binding.sources import read
from parcost.language.parse import parse
from parcost.language.diagnostic_text import render
_, found = parse(read(Path(sys.argv[1])))
status = Path("/proc/self/status").read_text(encoding="ascii")
print(len([render(one) for one in found]), status.partition("VmHWM:")[2].split()[0])
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no file states a process's memory")
@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_takes_little_memory(tmp_path: Path, flood: str) -> None:
    """3.9 MB of newlines took 904 MB."""
    piece = FLOODS[flood]
    text = piece * (3_900_000 // len(piece)) + ("$" if flood.endswith("mistake") else "")
    path = tmp_path / "a.par"
    path.write_text(text, encoding="utf-8", newline="")
    done = subprocess.run(
        [sys.executable, "-c", PARSE, str(path)], capture_output=True, text=True, check=True
    )
    found, kib = map(int, done.stdout.split())
    assert kib / 1024 < MOST_MIB
    assert found == (flood not in ("newlines", "lines of Windows", "blanks", "blank lines"))
