"""Specs of batches, and processes that run them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

GOOD = """\
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster  { devices = 16 }
layout   { tp = 2, zero = 1, sequence_parallel = on }
training { sequence = 8192, global_batch = 32 sequences, recompute = full }
"""
BIGGER = GOOD.replace("32 sequences", "64 sequences")
DISAPPOINTED = GOOD + "expect { mfu >= 99 % }\n"
UNDIVIDED = GOOD.replace("tp = 2", "tp = 3")
MISTAKEN = GOOD.replace("tp = 2", "tpp = 2")
SWEPT = GOOD.replace("tp = 2", "tp = [1, 2, 3, 4]")
STUDIES = GOOD + "study narrow { layout { tp = 1 } }\nstudy wide { layout { tp = 4 } }\n"
DEFINITIONS = "use catalog.devices.h100_sxm\ndevice mine extends h100_sxm { memory = 96 GB }\n"
USING = GOOD.replace("use catalog.devices.h100_sxm", 'use "lib/site.par"').replace(
    "devices = 16", "devices = 16, device = mine"
)
ALL = {
    "a.par": GOOD,
    "b.par": MISTAKEN,
    "c.par": SWEPT,
    "d.par": DISAPPOINTED,
    "e.par": STUDIES,
    "f.par": UNDIVIDED,
    "g.par": USING,
    "lib/site.par": DEFINITIONS,
}
FORMATS = ["table", "md", "json", "jsonl", "csv"]
Run = Callable[..., Any]


def files(texts: dict[str, str], folder: str = "specs") -> None:
    for name, text in texts.items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def many_specs(count: int) -> dict[str, str]:
    return {f"s{i:03}.par": GOOD.replace("32 seq", f"{32 * (i + 1)} seq") for i in range(count)}


def spec_names() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


def cache_entries(tmp_path: Path) -> list[Path]:
    """Return the entries of the cache; a name with a dot in front is still being written."""
    return [p for p in (tmp_path / "caches").glob("parcost/??/[!.]*") if p.is_file()]


def process(*arguments: str, before: str = "", **options: Any) -> subprocess.Popen[bytes]:
    """Start the command in a process that runs the code *before* first."""
    code = f"""{before}
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
from parcost_apps.cli import main
sys.exit(main())"""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen([sys.executable, "-c", code, *arguments], **streams)
