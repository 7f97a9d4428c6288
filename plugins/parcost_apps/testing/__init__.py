"""Contract tests: requirements for every plugin, as pytest classes.

A test module of a plugin derives from a contract class, and sets its attributes:

    from parcost_apps.testing import PluginContract, ScheduleContract

    class TestSchedule(ScheduleContract):
        schedule = EAGER_1F1B

    class TestPlugin(PluginContract):
        plugin, name, spec = parcost_eager_1f1b, "eager_1f1b", SPEC

pytest collects the tests of the contract with the class. The plugins of parcost pass the same
tests. The tests need pytest, which is not a dependency of parcost.
"""

from parcost_apps.testing.collectives import CollectiveContract, PlainLink, one_level, two_levels
from parcost_apps.testing.exporters import ExporterContract
from parcost_apps.testing.formula_text import compute
from parcost_apps.testing.importers import ImporterContract
from parcost_apps.testing.plugins import PluginContract, plugins_with
from parcost_apps.testing.schedules import ScheduleContract
from parcost_apps.testing.simulator import simulate

__all__ = [
    "CollectiveContract",
    "ExporterContract",
    "ImporterContract",
    "PlainLink",
    "PluginContract",
    "ScheduleContract",
    "compute",
    "one_level",
    "plugins_with",
    "simulate",
    "two_levels",
]
