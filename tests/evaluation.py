"""Results of specs, and what studies contribute, for tests of any folder."""

from __future__ import annotations

from typing import Any

import parcost
from parcost import Figure, Memory, Outcome, Study
from parcost.contract.plugin import Plugin


def result(text: str) -> Any:
    """Return the result of the only study of a spec."""
    (scenario,) = parcost.load_text(text)
    return scenario.evaluate().result


def faultless_result(text: str) -> Any:
    """Return the result of the only study of a spec, in which no plugin fails."""
    found = result(text)
    assert found.faults == ()
    return found


def calculate(text: str) -> dict[str, Any]:
    """Return the calculations of the first study of a spec, by name."""
    (scenario,) = parcost.load_text(text)
    study = scenario.studies()[0]
    found = [answer for _, answer in study.contributions("calculations")]
    assert study.faults == []
    return {one.name: one.value for one in found if isinstance(one, parcost.Figure)}


def details_of(study: Study, outcome: Outcome) -> list[tuple[Plugin, Figure]]:
    """Return the figures of a step that are computed on demand, with their plugins."""
    known: dict[str, Any] = {"study": study, "outcome": outcome, "brief": False}
    asked = study.plugins.ask("figures", taking="brief", **known)
    return [(plugin, one) for plugin, one in asked if isinstance(one, Figure)]


def model_memory(study: Study) -> list[Memory]:
    """Return the memory terms of the plugins of the model."""
    stamped = study.contributions("memory")
    return [term for plugin, term in stamped if plugin.name.startswith("model.")]
