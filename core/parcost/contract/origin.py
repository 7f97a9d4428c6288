"""Where the value of an attribute comes from."""

from __future__ import annotations

from parcost.language.text import Span
from parcost.records import record


@record(eq=False)
class Origin:
    """Where a value comes from.

    *how*: ``given`` in the study's file, ``imported``, ``default``, or ``set`` from
    outside. *kind* and *source* are the provenance (``measured``, ``vendor``,
    ``published``, ``assumed``, or "") as written. *expression* is the default's text, and
    *word* the one behind the value, such as ``per_direction``.
    """

    how: str
    span: Span | None = None
    kind: str = ""
    source: str = ""
    expression: str = ""
    word: str = ""
