"""The line rates of systems in the catalogue, by device."""

from __future__ import annotations

import re

import parcost
from parcost import Curve
from parcost_plugins.vocabulary import Cluster


def line_rate(device: str, *, outermost: bool) -> tuple[float, str] | None:
    """Return the B/s of the fastest port of systems with *device*, and the system; None if none.

    *device* is the name in the log: ``NVIDIA H100 80GB HBM3`` for ``h100_sxm``.
    """
    words = set(re.split(r"[^a-z0-9]+", device.lower()))
    found: list[tuple[float, str]] = []
    for system in _systems() if device else ():
        (scenario,) = parcost.load_text(f"use catalog.systems.{system}\n{_QUESTION}")
        cluster = scenario.evaluate().result.study[Cluster]
        if parcost.block_name(cluster.device).partition("_")[0] in words and cluster.fabric.levels:
            rate = cluster.fabric.levels[-1 if outermost else 0].bandwidth
            if not isinstance(rate, Curve):
                found.append((float(rate), system))
    return max(found, default=None)


#: A study needs a question.
_QUESTION = (
    "transfer t { operation = point_to_point, size = 1 B, ranks = 2, latency = 1 us\n"
    "bandwidth = 1 GB/s per_direction }"
)


def _systems() -> list[str]:
    from parcost.plugins.discovery import load

    _, catalogue = load().offers("catalogues")["catalog"]
    files = (catalogue.root / "systems").iterdir()
    return sorted(f.name.removesuffix(".par") for f in files if f.name.endswith(".par"))
