"""Studies of mixtures of experts on nodes of eight devices."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import parcost
from parcost import Study


@pytest.fixture(scope="session")
def mixture() -> Callable[..., Study]:
    """Bind a study: ``mixture("ep = 64", "node_limit = 4", devices=64)``.

    Links are as fast as their data sheets: 450 GB/s in a node, 50 GB/s between nodes,
    without latency unless *latency* gives one, or those of *fabric*, which *extra* describes.
    """

    def make(
        layout: str = "",
        routing: str = "",
        *,
        model: str = "use catalog.models.deepseek_v3",
        training: str = "",
        devices: int = 64,
        latency: str = "0 us",
        fabric: str = "plain",
        extra: str = "",
    ) -> Study:
        (scenario,) = parcost.load_text(
            f"""
            use catalog.devices.h100_sxm
            use catalog.precisions.bf16
            {model}
            fabric plain {{
              level node {{ size = 8 devices, bandwidth = 450 GB/s per_direction, latency = {latency} }}
              level net {{ bandwidth = 50 GB/s per_direction, latency = {latency} }}
            }}
            cluster {{ devices = {devices}, fabric = {fabric} }}
            layout {{ {layout} }}
            training {{ sequence = 4096, global_batch = 1024 sequences, {training} }}
            routing {{ {routing} }}
            {extra}
            """
        )
        (study,) = scenario.studies()
        return study

    return make
