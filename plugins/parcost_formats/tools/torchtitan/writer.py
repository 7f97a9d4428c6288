"""Configurations of torchtitan for a study: TOML up to 0.2.2, and a function of Python since.

Both use the same fields, named as in TOML. Python has token budgets instead of batches, and a class
for each kind of recomputation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from parcost import ToolSettings, block_name
from parcost_formats.tools.jobs import (
    Job,
    JobError,
    JobWriter,
    launcher,
    reasons_of,
    whole,
    word_of,
)
from parcost_formats.tools.tables import table
from parcost_formats.tools.torchtitan.execution import WIDE_GRADIENTS
from parcost_formats.tools.torchtitan.parallel import deal
from parcost_plugins.physics.run_choices import reshards, tensor_overlap

#: Values by the section and the field of TOML.
Fields = dict[str, Any]

_TABLE = table("torchtitan")
#: Whether the loss is compiled, by the tensors that it keeps.
_COMPILED_LOSS = {"logits": True, "eager": False}
_NEEDS = (
    "the run: training.steps, optimizer.lr, lr_scheduler, checkpoint",
    "a tokenizer and data: hf_assets_path, training.dataset or dataloader",
)


class _TorchtitanWriter(JobWriter):
    """The common part of the TOML and the Python writer."""

    reader = "torchtitan"
    source = str(_TABLE["source"])
    reasons = reasons_of("torchtitan")

    def settings(self, job: Job, same: dict[str, str]) -> ToolSettings:
        """Return the configuration of a job."""
        if job.loss in _COMPILED_LOSS:
            same["training.loss"] = "a compiled loss keeps the logits, an eager loss does not"
        text = self.text_of(job, _fields(job, same))
        return ToolSettings(text=text, same=same, needs=[*launcher(job), *_NEEDS])

    def text_of(self, job: Job, fields: Fields) -> str:
        """Return the text of the fields."""
        raise NotImplementedError


class TorchtitanWriter(_TorchtitanWriter):
    """A function of Python that returns a configuration."""

    name = "torchtitan"
    title = "torchtitan, its main branch of 2026-08"
    suffix = ".py"

    def text_of(self, job: Job, fields: Fields) -> str:
        """Return the module with the function."""
        return _python(job, fields)


class TorchtitanTomlWriter(_TorchtitanWriter):
    """A file of TOML."""

    name = "torchtitan@0.2.2"
    title = "torchtitan 0.2.2"
    suffix = ".toml"

    def text_of(self, job: Job, fields: Fields) -> str:
        """Return the file."""
        if job.tp > 1 and not job.layout.sequence_parallel:
            message = "torchtitan 0.2.2 always has sequence parallelism with tensor parallelism"
            raise JobError("layout.sequence_parallel", message, "write `sequence_parallel = on`")
        whole_batch = job.pp > 1
        fields["training.seq_len"] = job.sequence
        local = job.micro_batch * (job.micro_batches if whole_batch else 1)
        fields["training.local_batch_size"] = local
        fields["training.global_batch_size"] = job.batch
        if whole_batch:
            fields["parallelism.pipeline_parallel_microbatch_size"] = job.micro_batch
        fields.pop("parallelism.enable_sequence_parallel", None)
        fields.pop("loss", None)
        fields.pop("training.disable_cuda_graphs", None)
        return _toml(fields)


def _flavor(job: Job) -> tuple[str, str]:
    """Return the family and the flavor of the model."""
    label = block_name(job.model)
    known = _TABLE["flavors"]
    for family, flavors in known.items():
        for flavor, facts in flavors.items():
            if label in (facts["entry"], *facts.get("also", ())):
                return str(family), str(flavor)
    entries = [facts["entry"] for flavors in known.values() for facts in flavors.values()]
    message = f"torchtitan has no flavor of the model `{label}`"
    raise JobError("training.model", message, f"flavors: {', '.join(entries)}")


def _fields(job: Job, same: dict[str, str]) -> Fields:
    family, flavor = _flavor(job)
    fields: Fields = {"model.name": family, "model.flavor": flavor}
    why = "the sizes of the flavor are the same"
    same |= dict.fromkeys(("model.top_k", "model.expert_ffn"), why) if not job.model.experts else {}
    for field, path in _TABLE["numbers"].items():
        fields[field] = whole(getattr(job.layout, path.removeprefix("layout.")))
    if job.model.experts:
        fields["parallelism.expert_parallel_degree"] = job.ep
        if job.etp > 1:
            fields["parallelism.expert_tensor_parallel_degree"] = job.etp
        name = "parallelism.expert_parallel_comm_backend"
        fields[name] = _word("expert_parallel_comm_backend", job.dispatcher, "routing.dispatcher")
    fields |= _sharding(job)
    if job.tp > 1:
        on = job.layout.sequence_parallel
        fields["parallelism.enable_sequence_parallel"] = bool(on)
        if tensor_overlap(job.study) == "pipelined":
            fields["parallelism.enable_async_tensor_parallel"] = True
    if job.cp > 1:
        name = "parallelism.context_parallel_rotate_method"
        fields[name] = _word(
            "context_parallel_rotate_method", job.context_algorithm, "context.algorithm"
        )
    fields |= _pipeline(job, same)
    fields |= _execution(job)
    return fields


def _sharding(job: Job) -> Fields:
    replicate, shard = "data_parallel_replicate_degree", "data_parallel_shard_degree"
    if not job.layout.zero:
        return {f"parallelism.{replicate}": job.dp, f"parallelism.{shard}": 1}
    ranks = job.state_ranks
    if ranks % job.cp or (job.dp * job.cp) % ranks:
        message = f"state over {ranks} ranks is not a multiple of cp {job.cp}"
        raise JobError("sharding.shard", message)
    reshard = "always" if reshards(job.study) else "never"
    return {
        f"parallelism.{replicate}": job.dp * job.cp // ranks,
        f"parallelism.{shard}": ranks // job.cp,
        "parallelism.fsdp_reshard_after_forward": reshard,
    }


def _pipeline(job: Job, same: dict[str, str]) -> Fields:
    if job.pp == 1:
        return {}
    choice = job.schedule
    known = {facts["kind"]: (name, facts["stages"]) for name, facts in _TABLE["schedules"].items()}
    name, stages = known.get(choice.kind, ("", 0))
    if not name:
        message = f"the schedules of PyTorch have no `{choice.kind}`"
        raise JobError("schedule.kind", message, f"known: {', '.join(known)}")
    fields: Fields = {"parallelism.pipeline_parallel_schedule": name}
    dealt = job.stages
    usual = deal(job.model.layers, job.pp * stages, 1, 1)
    if list(usual) != list(dealt) or choice.stages:
        fields["parallelism.module_fqns_per_model_part"] = _parts(dealt)
    for attribute in ("stages", "assignment", "count_embedding", "count_head"):
        same[f"schedule.{attribute}"] = "the layers of the stages are the same"
    return fields


def _parts(stages: Sequence[int]) -> list[list[str]]:
    """Return the names of the modules on each stage."""
    parts: list[list[str]] = []
    first = 0
    for count in stages:
        parts.append([f"layers.{layer}" for layer in range(first, first + count)])
        first += count
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", "output"]
    return parts


def _execution(job: Job) -> Fields:
    fields: Fields = {}
    mode = "activation_checkpoint.mode"
    recompute = job.recompute
    fields[mode] = "none" if job.training.recompute == "none" else "full"
    if job.training.recompute == "full" and (recompute.alternate or recompute.every > 1):
        fields[mode] = "selective"
        option = "op" if recompute.alternate else str(recompute.every)
        last = recompute.every - 1
        if option != "op" and recompute.first != last:
            message = f"torchtitan recomputes the last of every {recompute.every} layers"
            raise JobError("recompute.every", message, f"write `recompute {{ first = {last} }}`")
        fields["activation_checkpoint.selective_ac_option"] = option
    recipe = job.recipe(("bf16_fsdp", "bf16_pure", "fp8_torchao", "fp8_torchao_rows", "fp32"))
    fields["training.dtype"] = "bfloat16" if recipe == "bf16_pure" else "float32"
    kept = "float32" if job.precision.compute == "fp32" else "bfloat16"
    fields["training.mixed_precision_param"] = kept
    if recipe == "fp8_torchao" or job.precision.narrow == "fp8":
        fields["model.converters"] = ["quantize.linear.float8"]
        gathers = float(job.precision.gather) < 2.0
        fields["quantize.linear.float8.enable_fsdp_float8_all_gather"] = gathers
        if recipe == "fp8_torchao_rows":
            wide = job.precision.wide_weight_gradients
            fields["quantize.linear.float8.recipe_name"] = WIDE_GRADIENTS if wide else "rowwise"
    model = job.mode == "compiled"
    loss = _COMPILED_LOSS.get(job.loss, model)
    fields["compile.enable"] = model or loss
    if model != loss:
        fields["compile.components"] = ["model"] if model else ["loss"]
    if job.training.loss_chunks > 1:
        fields["loss"] = job.training.loss_chunks
    if float(job.offload.optimizer) == 1.0:
        fields["training.enable_cpu_offload"] = True
    fields["training.disable_cuda_graphs"] = job.graphs == "none"
    return fields


def _word(field: str, value: str, path: str) -> str:
    return word_of(_TABLE["words"][field], value, path, "torchtitan")


def _literal(value: Any) -> str:
    """Return a value as TOML text.

    >>> _literal(True), _literal(8), _literal(["a", "b"])
    ('true', '8', '["a", "b"]')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    return str(value) if isinstance(value, int) else f'"{value}"'


