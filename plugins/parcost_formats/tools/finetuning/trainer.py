"""The arguments of the Hugging Face Trainer, which several tools use under their own names.

DeepSpeed and Accelerate have separate files. Their keys are added to the keys of the job, and read
by their importers. Messages point at the key that names the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from attrs import evolve

from parcost import ImportFile
from parcost_formats.tools.accelerate import (
    GATHERED_WHOLE,
    assume_fsdp_types,
    read_compiler,
    read_fsdp,
    read_mesh,
    read_reduction,
    read_replicas,
)
from parcost_formats.tools.collector import (
    AUTO,
    SettingCollector,
    digits,
)
from parcost_formats.tools.deepspeed_keys import FRAMEWORK, RING_FRAMEWORK, DeepSpeedKeys
from parcost_formats.tools.finetuning.adapters import BLOCK, read_adapters
from parcost_formats.tools.finetuning.engine_files import (
    COUNTS,
    ENGINE_STEPS,
    KIND,
    EngineFiles,
    base_name,
)
from parcost_formats.tools.finetuning.job_keys import CONFIGURATIONS, JobKeys
from parcost_formats.tools.hub import ask_for_model, read_attention, read_hub_model
from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.needs import NODE_SIZE, ask_for_devices, other_nodes
from parcost_formats.tools.shell.launches import launcher_options
from parcost_formats.tools.shell.scripts import (
    ShellField,
    count_at_end,
    count_nodes,
    count_slots,
)
from parcost_formats.tools.tables import table
from parcost_formats.tools.unsupported import PROGRAM

#: Options of `accelerate launch` with which it is taken to have no other configuration.
_CHOOSING = {"multi_gpu", "use_fsdp", "use_deepspeed", "num_processes", "config_file", "cpu"}
#: Options of `accelerate launch` that turn on others, which it ignores without them: how those
#: begin, and their section.
_SWITCHES = {
    "use_fsdp": ("fsdp_", "fsdp_config"),
    "use_deepspeed": ("zero_stage", "deepspeed_config"),
    "use_parallelism_config": ("parallelism_config_", "parallelism_config"),
}
_DEGREES = {"tp_size": "layout.tp", "cp_size": "layout.cp", "sp_size": "layout.cp"}
_MIXED = "mixed_precision"
_NARROW = ("--use catalog.precisions.bf16_autocast", "--use catalog.precisions.bf16_pure")
_ENGINES = ("bf16_zero", "bf16_fsdp", "bf16_autocast", "bf16_pure")
_RANKS = ("nproc_per_node", "NPROC_PER_NODE", "num_gpus", "num_processes", "ntasks_per_node")
#: Programs that submit jobs and multiply ``--num_processes`` by their ``--num_nodes``: mason.py of
#: allenai/open-instruct.
_SUBMITTING = ("mason.py",)
#: Launchers that start a process on each device that they see: commands, and words ahead of one.
_OF_ALL = ("llamafactory-cli train", "axolotl train", "trl sft", "accelerate", "deepspeed")
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")
_RESERVED = ("--gpus-per-node", "--gres", "--gpus")
#: Algorithms of context parallelism, by words of ring-flash-attention, and what they are called.
_RINGS = {"llama3": "all_gather", "ring": "ring"}
_CONTEXTS = {
    "all_gather": "llama3_flash_attn_varlen: keys and values are gathered",
    "ring": "ring attention",
    "ulysses": "Ulysses",
}
_LOADED = "FastLanguageModel()"  # a call of unsloth, whose length is one more limit
_NODES = ("nnodes", "NNODES", "num_nodes", "num_machines", "nodes", "N")


def merge_tables(*tables: Mapping[str, Any]) -> dict[str, Any]:
    """Merge tables: sections are merged, lists are appended, later values replace earlier ones.

    >>> merge_tables({"a": {"b": 1}, "c": [1]}, {"a": {"d": 2}, "c": [2]})
    {'a': {'b': 1, 'd': 2}, 'c': [1, 2]}
    """
    found: dict[str, Any] = {}
    for one in tables:
        for key, value in one.items():
            before = found.get(key)
            if isinstance(value, Mapping) and isinstance(before, Mapping) and key != "names":
                found[key] = merge_tables(before, value)
            elif isinstance(value, list) and isinstance(before, list):
                found[key] = [*before, *value]
            elif key == "names" and isinstance(before, Mapping):
                found[key] = {**before, **value}
            else:
                found[key] = value
    return found


class TrainerKeys:
    """Reads a Trainer job; *rules* is the table of the tool, merged with the table of Trainer."""

    def __init__(self, tool: str, file: ImportFile, job: JobKeys) -> None:
        own = table(tool)
        shared = table("trainer")
        parts = (table("deepspeed"), table("accelerate"), shared, own)
        keys = [
            {k: v for k, v in one.items() if k not in ("recognized", "rejected")} for one in parts
        ]
        self.rules = merge_tables(*keys)
        self.rules["costs"] = {**own.get("costs", {}), **self.rules["costs"]}  # own patterns first
        for section in ("numbers", "switches"):
            self.rules[section] = dict(own.get(section, {}))
        self._version = {
            name: own["version"] if name in own.get("defaults", {}) else shared["version"]
            for name in self.rules["defaults"]
        }
        self._facts: dict[str, str] = {}
        self._file = file
        self._job = job
        self._program = str(job.entries[PROGRAM].value) if PROGRAM in job.entries else ""
        self._files = files = EngineFiles(self.rules, file, job)
        files.add_all()
        self._entries = files.entries
        self.found = SettingCollector(self._entries, self.rules)
        self._take_older_defaults()
        for key, word in files.open.items():
            if key not in COUNTS:
                self.found.problem(key, word.unread, word.advice)
        self.found.parts = files.parts
        for key, message in files.broken.items():
            self.found.problem(key, message, "such as '{\"use_reentrant\": false}'")
        for attribute, reason, key in files.doubts:
            name = base_name(str(self._entries[key].value))
            is_read_alone = key != "fsdp_config" and name.endswith(CONFIGURATIONS)
            own_file = [f"--use {name}"] if is_read_alone else []
            stages = (0, 1, 2, 3) if key in self.rules["names"]["deepspeed"] else (0, 3)
            answers = (*own_file, *(f"--set layout.zero={one}" for one in stages))
            rest = "the file sets offloading, buckets and recomputation, which are unknown here"
            if key == "fsdp_config" and "full_shard" in str(self.found.value("fsdp", "")):
                rest = "the file sets resharding and recomputation, which are unknown here"
            else:
                self.found.ask(attribute, reason, answers, key)
            self.found.leave_open(key, rest, "overlap.gradients")
        for key, why in files.named.items():
            self.found.leave_open(key, why, "overlap.gradients")
        for word in job.strays:
            self._list_stray(word)

    # Names

    def key(self, name: str) -> str:
        """Return the name of a key that the file uses, among its synonyms; the first if it has
        none.
        """
        names: Sequence[str] = self.rules["names"][name]
        return next((key for key in names if key in self.found), names[0])

    def has(self, name: str) -> bool:
        """Return whether the file states a key."""
        return self.key(name) in self.found

    def default(self, name: str) -> tuple[Any, str]:
        """Return the default of a key, and the sentence with its source."""
        value = self.rules["defaults"].get(name)
        if name in self._facts:
            return value, self._facts[name]
        shown = str(value).lower() if isinstance(value, bool) else value
        return value, f"{self._version[name]}: {self.rules['names'][name][0]} is {shown}"

    def switch(self, name: str) -> tuple[bool, str]:
        """Return whether a key is on, and its name in the file; the name is "" for a default."""
        key = self.key(name)
        if key in self.found:
            value = self.found.value(key)
            if value == AUTO:
                return True, key
            return self.found.switch(key) is True, key
        return bool(self.rules["defaults"].get(name, False)), ""

    def _take_older_defaults(self) -> None:
        """Replace the defaults by those of an older release.

        The job then has a key, or a program, of that release only.
        """
        known: Mapping[str, Any] = self.rules.get("older", {})
        key = next((one for one in known if one in self._entries), None)
        key = key or next((one for one in known if fnmatchcase(self._program, one)), None)
        if key is None or _LOADED in self._entries:
            return
        older = known[key]
        value = self._entries[key].value if key in self._entries else self._program
        version = f"{older['version']}, which has `{value if isinstance(value, str) else key}`"
        for name, default in older["defaults"].items():
            self.rules["defaults"][name] = default
            own = self.rules["names"][name][0]
            self._facts[name] = f"{version}: {own} is {str(default).lower()}"
        types = ("bf16", "fp16", _MIXED)
        if (doubt := older.get("doubt")) and not {*types} & {*self._entries}:
            self.found.lack(types[0], doubt, "")

    def assume_bf16(self, why: str) -> None:
        """Assume bf16, for the reason *why*, if the file does not state it."""
        self.rules["defaults"]["bf16"] = True
        self._facts["bf16"] = why

    # Parts of a job

    def adapters(self, rules: Mapping[str, Any] | None = None) -> bool:
        """Read adapters on a frozen model; return whether the job has any.

        *rules* is the table with their keys, by default that of the tool.
        """
        return read_adapters(self.found, self.rules if rules is None else rules, self.key("model"))

    def frozen(self, weights: str | None, why: str) -> None:
        """Set the size of a frozen weight: None if the checkpoint decides it."""
        if weights is not None:
            self.found.assume(f"{BLOCK}.weights", weights, why)
        else:
            answers = ("--set adapters.weights=2B", "--set adapters.weights=4B")
            self.found.ask(f"{BLOCK}.weights", why, answers)

    def model(self) -> str:
        """Read the name of the Hugging Face model; return its catalogue entry."""
        key = self.key("model")
        value = self.found.value(key)
        if isinstance(value, str):
            return read_hub_model(self.found, key, value)
        ask_for_model(self.found, key)
        return ""

    def _set_size(self, name: str, attribute: str) -> int | None:
        """Set an attribute of training from a number, and return it; None if no key has it.

        Synonyms with another number are an error.
        """
        size: int | None = None
        for key in self.rules["names"][name]:
            stated = self.found.whole(key)
            if stated is not None:
                self.found.set(f"training.{attribute}", digits(stated), key)
                size = size or stated
        return size

    def batch(self) -> None:
        """Read the micro-batch of a device, and the gradient accumulation steps."""
        found = self.found
        sizes: list[str] = []
        for name, attribute in (("micro", "micro_batch"), ("steps", "micro_batches")):
            key = self.key(name)
            size = self._set_size(name, attribute)
            if size is None and (name not in self.rules["defaults"] or key in found):
                found.ask("training.micro_batch", f"no `{key}`", ["--set training.micro_batch=1"])
                return
            if size is None:
                value, why = self.default(name)
                size = value if isinstance(value, int) else None
                found.assume(f"training.{attribute}", str(value), why)
                sizes.append(str(value))
            else:
                sizes.append(str(size))
        why = "batch per device x gradient accumulation steps x replicas"
        product = f"({sizes[0]} * {sizes[1]} * layout.dp) sequences"
        found.assume("training.global_batch", product, why)

    def sequence(self) -> None:
        """Read the sequence length, and whether sequences are packed."""
        found, key = self.found, self.key("sequence")
        length, usual = found.copy(key, "training.sequence"), self.rules["defaults"]
        for other in self.rules["names"]["sequence"]:
            if other in found and (_LOADED in found or found.value(other) == length):
                found.copy(other, "training.sequence")
        if key in self.rules.get("unlimited", ()) and key in self._entries and key not in found:
            why = f"`{key}` is null: sequences of the data are not cut"
            found.ask(
                "training.sequence", why, [f"--set training.sequence={usual['sequence']}"], key
            )
        elif length is None and "sequence" in usual and key not in found:
            value, why = self.default("sequence")
            found.assume("training.sequence", digits(int(value)), why)
        if "packing" in self.rules["names"]:
            packed, stated = self.switch("packing")
            joined = self.rules.get("joined", "")
            if packed and stated and joined:
                found.leave_open(stated, f"{joined}: `{key}` is only the maximum length")
            elif packed and stated:
                found.ignore(stated, "every sequence has the full length")
            elif key == "block_size" and "clm" in self._program:  # joins all texts and cuts them
                found.ignore(stated or key, "every sequence has the full length")
            elif not packed:
                reason = f"without packing, `{key}` is only the maximum length"
                known = found.has("training.sequence")
                name = stated or self.rules["names"]["packing"][0]
                found.lack(name, reason, "" if known else "training.sequence")

    def read_sharding(self, weights: str | None, why: str, unchanged: str = "") -> None:
        """Read the sharding, and the data types of weights.

        *weights* is the size of a weight as the script loads it (``"2 B"``), None if unknown; *why*
        is the reason. With *unchanged*, the reason, FSDP2 shards bf16 weights without an fp32 copy.
        """
        found = self.found
        for name in ("bf16", "fp16", "fsdp"):  # other keys are read in their place
            found.value(self.key(name))
        if self.switch("fp16")[0] and not self.has("bf16"):  # before which a default gives way
            self.rules["defaults"]["bf16"] = False
        narrow = [key for on, key in map(self.switch, ("bf16", "fp16")) if on]
        if len(narrow) > 1:
            for key in narrow:
                found.problem(key, "bf16 and fp16 cannot both be enabled")
            return
        for name in ("config_file", _MIXED, "deepspeed_config.deepspeed_config_file"):
            found.value(name)
        kind = str(found.value(KIND, "")).upper()
        if self.has_engine:
            self._deepspeed()
        elif kind == "FSDP":
            read_fsdp(found, by_trainer=self._files.starts_fsdp)
            words = str(found.value("fsdp", "auto_wrap")).lower()
            if self._files.starts_fsdp and "auto_wrap" not in words and "shard" in words:
                found.leave_open(
                    "fsdp", f"transformers 4 needs auto_wrap; otherwise {GATHERED_WHOLE}"
                )
            self._fsdp_precision(weights, why, unchanged)
        elif kind in ("", "MULTI_GPU", "NO"):
            self._ask_for_types()
            if self._replicas():
                self._plain_precision(weights, why)
        else:
            found.problem(KIND, f"`{kind}` of Accelerate is not supported with this tool")
        read_mesh(found)
        self._ask_for_switches()
        self._states()
        if str(found.value(_MIXED, "")).lower() == "fp8":
            self.ask_for_narrow(_MIXED, str(found.value("fp8_config.backend", "te")))

    def _ask_for_switches(self) -> None:
        """Ask for the settings of launcher options that need another option, which is not given."""
        found, launcher = self.found, self._files.launcher
        has_engine = KIND in found and not self._files.starts_fsdp
        for switch, (ahead, section) in _SWITCHES.items():
            flags = [one for one in launcher if one.startswith(ahead)]
            keys = [f"{section}.{one}" for one in flags]
            of_file = set(found.keys_below(section)) - set(keys)  # which turns them on
            is_mesh = switch not in _CHOOSING
            if not flags or switch in launcher or of_file or (has_engine and not is_mesh):
                continue
            path = _DEGREES.get(flags[0].removeprefix(ahead), "layout.dp")
            path, values = (path, (found.value(keys[0]), 1)) if is_mesh else ("layout.zero", (3, 0))
            why = f"Accelerate ignores `--{flags[0]}` without `--{switch}`"
            found.ask(path, why, [f"--set {path}={one}" for one in values], keys[0])

    def _replicas(self) -> bool:
        """Read a job without an engine, unless the command line or a launcher chooses one.

        Return False if an unknown launcher chooses the engine.
        """
        found, options = self.found, self._file.options
        own = any(one.text.rpartition("/")[2] == "accelerate" for one in self._job.launcher)
        launched = self._job.script is not None and (
            not own or bool(_CHOOSING & {*self._files.launcher})
        )
        launched = launched or KIND in found or "config_file" in found
        is_open = not launched and self.rules["launched"]
        if is_open:
            reason = "the launcher decides whether the job runs in DeepSpeed, FSDP or as replicas"
            if own:
                reason = (
                    "`accelerate launch` names no configuration: the one of the machine decides"
                )
            answers = ("--set layout.zero=3", "--set layout.zero=0", "--use accelerate.yaml")
            found.ask("layout.zero", reason, answers)
            recipes = [f"--use catalog.precisions.{one}" for one in _ENGINES]
            found.ask("precision", "it depends on the engine: DeepSpeed, FSDP or DDP", recipes)
        stage = dict(options.settings).get("layout.zero", "")
        if stage and any("bf16_zero" in one for one in options.uses):
            found.use(FRAMEWORK, why="DeepSpeed, with the precision of --use")
        elif stage and stage.strip() != "0":
            found.use("frameworks.transformers", why="PyTorch FSDP, for --set layout.zero")
            read_reduction(found)
        elif stage or not is_open:
            fact = (
                f"{self.rules['version']}: without deepspeed or fsdp, replicas hold the whole state"
            )
            found.assume("layout.zero", "0", fact)
            read_replicas(found)
        return not is_open

    def _ask_for_types(self) -> None:
        """Ask for the precision if a missing file may name an engine with its own data types."""
        for _, reason, key in self._files.doubts:
            own = f"{reason}: DeepSpeed and FSDP keep different copies of weights"
            found = [f"--use catalog.precisions.{one}" for one in _ENGINES]
            self.found.ask("precision", own, found, key)

    def recompute(
        self, usual: tuple[bool, str] | None = None, forced: tuple[bool, str] | None = None
    ) -> None:
        """Read which activations are recomputed in backward.

        *usual* and *forced* are as in :meth:`checkpoints`.
        """
        found = self.found
        on, key = self.switch("checkpoints")
        value = "full" if on else "none"
        if key and not on and found.switch("fsdp_config.fsdp_activation_checkpointing"):
            found.ignore(key, "FSDP recomputes the layers that it wraps")
        else:
            found.set_or_assume(key, "training.recompute", value, self.default("checkpoints")[1])
        if on:
            self.checkpoints(usual, forced)

    def checkpoints(
        self, usual: tuple[bool, str] | None = None, forced: tuple[bool, str] | None = None
    ) -> None:
        """Read the options of activation checkpointing: reentrant checkpoints do not stop early.

        *usual* replaces the default of the table: whether they are reentrant, and why. *forced*
        overrides the file.
        """
        found, key = self.found, self.key("reentrant")
        stated = found.switch(key)
        if stated is None or forced is not None:
            enters, why = forced or usual or self.default("reentrant")
            found.assume("recompute.stops_early", "off" if enters else "on", why)
        else:
            found.set("recompute.stops_early", "off" if stated else "on", key)
        for options in self.rules["names"]["checkpoint_options"]:
            key = f"{options}.every_n_layers"
            every = found.copy(key, "recompute.every")
            key = f"{options}.offload"
            if found.switch(key) and every not in (None, 1):
                reason = "only checkpoints are offloaded to the host, not other activations"
                found.leave_open(key, reason, "offload.activations")
            elif found.switch(key):
                found.set("offload.activations", "100 %", key)
                found.set("offload.overlap", "off", key)

    def ulysses(self, key: str, mode: str, *, brought: bool = False) -> None:
        """Read the degree of sequence parallelism from *key*; *mode* names the algorithm.

        A trainer with its own Ulysses (*brought*) can run a ring over Ulysses groups, which
        DeepSpeed cannot.
        """
        degree = self.found.whole(key)
        if degree is None:
            return
        self.found.set("layout.cp", digits(degree), key)
        if degree > 1:
            words = mode.lower()
            algorithm = next((one for sign, one in _RINGS.items() if sign in words), "ulysses")
            why = f"{self.rules['version']}: {key} is {_CONTEXTS[algorithm]}"
            self.found.assume("context.algorithm", algorithm, why)
            if (brought or algorithm != "ulysses") and self.has_engine:  # which has Ulysses alone
                self.found.use(RING_FRAMEWORK, key, why)
                name = RING_FRAMEWORK.rpartition(".")[2]
                self.found.rebase_framework(name)
                self.found.assume("training.framework", name, why)

    def ask_for_narrow(self, key: str, backend: str) -> None:
        """Ask for the FP8 recipe of GEMMs; *backend* is the library that runs them."""
        answers = ["--use catalog.precisions.fp8_torchao", "--use catalog.precisions.fp8_delayed"]
        if backend.lower() in ("te", "transformer_engine"):
            answers.reverse()
        reason = f"`{key}` computes matrix products in 8 bits, but names no recipe"
        self.found.ask("precision", reason, answers, key)
        _, base = self.found.recipe()
        if base:  # the answer replaces it
            self.found.use(f"precisions.{base}", key, reason)

    def kernels(self) -> None:
        """Read compilation, fused kernels and attention."""
        found = self.found
        self._compiler()
        on, key = self.switch("liger") if self.rules["names"].get("liger") else (False, "")
        if on and key:
            if found.switch("liger_kernel_config.fused_linear_cross_entropy") is not False:
                self.fuse_loss()
            found.leave_open(key, "norms and SwiGLU of Liger: `framework { norm = fused }`")
        for key in self.rules["names"].get("flash", ()):
            fused = found.switch(key)
            if fused is False:
                found.set("training.flash_attention", "off", key)
            elif fused:
                found.ignore(key, "fused attention, as assumed")
        read_attention(found, self.key("attention"), self.rules["attention"]["unfused"])

    def _compiler(self) -> None:
        """Read whether layers are compiled; naming a compiler also enables compilation."""
        found = self.found
        on, key = self.switch("compile")
        named = [one for one in self.rules["names"]["compilers"] if found.value(one)]
        backends = {
            one: str(found.value(one)).lower() for one in named if not one.endswith("_mode")
        }
        others = [one for one, backend in backends.items() if backend != "inductor"]
        for one in others:
            found.leave_open(one, "compilers other than inductor are not modeled")
        if on and key and not others:
            found.set("kernels.mode", "compiled", key)
        elif named and not others:
            why = f"{table('trainer')['version']}: {named[0]} turns torch_compile on"
            found.assume("kernels.mode", "compiled", why)
        read_compiler(found)

    def fuse_loss(self) -> None:
        """Read a fused head and loss, as in Liger: logits exist only in chunks.

        The logits of a chunk are not larger than the hidden states. If the trainer computes the
        loss outside of the model, all logits exist.
        """
        for key, forms in self.rules["own_loss"].items():
            value = str(self.found.value(key, "")).lower()
            if any(fnmatchcase(value, form) for form in forms):
                why = (
                    f"{self.rules['version']}: with {key} the loss of the trainer computes all "
                    "logits at once"
                )
                self.found.assume("training.loss_chunks", "1", why)
                return
        why = f"{self.rules['liger']}: a chunk of logits has the size of the hidden states"
        chunks = "ceil(training.model.vocabulary / training.model.hidden)"
        self.found.assume("training.loss_chunks", chunks, why)

    @property
    def is_sharded(self) -> bool:
        """Whether DeepSpeed or FSDP runs the job."""
        return self.has_engine or str(self.found.value(KIND, "")).upper() == "FSDP"

    @property
    def has_engine(self) -> bool:
        """Whether the job runs in DeepSpeed."""
        return self.has("deepspeed") or str(self.found.value(KIND, "")).upper() == "DEEPSPEED"

    @property
    def engine_stage(self) -> int | None:
        """The ZeRO stage of DeepSpeed; None if another engine runs the job, or none."""
        keys = ("zero_optimization.stage", "deepspeed_config.zero_stage")
        stage = next((key for key in keys if key in self.found), "")
        return self.found.whole(stage, least=0) if self.has_engine and stage else None

    @property
    def fsdp_version(self) -> int:
        """The version of FSDP that the file names, or 1."""
        keys = (f"fsdp_config.{name}" for name in ("fsdp_version", "version"))
        return next((n for n in map(self.found.whole, keys) if n is not None), 1)

    def devices(self) -> None:
        """Read the devices that the launcher states."""
        read_devices(self.found, self._entries, self._job)

    def _is_on(self, name: str) -> bool:
        """Return whether *name* (bf16 or fp16) is on, in the file or by default."""
        entries = self._entries
        stated = [key for key in self.rules["names"][name] if key in entries]
        if stated:
            return stated[0] in entries and str(entries[stated[0]].value).lower() in ("true", AUTO)
        return bool(self.rules["defaults"].get(name, False))

    # Precision

    def _narrow(self) -> tuple[str, str]:
        """Return the low-precision type of GEMMs (or "") and the key that states it."""
        mixed = str(self.found.value(_MIXED, "")).lower()  # which the trainer's own keys replace
        for name in ("bf16", "fp16"):
            on, key = self.switch(name)
            if on:
                return name, key
        return (mixed, _MIXED) if mixed in ("bf16", "fp16") else ("", "")

    def _deepspeed(self) -> None:
        """Read the ZeRO stage and the data types of DeepSpeed."""
        found = self.found
        found.use(FRAMEWORK, self.key("deepspeed") if self.has("deepspeed") else KIND)
        self._add_engine_types()
        self._engine_batch()
        own = table("accelerate")["deepspeed"]
        keys = DeepSpeedKeys(
            found, own if "deepspeed_config.zero_stage" in found else None, self._files.bucket
        )
        stages = ("zero_optimization.stage", "deepspeed_config.zero_stage")
        if not self._files.doubts or any(key in found for key in stages):
            keys.zero(default=0 if self.has("deepspeed") else 2)
        if "bf16.enabled" in found or "fp16.enabled" in found:
            keys.precision()
        else:
            self._engine_precision()
        keys.optimizer()
        keys.tensor_parallel()
        keys.experts()

    def _add_engine_types(self) -> None:
        """Add the data types that the file of DeepSpeed omits or sets to ``auto``.

        If Trainer starts DeepSpeed, it replaces ``auto`` by its own arguments; otherwise Accelerate
        replaces it by its mixed precision. Mixed precision also sets missing types.
        """
        entries = self._entries
        stated = {one: entries.get(f"{one}.enabled") for one in ("bf16", "bfloat16", "fp16")}
        if not any(stated.values()):
            return
        by_trainer = not self._job.entries.keys().isdisjoint(self.rules["names"]["deepspeed"])
        mixed, key = self._narrow()
        for narrow in ("bf16", "fp16"):
            entry = stated[narrow]
            if entry is None and narrow == mixed and not (narrow == "bf16" and stated["bfloat16"]):
                place = entries.get(key, JsonEntry(None, 0, 1))
                entries[f"{narrow}.enabled"] = JsonEntry(True, place.start, place.end)
            elif entry is not None and entry.value == AUTO:
                value = self._is_on(narrow) if by_trainer else narrow == mixed
                own = (entries[one] for one in self.rules["names"][narrow] if one in entries)
                place = next(own, entry)  # of the value, if the trainer states it
                entries[f"{narrow}.enabled"] = evolve(place, value=value)
            elif entry is not None and entry.value is False and by_trainer and self._is_on(narrow):
                message = f"it is false, but `{narrow}` of the trainer is true: Trainer stops"
                self.found.problem(
                    f"{narrow}.enabled", message, "`auto` uses the value of the trainer"
                )

    def _engine_batch(self) -> None:
        """Read the batch sizes in the file of DeepSpeed; they have to agree with the trainer's."""
        for key, name in (
            ("train_micro_batch_size_per_gpu", "micro_batch"),
            (ENGINE_STEPS, "micro_batches"),
            ("train_batch_size", "global_batch"),
        ):
            size = self.found.whole(key)
            if size is not None:
                unit = " sequences" if name == "global_batch" else ""
                self.found.set(f"training.{name}", f"{digits(size)}{unit}", key)

    def _engine_precision(self) -> None:
        """Set the precision of DeepSpeed from the data types of the trainer."""
        found = self.found
        narrow, key = self._narrow()
        if not narrow and (self._files.doubts or not self._files.is_typed):
            reason = "the DeepSpeed configuration sets the data types, but it is not in this file"
            recipes = ("bf16_zero", "fp16_zero", "fp32")
            answers = [f"--use catalog.precisions.{one}" for one in recipes]
            near = self.key("deepspeed") if self.has("deepspeed") else KIND
            found.ask("precision", reason, answers, near)
            return
        recipe = {"bf16": "bf16_zero", "fp16": "fp16_zero"}.get(narrow, "fp32")
        found.use(f"precisions.{recipe}", key, "" if key else self.default("bf16")[1])

    def _fsdp_precision(self, weights: str | None, why: str, unchanged: str) -> None:
        """Set the precision of FSDP; with mixed precision Accelerate keeps the shards in fp32.

        *unchanged* is the reason why a trainer keeps shards in bf16 with FSDP 2, or "".
        """
        narrow, key = self._narrow()
        if narrow == "bf16" and weights == "2 B" and self.fsdp_version == 2 and unchanged:
            self.found.use("precisions.bf16_pure", key, unchanged)
            return
        if not narrow:
            self._plain_precision(weights, why)
            return
        fact = "" if key else self.default(narrow)[1]
        self.found.use("precisions.bf16_fsdp", key, fact)
        block = "precision trainer extends bf16_fsdp"
        assume_fsdp_types(self.found, block)
        if narrow == "fp16":
            self.found.set(f"{block}.compute", "fp16", key)
        self.found.assume("training.precision", "trainer", "the settings of this file")

    def _plain_precision(self, weights: str | None, why: str) -> None:
        """Set the precision of a job without DeepSpeed or mixed-precision FSDP."""
        found = self.found
        narrow, key = self._narrow()
        if weights is None:
            found.ask("precision", why, _NARROW, key)
        elif weights == "2 B" and narrow != "fp16":
            found.use("precisions.bf16_pure", key, why)
        elif not narrow:
            found.use("precisions.fp32", "", why)
        else:
            found.use("precisions.bf16_autocast", key, why)
            if narrow == "fp16":
                found.set("precision trainer extends bf16_autocast.compute", "fp16", key)
                found.assume("training.precision", "trainer", why)

    def _states(self) -> None:
        """Read the optimizer; 8-bit states change the precision."""
        found, key = self.found, self.key("optimizer")
        name = str(found.value(key, self.rules["defaults"]["optimizer"])).lower()
        size = self.rules["optimizers"].get(name)
        if size is None:
            reason = (
                f"precision recipes have the optimizer state of Adam, but the optimizer is {name}"
            )
            found.ask("precision", reason, _NARROW, key)
        elif size and any(".precisions." in one for one in self._file.options.uses):
            why = f"--use replaces the recipe, including the optimizer states of {name}"
            found.leave_open(key, why)
        elif size and not found.recipe()[1]:
            found.leave_open(
                key, f"the recipe of the launcher does not include the optimizer states of {name}"
            )
        elif size:
            narrow_states(found, float(size), key)

    def _list_stray(self, word: ShellField) -> None:
        """List a word that belongs to no key."""
        self._entries[word.text[:60]] = JsonEntry(True, word.start, word.end)


