"""A package names parts: plugins of their own, which can be left out and fail alone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from parcost import Catalogue, hookimpl
from parcost.plugins.discovery import PluginError, load, names_of_parts

HOOK = """
from parcost import Catalogue, hookimpl

@hookimpl
def catalogues():
    return [Catalogue(name="{name}", root=".")]
"""


@pytest.fixture
def package(tmp_path: Path) -> Callable[..., str]:
    """Return the path of a package `farm` with these parts, by their text."""

    def make(parts: str, **modules: str) -> str:
        folder = tmp_path / "farm"
        folder.mkdir()
        (folder / "__init__.py").write_text(f"PARTS = {parts}\n")
        for name, text in modules.items():
            (folder / f"{name}.py").write_text(text)
        return str(folder)

    return make


def names(*files: str, without: tuple[str, ...] = ()) -> list[str]:
    return [plugin.name for plugin in load(files=files, without=without, installed=False).plugins]


def test_each_part_is_a_plugin(package: Callable[..., str]) -> None:
    path = package('("barn", "silo")', barn=HOOK.format(name="a"), silo=HOOK.format(name="b"))
    assert names(path) == ["farm", "farm.barn", "farm.silo"]


def test_a_part_can_be_left_out(package: Callable[..., str]) -> None:
    path = package('("barn", "silo")', barn=HOOK.format(name="a"), silo=HOOK.format(name="b"))
    assert names(path, without=("farm.barn",)) == ["farm", "farm.silo"]


@pytest.mark.parametrize("text", ["raise RuntimeError", "def", HOOK.format(name="b c")])
def test_a_part_that_fails_leaves_the_others(package: Callable[..., str], text: str) -> None:
    plugins = load(
        files=(package('("barn", "silo")', barn=HOOK.format(name="a"), silo=text),), installed=False
    )
    assert [plugin.name for plugin in plugins.plugins] == ["farm", "farm.barn"]
    assert [fault.plugin.name for fault in plugins.broken] == ["farm.silo"]


def test_a_missing_part_is_named(package: Callable[..., str]) -> None:
    plugins = load(files=(package('["cellar"]'),), installed=False)
    assert [fault.plugin.name for fault in plugins.broken] == ["farm.cellar"]


@pytest.mark.parametrize("parts", ["'barn'", "('a.b',)", "(1,)", "('',)", "7"])
def test_parts_are_a_list_of_modules(package: Callable[..., str], parts: str) -> None:
    (fault,) = load(files=(package(parts),), installed=False).broken
    assert "which is not a list of modules" in fault.message


def test_a_part_that_is_not_there_cannot_be_left_out() -> None:
    with pytest.raises(PluginError, match=r"no plugin is called `model.attentoin`"):
        load(without=["model.attentoin"])


def test_a_subject_is_left_out_with_its_parts() -> None:
    left = {plugin.name for plugin in load(without=["schedules"]).plugins}
    assert "schedules" not in left
    assert not left & set(names_of_parts("schedules"))
    assert "schedules.gpipe" in names_of_parts("schedules")


def test_a_shipped_part_is_left_out_alone() -> None:
    everything = {plugin.name for plugin in load().plugins}
    left = {plugin.name for plugin in load(without=["schedules.gpipe"]).plugins}
    assert everything - left == {"schedules.gpipe"}


IMPORTER = """
import sys
from parcost import Importer, hookimpl

sys.modules["farm_was_imported"] = sys

class Reader(Importer):
    name = "farm"
    title = source = "farm"

    def recognizes(self, name, text):
        return False

    def translate(self, name, text):
        raise NotImplementedError

@hookimpl
def importers():
    return [Reader()]
"""


def test_a_part_is_imported_when_its_offer_is_read(
    package: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "farm_was_imported", raising=False)
    path = package('("barn",)\nOFFERS = ("importers",)', barn=IMPORTER)
    plugins = load(files=(path,), installed=False)
    assert [plugin.name for plugin in plugins.plugins] == ["farm", "farm.barn"]
    assert not plugins.offers("exporters")
    assert "farm_was_imported" not in sys.modules
    assert list(plugins.offers("importers")) == ["farm"]
    assert sys.modules.pop("farm_was_imported")


def test_a_deferred_part_that_fails_is_named_when_its_offer_is_read(
    package: Callable[..., str],
) -> None:
    path = package('("barn",)\nOFFERS = ("importers",)', barn="raise RuntimeError")
    plugins = load(files=(path,), installed=False)
    assert not plugins.faults
    assert not plugins.offers("importers")
    assert [fault.plugin.name for fault in plugins.faults] == ["farm.barn"]


def test_a_deferred_part_answers_nothing_that_its_package_does_not_name(
    package: Callable[..., str],
) -> None:
    more = "\n@hookimpl\ndef groups(study):\n    return []\n"
    path = package('("barn",)\nOFFERS = ("importers",)', barn=IMPORTER + more)
    plugins = load(files=(path,), installed=False)
    assert plugins.offers("importers")
    assert ["contributes `groups`" in fault.message for fault in plugins.faults] == [True]


def test_a_part_that_another_plugin_needs_is_imported_at_once(
    package: Callable[..., str],
) -> None:
    path = package('("barn",)\nOFFERS = ("catalogues",)', barn=HOOK.format(name="a"))
    other = SimpleNamespace(catalogues=hookimpl(lambda: [Catalogue(name="a", root=".")]))
    plugins = load(("other", other), files=(path,), installed=False)
    (fault,) = plugins.faults  # of two with one name, the second is left out at once
    assert "provides `a`" in fault.message


def test_what_parts_offer_is_a_list_of_hooks_without_a_study(package: Callable[..., str]) -> None:
    path = package('("barn",)\nOFFERS = ("terms",)', barn=IMPORTER)
    (fault,) = load(files=(path,), installed=False).broken
    assert "which is not a list of hooks without arguments" in fault.message
