"""The catalogue of parcost: devices, fabrics, models, precision recipes, defaults.

It is data, not code: one labelled block per file, named like its file, every value with its
provenance. This module only returns the location of the files, through the same hook as a site's
own catalogue. ``defaults.par`` is the file from which every study starts, and ``example.par`` an
example to begin with.
"""

from importlib.resources import files

from parcost import Catalogue, hookimpl


@hookimpl
def catalogues() -> list[Catalogue]:
    """Return the directory of this package as the catalogue ``catalog``."""
    return [
        Catalogue(
            name="catalog",
            root=files(__name__),
            prelude="defaults.par",
            example="example.par",
            doc="Public devices, fabrics, models and precision recipes, with their sources",
        )
    ]
