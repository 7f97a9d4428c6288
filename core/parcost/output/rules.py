"""The pages of rules: for a terminal, as Markdown, and as data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from parcost.contract.page import Column, Heading, Item, Line, Row, Table
from parcost.plugins.rule_pages import RulePage

_ALLOWABLE = "A spec may switch it off: `# parcost: allow {id}, REASON`."
_UNALLOWABLE = "It cannot be switched off: with it, numbers mean nothing."
_OUTCOME = "`parcost eval` reports it, because it takes the outcome of a step."


def rule_items(page: RulePage) -> Iterator[Item]:
    """Yield a rule for a terminal."""
    yield Heading(page.id, 1, aside=f"{_kind(page)}, {_origin(page)}")
    yield Line(_sentence(page.title))
    for title, text in _paragraphs(page):
        yield Heading(title)
        yield Line(text)
    for title, spec in _examples(page):
        yield Heading(title)
        yield from (Line(line, indent=2) for line in spec.rstrip().split("\n"))


def listing(pages: Iterable[RulePage]) -> Table:
    """Return a line for each rule."""
    rows = [Row((page.id, _kind(page), page.title)) for page in pages]
    return Table((Column("rule"), Column("severity"), Column("what", flexible=True)), rows)


def markdown(page: RulePage, depth: int = 1) -> str:
    """Return a rule in Markdown, its id as a heading of *depth*."""
    parts = [
        f"{'#' * depth} {page.id}",
        f"{_sentence(page.title)} ({_kind(page)}, {_origin(page)})",
    ]
    parts += [f"**{title}.** {text}" for title, text in _paragraphs(page)]
    parts += [f"**{title}:**\n\n```par\n{spec.rstrip()}\n```" for title, spec in _examples(page)]
    return "\n\n".join(parts) + "\n"


def listing_markdown(pages: Iterable[RulePage]) -> str:
    """Return a table with a line for each rule, which leads to its page."""
    rows = [f"| [`{page.id}`](#{page.id}) | {_kind(page)} | {page.title} |" for page in pages]
    return "\n".join(["| rule | severity | what |", "| :-- | :-- | :-- |", *rows, ""])


def rule_data(page: RulePage) -> dict[str, Any]:
    """Return a rule as plain data."""
    return {
        "id": page.id,
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
        yield "Fails", page.fails
        yield "Passes", page.passes


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."
