"""Contributions of a plugin that do not depend on a study: catalogues, report formats, timeline
formats.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from attrs import field

from parcost.contract.calls import CallError, call
from parcost.contract.checks import Check
from parcost.contract.fields import Record, rule
from parcost.language.errors import ParcostError, PluginError
from parcost.numeric import Mask, Real, all_of
from parcost.records import record

if TYPE_CHECKING:
    from pathlib import Path

    from parcost.contract.entries import Entry, Part
    from parcost.contract.forms import Form, WebPage
    from parcost.contract.page import Paper
    from parcost.contract.plugin import Plugin
    from parcost.contract.traces import StepTrace


_LINES = rule(lambda text: isinstance(text, str), "which is not a text")


@record(kw_only=True)
class Catalogue(Record):
    """A directory of .par files, imported as ``use name.folder.block``.

    *prelude* is the path, below *root*, of a file of default blocks: assumptions with their
    provenance. Every study inherits them and may override them. *example* is the path of a study to
    start from, which is not imported.
    """

    name: str
    root: Any  # a pathlib.Path or importlib.resources Traversable directory
    prelude: str = ""
    example: str = ""
    doc: str = ""


@record(kw_only=True)
class Rulebook(Record):
    """The documentation pages of the rules of a plugin: one TOML table per rule id.

    ``parcost rule ID`` prints a page. The tables are in *file* or in *text*. A page has a
    ``title``, a ``severity`` (``error`` or ``warning``), ``why`` and ``fix``. It may have a
    ``source``, and the templates ``message`` and ``help`` of its checks. The example spec ``fails``
    violates the rule, and passes after each ``change``. *name* is the subject of the rules.
    """

    name: str
    file: Any = None  # a pathlib.Path or importlib.resources Traversable
    text: str = field(default="", metadata=_LINES)

    def problem(self) -> str:
        if bool(self.text) != (self.file is None):
            return f"gave the rulebook `{self.name}` not one of a file and a text"
        return ""

    def check(
        self,
        id: str,
        holds: Mask,
        subject: str,
        *,
        inputs: Mapping[str, Any] = MappingProxyType({}),
        help: str = "",
        notes: Sequence[str] = (),
        factor: Real = 1.0,
        verdict: str = "",
        reads: Sequence[str] = (),
        **values: Any,
    ) -> Check:
        """Return the check of a rule whose severity, message and help are in its table.

        *values* are inputs, too. An argument *help* replaces the help of the table. The table is
        parsed only if the rule fails. A check that passes has the severity ``error`` and its id as
        message, independent of the table.
        """
        table: Mapping[str, Any] = {"severity": "error", "message": id}
        if not all_of(holds):
            table = self.tables()[id]
        return Check(
            id=id,
            holds=holds,
            subject=subject,
            message=table["message"],
            inputs={**inputs, **values},
            help=help or table.get("help", ""),
            notes=notes,
            severity=table["severity"],
            factor=factor,
            verdict=verdict,
            reads=reads,
        )

    def tables(self) -> Mapping[str, Any]:
        """Return the tables of the rules by id, parsed once; ``bases`` are parts of examples."""
        return _parse(self.text) if self.text else _read(self.file)


@cache
def _read(file: Any) -> Mapping[str, Any]:
    return _parse(file.read_text(encoding="utf-8"))


@cache
def _parse(text: str) -> Mapping[str, Any]:
    import tomllib  # only where a rule fails

    return tomllib.loads(text)


class Exporter(ABC):
    """A text format of reports: ``--format name``.

    *reads* is the part of each entry that it reads (see :class:`parcost.contract.entries.Entry`):
    ``data``, ``full``, ``points``, ``page`` or ``charts``. No other part is computed. ``parcost
    merge`` passes the entries of all shards, as if they were from a single run. *media_type*, such
    as ``image/svg+xml``, is set if notebooks can show the text.
    """

    name: str
    reads: Part = "data"
    media_type: str = ""

    @abstractmethod
    def write(self, entries: Iterable[Entry], paper: Paper) -> Iterator[str]:
        """Yield the text of *entries* in pieces, as they are evaluated.

        An entry that is ``rejected`` is a file without a report. Its diagnostics are already on
        stderr, so a format for human readers may omit it.
        """


class LiveExporter(Exporter):
    """A format of pages that a server updates while a form is edited: ``parcost serve``.

    The page requests its content from the server (`docs/guide/serve.md` has the requests).
    """

    @abstractmethod
    def live_page(self, title: str) -> WebPage:
        """Return the page without form and report."""

    @abstractmethod
    def inputs(self, form: Form) -> str:
        """Return the inputs of a form, as a part of the page."""

    @abstractmethod
    def reports(self, entries: Iterable[Entry], name: str) -> str:
        """Return reports as a part of the page; *name* is the prefix of their HTML ids."""


class FileExporter(ABC):
    """A binary format of reports, which is only written with ``--out``."""

    name: str
    reads: Part = "data"

    @abstractmethod
    def save(self, entries: Iterable[Entry], path: Path) -> None:
        """Write *entries* to the empty file at *path*."""


class TimelineExporter(ABC):
    """A text format of timelines: ``parcost timeline --format name``."""

    name: str

    @abstractmethod
    def write(self, traces: Iterable[StepTrace], paper: Paper) -> Iterator[str]:
        """Yield the text of *traces* in pieces; there is at least one trace.

        Raises:
            SpecError: The format cannot show one of them, or it is too large.
        """


class TimelineFileExporter(ABC):
    """A format of timelines that is written to files, only with ``--out``.

    It writes one file, or several files in a folder if *folder* is set.
    """

    name: str
    folder: bool = False
    #: Whether it writes ranks of the job, which ``--ranks`` chooses.
    reads_ranks: bool = False

    @abstractmethod
    def save(self, traces: Iterable[StepTrace], path: Path) -> None:
        """Write *traces*, at least one, to *path*: an empty file, or an empty folder.

        Raises:
            SpecError: The format cannot show one of them, or it is too large.
        """


AnyExporter: TypeAlias = Exporter | FileExporter | TimelineExporter | TimelineFileExporter


class ExportTarget(Protocol):
    """The target of an exporter: a text stream, or a file or folder that the exporter saves."""

    def put(self, text: str) -> None:
        """Write a piece of text."""

    def save_with(self, save: Callable[[Path], None]) -> None:
        """Let *save* write a file or a folder."""


def write_items(
    plugin: Plugin,
    exporter: AnyExporter,
    items: Iterable[Any],
    target: ExportTarget,
    paper: Paper,
    passing: tuple[type[BaseException], ...] = (),
) -> None:
    """Write *items* (entries, or traces) with the *exporter* of a *plugin*.

    Raises:
        PluginError: The exporter fails. Errors of parcost, of files and of the types *passing* are
            raised unchanged.
    """

    def write_all() -> None:
        if isinstance(exporter, (FileExporter, TimelineFileExporter)):
            target.save_with(lambda path: exporter.save(items, path))
            return
        for piece in exporter.write(items, paper):
            target.put(piece)

    try:
        call(write_all, passing=(ParcostError, OSError, *passing))
    except CallError as error:
        message = f"plugin {plugin} failed to write `{exporter.name}`: {error.text}"
        raise PluginError(message) from error
