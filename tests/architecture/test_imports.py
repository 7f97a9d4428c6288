"""Who may import whom, read from the imports themselves."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from parcost_apps.testing.open_modules import PACKAGES, TO_ALL, TO_KINDS, is_open

from ..rows import try_each
from ..syntax import find_statements, parse_file

ROOT = Path(__file__).parents[2]
PLUGINS = sorted(path for name in PACKAGES for path in (ROOT / "plugins" / name).rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = {"distributed", "duckdb", "google", "jinja2", "scipy", "vl_convert", "yaml"}
EXTRAS |= {"h11", "lsprotocol", "pygls", "pygments", "pytest", "starlette", "uvicorn"}
LIBRARIES = {"attrs", "click", "numpy", *EXTRAS, *sys.stdlib_module_names}


@cache
def imports(path: Path) -> Sequence[str]:
    names: list[str] = []
    for node in find_statements(parse_file(path)):
        if isinstance(node, ast.Import):
            names += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            names += inside if node.module in PACKAGES else [node.module or ""]
    return names


def module(path: Path) -> str:
    parts = path.relative_to(ROOT / "plugins").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def subject(name: str) -> str:
    return ".".join(name.split(".")[:2])


ENTRY_POINTS = {value.partition(":")[0] for value in PROJECT["entry-points"]["parcost"].values()}


@try_each("path", sorted((ROOT / "core").rglob("*.py")), ids=lambda p: p.name)
def test_the_core_imports_no_plugin(path: Path) -> None:
    for name in imports(path):
        assert name.partition(".")[0] not in {*PACKAGES, "parcost_specs"}, name


# What all plugins may import: blocks and records, and formulas of these.
OPEN_TO_ALL = ("parcost_plugins.vocabulary", "parcost_plugins.physics")

# Calibration reads the rows that validation reads, as the same studies, and anchors by the
# importers of logs. Importers of measured runs read the rows and devices that validation reads.
# `check` writes problems in the formats of reports, and an editor shows what `check` finds. `merge`
# joins shards of `eval`, `search` exports its best layout, and the live page searches. Pages of
# rules and of attributes are those of the documentation.
BUILDS_ON = {
    "parcost_apps.check": ("parcost_formats.reports", "parcost_apps.documentation"),
    "parcost_apps.editor": ("parcost_apps.check", "parcost_apps.documentation"),
    "parcost_apps.merge": ("parcost_apps.eval",),
    "parcost_apps.rule": ("parcost_apps.documentation",),
    "parcost_apps.search": ("parcost_apps.export",),
    "parcost_apps.server": ("parcost_apps.search", "parcost_apps.documentation"),
    "parcost_measured.calibration": ("parcost_measured.anchors", "parcost_measured.validation"),
    "parcost_measured.anchors": ("parcost_measured.validation",),
}


@pytest.mark.slow
@try_each("path", PLUGINS, ids=module)
def test_a_plugin_imports_parcost_and_what_is_shared_and_no_other_subject(path: Path) -> None:
    own = module(path)
    for name in imports(path):
        top = name.partition(".")[0]
        if top in PACKAGES:
            known = {subject(own), *OPEN_TO_ALL, *BUILDS_ON.get(subject(own), ())}
            known |= shared_by(subject(own))
            assert subject(name) in known, name
        else:
            assert top in {"parcost", *LIBRARIES}, name


#: Our formats, importers and commands, which import what those of others may import.
KINDS = {
    "parcost_formats.html": "format",
    "parcost_formats.reports": "format",
    "parcost_formats.traces": "format",
    "parcost_formats.tools": "importer",
    "parcost_measured.anchors": "importer",
    "parcost_measured.calibration": "command",
    "parcost_measured.validation": "command",
    "parcost_apps.new_plugin": "command",
}


#: What programs share, lowest first: pages, the command line, batches, options of commands.
SHARED = (
    "parcost_formats.imports",
    "parcost_formats.rendering",
    "parcost_apps.cli",
    "parcost_apps.batch",
    "parcost_apps.options",
)
#: Programs around the core, which is open to them.
PROGRAMS = {"parcost_formats.imports", "parcost_formats.rendering"} | {
    f"parcost_apps.{path.stem}"
    for path in (ROOT / "plugins" / "parcost_apps").iterdir()
    if path.stem not in ("executors", "new_plugin")
}


def shared_by(own: str) -> set[str]:
    """Return the subjects beside the core that are open to one."""
    if own in SHARED:
        return {*SHARED[: SHARED.index(own)]}
    if own in PROGRAMS:
        return {*SHARED}
    kind = KINDS.get(own)
    return (
        {subject(name) for name in TO_KINDS[kind] if name.startswith(PACKAGES)} if kind else set()
    )


@try_each("path", PLUGINS, ids=module)
def test_a_plugin_imports_only_what_the_guide_opens(path: Path) -> None:
    if subject(module(path)) in PROGRAMS:
        return
    kinds = [KINDS[name] for name in (subject(module(path)),) if name in KINDS]
    core = {name for name in imports(path) if name.partition(".")[0] == "parcost"}
    assert not {name for name in core if not is_open(name, kinds)}


@try_each("path", sorted((ROOT / "examples").rglob("*.py")), ids=lambda p: p.stem)
def test_a_third_party_imports_what_is_open(path: Path) -> None:
    """Costs need what is public; formats have entries and pages too, and tests the contracts."""
    kinds = ["test"] if "tests" in path.parts else ["format"] if "metrics" in path.stem else []
    assert [name for name in imports(path) if not is_open(name, kinds)] == []


def test_the_guide_prints_what_is_open() -> None:
    guide = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
    for kind, names in {"every plugin": TO_ALL, **TO_KINDS}.items():
        more = [name for name in names if kind != "command" or name not in TO_KINDS["format"]]
        listed = ", ".join(f"`{name}`" for name in more)
        assert re.search(rf"\| (an? )?{kind} \| .*{re.escape(listed)}", guide), listed


def test_no_public_name_is_also_a_module() -> None:
    """Importing the module would put it in the place of the name."""
    import parcost

    modules = {path.stem for path in (ROOT / "core" / "parcost").iterdir()}
    assert not modules & set(parcost.__all__)


def test_the_vocabulary_imports_no_plugin_and_physics_only_the_vocabulary() -> None:
    for path in PLUGINS:
        own = subject(module(path))
        if own in OPEN_TO_ALL:
            others = {n for n in imports(path) if n.startswith(PACKAGES)}
            assert {subject(n) for n in others} <= {*OPEN_TO_ALL[: OPEN_TO_ALL.index(own) + 1]}, (
                path
            )


def parts(path: Path) -> set[str]:
    """The modules that the package of an entry point names as its parts."""
    for node in parse_file(path).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PARTS":
            return {f"{module(path)}.{name}" for name in ast.literal_eval(node.value)}
    return set()


def test_every_module_with_hooks_is_an_entry_point_or_a_part_of_one() -> None:
    plugins = {path for path in PLUGINS if module(path) in ENTRY_POINTS}
    loaded = ENTRY_POINTS.union(*map(parts, plugins))
    for path in PLUGINS:
        tree = parse_file(path)
        hooks = [
            node.name
            for node in tree.body
            if isinstance(node, ast.FunctionDef)
            and any(ast.unparse(d).startswith("hookimpl") for d in node.decorator_list)
        ]
        assert not hooks or module(path) in loaded, f"{module(path)} offers {hooks}"


@pytest.mark.parametrize("group", ["parcost", "parcost.commands"])
def test_installed_plugins_are_those_declared(group: str) -> None:
    installed = {
        point.name: point.value
        for point in entry_points(group=group)
        if point.dist is not None and point.dist.name == "parcost"
    }
    assert installed == PROJECT["entry-points"][group], "install again: pip install -e ."
