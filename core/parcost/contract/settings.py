"""Settings of other tools: a study as command-line flags, or as a configuration file.

A writer converts a study to a text; it may omit attributes. The core reads the text back with the
importer of the same tool. It compares each attribute with that of the study. Differences are
printed in the text and on stderr. So every difference is reported.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from parcost.records import record

if TYPE_CHECKING:
    from parcost.contract.study import Study


@record(kw_only=True)
class SettingsProblem:
    """The reason why a tool cannot run a study; *attribute* is its cause, such as ``layout.pp``."""

    attribute: str
    message: str
    help: str = ""


@record(kw_only=True)
class ToolSettings:
    """The settings of a study as the *text* of a file, without comments about their origin.

    *same* are attributes, or blocks, whose values are written differently at the same cost. Each
    has a reason, such as "there is only one pipeline stage". For essential ones the core evaluates
    both values, and rejects a difference. *needs* are settings that the tool requires, but that a
    study does not have.
    """

    text: str = ""
    same: Mapping[str, str] = MappingProxyType({})
    needs: Sequence[str] = ()
    problems: Sequence[SettingsProblem] = ()


class SettingsWriter(ABC):
    """The settings of a tool: ``parcost export NAME``, ``parcost search --emit NAME``.

    *title* is the tool with the versions for which the names are valid. *source* is their
    documentation. *suffix* is the suffix of its files, *comment* the start of a comment; empty if
    files have none. *reader* is the importer that reads the text back.

    Attributes are named by their path, ``schedule.kind``, and blocks by their kind.
    """

    name: str
    title: str
    reader: str
    source: str = ""
    suffix: str = ".txt"
    comment: str = "#"
    #: Blocks and attributes that are not settings: of the machine, of questions about a run.
    outside: Collection[str] = ()
    #: Attributes and blocks without which the tool would run another job: an error if they differ.
    essential: Collection[str] = ()
    #: Why the tool has no setting for an attribute or a block.
    reasons: Mapping[str, str] = MappingProxyType({})

    @abstractmethod
    def write(self, study: Study) -> ToolSettings:
        """Return the settings of a study without sweeps."""
