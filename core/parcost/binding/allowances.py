"""Warnings that a spec switches off, each with its reason.

    tp = 16  # parcost: allow tp-wider-than-fast-domain, measured on this cluster in 2026-05

An allowance is a comment. After an attribute or a block, it applies to everything that starts or
ends on its line. On a separate line, it applies to the attribute or block below. For a block, it
applies to everything inside. In a file of another tool it applies to its line. A line with only the
comment applies to the next line.

Only warnings may be switched off. A missing reason, an unknown id and the id of an error are
errors; an allowance without effect is a warning, ``unused-allowance``.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from parcost.language import syntax as s
from parcost.language.diagnostics import Diagnostic, Severity, did_you_mean, one_line, problem
from parcost.language.parse import tables
from parcost.language.text import Source, Span
from parcost.records import record

_MARK = "parcost:"
#: In capitals only with `allow` behind it: other comments may begin with the name.
_COMMENT = re.compile(r"#\s*(?:parcost:|(?i:parcost:)(?=\s*(?i:allow)\b))[ \t]*(?P<said>.*)")
_SHAPE = re.compile(r"(?i:allow)\s+(?P<id>[^\s,:]+)\s*(?:[,:]\s*(?P<reason>\S.*)?)?$")
_FOREIGN = re.compile(r"(?:^|\s)(?P<comment>#[^\r\n]*)", re.MULTILINE)
_HOW = "write `# parcost: allow ID, REASON`"


@record(eq=False)
class Allowance:
    """A comment that switches a rule off between offsets *start* and *end* of its file."""

    id: str
    reason: str
    span: Span
    start: int
    end: int

    def covers(self, diagnostic: Diagnostic) -> bool:
        """Return whether a diagnostic is of this rule, with a place in the range or an unknown
        place.
        """
        if diagnostic.id != self.id:
            return False
        if not diagnostic.labels:
            return True
        at = diagnostic.labels[0].span
        here = at.source is self.span.source
        return here and at.start < self.end and max(at.end, at.start + 1) > self.start


@record(eq=False)
class Suppression:
    """A suppressed warning, with the comment that switches it off."""

    diagnostic: Diagnostic
    allowance: Allowance

    @property
    def reason(self) -> str:
        """The reason in the comment of the allowance."""
        return self.allowance.reason


def suppress(
    found: Iterable[Diagnostic], allowances: Sequence[Allowance]
) -> tuple[list[Diagnostic], list[Suppression]]:
    """Return the remaining diagnostics, and those that *allowances* switch off."""
    by_id: dict[str, list[Allowance]] = {}
    for one in allowances:
        by_id.setdefault(one.id, []).append(one)
    kept: list[Diagnostic] = []
    suppressed: list[Suppression] = []
    for diagnostic in found:
        allowance = None
        if diagnostic.severity is Severity.WARNING:
            near = by_id.get(diagnostic.id, ())
            allowance = next((one for one in near if one.covers(diagnostic)), None)
        if allowance is None:
            kept.append(diagnostic)
        else:
            suppressed.append(Suppression(diagnostic, allowance))
    return kept, suppressed


def read_allowances(
    source: Source,
    tree: s.Block,
    rules: Callable[[], Mapping[str, Mapping[str, Any]]],
    *,
    foreign: bool = False,
) -> tuple[list[Allowance], list[Diagnostic]]:
    """Return the valid allowances in the comments of a file, and errors for the invalid ones."""
    found: list[Allowance] = []
    problems: list[Diagnostic] = []
    if _MARK not in source.text.lower():
        return found, problems
    extents = None if foreign else _Extents(tree)
    matches = (_FOREIGN if foreign else tables().tokens).finditer(source.text)
    group = "comment" if foreign else "COMMENT"
    for comment in (Span(source, *match.span(group)) for match in matches if match[group]):
        match = _COMMENT.match(comment.text)
        if match is None:
            continue
        shape = _SHAPE.match(match["said"].rstrip())
        if wrong := _problem(match["said"], shape, comment, rules):
            problems.append(wrong)
        elif shape is not None:
            start, end = extents.span(comment) if extents else _lines(comment)
            found.append(Allowance(shape["id"], shape["reason"], comment, start, end))
    return found, problems


def _problem(
    said: str,
    shape: re.Match[str] | None,
    comment: Span,
    rules: Callable[[], Mapping[str, Mapping[str, Any]]],
) -> Diagnostic | None:
    """Return the error of an invalid allowance, or None."""
    if shape is None:
        message = f"`parcost: {one_line(said)}` is not an `allow` comment"
        return problem("malformed-allowance", message, comment, help=_HOW)
    id = shape["id"]
    table = rules().get(id)
    if table is None:
        hint = did_you_mean(id.replace("-", "_"), [known.replace("-", "_") for known in rules()])
        help = hint.replace("_", "-") if hint else "`parcost rule` lists all"
        return problem("unknown-rule", f"there is no rule `{one_line(id)}`", comment, help=help)
    if table.get("severity") != "warning":  # an error leaves no numbers
        title, fix = (" ".join(str(table.get(key, "")).split()) for key in ("title", "fix"))
        message = f"`{id}` is an error, and only warnings can be switched off: {title}"
        return problem("not-allowable", message, comment, help=fix)
    if not shape["reason"]:
        message = f"`{id}` is switched off without a reason"
        help = f"write `# parcost: allow {id}, REASON`"
        return problem("missing-reason", message, comment, help=help)
    return None


def _stands_alone(comment: Span) -> bool:
    """Return whether a comment is alone on its line."""
    text = comment.source.text
    return not text[text.rfind("\n", 0, comment.start) + 1 : comment.start].strip()


def _lines(comment: Span) -> tuple[int, int]:
    """Return the range of a comment's line, or of the next code line if the comment is alone."""
    text = comment.source.text
    start = text.rfind("\n", 0, comment.start) + 1
    while True:
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        line = text[start:end].strip()
        if end == len(text) or (line and not line.startswith("#")) or not _stands_alone(comment):
            return start, end
        start = end + 1


