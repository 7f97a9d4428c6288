"""``parcost docs``: the pages of the documentation, offline."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

import parcost
from parcost_apps.cli.messages import write_message
from parcost_apps.cli.pages import show
from parcost_apps.cli.streams import put

if TYPE_CHECKING:
    from parcost.contract.page import Item

#: Where the pages are: in an installed package, and in a copy of the repository.
_FOLDERS = (
    Path(parcost.__file__).parent / "documentation",
    Path(__file__).parents[3] / "docs",
)
_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_MOST_SECTIONS = 20  # of a search
_HEADING = re.compile(r"^#{1,6} (?P<title>.*)$", re.MULTILINE)


@click.command("docs")
@click.argument("page", default="", metavar="[PAGE]")
@click.option("--search", "words", metavar="WORDS", help="List the sections that have all WORDS.")
@click.option("--path", "path", is_flag=True, help="Print the path of the page or of the folder.")
def command(page: str, words: str | None, path: bool) -> int:
    """Print a page of the documentation, or list all pages.

    PAGE is a name such as `start/memory`, or only its last part if that is unique.
    """
    folder = next((each for each in _FOLDERS if (each / "questions.md").is_file()), None)
    if folder is None:
        write_message("error: this installation has no documentation")
        write_message("  = help: install parcost from its wheel, or from a copy of the repository")
        return 2
    names = {_name(file, folder): file for file in sorted(folder.rglob("*.md"))}
    wanted = page.removesuffix(".md").removeprefix("docs/").strip("/")
    found = [wanted] if wanted in names else _candidates(wanted, names)
    if page and len(found) != 1:
        _write_unknown(page, found, names)
        return 2
    chosen = {name: names[name] for name in found} if page else names
    if path:
        put(f"{chosen[found[0]] if page else folder}\n")
        return 0
    if words is not None:
        return _search(chosen, words)
    if page:
        from parcost.language.escapes import escape_lines

        put(escape_lines(chosen[found[0]].read_text(encoding="utf-8")))
    else:
        show(_list_pages(names))
    return 0


def _name(file: Path, folder: Path) -> str:
    return file.relative_to(folder).with_suffix("").as_posix()


def _candidates(wanted: str, names: Mapping[str, Path]) -> Sequence[str]:
    """Return the pages whose name ends in *wanted*, or that are the index of a folder."""
    return [name for name in names if name.endswith(f"/{wanted}") or name == f"{wanted}/index"]


def _write_unknown(page: str, found: Sequence[str], names: Mapping[str, Path]) -> None:
    from parcost.language.diagnostics import did_you_mean, one_line

    if found:
        write_message(f"error: {len(found)} pages are called `{one_line(page)}`")
        write_message(f"  = help: write {' or '.join(f'`{name}`' for name in found)}")
        return
    write_message(f"error: there is no page `{one_line(page)}`")
    parts = [*names, *(name.rpartition("/")[2] for name in names)]
    hint = did_you_mean(page, parts) or "`parcost docs` lists all, `--search WORDS` finds sections"
    write_message(f"  = help: {hint}")


def _title(text: str) -> str:
    """Return the text of the first heading."""
    found = _HEADING.search(_FENCE.sub("", text))
    return found["title"] if found else ""


def _list_pages(names: Mapping[str, Path]) -> Iterator[Item]:
    """Yield a line for each page, with its title."""
    from parcost.contract.page import Column, Line, Row, Table

    rows = [Row((name, _title(file.read_text(encoding="utf-8")))) for name, file in names.items()]
    yield Table((Column("page"), Column("title", flexible=True)), rows)
    yield Line("`parcost docs PAGE` prints a page, `--search WORDS` finds sections.")


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """Yield the title and the text of each section; headings inside code fences do not count."""
    starts = [match.start() for match in _HEADING.finditer(_FENCE.sub(_blank, text))]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        title, _, body = text[start:end].partition("\n")
        yield title.lstrip("# "), body


def _blank(fence: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", fence.group())


def _search(names: Mapping[str, Path], words: str) -> int:
    """Print the first sections that have all words, sections with the words in the title first.

    Others are sorted by the number of occurrences. A word matches the beginning of words in the
    text.
    """
    from parcost.contract.page import Column, Line, Row, Table
    from parcost.language.diagnostics import one_line

    wanted = [re.compile(rf"(?<!\w){re.escape(word)}") for word in words.casefold().split()]
    rows: list[tuple[int, int, Row]] = []
    for name, file in names.items():
        for title, body in _sections(file.read_text(encoding="utf-8")):
            whole = f"{title}\n{body}".casefold()
            counts = [len(word.findall(whole)) for word in wanted]
            if all(counts):
                missing = sum(not word.search(title.casefold()) for word in wanted)
                rows.append((missing, -sum(counts), Row((name, title))))
    if not rows or not wanted:
        write_message(f"error: no section has `{one_line(words)}`")
        write_message("  = help: try fewer words, or `parcost docs` for a list of all pages")
        return 1
    rows.sort(key=lambda each: each[:2])
    shown = [row for *_, row in rows[:_MOST_SECTIONS]]
    items: list[Item] = [Table((Column("page"), Column("section", flexible=True)), shown)]
    if (left := len(rows) - len(shown)) > 0:
        items.append(Line(f"{left} more sections: add words, or name a page before --search"))
    show(items)
    return 0
