"""Kernels of NumPy on the processor: what CI runs, and a second example of a backend."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .backend import Facts, Missing, Reading, Sample, Timing
from .cases import Attention, Collective, Copy, Host, Load, Product, Stream
from .machine import processor

Array = NDArray[np.float32]

_PAUSE = 0.5  # seconds between two rates of a load


class NumpyBackend:
    """Products, attention and passes in fp32, whatever the type of the case."""

    ranks = 1

    def __init__(self, *, device: str | None = None) -> None:
        self.random = np.random.default_rng(20)
        name = processor()
        self.facts = Facts(device or name, name, name, f"NumPy {np.__version__}")

    def normal(self, *shape: int) -> Array:
        """Return normal random numbers."""
        return self.random.standard_normal(shape, dtype=np.float32)

    def product(self, case: Product) -> Timing:
        """Time a matrix product."""
        if case.dtype == "fp8":
            raise Missing("NumPy has no fp8")
        a, b = self.normal(case.count, case.m, case.k), self.normal(case.count, case.k, case.n)
        return _time(lambda: a @ b, "numpy.matmul in float32")

    def attention(self, case: Attention) -> Timing:
        """Time attention whose scores are stored."""
        if not case.kernel.startswith("unfused"):
            raise Missing(f"NumPy has no kernel {case.kernel}")
        shape = (case.batch, case.heads, case.seq, case.head_dim)
        q, k, v, dy = (self.normal(*shape) for _ in range(4))
        hidden = np.triu(np.ones((case.seq, case.seq), dtype=bool), 1) & case.causal
        scale = np.float32(case.head_dim**-0.5)

        def forward() -> tuple[Array, Array]:
            scores = np.where(hidden, np.float32(-1e4), (q @ k.swapaxes(-1, -2)) * scale)
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            scores /= scores.sum(-1, keepdims=True)
            return scores, scores @ v

        if case.direction == "forward":
            return _time(forward, "NumPy")
        scores, _ = forward()

        def backward() -> tuple[Array, Array, Array]:
            dscores = dy @ v.swapaxes(-1, -2)
            dscores = scores * (dscores - (dscores * scores).sum(-1, keepdims=True)) * scale
            return dscores @ k, dscores.swapaxes(-1, -2) @ q, scores.swapaxes(-1, -2) @ dy

        return _time(backward, "NumPy")

    def stream(self, case: Stream) -> Timing:
        """Time an element-wise pass."""
        x, y = self.normal(case.tokens, case.width), self.normal(case.tokens, case.width)
        known: dict[tuple[str, str], Callable[[], Any]] = {
            ("copy", "forward"): x.copy,
            ("add", "forward"): lambda: x + y,
            ("scale", "forward"): lambda: x * np.float32(0.5),
            ("sum", "forward"): lambda: x.sum(0),
            ("cast_up", "forward"): lambda: x.astype(np.float64),
            ("rms_norm", "forward"): lambda: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5),
            ("swiglu", "forward"): lambda: x / (1 + np.exp(-x)) * y,
        }
        call = known.get((case.operator, case.direction))
        if call is None or case.implementation == "compiled":
            raise Missing(f"NumPy has no {case.implementation} {case.operator} {case.direction}")
        return _time(call, "NumPy in float32")

    def host(self, case: Host) -> Timing:
        """Time a call of NumPy on few elements."""
        if case.what != "add":
            raise Missing(f"NumPy has no {case.what}")
        x = self.normal(4)
        return _time(lambda: np.add(x, x), "numpy.add", calls=100)

    def copy(self, case: Copy) -> Timing:
        """Time a copy in memory."""
        if case.way != "device-to-device":
            raise Missing("the processor is the host")
        one = np.ones(case.bytes_, dtype=np.uint8)
        other = np.empty_like(one)
        return _time(lambda: np.copyto(other, one), "numpy.copyto")

    def collectives(self, cases: Sequence[Collective]) -> Iterator[tuple[Collective, Timing]]:
        """Reject: NumPy runs in one process."""
        raise Missing(f"NumPy has no collectives such as {cases[0].collective}")

    def release(self) -> None:
        """Do nothing: arrays go with their last name."""

    def load(self, case: Load, seconds: float) -> Iterator[Sample]:
        """Yield rates of a product that runs without a pause."""
        if case.what != "product":
            raise Missing(f"NumPy has no {case.what}")
        m, n, k = case.size
        a, b = self.normal(m, k), self.normal(k, n)
        start, last = time.perf_counter(), -_PAUSE
        while True:
            took = _time(lambda: a @ b, "").seconds
            now = time.perf_counter() - start
            if now - last >= _PAUSE:
                yield Sample(now, took, Reading())
                last = now
            if now >= seconds:
                return


def _time(call: Callable[[], Any], kernel: str, calls: int = 1) -> Timing:
    found = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        found.append((time.perf_counter() - start) / calls)
    return Timing(statistics.median(found), "processor", kernel=kernel)
