"""Batches, buckets, runs and utilisations beyond all that is known get a warning each."""

from __future__ import annotations

import pytest

import parcost

from ..rows import try_each

STUDY = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.precisions.{precision}
model dense {{ layers = 32, hidden = 4096, heads = 32, ffn = 14_336, vocabulary = 32_000 }}
cluster  {{ devices = 8 }}
layout   {{ tp = 1, zero = 1 }}
training {{
  sequence = {sequence}, micro_batch = {micro_batch}
  global_batch = {batch} sequences, recompute = full
}}
{more}
"""


def messages(
    more: str = "",
    *,
    micro_batch: int = 1,
    batch: int = 64,
    sequence: str = "4096",
    precision: str = "bf16",
    outcome: bool = False,
) -> dict[str, str]:
    """Return the warnings of plausibility by id."""
    text = STUDY.format(
        precision=precision, micro_batch=micro_batch, batch=batch, sequence=sequence, more=more
    )
    (scenario,) = parcost.load_text(text)
    found = scenario.evaluate().diagnostics if outcome else scenario.check()
    return {d.id: d.message for d in found if d.id.startswith("implausible")}


def test_a_usual_job_has_no_warning() -> None:
    assert messages("overlap { bucket = 160 MB }\nrun { tokens = 15 T tokens }") == {}
    assert messages(micro_batch=16, sequence="8192", batch=1024) == {}  # as torchtitan


def test_a_global_batch_as_micro_batch() -> None:
    """256 sequences of 4096 tokens are 1,048,576 tokens on a rank; 158 are 647,168."""
    assert messages(micro_batch=256, batch=4096) == {
        "implausible-micro-batch": "`training.micro_batch` is 1,048.58 K tokens on a rank; "
        "plausible values are at most 650 K tokens on a rank"
    }
    assert messages(micro_batch=158, batch=8 * 158) == {}
    assert set(messages(micro_batch=159, batch=8 * 159)) == {"implausible-micro-batch"}


@try_each("sequence, warned", [("100 M", False), ("101 M", True), ("1e15", True)])
def test_a_sequence_beyond_any_model_is_named_at_its_place(sequence: str, warned: bool) -> None:
    """The batch and the micro-batch are then too large for no other reason."""
    text = STUDY.format(precision="bf16", micro_batch=1, batch=64, sequence=sequence, more="")
    (scenario,) = parcost.load_text(text)
    found = {d.id: d for d in scenario.check() if d.id.startswith("implausible")}
    if not warned:
        assert set(found) == {"implausible-batch", "implausible-micro-batch"}
        return
    (said,) = found.values()
    assert said.id == "implausible-sequence"
    assert "plausible values are at most 100 M tokens" in said.message
    assert said.labels[0].span.text == f"sequence = {sequence}"


@try_each("sequence, known", [("1e12", False), ("1e15", True)])
def test_a_step_without_end_does_not_blame_collectives(sequence: str, known: bool) -> None:
    """Attention of 1e12 tokens takes 4e28 FLOPs a layer, and no collective is without time."""
    text = STUDY.format(precision="bf16", micro_batch=1, batch=64, sequence=sequence, more="")
    (scenario,) = parcost.load_text(text)
    found = {d.id: d for d in scenario.evaluate().diagnostics}
    assert "implausible-sequence" in found
    help = found["cannot-run"].help or ""
    assert "algorithm" not in help
    assert help.startswith("correct this value" if known else "correct a size")
    assert ("`training.sequence` is out of proportion" in found["cannot-run"].message) == known


@pytest.mark.slow
def test_context_parallelism_shares_the_tokens() -> None:
    text = STUDY.format(precision="bf16", micro_batch=1, batch=8, sequence="1 Mi", more="")
    (alone,) = parcost.load_text(text)
    (shared,) = parcost.load_text(text.replace("tp = 1,", "tp = 1, cp = 8,"))
    assert "implausible-micro-batch" in {d.id for d in alone.check()}
    assert "implausible-micro-batch" not in {d.id for d in shared.check()}


@try_each(
    "bucket, said",
    [
        ("25 kB", "is 0.025 MB; plausible values are at least 0.1 MB"),
        ("25 GB", "is 25,000 MB; plausible values are at most 20,000 MB"),
        ("0.1 MB", ""),
        ("20 GB", ""),
    ],
)
def test_buckets_of_another_prefix(bucket: str, said: str) -> None:
    found = messages(f"overlap {{ bucket = {bucket} }}")
    assert found == ({"implausible-bucket": f"`overlap.bucket` {said}"} if said else {})


@try_each(
    "tokens, warned",
    [("804 M", True), ("806 M", False), ("15 T", False), ("2400 T", False), ("2430 T", True)],
)
def test_tokens_of_a_run_against_its_parameters(tokens: str, warned: bool) -> None:
    """32 (4 x 4096^2 + 3 x 4096 x 14,336) + 2 x 32,000 x 4096 are 8.05 G parameters."""
    found = messages(f"run {{ tokens = {tokens} tokens }}\nplausible {{ tokens = 3000 T }}")
    assert set(found) == ({"implausible-tokens-per-parameter"} if warned else set())


@pytest.mark.slow
def test_a_utilisation_beyond_any_that_was_measured() -> None:
    """The bound is of the peak of the narrow type where products are narrow."""
    rates = "kernels { gemm_efficiency = %s, attention_forward_efficiency = 90 %% }"
    fast = {"outcome": True, "batch": 1024}
    assert messages(rates % "75 %", **fast) == {}
    reported = messages(f"{rates % '75 %'}\nplausible {{ mfu = 40 % }}", **fast)
    assert "% of the bf16 peak" in reported["implausible-mfu"]
    assert "no known measured run reaches 40 %" in reported["implausible-mfu"]
    narrow = {**fast, "precision": "fp8_current"}
    reported = messages("plausible { mfu = 1 % }", **narrow)
    assert reported == {}
    reported = messages("plausible { mfu_fp8 = 1 % }", **narrow)
    assert "% of the fp8 peak" in reported["implausible-mfu"]


def test_warnings_are_switched_off_with_a_reason() -> None:
    kept = "overlap { bucket = 25 kB }  # parcost: allow implausible-bucket, a study of latency"
    assert messages(kept) == {}


def test_a_sweep_is_warned_of_at_its_points() -> None:
    text = STUDY.format(precision="bf16", micro_batch=1, batch=64, sequence="4096", more="")
    (scenario,) = parcost.load_text(text + "overlap { bucket = [25 MB, 25 GB, 25 kB] }\n")
    said = [d for d in scenario.check() if d.id == "implausible-bucket"]
    assert {d.message.partition(" is ")[2] for d in said} == {
        "0.025 MB; plausible values are at least 0.1 MB (at bucket = 25 kB)",
        "25,000 MB; plausible values are at most 20,000 MB (at bucket = 25 GB)",
    }
