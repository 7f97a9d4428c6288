"""Errors in files of other tools, and the base class of importers that raise them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol

from parcost import Importer, ImportFile, ImportProblem, Translation
from parcost_formats.tools.environment import FilledFile


class Place(Protocol):
    """Anything with a range of characters: an entry, an option, a word of a script."""

    @property
    def start(self) -> int:
        """The offset of its first character."""

    @property
    def end(self) -> int:
        """The offset behind its last character."""


#: What a user may do with a file that is not read.
BY_HAND = (
    "evaluate the `config.json` of its model, and state the rest: `parcost eval config.json` "
    "with --use catalog.devices, catalog.fabrics and catalog.precisions, --set layout.tp, "
    "layout.zero, training.sequence and training.global_batch"
)


#: No quantity of a file is larger, and no float holds an integer beyond.
LARGEST = 10**300
TOO_LARGE = "a number has too many digits"


class FileError(ValueError):
    """An error in a file, with its characters; *help* describes the fix."""

    def __init__(self, message: str, start: int = 0, end: int = 0, help: str = "") -> None:
        super().__init__(message)
        self.start, self.end, self.help = start, max(end, start + 1), help

    def problem(self) -> ImportProblem:
        """Return the error as a problem of an import."""
        return ImportProblem(message=str(self), start=self.start, end=self.end, help=self.help)


def error_at(place: Place, message: str, help: str = "") -> FileError:
    """Return an error at a place of the file."""
    return FileError(message, place.start, place.end, help)


class FileImporter(Importer):
    """An importer whose subclasses read a file, or raise :class:`FileError`."""

    def translate(self, name: str, text: str) -> Translation:
        """Return the blocks of a file by itself."""
        return self.read(ImportFile(name, text))

    def read(self, file: ImportFile) -> Translation:
        """Return the blocks of a file, or its error."""
        filled = FilledFile(file)
        try:
            found = self.read_file(filled.file)
        except FileError as error:
            found = Translation(problems=[error.problem()])
        return filled.with_places(found)

    @abstractmethod
    def read_file(self, file: ImportFile) -> Translation:
        """Return the blocks of a file.

        Raises:
            FileError: The file is not in the format of the tool, or its job cannot be read.
        """
