"""Serving: latency, throughput, and memory of inference.

There are two rooflines. Prefill of a prompt is compute bound. Decoding of a token reads all weights
and the whole KV cache. Schedulers and paging are not modeled, so results are bounds that a good
server approaches. Parameters and FLOPs of the model come from the plugins for training, called with
a study of one replica.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Chart, Check, Figure, Rulebook, Section, Study, block_name, hookimpl
from parcost.numeric import all_of, is_array
from parcost_plugins.inference.rulebook import RULES
from parcost_plugins.vocabulary import Serving
from parcost_plugins.vocabulary.answers import mark_details, section_note

_HEADLINES = (
    "prefill_seconds",
    "decode_seconds",
    "request_seconds",
    "tokens_per_second",
    "tokens_per_second_per_device",
    "cost_per_million_tokens",
    "memory",
    "headroom",
    "largest_batch",
)


@hookimpl
def calculations(study: Study) -> Iterator[Figure | Section | Check]:
    """Return the rules and the figures of every ``serving`` block."""
    if not study.all(Serving):
        return
    from parcost_plugins.inference.figures import figures_of, table
    from parcost_plugins.inference.memory import ServingMemory
    from parcost_plugins.inference.replica import Replica
    from parcost_plugins.inference.rules import capacity_check, finite_time_check, prerequisites
    from parcost_plugins.inference.speed import decode, prefill

    for serving in study.all(Serving):
        legal = True
        for check in prerequisites(serving):
            yield check
            legal = legal and all_of(check.holds)
        if not legal:
            continue
        replica = Replica.from_serving(study, serving)
        yield capacity_check(replica, ServingMemory.from_replica(replica))
        first, next_ = prefill(replica), decode(replica)
        yield finite_time_check(replica, first, next_)
        yield from mark_details(figures_of(replica, first, next_), *_HEADLINES)
        if is_array(first.seconds, next_.seconds):
            yield section_note(block_name(serving))
        else:
            yield table(replica, first, next_)
        study.faults.extend(replica.study.faults)


@hookimpl
def charts(study: Study) -> Iterator[Chart]:
    """Return charts of throughput over batch size."""
    if study.all(Serving):
        from parcost_plugins.inference.batch_charts import batch_charts

        yield from batch_charts(study)


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Return the rulebook of this package, with a page for each rule."""
    return [RULES]
