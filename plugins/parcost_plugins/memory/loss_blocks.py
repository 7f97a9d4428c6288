"""Blocks that the loss frees, and that an allocator gives to the gradients of the update.

PyTorch's allocator returns the smallest free block that is large enough, and splits it. The first
update follows the first loss, so its tensors take blocks of the loss that are large enough. The
next loss finds these blocks free again, so such a tensor needs no further memory. Larger tensors
have blocks of their own, which stay from step to step.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve, frozen

from parcost import Mask, Memory, Real, Study, formula
from parcost.numeric import where
from parcost_plugins.physics.partition import ends_share_device
from parcost_plugins.physics.run_choices import saved_by_loss
from parcost_plugins.physics.stage_parameters import StageKind
from parcost_plugins.vocabulary import Layout, Training

SOURCE = "PyTorch, c10/cuda/CUDACachingAllocator.cpp: get_free_block takes the smallest that fits"
_FP32 = 4.0  # bytes of an element


@frozen
class LossBlocks:
    """The *number* of blocks of *size* bytes each that the loss of a stage frees."""

    size: Real
    number: int

    def fits(self, bytes_: Real, taken: int = 0) -> Mask:
        """Return where *bytes_* fit into a block, if *taken* blocks are in use."""
        return (bytes_ <= self.size) if taken < self.number else (self.size < 0.0)


def loss_blocks(kind: StageKind, study: Study) -> LossBlocks:
    """Return the largest tensors that the loss frees on stages of a *kind*; none without a head."""
    training, layout = study[Training], study[Layout]
    loss, model = saved_by_loss(study), training.model
    in_fp32 = loss in ("eager", "softmax")
    number = {"eager": 3, "softmax": 2, "logits": 2}.get(loss, 1)
    if loss == "softmax" and training.framework.softmax_in_place:
        number = 1
    tied = model.tied and bool(study.query(ends_share_device))
    has_head = (kind.after > 0) | (kind.before > 0) if tied else kind.after > 0
    tokens = training.sequence * training.micro_batch / layout.cp
    logits = tokens * model.padded_vocabulary(layout) / layout.tp / training.loss_chunks
    width = _FP32 if in_fp32 else training.precision.activation
    return LossBlocks(where(has_head, width * logits, 0.0), number)


def split_at_loss(term: Memory, fits: Mask) -> Iterator[Memory]:
    """Split *term*: at the loss, the allocator keeps it only if it does not fit a block of the
    loss.
    """
    yield evolve(term, cached=tuple(moment for moment in term.cached if moment != "loss"))
    own = formula(
        "u M, u is 0 in a block that the loss frees",
        u=where(fits, 0.0, 1.0),
        M=(term.formula, "B"),
        source=SOURCE,
    )
    yield evolve(term, name=f"{term.name}, at the loss", bytes_=own, moments=(), cached=("loss",))
