"""Mixture of experts: the MoE layers, the router, and the token exchange."""

from __future__ import annotations

from parcost_formats.tools.collector import digits
from parcost_formats.tools.megatron.defaults import ToolOptions
from parcost_formats.tools.megatron.patterns import LayerListError, pattern, period
from parcost_formats.tools.tables import table

_WORDS = table("megatron")["words"]
_DISPATCHERS, _BACKENDS = _WORDS["moe_token_dispatcher_type"], _WORDS["moe_flex_dispatcher_backend"]
_OF_EXPERTS = (
    *("moe_router_topk", "moe_ffn_hidden_size", "moe_layer_freq", "moe_router_enable_expert_bias"),
    *("moe_shared_expert_intermediate_size", "moe_shared_expert_gate", "moe_grouped_gemm"),
    *("moe_token_dispatcher_type", "moe_flex_dispatcher_backend", "moe_enable_deepep"),
    *("moe_deepep_num_sms", "moe_hybridep_num_sms", "moe_expert_capacity_factor"),
    *("moe_pad_expert_input_to_capacity", "moe_shared_expert_overlap", "moe_permute_fusion"),
    *("moe_router_fusion", "moe_router_force_load_balancing"),
)


def read_experts(options: ToolOptions) -> None:
    """Read the attributes of an MoE model."""
    count = options.whole("num_experts", least=0)
    option = options.get("num_experts")
    deepspeed = options.on("deepspeed")
    if count == 1 and deepspeed:
        count = 0  # as Megatron-DeepSpeed counts
    if not count:
        if option is not None and count == 0:
            options.ignore(option, "a model without experts")
        if options.has("model."):  # a model that the file describes
            options.ignore_all(_OF_EXPERTS, "it has no effect without --num-experts")
            return
    elif option is not None:
        options.set("model.experts", digits(count), option)
        if options.copy("moe_router_topk", "model.top_k") is None and deepspeed:
            why = "releases of Megatron-DeepSpeed without --topk use 1 expert per token"
            options.ask_for("model.top_k", option, why)
        elif not options.has("model.top_k"):
            options.default("moe_router_topk", "model.top_k", "2", "2 experts per token")
        if options.copy("moe_ffn_hidden_size", "model.expert_ffn") is None:
            why = "the FFN hidden size of a dense layer"
            options.default("moe_ffn_hidden_size", "model.expert_ffn", "ffn", why)
        if deepspeed and options.copy("expert_interval", "model.moe_every") is None:
            options.assume("model.moe_every", "2", "Megatron-DeepSpeed: expert_interval is 2")
        elif not deepspeed:
            _layers(options)
        _shared_experts(options)
        if bias := options.find_enabled_option("moe_router_enable_expert_bias"):
            options.set("model.router_bias", "on", bias)
    read_exchange(options)


def _layers(options: ToolOptions) -> None:
    """Read which layers have experts."""
    option = options.get("moe_layer_freq")
    if option is None:
        return
    text = " ".join(option.texts)
    layers = options.whole("num_layers")
    if text.isdecimal():
        every = int(text[:9])
        if every < 1 or (layers is not None and layers % every):
            options.problem(option, f"the {layers} layers are not a multiple of {every}")
        elif every > 1:
            why = f"in the tool the first of each {every} layers has experts, here the last"
            options.set("model.moe_every", digits(every), option, why)
        return
    try:
        numbers = pattern(text)
    except LayerListError:
        shown = text[:40] or "nothing"
        options.problem(
            option, f"a number or a list such as ([0]*3+[1]*58) is expected, but {shown} is given"
        )
        return
    if layers is not None and len(numbers) != layers:
        options.problem(option, f"the list has {len(numbers)} layers, but --num-layers is {layers}")
        return
    found = period(numbers)
    if found is None:
        why = "after the dense layers, only the last of every n layers can have experts"
        options.problem(option, "the pattern of these layers cannot be expressed in a spec", why)
        return
    if found.every > 1:
        options.set("model.moe_every", str(found.every), option)
    if found.first:
        options.set("model.dense_first", str(found.first), option)


def _shared_experts(options: ToolOptions) -> None:
    width = options.whole("moe_shared_expert_intermediate_size", least=0)
    option = options.get("moe_shared_expert_intermediate_size")
    gate = options.find_enabled_option("moe_shared_expert_gate")
    if width and option is not None:
        why = "one shared expert with the total FFN hidden size, which has the same cost"
        options.set("model.shared_ffn", digits(width), option)
        options.assume("model.shared_experts", "1", why, option)
        if gate is not None:
            options.set("model.shared_gate", "on", gate)
    elif option is not None and width == 0:
        options.ignore(option, "a model without shared experts")


def read_exchange(options: ToolOptions) -> None:
    """Read the dispatch of tokens to experts: the dispatcher and its ranks."""
    _dispatcher(options)
    options.copy_switch("moe_grouped_gemm", "kernels.grouped_experts")
    _capacity(options)
    if forced := options.find_enabled_option("moe_router_force_load_balancing"):
        options.set("routing.distribution", "uniform", forced)
    for name, attribute in (("moe_permute_fusion", "permutation"), ("moe_router_fusion", "router")):
        options.copy_switch(name, f"framework.{attribute}", "fused", "eager")
    shared = options.find_enabled_option("moe_shared_expert_overlap")
    if pair := options.find_enabled_option("overlap_moe_expert_parallel_comm"):
        method = options.get("schedules_method")
        if method is not None and method.text == "dualpipev":
            options.ignore(pair, "the pairs of DualPipeV hide the exchange")
        else:
            options.set("routing.hide", "pair", pair)
        if shared is not None:
            options.problem(shared, f"it cannot be combined with {pair.key}")
    elif shared is not None:
        options.set("routing.hide", "shared_experts", shared)


def _dispatcher(options: ToolOptions) -> None:
    option = options.get("moe_token_dispatcher_type")
    word = options.choice("moe_token_dispatcher_type", *_DISPATCHERS)
    backend = options.get("moe_flex_dispatcher_backend")
    deepep = options.get("moe_enable_deepep")
    for name in ("deepep", "hybridep"):
        options.copy(f"moe_{name}_num_sms", f"routing.{name}_multiprocessors")
    if word is None or option is None:
        for one in (backend, deepep):
            if one is not None:
                options.ignore(one, "it has no effect without --moe-token-dispatcher-type flex")
        return
    if word != "flex":
        options.set("routing.dispatcher", _DISPATCHERS[word], option)
        for one in (backend, deepep):
            if one is not None and one.text != "false":
                options.ignore(one, f"it has no effect with {option.key} {word}")
        return
    if backend is None:
        options.set("routing.dispatcher", "deepep", option)
    elif backend.text in _BACKENDS:
        options.set("routing.dispatcher", _BACKENDS[backend.text], backend)
    else:
        options.problem(
            backend, f"`{backend.text}` is not modeled", "supported: deepep and hybridep"
        )


def _capacity(options: ToolOptions) -> None:
    factor = options.number("moe_expert_capacity_factor")
    option = options.get("moe_expert_capacity_factor")
    padded = options.on("moe_pad_expert_input_to_capacity")
    if factor and option is not None:
        why = "" if padded else "Megatron-LM drops tokens above it, and does not pad"
        options.set("routing.capacity_factor", option.text, option, why)
