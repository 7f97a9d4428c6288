"""The origin of the value of an attribute."""

from __future__ import annotations

from parcost.language.text import Span
from parcost.records import record

#: Kinds of provenance that the catalogue has; a spec may have others.
PROVENANCES = {
    "measured": "measured; the source is the device and the software",
    "published": "from a paper or the source code of a library",
    "vendor": "from a data sheet of the vendor",
    "fitted": "fitted; the source is the measurements",
    "assumed": "assumed, without a source; the text says why it is plausible",
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
