"""Rules that reject unsupported features: schedules, ZeRO stages, any listed attribute."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Literal

from parcost import Check, Study, block_name, hookimpl, spec_text
from parcost.numeric import is_array
from parcost_plugins.frameworks.rulebook import RULES
from parcost_plugins.physics.neighbours import next_to
from parcost_plugins.vocabulary import Cluster, Training
from parcost_plugins.vocabulary.framework import Framework, Offer
from parcost_plugins.vocabulary.offers import (
    Target,
    holds,
    target_of,
    value_texts,
    values_of,
)


@hookimpl
def checks(study: Study) -> Iterator[Check]:
    """Require that the framework supports the values in the spec, according to its profile."""
    if study.get(Training) is None:
        return
    framework = study[Training].framework
    yield from _age_check(study, framework)
    for offer in framework.offers:
        if not offer.values:  # withdrawn by a profile that extends another
            continue
        unknown = _name_check(study, framework, offer)
        if unknown is not None:
            yield unknown
        elif framework.enforced and (target := target_of(study, offer)) is not None:
            yield _feature_check(study, framework, offer, target)


def _age_check(study: Study, framework: Framework) -> Iterator[Check]:
    """Yield the warning that the device is newer than the releases of the profile."""
    device = study[Cluster].device
    if framework.last_year is None or device.year is None:
        return
    yield RULES.check(
        "framework-older",
        device.year <= framework.last_year,
        "training.framework",
        framework=block_name(framework),
        last=framework.last_year,
        device=block_name(device),
        year=device.year,
    )


def _feature_check(study: Study, framework: Framework, offer: Offer, target: Target) -> Check:
    value = spec_text(getattr(target.block, target.name))
    origin = study.origin(offer, "values")
    known = ", ".join(f"`{text}`" for text in value_texts(offer)) or "none"
    notes = [f"it supports {known}" + (f"; {offer.since}" if offer.since else "")]
    if offer.note:
        notes.append(offer.note)
    if origin is not None and origin.source:
        notes.append(f"{origin.kind}: {origin.source}")
    where = "" if offer.beyond == "any" else f" with {offer.beyond} above 1"
    return Check(
        id="framework-lacks",
        holds=holds(study, offer, value, target.kind),
        subject=offer.attribute,
        message=(
            f"`{block_name(framework)}`{{version}} does not support "
            f"`{offer.attribute} = {{value}}`{where}"
        ),
        inputs={
            "value": value,
            "version": f" {framework.version}" if framework.version else "",
            "near": _nearest_values(offer, value, target.kind),
        },
        notes=[note.replace("{", "{{").replace("}", "}}") for note in notes],
        help="use {near}, or another framework",
    )


def _nearest_values(offer: Offer, value: object, kind: str) -> str:
    """Return the values of *offer* closest to *value*: neighbouring numbers, or a similar word."""
    values = values_of(offer, kind)
    numbers = [one for one in values if isinstance(one, float)]
    if numbers:
        whole = all(one == int(one) for one in numbers)
        if whole and isinstance(value, (float, int)) and not is_array(value):
            return next_to(float(value), sorted(int(one) for one in numbers))
        return " or ".join(f"{one:g}" for one in numbers)
    words = value_texts(offer)
    close = get_close_matches(str(value), words, n=1, cutoff=0.6)
    return " or ".join(f"`{word}`" for word in close or words)


def _name_check(study: Study, framework: Framework, offer: Offer) -> Check | None:
    """Return the rule against an unknown attribute or value in a profile, None if all are known."""
    kind, _, name = offer.attribute.rpartition(".")
    type_ = study.plugins.blocks.get(kind)
    field = type_.fields.get(name) if type_ is not None else None
    wrong, known = "", ""
    severity: Literal["error", "warning"] = "error"
    if not value_texts(offer):
        wrong = f"`{offer.values}` lists no value of `{offer.attribute}`"
        known = "write values with commas between them; an empty text removes an inherited feature"
    elif field is None:
        wrong = f"there is no attribute `{offer.attribute}`"
        known = "write the path of an attribute, such as `schedule.kind`"
    elif field.kind not in ("quantity", "word", "switch"):
        wrong = f"`{offer.attribute}` is neither a number nor a word"
        known = "only attributes whose value is a number or a word can be listed"
    elif field.kind == "quantity":
        odd = [text for text in value_texts(offer) if not _is_number(text)]
        if odd:
            wrong, known = (
                f"`{odd[0]}` is not a number",
                f"write numbers: values of `{offer.attribute}`",
            )
    else:
        words = field.choices
        if field.registry:
            words = (*words, *study.plugins.offers(field.registry))
        odd = [text for text in value_texts(offer) if text not in words]
        if odd:
            wrong, severity = f"`{offer.attribute}` has no value `{odd[0]}`", "warning"
            known = "write one of " + ", ".join(f"`{word}`" for word in words)
    if not wrong:
        return None
    return Check(
        id="framework-offer-unknown",
        holds=False,
        subject=f"{block_name(offer)}.{'attribute' if field is None else 'values'}",
        message=(
            f"framework `{block_name(framework)}` lists a feature in the block "
            f"`{block_name(offer)}`: {{wrong}}"
        ),
        inputs={"wrong": wrong, "known": known},
        help="{known}",
        severity=severity,
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
