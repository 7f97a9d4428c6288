"""Warnings of values that are legal and unlikely, by the bounds of the block `plausible`."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Real, Study
from parcost.numeric import all_of
from parcost_plugins.vocabulary.hardware import PlausibleRange


def plausibility(
    study: Study,
    attribute: str,
    value: Real | None,
    subject: str,
    *,
    unit: str = "",
    scale: float = 1.0,
    remedy: str,
) -> Iterator[Check]:
    """Yield the warning that *value* exceeds what is known, where both are stated.

    *attribute* is that of the block `plausible`; the id of the rule is made of it. The message
    has values divided by *scale*, in *unit*.
    """
    known = study.get(PlausibleRange)
    most = None if known is None else getattr(known, attribute)
    if value is None or most is None or all_of(value <= most):
        return
    yield Check(
        id=f"implausible-{attribute.replace('_', '-')}",
        severity="warning",
        holds=value <= most,
        subject=subject,
        message="`{subject}` is {value:,.4g}{unit}, and the most that is known {most:,.4g}{unit}",
        inputs={
            "subject": subject,
            "value": value / scale,
            "most": most / scale,
            "unit": f" {unit}" if unit else "",
        },
        help=remedy,
        factor=1.0,
    )
