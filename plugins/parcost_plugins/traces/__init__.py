"""The formats that timelines are written in.

``table`` draws passes for people, and ``json`` lists them for programs. ``perfetto`` is a trace of
the whole step for the viewers of Perfetto and Chrome. ``chakra`` are execution traces, one for
each rank, which simulators such as astra-sim replay. Each is a plugin of its own, as a third
party's format would be.
"""

PARTS = (
    "chakra",
    "json",
    "perfetto",
    "table",
)
