"""``requires``: the plugins and versions that a spec needs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from parcost.contract.plugin import Plugin
from parcost.language import syntax as s
from parcost.language.diagnostics import Diagnostic, did_you_mean, problem
from parcost.plugins.discovery import Plugins
from parcost.version import __version__

_PREFIX = "parcost_"


def check(statement: s.Statement, plugins: Plugins) -> Iterator[Diagnostic]:
    """Yield an error for each unmet ``requires plugin "x" ">= 1.2"`` or ``requires parcost``."""
    match statement.words[1:]:
        case [s.Path() as word, s.Text() as version] if word.text == "parcost":
            yield from _version(version, __version__, "parcost", statement)
        case [s.Path() as word, s.Text() as name, *rest] if word.text == "plugin" and all(
            isinstance(r, s.Text) for r in rest[:1]
        ):
            found = next((p for p in plugins.plugins if _meets(p, name.value)), None)
            if found is None:
                known = [p.name for p in plugins.plugins]
                yield problem(
                    "missing-plugin",
                    f"no plugin `{name.value}` is installed",
                    name.span,
                    help=did_you_mean(name.value, known) or "`parcost plugins` lists them",
                )
            elif rest and isinstance(rest[0], s.Text):
                stated = found.version or _module_version(found.module)
                yield from _version(rest[0], stated, f"plugin `{found.name}`", statement)
        case _:
            yield problem(
                "malformed-requires",
                "the plugin or the version is missing",
                statement.span,
                help='write `requires plugin "NAME" ">= 1.2"` or `requires parcost ">= 0.1"`',
            )


def _meets(plugin: Plugin, name: str) -> bool:
    """Return whether *plugin* is called *name*.

    A plugin from a file has the name of the file, such as `parcost-rollouts` instead of the entry
    point `rollouts`.
    """
    wanted = re.sub(r"\W", "_", name)
    return name == plugin.name or wanted in (plugin.name, plugin.name.removeprefix(_PREFIX))


def _module_version(module: object) -> str:
    """Return the `__version__` of the module of a plugin that is not installed, or ""."""
    version = getattr(module, "__version__", "")
    return version if isinstance(version, str) else ""


def _version(
    wanted: s.Text, version: str, what: str, statement: s.Statement
) -> Iterator[Diagnostic]:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        allowed = SpecifierSet(wanted.value)
    except InvalidSpecifier:
        yield problem(
            "malformed-requires",
            f"`{wanted.value}` is not a version requirement",
            wanted.span,
            help='write `">= 1.2"` or `">= 1.2, < 2"`',
        )
        return
    if not version or not allowed.contains(version, prereleases=True):
        has = f"version {version}" if version else "no version"
        yield problem(
            "wrong-version",
            f"the spec requires {what} {wanted.value}, and {has} is installed",
            statement.span,
            help="install a matching version, or change the requirement",
        )
