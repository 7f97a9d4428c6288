"""What has to be known of a run, and what contradicts itself."""

from __future__ import annotations

import pytest

import parcost

from ..rows import try_each

JOB = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama32_1b
use catalog.precisions.bf16
cluster { devices = 16 }
training { sequence = 2048, micro_batch = 1, global_batch = 64 sequences }
"""


def diagnostics_by_id(text: str) -> dict[str, parcost.Diagnostic]:
    report = parcost.load_text(text)[0].evaluate()
    return {d.id: d for d in report.diagnostics}


@try_each(
    "rule, text, says",
    [
        (
            "run-known-twice",
            "run { tokens = 1 T tokens, device_time = 1 h, speed = 1 tokens, devices = 8 }",
            "`device_time` and `speed` state the speed of the run",
        ),
        (
            "run-known-twice",
            JOB + "run { tokens = 1 T tokens, speed = 100 tokens }",
            "`speed` states the speed of the run, and the training step also sets it",
        ),
        (
            "run-speed-unknown",
            "run { tokens = 1 T tokens, devices = 8 }",
            "there is no training job",
        ),
        ("run-devices-unknown", "run { tokens = 1 T tokens, device_time = 1 h }", "no cluster"),
        (
            "reliability-devices-unknown",
            "reliability { restart = 1 min }\ncheckpoint { blocking = 1 s }",
            "needs the number of devices",
        ),
        ("reliability-alone", JOB + "reliability { restart = 1 min }", "there is no `checkpoint`"),
        (
            "mtbf-known-twice",
            "reliability { restart = 1 min, mtbf = 3 h, device_mtbf = 9 h, devices = 2 }",
            "`mtbf` and `device_mtbf` both set the mean time between failures",
        ),
        (
            "checkpoint-size-unknown",
            "checkpoint { storage = 1 GB/s, interval = 1 h }",
            "size of a checkpoint is unknown",
        ),
        (
            "checkpoint-rate-unknown",
            "checkpoint { size = 1 TB, interval = 1 h }",
            "write rate of a checkpoint is unknown",
        ),
        (
            "checkpoint-copy-unknown",
            "checkpoint { size = 1 TB, storage = 1 GB/s, interval = 1 h, asynchronous = on }",
            "copy rate of a shard",
        ),
        (
            "checkpoint-interval-unknown",
            "checkpoint { blocking = 30 s }",
            "without a failure rate",
        ),
        (
            "checkpoint-shards",
            JOB + "checkpoint { storage = 1 TB/s, interval = 1 h, shards = 17 }",
            "17 shards are more than the 16 devices of the cluster",
        ),
        (
            "checkpoint-background",
            JOB + "checkpoint { storage = 1 GB/s, interval = 5 s, asynchronous = on }",
            "the next one begins after 5 s",
        ),
        (
            "fails-too-often",
            "reliability { restart = 2 h, mtbf = 1 h }\ncheckpoint { blocking = 30 s }",
            "the job fails every 3600 s",
        ),
        ("data-untrained", "data { stall = 1 ms }", "needs a training job"),
        ("data-not-prefetched", JOB + "data { prefetch = off }", "the rate of loaders is needed"),
        (
            "power-unknown",
            "run { tokens = 1 T tokens, device_time = 1 h, devices = 8 }\nenergy { }",
            "power of a device is unknown",
        ),
        ("energy-unused", "energy { power = 700 W }", "no effect without a `run` block"),
        ("price-unused", "price { device_hour = 2 USD/h }", "no effect without a `run` block"),
    ],
)
def test_a_rule_speaks_in_the_words_of_the_spec(rule: str, text: str, says: str) -> None:
    found = diagnostics_by_id(text)
    assert rule in found
    assert says in found[rule].message


def test_a_run_that_says_everything_once_breaks_no_rule() -> None:
    assert (
        diagnostics_by_id(
            JOB
            + "run { tokens = 1 T tokens }\nreliability { restart = 5 min }\n"
            + "checkpoint { storage = 10 GB/s, asynchronous = on }\n"
            + "price { device_hour = 2 USD/h }\nenergy { }\ndata { rate = 100 M tokens }"
        )
        == {}
    )


def test_shares_and_overheads_have_their_ranges() -> None:
    for text in (
        "energy { power = 700 W, pue = 0.9 }",
        "energy { power = 700 W, activity = 120 % }",
        "reliability { restart = 1 min, mtbf = 0 s }",
        "run { tokens = 0 tokens }",
        "checkpoint { blocking = 30 s, interval = 0 s }",
        "data { rate = 0 tokens }",
    ):
        with pytest.raises(parcost.SpecError) as error:
            parcost.load_text(text)[0].evaluate()
        assert {d.id for d in error.value.diagnostics} == {"out-of-range"}


def test_a_rule_about_a_whole_block_is_shown_at_that_block() -> None:
    (scenario,) = parcost.load_text("run { tokens = 1 T tokens, device_time = 1 h }\nenergy { }")
    span = scenario.first.where("energy")
    assert span is not None
    assert span.text.startswith("energy")
