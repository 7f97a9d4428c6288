"""The base class of job importers: titles and keys are read from the table of the tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from parcost import Importer
from parcost_formats.tools.keys import KeyNames
from parcost_formats.tools.needs import IncompleteJobImporter
from parcost_formats.tools.subjects import SUBJECTS
from parcost_formats.tools.tables import table


class _TableText:
    """A class attribute whose text is read from the importer's table on first access."""

    def __init__(self, key: str) -> None:
        self._key = key

    def __get__(self, importer: Importer | None, owner: type[Importer]) -> str:
        return str(table(owner.name)[self._key])


def _table_text(key: str) -> Any:
    """Return a class attribute of an importer: the text of *key* in its table."""
    return _TableText(key)


class JobImporter(IncompleteJobImporter):
    """An importer whose ``name`` is also the name of its table and of its lists of keys."""

    title: str = _table_text("title")
    source: str = _table_text("source")
    subjects = SUBJECTS

    def __init_subclass__(cls) -> None:
        """Set ``keys`` of the class to the keys of its tool, unless it defines its own."""
        super().__init_subclass__()
        if "keys" not in vars(cls):
            cls.keys = KeyNames(cls.name)

    @property
    def nullable(self) -> Sequence[str]:
        """Return the keys that may be null, because the tool then uses a value of its own."""
        found: Sequence[str] = table(self.name).get("nullable", {}).get("keys", ())
        return found

    @property
    def factors(self) -> Mapping[str, str]:
        """Return attributes by the keys that are one of their factors; the tool does not accept
        null for these keys.
        """
        found: Mapping[str, str] = table(self.name).get("factors", {})
        return found
