"""Device time of gradient compression: memory traffic, and PowerSGD's GEMMs.

Kernels compress a bucket before it is sent, and compete with backward for the device. So their time
is exposed, even if the communication is hidden.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Once, Pass, Real, Study, Work, formula
from parcost.numeric import where
from parcost_plugins.parallelism.data.shard_groups import COMPRESSION
from parcost_plugins.physics.run_choices import shards_gradients
from parcost_plugins.physics.stage_parameters import StageKind, trained_kinds
from parcost_plugins.vocabulary import (
    Cluster,
    Compression,
    KernelChoice,
    Training,
)
from parcost_plugins.vocabulary.causes import DATA

BESIDE: Pass = "W"  # the gradients that are compressed have just been computed


def codec_work(study: Study) -> Iterator[Work | Once]:
    """Estimate compression and decompression, once per gradient reduction."""
    chosen = study[Compression]
    if chosen.method == "none":
        return
    every = shards_gradients(study)
    device, kernels = study[Cluster].device, study[KernelChoice]
    streams = (
        device.memory_efficiency if kernels.memory_efficiency is None else kernels.memory_efficiency
    )
    products = (
        device.matmul_efficiency if kernels.gemm_efficiency is None else kernels.gemm_efficiency
    )
    peak = getattr(device, study[Training].precision.compute)
    traffic = _traffic(chosen)
    for kind in trained_kinds(study):
        bytes_ = traffic * kind.elements
        flops = power_sgd_flops(study, kind) if chosen.method == "power_sgd" else 0.0
        seconds = formula(
            "N > 1 ? u psi / (B eta) + F / (peak mu) : 0",
            N=kind.replicas,
            u=(traffic, "B"),
            psi=kind.elements,
            B=(device.memory_bandwidth, "B/s"),
            eta=streams,
            F=(flops, "FLOP"),
            peak=(peak, "FLOP/s"),
            mu=products,
            source="compression reads and writes the gradients; PowerSGD also multiplies them",
        )
        name = kind.label("gradient compression")
        if every:
            yield Work(
                name=name,
                cause=DATA,
                seconds=seconds,
                pass_=BESIDE,
                count=kind.count,
                resource="hbm",
                bytes_=bytes_,
                tag=COMPRESSION,
            )
        else:
            yield Once(
                name=name,
                cause=DATA,
                seconds=seconds,
                when="drain",
                count=kind.count,
                resource="hbm",
                bytes_=bytes_,
                tag=COMPRESSION,
            )


def power_sgd_flops(study: Study, kind: StageKind) -> Real:
    """Return FLOPs: 4 r n_r n_c to project, 2 r n_r n_c to restore, 2 n_r r^2 to orthogonalise."""
    chosen, hidden = study[Compression], study[Training].model.hidden
    found: Real = 0.0
    for held, often in kind.held:
        width, rank = held.elements / hidden, chosen.rank
        shrinks = (hidden + width) * rank * chosen.minimum_rate < held.elements
        each = 6.0 * rank * held.elements + 2.0 * hidden * rank * rank
        found = found + often * where(shrinks, each, 0.0)
    return found


def _traffic(chosen: Compression) -> Real:
    found: dict[str, Real] = {
        "fp16": chosen.cast_traffic,
        "bf16": chosen.cast_traffic,
        "int8": chosen.quantise_traffic,
        "int4": chosen.quantise_traffic,
        "one_bit": chosen.sign_traffic,
        "top_k": chosen.select_traffic,
        "power_sgd": chosen.project_traffic,
    }
    return found[chosen.method]
