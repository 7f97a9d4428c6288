"""The arithmetic of a power law of the loss.

The exponents are small, so that factors in size are astonishing: with 0.076, half the loss
takes more than nine thousand times the parameters.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Figure, Real, called
from parcost_plugins.scaling.saying import figure, plain
from parcost_plugins.vocabulary import ScalingLaw

KAPLAN = "Kaplan et al. 2020, section 1.2"


def rules(law: ScalingLaw) -> Iterator[Check]:
    """Yield what has to hold of a law."""
    given = law.scale is None or law.small is not None or law.large is not None
    yield Check(
        id="scaling-law-size",
        holds=given,
        subject=f"{called(law)}.scale",
        message="a scale gives the loss at a size, and there is no size",
        help="write `small = 65 M`, `large = 1 T`, or both",
    )
    yield Check(
        id="scaling-law-floor",
        holds=law.floor == 0 if law.scale is None else True,
        subject=f"{called(law)}.floor",
        message="a floor of {floor} adds to a loss that nothing says: there is no `scale`",
        inputs={"floor": law.floor},
        help="write `scale`, or leave the floor out: ratios are of the loss above it",
    )


def figures(law: ScalingLaw) -> Iterator[Figure]:
    """Yield the growth that an improvement takes, and what sizes come to."""
    a = law.exponent
    yield figure(
        law,
        "growth",
        "growth of the size that the improvement takes",
        power(law.improvement, 1.0 / a),
        "",
        plain("g^(1 / a)", KAPLAN, g=law.improvement, a=a),
        "the loss above the floor is divided by the improvement",
    )
    if law.small is not None and law.large is not None:
        ratio = law.large / law.small
        yield figure(law, "size_ratio", "larger size over the smaller", ratio, "", plain("x2 / x1"))
        yield figure(
            law,
            "loss_ratio",
            "loss of the larger size over that of the smaller",
            power(ratio, -a),
            "",
            plain("(x1 / x2)^a", KAPLAN, a=a),
            "above the floor",
        )
    if law.scale is None:
        return
    for name, size in (("small", law.small), ("large", law.large)):
        if size is not None:
            yield figure(
                law,
                f"{name}_loss",
                f"loss at the {'smaller' if name == 'small' else 'larger'} size",
                law.floor + power(law.scale / size, a),
                "",
                plain("f + (c / x)^a", KAPLAN, f=law.floor, c=law.scale, x=size, a=a),
            )


def power(base: Real, exponent: Real) -> Real:
    """Return *base* to the power of *exponent*, infinite beyond all numbers.

    >>> power(2.0, 10.0), power(2.0, 1e6)
    (1024.0, inf)
    """
    try:
        raised: Real = base**exponent
    except OverflowError:  # plain floats raise where arrays are infinite
        return float("inf")
    return raised
