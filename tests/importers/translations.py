"""What importers return, as plain values that a test can compare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from parcost import ImportedBlock, Importer, ImportProblem, Translation


def settings(translation: Translation) -> Mapping[str, str]:
    """Return the values of all settings, by the kinds of their blocks and their names."""
    assert not translation.problems, [one.message for one in translation.problems]
    return dict(_settings(translation.blocks, ""))


def _settings(blocks: Iterable[ImportedBlock], prefix: str) -> Iterable[tuple[str, str]]:
    for block in blocks:
        name = f"{prefix}{block.kind}" if block.kind != "level" else f"{prefix}{block.label}"
        yield from ((f"{name}.{one.name}", one.value) for one in block.settings)
        yield from _settings(block.blocks, f"{name}.")


def assumptions(translation: Translation) -> Mapping[str, str]:
    """Return the settings that the file does not state, with why they are what they are."""
    return {
        f"{block.kind}.{one.name}": one.assumption
        for block in translation.blocks
        for one in block.settings
        if one.assumption
    }


def uses(translation: Translation) -> list[str]:
    """Return the entries of the catalogue that a translation imports."""
    return [one.value.removeprefix("catalog.") for one in translation.uses]


def names(keys: Iterable[object]) -> set[str]:
    """Return the names of keys."""
    return {one.name for one in keys}  # type: ignore[attr-defined]


def problems(importer: Importer, text: str, name: str = "file") -> list[tuple[str, str]]:
    """Return the errors of a file: each with the characters that it is about."""
    found: Iterable[ImportProblem] = importer.translate(name, text).problems
    return [(one.message, text[one.start : one.end]) for one in found]
