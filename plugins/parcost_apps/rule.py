"""``parcost rule``: the page of a rule, or the list of all."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import click

from parcost.language.escapes import escape_lines
from parcost_apps import options
from parcost_apps.cli.messages import write_message
from parcost_apps.cli.pages import show
from parcost_apps.cli.streams import put
from parcost_formats.rendering.escapes import escape_json

if TYPE_CHECKING:
    from parcost.plugins.selection import PluginSelection
    from parcost_apps.documentation.rulebooks import RulePage

_MOST_HINTS = 3


@click.command("rule")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--all", "every", is_flag=True, help="Print the page of every rule.")
@click.option(
    "--subject",
    metavar="NAME",
    help="Only the rules of a subject, such as language, model or batch_and_layout.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "md", "json"]),
    default="text",
    show_default=True,
    help="Format of the pages.",
)
@options.selection
def command(
    ids: tuple[str, ...],
    every: bool,
    subject: str | None,
    format_: str,
    selection: PluginSelection,
) -> int:
    """Explain a rule: why it is there, an example that fails, and how to fix it.

    ID is the text in brackets, as in `error[heads-divide]`. Without one, all rules are listed
    by subject.
    """
    from parcost_apps.documentation.rulebooks import rule_pages

    known = rule_pages(options.plugins(selection))
    for fault in known.faults:
        write_message(f"error: {fault}")
    names = [name.strip("[]`") for name in ids]
    subjects = {page.book for page in known.pages.values()}
    if names and subject is not None:
        raise click.UsageError("an ID already selects one rule: use either an ID or `--subject`")
    if subject is not None and subject not in subjects:
        _write_unknown("subject", subject, sorted(subjects))
        return 2
    if unknown := [name for name in names if name not in known.pages]:
        for name in unknown:
            _write_unknown("rule", name, list(known.pages), subjects)
        return 2
    pages = [known.pages[name] for name in names]
    pages = pages or [p for p in known.pages.values() if subject in (None, p.book)]
    _write(pages, format_, whole=bool(names) or every)
    return 3 if known.faults else 0


def _write_unknown(
    what: str, name: str, known: Sequence[str], subjects: Collection[str] = ()
) -> None:
    """Print that no rule or subject is called *name*, and suggest up to a few similar names."""
    from parcost.language.diagnostics import nearest_names, one_line

    words = set(name.split("-"))
    common = {other: len(words & set(other.split("-"))) for other in known}
    inside = [other for other in known if len(name) > 2 and name in other]
    sharing = sorted((other for other in known if common[other]), key=lambda o: -common[o])
    close = dict.fromkeys([*nearest_names(name, known, 1), *inside, *sharing])
    hint = list(close)[:_MOST_HINTS]
    write_message(f"error: there is no {what} `{one_line(name)}`")
    if name in subjects:
        write_message(f"  = help: `parcost rule --subject {name}` lists the rules of the subject")
    elif hint:
        write_message(f"  = help: did you mean {' or '.join(f'`{other}`' for other in hint)}?")
    else:
        write_message("  = help: `parcost rule` lists all")


def _write(pages: Sequence[RulePage], format_: str, *, whole: bool) -> None:
    from parcost_apps.documentation.rule_pages import index_items, markdown, rule_data, rule_items

    if format_ == "json":
        from parcost_formats.rendering.json_header import header

        document = {**header(), "rules": [rule_data(page) for page in pages]}
        put(escape_json(json.dumps(document, indent=2, ensure_ascii=False)) + "\n")
    elif format_ == "md":
        put(escape_lines("\n".join(map(markdown, pages))))
    elif whole:
        show(item for page in pages for item in rule_items(page))
    else:
        show(index_items(pages))
