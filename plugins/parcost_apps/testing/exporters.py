"""The contract of an exporter: it writes every kind of report, and escapes external text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from attrs import evolve

from parcost.contract.entries import PARTS, Entry
from parcost.contract.offers import Exporter, FileExporter
from parcost.contract.page import Paper
from parcost.engine.session import load, load_text
from parcost.language.errors import ParcostError
from parcost.report.report import Report
from parcost_apps.batch.entries import entry_of
from parcost_formats.rendering.rejection import attempt

_HOSTILE = "<b>&\"'|`\\ \x1b[31m\x07\r\n\u202e{{7*7}} =1+1 %0A::error::.par"


class ExporterContract:
    """Tests of one exporter.

    *exporter* is the object that the hook returns. *specs* are texts or files of studies: a valid
    study, a sweep, and a study that violates a rule. A subclass that can parse its format overrides
    :meth:`parse`.
    """

    exporter: ClassVar[Exporter | FileExporter]
    specs: ClassVar[Sequence[str | Path]]
    bad: ClassVar[str] = "layout {"

    def parse(self, written: Any) -> Any:
        """Parse the written output with another reader; raise an error if that fails."""
        return written

    def write(self, entries: Sequence[Entry], folder: Path) -> Any:
        """Return the output for *entries*: a text, or the path of a file."""
        if isinstance(self.exporter, FileExporter):
            path = folder / f"reports.{self.exporter.name}"
            path.touch()
            self.exporter.save(iter(entries), path)
            return path
        return "".join(self.exporter.write(iter(entries), Paper()))

    def entries(self) -> Iterator[Entry]:
        """Yield the entries of all studies, and of a file that is not a spec."""
        for i, spec in enumerate(self.specs):
            found = load(spec) if isinstance(spec, Path) else load_text(spec, f"spec{i}.par")
            for scenario in found:
                yield entry_of(scenario.evaluate(), self.exporter.reads)
        yield self._rejection()

    def _rejection(self) -> Entry:
        def evaluate() -> Report:
            return load_text(self.bad, "bad.par")[0].evaluate()

        return entry_of(attempt("bad.par", evaluate), self.exporter.reads)

    def test_it_has_a_name_and_reads_a_part(self) -> None:
        """``--format`` accepts the name, and entries have the part."""
        assert self.exporter.name.replace("-", "_").isidentifier()
        assert self.exporter.reads in PARTS

    def test_it_writes_every_kind_of_report(self, tmp_path: Path) -> None:
        """It writes valid reports, sweeps, broken rules and files without a report."""
        entries = list(self.entries())
        for entry in entries:
            written = self._attempt([entry], tmp_path)
            assert written is not None or entry.exit_code, f"{entry.path} is rejected"
        self.parse(self.write(entries, tmp_path))

    def test_it_writes_nothing_of_nothing(self, tmp_path: Path) -> None:
        """A run without a report, such as an empty shard, is written or rejected with a message."""
        self._attempt([], tmp_path)

    def _attempt(self, entries: Sequence[Entry], folder: Path) -> Any:
        """Return the output for *entries*, or None if the exporter rejects them with a reason."""
        try:
            written = self.write(entries, folder)
        except ParcostError as rejection:
            message = str(rejection)
            if not message.strip():
                raise AssertionError("a rejection without a message") from rejection
            return None
        self.parse(written)
        return written

    def test_it_writes_the_same_twice(self, tmp_path: Path) -> None:
        """The output has no time, no random number and no order of a set."""
        if isinstance(self.exporter, FileExporter):
            pytest.skip("files may hold when they were written")
        entries = list(self.entries())
        assert self.write(entries, tmp_path) == self.write(entries, tmp_path)

    def test_names_from_outside_are_escaped(self, tmp_path: Path) -> None:
        """Control characters in a path are escaped in the output."""
        entries = [evolve(entry, path=f"{i}{_HOSTILE}") for i, entry in enumerate(self.entries())]
        written = self.write(entries, tmp_path)
        self.parse(written)
        if isinstance(written, str):
            wild = [c for c in written if not (c.isprintable() or c in "\n\t ")]
            assert not wild, f"control characters are written: {wild}"
