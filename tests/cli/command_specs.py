"""Specs of the tests of commands, and processes that run commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

GOOD = """\
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster  { devices = 16 }
layout   { tp = 2, zero = 1, sequence_parallel = on }
training { sequence = 8192, global_batch = 32 sequences, recompute = full }
"""
DISAPPOINTED = GOOD + "expect { mfu >= 99 % }\n"
UNDIVIDED = GOOD.replace("tp = 2", "tp = 3")
MISTAKEN = GOOD.replace("tp = 2", "tpp = 2").replace("devices = 16", "devices = 16 GB")
SWEPT = GOOD.replace("tp = 2", "tp = [1, 2, 3, 4]")
Run = Callable[..., Any]
BUCKETS = SWEPT + "overlap { bucket = [25 MB, 100 MB] }\n"
