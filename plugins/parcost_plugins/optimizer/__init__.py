"""The optimizer's update: a stream over the state of the parameters that a rank updates."""

from __future__ import annotations

from parcost import Formula, Once, Study, hookimpl
from parcost_plugins.vocabulary import Cluster, KernelChoice, Layout, Training
from parcost_plugins.vocabulary.held import alike


@hookimpl
def terms(study: Study) -> list[Once]:
    """Price the update, after every stage has drained.

    Under ZeRO a rank updates its share of the parameters only. The update reads and
    writes more than any other kernel, so it runs at the rate of large streams.
    """
    layout, device = study[Layout], study[Cluster].device
    chosen = study[KernelChoice].memory_efficiency
    efficiency = device.memory_efficiency if chosen is None else chosen
    traffic = study[Training].precision.update_traffic
    shards = layout.dp if layout.zero else 1.0
    found = []
    for kind in alike(study):
        bytes_ = traffic * kind.elements / shards
        formula = Formula(
            text="u psi / (N B eta)",
            inputs={
                "u": (traffic, "B"),
                "psi": (kind.elements, ""),
                "N": (shards, ""),
                "B": (device.memory_bandwidth, "B/s"),
                "eta": (efficiency, ""),
            },
            source="Adam with an fp32 master copy reads and writes all of its state once",
        )
        found.append(
            Once(
                name=kind.named("optimizer update"),
                seconds=bytes_ / (device.memory_bandwidth * efficiency),
                formula=formula,
                when="end",
                count=kind.count,
                resource="hbm",
                bytes_=bytes_,
            )
        )
    return found
