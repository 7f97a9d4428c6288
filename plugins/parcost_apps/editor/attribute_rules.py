"""The rules of an attribute, found by their examples, and a value that passes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import unified_diff
from typing import TYPE_CHECKING

from parcost.contract.schema import BlockType
from parcost.language import syntax as s
from parcost.language.parse import parse
from parcost.language.text import Source
from parcost.records import record
from parcost_apps.documentation.rulebooks import RulePage, rule_pages

if TYPE_CHECKING:
    from parcost.plugins.discovery import Plugins

_MOST_RULES = 5


@record(eq=False)
class AttributeRules:
    """Rules that an attribute may break, errors first, and an example of it, as written."""

    pages: Sequence[RulePage]
    example: str


def find_rules(plugins: Plugins, type_: BlockType, name: str) -> AttributeRules:
    """Return the rules of the attribute *name* of a block.

    A rule is included if its failing and its passing example have the block and differ in the
    attribute. The example value comes from the block's own example, or else from a passing one.
    """
    found: list[tuple[RulePage, str]] = []
    named = re.compile(rf"[-+].*\b{re.escape(name)}\b")
    for page in rule_pages(plugins).pages.values():
        before, after = page.fails.splitlines(), page.passes.splitlines()
        if page.plugin and any(map(named.match, unified_diff(before, after, n=0))):
            wrong, right = _blocks(page.fails).get(type_.kind), _blocks(page.passes).get(type_.kind)
            if wrong and right and wrong.get(name) != right.get(name):
                found.append((page, right.get(name, "")))
    found.sort(key=lambda each: (each[0].severity != "error", each[0].id))
    passing = [_blocks(type_.example).get(type_.kind, {}).get(name, ""), *(t for _, t in found)]
    example = next(filter(None, passing), "")
    return AttributeRules([page for page, _ in found[:_MOST_RULES]], example)


def _blocks(text: str) -> Mapping[str, Mapping[str, str]]:
    """Return the attributes of a spec as written, by the kind of their block and their name."""
    found: dict[str, dict[str, str]] = {}
    waiting: list[object] = [parse(Source("example.par", text))[0]]
    while waiting:
        block = waiting.pop()
        if isinstance(block, s.Block):
            waiting += block.items
            inside = found.setdefault(block.kind.text, {})
            inside |= {i.name.text: i.span.text for i in block.items if isinstance(i, s.Attribute)}
    return found
