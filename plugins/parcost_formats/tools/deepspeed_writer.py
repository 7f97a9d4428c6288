"""The JSON configuration of DeepSpeed for a study, without values ``auto``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from parcost import ToolSettings
from parcost_formats.tools.jobs import (
    ESSENTIAL,
    OUTSIDE,
    Job,
    JobError,
    JobWriter,
    reasons_of,
    whole,
)
from parcost_formats.tools.tables import table
from parcost_plugins.physics.run_choices import gradient_bucket, hides_gradients
from parcost_plugins.vocabulary import Adapters

_TABLE = table("deepspeed")
#: What the code of the model decides, and the file cannot.
_OF_CODE = (
    *("training.dropout", "training.sequence", "model", "adapters", "schedule.stages"),
    "layout.sequence_parallel",
)


class DeepSpeedWriter(JobWriter):
    """The configuration of DeepSpeed."""

    name = "deepspeed"
    reader = "deepspeed"
    title = str(_TABLE["title"])
    source = str(_TABLE["source"])
    suffix = ".json"
    comment = ""
    outside = (*OUTSIDE, "model", "adapters", "training.sequence")  # which are in code
    essential = tuple(one for one in ESSENTIAL if one not in _OF_CODE)
    reasons = reasons_of("deepspeed")

    def settings(self, job: Job, same: dict[str, str]) -> ToolSettings:
        """Return the configuration of a job."""
        text = json.dumps(_values(job, same), indent=2) + "\n"
        return ToolSettings(text=text, same=same, needs=list(_needs(job)))


def _needs(job: Job) -> Iterator[str]:
    """Yield the parts of the job that a user has to add."""
    nodes, each, _ = job.nodes()
    yield f"the launcher: deepspeed --num_nodes {nodes} --num_gpus {each} --hostfile ..."
    yield from job.node_needs()
    yield f"the model in code, with sequences of {job.sequence} tokens"
    if job.study.get(Adapters) is not None:
        yield "adapters and the data type of frozen weights, in code"
    yield "the optimizer: `optimizer.params.lr`, or one in code"
    if job.training.recompute == "full":
        yield "checkpoints of each layer, in code: `model.gradient_checkpointing_enable()`"
    if job.pp > 1:
        yield "stages, in code: `PipelineModule(layers=..., num_stages=...)`"


def _values(job: Job, same: dict[str, str]) -> dict[str, Any]:
    layout = job.layout
    if job.pp > 1 and layout.zero > 1:
        message = f"the pipeline engine of DeepSpeed does not support ZeRO {layout.zero}"
        raise JobError("layout.zero", message, "write zero = 1, or pp = 1")
    if job.precision.compute == "bf16" and layout.zero == 0:
        message = (
            "DeepSpeed in bf16 without ZeRO runs BF16_Optimizer, which shards the optimizer state"
        )
        raise JobError("layout.zero", message, "take zero = 1")
    values: dict[str, Any] = {
        "train_batch_size": job.batch,
        "train_micro_batch_size_per_gpu": job.micro_batch,
        "gradient_accumulation_steps": job.micro_batches,
        "zero_optimization": _zero(job, same),
        **_precision(job),
    }
    if job.cp > 1:
        if job.context_algorithm != "ulysses":
            message = f"DeepSpeed supports Ulysses only, not `{job.context_algorithm}`"
            raise JobError("context.algorithm", message, "write `context { algorithm = ulysses }`")
        values["sequence_parallel_size"] = job.cp
    if job.tp > 1:
        values["tensor_parallel"] = {"autotp_size": job.tp}
    if job.pp > 1:
        values["pipeline"] = {"stages": job.pp}
    if job.model.experts and job.ep > 1:
        values["expert_parallel"] = {"enabled": True, "autoep_size": job.ep}
    if job.training.recompute == "full":
        checkpoints: dict[str, Any] = {"number_checkpoints": job.model.layers}
        if float(job.offload.activations) == 1.0:
            checkpoints["cpu_checkpointing"] = True
        values["activation_checkpointing"] = checkpoints
    return values


def _zero(job: Job, same: dict[str, str]) -> dict[str, Any]:
    layout, offload = job.layout, job.offload
    zero: dict[str, Any] = {"stage": layout.zero}
    if layout.zero:
        zero["overlap_comm"] = hides_gradients(job.study)
        if zero["overlap_comm"] or job.states(job.overlap, "bucket"):
            elements = gradient_bucket(job.study) / job.precision.reduction
            zero["reduce_bucket_size"] = job.number("overlap.bucket", elements)
            if job.overlap.bucket is None:
                same["overlap.bucket"] = (
                    "the size is written, as it follows from the number of ranks"
                )
        ranks = job.state_ranks
        if ranks != job.dp * job.cp:
            zero["mics_shard_size"] = ranks
    if layout.zero < 3:
        same |= dict.fromkeys(("sharding.reshard", "sharding.prefetch"), "parameters stay whole")
    if layout.zero < 2:
        same["sharding.accumulate"] = "gradients are not sharded"
    if layout.zero == 3 and float(job.precision.gather) == 1.0:
        zero["zero_quantized_weights"] = True
    share = float(offload.optimizer)
    if share:
        zero["offload_optimizer"] = {"device": "cpu", "ratio": share}
    if float(offload.parameters):
        zero["offload_param"] = {"device": "cpu", "ratio": float(offload.parameters)}
    return zero


def _precision(job: Job) -> dict[str, Any]:
    precision = job.precision
    values: dict[str, Any] = {}
    if precision.compute in ("bf16", "fp16"):
        values[precision.compute] = {"enabled": True}
    if precision.compute == "bf16":
        sizes = {2: "bf16", 4: "fp32"}
        gradients, sent = whole(precision.gradients), whole(precision.reduction)
        if gradients == 4:
            values["data_types"] = {"grad_accum_dtype": "fp32"}
        if gradients == 4 or sent != 2:
            values["communication_data_type"] = sizes.get(sent, "bf16")
    return values
