"""The model: sizes, norms, biases, positions and attention."""

from __future__ import annotations

import re
from collections.abc import Sequence

from parcost_formats.tools.drafts import EXACT_ROWS, Option, digits
from parcost_formats.tools.hub import closest_entry, find_entry, vocabulary_of
from parcost_formats.tools.layer_settings import settings_of_full
from parcost_formats.tools.megatron.defaults import ToolOptions
from parcost_formats.tools.megatron.patterns import LayerListError, pattern
from parcost_formats.tools.tables import table

_NUMBERS, _WORDS = table("megatron")["numbers"], table("megatron")["words"]
#: Attributes that a recipe may change in a catalogue model, and those that are ignored.
_CHANGES = {
    "num_layers": "model.layers",
    "vocab_size": "model.vocabulary",
    "mtp_num_layers": "model.prediction_layers",
    "num_experts": "model.experts",
}
_SHAPES = (
    *("hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups", "kv_channels"),
    *("moe_ffn_hidden_size", "moe_layer_freq", "moe_router_topk", "q_lora_rank", "kv_lora_rank"),
    *("moe_shared_expert_intermediate_size", "window_size", "multi_latent_attention"),
    *("experimental_attention_variant", "linear_attention_freq", "attention_output_gate"),
)
#: Sizes of latent attention that have a default.
_LATENT = {"kv_lora_rank": 32, "qk_head_dim": 128, "qk_pos_emb_head_dim": 64, "v_head_dim": 128}


def has_sizes(options: ToolOptions) -> bool:
    """Return whether the options state the sizes of a transformer."""
    return "num_layers" in options or "hidden_size" in options


def read_model(options: ToolOptions) -> None:
    """Read the attributes of a transformer, if the options state its sizes."""
    if not has_sizes(options):
        return
    for name, path in _NUMBERS["model"].items():
        options.copy(name, path, least=0 if name == "mtp_num_layers" else 1)
    hidden = options.whole("hidden_size")
    _mlp(options, hidden)
    _attention(options)
    _vocabulary(options)
    _norms_and_biases(options)
    _positions(options)
    _window(options)
    _delta_net(options)
    kind = options.choice("softmax_type", "vanilla", "learnable", "off-by-one")
    option = options.get("softmax_type")
    if option is not None and kind == "learnable":
        options.set("model.sinks", "on", option)
    elif option is not None and kind == "off-by-one":
        options.leave(option, "a constant in the softmax is not modeled")


def _mlp(options: ToolOptions, hidden: int | None) -> None:
    gates = [name for name in ("swiglu", "quick_geglu") if options.on(name)]
    gate = options.get(gates[0]) if gates else None
    plain = options.get("squared_relu")
    variant = options.get("glu_activation")  # of BigScience and GLM: geglu, liglu, reglu, swiglu
    if gate is not None:
        options.set("model.gated", "on", gate)
    elif variant is not None and variant.text not in ("None", "null", "false"):
        options.set("model.gated", "on", variant)
    elif plain is not None:
        options.set("model.gated", "off", plain)
        options.set("model.squared_relu", "on", plain)
    else:
        options.default("swiglu", "model.gated", "off", "GELU")
    if options.copy("ffn_hidden_size", "model.ffn") is None and hidden is not None:
        width, why = 4 * hidden, "4 x hidden"
        if gates[:1] == ["swiglu"]:
            width = 8 * hidden // 3 // 64 * 64
            why = "with swiglu two thirds of 4 x hidden, a multiple of 64"
        options.default("ffn_hidden_size", "model.ffn", digits(width), why)
    option = options.get("activation_func_clamp_value")
    if option is not None:
        options.set("model.clamped", "on", option)


def _attention(options: ToolOptions) -> None:
    latent = options.on("multi_latent_attention")
    for name, path in _NUMBERS["latent"].items():
        option, default = options.get(name), _LATENT.get(name)
        if not latent:
            if option is not None:
                options.ignore(option, "it has no effect without --multi-latent-attention")
        elif options.copy(name, path, least=0) is None and default:
            options.default(name, path, str(default), f"{name} is {default}")
    grouped, groups = options.on("group_query_attention"), options.get("num_query_groups")
    for name in ("kv_channels", "num_query_groups", "qk_layernorm"):
        option = options.get(name)
        if latent and option is not None:
            options.ignore(option, "compressed keys and values have sizes and norms of their own")
    if latent:
        return
    options.copy("kv_channels", "model.head_dim")
    kind = options.choice("attention_head_type", "multihead", "multiquery")  # of BigCode
    one = options.get("attention_head_type")
    if one is not None and kind == "multiquery":
        options.set("model.kv_heads", "1", one)
    elif grouped and groups is not None:
        options.copy("num_query_groups", "model.kv_heads")
    elif grouped:
        options.default("num_query_groups", "model.kv_heads", "1", "one group")
    elif groups is not None:
        why = "without --group-query-attention, every query head has its own KV head"
        options.ignore(groups, why)
    elif options.copy("num_key_value_heads", "model.kv_heads") is None:  # of Megatron-DeepSpeed
        options.check_default("model.kv_heads")
    if norm := options.find_enabled_option("qk_layernorm"):
        options.set("model.qk_norm", "on", norm)


