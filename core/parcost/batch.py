"""Many specs, one after another: what can be evaluated is, and what cannot is kept.

A batch never stops at a bad file. Each file gives its reports, or one
:class:`Rejected` that says why it has none; both are what exporters write.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import frozen

from parcost.diagnostics import Diagnostic, ParcostError, SpecError, did_you_mean

if TYPE_CHECKING:
    from parcost.api import Session
    from parcost.report import Report
    from parcost.scenario import Scenario

T = TypeVar("T")

BAD_INPUT = 2
FAULT = 3


@frozen
class Spec:
    """A file to read; *in_directory* says that it was not named itself."""

    path: str
    in_directory: bool = False


@frozen(kw_only=True)
class Rejected:
    """A file, or a study of one, without a report; *diagnostics* say why."""

    path: str
    diagnostics: Sequence[Diagnostic]
    exit_code: int = BAD_INPUT


def specs(named: Iterable[str]) -> Iterator[Spec | Rejected]:
    """Yield the spec files that *named* files and directories stand for.

    A directory stands for the ``.par`` files in it and below, in sorted order; hidden
    directories are left out.
    """
    for name in named:
        path = Path(name)
        try:
            path.exists()
        except OSError as error:
            yield _rejected(name, "unreadable-file", f"`{name}` cannot be read: {error.strerror}")
            continue
        if path.is_dir():
            found = _below(path)
            yield from (_spec(Spec(inner, in_directory=True)) for inner in found)
            if not found:
                message = f"there is no `.par` file in `{name}`"
                yield _rejected(name, "empty-directory", message)
        elif path.suffix != ".par" and path.exists():
            message = f"`{name}` is no spec: its name does not end in `.par`"
            yield _rejected(name, "not-a-spec", message)
        else:
            yield _spec(Spec(name))


def evaluate(
    named: Iterable[str],
    session: Session,
    *,
    overrides: Mapping[str, Any] | None = None,
    study: str | None = None,
) -> Iterator[Report | Rejected]:
    """Yield the reports of every spec, in order, and what gave none.

    *study* picks one study of files that have several. Files of definitions that a
    directory holds are passed over: other specs import them.
    """
    for spec, scenario in scenarios(named, session, overrides=overrides, study=study):
        if isinstance(scenario, Rejected):
            yield scenario
        elif not (spec.in_directory and only_defines(scenario)):
            yield attempt(spec.path, scenario.evaluate)


def scenarios(
    named: Iterable[str],
    session: Session,
    *,
    overrides: Mapping[str, Any] | None = None,
    study: str | None = None,
) -> Iterator[tuple[Spec, Scenario | Rejected]]:
    """Yield the scenarios of every spec, in order, and what gave none."""
    for spec in specs(named):
        if isinstance(spec, Rejected):
            yield Spec(spec.path), spec
            continue
        loaded = attempt(spec.path, partial(session.load, spec.path, overrides))
        if isinstance(loaded, Rejected):
            yield spec, loaded
            continue
        chosen = [s for s in loaded if study in (None, s.name)]
        if not chosen:
            known = [s.name for s in loaded]
            help = did_you_mean(str(study), known) or "it has " + ", ".join(known)
            message = f"`{spec.path}` has no study called `{study}`"
            yield spec, _rejected(spec.path, "unknown-study", message, help)
        yield from ((spec, scenario) for scenario in chosen)


def only_defines(scenario: Scenario) -> bool:
    """Say whether a file holds definitions and no study.

    Definitions are blocks that need a label and calculate nothing, and those that a prelude
    gives every study.
    """
    module, types = scenario.module, scenario.plugins.blocks
    if module.studies or module.expects or not module.blocks:
        return False
    given = {block.kind.text for prelude in scenario.loader.preludes() for block in prelude.blocks}
    kinds = {block.kind.text for block in module.blocks}
    if not all(k in given or (k in types and types[k].label == "required") for k in kinds):
        return False
    try:
        return not any(study.contributions("calculations") for study in scenario.studies())
    except SpecError:
        return False  # evaluating it says what is wrong


def attempt(path: str, do: Callable[[], T]) -> T | Rejected:
    """Return ``do()``, or why it could not be done: no spec may end a batch."""
    try:
        return do()
    except SpecError as error:
        return Rejected(path=path, diagnostics=error.diagnostics)
    except ParcostError as error:
        found = Diagnostic("plugin-failed", str(error), place=path)
        return Rejected(path=path, diagnostics=[found], exit_code=FAULT)
    except Exception as error:  # noqa: BLE001  a fault of ours must not lose other results
        return Rejected(path=path, diagnostics=[internal(error, path)], exit_code=FAULT)


def internal(error: Exception, place: str = "") -> Diagnostic:
    """Return the diagnostic of a fault in parcost itself.

    With ``PARCOST_DEBUG`` set the traceback is printed as well.
    """
    if os.environ.get("PARCOST_DEBUG"):
        traceback.print_exception(error)
    where = traceback.extract_tb(error.__traceback__)[-1:]
    at = f" ({Path(where[0].filename).name}:{where[0].lineno})" if where else ""
    said = " ".join(str(error).split())
    message = f"internal error: {type(error).__name__}{': ' + said if said else ''}{at}"
    help = "this is a defect of parcost; PARCOST_DEBUG=1 prints where it happened"
    return Diagnostic("internal-error", message, place=place, help=help)


def _spec(spec: Spec) -> Spec | Rejected:
    """Return *spec*, unless reading it might never end."""
    path = Path(spec.path)
    if path.exists() and not path.is_file():
        message = f"`{spec.path}` is no spec: it is no regular file"
        return _rejected(spec.path, "not-a-spec", message)
    return spec


def _below(folder: Path) -> list[str]:
    found = []
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [str(Path(parent, name)) for name in files if name.endswith(".par")]
    return sorted(found)


def _rejected(path: str, id: str, message: str, help: str | None = None) -> Rejected:
    return Rejected(path=path, diagnostics=[Diagnostic(id, message, place=path, help=help)])
