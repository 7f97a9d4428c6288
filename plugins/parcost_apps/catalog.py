"""``parcost catalog``: the entries that specs may import by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import groupby
from typing import TYPE_CHECKING

import click

from parcost_apps import options
from parcost_apps.cli.messages import write_message
from parcost_apps.cli.pages import paper, show

if TYPE_CHECKING:
    from parcost.binding.modules import Loader
    from parcost.contract.offers import Catalogue
    from parcost.contract.page import Item
    from parcost.language.syntax import Block, Provenance
    from parcost.plugins.selection import PluginSelection


@click.command("catalog")
@click.argument("pattern", default="", metavar="[PATTERN]")
@options.selection
def command(pattern: str, selection: PluginSelection) -> int:
    """List the entries of the catalogues, with their main attributes.

    PATTERN is a name (`h100_sxm`), a part of one (`h100`), or one with wildcards
    (`*.models.llama3*`). A single match is printed in full, with the origin of each value.
    """
    from parcost.binding.modules import entries
    from parcost.language.diagnostics import did_you_mean

    session = options.session(selection)
    known: dict[str, tuple[Catalogue, tuple[str, ...]]] = {}
    for name, (_, catalogue) in sorted(session.plugins.offers("catalogues").items()):
        known |= {".".join((name, *steps)): (catalogue, steps) for steps in entries(catalogue)}
    # A name that is a part of others still stands for itself: `h100_sxm` beside `h100_sxm_96g`.
    whole = {name: known[name] for name in known if f".{name}".endswith(f".{pattern}")}
    found = whole or {name: entry for name, entry in known.items() if matches(name, pattern)}
    if not found:
        write_message(f"error: no catalogue has `{pattern}`")
        if hint := did_you_mean(pattern, [*known, *(name.rsplit(".")[-1] for name in known)]):
            write_message(f"  = help: {hint}")
        return 2
    blocks = {name: _blocks(session.loader, *entry) for name, entry in found.items()}
    show(_whole(*blocks.popitem()) if len(blocks) == 1 else _lines(blocks))
    return 0


def _blocks(loader: Loader, catalogue: Catalogue, steps: tuple[str, ...]) -> list[Block]:
    """Return the blocks that a spec gets by importing the entry."""
    from parcost.binding.modules import label_of

    module = loader.catalogue_file(catalogue, steps)
    return [block for block in module.blocks if label_of(block) == steps[-1]]


def _lines(blocks: Mapping[str, list[Block]]) -> Iterator[Item]:
    """Yield one line for each entry, by folder, with as many attributes as fit the width."""
    from parcost.contract.page import Column, Heading, Row, Table

    width = max(len(name.rpartition(".")[2]) for name in blocks)
    room = max(20, paper().width - width - 4)
    for folder, names in groupby(blocks, key=lambda name: name.rpartition(".")[0]):
        rows = []
        for name in names:
            said = ", ".join(f"{what} {text}" for b in blocks[name] for what, text, _ in facts(b))
            rows.append(Row((name.rpartition(".")[2].ljust(width), _shorten(said, room))))
        yield Heading(f"use {folder}.NAME")
        yield Table((Column(), Column()), rows)


def _shorten(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    return text[: room - 3].rpartition(", ")[0] + ", ..."


def _whole(name: str, blocks: list[Block]) -> list[Item]:
    """Return all attributes of one entry, with their values and provenance."""
    from parcost.contract.page import Column, Heading, Row, Table

    rows = [Row(fact) for block in blocks for fact in facts(block)]
    columns = (Column("attribute"), Column("value", flexible=True), Column("from", flexible=True))
    return [Heading(f"use {name}", 1), Table(columns, rows)]


def matches(name: str, pattern: str) -> bool:
    """Return whether *pattern* is a part of *name*, or a pattern with wildcards that matches its
    last parts.

    >>> matches("catalog.devices.h100_sxm", "h100"), matches("catalog.models.gpt3", "*.gpt*")
    (True, True)
    >>> matches("catalog.models.gpt3", "models.*"), matches("catalog.models.gpt3", "pt*")
    (True, False)
    """
    if any(character in pattern for character in "*?["):
        return fnmatchcase(name, pattern) or fnmatchcase(name, f"*.{pattern}")
    return pattern.lower() in name.lower()


def facts(block: Block, inside: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield name, value as written, and provenance of each attribute, including nested ones."""
    from parcost.binding.modules import base_of, label_of
    from parcost.language.syntax import Attribute
    from parcost.language.syntax import Block as Nested

    common = _sources(block.provenance)
    base = base_of(block)
    if base is not None:
        yield f"{inside}extends", base.text, ""
    for item in block.items:
        if isinstance(item, Attribute):
            words = " ".join(word.text for word in item.qualifiers)
            value = f"{' '.join(item.value.span.text.split())} {words}".strip()
            yield inside + item.name.text, value, _sources(item.provenance) or common
        elif isinstance(item, Nested):
            yield from facts(item, f"{inside}{label_of(item)}.")


def _sources(provenance: Sequence[Provenance]) -> str:
    said = (f"{p.kind.text}: {p.source.value}" if p.source else p.kind.text for p in provenance)
    return "; ".join(said)
