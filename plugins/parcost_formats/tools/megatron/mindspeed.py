"""Flags of MindSpeed-LLM, which runs Megatron-LM with its own layers on Ascend devices."""

from __future__ import annotations

from collections.abc import Mapping

from parcost_formats.tools.drafts import Draft, Option, digits
from parcost_formats.tools.megatron.flags import list_unread
from parcost_formats.tools.megatron.patterns import MOST_LAYERS, LayerListError, pattern
from parcost_formats.tools.megatron.tools import ToolJob
from parcost_formats.tools.tables import table

_TABLE = table("megatron_tools")["mindspeed"]
_VERSION = _TABLE["version"]
_SPECS = "mindspeed_llm.tasks.models.spec."
_PER_VIRTUAL, _VIRTUAL = (
    "num_layers_per_virtual_pipeline_stage",
    "num_virtual_stages_per_pipeline_rank",
)
#: Fusions that another flag of Megatron-LM turns off, which MindSpeed does not ask.
_OVERRULED = {
    "use_fused_swiglu": "no_bias_swiglu_fusion",
    "use_fused_rotary_pos_emb": "no_rope_fusion",
}
#: Flags that have an effect only with context parallelism.
_OF_CONTEXT = (
    *("context_parallel_algo", "ulysses_degree_in_cp", "cp_window_size"),
    *("use_cp_send_recv_overlap", "context_parallel_kv_cache_policy", "use_ulysses_allgather_kv"),
    "kv_head_repeat_before_uly_alltoall",
)


def mindspeed_job(draft: Draft, options: Mapping[str, Option]) -> ToolJob | None:
    """Return the job of a script with flags of MindSpeed, as flags of Megatron-LM; else None."""
    shared = sum(name in options for name in _TABLE["signs"])
    if shared < int(_TABLE["least"]) and not any(name in options for name in _TABLE["own"]):
        return None
    return _MindSpeed(draft, options).job()


def _integer(text: str) -> int | None:
    """Return an integer of less than ten characters, None for another text."""
    text = text.strip("'\"")
    return int(text) if text.removeprefix("-").isdecimal() and len(text) < 10 else None


