"""Files next to a file of another tool, which an importer may follow."""

from __future__ import annotations

import os
from pathlib import Path

from parcost.language.errors import SpecError
from parcost.system.files import SPEC, read_text

_MOST = 50  # files that one file may lead to
_MOST_CHARACTERS = 4 * 2**20  # of all of them


class Neighbors:
    """Reads files in the folder of *path* and below. *read* holds the texts read so far.

    Links out of the folder are not followed. Only regular files are read, up to limits of number
    and size.
    """

    def __init__(self, path: Path | None) -> None:
        self.read: dict[Path, str] = {}
        self._home = None if path is None else path.parent
        self._characters = 0

    def __call__(self, name: str) -> str | None:
        """Return the text of the file called *name*, or None if it may not be read."""
        if self._home is None or not name or "\0" in name or os.path.isabs(name):  # noqa: PTH117
            return None
        try:
            home = self._home.resolve()
            place = (home / name).resolve()
            if not place.is_relative_to(home) or not place.is_file():
                return None
            if place in self.read:
                return self.read[place]
            if len(self.read) >= _MOST:
                return None
            text = read_text(place, SPEC, name)
        except (OSError, ValueError, RuntimeError, SpecError):
            return None
        self._characters += len(text)
        if self._characters > _MOST_CHARACTERS:
            return None
        self.read[place] = text
        return text


def path_beside(path: str, name: str) -> str:
    """Return the path of the file called *name* beside the file at *path*.

    >>> path_beside("jobs/run.sh", "zero.json"), path_beside("run.sh", "conf/zero.json")
    ('jobs/zero.json', 'conf/zero.json')
    """
    return os.path.join(os.path.dirname(path), name)  # noqa: PTH118, PTH120
