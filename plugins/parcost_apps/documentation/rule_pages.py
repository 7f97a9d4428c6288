"""The pages of rules: for a terminal, as Markdown, and as data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import unified_diff
from itertools import groupby
from typing import Any

from parcost.contract.page import Column, Heading, Item, Line, Row, Table
from parcost.language.format import format_text
from parcost_apps.documentation.rulebooks import RulePage

_ALLOWABLE = "A spec may switch it off: `# parcost: allow {id}, REASON`."
_UNALLOWABLE = "It is an error; only warnings can be switched off."
_OUTCOME = "`parcost eval` reports it: the rule needs the time or memory of the step."


def rule_items(page: RulePage) -> Iterator[Item]:
    """Yield the page of a rule for a terminal."""
    yield Heading(page.id, 1, aside=f"{_kind(page)}, {_origin(page)}")
    yield Line(_sentence(page.title))
    for title, text in _paragraphs(page):
        yield Heading(title)
        yield Line(text)
    for title, spec in _examples(page):
        yield Heading(title)
        lines = spec.rstrip().split("\n")
        yield from (Line(line, indent=2, verbatim=True) for line in lines)


def by_subject(pages: Iterable[RulePage]) -> Sequence[tuple[str, Sequence[RulePage]]]:
    """Return the subjects of *pages* with the rules of each; subjects of the core come first."""
    ordered = sorted(pages, key=lambda page: (page.plugin is not None, page.book, page.id))
    return [(book, list(inside)) for book, inside in groupby(ordered, key=lambda page: page.book)]


def index_items(pages: Iterable[RulePage]) -> Iterator[Item]:
    """Yield a line for each rule, under its subject."""
    for subject, inside in by_subject(pages):
        yield Heading(subject, 2)
        rows = [Row((page.id, _kind(page), page.title)) for page in inside]
        yield Table((Column("rule"), Column("severity"), Column("what", flexible=True)), rows)


def markdown(page: RulePage) -> str:
    """Return a rule in Markdown."""
    examples = (f"**{title}:**\n\n```par\n{spec}```" for title, spec in _examples(page))
    return "\n\n".join([*_markdown_head(page, 1), *examples]) + "\n"


def short_markdown(page: RulePage) -> str:
    """Return a rule in Markdown; its examples are reduced to the lines that differ."""
    parts = _markdown_head(page, 2)
    if changes := _changes(page):
        parts.append("\n".join(["```diff", *changes, "```"]))
    return "\n\n".join(parts) + "\n"


def _markdown_head(page: RulePage, depth: int) -> list[str]:
    """Return the Markdown parts of a rule before its examples."""
    title = f"{_sentence(page.title)} ({_kind(page)}, {_origin(page)})"
    texts = (f"**{name}.** {text}" for name, text in _paragraphs(page))
    return [f"{'#' * depth} {page.id}", title, *texts]


def _changes(page: RulePage) -> Sequence[str]:
    """Return the lines that differ between the failing and the passing example, as a diff."""
    fails, passes = (text.splitlines() for text in (page.fails, page.passes))
    found = unified_diff(fails, passes, n=0, lineterm="")
    return [line for line in found if not line.startswith(("---", "+++", "@@"))]


def own_link(page: RulePage) -> str:
    """Return the link to a rule on the same page."""
    return f"#{page.id}"


def rule_link(page: RulePage) -> str:
    """Return the link to a rule on the page of its subject."""
    return f"{page.book}.md#{page.id}"


def rules_markdown(pages: Iterable[RulePage], link: Callable[[RulePage], str] = own_link) -> str:
    """Return a table with a line for each rule; *link* returns the link of a rule."""
    rows = [f"| [`{page.id}`]({link(page)}) | {_kind(page)} | {page.title} |" for page in pages]
    return "\n".join(["| rule | severity | what |", "| :-- | :-- | :-- |", *rows, ""])


def rule_data(page: RulePage) -> dict[str, Any]:
    """Return a rule as plain data."""
    return {
        "id": page.id,
        "subject": page.book,
        "title": page.title,
        "severity": page.severity,
        "plausibility": page.plausibility,
        "allowable": page.allowable,
        "outcome": page.outcome,
        "plugin": page.plugin.name if page.plugin else None,
        "why": page.why,
        "fix": page.fix,
        "source": page.source or None,
        "fails": page.fails or None,
        "passes": page.passes or None,
        "needs": page.needs or None,
    }


def _kind(page: RulePage) -> str:
    return "plausibility" if page.plausibility else page.severity


def _origin(page: RulePage) -> str:
    return f"of plugin `{page.plugin.name}`" if page.plugin else "of the language"


def _paragraphs(page: RulePage) -> Iterator[tuple[str, str]]:
    yield "Why", page.why
    yield "Remedy", page.fix
    if page.source:
        yield "Source", _sentence(page.source)
    if page.needs:
        yield "When", _sentence(page.needs)
    yield "Switching it off", _ALLOWABLE.format(id=page.id) if page.allowable else _UNALLOWABLE
    if page.outcome:
        yield "Command", _OUTCOME


def _examples(page: RulePage) -> Iterator[tuple[str, str]]:
    if page.fails:
        yield "Fails", format_text(page.fails)
        yield "Passes", format_text(page.passes)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."
