"""A study of a small model on an H100, with the kernel block that a test wants."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import parcost
from parcost import Study
from parcost.plugins.discovery import load


@pytest.fixture(scope="session")
def study_with() -> Callable[..., Study]:
    """Bind Llama 3 8B on one device: ``study_with("model = constant")``."""

    def make(
        kernels: str = "",
        *extra: tuple[str, object],
        device: str = "h100_sxm",
        compute: str = "bf16",
        recipe: str = "",
        micro_batch: str = "1",
    ) -> Study:
        (scenario,) = parcost.load_text(
            f"""
            use catalog.devices.{device}
            use catalog.fabrics.hgx_h100
            use catalog.precisions.bf16
            use catalog.models.llama3_8b
            precision recipe extends bf16 {{ compute = {compute}, {recipe} }}
            cluster {{ devices = 1 }}
            training {{
              precision = recipe, sequence = 4096, global_batch = 8 sequences
              micro_batch = {micro_batch}
            }}
            kernels {{ {kernels} }}
            """,
            plugins=load(*extra) if extra else None,
        )
        (study,) = scenario.studies()
        return study

    return make
