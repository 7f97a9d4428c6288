"""Finding plugins, and asking them what they have.

There is no global registry: :func:`load` returns a :class:`Plugins` that is passed
along. Every answer is stamped here with the plugin and the distribution that it came
from, and checked against the contract, so that what a report says of its sources is
known and not claimed. Plugins are asked in order of name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, partial
from importlib.metadata import Distribution, EntryPoint, entry_points
from typing import Any

from attrs import evolve, field, frozen

from parcost.contract.plugin import Fault, Plugin
from parcost.contract.queries import Memo
from parcost.contract.schema import BlockType
from parcost.contract.term_validation import Counts
from parcost.contract.validation import has_diagnostics, items_of, validate
from parcost.language.diagnostics import did_you_mean
from parcost.language.errors import (
    FaultError,
    ParcostError,
    PluginError,
    SpecError,
    error_text,
    reraise_interrupt,
)
from parcost.plugins.registry import GROUP, OWN_DISTRIBUTION, Registry, place, register
from parcost.plugins.selection import PluginSelection, module_of, name_of

MOST_KNOWN = 10_000  # answers that studies have in common
MOST_FAULTS = 1000  # that are remembered
_MOST_OF_AN_ANSWER = 20  # faults that are told of one answer
_OWN_MODULES = ("parcost_plugins.", "parcost_specs")
#: Hooks that one plugin answers, once, and what it does so.
_ONE_ANSWER = {"pipelines": "cuts the step", "library": "names the communication library"}
_ONE_NAME = (
    "groups",
    "terms",
    "memory",
    "figures",
    "intervals",
)  # hooks whose answers have unique names


@frozen(eq=False, slots=False)
class Plugins:
    """The plugins of one run."""

    loaded: tuple[Plugin, ...]
    unloadable: tuple[Fault, ...] = ()
    left_out: tuple[str, ...] = ()
    files: tuple[str, ...] = ()  # paths, of those that are not installed
    memo: Memo = field(init=False, repr=False)  # answers that studies share
    known: dict[str, Any] = field(factory=dict, init=False, repr=False)  # what lasts as long
    noted: dict[str, Fault] = field(factory=dict, init=False, repr=False)  # faults, by their line

    @memo.default
    def _new_memo(self) -> Memo:
        return Memo(MOST_KNOWN)

    @property
    def foreign(self) -> tuple[Plugin, ...]:
        """The plugins that come from outside of this distribution."""
        return tuple(plugin for plugin in self.plugins if plugin.distribution != OWN_DISTRIBUTION)

    @cached_property
    def registry(self) -> Registry:
        """The plugins that fit, and what they offer by name; asked for once."""
        return register(self.loaded)

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        """The plugins that take part."""
        return self.registry.plugins

    @property
    def broken(self) -> tuple[Fault, ...]:
        """The faults of those that do not: they cannot be imported, or do not fit."""
        return (*self.unloadable, *self.registry.faults)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Every fault so far, those in answers about studies included, each once."""
        return (*self.broken, *self.noted.values())

    def note(self, fault: Fault) -> None:
        """Remember a fault in an answer about a study."""
        if len(self.noted) < MOST_FAULTS:
            self.noted.setdefault(str(fault), fault)

    def implementing(self, hook: str) -> Sequence[Plugin]:
        """Return the plugins that answer *hook*, in the order in which they are asked."""
        return [plugin for plugin, _, _ in self.registry.hooks.get(hook, ())]

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
        asked = self.registry.hooks.get(hook, ())
        taken: dict[Any, Plugin] = {}
        counts: Counts = {}
        for plugin, function, argnames in asked if only is None else asked[only : only + 1]:
            try:
                answer = function(*map(arguments.__getitem__, argnames))
                answers, complaint = items_of(hook, answer)
            except SpecError as error:
                if plugin.distribution == OWN_DISTRIBUTION:
                    raise
                if has_diagnostics(error):
                    raise _noted(error, plugin, hook) from error
                self._fault(faults, plugin, hook, "raised a SpecError without a diagnostic")
                continue
            except BaseException as error:  # noqa: BLE001  a plugin may fail in any way
                reraise_interrupt(error)
                self._fault(faults, plugin, hook, "raised", error)
                continue
            if complaint:
                self._fault(faults, plugin, hook, complaint)
            blame = partial(_blamed, plugin, hook)
            complaints = 0
            for given in answers:
                try:
                    found, complaint = validate(hook, given, counts, blame)
                    if not complaint:
                        complaint = _claim(hook, found, plugin, taken)
                except BaseException as error:  # noqa: BLE001  an answer is foreign code
                    reraise_interrupt(error)
                    found, complaint = (), f"gave an answer that raised {error_text(error)}"
                if complaint:
                    complaints += 1
                    if complaints <= _MOST_OF_AN_ANSWER:
                        self._fault(faults, plugin, hook, complaint)
                else:
                    for one in found:
                        yield plugin, one

    def _fault(
        self,
        faults: list[Fault] | None,
        plugin: Plugin,
        hook: str,
        message: str,
        cause: BaseException | None = None,
    ) -> None:
        """Note what *plugin* did, or was wrong with what it gave, and what it raised.

        Raises:
            PluginError: There is no list to note it in, or another plugin was named already.
        """
        named = isinstance(cause, ParcostError) and type(cause) is not PluginError
        if faults is None or named:
            raise _blamed(plugin, hook, message, cause) from cause
        fault = Fault(plugin=plugin, hook=hook, message=_did(plugin, message, cause))
        faults.append(fault)
        self.note(fault)

    def named(self, hook: str) -> Mapping[str, tuple[Plugin, Any]]:
        """Return what plugins offer under a registry hook, by name."""
        return self.registry.offers[hook]

    @property
    def blocks(self) -> Mapping[str, BlockType]:
        """Every block of the language, by keyword."""
        return self.registry.blocks


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
        PluginError: Nothing installed has a name in *without*, or one that was asked for
            has the name of another.
    """
    points = sorted(entry_points(group=GROUP), key=_entry_order) if installed else []
    names = [point.name for point in points] + [name for name, _ in extra]
    skipped = set(without)
    if unknown := skipped - set(names):
        name = min(unknown)
        hint = did_you_mean(name, names)
        raise PluginError(f"no plugin is called `{name}`" + (f"; {hint}" if hint else ""))
    found: dict[str, Plugin] = {}
    broken: list[Fault] = []
    origin = cache(_origin)  # reading metadata takes longer than importing most plugins
    for point in points:
        if point.name in skipped:
            continue
        plugin = Plugin(point.name, *origin(point.dist))
        if other := found.get(point.name):
            message = f"has the name of plugin {other}; the plugin is left out"
            broken.append(Fault(plugin=plugin, hook="import", message=message))
        else:
            _load_one(point.load, plugin, found, broken)
    for name, module in extra:
        if name not in skipped:
            _register(Plugin(name, module=module), found)
    paths = tuple(files)
    for path in paths:
        _load_one(partial(module_of, path), Plugin(name_of(path), path), found, broken)
    kept = tuple(found[name] for name in sorted(found))
    return Plugins(kept, tuple(broken), tuple(sorted(skipped)), paths)


def load_selection(selection: PluginSelection) -> Plugins:
    """Return the plugins of a *selection*.

    Raises:
        PluginError: Nothing installed has a name that it leaves out, or two share a name.
    """
    return load(without=selection.without, files=selection.files)


def _entry_order(point: EntryPoint) -> tuple[str, bool, str]:
    """Return what sorts entry points; of one name, that of parcost comes first."""
    return point.name, not point.value.startswith(_OWN_MODULES), point.value


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
        message = f"cannot be imported: {error_text(error)}"
        broken.append(Fault(plugin=plugin, hook="import", message=message))
        return
    _register(evolve(plugin, module=module), found)


def _register(plugin: Plugin, found: dict[str, Plugin]) -> None:
    if plugin.name in found:
        raise PluginError(f"plugin {found[plugin.name]} and plugin {plugin} share a name")
    found[plugin.name] = plugin


def _blamed(plugin: Plugin, hook: str, message: str, cause: BaseException | None) -> PluginError:
    """Return the error of a plugin that nobody can do without."""
    did = _did(plugin, message, cause)
    return FaultError(f"plugin {plugin} failed in `{hook}`: {did}")


def _did(plugin: Plugin, message: str, cause: BaseException | None) -> str:
    return f"{message} {error_text(cause)}{place(cause, plugin)}" if cause is not None else message


def _noted(error: SpecError, plugin: Plugin, hook: str) -> SpecError:
    """Return a spec error that says which plugin was asked as it came about."""
    note = f"plugin {plugin} was asked for `{hook}`"
    return SpecError([evolve(d, notes=(*d.notes, note)) for d in error.diagnostics])


def _claim(hook: str, found: Sequence[Any], plugin: Plugin, taken: dict[Any, Plugin]) -> str:
    """Claim the name of an answer for *plugin*; return what is wrong if it is taken."""
    if hook in _ONE_ANSWER:
        key: Any = ""
    elif hook in _ONE_NAME and found:
        key = (found[0].name, getattr(found[0], "pass_", ""))
    else:
        return ""
    other = taken.get(key)
    if other is None:
        taken[key] = plugin
        return ""
    if hook in _ONE_ANSWER:
        return f"{_ONE_ANSWER[hook]}, which plugin {other} does already"
    return f"repeats the name `{key[0]}`, which plugin {other} contributed"
