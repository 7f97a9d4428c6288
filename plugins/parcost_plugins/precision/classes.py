"""The tensor classes that a recipe shrinks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from parcost import Figure, Formula, Real, Section, Study, formula
from parcost.numeric import ratio
from parcost_plugins.vocabulary import Cluster, Precision, Routing, Training
from parcost_plugins.vocabulary.context import Context

SOURCE = "the attribute of the recipe"


class _Class(NamedTuple):
    name: str
    bytes_: Real
    against: Real
    why: str


def _classes(study: Study) -> list[_Class]:
    """Return the tensor classes with bytes per element in the recipe, and in 16 bits."""
    recipe, context = study[Training].precision, study[Context]
    wide, routing = recipe.activation, study[Routing]
    there = recipe.dispatch if routing.dispatch is None else routing.dispatch
    back = recipe.combine if routing.combine is None else routing.combine
    return [
        _Class(
            "operands of linear layers", recipe.narrow_element, wide, "with their scaling factors"
        ),
        _Class(
            "weights",
            recipe.weights + recipe.copies(study[Cluster].device),
            wide,
            "including copies in fewer bits",
        ),
        _Class("gradients", recipe.gradients, recipe.gradients, "never in fp8 or fp4"),
        _Class("saved inputs of linear layers", recipe.kept, wide, ""),
        _Class(
            "parameter all-gather", recipe.gather, wide, "in fewer bits only if the weights are"
        ),
        _Class("gradient reduction", recipe.reduction, recipe.reduction, "never in fp8 or fp4"),
        _Class("tensor-parallel all-gather", recipe.tensor_gather, wide, "narrow if cast before"),
        _Class("tensor-parallel sums", wide, wide, "partial sums stay in 16 bits"),
        _Class("pipeline send/recv", wide, wide, "residual stream"),
        _Class("expert dispatch", there, wide, ""),
        _Class("expert combine", back, wide, "sums of experts"),
        _Class("keys and values of a ring", context.key_value, wide, ""),
    ]


def figures(study: Study) -> Iterator[Figure]:
    """Yield bits per low-precision element, and the bytes of each class over the wide type."""
    recipe = study[Training].precision
    if recipe.narrow == "none":
        return
    yield Figure(
        name="narrow_bits",
        title=f"bits of an element in {recipe.narrow}",
        value=_bits(recipe),
        unit="",
        note="with its share of a scaling factor",
    )
    for name, bytes_, against, why in _classes(study):
        yield Figure(
            name="bytes_of_" + re.sub(r"\W", "_", name),
            title=f"{name}, against {recipe.compute}",
            value=formula("ratio(e, w)", e=(bytes_, "B"), w=(against, "B"), source=SOURCE),
            unit="",
            note=why,
        )


def section(study: Study) -> Section:
    """Return the table of tensor classes, with the bytes per element in low precision."""
    recipe = study[Training].precision
    return Section(
        title=f"Bytes in {recipe.narrow}",
        columns=("tensor class", "an element", f"against {recipe.compute}", ""),
        rows=[
            (name, (bytes_, "B"), (ratio(bytes_, against), ""), why)
            for name, bytes_, against, why in _classes(study)
        ],
        notes=[],
    )


def _bits(recipe: Precision) -> Formula:
    return formula(
        "8 (w + c / k)",
        w=(recipe.narrow_width, "B"),
        c=(recipe.scale, "B"),
        k=recipe.scale_block,
        source="one factor for k elements",
    )
