"""Details: the figures of a step that plugins compute on demand, such as volumes, counts and
bounds.

They may take ten times as long as the step. A figure that is requested by name is computed by the
plugins that returned this name before, in any study. All plugins are called if a name is still
missing, for example in the first study of a batch. The reported faults do not depend on the cache:
they are faults of the plugins with the requested figures, or of all plugins if a name is not found.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from parcost.contract.figures import Figure
from parcost.contract.queries import pure_function
from parcost.engine.shapes import valid_answers
from parcost.numeric import quiet

if TYPE_CHECKING:
    from parcost.contract.outcome import Outcome
    from parcost.contract.plugin import Fault, Plugin
    from parcost.engine.study import SpecStudy

_Figures: TypeAlias = "Sequence[tuple[Plugin, Figure]]"


class Details:
    """The detailed figures of a step; none without an outcome."""

    def __init__(self, study: SpecStudy, outcome: Outcome | None, shown: _Figures) -> None:
        """Compute no figure yet; *shown* are the headline figures, which are left out."""
        self.study, self.outcome = study, outcome
        self._shown = {figure.name for _, figure in shown}
        self._every: _Figures | None = () if outcome is None else None
        self._some: dict[str, _Figures] = {}  # by plugin
        self._faults: dict[str, list[Fault]] = {}  # that are reported if a plugin is needed

    def all_figures(self) -> _Figures:
        """Return the figures of all plugins."""
        found = self._all()
        for faults in self._faults.values():
            self._report(faults)
        return found

    def find_figures(self, names: Collection[str]) -> _Figures:
        """Return figures that include all existing figures called *names*."""
        givers = self.study.query(_plugins_by_figure)
        found = self._every
        if found is None:
            likely = {plugin for name in names for plugin in givers.get(name, ())}
            for position, plugin in enumerate(self.study.plugins.implementers("figures")):
                if plugin.name in likely and plugin.name not in self._some:
                    self._some[plugin.name] = self._ask(position)
            found = [pair for figures in self._some.values() for pair in figures]
            if not {figure.name for _, figure in found}.issuperset(names):
                found = self._all()
                for plugin, figure in found:
                    givers.setdefault(figure.name, set()).add(plugin.name)
        gave = {figure.name: plugin.name for plugin, figure in found}
        if not gave.keys() >= set(names):
            return self.all_figures()
        for plugin_name in {gave[name] for name in names}:
            self._report(self._faults.get(plugin_name, []))
        return found

    def _all(self) -> _Figures:
        if self._every is None:
            self._faults.clear()
            self._every = self._ask(None)
        return self._every

    def _ask(self, only: int | None) -> _Figures:
        """Return the valid figures of one plugin, or of all, and their faults separately."""
        study, before = self.study, len(self.study.faults)
        with quiet():
            known: Mapping[str, Any] = {"study": study, "outcome": self.outcome, "brief": False}
            asked = study.plugins.ask("figures", study.faults, only=only, taking="brief", **known)
            found = [
                (plugin, one)
                for plugin, one in valid_answers(study, "figures", asked)
                if isinstance(one, Figure) and one.name not in self._shown
            ]
        for fault in study.faults[before:]:
            self._faults.setdefault(fault.plugin.name, []).append(fault)
        del study.faults[before:]
        return found

    def _report(self, faults: Sequence[Fault]) -> None:
        known = self.study.faults
        known.extend([fault for fault in faults if not any(fault is one for one in known)])


@pure_function
def _plugins_by_figure() -> dict[str, set[str]]:
    """Return the plugins that returned figures so far, by name of the figure; studies extend it."""
    return {}
