"""Low precision: what a narrow type costs beside the products that it speeds up.

The kernel models run products in the type of the recipe. Here is what has to happen for
that: elements are cast, weights are cast once per step, ranks agree on the greatest
values, copies are held. What shrinks is said by the recipe, tensor class by tensor class;
gradients, sums over ranks and what pipeline stages hand on stay as they were.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from parcost import Check, Figure, Memory, Once, Outcome, Rulebook, Section, Study, Work, hookimpl
from parcost_plugins.precision import rules
from parcost_plugins.vocabulary import Training


@hookimpl
def terms(study: Study) -> Iterator[Work | Once]:
    """Estimate casts and the agreement on greatest values."""
    if study[Training].precision.narrow == "none":
        return
    from parcost_plugins.precision import casts

    yield from casts.operands(study)
    yield from casts.weights(study)
    yield from casts.maximum_agreement(study)


@hookimpl
def memory(study: Study) -> Iterator[Memory]:
    """Return the narrow copies of the weights."""
    if study[Training].precision.narrow == "none":
        return
    from parcost_plugins.precision import casts

    yield from casts.copies(study)


@hookimpl
def checks(study: Study) -> Iterator[Check]:
    """Reject recipes that contradict themselves."""
    yield from rules.recipe(study)


@hookimpl
def details(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Return bits per element, and the utilisation of the narrow peak."""
    from parcost_plugins.precision import classes, utilisation

    yield from classes.figures(study)
    yield from utilisation.figures(study, outcome)


@hookimpl
def sections(study: Study) -> list[Section]:
    """Return which bytes shrink, where any can."""
    if study[Training].precision.narrow == "none":
        return []
    from parcost_plugins.precision import classes

    return [classes.section(study)]


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Offer the pages of the rules."""
    return [Rulebook(name="precision", file=Path(__file__).with_name("rules.toml"))]
