"""Weights that are trained, and the bytes of the frozen ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from parcost import Real
from parcost.numeric import minimum
from parcost_plugins.vocabulary.adapters import Adapters
from parcost_plugins.vocabulary.training import Training

if TYPE_CHECKING:
    from parcost import Study
    from parcost_plugins.vocabulary.operators import ModelFlops, Parameters

#: How parameters are held: trained, frozen, or frozen and quantized.
Holding = Literal["trained", "frozen", "quantized"]

#: FLOPs of training over those of forward, where weights are trained.
TRAINED_PASSES = 3.0


def is_split(study: Study, which: Literal["both", "one"]) -> bool:
    """Return whether tensor parallelism splits adapters as in *which*; the degree may be 1."""
    adapters = study.get(Adapters)
    return adapters is not None and adapters.split == which


def trains_model(study: Study) -> bool:
    """Return whether the model's own parameters are trained: there are no adapters."""
    return study.get(Adapters) is None


def holding_of(study: Study, parameters: Parameters) -> Holding:
    """Return the holding of *parameters* (how they are stored and trained); without adapters all
    are trained.
    """
    adapters = study.get(Adapters)
    if adapters is None or parameters.adapter:
        return "trained"
    return "quantized" if parameters.linear and adapters.base is not None else "frozen"


def is_trained(study: Study, parameters: Parameters) -> bool:
    """Return whether *parameters* have gradients and optimizer state."""
    return parameters.adapter or trains_model(study)


def holdings(study: Study) -> tuple[Holding, ...]:
    """Return the holdings of the parameters of *study*: the ways in which they are stored and
    trained.
    """
    adapters = study.get(Adapters)
    if adapters is None:
        return ("trained",)
    frozen: tuple[Holding, ...] = ("frozen", "trained")
    return frozen if adapters.base is None else ("quantized", *frozen)


def weight_bytes(study: Study, holding: Holding) -> tuple[Real, Real]:
    """Return the bytes per weight of a *holding*: in linear layers, and elsewhere.

    Scales that every rank holds are excluded.
    """
    adapters, precision = study.get(Adapters), study[Training].precision
    if adapters is None or holding == "trained":
        return precision.weights, precision.wide_weights
    if holding == "quantized" and adapters.base is not None:
        return adapters.base.shard_bytes, adapters.base.shard_bytes
    return precision.narrow_weights if adapters.narrow else adapters.weights, adapters.weights


def casts_frozen(study: Study) -> bool:
    """Return whether frozen weights are cast to low precision, if the recipe has it."""
    adapters = study.get(Adapters)
    return adapters is None or not adapters.narrow


def whole_scales(study: Study) -> Real:
    """Return the bytes per weight of the scales of quantized weights that every rank holds."""
    adapters = study.get(Adapters)
    base = None if adapters is None else adapters.base
    return 0.0 if base is None or base.shards_scales else base.scales


def gathered_bytes(study: Study, parameters: Parameters) -> Real:
    """Return the bytes of one of *parameters* in an all-gather of sharded weights.

    Frozen weights are sent in their stored type, or cast if the recipe gathers them in fewer bits.
    """
    precision, holding = study[Training].precision, holding_of(study, parameters)
    linear = parameters.adapter or parameters.in_linear_layer
    if holding != "trained":
        each, wide = weight_bytes(study, holding)
        return minimum(each if linear else wide, precision.gather)
    return precision.gather if linear else precision.wide_gather


def passes_of(study: Study, counted: ModelFlops) -> float:
    """Return the ratio of training FLOPs to forward FLOPs: 3, or 2 for frozen weights."""
    frozen = counted.kind == "matmul" and not counted.adapter and not trains_model(study)
    return TRAINED_PASSES - 1.0 if frozen else TRAINED_PASSES


def flops_per_token(study: Study) -> Real:
    """Return the model FLOPs of training on one token: three times the forward pass.

    MFU counts these, without recomputation. Frozen matrices have no weight gradient: they count
    twice the forward pass.
    """
    if trains_model(study):
        return TRAINED_PASSES * sum((counted.per_token for counted in study.flops), 0.0)
    return sum((passes_of(study, each) * each.per_token for each in study.flops), 0.0)
