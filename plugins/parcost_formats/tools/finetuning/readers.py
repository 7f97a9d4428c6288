"""Jobs of tools built on the Hugging Face Trainer: LLaMA-Factory, axolotl, TRL and ms-swift."""

from __future__ import annotations

from fnmatch import fnmatchcase

from parcost import ImportFile, Translation
from parcost_formats.tools.collector import digits
from parcost_formats.tools.data_types import SIZES
from parcost_formats.tools.finetuning.adapters import BLOCK, reject_quantized_model
from parcost_formats.tools.finetuning.job_keys import JobKeys
from parcost_formats.tools.finetuning.llamafactory_mca import is_megatron_job, read_megatron_job
from parcost_formats.tools.finetuning.trainer import TrainerKeys
from parcost_formats.tools.hub import FUSED
from parcost_formats.tools.tables import table
from parcost_formats.tools.unsupported import PROGRAM, unsupported_help, unsupported_message

#: Switches of adapters in scripts of many authors. A script without one has adapters always.
_SWITCHES = ("use_peft", "use_lora", "lora_enable", "use_qlora", "q_lora", "lora")

#: The type of adapters beside a frozen model in 16 bits, or quantized.
_ADAPTERS = (
    "PEFT keeps adapters in float32 (autocast_adapter_dtype), whatever the type of the model is"
)

#: What axolotl puts in the place of Accelerate's function, which casts trained weights to float32.
_AXOLOTL_SHARDS = (
    "axolotl 0.19: fsdp2_prepare_model shards weights in the type in which they were loaded, bf16"
)

#: Switches of the plugin of Liger, the first of which is the loss.
_LIGER = ("liger_fused_linear_cross_entropy", "liger_rms_norm", "liger_layer_norm")
#: Fused kernels of adapters in axolotl.
_ADAPTER_KERNELS = ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel", "lora_embedding_kernel")
#: The error of a switch that replaces parts of the trainer by others.
_REPLACED = (
    "this part of the tool is not supported",
    "remove the key to import the job without it",
)


def read_llamafactory(file: ImportFile, job: JobKeys) -> Translation:
    """Return a fine-tuning, full or with adapters, or a pretraining of LLaMA-Factory."""
    if is_megatron_job(job):
        return read_megatron_job(job)
    keys = TrainerKeys("llamafactory", file, job)
    found, version = keys.found, keys.rules["version"]
    if found.value("stage") == "pt" or found.switch("neat_packing"):
        keys.rules["defaults"]["packing"] = True  # unless the file says otherwise
    keys.model()
    keys.batch()
    keys.sequence()
    kind = "finetuning_type"
    if kind in found and found.value(kind) not in ("full", "lora", "freeze", "oft"):
        found.problem(kind, "expected full, lora, freeze or oft")
    keys.adapters()
    pure = found.switch("pure_bf16")
    if pure:
        keys.read_sharding("2 B", f"{version}: pure_bf16 keeps weights in bfloat16")
        if keys.has_engine and found.switch("bf16.enabled") is not True:
            reason = "DeepSpeed uses another type than `pure_bf16`, because `bf16` is off"
            answers = ("bf16_zero", "bf16_pure", "fp32")
            found.ask(
                "precision",
                reason,
                [f"--use catalog.precisions.{one}" for one in answers],
                "pure_bf16",
            )
    else:
        keys.read_sharding("4 B", f"{version}: trained weights are cast to float32")
    off = found.switch("disable_gradient_checkpointing")
    on, key = keys.switch("checkpoints")
    if on:
        found.set("training.recompute", "full", key)
    elif off is None:
        why = f"{version}: disable_gradient_checkpointing is false"
        found.assume("training.recompute", "full", why)
    else:
        key = "disable_gradient_checkpointing"
        found.set("training.recompute", "none" if off else "full", key)
    if on or not off:
        if keys.fsdp_version == 2:
            keys.checkpoints(forced=(False, f"{version}: FSDP 2 turns use_reentrant_gc off"))
        else:
            keys.checkpoints()
        if found.switch("use_unsloth_gc"):  # which copies them on the stream of the layers
            found.set("offload.activations", "100 %", "use_unsloth_gc")
            found.set("offload.overlap", "off", "use_unsloth_gc")
    keys.ulysses("sequence_parallel_size", str(found.value("sequence_parallel_mode", "ring")))
    for key in ("use_unsloth", "use_kt", "shift_attn", "use_hyper_parallel"):
        if found.value(key):
            found.problem(key, *_REPLACED)
    if found.value("fp8"):
        keys.ask_for_narrow("fp8", str(found.value("fp8_backend", "")))
    keys.kernels()
    keys.devices()
    return found.translation()


