"""Hover texts: the meaning of a name in a file, in Markdown. Texts of a spec are escaped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from parcost.binding.definitions import Definition
from parcost.contract.schema import BlockType, Field
from parcost.language import syntax as s
from parcost.language.escapes import escape_lines
from parcost.language.numbers import round_significant
from parcost.language.text import Span
from parcost.language.units import ONE, unit
from parcost.records import record
from parcost_apps.documentation.declarations import default, flow, value
from parcost_apps.editor.analysis import Analysis
from parcost_apps.editor.attribute_rules import find_rules
from parcost_apps.editor.occurrences import Occurrence, Referent, occurrence_at
from parcost_apps.editor.words import PROVENANCES, USAGES
from parcost_formats.rendering.markdown import escape
from parcost_formats.rendering.resolved_spec import AttributeText

_MOST_LINES = 24  # of the source of a block


@record(eq=False)
class HoverText:
    """The Markdown text for a name, and the span of the name."""

    markdown: str
    span: Span


def hover(
    analysis: Analysis,
    offset: int,
    before: Analysis | None = None,
    claims: Mapping[str, str] | None = None,
) -> HoverText | None:
    """Return the documentation, value and source of the name at *offset*.

    *before* is the last analysis without errors; its values replace missing ones. *claims* are the
    results of claims, by text.
    """
    found = occurrence_at(analysis, offset)
    if found is None:
        return None
    parts = [part for part in _parts(found, analysis, offset, before, claims or {}) if part]
    return HoverText("\n\n".join(parts), found.span) if parts else None


def _parts(
    found: Occurrence,
    analysis: Analysis,
    offset: int,
    before: Analysis | None,
    claims: Mapping[str, str],
) -> Iterator[str]:
    referent = found.referent
    match referent.kind:
        case "attribute":
            type_, field = referent.what
            yield from _attribute(type_, field, referent.name)
            yield _value(referent.path, analysis, offset, before)
            yield from _rules(analysis, type_, referent.name)
        case "keyword" if isinstance(referent.what, BlockType):
            inside = f" Stands inside `{referent.what.inside}`." if referent.what.inside else ""
            yield f"**`{referent.name}`** block{inside}"
            yield flow(referent.what.schema.__doc__)
            yield _code([referent.what.example]) if referent.what.example else ""
        case "block" | "entry" | "alias":
            yield from _block(referent)
        case "let":
            yield _code([referent.what.span.text])
        case "choice":
            yield f"`{referent.name}`: {value(referent.what)}"
            yield _offer(analysis, referent.what, referent.name)
        case "unit":
            yield _unit(referent.name)
        case "function":
            usage, doc = USAGES.get(referent.name, ("", ""))
            yield f"`{usage}`: {doc}" if usage else ""
        case "qualifier":
            yield _qualifier(referent)
        case "provenance":
            known = PROVENANCES.get(referent.name, "")
            source = referent.what.source
            yield f"**@{escape(referent.name)}** {known}".rstrip()
            yield escape(source.value) if source is not None else ""
        case "figure":
            text = " ".join(referent.what.span.text.split())
            yield f"Claim of the figure `{escape(referent.name)}`"
            yield escape(claims.get(text, ""))


def _attribute(type_: BlockType, field: Field, name: str) -> Iterator[str]:
    yield f"**`{type_.kind}.{name}`** {value(field)}"
    yield escape(field.doc).replace("\\`", "`")
    falls_back = default(type_, name)
    yield f"Default: {falls_back}" if falls_back not in ("", "required") else "Required."


def _rules(analysis: Analysis, type_: BlockType, name: str) -> Iterator[str]:
    """Yield the rules that constrain the attribute, and a value that passes."""
    found = find_rules(analysis.session.plugins, type_, name)
    if found.example:
        yield f"Example: `{_inline(found.example)}`"
    if found.pages:
        rows = [f"- `{page.id}` ({page.severity}): {escape(page.title)}" for page in found.pages]
        rows.append(f"\n`parcost rule {found.pages[0].id}` explains one.")
        yield "\n".join(["Rules:\n", *rows])


def _value(path: str, analysis: Analysis, offset: int, before: Analysis | None) -> str:
    """Return the value in use of the attribute at *path*, and where it comes from."""
    found = _text_of(path, analysis, offset)
    remark = ""
    if found is None and before is not None:
        found = _text_of(path, before, offset)
        remark = " (of the last version without errors)"
    if found is None or not found.text:
        return ""
    place = f" from {escape(found.place)}" if found.place else ""
    return f"Value: `{_inline(found.text)}`{place}{remark}"


def _text_of(path: str, analysis: Analysis, offset: int) -> AttributeText | None:
    study = analysis.study_at(offset)
    return study.values.get(path) if study is not None else None


def _block(referent: Referent) -> Iterator[str]:
    """Yield the source of a block, with the comment above it."""
    what = referent.what
    block = what.header if isinstance(what, Definition) else what
    if not isinstance(block, s.Block):
        yield f"`{escape(referent.name)}`: a file that is imported under this name"
        return
    yield f"**{escape(referent.name)}** `{block.kind.text}` of {escape(block.span.source.name)}"
    yield escape(" ".join(_comment(block)))
    lines = block.span.text.splitlines()
    more = [] if len(lines) <= _MOST_LINES else [f"# ... {len(lines) - _MOST_LINES} more lines"]
    yield _code([*lines[:_MOST_LINES], *more])


def _comment(block: s.Block) -> Sequence[str]:
    """Return the comment directly above a block, or at the head of a file of a catalogue."""
    source = block.span.source
    number, _ = source.position(block.span.start)
    found: list[str] = []
    while number > 1 and source.line(number - 1).startswith("#"):
        number -= 1
        found.insert(0, source.line(number).lstrip("# "))
    number = 1
    while not (found[number - 1 :] or Path(source.name).is_absolute()):
        if not source.line(number).startswith("#"):
            break
        found.append(source.line(number).lstrip("# "))
        number += 1
    return found


def _offer(analysis: Analysis, field: Field, name: str) -> str:
    if not field.registry:
        return escape(field.doc).replace("\\`", "`")
    offers = analysis.session.plugins.offers(field.registry)
    return flow(type(offers[name][1]).__doc__, first=True) if name in offers else ""


def _unit(name: str) -> str:
    """Return the size of a unit.

    >>> _unit("GiB"), _unit("Gbps")
    ('`GiB` is 1,073,741,824 B', '`Gbps` is 1,000,000,000 bit/s')
    """
    try:
        size, dimension = unit(name)
    except KeyError:
        return ""
    number = f"{size:,.0f}" if size >= 1 and size == int(size) else round_significant(size)
    return f"`{name}` is {number}" + ("" if dimension == ONE else f" {dimension}")


def _qualifier(referent: Referent) -> str:
    field = referent.what
    factor = field.qualifiers.get(referent.name) if isinstance(field, Field) else None
    if factor is None:
        return ""
    if isinstance(factor, str):
        return f"`{referent.name}`: divided by `{factor}`"
    times = "" if factor == 1 else f", counts {factor:g} times"
    return f"unit: {referent.name}{times}"


def _code(lines: Sequence[str]) -> str:
    """Return lines of a spec as a fenced code block with a fence that is not in the lines."""
    text = escape_lines("\n".join(lines)).replace("```", "` ` `")
    return f"```par\n{text}\n```"


def _inline(text: str) -> str:
    return escape_lines(text).replace("`", "'").replace("\n", " ")
