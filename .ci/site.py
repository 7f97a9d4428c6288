"""Hooks of the documentation site: what the pages link to outside of `docs`, and pictures.

The pages are the files that the repository shows, so that their links are those of the repository.
The site has the README as its first page, and a copy of each file that a page links to; a folder
becomes a list of its files. A picture that a page shows is made by the command of the same page
that has `--out` and its name.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from posixpath import basename, dirname, normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
#: Pages of the site that stand outside of `docs`, by their path in the repository.
PAGES = {
    "README.md": "index.md",
    ".github/CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
}
_LINK = re.compile(r"(?P<head>!?\[[^]]*\]\()(?P<to>[^)#:\s]+)(?P<rest>(?:#[^)\s]*)?\))")
_PICTURE = re.compile(r"!\[[^]]*\]\((?P<to>[^)#:\s]+\.svg)\)")
_COMMAND = re.compile(r"^parcost .*--out (?P<out>\S+\.svg)\b.*$", re.MULTILINE)
_FENCE = re.compile(r"^(?P<fence>```\w+) [^\n]*$", re.MULTILINE)
_LANGUAGES = {".par": "par", ".py": "python", ".sh": "sh", ".toml": "toml", ".json": "json"}
_LARGEST = 200_000  # bytes of a file that is shown
_UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside of `docs`, what pages link to there, and their pictures."""
    texts = {f"docs/{file.src_uri}": file.content_string for file in files.documentation_pages()}
    texts |= {path: (ROOT / path).read_text(encoding="utf-8") for path in PAGES}
    for path, uri in PAGES.items():
        files.append(File.generated(config, uri, content=texts[path]))
    wanted = {target for path, text in texts.items() for target in _outside(path, text)}
    waiting = sorted(wanted)
    while waiting:
        path = waiting.pop(0)
        source = ROOT / path
        inside = _listed(source) if source.is_dir() else []
        content = _folder_page(path, inside) if source.is_dir() else _file_page(source)
        files.append(File.generated(config, _uri(path), content=content))
        for each in inside:
            name = f"{path}/{each}"
            if not each.endswith("/") and name not in wanted:
                wanted.add(name)
                waiting.append(name)
    for path, text in texts.items():
        for uri, content in _pictures(path, text):
            files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Return a page with the links of the site, and fences that have a language only."""
    own = {uri: path for path, uri in PAGES.items()}
    uri = page.file.src_uri
    if uri.startswith("source/"):
        return markdown
    path = own.get(uri, f"docs/{uri}")
    return _FENCE.sub(r"\g<fence>", _relink(path, uri, markdown))


def _relink(path: str, uri: str, text: str) -> str:
    def moved(match: re.Match[str]) -> str:
        target = _target(path, match["to"])
        here = _uri(target)
        return f"{match['head']}{relpath(here, dirname(uri) or '.')}{match['rest']}"

    return _outside_of_fences(text, lambda part: _LINK.sub(moved, part))


def _outside_of_fences(text: str, change: Callable[[str], str]) -> str:
    parts = re.split(r"(^```.*?^```$)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if i % 2 else change(part) for i, part in enumerate(parts))


def _target(path: str, to: str) -> str:
    """Return the path in the repository that a link of the file at *path* leads to."""
    found = normpath(f"{dirname(path)}/{to}".lstrip("/"))
    if found.startswith("..") or not ((ROOT / found).exists() or found.endswith(".svg")):
        raise PluginError(f"{path}: the link to {to} leads nowhere")
    return found


def _outside(path: str, text: str) -> list[str]:
    """Return what a page links to that is no page of the site."""
    found: list[str] = []

    def look(part: str) -> str:
        targets = (_target(path, match["to"]) for match in _LINK.finditer(part))
        found.extend(t for t in targets if _uri(t).startswith("source/"))
        return part

    _outside_of_fences(text, look)
    return found


def _uri(path: str) -> str:
    """Return where the site has a file or a folder of the repository."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/") and path.endswith((".md", ".svg", ".png")):
        return path.removeprefix("docs/")
    return f"source/{path}/index.md" if (ROOT / path).is_dir() else f"source/{path}.md"


def _listed(folder: Path) -> list[str]:
    """Return the text files below *folder*, without what tools leave behind."""
    return [
        file.relative_to(folder).as_posix()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
        and file.stat().st_size <= _LARGEST
        and not any(
            p.startswith((".", "__")) or p.endswith(".egg-info")
            for p in file.relative_to(folder).parts
        )
    ]


def _folder_page(path: str, inside: list[str]) -> str:
    lines = [
        f"- [`{name}`]({relpath(_uri(f'{path}/{name}'), f'source/{path}')})" for name in inside
    ]
    return "\n".join([f"{_UNSEARCHED}# `{path}`", "", *lines, ""])


def _file_page(file: Path) -> str:
    name = file.relative_to(ROOT).as_posix()
    head = f"~~~~~~~~ {_LANGUAGES.get(file.suffix, 'text')}"
    text = file.read_text(encoding="utf-8")
    return f"{_UNSEARCHED}# `{name}`\n\n{head}\n{text}\n~~~~~~~~\n"


def _pictures(path: str, text: str) -> list[tuple[str, str]]:
    """Return the pictures of a page that no file has, made by the commands of the page."""
    shown = [match["to"] for match in _PICTURE.finditer(text)]
    missing = [to for to in shown if not (ROOT / _target(path, to)).exists()]
    commands = {match["out"]: match.group() for match in _COMMAND.finditer(text)}
    return [(_uri(_target(path, to)), _picture(path, to, commands)) for to in missing]


def _picture(path: str, to: str, commands: dict[str, str]) -> str:
    name = basename(to)
    if name not in commands:
        raise PluginError(f"{path}: no command of the page makes the picture {to}")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "docs/how-to/files", folder, dirs_exist_ok=True)
        program = Path(sys.executable).with_name("parcost")
        arguments = shlex.split(commands[name])[1:]
        done = subprocess.run(
            [program, *arguments], cwd=folder, capture_output=True, text=True, check=False
        )
        picture = Path(folder, name)
        if not picture.is_file():
            raise PluginError(f"{path}: `{commands[name]}` makes no picture: {done.stderr}")
        return picture.read_text(encoding="utf-8")
