"""What of the model stands on a device, and what of its FLOPs is attention."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Formula, Outcome, Real, Study, hookimpl
from parcost.numeric import maximum
from parcost_plugins.model.rank import rank_of
from parcost_plugins.vocabulary.partition import recomputed_layers, virtual_stages


@hookimpl
def details(study: Study, outcome: Outcome) -> Iterator[Figure]:  # noqa: ARG001
    """Return the figures of a model's shape on its ranks."""
    held, rank = study.parameters, rank_of(study)
    stages = [
        sum((p.elements * p.count[stage] for p in held), 0.0)
        for stage in range(virtual_stages(study))
    ]
    yield _figure(
        "parameters_per_stage",
        "parameters that a rank holds of the fullest virtual stage",
        _largest(stages),
        "sum of the parts, padding and copies included",
    )
    yield _figure(
        "layer_parameters",
        "parameters of the mean layer",
        sum((p.total * sum(p.count) for p in held if p.place == "layer"), 0.0) / sum(rank.layers),
        "all layers / their number",
    )
    flops = {
        kind: sum((f.per_token for f in study.flops if f.kind == kind), 0.0)
        for kind in ("matmul", "attention")
    }
    for kind, title in (("matmul", "matrix products"), ("attention", "the attention core")):
        yield Figure(
            name=f"{kind}_flops_per_token",
            title=f"forward FLOPs of {title} per token",
            value=flops[kind],
            unit="FLOP",
            formula=Formula(text="by definition, nothing recomputed"),
        )
    attending = rank.attending
    met = sum(sum(span.count) * rank.keys(windowed) for windowed, span in attending)
    yield _figure(
        "attended_tokens",
        "tokens that a token attends to, on average over tokens and layers",
        met / sum(rank.layers),
        "l / 2 of a document of l tokens, w - w^2 / (2 l) in a window of w",
    )
    again = sum(recomputed_layers(study))
    yield Figure(
        name="recomputed_share",
        title="layers that backward runs forward again as a whole",
        value=again / sum(rank.layers),
        unit="%",
        formula=Formula(text="recomputed / all"),
    )


def _largest(values: list[Real]) -> Real:
    most = values[0]
    for value in values[1:]:
        most = maximum(most, value)
    return most


def _figure(name: str, title: str, value: Real, text: str) -> Figure:
    return Figure(name=name, title=title, value=value, unit="", formula=Formula(text=text))
