"""The floors of the core: every import points down, and none goes round."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from ..rows import try_each
from ..syntax import parse_file

CORE = Path(__file__).parents[2] / "core" / "parcost"

#: Lowest first. A floor imports itself and those before it.
FLOORS = (
    "version",
    "numeric",
    "records",
    "language",
    "system",
    "contract",
    "plugins",
    "binding",
    "report",
    "expectations",
    "engine",
    "search",
    "",  # the package itself, which has the public names
    "__main__",
)

#: Libraries that a function may import, and what runs without them.
HEAVY = {
    "duckdb": "only Parquet needs it",
    "numpy": "`--help`, `fmt` and single specs wait less",
    "packaging": "only `requires` needs it",
    "pandas": "only notebooks need it",
    "tomllib": "only pages of rules need it",
}

#: Modules whose functions may import whatever they need, and why.
LAZY = {
    "parcost.contract.calls": "`--help` loads commands by it, and few calls fail",
}


class Import(NamedTuple):
    """One import: what it names, its line, and whether a function does it."""

    target: str
    line: int
    in_function: bool


def name_of(path: Path) -> str:
    parts = path.relative_to(CORE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES: Mapping[str, Path] = {name_of(path): path for path in sorted(CORE.rglob("*.py"))}


@cache
def imports(name: str) -> tuple[Import, ...]:
    tree = parse_file(MODULES[name])
    return tuple(_imports(tree, in_function=False))


def _imports(node: ast.AST, *, in_function: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, child.lineno, in_function)
        elif isinstance(child, ast.ImportFrom):
            for alias in child.names:
                yield Import(f"{child.module}.{alias.name}", child.lineno, in_function)
        inside = in_function or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
        yield from _imports(child, in_function=inside)


def module_of(target: str) -> str:
    """Return the module of the core that *target* is, or lies in; "" for other libraries."""
    while target and target not in MODULES:
        target = target.rpartition(".")[0]
    return target


def floor_of(name: str) -> int:
    return FLOORS.index(name.split(".")[1] if "." in name else "")


@try_each("name", MODULES)
def test_every_import_points_down(name: str) -> None:
    for target, line, _ in imports(name):
        other = module_of(target)
        if other and other != name:
            assert floor_of(other) <= floor_of(name), f"{name}:{line} imports {other}"


def test_no_modules_import_one_another() -> None:
    """Depth-first: a module on the path that is met again closes a cycle."""
    done: set[str] = set()
    path: list[str] = []

    def visit(name: str) -> None:
        if name in path:
            raise AssertionError(" -> ".join([*path[path.index(name) :], name]))
        if name in done:
            return
        path.append(name)
        for other in {module_of(target) for target, _, _ in imports(name)} - {"", name}:
            visit(other)
        path.pop()
        done.add(name)

    for name in MODULES:
        visit(name)


@try_each("name", MODULES)
def test_functions_import_only_what_is_heavy(name: str) -> None:
    if any(name == allowed or name.startswith(f"{allowed}.") for allowed in LAZY):
        return
    for target, line, in_function in imports(name):
        assert not in_function or target.partition(".")[0] in HEAVY, f"{name}:{line}: {target}"


@pytest.mark.slow
@pytest.mark.parametrize("command", [["--help"], ["fmt", "--check"]], ids=lambda c: c[0])
def test_numpy_is_not_imported_to(command: list[str], tmp_path: Path) -> None:
    if command[0] == "fmt":
        file = tmp_path / "a.par"
        file.write_text("let a = 1\n", encoding="utf-8")
        command = [*command, str(file)]
    code = (
        "import sys; from parcost_apps.cli import parcost;"
        "parcost.main(sys.argv[1:], standalone_mode=False);"
        "sys.exit('numpy' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, *command], check=True, stdout=subprocess.DEVNULL)
