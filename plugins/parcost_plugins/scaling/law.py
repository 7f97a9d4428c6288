"""Power laws of the loss.

The exponents are small, so the factors in size are large. With an exponent of 0.076, half the loss
needs nine thousand times the parameters.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Figure, Sheet, block_name
from parcost_plugins.scaling.rulebook import RULES
from parcost_plugins.vocabulary import ScalingLaw

KAPLAN = "Kaplan et al. 2020, section 1.2"


def rules(law: ScalingLaw) -> Iterator[Check]:
    """Yield the rules of a scaling law."""
    given = law.scale is None or law.small is not None or law.large is not None
    yield RULES.check("scaling-law-size", given, f"{block_name(law)}.scale")
    yield RULES.check(
        "scaling-law-floor",
        law.floor == 0 if law.scale is None else True,
        f"{block_name(law)}.floor",
        floor=law.floor,
    )


def figures(law: ScalingLaw) -> Iterator[Figure]:
    """Yield the growth needed for an improvement, and the loss at given sizes."""
    sheet = Sheet(
        block_name(law),
        source=KAPLAN,
        g=law.improvement,
        a=law.exponent,
        x=law.small,
        X=law.large,
        f=law.floor,
        c=law.scale,
    )
    yield sheet(
        "growth",
        "growth of the model size for the improvement",
        "",
        "g^(1 / a)",
        note="improvement: factor by which the loss above the floor falls",
    )
    if law.small is not None and law.large is not None:
        yield sheet("size_ratio", "larger size / smaller size", "", "X / x")
        yield sheet(
            "loss_ratio",
            "loss of the larger size / loss of the smaller size",
            "",
            "size_ratio^-a",
            note="above the floor",
        )
    if law.scale is None:
        return
    for name, symbol, size in (("small", "x", law.small), ("large", "X", law.large)):
        if size is not None:
            yield sheet(
                f"{name}_loss",
                f"loss at the {'smaller' if name == 'small' else 'larger'} size",
                "",
                f"f + (c / {symbol})^a",
            )
