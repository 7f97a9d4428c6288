"""The YAML of GPT-NeoX: model and layout in its own keys, the rest in keys of DeepSpeed.

It lacks the devices and usually the vocabulary: these are known to the launcher and the tokenizer.
A launch script is read with the configurations that it names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain

from parcost import (
    ImportedValue,
    Importer,
    ImportFile,
    Translation,
    hookimpl,
)
from parcost_formats.tools.collector import SettingCollector, digits
from parcost_formats.tools.deepspeed_keys import DeepSpeedKeys
from parcost_formats.tools.file_importer import FileError, error_at
from parcost_formats.tools.gpt_neox_command import NeoxFiles, is_command, read_command
from parcost_formats.tools.job_importer import JobImporter
from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.needs import NODE_SIZE, other_nodes
from parcost_formats.tools.tables import is_listed, table
from parcost_formats.tools.yaml_text import read_mapping

TOOL = "gpt_neox"
_FRAMEWORK = "megatron_deepspeed"
_USUAL_TOKENIZER = "GPT2BPETokenizer"  # megatron/neox_arguments/neox_args.py
_MODEL = "model neox"
_SIGN = re.compile(r"(?<![\w-])(?:pipe|model)[-_]parallel[-_]size[\"']?\s*:")
_OTHER = re.compile(
    r"^[ \t]*[\"']?(?:tensor|pipeline)_model_parallel_size[\"']?\s*:|_target_", re.MULTILINE
)
_LAYERS = re.compile(r"(?<![\w-])num[-_]layers[\"']?\s*:")
#: Keys of a file with a part of a run, which the launcher of GPT-NeoX merges with others.
_PART = re.compile(
    r"(?:^|[{,])[ \t]*\"(?:(?:train|lr-decay|lr_decay)[-_]iters|vocab[-_]file|tokenizer[-_]type|"
    r"data[-_]impl|(?:pipe|model)[-_]parallel[-_]size|"
    r"checkpoint[-_](?:activations|factor)|keep[-_]last[-_]n[-_]checkpoints|launcher)\"\s*:",
    re.MULTILINE,
)
_BRACE = re.compile(r"(?:\s|#.*\n)*\{")
_MULTIPLE = 256  # of which the feed-forward size of `mlp_type` llama is a multiple


class GptNeoX(JobImporter):
    """Configurations of GPT-NeoX."""

    name = TOOL

    def recognizes(self, name: str, text: str) -> bool:
        """Return whether the text is YAML with the degrees of GPT-NeoX, or starts its trainer."""
        if is_command(name, text):
            return True
        if not name.endswith((".yml", ".yaml", ".json")):
            return False
        is_run = bool(_LAYERS.search(text)) and (bool(_SIGN.search(text)) or _has_parts(text))
        return (is_run or _is_part(name, text)) and not _OTHER.search(text)

    def read_file(self, file: ImportFile) -> Translation:
        """Return the settings of a configuration, with the keys of the other files of its run.

        The file with the model returns the settings of all files; another part of the run returns
        none.
        """
        if is_command(file.name, file.text):
            return _translate_command(read_command(file))
        others = {
            name: text
            for name, text in file.others.items()
            if self.recognizes(name, text) and not is_command(name, text)
        }
        entries = read_mapping(file.text)
        if _is_part(file.name, file.text):
            return _read_part(file, entries, others)
        merged = dict(_rename(entries))
        for name, text in others.items():
            try:
                own = _rename(read_mapping(text) if _is_part(name, text) else {})
            except FileError:
                continue  # which its own translation reports
            for key in (key for key in own if key in merged):
                message = (
                    f"`{key}` is also in `{name}`, but GPT-NeoX accepts a key in one file only"
                )
                raise error_at(merged[key], message)
            merged |= {key: JsonEntry(one.value, 0, 0) for key, one in own.items()}
        return _read_settings(SettingCollector(merged, table(TOOL)))


def _translate_command(files: NeoxFiles) -> Translation:
    """Return the settings of the configurations that a command names.

    Raises:
        FileError: A key is in two of them.
    """
    merged: dict[str, JsonEntry] = {}
    assumed: dict[str, str] = {}
    places: dict[str, str] = {}
    for name in files.texts:
        for key, entry in _rename(files.read(name)).items():
            if key in merged:
                message = f"`{key}` is in `{places[key]}` and in `{name}`"
                raise error_at(entry, f"{message}, but GPT-NeoX accepts a key in one file only")
            merged[key], places[key] = entry, name
            if name in files.assumed:
                assumed[key] = files.assumed[name]
    reserved = files.count_devices()
    stated = {"global_num_gpus", "num_gpus"} & {*merged}
    if reserved is not None and not stated:
        count, option, word = reserved
        merged[f"#SBATCH {option}"] = JsonEntry(count, word.start, word.end)
    for key, entry in files.keys.items():
        if not is_listed(key, table(TOOL)["ignored"]["keys"]):
            message = f"`--{key}` is an option of a fork, which is not supported"
            raise error_at(entry, message, f"write `{key}` into a file of the run")
    found = SettingCollector(merged, table(TOOL), assumed)
    if reserved is not None and not stated:
        found.copy(f"#SBATCH {option}", "cluster.devices")
    return _read_settings(found)


def _read_settings(found: SettingCollector) -> Translation:
    """Return the settings of all files of a run."""
    found.use(f"frameworks.{_FRAMEWORK}")
    _reject(found)
    _model(found)
    _experts(found)
    _layout(found)
    keys = DeepSpeedKeys(found, framework=_FRAMEWORK)
    keys.batch()
    keys.zero(pipelined=found.value("pipe_parallel_size", 0) != 0)
    keys.precision()
    keys.optimizer()
    _ask_for_precision(found)
    _checkpoints(found)
    found.read_table({"model": _MODEL})
    found.assume_table(table(TOOL)["defaults"], {"model": _MODEL})
    return found.translation()


def _read_part(
    file: ImportFile, entries: Mapping[str, JsonEntry], others: Mapping[str, str]
) -> Translation:
    """Return a part of a run, which is read with the file of the model; a part alone is an
    error.
    """
    if not any(_LAYERS.search(text) for text in others.values()):
        name = file.name
        message = (
            f"`{name}` is only a part of the configuration of a GPT-NeoX run: the model and the "
            "degrees are missing"
        )
        help = f"name all files of the run: `parcost eval MODEL.yml {name}`"
        raise FileError(message, help=help)
    first = next(iter(entries.values()))
    read = ImportedValue(name=f"part {file.name}", value="read", start=first.start, end=first.end)
    return Translation(facts=[read])


def _has_parts(text: str) -> bool:
    """Return whether a text in braces has several keys of GPT-NeoX."""
    return bool(_BRACE.match(text)) and len({found[0] for found in _PART.finditer(text)}) > 1


def _is_part(name: str, text: str) -> bool:
    """Return whether a text in braces has several keys of GPT-NeoX, and no model."""
    return name.endswith((".yml", ".yaml")) and _has_parts(text) and not _LAYERS.search(text)


def _rename(entries: Mapping[str, JsonEntry]) -> dict[str, JsonEntry]:
    """Return the entries under the names of the table: with underscores, and current names.

    The precision is stated in DeepSpeed's sections, chosen by a word or by the type in ``fp16``.
    """
    aliases: Mapping[str, str] = table(TOOL)["aliases"]
    found: dict[str, JsonEntry] = {}
    for key, entry in entries.items():
        section, dot, rest = key.partition(".")
        plain = f"{section.replace('-', '_')}{dot}{rest}"
        found.setdefault(aliases.get(plain, plain), entry)
    wide = found.get("fp16.type")
    is_wide = wide is not None and str(wide.value).lower() in ("bfloat16", "bf16")
    if is_wide and "fp16.enabled" in found:
        found["bf16.enabled"] = found.pop("fp16.enabled")
    word = found.get("precision")
    if word is not None and "fp16.enabled" not in found and "bf16.enabled" not in found:
        kind = table(TOOL)["precisions"].get(str(word.value).lower())
        if kind in ("fp16", "bf16"):
            found[f"{kind}.enabled"] = JsonEntry(True, word.start, word.end)
    return found


def _reject(found: SettingCollector) -> None:
    """Reject settings that parcost cannot express."""
    harmless = {"model_arch": ("gpt2",), "train_impl": ("normal",), "num_experts": (1, 0)}
    for key, why in table(TOOL)["rejected"].items():
        value = found.value(key)
        if why and value not in (None, False, *harmless.get(key, ())):
            found.problem(key, why)


def _model(found: SettingCollector) -> None:
    """Read the blocks of the model, and the vocabulary of its tokenizer."""
    rules = table(TOOL)
    norm = found.word("norm", rules["norms"])
    if norm is not None:
        found.set(f"{_MODEL}.norm", norm, "norm")
        if found.value("norm") == "non_parametric_layernorm":
            found.set(f"{_MODEL}.norm_weights", "0", "norm")
        elif norm == "layer" and found.switch("use_bias_in_norms") is False:
            found.set(f"{_MODEL}.norm_weights", "1", "use_bias_in_norms")
    elif "norm" not in found:
        found.assume(f"{_MODEL}.norm", "layer", "GPT-NeoX 2.0: norm is layernorm")
    found.switch("use_bias_in_norms")
    _feed_forward(found)
    for key, names in {"use_bias_in_attn_linear": ("qkv_biases", "output_bias")}.items():
        on = found.switch(key)
        for name in names:
            if on is None:
                found.assume(f"{_MODEL}.{name}", "on", f"GPT-NeoX 2.0: {key} is true")
            else:
                found.set(f"{_MODEL}.{name}", "on" if on else "off", key)
    _positions(found)
    untied = found.switch("no_weight_tying")
    if untied is None:
        found.assume(f"{_MODEL}.tied", "on", "GPT-NeoX 2.0: no_weight_tying is false")
    else:
        found.set(f"{_MODEL}.tied", "off" if untied else "on", "no_weight_tying")
    if found.switch("gpt_j_tied") and found.switch("gpt_j_residual"):
        found.set(f"{_MODEL}.norms", "1", "gpt_j_tied")
    rate = found.number("hidden_dropout", most=1.0)
    if rate is not None:
        found.set("training.dropout", "on" if rate else "off", "hidden_dropout")
    if found.switch("use_qk_layernorm"):
        found.set(f"{_MODEL}.qk_norm", "on", "use_qk_layernorm")
    _attention(found)
    _vocabulary(found)


def _feed_forward(found: SettingCollector) -> None:
    """Read the FFN hidden size, which GPT-NeoX scales for gated MLPs."""
    hidden = found.whole("hidden_size") or 0
    own, factor = found.whole("intermediate_size"), found.number("expansion_factor")
    multiple = found.whole("mlp_multiple_of", least=1) or 1
    width = own or (4 * hidden if factor is None else int(factor * hidden))
    gated = found.word("activation", table(TOOL)["activations"])
    kind = found.word("mlp_type", {"regular": "", "llama": "llama", "gated": "gated"})
    if kind:  # gated is a word of the branch of StableLM
        scaled = own or _round_up(8 * hidden // 3, _MULTIPLE if kind == "llama" else multiple)
        found.set(f"{_MODEL}.gated", "on", "mlp_type")
        found.set(f"{_MODEL}.ffn", digits(scaled), "intermediate_size" if own else "mlp_type")
    elif "activation" not in found:
        found.assume(f"{_MODEL}.gated", "off", "GPT-NeoX 2.0: activation is gelu")
    elif gated is not None:
        found.set(f"{_MODEL}.gated", gated, "activation")
    if kind == "llama":
        found.assume(f"{_MODEL}.mlp_biases", "off", "GPT-NeoX 2.0: mlp_type llama has none")
        return
    if gated == "on" and not kind:
        why = f"GPT-NeoX: two thirds are for gate and value, in multiples of {multiple}"
        found.assume(f"{_MODEL}.ffn", digits(_round_up(int(width * 2 / 3) // 2, multiple)), why)
    elif width and not kind:
        key = "expansion_factor" if factor is not None else "hidden_size"
        key = "intermediate_size" if own is not None else key
        found.set(f"{_MODEL}.ffn", digits(_round_up(width, multiple)), key)
    biased = found.switch("use_bias_in_mlp")
    experts = found.whole("moe_num_experts", least=0) or 0
    if experts > 1 and found.value("moe_expert_interval", 1) == 1:
        return  # of which experts have none
    if biased is None:
        found.assume(f"{_MODEL}.mlp_biases", "on", "GPT-NeoX: use_bias_in_mlp is true")
    else:
        found.set(f"{_MODEL}.mlp_biases", "on" if biased else "off", "use_bias_in_mlp")


def _experts(found: SettingCollector) -> None:
    """Read the experts of dropless layers, which have no biases.

    The model-parallel ranks share the experts, so only a single rank is supported.
    """
    key, every = "moe_num_experts", found.whole("moe_expert_interval") or 1
    count, chosen = found.whole(key, least=0) or 0, found.whole("moe_top_k")
    if count <= 1:
        return
    if (found.whole("model_parallel_size") or 1) > 1:
        reason = "experts that are split over model-parallel ranks with the same tokens are"
        found.problem(key, f"{reason} not modeled")
        return
    found.set(f"{_MODEL}.experts", digits(count), key)
    why = "GPT-NeoX 2.0: moe_top_k is 1"
    found.set_or_assume("moe_top_k", f"{_MODEL}.top_k", digits(chosen or 1), why)
    layers = found.whole("num_layers") or every
    if every > 1 and layers % every:
        message = f"the {layers} layers are not a multiple of {every}"
        found.problem("moe_expert_interval", message)
    elif every > 1:
        found.set(f"{_MODEL}.moe_every", digits(every), "moe_expert_interval")
    found.assume(
        "kernels.grouped_experts", "on", "GPT-NeoX: matrix products of experts are grouped"
    )
    if every == 1:
        found.assume(f"{_MODEL}.mlp_biases", "off", "GPT-NeoX: experts have no biases")


def _round_up(width: int, multiple: int) -> int:
    """Return a width rounded up to a *multiple*.

    >>> _round_up(8 * 4096 // 3, 256)
    11008
    """
    return -(-width // multiple) * multiple


def _positions(found: SettingCollector) -> None:
    """Read the position embedding: learned, or a bias on attention scores."""
    kinds = {"learned": "learned", "alibi": "alibi", "rotary": "", "none": "", "sinusoidal": ""}
    kind = found.word("pos_emb", kinds) if "pos_emb" in found else "learned"
    rows = found.whole("max_position_embeddings")
    if kind == "alibi":
        found.set(f"{_MODEL}.alibi", "on", "pos_emb")
    elif kind == "learned" and rows is not None:
        found.set(f"{_MODEL}.positions", digits(rows), "max_position_embeddings")
    elif kind == "" and found.value("pos_emb") == "rotary":
        found.set(f"{_MODEL}.positions", "0", "pos_emb")


def _attention(found: SettingCollector) -> None:
    """Read the kind of attention of all layers."""
    kinds = [key for key in found.keys_below("attention_config") if _is_list_of_words(found, key)]
    names = list(chain.from_iterable(found.value(key) for key in kinds))
    for key in found.keys_below("attention_config"):
        found.value(key)
    if found.switch("te_mha"):
        why = "te_mha: attention of Transformer Engine"
        found.assume("training.flash_attention", "on", why)
        _window(found)
        return
    stated = [key for key in found.keys_below("attention_config") if found.value(key) is not None]
    if stated and not kinds:
        found.problem(stated[0], "a list is expected, such as `[[[flash], all]]`")
        return
    if not kinds:
        why = "GPT-NeoX 2.0: attention_config is global: scores are written to memory"
        found.assume("training.flash_attention", "off", why)
        return
    known: Mapping[str, str] = table(TOOL)["attention"]
    strange = next((name for name in names if name not in known), None)
    if strange is not None or len(set(names)) != 1:
        what = f"`{strange}` attention" if strange is not None else "attention of several kinds"
        found.problem(kinds[0], f"{what} is not supported; supported: {', '.join(known)}")
        return
    found.set("training.flash_attention", known[names[0]], kinds[0])
    if known[names[0]] == "on":
        _window(found)


def _window(found: SettingCollector) -> None:
    """Set the attention window of a kernel that skips masked blocks."""
    found.copy("sliding_window_width", f"{_MODEL}.window", least=1)


def _is_list_of_words(found: SettingCollector, key: str) -> bool:
    value = found.value(key)
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _vocabulary(found: SettingCollector) -> None:
    """Set the vocabulary of a known tokenizer, or ask for it."""
    padded = found.whole("padded_vocab_size")
    if padded is not None:
        found.set(f"{_MODEL}.vocabulary", digits(padded), "padded_vocab_size")
        return
    known: Mapping[str, int] = table(TOOL)["vocabularies"]
    for key in ("vocab_file", "tokenizer_type"):
        name = str(found.value(key, "")).rpartition("/")[2]
        if name in known:
            found.set(f"{_MODEL}.vocabulary", digits(known[name]), key)
            return
    if "tokenizer_type" not in found and "vocab_file" not in found:
        why = f"GPT-NeoX: tokenizer_type is {_USUAL_TOKENIZER}"
        found.assume(f"{_MODEL}.vocabulary", digits(known[_USUAL_TOKENIZER]), why)
        return
    answers = ["--set model.vocabulary=50277", "--set model.vocabulary=32000"]
    key = next((key for key in ("vocab_file", "tokenizer_type") if key in found), "")
    found.ask("model.vocabulary", "the tokenizer has the vocabulary", answers, key)


def _layout(found: SettingCollector) -> None:
    """Read the pipeline, and the devices of the launcher."""
    stages = found.whole("pipe_parallel_size", least=0)
    if stages is None:
        found.assume("layout.pp", "1", "GPT-NeoX 2.0: pipe_parallel_size is 0")
    else:
        found.set("layout.pp", str(max(stages, 1)), "pipe_parallel_size")
        if stages > 1:
            found.assume("schedule.kind", "one_f_one_b", "DeepSpeed 0.16: TrainSchedule")
    total = found.whole("global_num_gpus")
    nodes, each = found.whole("num_nodes"), found.whole("num_gpus")
    if total is not None:
        found.set("cluster.devices", digits(total), "global_num_gpus")
    elif each is not None:
        found.set("cluster.devices", f"{nodes or 1} * {each}", "num_gpus")
        if note := other_nodes(nodes or 1, each):
            found.leave_open("num_gpus", note, NODE_SIZE)
    elif not found.setting("cluster.devices"):
        _devices_of_batch(found, max(stages or 1, 1))


def _devices_of_batch(found: SettingCollector, stages: int) -> None:
    """Set the device count that follows from a batch size with all its factors."""
    keys = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    if not all(key in found for key in keys):
        return
    batch, micro, steps = (found.whole(key) for key in keys)
    if not batch or not micro or not steps or batch % (micro * steps):
        return
    degree = found.whole("model_parallel_size") or 1
    why = "GPT-NeoX: replicas are train_batch_size / (micro-batch x steps), of pp x mp devices each"
    count = batch // (micro * steps) * stages * degree
    found.assume("cluster.devices", digits(count), why)


def _ask_for_precision(found: SettingCollector) -> None:
    """Ask for the precision if DeepSpeed keys do not determine it."""
    word = found.word("precision", table(TOOL)["precisions"]) if "precision" in found else None
    narrow = [kind for kind in ("fp16", "bf16") if found.switch(f"{kind}.enabled")]
    if word is not None and narrow and word not in narrow:
        found.problem("precision", f"precision is {word}, but `{narrow[0]}` is enabled")
    fp8 = ("te_columnparallel", "te_rowparallel", "te_layernorm_mlp", "te_mha")
    used = [key for key in fp8 if found.switch(key)]
    if used and "te_fp8_format" in found:
        wide = found.switch("te_fp8_wgrad") is False
        more = " --set precision.wide_weight_gradients=on" if wide else ""
        answers = [
            f"--use catalog.precisions.fp8_delayed{more}",
            f"--use catalog.precisions.{narrow[0] if narrow else 'bf16'}",
        ]
        named = ", ".join(f"`{key}`" for key in used)
        found.ask(
            "precision", f"{named}: computed in 8 bits, the rest in 16 bits", answers, used[0]
        )
    if found.switch("use_bnb_optimizer"):
        answers = ["--use catalog.precisions.bf16_adam8", "--use catalog.precisions.bf16"]
        found.ask("precision", "its optimizer states have 8 bits", answers, "use_bnb_optimizer")


def _checkpoints(found: SettingCollector) -> None:
    """Read which activations are recomputed in backward."""
    key, every = "checkpoint_activations", found.whole("checkpoint_num_layers", least=0)
    on = found.switch(key)
    if on is None:
        found.assume("training.recompute", "none", f"GPT-NeoX 2.0: {key} is false")
        return
    found.set("training.recompute", "full" if on else "none", key)
    if on and every is not None and every > 1:
        why = f"checkpoints of {every} layers are not supported; one layer each is assumed"
        found.leave_open("checkpoint_num_layers", why)
    if on and found.switch("checkpoint_in_cpu"):
        found.set("offload.activations", "100 %", "checkpoint_in_cpu")


@hookimpl
def importers() -> list[Importer]:
    """Return the importer of configurations of GPT-NeoX."""
    return [GptNeoX()]
