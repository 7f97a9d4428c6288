"""Low precision: costs of FP8 or FP4 beside the GEMMs that it speeds up.

The kernel models run GEMMs in the type of the recipe. This package adds casts of tensors and
weights, the amax all-reduce, and copies of weights. The recipe states which tensors are stored or
sent in fewer bits. Gradients, reductions and pipeline send/recv keep their type.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Figure, Memory, Once, Outcome, Rulebook, Section, Study, Work, hookimpl
from parcost_plugins.precision import rules
from parcost_plugins.precision.rulebook import RULES
from parcost_plugins.vocabulary import Training


@hookimpl
def terms(study: Study) -> Iterator[Work | Once]:
    """Estimate casts and the amax all-reduce."""
    from parcost_plugins.precision import autocast

    yield from autocast.casts(study)
    if study[Training].precision.narrow == "none":
        return
    from parcost_plugins.precision import casts

    yield from casts.operands(study)
    yield from casts.columns(study)
    yield from casts.weights(study)
    yield from casts.maximum_agreement(study)


@hookimpl
def memory(study: Study) -> Iterator[Memory]:
    """Return the low-precision copies of the weights."""
    from parcost_plugins.precision import autocast

    yield from autocast.copies(study)
    if study[Training].precision.narrow == "none":
        return
    from parcost_plugins.precision import casts

    yield from casts.copies(study)


@hookimpl
def checks(study: Study) -> Iterator[Check]:
    """Reject contradicting attributes of a recipe."""
    yield from rules.recipe(study)


@hookimpl(specname="figures")
def details(study: Study, outcome: Outcome, brief: bool) -> Iterator[Figure]:
    """Return bits per element, and the utilisation of the low-precision peak."""
    if brief:
        return
    from parcost_plugins.precision import classes, utilisation

    yield from classes.figures(study)
    yield from utilisation.figures(study, outcome)


@hookimpl
def sections(study: Study) -> list[Section]:
    """Return the table of tensor classes in low precision, if the recipe has any."""
    if study[Training].precision.narrow == "none":
        return []
    from parcost_plugins.precision import classes

    return [classes.section(study)]


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Return the rulebook of this package, with a page for each rule."""
    return [RULES]
