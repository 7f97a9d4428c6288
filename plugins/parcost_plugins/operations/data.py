"""The data loading stall.

Data loaders run in parallel to the devices. With prefetching they have a whole step for the next
batch. So they limit the step time only if slower. Without prefetching, every step begins with a
stall.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from parcost import Check, Once, Outcome, Real, Study, formula
from parcost.numeric import maximum
from parcost_plugins.operations.rulebook import RULES
from parcost_plugins.physics import on_first
from parcost_plugins.vocabulary import Data, Training
from parcost_plugins.vocabulary.causes import LOADING


def stall(study: Study) -> Iterator[Once]:
    """Yield the stall before the first forward pass of the first stage."""
    data = study.get(Data)
    if data is None:
        return
    text, inputs = "stall", {"stall": (data.stall, "s")}
    if data.rate is not None and not data.prefetch:
        text = "stall + tokens / rate"
        inputs |= {"tokens": (step_tokens(study), ""), "rate": (data.rate, "")}
    yield Once(
        name="data stall",
        cause=LOADING,
        seconds=formula(text, inputs, source="loaders run in parallel with the devices"),
        when="fill",
        count=on_first(study),
        resource="host",
    )


def loader_warning(study: Study, outcome: Outcome) -> Iterator[Check]:
    """Yield a warning if prefetching loaders are slower than the step."""
    data = study.get(Data)
    if data is None or data.rate is None or not data.prefetch:
        return
    loading, step = step_tokens(study) / data.rate, outcome.step_seconds
    yield RULES.check(
        "data-starved",
        loading <= step,
        "data.rate",
        factor=loading / maximum(step, sys.float_info.min),
        loading=loading,
        step=step,
        wait=data.stall + loading - step,
        needed=step_tokens(study) / maximum(step, sys.float_info.min),
    )


def step_tokens(study: Study) -> Real:
    """Return the tokens of a step, over all replicas."""
    training = study[Training]
    return training.global_batch * training.sequence
