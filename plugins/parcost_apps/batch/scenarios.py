"""Specs one after another, as live objects, for commands that inspect a study."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import evolve

from parcost.binding.modules import label_of
from parcost.contract.importers import PLAIN, ImportOptions
from parcost.language.diagnostics import did_you_mean
from parcost.language.errors import SpecError
from parcost.system.files import failure
from parcost_apps.batch.files import Spec, specs
from parcost_formats.rendering.rejection import Rejection, attempt

if TYPE_CHECKING:
    from parcost.engine.scenario import Scenario
    from parcost.engine.session import Session
    from parcost.report.report import Report


def evaluate(
    named: Iterable[str],
    session: Session,
    *,
    overrides: Mapping[str, Any] | None = None,
    study: str | None = None,
    reading: ImportOptions = PLAIN,
) -> Iterator[Report | Rejection]:
    """Yield the reports of every spec, in order, and a rejection for each spec without a report.

    *study* selects one study of files that have several. Files of definitions that a directory
    holds are skipped: other specs import them.
    """
    for spec, scenario in scenarios(
        named, session, overrides=overrides, study=study, reading=reading
    ):
        if isinstance(scenario, Rejection):
            yield scenario
        elif not is_skipped(scenario, spec):
            yield attempt(scenario.path, scenario.evaluate)


def scenarios(
    named: Iterable[str],
    session: Session,
    *,
    overrides: Mapping[str, Any] | None = None,
    study: str | None = None,
    reading: ImportOptions = PLAIN,
) -> Iterator[tuple[Spec, Scenario | Rejection]]:
    """Yield the scenarios of every spec, in order, and a rejection for each spec without one."""
    for spec in specs(named, reading):
        if isinstance(spec, Rejection):
            yield Spec(spec.path), spec
            continue
        for found in spec_scenarios(spec, session, overrides=overrides, study=study):
            yield spec, found


def spec_scenarios(
    spec: Spec,
    session: Session,
    *,
    overrides: Mapping[str, Any] | None = None,
    study: str | None = None,
) -> Iterator[Scenario | Rejection]:
    """Yield the scenarios of one file, or its rejection."""
    load = partial(session.load, spec.path, overrides, keep=False, reading=spec.reading)
    found = attempt(spec.path, lambda: _find_studies(study, load(), spec.path))
    yield from [found] if isinstance(found, Rejection) else found


def only_study(
    session: Session,
    path: str,
    study: str | None,
    overrides: Mapping[str, Any],
    reading: ImportOptions,
) -> Scenario:
    """Return the study called *study* of the file at *path*, or its only one.

    Raises:
        SpecError: The file cannot be read, or has no such study, or several.
    """
    found = _find_studies(study, session.load(path, overrides, reading=reading), path)
    if len(found) == 1:
        return found[0]
    message = f"`{path}` has {len(found)} studies, but this command needs exactly one"
    help = "choose one with --study: " + ", ".join(scenario.name for scenario in found)
    raise failure("unknown-study", message, path, help)


def _find_studies(study: str | None, loaded: Sequence[Scenario], path: str) -> Sequence[Scenario]:
    """Return the scenarios called *study*, or all.

    Raises:
        SpecError: No scenario has the name.
    """
    found = [scenario for scenario in loaded if study in (None, scenario.name)]
    if not found:
        known = [scenario.name for scenario in loaded]
        listed = "studies: " + ", ".join(f"`{name}`" for name in known)
        message = f"`{path}` has no study called `{study}`"
        raise failure("unknown-study", message, path, did_you_mean(str(study), known) or listed)
    return found


def is_skipped(scenario: Scenario, spec: Spec) -> bool:
    """Return whether the file of *scenario* holds only definitions and was found in a directory."""
    return spec.in_directory and only_defines(scenario)


def only_defines(scenario: Scenario) -> bool:
    """Return whether a file holds definitions and no study.

    Definitions are labelled blocks without calculations, blocks that a prelude has, and named
    values in a file without other blocks.
    """

    module, types = scenario.module, scenario.plugins.blocks
    if module.studies or module.expects:
        return False
    if not module.blocks and (module.merged or not module.lets):
        return False
    given = {block.kind.text for prelude in scenario.loader.preludes() for block in prelude.blocks}
    for block in module.blocks:
        kind = block.kind.text
        label = types[kind].label if kind in types else "none"
        if not (kind in given or label == "required" or (label == "optional" and label_of(block))):
            return False
    try:
        plain = evolve(scenario, overrides={})  # which are meant for studies
        return not any(study.contributions("calculations") for study in plain.studies())
    except SpecError:
        return False  # the evaluation reports the errors
