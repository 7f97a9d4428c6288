"""Discovery of plugins, and calls of their hooks.

There is no global registry: :func:`load` returns a :class:`Plugins` that is passed along. Every
result is labelled with its plugin and distribution, and validated against the contract. So a report
names the correct sources. Plugins are called in order of name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, partial
from importlib import import_module
from importlib.metadata import Distribution, entry_points
from types import ModuleType
from typing import Any

from attrs import evolve, field

from parcost.contract.calls import CallError, call
from parcost.contract.calls import place as place_in_code
from parcost.contract.figures import Interval, MissingFigure
from parcost.contract.plugin import Fault, Plugin
from parcost.contract.queries import Memo
from parcost.contract.schema import BlockType
from parcost.contract.validation import items_of, validate
from parcost.language.diagnostics import Diagnostic, did_you_mean, quote
from parcost.language.errors import (
    FaultError,
    ParcostError,
    PluginError,
    SpecError,
)
from parcost.plugins.registry import GROUP, OWN_DISTRIBUTION, REGISTRIES, Registry, register
from parcost.plugins.selection import module_of, name_of
from parcost.records import define, frozen

MOST_KNOWN = 10_000  # answers that studies have in common
MOST_FAULTS = 1000  # that are remembered
MOST_ABSENCES = 3  # plugins that a diagnostic names
_MOST_OF_AN_ANSWER = 20  # faults reported per answer
_OWN_MODULES = (
    "parcost_apps.",
    "parcost_formats.",
    "parcost_measured.",
    "parcost_plugins.",
    "parcost_specs",
)
#: Hooks that one plugin answers, once, and what it does so.
_ONE_ANSWER = {
    "pipelines": "splits the step into stages",
    "library": "names the communication library",
}
#: Hooks whose answers have unique names.
_ONE_NAME = ("groups", "terms", "memory", "figures")


@frozen(eq=False)
class DeferredPart:
    """A part of a package that is imported on the first call of a hook in *offers*."""

    plugin: Plugin
    load: Callable[[], object]
    offers: frozenset[str]


@frozen(eq=False, slots=False)
class Plugins:
    """The plugins of a run."""

    loaded: tuple[Plugin, ...]
    unloadable: tuple[Fault, ...] = ()
    left_out: tuple[str, ...] = ()
    files: tuple[str, ...] = ()  # paths, of those that are not installed
    deferred: tuple[DeferredPart, ...] = field(default=(), repr=False)
    memo: Memo = field(init=False, repr=False)  # answers that studies share
    known: dict[str, Any] = field(factory=dict, init=False, repr=False)  # what lasts as long
    noted: dict[str, Fault] = field(factory=dict, init=False, repr=False)  # faults, by their line

    @memo.default
    def _new_memo(self) -> Memo:
        return Memo(MOST_KNOWN)

    @property
    def foreign(self) -> tuple[Plugin, ...]:
        """The plugins that are not part of parcost itself."""
        return tuple(plugin for plugin in self.plugins if plugin.distribution != OWN_DISTRIBUTION)

    @cached_property
    def registry(self) -> Registry:
        """The valid plugins, and the objects that they register by name; computed once.

        Deferred parts are not included, unless another plugin implements the same hooks: then
        duplicate names must be detected.
        """
        found = register(self.loaded)
        return self.whole.registry if any(map(found.hooks.get, self._later)) else found

    @cached_property
    def whole(self) -> Plugins:
        """The same plugins with all parts imported; parts that fail are recorded as faults."""
        if not self.deferred:
            return self
        parts = _Loading(found={plugin.name: plugin for plugin in self.loaded})
        for part in self.deferred:
            parts.load(part.load, part.plugin)
        loaded = tuple(parts.found[name] for name in sorted(parts.found))
        unloadable = (*self.unloadable, *parts.broken)
        made = Plugins(loaded, unloadable, self.left_out, self.files)
        for fault in (*parts.broken, *made.registry.faults, *self._check_offers(made.registry)):
            self.record(fault)
        return made

    def _check_offers(self, registry: Registry) -> Iterator[Fault]:
        """Yield a fault for each hook of a deferred part that ``OFFERS`` of its package omits."""
        parts = {part.plugin.name: part for part in self.deferred}
        for hook, answers in registry.hooks.items():
            for plugin, _, _ in answers:
                if plugin.name in parts and hook not in parts[plugin.name].offers:
                    message = f"contributes `{hook}`, which `OFFERS` of its package does not list"
                    yield Fault(plugin=plugin, hook=hook, message=message)

    @cached_property
    def _later(self) -> frozenset[str]:
        """The hooks of deferred parts."""
        return frozenset().union(*(part.offers for part in self.deferred))

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        """The valid plugins."""
        taking_part = {plugin.name: plugin for plugin in self.registry.plugins}
        for part in self.deferred:
            taking_part.setdefault(part.plugin.name, part.plugin)
        return tuple(taking_part[name] for name in sorted(taking_part))

    @property
    def broken(self) -> tuple[Fault, ...]:
        """The faults of excluded plugins: they cannot be imported, or are invalid."""
        return (*self.unloadable, *self.registry.faults)

    @property
    def absences(self) -> Sequence[str]:
        """A sentence for each excluded plugin, for diagnostics about something missing."""
        broken = [f"plugin {fault.plugin} {fault.message}" for fault in self.broken]
        found = [f"plugin `{name}` is left out by `--without`" for name in self.left_out] + broken
        more = len(found) - MOST_ABSENCES
        return [*found[:MOST_ABSENCES], *([f"{more} more plugins are missing"] if more > 0 else [])]

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Every fault so far, each once, including faults in answers about studies."""
        return tuple({**{str(fault): fault for fault in self.broken}, **self.noted}.values())

    def record(self, fault: Fault) -> None:
        """Record a fault in an answer about a study."""
        if len(self.noted) < MOST_FAULTS:
            self.noted.setdefault(str(fault), fault)

    def implementers(self, hook: str) -> Sequence[Plugin]:
        """Return the plugins that implement *hook*, in the order of their calls."""
        return [plugin for plugin, _, _ in self.registry.hooks.get(hook, ())]

    def ask(
        self,
        hook: str,
        faults: list[Fault] | None = None,
        *,
        only: int | None = None,
        taking: str = "",
        **arguments: Any,
    ) -> Iterator[tuple[Plugin, Any]]:
        """Yield the contributions of each plugin to *hook*, each with its plugin.

        With *only*, yield the contributions of the plugin at that position of :meth:`implementers`.
        An implementation is not called if it has parameters that are not in *arguments*, or
        lacks the one called *taking*.

        A plugin has a fault if it raises, returns another type than the hook declares, or repeats a
        name. The fault is added to *faults*; without a list it is raised as a :class:`PluginError`.
        Spec errors raised by a plugin pass through; one without a place in the spec has a note that
        names the plugin.
        """
        asked = self.registry.hooks.get(hook, ())
        unique = hook in _ONE_ANSWER or hook in _ONE_NAME
        taken: dict[Any, Plugin] = {}
        for plugin, function, argnames in asked if only is None else asked[only : only + 1]:
            if taking and taking not in argnames:
                continue
            try:
                given = tuple(map(arguments.__getitem__, argnames))
            except KeyError:
                continue
            try:
                answers, complaint = call(
                    items_of, hook, function, *given, module=plugin.module, passing=SpecError
                )
            except SpecError as error:
                listed = error.diagnostics
                if listed and all(isinstance(one, Diagnostic) for one in listed):
                    note = f"plugin {plugin} was asked for `{hook}`"
                    pointed = [
                        one if one.labels or one.place else evolve(one, notes=(*one.notes, note))
                        for one in listed
                    ]
                    raise SpecError(pointed) from error
                self._fault(faults, plugin, hook, "raised a SpecError without a diagnostic")
                continue
            except CallError as error:
                self._fault(faults, plugin, hook, str(error), error.cause)
                continue
            except KeyboardInterrupt as stop:
                if plugin.distribution != OWN_DISTRIBUTION:
                    stop.add_note(f"while plugin {plugin} was asked for `{hook}`")
                raise
            if complaint:
                self._fault(faults, plugin, hook, complaint)
            blame = partial(_plugin_error, plugin, hook)
            complaints = 0
            for one in answers:
                try:
                    found, complaint = validate(hook, one, blame)
                    if unique and found and not complaint:
                        complaint = _claim(hook, found, plugin, taken)
                except KeyboardInterrupt:
                    raise
                except BaseException as error:  # noqa: BLE001  a plugin may raise anything; `call` does this, and takes as long again
                    found, complaint = (), f"returned an answer that {CallError(error)}"
                if complaint:
                    complaints += 1
                    if complaints <= _MOST_OF_AN_ANSWER:
                        self._fault(faults, plugin, hook, complaint)
                else:
                    for contribution in found:
                        yield plugin, contribution

    def _fault(
        self,
        faults: list[Fault] | None,
        plugin: Plugin,
        hook: str,
        message: str,
        cause: BaseException | None = None,
    ) -> None:
        """Record a fault of *plugin*, which may have raised *cause*.

        Raises:
            PluginError: There is no list for faults, or the error already names another plugin.
        """
        named = isinstance(cause, ParcostError) and type(cause) is not PluginError
        if faults is None or named:
            raise _plugin_error(plugin, hook, message) from cause
        fault = Fault(plugin=plugin, hook=hook, message=message)
        if str(fault) not in map(str, faults):  # a hook may be asked twice
            faults.append(fault)
        self.record(fault)

    def offers(self, hook: str) -> Mapping[str, tuple[Plugin, Any]]:
        """Return the objects that plugins register under a hook, by name, with their plugins."""
        known = self.whole if hook in self._later else self
        return known.registry.offers[hook]

    @property
    def blocks(self) -> Mapping[str, BlockType]:
        """Every block of the language, by keyword."""
        return {kind: type_ for kind, (_, type_) in self.registry.offers["blocks"].items()}


