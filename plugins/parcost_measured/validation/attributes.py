"""The attributes of the study of a row, and how their values follow from the row.

The table :data:`ATTRIBUTES` has a block, an attribute, and a function from the facts of a row to
the value. A value is a text of a spec, alone or with an assumption. None keeps the default of the
language. A new attribute is one line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeAlias

from attrs import evolve, field, frozen

from parcost import spec_text
from parcost_measured.validation import adapters
from parcost_measured.validation.frameworks import (
    Profile,
    profile_of,
)
from parcost_measured.validation.hardware import (
    HardwareEntry,
    HardwareNetwork,
    attention_kernels_of,
    fabric_of,
    network_of,
)
from parcost_measured.validation.names import ATTENTION_KERNELS, find_schedule
from parcost_measured.validation.recipes import Recipe, Recomputation, recipe_of, recomputation_of
from parcost_measured.validation.rows import Hybrid, RunRow, UnmodelledError
from parcost_plugins.vocabulary.framework import DISPATCHERS
from parcost_plugins.vocabulary.stages_text import StagesTextError, stages


@frozen
class Assumption:
    """A value that the row lacks, and the reason for assuming it."""

    value: str
    why: str


Value: TypeAlias = str | Assumption | None


#: How sources write a stage of ZeRO, and data parallelism that shards nothing; in lower case.
_STAGE_TEXT = r"(?:zero|stage)[ -]*(?:stage )?"
_REPLICAS = r"^(?!.*(?:shard|zero)).*(?:\bd?dp\b|data[ -]parallel|\breplicated\b)"


@frozen(eq=False, slots=False)
class Facts:
    """A row, and values derived from it for several attributes.

    If a row lacks settings in `extra`, they are those of its tool for adapters.
    """

    row: RunRow
    entry: HardwareEntry
    profile: Profile = field(init=False)
    adapters: adapters.AdapterSettings = field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "profile", profile_of(self.row))
        found = adapters.adapters_of(self.row, self.profile.title)
        object.__setattr__(self, "adapters", found)
        extra = {**self.row.extra, **found.extra}
        object.__setattr__(self, "row", evolve(self.row, extra=extra))

    @cached_property
    def recipe(self) -> Recipe:
        """The precision."""
        return recipe_of(self.row, self.profile)

    @cached_property
    def recomputation(self) -> Recomputation:
        """The recomputation."""
        return recomputation_of(self.row)

    @cached_property
    def network(self) -> HardwareNetwork | None:
        """The network between nodes, None if the row does not state its bandwidth."""
        return network_of(self.row.hardware)

    @cached_property
    def fabric(self) -> str:
        """The fabric of the catalogue."""
        return fabric_of(self.row.hardware, self.entry)

    @property
    def divides(self) -> bool:
        """Whether the layers divide evenly by the virtual stages."""
        p = self.row.parallel
        return not self.row.model.layers % (p.pp * p.vp)

    @cached_property
    def ends(self) -> int:
        """The number of ends (embedding, head) that count as a layer if the layers do not divide by
        the stages.

        Megatron-LM supports such a split only by options that count the ends as layers.
        """
        said = str(self.row.extra.get("pp_partition") or self.row.extra.get("pp_layout") or "")
        if self.divides or said:
            return 2 if "embed" in said and not self.divides else 0
        p = self.row.parallel
        even = [n for n in (2, 1) if not (self.row.model.layers + n) % (p.pp * p.vp)]
        options = "Megatron" in self.profile.title and not self.profile.deals
        return even[0] if even and options else 0

    @cached_property
    def sharding(self) -> str:
        """The row's description of sharded state, in lower case."""
        return (self.row.parallel.zero_stage_or_fsdp or "").lower()

    @property
    def is_fsdp(self) -> bool:
        """Whether parameters are sharded layer by layer."""
        return re.search(rf"fsdp|{_STAGE_TEXT}3", self.sharding) is not None

    @property
    def is_gated(self) -> bool:
        """Whether the MLP is gated, assumed for models in the style of LLaMA."""
        return bool(self.row.model.gated)


# --- values -------------------------------------------------------------------------------


def _number(value: float | None) -> Value:
    return None if value is None else f"{value:g}" if value < 1e6 else f"{value:_.0f}"


