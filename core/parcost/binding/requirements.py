"""``requires``: which plugins, and which versions of them, a spec was written for."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from parcost import __version__
from parcost.diagnostics import Diagnostic, did_you_mean, problem
from parcost.language import syntax as s
from parcost.plugins import Plugins


def check(statement: s.Statement, plugins: Plugins) -> Iterator[Diagnostic]:
    """Yield what ``requires plugin "x" ">= 1.2"`` or ``requires parcost ">= 0.1"`` misses."""
    match statement.words[1:]:
        case [s.Path() as word, s.Text() as version] if word.text == "parcost":
            yield from _version(version, __version__, "parcost", statement)
        case [s.Path() as word, s.Text() as name, *rest] if word.text == "plugin" and all(
            isinstance(r, s.Text) for r in rest[:1]
        ):
            found = next((p for p in plugins.plugins if p.name == name.value), None)
            if found is None:
                known = [p.name for p in plugins.plugins]
                yield problem(
                    "missing-plugin",
                    f"no plugin `{name.value}` is installed",
                    name.span,
                    help=did_you_mean(name.value, known) or "`parcost plugins` lists them",
                )
            elif rest and isinstance(rest[0], s.Text):
                yield from _version(rest[0], found.version, f"plugin `{found.name}`", statement)
        case _:
            yield problem(
                "malformed-requires",
                "this requires nothing",
                statement.span,
                help='write `requires plugin "NAME" ">= 1.2"` or `requires parcost ">= 0.1"`',
            )


def _version(
    wanted: s.Text, version: str, what: str, statement: s.Statement
) -> Iterator[Diagnostic]:
    try:
        allowed = SpecifierSet(wanted.value)
    except InvalidSpecifier:
        yield problem(
            "malformed-requires",
            f"`{wanted.value}` is no version requirement",
            wanted.span,
            help='write `">= 1.2"` or `">= 1.2, < 2"`',
        )
        return
    if not version or not allowed.contains(version, prereleases=True):
        has = f"version {version}" if version else "no version"
        yield problem(
            "wrong-version",
            f"{what} has {has}, and the spec requires {wanted.value}",
            statement.span,
        )
