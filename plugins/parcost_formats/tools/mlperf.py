"""Variables of NVIDIA's MLPerf Training submissions: ``config_DGXH100_64x8x144xtp4pp8cp2.sh``.

Sourced files must be in the same folder; otherwise their settings are asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from parcost import Importer, ImportFile, Translation, hookimpl
from parcost_formats.tools.collector import SettingCollector, digits
from parcost_formats.tools.job_importer import JobImporter
from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.shell.script_files import read_script_file
from parcost_formats.tools.shell.scripts import Script
from parcost_formats.tools.tables import table
from parcost_formats.tools.update_traffic import COUNTED, NORM_OF_CAST, count_update_traffic

TOOL = "mlperf"
_SIGNS = (r"^[ \t]*export\s+DGXNNODES=", r"^[ \t]*export\s+MINIBS=")
_ADAPTERS = ("TP", "PP")  # of llama2_70b_lora
_WORDS: Mapping[Any, Any] = {"True": True, "False": False, "null": None, "": None}


class MlPerf(JobImporter):
    """Configurations of MLPerf submissions."""

    name = TOOL

    def recognizes(self, name: str, text: str) -> bool:
        """Return whether a script exports the nodes and the batch of a submission."""
        return name.endswith(".sh") and all(re.search(sign, text, re.MULTILINE) for sign in _SIGNS)

    def read_file(self, file: ImportFile) -> Translation:
        """Return the settings of the variables; sourced files may be beside the script."""
        script = read_script_file(file)
        found = SettingCollector(_entries(script), table(TOOL))
        is_whole = not script.lacking
        if all(name in found for name in _ADAPTERS):
            message = "llama2_70b_lora trains adapters, which are not supported yet"
            found.problem(_ADAPTERS[0], message)
            return found.translation()
        found.use("frameworks.nemo")
        entry = _model(found, file.text)
        _layout(found)
        _experts(found)
        _kernels(found)
        _read_averaging(found)
        _precision(found, entry, file.text)
        _recompute(found, known=is_whole and entry in table(TOOL)["recompute_of"]["models"])
        found.read_table()
        return found.translation()


def _entries(script: Script) -> Mapping[str, JsonEntry]:
    """Return the variables with a known value, each with its place."""
    entries: dict[str, JsonEntry] = {}
    for name in script.variables:
        fields = script.fields(name)
        if fields and not any(one.unread for one in fields):
            text = " ".join(one.text for one in fields)
            value: Any = int(text) if text.isdecimal() and len(text) < 9 else text
            entries[name] = JsonEntry(_WORDS.get(value, value), fields[0].start, fields[-1].end)
    return entries


def _model(found: SettingCollector, text: str) -> str:
    """Set the model of the benchmark, by its size or the name of a sourced file; return its entry.

    Layers and length that the file states replace those of the benchmark.
    """
    rules, key = table(TOOL), "MODEL_SIZE"
    size = str(found.value(key)).lower()
    entry, length, why = "", "", ""
    if size in rules["sizes"]:
        (entry, length), why = rules["sizes"][size], f"`{key}` is {size}"
    for name, one in rules["benchmarks"].items():
        if f"{name}.sh" in text and not entry:
            (entry, length), why = one, f"`{name}.sh` belongs to that benchmark"
    if entry:
        found.use(f"models.{entry}", why=why)
        layers, predicted = found.whole("OVERWRITTEN_NUM_LAYERS"), rules["predicted"].get(entry)
        rows = rules["vocabularies"].get(entry)
        block = f"model mlperf extends {entry}"
        if layers is not None:
            found.set(f"{block}.layers", digits(layers), "OVERWRITTEN_NUM_LAYERS")
        if rows is not None:
            why_rows = f"MLPerf Training 6.0: pretrain.py has vocab_size {rows}"
            found.assume(f"{block}.vocabulary", digits(rows), why_rows)
        if predicted is not None:
            key, path = "MTP_NUM_LAYERS", f"{block}.prediction_layers"
            stated = found.whole(key, least=0)
            reason = f"MLPerf Training 6.0: mtp_num_layers is {predicted}"
            found.set_or_assume(key, path, str(predicted if stated is None else stated), reason)
        label = "mlperf" if found.has(f"{block}.") else entry
        found.assume("training.model", label, why)
    else:
        entries = [*rules["benchmarks"].values(), *rules["sizes"].values()]
        answers = [f"--use catalog.models.{one}" for one in dict.fromkeys(x[0] for x in entries)]
        found.ask("model", "the folder determines the benchmark", answers)
    for key in ("ENCODER_SEQ_LENGTH", "SEQ_LENGTH"):
        found.copy(key, "training.sequence")
    if entry:
        found.assume("training.sequence", length, f"MLPerf Training: {entry}")
    elif not found.has("training.sequence"):
        answers = [f"--set training.sequence={one}" for one in (2048, 4096, 8192)]
        reason = "from the benchmark: 2,048 for GPT-3, 4,096 for DeepSeek-V3, 8,192 for others"
        found.ask("training.sequence", reason, answers)
    return entry


def _layout(found: SettingCollector) -> None:
    """Read the devices and the batch, the sharding, and the overlap of communication."""
    _read_batch(found)
    _read_sharding(found)
    _read_overlap(found)


def _read_batch(found: SettingCollector) -> None:
    """Read the devices, the batch and the schedule."""
    nodes, each = found.whole("DGXNNODES"), found.whole("DGXNGPU")
    if nodes is not None and each is not None:
        found.set("cluster.devices", f"{nodes} * {each}", "DGXNNODES")
    elif nodes is not None:
        why = "MLPerf Training: nodes of a DGX have 8 devices"
        found.assume("cluster.devices", f"{nodes} * 8", why)
    batch, total = found.whole("MINIBS"), found.whole("GLOBAL_BATCH_SIZE")
    if total is not None:
        found.set("training.global_batch", f"{digits(total)} sequences", "GLOBAL_BATCH_SIZE")
    elif batch is not None:
        found.set("training.global_batch", f"({digits(batch)} * layout.dp) sequences", "MINIBS")
    if (found.whole("INTERLEAVED_PIPELINE") or 1) > 1:
        found.set("schedule.kind", "interleaved", "INTERLEAVED_PIPELINE")


def _read_sharding(found: SettingCollector) -> None:
    """Read the sharding of optimizer states, context parallelism, and the split into stages."""
    sharded = found.switch("USE_DIST_OPTIMIZER")
    if sharded is None:
        answers = ["--set layout.zero=1", "--set layout.zero=0"]
        found.ask("layout.zero", "USE_DIST_OPTIMIZER is not in the files that were read", answers)
    else:
        found.set("layout.zero", "1" if sharded else "0", "USE_DIST_OPTIMIZER")
    copies = found.whole("NUM_DISTOPT_INSTANCES")
    if copies is not None and copies > 1:
        shard = f"layout.dp * layout.cp / {copies}"
        found.set("sharding.shard", shard, "NUM_DISTOPT_INSTANCES")
    if found.switch("USE_MCORE_FSDP"):
        answers = ["--set layout.zero=3", "--set layout.zero=2"]
        found.ask("layout.zero", "Megatron-FSDP has its own strategy", answers, "USE_MCORE_FSDP")
    words = table("megatron")["words"]["cp_comm_type"]
    if (found.whole("CONTEXT_PARALLEL") or 1) > 1 and "CP_COMM_TYPE" in found:
        found.copy_word("CP_COMM_TYPE", words, "context.algorithm")
    if "PIPELINE_LAYOUT" in found:
        reason = "a layout that sets the layers of each stage is not supported"
        found.ask("schedule.stages", reason, ["--set 'schedule.stages=[4, 4]'"], "PIPELINE_LAYOUT")


def _read_overlap(found: SettingCollector) -> None:
    """Read the overlap of communication, the order of ranks and sequence parallelism."""
    if found.switch("TP_COMM_OVERLAP"):
        found.set("overlap.tensor", "pipelined", "TP_COMM_OVERLAP")
    # In pretrain.py the option grad_reduce_in_fp32 is off.
    found.copy("BUCKET_SIZE", "overlap.bucket", " * 2 B")
    together, staged = found.switch("ALIGN_PARAM_GATHER"), found.whole("PIPELINE_MODEL_PARALLEL")
    if together and (found.whole("INTERLEAVED_PIPELINE") or 1) == 1:
        # Hooks leave gathers to the schedule, and only the interleaved one has them.
        found.set("overlap.parameters", "off", "ALIGN_PARAM_GATHER")
    elif together is not None and (staged or 1) > 1:
        start = "step" if together else "arrival"
        found.set("overlap.gather_start", start, "ALIGN_PARAM_GATHER")
    if found.switch("TP_PP_DP_MAPPING"):
        found.set("layout.order", '"tp-cp-pp-dp"', "TP_PP_DP_MAPPING")
    if not found.has("layout.sequence_parallel") and "SEQ_PARALLEL" not in found:
        why = "MLPerf Training: sequence parallelism comes with tensor parallelism"
        value = "on" if (found.whole("TENSOR_MODEL_PARALLEL") or 1) > 1 else "off"
        found.assume("layout.sequence_parallel", value, why)


def _experts(found: SettingCollector) -> None:
    """Read the exchange of experts."""
    words = table("megatron")["words"]
    kind, backend = "MOE_TOKEN_DISPATCHER_TYPE", "MOE_FLEX_DISPATCHER_BACKEND"
    way = found.word(kind, words["moe_token_dispatcher_type"])
    own = found.word(backend, words["moe_flex_dispatcher_backend"])
    if found.value(kind) == "flex" and own is not None:
        found.set("routing.dispatcher", own, backend)
    elif way is not None:
        found.set("routing.dispatcher", way, kind)
    factor = found.value("MOE_EXPERT_CAPACITY_FACTOR")
    if factor is not None:
        found.set("routing.capacity_factor", str(factor), "MOE_EXPERT_CAPACITY_FACTOR")
    forced = "MOE_ROUTER_FORCE_LOAD_BALANCING"
    if found.switch(forced):
        found.set("routing.distribution", "uniform", forced)
    if found.switch("OVERLAP_MOE_EXPERT_PARALLEL_COMM"):
        found.set("routing.hide", "pair", "OVERLAP_MOE_EXPERT_PARALLEL_COMM")


def _kernels(found: SettingCollector) -> None:
    """Read CUDA graphs, and the fused kernels.

    Releases up to 5.1 have a switch for CUDA graphs; 6.0 names their implementation.
    """
    kind, switch, scope = "CUDA_GRAPH_IMPLEMENTATION", "MCORE_CUDA_GRAPH", "CUDA_GRAPH_SCOPE"
    key = kind if found.value(kind, "none") != "none" else switch if found.switch(switch) else ""
    usual = "full_iteration" if found.switch("FULL_CUDA_GRAPH") else "full"
    if key:
        is_whole = "full_iteration" in str(found.value(scope, usual))
        found.set("kernels.cuda_graphs", "iteration" if is_whole else "layer", key)
    for key, attribute in table(TOOL)["fusions"].items():
        on = found.switch(key)
        if on is not None:
            found.set(f"framework mlperf extends nemo.{attribute}", "fused" if on else "eager", key)
            why = "base framework, changed by this file"
            found.assume("training.framework", "mlperf", why)


def _read_averaging(found: SettingCollector) -> None:
    """Read how gradients are averaged; pretrain.py of 6.0 does not check them for NaN."""
    key = "AVERAGE_IN_COLLECTIVE"
    found.copy_switch(key, "sharding.gradient_average", "scaled_experts", "scaled")
    why = "MLPerf Training 6.0, NVIDIA: average_in_collective is False"
    found.assume("sharding.gradient_average", "scaled", why)
    why = "MLPerf Training 6.0, NVIDIA: check_for_nan_in_grad is False"
    found.assume("sharding.gradient_check", "off", why)


def _recompute(found: SettingCollector, *, known: bool) -> None:
    """Read which activations are recomputed; without a variable none are, if the script is *known*
    completely.
    """
    kind, modules = "ACT_CKPT_GRANULARITY", "RECOMPUTE_MODULES"
    granularity = found.word(kind, {"full": "full", "selective": "selective"})
    names = re.split(r"[\s,]+", str(found.value(modules, "")).strip())
    parts: Mapping[str, str] = table("megatron")["modules"]
    answers = ["--set training.recompute=none", "--set training.recompute=selective"]
    if granularity is not None:
        found.set("training.recompute", granularity, kind)
    elif modules in found and all(name in parts for name in names):
        attention = "selective" if any(not parts[name] for name in names) else "none"
        found.set("training.recompute", attention, modules)
        for path in (parts[name] for name in names if parts[name]):
            found.set(f"recompute.{path.partition('.')[2]}", "on", modules)
    elif modules in found:
        found.ask("training.recompute", f"{', '.join(names)} are not known", answers, modules)
    elif known:
        why = "MLPerf Training 6.0: activations_checkpoint_granularity is null"
        found.assume("training.recompute", "none", why)
    else:
        found.ask("training.recompute", "no variable in the file states it", answers)


def _precision(found: SettingCollector, entry: str, text: str) -> None:
    """Read the FP8 recipe, or ask for the precision.

    A file without a recipe uses that of its benchmark, or the one in the name of a sourced file.
    """
    usual = table(TOOL)["usual_recipes"].get(entry, "")
    moments = "USE_PRECISION_AWARE_OPTIMIZER"
    if entry in table(TOOL)["narrow_moments"]["models"] and moments not in found:
        reason = f"MLPerf Training 6.0: it is True: {table(TOOL)['costs'][moments]}"
        found.lack(moments, reason, "")
    named = next((one for one in ("mxfp8",) if f"config_common_{one}.sh" in text), usual)
    recipe = str(found.value("FP8_RECIPE", named)).lower()
    gathers = found.switch("FP8_PARAM_GATHER")
    recipes: Mapping[str, Sequence[str]] = table(TOOL)["recipes"]
    known = [f"--use catalog.precisions.{nemo}" for _, nemo in recipes.values()]
    if found.switch("FP4"):
        answers = ["--use catalog.precisions.nvfp4"]
        found.ask("precision", "its recipe is in another file", answers, "FP4")
    elif found.switch("FP8") and recipe in recipes:
        plain, gathered = recipes[recipe]
        found.use(f"precisions.{gathered if gathers else plain}", "FP8")
        if not gathers:
            block, why = f"precision mlperf extends {plain}", table(TOOL)["gradients_why"]
            for attribute in ("gradients", "reduction"):
                found.assume(f"{block}.{attribute}", "2 B", why)
            traffic = count_update_traffic(2, 12, 2, cast=True)
            found.assume(f"{block}.norm_traffic", NORM_OF_CAST, COUNTED)
            found.assume(f"{block}.update_traffic", f"{traffic} B", COUNTED)
            found.assume("training.precision", "mlperf", why)
    elif "FP8_RECIPE" in found and recipe not in recipes:
        found.ask("precision", f"`{recipe}` is not known", known, "FP8_RECIPE")
    elif found.switch("FP8"):
        found.ask("precision", "FP8_RECIPE is not in the files that were read", known, "FP8")
    elif found.switch("FP8") is False:
        found.use("precisions.bf16_nemo", "FP8")
    else:
        answers = [*known[:2], "--use catalog.precisions.bf16_nemo"]
        found.ask("precision", "FP8 is not in the files that were read", answers)


@hookimpl
def importers() -> list[Importer]:
    """Return the importer of MLPerf submissions."""
    return [MlPerf()]