def _on(value: bool | None) -> Value:
    return None if value is None else str(spec_text(value))


def _flag_above(value: float | None, least: float) -> Value:
    return _number(value) if value is not None and value > least else None


def _gated_mlp(facts: Facts) -> Value:
    if facts.row.model.gated is None:
        return Assumption("on", "the MLP is gated")
    return _on(facts.row.model.gated)


_GPT_OSS = r"gpt-?oss"


def _norm(facts: Facts) -> Value:
    kind = "rms" if facts.is_gated else "layer"
    return Assumption(kind, f"{kind} norms, assumed because of the gated or ungated MLP")


def _biases(facts: Facts) -> Value:
    m = facts.row.model
    if re.search(_GPT_OSS, m.name, re.IGNORECASE):
        return Assumption("on", "gpt-oss has biases")
    if facts.is_gated or m.activation == "squared-relu":
        return None
    return Assumption("on", "linear layers have biases: the MLP is not gated")


def _activation(facts: Facts) -> Value:
    return "on" if facts.row.model.activation == "squared-relu" else None


def _ffn(facts: Facts) -> Value:
    m = facts.row.model
    return (
        Assumption(_text(4 * m.hidden), "the MLP is 4 h wide") if m.ffn is None else _number(m.ffn)
    )


def _positions(facts: Facts) -> Value:
    return _flag_above(facts.row.model.pos_emb, 0)


def _full_every(facts: Facts) -> Value:
    m = facts.row.model
    if not (m.sliding_window and m.full_attention_layers):
        return None
    return _text(max(1, round(m.layers / m.full_attention_layers)))


def _window(facts: Facts) -> Value:
    return _flag_above(facts.row.model.sliding_window, 0)


def _on_for(pattern: str, why: str) -> Callable[[Facts], Value]:
    """Return a function that turns an attribute on for models whose name contains *pattern*."""

    def value(facts: Facts) -> Value:
        match = re.search(pattern, facts.row.model.name, re.IGNORECASE)
        return Assumption("on", why) if match else None

    return value


def _expert_value(value: Callable[[RunRow], float | None]) -> Callable[[Facts], Value]:
    return lambda facts: _number(value(facts.row)) if facts.row.is_sparse else None


def _latent_value(value: Callable[[RunRow], float | None]) -> Callable[[Facts], Value]:
    return lambda facts: _number(value(facts.row)) if facts.row.model.kv_lora_rank else None


def _zero(facts: Facts) -> Value:
    text = facts.sharding
    if facts.is_fsdp or "shard_grad_op" in text:
        return "3"
    if printed := re.search(rf"{_STAGE_TEXT}(\d)", text):
        return printed[1]
    if "distributed optimizer" in text:
        return "1"
    if text.startswith("none") or re.search(_REPLICAS, text):
        return "0"
    if not text:
        return Assumption("0", "no sharding: the row does not state it")
    return Assumption("1", f"the optimizer is sharded: `{text}` states no more")


def _shard(facts: Facts) -> Value:
    hybrid = facts.row.parallel.hsdp
    if isinstance(hybrid, Hybrid):
        return _text(hybrid.shard)
    printed = re.search(r"over (\d+) ranks", facts.sharding)
    ranks = facts.row.parallel.dp * facts.row.parallel.cp
    if printed and int(printed[1]) < ranks and not ranks % int(printed[1]):
        return printed[1]
    return None


def _reshard(facts: Facts) -> Value:
    return "off" if "shard_grad_op" in facts.sharding else None


def _vocabulary_multiple(facts: Facts) -> Value:
    multiple = facts.profile.vocabulary_multiple
    if multiple == 1:
        return None
    return Assumption(_text(multiple), f"the vocabulary is padded, as in {facts.profile.title}")


def _sequence_parallel(facts: Facts) -> Value:
    if facts.row.parallel.tp == 1:
        return None
    if facts.row.parallel.sequence_parallel is None:
        if not facts.profile.sequence_parallel:
            return Assumption("off", f"{facts.profile.title} has no sequence parallelism")
        return Assumption("on", "norms are sharded over the tensor-parallel ranks")
    return _on(facts.row.parallel.sequence_parallel)


