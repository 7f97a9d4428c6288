"""The pages of all rules, read from the rulebooks of the core and of plugins.

A rulebook is a TOML file with a table for each rule. It is read only when a page is printed, or a
spec switches a rule off:

    [bases]
    small = "model m { ... }"

    [heads-divide]
    title = "attention heads are divisible by tp"
    severity = "error"
    message = "{heads} heads are not divisible by tp = {tp}"   # of its checks, as is `help`
    why = "Each rank of a tensor-parallel group computes whole heads."
    fix = "Choose a tp that divides the number of heads."
    source = "Megatron-LM, transformer_config.py"
    base = "small"                    # the example begins with this base,
    edit = [["tp = 2", "tp = 3"]]     # changed like this,
    fails = "layout { tp = 3 }"       # and followed by this
    change = [["tp = 3", "tp = 4"]]   # after which it passes; without a change, the base passes

If an example needs more than a spec, such as a missing file, the rule has ``needs`` instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from parcost.contract.calls import CallError, call
from parcost.contract.plugin import Fault, Plugin
from parcost.language.diagnostics import quote
from parcost.language.errors import PluginError
from parcost.plugins.rulebooks import rulebooks
from parcost.records import record

if TYPE_CHECKING:
    from parcost.contract.offers import Rulebook
    from parcost.plugins.discovery import Plugins

SEVERITIES = ("error", "warning")
_TEXTS = ("title", "severity", "message", "help", "why", "fix", "source", "base", "fails", "needs")
_REQUIRED = ("title", "severity", "why", "fix")
_FLAGS = ("plausibility", "outcome")
_KEYS = {*_TEXTS, *_FLAGS, "edit", "change"}


@record(kw_only=True)
class RulePage:
    """The documentation of a rule. *plugin* is None for rules of the core.

    *fails* and *passes* are specs, "" where a rule *needs* more than a spec to fail.
    """

    id: str
    book: str
    plugin: Plugin | None
    title: str
    severity: str
    why: str
    fix: str
    source: str = ""
    fails: str = ""
    passes: str = ""
    needs: str = ""
    plausibility: bool = False  # what is legal and unlikely
    outcome: bool = False  # judged once the step is known: by `parcost eval`

    @property
    def allowable(self) -> bool:
        """Whether a spec may switch the rule off: only warnings, because after an error there are
        no numbers.
        """
        return self.severity == "warning"


@record(kw_only=True)
class RulePages:
    """The pages by id, in order, and the faults of plugins whose rulebooks cannot be read."""

    pages: Mapping[str, RulePage]
    faults: tuple[Fault, ...] = ()


def rule_pages(plugins: Plugins) -> RulePages:
    """Return the pages of the rules of the core and of *plugins*, read once."""
    if "rule pages" not in plugins.known:
        plugins.known["rule pages"] = _read_all(plugins)
    found: RulePages = plugins.known["rule pages"]
    return found


def _read_all(plugins: Plugins) -> RulePages:
    pages: dict[str, RulePage] = {}
    faults: list[Fault] = []
    for plugin, book in rulebooks(plugins):
        if plugin is None:
            pages |= _pages(book, None)
            continue
        try:
            found = call(_pages, book, plugin, module=plugin.module, passing=PluginError)
        except (CallError, PluginError) as error:
            faults.append(Fault(plugin=plugin, hook="rulebooks", message=str(error)))
            continue
        if taken := sorted(set(found) & set(pages)):
            message = f"has a page of `{taken[0]}`, which already has a page"
            faults.append(Fault(plugin=plugin, hook="rulebooks", message=message))
        pages = {**found, **pages}
    return RulePages(pages=dict(sorted(pages.items())), faults=tuple(faults))


def _pages(book: Rulebook, plugin: Plugin | None) -> Mapping[str, RulePage]:
    """Return the pages of a rulebook.

    Raises:
        PluginError: The rulebook is not a table of rules.
    """
    name = book.name
    try:
        tables = dict(book.tables())
    except ValueError as error:
        raise PluginError(f"the rulebook `{name}` is not TOML: {error}") from error
    bases = tables.pop("bases", {})
    if not isinstance(bases, dict) or not all(isinstance(b, str) for b in bases.values()):
        raise PluginError(f"the rulebook `{name}` has `bases` that are not a table of texts")
    return {id: _page(id, table, bases, name, plugin) for id, table in tables.items()}


def _page(
    id: str, table: Any, bases: Mapping[str, str], book: str, plugin: Plugin | None
) -> RulePage:
    def wrong(what: str) -> PluginError:
        return PluginError(f"the rulebook `{book}` gives the rule {quote(id)} {what}")

    if not isinstance(table, dict):
        raise wrong(f"{quote(table)} where a table is expected")
    if unknown := sorted(set(table) - _KEYS):
        raise wrong(f"{quote(unknown[0])}, which is not a key of a page")
    for key in _TEXTS:
        if not isinstance(table.get(key, ""), str) or (key in _REQUIRED and not table.get(key)):
            raise wrong(f"no text as `{key}`")
    if table["severity"] not in SEVERITIES:
        raise wrong(f"the severity {quote(table['severity'])}, which is not error or warning")
    base = table.get("base", "")
    if base not in ("", *bases):
        raise wrong(f"the base {quote(base)}, which is not in `bases`")
    fails, passes = _examples(table, bases.get(base, "").strip(), wrong)
    if bool(fails) == bool(table.get("needs")):
        raise wrong("not one of `fails` and `needs`")
    return RulePage(
        id=id,
        book=book,
        plugin=plugin,
        title=_line(table["title"]),
        severity=table["severity"],
        why=_line(table["why"]),
        fix=_line(table["fix"]),
        source=_line(table.get("source", "")),
        fails=fails,
        passes=passes,
        needs=_line(table.get("needs", "")),
        **{flag: bool(table.get(flag, False)) for flag in _FLAGS},
    )


def _examples(
    table: Mapping[str, Any], base: str, wrong: Callable[[str], PluginError]
) -> tuple[str, str]:
    """Return the spec that breaks a rule, and the spec that passes."""
    added = table.get("fails", "").strip()
    if not added and not table.get("edit"):
        return "", ""
    fails = "\n".join(filter(None, (_apply(base, table.get("edit", ()), wrong), added)))
    changes = table.get("change", ())
    passes = _apply(fails, changes, wrong) if changes else base
    if passes == fails:
        raise wrong("an example that no change fixes")
    return f"{fails}\n", f"{passes}\n"


def _apply(text: str, changes: Any, wrong: Callable[[str], PluginError]) -> str:
    """Return *text* with *changes* applied: pairs of an old part, which occurs once, and a
    new one.
    """
    for change in changes:
        if not isinstance(change, list) or list(map(type, change)) != [str, str]:
            raise wrong(f"the change {quote(change)}, which is not a pair of texts")
        old, new = change
        if text.count(old) != 1:
            raise wrong(
                f"a change of {quote(old)}, which its example does not contain exactly once"
            )
        text = text.replace(old, new)
    return text


def _line(text: str) -> str:
    return " ".join(text.split())
