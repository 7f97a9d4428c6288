"""Gradients in equal buckets overlapped with backward: exposed time, and best bucket count.

N buckets become full at intervals of T_b / N, where T_b is the time of backward. They are sent in
sequence. Bucket i is full at r_i, takes T_i, and arrives at c_i = max(c_{i-1}, r_i) + T_i. The time
of all bytes is V, the latency of a message alpha, and the slowdown of compute kappa. The best N
depends on the objective:

- exposed time, if all other buckets are hidden: alpha + V/N decreases up to N = (T_b - V) / alpha,
  where the link is always busy; beyond a few buckets, the gain is microseconds;
- exposed time, if the latency of messages delays compute: V/N + N alpha, least at N = sqrt(V /
  alpha);
- exposed time, if the link is the bottleneck: N alpha + V - T_b (1 - 1/N), least at N = sqrt(T_b /
  alpha);
- exposed time and slowdown of compute: alpha + V/N + kappa (N alpha + V), least at N = sqrt(V /
  (kappa alpha)).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from parcost import Figure, Real, Section, Sheet, block_name
from parcost.numeric import is_array, maximum
from parcost_plugins.vocabulary import BucketSketch

_ROWS = 64  # of a readable timeline


def figures(b: BucketSketch) -> Iterator[Figure]:
    """Yield the figures of a ``buckets`` block."""
    sheet = _sheet(b)
    yield sheet("bucket", "gradients per bucket", "MB", "G / N")
    yield sheet("volume_time", "transfer time of all gradients, without latency", "ms", "f G / B")
    yield sheet("transfer_time", "transfer time of a bucket, without latency", "ms", "f G / (N B)")
    yield sheet(
        "bucket_time", "time of a bucket", "ms", "tau, f G / (N B) + alpha where it is not given"
    )
    yield sheet("communication", "time of all buckets", "ms", "N tau")
    yield sheet(
        "slower",
        "additional time compared with one message without overhead",
        "%",
        "N tau / (f G / W) - 1",
        W=(b.whole_bandwidth, "B/s"),
    )
    yield sheet("share", "communication / backward time", "%", "N tau / T")
    event = "max(tau, N tau - (1 - 1/N) T)"
    yield sheet("exposed", "time exposed after backward", "ms", event)
    yield sheet("hidden", "time hidden under backward", "ms", "N tau - exposed")
    yield sheet(
        "efficiency",
        "share of the communication that can overlap with backward",
        "%",
        "min(1, T / (N tau)), includes the last bucket, unlike `hidden`",
    )
    yield sheet(
        "hidden_by_share",
        "communication x communication / backward time",
        "ms",
        "min(1, N tau / T) N tau, falls as more of the communication can overlap",
    )
    yield sheet(
        "cost",
        "cost: exposed time + slowdown of compute",
        "ms",
        "exposed + kappa N tau",
    )
    yield sheet(
        "achieved", "step time with exposed communication", "ms", "step + cost", step=(b.step, "s")
    )
    yield sheet(
        "needs_backward",
        "shortest backward pass that hides all but the last bucket",
        "ms",
        "N > 1 ? N tau : 0, a micro-batch with this backward time hides all but the last bucket",
    )
    yield from _optima(sheet)


def _sheet(b: BucketSketch) -> Sheet:
    sheet = Sheet(
        block_name(b),
        N=b.count,
        T=(b.backward, "s"),
        f=b.factor,
        G=(b.gradients, "B"),
        B=(b.bandwidth, "B/s"),
        alpha=(b.overhead, "s"),
        kappa=b.contention,
        tau=(b.bucket_time, "s"),
    )
    sheet.symbols["V"] = sheet.formula("f G / B"), "s"
    return sheet


def section(b: BucketSketch) -> Iterator[Section]:
    """Yield the times at which each bucket is full, is sent, and has arrived."""
    if is_array(b.count, b.backward, b.bucket_time) or not 1 < b.count <= _ROWS:
        return
    rows: list[tuple[object, ...]] = []
    done = 0.0
    for i in range(int(b.count)):
        full = float(b.backward) * (i + 1) / float(b.count)
        begun = max(done, full)
        done = begun + float(b.bucket_time)
        rows.append((i + 1, (full, "s"), (begun, "s"), (done, "s")))
    yield Section(
        title=f"Timeline, {block_name(b)}",
        columns=("bucket", "full", "sent from", "to"),
        rows=rows,
        notes=["Buckets in the order of the backward pass: last layers first."],
    )


def exposed_seconds(count: Real, each: Real, backward: Real) -> Real:
    """Return the exposed seconds of equal buckets overlapped with *backward*.

    >>> exposed_seconds(4.0, 1.0, 100.0), exposed_seconds(4.0, 50.0, 100.0)
    (1.0, 125.0)
    """
    return maximum(each, count * each - (1.0 - 1.0 / count) * backward)


def _optima(sheet: Sheet) -> Iterator[Figure]:
    # Without start-up time the best number of buckets is infinite.
    yield sheet(
        "most_count",
        "largest number of buckets that hides all but the last bucket",
        "",
        "alpha > 0 ? max((T - V) / alpha, 1) : infinity, best without slowdown of compute",
    )
    yield sheet(
        "bound_count",
        "best number of buckets if bandwidth is the limit",
        "",
        "sqrt(T / alpha), least N alpha + V - T (1 - 1/N)",
    )
    yield sheet(
        "contended_count",
        "best number of buckets if traffic slows compute",
        "",
        "kappa alpha > 0 ? sqrt(V / (kappa alpha)) : infinity, least alpha + V/N + "
        "kappa (N alpha + V)",
    )
    yield sheet(
        "launch_count",
        "best number of buckets if each launch delays compute",
        "",
        "alpha > 0 ? sqrt(V / alpha) : infinity, least V/N + N alpha",
    )
    yield sheet(
        "best_count",
        "best number of buckets",
        "",
        "alpha + V > T ? bound_count : kappa > 0 ? contended_count : min(launch_count, "
        "most_count), the limit is bandwidth, slowdown of compute, or launches",
    )
    symbols = sheet.symbols
    symbols["N"] = sheet.formula("max(best_count, 1)")
    symbols["S"] = sheet.formula(f"min(N, {sys.float_info.max}) alpha"), "s"
    yield sheet(
        "best_cost",
        "cost at the best number of buckets",
        "ms",
        "max(alpha + V / N, S + V - (1 - 1 / N) T) + kappa (S + V), S the sum of start-up times",
    )
    yield sheet(
        "crossover",
        "bucket size whose transfer takes as long as its overhead",
        "MB",
        "alpha B / f, smaller buckets are mostly overhead",
    )
