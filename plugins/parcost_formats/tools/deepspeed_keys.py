"""The keys of DeepSpeed as settings, from any file that holds them.

A configuration of Accelerate has other names for some of them: *names* maps DeepSpeed keys to names
in the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parcost_formats.tools.collector import AUTO, SettingCollector, digits
from parcost_formats.tools.data_types import SIZES_WITH_FP16
from parcost_formats.tools.tables import table

FRAMEWORK = "frameworks.deepspeed"
RING_FRAMEWORK = "frameworks.deepspeed_ring"  # of trainers with ring attention of their own
_TOOL = "DeepSpeed 0.19"
_OWN, _RECIPE = "deepspeed", "mixed"  # labels of what the file changes
_ON_CPU, _ON_DISK = "cpu", "nvme"
ADAM = ("adam", "adamw", "fusedadam", "cpuadam", "deepspeedcpuadam")


class DeepSpeedKeys:
    """Reads the keys of DeepSpeed from a file into its settings."""

    def __init__(
        self,
        settings: SettingCollector,
        names: Mapping[str, str] | None = None,
        bucket: tuple[str, str] = ("", ""),
        framework: str = _OWN,
    ) -> None:
        """Read *settings*; *bucket* is the number of elements in a bucket of the trainer, and its
        reason.

        *framework* is the catalogue entry of the framework that runs the job.
        """
        self._settings = settings
        self._framework = framework
        self._bucket = bucket
        self._names = names or {}
        self._zero: int | None = None  # the stage of the file

    def key(self, name: str) -> str:
        """Return the name of a DeepSpeed key in this file."""
        return self._names.get(name, name)

    def experts(self) -> None:
        """Read expert parallelism (AutoEP), which is off unless it is turned on."""
        found, key = self._settings, "expert_parallel.autoep_size"
        on, degree = found.switch("expert_parallel.enabled"), found.whole(key)
        if degree is not None and on:
            found.set("layout.ep", digits(degree), key)
        elif degree is not None:
            found.ignore(key, "it has no effect without `expert_parallel.enabled`")

    def batch(self) -> None:
        """Read the three batch sizes; two of them determine the third."""
        found = self._settings
        names = ("train_batch_size", "train_micro_batch_size_per_gpu")
        batch, micro, accumulation = map(self.key, (*names, "gradient_accumulation_steps"))
        whole, each, steps = found.whole(batch), found.whole(micro), found.whole(accumulation)
        keys = [batch, micro, accumulation]
        if each is not None and steps is not None and found.value(batch) == AUTO:
            found.ignore(batch, "the trainer multiplies the other two by the replicas")
            keys.remove(batch)
        is_open = [found.is_auto(key) for key in keys]
        if whole is not None:
            found.set("training.global_batch", f"{digits(whole)} sequences", batch)
        if each is not None:
            found.set("training.micro_batch", digits(each), micro)
        if steps is not None:
            found.set("training.micro_batches", digits(steps), accumulation)
        if any(is_open):
            return
        self._compare(whole, each, steps)
        why = f"{_TOOL}: train_batch_size is micro-batch x accumulation x replicas"
        if whole is None and each is not None:
            product = f"({each} * {steps or 1} * layout.dp) sequences"
            found.assume("training.global_batch", product, why)
            found.assume("training.micro_batches", str(steps or 1), why)
        elif whole is not None and each is None:
            found.assume("training.micro_batches", str(steps or 1), why)
            rest = f"global_batch / ({steps or 1} * layout.dp)"
            found.assume("training.micro_batch", rest, why)

    def _compare(self, whole: int | None, each: int | None, steps: int | None) -> None:
        """Report a global batch that is not a multiple of micro-batch times accumulation steps."""
        part = (each or 1) * (steps or 1)
        if whole is not None and whole % part:
            message = f"{whole} is not a multiple of {each or 1} x {steps or 1}"
            help = (
                f"it is {part} x the data-parallel ranks; or leave out one of the three sizes, "
                "which DeepSpeed then computes"
            )
            self._settings.problem(self.key("train_batch_size"), message, help)

    def zero(self, default: int = 0, *, pipelined: bool = False) -> None:
        """Read the ZeRO stage; *pipelined* says that DeepSpeed's pipeline engine runs the job."""
        found = self._settings
        self._zero = stage = self._stage(default)
        if stage is None:
            return
        self._buckets(stage, pipelined=pipelined)
        shard = found.value(self.key("zero_optimization.mics_shard_size"), -1)
        if shard not in (-1, AUTO):
            key = self.key("zero_optimization.mics_shard_size")
            found.copy(key, "sharding.shard")
        hpz = self.key("zero_optimization.zero_hpz_partition_size")
        ranks = found.whole(hpz, least=0) or 1
        if ranks > 1:
            found.leave_open(
                hpz,
                f"hpZ keeps a copy of the parameters for the gathers of backward within {ranks} "
                "ranks, which cannot be expressed in a spec: both gathers are estimated over all "
                "ranks",
            )
        self._offload(stage)

    def precision(self) -> None:
        """Read the types of weights, gradients and messages."""
        found = self._settings
        narrow = [name for name in ("bf16", "bfloat16", "fp16") if self._is_enabled(name)]
        is_open = [name for name in ("bf16", "bfloat16", "fp16") if self._is_open(name)]
        if len({"bf16" if name == "bfloat16" else name for name in narrow}) > 1:
            for name in narrow:
                found.problem(f"{name}.enabled", "bf16 and fp16 cannot both be enabled")
            return
        if is_open and not narrow:  # the trainer chooses the recipe that these would change
            for name, (value, source) in self._changes("bf16").items():
                found.leave_open(source, f"write `precision {{ {name} = {value} }}`")
            return
        kind = {"bfloat16": "bf16"}.get(narrow[0], narrow[0]) if narrow else "fp32"
        recipe, key = self._recipe(kind), f"{narrow[0]}.enabled" if narrow else ""
        changes = self._changes(kind)
        why = "" if key else f"{_TOOL}: neither bf16 nor fp16 is enabled"
        found.use(f"precisions.{recipe}", key, why)
        if not changes:
            return
        block = f"precision {_RECIPE} extends {recipe}"
        for name, (value, source) in changes.items():
            found.set(f"{block}.{name}", value, source)
        found.assume("training.precision", _RECIPE, "base recipe, changed by this file")

    def checkpoints(self) -> None:
        """Read which activations are recomputed in backward."""
        found = self._settings
        prefix = "activation_checkpointing"
        number = f"{prefix}.number_checkpoints"
        on_host = f"{prefix}.cpu_checkpointing"
        interval = "pipeline.activation_checkpoint_interval"
        every = found.whole(interval, least=0)
        if every:
            found.set("training.recompute", "full", interval)
            if every > 1:
                found.leave_open(
                    interval,
                    f"checkpoints of {every} layers are not supported; one layer each is assumed",
                )
        elif found.value(number) or found.value(f"{prefix}.partition_activations"):
            found.value(number)
            why = (
                "activation_checkpointing only configures checkpoints; the model applies them to "
                "its layers"
            )
            found.assume("training.recompute", "full", why)
            if number in found:
                found.ignore(number, "the model applies the checkpoints, usually one per layer")
        if found.switch(on_host):
            found.set("offload.activations", "100 %", on_host)
            why = (
                "activation_checkpointing only configures checkpoints; the model applies them to "
                "its layers"
            )
            found.assume("training.recompute", "full", why)

        if not found.has("training.recompute"):
            fact = f"{_TOOL}: without activation_checkpointing nothing is recomputed"
            found.assume("training.recompute", "none", fact)

    def _stage(self, default: int) -> int | None:
        """Set the ZeRO stage, and return it; None if a trainer decides."""
        found = self._settings
        whole, key = "zero_optimization", self.key("zero_optimization.stage")
        if found.is_auto(key):
            return None
        stage = found.whole(key, least=0)
        if isinstance(found.value(whole), bool):  # of early versions
            key, stage = whole, int(found.value(whole))
        sharded = (
            f"{_TOOL}: bf16 without ZeRO runs BF16_Optimizer, which shards the optimizer state"
        )
        if stage is None:
            why = f"{_TOOL}: stage is 0" if not default else "Accelerate 1.12: zero_stage is 2"
            apart = default == 0 and self._sums_apart(default)
            found.assume("layout.zero", *(("1", sharded) if apart else (str(default), why)))
            return default
        if stage > 3:
            found.problem(key, "the stages of ZeRO are 0 to 3")
            return None
        if stage == 0 and self._sums_apart(stage):
            found.set("layout.zero", "1", key, remark=sharded)
        else:
            found.set("layout.zero", str(stage), key)
        return stage

    def _buckets(self, stage: int, *, pipelined: bool) -> None:
        """Set which communication overlaps backward, and the bucket sizes."""
        found = self._settings
        overlap = self.key("zero_optimization.overlap_comm")
        hides: bool | None = None if found.is_auto(overlap) else found.switch(overlap)
        if pipelined and hides is not None:
            found.ignore(overlap, "a pipeline of DeepSpeed reduces gradients after backward")
            hides = False
        elif hides is not None and stage:
            found.set("overlap.gradients", "on" if hides else "off", overlap)
        elif hides is not None:
            found.ignore(overlap, "without ZeRO gradients are reduced after backward")
            hides = False
        elif not pipelined:
            hides = stage == 3
            why = f"{_TOOL}: overlap_comm is true only for stage 3"
            found.assume("overlap.gradients", "on" if hides else "off", why)
        bucket = self.key("zero_optimization.reduce_bucket_size")
        usual = table("deepspeed")["buckets"]["reduce_bucket_size"]
        elements = None if found.is_auto(bucket) else found.whole(bucket)
        if hides:
            value = f"{digits(elements or usual)} * training.precision.reduction"
            if elements:
                found.set("overlap.bucket", value, bucket)
            else:
                size, why = self._bucket
                value = f"{size} * training.precision.reduction" if size else value
                why = why or f"{_TOOL}: reduce_bucket_size is 500,000,000"
                found.assume("overlap.bucket", value, why)
        elif elements == usual:
            found.ignore(bucket, "the default of the framework")
        staged = (digits(elements), bucket) if elements and elements != usual else None
        self._buffers(stage, staged)

    def _buffers(self, stage: int, staged: tuple[str, str] | None) -> None:
        """Set the buffers of gradients and of updates; *staged* is another bucket and its key."""
        found = self._settings
        changes: dict[str, tuple[str, str]] = {}
        if self._bucket[0]:
            block = f"framework {_OWN}_file extends {self._framework}"
            found.assume(f"{block}.gradient_staging", *self._bucket)
            found.assume("training.framework", f"{_OWN}_file", self._bucket[1])
        if staged is not None:
            changes["gradient_staging"] = staged
        multi = "zero_optimization.use_multi_rank_bucket_allreduce"
        scatter = "zero_optimization.reduce_scatter"
        if found.switch(multi) is False and found.switch(scatter) is not False:
            changes["reduce_scatter"] = ("on", multi)
        found.switch(scatter)
        contiguous = "zero_optimization.contiguous_gradients"
        if found.switch(contiguous) is False:
            changes["contiguous_gradients"] = ("off", contiguous)
        group = self.key("zero_optimization.sub_group_size")
        updated = found.whole(group, least=0) if stage == 3 else None
        if updated:
            changes["update_group"] = (digits(updated), group)
        own = f"framework {_OWN}_file extends {self._framework}"
        if updated == 0:
            why = (
                "sub_group_size is 0: one tensor at a time, the embedding is assumed as the largest"
            )
            size = "training.model.vocabulary * training.model.hidden / layout.dp"
            found.assume(f"{own}.update_group", size, why)
        if changes or updated == 0:
            for name, (value, key) in changes.items():
                found.set(f"{own}.{name}", value, key)
            why = "base framework, changed by this file"
            found.assume("training.framework", f"{_OWN}_file", why)

    def _offload(self, stage: int) -> None:
        """Read which states are offloaded to the host."""
        found = self._settings
        self._offload_share(
            "optimizer", "zero_optimization.cpu_offload", "zero_optimization.offload_optimizer"
        )
        names = ("zero_optimization.cpu_offload_param", "zero_optimization.offload_param")
        device = self.key(f"{names[1]}.device")
        if stage < 3 and found.value(device) in (_ON_CPU, _ON_DISK):
            found.ignore(device, f"{_TOOL}: only ZeRO stage 3 offloads parameters")
            return
        self._offload_share("parameters", *names)

    def _offload_share(self, what: str, old: str, new: str) -> None:
        found = self._settings
        device, ratio = self.key(f"{new}.device"), f"{new}.ratio"
        share = found.value(ratio, 1)
        if found.switch(old):
            found.set(f"offload.{what}", "1", old)
        if found.is_auto(device) or device not in found:
            return
        where = str(found.value(device)).lower()
        if where == _ON_DISK:
            found.problem(
                device,
                "offloading to NVMe cannot be expressed in a spec",
                f'the host\'s memory is "{_ON_CPU}"',
            )
        elif where == _ON_CPU:
            if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
                found.problem(ratio, "a number from 0 to 1 is expected")
                return
            found.set(f"offload.{what}", f"{share:g}", device)
        elif where == "none":
            if found.value(old):
                found.set(f"offload.{what}", "0", device)
            else:
                found.ignore(device, "nothing is offloaded")
        else:
            found.problem(device, f"`{where}` is not known", "supported: cpu, nvme, none")

    def _is_enabled(self, name: str) -> bool:
        return self._settings.switch(f"{name}.enabled") is True

    def _is_open(self, name: str) -> bool:
        return self._settings.is_auto(f"{name}.enabled")

    def _recipe(self, kind: str) -> str:
        """Return the catalogue precision that is closest to a data type of the model."""
        found = self._settings
        stage = found.value(self.key("zero_optimization.stage"), 0)
        if kind != "bf16":
            if kind == "fp32" and found.value("torch_autocast.enabled"):
                return "bf16_fsdp"
            return "fp16_zero" if kind == "fp16" and stage else kind
        if found.value("bf16.bf16_optimizer_states"):
            return "bf16_pure"
        if self._sums_apart(self._zero):
            return "bf16_deepspeed"
        return "bf16" if self._sum_size() == "4 B" else "bf16_zero"

    def _sum_size(self) -> str | None:
        """Return the size, with its unit, of the type in which gradients accumulate; None if not
        stated.
        """
        return SIZES_WITH_FP16.get(str(self._settings.value("data_types.grad_accum_dtype")))

    def _sums_apart(self, stage: int | None) -> bool:
        """Return whether DeepSpeed uses BF16_Optimizer, which accumulates gradients in fp32.

        It does in bf16 without ZeRO, and in ZeRO 1 on the device if the accumulation type is fp32.
        """
        found = self._settings
        if not (self._is_enabled("bf16") or self._is_enabled("bfloat16")):
            return False
        if stage == 1:
            return self._sum_size() == "4 B" and not found.has("offload.optimizer")
        return stage == 0 and self._sum_size() in (None, "4 B")

    def _changes(self, kind: str) -> dict[str, tuple[str, str]]:
        """Return the attributes of a precision that the file changes, with value and key."""
        found = self._settings
        changes: dict[str, tuple[str, str]] = {}
        accumulation, message = "data_types.grad_accum_dtype", "communication_data_type"
        size = self._size(accumulation)
        if size is not None:
            changes["gradients"] = (size, accumulation)
        sent = self._size(message)
        if sent is not None:
            changes["reduction"] = (sent, message)
        elif size is not None and kind != "fp32":
            # Messages have the type of the model, whatever type gradients are added up in.
            changes["reduction"] = ("2 B", accumulation)
        if found.switch("fp32_allreduce"):
            changes["reduction"] = ("4 B", "fp32_allreduce")
        weights = self.key("zero_optimization.zero_quantized_weights")
        if found.switch(weights):
            changes["gather"] = ("1 B", weights)
        master = "bf16.bf16_master_weights_and_grads"
        states = "bf16.bf16_optimizer_states"
        if found.switch(master) and not found.switch(states):
            changes["optimizer"] = ("10 B", master)
        if kind == "fp32" and found.switch("torch_autocast.enabled"):
            name = str(found.value("torch_autocast.dtype", "bfloat16")).removeprefix("torch.")
            short = {"bfloat16": "bf16", "float16": "fp16"}.get(name)
            if short is None:
                found.problem("torch_autocast.dtype", "bfloat16 or float16 is expected")
            else:
                changes["compute"] = (short, "torch_autocast.enabled")
                changes["reduction"] = ("2 B", "torch_autocast.enabled")
        return changes

    def _size(self, key: str) -> str | None:
        """Return the size of the data type that a key names, with its unit: ``"2 B"``."""
        found = self._settings
        return None if found.is_auto(key) else found.word(key, SIZES_WITH_FP16)

    def tensor_parallel(self) -> None:
        """Read the tensor-parallel degree (AutoTP); 0 means none."""
        found = self._settings
        for key in ("tensor_parallel.autotp_size", "tensor_parallel.tp.tp_size"):
            degree = None if found.is_auto(key) else found.whole(key, least=0)
            if degree:
                found.set("layout.tp", str(degree), key)

    def optimizer(self) -> None:
        """Read the optimizer; the recipes assume the state of Adam."""
        found = self._settings
        kind: Any = found.value("optimizer.type")
        if kind is None:
            return
        if str(kind).lower() not in ADAM:
            reason = (
                f"precision recipes have the optimizer state of Adam, but the optimizer is {kind}"
            )
            answers = ("--use catalog.precisions.bf16_zero", "--use catalog.precisions.bf16")
            found.ask("precision", reason, answers, "optimizer.type")
