"""What makes an answer another: the code of plugins, options, names and texts."""

from __future__ import annotations

from pathlib import Path

import pytest

import parcost
from parcost.plugins.selection import PluginSelection
from parcost_apps.batch import fingerprints
from parcost_apps.batch.fingerprints import Environment, Question

METADATA = "Metadata-Version: 2.1\nName: parcost-mine\nVersion: {version}\n"


class Developed:
    """A plugin under development: a package and its metadata, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("mine_plugin/__init__.py", "from mine_plugin import formulas\n")
        self.write("mine_plugin/formulas.py", "FACTOR = 1\n")
        self.write("mine_plugin/efficiencies.json", "{}")
        self.write("mine_plugin/specs/site.par", "layout { tp = 2 }\n")
        self.write("mine.dist-info/METADATA", METADATA.format(version="1.0"))
        self.write("mine.dist-info/entry_points.txt", "[parcost]\nmine = mine_plugin\n")

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Developed:
    developed = Developed(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    fingerprints._location.cache_clear()
    return developed


@pytest.mark.slow
def test_another_plugin_is_another_environment() -> None:
    before = Environment().digest
    assert Environment().digest == before
    assert Environment(PluginSelection(("analysis.advice",))).digest != before
    assert (
        Environment(PluginSelection(("analysis.advice", "analysis.figures"))).digest
        == Environment(PluginSelection(("analysis.figures", "analysis.advice"))).digest
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, text",
    [
        ("mine_plugin/formulas.py", "FACTOR = 2\n"),
        ("mine_plugin/new.py", ""),
        ("mine_plugin/efficiencies.json", "[]"),
        ("mine.dist-info/METADATA", METADATA.format(version="1.1")),
        ("mine.dist-info/entry_points.txt", "[parcost]\nyours = mine_plugin\n"),
    ],
)
def test_a_plugin_that_was_changed_is_another(mine: Developed, name: str, text: str) -> None:
    before = Environment().digest
    mine.write(name, text)
    assert Environment().digest != before


@pytest.mark.slow
def test_what_python_compiles_and_the_specs_of_a_plugin_change_nothing(mine: Developed) -> None:
    """Specs count for the studies that import them."""
    before = Environment().digest
    mine.write("mine_plugin/__pycache__/formulas.pyc", "compiled")
    mine.write("mine_plugin/specs/site.par", "layout { tp = 4 }\n")
    assert Environment().digest == before


@pytest.mark.slow
def test_a_plugin_that_is_left_out_may_change(mine: Developed) -> None:
    before = Environment(PluginSelection(("mine",))).digest
    mine.write("mine_plugin/formulas.py", "FACTOR = 2\n")
    assert Environment(PluginSelection(("mine",))).digest == before


@pytest.mark.slow
def test_code_is_found_without_importing_it(mine: Developed) -> None:
    import sys

    _ = Environment().digest
    assert "mine_plugin" not in sys.modules
    assert Environment().packages["mine_plugin"] == mine.folder / "mine_plugin"


def test_every_part_of_a_question_counts() -> None:
    plain = Question({}, None, "data")
    asked = [
        plain.key("e", "a.par", "text", in_directory=False),
        plain.key("e", "a.par", "text", in_directory=True),
        plain.key("f", "a.par", "text", in_directory=False),
        plain.key("e", "b.par", "text", in_directory=False),
        plain.key("e", "a.par", "texts", in_directory=False),
        Question({}, None, "page").key("e", "a.par", "text", in_directory=False),
        Question({}, "one", "data").key("e", "a.par", "text", in_directory=False),
        Question({"a.b": "1"}, None, "data").key("e", "a.par", "text", in_directory=False),
        Question({"a.b": "2"}, None, "data").key("e", "a.par", "text", in_directory=False),
    ]
    assert len(set(asked)) == len(asked)
    swapped = [Question(dict(o), None, "data") for o in ([("a", "1"), ("b", "2")],) * 2]
    assert len({q.key("e", "p", "t", in_directory=False) for q in swapped}) == 1


def test_what_a_study_imports_is_listed_with_the_prelude_and_what_that_imports(
    tmp_path: Path,
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "one.par").write_text('use "two.par"\nuse catalog.devices.h100_sxm\n')
    (tmp_path / "lib" / "two.par").write_text("layout { tp = 2 }\n")
    spec = tmp_path / "a.par"
    spec.write_text('use "lib/one.par"\nuse catalog.precisions.bf16\n')
    session = parcost.Session()
    environment = Environment()
    (scenario,) = session.load(spec)
    found = fingerprints.Imports(session.loader, environment.packages).find(
        scenario.module, str(spec)
    )
    assert found is not None
    places = {(one.package, one.place) for one in found}
    assert {
        ("", "lib/one.par"),
        ("", "lib/two.par"),
        ("parcost_specs", "defaults.par"),
        ("parcost_specs", "devices/h100_sxm.par"),
        ("parcost_specs", "precisions/bf16.par"),
    } <= places
    for one in found:
        place = fingerprints.location(one, str(spec), environment.packages)
        assert place is not None
        assert fingerprints.digest(place.read_text(encoding="utf-8")) == one.digest