def read_axolotl(file: ImportFile, job: JobKeys) -> Translation:
    """Return a fine-tuning, full or with adapters, or a pretraining of axolotl."""
    keys = TrainerKeys("axolotl", file, job)
    found, version = keys.found, keys.rules["version"]
    keys.model()
    keys.batch()
    keys.sequence()
    narrow = any(keys.switch(name)[0] for name in ("bf16", "fp16"))
    loaded = "bfloat16" if narrow else "float32"
    why = f"{version}: weights are loaded in {loaded}, the type of bf16 or fp16"
    weights = "2 B" if narrow else "4 B"
    if found.value("adapter") == "qlora" and not found.switch("load_in_4bit"):
        found.problem("adapter", "qlora needs `load_in_4bit: true`")
    if keys.adapters():
        keys.frozen(weights, why)
        weights, why = "4 B", _ADAPTERS
        _list_adapter_kernels(keys)
    keys.read_sharding(weights, why, _AXOLOTL_SHARDS)
    value = str(found.value("gradient_checkpointing", "")).lower()
    if value in ("offload", "offload_disk"):
        found.set("training.recompute", "full", "gradient_checkpointing")
        found.set("offload.activations", "100 %", "gradient_checkpointing")
    else:
        keys.recompute(_axolotl_reentry(keys))
    offload = "activation_offloading"
    if found.value(offload) in ("legacy", "disk", "hidden_states") or found.switch(offload):
        found.set("offload.activations", "100 %", offload)
    found.copy("tensor_parallel_size", "layout.tp")
    usual = "varlen_llama3" if keys.switch("packing")[0] else "batch_ring"
    function = str(found.value("ring_attn_func") or usual)
    for key in ("context_parallel_size", "sequence_parallel_degree"):
        keys.ulysses(key, function)
    _read_experts(keys)
    shard, copies = found.whole("dp_shard_size"), found.whole("dp_replicate_size")
    if shard is not None and found.has("layout.zero"):  # devices beyond them are replicas
        found.set("sharding.shard", f"{shard} * layout.cp", "dp_shard_size")
    for key in ("layer_offloading", "selective_checkpointing"):
        if found.value(key) not in (None, False, 1):
            found.problem(key, *_REPLACED)
    if found.value("fp8"):
        keys.ask_for_narrow("fp8", "torchao")
    for key in ("flash_attention", "sdp_attention", "xformers_attention", "flex_attention"):
        if found.switch(key):
            found.ignore(key, FUSED)
    if found.switch("eager_attention"):
        found.set("training.flash_attention", "off", "eager_attention")
    _read_plugins(keys)
    keys.kernels()
    keys.devices()
    if shard is not None and copies is not None and not found.has("cluster.devices"):
        count = f"{shard} * {copies} * layout.tp * layout.cp"
        found.assume("cluster.devices", count, "the product of the sizes of the mesh")
    return found.translation()


