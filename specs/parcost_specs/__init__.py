"""The catalogue that parcost ships: devices, fabrics, models, precision recipes, defaults.

It is data, not code: one labelled block per file, named like its file, every value with
its provenance. This module only says where the files are, through the same hook that a
site's own catalogue would use. ``defaults.par`` is the file from which every study
starts, and ``example.par`` one to begin with.
"""

from importlib.resources import files

from parcost import Catalogue, hookimpl


@hookimpl
def catalogues() -> list[Catalogue]:
    """Offer the directory of this package as ``catalog``."""
    return [
        Catalogue(
            name="catalog",
            root=files(__name__),
            prelude="defaults.par",
            example="example.par",
            doc="Public devices, fabrics, models and precision recipes, with their sources",
        )
    ]
