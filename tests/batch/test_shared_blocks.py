"""Specs of a batch share the blocks of the catalogue that are equal in each of them."""

from __future__ import annotations

from pathlib import Path

from parcost.engine.session import Session
from parcost_plugins.vocabulary import KernelChoice

SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster {{ devices = {devices} }}
training {{ sequence = 8192, micro_batch = 1, global_batch = 64 sequences }}
"""


def test_catalogue_blocks_of_two_specs_are_the_same(tmp_path: Path) -> None:
    session = Session()
    studies = []
    for devices in (8, 16):
        path = tmp_path / f"{devices}.par"
        path.write_text(SPEC.format(devices=devices), encoding="utf-8")
        studies.append(session.load(str(path))[0].first)
    first, second = studies
    for kind in ("device", "model", "precision", "kernels", "framework"):
        schema = first.plugins.blocks[kind].schema
        assert all(
            one is other
            for one, other in zip(first.blocks[schema], second.blocks[schema], strict=True)
        ), kind


def test_a_list_that_one_spec_sets_is_not_that_of_the_next(tmp_path: Path) -> None:
    session = Session()
    found = []
    for extra in ("kernels { head_sizes = [64, 128] }", ""):
        path = tmp_path / f"{len(found)}.par"
        path.write_text(SPEC.format(devices=8) + extra, encoding="utf-8")
        found.append(session.load(str(path))[0].first[KernelChoice].head_sizes)
    given, catalogue = found
    assert given == (64, 128)
    assert catalogue == (32, 64, 96, 128, 192, 256)
