"""Warnings of implausible devices, batches and buckets."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Mask, Study, block_name
from parcost_plugins.physics.run_choices import gradient_bucket
from parcost_plugins.vocabulary import Cluster, Layout, Training
from parcost_plugins.vocabulary.hardware import PlausibleRange
from parcost_plugins.vocabulary.plausibility import plausibility

_PEAKS = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4")


def rules(study: Study) -> Iterator[Check]:
    """Return warnings of values beyond those of all known devices, batches and buckets."""
    yield from _device_rules(study)
    yield from _batch_rules(study)


def _device_rules(study: Study) -> Iterator[Check]:
    device = study[Cluster].device
    name = block_name(device)
    yield from plausibility(
        study,
        "memory",
        device.memory,
        f"{name}.memory",
        unit="GB",
        scale=1e9,
        remedy="write the memory of one device, in GB or GiB",
    )
    yield from plausibility(
        study,
        "memory_bandwidth",
        device.memory_bandwidth,
        f"{name}.memory_bandwidth",
        unit="TB/s",
        scale=1e12,
        remedy="write the bandwidth of one device, in TB/s",
    )
    for type_ in _PEAKS:
        yield from plausibility(
            study,
            "peak",
            getattr(device, type_),
            f"{name}.{type_}",
            unit="TFLOPS",
            scale=1e12,
            remedy="write the peak of one device, in TFLOPS",
        )
    yield from plausibility(
        study,
        "power",
        device.power,
        f"{name}.power",
        unit="W",
        remedy="write the power of one device, in W",
    )


def _batch_rules(study: Study) -> Iterator[Check]:
    training, known = study[Training], study.get(PlausibleRange)
    yield from plausibility(
        study,
        "sequence",
        training.sequence,
        "training.sequence",
        unit="M tokens",
        scale=1e6,
        remedy="write the tokens of one sequence, such as `8192`",
    )
    longest = getattr(known, "sequence", None)
    too_long: Mask = longest is not None and training.sequence > longest
    yield from plausibility(
        study,
        "batch",
        training.global_batch * training.sequence,
        "training.global_batch",
        unit="M tokens",
        scale=1e6,
        remedy="write the unit that is meant, `sequences` or `tokens`",
        unless=too_long,
    )
    yield from plausibility(
        study,
        "micro_batch",
        training.micro_batch * training.sequence / study[Layout].cp,
        "training.micro_batch",
        unit="K tokens on a rank",
        scale=1e3,
        remedy="write the sequences of one micro-batch of one replica, not the global batch",
        unless=too_long,
    )
    yield from plausibility(
        study,
        "bucket",
        gradient_bucket(study),
        "overlap.bucket",
        unit="MB",
        scale=1e6,
        remedy="write its bytes: PyTorch DDP has 25 MiB, Megatron 160 MB and more, DeepSpeed "
        "counts elements",
    )
