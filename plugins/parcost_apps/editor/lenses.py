"""A line above each study: step time, MFU and memory, or the first error."""

from __future__ import annotations

from collections.abc import Iterator

from parcost.binding.modules import label_of
from parcost.language import syntax as s
from parcost.language.escapes import escape_line
from parcost.language.text import Span
from parcost.records import record
from parcost_apps.check.problems import is_error
from parcost_apps.editor.documents import DocumentState

_OLD = " (of the last version without errors)"
_LATE = "not evaluated in the editor: it takes too long; `parcost eval` has no time limit"


@record(eq=False)
class Lens:
    """A line of text, and the span above which it is shown."""

    span: Span
    text: str


def lenses(state: DocumentState) -> Iterator[Lens]:
    """Yield the line above each study of a document."""
    analysis, evaluation = state.analysis, state.evaluation
    studies = {label_of(block): block for block in _studies(analysis.tree)}
    errors = [d for d in analysis.diagnostics if is_error(d)]
    verdicts = {v.name: v.text for v in evaluation.verdicts} if evaluation is not None else {}
    for name, span in _places(analysis.tree, studies).items():
        text = verdicts.get(name, "")
        if state.late:
            text = _LATE
        elif errors and (not text or text.startswith("error")):
            text = f"error: {errors[0].message}"
        elif errors and text:
            text += _OLD
        if text:
            yield Lens(span, escape_line(text))


def _studies(tree: s.Block) -> Iterator[s.Block]:
    for item in tree.items:
        if isinstance(item, s.Block) and item.kind.text == "study":
            yield item


def _places(tree: s.Block, studies: dict[str, s.Block]) -> dict[str, Span]:
    """Return the span below the line of each study; a file without studies has one at its top."""
    if studies:
        return {name: block.kind.span for name, block in studies.items()}
    first = next((item for item in tree.items if isinstance(item, s.Block)), None)
    return {"": first.kind.span} if first is not None else {}