class _Extents:
    """Finds the range of the spec that a comment covers."""

    def __init__(self, tree: s.Block) -> None:
        self._tree = tree
        self._starts: dict[int, list[int]] = {}  # of the items of a block, by its id
        self._by_line: dict[int, list[Span]] = {}
        for item in _items(tree):
            for line in set(_ends(item.span)):
                self._by_line.setdefault(line, []).append(item.span)

    def span(self, comment: Span) -> tuple[int, int]:
        """Return the start and end offset that a comment covers; an empty range without an item."""
        if _stands_alone(comment):
            return self._below(comment.start)
        line = comment.source.position(comment.start)[0]
        spans = self._by_line.get(line, [])
        whole = [span for span in spans if set(_ends(span)) == {line}]
        if not whole:  # a block that begins or ends here, the innermost of several
            whole = [min(spans, key=lambda span: span.end - span.start)] if spans else []
        start = min((span.start for span in whole), default=comment.start)
        return start, max((span.end for span in whole), default=comment.start)

    def _below(self, start: int) -> tuple[int, int]:
        """Return the start and end offset of the first item after *start*, in the same block."""
        block = self._tree
        while True:
            if id(block) not in self._starts:
                self._starts[id(block)] = [item.span.start for item in block.items]
            at = bisect_right(self._starts[id(block)], start)
            before = block.items[at - 1] if at else None
            if not isinstance(before, s.Block) or before.span.end <= start:
                break
            block = before
        if at == len(block.items):
            return start, start
        span = block.items[at].span
        return span.start, span.end


def _ends(span: Span) -> tuple[int, int]:
    """Return the first and the last line of a span."""
    return span.source.position(span.start)[0], span.source.position(max(span.end - 1, 0))[0]


def _items(block: s.Block) -> Iterator[s.Item]:
    for item in block.items:
        yield item
        if isinstance(item, s.Block):
            yield from _items(item)
