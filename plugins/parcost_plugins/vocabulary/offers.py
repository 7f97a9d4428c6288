"""The values that a framework supports, from its profile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from parcost import Mask, block_type, spec_text
from parcost_plugins.vocabulary.framework import Framework, Offer
from parcost_plugins.vocabulary.layout import Layout
from parcost_plugins.vocabulary.training import Training

if TYPE_CHECKING:
    from parcost import Study

#: A value as the language writes it, or a number.
Value = str | float


class Target(NamedTuple):
    """The attribute of an offer in a study."""

    block: Any
    name: str
    kind: str


def value_texts(offer: Offer) -> list[str]:
    """Return the values of *offer* as text of a spec."""
    return [text for part in offer.values.split(",") if (text := part.strip())]


def values_of(offer: Offer, kind: str) -> list[Value]:
    """Return the values of *offer*, parsed as numbers for attributes of that *kind*.

    Raises:
        ValueError: A value is not a number.
    """
    return [float(text) if kind == "quantity" else text for text in value_texts(offer)]


def target_of(study: Study, offer: Offer) -> Target | None:
    """Return the attribute that *offer* is about; None if *study* lacks its block."""
    kind, _, name = offer.attribute.rpartition(".")
    for schema, found in study.blocks.items():
        type_ = block_type(schema)
        if type_.kind == kind and name in type_.fields and len(found) == 1:
            return Target(found[0], name, type_.fields[name].kind)
    return None


def holds(study: Study, offer: Offer, value: Any, kind: str) -> Mask:
    """Return whether *offer* supports *value* in the layout of *study*.

    None is supported, because the framework then sets the value.
    """
    if value is None:
        return True
    held: Mask = False
    for one in values_of(offer, kind):
        held = held | (spec_text(value) == one)
    if offer.beyond == "any":
        return held
    unaffected: Mask = getattr(study[Layout], offer.beyond) <= 1
    return held | unaffected


def has(study: Study, attribute: str, value: Value) -> bool:
    """Return whether the framework supports *value* for *attribute* in any layout.

    A framework without offers for the attribute supports all values.
    """
    offers = offers_of(study[Training].framework, attribute)
    return not offers or any(
        _matches(value, text) for offer in offers for text in value_texts(offer)
    )


def offers_of(framework: Framework, attribute: str) -> Sequence[Offer]:
    """Return the offers of *framework* for *attribute*."""
    return [offer for offer in active_offers(framework) if offer.attribute == attribute]


def active_offers(framework: Framework) -> Sequence[Offer]:
    """Return the offers of *framework* that have values: an empty offer removes an
    inherited one.
    """
    return [offer for offer in framework.offers if value_texts(offer)]


def usual_schedules(study: Study) -> list[str]:
    """Return the schedules that a search tries by default, by name.

    If the framework lists its schedules, all of them are tried.
    """
    stated = offers_of(study[Training].framework, "schedule.kind")
    return [
        name
        for name, (_, schedule) in study.plugins.offers("schedules").items()
        if has(study, "schedule.kind", name) and (stated or schedule.search_default)
    ]


def _matches(value: Value, text: str) -> bool:
    if isinstance(value, str):
        return value == text
    try:
        return value == float(text)
    except ValueError:
        return False
