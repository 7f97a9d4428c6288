"""The formats that reports are written in.

``table`` is for people, ``md`` for pull requests, ``json`` for programs and ``csv`` for
spreadsheets. Each is a plugin of its own, as a third party's format would be.
"""