def _expert_ranks(facts: Facts) -> Value:
    """Return the tensor-parallel degree of experts; None (1) unless the row states another."""
    printed = facts.row.extra.get("expert_tensor_parallel")
    return _text(printed) if isinstance(printed, int) and printed > 1 else None


def _schedule(facts: Facts) -> Value:
    p, kind = facts.row.parallel, find_schedule(facts.row.schedule)
    if p.pp == 1:
        return None
    if kind is None:
        raise UnmodelledError(f"the schedule `{facts.row.schedule}` is unknown")
    return kind or ("interleaved" if p.vp > 1 else None)


def _chunks(facts: Facts) -> Value:
    p = facts.row.parallel
    return _text(p.vp) if p.pp > 1 and p.vp > 1 else None


def _stages(facts: Facts) -> Value:
    """Return the layers of each virtual stage, if the row has a layout in Megatron's notation."""
    said, p = facts.row.extra.get("pp_layout"), facts.row.parallel
    if not isinstance(said, str) or p.pp == 1:
        return None
    try:
        counts = [stage.layers for stage in stages(said)]
    except StagesTextError as error:
        raise UnmodelledError(f"`extra.pp_layout` is `{said}`: {error}") from error
    if len(counts) != p.pp * p.vp or sum(counts) != facts.row.model.layers:
        raise UnmodelledError(
            f"`extra.pp_layout` has {sum(counts)} layers on {len(counts)} stages, but the row "
            f"has {facts.row.model.layers} layers on {p.pp * p.vp} stages"
        )
    return f"[{', '.join(map(str, counts))}]"


def _assignment(facts: Facts) -> Value:
    """Return the rule that assigns layers to stages, if the framework has no such rule."""
    if facts.divides or facts.profile.deals or facts.row.extra.get("pp_layout"):
        return None
    why = f"{facts.row.model.layers} layers are not divisible: the first stages are full"
    return None if facts.ends else Assumption("fill", why)


def _end_layers(least: int, what: str) -> Callable[[Facts], Value]:
    """Return a function that reads whether *what* counts as a layer.

    It does if at least *least* of embedding and head count as layers.
    """

    def value(facts: Facts) -> Value:
        if facts.ends < least:
            return None
        return "on" if facts.profile.deals else Assumption("on", f"the {what} counts as a layer")

    return value


def _recompute_switch(name: str) -> Callable[[Facts], Value]:
    return lambda facts: facts.recomputation.switches.get(name)


def _recompute(facts: Facts) -> Value:
    found = facts.recomputation
    return Assumption(found.kind, found.assumed) if found.assumed else found.kind


def _flash(facts: Facts) -> Value:
    said = (facts.row.attention or "").lower()
    if not said:
        return Assumption("on", "attention is fused: the row does not state it")
    return "off" if re.search(r"no flash|not flash|unfused|eager", said) else "on"


def _kernel(facts: Facts) -> Value:
    """Return the attention kernel in the row.

    If it names none or several, the framework's kernel of that year is used. If the named kernel
    has no measured rate on the device, the usual one is assumed.
    """
    said = (facts.row.attention or "").lower()
    if _flash(facts) == "off":
        return None
    named = [name for pattern, name in ATTENTION_KERNELS.items() if re.search(pattern, said)]
    device = facts.entry.device
    if len(named) == 1 and named[0] not in attention_kernels_of(device):
        return Assumption("auto", f"no rate of `{named[0]}` on `{device}` is measured")
    if len(named) == 1:
        return named[0]
    if facts.profile.writes_scores:
        return Assumption("auto", "the default fused attention kernel of the device")
    return None


def _mode(facts: Facts) -> Value:
    """Return whether layers were compiled, if the row states it."""
    said = facts.row.extra.get("compile")
    if isinstance(said, bool):
        return "compiled" if said else "eager"
    return "compiled" if "torch.compile" in facts.row.notes else None


#: Devices from which BigScience's runs on A100 hung unless the host waited for each kernel.
_HUNG = 320


def _launch_blocking(facts: Facts) -> Value:
    """Return whether the host waited for each kernel.

    BigScience's train/tr11-176B-ml/chronicles-prequel.md, of February 2022: without
    CUDA_LAUNCH_BLOCKING=1 jobs of 320 devices always hang.
    """
    hardware = facts.row.hardware
    if "BigScience" in facts.row.source and "A100" in hardware.gpu and hardware.gpus >= _HUNG:
        return Assumption(
            "on", "CUDA_LAUNCH_BLOCKING=1, without which BigScience jobs on 320 A100 hung"
        )
    return None