def _has_rest(options: ToolOptions) -> bool:
    """Return whether the vocabulary is not divisible by the number of tensor-parallel ranks."""
    found = (options.get("vocab_size"), options.get("tensor_model_parallel_size"))
    words, ranks = (int(one.text) if one and one.text.isdecimal() else 0 for one in found)
    return ranks > 1 and words % ranks > 0


def _vocabulary(options: ToolOptions) -> None:
    padded = options.get("padded_vocab_size")
    if padded is not None:
        options.copy("padded_vocab_size", "model.vocabulary")
        why = "--padded-vocab-size is the size of the embedding"
        options.ignore_all(("vocab_size", "make_vocab_size_divisible_by"), why)
        return
    why = "rows of the embedding are a multiple of 128 x tp"
    rows = options.get("make_vocab_size_divisible_by")
    if rows is not None and rows.text == "1" and _has_rest(options):
        exact = options.why("the rows are a multiple of tp")
        options.assume("layout.vocabulary_multiple", EXACT_ROWS, exact, rows)
    elif options.copy("make_vocab_size_divisible_by", "layout.vocabulary_multiple") is None:
        options.default("make_vocab_size_divisible_by", "layout.vocabulary_multiple", "128", why)
    tokenizer = options.get("tokenizer_type")
    if options.copy("vocab_size", "model.vocabulary") is not None or "vocab_size" in options:
        return
    merges = options.lookup("merge_file")
    if tokenizer is None and merges is not None:  # which no other tokenizer has
        why = options.why("tokenizer_type is GPT2BPETokenizer in pretrain_gpt.py")
        tokenizer = merges.evolve(texts=("GPT2BPETokenizer",), assumption=why)
    known = table("megatron")["tokenizers"]
    files = options.get("tokenizer_model")
    size = vocabulary_of(files.text) if files is not None else None
    if files is not None and size is not None:
        options.set("model.vocabulary", digits(size), files, f"the vocabulary of {files.text}")
        return
    own = _own_tokens(options, tokenizer)
    if tokenizer is not None and tokenizer.text in known and not own:
        options.set(
            "model.vocabulary",
            digits(known[tokenizer.text]),
            tokenizer,
            f"the vocabulary of {tokenizer.text}",
        )
        return
    near = tokenizer or options.get("num_layers")
    if near is not None:
        lacking = near.evolve(key="--vocab-size", texts=())
        why = own or "not stated, and the tokenizer is not a known one"
        options.ask_for("model.vocabulary", lacking, why)


def _own_tokens(options: ToolOptions, tokenizer: Option | None) -> str:
    """Return the reason if the vocabulary is not that of Llama 2: the tokenizer is of another
    model.
    """
    files = options.lookup("tokenizer_model")
    if tokenizer is None or tokenizer.text != "Llama2Tokenizer" or files is None:
        return ""
    path = files.text.lower()
    is_own = path.endswith(".model") and not path.endswith("tokenizer.model")
    if not is_own or "llama" in path:
        return ""
    return f"not stated; {tokenizer.text} has the tokens of {files.text.rpartition('/')[2]}"


def _norms_and_biases(options: ToolOptions) -> None:
    norm = options.choice("normalization", *_WORDS["normalization"])
    option = options.get("normalization")
    if norm and option is not None:
        options.set("model.norm", _WORDS["normalization"][norm], option)
    elif option is None:
        options.default("normalization", "model.norm", "layer", "LayerNorm")
    word = "off" if options.on("disable_bias_linear") else "on"
    options.set_or_assume("disable_bias_linear", "model.biases", word, "linear layers have biases")
    added = options.find_enabled_option("add_qkv_bias")
    if added is not None and options.on("disable_bias_linear"):
        options.set("model.qkv_biases", "on", added)
    untied = "untie_embeddings_and_output_weights"
    word, why = "off" if options.on(untied) else "on", "embedding and head share one table"
    options.set_or_assume(untied, "model.tied", word, why)


