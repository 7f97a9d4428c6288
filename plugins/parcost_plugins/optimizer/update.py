"""The end of a step: the norm of the gradients, clipping, and the optimizer's update.

Under ZeRO a rank does all three for its share only. They read and write more than any
other kernel, so they run at the rate of large streams.

The norm itself is summed over every device of the job, a number each. No group of the
layout is all of them, and the reduction takes microseconds: it is left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Formula, Once, Real, Study
from parcost_plugins.vocabulary import Cluster, KernelChoice, Layout, Training
from parcost_plugins.vocabulary.held import alike


def clipping(study: Study) -> Iterator[Once]:
    """Price the norm, which reads every gradient, and the scaling, which rewrites them."""
    traffic = study[Training].precision.norm_traffic
    source = "the norm reads each gradient once, clipping reads and writes it"
    yield from _streams(study, "gradient norm and clipping", traffic, source)


def update(study: Study) -> Iterator[Once]:
    """Price the optimizer."""
    traffic = study[Training].precision.update_traffic
    source = "Adam with an fp32 master copy reads and writes all of its state once"
    yield from _streams(study, "optimizer update", traffic, source)


def _streams(study: Study, name: str, traffic: Real, source: str) -> Iterator[Once]:
    """Yield *traffic* bytes for each parameter that a rank updates."""
    layout, device = study[Layout], study[Cluster].device
    chosen = study[KernelChoice].memory_efficiency
    efficiency = device.memory_efficiency if chosen is None else chosen
    shards = layout.dp if layout.zero else 1.0
    for kind in alike(study):
        bytes_ = traffic * kind.elements / shards
        yield Once(
            name=kind.named(name),
            seconds=bytes_ / (device.memory_bandwidth * efficiency),
            formula=Formula(
                text="u psi / (N B eta)",
                inputs={
                    "u": (traffic, "B"),
                    "psi": (kind.elements, ""),
                    "N": (shards, ""),
                    "B": (device.memory_bandwidth, "B/s"),
                    "eta": (efficiency, ""),
                },
                source=source,
            ),
            when="end",
            count=kind.count,
            resource="hbm",
            bytes_=bytes_,
        )
