"""A rule underlines the value to change, and hides what follows from its failure."""

from __future__ import annotations

from collections.abc import Mapping

import parcost
from parcost import Diagnostic

from ..rows import try_each

SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.{model}
use catalog.precisions.bf16
cluster {{ devices = {devices} }}
layout {{ {layout}, zero = 1, sequence_parallel = on }}
training {{ sequence = 8192, micro_batch = 1, global_batch = {batch} sequences }}
"""


def failures(
    layout: str,
    *,
    devices: int = 64,
    batch: int = 64,
    model: str = "llama3_70b",
    overrides: Mapping[str, str] | None = None,
) -> dict[str, Diagnostic]:
    """Return the diagnostics of a study by id, in their order."""
    text = SPEC.format(model=model, devices=devices, layout=layout, batch=batch)
    (scenario,) = parcost.load_text(text, overrides=overrides or {})
    return {d.id: d for d in scenario.check()}


@try_each(
    "layout, devices, overrides, id, underlined, help",
    [
        # 3 divides no power of two; 64 heads and the sequence are divisible by 2 and 4
        ("tp = 3, pp = 4", 64, {}, "devices-divide", "tp = 3", "tp = 2 or 4 divides"),
        ("tp = 8, pp = 7", 64, {}, "devices-divide", "pp = 7", "pp = 4 or 8 divides"),
        # 4 x 16 = 64 of 96 devices: 4 | 96 and 16 | 96, so the value set last is to blame
        ("tp = 4, pp = 2", 96, {"layout.pp": "16"}, "devices-divide", "layout.pp = 16", "pp = "),
        ("tp = 2, pp = 16", 96, {"layout.tp": "4"}, "devices-divide", "layout.tp = 4", "tp = 2"),
        # 60 devices are set: tp 8 x pp 4 were valid before
        (
            "tp = 8, pp = 4",
            64,
            {"cluster.devices": "60"},
            "devices-divide",
            "cluster.devices = 60",
            "take 32 or 64",
        ),
        ("tp = 6, pp = 9", 64, {}, "devices-divide", "devices = 64", "take 54 or 108 devices"),
        ("tp = 8, pp = 4", 16, {}, "devices-few", "devices = 16", "take 32 devices"),
        ("tp = 8, pp = 1", 16, {"layout.pp": "4"}, "devices-few", "layout.pp = 4", "take 32"),
    ],
)
def test_the_value_that_can_be_changed_is_underlined(
    layout: str,
    devices: int,
    overrides: dict[str, str],
    id: str,
    underlined: str,
    help: str,
) -> None:
    found = failures(layout, devices=devices, overrides=overrides)[id]
    (label,) = found.labels
    assert label.span.text == underlined
    assert (found.help or "").startswith(help)


@try_each(
    "model, layout, overrides, errors, hidden",
    [
        ("llama3_70b", "tp = 8, pp = 4", {"cluster.devices": "1"}, "devices-few", "zero-alone"),
        ("llama3_70b", "tp = 8, pp = 1", {"layout.dp": "3"}, "layout-product", "batch-divides"),
        ("llama3_70b", "tp = 8, pp = 4", {"layout.pp": "7"}, "devices-divide", "layers-uneven"),
        (
            "mixtral_8x7b",
            "tp = 2, pp = 4, ep = 8",
            {"cluster.devices": "2"},
            "devices-few",
            "experts-ranks",
        ),
    ],
)
def test_what_follows_from_an_error_is_hidden_until_it_is_fixed(
    model: str, layout: str, overrides: dict[str, str], errors: str, hidden: str
) -> None:
    found = failures(layout, model=model, overrides=overrides)
    assert list(found) == [errors]
    assert any(hidden in note for note in found[errors].notes)
    if hidden == "batch-divides":  # 64 sequences are not divisible by 3 replicas of 24 devices
        valid = failures(layout, devices=24, overrides=overrides)
        assert list(valid) == [hidden]
