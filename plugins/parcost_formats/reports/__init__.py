"""The formats that reports are written in.

``table`` is for people, ``md`` for pull requests, ``json`` and ``jsonl`` for programs. ``csv`` is
for spreadsheets, and ``parquet`` for more rows than a spreadsheet holds. ``github``, ``junit`` and
``sarif`` are for continuous integration. Each is a plugin of its own, as a third party's format
would be. Formats with pictures are in :mod:`parcost_formats.html`.
"""

PARTS = (
    "annotations",
    "csv",
    "json",
    "jsonl",
    "junit",
    "markdown",
    "parquet",
    "table",
)
