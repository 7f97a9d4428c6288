"""The page on calibration has every constant with its bounds, and every option."""

from __future__ import annotations

from pathlib import Path

from parcost.plugins.discovery import load
from parcost_measured.calibration.command import command
from parcost_measured.calibration.constants import kinds

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "calibration.md").read_text(encoding="utf-8")


def test_every_option_is_documented() -> None:
    options = {name for one in command.params for name in one.opts if name.startswith("--")}
    general = {"--plugin", "--without"}
    assert [name for name in options - general if name not in PAGE] == []


def test_every_constant_is_listed_with_its_bounds() -> None:
    for kind in kinds(load()):
        unit = f" {kind.unit}" if kind.unit else ""
        lines = [line for line in PAGE.splitlines() if line.startswith(f"| `{kind.attribute}` |")]
        assert any(f"| {kind.low:g} to {kind.high:g}{unit} |" in line for line in lines), kind
        assert all(f"| {', '.join(kind.reads)} |" in line for line in lines), kind


def test_every_constant_is_an_attribute_of_its_block() -> None:
    from attrs import fields

    from parcost_plugins.vocabulary import Device, Framework, HeadRate, Level

    schemas = {"device": Device, "framework": Framework, "level": Level, "head_rate": HeadRate}
    for kind in kinds(load()):
        assert hasattr(fields(schemas[kind.block]), kind.attribute), kind
        assert kind.low < kind.high
        assert kind.why


def test_no_constant_of_a_device_or_framework_is_fitted() -> None:
    """Each has a data sheet, a measurement or a law as its source."""
    catalogue = ROOT / "specs" / "parcost_specs"
    files = [*catalogue.glob("devices/*.par"), *catalogue.glob("frameworks/*.par")]
    assert len(files) > 30
    assert [one.name for one in files if "@fitted" in one.read_text(encoding="utf-8")] == []


def test_a_table_of_a_catalogue_that_is_malformed_is_a_diagnostic(tmp_path: Path) -> None:
    from types import SimpleNamespace
    from typing import Any

    import click
    import pytest

    (tmp_path / "calibration").mkdir()
    table = tmp_path / "calibration" / "constants.jsonl"
    good = '{"block": "device", "attribute": "sustained", "unit": "%", "low": 70, "high": 60, '
    catalogues = {"site": (None, SimpleNamespace(root=tmp_path))}
    plugins: Any = SimpleNamespace(offers=lambda _: catalogues)
    for text, said in (
        ("{", "constants.jsonl:1"),
        ('{"a": 1}', "unexpected keyword"),
        (f'{good}"reads": [], "why": ""}}', "bounds must be above 0"),
    ):
        table.write_text(text + "\n", encoding="utf-8")
        with pytest.raises(click.ClickException, match=said):
            kinds(plugins)
