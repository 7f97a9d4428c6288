"""The origin of the value of an attribute."""

from __future__ import annotations

from parcost.language.text import Span
from parcost.records import record


@record(eq=False)
class Origin:
    """The origin of a value.

    *how*: ``given`` in the study's file, ``imported``, ``default``, or ``set`` from outside. *kind*
    and *source* are the provenance as written (``measured``, ``vendor``, ``published``,
    ``assumed``, or ""). *expression* is the text of a default. *word* is the qualifier of the
    value, such as ``per_direction``. *reason* explains a default, such as ``the only device``.
    """

    how: str
    span: Span | None = None
    kind: str = ""
    source: str = ""
    expression: str = ""
    word: str = ""
    reason: str = ""
