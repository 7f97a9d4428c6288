"""Gradients in equal buckets under a backward pass: what shows, and how many are best.

The buckets fill one after another, a share 1/N of backward apart, and leave one after
another: the exact event model c_i = max(c_{i-1}, r_i) + T_i. "Best" needs an objective.
There are three, and each is the right one somewhere:

- what shows, while everything hides: alpha + V/N falls with N until the wire is busy all
  the time, at N = (T_b - V) / alpha; there is no optimum inside;
- what shows, where the wire is the limit: N alpha + V - T_b (1 - 1/N), least at
  N = sqrt(T_b / alpha);
- what shows and what compute loses to traffic: alpha + V/N + kappa (N alpha + V), least
  at N = sqrt(V / (kappa alpha)).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from parcost import Figure, Real, Section, called
from parcost.numeric import INFINITY, is_array, maximum, minimum, sqrt, where
from parcost_plugins.parallelism.data.alone.say import figures_of
from parcost_plugins.vocabulary import BucketSketch

_ROWS = 64  # of a timeline that somebody may want to read


def figures(b: BucketSketch) -> Iterator[Figure]:
    """Yield the figures of a ``buckets`` block."""
    say = figures_of(b)
    N, T, tau = b.count, b.backward, b.bucket_time
    V = b.factor * b.gradients / b.bandwidth
    wire = N * tau
    shows = exposed(N, tau, T)
    letters = {"N": (N, ""), "tau": (tau, "s"), "T": (T, "s")}
    sent = {"f": (b.factor, ""), "G": (b.gradients, "B"), "B": (b.bandwidth, "B/s")}
    yield say("bucket", "gradients of a bucket", b.gradients / N, "MB", "G / N")
    yield say("volume_time", "time of all bytes", "ms", "f G / B", **sent)
    yield say("transfer_time", "time of the bytes of a bucket", V / N, "ms", "f G / (N B)", **sent)
    yield say("bucket_time", "time of a bucket", tau, "ms", "f G / (N B) + alpha", **sent)
    yield say("communication", "time of all buckets", wire, "ms", "N tau", **letters)
    whole = b.factor * b.gradients / b.whole_bandwidth
    yield say(
        "slower",
        "longer than one message without overhead",
        wire / whole - 1.0,
        "%",
        "N tau / W - 1",
        W=(whole, "s"),
        **letters,
    )
    yield say("share", "communication over backward", "%", "N tau / T", **letters)
    event = "max(tau, N tau - (1 - 1/N) T)"
    yield say("exposed", "what shows behind backward", "ms", event, **letters)
    yield say(
        "hidden",
        "what hides under backward",
        wire - shows,
        "ms",
        "N tau - e",
        e=(shows, "s"),
        **letters,
    )
    yield say(
        "efficiency",
        "share of the communication that could hide",
        minimum(1.0, T / wire),
        "%",
        "min(1, T / (N tau))",
        note="how well it hides at the most; what hides but for the last bucket is `hidden`",
        **letters,
    )
    yield say(
        "hidden_by_share",
        "communication times its share of backward",
        minimum(1.0, wire / T) * wire,
        "ms",
        "min(1, N tau / T) N tau",
        note="an overlap efficiency that is turned round: it falls as more could hide",
        **letters,
    )
    slowed = b.contention * wire
    cost = shows + slowed
    yield say(
        "cost",
        "what shows, and what compute loses to traffic",
        cost,
        "ms",
        "exposed + kappa N tau",
        kappa=(b.contention, ""),
        **letters,
    )
    yield say("achieved", "step with its communication", b.step + cost, "ms", "step + cost")
    yield say(
        "needs_backward",
        "least backward pass that hides all but a bucket",
        where(N > 1, N * tau, 0.0),
        "ms",
        "N tau where N > 1, else 0",
        note="a micro-batch that computes as long has free overlap",
        **letters,
    )
    yield from _optima(b, V)


def section(b: BucketSketch) -> Iterator[Section]:
    """Yield when each bucket is full, and when it travels."""
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
        title=f"Timeline, {called(b)}",
        columns=("bucket", "full", "sent from", "to"),
        rows=rows,
        notes=["in the order in which backward fills them: the last layers' first"],
    )


def exposed(count: Real, each: Real, backward: Real) -> Real:
    """Return what shows of equal buckets behind *backward*.

    >>> exposed(4.0, 1.0, 100.0), exposed(4.0, 50.0, 100.0)
    (1.0, 125.0)
    """
    return maximum(each, count * each - (1.0 - 1.0 / count) * backward)


def _quotient(part: Real, whole: Real) -> Real:
    """Return ``part / whole``; it is endless where *whole* is nothing."""
    return where(whole > 0, part / where(whole > 0, whole, 1.0), INFINITY)


def _optima(b: BucketSketch, V: Real) -> Iterator[Figure]:
    say = figures_of(b)
    alpha, T, kappa = b.overhead, b.backward, b.contention
    inputs = {"alpha": (alpha, "s"), "V": (V, "s"), "T": (T, "s")}
    # What costs nothing asks for buckets without end.
    saturating = maximum(_quotient(T - V, alpha), 1.0)
    bound = sqrt(_quotient(T, alpha))
    contended = sqrt(_quotient(V, kappa * alpha))
    yield say(
        "most_count",
        "buckets at which the wire is busy all the time",
        saturating,
        "",
        "max((T - V) / alpha, 1)",
        note="fewest seconds show here, while all else hides and nothing is lost to traffic",
        **inputs,
    )
    yield say(
        "bound_count",
        "best number of buckets where the wire is the limit",
        bound,
        "",
        "sqrt(T / alpha)",
        note="least N alpha + V - T (1 - 1/N)",
        **inputs,
    )
    yield say(
        "contended_count",
        "best number of buckets where traffic slows compute",
        contended,
        "",
        "sqrt(V / (kappa alpha))",
        note="least alpha + V/N + kappa (N alpha + V)",
        kappa=(kappa, ""),
        **inputs,
    )
    best = where(alpha + V > T, bound, where(kappa > 0, contended, saturating))
    yield say(
        "best_count",
        "best number of buckets",
        best,
        "",
        "one of the three",
        note="by what is the case: the wire is the limit, traffic slows compute, or neither",
        **inputs,
    )
    N = maximum(best, 1.0)
    starts = where(alpha > 0, minimum(N, sys.float_info.max) * alpha, 0.0)  # endless of nothing
    shows = maximum(alpha + V / N, starts + V - (1.0 - 1.0 / N) * T)
    least = shows + kappa * (starts + V)
    yield say(
        "best_cost",
        "cost at the best number of buckets",
        least,
        "ms",
        "exposed + kappa (N alpha + V)",
        N=(N, ""),
        kappa=(kappa, ""),
        **inputs,
    )
    yield say(
        "crossover",
        "size at which the bytes of a bucket take as long as its overhead",
        b.overhead * b.bandwidth / b.factor,
        "MB",
        "alpha B / f",
        note="smaller buckets are mostly overhead",
    )
