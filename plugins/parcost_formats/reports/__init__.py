"""The formats that reports are written in.

``table`` is for terminals, ``md`` for pull requests, ``json`` and ``jsonl`` for programs. ``csv``
is for spreadsheets, and ``parquet`` for more rows than a spreadsheet holds. ``github``, ``junit``
and ``sarif`` are for continuous integration. Each is a separate plugin, like a format of a third
party. Formats with pictures are in :mod:`parcost_formats.html`.
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
