"""Limits for changes: ``--fail-on 'step_time > +2 %'``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from operator import ge, gt, le, lt
from typing import Self

from parcost.records import record
from parcost_apps.diff.changes import NumberChange, StudyChange

_RELATIONS: Mapping[str, Callable[[float, float], bool]] = {">": gt, ">=": ge, "<": lt, "<=": le}
_TEXT = re.compile(
    r"\s*(?P<figure>[A-Za-z_][\w.]*)\s*(?P<relation>>=|<=|>|<)\s*"
    r"(?P<number>[+-]?\s*\d+(?:\.\d+)?)\s*%\s*"
)


class ThresholdError(ValueError):
    """The text is not a threshold."""


@record
class Threshold:
    """A limit for the change of a figure; *limit* is relative to the figure before.

    >>> Threshold.parse("step_time > +2 %")
    Threshold(figure='step_time', relation='>', limit=0.02)
    """

    figure: str
    relation: str
    limit: float

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the threshold in *text*.

        Raises:
            ThresholdError: The text is not a threshold.
        """
        found = _TEXT.fullmatch(text)
        if found is None:
            message = f"`{text}` is not a limit; write 'step_time > +2 %'"
            raise ThresholdError(message)
        number = float(found["number"].replace(" ", ""))
        return cls(found["figure"], found["relation"], number / 100)

    def is_met(self, change: StudyChange) -> bool:
        """Return whether the change of the figure exceeds the limit."""
        number = change.figure(self.figure)
        return number is not None and self._holds(number)

    def _holds(self, number: NumberChange) -> bool:
        if number.before is None or number.after is None:
            return False
        return _RELATIONS[self.relation](number.relative, self.limit)

    def __str__(self) -> str:
        """Return the threshold as it is written."""
        return f"{self.figure} {self.relation} {100 * self.limit:+.4g} %"