def load(
    *extra: tuple[str, object],
    without: Iterable[str] = (),
    files: Iterable[str] = (),
    installed: bool = True,
) -> Plugins:
    """Return the installed plugins, built-in ones included, those in *files*, and any *extra*.

    *extra* are pairs of name and plugin object or module; *without* are names to leave out; *files*
    are modules, or folders that are packages, by path. A plugin that cannot be imported is listed
    in ``Plugins.broken``.

    A package lists modules in ``PARTS``. Each of them is a plugin, too: the part ``attention`` of
    ``model`` is ``model.attention``. ``OFFERS`` may list the hooks that the parts implement without
    a study. The parts are then imported on the first call of such a hook.

    Raises:
        PluginError: Nothing installed has a name in *without*, or a requested plugin has the
            name of another.
    """
    points = entry_points(group=GROUP) if installed else ()
    loading = _Loading(skipped=frozenset(without), may_defer=True)
    origin = cache(_origin)  # reading metadata takes longer than importing most plugins
    # Of equal names, that of parcost comes first.
    for point in sorted(
        points, key=lambda p: (p.name, not p.value.startswith(_OWN_MODULES), p.value)
    ):
        loading.names.add(point.name)
        if point.name in loading.skipped:
            continue
        plugin = Plugin(point.name, *origin(point.dist))
        if other := loading.found.get(point.name):
            message = f"has the same name as plugin {other}; the plugin is left out"
            loading.broken.append(Fault(plugin=plugin, hook="import", message=message))
        else:
            loading.load(point.load, plugin)
    for name, module in extra:
        loading.names.add(name)
        if name not in loading.skipped:
            loading.load(partial(_same, module), Plugin(name))
    paths = tuple(files)
    for path in paths:
        loading.load(partial(module_of, path), Plugin(name_of(path), path))
    loading.check_skipped_names()
    found = loading.found
    return Plugins(
        tuple(found[name] for name in sorted(found)),
        tuple(loading.broken),
        tuple(sorted(loading.skipped)),
        paths,
        tuple(loading.deferred),
    )