#: The year from which recipes of Megatron-Bridge and of MLPerf capture a whole iteration.
_WHOLE_GRAPHS = 2026


def _cuda_graphs(facts: Facts) -> Value:
    """Return the scope of CUDA graphs, if the row states it.

    A scope without attention covers only the router, and the host still launches the layer.
    """
    kind, scope = (
        str(facts.row.extra.get(f"cuda_graph_{part}") or "") for part in ("impl", "scope")
    )
    match kind:
        case "none":
            return "none"
        case "full_iteration":
            return "iteration"
        case "local" | "transformer_engine" if "full_iteration" in scope:
            return "iteration"
        case "local" | "transformer_engine" if "attn" in scope or scope in ("", "[]", "None"):
            return Assumption("layer", f"graphs of a layer, of the scope {scope or 'not stated'}")
        case "local" | "transformer_engine":
            return Assumption("none", f"graphs of the scope {scope} do not include whole layers")
    if facts.row.extra.get("cuda_graph") is True and not scope:
        if (facts.row.year or 0) >= _WHOLE_GRAPHS:
            return Assumption("iteration", "a graph of the iteration, as usual since 2026")
        return Assumption("layer", "graphs of a layer: the row states that graphs were used")
    if scope:
        captured = "attn" in scope or "full" in scope
        return Assumption("layer" if captured else "none", f"graphs of the scope {scope}")
    if re.search(r"CUDA graphs on", facts.row.notes):
        return Assumption("layer", "graphs of a layer: the row states that graphs were used")
    return None


def _dropout(facts: Facts) -> Value:
    profile = facts.profile
    if facts.is_gated or not re.search(profile.dropout, facts.row.model.name, re.IGNORECASE):
        return None
    return Assumption("on", f"dropout, the default of {profile.title}")


def _gradients(facts: Facts) -> Value:
    said = facts.row.extra.get("grad_overlap")
    notes = facts.row.notes.lower()
    if isinstance(said, bool):
        return _on(said)
    if "overlapped dp grad" in notes:
        return "on"
    return None


def _parameters(facts: Facts) -> Value:
    """Return whether the all-gather of parameters overlaps with the forward pass.

    gpt-oss on H100, MLPerf v6.0: Cisco's configuration has ALIGN_PARAM_GATHER=True and one stage,
    so neither hooks nor the schedule prefetch parameters.
    """
    if re.match(_CISCO, str(facts.row.extra.get("config"))):
        return Assumption("off", "`align_param_gather` is on without interleaved stages")
    return "on" if "param all-gather" in facts.row.notes else None


#: Configurations of Cisco's gpt-oss on H100, MLPerf v6.0.
_CISCO = r"config_DGXH100_\d"


def _bucket(facts: Facts) -> Value:
    """Return the bytes of a bucket, as submissions to MLPerf v6.0 set them.

    Llama 3.1 8B: config_common_8b.sh. gpt-oss on H100: Cisco's config_common.sh. Both have
    BUCKET_SIZE=768000000, in elements; gradients have two bytes.
    """
    config = str(facts.row.extra.get("config") or "")
    nemo = facts.row.extra.get("framework") == "nemo"
    if nemo and re.search(rf"_8b(_|\.|$)|^{_CISCO}", config):
        return Assumption("768e6 * 2 B", "buckets of 768 million, as the submission's files set")
    return None


def _gather_start(facts: Facts) -> Value:
    """Return the time at which stages start to gather their parameters.

    NVIDIA's submissions to MLPerf v6.0, benchmarks/*/conf: align_param_gather is False.
    """
    row, said = facts.row, facts.row.extra.get("align_param_gather")
    if row.parallel.pp == 1:
        return None
    if isinstance(said, bool):
        return None if said else "arrival"
    if row.extra.get("mlperf_round") and row.extra.get("framework") == "nemo":
        return Assumption("arrival", "`align_param_gather` is off, as in MLPerf's submissions")
    return None


