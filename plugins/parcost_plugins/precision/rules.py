"""Rules against contradicting attributes of a recipe."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Study, block_name
from parcost.numeric import any_of
from parcost_plugins.precision.rulebook import RULES
from parcost_plugins.vocabulary import Adapters, Cluster, Precision, Training

_MASTER = 4.0  # bytes of a parameter in fp32
#: Attributes that need a narrow type, as text for messages.
_NEEDS = {
    "narrow_attention": "the attention core cannot run in it",
    "scale": "there is nothing to scale",
    "cast": "there is nothing to cast",
    "cast_transpose": "there is nothing to transpose",
    "cast_steps": "there is nothing to cast",
    "column_cast": "there is nothing to cast",
    "column_steps": "there is nothing to cast",
    "weight_cast": "there is nothing to cast weights to",
    "weight_casts": "there is nothing to cast weights to",
    "weight_copies": "there is nothing to keep copies in",
    "weight_transpose": "there is nothing to transpose",
}


def recipe(study: Study) -> Iterator[Check]:
    """Return the consistency rules of a recipe."""
    training = study[Training]
    precision, layers = training.precision, training.model.layers
    name = block_name(precision)
    if training.framework.updates_weights and study.get(Adapters) is None:
        weights, optimizer = precision.weights, precision.optimizer
        yield RULES.check(
            "master-copy",
            (weights >= _MASTER) | (optimizer <= 2.0 * weights),
            "training.precision",
            recipe=name,
            framework=block_name(training.framework),
            weights=weights,
            optimizer=optimizer,
        )
    if precision.narrow == "none":
        yield from _without_narrow_type(precision)
        return
    yield RULES.check(
        "wide-layers",
        precision.wide_first + precision.wide_last <= layers,
        f"{name}.wide_first",
        help=f"write `wide_first` and `wide_last` with a sum of at most "
        f"{layers}; with {layers}, no layer is in low precision",
        first=precision.wide_first,
        last=precision.wide_last,
        compute=precision.compute,
        layers=layers,
    )
    device = study[Cluster].device
    yield RULES.check(
        "device-microscaling",
        device.microscaling or not precision.microscaled,
        "training.precision",
        recipe=name,
        block=precision.scale_block,
        device=block_name(device),
    )
    yield RULES.check(
        "scale-wider-than-elements",
        precision.narrow_element <= precision.activation,
        f"{name}.scale",
        element=precision.narrow_element,
        wide=precision.activation,
        compute=precision.compute,
    )


def _without_narrow_type(precision: Precision) -> Iterator[Check]:
    """Require that a recipe without a low-precision type sets no attribute of such a type."""
    name = block_name(precision)
    for attribute, complaint in _NEEDS.items():
        yield RULES.check(
            "narrow-without-type",
            _is_absent(getattr(precision, attribute)),
            f"{name}.{attribute}",
            attribute=attribute,
            complaint=complaint,
        )
    yield RULES.check(
        "kept-narrow",
        precision.kept >= precision.activation,
        f"{name}.kept",
        kept=precision.kept,
        wide=precision.activation,
    )


def _is_absent(value: object) -> bool:
    """Return whether an attribute is unset or zero; for a sweep, at all points."""
    return value is None or not any_of(value != 0)