def names_of_parts(subject: str) -> Sequence[str]:
    """Return the names of the plugins that are parts of an installed one."""
    for point in entry_points(group=GROUP, name=subject):
        loading = _Loading(may_defer=True)
        loading.load(point.load, Plugin(subject))
        return sorted(loading.names)
    return ()


def _origin(distribution: Distribution | None) -> tuple[str, str]:
    """Return the name and the version of a distribution."""
    return (distribution.name, distribution.version) if distribution else ("", "")


@define(eq=False)
class _Loading:
    """The plugins loaded so far, and the names of all plugins."""

    skipped: frozenset[str] = frozenset()
    may_defer: bool = False
    names: set[str] = field(factory=set)
    found: dict[str, Plugin] = field(factory=dict)
    broken: list[Fault] = field(factory=list)
    deferred: list[DeferredPart] = field(factory=list)

    def load(self, load_module: Callable[[], object], plugin: Plugin) -> None:
        """Load a plugin and its parts, except skipped ones.

        If a part cannot be imported, the others stay.
        """
        try:
            module = call(load_module)
            parts, offers = call(_parts, module)
        except KeyboardInterrupt as stop:
            stop.add_note(f"while plugin {plugin} was imported")
            raise
        except CallError as error:
            message = f"cannot be imported: {error.text}"
            self.broken.append(Fault(plugin=plugin, hook="import", message=message))
            return
        if plugin.name in self.found:
            raise PluginError(f"plugin {self.found[plugin.name]} and plugin {plugin} share a name")
        self.found[plugin.name] = evolve(plugin, module=module)
        for part, path in parts.items():
            name = f"{plugin.name}.{part}"
            self.names.add(name)
            if name in self.skipped:
                continue
            load_part, one = partial(import_module, path), evolve(plugin, name=name)
            if offers and self.may_defer:
                self.deferred.append(DeferredPart(one, load_part, offers))
            else:
                self.load(load_part, one)

    def check_skipped_names(self) -> None:
        """Check that each skipped name is the name of a plugin.

        Raises:
            PluginError: A name is not.
        """
        unseen = {*self.skipped, *(fault.plugin.name for fault in self.broken)}
        absent = [
            name
            for name in sorted(self.skipped - self.names)
            if name.partition(".")[0] not in unseen - {name}  # whose parts are unknown
        ]
        if absent:
            hint = did_you_mean(absent[0], sorted(self.names))
            raise PluginError(f"no plugin is called `{absent[0]}`" + (f"; {hint}" if hint else ""))


