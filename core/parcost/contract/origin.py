"""The origin of the value of an attribute."""

from __future__ import annotations

from parcost.language.text import Span
from parcost.records import record

#: Kinds of provenance that the catalogue has; a spec may have others.
PROVENANCES = {
    "measured": "measured: on what, and with what",
    "published": "in a paper, or in the source of a library",
    "vendor": "in a data sheet of the vendor",
    "fitted": "fitted to measurements: which",
    "assumed": "nothing says it: why it is plausible",
}


@record(eq=False)
class Origin:
    """The origin of a value.

    *how*: ``given`` in the study's file, ``imported``, ``default``, or ``set`` from outside. *kind*
    and *source* are the provenance as written (``measured``, ``vendor``, ``published``,
    ``assumed``, or ""). *expression* is the text of a default. *word* is the qualifier after the
    value, such as ``per_direction``. *reason* explains a default, such as ``the only device``.
    """

    how: str
    span: Span | None = None
    kind: str = ""
    source: str = ""
    expression: str = ""
    word: str = ""
    reason: str = ""
