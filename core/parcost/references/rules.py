"""The page of all rules, made from the rulebooks of the core and of plugins.

python -m parcost.references.rules                  prints it
python -m parcost.references.rules docs/rules.md    writes it
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from parcost.output.rules import by_subject, listing_markdown, short_markdown
from parcost.plugins.discovery import load
from parcost.plugins.rule_pages import RulePage, rule_pages

if TYPE_CHECKING:
    from parcost.plugins.discovery import Plugins

HEAD = """# The rules

<!-- made by `python -m parcost.references.rules docs/rules.md` -->

`parcost rule ID` prints each of these pages, with whole examples. [Rules](guide/rules.md) says how
a spec switches a warning off, and how a plugin declares rules of its own. Rules marked
*plausibility* warn of values that are legal and unlikely.
"""


def rules_reference(plugins: Plugins) -> str:
    """Return the page of all rules, in Markdown."""
    subjects = by_subject(rule_pages(plugins).pages.values())
    rows = [
        f"| [{_title(subject)}](#{_title(subject).lower().replace(' ', '-')}) | {len(pages)} |"
        for subject, pages in subjects
    ]
    table = "\n".join(["| subject | rules |", "| :-- | --: |", *rows, ""])
    return "\n".join([HEAD, table, *_subjects(subjects)])


def _title(subject: str) -> str:
    return subject.capitalize().replace("_", " ")


def _subjects(subjects: Sequence[tuple[str, Sequence[RulePage]]]) -> Iterator[str]:
    """Yield each subject under a heading of its own: its rules in a table, and their pages."""
    for subject, pages in subjects:
        yield f"## {_title(subject)}\n"
        yield listing_markdown(pages)
        yield from (short_markdown(page, 3) for page in pages)


def main(arguments: list[str]) -> None:
    """Print the page, or write it into the named file."""
    page = rules_reference(load())
    if not arguments:
        sys.stdout.write(page)
        return
    Path(arguments[0]).write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
