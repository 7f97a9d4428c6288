"""The YAML of LitGPT: pretraining and fine-tuning, full or with LoRA, by Lightning Fabric.

The model is given by a name in the catalogue, or a dense model by its sizes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial

from parcost import Importer, ImportFile, Translation, hookimpl
from parcost_formats.tools.collector import AUTO, SettingCollector, digits
from parcost_formats.tools.command_keys import CommandKeys
from parcost_formats.tools.finetuning.adapters import BLOCK, read_adapters
from parcost_formats.tools.hub import ask_for_model, find_entry, read_hub_model
from parcost_formats.tools.job_importer import JobImporter
from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.litgpt_command import is_command, read_command
from parcost_formats.tools.needs import ask_for_devices
from parcost_formats.tools.tables import is_listed, table
from parcost_formats.tools.yaml_text import read_mapping

TOOL = "litgpt"
_VERSION = str(table("litgpt")["version"])
_OWN = "model_config."
_USUAL_MLP, _USUAL_NORM = "GptNeoxMLP", "LayerNorm"
_USUAL_WORDS, _USUAL_MULTIPLE = 50254, 512
_RECIPE = "precision fabric extends"
_ANSWERS = ("--use catalog.precisions.bf16_fsdp", "--use catalog.precisions.bf16_pure")
_TRAIN = (
    r"^train\s*:",
    r"(?:^[ \t]+|[{,][ \t]*)(?:lr_warmup_steps|micro_batch_size|global_batch_size)\s*:",
)
#: Patterns of a text; all of one line are in each file.
_SIGNS = (
    (r"^(?:out_dir|model_name)\s*:", r"^(?:tokenizer_dir|checkpoint_dir|logger_name)\s*:", *_TRAIN),
    (r"^model_config\s*:", r"(?:^[ \t]+|[{,][ \t]*)n_embd\s*:", *_TRAIN),
)


class LitGpt(JobImporter):
    """Configurations of LitGPT."""

    name = TOOL

    def recognizes(self, name: str, text: str) -> bool:
        """Return whether the text is YAML with the sections of LitGPT, or starts it."""
        if not name.endswith((".yaml", ".yml", ".py", ".par", ".md", ".ipynb")):
            return is_command(text)
        if not name.endswith((".yaml", ".yml")) or "trainer:" in text:
            return False
        return any(all(re.search(s, text, re.MULTILINE) for s in signs) for signs in _SIGNS)

    def read_file(self, file: ImportFile) -> Translation:
        """Return the settings of a configuration, or of the command in a script."""
        is_yaml = file.name.endswith((".yaml", ".yml"))
        read = CommandKeys(dict(read_mapping(file.text))) if is_yaml else read_command(file)
        found = SettingCollector(_with_sizes(read.entries), table(TOOL), read.assumed)
        for pattern, why in table(TOOL)["rejected"].items():
            for key in read.entries:
                if is_listed(key, [pattern]) and found.value(key) is not None:
                    found.problem(key, why)
        found.use("frameworks.pytorch_fsdp")
        _model(found)
        _batch(found)
        adapted = read_adapters(found, table(TOOL))
        if adapted:
            why = "LitGPT, lora.py: LoRALinear does not cast its input"
            found.assume(f"{BLOCK}.cast_inputs", "off", why)
        _read_sharding(found, adapted=adapted)
        _precision(found)
        found.read_table()
        return found.translation()


def _with_sizes(entries: Mapping[str, JsonEntry]) -> Mapping[str, JsonEntry]:
    """Return the entries of a job with the `model_config` of the model that it names."""
    stated = (entries[key] for key in ("model_name", "checkpoint_dir") if key in entries)
    name = next((one for one in stated if one.value is not None), None)
    own = (one for key, one in entries.items() if f"{key}.".startswith(_OWN))
    if name is None or any(one.value is not None for one in own):
        return entries
    last = str(name.value).rstrip("/").rpartition("/")[2].lower()
    for family in table(TOOL)["families"].values():
        usual = {key: value for key, value in family.items() if key != "models"}
        for names, sizes in family["models"].items():
            if last in names.split():
                added = {**usual, **sizes}.items()
                more = {f"{_OWN}{k}": JsonEntry(v, name.start, name.end) for k, v in added}
                return {**entries, **more}
    return entries


def _is_pretraining(found: SettingCollector) -> bool:
    return "checkpoint_dir" not in found


def _model(found: SettingCollector) -> None:
    """Read the model by its name, or by the folder of its checkpoint."""
    own = found.keys_below("model_config")
    if any(found.value(key) is not None for key in own):
        if _is_dense(found, own):
            _sizes(found)
            return
        answers = ["--use config.json", "--use catalog.models.llama31_8b"]
        found.ask("model", "sizes in a `model_config` are not supported", answers, own[0])
        return
    key = next((one for one in ("model_name", "checkpoint_dir") if one in found), "")
    if not key:
        ask_for_model(found, "model_name")
        return
    name = str(found.value(key)).rstrip("/")
    last = name.rpartition("/")[2].lower()
    entry, why = table(TOOL)["names"].get(last, ""), ""
    if not entry:
        entry, why = find_entry(name) if "/" in name else (find_entry(f"litgpt/{name}")[0], "")
    if not entry:
        read_hub_model(found, key, name)
        return
    found.use(f"models.{entry}", key, why)
    found.set("training.model", TOOL, key)
    block, ties = f"model {TOOL} extends {entry}", "train.tie_embeddings"
    tied = "on" if found.switch(ties) and _is_pretraining(found) else "off"
    why = f"{_VERSION}: without tie_embeddings the head has its own weights"
    found.set_or_assume(ties, f"{block}.tied", tied, why)


def _is_dense(found: SettingCollector, keys: Iterable[str]) -> bool:
    """Return whether the keys of a `model_config` describe only a dense model, with its sizes."""
    rules = table(TOOL)["dense"]
    stated = [key for key in keys if found.value(key) not in (None, 0, False, {})]
    names = {key.removeprefix(_OWN) for key in stated}
    mlp = found.value(f"{_OWN}mlp_class_name", _USUAL_MLP)
    known = [*rules["sizes"], *rules["words"], *rules["free"]]
    whole = {"n_layer", "n_head", "n_embd"} | (
        {"intermediate_size"} if mlp != _USUAL_MLP else set()
    )
    words = (
        mlp in rules["gated"]
        and found.value(f"{_OWN}norm_class_name", _USUAL_NORM) in rules["norms"]
    )
    norms = all(found.value(f"{_OWN}{one}") is not False for one in ("norm_1", "norm_2"))
    return words and norms and names >= whole and all(is_listed(one, known) for one in names)


def _sizes(found: SettingCollector) -> None:
    """Read a dense model by its sizes, completed from the defaults of LitGPT."""
    rules, block = table(TOOL)["dense"], f"model {TOOL}"
    for name, attribute in rules["sizes"].items():
        found.copy(f"{_OWN}{name}", f"{block}.{attribute}")
    hidden = found.whole(f"{_OWN}n_embd") or 0
    if f"{_OWN}intermediate_size" not in found:
        why = f"{_VERSION}: intermediate_size is 4 x n_embd"
        found.assume(f"{block}.ffn", str(4 * hidden), why)
    rows = f"{_OWN}padded_vocab_size"
    if found.copy(rows, f"{block}.vocabulary") is None:
        words = found.whole(f"{_OWN}vocab_size") or _USUAL_WORDS
        multiple = found.whole(f"{_OWN}padding_multiple") or _USUAL_MULTIPLE
        why = f"{_VERSION}: the vocabulary is padded to a multiple of {multiple}"
        found.assume(f"{block}.vocabulary", str(-(-words // multiple) * multiple), why)
    for key, attribute, usual, values in (
        ("mlp_class_name", "gated", _USUAL_MLP, rules["gated"]),
        ("norm_class_name", "norm", _USUAL_NORM, rules["norms"]),
        ("bias", "biases", True, {True: "on", False: "off"}),
        ("parallel_residual", "parallel_residual", True, {True: "on", False: "off"}),
    ):
        value = found.value(f"{_OWN}{key}", usual)
        why = "" if f"{_OWN}{key}" in found else f"{_VERSION}: {key} is {usual}"
        if why:
            found.assume(f"{block}.{attribute}", values[value], why)
        else:
            found.set(f"{block}.{attribute}", values[value], f"{_OWN}{key}")
    for key in ("model_name", "checkpoint_dir", *(f"{_OWN}{one}" for one in rules["free"])):
        found.value(key)
    ties = "train.tie_embeddings"
    tied = "on" if found.switch(ties) else "off"
    found.set_or_assume(ties, f"{block}.tied", tied, f"{_VERSION}: the head has its own weights")


def _batch(found: SettingCollector) -> None:
    """Read the batch; its defaults depend on the subcommand."""
    pretraining = _is_pretraining(found)
    key, usual = "train.global_batch_size", "512" if pretraining else "16"
    value = f"{digits(found.whole(key) or int(usual))} sequences"
    found.set_or_assume(key, "training.global_batch", value, f"{_VERSION}: {key} is {usual}")
    if found.whole("train.micro_batch_size") is None:
        usual = "4" if pretraining else "1"
        why = f"{_VERSION}: train.micro_batch_size is {usual}"
        found.assume("training.micro_batch", usual, why)
    if found.whole("train.max_seq_length") is None:
        why = (
            "without `train.max_seq_length` the length is the context of the model, or of the data"
        )
        found.ask("training.sequence", why, ["--set training.sequence=2048"])


def _read_sharding(found: SettingCollector, *, adapted: bool) -> None:
    """Read the devices and FSDP: within a node in pretraining, else over all ranks."""
    nodes, key = found.whole("num_nodes") or 1, "devices"
    pretraining = _is_pretraining(found)
    command = "pretrain" if pretraining else f"finetune_{'lora' if adapted else 'full'}"
    each = None if found.value(key, AUTO) == AUTO else found.whole(key)
    if each is not None:
        found.set("cluster.devices", f"{nodes} * {each}", key)
    elif key in found:
        ask_for_devices(partial(found.ask, option=key), "all devices of a node", (), nodes)
    elif not pretraining:
        each = 1
        found.assume("cluster.devices", str(nodes), f"{_VERSION}: {command} has 1 device")
    alone = each is not None and each * nodes == 1
    stage, recompute = ("0", "none") if alone else ("3", "none" if pretraining else "full")
    how = "one device does not shard" if alone else "FSDPStrategy"
    found.assume("layout.zero", stage, f"{_VERSION}: {command}: {how}")
    why = "recomputes each block" if recompute == "full" else "keeps activations"
    found.assume("training.recompute", recompute, f"{_VERSION}: {command} {why}")
    if pretraining:
        found.assume("kernels.mode", "compiled", f"{_VERSION}: pretrain compiles the model")
        if nodes > 1 and each is not None:
            why = f"{_VERSION}: pretrain shards by HYBRID_SHARD, within a node"
            found.assume("sharding.shard", str(each), why)
    if not alone:
        why = f"{_VERSION}: no_backward_sync keeps unsharded gradients until the last micro-batch"
        found.assume("sharding.accumulate", "whole", why)


def _precision(found: SettingCollector) -> None:
    """Read the optimizer, and the precision to which Fabric's FSDP casts."""
    key, kinds = "precision", table(TOOL)["precisions"]
    value = str(found.value(key, "bf16-mixed"))
    name = str(found.value("optimizer.class_path", found.value("optimizer", "AdamW")))
    if name.rpartition(".")[2].lower() not in table(TOOL)["optimizers"]["names"]:
        reason = f"precision recipes have the optimizer state of Adam, but the optimizer is {name}"
        place = "optimizer" if "optimizer" in found else "optimizer.class_path"
        found.ask("precision", reason, _ANSWERS, place)
    if value not in kinds:
        _reject_precision(found, key, value)
        return
    recipe, *sizes = kinds[value]
    stated = key if key in found else ""
    why = "" if stated else f"{_VERSION}: bf16-mixed on devices that support bf16"
    found.use(f"precisions.{recipe}", stated, why)
    if not sizes:
        return
    fact = "Lightning 2.5: FSDPPrecision gathers fp32 and reduces 16 bits"
    if value.endswith("-true"):
        fact = "Lightning 2.5: weights, gradients and moments are all fp16"
    for attribute, size in zip(("gather", "reduction", "compute"), sizes, strict=False):
        found.assume(f"{_RECIPE} {recipe}.{attribute}", size, fact)
    found.assume("training.precision", "fabric", "base recipe, changed by this file")


def _reject_precision(found: SettingCollector, key: str, value: str) -> None:
    """Report a precision that Fabric, or its FSDP, does not have, or ask for its recipe."""
    known = ", ".join(one for one in table(TOOL)["precisions"] if "-" in one)
    other = table(TOOL)["other_precisions"].get(value)
    if other is None:
        found.problem(key, f"`{value[:40]}` is not a precision of Lightning", f"known: {known}")
    elif found.setting("layout.zero") != "0":
        found.problem(key, f"FSDP of Lightning rejects `{value}`", f"valid values: {known}")
    else:
        found.ask("precision", f"`{value}` is {other}, for which there is no recipe", _ANSWERS, key)


@hookimpl
def importers() -> list[Importer]:
    """Return the importer of configurations of LitGPT."""
    return [LitGpt()]
