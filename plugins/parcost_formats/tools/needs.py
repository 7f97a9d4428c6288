"""Inputs that a job needs besides a file of another tool, with options to copy."""

from __future__ import annotations

from collections.abc import Mapping

NEEDS: Mapping[str, str] = {
    "cluster.device": "--use catalog.devices.h100_sxm",
    "cluster.fabric": "--use catalog.fabrics.hgx_h100",
    "cluster.devices": "--set cluster.devices=64",
    "training.model": "--use catalog.models.llama31_8b",
    "training.precision": "--use catalog.precisions.bf16",
    "training.sequence": "--set training.sequence=8192",
    "training.global_batch": "--set 'training.global_batch=512 sequences'",
}
