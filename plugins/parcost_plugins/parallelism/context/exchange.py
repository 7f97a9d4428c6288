"""The groups of a context-parallel layout, and the sizes of its messages in bytes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from operator import add
from typing import Any

from attrs import evolve

from parcost import Formula, Group, Pass, Real, Study, formula, map_counts, record, symbols_of
from parcost.numeric import any_of, maximum, minimum
from parcost_plugins.physics import slowdown
from parcost_plugins.physics.context import algorithm, all_to_all_degree
from parcost_plugins.physics.partition import Counts
from parcost_plugins.vocabulary import (
    CollectiveChoice,
    Context,
    FusedAttention,
    Layout,
    Model,
    Training,
)

FP32 = 4.0  # bytes of an output that is added up over blocks, and of its statistics
SIZES = "counted from the tensors that attention reads"


@record(eq=False)
class ContextExchange:
    """A rank of a context-parallel group: its messages for one layer and micro-batch.

    Groups of *trading* ranks run all-to-alls (Ulysses), and *rounds* such groups form a ring.
    """

    study: Study
    context: Context
    kind: str
    cp: Real
    trading: Real
    rounds: Real
    slowdown: Real

    @property
    def model(self) -> Model:
        """The model."""
        return self.study[Training].model

    @property
    def algorithm(self) -> str:
        """The collective algorithm of context parallelism."""
        return self.study[CollectiveChoice].context

    @property
    def tokens(self) -> Real:
        """Tokens of a micro-batch on this rank."""
        training = self.study[Training]
        return training.sequence / self.cp * training.micro_batch

    @property
    def heads(self) -> Real:
        """Query heads of this tensor-parallel rank."""
        return self.model.heads / self.study[Layout].tp

    @property
    def kv_heads(self) -> Real:
        """KV heads of this rank; if there are more ranks than heads, ranks hold copies."""
        t, copied = self.study[Layout].tp, self.study[Training].framework.repeats_keys
        if copied or self.model.is_latent:
            return self.heads
        return maximum(self.model.kv_heads, t) / t

    @property
    def width(self) -> Real:
        """Elements of keys and values per token in messages."""
        model = self.model
        if self.context.latent:
            return model.kv_lora + model.rope_dim
        return self.projected_elements

    @property
    def projected_elements(self) -> Real:
        """Elements of keys and values per token as read by attention."""
        return self.kv_heads * (self.model.qk_dim + self.model.value_dim)

    @property
    def element(self) -> Real:
        """Bytes per element of an activation."""
        return self.study[Training].precision.activation

    @property
    def key_value(self) -> Real:
        """Bytes per element of keys and values in messages; 0 for one rank."""
        return self.context.key_value if any_of(self.cp > 1) else self.element

    @property
    def gradients(self) -> Real:
        """Bytes per element of the gradients of keys and values in messages."""
        stated = self.context.gradients if any_of(self.cp > 1) else self.element
        return maximum(stated, self.sums) if self.runs_blocks else stated

    @property
    def sums(self) -> Real:
        """Bytes per element in which the framework accumulates the results of blocks of keys."""
        return self.study[Training].framework.context_sums

    @property
    def runs_blocks(self) -> bool:
        """Whether attention runs one block of keys after another, so that the framework merges the
        results.
        """
        kinds = ("ring", "hybrid") if self.has_merge_kernels else ("ring", "all_gather")
        return any_of(self.sums > 0) and self.kind in kinds

    @property
    def has_merge_kernels(self) -> bool:
        """Whether there is one kernel per tensor to merge the results of blocks."""
        return self.study[Training].framework.context_merges == "kernels"

    @property
    def block(self) -> Real:
        """Bytes of the keys and values of this rank's tokens."""
        return self.tokens * self.width * self.key_value

    @property
    def block_gradients(self) -> Real:
        """Bytes of the gradients of this rank's keys and values."""
        return self.tokens * self.width * self.gradients

    @property
    def inputs(self) -> dict[str, tuple[Real, str]]:
        """The symbols of the formula of a block."""
        training = self.study[Training]
        return {
            "s": (training.sequence, ""),
            "b": (training.micro_batch, ""),
            "c": (self.cp, ""),
            "w": (self.width, ""),
            "e": (self.key_value, "B"),
            "g": (self.gradients, "B"),
        }

    def size(self, text: str, **further: Any) -> Formula:
        """Return the bytes of a message or a buffer: the formula *text* with symbols of a block."""
        symbols = {**self.inputs, **further}
        return formula(text, {name: symbols[name] for name in symbols_of(text)}, source=SIZES)

    @cached_property
    def all_ranks(self) -> Group:
        """The whole context-parallel group."""
        return self.study.group("cp")

    @cached_property
    def inner(self) -> Group:
        """The Ulysses group: neighbouring ranks, on the innermost levels."""
        return _subgroup(self.all_ranks, self.trading)

    @cached_property
    def outer(self) -> Group:
        """The ring group: one rank of each Ulysses group; all ring groups send at the same time."""
        group = self.all_ranks
        if not any_of(self.trading > 1):
            return group
        shape = tuple(
            whole / part for whole, part in zip(group.shape, self.inner.shape, strict=True)
        )
        return Group(
            name="cp, between parts",
            ranks=self.rounds,
            shape=shape,
            links=group.links,
            pairs=group.pairs,
            flat=group.pair,
            pair=group.pair,
            hop=group.pair,
            members=partial(_between_parts, group, self.trading),
        )

    @cached_property
    def cores(self) -> dict[tuple[str, Pass], Counts]:
        """Attention cores on each virtual stage, by host and pass."""
        found: dict[tuple[str, Pass], Counts] = {}
        for operator in self.study.operators:
            if isinstance(operator, FusedAttention):
                key = (operator.host, operator.pass_)
                found[key] = _sum(found.get(key), operator.count)
        return found

    @cached_property
    def counts(self) -> dict[Pass, Counts]:
        """Attention cores on each virtual stage, by pass."""
        found: dict[Pass, Counts] = {}
        for (_, pass_), count in self.cores.items():
            found[pass_] = _sum(found.get(pass_), count)
        return found


