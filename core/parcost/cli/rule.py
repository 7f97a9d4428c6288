"""``parcost rule``: the page of a rule, or the list of all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from parcost.cli import options
from parcost.cli.messages import write_message
from parcost.cli.pages import show
from parcost.cli.streams import put
from parcost.language.escapes import escape_json, escape_lines

if TYPE_CHECKING:
    from parcost.plugins.rule_pages import RulePage
    from parcost.plugins.selection import PluginSelection


@click.command("rule")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--all", "every", is_flag=True, help="Print the page of every rule.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "md", "json"]),
    default="text",
    show_default=True,
    help="Format of the pages.",
)
@options.selection
def command(ids: tuple[str, ...], every: bool, format_: str, selection: PluginSelection) -> int:
    """Explain a rule: why it is there, an example that fails, and how to mend it.

    ID is what stands in brackets, as in `error[heads-divide]`. Without one, all rules are listed.
    """
    from parcost.plugins.rule_pages import rule_pages

    known = rule_pages(options.plugins(selection))
    for fault in known.faults:
        write_message(f"error: {fault}")
    names = [name.strip("[]`") for name in ids]
    if unknown := [name for name in names if name not in known.pages]:
        for name in unknown:
            _write_unknown(name, list(known.pages))
        return 2
    pages = [known.pages[name] for name in names] or list(known.pages.values())
    _write(pages, format_, whole=bool(names) or every)
    return 3 if known.faults else 0


def _write_unknown(name: str, known: Sequence[str]) -> None:
    from parcost.language.diagnostics import nearest_names, one_line

    close = nearest_names(name, known, 3)
    inside = [other for other in known if len(name) > 2 and name in other]
    write_message(f"error: there is no rule `{one_line(name)}`")
    if hint := list(dict.fromkeys([*close, *inside]))[:3]:
        write_message(f"  = help: did you mean {' or '.join(f'`{other}`' for other in hint)}?")
    else:
        write_message("  = help: `parcost rule` lists all")


def _write(pages: Sequence[RulePage], format_: str, *, whole: bool) -> None:
    from parcost.output.rules import listing, markdown, rule_data, rule_items

    if format_ == "json":
        from parcost.output.data import header

        document = {**header(), "rules": [rule_data(page) for page in pages]}
        put(escape_json(json.dumps(document, indent=2, ensure_ascii=False)) + "\n")
    elif format_ == "md":
        put(escape_lines("\n".join(map(markdown, pages))))
    elif whole:
        show(item for page in pages for item in rule_items(page))
    else:
        show([listing(pages)])
