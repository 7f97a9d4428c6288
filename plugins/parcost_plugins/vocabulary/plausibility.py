"""Warnings about implausible values, with the bounds of the block `plausible`."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Mask, Real, Study
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
    unless: Mask = False,
) -> Iterator[Check]:
    """Yield warnings if *value* is beyond the plausible range; none if either is unknown.

    *unless* is true where another warning names the cause.

    *attribute* is the maximum in the block `plausible`, and `least_` + *attribute* the minimum. The
    id of the rule is derived from it. The message has values divided by *scale*, in *unit*.
    """
    known = study.get(PlausibleRange)
    if value is None or known is None:
        return
    for name, bound in (("most", attribute), ("least", f"least_{attribute}")):
        limit: Real | None = getattr(known, bound, None)
        if limit is None:
            continue
        holds: Mask = (value <= limit if name == "most" else value >= limit) | unless
        if all_of(holds):
            continue
        yield Check(
            id=f"implausible-{attribute.replace('_', '-')}",
            severity="warning",
            holds=holds,
            subject=subject,
            message="`{subject}` is {value:,.6g}{unit}; plausible values are at "
            f"{name} {{limit:,.6g}}{{unit}}",
            inputs={
                "subject": subject,
                "value": value / scale,
                "limit": limit / scale,
                "unit": f" {unit}" if unit else "",
            },
            help=remedy,
            factor=1.0,
        )