class _MindSpeed:
    """Converts the flags of a script into flags of Megatron-LM."""

    def __init__(self, draft: Draft, options: Mapping[str, Option]) -> None:
        self._draft = draft
        self._options: dict[str, Option] = {}
        for option in options.values():
            name = _TABLE["renames"].get(option.name, option.name)
            other = options.get(name) if name != option.name else None
            if other is None:
                self._options[name] = option.evolve(name=name)
            elif other.texts == option.texts:
                draft.ignore(option, f"as {other.key} has it")
            else:
                shown = f"{option.key} is {option.text[:20]}, and {other.key} {other.text[:20]}"
                draft.problem(option, shown, "keep only one of them")

    def job(self) -> ToolJob:
        """Return the job with all flags; values without a flag are in the draft."""
        chunks = self._chunks()
        self._layers(chunks)
        self._experts()
        self._context()
        self._attention()
        self._kernels()
        self._accumulation()
        self._optimizer()
        self._recompute(chunks)
        for name, found in _TABLE["sets"].items():
            if (option := self._options.pop(name, None)) is not None:
                self._draft.set(found["path"], found["value"], option)
        job = ToolJob("mindspeed")
        for name, why in _TABLE["unread"].items():
            if (option := self._options.pop(name, None)) is not None:
                list_unread(self._draft, option, why)
        for option in self._options.values():
            job.add(option)
        job.complete()
        return job

    def _number(self, name: str) -> int | None:
        """Return the value of a flag as an integer, None if it is missing or no integer."""
        option = self._options.get(name)
        return _integer(option.text) if option is not None and not option.unread else None

    def _degree(self, name: str) -> int | None:
        """Return a degree of parallelism: 1 without its flag, None if its value is unknown."""
        return self._number(name) if name in self._options else 1

    def _chunks(self) -> int | None:
        """Return the virtual stages of each device."""
        method = self._options.get("schedules_method")
        if method is not None and method.text == "dualpipev":
            return 2
        if _PER_VIRTUAL not in self._options:
            return self._degree(_VIRTUAL)
        layers, each = self._number("num_layers"), self._number(_PER_VIRTUAL)
        pp = self._degree("pipeline_model_parallel_size")
        return layers // (pp * each) if layers and each and pp and each > 0 and pp > 0 else None

    def _layers(self, chunks: int | None) -> None:
        """Remove no-op layers; read the layers with experts, and the stages."""
        layers = self._number("num_layers")
        listed = {"noop_layers", "first_k_dense_replace"} & self._options.keys()
        if listed and layers is not None and layers > MOST_LAYERS:
            why = f"at most {MOST_LAYERS:,} layers can be listed one by one"
            self._draft.problem(self._options["num_layers"], why)
            return
        idle = self._idle_layers(layers)
        self._kinds(layers, idle)
        counts = self._options.pop("num_layer_list", None)
        if not idle:
            self._stages(counts, layers)
            return
        option = self._options["noop_layers"]
        stages = (self._degree("pipeline_model_parallel_size") or 0) * (chunks or 0)
        if layers is None or stages < 1 or layers % stages:
            why = f"{layers or 'the'} layers are not divisible by pp x {chunks or 'virtual'} stages"
            self._draft.problem(option, why)
            return
        each = layers // stages
        left = [each] * stages
        for one in idle:
            left[one // each] -= 1
        if stages > 1:
            self._draft.set("schedule.stages", str(left), option)
        per = self._options.pop(_PER_VIRTUAL, None)
        if per is not None:
            self._options[_VIRTUAL] = per.evolve(name=_VIRTUAL, texts=(str(chunks),))
        count = self._options["num_layers"]
        why = (
            f"{layers} layers, of them {len(idle)} without computation: {option.key} "
            f"{option.text[:40]}"
        )
        texts = (str(layers - len(idle)),)
        self._options["num_layers"] = count.evolve(texts=texts, assumption=why)
        self._draft.ignore(self._options.pop("noop_layers"), f"read with {count.key}")
        if counts is not None:
            self._draft.ignore(counts, f"it has no effect with {option.key}")

    def _idle_layers(self, layers: int | None) -> frozenset[int]:
        """Return the indices of no-op layers."""
        option = self._options.get("noop_layers")
        if option is None or option.unread:
            return frozenset()
        places = [_integer(part) for part in option.text.strip("'\"").split(",")]
        idle = frozenset(one for one in places if one is not None and 0 <= one < (layers or 0))
        if not idle.issuperset(places):
            self._draft.problem(
                option, f"layer numbers from 0 to {layers} - 1 are expected", "such as 61"
            )
            return frozenset()
        return idle

    def _kinds(self, layers: int | None, idle: frozenset[int]) -> None:
        """Set the list of layers with experts, if the first layers are dense."""
        dense = self._number("first_k_dense_replace")
        first = self._options.pop("first_k_dense_replace", None)
        option = first or self._options.get("noop_layers")
        if "num_experts" not in self._options or option is None or layers is None:
            if first is not None:
                self._draft.ignore(first, "it has no effect without --num-experts")
            return
        every = self._options.get("moe_layer_freq")
        interval = self._number("moe_layer_freq") if every is not None else 1
        try:
            listed = [] if interval else pattern(" ".join(every.texts) if every else "")
        except LayerListError:
            return  # which the flag itself reports
        if first is not None and first.unread:
            self._options["first_k_dense_replace"] = first
            why = f"`{first.key}`: {first.unread}"
            answers = [*first.answers, "--set model.dense_first=1"]
            self._draft.ask("model.dense_first", why, answers, first)
            return
        if first is not None and dense is None:
            why = f"a whole number is expected, but {first.text[:40] or 'nothing'} is given"
            self._draft.problem(first, why)
            return
        kinds = [
            int(
                place >= (dense or 0)
                and (place % interval == 0 if interval else bool(listed[place]))
            )
            for place in range(layers if interval else min(layers, len(listed)))
            if place not in idle
        ]
        self._options["moe_layer_freq"] = (every or option).evolve(
            name="moe_layer_freq", key=option.key, texts=(str(kinds),)
        )
        if first is not None and every is not None:
            self._draft.ignore(every, f"read with {first.key}")

    def _stages(self, counts: Option | None, layers: int | None) -> None:
        """Read the layers of each stage."""
        if counts is None:
            return
        numbers = [_integer(part) or 0 for part in counts.text.strip("'\"").split(",")]
        pp = self._degree("pipeline_model_parallel_size")
        if counts.unread or pp is None or layers is None:
            self._draft.leave(counts, counts.unread or "it needs the layers and the stages")
        elif sum(numbers) != layers or len(numbers) != pp or min(numbers) < 1:
            self._draft.problem(counts, f"{pp} counts that add up to {layers} layers are expected")
        elif pp > 1:
            self._draft.set("schedule.stages", str(numbers), counts)

    def _experts(self) -> None:
        """Read the width of shared experts, and whether tensor-parallel ranks hold different
        experts.
        """
        count = self._number("n_shared_experts")
        shared = self._options.pop("n_shared_experts", None)
        name = "moe_shared_expert_intermediate_size"
        width = self._number("moe_ffn_hidden_size") or self._number("ffn_hidden_size")
        if shared is not None and name in self._options:
            self._draft.problem(shared, f"it conflicts with {self._options[name].key}")
        elif shared is not None and (count is None or width is None):
            self._draft.ask(
                "model.shared_ffn",
                f"`{shared.key}`: {shared.unread or 'the width of an expert is not known'}",
                [*shared.answers, "--set model.shared_ffn=2048"],
                shared,
            )
        elif shared is not None and count and width:
            why = f"{count} x the FFN hidden size of an expert, {digits(width)}"
            texts = (str(count * width),)
            self._options[name] = shared.evolve(name=name, texts=texts, assumption=why)
        extends = self._options.pop("moe_tp_extend_ep", None)
        ranks, etp = "expert_model_parallel_size", "expert_tensor_parallel_size"
        ep, tp = self._degree(ranks), self._degree("tensor_model_parallel_size")
        if extends is None:
            return
        if ep is None or tp is None:
            self._draft.leave(extends, "the number of expert-parallel ranks is unknown")
            return
        why = f"ep {ep} x tp {tp}: tensor-parallel ranks hold whole experts"
        place = self._options.get(ranks, extends)
        self._options[ranks] = place.evolve(name=ranks, texts=(str(ep * tp),), assumption=why)
        self._options[etp] = extends.evolve(name=etp, texts=("1",))

    def _context(self) -> None:
        """Read the algorithm of context parallelism."""
        cp = self._degree("context_parallel_size")
        for name in ("attention_mask_type", "cp_attention_mask_type"):
            option = self._options.get(name)
            if option is not None and option.text == "causal":
                self._draft.ignore(self._options.pop(name), "attention is causal")
        if cp == 1:
            for name in _OF_CONTEXT:
                if (option := self._options.pop(name, None)) is not None:
                    self._draft.ignore(option, "one rank has the whole sequence")
            return
        window = self._options.get("cp_window_size")
        if window is not None and window.text == "1":
            self._draft.ignore(self._options.pop("cp_window_size"), "one ring")
        option = self._options.pop("context_parallel_algo", None)
        degree = self._number("ulysses_degree_in_cp")
        sizes = self._options.pop("ulysses_degree_in_cp", None)
        if option is None or option.unread:
            why = (
                f"the default is ulysses_cp_algo in {_VERSION}, but megatron_cp_algo in other "
                "releases"
            )
            answers = ["--set context.algorithm=ulysses", "--set context.algorithm=ring"]
            place = option or self._options["context_parallel_size"]
            self._draft.ask("context.algorithm", f"`{place.key}`: {why}", answers, place)
            return
        word = _TABLE["contexts"].get(option.text.strip("'\""))
        if word is None:
            known = f"known: {', '.join(_TABLE['contexts'])}"
            self._draft.problem(option, f"`{option.text[:40]}` is not modeled", known)
            return
        self._options["cp_comm_type"] = option.evolve(name="cp_comm_type", texts=(word,))
        self._report_head_copies(word, option)
        if sizes is None:
            return
        if word != "a2a+p2p":
            self._draft.ignore(sizes, "it has no effect without hybrid_cp_algo")
        elif degree is not None and cp is not None and degree > 0 and not cp % degree:
            name = "hierarchical_context_parallel_sizes"
            texts = (str(degree), str(cp // degree))
            self._options[name] = sizes.evolve(name=name, texts=texts)
        else:
            self._draft.problem(sizes, f"it does not divide context-parallel-size, which is {cp}")

    def _report_head_copies(self, word: str, algorithm: Option) -> None:
        """Report the copies of keys and values for an all-to-all, which exist by default."""
        flag = self._options.pop("kv_head_repeat_before_uly_alltoall", None)
        if word.startswith("a2a") and "group_query_attention" in self._options:
            why = f"{_VERSION} repeats keys and values for all heads before the all-to-all"
            self._draft.leave(flag or algorithm, f"{why}; the bytes of the copies are not modeled")
        elif flag is not None:
            self._draft.ignore(flag, "it only has an effect on grouped queries in an all-to-all")

    def _attention(self) -> None:
        """Read windows, padding of latent attention, and the specification of layers."""
        latent = self._options.get("multi_latent_attention")
        if latent is not None and "mla_fa_without_pad" not in self._options:
            why = "without --mla-fa-without-pad heads are padded to one size, which is not modeled"
            self._draft.leave(latent, why)
        for name in ("sliding_window", "interleave_sliding_window"):
            width = self._number(name)
            option = self._options.get(name)
            if option is None or width is None or width < 1:
                continue
            del self._options[name]
            texts = (str(width - 1), "0")
            self._options["window_size"] = option.evolve(name="window_size", texts=texts)
            if name != "sliding_window":
                every = option.evolve(name="window_attn_skip_freq", texts=("2",))
                self._options[every.name] = every
        spec = self._options.get("spec")
        module = spec.text.removeprefix(_SPECS) if spec is not None else ""
        if spec is not None and spec.text != module and module in _TABLE["specs"]["plain"]:
            self._draft.ignore(
                self._options.pop("spec"), "the number of layers that other flags set"
            )

    def _kernels(self) -> None:
        """Read the fused kernels; each is enabled by a flag."""
        wanted = {
            "use_fused_rmsnorm": True,
            "use_fused_swiglu": "swiglu" in self._options,
            "use_fused_rotary_pos_emb": True,
        }
        for name, found in _TABLE["fused"].items():
            option = self._options.pop(name, None)
            other = self._options.pop(_OVERRULED.get(name, ""), None)
            flag = f"--{name.replace('_', '-')}"
            if option is not None:
                self._draft.ignore(option, "a fused kernel, as parcost assumes")
            elif wanted[name]:
                why = f"{_VERSION}: not fused without {flag}"
                self._draft.assume(found["path"], found["value"], why)
            if other is not None:
                self._draft.ignore(other, f"{flag} decides")
        local = self._options.get("transformer_impl")
        if local is not None and local.text == "local":
            why = "the layers of MindSpeed; other flags select their kernels"
            self._draft.ignore(self._options.pop("transformer_impl"), why)
        flash = self._options.pop("use_flash_attn", None)
        if flash is not None:
            self._draft.ignore(flash, "fused attention, as parcost assumes")
        elif self._degree("context_parallel_size") == 1:
            why = f"{_VERSION}: without --use-flash-attn scores are written to memory"
            self._draft.assume("kernels.attention", "unfused", why)

    def _accumulation(self) -> None:
        """Read whether GEMMs of experts accumulate into the gradients of earlier micro-batches."""
        fused = self._options.pop("gemm_gradient_accumulation_fusion", None)
        grouped = self._options.get("moe_grouped_gemm")
        if "no_gradient_accumulation_fusion" in self._options:
            if fused is not None:
                why = (
                    "`kernels { fused_accumulation }` applies to all layers, but only experts are "
                    "fused"
                )
                self._draft.leave(fused, why)
        elif fused is not None:
            self._draft.set("kernels.fused_accumulation", "on", fused)
        elif grouped is not None and grouped.text != "false" and "num_experts" in self._options:
            why = (
                "without --gemm-gradient-accumulation-fusion gradients of experts are added by a "
                "separate kernel"
            )
            self._draft.leave(
                grouped, f"{why}: `kernels {{ fused_accumulation }}` is for all layers"
            )

    def _optimizer(self) -> None:
        """Report optimizer state that is kept twice, and optimizers with further state."""
        twice = self._options.pop("enable_high_availability", None)
        single = "distributed_optimizer_no_replica" in self._options
        if twice is not None and single:
            self._draft.ignore(twice, "there is one copy of the optimizer state")
        elif twice is not None:
            why = (
                "each half of the data-parallel ranks keeps a copy of the optimizer state, which "
                "is not modeled"
            )
            self._draft.leave(twice, why)
        kind = self._options.get("optimizer_selection")
        if kind is not None and kind.text.strip("'\"") not in _TABLE["optimizers"]:
            why = (
                "state besides two moments is not supported: write its bytes in `precision { "
                "optimizer }`"
            )
            self._draft.leave(self._options.pop(kind.name), kind.unread or why)

    def _recompute(self, chunks: int | None) -> None:
        """Read the recomputed layers of a device, where the flag counts them by device."""
        option = self._options.pop("enable_recompute_layers_per_pp_rank", None)
        count = self._number("recompute_num_layers")
        if option is None:
            return
        if not chunks or count is None or count % chunks:
            self._draft.leave(option, "here recomputed layers are counted per virtual stage")
            return
        place = self._options["recompute_num_layers"]
        why = f"{count} layers of a device with {chunks} virtual stages: {option.key}"
        texts = (str(count // chunks),)
        self._options["recompute_num_layers"] = place.evolve(texts=texts, assumption=why)
        self._draft.ignore(option, f"read with {place.key}")
