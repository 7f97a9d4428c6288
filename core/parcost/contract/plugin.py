"""A plugin as reports name it, its faults, and the plugins of a run as a study asks them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from attrs import field, frozen

from parcost.contract.queries import Memo
from parcost.contract.schema import BlockType
from parcost.language.diagnostics import one_line
from parcost.records import record


@frozen(eq=False)
class Plugin:
    """One plugin: its name, and the distribution and version that it came in."""

    name: str
    distribution: str = ""
    version: str = ""
    module: Any = field(default=None, repr=False)

    def __str__(self) -> str:
        came = one_line(" ".join(filter(None, (self.distribution, self.version))))
        return f"`{self.name}`" + (f" of {came}" if came else "")


@record(kw_only=True, eq=False)
class Fault:
    """A plugin that failed: the report is incomplete."""

    plugin: Plugin
    hook: str
    message: str

    def __str__(self) -> str:
        """Return the line that names the plugin."""
        return f"plugin {self.plugin} failed in `{self.hook}`: {self.message}"


class PluginSet(Protocol):
    """The plugins of a run, as a study asks them."""

    @property
    def blocks(self) -> Mapping[str, BlockType]:
        """Every block of the language, by keyword."""
        ...

    @property
    def broken(self) -> tuple[Fault, ...]:
        """The faults of plugins that take no part."""
        ...

    @property
    def foreign(self) -> tuple[Plugin, ...]:
        """The plugins that come from outside of this distribution."""
        ...

    @property
    def left_out(self) -> tuple[str, ...]:
        """The names of installed plugins that the run does without."""
        ...

    @property
    def absences(self) -> Sequence[str]:
        """A sentence for each plugin that takes no part, for diagnostics of what is missing."""
        ...

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of plugins that are not installed."""
        ...

    @property
    def memo(self) -> Memo:
        """The answers that studies share."""
        ...

    def offers(self, hook: str) -> Mapping[str, tuple[Plugin, Any]]:
        """Return what plugins offer under a registry hook, by name."""
        ...

    def implementing(self, hook: str) -> Sequence[Plugin]:
        """Return the plugins that answer *hook*, in the order in which they are asked."""
        ...

    def ask(
        self,
        hook: str,
        faults: list[Fault] | None = None,
        *,
        only: int | None = None,
        **arguments: Any,
    ) -> Iterator[tuple[Plugin, Any]]:
        """Yield what each plugin contributes to *hook*."""
        ...

    def note(self, fault: Fault) -> None:
        """Keep a fault in an answer about a study."""
        ...