def _read_plugins(keys: TrainerKeys) -> None:
    """Read the plugins of axolotl: chunked losses; the loss of Liger must be enabled by a key."""
    found, key = keys.found, "plugins"
    value = found.value(key) or []
    names = [str(one).lower() for one in (value if isinstance(value, list) else [value])]
    has_liger = any("liger" in one for one in names)  # whose keys have no effect without it
    fused = [one for one in _LIGER if has_liger and found.switch(one)]
    if _LIGER[0] in fused:
        keys.fuse_loss()
        found.ignore(_LIGER[0], "a loss in chunks: `training.loss_chunks`")
    elif (
        any("cut_cross" in one for one in names) and found.switch("cut_cross_entropy") is not False
    ):
        keys.fuse_loss()
    for one in fused:
        if "norm" in one:
            found.leave_open(one, "norms of Liger: `framework { norm = fused }`")
    known = keys.rules["known_plugins"]["names"]
    other = next((one for one in names if not any(fnmatchcase(one, form) for form in known)), "")
    if other:
        found.leave_open(key, f"`{other}` is unknown: its effect on a step is not modeled")
    elif names:
        found.ignore(key, "losses in chunks are `training.loss_chunks`")


def _list_adapter_kernels(keys: TrainerKeys) -> None:
    """List the fused kernels of adapters, which axolotl turns on unless the file names one."""
    found = keys.found
    named = any(key in found for key in _ADAPTER_KERNELS)
    is_fsdp_1 = bool(found.keys_below("fsdp_config")) and keys.fsdp_version == 1
    if not (named or is_fsdp_1 or found.value("rl") or found.value("trust_remote_code")):
        reason = "axolotl 0.19 turns fused kernels of adapters on, which are not modeled"
        found.lack(_ADAPTER_KERNELS[0], reason, "")


def _axolotl_reentry(keys: TrainerKeys) -> tuple[bool, str]:
    """Return whether axolotl uses reentrant checkpoints by default, and why."""
    found, version = keys.found, keys.rules["version"]
    for key in ("rl", "unfrozen_parameters"):
        if found.value(key) is not None:
            return False, f"{version}: use_reentrant is false with {key}"
    if found.keys_below("gradient_checkpointing_kwargs"):
        return keys.default("reentrant")
    return True, f"{version}: gradient_checkpointing_kwargs has use_reentrant true"


def _read_experts(keys: TrainerKeys) -> None:
    """Read expert parallelism of axolotl: every rank has some complete experts, and all other
    weights.
    """
    found, key = keys.found, "expert_parallel_size"
    degree = found.whole(key)
    if degree is None or degree == 1:
        return
    if "expert_parallel" not in str(found.value("plugins")).lower():
        plugin = "axolotl.integrations.expert_parallel.ExpertParallelPlugin"
        found.problem(key, "it needs its plugin", f"`plugins: [{plugin}]`")
    elif keys.is_sharded or (found.whole("dp_shard_size") or 1) > 1:
        what = "experts that are sharded separately from other weights are not modeled"
        found.problem(key, what, "only jobs without FSDP and DeepSpeed are supported with it")
    else:
        found.set("layout.ep", digits(degree), key)
        why = f"{keys.rules['version']}: {key} exchanges tokens with DeepEP"
        found.assume("routing.dispatcher", "deepep", why)
        found.ignore("plugins", f"read with {key}")


