"""Reports as Markdown, for pull requests and wikis: ``--format md``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from parcost import hookimpl
from parcost.batch import Rejected
from parcost.render import markdown
from parcost.render.narrative import tell
from parcost.render.page import Paper
from parcost.report import Report


class Markdown:
    """The page of the table, in Markdown; files without a report are named too."""

    name = "md"

    def write(self, entries: Iterable[Report | Rejected], paper: Paper) -> Iterator[str]:  # noqa: ARG002
        """Yield one section for each file."""
        first = True
        for entry in entries:
            text = markdown.draw(tell(entry)) if isinstance(entry, Report) else _rejected(entry)
            yield ("" if first else "\n") + text
            first = False


def _rejected(entry: Rejected) -> str:
    lines = [f"- {markdown.escape(d.message)}" for d in entry.diagnostics]
    return f"# {markdown.escape(entry.path)}\n\n**No report.**\n\n" + "\n".join(lines) + "\n"


@hookimpl
def exporters() -> list[Markdown]:
    """Offer Markdown."""
    return [Markdown()]
