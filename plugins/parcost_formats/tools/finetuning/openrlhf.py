"""Supervised fine-tuning in OpenRLHF: DeepSpeed, configured by arguments instead of a file."""

from __future__ import annotations

from attrs import evolve

from parcost import ImportFile, Translation
from parcost_formats.tools.collector import digits
from parcost_formats.tools.finetuning.job_keys import JobKeys, reject_trainer
from parcost_formats.tools.finetuning.trainer import TrainerKeys, list_optimizer
from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.tables import table
from parcost_formats.tools.unsupported import PROGRAM

_NAMES = table("openrlhf")["names"]
#: Arguments, as keys of the configuration of Accelerate for DeepSpeed.
_ENGINE = {
    "stage": ("deepspeed_config.zero_stage", None),
    "host_states": ("deepspeed_config.offload_optimizer_device", "cpu"),
}


def read_openrlhf(file: ImportFile, job: JobKeys) -> Translation:
    """Return the job of ``openrlhf.cli.train_sft``; other programs of OpenRLHF are rejected."""
    place = job.entries.get(PROGRAM, JsonEntry("", 0, 0))
    if "train_sft" not in str(place.value):
        raise reject_trainer(job, "OpenRLHF")
    entries = dict(job.entries)
    entries["distributed_type"] = JsonEntry("DEEPSPEED", place.start, place.end)
    for name, (key, value) in _ENGINE.items():
        stated = next((one for one in _NAMES[name] if one in entries), None)
        if stated is not None:
            entry = entries.pop(stated)
            if value is None or entry.value is True:
                entries[key] = JsonEntry(value or entry.value, entry.start, entry.end)
    keys = TrainerKeys("openrlhf", file, evolve(job, entries=entries))
    found = keys.found
    if keys.has("engine"):
        engine = keys.key("engine")
        if str(found.value(engine)).lower() != "deepspeed":
            found.problem(
                engine, "only jobs on DeepSpeed are supported", "describe the job in a spec"
            )
    keys.model()
    keys.adapters()
    _read_batch(keys)
    keys.sequence()
    if "deepspeed_config.zero_stage" not in found:
        stage, why = keys.default("stage")
        found.assume("layout.zero", str(stage), why)
    kind = str(found.value(keys.key("kind"), "bf16")).lower()
    if keys.has("kind") and kind == "bf16":
        keys.assume_bf16(f"{keys.rules['version']}: param_dtype is bf16")
    elif not keys.has("bf16") and not keys.has("kind"):
        answers = ["--use catalog.precisions.bf16_zero", "--use catalog.precisions.fp32"]
        reason = "without bf16 the weights are in fp32, or in the default of a later release"
        found.ask("precision", reason, answers)
    keys.read_sharding("2 B", "DeepSpeed keeps a master copy")
    hides = keys.key("overlap")
    if found.switch(hides) and found.value("deepspeed_config.zero_stage") not in (0, "0"):
        found.set("overlap.gradients", "on", hides)
    keys.recompute()
    keys.ulysses(keys.key("ring"), "llama3")
    found.copy(keys.key("tensor"), "layout.tp")
    keys.kernels()
    list_optimizer(found, "optim.name")
    keys.devices()
    return found.translation()


def _read_batch(keys: TrainerKeys) -> None:
    """Read the micro-batch per device, and the global batch."""
    found, micro, batch = keys.found, keys.key("micro"), keys.key("batch")
    size = found.whole(micro)
    if size is None:
        found.ask("training.micro_batch", f"no `{micro}`", ["--set training.micro_batch=1"])
    else:
        found.set("training.micro_batch", digits(size), micro)
    size = found.whole(batch)
    if size is None:
        size, why = keys.default("batch")
        found.assume("training.global_batch", f"{size} sequences", why)
    else:
        found.set("training.global_batch", f"{digits(size)} sequences", batch)
