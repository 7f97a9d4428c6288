"""Every file of the catalogue is one block with a source for each of its values."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

import parcost
import parcost_specs
from parcost import Curve, Study
from parcost.language.format import format_text
from parcost_plugins.vocabulary import (
    Accuracy,
    AttentionTable,
    Cluster,
    Device,
    Fabric,
    Family,
    Framework,
    Model,
    Precision,
    Quantization,
    Tuning,
)
from parcost_specs import catalogues

from ..rows import try_each

ROOT = Path(parcost_specs.__file__).parent
STUDIES = ("defaults.par", "example.par")
FILES = sorted(p for p in ROOT.rglob("*.par") if p.name not in STUDIES)
NAMES = [".".join(p.relative_to(ROOT).with_suffix("").parts) for p in FILES]
KINDS: dict[str, type] = {
    "accuracy": Accuracy,
    "attention_tables": AttentionTable,
    "devices": Device,
    "fabrics": Fabric,
    "families": Family,
    "frameworks": Framework,
    "models": Model,
    "precisions": Precision,
    "quantizations": Quantization,
    "systems": Cluster,
    "tunings": Tuning,
}


@cache
def study_of(name: str) -> Study:
    return parcost.load_text(f"use catalog.{name}\n")[0].studies()[0]


def labelled(study: Study, kind: type, label: str) -> Any:
    """The block of a kind that carries a label, beside what a prelude gives every study."""
    return next(block for block in study.all(kind) if block.label == label)


def blocks_of(study: Study, name: str) -> list[Any]:
    """The block of a catalogue file and those inside it."""
    folder, label = name.split(".")
    block: Any = labelled(study, KINDS[folder], label)
    inside = (
        "levels",
        "protocols",
        "generations",
        "hosts",
        "kernels",
        "heads",
        "observed",
    )
    found = [block]
    for one in found:
        for nested in (getattr(one, name, ()) for name in inside):
            found += nested if isinstance(nested, tuple) else ()
    return found


def values_of(study: Study, block: Any) -> list[tuple[str, Any]]:
    """The attributes of a block that a file wrote, with their origins."""
    fields = type(block).__block__.fields
    origins = [(name, study.origin(block, name)) for name in fields]
    return [(name, o) for name, o in origins if o is not None and o.how != "default"]


def test_the_catalogue_is_offered_through_the_hook() -> None:
    (catalogue,) = catalogues()
    assert catalogue.name == "catalog"
    assert (catalogue.root / catalogue.prelude).is_file()


@pytest.mark.slow
@try_each("name", NAMES)
def test_a_file_binds_to_one_block_of_its_own_name(name: str) -> None:
    folder, label = name.split(".")
    assert labelled(study_of(name), KINDS[folder], label)


@pytest.mark.slow
@try_each("name", NAMES)
def test_every_value_says_where_it_comes_from(name: str) -> None:
    study = study_of(name)
    values = [(b, n, o) for b in blocks_of(study, name) for n, o in values_of(study, b)]
    assert values
    silent = [f"{b.label}.{n}" for b, n, o in values if not o.kind or not o.source]
    assert silent == []


@pytest.mark.parametrize("kind", ["kernels", "overlap", "memory"])
def test_every_default_of_a_study_says_where_it_comes_from(kind: str) -> None:
    study = parcost.load_text("use catalog.devices.h100_sxm\n")[0].studies()[0]
    (block,) = (b for (b,) in study.blocks.values() if type(b).__block__.kind == kind)
    values = values_of(study, block)
    assert values
    assert [name for name, o in values if not o.kind or not o.source] == []


def test_the_accelerators_that_people_train_on_are_there() -> None:
    nvidia = {"v100_sxm2_32g", "a100_sxm_40g", "a100_sxm_80g", "h100_sxm", "h100_pcie"}
    nvidia |= {"h200_sxm", "h800_sxm", "b200", "gb200"}
    assert {f"devices.{name}" for name in nvidia | {"mi250x_gcd", "mi300x"}} <= set(NAMES)


# Peak of 16-bit products from the clock (GHz), the matrix units and their FLOP per cycle.
CLOCKS = {
    "v100_sxm2_32g": 1.53 * 640 * 128,
    "a100_sxm_80g": 1.41 * 432 * 512,
    "h100_sxm": 1.83 * 528 * 1024,
    "mi250x_gcd": 1.7 * 440 * 256,
    "mi300x": 2.1 * 1216 * 512,
}


@try_each("name", CLOCKS)
def test_a_dense_peak_follows_from_clock_and_units(name: str) -> None:
    device = study_of(f"devices.{name}")[Device]
    assert device.fp16 == pytest.approx(CLOCKS[name] * 1e9, rel=4e-3)


@try_each("name", [n for n in NAMES if n.startswith("devices.")])
def test_a_wider_type_is_never_faster(name: str) -> None:
    device = study_of(name)[Device]
    sixteen = device.fp16 if device.bf16 is None else device.bf16
    wide_to_narrow = [device.fp32, device.tf32, sixteen, device.fp8, device.fp4]
    known = [peak for peak in wide_to_narrow if peak is not None]
    assert known == sorted(known)
    if name != "devices.mi100" and None not in (device.bf16, device.fp16):
        assert device.bf16 == device.fp16


@try_each("name", [n for n in NAMES if n.startswith("devices.")])
def test_attention_is_below_the_peak_and_the_usual_kernel_is_known(name: str) -> None:
    study = study_of(name)
    device = study[Device]
    table = device.attention
    assert table is not None
    assert table.find(table.auto, "wide") is not None
    origin = study.origin(device, "attention")
    assert origin is not None
    if table.label == "customary_kernels":
        assert origin.kind == "assumed"
    for kernel in table.kernels:
        for head in kernel.heads:
            for share in (head.forward, head.backward):
                # The least: PyTorch's memory-efficient kernel, backward with heads of 256.
                assert 0.03 < share * device.attention_efficiency < 0.95


# What one device can send, in GB/s one way: the vendors' bidirectional totals halved.
SCALE_UP = {
    "dgx_v100": 150,
    "dgx_a100": 300,
    "hgx_h100": 450,
    "hgx_h800": 200,
    "hgx_b200": 900,
    "nvl72": 900,
    "mi300x_node": 64,
}


@try_each("name", SCALE_UP)
def test_a_link_is_counted_in_one_direction(name: str) -> None:
    first = study_of(f"fabrics.{name}")[Fabric].levels[0]
    assert first.bandwidth == SCALE_UP[name] * 1e9


# Ring bus bandwidth that was measured on one domain, GB/s.
MEASURED = {"dgx_v100": 122, "dgx_a100": 235, "hgx_h100": 367.6, "hgx_b200": 682, "nvl72": 680}


@try_each("name", MEASURED)
def test_bandwidth_times_efficiency_is_what_was_measured(name: str) -> None:
    first = study_of(f"fabrics.{name}")[Fabric].levels[0]
    assert not isinstance(first.bandwidth, Curve)
    assert first.bandwidth * first.efficiency == pytest.approx(MEASURED[name] * 1e9, rel=0.01)


# weights, gradients, optimizer: bytes per parameter. What FP8 and FP4 recipes cast for products
# are copies; only parameters that are narrow themselves (fp8-param-gather) change the weights.
# No recipe makes gradients, or their sums over ranks, narrower than 16 bits.
RECIPES = {
    "bf16": (2, 4, 12),
    "bf16_zero_paper": (2, 2, 12),
    "bf16_zero": (2, 2, 12),
    "fp16_zero": (2, 2, 12),
    "bf16_fsdp": (4, 4, 8),
    "bf16_autocast": (4, 4, 8),
    "bf16_deepseek": (2, 4, 8),
    "bf16_light": (2, 2, 8),
    "bf16_pure": (2, 2, 4),
    "fp16": (2, 2, 16),
    "fp32": (4, 4, 8),
    "tf32": (4, 4, 8),
    "bf16_adam8": (2, 4, 4 + 1 + 1),
    "bf16_sgd": (2, 2, 4 + 4),
    "fp8_delayed": (2, 4, 12),
    "fp8_current": (2, 4, 12),
    "fp8_blockwise": (2, 4, 12),
    "fp8_tensor_gather": (2, 4, 12),
    "fp8_deepseek": (2, 4, 4 + 2 + 2),
    "fp8_param_gather": (1, 4, 12),
    "mxfp8": (2, 4, 12),
    "nvfp4": (2, 4, 12),
    # NeMo and Megatron-Bridge reduce gradients in bf16; two MXFP8 copies have a scale for 32 elements.
    "bf16_nemo": (2, 2, 12),
    "fp8_delayed_nemo": (1, 2, 12),
    "fp8_current_nemo": (1, 2, 12),
    "mxfp8_nemo": (2 * (1 + 1 / 32), 2, 12),
    "bf16_deepspeed": (2, 4, 12),  # and 2 of gradients in bf16 beside them
    "fp8_torchao": (4, 4, 8),
    "fp8_torchao_rows": (4, 4, 8),
}


@try_each("name", [n for n in NAMES if n.startswith("precisions.")])
def test_a_recipe_holds_the_bytes_that_its_source_says(name: str) -> None:
    recipe = study_of(name)[Precision]
    held = (recipe.weights, recipe.gradients, recipe.optimizer)
    assert held == RECIPES[name.split(".")[1]]
    # DeepSpeed's BF16_Optimizer casts its sums for their reduction.
    assert recipe.reduction == (2 if name.endswith("deepspeed") else recipe.gradients)


def test_the_update_moves_what_its_kernels_read_and_write() -> None:
    """Adam on fp32: 16 B in, 12 out; a copy of the master: 4 in, 2 out; a cast before: 2 in, 4 out."""
    expected = {
        "bf16": (28 + 6, 12),
        "bf16_zero_paper": (28, 6),
        # DeepSpeed joins a shard (4) and casts it (6); the norm is of a copy in float64 (2 + 8 + 8).
        "bf16_zero": (4 + 6 + 28 + 6, 18 + 8),
        "fp16_zero": (4 + 6 + 28 + 6, 36 + 18 + 8),
        "bf16_nemo": (6 + 28 + 6, 12),
        "mxfp8_nemo": (6 + 28 + 6, 12),
        "fp8_param_gather": (28 + 5, 12),
        "fp8_delayed_nemo": (6 + 28 + 5, 12),
        "fp8_current_nemo": (6 + 28 + 4 + 5, 12),
    }
    for name, traffic in expected.items():
        recipe = study_of(f"precisions.{name}")[Precision]
        assert (recipe.update_traffic, recipe.norm_traffic) == traffic, name
        # On the host there are no kernels that join and cast gradients.
        host = 28 + 6 if name in ("bf16_zero", "fp16_zero") else traffic[0]
        assert recipe.host_update_traffic == host, name


@pytest.mark.slow
@try_each("path", sorted(ROOT.parent.rglob("*.par")), ids=lambda p: p.stem)
def test_every_spec_is_laid_out_canonically(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert format_text(text) == text


def test_the_example_runs_and_is_no_entry() -> None:
    (catalogue,) = catalogues()
    (example,) = parcost.load(ROOT / catalogue.example)
    assert example.evaluate().exit_code == 0
    assert example.warnings == []
    with pytest.raises(parcost.SpecError, match="the catalogue has no"):
        parcost.load_text("use catalog.example\n")[0].studies()
