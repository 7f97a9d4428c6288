"""Parameters that no replica holds whole: gathered layer by layer, dropped again (ZeRO 3).

With the next layer's gather under way while one computes, L layers of a stage take

    forward     AG + (L - 1) max(F, AG) + F
    backward    AG + (L - 1) max(BW, AG + RS) + BW + RS

in every micro-batch: the first gather and the last reduce-scatter find nothing to hide
under, the others have (L - 1) / L of the pass. What the model has before its first
layer is gathered before anything can run; what it has behind its last is kept from
forward to backward, which follow one another there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from parcost import Pass, Study, Work
from parcost_plugins.parallelism.data.wire import wire
from parcost_plugins.vocabulary import Overlap, Training
from parcost_plugins.vocabulary.held import alike


class _Traffic(NamedTuple):
    pass_: Pass
    name: str
    operation: Literal["all_gather", "reduce_scatter"]
    part: Literal["before", "layer", "after"]
    repeat: Literal["once", "other layers"]
    hides: bool


# What a micro-batch sends on a stage, in the order in which it does.
_TRAFFIC = [
    _Traffic("F", "leading parameter all-gather", "all_gather", "before", "once", False),
    _Traffic("F", "first parameter all-gather", "all_gather", "layer", "once", False),
    _Traffic("F", "parameter all-gather", "all_gather", "layer", "other layers", True),
    _Traffic("F", "trailing parameter all-gather", "all_gather", "after", "once", True),
    _Traffic("B", "first parameter all-gather", "all_gather", "layer", "once", False),
    _Traffic("B", "parameter all-gather", "all_gather", "layer", "other layers", True),
    _Traffic("B", "leading parameter all-gather", "all_gather", "before", "once", True),
    _Traffic("W", "trailing gradient reduce-scatter", "reduce_scatter", "after", "once", True),
    _Traffic("W", "gradient reduce-scatter", "reduce_scatter", "layer", "other layers", True),
    _Traffic("W", "last gradient reduce-scatter", "reduce_scatter", "layer", "once", False),
    _Traffic("W", "leading gradient reduce-scatter", "reduce_scatter", "before", "once", False),
]


def passes(study: Study) -> Iterator[Work]:
    """Gather parameters for both passes, and reduce-scatter gradients in backward."""
    dp, overlap, precision = wire(study), study[Overlap], study[Training].precision
    size = {"all_gather": precision.gather, "reduce_scatter": precision.reduction}
    may_hide = {"all_gather": overlap.parameters, "reduce_scatter": overlap.gradients}
    for kind in alike(study):
        elements = {"before": kind.before, "layer": kind.layer, "after": kind.after}
        others = max(kind.layers - 1, 0)
        calls = {
            (operation, part): dp.call(operation, held * bytes_)
            for operation, bytes_ in size.items()
            for part, held in elements.items()
            if not _nothing(held)
        }
        for row in _TRAFFIC:
            repeat = 1 if row.repeat == "once" else others
            if not repeat or (row.operation, row.part) not in calls:
                continue
            hides = row.hides and may_hide[row.operation]
            yield dp.work(
                kind.named(row.name),
                calls[row.operation, row.part],
                row.pass_,
                count=[repeat * stage for stage in kind.count],
                bytes_=elements[row.part] * size[row.operation],
                share=others / (others + 1) if hides else None,
            )


def _nothing(held: object) -> bool:
    """Whether a stage has none of a part at all; a sweep never decides that."""
    return isinstance(held, float) and held == 0.0
