"""The sizes on one tensor-parallel rank, and its recomputation and saved tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from parcost import (
    Formula,
    Memory,
    Moment,
    Real,
    Study,
    attribute,
    formula,
    map_counts,
    occurs,
    record,
    symbols_of,
)
from parcost.numeric import all_of, any_of, is_array, maximum, where
from parcost_plugins.physics.adapters import is_split, trains_model
from parcost_plugins.physics.attention_mask import attended_tokens, writes_scores
from parcost_plugins.physics.elementwise import Fusion
from parcost_plugins.physics.partition import Counts, layer_counts
from parcost_plugins.physics.passes import LayerSpan
from parcost_plugins.physics.run_choices import (
    adapter_casts,
    recomputed_modules,
    regathers_inputs,
    residual_bytes,
    stops_early,
)
from parcost_plugins.vocabulary import (
    Adapters,
    KernelChoice,
    Layout,
    Model,
    Offload,
    Recompute,
    Training,
)
from parcost_plugins.vocabulary.causes import ACTIVATIONS
from parcost_plugins.vocabulary.operators import ENDS

SAVED = "Korthikanti et al. 2022, section 4, tensor by tensor"
#: Source of the outputs of norms before frozen matrices.
FROZEN = "Transformer Engine 2.7, pytorch/module/layernorm_linear.py: ln_out is saved in any case"
#: Source of tensors outside of the layers in that paper.
KEPT = "counted from the tensors that backward reads"

#: Moments of a tensor behind the layers, which is freed before their backward pass.
UNTIL_LAYERS: tuple[Moment, ...] = ("forward", "loss")
_BACKWARD: tuple[Moment, ...] = ("backward", "end_of_backward")
_WHILE_ALIVE: tuple[Moment, ...] = ("forward", "loss", *_BACKWARD)


@record(eq=False)
class Rank:
    """One rank of a tensor-parallel group, with one micro-batch."""

    layout: Layout
    training: Training
    model: Model
    study: Study

    @cached_property
    def recompute(self) -> Recompute:
        """The modules that are recomputed in backward."""
        return recomputed_modules(self.study)

    @cached_property
    def fusion(self) -> Fusion:
        """The implementation of element-wise kernels."""
        return self.study.query(_fusion)

    @cached_property
    def trains_model(self) -> bool:
        """Whether the model's own weights are trained: there are no adapters."""
        return trains_model(self.study)

    def keeps_input(self, *targets: str) -> bool:
        """Return whether the input of these matrices is saved, for a weight gradient.

        The input gradient of a frozen matrix does not need it. An adapter saves it, unless dropout
        creates a new tensor.
        """
        adapters = self.study.get(Adapters)
        if adapters is None:
            return True
        here = [target for target in targets if target != "gate" or self.model.gated]
        return adapters.has(*here) and not adapters.dropout

    @cached_property
    def _offload(self) -> Offload:
        return self.study[Offload]

    @cached_property
    def layers(self) -> Counts:
        """Layers of each virtual stage."""
        return layer_counts(self.study)

    @cached_property
    def all_layers(self) -> LayerSpan:
        """All layers."""
        return self._span()

    @cached_property
    def dense(self) -> LayerSpan:
        """Layers with a dense MLP."""
        if not self.model.experts:
            return self._span()
        span, rival = self._span(moe=False), self.moe_layers
        return LayerSpan(span.count, lambda: span.reruns, lambda: rival.reruns)

    @cached_property
    def moe_layers(self) -> LayerSpan:
        """Layers with a mixture of experts."""
        return self._span(moe=True)

    @cached_property
    def attention_layers(self) -> LayerSpan:
        """Layers with attention."""
        if not self.model.delta_heads:
            return self._span()
        span, rival = self._span(delta=False), self.delta_layers
        return LayerSpan(span.count, lambda: span.reruns, lambda: rival.reruns)

    @cached_property
    def delta_layers(self) -> LayerSpan:
        """Layers with a gated delta net in place of attention."""
        return self._span(delta=True)

    @cached_property
    def attention_spans(self) -> list[tuple[bool, LayerSpan]]:
        """Pairs of whether attention is windowed, and the layers of that kind."""
        if not self.model.window:
            return [(False, self.attention_layers)]
        spans = [(windowed, self._span(windowed=windowed)) for windowed in (False, True)]
        return [(windowed, span) for windowed, span in spans if occurs(span.count)]

    def _span(self, **kind: bool) -> LayerSpan:
        study = self.study  # and not the rank, which holds the span
        return LayerSpan(
            layer_counts(study, **kind), lambda: layer_counts(study, **kind, recomputed=True)
        )

    @property
    def tokens(self) -> Real:
        """Tokens of a micro-batch on this rank."""
        return self.sequence * self.training.micro_batch

    @property
    def sequence(self) -> Real:
        """Tokens of a sequence on this rank; attention reads the keys of all ranks."""
        return self.training.sequence / self.layout.cp

    @property
    def element(self) -> Real:
        """Bytes per element of an activation."""
        return self.training.precision.activation

    @cached_property
    def residual_element(self) -> Real:
        """Bytes per element of the residual stream."""
        return residual_bytes(self.study)

    @cached_property
    def is_residual_wide(self) -> Real:
        """1 if the residual stream is wider than other activations, else 0."""
        return where(self.residual_element > self.element, 1.0, 0.0)

    @cached_property
    def casts_inputs(self) -> Real:
        """1 if autocast casts the normed input of each GEMM in a separate kernel, else 0."""
        mode = self.study[KernelChoice].mode or self.training.framework.mode
        return 0.0 if mode == "compiled" else self.is_residual_wide

    @property
    def saved_element_size(self) -> Real:
        """Bytes per element of a linear layer's input, as saved for backward.

        Adapters read it, and never in low precision.
        """
        return self.training.precision.kept if self.trains_model else self.element

    @property
    def core_output_size(self) -> Real:
        """Bytes per element of the attention output, as saved for backward."""
        kept = self.training.precision.kept_core
        return self.saved_element_size if kept is None else kept

    @property
    def activation_input_size(self) -> Real:
        """Bytes per element of the inputs of the experts' activation, as saved for backward."""
        kept = self.training.precision.kept_gate
        return self.element if kept is None else kept

    @property
    def heads(self) -> Real:
        """Query heads of this rank."""
        return self.model.heads / self.layout.tp

    @property
    def kv_heads(self) -> Real:
        """KV heads of this rank; if there are more ranks than heads, ranks hold copies."""
        return maximum(self.model.kv_heads, self.layout.tp) / self.layout.tp

    @property
    def core_kv_heads(self) -> Real:
        """Key and value heads of this rank as the core reads them."""
        return self.heads if self.training.framework.repeats_keys else self.kv_heads

    @property
    def ffn(self) -> Real:
        """FFN columns of this rank."""
        return self.model.ffn / self.layout.tp

    @property
    def vocabulary(self) -> Real:
        """Rows of the embedding of this rank, padding included."""
        return self.model.padded_vocabulary(self.layout) / self.layout.tp

    @property
    def residual_shards(self) -> Real:
        """The number of shards of the residual stream between GEMMs."""
        return self.layout.tp if self.layout.sequence_parallel else 1.0

    @property
    def residual_elements(self) -> Real:
        """Elements of the residual stream on this rank."""
        return self.tokens * self.model.hidden / self.residual_shards

    @property
    def residual_text(self) -> str:
        """The formula of :attr:`residual_elements`, in symbols."""
        return "s b h / t" if self.layout.sequence_parallel else "s b h"

    @cached_property
    def writes_scores(self) -> bool:
        """Whether attention is not fused, so that scores are written to memory."""
        return writes_scores(self.study)

    @property
    def recomputes_outputs(self) -> bool:
        """Whether backward kernels recompute outputs of norms and activations themselves."""
        framework, chosen = self.training.framework, self.study[KernelChoice].mode
        return framework.remakes_elementwise and (chosen or framework.mode) == "compiled"

    @property
    def normed_element_text(self) -> str:
        """The formula of the bytes that a norm within attention saves per element of its input.

        A norm of unfused PyTorch operators saves its fp32 input, and the tensor that is multiplied
        by the gain.
        """
        composite = self.fusion.norm == "composite" and not self.recomputes_outputs
        return "(4 + e)" if composite else "e"

    @property
    def gathered_elements_text(self) -> str:
        """The formula of the saved input elements of a column-parallel layer, in symbols.

        An adapter with two split matrices saves the gathered input, unless it gathers the input
        again in backward.
        """
        gathers = is_split(self.study, "both") and not regathers_inputs(self.study)
        whole = self.training.framework.keeps_gathers or gathers
        return "s b h" if whole else self.residual_text

    @property
    def reruns_core(self) -> bool:
        """Whether backward recomputes every attention core in a separate forward pass.

        A fused kernel stores no scores, so selective recomputation is built into it; only some
        frameworks still run it again.
        """
        again = self.writes_scores or self.training.framework.reruns_core
        return self.training.recompute == "selective" and again

    @property
    def stops_early(self) -> bool:
        """Whether the last addition of a dense layer to the stream is not recomputed."""
        return stops_early(self.study) and not self._reads_output

    @property
    def _reads_output(self) -> bool:
        """Whether backward reads the output of an MLP: dropout masks it or a norm follows it."""
        return self.training.dropout or self.model.norms > 2

    @property
    def reruns_down(self) -> bool:
        """Whether a layer that is recomputed as a whole runs its down projection again.

        An adapter of the down projection runs after it, and backward reads the output of the
        adapter's matrix A.
        """
        adapters = self.study.get(Adapters)
        is_last = adapters is None or not adapters.has("down")
        return not (self.keeps("down") or (self.stops_early and is_last))

    def keeps(self, part: str) -> bool:
        """Return whether fully recomputed layers keep this *part*.

        A compiled layer keeps no output that its backward pass does not read.
        """
        if part == "down" and self.recomputes_outputs and not self._reads_output:
            return False
        chosen = self.study.get(Recompute) if self.training.recompute == "full" else None
        return chosen is not None and chosen.keeps(part, gated=self.model.gated)

    def keys(self, windowed: bool) -> Real:
        """Return the average number of keys per query, within its document."""
        return attended_tokens(self.training, windowed=windowed)

    def saved_tensor(
        self,
        name: str,
        text: str,
        span: LayerSpan,
        more: Mapping[str, Any] | None = None,
        *,
        freed: Real = 0.0,
        source: str = SAVED,
    ) -> Iterator[Memory]:
        """Yield a tensor of the layers of *span* that is saved for backward.

        It is held for every layer and micro-batch in flight. If it is recomputed, it is held only
        for the current layer. If it is offloaded, only the current layer is on the device, and with
        overlapped transfers one more layer. *more* are symbols of *text* besides those of a rank;
        *freed* is as in :meth:`kept_memory`.
        """
        bytes_ = self.formula(text, more, source=source)
        kept = span.kept_count
        if occurs(kept):
            yield self.kept_memory(name, bytes_, kept, freed=freed)
            away = self._offload.activations
            if is_array(away) or away > 0:
                layers = 2 if self._offload.overlap else 1
                yield Memory(
                    name=f"{name}, to and from the host",
                    cause=ACTIVATIONS,
                    bytes_=formula("o M", o=away, M=(bytes_, "B"), source=source),
                    count=map_counts(min, kept, layers),
                    once_per_device=True,
                    moments=_WHILE_ALIVE,
                )
        if occurs(span.reruns):
            yield Memory(
                name=f"{name}, recomputed",
                cause=ACTIVATIONS,
                bytes_=bytes_,
                count=span.held_count,
                once_per_device=True,
                moments=_BACKWARD,
            )

    def _input_copies(self, *targets: str) -> Real:
        """Return the number of copies of the input of *targets* that GEMMs save: one, if it is
        shared.
        """
        adapters = self.study.get(Adapters)
        here = [target for target in targets if target != "gate" or self.model.gated]
        if adapters is None:
            count = len(here) if self.fusion.separate_projections else 1
            return where(self.casts_inputs > 0, float(count), 1.0)
        groups = [one for one in adapters.groups(gated=self.model.gated) if one[0] in here]
        casts = adapter_casts(self.study, here[0])
        return where(casts > 0, float(max(len(groups), 1)), 1.0)

    def saved_input(self, name: str, span: LayerSpan, *targets: str) -> Iterator[Memory]:
        """Yield the input of the GEMMs *targets*, with a copy for each GEMM that casts it."""
        text, copies = f"{self.gathered_elements_text} q", self._input_copies(*targets)
        if any_of(copies > 1):
            yield from self.saved_tensor(name, f"c {text}, c copies", span, {"c": (copies, "")})
        else:
            yield from self.saved_tensor(name, text, span)

    def frozen_norm_output(self, name: str, span: LayerSpan, *targets: str) -> Iterator[Memory]:
        """Yield the shard of a norm's output that is saved before frozen matrices *targets*.

        If an adapter saves this tensor unchanged, it is counted there.
        """
        if self.trains_model or not self.training.framework.keeps_norm_outputs:
            return
        kept = self.training.precision.kept
        alike = self.gathered_elements_text == self.residual_text and all_of(kept == self.element)
        if not (self.keeps_input(*targets) and alike):
            text = f"{self.residual_text} w, a shard"
            yield from self.saved_tensor(name, text, span, {"w": (kept, "B")}, source=FROZEN)

    def kept_memory(
        self,
        name: str,
        bytes_: Formula,
        count: Sequence[float],
        *,
        freed: Real = 0.0,
        moments: tuple[Moment, ...] = _WHILE_ALIVE,
        tag: str = "",
    ) -> Memory:
        """Return memory that every micro-batch holds from its forward to its backward pass.

        Separate weight gradients need the inputs of GEMMs and the gradients of their outputs.
        The gradients replace the outputs. The share *freed* of a tensor is freed before backward.
        Frameworks offload tensors of layers, but never of embedding and head.
        """
        return Memory(
            name=name,
            cause=ACTIVATIONS,
            bytes_=bytes_,
            count=count,
            per_micro_batch=True,
            resident=tag == ENDS,
            freed_at_b=freed,
            moments=moments,
            tag=tag,
        )

    def formula(
        self, text: str, more: Mapping[str, Any] | None = None, *, source: str = SAVED
    ) -> Formula:
        """Return the bytes of a tensor: the formula *text* with symbols of a rank and *more*."""
        given = more or {}
        symbols = {
            name: given[name] if name in given else _SYMBOLS[name](self)
            for name in symbols_of(text)
        }
        own = [name for name in symbols if name not in given]
        return formula(text, symbols, source=source, origins=partial(_origins, self, own))