def _tensor(facts: Facts) -> Value:
    row = facts.row
    if row.parallel.tp == 1:
        return None
    said = [row.extra.get(name) for name in ("async_tp", "tp_comm_overlap")]
    if True in said or "TP comm overlap" in row.notes:
        return "pipelined"
    if False in said or not _splits_products(facts):
        return None
    return Assumption(
        "pipelined", f"chunked matrix products, as in recipes of {facts.profile.title}"
    )


def _splits_products(facts: Facts) -> bool:
    """Return whether a recipe runs GEMMs in chunks (tp_comm_overlap) although no row mentions it.

    Recipes of Llama 3, GPT-3 and Nemotron set it, but not with NVFP4 nor with latent attention:
    NeMo 0189a3b38, recipes/llama3_70b.py, gpt3_175b.py and deepseek_v3.py; Megatron-Bridge
    3594df948, recipes/llama, and its perf_recipes for NVFP4. In 2024 those of Llama 3 and Nemotron
    set `ub_tp_comm_overlap`. Those of GPT-3 and Llama 2 on Megatron-Core do not.
    Source: NeMo-Framework-Launcher 3dd35614, conf/training, llama3_70b, nemotron_8b, 175b, 20b.
    MLPerf's scripts have their own flag, which is off unless set.
    """
    row = facts.row
    models = facts.profile.splits_products
    if "MLPerf" in row.source or not re.search(models, row.model.name, re.IGNORECASE):
        return False
    shards = row.parallel.sequence_parallel is not False
    return shards and row.numbers != "nvfp4" and not row.model.kv_lora_rank


def _balance(facts: Facts) -> Value:
    if not facts.row.is_sparse:
        return None
    said = facts.row.extra.get("router_force_balance")
    if said is False:
        return Assumption("dirichlet", "the load of experts is as uneven as with published routers")
    if said is True:
        return "balanced"
    forced = re.search(r"(?<!not )(force-balanced|forced to balance)", facts.row.notes)
    return "balanced" if forced else None


def _router_balance(facts: Facts) -> Value:
    """Return the method that balances the router, unless the row forces equal loads."""
    free = re.search(r"no auxiliary loss", facts.row.notes)
    return "none" if free and isinstance(_balance(facts), Assumption) else None


def _capacity(facts: Facts) -> Value:
    """Return the expert capacity that a row states; 1 for recipes that drop tokens."""
    if not facts.row.is_sparse:
        return None
    said = facts.row.extra.get("moe_capacity_factor")
    if isinstance(said, int | float) and not isinstance(said, bool) and said > 0:
        return _number(said)
    if not re.search(r"qualifier: tokendrop|drops tokens|token.?drop", facts.row.notes):
        return None
    return Assumption(
        "1", "tokens above the mean load of an expert are dropped, as in Megatron-Bridge"
    )


def _loss(facts: Facts) -> Value:
    row = facts.row
    if "Megatron-Bridge" in row.source and row.model.gated and not row.model.experts:
        return Assumption("gradient", "Transformer Engine's cross entropy, as in Bridge's recipes")
    if facts.profile.framework.startswith("torchtitan") and row.extra.get("compile"):
        if (row.year or 0) < 2025:
            return Assumption(
                "eager", "until 2025 torchtitan compiled only the layers, not the loss"
            )
        return Assumption("logits", "the loss is compiled with the model, as in torchtitan v0.1.0")
    return None


def _dispatcher(facts: Facts) -> Value:
    """Return the token dispatcher: the backend of Megatron-Core's flexible dispatcher."""
    row = facts.row
    if not row.is_sparse:
        return None
    for field_ in ("moe_flex_dispatcher_backend", "moe_token_dispatcher"):
        said = re.findall(r"[a-z]+", str(row.extra.get(field_) or "").lower())
        if known := next((name for name in DISPATCHERS if name in said), None):
            return known
    if re.search(r"all-to-all dispatcher", row.notes, re.IGNORECASE):
        return "alltoall"
    named = re.search(r"\b(deep|hybrid)ep\b(?! (?:is )?(?:off|disabled))", row.notes, re.IGNORECASE)
    if named and not re.search(r"(no|without|not) (deep|hybrid)ep", row.notes, re.IGNORECASE):
        return f"{named[1].lower()}ep"
    if facts.profile.framework.startswith("megatron_core"):
        return Assumption("alltoall", "tokens are exchanged by all-to-all, as Megatron recommends")
    return None


