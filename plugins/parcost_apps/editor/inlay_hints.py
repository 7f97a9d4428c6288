"""Computed defaults of a block, shown after its opening brace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from parcost.binding.modules import label_of
from parcost.contract.schema import BlockType
from parcost.language import syntax as s
from parcost.records import record
from parcost_apps.editor.analysis import Analysis
from parcost_formats.rendering.resolved_spec import AttributeText

_MOST_VALUES = 3


@record(eq=False)
class InlayHint:
    """A one-line text, and the offset at which it is shown."""

    offset: int
    text: str


def find_hints(analysis: Analysis, before: Analysis | None = None) -> Iterator[InlayHint]:
    """Yield the computed defaults of each outermost block of a file.

    *before* is the last analysis without errors; its values replace missing ones.
    """
    for block in _blocks(analysis.tree):
        type_ = analysis.session.plugins.blocks.get(block.kind.text)
        values = _values(analysis, block) or (_values(before, block) if before else {})
        if type_ is not None and (found := _computed_values(type_, block, values)):
            shown = ", ".join(f"{name} = {text}" for name, text in found[:_MOST_VALUES])
            yield InlayHint(_place(block), shown + (", ..." if found[_MOST_VALUES:] else ""))


def _blocks(tree: s.Block) -> Iterator[s.Block]:
    """Yield the blocks of a file and of its studies."""
    for item in tree.items:
        if isinstance(item, s.Block):
            yield from _blocks(item) if item.kind.text == "study" else (item,)


def _values(analysis: Analysis, block: s.Block) -> Mapping[str, AttributeText]:
    study = analysis.study_at(block.span.start)
    return study.values if study is not None else {}


def _computed_values(
    type_: BlockType, block: s.Block, values: Mapping[str, AttributeText]
) -> list[tuple[str, str]]:
    """Return the attributes that the file does not set and whose default is computed.

    Each comes with the text of its value.
    """
    path = label_of(block) or type_.kind
    found = []
    for name, field in type_.fields.items():
        value = values.get(f"{path}.{name}")
        is_computed = field.kind == "quantity" and isinstance(type_.defaults.get(name), str)
        if is_computed and value is not None and not value.is_given:
            found.append((name, value.text))
    return found


def _place(block: s.Block) -> int:
    """Return the place of the hint: after the opening brace, or at the end of a one-line block."""
    if "\n" not in block.span.text:
        return block.span.end
    return block.span.start + block.span.text.index("{") + 1
