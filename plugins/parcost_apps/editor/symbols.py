"""The outline of a file: its blocks and lets, and which lines fold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from parcost.binding.modules import label_of
from parcost.language import syntax as s
from parcost.language.text import Span
from parcost.records import record


@record(eq=False)
class OutlineItem:
    """An item of a file: its title, the span of its block, the span of its name, its children."""

    name: str
    kind: str
    span: Span
    name_span: Span
    children: Sequence[OutlineItem] = ()


def outline(tree: s.Block) -> list[OutlineItem]:
    """Return the items of a file that have a name."""
    return list(_items(tree))


def folds(tree: s.Block) -> Iterator[Span]:
    """Yield the blocks and lists of a file that may be folded."""
    left: list[s.Item] = list(tree.items)
    while left:
        item = left.pop()
        if isinstance(item, s.Block):
            yield item.span
            left += item.items
        elif isinstance(item, s.Attribute) and "\n" in item.span.text:
            yield item.span


def _items(block: s.Block) -> Iterator[OutlineItem]:
    for item in block.items:
        match item:
            case s.Block():
                label = label_of(item)
                name = f"{item.kind.text} {label}" if label else item.kind.text
                where = item.words[0].span if label else item.kind.span
                yield OutlineItem(name, "block", item.span, where, list(_items(item)))
            case s.Attribute():
                kind = "let" if item.words else "attribute"
                yield OutlineItem(item.name.text, kind, item.span, item.name.span)
            case s.Claim():
                yield OutlineItem(item.name.text, "claim", item.span, item.name.span)
