"""Which framework a run used, and what it does where a row does not say.

A profile states defaults of the framework, as its documentation or code has them; nothing in
it was fitted to a measured run.
"""

from __future__ import annotations

import re
from typing import Literal

from attrs import frozen

from parcost_plugins.validation.rows import Row

Dealing = Literal["fill", "ends", "spread"]


@frozen(kw_only=True)
class Profile:
    """What a framework does where nothing is said.

    *dealing* is how layers that do not divide are dealt to stages: `fill` fills stages from
    the first, `ends` counts embedding and head as layers, `spread` gives the rest to the first.
    *reduces* says whether gradients leave under the backward pass.
    """

    name: str
    title: str
    pattern: str
    sharding: str = "(?!)"  # a pattern in what the row says of sharded state, which counts first
    dealing: Dealing = "fill"
    reduces: bool = False
    gathers: bool = False
    transfers: Literal["blocking", "overlapped"] = "overlapped"
    tensor: str = "off"
    vocabulary_multiple: int = 1
    dropout: bool = False
    sharded_master: bool = False  # the shard is the fp32 master, as FSDP has it
    every_micro_batch: bool = False
    fused_accumulation: bool = True


#: The first whose pattern is found in the row counts.
PROFILES = (
    Profile(
        name="maxtext",
        title="MaxText and PaxML",
        pattern=r"MaxText|PaxML|\bJAX\b|\bXLA\b",
        reduces=True,
        gathers=True,
        sharded_master=True,
        every_micro_batch=True,
        fused_accumulation=False,
    ),
    Profile(
        name="nemo",
        title="NeMo and Megatron-Bridge",
        pattern=r"\bNeMo\b|Megatron-Bridge",
        dealing="ends",
        reduces=True,
        gathers=True,
        tensor="weight_gradients",
        vocabulary_multiple=128,
    ),
    Profile(
        name="torchtitan",
        title="torchtitan",
        pattern=r"torchtitan",
        dealing="spread",
        reduces=True,
        gathers=True,
        sharded_master=True,
        every_micro_batch=True,
        fused_accumulation=False,
    ),
    Profile(
        name="composer",
        title="Composer and LLM Foundry",
        pattern=r"llm-foundry|Composer|mosaicml",
        reduces=True,
        gathers=True,
        sharded_master=True,
        every_micro_batch=True,
        fused_accumulation=False,
    ),
    Profile(
        name="deepspeed",
        title="Megatron-DeepSpeed",
        pattern=r"DeepSpeed|BigScience|vTrain",
        sharding=r"DeepSpeed",
        transfers="blocking",
        vocabulary_multiple=128,
        dropout=True,
        fused_accumulation=False,
    ),
    Profile(
        name="megatron",
        title="Megatron-LM",
        pattern=r"Megatron|Korthikanti",
        sharding=r"^none \(Megatron",
        dealing="ends",
        transfers="blocking",
        tensor="weight_gradients",
        vocabulary_multiple=128,
        dropout=True,
    ),
    Profile(
        name="fsdp",
        title="PyTorch FSDP",
        pattern=r"FSDP",
        dealing="spread",
        reduces=True,
        gathers=True,
        sharded_master=True,
        every_micro_batch=True,
        fused_accumulation=False,
    ),
)

GENERIC = Profile(name="generic", title="most frameworks", pattern="", reduces=True, gathers=True)


def profile_of(row: Row) -> Profile:
    """Return the profile of the framework that *row* names."""
    said = row.parallel.zero_stage_or_fsdp or ""
    for profile in PROFILES:
        if re.search(profile.sharding, said):
            return profile
    extra = row.extra.get("framework")
    for place in (extra if isinstance(extra, str) else "", row.source, said, row.notes):
        for profile in PROFILES:
            if re.search(profile.pattern, place, re.IGNORECASE):
                return profile
    return GENERIC
