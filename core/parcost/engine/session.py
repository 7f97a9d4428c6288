"""Load a file and evaluate its studies.

scenarios = parcost.load("specs/runs/llama3_70b_64_h100.par")
report = scenarios[0].evaluate()
report.result.figure("mfu"), report.result.outcome.ledger

sweep = scenarios[0].replace({"training.micro_batch": [1, 2, 4]}).evaluate()
sweep.rows()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from attrs import evolve, field

from parcost.binding.defaults import setting
from parcost.binding.modules import Loader, Module, label_of
from parcost.binding.requirements import check
from parcost.binding.sources import SUFFIX
from parcost.contract.calls import CallError, call
from parcost.contract.importers import PLAIN, ForeignSource, ImportOptions
from parcost.engine.scenario import Scenario
from parcost.language.diagnostics import Diagnostic, Severity, problem
from parcost.language.errors import ParcostError, PluginError, SpecError
from parcost.plugins.discovery import Plugins
from parcost.plugins.discovery import load as load_plugins
from parcost.plugins.rulebooks import rule_tables
from parcost.records import frozen
from parcost.report.report import Report
from parcost.system.files import failure, split_recipe


@frozen(eq=False, slots=False)
class Session:
    """Plugins and the files read with them; files are read again only when they change.

    One session serves a whole batch: imported files are parsed once.
    """

    plugins: Plugins = field(factory=load_plugins)
    loader: Loader = field(init=False)

    def __attrs_post_init__(self) -> None:
        catalogues = {n: c for n, (_, c) in self.plugins.offers("catalogues").items()}
        rules = partial(rule_tables, self.plugins)
        read, tool_of = (partial(self._call_reader, name) for name in ("read", "tool_of"))
        loader = Loader(catalogues, self.plugins.absences, rules, read, tool_of)
        object.__setattr__(self, "loader", loader)

    def _call_reader(self, method: str, file: Any, *arguments: Any) -> Any:
        """Call a method of the plugin that reads files of other tools, with *file* or its name."""
        for plugin, reader in self.plugins.offers("file_readers").values():
            try:
                function = getattr(reader, method)
                return call(
                    function, file, *arguments, self, module=plugin.module, passing=ParcostError
                )
            except CallError as error:
                message = f"plugin {plugin} failed in `file_readers`: {error}"
                raise PluginError(message) from error
        name = file if isinstance(file, str) else file.name
        message = f"`{name}` is not a spec, and no plugin reads other files"
        raise failure("not-a-spec", message, name)

    def load(
        self,
        path: str | Path,
        overrides: Mapping[str, Any] | None = None,
        *,
        keep: bool = True,
        reading: ImportOptions = PLAIN,
    ) -> tuple[Scenario, ...]:
        """Return the studies of the file at *path*; a file without ``study`` blocks is one study.

        Without *keep*, the session caches only the imports of the file. *reading* holds the options
        for a file of another tool.

        Raises:
            SpecError: The file cannot be read, or has errors that concern every study.
        """
        name, recipe = split_recipe(str(path))
        reading = evolve(reading, recipe=recipe) if recipe else reading
        if reading.tool or not name.endswith(SUFFIX):
            given = tuple((path, str(value)) for path, value in (overrides or {}).items())
            reading = evolve(reading, settings=given)
        module = self.loader.file(Path(name), name, keep=keep, reading=reading)
        return scenarios_of(self, module, overrides or {})

    def load_text(
        self,
        text: str,
        name: str = "<text>",
        overrides: Mapping[str, Any] | None = None,
    ) -> tuple[Scenario, ...]:
        """Return the studies in *text*."""
        return scenarios_of(self, self.loader.text(text, name), overrides or {})


def load(
    path: str | Path,
    *,
    plugins: Plugins | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> tuple[Scenario, ...]:
    """Return the studies of the file at *path*; see :meth:`Session.load`."""
    return _session(plugins).load(path, overrides)


def load_text(
    text: str,
    name: str = "<text>",
    *,
    plugins: Plugins | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> tuple[Scenario, ...]:
    """Return the studies in *text*; relative imports start at the path *name*."""
    return _session(plugins).load_text(text, name, overrides)


def evaluate(path: str | Path, *, plugins: Plugins | None = None) -> Sequence[Report]:
    """Return the report of every study of the file at *path*.

    Raises:
        SpecError: A study cannot be bound; it carries the diagnostics of all such studies.
    """
    reports: list[Report] = []
    problems: list[Diagnostic] = []
    for scenario in load(path, plugins=plugins):
        try:
            reports.append(scenario.evaluate())
        except SpecError as error:
            problems += error.diagnostics
    if problems:
        raise SpecError(dict.fromkeys(problems))
    return reports


def scenarios_of(
    session: Session, module: Module, values: Mapping[str, Any]
) -> tuple[Scenario, ...]:
    """Return the studies of a *module*, with attributes set from outside.

    Raises:
        SpecError: The module has errors that concern every study.
    """
    overrides = {name: setting(name, value) for name, value in values.items()}
    path = module.source.name
    stem = Path(path).stem
    errors = [d for d in module.diagnostics if d.severity is Severity.ERROR]
    foreign = [one.source for one in module.closure() if isinstance(one.source, ForeignSource)]
    if foreign and (questions := foreign[0].questions(module, overrides)):
        asking = SpecError([*errors, *questions])
        raise foreign[0].explain(asking, module, overrides, session.plugins)
    if not module.studies:
        if errors and not module.blocks:
            raise SpecError(errors)
        _check_requirements(module, session.plugins)
        return (Scenario(stem, path, module, None, session.plugins, session.loader, overrides),)
    first: dict[str, Any] = {}
    problems: list[Diagnostic] = []
    for study in module.studies:
        label = label_of(study)
        if not label:
            message, hint = "`study` needs a label", "write `study NAME { ... }`"
            problems.append(problem("missing-label", message, study.kind.span, help=hint))
        elif label in first:
            also = [(first[label].kind.span, "first here")]
            message = f"`study {label}` is given twice"
            problems.append(problem("duplicate", message, study.kind.span, also=also))
        first.setdefault(label, study)
    if problems:
        raise SpecError([*errors, *problems])
    _check_requirements(module, session.plugins)
    return tuple(
        Scenario(label, path, module, study, session.plugins, session.loader, overrides)
        for label, study in first.items()
    )


_installed = cache(load_plugins)


def _session(plugins: Plugins | None) -> Session:
    """Return the session of *plugins*, cached as long as the plugins exist."""
    plugins = plugins or _installed()
    if "session" not in plugins.known:
        plugins.known["session"] = Session(plugins)
    session: Session = plugins.known["session"]
    return session


def _check_requirements(module: Module, plugins: Plugins) -> None:
    if not module.requires:
        return

    problems = [d for statement in module.requires for d in check(statement, plugins)]
    if problems:
        raise SpecError(problems)