def _hidden_exchange(facts: Facts) -> Value:
    overlapped = facts.row.extra.get("moe_a2a_overlap") is True
    return "pair" if facts.row.is_sparse and overlapped else None


def _uses_liger(facts: Facts) -> bool:
    """Return whether the row states that Liger's fused kernels ran."""
    row = facts.row
    said = row.extra.get("liger")
    if isinstance(said, bool):
        return said
    named = re.search(r"(?<!no )(?<!not )(?<!without )\bliger\b(?! off)", row.notes, re.IGNORECASE)
    return named is not None


#: Chunks of Liger's fused head and loss: the logits of one are as large as the hidden states.
_LIGER_LOSS = 8


def _loss_chunks(facts: Facts) -> Value:
    said = facts.row.extra.get("loss_chunks")
    if isinstance(said, int) and not isinstance(said, bool) and said > 1:
        return _text(said)
    if not _uses_liger(facts):
        return None
    m = facts.row.model
    chunks = min(_LIGER_LOSS, max(1, m.vocab // m.hidden))
    return (
        Assumption(_text(chunks), "Liger's fused head and loss, in chunks") if chunks > 1 else None
    )


def fused_kernels(facts: Facts) -> list[tuple[str, str]]:
    """Return the attributes that Liger's kernels change in the framework."""
    if not _uses_liger(facts):
        return []
    return [(name, "fused") for name in ("norm", "activation", "rotary")]


#: Words beside a stage of ZeRO that put a state on the host; in lower case.
_OFFLOADED = r"^(?!.*(?:no|without)[ -](?:cpu[ -])?offload|.*activation).*(?:offload|infinity)"
_WITH_PARAMETERS = r"fsdp|full|param|infinity"


def _offloaded_optimizer(facts: Facts) -> Value:
    if facts.row.extra.get("optimizer_cpu_offload") is True:
        return "100 %"
    if re.search(_OFFLOADED, facts.sharding):
        return Assumption("100 %", f"the optimizer is on the host: `{facts.sharding}`")
    return None


def _offloaded_parameters(facts: Facts) -> Value:
    """Return whether parameters are on the host: FSDP offloads both, DeepSpeed has a key
    for each.
    """
    if re.search(_OFFLOADED, facts.sharding) and re.search(_WITH_PARAMETERS, facts.sharding):
        return Assumption("100 %", f"the parameters are on the host: `{facts.sharding}`")
    return None


def _host_memory(facts: Facts) -> Value:
    """Return the assumed memory bandwidth of the host for a device; rows do not state it."""
    if _offloaded_optimizer(facts) is None:
        return None
    return Assumption("51 GB/s", "sixteen channels of DDR4-3200 for eight devices, as a DGX A100")


def _offload(facts: Facts) -> Value:
    layers = facts.row.extra.get("cpu_offloading_num_layers")
    if isinstance(layers, int) and layers > 0:
        share = min(1.0, layers / facts.row.model.layers)
        return Assumption(share_text(share), f"activations of {layers} layers are kept on the host")
    whole = facts.row.extra.get("activation_cpu_offload") is True
    if whole or "checkpoint-in-cpu" in facts.row.notes:
        return "100 %"
    return None


def _adapter_value(name: str) -> Callable[[Facts], Value]:
    return lambda facts: facts.adapters.values.get(name)


#: Megatron-Core's cp_comm_type, and the algorithms of the language.
_CONTEXT = {"p2p": "ring", "a2a": "ulysses", "all_gather": "all_gather"}


def _context(facts: Facts) -> Value:
    """Return the algorithm of context parallelism, if the row or its tool states it."""
    said = facts.row.extra.get("cp_comm_type")
    if said is None or facts.row.parallel.cp == 1:
        return None
    if said not in _CONTEXT:
        known = ", ".join(_CONTEXT)
        raise UnmodelledError(f"`extra.cp_comm_type` is `{said}`: only {known} are modeled")
    return _CONTEXT[said]


def _gradient_average(facts: Facts) -> Value:
    """Return how gradients are averaged in NVIDIA's code for MLPerf v6.0.

    `average_in_collective` is off in pretrain.py of Llama, and by default in gpt_oss.yaml. It is on
    in config_common.sh of DeepSeek-V3, and in gpt-oss' configuration of 2 nodes with 4 devices.
    """
    row = facts.row
    if not (row.extra.get("mlperf_round") and row.extra.get("framework") == "nemo"):
        return None
    config = str(row.extra.get("config"))
    if re.search(r"deepseek", row.model.name, re.IGNORECASE) or "GB300_2x4x3xtp1" in config:
        return Assumption("scaled_experts", "`average_in_collective` is on, by its configuration")
    return Assumption("scaled", "`average_in_collective` is off, by its configuration")


def _gradient_check(facts: Facts) -> Value:
    if (checks := facts.profile.gradient_check) is None:
        return None
    why = f"as performance scripts of {facts.profile.title} set `check_for_nan_in_grad`"
    return Assumption(str(_on(checks)), why)


def share_text(value: float) -> str:
    """Return a share as text, in percent."""
    return f"{100 * value:.4g} %"


def _text(value: float) -> str:
    return str(value)


@frozen
class StudyAttribute:
    """A line of a study: its block, the name of the attribute, and a function of its value for a
    row.
    """

    block: str
    name: str
    value: Callable[[Facts], Value]


ATTRIBUTES: Sequence[StudyAttribute] = (
    StudyAttribute("model", "layers", lambda f: _number(f.row.model.layers)),
    StudyAttribute("model", "hidden", lambda f: _number(f.row.model.hidden)),
    StudyAttribute("model", "heads", lambda f: _number(f.row.model.heads)),
    StudyAttribute("model", "kv_heads", lambda f: _number(f.row.model.kv_heads)),
    StudyAttribute("model", "head_dim", lambda f: _number(f.row.model.head_dim)),
    StudyAttribute("model", "ffn", _ffn),
    StudyAttribute("model", "gated", _gated_mlp),
    StudyAttribute("model", "vocabulary", lambda f: _number(f.row.model.vocab)),
    StudyAttribute("model", "tied", lambda f: _on(f.row.model.tied)),
    StudyAttribute("model", "norm", _norm),
    StudyAttribute("model", "biases", _biases),
    StudyAttribute("model", "squared_relu", _activation),
    StudyAttribute("model", "positions", _positions),
    StudyAttribute("model", "alibi", _on_for(r"bloom", "BLOOM has ALiBi")),
    StudyAttribute("model", "embedding_norm", _on_for(r"bloom", "BLOOM norms its embedding")),
    StudyAttribute("model", "qk_norm", _on_for(r"qwen-?3", "Qwen3 norms queries and keys")),
    StudyAttribute("model", "sinks", _on_for(_GPT_OSS, "gpt-oss has attention sinks")),
    StudyAttribute("model", "clamped", _on_for(_GPT_OSS, "gpt-oss clamps gate and up")),
    StudyAttribute("model", "window", _window),
    StudyAttribute("model", "full_every", _full_every),
    StudyAttribute("model", "kv_lora", lambda f: _number(f.row.model.kv_lora_rank)),
    StudyAttribute("model", "q_lora", _latent_value(lambda r: r.model.q_lora_rank)),
    StudyAttribute("model", "nope_dim", _latent_value(lambda r: r.model.qk_nope_head_dim)),
    StudyAttribute("model", "rope_dim", _latent_value(lambda r: r.model.qk_rope_head_dim)),
    StudyAttribute("model", "v_dim", _latent_value(lambda r: r.model.v_head_dim)),
    StudyAttribute("model", "experts", _expert_value(lambda r: r.model.experts)),
    StudyAttribute("model", "top_k", _expert_value(lambda r: r.model.topk)),
    StudyAttribute("model", "expert_ffn", _expert_value(lambda r: r.model.expert_ffn)),
    StudyAttribute("model", "shared_experts", _expert_value(lambda r: r.model.shared_experts)),
    StudyAttribute("model", "dense_first", _expert_value(lambda r: r.model.dense_layers)),
    StudyAttribute("model", "prediction_layers", lambda f: _flag_above(f.row.model.mtp_layers, 0)),
    StudyAttribute("cluster", "devices", lambda f: _number(f.row.hardware.gpus)),
    StudyAttribute("layout", "tp", lambda f: _number(f.row.parallel.tp)),
    StudyAttribute("layout", "cp", lambda f: _flag_above(f.row.parallel.cp, 1)),
    StudyAttribute("layout", "pp", lambda f: _flag_above(f.row.parallel.pp, 1)),
    StudyAttribute("layout", "ep", lambda f: _flag_above(f.row.parallel.ep, 1)),
    StudyAttribute("layout", "etp", _expert_ranks),
    StudyAttribute("layout", "sequence_parallel", _sequence_parallel),
    StudyAttribute("layout", "zero", _zero),
    StudyAttribute("layout", "vocabulary_multiple", _vocabulary_multiple),
    *(StudyAttribute("adapters", name, _adapter_value(name)) for name in adapters.ATTRIBUTES),
    StudyAttribute("context", "algorithm", _context),
    StudyAttribute("sharding", "shard", _shard),
    StudyAttribute("sharding", "reshard", _reshard),
    StudyAttribute("sharding", "gradient_average", _gradient_average),
    StudyAttribute("sharding", "gradient_check", _gradient_check),
    StudyAttribute("schedule", "kind", _schedule),
    StudyAttribute("schedule", "chunks", _chunks),
    StudyAttribute("schedule", "stages", _stages),
    StudyAttribute("schedule", "assignment", _assignment),
    StudyAttribute("schedule", "count_embedding", _end_layers(2, "embedding")),
    StudyAttribute("schedule", "count_head", _end_layers(1, "head")),
    StudyAttribute("training", "sequence", lambda f: _number(f.row.model.seq)),
    StudyAttribute("training", "micro_batch", lambda f: _number(f.row.batch.micro)),
    StudyAttribute("training", "global_batch", lambda f: f"{f.row.batch.global_} sequences"),
    StudyAttribute("training", "recompute", _recompute),
    StudyAttribute("training", "flash_attention", _flash),
    StudyAttribute("training", "loss", _loss),
    StudyAttribute("training", "loss_chunks", _loss_chunks),
    StudyAttribute("training", "dropout", _dropout),
    StudyAttribute("recompute", "norms", _recompute_switch("norms")),
    StudyAttribute("recompute", "activation", _recompute_switch("activation")),
    StudyAttribute("recompute", "up_projection", _recompute_switch("up_projection")),
    StudyAttribute("recompute", "mlp", _recompute_switch("mlp")),
    StudyAttribute("recompute", "moe", _recompute_switch("moe")),
    StudyAttribute("recompute", "every", _recompute_switch("every")),
    StudyAttribute("recompute", "layers", _recompute_switch("layers")),
    StudyAttribute("recompute", "keep_qkv", _recompute_switch("keep_qkv")),
    StudyAttribute("recompute", "keep_output", _recompute_switch("keep_output")),
    StudyAttribute("recompute", "keep_up", _recompute_switch("keep_up")),
    StudyAttribute("recompute", "keep_down", _recompute_switch("keep_down")),
    StudyAttribute("recompute", "alternate", _recompute_switch("alternate")),
    StudyAttribute("kernels", "attention", _kernel),
    StudyAttribute("kernels", "mode", _mode),
    StudyAttribute("kernels", "cuda_graphs", _cuda_graphs),
    StudyAttribute("kernels", "launch_blocking", _launch_blocking),
    StudyAttribute("overlap", "gradients", _gradients),
    StudyAttribute("overlap", "parameters", _parameters),
    StudyAttribute("overlap", "bucket", _bucket),
    StudyAttribute("overlap", "gather_start", _gather_start),
    StudyAttribute("overlap", "tensor", _tensor),
    StudyAttribute("routing", "distribution", _balance),
    StudyAttribute("routing", "balancing", _router_balance),
    StudyAttribute("routing", "capacity_factor", _capacity),
    StudyAttribute("routing", "dispatcher", _dispatcher),
    StudyAttribute("routing", "hide", _hidden_exchange),
    StudyAttribute("offload", "optimizer", _offloaded_optimizer),
    StudyAttribute("offload", "parameters", _offloaded_parameters),
    StudyAttribute("offload", "host_memory_bandwidth", _host_memory),
    StudyAttribute("offload", "activations", _offload),
)