def _same(module: object) -> object:
    return module


def _parts(module: object) -> tuple[Mapping[str, str], frozenset[str]]:
    """Return the paths of the parts of a package, and the hooks that it lists for all of them.

    Raises:
        TypeError: ``PARTS`` is no list of names, or ``OFFERS`` of hooks called without a study.
    """
    if not isinstance(module, ModuleType):
        return {}, frozenset()
    parts = _names_in(module, "PARTS", "modules")
    offers = _names_in(module, "OFFERS", "hooks without arguments", REGISTRIES)
    return {name: f"{module.__name__}.{name}" for name in parts}, frozenset(offers)


def _names_in(
    module: ModuleType, variable: str, what: str, known: Sequence[str] | None = None
) -> Sequence[str]:
    """Return the names in the list *variable* of a module; all must be in *known*.

    Raises:
        TypeError: The variable lists something other than names.
    """
    names = vars(module).get(variable, ())
    if not isinstance(names, (list, tuple)) or not all(
        isinstance(name, str) and name.isidentifier() and (known is None or name in known)
        for name in names
    ):
        raise TypeError(f"`{variable}` is {quote(names)}, which is not a list of {what}")
    return names


def _plugin_error(
    plugin: Plugin, hook: str, message: str, cause: BaseException | None = None
) -> PluginError:
    """Return the error of a failed plugin, with the place in its code, if known."""
    at = place_in_code(cause, plugin.module) if cause is not None else ""
    return FaultError(f"plugin {plugin} failed in `{hook}`: {message}{at}")


def _claim(hook: str, found: Sequence[Any], plugin: Plugin, taken: dict[Any, Plugin]) -> str:
    """Reserve the name of an answer for *plugin*; return an error if it is taken, else ""."""
    key: Any = ""
    if hook not in _ONE_ANSWER:
        first = found[0]
        # an interval has the name of its figure
        of_figure = first.__class__ in (Interval, MissingFigure)
        key = (first.name, of_figure, getattr(first, "pass_", ""))
    other = taken.get(key)
    if other is None:
        taken[key] = plugin
        return ""
    if hook in _ONE_ANSWER:
        return f"{_ONE_ANSWER[hook]}, as plugin {other} does already"
    return f"repeats the name `{key[0]}`, which plugin {other} contributed"
