"""The subjects that affect step time, each with the words by which keys of tools are recognized."""

from __future__ import annotations

from collections.abc import Sequence

from parcost import ImportSubject
from parcost_formats.tools.tables import table

#: Every subject, in the order of the table.
SUBJECTS: Sequence[ImportSubject] = tuple(
    ImportSubject(
        name=name,
        attributes=tuple(row["attributes"]),
        words=tuple(row.get("words", ())),
        within=row.get("within", ""),
        answers=tuple(row.get("answers", ())),
    )
    for name, row in table("subjects").items()
)
#: Those of a file that only describes a model.
MODEL_SUBJECTS = tuple(one for one in SUBJECTS if one.within.startswith("model"))
