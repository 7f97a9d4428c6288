"""Which framework a run used, and what it does where a row does not say.

A profile states defaults of the framework, as its documentation or code has them; nothing in
it was fitted to a measured run.
"""

from __future__ import annotations

import re
from typing import Literal

from attrs import evolve, frozen

from parcost_plugins.validation.rows import Row

Dealing = Literal["fill", "ends", "spread"]


@frozen(kw_only=True)
class Profile:
    """What a framework does where nothing is said; *framework* is what the catalogue calls it.

    *sharding* is a pattern in what a row says of its sharded state and its source, which counts
    before *pattern*; a profile holds for sources up to *latest*. *dealing* is how layers that do
    not divide are dealt to stages: `fill` fills stages from the first, `ends` counts embedding
    and head as layers, `spread` does so too and gives the rest to the first. *reduces* says
    whether gradients leave under the backward pass, *gathers* whether parameters come under the
    forward pass. With a *sharded_master* the shard of a parameter is its fp32 master. One that
    *writes_scores* has attention that is not fused; *context* is how ranks that share a sequence
    get to all keys.
    """

    framework: str
    title: str
    pattern: str = "(?!)"
    sharding: str = "(?!)"
    latest: int | None = None
    dealing: Dealing = "fill"
    reduces: bool = False
    gathers: bool = False
    transfers: Literal["blocking", "overlapped"] = "overlapped"
    tensor: str = "off"
    vocabulary_multiple: int = 1
    dropout: bool = False
    sharded_master: bool = False
    fused_accumulation: bool = True
    growing_buckets: bool = False
    writes_scores: bool = False
    context: str = "ring"


_MEGATRON = Profile(
    framework="megatron_core",
    title="Megatron-LM",
    pattern=r"Megatron|Primus|distributed optimizer",
    dealing="ends",
    transfers="blocking",
    tensor="weight_gradients",
    vocabulary_multiple=128,
    dropout=True,
    growing_buckets=True,
)
_LOCAL = evolve(
    _MEGATRON,
    framework="megatron_lm_2021",
    pattern=r"Megatron|Korthikanti",
    sharding=r"^none \(Megatron",
    latest=2023,
    growing_buckets=False,
    writes_scores=True,
)
_DEEPSPEED = Profile(
    framework="deepspeed", title="DeepSpeed", pattern=r"DeepSpeed", sharding=r"DeepSpeed"
)
_SHARDED = Profile(
    framework="torchtitan",
    title="PyTorch FSDP",
    pattern=r"FSDP",
    dealing="spread",
    reduces=True,
    gathers=True,
    sharded_master=True,
    fused_accumulation=False,
    context="all_gather",
)
_TITAN = evolve(_SHARDED, title="torchtitan", pattern=r"torchtitan")

#: The first that a row names counts.
PROFILES = (
    evolve(
        _SHARDED,
        framework="maxtext",
        title="MaxText and PaxML",
        pattern=r"MaxText|PaxML|\bJAX\b|\bXLA\b|\bTPU\b",
        dealing="fill",
    ),
    evolve(
        _MEGATRON,
        framework="nemo",
        title="NeMo and Megatron-Bridge",
        pattern=r"\bNeMo\b|Megatron-Bridge",
        reduces=True,
        gathers=True,
        transfers="overlapped",
        dropout=False,
    ),
    evolve(_TITAN, framework="torchtitan_0_1", latest=2025),
    _TITAN,
    evolve(
        _SHARDED,
        framework="fsdp_composer",
        title="Composer and LLM Foundry",
        pattern=r"llm-foundry|Composer|mosaicml",
    ),
    evolve(
        _DEEPSPEED,
        framework="megatron_deepspeed",
        title="Megatron-DeepSpeed",
        pattern=r"Megatron-DeepSpeed|BigScience|vTrain|GPT-NeoX",
        sharding=r"DeepSpeed.*(Megatron|BigScience|vTrain)",
        transfers="blocking",
        vocabulary_multiple=128,
        dropout=True,
        fused_accumulation=False,
        writes_scores=True,
    ),
    _DEEPSPEED,
    evolve(_LOCAL, latest=2021, tensor="off"),
    _LOCAL,
    _MEGATRON,
    evolve(_SHARDED, framework="torchtitan_0_1", latest=2025),
    _SHARDED,
)

GENERIC = Profile(framework="generic", title="most frameworks", reduces=True, gathers=True)


def profile_of(row: Row) -> Profile:
    """Return the profile of the framework that *row* names.

    What it says of its sharded state tells most, then a field of its own, the source, the
    notes, and the devices.
    """
    said = row.parallel.zero_stage_or_fsdp or ""
    known = [p for p in PROFILES if p.latest is None or (row.year or p.latest + 1) <= p.latest]
    for profile in known:
        if re.search(profile.sharding, f"{said} {row.source}"):
            return profile
    extra = row.extra.get("framework")
    own = extra if isinstance(extra, str) else ""
    for place in (own, row.source, said, row.notes, row.hardware.gpu):
        for profile in known:
            if re.search(profile.pattern, place, re.IGNORECASE):
                return profile
    return GENERIC
