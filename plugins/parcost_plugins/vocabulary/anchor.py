"""Anchors: measured steps of a job, which correct predictions of its other layouts and sizes.

    anchor tp4 {
      step_time = 4.1 s
      settings  = "layout.tp = 4; training.micro_batch = 1"
    }

An anchor is a run of the study in its file, with the changes in *settings*. A job is one model on
one device in one precision. An anchor of another job is not used.
"""

from __future__ import annotations

from collections.abc import Mapping

from parcost import BYTES, ONE, SECONDS, Real, Study, block, integer, quantity, string


@block(
    "anchor",
    label="optional",
    any_of={
        ("step_time", "tokens_per_second_per_device", "allocated", "reserved"): "what was measured",
    },
    example="anchor { step_time = 4.1 s }",
)
class Anchor:
    """A measured run of the job: step time, memory, and settings that differ from the file."""

    step_time: Real | None = quantity(
        SECONDS, positive=True, default=None, doc="median of the steps after the first ones"
    )
    tokens_per_second_per_device: Real | None = quantity(
        ONE,
        positive=True,
        default=None,
        doc="measured tokens/s per device, in place of the step time, as some tools log it",
    )
    allocated: Real | None = quantity(
        BYTES, positive=True, default=None, doc="highest `torch.cuda.max_memory_allocated`"
    )
    reserved: Real | None = quantity(
        BYTES, positive=True, default=None, doc="highest `torch.cuda.max_memory_reserved`"
    )
    settings: str = string(
        default="",
        doc=(
            "attributes in which the run differs from the file, in the syntax of `--set`, "
            "separated by semicolons: `layout.tp = 4; layout.pp = 2`"
        ),
    )
    job: str = string(
        default="",
        doc=(
            "attributes of model, device and precision of the run, in the same syntax; the anchor "
            "is ignored where the study has other values"
        ),
    )
    predicted: Real | None = quantity(
        SECONDS,
        positive=True,
        default=None,
        doc=(
            "step time that parcost predicted for the run; the anchor is ignored if this file "
            "gives another prediction"
        ),
    )
    steps: int | None = integer(default=None, structural=True, doc="number of steps of the median")


def step_time_note(study: Study) -> str:
    """Return which step time a figure is computed from, if the study has an anchored one."""
    return "at the step time from the catalogue" if study.all(Anchor) else ""


def read_settings(text: str) -> Mapping[str, str]:
    """Return the attributes in a list of settings, by path.

    Raises:
        ValueError: A part of it is not `NAME = VALUE`.

    >>> read_settings("layout.tp = 4; training.recompute = full")
    {'layout.tp': '4', 'training.recompute': 'full'}
    """
    found: dict[str, str] = {}
    for part in filter(None, (one.strip() for one in text.split(";"))):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not (name and equals and value):
            message = f"`{part}` is not `NAME = VALUE`"
            raise ValueError(message)
        if name in found:
            message = f"`{name}` is given twice"
            raise ValueError(message)
        found[name] = value
    return found


def write_settings(values: Mapping[str, str]) -> str:
    """Return attributes by path as a list of settings.

    >>> write_settings({"layout.tp": "4", "layout.pp": "2"})
    'layout.tp = 4; layout.pp = 2'
    """
    return "; ".join(f"{name} = {value}" for name, value in values.items())
