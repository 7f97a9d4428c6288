"""Offers of a plugin that depend on no study: catalogues, report formats, timeline formats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from attrs import field

from parcost.contract.fields import Record, rule
from parcost.records import record

if TYPE_CHECKING:
    from pathlib import Path

    from parcost.contract.entries import Entry, Part
    from parcost.contract.forms import Form, WebPage
    from parcost.contract.page import Paper
    from parcost.contract.traces import StepTrace


_LINES = rule(lambda text: isinstance(text, str), "which is no text")


@record(kw_only=True)
class Catalogue(Record):
    """A directory of .par files, imported as ``use name.folder.block``.

    *prelude* is the path, below *root*, of a file whose blocks every study inherits and may
    override: the assumptions, each with its provenance. *example* is the path of a study to start
    from, which is not imported.
    """

    name: str
    root: Any  # a pathlib.Path or importlib.resources Traversable directory
    prelude: str = ""
    example: str = ""
    doc: str = ""


@record(kw_only=True)
class Rulebook(Record):
    """The pages of the rules that a plugin has: a table of TOML for each, by id.

    ``parcost rule ID`` prints a page. *file* holds the tables, or *text* does. A page has a
    ``title``, a ``severity`` (``error`` or ``warning``), ``why`` and ``fix``. It may have a
    ``source``. The spec ``fails`` breaks the rule, and with each ``change`` made it does not.
    *name* is what the rules are about.
    """

    name: str
    file: Any = None  # a pathlib.Path or importlib.resources Traversable
    text: str = field(default="", metadata=_LINES)

    def problem(self) -> str:
        if bool(self.text) != (self.file is None):
            return f"gave the rulebook `{self.name}` not one of a file and a text"
        return ""


class Exporter(ABC):
    """A format of text that reports are written in: ``--format name``.

    *reads* is the part of each entry that it reads (see :class:`parcost.contract.entries.Entry`):
    ``data``, ``full``, ``points``, ``page`` or ``charts``. No other part is made. Shards of a run
    are entries, which ``parcost merge`` hands over as one run does. *media_type* is that of the
    text if notebooks show it, such as ``image/svg+xml``.
    """

    name: str
    reads: Part = "data"
    media_type: str = ""

    @abstractmethod
    def write(self, entries: Iterable[Entry], paper: Paper) -> Iterator[str]:
        """Yield the text of *entries*, piece by piece as they are evaluated.

        An entry that is ``rejected`` is a file without a report; its diagnostics are on
        stderr already, so that a format for people may leave it out.
        """


class LiveExporter(Exporter):
    """A format of pages that a server updates while a form is edited: ``parcost serve``.

    The page requests its content from the server (`docs/guide/serve.md` has the requests).
    """

    @abstractmethod
    def live_page(self, title: str) -> WebPage:
        """Return the page without a form and without a report."""

    @abstractmethod
    def inputs(self, form: Form) -> str:
        """Return the inputs of a form, as a part of the page."""

    @abstractmethod
    def reports(self, entries: Iterable[Entry], name: str) -> str:
        """Return reports as a part of the page; *name* is the prefix of their HTML ids."""


class FileExporter(ABC):
    """A format of files that are not text, which is only written with ``--out``."""

    name: str
    reads: Part = "data"

    @abstractmethod
    def save(self, entries: Iterable[Entry], path: Path) -> None:
        """Write *entries* into the file at *path*, which is empty."""


class TimelineExporter(ABC):
    """A format of text that timelines are written in: ``parcost timeline --format name``."""

    name: str

    @abstractmethod
    def write(self, traces: Iterable[StepTrace], paper: Paper) -> Iterator[str]:
        """Yield the text of *traces*, piece by piece; there is at least one.

        Raises:
            SpecError: The format has no sense for one of them, or it is too large.
        """


class TimelineFileExporter(ABC):
    """A format of timelines that is not one text, which is only written with ``--out``.

    It writes a file, or where *folder* is set several files in a folder.
    """

    name: str
    folder: bool = False
    #: Whether it writes ranks of the job, which ``--ranks`` chooses.
    reads_ranks: bool = False

    @abstractmethod
    def save(self, traces: Iterable[StepTrace], path: Path) -> None:
        """Write *traces*, at least one, to *path*: an empty file, or an empty folder.

        Raises:
            SpecError: The format has no sense for one of them, or it is too large.
        """
