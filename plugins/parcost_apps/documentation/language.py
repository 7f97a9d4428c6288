"""The language reference, generated from the declarations of plugins.

    python -m parcost_apps.documentation.language                     prints it
    python -m parcost_apps.documentation.language docs/language.md    rewrites that part of the file

The blocks, their attributes, defaults and ranges, and the names in registries come from the
installed plugins. So the reference includes the plugins of the user.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from parcost.binding.modules import label_of
from parcost.contract.schema import BlockType
from parcost.engine.session import Session
from parcost.language.syntax import Attribute
from parcost.plugins.discovery import load
from parcost_apps.documentation.declarations import default, flow, value

if TYPE_CHECKING:
    from parcost.plugins.discovery import Plugins

BEGIN = (
    "<!-- reference: made by `python -m parcost_apps.documentation.language docs/language.md` -->"
)
END = "<!-- end of reference -->"
REGISTRIES = ("collectives", "libraries", "schedules", "kernels")


def reference(plugins: Plugins) -> str:
    """Return the reference of every block that *plugins* declare, in Markdown."""
    owners = {kind: plugin for kind, (plugin, _) in plugins.offers("blocks").items()}
    given = _provenances(plugins)
    parts = []
    for kind, type_ in sorted(plugins.blocks.items()):
        parts.append("\n".join(_block(type_, owners[kind].name, given)))
    parts.append("\n".join(_registries(plugins)))
    return "\n\n".join(parts) + "\n"


def _provenances(plugins: Plugins) -> Mapping[tuple[str, str], str]:
    """Return the values in preludes with their provenance, by block and attribute."""

    return {
        (block.kind.text, item.name.text): _with_origin(item)
        for prelude in Session(plugins).loader.preludes()
        for block in prelude.blocks
        if not label_of(block)
        for item in block.items
        if isinstance(item, Attribute)
    }


def _with_origin(item: Attribute) -> str:
    """Return the value of *item* as written, and the kinds of its provenance."""
    kinds = ", ".join(one.kind.text for one in item.provenance)
    text = f"`{flow(item.value.span.text)}`"
    return f"{text} ({kinds})" if kinds else text


def _block(type_: BlockType, owner: str, given: Mapping[tuple[str, str], str]) -> Iterator[str]:
    label = {"required": " LABEL", "optional": " [LABEL]", "none": ""}[type_.label]
    yield f"### `{type_.kind}{label} {{ ... }}`"
    yield ""
    inside = f" Stands inside `{type_.inside}`." if type_.inside else ""
    yield f"{flow(type_.schema.__doc__)}{inside} Declared by the plugin `{owner}`."
    yield ""
    yield "| attribute | value | default | meaning |"
    yield "| :-- | :-- | :-- | :-- |"
    for name, field in type_.fields.items():
        falls_back = given.get((type_.kind, name)) or default(type_, name)
        cells = (f"`{name}`", value(field), falls_back, field.doc.replace("|", "\\|"))
        yield f"| {' | '.join(cells)} |"


def _registries(plugins: Plugins) -> Iterator[str]:
    yield "### Names that plugins offer"
    yield ""
    yield "| kind | name | plugin | meaning |"
    yield "| :-- | :-- | :-- | :-- |"
    for hook in REGISTRIES:
        for name, (plugin, offered) in sorted(plugins.offers(hook).items()):
            doc = flow(type(offered).__doc__, first=True).replace("|", "\\|")
            yield f"| {hook} | `{name}` | `{plugin.name}` | {doc} |"


def insert(document: str, made: str) -> str:
    """Return *document* with its reference replaced by *made*.

    >>> insert(f"a\\n{BEGIN}\\nold\\n{END}\\nb\\n", "new\\n").split("\\n")[2:4]
    ['', 'new']
    """
    head, begin, rest = document.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError("the document lacks the two comments that mark the place of the reference")
    return f"{head}{BEGIN}\n\n{made}\n{END}{tail}"


def main(arguments: list[str]) -> None:
    """Print the reference, or rewrite it in the named file."""

    made = reference(load())
    if not arguments:
        sys.stdout.write(made)
        return
    path = Path(arguments[0])
    path.write_text(insert(path.read_text(encoding="utf-8"), made), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
