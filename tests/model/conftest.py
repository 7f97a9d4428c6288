"""A study of a catalogue model, for what the parts of the model say of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import parcost
from parcost import Study


@pytest.fixture(scope="session")
def study_of() -> Callable[..., Study]:
    """Bind a model of the catalogue, or one spelled out, on as many devices as the layout has.

    ``study_of("llama3_8b", layout="tp = 2", training="recompute = full")``
    """

    def make(
        model: str,
        *,
        layout: str = "",
        training: str = "",
        sequence: int = 2048,
        devices: int = 64,
        extra: str = "",
    ) -> Study:
        (scenario,) = parcost.load_text(
            f"""
            use catalog.devices.h100_sxm
            use catalog.fabrics.hgx_h100
            use catalog.precisions.bf16
            {f"use catalog.models.{model}" if "{" not in model else model}
            cluster {{ devices = {devices} }}
            layout {{ {layout} }}
            training {{ sequence = {sequence}, global_batch = 1024 sequences, {training} }}
            {extra}
            """
        )
        (study,) = scenario.studies()
        return study

    return make