def list_optimizer(found: SettingCollector, key: str) -> None:
    """Record that AdamW in fp32 is assumed, if the value of *key* is another optimizer."""
    name = str(found.value(key, "AdamW"))
    if name.lower() not in ("adam", "adamw", "fused_adam", "fusedadam"):
        found.leave_open(key, f"AdamW with fp32 states is assumed instead of {name}")


def unknown_count(job: JobKeys) -> tuple[str, ShellField] | None:
    """Return the option of the launcher, and its value, that leaves the device count unknown."""
    options = {**job.environment, **launcher_options(job.launcher)}
    stated = ((name, options[name]) for name in (*_RANKS, *_NODES) if name in options)
    return next(((name, word) for name, word in stated if word.unread), None)


def read_devices(found: SettingCollector, entries: dict[str, JsonEntry], job: JobKeys) -> None:
    """Set the device count from the launcher of a job, and add its options to *entries*."""
    options = {**job.environment, **launcher_options(job.launcher)}
    unread = unknown_count(job)
    if unread is not None:
        name, word = unread
        for key in COUNTS:
            found.value(key)  # which the command decides over
        key = name if name.isupper() else f"--{name}"
        entries[key] = JsonEntry(word.text, word.start, word.end)
        why = f"`{key} {word.text}`: {word.unread}"
        stated = next((_count(options[one]) for one in _NODES if one in options), None)
        ask_for_devices(partial(found.ask, option=key), why, word.answers, stated)
        return
    if "num_processes" in found:
        number = found.whole("num_processes")
        factor = _count(options.get("num_nodes"))
        if any(one.text.rpartition("/")[2] in _SUBMITTING for one in job.launcher):
            number = number * factor if number is not None and factor is not None else None
        if number is not None:
            found.set("cluster.devices", digits(number), "num_processes")
        return
    include = options.get("include")
    if include is not None and not include.unread and (chosen := count_slots(include.text)):
        entries["--include"] = JsonEntry(include.text, include.start, include.end)
        found.set("cluster.devices", digits(chosen), "--include")
        return
    ranks = next((name for name in _RANKS if name in options), None)
    nodes = next((name for name in _NODES if name in options), None)
    each, count = _count(options.get(ranks or "")), _count(options.get(nodes or ""))
    hosts = options.get("hostfile")
    if hosts is not None and nodes is None:
        entries["--hostfile"] = JsonEntry(hosts.text, hosts.start, hosts.end)
        reason = "the hosts in this file are the nodes: add it to the job with --use FILE"
        found.leave_open("--hostfile", reason, "cluster.devices")
        return
    if nodes is not None and count is None:
        return
    if ranks is None:
        _read_visible(found, entries, job, count)
        return
    if each is None:
        return
    word = options[ranks]
    key = ranks if ranks.isupper() else f"--{ranks}"
    entries[key] = JsonEntry(each, word.start, word.end)
    found.set("cluster.devices", digits(each * (count or 1)), key)
    if note := other_nodes(count or 1, each):
        found.leave_open(key, note, NODE_SIZE)


