"""The shape of the model on a device, and the attention share of FLOPs."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Outcome, Real, Sheet, Study, hookimpl
from parcost_plugins.model.rank import rank_of
from parcost_plugins.physics.partition import recomputed_layers, virtual_stages


@hookimpl(specname="figures")
def details(study: Study, outcome: Outcome, brief: bool) -> Iterator[Figure]:  # noqa: ARG001
    """Return the figures of a model's shape on its ranks."""
    if brief:
        return
    held, rank = study.parameters, rank_of(study)
    stages = [
        sum((p.elements * p.count[stage] for p in held), 0.0)
        for stage in range(virtual_stages(study))
    ]
    of_layers: dict[str, Real] = {}
    for part in held:
        if part.place == "layer":
            of_layers[part.name] = of_layers.get(part.name, 0.0) + part.total * sum(part.count)
    sheet = Sheet(L=sum(rank.layers), again=sum(recomputed_layers(study)))
    yield sheet(
        "parameters_per_stage",
        "parameters of a rank on the largest virtual stage",
        "",
        "max(psi), of each stage, padding and copies included",
        psi=stages,
    )
    yield sheet("layer_parameters", "mean parameters per layer", "", "sum(psi) / L", psi=of_layers)
    for kind, title in (("matmul", "matrix products"), ("attention", "the attention core")):
        counted = {f.name: f.per_token for f in study.flops if f.kind == kind}
        yield sheet(
            f"{kind}_flops_per_token",
            f"forward FLOPs of {title} per token",
            "FLOP",
            "sum(C), by definition, without recomputation",
            C=(counted, "FLOP"),
        )
    spans = [(windowed, span) for windowed, span in rank.attention_spans if any(span.count)]
    names = ["windowed" if windowed else "all" for windowed, _ in spans]
    yield sheet(
        "attended_tokens",
        "mean number of tokens that a token attends to",
        "",
        "sum(n k) / L, k tokens in each of n layers: l / 2 of a document of l tokens, "
        "w - w^2 / (2 l) in a window of w",
        n=dict(zip(names, (sum(span.count) for _, span in spans), strict=True)),
        k=dict(zip(names, (rank.keys(windowed) for windowed, _ in spans), strict=True)),
    )
    yield sheet(
        "recomputed_share",
        "layers that are fully recomputed",
        "%",
        "again / L",
    )
