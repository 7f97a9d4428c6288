"""Rules of compression and local updates: divisibility, and combinations."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Study
from parcost.numeric import is_array, where
from parcost_plugins.parallelism.data.rulebook import RULES
from parcost_plugins.physics.neighbours import divisors
from parcost_plugins.physics.run_choices import zero_stage
from parcost_plugins.physics.stage_parameters import spread
from parcost_plugins.vocabulary import Compression, Layout, LocalUpdates

_NEEDS_WHOLE = ("one_bit", "top_k", "power_sgd")


def rules(study: Study) -> Iterator[Check]:
    """Return the rules."""
    yield _zero_without_plugin(study)
    yield from _local_update_checks(study)
    yield from _compression(study)


def _zero_without_plugin(study: Study) -> Check:
    """Return the rule that a plugin supports the ZeRO stage of the layout."""
    layout = study[Layout]
    return RULES.check("no-zero", layout.zero == zero_stage(study), "layout.zero", zero=layout.zero)


def _local_update_checks(study: Study) -> Iterator[Check]:
    local, layout = study[LocalUpdates], study[Layout]
    if not is_array(local.workers, local.period) and local.workers == 1:
        if local.period > 1:
            yield RULES.check("workers-one", False, "local_updates.period", period=local.period)
        return
    workers, dp = local.workers, layout.dp
    inputs = {"workers": workers, "dp": dp, "near": divisors(dp, workers), "ep": layout.ep}
    yield RULES.check(
        "workers-divide",
        where(dp % 1 == 0, dp % workers, 0.0) == 0.0,
        "local_updates.workers",
        inputs=inputs,
    )
    yield RULES.check(
        "workers-experts", (workers == 1) | (layout.ep == 1), "local_updates.workers", inputs=inputs
    )
    inputs = {
        "fragments": local.fragments,
        "period": local.period,
        "steps": local.overlap_steps,
        "most": local.period // local.fragments,
    }
    yield RULES.check(
        "fragments-many", local.fragments <= local.period, "local_updates.fragments", inputs=inputs
    )
    yield RULES.check(
        "overlap-long",
        (local.fragments > local.period) | (local.overlap_steps * local.fragments <= local.period),
        "local_updates.overlap_steps",
        inputs=inputs,
    )


def _compression(study: Study) -> Iterator[Check]:
    method, layout = study[Compression].method, study[Layout]
    _, _, shard = spread(study)
    if method == "none":
        return
    inputs = {"method": method, "zero": layout.zero}
    yield RULES.check(
        "compression-needs-whole-gradients",
        method not in _NEEDS_WHOLE or layout.zero == 0,
        "compression.method",
        inputs=inputs,
    )
    replicas = layout.dp * layout.cp / study[LocalUpdates].workers
    yield RULES.check(
        "compression-hybrid",
        shard == replicas,
        "compression.method",
        shard=shard,
        replicas=replicas,
    )
