"""Assumed values in the file of a study: values with ``@assumed``, each with its reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from parcost.contract.page import Column, Heading, Item, Line, Row, Table
from parcost.records import record

if TYPE_CHECKING:
    from parcost.contract.importers import ForeignSource
    from parcost.contract.origin import Origin
    from parcost.contract.study import Study
    from parcost.report.result import Result

_LONGEST = 60  # characters of a reason there


@record
class AssumedValue:
    """An assumed *value* of an *attribute*, such as ``layout.zero``, and the *reason*."""

    attribute: str
    value: str
    reason: str


def assumptions(study: Study) -> list[AssumedValue]:
    """Return the assumed values in the study's file, without the values of catalogue entries.

    The machine comes first, then entries of a catalogue and references.
    """
    # Results of a cache are written without them, and need no study.
    from parcost.contract.importers import ForeignSource
    from parcost.contract.schema import block_type
    from parcost_formats.rendering.resolved_spec import SpecTexts
    from parcost_plugins.vocabulary import Cluster

    texts = SpecTexts(study)
    found: list[tuple[int, AssumedValue]] = []
    sources: dict[int, ForeignSource] = {}
    for block, kind in _all_blocks(study):
        fields = block_type(type(block)).fields
        for name, origin in study.origins.get(id(block), {}).items():
            source = None if origin.span is None else origin.span.source
            if source is None:
                continue
            stated = origin.kind == "assumed" and origin.how == "given"
            if not (stated or isinstance(source, ForeignSource)):
                continue
            field = fields.get(name)
            if field is None or field.kind == "children":
                continue
            if isinstance(source, ForeignSource):
                sources[id(source)] = source
            if origin.kind != "assumed":
                continue
            value = getattr(block, name)
            if value is not None:
                rank = 0 if isinstance(block, Cluster) else 2 if field.kind == "reference" else 3
                text = _spec_text(origin) or texts.value(value, field, origin)
                one = AssumedValue(f"{kind}.{name}", text, origin.source)
                found.append((rank, one))
    known = {one.value for _, one in found}
    entries = {
        AssumedValue(path, value, reason): value.rpartition(".")[2]
        for source in sources.values()
        for path, value, reason in source.assumptions
        if "." not in path
    }
    found += ((1, one) for one, label in entries.items() if label not in known)
    return [one for _, one in sorted(found, key=lambda pair: pair[0])]


def assumption_line(result: Result, shown: int | None = 3) -> Iterator[Item]:
    """Yield one line with the first *shown* assumed values (all if None) and the number of the
    others.
    """
    found = assumptions(result.study)
    if not found:
        return
    listed = [
        f"{one.attribute} = {one.value}" + (f" ({_short(one.reason)})" if one.reason else "")
        for one in found[:shown]
    ]
    if more := len(found) - len(listed):
        listed.append(f"and {more} more: --full")
    yield Line(f"Assumed: {'; '.join(listed)}", "faint")


def assumption_section(result: Result) -> Iterator[Item]:
    """Yield a table of all assumed values."""
    found = assumptions(result.study)
    if found:
        yield Heading("Assumed")
        columns = (Column("attribute"), Column("value"), Column("reason", flexible=True))
        yield Table(columns, [Row((one.attribute, one.value, one.reason)) for one in found])


def _all_blocks(study: Study) -> Iterator[tuple[Any, str]]:
    """Yield every block of the study, including inner blocks, with its label or else its kind."""
    from parcost.contract.schema import block_name, with_inner_blocks

    for blocks in study.blocks.values():
        for block in blocks:
            yield from ((one, block_name(one)) for one in with_inner_blocks(block))


def _spec_text(origin: Origin) -> str:
    """Return a value as written in the file, such as ``2.50 USD/h``; "" for foreign files."""
    from parcost.contract.importers import ForeignSource

    span = origin.span
    if span is None or isinstance(span.source, ForeignSource):
        return ""
    return span.text.partition("=")[2].partition("@")[0].strip()


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3].rstrip()}..."
