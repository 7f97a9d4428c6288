"""Peaks that cannot all be dense: vendors print sparse ones, which are twice as high.

On every device with matrix units whose data sheet gives both, the dense peak doubles
when the type becomes half as wide. Four times, or once, means that one of the two
figures is the sparse one. There are devices that break the rule, whose types share units or
have more of them: where both figures say what they are from, somebody has looked.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Mask, Real, Study, called
from parcost_plugins.vocabulary import Cluster, Device

_WIDTHS = (("tf32", "fp16"), ("tf32", "bf16"), ("fp16", "fp8"), ("bf16", "fp8"), ("fp8", "fp4"))


def rules(study: Study) -> Iterator[Check]:
    """Return the rules that compare neighbouring types of the device in use.

    A figure that is twice too high differs from both of its neighbours; that is one
    mistake, and is told once.
    """
    device = study[Cluster].device
    told: Mask = False
    for wide, narrow in _WIDTHS:
        slow: Real | None = getattr(device, wide)
        fast: Real | None = getattr(device, narrow)
        if slow is not None and fast is not None and not _stated(study, device, wide, narrow):
            good = (fast / slow > 1.5) & (fast / slow < 3.0)
            yield _check(device, wide, narrow, good | told, slow, fast)
            told = told | (good ^ True)


def _stated(study: Study, device: Device, *names: str) -> bool:
    """Say whether each of these figures has a source."""
    origins = [study.origin(device, name) for name in names]
    return all(origin is not None and origin.source for origin in origins)


def _check(device: Device, wide: str, narrow: str, holds: Mask, slow: Real, fast: Real) -> Check:
    return Check(
        id="sparse-peak",
        holds=holds,
        subject=f"{called(device)}.{narrow}",
        message="{narrow} at {fast:g} TFLOPS is {ratio:.3g} times {wide} at {slow:g} TFLOPS: "
        "dense peaks differ by 2, so one of them is sparse",
        inputs={
            "narrow": narrow,
            "wide": wide,
            "fast": fast / 1e12,
            "slow": slow / 1e12,
            "ratio": fast / slow,
        },
        help="mark the sparse one `sparse`: it is halved",
        severity="warning",
    )
