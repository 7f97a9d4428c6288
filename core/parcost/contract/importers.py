"""Importers: files of other tools, read as specs.

An importer translates a text into blocks of attributes. It runs nothing that the text holds. Each
attribute has the characters that it comes from. So a diagnostic points into the file of the user.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from parcost.records import record


@record
class ImportOptions:
    """How a file is read: by the importer *tool*, and with *uses* of a catalogue added."""

    tool: str = ""
    uses: tuple[str, ...] = ()


PLAIN = ImportOptions()  # a spec, or a file of a tool that its content shows


@record(kw_only=True)
class ImportedValue:
    """``name = value``, of characters *start* to *end* of the file.

    *value* is an expression of the language, with its unit. *key* is the name that the tool has
    for it, as its users write it. What the file does not state has an *assumption*: why the value
    is what it is.
    """

    name: str
    value: str
    key: str = ""
    start: int = 0
    end: int = 0
    assumption: str = ""


@record(kw_only=True)
class ImportedBlock:
    """A block of the language, made of what a file of another tool has."""

    kind: str
    label: str = ""
    settings: Sequence[ImportedValue] = ()
    blocks: Sequence[ImportedBlock] = ()


@record(kw_only=True)
class ImportedKey:
    """A key that sets nothing, at characters *start* to *end*. *reason* is why, if it is known.

    *attribute* is what it would set, ``model.vocabulary``, or a kind of blocks. Where files are
    imported together, another one may set it.
    """

    name: str
    start: int = 0
    end: int = 0
    reason: str = ""
    attribute: str = ""


@record(kw_only=True)
class ImportProblem:
    """An error in a file, at characters *start* to *end*."""

    message: str
    start: int = 0
    end: int = 0
    help: str = ""


@record(kw_only=True)
class Translation:
    """A file of another tool as blocks of the language.

    *uses* are entries of catalogues that the blocks refer to: ``catalog.precisions.bf16``.
    *ignored* keys are known, and change no cost. *unknown* keys are in no table. *missing* is what
    the blocks need and the file leaves open; the reason is what to write. *facts* are no
    attributes, and have to be the same in files that are imported together.
    """

    blocks: Sequence[ImportedBlock] = ()
    uses: Sequence[ImportedValue] = ()
    ignored: Sequence[ImportedKey] = ()
    unknown: Sequence[ImportedKey] = ()
    missing: Sequence[ImportedKey] = ()
    facts: Sequence[ImportedValue] = ()
    problems: Sequence[ImportProblem] = ()


class Importer(ABC):
    """A format of files of another tool: ``--from name``.

    *title* is the tool with the versions that the table of its names is made for. *source* is
    where these names are documented.
    """

    name: str
    title: str
    source: str = ""
    #: What a job needs and files may lack, by attribute: an option that adds it, to copy.
    needs: Mapping[str, str] = MappingProxyType({})
    #: Kinds of blocks that a file has in full. Defaults of the tools of other files yield to it.
    describes: Collection[str] = ()

    @abstractmethod
    def recognizes(self, name: str, text: str) -> bool:
        """Return whether a file called *name* with this text is of the format."""

    @abstractmethod
    def translate(self, name: str, text: str) -> Translation:
        """Return the blocks that the text describes, and what of it they lack."""
