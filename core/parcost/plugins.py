"""Finding plugins, and asking them what they have.

There is no global registry: :func:`load` returns a :class:`Plugins` that is passed
along. Every answer is stamped here with the plugin and the distribution that it came
from, and checked against the contract, so that what a report says of its sources is
known and not claimed. Plugins are asked in order of name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, partial
from importlib.metadata import Distribution, entry_points
from pathlib import Path
from typing import Any

import pluggy
from attrs import evolve, field, frozen

from parcost import hookspecs, terms
from parcost.asked import HOOKS, answered
from parcost.diagnostics import (
    ParcostError,
    PluginError,
    SpecError,
    raised,
    reraise_interrupt,
)
from parcost.numeric import where
from parcost.outcome import Fault
from parcost.picked import module_of, name_of
from parcost.ruling import unsaid
from parcost.schema import BlockType, block_type
from parcost.sound import Counts, sound, unvalued

GROUP = "parcost"

# What each hook may answer with; None is anything with a name.
_ANSWERS: Mapping[str, tuple[type, ...] | None] = {
    "blocks": (type,),
    "catalogues": (terms.Catalogue,),
    "groups": (terms.Group,),
    "pipelines": (terms.Pipeline,),
    "checks": (terms.Check,),
    "verdicts": (terms.Check,),
    "terms": (terms.Work, terms.Edge, terms.Once),
    "memory": (terms.Memory,),
    "figures": (terms.Figure,),
    "sections": (terms.Section,),
    "axes": (terms.Axis,),
    "objectives": (terms.Objective,),
    "goals": (terms.Goal,),
    "details": (terms.Figure,),
    "calculations": (terms.Figure, terms.Section, terms.Check),
    "replays": (terms.Replay,),
    "views": (terms.Section,),
}
_NAMED = ("collectives", "schedules", "kernels", "exporters")
_UNIQUE = ("groups", "terms", "memory", "figures")
_NUMBERED = ("terms", "memory")
_RULED = ("checks", "verdicts", "calculations")
_VALUED = ("figures", "details", "calculations")
_WORDED = ("blocks", *_NAMED)
_OURS = "parcost"  # the distribution


@frozen(eq=False)
class Plugin:
    """One plugin: its name, and the distribution and version that it came in."""

    name: str
    distribution: str = ""
    version: str = ""
    module: Any = field(default=None, repr=False)

    def __str__(self) -> str:
        came = " ".join(filter(None, (self.distribution, self.version)))
        return f"`{self.name}`" + (f" of {came}" if came else "")


@frozen(eq=False, slots=False)
class Plugins:
    """The plugins of one run."""

    plugins: tuple[Plugin, ...]
    broken: tuple[Fault, ...] = ()
    left_out: tuple[str, ...] = ()
    files: tuple[str, ...] = ()  # paths, of those that are not installed
    known: dict[Any, Any] = field(factory=dict, init=False, repr=False)  # what studies share

    @cached_property
    def _hooks(self) -> dict[str, list[tuple[Plugin, Callable[..., Any], tuple[str, ...]]]]:
        manager = pluggy.PluginManager(GROUP)
        manager.add_hookspecs(hookspecs)
        for plugin in self.plugins:
            try:
                manager.register(plugin.module, name=plugin.name)
                manager.check_pending()
            except pluggy.PluginValidationError as error:
                said = str(error).splitlines()[-1]
                raise PluginError(
                    f"plugin {plugin} has a hook that does not fit: {said}"
                ) from error
        by_name = {plugin.name: plugin for plugin in self.plugins}
        return {
            name: [
                (by_name[impl.plugin_name], impl.function, impl.argnames)
                for impl in sorted(caller.get_hookimpls(), key=lambda i: i.plugin_name)
            ]
            for name, caller in vars(manager.hook).items()
            if not name.startswith("_")
        }

    def implementing(self, hook: str) -> Sequence[Plugin]:
        """Return the plugins that answer *hook*, in the order in which they are asked."""
        return [plugin for plugin, _, _ in self._hooks.get(hook, ())]

    def ask(
        self,
        hook: str,
        faults: list[Fault] | None = None,
        *,
        only: int | None = None,
        **arguments: Any,
    ) -> Iterator[tuple[Plugin, Any]]:
        """Yield what each plugin contributes to *hook*, stamped with the plugin.

        With *only*, what the plugin in that position of :meth:`implementing` does.

        A plugin that raises, or answers with something else than the hook asks for,
        or repeats a name, is noted in *faults*; without a list to note it in, it is
        a :class:`PluginError`. Spec errors raised by a plugin pass through, with a note
        that names it if it is none of ours.
        """
        wanted, numbers, words = _ANSWERS.get(hook), hook in _NUMBERED, hook in _WORDED
        unique, may_be_named, seen = hook in _UNIQUE, hook == "terms", dict[Any, Plugin]()
        ruled, valued, searched = hook in _RULED, hook in _VALUED, hook in HOOKS
        counts: Counts = {}
        asked = self._hooks.get(hook, ())
        for plugin, function, argnames in asked if only is None else asked[only : only + 1]:
            try:
                answers = list(function(*map(arguments.__getitem__, argnames)) or ())
            except SpecError as error:
                if plugin.distribution == _OURS:
                    raise
                raise _noted(error, plugin, hook) from error
            except BaseException as error:  # noqa: BLE001  a plugin may fail in any way
                reraise_interrupt(error)
                _fault(faults, plugin, hook, "raised", error)
                continue
            for answer in answers:
                complaint = ""
                if wanted is not None and not isinstance(answer, wanted):
                    names = " or ".join(t.__name__ for t in wanted)
                    complaint = f"returned {type(answer).__name__} where {names} is asked for"
                elif unique and not isinstance(answer.name, str):
                    kind = type(answer).__name__
                    complaint = f"gave a {kind} the name {answer.name!r}, which is no text"
                elif numbers:
                    answer, complaint = sound(answer, counts)  # noqa: PLW2901  in plain numbers
                elif ruled and isinstance(answer, terms.Check):
                    complaint = unsaid(answer)
                elif valued and isinstance(answer, terms.Figure):
                    complaint = unvalued(answer)
                elif searched:
                    blame = partial(_blamed, plugin, hook)
                    answer, complaint = answered(hook, answer, blame)  # noqa: PLW2901  named
                elif words:
                    complaint = _complaint(hook, answer)
                if unique and not complaint:
                    key = (answer.name, getattr(answer, "pass_", ""))
                    if other := seen.get(key):
                        complaint = f"repeats the name `{key[0]}`, which plugin {other} contributed"
                    else:
                        seen[key] = plugin
                if complaint:
                    _fault(faults, plugin, hook, complaint)
                elif may_be_named and isinstance(answer.resource, terms.Names):
                    try:
                        parts = list(_by_name(answer))
                    except ValueError as error:  # its numbers have different shapes
                        _fault(faults, plugin, hook, f"`{answer.name}`: {error}")
                        continue
                    yield from ((plugin, part) for part in parts)
                else:
                    yield plugin, answer

    def named(self, hook: str) -> Mapping[str, tuple[Plugin, Any]]:
        """Return what plugins offer under a registry hook, by name.

        Raises:
            PluginError: Two plugins offer the same name.
        """
        return self._registries[hook]

    @cached_property
    def _registries(self) -> dict[str, dict[str, tuple[Plugin, Any]]]:
        registries: dict[str, dict[str, tuple[Plugin, Any]]] = {}
        for hook in (*_NAMED, "catalogues"):
            registry: dict[str, tuple[Plugin, Any]] = {}
            for plugin, offered in self.ask(hook):
                if offered.name in registry:
                    other = registry[offered.name][0]
                    raise PluginError(
                        f"`{offered.name}` is offered under `{hook}` by plugin {other} "
                        f"and by plugin {plugin}"
                    )
                registry[offered.name] = (plugin, offered)
            registries[hook] = registry
        return registries

    @cached_property
    def blocks(self) -> Mapping[str, BlockType]:
        """Every block of the language, by keyword.

        Raises:
            PluginError: Two plugins declare the same block.
        """
        owners: dict[str, Plugin] = {}
        types: dict[str, BlockType] = {}
        for plugin, schema in self.ask("blocks"):
            declared = block_type(schema)
            if declared.kind in owners:
                raise PluginError(
                    f"block `{declared.kind}` is declared by plugin {owners[declared.kind]} "
                    f"and by plugin {plugin}"
                )
            owners[declared.kind], types[declared.kind] = plugin, declared
        return types


def load(
    *extra: tuple[str, object],
    without: Iterable[str] = (),
    files: Iterable[str] = (),
    installed: bool = True,
) -> Plugins:
    """Return the installed plugins, built-in ones included, those in *files*, and any *extra*.

    *extra* are pairs of name and plugin object or module; *without* are names to leave
    out; *files* are modules, or folders that are packages, by path. A plugin that cannot
    be imported is kept in ``Plugins.broken``.

    Raises:
        PluginError: Nothing installed has a name in *without*, or two share a name.
    """
    points = sorted(entry_points(group=GROUP), key=lambda p: p.name) if installed else []
    names = [point.name for point in points] + [name for name, _ in extra]
    skipped = set(without)
    if unknown := skipped - set(names):
        from parcost.diagnostics import did_you_mean

        name = min(unknown)
        hint = did_you_mean(name, names)
        raise PluginError(f"no plugin is called `{name}`" + (f"; {hint}" if hint else ""))
    found: dict[str, Plugin] = {}
    broken: list[Fault] = []
    origin = cache(_origin)  # reading metadata takes longer than importing most plugins
    for point in points:
        if point.name not in skipped:
            _load_one(point.load, Plugin(point.name, *origin(point.dist)), found, broken)
    for name, module in extra:
        if name not in skipped:
            _register(Plugin(name, module=module), found)
    paths = tuple(files)
    for path in paths:
        _load_one(partial(module_of, path), Plugin(name_of(path), path), found, broken)
    kept = tuple(found[name] for name in sorted(found))
    return Plugins(kept, tuple(broken), tuple(sorted(skipped)), paths)


def _origin(distribution: Distribution | None) -> tuple[str, str]:
    """Return the name and the version of a distribution."""
    return (distribution.name, distribution.version) if distribution else ("", "")


def _load_one(
    module_: Callable[[], object], plugin: Plugin, found: dict[str, Plugin], broken: list[Fault]
) -> None:
    try:
        module = module_()
    except BaseException as error:  # noqa: BLE001  importing runs foreign code
        reraise_interrupt(error)
        message = f"cannot be imported: {raised(error)}"
        broken.append(Fault(plugin=plugin, hook="import", message=message))
        return
    _register(evolve(plugin, module=module), found)


def _register(plugin: Plugin, found: dict[str, Plugin]) -> None:
    if plugin.name in found:
        raise PluginError(f"plugin {found[plugin.name]} and plugin {plugin} share a name")
    found[plugin.name] = plugin


def _fault(
    faults: list[Fault] | None,
    plugin: Plugin,
    hook: str,
    message: str,
    cause: BaseException | None = None,
) -> None:
    """Note what a plugin did, or was wrong with what it gave, and what it raised."""
    if faults is None or isinstance(cause, ParcostError):
        raise _blamed(plugin, hook, message, cause) from cause
    faults.append(Fault(plugin=plugin, hook=hook, message=_did(plugin, message, cause)))


def _blamed(plugin: Plugin, hook: str, message: str, cause: BaseException | None) -> PluginError:
    """Return the error of a plugin that nobody can do without."""
    did = _did(plugin, message, cause)
    return PluginError(f"plugin {plugin} failed in `{hook}`: {did}")


def _did(plugin: Plugin, message: str, cause: BaseException | None) -> str:
    return f"{message} {raised(cause)}{_place(cause, plugin)}" if cause is not None else message


def _noted(error: SpecError, plugin: Plugin, hook: str) -> SpecError:
    """Return a spec error that says which plugin was asked as it came about."""
    note = f"plugin {plugin} was asked for `{hook}`"
    return SpecError([evolve(d, notes=(*d.notes, note)) for d in error.diagnostics])


def _complaint(hook: str, answer: Any) -> str:
    if hook == "blocks" and not hasattr(answer, "__block__"):
        return f"returned the class {answer.__name__}, which is not declared with `@block`"
    if hook in _NAMED and not isinstance(getattr(answer, "name", None), str):
        return f"returned {type(answer).__name__} without a name"
    return ""


def _by_name(term: Any) -> Iterator[Any]:
    """Yield a term for each resource that it keeps busy somewhere, nothing elsewhere."""
    for i, name in enumerate(term.resource.names):
        here = term.resource.at == i
        numbers: dict[str, Any] = {"seconds": where(here, term.seconds, 0.0)}
        if isinstance(term, terms.Edge):
            numbers["boundaries"] = tuple(where(here, s, 0.0) for s in term.boundaries)
        else:
            spread = "flops" if isinstance(term, terms.Work) else "tail"
            numbers[spread] = where(here, getattr(term, spread), 0.0)
        yield evolve(term, resource=name, **numbers)


def _place(error: BaseException, plugin: Plugin) -> str:
    """Return where in the code of *plugin* an error came about, if it has code in files."""
    file = getattr(plugin.module, "__file__", None)
    if not isinstance(file, str):
        return ""
    from traceback import extract_tb

    own = str(Path(file).parent) + os.sep if hasattr(plugin.module, "__path__") else file
    frames = [f for f in extract_tb(error.__traceback__) if f.filename.startswith(own)]
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
