"""What importers of jobs share: their texts and their keys stand in the table of their tool."""

from __future__ import annotations

from typing import Any

from parcost import Importer
from parcost_formats.tools.keys import KeyNames
from parcost_formats.tools.needs import NEEDS
from parcost_formats.tools.subjects import SUBJECTS
from parcost_formats.tools.tables import table


class _TableText:
    """A text of the table of an importer's tool, which is read when the text is wanted."""

    def __init__(self, key: str) -> None:
        self._key = key

    def __get__(self, importer: Importer | None, owner: type[Importer]) -> str:
        return str(table(owner.name)[self._key])


def _table_text(key: str) -> Any:
    """Return the text under *key*, as the class attribute of an importer."""
    return _TableText(key)


class JobImporter(Importer):
    """An importer whose ``name`` is that of its table and of its lists of keys."""

    title: str = _table_text("title")
    source: str = _table_text("source")
    needs = NEEDS
    subjects = SUBJECTS

    def __init_subclass__(cls) -> None:
        """Give the class the keys of its tool, if it has none of its own."""
        super().__init_subclass__()
        if "keys" not in vars(cls):
            cls.keys = KeyNames(cls.name)