def read_trl(file: ImportFile, job: JobKeys) -> Translation:
    """Return a supervised fine-tuning of TRL, or a job of another script that uses Trainer."""
    program = str(job.entries[PROGRAM].value) if PROGRAM in job.entries else ""
    is_trl = any(
        fnmatchcase(program, form)
        for form in ("trl *", "trl.scripts.*", "*trl/scripts/*", "*trl/examples/scripts/*")
    )
    keys = TrainerKeys("trl" if is_trl else "trainer_scripts", file, job)
    found = keys.found
    adapters = [key for key in job.entries if key.startswith("lora_")]
    off = ("", "none", "false", "no", "0")
    switches = [key for key in _SWITCHES if str(found.value(key, "")).lower() not in off]
    is_stated = job.entries.keys() >= {"lora_r", "lora_target_modules"}
    of_trl = is_trl or (switches == ["use_peft"] and (not program or is_stated))
    unknown = [key for key in switches if not (of_trl and key == "use_peft")]
    if not is_trl and job.entries.keys().isdisjoint(_SWITCHES):
        unknown += adapters
    if unknown:
        found.problem(unknown[0], unsupported_message("script"), unsupported_help("script"))
    keys.model()
    own = found.value("config_name")
    if own is not None and own != found.value(keys.key("model")):
        reason = f"it is the configuration of `{own}`"
        found.ask("model", reason, ["--use config.json"], "config_name")
    keys.batch()
    keys.sequence()
    weights, why = _trl_weights(keys, is_trl=is_trl)
    if not of_trl:
        reject_quantized_model(found, keys.key("model"))
    elif keys.adapters(table("trl")):
        keys.frozen(weights, why)
        weights, why = "4 B", _ADAPTERS
        quantized = found.has(f"{BLOCK}.base") and "FastLanguageModel()" not in job.entries
        if is_trl and quantized and not keys.switch("fp16")[0]:
            weights, why = "2 B", "TRL 1.16: adapters of a quantized model are in bfloat16"
            if not keys.switch("bf16")[0]:
                weights, why = None, "without `bf16`, the script decides the type of the adapters"
    keys.read_sharding(weights, why)
    need = f"{keys.rules['version']}: adapters with DeepSpeed ZeRO 3 need reentrant checkpoints"
    needs = is_trl and found.has("adapters.") and keys.engine_stage == 3
    keys.recompute(forced=(True, need) if needs else None)
    if found.switch("activation_offloading"):
        found.set("offload.activations", "100 %", "activation_offloading")
    keys.kernels()
    keys.devices()
    return found.translation()


def _trl_weights(keys: TrainerKeys, *, is_trl: bool) -> tuple[str | None, str]:
    """Return the size of loaded weights and the reason; None if it depends on the release."""
    key = keys.key("dtype")
    stated = keys.found.value(key)
    if stated is not None and str(stated) != "auto":
        return keys.found.word(key, SIZES), f"the script loads weights as {stated}"
    if is_trl and stated is None:
        return "4 B", keys.default("dtype")[1]
    return None, (
        f"`{key}` is {stated or 'left out'}: transformers 4 loads weights in float32, "
        "transformers 5 in the type of the checkpoint"
    )


def read_swift(file: ImportFile, job: JobKeys) -> Translation:
    """Return a fine-tuning, full or with adapters, or a pretraining of ms-swift."""
    keys = TrainerKeys("ms_swift", file, job)
    found, version = keys.found, keys.rules["version"]
    entry = keys.model()
    keys.batch()
    keys.sequence()
    key = keys.key("dtype")
    if key in found and found.value(key) != "AUTO":  # of ms-swift 2: that of the checkpoint
        weights = found.word(key, SIZES)
        why = f"the weights are loaded as {found.value(key)}"
    elif entry:
        weights, why = "2 B", f"{version}: torch_dtype is that of the checkpoint, bfloat16"
    else:
        weights = None
        why = f"`{key}` is not set, so the checkpoint decides it"
    if weights == "2 B" and not keys.has("bf16"):
        keys.assume_bf16(f"{version}: bf16 follows from torch_dtype")
    if keys.adapters():
        keys.frozen(weights, why)
        weights, why = "4 B", _ADAPTERS
    keys.read_sharding(weights, why)
    keys.devices()
    alone = found.setting("cluster.devices") == "1"
    whose = "one process" if alone else "FSDP and DeepSpeed" if keys.is_sharded else "replicas"
    enters = alone or keys.is_sharded
    keys.recompute((enters, f"{version}: {whose}: use_reentrant is {str(enters).lower()}"))
    ring = job.environment.get("SEQUENCE_PARALLEL_IMPL")  # of ms-swift 3
    mode = "llama3" if ring is not None and "ring" in ring.text else "ulysses"
    keys.ulysses("sequence_parallel_size", mode, brought=True)
    keys.kernels()
    return found.translation()
