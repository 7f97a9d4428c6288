"""What a run does: as its spec says, or as its framework does where the spec says nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parcost_plugins.vocabulary.layout import Layout, ScheduleChoice
from parcost_plugins.vocabulary.sharding import Sharding
from parcost_plugins.vocabulary.training import Overlap, Training

if TYPE_CHECKING:
    from parcost import Study


NEVER = 4  # beyond the stages of ZeRO


def hides_gradients(study: Study) -> bool:
    """Return whether gradients may be reduced under the backward pass."""
    stated, framework = study[Overlap].gradients, study[Training].framework
    if stated is not None:
        return stated
    return framework.gradient_overlap or study[Layout].zero == 3


def hides_parameters(study: Study) -> bool:
    """Return whether parameters may be gathered under the forward pass."""
    stated, framework = study[Overlap].parameters, study[Training].framework
    if stated is not None:
        return stated
    return framework.parameter_overlap or study[Layout].zero == 3


def tensor_overlap(study: Study) -> str:
    """Return what tensor-parallel collectives hide under."""
    return study[Overlap].tensor or study[Training].framework.tensor_overlap


#: Whether a collective may hide under compute, by the attribute of the block `overlap`.
HIDING = {"gradients": hides_gradients, "parameters": hides_parameters}


def blocks_on_transfers(study: Study) -> bool:
    """Return whether a device waits for its messages to the neighbouring stages."""
    choice, framework = study[ScheduleChoice], study[Training].framework
    if choice.transfers is not None:
        return choice.transfers == "blocking"
    usual = framework.transfers
    if framework.interleaved_transfers != usual and study.number(_interleaves):
        usual = framework.interleaved_transfers
    return usual == "blocking"


def _interleaves(study: Study) -> bool:
    return study[ScheduleChoice].chunks > 1


def _is_pipelined(study: Study) -> bool:
    return study[Layout].pp > 1


def reduces_each_micro_batch(study: Study) -> bool:
    """Return whether gradients that ZeRO shards are reduced in every micro-batch."""
    stated, framework = study[Sharding].accumulate, study[Training].framework
    if stated is not None:
        return stated == "shard"
    found = framework.accumulate
    if framework.pipelined_accumulate not in (None, found) and study.number(_is_pipelined):
        found = framework.pipelined_accumulate
    return found == "shard"


def gradients_since(study: Study) -> int:
    """Return the stage of ZeRO from which on a rank keeps its share of the gradients only."""
    return 2 if reduces_each_micro_batch(study) else NEVER


def scatters(study: Study) -> bool:
    """Return whether a rank receives the sums of its own share of the gradients only."""
    zero = study[Layout].zero
    return zero == 3 or (zero > 0 and study[Training].framework.reduce_scatter)


def reshards(study: Study) -> bool:
    """Return whether ZeRO 3 drops gathered parameters after the forward pass."""
    stated, framework = study[Sharding].reshard, study[Training].framework
    if stated is not None:
        return stated
    found = framework.reshard
    if framework.pipelined_reshard not in (None, found) and study.number(_is_pipelined):
        found = framework.pipelined_reshard
    return found
