"""The utilisation of the low-precision peak, and the share of FLOPs in low precision."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Outcome, Real, Study, formula
from parcost_plugins.physics import flops_per_token, layers
from parcost_plugins.vocabulary import Cluster, Gemm, Training

SOURCE = "the same FLOPs over another peak: say which when the figure is quoted"


def figures(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Yield the utilisation of the low-precision peak, and the share of low-precision FLOPs."""
    training, cluster = study[Training], study[Cluster]
    precision = training.precision
    if precision.narrow == "none":
        return
    peak = getattr(cluster.device, precision.narrow)
    if peak is None:  # a rule has said so
        return
    tokens = training.global_batch * training.sequence
    per_token = flops_per_token(study)
    yield Figure(
        name=f"mfu_{precision.narrow}",
        title=f"MFU against the {precision.narrow} peak",
        value=formula(
            "ratio(tokens C, N T peak)",
            tokens=tokens,
            C=(per_token, "FLOP"),
            N=cluster.devices,
            T=(outcome.step_seconds, "s"),
            peak=(peak, "FLOP/s"),
            source=SOURCE,
        ),
        unit="%",
        note=f"of the dense {precision.narrow} peak; `mfu` is of the {precision.compute} peak",
    )
    narrow, every = _flops(study)
    yield Figure(
        name="narrow_share",
        title=f"products in {precision.narrow}",
        value=formula(
            "ratio(narrow, all)",
            narrow=(narrow, "FLOP"),
            all=(every, "FLOP"),
            source="the products of one micro-batch on all stages, attention core included",
        ),
        unit="%",
    )


def _flops(study: Study) -> tuple[Real, Real]:
    precision = study[Training].precision
    wide = precision.wide_shares(layers(study))
    narrow: Real = 0.0
    every: Real = 0.0
    for operator in study.operators:
        every = every + operator.mean_flops * sum(operator.count)
        if isinstance(operator, Gemm) and precision.is_narrow(operator.role, operator.pass_):
            count = sum(n * (1.0 - w) for n, w in zip(operator.count, wide, strict=True))
            narrow = narrow + operator.mean_flops * count
    return narrow, every
