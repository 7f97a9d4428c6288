"""Where the value of an attribute comes from."""

from __future__ import annotations

from parcost.language.text import Span
from parcost.records import record


@record(eq=False)
class Origin:
    """Where a value comes from.

    *how*: ``given`` in the study's file, ``imported``, ``default``, or ``set`` from
    outside. *kind* and *source* are the provenance (``measured``, ``vendor``,
    ``published``, ``assumed``, or "") as written. *expression* is the default's text.
    *word* is the one behind the value, such as ``per_direction``. *reason* is why a default is what
    it is, such as ``the only device``.
    """

    how: str
    span: Span | None = None
    kind: str = ""
    source: str = ""
    expression: str = ""
    word: str = ""
    reason: str = ""
