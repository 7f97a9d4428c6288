"""Rules against contradicting attributes of a recipe."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Study, block_name
from parcost.numeric import any_of
from parcost_plugins.vocabulary import Cluster, Precision, Training

#: Attributes that need a narrow type, as text for messages.
_NEEDS = {
    "narrow_attention": "the attention core cannot run in it",
    "scale": "there is nothing to scale",
    "cast": "there is nothing to cast",
    "cast_transpose": "there is nothing to transpose",
    "weight_cast": "there is nothing to cast weights to",
    "weight_copies": "there is nothing to keep copies in",
    "weight_transpose": "there is nothing to transpose",
}


def recipe(study: Study) -> Iterator[Check]:
    """Return the consistency rules of a recipe."""
    training = study[Training]
    precision, layers = training.precision, training.model.layers
    name = block_name(precision)
    if precision.narrow == "none":
        yield from _without_narrow_type(precision)
        return
    yield Check(
        id="wide-layers",
        holds=precision.wide_first + precision.wide_last <= layers,
        subject=f"{name}.wide_first",
        message="{first} first + {last} last layers stay in {compute}, and the model has only "
        "{layers} layers",
        inputs={
            "first": precision.wide_first,
            "last": precision.wide_last,
            "compute": precision.compute,
            "layers": layers,
        },
        help=f"write `wide_first` and `wide_last` with a sum of at most "
        f"{layers}; with {layers}, no layer is in low precision",
    )
    device = study[Cluster].device
    yield Check(
        id="device-microscaling",
        holds=device.microscaling or not precision.microscaled,
        subject="training.precision",
        message="`{recipe}` has scaling factors of blocks of {block} elements, which the matrix "
        "units of `{device}` do not apply",
        inputs={"recipe": name, "block": precision.scale_block, "device": block_name(device)},
        help="choose a recipe whose factors are applied outside the matrix units, such as "
        "catalog.precisions.fp8_current, or a device with `microscaling = on`",
    )
    yield Check(
        id="scale-wider-than-elements",
        holds=precision.narrow_element <= precision.activation,
        subject=f"{name}.scale",
        message="an element takes {element} B with its share of a scaling factor, and {wide} B "
        "in {compute}",
        inputs={
            "element": precision.narrow_element,
            "wide": precision.activation,
            "compute": precision.compute,
        },
        help="`scale_block` is the number of elements per factor",
    )


def _without_narrow_type(precision: Precision) -> Iterator[Check]:
    """Require that a recipe without a narrow type sets nothing that only such a type has."""
    name = block_name(precision)
    for attribute, complaint in _NEEDS.items():
        yield Check(
            id="narrow-without-type",
            holds=_is_absent(getattr(precision, attribute)),
            subject=f"{name}.{attribute}",
            message="`{attribute}` needs a narrow type, and the recipe has none: {complaint}",
            inputs={"attribute": attribute, "complaint": complaint},
            help="`narrow = fp8` or `narrow = fp4` selects the type of linear layers",
        )
    yield Check(
        id="kept-narrow",
        holds=precision.kept >= precision.activation,
        subject=f"{name}.kept",
        message="inputs of linear layers are kept in {kept} B and multiplied in {wide} B",
        inputs={"kept": precision.kept, "wide": precision.activation},
        help="only a recipe with a `narrow` type keeps fewer bytes",
    )


def _is_absent(value: object) -> bool:
    """Return whether an attribute is zero; for a sweep, at all points."""
    return not any_of(value != 0)