def _toml(fields: Fields) -> str:
    sections: dict[str, list[str]] = {}
    for path, value in fields.items():
        section, _, name = path.rpartition(".")
        sections.setdefault(section, []).append(f"{name} = {_literal(value)}")
    return "\n".join("\n".join([f"[{name}]", *lines, ""]) for name, lines in sections.items())


def _python(job: Job, fields: Fields) -> str:
    """Return a module with a function that returns the configuration."""
    tokens = job.micro_batch * job.sequence
    training = {
        "num_tokens_per_microbatch_per_dp_rank": tokens,
        "num_tokens_per_train_step": job.batch * job.sequence,
        "max_context_length": job.sequence,
    }
    parallelism: dict[str, Any] = {}
    if job.pp > 1:
        parallelism["num_pp_microbatches"] = job.micro_batches
    for path, value in fields.items():
        section, _, name = path.rpartition(".")
        if section == "parallelism" and name != "enable_async_tensor_parallel":
            parallelism[name] = value
        elif section == "training":
            training[name] = value
    compiled = [f"enable={fields['compile.enable']}"]
    if "compile.components" in fields:
        compiled.append(f"components={_literal(fields['compile.components'])}")
    if fields.get("parallelism.enable_async_tensor_parallel"):
        compiled.append("enable_async_tensor_parallel=True")
    spec, imports = f'model_registry("{fields["model.flavor"]}")', []
    if "model.converters" in fields:
        gathers = fields["quantize.linear.float8.enable_fsdp_float8_all_gather"]
        scaled = fields.get("quantize.linear.float8.recipe_name", "tensorwise")
        arguments = f'recipe_name="{scaled}", enable_fsdp_float8_all_gather={gathers}'
        converter = f"Float8LinearConverter.Config({arguments})"
        spec = f'model_registry("{fields["model.flavor"]}", converters=[{converter}])'
        imports.append(
            "from torchtitan.components.quantization.float8 import Float8LinearConverter"
        )
    mode = fields["activation_checkpoint.mode"]
    recompute = {"full": "FullAC", "selective": "SelectiveAC"}.get(mode, "")
    if recompute:
        imports.append(f"from torchtitan.distributed.activation_checkpoint import {recompute}")
    option = fields.get("activation_checkpoint.selective_ac_option", "op")
    if option != "op":
        message = "recomputation of every n-th layer left torchtitan with 0.2.2"
        raise JobError("recompute.every", message, "use `torchtitan@0.2.2`")
    lines = [
        *("from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig",),
        *imports,
        f"from torchtitan.models.{fields['model.name']} import model_registry",
        "from torchtitan.trainer import Trainer",
        *("", "", "def parcost_job() -> Trainer.Config:", "    return Trainer.Config("),
        f"        model_spec={spec},",
        *_call("training", "TrainingConfig", training),
        *_call("parallelism", "ParallelismConfig", parallelism),
        f"        compile=CompileConfig({', '.join(compiled)}),",
        f"        activation_checkpoint={f'{recompute}.Config()' if recompute else 'None'},",
    ]
    if "loss" in fields:
        lines.insert(0, "from torchtitan.components.loss import ChunkedLossWrapper")
        lines.append(f"        loss=ChunkedLossWrapper.Config(num_chunks={fields['loss']}),")
    return "\n".join([*lines, "    )", ""])


def _call(name: str, kind: str, values: Mapping[str, Any]) -> list[str]:
    inner = [f"            {key}={value!r}," for key, value in values.items()]
    return [f"        {name}={kind}(", *inner, "        ),"]
