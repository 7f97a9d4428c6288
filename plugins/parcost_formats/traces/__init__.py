"""The formats of timelines.

``table`` draws passes for terminals, and ``json`` lists them for programs. ``perfetto`` is a trace
of the whole step for the viewers of Perfetto and Chrome. ``chakra`` are execution traces, one for
each rank, which simulators such as astra-sim replay. Each is a separate plugin, like a format of a
third party.
"""

from pathlib import Path

from parcost import Rulebook, hookimpl

PARTS = (
    "chakra",
    "json",
    "perfetto",
    "table",
)


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Return the rulebook of the exporters, with a page for each rule."""
    return [Rulebook(name="traces", file=Path(__file__).with_name("rules.toml"))]
