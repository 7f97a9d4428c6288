"""Every hook is documented with its signature, and used; so is every attribute."""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

import parcost
from parcost import hookimpl
from parcost.contract import hookspecs
from parcost.contract.schema import BlockType
from parcost.plugins.discovery import load

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
HOOKS = {n: spec for n, spec in vars(hookspecs).items() if hasattr(spec, "parcost_spec")}
BLOCKS = load().blocks


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_is_in_the_guide_with_its_exact_signature(name: str) -> None:
    signature = str(inspect.signature(HOOKS[name])).replace("'", "")
    assert f"`{name}{signature}`" in GUIDE


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_says_what_it_is_for(name: str) -> None:
    assert HOOKS[name].__doc__


def test_the_guide_names_no_hook_that_does_not_exist() -> None:
    listed = GUIDE.partition("## Every hook")[2].partition("## Commands")[0]
    named = {line[3:].partition("(")[0] for line in listed.splitlines() if line.startswith("- `")}
    assert named == set(HOOKS)


def test_the_plugins_that_the_guide_names_have_what_it_says() -> None:
    modules = {plugin.name: plugin.module for plugin in load().plugins}
    listed = GUIDE.partition("## Every hook")[2].partition("## Commands")[0]
    for entry in listed.split("\n- ")[1:]:
        hook = entry[1:].partition("(")[0]
        for name in re.findall(r"`(\w+)`", entry.partition("Shipped:")[2]):
            assert hasattr(getattr(modules[name], hook), "parcost_impl"), (hook, name)


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_is_used_by_something_that_ships_or_by_an_example(name: str) -> None:
    folders = [ROOT / "plugins", ROOT / "specs", ROOT / "examples"]
    paths = [path for folder in folders for path in folder.rglob("*.py")]
    assert any(name in implemented(path) for path in paths)


@cache
def implemented(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(d, ast.Name) and d.id == "hookimpl" for d in node.decorator_list)
    }


@pytest.mark.parametrize("type_", BLOCKS.values(), ids=lambda t: t.kind)
def test_every_block_and_attribute_says_what_it_is(type_: BlockType) -> None:
    assert type_.schema.__doc__
    for name, field in type_.fields.items():
        assert field.doc, name
        assert not field.doc.endswith("."), name


SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster  { devices = 16 }
layout   { tp = 2, zero = 1, sequence_parallel = on }
training { sequence = 8192, global_batch = 32 sequences, recompute = full }
"""


@pytest.mark.parametrize("hook", ["terms", "memory", "checks", "figures", "sections", "groups"])
def test_a_plugin_that_raises_is_named_and_the_report_is_incomplete(hook: str) -> None:
    def fail() -> None:
        raise RuntimeError("out of coffee")

    fail.__name__ = hook
    broken = SimpleNamespace(**{hook: hookimpl(fail)})
    plugins = load(("broken", broken))
    (scenario,) = parcost.load_text(SPEC, plugins=plugins)
    report = scenario.evaluate()
    list(report.result.sections)
    assert report.exit_code == 3
    assert [(f.plugin.name, f.hook) for f in report.result.faults] == [("broken", hook)]
    assert "out of coffee" in report.result.faults[0].message


def test_no_module_has_the_name_of_a_hook_of_its_package() -> None:
    """An import of it would replace the hook, which then answers nothing."""
    for path in sorted((ROOT / "plugins").rglob("__init__.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        hooks = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)} & set(HOOKS)
        modules = {one.stem for one in path.parent.iterdir()}
        assert not hooks & modules, path
