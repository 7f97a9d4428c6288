"""The first fields of every JSON document.

Importing this module is cheap: a cached result is printed without the rest of the package.
"""

from __future__ import annotations

from typing import Any

from parcost.version import __version__

#: Raised by every change of the names of a report, except additions.
SCHEMA_VERSION = 1


def header() -> dict[str, Any]:
    """Return the versions of the schema and of parcost."""
    return {"schema_version": SCHEMA_VERSION, "parcost_version": __version__}
