"""Reports as Markdown, for pull requests and wikis: ``--format md``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from parcost import Exporter, hookimpl
from parcost.contract.entries import Entry, Part
from parcost.contract.page import Paper
from parcost_formats.rendering import markdown


class Markdown(Exporter):
    """The page of the table exporter as Markdown, with the files that have no report."""

    name = "md"
    reads: Part = "page"

    def write(self, entries: Iterable[Entry], paper: Paper) -> Iterator[str]:  # noqa: ARG002
        """Yield one section for each file."""
        first = True
        for entry in entries:
            text = _rejection(entry) if entry.rejected else markdown.draw(entry.page())
            yield ("" if first else "\n") + text
            first = False


def _rejection(entry: Entry) -> str:
    lines = [f"- {markdown.escape(reason)}" for reason in entry.reasons]
    return f"# {markdown.escape(entry.path)}\n\n**No report.**\n\n" + "\n".join(lines) + "\n"


@hookimpl
def exporters() -> list[Markdown]:
    """Return the exporter of Markdown."""
    return [Markdown()]
