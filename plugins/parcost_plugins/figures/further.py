"""Figures of a step that few ask for: counts of the pipeline, sizes of the layout, shares."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Outcome, Real, Study
from parcost.numeric import ceil, ratio
from parcost_plugins.figures.naming import figure
from parcost_plugins.figures.time import bubble_seconds, communication_seconds, tokens
from parcost_plugins.vocabulary import Cluster, Layout, Training, layers


def counts(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Yield what the schedule runs and keeps."""
    cut, training = outcome.pipeline, study[Training]
    p, m, v = cut.stages, cut.micro_batches, cut.chunks
    letters = {"p": (p, ""), "m": (m, ""), "v": (v, "")}
    yield figure("operations", "forward passes of stages", p * m * v, "", "p m v", **letters)
    yield figure(
        "micro_batches", "micro-batches per replica and step", m, "", "batch / (dp micro-batch)"
    )
    yield figure(
        "alive_micro_batches",
        "most micro-batches alive on the first device",
        outcome.device_alive[0],
        "",
        f"counted in the order of `{cut.schedule}`",
    )
    dealt = layers(study)
    yield figure("pipeline_stages", "pipeline stages", p, "", "p", **letters)
    yield figure(
        "layers_dealt",
        "layers dealt to the virtual stages",
        float(sum(dealt)),
        "",
        " + ".join(str(on) for on in dealt[:32]) + (" + ..." if len(dealt) > 32 else ""),
    )
    yield figure(
        "layers_per_stage",
        "layers per device",
        training.model.layers / p,
        "",
        "L / p",
        note=f"on the average; dealt {min(dealt)} to {max(dealt)} to a virtual stage",
        L=(training.model.layers, ""),
        **letters,
    )
    yield figure(
        "layers_per_virtual_stage",
        "layers per virtual stage",
        training.model.layers / (p * v),
        "",
        "L / (p v)",
        L=(training.model.layers, ""),
        **letters,
    )


def sizes(study: Study) -> Iterator[Figure]:
    """Yield how many devices the layout takes for what."""
    layout, cluster = study[Layout], study[Cluster]
    replica = layout.tp * layout.cp * layout.pp
    degrees = {name: (getattr(layout, name), "") for name in ("tp", "cp", "pp", "dp")}
    yield figure("replica_devices", "devices of one replica", replica, "", "tp cp pp", **degrees)
    yield figure("replicas", "replicas of the model", layout.dp, "", "devices / (tp cp pp)")
    yield figure(
        "batch_share", "share of the batch of one replica", 1.0 / layout.dp, "", "1 / dp", **degrees
    )
    node = cluster.fabric.levels[0].size if cluster.fabric.levels else None
    if node is not None:
        inputs = {"devices": (cluster.devices, ""), "node": (node, "")}
        text = "devices / node, rounded up"
        yield figure("nodes", "nodes", ceil(cluster.devices / node), "", text, **inputs)
        yield figure(
            "replica_nodes",
            "nodes of one replica",
            ceil(replica / node),
            "",
            "tp cp pp / node, rounded up",
            **inputs,
        )

    yield figure(
        "norm_share",
        "part of the activations of norms and dropout that a rank keeps",
        1.0 / layout.tp if layout.sequence_parallel else 1.0,
        "",
        "1 / tp with sequence parallelism, else 1",
        **degrees,
    )
    model = study[Training].model
    if model.experts:
        yield figure(
            "expert_sparsity",
            "routed experts over those that a token visits",
            model.experts / model.top_k,
            "",
            "E / k",
            note="parameters of their layers over the compute of them",
            E=(model.experts, ""),
            k=(model.top_k, ""),
        )


def shares(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Yield what the step is made of, and what is left of the devices."""
    step, devices = outcome.step_seconds, study[Cluster].devices
    sent, idle = communication_seconds(study, outcome), bubble_seconds(outcome)
    working = step - sent - idle
    yield figure("idle_time", "pipeline idle time", idle, "s", "the bubble of the ledger")
    yield figure(
        "communication_time",
        "exposed communication",
        sent,
        "s",
        "what the ledger sends in the open",
    )
    yield figure(
        "communication_overhead",
        "exposed communication over the rest of the busy time",
        ratio(sent, working),
        "%",
        "sent / (T - sent - idle)",
        note="may pass 100 %; `exposed_communication` is the share of the step",
        sent=(sent, "s"),
        idle=(idle, "s"),
        T=(step, "s"),
    )
    yield figure("bubble_share", "pipeline bubble, of the step", ratio(idle, step), "%", "idle / T")
    efficiency = ratio(working, step)
    yield figure(
        "scaling_efficiency",
        "scaling efficiency",
        efficiency,
        "%",
        "(T - sent - idle) / T",
        note="share of the step that neither waits nor sends in the open",
        sent=(sent, "s"),
        idle=(idle, "s"),
        T=(step, "s"),
    )
    worth = {"N": (devices, ""), "efficiency": (efficiency, "")}
    yield figure(
        "equivalent_devices",
        "devices' worth of work",
        devices * efficiency,
        "",
        "N efficiency",
        **worth,
    )
    yield figure(
        "lost_devices",
        "devices' worth lost",
        devices * (1.0 - efficiency),
        "",
        "N (1 - efficiency)",
        **worth,
    )


def rates(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Yield the samples per second, and how long each pass takes."""
    step, batch = outcome.step_seconds, study[Training].global_batch
    yield figure("tokens_per_step", "tokens of a step", tokens(study), "", "batch s")
    yield figure(
        "samples_per_second",
        "sequences per second",
        ratio(batch, step),
        "",
        "batch / T",
        batch=(batch, ""),
        T=(step, "s"),
    )
    for name, title, letters in (
        ("forward_time", "forward passes", "F"),
        ("backward_time", "backward passes, recomputation included", "BWR"),
    ):
        exposed: Real = sum(
            (line.exposed for line in outcome.ledger if line.pass_ and line.pass_ in letters), 0.0
        )
        yield figure(name, title, exposed, "s", "exposed seconds of the busiest device")
    yield figure(
        "pipeline_time",
        "makespan of the pipeline",
        outcome.makespan_seconds,
        "s",
        "without what happens once per step",
    )