def _read_visible(
    found: SettingCollector, entries: dict[str, JsonEntry], job: JobKeys, nodes: int | None
) -> None:
    """Set the device count of a launcher that takes all devices; *nodes* are those it states."""
    words = [str(job.entries[PROGRAM].value)] if PROGRAM in job.entries else []
    words += [one.text.rpartition("/")[2] for one in job.launcher]
    starter = next((one for one in _OF_ALL if one in words), None)
    of_each_node = starter == _OF_ALL[0]
    if starter is None or "srun" in words or (nodes not in (None, 1) and not of_each_node):
        return
    scheduler = job.script.scheduler if job.script is not None else {}
    if nodes is None and "--nodes" in scheduler and count_nodes(scheduler) != 1:
        return
    stated = {name: scheduler[name] for name in _RESERVED if name in scheduler}
    stated = {name: job.environment[name] for name in _VISIBLE if name in job.environment} or stated
    if not stated:
        return
    key, word = next(iter(stated.items()))
    each = count_slots(f":{word.text}") if key in _VISIBLE else count_at_end(word)
    if word.unread or each is None:
        return
    entries[key] = JsonEntry(word.text, word.start, word.end)
    job.assumed[key] = f"`{starter}` starts one process per device"
    found.set("cluster.devices", digits(each * (nodes or 1)), key)
    if note := other_nodes(nodes or 1, each):
        found.leave_open(key, note, NODE_SIZE)


def narrow_states(found: SettingCollector, size: float, key: str) -> None:
    """Set the optimizer state, for moments with a total of *size* bytes per parameter."""
    block, base = found.recipe()
    if not base:
        return
    master, traffic = (4, 12) if base in ("bf16", "fp16") else (0, 12)
    if base in ("bf16_zero", "fp16_zero"):
        master, traffic = 4, 28
    if base == "bf16_pure":
        traffic = 6
    if not block:
        block = f"precision states extends {base}"
        found.assume(
            "training.precision", "states", "base recipe, with the optimizer states of this file"
        )
    found.set(f"{block}.optimizer", f"{master + size:g} B", key)
    found.set(f"{block}.update_traffic", f"{traffic + 2 * size:g} B", key)


def _count(word: ShellField | None) -> int | None:
    """Return a word of the launcher as an integer; None if it is not one."""
    if word is None or word.unread or not word.text.isdecimal() or len(word.text) > 8:
        return None
    return int(word.text)
