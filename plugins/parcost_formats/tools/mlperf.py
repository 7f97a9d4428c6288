"""Variables of NVIDIA's MLPerf Training submissions: ``config_DGXH100_64x8x144xtp4pp8cp2.sh``.

Sourced files must be in the same folder; otherwise their settings are asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from parcost import Importer, ImportFile, ImportProblem, Translation, hookimpl
from parcost_formats.tools.collector import SettingCollector, digits
from parcost_formats.tools.job_importer import JobImporter
from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.shell.scripts import Script, read_script
from parcost_formats.tools.shell.words import ShellTextError
from parcost_formats.tools.tables import table

TOOL = "mlperf"
_SIGNS = (r"^\s*export\s+DGXNNODES=", r"^\s*export\s+MINIBS=")
_ADAPTERS = ("TP", "PP")  # of llama2_70b_lora
_PRECISIONS = ("--use catalog.precisions.fp8_delayed", "--use catalog.precisions.bf16")


class MlPerf(JobImporter):
    """Configurations of MLPerf submissions."""

    name = TOOL

    def recognizes(self, name: str, text: str) -> bool:
        """Return whether a script exports the nodes and the batch of a submission."""
        return name.endswith(".sh") and all(re.search(sign, text, re.MULTILINE) for sign in _SIGNS)

    def translate(self, name: str, text: str) -> Translation:
        """Return the settings of the variables."""
        return self.read(ImportFile(name, text))

    def read(self, file: ImportFile) -> Translation:
        """Return the settings of the variables; files that it sources may be beside it."""
        try:
            environment = dict(file.options.environment)
            script = read_script(file.text, environment, file.neighbor, file.name)
        except ShellTextError as error:
            problem = ImportProblem(message=str(error), start=error.start, end=error.end)
            return Translation(problems=[problem])
        found = SettingCollector(_entries(script), table(TOOL))
        if all(name in found for name in _ADAPTERS):
            message = "llama2_70b_lora trains adapters, which are not read yet"
            found.problem(_ADAPTERS[0], message)
            return found.translation()
        found.use("frameworks.nemo")
        _model(found, file.text)
        _layout(found)
        _precision(found)
        found.read_table()
        return found.translation()


def _entries(script: Script) -> Mapping[str, JsonEntry]:
    """Return the variables that have a single known value, with its place in the text."""
    entries: dict[str, JsonEntry] = {}
    for name in script.variables:
        fields = script.fields(name)
        if len(fields) == 1 and not fields[0].unread:
            one = fields[0]
            value: Any = int(one.text) if one.text.isdecimal() and len(one.text) < 9 else one.text
            entries[name] = JsonEntry(value, one.start, one.end)
    return entries


def _model(found: SettingCollector, text: str) -> None:
    """Set the model of the benchmark, identified by the name of a sourced file."""
    for name, (entry, length) in table(TOOL)["benchmarks"].items():
        if f"{name}.sh" in text:
            why = f"`{name}.sh` is of that benchmark"
            found.use(f"models.{entry}", why=why)
            found.assume("training", "model", entry, why)
            found.assume("training", "sequence", length, f"MLPerf Training 5.1: {entry}")
            return
    answers = [f"--use catalog.models.{one[0]}" for one in table(TOOL)["benchmarks"].values()]
    found.ask("model", "the folder determines the benchmark", answers)
    answers = ["--set training.sequence=2048", "--set training.sequence=8192"]
    found.ask("training.sequence", "the benchmark has it: 2,048 of GPT-3, 8,192 of Llama", answers)


def _layout(found: SettingCollector) -> None:
    """Read the devices, the batch and the sharding."""
    nodes, each = found.whole("DGXNNODES"), found.whole("DGXNGPU")
    if nodes is not None and each is not None:
        found.set("cluster", "devices", f"{nodes} * {each}", "DGXNNODES")
    elif nodes is not None:
        why = "MLPerf Training: nodes of a DGX have 8 devices"
        found.assume("cluster", "devices", f"{nodes} * 8", why)
    batch = found.whole("MINIBS")
    if batch is not None:
        found.set("training", "global_batch", f"({digits(batch)} * layout.dp) sequences", "MINIBS")
    if (found.whole("INTERLEAVED_PIPELINE") or 1) > 1:
        found.set("schedule", "kind", "interleaved", "INTERLEAVED_PIPELINE")
    sharded = found.switch("USE_DIST_OPTIMIZER")
    if sharded is None:
        answers = ["--set layout.zero=1", "--set layout.zero=0"]
        found.ask("layout.zero", "USE_DIST_OPTIMIZER is set in another file", answers)
    else:
        found.set("layout", "zero", "1" if sharded else "0", "USE_DIST_OPTIMIZER")
    if found.switch("TP_COMM_OVERLAP"):
        found.set("overlap", "tensor", "pipelined", "TP_COMM_OVERLAP")
    bucket = found.whole("BUCKET_SIZE")
    if bucket is not None:  # pretrain.py: grad_reduce_in_fp32 is False
        found.set("overlap", "bucket", f"{digits(bucket)} * 2 B", "BUCKET_SIZE")
    together = found.switch("ALIGN_PARAM_GATHER")
    if together is not None and (found.whole("PIPELINE_MODEL_PARALLEL") or 1) > 1:
        interleaves = (found.whole("INTERLEAVED_PIPELINE") or 1) > 1  # else it changes nothing
        start = "step" if together and interleaves else "arrival"
        found.set("overlap", "gather_start", start, "ALIGN_PARAM_GATHER")
    if found.switch("TP_PP_DP_MAPPING"):
        found.set("layout", "order", '"tp-cp-pp-dp"', "TP_PP_DP_MAPPING")
    if not found.has("layout", "sequence_parallel") and "SEQ_PARALLEL" not in found:
        why = "MLPerf Training: sequence parallelism comes with tensor parallelism"
        value = "on" if (found.whole("TENSOR_MODEL_PARALLEL") or 1) > 1 else "off"
        found.assume("layout", "sequence_parallel", value, why)
    answers = ["--set training.recompute=none", "--set training.recompute=selective"]
    found.ask("training.recompute", "no variable in the file states it", answers)


def _precision(found: SettingCollector) -> None:
    """Read the FP8 recipe, or ask for the precision."""
    recipe = str(found.value("FP8_RECIPE", "delayed")).lower()
    gathers = found.switch("FP8_PARAM_GATHER")
    if found.switch("FP4"):
        answers = ["--use catalog.precisions.nvfp4"]
        found.ask("precision", "its recipe is in another file", answers, "FP4")
    elif found.switch("FP8") and recipe in table(TOOL)["recipes"]:
        entry = table(TOOL)["recipes"][recipe]
        found.use(f"precisions.{entry}", "FP8_RECIPE" if "FP8_RECIPE" in found else "FP8")
        changes = table("megatron")["gathers"].get(entry, {}) if gathers else {}
        for attribute, value in changes.items():
            found.set(f"precision mlperf extends {entry}", attribute, value, "FP8_PARAM_GATHER")
        if changes:
            why = "the recipe that this file changes"
            found.assume("training", "precision", "mlperf", why)
    elif "FP8_RECIPE" in found and recipe not in table(TOOL)["recipes"]:
        found.ask("precision", f"`{recipe}` is not known", _PRECISIONS, "FP8_RECIPE")
    else:
        found.ask("precision", "FP8 is set in another file", _PRECISIONS)


@hookimpl
def importers() -> list[Importer]:
    """Return the importer of MLPerf submissions."""
    return [MlPerf()]
