"""The common part of data-parallel communication: groups, buckets, and cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from parcost import Call, Formula, Pass, Real, Study, Work, formula, link_resources, record
from parcost.numeric import ceil_div, is_array, maximum
from parcost_plugins.parallelism.data.compression import ReductionCost, exchange
from parcost_plugins.physics import slowdown
from parcost_plugins.physics.partition import ends_share_device
from parcost_plugins.physics.run_choices import (
    gradient_bucket,
    hides_gradients,
    hides_parameters,
    shards_states,
)
from parcost_plugins.physics.stage_parameters import StageKind, stage_kinds, trained_kinds
from parcost_plugins.vocabulary import CollectiveChoice, LocalUpdates, Training
from parcost_plugins.vocabulary.causes import DATA

#: Tags of terms: gradient reduction, compression, averaging over workers.
GRADIENTS, COMPRESSION, OUTER_STEP = "gradients", "compression", "outer step"


def is_tied(study: Study) -> bool:
    """Return whether embedding and head are one tensor, which stays gathered from the first to the
    last layer.
    """
    return study[Training].model.tied and bool(study.query(ends_share_device))


def ends_share_unit(study: Study) -> bool:
    """Return whether one call gathers embedding and head, and one call reduces their gradients."""
    return study[Training].framework.ends_together


def keeps_ends(study: Study) -> bool:
    """Return whether the embedding stays gathered from forward to backward, as the head does."""
    return ends_share_unit(study) or is_tied(study)


@record(kw_only=True, eq=False)
class ShardGroup:
    """The ranks that share the parameters of stages of one *kind*.

    State is sharded, and gradients reduced, over the group *inside*. Under hybrid sharding the
    shards are then reduced over the group *across*, which is "" otherwise. *on* and *on_across* are
    the resources that a term on these groups keeps busy. *slowdown* is the compute time lost per
    second of hidden communication: SMs in use by it / remaining SMs.
    """

    study: Study
    kind: StageKind
    inside: str
    across: str
    algorithm: str
    slowdown: Real
    on: Mapping[str, Any]
    on_across: Mapping[str, Any]

    def call(self, operation: str, n: Real | Formula) -> Call:
        """Estimate one collective over *n* bytes."""
        return self.study.collective(operation, n, self.inside, self.algorithm)

    def reduce(self, operation: str, elements: Real) -> ReductionCost:
        """Estimate the reduction of *elements* gradients, with the study's compression."""
        return exchange(self.study, self.kind, operation, elements, self.inside, self.algorithm)

    def reduce_across(self, elements: Real) -> ReductionCost:
        """Estimate the reduction of a rank's shard of *elements*, over the groups with the other
        shards.
        """
        n = formula(
            "psi g / N",
            psi=elements,
            g=(self.study[Training].precision.reduction, "B"),
            N=self.kind.shard,
        )
        call = self.study.collective("all_reduce", n, self.across, self.algorithm)
        return ReductionCost(formula=call.formula, bytes_=n.value, latency=call.latency)

    @property
    def bucket(self) -> Real:
        """Bytes of gradients in one bucket."""
        return gradient_bucket(self.study)

    def buckets(self, n: Real, cut: bool = True) -> Real:
        """Return the number of equal buckets for *n* bytes; 1 if gradients are not divided
        (*cut*).
        """
        return maximum(ceil_div(n, self.bucket), 1.0) if cut else 1.0

    def work(
        self,
        name: str,
        call: Call | ReductionCost,
        pass_: Pass,
        *,
        count: Sequence[float],
        bytes_: Real,
        repeat: Real = 1.0,
        window: str | None = None,
        share: Real = 1.0,
        alone: Real = 0.0,
        on: Mapping[str, Any] | None = None,
        tag: str = "",
    ) -> Work:
        """Return the term of *repeat* calls per micro-batch, overlapped with compute in *window*.

        At most a *share* of that compute hides the calls. A share *alone* of the calls is exposed.
        """
        return Work(
            name=name,
            cause=DATA,
            seconds=times(call.formula, repeat),
            pass_=pass_,
            count=count,
            window=window,
            share=share,
            alone=0.0 if window is None else alone,
            slowdown=self.slowdown,
            bytes_=repeat * bytes_,
            tag=tag,
            latency=repeat * call.latency,
            **(on or self.on),
        )


def shard_groups(study: Study) -> Sequence[ShardGroup]:
    """Return the shard group for each kind of stage of *study*, for all of its parameters."""
    return tuple(_shard_groups(study, stage_kinds(study)))


def trained_groups(study: Study) -> Sequence[ShardGroup]:
    """Return the shard groups for the trained parameters, whose gradients and state are sharded."""
    return tuple(_shard_groups(study, trained_kinds(study)))


def _shard_groups(study: Study, kinds: Sequence[StageKind]) -> Iterator[ShardGroup]:
    hides = hides_gradients(study) or hides_parameters(study)
    for kind in kinds:
        inside, across = _groups(study, kind)
        yield ShardGroup(
            study=study,
            kind=kind,
            inside=inside,
            across=across,
            algorithm=study[CollectiveChoice].data,
            slowdown=slowdown(study) if hides else 0.0,
            on=link_resources(study.group(inside).flat),
            on_across=link_resources(study.group(across).flat) if across else {},
        )


def _groups(study: Study, kind: StageKind) -> tuple[str, str]:
    """Return the groups of gradient reduction: the first, and the second for shards ("" if there
    are no shards).

    Workers of local SGD reduce among their own ranks only.
    """
    workers = study[LocalUpdates].workers
    whole = _is_equal(kind.shard * workers, kind.replicas)
    if kind.expert or (_is_equal(workers, 1.0) and (whole or not shards_states(study))):
        return kind.group, ""
    return "shard", "" if whole else "replicate"


def _is_equal(a: Real, b: Real) -> bool:
    """Return whether two degrees are equal; never true for a sweep."""
    return not is_array(a, b) and a == b


def times(each: Formula, count: Real) -> Formula:
    """Return the formula of *count* calls in sequence."""
    if isinstance(count, float) and count == 1.0:
        return each
    return formula("N t", N=count, t=(each, "s"))
