"""The reader of files that are not specs: a plugin, which others may replace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parcost import FileReader, ForeignFile, ForeignSource, ImportOptions, PluginError, SpecError
from parcost.contract.hookspecs import hookimpl
from parcost.engine.session import Session
from parcost.language.parse import parse
from parcost.language.text import Source
from parcost.plugins.discovery import load

LINES = "model tiny {\n  hidden = 64\n}\n"


class Comments(FileReader):
    """Reads a spec whose lines are comments of another language."""

    name = "comments"

    def read(
        self,
        source: Source,
        path: Path,
        options: ImportOptions,  # noqa: ARG002
        session: Any,  # noqa: ARG002
    ) -> ForeignFile:
        if "broken" in path.name:
            raise RuntimeError("no comment")
        found = ForeignSource(source.name, source.text.replace("// ", "   "))
        tree, errors = parse(found)
        return ForeignFile(source=found, tree=tree, diagnostics=errors)

    def tool_of(self, name: str, kind: str, session: Any) -> str:  # noqa: ARG002
        return self.name


class Plugin:
    """A plugin with a reader of its own."""

    @hookimpl
    def file_readers(self) -> list[FileReader]:
        return [Comments()]


def session(*extra: tuple[str, object]) -> Session:
    return Session(load(*extra, without=["file_readers"]))


def write(folder: Path, name: str = "job.txt") -> Path:
    path = folder / name
    path.write_text("".join(f"// {line}\n" for line in LINES.splitlines()), encoding="utf-8")
    return path


def test_a_file_is_not_a_spec_without_a_reader(tmp_path: Path) -> None:
    path = write(tmp_path)
    with pytest.raises(SpecError) as raised:
        session().load(path)
    (found,) = raised.value.diagnostics
    assert found.id == "not-a-spec"
    assert found.message == f"`{path}` is not a spec, and no plugin reads other files"


def test_a_plugin_may_read_files_in_another_way(tmp_path: Path) -> None:
    path = write(tmp_path)
    (scenario,) = session(("own", Plugin())).load(path)
    (block,) = scenario.module.blocks
    assert block.kind.text == "model"
    assert block.span.source.position(block.span.start) == (1, 4)


def test_a_reader_that_fails_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "broken.txt")
    with pytest.raises(PluginError, match=r"`own` failed in `file_readers`.*no comment"):
        session(("own", Plugin())).load(path)
