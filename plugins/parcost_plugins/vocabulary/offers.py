"""What a framework has of an attribute, by its profile. Definitions, not rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from parcost import Mask, block_type
from parcost_plugins.vocabulary.framework import Framework, Offer
from parcost_plugins.vocabulary.layout import Layout
from parcost_plugins.vocabulary.training import Training

if TYPE_CHECKING:
    from parcost import Study

#: A value as the language writes it, or a number.
Value = str | float


class Target(NamedTuple):
    """The attribute that an offer is about, in a study that has its block."""

    block: Any
    name: str
    kind: str


def value_texts(offer: Offer) -> list[str]:
    """Return the values of *offer*, as they are written."""
    return [text for part in offer.values.split(",") if (text := part.strip())]


def values_of(offer: Offer, kind: str) -> list[Value]:
    """Return the values of *offer*, those of a number as numbers.

    Raises:
        ValueError: One of them is no number.
    """
    return [float(text) if kind == "quantity" else text for text in value_texts(offer)]


def target_of(study: Study, offer: Offer) -> Target | None:
    """Return the attribute that *offer* is about, if *study* has it."""
    kind, _, name = offer.attribute.rpartition(".")
    for schema, found in study.blocks.items():
        type_ = block_type(schema)
        if type_.kind == kind and name in type_.fields and len(found) == 1:
            return Target(found[0], name, type_.fields[name].kind)
    return None


def holds(study: Study, offer: Offer, value: Any, kind: str) -> Mask:
    """Return whether the framework has *value* in the layout of *study*.

    What is left out is left to the framework.
    """
    if value is None:
        return True
    held: Mask = False
    for one in values_of(offer, kind):
        held = held | (switch_text(value) == one)
    if offer.beyond == "any":
        return held
    unaffected: Mask = getattr(study[Layout], offer.beyond) <= 1
    return held | unaffected


def switch_text(value: Any) -> Any:
    """Return *value* as the language writes it where it is a switch."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


def has(study: Study, attribute: str, value: Value) -> bool:
    """Return whether any statement of the framework lets *attribute* have *value*.

    A framework without a statement about it supports every value.
    """
    offers = offers_of(study[Training].framework, attribute)
    return not offers or any(
        _matches(value, text) for offer in offers for text in value_texts(offer)
    )


def offers_of(framework: Framework, attribute: str) -> Sequence[Offer]:
    """Return what *framework* says of *attribute*."""
    return [offer for offer in active_offers(framework) if offer.attribute == attribute]


def active_offers(framework: Framework) -> Sequence[Offer]:
    """Return what *framework* says that it has; statements without values are withdrawn."""
    return [offer for offer in framework.offers if value_texts(offer)]


def usual_schedules(study: Study) -> list[str]:
    """Return the schedules that a search takes by default, by name.

    Of a framework that says which it has, those are all that it has.
    """
    stated = offers_of(study[Training].framework, "schedule.kind")
    return [
        name
        for name, (_, schedule) in study.plugins.offers("schedules").items()
        if has(study, "schedule.kind", name)
        and (stated or getattr(schedule, "search_default", False))
    ]


def _matches(value: Value, text: str) -> bool:
    if isinstance(value, str):
        return value == text
    try:
        return value == float(text)
    except ValueError:
        return False
