"""One file, parsed and bound as far as possible: the input of every answer to an editor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from attrs import Factory, define

from parcost.binding.binder import Binder
from parcost.binding.modules import Module, modules_behind
from parcost.engine.scenario import Scenario
from parcost.engine.session import Session, scenarios_of
from parcost.language import syntax as s
from parcost.language.diagnostics import Diagnostic, Severity, problem
from parcost.language.errors import SpecError
from parcost.language.text import Source, Span
from parcost_apps.check.problems import is_error, key, problems_of_binding
from parcost_formats.rendering.rejection import Rejection, attempt
from parcost_formats.rendering.resolved_spec import AttributeText, attributes

MOST_STUDIES = 200  # of a file that are bound at each change: about a second


@define(eq=False)
class BoundStudy:
    """A study of a file, and the binder with its names, even if it has errors."""

    scenario: Scenario
    binder: Binder
    block: s.Block | None
    has_errors: bool
    _values: Mapping[str, AttributeText] | None = None

    @property
    def values(self) -> Mapping[str, AttributeText]:
        """The values of all attributes by path, as text of a spec; empty if the study has
        errors.
        """
        if self._values is None:
            made = attempt("", lambda: attributes(self.scenario.first))
            self._values = {} if self.has_errors or isinstance(made, Rejection) else made
        return self._values


@define(eq=False)
class Analysis:
    """The syntax tree and the studies of a file, without rules and evaluation.

    *imports* are the import paths of the file and of its imports, including missing files.
    """

    path: str
    session: Session
    source: Source
    tree: s.Block
    module: Module | None = None
    studies: Sequence[BoundStudy] = ()
    diagnostics: Sequence[Diagnostic] = Factory(list)
    imports: frozenset[str] = frozenset()

    @property
    def is_good(self) -> bool:
        """Whether every study of the file can be bound."""
        return bool(self.studies) and not any(study.has_errors for study in self.studies)

    def study_at(self, offset: int) -> BoundStudy | None:
        """Return the study whose block contains *offset*, or else the first study."""
        for study in self.studies:
            if study.block is not None and contains(study.block.span, offset):
                return study
        return self.studies[0] if self.studies else None


def analyze(session: Session, path: str) -> Analysis:
    """Parse and bind the file at *path*; never raises."""
    loader = session.loader
    loaded = attempt(path, partial(loader.file, Path(path), path, keep=False))
    if isinstance(loaded, Rejection):
        source = Source(path, "")
        nowhere = Span(source, 0, 0)
        nothing = s.Block(s.Name("", nowhere), (), (), (), nowhere)
        return Analysis(path, session, source, nothing, diagnostics=loaded.diagnostics)
    tree = loaded.tree
    assert tree is not None
    found = attempt(path, partial(scenarios_of, session, loaded, {}))
    diagnostics: dict[tuple[object, ...], Diagnostic] = {}
    studies = []
    if isinstance(found, Rejection):
        diagnostics |= {key(d): d for d in found.diagnostics}
        scenarios = [_scenario(session, loaded)]
    else:
        scenarios = list(found)
    first_left = scenarios[MOST_STUDIES].study if len(scenarios) > MOST_STUDIES else None
    if first_left is not None:
        diagnostics |= {("editor-studies",): _limit(first_left, len(scenarios))}
    for scenario in scenarios[:MOST_STUDIES]:
        has_errors = isinstance(found, Rejection)
        if not has_errors:
            of_study = problems_of_binding(path, scenario)
            diagnostics |= {key(d): d for d in of_study if key(d) not in diagnostics}
            has_errors = any(map(is_error, of_study))
        bound = attempt(path, partial(_bind, scenario, has_errors=has_errors))
        if not isinstance(bound, Rejection):
            studies.append(bound)
    files = modules_behind(loaded, lambda one: [*one.merged, *one.aliases.values()])
    if any(d.id == "circular-import" for module in files for d in module.diagnostics):
        loader.forget_files()  # what such files know of one another depends on which came first
    imports = frozenset(place for module in files for place in _imports(module))
    found_here = [*diagnostics.values()]
    return Analysis(path, session, loaded.source, tree, loaded, studies, found_here, imports)


def _limit(first: s.Block, count: int) -> Diagnostic:
    """Return the warning that studies from *first* on are skipped: the file has too many."""
    return problem(
        "editor-studies",
        f"the editor shows the first {MOST_STUDIES} of {count:,} studies",
        first.kind.span,
        "not shown from here on",
        help="`parcost check` checks all of them",
        severity=Severity.WARNING,
    )


def file_imports(tree: s.Block) -> Iterator[s.Text]:
    """Yield the paths that a file imports."""
    for item in tree.items:
        if isinstance(item, s.Statement) and len(item.words) > 1:
            first, second, *_ = item.words
            if isinstance(first, s.Path) and first.text == "use" and isinstance(second, s.Text):
                yield second


def contains(span: Span, offset: int) -> bool:
    """Return whether *offset* lies in *span* or at its end."""
    return span.start <= offset <= span.end


def _imports(module: Module) -> Iterator[str]:
    """Yield the absolute paths of the files that a module imports, with symbolic links resolved."""
    if module.path is None or module.tree is None:
        return
    for target in file_imports(module.tree):
        with suppress(OSError, ValueError, RuntimeError):  # no path at all
            yield str((module.path.parent / target.value).resolve())


def _scenario(session: Session, module: Module) -> Scenario:
    """Return the whole file as one study, if its studies cannot be listed."""
    name = Path(module.source.name)
    return Scenario(name.stem, str(name), module, None, session.plugins, session.loader)


def _bind(scenario: Scenario, *, has_errors: bool) -> BoundStudy:
    if not has_errors:
        with suppress(SpecError):  # such as a file that only defines
            return BoundStudy(scenario, scenario.binder, scenario.study, has_errors=False)
    binder = Binder(
        types=scenario.plugins.blocks,
        registries=lambda registry: list(scenario.plugins.offers(registry)),
        loader=scenario.loader,
        module=scenario.module,
        study=scenario.study,
        overrides={},
    )
    attempt(scenario.path, binder.bind)  # as far as it goes
    return BoundStudy(scenario, binder, scenario.study, has_errors=True)
