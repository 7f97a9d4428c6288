"""What all data-parallel traffic has in common: its group, its buckets, its price."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve, frozen

from parcost import Call, Formula, Pass, Real, Study, Work
from parcost.numeric import ceil_div, maximum
from parcost_plugins.vocabulary import Cluster, CollectiveChoice, Overlap


@frozen(kw_only=True, eq=False)
class Wire:
    """The data-parallel group of a study.

    *resource* is the link that its traffic keeps busy. *slowdown* is what compute loses
    to each second of traffic that hides under it: the multiprocessors that the traffic
    takes, against those that it leaves.
    """

    study: Study
    algorithm: str
    bucket: Real
    resource: str
    slowdown: Real

    def call(self, operation: str, n: Real) -> Call:
        """Price one collective over *n* bytes."""
        return self.study.collective(operation, n, "dp", self.algorithm)

    def bucketed(self, operation: str, n: Real, cut: bool = True) -> tuple[Call, Real]:
        """Price one of the equal buckets that *n* bytes are *cut* into, and say how many."""
        buckets = maximum(ceil_div(n, self.bucket), 1.0) if cut else 1.0
        return self.call(operation, n / buckets), buckets

    def work(
        self,
        name: str,
        call: Call,
        pass_: Pass,
        *,
        count: Sequence[float],
        bytes_: Real,
        repeat: Real = 1.0,
        share: Real | None = None,
    ) -> Work:
        """Return *repeat* calls in each micro-batch; under compute where *share* is given."""
        return Work(
            name=name,
            seconds=repeat * call.seconds,
            pass_=pass_,
            formula=times(call.formula, repeat),
            count=count,
            resource=self.resource,
            window=None if share is None else "",
            share=1.0 if share is None else share,
            slowdown=self.slowdown,
            bytes_=repeat * bytes_,
        )


def wire(study: Study) -> Wire:
    """Return the data-parallel group of *study*."""
    overlap = study[Overlap]
    taken, of = overlap.multiprocessors, study[Cluster].device.multiprocessors
    return Wire(
        study=study,
        algorithm=study[CollectiveChoice].data,
        bucket=overlap.bucket,
        resource=study.group("dp").flat.name,
        slowdown=taken / (of - taken),
    )


def times(formula: Formula, count: Real) -> Formula:
    """Return *formula* for *count* calls one after another."""
    if isinstance(count, float) and count == 1.0:
        return formula
    return evolve(
        formula,
        text=f"N x ({formula.text})",
        inputs={"N": (count, ""), **formula.inputs},
    )
