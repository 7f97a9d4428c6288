"""A plugin, its faults, and the interface to the set of plugins of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from attrs import field

from parcost.contract.queries import Memo
from parcost.contract.schema import BlockType
from parcost.language.diagnostics import one_line
from parcost.records import frozen, record


@frozen(eq=False)
class Plugin:
    """A plugin: its name, its distribution and its version."""

    name: str
    distribution: str = ""
    version: str = ""
    module: Any = field(default=None, repr=False)

    def __str__(self) -> str:
        came = one_line(" ".join(filter(None, (self.distribution, self.version))))
        return f"`{self.name}`" + (f" of {came}" if came else "")


@record(kw_only=True, eq=False)
class Fault:
    """A failure of a plugin, which makes the report incomplete."""

    plugin: Plugin
    hook: str
    message: str

    def __str__(self) -> str:
        """Return the line that names the plugin."""
        return f"plugin {self.plugin} failed in `{self.hook}`: {self.message}"

    @property
    def line(self) -> str:
        """The line in reports without the contributions of the plugin."""
        return f"incomplete: {self}"


class PluginSet(Protocol):
    """The plugins of a run; the interface that a study uses."""

    @property
    def blocks(self) -> Mapping[str, BlockType]:
        """Every block of the language, by keyword."""

    @property
    def broken(self) -> tuple[Fault, ...]:
        """The faults of plugins that are excluded from the run."""

    @property
    def foreign(self) -> tuple[Plugin, ...]:
        """The plugins that are not part of parcost itself."""

    @property
    def left_out(self) -> tuple[str, ...]:
        """The names of installed plugins that the user excluded from the run."""

    @property
    def absences(self) -> Sequence[str]:
        """A sentence for each excluded plugin, for diagnostics about something missing."""

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of plugins that are not installed."""

    @property
    def memo(self) -> Memo:
        """The cache of answers that studies share."""

    def offers(self, hook: str) -> Mapping[str, tuple[Plugin, Any]]:
        """Return the objects that plugins register under a hook, by name, with their plugins."""

    def implementers(self, hook: str) -> Sequence[Plugin]:
        """Return the plugins that implement *hook*, in the order of their calls."""

    def ask(
        self,
        hook: str,
        faults: list[Fault] | None = None,
        *,
        only: int | None = None,
        taking: str = "",
        **arguments: Any,
    ) -> Iterator[tuple[Plugin, Any]]:
        """Yield the contributions of each plugin to *hook*."""

    def record(self, fault: Fault) -> None:
        """Record a fault of a plugin that occurs while a study is evaluated."""