def _origins(rank: Rank, symbols: Sequence[str]) -> dict[str, Any]:
    """Return the attributes behind *symbols*, for each symbol that is one attribute."""
    found: dict[str, Any] = {}
    for symbol in symbols:
        if symbol == "s":
            whole = attribute(rank.training, "sequence")
            ranks = attribute(rank.layout, "cp")
            found[symbol] = formula("S / c, c ranks of context", S=whole, c=ranks)
        elif symbol in _ATTRIBUTES:
            block, name, unit = _ATTRIBUTES[symbol]
            value = _SYMBOLS[symbol](rank)[0]
            one = attribute(block(rank), name)
            if all_of(one.value == value):
                found[symbol] = (one, unit)
    return found


#: The attribute behind a symbol: its block, its name and its unit.
_ATTRIBUTES: dict[str, tuple[Callable[[Rank], object], str, str]] = {
    "S": (lambda r: r.training, "sequence", ""),
    "b": (lambda r: r.training, "micro_batch", ""),
    "h": (lambda r: r.model, "hidden", ""),
    "a": (lambda r: r.model, "heads", ""),
    "k": (lambda r: r.model, "kv_heads", ""),
    "r": (lambda r: r.model, "q_lora", ""),
    "f": (lambda r: r.model, "ffn", ""),
    "F": (lambda r: r.model, "expert_ffn", ""),
    "E": (lambda r: r.model, "experts", ""),
    "V": (lambda r: r.model, "vocabulary", ""),
    "t": (lambda r: r.layout, "tp", ""),
    "u": (lambda r: r.layout, "etp", ""),
    "d": (lambda r: r.model, "head_dim", ""),
    "v": (lambda r: r.model, "head_dim", ""),
    "e": (lambda r: r.training.precision, "activation", "B"),
    "q": (lambda r: r.training.precision, "activation", "B"),
    "z": (lambda r: r.training.precision, "activation", "B"),
}
_SYMBOLS: dict[str, Callable[[Rank], tuple[Real, str]]] = {
    "s": lambda r: (r.sequence, ""),
    "S": lambda r: (r.training.sequence, ""),
    "b": lambda r: (r.training.micro_batch, ""),
    "h": lambda r: (r.model.hidden, ""),
    "a": lambda r: (r.model.heads, ""),
    "k": lambda r: (r.kv_heads * r.layout.tp, ""),
    "d": lambda r: (r.model.qk_dim, ""),
    "v": lambda r: (r.model.value_dim, ""),
    "r": lambda r: (float(r.model.q_lora), ""),
    "l": lambda r: (r.model.kv_lora + r.model.rope_dim, ""),
    "f": lambda r: (r.model.ffn, ""),
    "F": lambda r: (r.model.expert_ffn, ""),
    "G": lambda r: (r.model.shared_width, ""),
    "E": lambda r: (float(r.model.experts), ""),
    "V": lambda r: (r.vocabulary * r.layout.tp, ""),
    "t": lambda r: (r.layout.tp, ""),
    "u": lambda r: (r.layout.etp, ""),
    "e": lambda r: (r.element, "B"),
    "q": lambda r: (r.saved_element_size, "B"),
    "z": lambda r: (r.residual_element, "B"),
    "n": lambda r: (r.model.saved, "B"),
    "o": lambda r: (r.core_output_size, "B"),
    "g": lambda r: (r.activation_input_size, "B"),
}


def _fusion(study: Study) -> Fusion:
    training = study[Training]
    return Fusion.from_training(training, study[KernelChoice].mode or training.framework.mode)


def rank_of(study: Study) -> Rank:
    """Return the rank of *study*; its values are computed on access."""
    training = study[Training]
    return Rank(study[Layout], training, training.model, study)
