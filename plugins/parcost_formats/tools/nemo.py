"""YAML configurations of NVIDIA NeMo 1, and those that NeMo 2 exports.

A class named by ``_target_`` is looked up in a table, and never loaded. References to other keys
are resolved; those to the environment and to other resolvers are not.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from parcost import Importer, ImportFile, SettingsWriter, Translation, hookimpl
from parcost_formats.tools.collector import SettingCollector, digits, read_configuration
from parcost_formats.tools.hub import vocabulary_of
from parcost_formats.tools.interpolation import MANDATORY, resolve
from parcost_formats.tools.job_importer import JobImporter
from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.megatron.schedule import IN_MODEL, MUST_DIVIDE
from parcost_formats.tools.needs import NODE_SIZE, ask_for_devices, other_nodes
from parcost_formats.tools.nemo_adapters import find_adapters, read_nemo_adapters
from parcost_formats.tools.nemo_command import is_command, read_command
from parcost_formats.tools.nemo_precision import read_precision
from parcost_formats.tools.nemo_recipe import read_nemo_recipe
from parcost_formats.tools.nemo_writer import NeMoWriter
from parcost_formats.tools.python_code import UNPACKED
from parcost_formats.tools.tables import table
from parcost_formats.tools.unsupported import unsupported_message

TOOL = "nemo"
_MODELS = ("model.config.", "model.", "config.")
_STRATEGIES = ("trainer.strategy.", "model.")
_INSTANCES = "num_distributed_optimizer_instances"
# Keys that choose FSDP in the place of the distributed optimizer, their values, and its stage.
_FSDP = (
    "trainer.strategy.fsdp",
    "trainer.strategy.ddp.use_custom_fsdp",
    "trainer.strategy.ddp.use_megatron_fsdp",
)
_SHARDING = {**dict.fromkeys(("megatron", "pytorch", "true"), "on"), "false": "", "none": ""}
_SHARDS = "trainer.strategy.ddp.data_parallel_sharding_strategy"
_BATCHES = ("data.", "model.", "model.config.")
_VERSION = "NeMo 2.5"  # whose defaults of adapters are assumed
_CALLBACKS = [f"trainer.callbacks.{place}." for place in range(20)]
_TOKENIZERS = (
    *("model.tokenizer.type", "model.tokenizer.tokenizer_name"),
    *("model.tokenizer.pretrained_model_name", "model.tokenizer.model_name"),
    *("data.tokenizer.pretrained_model_name", "data.tokenizer.model_name"),
)
_VOCABULARIES = ("model.tokenizer.vocab_size", "data.tokenizer.vocab_size")
_SIGNS_OF_RECIPES = ("nemo_run", "nemo.collections.llm", "from nemo.collections import llm")
_ANSWERS = {
    "precision": "--use catalog.precisions.bf16",
    "model": "--use catalog.models.llama31_8b",
    "cluster.devices": "--set cluster.devices=64",
    "training.global_batch": "--set 'training.global_batch=512 sequences'",
    "training.recompute": "--set training.recompute=none",
    "training.sequence": "--set training.sequence=8192",
}
_CLASS_KEYS = ("model.config._target_", "config._target_", "model._target_")
_SIZED = re.compile(r"\d[BM](?:_|$)")  # a class of NeMo 2 with the sizes of a model
_SHAPE = ("num_layers", "hidden_size", "num_attention_heads")
_ENCODERS = ("Bert", "T5", "ESM")
_CLASSES = re.compile(r"_target_: ['\"]?nemo\.")
_LAYOUT = re.compile(r"^[ \t]*tensor_model_parallel_size:", re.MULTILINE)
_TOP = re.compile(r"^(?:trainer|model|strategy|exp_manager):", re.MULTILINE)
#: Top keys of tools that have the same words.
_OTHERS = re.compile(
    r"^(?:policy|grpo|modules|actor_rollout_ref|actor|cluster|peft|recipe|system|"
    r"distributed_strategy|ddp|comm_overlap|mixed_precision):",
    re.MULTILINE,
)


class NeMo(JobImporter):
    """Configurations of NeMo."""

    name = TOOL

    def recognizes(self, name: str, text: str) -> bool:
        """Return whether the text is YAML of NeMo, by its layout or classes, or a recipe."""
        if name.endswith(".py"):
            return any(sign in text for sign in _SIGNS_OF_RECIPES)
        if name.endswith((".sh", ".sbatch", ".slurm", ".sub")):
            return is_command(text)
        if not name.endswith((".yaml", ".yml")):
            return False
        if _CLASSES.search(text):
            return True
        return bool(_LAYOUT.search(text) and _TOP.search(text) and not _OTHERS.search(text))

    def read_file(self, file: ImportFile) -> Translation:
        """Return the settings of a configuration; `--recipe` chooses one of several recipes."""
        if file.name.endswith(".py"):
            recipe = read_nemo_recipe(file.text, file.options.recipe, file.neighbor)
            return _NeMoReader(recipe.entries, recipe.unread, recipe.assumed).translation()
        if is_command(file.text) and not file.name.endswith((".yaml", ".yml")):
            job = read_command(file)
            return _NeMoReader(job.entries, job.unread, job.assumed).translation()
        return _NeMoReader(read_configuration(file.name, file.text)).translation()


def _nest_arguments(entries: Mapping[str, JsonEntry]) -> Mapping[str, JsonEntry]:
    """Return the entries with trainer arguments at the top level moved under ``trainer``.

    Recipes of SageMaker HyperPod have the trainer's plugin and the DDP options at the top level.
    """
    moved: Mapping[str, str] = table(TOOL)["beside_trainer"]

    def place(key: str) -> str:
        at = key.partition(".")[0]
        return f"{moved[at]}{key[len(at) :]}" if at in moved else key

    return {place(key): one for key, one in entries.items()}


class _NeMoReader:
    """Reads the entries of a configuration, by the key prefixes of NeMo 1 or 2."""

    def __init__(
        self,
        entries: Mapping[str, JsonEntry],
        unread: Mapping[str, str] = MappingProxyType({}),
        assumed: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Read *entries*; *unread* are keys of unknown value, with the reasons.

        *assumed* are keys whose values are set by a library.
        """
        self._unread, self._assumed = unread, assumed
        self._table: Mapping[str, Any] = table(TOOL)
        self._entries = resolve(_nest_arguments(entries))
        self._found = SettingCollector(self._entries, self._table, assumed)
        self._exported = any(key.endswith("_target_") for key in entries)

    def translation(self) -> Translation:
        """Return the translation of the configuration."""
        found = self._found
        found.use("frameworks.nemo")
        self._mandatory()
        self._devices()
        self._layout()
        self._batch()
        self._model()
        self._divide()
        self._recompute()
        self._loss()
        self._optimizer()
        self._attention()
        read_precision(found, exported=self._exported)
        self._adapters()
        asked = self._ask()
        if not self._exported:
            self._assume_defaults(asked)
        return found.translation()

    def _assume_defaults(self, asked: Collection[str]) -> None:
        """Set NeMo 1's defaults for missing keys, except for attributes that are *asked* for."""
        for path, default in self._table["defaults"].items():
            block, _, attribute = path.rpartition(".")
            if path not in asked and not self._found.has(f"{block}.{attribute}"):
                self._found.assume(f"{block}.{attribute}", default["value"], default["why"])

    def _adapters(self) -> None:
        """Read adapters, or reject unsupported ones, which would otherwise become full
        fine-tuning.
        """
        found = self._found
        prefix = find_adapters(found, ("peft.", "model_transform.", *_CALLBACKS))
        if prefix:
            unread = next((one for one in self._unread if one.startswith(prefix)), "")
            if unread:
                found.problem(unread, f"the adapters cannot be read: {self._unread[unread]}")
            else:
                read_nemo_adapters(found, self._entries, self._assumed, prefix, _VERSION)
            return
        scheme = "model.peft.peft_scheme"
        if found.value(scheme) not in (None, "none", "null", ""):
            found.problem(scheme, "adapters of NeMo 1 are not supported yet")
        for key in ("peft._target_", "model_transform._target_"):
            if found.value(key) is not None:
                found.problem(key, "adapters of this class are not supported yet")
        if self._exported and ("peft" in self._unread or "peft" in found):
            found.problem("peft", "adapters that are defined in another file are not supported")

    def _ask(self) -> Collection[str]:
        """Ask for attributes that a recipe computes from unknown values; return them."""
        model = self._table["model"]
        paths = {
            **{
                name: f"model.{one}"
                for name, one in {**model["numbers"], **model["switches"]}.items()
            },
            **self._table["decides"],
            **self._table["layout"]["numbers"],
            **self._table["layout"]["switches"],
            **self._table["batch"],
            "global_batch_size": "training.global_batch",
        }
        asked: set[str] = set()
        sections = self._table["sections"]
        elsewhere = "comes from another file, which parcost does not read"
        named = {
            key: f"`{self._found.value(key)}` {elsewhere}"
            for key in sections
            if self._exported and key in self._found and key not in self._unread
        }
        for key, why in {**self._unread, **named}.items():
            path = paths.get(key) or paths.get(key.rpartition(".")[2], "")
            below = sections.get(key.removesuffix(f".{UNPACKED}"), ())
            for one in [path] if path else [one for one in below if not self._is_stated(one)]:
                if one not in asked:
                    asked.add(one)
                    answer = _ANSWERS.get(one, f"--set {one}=1")
                    self._found.ask(one, f"`{key}`: {why}", [answer], key)
        return asked

    def _is_stated(self, path: str) -> bool:
        """Return whether the file sets an attribute, the model or the precision."""
        if path == "precision":
            return bool(self._found.recipe()[1])
        block, _, name = path.partition(".")
        return self._found.has(f"{block}.{name}" if name else f"training.{block}")

    def _mandatory(self) -> None:
        """List the values that the command line must supply (``???``)."""
        paths = self._table["model"]["numbers"], self._table["layout"]["numbers"]
        names = {*self._table["batch"], *paths[0], *paths[1], "num_nodes", "devices"}
        for key, entry in self._entries.items():
            if entry.value == MANDATORY and key.rpartition(".")[2] in names:
                self._found.leave_open(
                    key, f"`{MANDATORY}` is a placeholder for a value from the command line"
                )

    def _key(self, name: str, prefixes: Sequence[str]) -> str | None:
        """Return the full key of a name in this file, None if it is missing."""
        for prefix in prefixes:
            key = f"{prefix}{name}"
            if key in self._found and self._entries[key].value != MANDATORY:
                return key
        return None

    def _devices(self) -> None:
        """Read the device count: nodes times devices per node."""
        nodes, each = self._key("num_nodes", ["trainer."]), self._key("devices", ["trainer."])
        if each is None:
            return
        if self._found.value(each) in (-1, "auto"):
            count = self._found.whole(nodes) if nodes else None
            ask_for_devices(
                partial(self._found.ask, option=each), "all devices of a node", (), count
            )
            return
        devices = self._found.whole(each)
        if any(key.endswith("num_nodes") for key in self._unread):
            return  # asked for
        if devices is not None and nodes is None:
            why = "Lightning: num_nodes is 1"
            self._found.assume("cluster.devices", f"1 * {devices}", why)
        elif devices is not None and nodes and (count := self._found.whole(nodes)) is not None:
            self._found.set("cluster.devices", f"{count} * {devices}", nodes)
            if note := other_nodes(count, devices):
                self._found.leave_open(each, note, NODE_SIZE)

    def _layout(self) -> None:
        """Read the degrees and the schedule."""
        found = self._found
        for name, path in self._table["layout"]["numbers"].items():
            key = self._key(name, _STRATEGIES)
            number = None if key is None else found.whole(key)
            if key is not None and number is not None:
                block, _, attribute = path.partition(".")
                found.set(f"{block}.{attribute}", digits(number), key)
                if attribute == "chunks" and number > 1:
                    found.set("schedule.kind", "interleaved", key)
        self._switches(self._table["layout"]["switches"], _STRATEGIES)
        self._switches(self._table["kernels"], _MODELS)
        multiple = self._key("make_vocab_size_divisible_by", _MODELS)
        number = None if multiple is None else found.whole(multiple)
        if multiple is not None and number is not None:
            found.set("layout.vocabulary_multiple", str(number), multiple)
        for name in ("ub_tp_comm_overlap", "tp_comm_overlap"):
            key = self._key(name, ("model.", "model.config.", *_CALLBACKS))
            if key is not None and found.switch(key):
                found.set("overlap.tensor", "pipelined", key)
        self._transfers()

    def _transfers(self) -> None:
        """Read whether stages with several chunks wait for messages; other stages always do.

        A callback of NeMo 2 overrides the key of the model; its default is to overlap.
        """
        found, name = self._found, "overlap_p2p_comm"
        if not found.has("schedule.kind"):
            return
        overlaps = any(
            str(found.value(f"{prefix}_target_", "")).endswith("MegatronCommOverlapCallback")
            for prefix in _CALLBACKS
        )
        key = self._key(name, _CALLBACKS if overlaps else _MODELS)
        on = None if key is None else found.switch(key)
        if key is not None and on is not None:
            found.set("schedule.transfers", "overlapped" if on else "blocking", key)
        elif not self._exported and f"model.{name}" not in self._unread:
            found.assume("schedule.transfers", "blocking", f"NeMo 1: {name} is False")

    def _loss(self) -> None:
        """Read the cross entropy: that of Transformer Engine saves a gradient, others save a
        softmax.
        """
        found, name = self._found, "cross_entropy_loss_fusion"
        kind, fused = self._key("cross_entropy_fusion_impl", _MODELS), self._key(name, _MODELS)
        is_fused = None if fused is None else found.switch(fused)
        word = None if kind is None else found.word(kind, {"te": "gradient", "native": "softmax"})
        if fused is not None and is_fused is False:
            found.set("training.loss", "softmax", fused)
        elif kind is not None and word is not None:
            found.set("training.loss", word, kind)
        elif not self._exported:
            why = "NeMo 1: the cross entropy of Megatron-Core keeps its softmax"
            found.assume("training.loss", "softmax", why)

    def _batch(self) -> None:
        """Read sequence length and batch sizes."""
        found = self._found
        for name, path in self._table["batch"].items():
            key = self._key(name, _BATCHES)
            number = None if key is None else found.whole(key)
            if key is not None and number is not None:
                block, _, attribute = path.partition(".")
                found.set(f"{block}.{attribute}", digits(number), key)
        unset = next(
            (one for one in (f"{p}micro_batch_size" for p in _BATCHES) if one in self._entries), ""
        )
        if unset and self._entries[unset].value is None and unset not in self._unread:
            found.ask(
                "training.micro_batch",
                f"`{unset}` is None",
                ["--set training.micro_batch=1"],
                unset,
            )
        key = self._key("global_batch_size", _BATCHES)
        number = None if key is None else found.whole(key)
        if key is not None and number is not None:
            found.set("training.global_batch", f"{digits(number)} sequences", key)

    def _model(self) -> None:
        """Read the sizes of the model, or the class that defines them."""
        found = self._found
        base = self._class_of_model()
        sized = self._key("num_layers", _MODELS)
        if base is None and sized is None:
            self._ask_for_class()
            return
        block = f"model nemo extends {base}" if base else "model nemo"
        for name, attribute in self._table["model"]["numbers"].items():
            key = self._key(name, _MODELS)
            number = None if key is None else found.whole(key)
            if key is not None and number is not None:
                found.set(f"{block}.{attribute}", digits(number), key)
        switches = {n: f"{block}.{a}" for n, a in self._table["model"]["switches"].items()}
        self._switches(switches, _MODELS)
        for name, words in (("activation", "activations"), ("normalization", "norms")):
            key = self._key(name, _MODELS)
            value = None if key is None else found.word(key, self._table["model"][words])
            if key is not None and value is not None:
                found.set(f"{block}.{'gated' if name == 'activation' else 'norm'}", value, key)
            if name == "activation" and key is not None and found.value(key) == "squared-relu":
                found.set(f"{block}.squared_relu", "on", key)
        self._positions(block)
        self._exchange()
        self._dropout()
        if base and found.has(f"{block}."):
            found.assume("training.model", "nemo", "base model, changed by this file")
        if self._exported:
            if base is None:
                self._family(block)
        else:
            for name, default in self._table["model"]["defaults"].items():
                found.assume(f"{block}.{name}", default["value"], default["why"])
            if self._key("vocab_size", _MODELS) or self._key("override_vocab_size", _MODELS):
                return
            self._tokenizer(block)

    def _ask_for_class(self) -> None:
        """Ask for the model of a class that is in no table; encoders are rejected."""
        found = self._found
        kinds = {key: str(found.value(key)).rpartition(".")[2] for key in _CLASS_KEYS}
        named = [key for key in _CLASS_KEYS if key in found]
        other = next((key for key in named if kinds[key].startswith(_ENCODERS)), "")
        if other:
            found.problem(other, f"`{kinds[other]}`: {unsupported_message('encoder')}")
        elif named:
            reason = f"`{kinds[named[0]]}` is not in parcost's table"
            found.ask("model", reason, ["--use config.json", _ANSWERS["model"]], named[0])
        else:
            found.lack("the sizes of the model", "write `use catalog.models.NAME`", "model")

    def _family(self, block: str) -> None:
        """Set the defaults of a model class for missing keys; ask about unknown classes."""
        found, families = self._found, self._table["families"]
        key = next((one for one in _CLASS_KEYS if one in found), "")
        kind = str(found.value(key, "")).rpartition(".")[2]
        start = max((one for one in families if kind.startswith(one)), key=len, default="")
        if not start:
            reason = f"the defaults of `{kind}` are unknown"
            found.ask("model", reason, [_ANSWERS["model"], "--use config.json"], key)
            return
        if _SIZED.search(kind) and any(self._key(name, _MODELS) is None for name in _SHAPE):
            reason = f"`{kind}` is not in parcost's table, and the file does not state all sizes"
            found.ask("model", reason, ["--use config.json", _ANSWERS["model"]], key)
        for name, value in families[start].items():
            why = f"NeMo 2.5: {kind}"
            if name == "dropout":
                found.assume(f"training.{name}", value, why)
            elif name != "positions":
                found.assume(f"{block}.{name}", value, why)
            elif not found.has(f"{block}.{name}") and not self._key(
                "position_embedding_type", _MODELS
            ):
                found.assume(f"{block}.{name}", "training.sequence", why)
        if not (self._key("vocab_size", _MODELS) or self._key("override_vocab_size", _MODELS)):
            self._tokenizer(block)

    def _tokenizer(self, block: str) -> None:
        """Set the vocabulary size from a known tokenizer, or list it as missing."""
        found = self._found
        stated = next((one for one in _VOCABULARIES if one in found), None)
        size = None if stated is None else found.whole(stated)
        if stated is not None and size is not None:
            found.set(f"{block}.vocabulary", digits(size), stated)
            return
        key = next((one for one in _TOKENIZERS if one in found), None)
        shown = str(found.value(key, "")) if key else ""
        size = table("megatron")["tokenizers"].get(shown) or vocabulary_of(shown)
        if key is not None and size is not None:
            found.set(f"{block}.vocabulary", digits(int(size)), key)
            return
        why = "the tokenizer has it: write `model mine extends nemo { vocabulary = N }`"
        found.lack("the vocabulary", why, "model.vocabulary")

    def _class_of_model(self) -> str | None:
        """Import the catalogue model of a class, and return its entry."""
        for key in _CLASS_KEYS:
            name = str(self._found.value(key, "")).rpartition(".")[2]
            entry = self._table["classes"].get(name)
            if entry is not None:
                self._found.use(f"models.{entry}", key)
                return str(entry)
        return None

    def _positions(self, block: str) -> None:
        """Read learned positions, the default of NeMo 1."""
        found = self._found
        kind = self._key("position_embedding_type", _MODELS)
        rows = self._key("max_position_embeddings", _MODELS)
        learned = found.value(kind) == "learned_absolute" if kind else not self._exported
        fused = self._key("apply_rope_fusion", _MODELS)
        if learned and fused is not None:
            found.ignore(fused, "the model has learned positions")
        if kind and found.value(kind) == "alibi":
            found.set(f"{block}.alibi", "on", kind)
        number = None if rows is None else found.whole(rows)
        if learned and rows is not None and number is not None:
            found.set(f"{block}.positions", digits(number), rows)

    def _exchange(self) -> None:
        """Read the token dispatch to experts, and the capacity of an expert."""
        found, words = self._found, table("megatron")["words"]
        for prefix in _CALLBACKS:
            callback = f"{prefix}_target_"
            if str(found.value(callback, "")).endswith("DeepEPCallback"):
                found.set("routing.dispatcher", "deepep", callback)
        key = self._key("moe_token_dispatcher_type", _MODELS)
        word = None if key is None else found.word(key, words["moe_token_dispatcher_type"])
        if key is not None and word is not None:
            found.set("routing.dispatcher", word, key)
        key = self._key("moe_expert_capacity_factor", (*_CALLBACKS, *_MODELS))
        factor = None if key is None else found.value(key)
        if key is not None and isinstance(factor, int | float) and factor > 0:
            found.set("routing.capacity_factor", str(factor), key)

    def _dropout(self) -> None:
        key = self._key("hidden_dropout", _MODELS)
        rate = None if key is None else self._found.number(key, most=1.0)
        if key is not None and rate is not None:
            self._found.set("training.dropout", "on" if rate else "off", key)

    def _divide(self) -> None:
        """Assume that the layers are divisible by the stages, unless the file shows it."""
        found = self._found
        counts = {
            name: found.whole(key) if (key := self._key(name, prefixes)) else None
            for name, prefixes in (
                ("num_layers", _MODELS),
                ("pipeline_model_parallel_size", _STRATEGIES),
                ("virtual_pipeline_model_parallel_size", _STRATEGIES),
            )
        }
        layers, pp, chunks = counts.values()
        stages = (pp or 1) * (chunks or 1)
        cut = any(one.rpartition(".")[2] in IN_MODEL and one in found for one in self._entries)
        ends = sum(
            found.setting(f"schedule.{one}") == "on" for one in ("count_embedding", "count_head")
        )
        if (pp or 1) < 2 or cut or (layers and (layers + ends) % stages == 0):
            return
        names = dict(zip(("first", "last", "layout"), IN_MODEL, strict=True))
        why = MUST_DIVIDE.format(**names)
        found.assume("schedule.assignment", "even", why)
        for block, name in (("layout", "pp"), ("schedule", "chunks")):
            found.remark(f"{block}.{name}", why)

    def _recompute(self) -> None:
        """Read which activations are recomputed in backward."""
        found = self._found
        kinds = {"full": "full", "selective": "selective"}
        for name in ("activations_checkpoint_granularity", "recompute_granularity"):
            key = self._key(name, _MODELS)
            kind = None if key is None else found.word(key, kinds)
            if key is not None and kind is not None:
                found.set("training.recompute", kind, key)
        method = self._key("activations_checkpoint_method", _MODELS)
        method = method or self._key("recompute_method", _MODELS)
        for name in ("activations_checkpoint_num_layers", "recompute_num_layers"):
            key = self._key(name, _MODELS)
            number = None if key is None else found.whole(key, least=0)
            if key is None or number is None:
                continue
            if method is not None and found.value(method) == "block" and number:
                found.set("recompute.layers", str(number), key)
            elif number > 1:
                found.leave_open(
                    key, f"checkpoints of {number} layers cannot be expressed in a spec"
                )
        modules = self._key("recompute_modules", _MODELS)
        if modules is not None:
            found.leave_open(modules, "write the block `recompute`: norms, activation, mlp, moe")

    def _optimizer(self) -> None:
        """Read the ZeRO stage of the optimizer, and its overlap."""
        found = self._found
        name = self._key("name", ["model.optim."])
        stage = None if name is None else found.word(name, self._table["optimizers"])
        if found.switch("model.fsdp"):
            strategy = "model.fsdp_sharding_strategy"
            shards = found.word(strategy, self._table["shards"]) or "3"
            found.set("layout.zero", shards, strategy if strategy in found else "model.fsdp")
            if name is not None:
                found.ignore(name, "FSDP shards its state")
        elif name is not None and stage is not None:
            found.set("layout.zero", stage, name)
        for one in ("model.fsdp_sharding_strategy", "model.fsdp_grad_reduce_dtype"):
            if one in found and not found.switch("model.fsdp"):
                found.ignore(one, "model.fsdp is off")
        is_fsdp = self._read_megatron_fsdp()
        for prefix in ("optim.config.", "trainer.strategy.ddp."):
            key = self._key("use_distributed_optimizer", [prefix])
            on = None if key is None else found.switch(key)
            if key is not None and is_fsdp:
                found.ignore(key, "FSDP shards its state")
            elif key is not None and on is not None:
                found.set("layout.zero", "1" if on else "0", key)
        instances = self._key(_INSTANCES, (*_STRATEGIES, "trainer.strategy.ddp."))
        copies = None if instances is None else found.whole(instances)
        if instances is not None and copies is not None and copies > 1:
            found.set("sharding.shard", f"layout.dp * layout.cp / {copies}", instances)
        ddp = (*_CALLBACKS, "trainer.strategy.ddp.", "model.optim.")
        pairs = {
            "overlap_grad_reduce": "gradients", "overlap_grad_sync": "gradients",
            "overlap_param_gather": "parameters", "overlap_param_sync": "parameters",
        }  # fmt: skip
        self._switches({n: f"overlap.{a}" for n, a in pairs.items()}, ddp)
        for key in (f"{prefix}{name}" for prefix in ddp for name in pairs):
            found.value(key)  # which a callback replaces
        self._read_averaging(ddp)
        bucket = self._key("bucket_cap_mb", ["model.optim."])
        size = None if bucket is None else found.whole(bucket)
        if bucket is not None and size is not None:
            found.set("overlap.bucket", f"{size} MiB", bucket)

    def _read_megatron_fsdp(self) -> bool:
        """Read the ZeRO stage of Megatron-FSDP; return whether it is on."""
        found = self._found
        on = next((key for key in _FSDP if found.word(key, _SHARDING)), "")
        if not on:
            return False
        stage = found.word(_SHARDS, self._table["megatron_shards"])
        if stage is not None:
            found.set("layout.zero", stage, _SHARDS)
            found.ignore(on, f"`{_SHARDS}` has the stage")
        elif _SHARDS not in found:
            reason = "FSDP without `data_parallel_sharding_strategy`, which says what is sharded"
            found.ask("layout.zero", reason, ["--set layout.zero=3"], on)
        return True

    def _read_averaging(self, prefixes: Sequence[str]) -> None:
        """Read how gradients are averaged, and whether they are checked for NaN."""
        found = self._found
        key = self._key("average_in_collective", prefixes)
        word = None if key is None else found.switch(key)
        if key is not None and word is not None:
            value = "scaled_experts" if word else "scaled"
            found.set("sharding.gradient_average", value, key)
        elif self._exported:
            why = "MegatronStrategy: average_in_collective is False"
            found.assume("sharding.gradient_average", "scaled", why)
        self._switches({"check_for_nan_in_grad": "sharding.gradient_check"}, prefixes)
        if not self._exported:
            why = "NeMo 1: optim.check_for_nan_in_grad is False"
            found.assume("sharding.gradient_check", "off", why)

    def _attention(self) -> None:
        """Read whether NeMo 1 uses its own layers, whose attention writes scores to memory.

        `use_flash_attention` affects these layers only in releases before Megatron-Core.
        """
        found = self._found
        own = found.switch("model.transformer_engine")
        flash = found.switch("model.use_flash_attention")
        if own or (flash and not found.switch("model.mcore_gpt")) or self._exported:
            return
        key = "model.transformer_engine"
        if own is False:
            found.set("kernels.attention", "unfused", key)
        elif key not in self._unread and key not in found:
            found.assume("kernels.attention", "unfused", "NeMo 1: transformer_engine is False")

    def _switches(self, paths: Mapping[str, str], prefixes: Sequence[str]) -> None:
        for name, path in paths.items():
            key = self._key(name, prefixes)
            if key is not None:
                block, _, attribute = path.rpartition(".")
                self._found.copy_switch(key, f"{block}.{attribute}")


@hookimpl
def importers() -> list[Importer]:
    """Return the importer of configurations of NeMo."""
    return [NeMo()]


@hookimpl
def settings_writers() -> list[SettingsWriter]:
    """Return the writer of configurations of NeMo."""
    return [NeMoWriter()]
