"""Modules of parcost that a plugin may import: the list of the guide, which tests read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

#: The packages beside the core.
PACKAGES = ("parcost_apps", "parcost_formats", "parcost_measured", "parcost_plugins")
#: Open to all plugins. A module is open with all that is in it; of `parcost`, only the names are.
TO_ALL = ("parcost", "parcost.numeric", "parcost_plugins.vocabulary", "parcost_plugins.physics")
_CORE = ("parcost.contract", "parcost.language", "parcost.system")
_TO_FORMATS = (*_CORE, "parcost_formats.rendering")
#: Open to some kinds of plugins.
TO_KINDS: Mapping[str, Sequence[str]] = {
    "importer": ("parcost.language.writer", "parcost_formats.rendering.resolved_spec"),
    "format": _TO_FORMATS,
    "command": (
        *_TO_FORMATS,
        "parcost.plugins",
        "parcost.report",
        "parcost_apps.batch",
        "parcost_apps.cli",
        "parcost_apps.options",
        "parcost_formats.imports",
    ),
    "test": ("parcost.plugins.discovery", "parcost_apps.testing"),
}


def is_open(name: str, kinds: Sequence[str] = tuple(TO_KINDS)) -> bool:
    """Return whether a plugin of one of *kinds* may import the module *name*.

    >>> is_open("parcost.language.writer", ["importer"]), is_open("parcost.engine.replay")
    (True, False)
    >>> is_open("parcost_plugins.vocabulary.layout", ()), is_open("parcost_hello.terms", ())
    (True, True)
    """
    known = (*TO_ALL[1:], *(one for kind in kinds for one in TO_KINDS[kind]))
    inside = any(f"{name}.".startswith(f"{one}.") for one in known)
    return inside or name == "parcost" or name.partition(".")[0] not in ("parcost", *PACKAGES)
