"""Less common figures of a step: counts of the pipeline, sizes of the layout, shares."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Formula, Outcome, Sheet, Study, attribute, exposed_seconds
from parcost_plugins.analysis.figures.time import bubble_seconds, communication_seconds, tokens
from parcost_plugins.physics import layers
from parcost_plugins.vocabulary import Cluster, Layout, Training


def counts(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Yield counts of the pipeline, such as micro-batches, passes and layers of stages."""
    cut, training = outcome.pipeline, study[Training]
    dealt = layers(study)
    sheet = Sheet(
        p=cut.stages,
        m=cut.micro_batches,
        v=cut.chunks,
        L=attribute(training.model, "layers"),
        l=[float(number) for number in dealt],
        batch=attribute(training, "global_batch"),
        micro_batch=attribute(training, "micro_batch"),
        dp=attribute(study[Layout], "dp"),
    )
    yield sheet("operations", "forward passes of all stages and micro-batches", "", "p m v")
    yield sheet(
        "micro_batches", "micro-batches per replica and step", "", "batch / (dp micro_batch)"
    )
    yield sheet(
        "micro_batches_in_flight",
        "peak micro-batches in flight on the first device",
        "",
        Formula(
            text="count in the order of the schedule",
            inputs={"schedule": cut.schedule, "p": cut.stages, "m": cut.micro_batches},
            value=outcome.device_alive[0],
        ),
    )
    yield sheet("pipeline_stages", "pipeline stages", "", "p")
    yield sheet("layers_dealt", "layers assigned to the virtual stages", "", "sum(l)")
    yield sheet(
        "layers_per_stage",
        "layers per device",
        "",
        "L / p",
        note=f"mean; {min(dealt)} to {max(dealt)} on a virtual stage",
    )
    yield sheet("layers_per_virtual_stage", "layers per virtual stage", "", "L / (p v)")


def sizes(study: Study) -> Iterator[Figure]:
    """Yield numbers of devices: in a replica and in each group."""
    layout, cluster, model = study[Layout], study[Cluster], study[Training].model
    sheet = Sheet(
        tp=attribute(layout, "tp"),
        cp=attribute(layout, "cp"),
        pp=attribute(layout, "pp"),
        dp=attribute(layout, "dp"),
        devices=attribute(cluster, "devices"),
        E=attribute(model, "experts"),
        k=attribute(model, "top_k"),
    )
    yield sheet("replica_devices", "devices of one replica", "", "tp cp pp")
    yield sheet("replicas", "replicas of the model", "", "devices / (tp cp pp)")
    yield sheet("batch_share", "share of the batch that one replica trains on", "", "1 / dp")
    node = cluster.fabric.levels[0].size if cluster.fabric.levels else None
    if node is not None:
        yield sheet("nodes", "nodes", "", "ceil(devices / node)", node=node)
        yield sheet("replica_nodes", "nodes of one replica", "", "ceil(tp cp pp / node)", node=node)
    yield sheet(
        "norm_share",
        "share of the activations of norms and dropout on a rank",
        "",
        "1 / tp, with sequence parallelism" if layout.sequence_parallel else "1",
    )
    if model.experts:
        yield sheet(
            "expert_sparsity",
            "routed experts / experts per token",
            "",
            "E / k",
            note="routed parameters / routed parameters that a token uses",
        )


def shares(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Yield shares of the step: idle time, exposed communication, and their ratios."""
    sheet = Sheet(T=(outcome.step_formula, "s"), N=attribute(study[Cluster], "devices"))
    yield sheet("idle_time", "pipeline idle time", "s", bubble_seconds(outcome))
    yield sheet(
        "communication_time", "exposed communication", "s", communication_seconds(study, outcome)
    )
    sent, idle = sheet.symbols["communication_time"], sheet.symbols["idle_time"]
    sheet.symbols |= {"sent": sent, "idle": idle}
    yield sheet(
        "communication_overhead",
        "exposed communication / busy time without it",
        "%",
        "ratio(sent, T - sent - idle)",
        note="may exceed 100 %; `exposed_communication` is the share of the step",
    )
    yield sheet(
        "scaling_efficiency",
        "scaling efficiency",
        "%",
        "ratio(T - sent - idle, T)",
        note="share of the step without idle time and exposed communication",
    )
    sheet.symbols["efficiency"] = sheet.symbols["scaling_efficiency"]
    yield sheet("equivalent_devices", "equivalent devices without overhead", "", "N efficiency")
    yield sheet("lost_devices", "devices lost to overhead", "", "N (1 - efficiency)")


def rates(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Yield the samples per second, and the seconds of each kind of pass."""
    training = study[Training]
    batch = attribute(training, "global_batch")
    sheet = Sheet(T=(outcome.step_formula, "s"), batch=batch)
    yield sheet("tokens_per_step", "tokens of a step", "", tokens(study))
    yield sheet("samples_per_second", "sequences per second", "", "ratio(batch, T)")
    for name, title, passes in (
        ("forward_time", "forward passes", "F"),
        ("backward_time", "backward passes, recomputation included", "BWR"),
    ):
        lines = [line for line in outcome.ledger if line.pass_ and line.pass_ in passes]
        yield sheet(name, title, "s", exposed_seconds(lines))
    run = Formula(
        text="replay of the order of the schedule",
        inputs={"schedule": outcome.pipeline.schedule, "m": outcome.pipeline.micro_batches},
        source="without once-per-step terms",
        value=outcome.makespan_seconds,
    )
    yield sheet("pipeline_time", "makespan of the pipeline", "s", run)
