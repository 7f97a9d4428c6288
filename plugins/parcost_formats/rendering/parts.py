"""One part of a full page, selected by its title."""

from __future__ import annotations

from collections.abc import Sequence

from parcost.contract.page import Heading, Item
from parcost.language.diagnostics import Diagnostic, did_you_mean
from parcost.language.errors import SpecError

VERDICT = "verdict"  # what stands before the first title


def part(items: Sequence[Item], name: str, path: str) -> list[Item]:
    """Return the parts of a page whose title contains *name*, after the title of the page.

    Raises:
        SpecError: No title contains it.
    """
    parts: dict[str, list[Item]] = {VERDICT: []}
    head: list[Item] = []
    here = VERDICT
    for item in items:
        if isinstance(item, Heading) and item.level == 1:
            head.append(item)
            continue
        if isinstance(item, Heading):
            here = _plain(item.text)
        parts.setdefault(here, []).append(item)
    wanted = name.strip().lower()
    found = [title for title in parts if title == wanted] or [t for t in parts if wanted in t]
    if not wanted or not found:
        known = ", ".join(parts)
        words = {word: title for title in parts for word in (title, *title.split())}
        near = did_you_mean(wanted, words)
        message = f"no section of the report is called `{name}`"
        text = f"{near}; sections are {known}" if near else f"sections are {known}"
        raise SpecError([Diagnostic("unknown-section", message, place=path, help=text)])
    return [*head, *(item for title in found for item in parts[title])]


def _plain(title: str) -> str:
    """Return a title in lower case, up to a comma or a bracket.

    >>> _plain("Step time by term, in ms (stage 3)")
    'step time by term'
    """
    return title.partition(",")[0].partition("(")[0].strip().lower()
