"""``parcost new-plugin``: write a distribution to start a plugin from.

Imports are in the functions: a list of the commands imports only this module.
"""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import click

from parcost_apps.cli.messages import write_message
from parcost_apps.cli.streams import put

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

#: The kinds of templates, which are folders beside this module.
KINDS = ("cost", "schedule", "collective", "format", "importer")
_PREFIX = "parcost-"
_NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
_LONGEST = 40
_SUFFIX = ".txt"
#: Target paths of template files; their last suffix hides them from the tools of this project.
_PLACES = {
    "module.py": "$module.py",
    "tests.py": "tests/test_$module.py",
    "gitignore": ".gitignore",
    "tests.yml": ".github/workflows/tests.yml",
    "job": "job.$plugin",
}


@click.command("new-plugin")
@click.argument("name")
@click.option(
    "--kind",
    type=click.Choice(KINDS),
    default="cost",
    show_default=True,
    help="What the plugin adds: a cost with a block of its own, a pipeline schedule, an algorithm "
    "for collectives, a format of reports, or an importer of another tool's settings.",
)
@click.option(
    "--into",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    show_default="the current folder",
    help="The folder to write the distribution into.",
)
def command(name: str, kind: str, into: Path) -> int:
    """Write a complete distribution of a plugin called NAME, with tests that pass.

    The folder parcost-NAME has a module with the plugin, and a spec or a file that uses it. It also
    has contract tests, a pyproject.toml with the entry point, and a workflow that runs the tests.
    """
    letters = _letters(name)
    folder = into / letters["distribution"]
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise click.UsageError(f"`{folder}` already exists, and is not empty")
    try:
        for path, text in distribution(kind, letters):
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8", newline="\n")
            put(f"{target}\n")
    except OSError as error:
        reason = error.strerror or str(error)
        raise click.ClickException(
            f"cannot write `{error.filename or folder}`: {reason}"
        ) from error
    write_message(f"now: cd {folder} && pip install -e '.[test]' && pytest")
    return 0


def distribution(kind: str, letters: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each file of a new distribution of some *kind*."""
    import tomllib
    from string import Template

    root = files("parcost_apps.new_plugin") / "templates"
    words = tomllib.loads((root / kind / "template.toml").read_text(encoding="utf-8"))
    known = {**letters, "example": "study.par" if kind != "importer" else "job.$plugin"}
    known |= {key: Template(str(text)).substitute(known) for key, text in words.items()}
    known["example"] = Template(known["example"]).substitute(known)
    for folder in ("common", kind):
        for source in sorted(_files(root / folder), key=lambda one: one.name):
            name = source.name.removesuffix(_SUFFIX)
            place = Template(_PLACES.get(name, name)).substitute(known)
            yield place, Template(source.read_text(encoding="utf-8")).substitute(known)


def _files(folder: Traversable) -> Iterator[Traversable]:
    for one in folder.iterdir():
        if one.is_file() and one.name.endswith(_SUFFIX):
            yield one


def _letters(name: str) -> Mapping[str, str]:
    """Return the values of the placeholders in templates.

    Raises:
        UsageError: No plugin can be called that.
    """
    from parcost import __version__

    short = name.lower().removeprefix(_PREFIX).replace("_", "-")
    if not _NAME.fullmatch(short) or len(short) > _LONGEST:
        near = re.sub(r"[^a-z0-9]+", "-", short).strip("-0123456789")[:_LONGEST].rstrip("-")
        hint = f", such as `{near}`" if _NAME.fullmatch(near) else ""
        message = (
            f"`{name}` is not a name of a plugin; use lower-case letters, digits and hyphens{hint}"
        )
        raise click.UsageError(message)
    plugin = short.replace("-", "_")
    if keyword.iskeyword(plugin) or keyword.issoftkeyword(plugin):
        raise click.UsageError(f"`{name}` is a keyword of Python; choose another name")
    if other := _owner(plugin):
        raise click.UsageError(f"`{plugin}` is {other}; choose another name")
    return {
        "about": "",
        "block": plugin,
        "class_name": "".join(word.capitalize() for word in plugin.split("_")),
        "distribution": f"{_PREFIX}{short}",
        "module": f"parcost_{plugin}",
        "plugin": plugin,
        "version": __version__,
        "words": plugin.replace("_", " "),
    }


def _owner(plugin: str) -> str:
    """Return the object that already uses the name, "" if none exists."""
    from parcost.plugins.discovery import load
    from parcost.plugins.registry import REGISTRIES

    if f"parcost_{plugin}" in sys.stdlib_module_names or plugin in ("plugins", "specs", "grammar"):
        return "part of a package of parcost"
    installed = load()
    if any(one.name == plugin for one in installed.plugins):
        return "an installed plugin"
    if plugin in installed.blocks:
        return "a block of the language"
    for hook in REGISTRIES:
        if plugin in installed.offers(hook):
            return f"the name of one of the {hook} of plugin {installed.offers(hook)[plugin][0]}"
    return ""
