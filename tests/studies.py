"""Studies of shipped specs by their names, so that only those that a process tests are read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import parcost
from parcost import Scenario

_STUDY = re.compile(r"^study ([\w-]+)", re.MULTILINE)


def names_of(folder: Path) -> list[str]:
    """Return the names of all studies in the specs of *folder*, such as ``file.study``."""
    return [
        f"{path.stem}.{name}"
        for path in sorted(folder.glob("*.par"))
        for name in _STUDY.findall(path.read_text(encoding="utf-8")) or [path.stem]
    ]


def scenario_of(folder: Path, name: str) -> Scenario:
    """Return the study of a *name* in the specs of *folder*."""
    stem, _, study = name.partition(".")
    (found,) = [one for one in _load(folder / f"{stem}.par") if one.name == study]
    return found


def scenarios_in(folder: Path) -> list[Scenario]:
    """Return all studies in the specs of *folder*, which are those of :func:`names_of`."""
    found = [one for path in sorted(folder.glob("*.par")) for one in _load(path)]
    assert names_of(folder) == [f"{Path(one.path).stem}.{one.name}" for one in found]
    return found


@cache
def _load(path: Path) -> Sequence[Scenario]:
    return parcost.load(path)
