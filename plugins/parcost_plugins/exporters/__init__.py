"""The formats that reports are written in.

``table`` is for people, ``md`` for pull requests, ``json`` and ``jsonl`` for programs, ``csv``
for spreadsheets, and ``parquet`` for what has more rows than those take. Each is a plugin of
its own, as a third party's format would be.
"""

PARTS = (
    "csv",
    "json",
    "jsonl",
    "markdown",
    "parquet",
    "table",
)