def _positions(options: ToolOptions) -> None:
    rows = options.get("max_position_embeddings")
    kind = options.get("position_embedding_type")
    rotary = options.find_enabled_option("use_rotary_position_embeddings")
    known = ("learned_absolute", "rope", "rotary", "mrope", "yarn", "alibi", "relative", "none")
    word = options.choice("position_embedding_type", *known)
    if rotary is not None:
        word = "rope"
    learned = word in (None, "learned_absolute") and not options.on("multi_latent_attention")
    if learned and rows is not None:
        why = "" if word else options.why("learned positions")
        count = options.whole("max_position_embeddings")
        if count is not None:
            options.set("model.positions", digits(count), rows, why)
    elif not learned and rows is not None:
        options.ignore(
            rows, "there is no table of positions: the flag only limits the sequence length"
        )
    if kind is not None and word == "alibi":
        options.set("model.alibi", "on", kind)
    if norm := options.find_enabled_option("embed_layernorm"):
        options.set("model.embedding_norm", "on", norm)
    if kind is not None and word in ("mrope", "relative", "none"):
        options.leave(kind, "positions are assumed to be rotary")


def _window(options: ToolOptions) -> None:
    option, every = options.get("window_size"), options.get("window_attn_skip_freq")
    if option is None:
        if every is not None:
            options.ignore(every, "it has no effect without --window-size")
        return
    found = re.fullmatch(r"\(?\s*(\d{1,9})[\s,]+(-?\d{1,9})\s*\)?", " ".join(option.texts))
    if found is None:
        options.problem(option, "two whole numbers are expected, as in 127,0")
        return
    # A query attends to as many tokens ahead of it, and to itself.
    options.set("model.window", digits(int(found[1]) + 1), option)
    if every is not None:
        _full_layers(options, every)


def _full_layers(options: ToolOptions, every: Option) -> None:
    """Set which layers attend to all tokens: every n-th, or the zeros of a list."""
    if every.text.isdecimal():
        options.copy(every.name, "model.full_every")
        return
    try:
        numbers = pattern(" ".join(every.texts))
    except LayerListError:
        options.problem(every, "a number or a list such as [1,1,1,0]*3 is expected")
        return
    layers = options.whole("num_layers")
    if layers is not None and len(numbers) != layers:
        options.problem(every, f"the list has {len(numbers)} layers, but --num-layers is {layers}")
        return
    full = [layer for layer, one in enumerate(numbers) if not one]
    for attribute, value in settings_of_full(full, len(numbers)):
        options.set(f"model.{attribute}", value, every)


def _delta_net(options: ToolOptions) -> None:
    variant = options.get("experimental_attention_variant")
    every, sizes = options.get("linear_attention_freq"), _NUMBERS["delta_net"]
    if gate := options.find_enabled_option("attention_output_gate"):
        options.set("model.output_gate", "on", gate)
    if variant is None or variant.text in ("None", "null"):
        why = "it has no effect without --experimental-attention-variant"
        options.ignore_all((*sizes, "linear_attention_freq"), why)
    elif variant.text != "gated_delta_net":
        why = f"attention of the kind `{variant.text[:40]}` is not modeled yet"
        options.problem(variant, why, "known: gated_delta_net")
    else:
        for name, path in sizes.items():
            if options.copy(name, path) is None:
                options.ask_for(
                    path, variant, f"a gated delta net needs --{name.replace('_', '-')}"
                )
        if every is not None:
            _full_layers(options, every)
        else:
            why = "a gated delta net needs --linear-attention-freq"
            options.ask_for("model.full_every", variant, why)


def model_answers(name: str) -> Sequence[str]:
    """Return options that supply a model: an entry similar to *name*, or a file."""
    return f"--use catalog.models.{closest_entry(name)}", "--use config.json"


def read_start(options: ToolOptions, start: Option) -> None:
    """Use the catalogue model that *start* names, with the changes in the file."""
    known = table("megatron")["bridge"]["models"]
    classes = (known, table("bridge_classes")["models"], table("nemo")["classes"])
    entries = {entry for one in classes for entry in one.values()}
    entry = known.get(start.text) or (start.text if start.text in entries else "")
    assumption = start.assumption
    if not entry:
        entry, why = find_entry(start.text)
        assumption = assumption or why
    if not entry:
        why = f"there is no `{start.text}` in the catalogue"
        options.ask("model", why, model_answers(start.text), start)
        return
    options.use(f"models.{entry}", start, assumption)
    label = str(entry)
    for name, path in _CHANGES.items():
        if name in options:
            options.copy(name, path, least=0 if name == "mtp_num_layers" else 1)
    if options.has("model."):
        label = "changed"
        options.label("model", f"{label} extends {entry}")
    options.set("training.model", label, start, assumption)
    for name in _SHAPES:
        option = options.get(name)
        if option is not None and name == "multi_latent_attention":
            latent = str(entry).startswith(tuple(table("hub")["latent"]))
            if latent is (option.text != "false"):
                options.ignore(option, f"as {start.text} has it")
                continue
        if option is not None:
            shown = " ".join(option.texts)[:40]
            why = f"`{option.key}` {shown} changes the shape of {start.text}"
            options.ask("model", why, [f"--use catalog.models.{entry}"], option)
