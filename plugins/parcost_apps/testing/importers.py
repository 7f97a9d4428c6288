"""The contract of an importer: it reads its files, lists ignored keys, and rejects other files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import ClassVar

from parcost.contract.hookspecs import hookimpl
from parcost.contract.importers import ImportedBlock, ImportedValue, Importer, Translation
from parcost.engine.session import Session
from parcost.language.errors import SpecError
from parcost.language.text import Source
from parcost.plugins.discovery import load as load_plugins
from parcost_apps.testing.renaming import renamings, silent_answers, strange_values
from parcost_formats.imports.translation import translate

_MOST_PREFIXES = 60
_HOSTILE = (
    *("", "\0", "\ufeff", "{", "\r\r\n\r", "$(reboot)", "é\u202e\x1b[2J", "a: &a [*a, *a]\n"),
    *("[" * 5000, '{"a":' * 5000, "-" * 10_000, "x = " + "9" * 5000),
    "key: !!python/object/apply:os.system [ls]",
)


class ImporterContract:
    """Tests of one importer.

    *importer* is the object that the hook returns. *file* is the name of an example and *text* its
    content. *expected* are some of the attributes that it sets, with their values in the notation
    of the language: ``{"layout.tp": "8"}``. *unknown* is a text with a key that no table has, and
    that key.
    """

    importer: ClassVar[Importer]
    file: ClassVar[str]
    text: ClassVar[str]
    expected: ClassVar[Mapping[str, str]]
    unknown: ClassVar[tuple[str, str]] = ("", "")

    def translation(self, text: str | None = None) -> Translation:
        """Return the translation of the example, or of *text*."""
        content = self.text if text is None else text
        return translate(self.importer, Source(self.file, content))

    def test_it_recognizes_its_files_and_no_specs(self) -> None:
        """The name and the text decide; a spec and an empty file are not files of the tool."""
        assert self.importer.recognizes(self.file, self.text)
        assert not self.importer.recognizes("study.par", "layout { tp = 8 }\n")
        assert not self.importer.recognizes("notes.txt", "")

    def test_it_reads_the_example(self) -> None:
        """Values are as expected, without a problem."""
        found = self.translation()
        assert not found.problems, [one.message for one in found.problems]
        values = {path: one.value for path, one in _settings(found.blocks)}
        assert {path: values.get(path) for path in self.expected} == dict(self.expected)

    def test_what_it_reads_is_a_spec(self) -> None:
        """All blocks and attributes exist in the language."""
        plugin = SimpleNamespace(importers=hookimpl(lambda: [self.importer]))
        name = self.importer.name
        offered = load_plugins().offers("importers")
        known = name in offered and offered[name][1].__class__ is self.importer.__class__
        session = Session(load_plugins() if known else load_plugins((name, plugin)))
        for path, one in _settings(self.translation().blocks):
            kind, _, attribute = path.rpartition(".")
            blocks = {block.rpartition(".")[2] for block in session.plugins.blocks}
            assert kind.rpartition(".")[2] in blocks, f"no block `{kind}` ({one.key})"
            schema = session.plugins.blocks[kind.rpartition(".")[2]]
            assert attribute in schema.fields or attribute in schema.aliases, path

    def test_places_are_in_the_text(self) -> None:
        """Each value has a place in the file, or a reason why it is assumed."""
        for path, one in _settings(self.translation().blocks):
            assert 0 <= one.start <= one.end <= len(self.text), path
            assert one.end > one.start or one.assumption, f"{path} has no place and no assumption"

    def test_an_unknown_key_is_listed(self) -> None:
        """A key that no table has is reported to the user."""
        text, key = self.unknown
        if key:
            assert key in [one.name for one in self.translation(text).unknown]

    def test_a_renamed_key_is_told(self) -> None:
        """A key that the tool does not have is asked for or reported, and no default is used."""
        found = silent_answers(self.importer, Source(self.file, self.text), renamings)
        assert not [(one.path, one.written) for one in found]

    def test_a_strange_value_is_told(self) -> None:
        """A value that the tool does not know is an error, or its key is asked for or reported."""
        found = silent_answers(self.importer, Source(self.file, self.text), strange_values)
        assert not [(one.path, one.written) for one in found]

    def test_it_raises_for_no_text(self) -> None:
        """Truncated and hostile texts give problems with a place, not exceptions."""
        step = max(len(self.text) // _MOST_PREFIXES, 1)
        prefixes = [self.text[:end] for end in range(0, len(self.text), step)]
        for text in (*_HOSTILE, *prefixes):
            self.importer.recognizes(self.file, text)
            found = self.importer.translate(self.file, text)
            for one in found.problems:
                assert one.message
                assert 0 <= one.start <= len(text)

    def test_it_reads_the_same_twice(self) -> None:
        """The importer keeps no state between files."""
        first = self.translation()
        with suppress(SpecError):  # half of a file may be none of the tool
            self.translation(self.text[: len(self.text) // 2])
        assert self.translation() == first


def _settings(
    blocks: Sequence[ImportedBlock], prefix: str = ""
) -> Iterator[tuple[str, ImportedValue]]:
    for block in blocks:
        for one in block.settings:
            yield f"{prefix}{block.kind}.{one.name}", one
        yield from _settings(block.blocks, f"{prefix}{block.kind}.")
