"""Specs one after another, as live objects, for commands that inspect a study."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import evolve

from parcost.batch.files import Spec, specs
from parcost.batch.rejections import attempt, reject
from parcost.binding.modules import label_of
from parcost.contract.importers import PLAIN, ImportOptions
from parcost.language.diagnostics import Diagnostic, did_you_mean
from parcost.language.errors import SpecError
from parcost.report.rejection import Rejection

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
    """Yield the reports of every spec, in order; a rejection for each without one.

    *study* selects one study of files that have several. Files of definitions that a directory
    holds are skipped: other specs import them.
    """
    for spec, scenario in scenarios(
        named, session, overrides=overrides, study=study, reading=reading
    ):
        if isinstance(scenario, Rejection):
            yield scenario
        elif not passed_over(scenario, spec):
            yield attempt(scenario.path, scenario.evaluate)


def scenarios(
    named: Iterable[str],
    session: Session,
    *,
    overrides: Mapping[str, Any] | None = None,
    study: str | None = None,
    reading: ImportOptions = PLAIN,
) -> Iterator[tuple[Spec, Scenario | Rejection]]:
    """Yield the scenarios of every spec, in order; a rejection for each without one."""
    for spec in specs(named, reading):
        if isinstance(spec, Rejection):
            yield Spec(spec.path), spec
            continue
        for found in of_spec(spec, session, overrides=overrides, study=study):
            yield spec, found


def of_spec(
    spec: Spec,
    session: Session,
    *,
    overrides: Mapping[str, Any] | None = None,
    study: str | None = None,
) -> Iterator[Scenario | Rejection]:
    """Yield the scenarios of one file, or its rejection."""
    loaded = attempt(
        spec.path, partial(session.load, spec.path, overrides, keep=False, reading=spec.reading)
    )
    if isinstance(loaded, Rejection):
        yield loaded
        return
    chosen = [s for s in loaded if study in (None, s.name)]
    if not chosen:
        known = [s.name for s in loaded]
        help = did_you_mean(str(study), known) or "studies: " + ", ".join(
            f"`{name}`" for name in known
        )
        message = f"`{spec.path}` has no study called `{study}`"
        yield reject(spec.path, "unknown-study", message, help)
    yield from chosen


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
    loaded = session.load(path, overrides, reading=reading)
    found = [scenario for scenario in loaded if study in (None, scenario.name)]
    if len(found) == 1:
        return found[0]
    known = [scenario.name for scenario in loaded]
    if study is not None:
        message = f"`{path}` has no study called `{study}`"
        help = did_you_mean(study, known) or "it has " + ", ".join(known)
    else:
        message = f"`{path}` has {len(known)} studies, and this command needs one"
        help = "pick one with --study: " + ", ".join(known)
    raise SpecError([Diagnostic("unknown-study", message, place=path, help=help)])


def passed_over(scenario: Scenario, spec: Spec) -> bool:
    """Return whether the file of *scenario* holds only definitions and was found in a directory."""
    return spec.in_directory and only_defines(scenario)


def only_defines(scenario: Scenario) -> bool:
    """Return whether a file holds definitions and no study.

    Definitions are labelled blocks that calculate nothing, and blocks that a prelude gives every
    study. So are named values in a file without other blocks or merged files.
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
