"""The layout: parallel degrees, ZeRO sharding, and context parallelism."""

from __future__ import annotations

from parcost_formats.tools.drafts import Option
from parcost_formats.tools.megatron.defaults import ToolOptions
from parcost_formats.tools.tables import table

_NUMBERS, _WORDS = table("megatron")["numbers"], table("megatron")["words"]


def read_layout(options: ToolOptions) -> None:
    """Read the degrees of parallelism."""
    tp: int | None = None
    for name, path in _NUMBERS["layout"].items():
        found = options.copy(name, path)
        if found is None:
            options.default(name, path, "1", f"{name} is 1")
        if path == "layout.tp":
            tp = found
    etp = options.copy("expert_tensor_parallel_size", "layout.etp")
    of_experts = ("num_shared_experts", "moe_token_dispatcher_type", "moe_grouped_gemm")
    ep = options.whole("expert_model_parallel_size", least=0) or 1
    if etp is None and (
        ep > 1 or options.has("model.experts") or any(one in options for one in of_experts)
    ):
        why = "expert_tensor_parallel_size equals tensor_model_parallel_size"
        options.default("expert_tensor_parallel_size", "layout.etp", str(tp or 1), why)
    options.copy_switch("sequence_parallel", "layout.sequence_parallel")
    if option := options.find_enabled_option("use_tp_pp_dp_mapping"):
        options.set("layout.order", '"tp-cp-pp-dp"', option)
    _sharding(options)
    _context(options)


def _sharding(options: ToolOptions) -> None:
    """Read the ZeRO stage, and its shard group."""
    strategy = options.get("data_parallel_sharding_strategy")
    torch, megatron = options.get("use_torch_fsdp2"), options.get("use_megatron_fsdp")
    optimizer = options.get("use_distributed_optimizer")
    keeps = options.get("torch_fsdp2_no_reshard_after_forward")
    stage = options.get("zero_stage")
    used = [one for one in (torch, megatron, optimizer) if one is not None and one.text != "false"]
    if torch in used and torch is not None:
        options.set("layout.zero", "3", torch)
        if keeps is not None and keeps.text != "false":
            options.set("sharding.reshard", "off", keeps)
        for one in used[1:]:
            options.problem(one, "it cannot be combined with --use-torch-fsdp2")
    elif megatron in used and megatron is not None:
        strategies = _WORDS["data_parallel_sharding_strategy"]
        word = options.choice("data_parallel_sharding_strategy", *strategies)
        if strategy is not None and word is not None:
            options.set("layout.zero", strategies[word], strategy)
        elif strategy is None:
            why = "the default strategy is optim_grads_params since 0.16, before it was no_shard"
            if options.check_default("layout.zero"):
                options.set("layout.zero", "3", megatron, options.why(why))
    elif optimizer in used and optimizer is not None:
        options.set("layout.zero", "1", optimizer)
        if stage is not None and stage.text not in ("0", "1"):
            options.problem(
                optimizer,
                f"the option means ZeRO 1, but the DeepSpeed options have stage "
                f"{stage.text}: remove one of the two",
            )
    elif stage is not None and options.choice("zero_stage", "0", "1", "2", "3") != "0":
        options.copy("zero_stage", "layout.zero")
        engine = options.lookup("deepspeed")
        if engine is None or engine.text == "false":
            why = f"`{stage.key}` is of Megatron-DeepSpeed, which reads it only with `--deepspeed`"
            answers = [f"--set layout.zero={one}" for one in dict.fromkeys(("0", stage.text))]
            options.ask("layout.zero", f"{why}: add that flag, or choose", answers, stage)
    else:
        why = "without the distributed optimizer, every rank keeps the whole optimizer state"
        options.default("use_distributed_optimizer", "layout.zero", "0", why)
    if strategy is not None and megatron not in used:
        options.ignore(strategy, "it has no effect without --use-megatron-fsdp")
    if keeps is not None and torch not in used:
        options.ignore(keeps, "it has no effect without --use-torch-fsdp2")
    instances = options.whole("num_distributed_optimizer_instances")
    option = options.get("num_distributed_optimizer_instances")
    if option is not None and instances and instances > 1:
        options.set("sharding.shard", f"layout.dp * layout.cp / {instances}", option)


def _is_ulysses(degree: Option) -> bool:
    """Return whether the degree is the flag of Megatron-DeepSpeed, which has all-to-all."""
    return degree.key.replace("_", "-") == "--ds-sequence-parallel-size"


def _context(options: ToolOptions) -> None:
    """Read the communication of context parallelism: ring, all-gather or all-to-all."""
    degree = options.get("context_parallel_size")
    if degree is not None and _is_ulysses(degree) and degree.texts != ("1",):
        options.set("context.algorithm", "ulysses", degree)
    kind, sizes = options.get("cp_comm_type"), options.get("hierarchical_context_parallel_sizes")
    if kind is not None:
        words, known = set(kind.texts), _WORDS["cp_comm_type"]
        if not words <= set(known) or not words:
            shown = " ".join(kind.texts)[:40]
            options.problem(kind, f"`{shown}` is not known", f"known: {', '.join(known)}")
        elif len(words) > 1:
            options.problem(kind, "all layers must use one type", "choose one")
        else:
            options.set("context.algorithm", known[kind.texts[0]], kind)
    if sizes is None:
        return
    if kind is None or kind.texts[:1] != ("a2a+p2p",):
        options.ignore(sizes, "it has no effect without --cp-comm-type a2a+p2p")
    elif len(sizes.texts) != 2 or not all(text.isdecimal() for text in sizes.texts):
        options.problem(sizes, "two whole numbers are expected")
    else:  # the neighbours of the first level trade the sequence for heads
        options.set("context.ulysses", str(int(sizes.texts[0])), sizes)
