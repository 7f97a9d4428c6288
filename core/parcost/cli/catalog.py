"""``parcost catalog``: what specs may import by name."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import click

from parcost.cli import options
from parcost.cli.output import show, tell

if TYPE_CHECKING:
    from parcost.document import Loader
    from parcost.syntax import Block
    from parcost.terms import Catalogue


@click.command("catalog")
@click.argument("pattern", default="", metavar="[PATTERN]")
@options.without
def command(pattern: str, without: tuple[str, ...]) -> int:
    """List what the catalogues hold, each with its main facts.

    PATTERN is a part of a name (`h100`), or a name with wildcards (`*.models.llama3*`).
    """
    from parcost.diagnostics import did_you_mean
    from parcost.document import entries
    from parcost.render.page import Column, Row, Table

    session = options.session(without)
    rows = []
    known = []
    for _, (_, catalogue) in sorted(session.plugins.named("catalogues").items()):
        for steps in entries(catalogue):
            name = ".".join((catalogue.name, *steps))
            known.append(name)
            if matches(name, pattern):
                rows.append(Row((name, _facts(session.loader, catalogue, steps))))
    if not rows:
        tell(
            f"error: no catalogue has `{pattern}`"
            if pattern
            else "error: no catalogue is installed"
        )
        if hint := did_you_mean(pattern, [*known, *(name.rsplit(".")[-1] for name in known)]):
            tell(f"  = help: {hint}")
        return 2
    show([Table((Column("use"), Column("facts", flexible=True)), rows)])
    return 0


def matches(name: str, pattern: str) -> bool:
    """Say whether *pattern* is a part of *name*, or matches it whole with wildcards.

    >>> matches("catalog.devices.h100_sxm", "h100"), matches("catalog.models.gpt3", "*.gpt*")
    (True, True)
    """
    if any(character in pattern for character in "*?["):
        return fnmatchcase(name, pattern)
    return pattern.lower() in name.lower()


def _facts(loader: Loader, catalogue: Catalogue, steps: tuple[str, ...]) -> str:
    module = loader.catalogue_file(catalogue, steps)
    from parcost.document import label_of

    labelled = [block for block in module.blocks if label_of(block) == steps[-1]]
    return "; ".join(", ".join(facts(block)) for block in labelled or module.blocks)


def facts(block: Block) -> Iterator[str]:
    """Yield the attributes of a block as they are written, those of nested blocks too."""
    from parcost.document import label_of
    from parcost.syntax import Attribute
    from parcost.syntax import Block as Nested

    for item in block.items:
        if isinstance(item, Attribute):
            words = " ".join(word.text for word in item.qualifiers)
            yield f"{item.name.text} = {' '.join(item.value.span.text.split())} {words}".strip()
        elif isinstance(item, Nested):
            yield f"{label_of(item)} ({', '.join(facts(item))})"
