"""A configuration of torchtitan in TOML, and its translation."""

from __future__ import annotations

from parcost import Translation
from parcost_formats.tools.torchtitan import Torchtitan

from .megatron_files import translate

TOML = """\
# 256 devices: 32 x 8
[job]
description = "a # in a text"

[model]
name = "llama3"
flavor = "70B"

[training]
local_batch_size = 8
global_batch_size = 256   # of a step
seq_len = 8_192
steps = 1000

[parallelism]
data_parallel_shard_degree = 32
tensor_parallel_degree = 8

[activation_checkpoint]
mode = "full"
"""


def read(text: str, name: str = "run.toml") -> Translation:
    return translate(Torchtitan(), name, text)
