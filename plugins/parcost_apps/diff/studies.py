"""The two sides of a comparison, and the pairing of their studies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from attrs import evolve

from parcost.binding.modules import Module
from parcost.binding.sources import title_of
from parcost.contract.importers import PLAIN, ImportOptions
from parcost.engine.scenario import Scenario
from parcost.engine.session import Session
from parcost.records import record
from parcost.report.report import Report
from parcost_apps.batch.scenarios import is_skipped, scenarios
from parcost_apps.diff.changes import StudyChange, compare
from parcost_formats.imports.questions import spec_of, unset_attributes
from parcost_formats.rendering.rejection import Rejection, attempt

Key = tuple[str, str]  # the file of a study below the side's paths, and its name


@record(kw_only=True, eq=False)
class Side:
    """One version of studies: *paths* below *folder*, with attributes that are set.

    *title* is the name in messages. *completing* are values for attributes that a file of another
    tool lacks; they are set only if needed.
    """

    title: str
    paths: Sequence[str]
    folder: Path | None = None
    overrides: Mapping[str, Any] = {}
    completing: Mapping[str, Any] = {}
    reading: ImportOptions = PLAIN


@record(kw_only=True, eq=False)
class Difference:
    """The differences between two sides.

    *changes* are studies of both sides, and *same* the studies with equal texts. *added* and
    *removed* are studies of one side. *rejections* are files that could not be evaluated, with the
    title of their side.
    """

    before: str
    after: str
    changes: Sequence[StudyChange]
    same: Sequence[str]
    added: Sequence[str]
    removed: Sequence[str]
    rejections: Sequence[tuple[str, Rejection]]


def differences(
    before: Side, after: Side, session: Session, study: str | None = None
) -> Difference:
    """Return the differences between the studies of two sides.

    Two files are compared study by study, by name. If each has a single study, the names do not
    matter. Studies whose texts are the same are not evaluated.
    """
    rejections: list[tuple[str, Rejection]] = []
    first = dict(_scenarios(before, session, study, rejections))
    second = dict(_scenarios(after, session, study, rejections))
    if len(first) == len(second) == 1:
        first = dict(zip(second, first.values(), strict=True))
    same: list[str] = []
    changes: list[StudyChange] = []
    for key, scenario in second.items():
        if key not in first:
            continue
        if _texts(first[key]) == _texts(scenario):
            same.append(_title(key))
            continue
        one = _report(before, first[key], rejections)
        other = _report(after, scenario, rejections)
        if one is not None and other is not None:
            changes += compare(_title(key), one, other)
    new = [key for key in second if key not in first]
    return Difference(
        before=before.title,
        after=after.title,
        changes=changes,
        same=same,
        added=[_title(key) for key in new if _report(after, second[key], rejections)],
        removed=[_title(key) for key in first if key not in second],
        rejections=[
            (title, evolve(one, path=title_of(Path(one.path)) or one.path))
            for title, one in rejections
        ],
    )


def _scenarios(
    side: Side, session: Session, study: str | None, rejections: list[tuple[str, Rejection]]
) -> Iterator[tuple[Key, Scenario]]:
    """Yield the studies of a side by file and name; add files without one to *rejections*."""
    for path in side.paths:
        place = str(side.folder / path) if side.folder else path
        load = partial(scenarios, [place], session, study=study, reading=side.reading)
        values = {**side.overrides, **_completion(side, load, session)}
        found = load(overrides=values)
        for spec, scenario in found:
            if isinstance(scenario, Rejection):
                rejections.append((side.title, scenario))
            elif not is_skipped(scenario, spec):
                own = scenario.module.path if side.folder else None  # its path has a title there
                yield (_below(str(own or scenario.path), place), scenario.name), scenario


def _completion(
    side: Side, load: Callable[..., Iterator[tuple[Any, Any]]], session: Session
) -> Mapping[str, Any]:
    """Return the values of *side.completing* that its files need to be complete jobs."""
    if not side.completing:
        return {}
    loaded = [one for _, one in load(overrides=side.completing) if isinstance(one, Scenario)]
    names = [unset_attributes(one.module, side.completing, session.plugins) for one in loaded]
    return {
        name: value for name, value in side.completing.items() if any(name in one for one in names)
    }


def _report(
    side: Side, scenario: Scenario, rejections: list[tuple[str, Rejection]]
) -> Report | None:
    """Return the report of a study, or None after adding its rejection to *rejections*."""
    found = attempt(scenario.path, scenario.evaluate)
    if isinstance(found, Rejection):
        rejections.append((side.title, found))
        return None
    return found


def _texts(scenario: Scenario) -> tuple[object, ...]:
    """Return all inputs of an evaluation: the texts of specs, and the overrides."""
    modules: dict[int, Module] = {}
    left = [scenario.module]
    while left:
        module = left.pop()
        if module.path is not None and id(module) not in modules:
            modules[id(module)] = module
            left += [*module.merged, *module.aliases.values()]
            left += [other for other, _, _ in module.imported_blocks]
    values = {name: node.value for name, node in scenario.overrides.items()}
    return scenario.name, [spec_of(module.source) for module in modules.values()], values


def _below(path: str, root: str) -> str:
    """Return the path of a file below the named folder *root*, "" for *root* itself."""
    below = PurePosixPath(Path(path).as_posix())
    top = PurePosixPath(Path(root).as_posix())
    return str(below.relative_to(top)) if below != top and below.is_relative_to(top) else ""


def _title(key: Key) -> str:
    """Return the title of a study: its file, and its name if the name differs."""
    file, name = key
    stem = PurePosixPath(file).with_suffix("") if file else None
    return name if stem is None else str(stem) if stem.name == name else f"{stem}:{name}"
