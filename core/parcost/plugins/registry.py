"""The registry: plugins with valid hooks, and the uniquely named objects that they register.

Registered objects of a plugin are read once, before any study: its blocks, catalogues, collectives,
libraries, schedules, kernels and formats. A plugin that fails here is excluded completely, because
its terms need its blocks. A fault names it. Other plugins are not affected.

    plugin     has                      becomes
    ring       collectives: ring        used
    faster     collectives: ring        left out: `ring` is offered by plugin `ring`
    custom     hook `termz`             left out: no hook is called `termz`

If two plugins register the same name, a built-in plugin keeps it, or else the first plugin by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import pluggy
from attrs import field

from parcost.contract import hookspecs
from parcost.contract.calls import CallError, call
from parcost.contract.fields import Record
from parcost.contract.hookspecs import API_VERSION
from parcost.contract.plugin import Fault
from parcost.contract.schema import BlockType, block_type
from parcost.contract.validation import answer_types, expectation, items_of, problem
from parcost.language.diagnostics import did_you_mean, one_line, quote, type_name
from parcost.records import frozen

if TYPE_CHECKING:
    from parcost.contract.plugin import Plugin

GROUP = "parcost"
_MARK = f"{GROUP}_impl"  # that `hookimpl` leaves on a function
OWN_DISTRIBUTION = "parcost"

#: The hooks that are called without a study: their answers are offered by name.
REGISTRIES = tuple(
    name
    for name, spec in vars(hookspecs).items()
    if hasattr(spec, f"{GROUP}_spec") and not spec.__code__.co_argcount
)

_GUIDE = "docs/plugins.md, Versions of the contract,"

#: A hook of a plugin: the plugin, the function, and the arguments that it takes.
Hook = tuple["Plugin", Callable[..., Any], tuple[str, ...]]


class OfferError(Exception):
    """An object that a plugin registers is invalid."""


@frozen(eq=False)
class Registry:
    """The valid plugins, the objects that they register by name, and the faults of the others."""

    plugins: tuple[Plugin, ...]
    hooks: Mapping[str, Sequence[Hook]]
    offers: Mapping[str, Mapping[str, tuple[Plugin, Any]]] = field(repr=False)
    faults: tuple[Fault, ...] = ()


def register(plugins: Sequence[Plugin]) -> Registry:
    """Return the registry of *plugins*."""
    faults: list[Fault] = []
    fitting = _hooks_of(plugins, faults)
    offers: dict[str, dict[str, tuple[Plugin, Any]]] = {hook: {} for hook in REGISTRIES}
    left_out: set[str] = set()
    by_plugin: dict[str, dict[str, Hook]] = {}
    for name, hooks in fitting.items():
        for hook in hooks:
            by_plugin.setdefault(hook[0].name, {})[name] = hook
    for plugin in sorted(plugins, key=precedence):
        own = by_plugin.get(plugin.name, {})
        hook_name = ""
        try:
            found: list[tuple[str, str, Any]] = []
            for hook_name in (name for name in REGISTRIES if name in own):
                found += _offers_of(hook_name, own[hook_name], offers, found)
        except OfferError as error:
            faults.append(_fault(plugin, hook_name, str(error)))
            left_out.add(plugin.name)
            continue
        for hook_name, name, offer in found:
            offers[hook_name][name] = (plugin, offer)
    faulty = {fault.plugin.name for fault in faults}
    return Registry(
        plugins=tuple(plugin for plugin in plugins if plugin.name not in faulty),
        hooks={
            name: [hook for hook in hooks if hook[0].name not in faulty]
            for name, hooks in fitting.items()
        },
        offers={
            hook: {
                name: offered[name]
                for name in sorted(offered, key=lambda name: offered[name][0].name)
            }
            for hook, offered in offers.items()
        },
        faults=tuple(sorted(faults, key=lambda fault: fault.plugin.name)),
    )


def precedence(plugin: Plugin) -> tuple[bool, str]:
    """Return the sort key of a plugin: if two plugins register one name, the first keeps it."""
    return plugin.distribution != OWN_DISTRIBUTION, plugin.name


def _fault(plugin: Plugin, hook: str, message: str) -> Fault:
    return Fault(plugin=plugin, hook=hook, message=f"{message}; the plugin is left out")


# --- hooks ------------------------------------------------------------------------------


class _Manager(pluggy.PluginManager):
    """Plugin manager that skips names that cannot be hooks: pluggy takes 10 to 20 us for each name
    of a module.
    """

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> Any:
        if isinstance(plugin, ModuleType):
            value = vars(plugin).get(name)
            if not isinstance(value, (FunctionType, MethodType)) or not hasattr(value, _MARK):
                return None
        return super().parse_hookimpl_opts(plugin, name)


def _hooks_of(plugins: Sequence[Plugin], faults: list[Fault]) -> Mapping[str, Sequence[Hook]]:
    """Return the hooks of all valid plugins, by name and in order of precedence."""
    left = sorted(plugins, key=precedence)
    while True:
        manager = _Manager(GROUP)
        manager.add_hookspecs(hookspecs)
        fault = next((f for plugin in left if (f := _register_one(manager, plugin))), None)
        if fault is None:
            break
        faults.append(fault)
        left = [plugin for plugin in left if plugin is not fault.plugin]
    by_name = {plugin.name: plugin for plugin in left}
    found = {
        name: [(by_name[x.plugin_name], x.function, x.argnames) for x in caller.get_hookimpls()]
        for name, caller in vars(manager.hook).items()
        if not name.startswith("_")
    }
    return {name: sorted(hooks, key=lambda h: precedence(h[0])) for name, hooks in found.items()}


def _register_one(manager: pluggy.PluginManager, plugin: Plugin) -> Fault | None:
    """Register *plugin*; return a fault if it is invalid, else None."""
    members = vars(plugin.module) if isinstance(plugin.module, ModuleType) else {}
    if (wanted := members.get("PARCOST_API", API_VERSION)) != API_VERSION:
        message = f"needs version {quote(wanted)} of the contract, and this is {API_VERSION}"
        return _fault(plugin, "registration", f"{message}; {_GUIDE} lists the changes")
    misfit = pluggy.PluginValidationError
    try:  # looking into a module may run foreign code
        call(manager.register, plugin.module, plugin.name, module=plugin.module, passing=misfit)
    except misfit as error:
        return _fault(
            plugin, _hook_of(error), f"does not fit: {one_line(str(error).splitlines()[-1])}"
        )
    except CallError as error:
        return _fault(plugin, "registration", str(error))
    for caller in manager.get_hookcallers(plugin.module) or ():
        if not caller.has_spec():
            known = [name for name in vars(hookspecs) if name in vars(manager.hook)]
            hint = did_you_mean(caller.name, known)
            name, more = one_line(caller.name), hint or f"{_GUIDE} describes the changes"
            message = f"marks `{name}` as a hook, but there is no such hook; {more}"
            return _fault(plugin, name, message)
    return None


def _hook_of(error: pluggy.PluginValidationError) -> str:
    """Return the name of the hook in a validation error."""
    found = re.search(r"for hook '([^']*)'", str(error))
    return found[1] if found else "registration"


# --- offers -----------------------------------------------------------------------------


def _offers_of(
    hook: str,
    implementation: Hook,
    offers: Mapping[str, Mapping[str, tuple[Plugin, Any]]],
    before: Sequence[tuple[str, str, Any]],
) -> Iterator[tuple[str, str, Any]]:
    """Yield the objects that a plugin registers under *hook*: hook, name, object.

    Raises:
        OfferError: An object is invalid, or its name is taken.
    """
    plugin, function, _ = implementation

    def offers_by_name() -> list[tuple[str, Any]]:
        things, wrong = items_of(hook, function)
        if wrong:
            raise OfferError(wrong)
        return [(_name(hook, thing), thing) for thing in things]

    try:
        found = call(offers_by_name, module=plugin.module, passing=OfferError)
    except CallError as error:
        raise OfferError(str(error)) from error
    taken = {(kind, name) for kind, name, _ in before}
    for name, thing in found:
        other = plugin if (hook, name) in taken else offers[hook].get(name, (None,))[0]
        if other is not None:
            what = f"the block `{name}`" if hook == "blocks" else f"`{name}`"
            raise OfferError(f"provides {what}, which plugin {other} provides already")
        taken.add((hook, name))
        yield hook, name, block_type(thing) if hook == "blocks" else thing


def _name(hook: str, thing: Any) -> str:
    """Return the name under which *thing* is registered.

    Raises:
        OfferError: The object is not of the type of *hook*.
    """
    if hook == "blocks":
        if not isinstance(thing, type):
            raise OfferError(f"returned {type_name(thing)} where type is expected")
        if not isinstance(vars(thing).get("__block__"), BlockType):
            name = one_line(thing.__name__)
            raise OfferError(f"returned the class {name}, which is not declared with `@block`")
        return _word(block_type(thing).kind)
    expected = expectation(hook)
    if not issubclass(type(thing), answer_types(hook)):
        wrong = f"returned {type_name(thing)}, which does not derive from `{expected}`"
        raise OfferError(f"{wrong}; {_GUIDE} lists the changes")
    name = _word(thing.name)
    if isinstance(thing, Record) and (wrong := problem(thing)):
        raise OfferError(wrong)
    names = thing.operations if hook == "collectives" else ()
    is_list = isinstance(names, (frozenset, set, tuple, list))
    if not is_list or not all(isinstance(one, str) for one in names):
        raise OfferError(f"returned `{name}`, whose `operations` are not a set of names")
    return name


def _word(name: Any) -> str:
    """Return *name* if it can be written in a spec.

    Raises:
        OfferError: The name cannot be written in a spec.
    """
    if not isinstance(name, str):
        raise OfferError(f"returned something with the name {quote(name)}, which is not a text")
    if not name.isprintable() or not name or " " in name:
        raise OfferError(f"returned something with the name {quote(name)}, which is not a word")
    return str(name)
