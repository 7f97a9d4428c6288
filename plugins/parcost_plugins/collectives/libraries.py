"""Communication libraries: the algorithms that ``auto`` may choose for each operation.

``collectives { library = nccl }`` names one. Otherwise the device names its vendor's library
(``device { library = nccl }``). ``any`` has every algorithm of all plugins, except those that must
be named. So a new algorithm of a plugin does not affect studies with a library.

NCCL and RCCL choose pairs of algorithm and protocol by a table, if the device has one. Without a
table they choose among textbook algorithms: ``nccl_text_book`` and ``rccl_text_book``. In these,
NCCL's *tree* is ``double_tree``. All-to-all, gathers and scatters are grouped messages,
``pairwise`` and ``linear``. ``mpi`` has the algorithms of MPICH and of Open MPI.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Library, Study, hookimpl
from parcost_plugins.collectives.nccl import library_release, pair_names
from parcost_plugins.vocabulary import Cluster, CollectiveChoice

ANY = "any"
_TABLED = ("nccl", "rccl")  # that choose by a table of their release
_MESSAGES = {
    "all_to_all": ("pairwise",),
    "scatter": ("linear",),
    "gather": ("linear",),
    "point_to_point": ("direct",),
}
_RINGS = {"broadcast": ("ring",), "reduce": ("ring",)}

_PAIRS = {
    operation: pair_names(operation)
    for operation in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
}
NCCL = Library(
    name="nccl",
    source="NCCL 2.30, src/graph/tuning.cc: pairs of algorithm and protocol; grouped messages else",
    algorithms={**_PAIRS, **_MESSAGES},
)
RCCL = Library(
    name="rccl",
    source="RCCL, src/graph/tuning.cc: pairs of algorithm and protocol; grouped messages else",
    algorithms={**_PAIRS, **_MESSAGES},
)
NCCL_TEXT_BOOK = Library(
    name="nccl_text_book",
    source="NCCL 2.30: algorithms estimated by rounds and bytes, without protocols",
    algorithms={
        "all_reduce": ("ring", "double_tree", "nvls", "collnet_direct", "collnet_chain"),
        "all_gather": ("ring", "nvls", "pat"),
        "reduce_scatter": ("ring", "nvls", "pat"),
        **_RINGS,
        **_MESSAGES,
    },
)
RCCL_TEXT_BOOK = Library(
    name="rccl_text_book",
    source="RCCL: algorithms estimated by rounds and bytes, without protocols",
    algorithms={
        "all_reduce": ("ring", "double_tree"),
        "all_gather": ("ring",),
        "reduce_scatter": ("ring",),
        **_RINGS,
        **_MESSAGES,
    },
)
MPI = Library(
    name="mpi",
    source="Thakur, Rabenseifner, Gropp 2005 (MPICH); Open MPI, coll/base",
    algorithms={
        "all_reduce": ("recursive_doubling", "halving_doubling", "ring", "tree"),
        "all_gather": ("recursive_doubling", "bruck", "ring"),
        "reduce_scatter": ("halving_doubling", "recursive_doubling", "pairwise", "ring"),
        "broadcast": ("tree", "van_de_geijn", "ring"),
        "reduce": ("tree", "halving_doubling", "ring"),
        "scatter": ("tree", "linear"),
        "gather": ("tree", "linear"),
        "all_to_all": ("bruck", "pairwise"),
        "point_to_point": ("direct",),
    },
)


@hookimpl
def libraries() -> list[Library]:
    """Return the libraries."""
    return [NCCL, RCCL, NCCL_TEXT_BOOK, RCCL_TEXT_BOOK, MPI]


@hookimpl
def library(study: Study) -> Iterator[str]:
    """Yield the name of the study's library, unless it is ``any``."""
    choice, cluster = study.get(CollectiveChoice), study.get(Cluster)
    name = "device" if choice is None else choice.library
    if name == "device":
        name = getattr(cluster.device, "library", ANY) if cluster is not None else ANY
    if name in _TABLED and library_release(study) is None:
        name = f"{name}_text_book"
    if name != ANY:
        yield name