def is_single_rank(study: Study) -> bool:
    """Return whether cp is 1; never true for a sweep."""
    cp = study[Layout].cp
    return isinstance(cp, float) and cp == 1.0


def exchange(study: Study) -> ContextExchange:
    """Return the context-parallel exchange of *study*."""
    cp, traders = study[Layout].cp, all_to_all_degree(study)
    several = any_of(cp > 1)
    kind = algorithm(study) if several else study[Training].framework.context
    taken = slowdown(study) if several else 0.0
    return ContextExchange(study, study[Context], kind, cp, traders, cp / traders, taken)


def _sum(one: Counts | None, other: Sequence[float]) -> Counts:
    return map_counts(add, other, 0.0 if one is None else one)


def _subgroup(group: Group, ranks: Real) -> Group:
    """Return the group of the first *ranks* of *group*."""
    left: Real = ranks
    shape: list[Real] = []
    for members in group.shape:
        here = minimum(members, left)
        shape.append(here)
        left = left / here
    inside = not any(any_of(members > 1) for members in shape[1:])
    return evolve(
        group,
        name="cp, within parts",
        ranks=ranks,
        shape=tuple(shape),
        fewest=tuple(minimum(a, b) for a, b in zip(group.fewest, shape, strict=True)),
        flat=group.links[0] if inside else group.flat,
        pair=group.pairs[0] if inside else group.pair,
        hop=group.links[0] if inside else group.hop,
        members=partial(_within_parts, group, ranks),
    )


def _within_parts(group: Group, ranks: Real) -> Sequence[Sequence[int]]:
    """Return the rank lists of the Ulysses groups: *ranks* consecutive members of *group* each."""
    each, lists = int(ranks), group.members() if group.members else ()
    return [row[at : at + each] for row in lists for at in range(0, len(row), each)]


def _between_parts(group: Group, ranks: Real) -> Sequence[Sequence[int]]:
    """Return the rank lists of the ring groups: one rank of each Ulysses group."""
    each, lists = int(ranks), group.members() if group.members else ()
    return [row[at::each] for row in lists for at in range(each)]
