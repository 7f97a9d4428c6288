"""The pages of all rules, generated from the rulebooks of the core and of plugins.

python -m parcost_apps.documentation.rules               prints them
python -m parcost_apps.documentation.rules docs/rules    writes them into a folder
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from parcost.plugins.discovery import load
from parcost_apps.documentation.rule_pages import (
    by_subject,
    rule_link,
    rules_markdown,
    short_markdown,
)
from parcost_apps.documentation.rulebooks import RulePage, rule_pages

if TYPE_CHECKING:
    from parcost.plugins.discovery import Plugins

MADE = "<!-- made by `python -m parcost_apps.documentation.rules docs/rules` -->\n"
HEAD = f"""# The rules

{MADE}
`parcost rule ID` prints each of these rules, with whole examples. [Rules](../guide/rules.md) says
how a spec switches a warning off, and how a plugin declares rules of its own. Rules marked
*plausibility* warn about values that are legal but unlikely.
"""


def rules_reference(plugins: Plugins) -> Mapping[str, str]:
    """Return the pages of all rules in Markdown: an index, and one page for each subject.

    Keys are names of files.
    """
    subjects = by_subject(rule_pages(plugins).pages.values())
    pages = {f"{subject}.md": _subject_page(subject, inside) for subject, inside in subjects}
    return {"index.md": "\n".join(_index(subjects)), **pages}


def _index(subjects: Sequence[tuple[str, Sequence[RulePage]]]) -> Iterator[str]:
    """Yield the subjects in a table, then all rules in alphabetical order."""
    yield HEAD
    yield "## By subject\n\n| subject | rules |\n| :-- | --: |"
    for subject, pages in subjects:
        yield f"| [{_title(subject)}]({subject}.md) | {len(pages)} |"
    yield "\n## By id\n"
    rules = sorted((page for _, pages in subjects for page in pages), key=lambda page: page.id)
    yield rules_markdown(rules, rule_link)


def _title(subject: str) -> str:
    return subject.capitalize().replace("_", " ")


def _subject_page(subject: str, pages: Sequence[RulePage]) -> str:
    """Return the page of one subject: its rules in a table, then each rule."""
    rules = map(short_markdown, pages)
    return "\n".join([f"# Rules: {_title(subject)}\n", MADE, rules_markdown(pages), *rules])


def main(arguments: Sequence[str]) -> None:
    """Print the pages, or write them into the named folder, replacing its old pages."""
    pages = rules_reference(load())
    if not arguments:
        sys.stdout.write("\n".join(pages.values()))
        return
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.md"):
        old.unlink()
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
