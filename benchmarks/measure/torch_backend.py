"""Kernels of PyTorch, on a device of CUDA or, to try the kit, on the processor."""

from __future__ import annotations

import gc
import math
import platform
import statistics
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from .backend import Facts, Missing, Reading, Sample, Timing
from .cases import WIDTHS, Attention, Collective, Copy, Host, Load, Product, Stream
from .machine import processor

Call = Callable[[], Any]

TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
SDPA = {
    "sdpa-flash": SDPBackend.FLASH_ATTENTION,
    "sdpa-cudnn": SDPBackend.CUDNN_ATTENTION,
    "sdpa-efficient": SDPBackend.EFFICIENT_ATTENTION,
    "sdpa-math": SDPBackend.MATH,
}
# Names of devices in the catalogue, by the driver's.
DEVICES = {
    "NVIDIA A100-SXM4-40GB": "a100_sxm_40g",
    "NVIDIA A100-SXM4-80GB": "a100_sxm_80g",
    "NVIDIA B200": "b200",
    "NVIDIA GB200": "gb200",
    "NVIDIA GB300": "gb300",
    "NVIDIA H100 80GB HBM3": "h100_sxm",
    "NVIDIA H100 PCIe": "h100_pcie",
    "NVIDIA H100 NVL": "h100_nvl",
    "NVIDIA H200": "h200_sxm",
    "Tesla V100-SXM2-16GB": "v100_sxm2_16g",
    "Tesla V100-SXM2-32GB": "v100_sxm2_32g",
    "Tesla V100-SXM3-32GB": "v100_sxm3_32g",
    "AMD Instinct MI300X": "mi300x",
}
#: Inputs take turns so that none is in the cache, of which the greatest is one of 256 MB.
ROTATED = 512 * 2**20
SEED = 20


class TorchBackend:
    """The kernels of PyTorch; each sample of a timing is a graph or a queue of calls."""

    def __init__(self, *, cpu: bool = False, device: str | None = None) -> None:
        if not cpu and not torch.cuda.is_available():
            raise Missing("PyTorch sees no accelerator; --cpu tries the kit on the processor")
        self.cuda = not cpu
        self.ranks = 1
        self.where = torch.device("cuda" if self.cuda else "cpu")
        torch.manual_seed(SEED)
        self.stream_ = torch.cuda.Stream() if self.cuda else None
        if self.stream_ is not None:
            torch.cuda.set_stream(self.stream_)
        torch._dynamo.config.recompile_limit = 64  # noqa: SLF001
        torch._functorch.config.donated_buffer = False  # noqa: SLF001
        self.monitor = Monitor() if self.cuda else None
        name = torch.cuda.get_device_name() if self.cuda else platform.processor() or "processor"
        cudnn = torch.backends.cudnn.version() if self.cuda else None
        self.facts = Facts(
            device=device or DEVICES.get(name, name),
            name=name,
            cpu=processor(),
            software=f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {cudnn}"
            if self.cuda
            else f"PyTorch {torch.__version__}",
            driver=self.monitor.driver if self.monitor else None,
        )

    # Timing

    def wait(self) -> None:
        """Wait for the device."""
        if self.cuda:
            torch.cuda.synchronize()

    def reading(self) -> Reading:
        """Return the clock and the power of this moment."""
        return self.monitor.read() if self.monitor else Reading()

    def time(self, calls: list[Call], *, graph: bool, least: float = 0.04) -> Timing:
        """Return the median time of one call; *calls* take turns."""
        try:
            for call in calls[:2] * 2:
                call()
            self.wait()
            once = self.span(calls, 1)
            if not self.cuda:
                return Timing(min(once, self.span(calls, 1)), "processor")
            if graph and once < 2e-3:
                return self.graphed(calls, once, least)
            number = max(1, math.ceil(least / 4 / once / len(calls)))
            spans = [self.span(calls, number) for _ in range(4)]
            self.queue(calls, number)
            reading = self.reading()
            self.wait()
            return Timing(statistics.median(spans), "events", reading=reading)
        except torch.cuda.OutOfMemoryError as error:
            raise Missing(f"out of memory: {str(error).partition('.')[0]}") from None

    def queue(self, calls: list[Call], number: int) -> None:
        """Run all calls *number* times."""
        # Results take turns as inputs do: one that is written again and again stays in the cache.
        kept: deque[Any] = deque(maxlen=len(calls))
        for _ in range(number):
            for call in calls:
                kept.append(call())

    def span(self, calls: list[Call], number: int) -> float:
        """Return the seconds of a call in a queue of them."""
        if not self.cuda:
            start = time.perf_counter()
            self.queue(calls, number)
            return (time.perf_counter() - start) / number / len(calls)
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        self.queue(calls, number)
        last.record()
        self.wait()
        return first.elapsed_time(last) * 1e-3 / number / len(calls)

    def graphed(self, calls: list[Call], once: float, least: float) -> Timing:
        """Return the time of a call from replays of a graph, which do not wait for the host."""
        number = max(1, min(math.ceil(2e-3 / once / len(calls)), math.ceil(400 / len(calls))))
        captured = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(captured, stream=self.stream_):
                self.queue(calls, number)
        except RuntimeError as error:
            if "out of memory" in str(error):
                raise
            torch.cuda.synchronize()
            return Timing(self.span(calls, number), "events", notes="cannot be captured")
        captured.replay()
        spans = []
        end = time.perf_counter() + least
        while len(spans) < 5 or (time.perf_counter() < end and len(spans) < 50):
            spans.append(self.span([captured.replay], 1) / number / len(calls))
        captured.replay()
        reading = self.reading()
        self.wait()
        return Timing(statistics.median(spans), "device", reading=reading)

    def sets(self, bytes_: float) -> int:
        """Return how many sets of inputs of *bytes_* are more than a cache holds."""
        return max(1, min(64, math.ceil(ROTATED / max(bytes_, 1)))) if self.cuda else 1

    def random(self, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        """Return normal random numbers."""
        try:
            return torch.randn(*shape, device=self.where, dtype=dtype)
        except torch.cuda.OutOfMemoryError as error:
            raise Missing(f"out of memory: {str(error).partition('.')[0]}") from None

    def release(self) -> None:
        """Give memory back that no tensor has, before little is left."""
        if self.cuda:
            free, whole = torch.cuda.mem_get_info()
            if free < whole / 2:
                gc.collect()
                torch.cuda.empty_cache()

    # Products

    def product(self, case: Product) -> Timing:
        """Time a matrix product."""
        moved = case.count * (case.m * case.k + case.k * case.n + case.m * case.n)
        number = min(self.sets(moved * WIDTHS[case.dtype]), 8)
        made = [self.multiply(case) for _ in range(number)]
        kernel = made[0][1]
        try:
            return _with(self.time([call for call, _ in made], graph=True), kernel=kernel)
        except (RuntimeError, NotImplementedError, ValueError) as error:
            raise Missing(_first_line(error)) from None

    def multiply(self, case: Product) -> tuple[Call, str]:
        """Return a call of the product, and the name of the function."""
        m, n, k, count = case.m, case.n, case.k, case.count
        if case.dtype == "fp8":
            return self.narrow(case)
        dtype = TYPES[case.dtype]

        def random(*shape: int) -> Tensor:
            return self.random(*shape, dtype=dtype)

        if case.kind == "batched":
            a, b = random(count, m, k), random(count, k, n)
            return lambda: torch.bmm(a, b), "torch.bmm"
        if case.kind == "grouped":
            if not hasattr(torch, "_grouped_mm"):
                raise Missing("this PyTorch has no grouped products")
            rows, weights = random(count * m, k), random(count, n, k).transpose(1, 2)
            ends = torch.arange(m, (count + 1) * m, m, device=self.where, dtype=torch.int32)
            return lambda: torch._grouped_mm(rows, weights, offs=ends), "torch._grouped_mm"  # noqa: SLF001
        if case.kind == "input_gradient":
            a, b = random(m, k), random(k, n)
        elif case.kind == "weight_gradient":
            a, b = random(k, m).t(), random(k, n)
        else:
            a, b = random(m, k), random(n, k).t()
        return lambda: torch.mm(a, b), f"torch.mm, {case.kind.replace('_', ' ')}"

    def narrow(self, case: Product) -> tuple[Call, str]:
        """Return a call of a product in fp8."""
        m, n, k = case.m, case.n, case.k
        if not hasattr(torch, "_scaled_mm"):
            raise Missing("this PyTorch has no products in fp8")
        if self.cuda and torch.cuda.get_device_capability() < (8, 9):
            raise Missing("the device has no fp8")
        a = self.random(m, k).to(torch.float8_e4m3fn)
        b = self.random(n, k).to(torch.float8_e4m3fn).t()
        full = {"dtype": torch.float32, "device": self.where}
        if case.recipe == "tensorwise":
            scale, other = torch.ones((), **full), torch.ones((), **full)
        elif case.recipe == "rowwise":
            scale, other = torch.ones(m, 1, **full), torch.ones(1, n, **full)
        else:
            scale = torch.ones(k // 128, m, **full).t()
            other = torch.ones(n // 128, k // 128, **full).t()
        fast = case.recipe != "blockscale"

        def call() -> Tensor:
            return torch._scaled_mm(  # noqa: SLF001
                a, b, scale, other, out_dtype=torch.bfloat16, use_fast_accum=fast
            )

        return call, f"torch._scaled_mm{', fast accumulation' if fast else ''}"

    # Attention

    def attention(self, case: Attention) -> Timing:
        """Time an attention kernel."""
        if self.cuda and case.kernel in SDPA and case.head_dim > 256:
            raise Missing("no kernel for heads of this size")
        heads = case.kv_heads or case.heads
        dtype = TYPES[case.dtype]
        shape = (case.batch, case.heads, case.seq, case.head_dim)
        small = (case.batch, heads, case.seq, case.head_dim)
        made = [(shape, True), (small, True), (small, True), (shape, False)]
        q, k, v, dy = (self.random(*s, dtype=dtype).requires_grad_(need) for s, need in made)
        run = self.attend(case)
        try:
            if case.direction == "forward":
                with torch.no_grad():
                    return self.time([lambda: run(q, k, v)], graph=True)
            y = run(q, k, v)
            return self.time([lambda: _gradients(y, (q, k, v), dy)], graph=True)
        except torch.cuda.OutOfMemoryError as error:
            raise Missing(f"out of memory: {str(error).partition('.')[0]}") from None
        except RuntimeError as error:
            raise Missing(_first_line(error)) from None

    def attend(self, case: Attention) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        """Return the function of the kernel."""
        if case.kernel in SDPA:
            grouped = bool(case.kv_heads) and case.kv_heads != case.heads

            def fused_call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
                with sdpa_kernel(SDPA[case.kernel]):
                    return F.scaled_dot_product_attention(
                        q, k, v, is_causal=case.causal, enable_gqa=grouped
                    )

            return fused_call
        hidden = torch.ones(case.seq, case.seq, device=self.where, dtype=torch.bool).triu(1)
        scale = case.head_dim**-0.5

        def plain_call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            scores = (q @ k.transpose(-1, -2)) * scale
            if case.causal:
                scores = scores.masked_fill(hidden, -10000.0)
            return torch.softmax(scores, -1) @ v

        if case.kernel == "unfused-compiled":
            return _compile(plain_call)
        return plain_call

    # Element-wise passes

    def stream(self, case: Stream) -> Timing:
        """Time an element-wise pass."""
        if case.operator == "adamw":
            return self.adamw(case)
        function, make = self.operator(case)
        if case.implementation == "compiled":
            function = _compile(function)
        number = self.sets(case.elements * case.element * 2)
        calls: list[Call] = []
        try:
            for _ in range(number):
                inputs = make()
                if case.direction == "forward":
                    calls.append(_forward_call(function, inputs))
                else:
                    wanted = tuple(x for x in inputs if x.is_floating_point())
                    for x in wanted:
                        x.requires_grad_()
                    y = function(*inputs)
                    dy = [torch.randn_like(each) for each in (y if isinstance(y, tuple) else (y,))]
                    calls.append(_backward(y, wanted, dy))
            return self.time(calls, graph=True)
        except torch.cuda.OutOfMemoryError as error:
            raise Missing(f"out of memory: {str(error).partition('.')[0]}") from None

    def operator(self, case: Stream) -> tuple[Callable[..., Tensor], Callable[[], list[Tensor]]]:
        """Return the function of an operator, and a function that makes its inputs."""
        tokens, width = case.tokens, case.width
        name, kind = case.operator, case.implementation
        gain, bias = self.random(width), self.random(width)

        def one() -> list[Tensor]:
            return [self.random(tokens, width)]

        def two() -> list[Tensor]:
            return [self.random(tokens, width), self.random(tokens, width)]

        def with_gain() -> list[Tensor]:
            return [self.random(tokens, width), gain.clone()]

        if name == "rms_norm":
            if kind == "eager":
                return (lambda x, g: F.rms_norm(x, (width,), g, 1e-5)), with_gain
            return rms_norm, with_gain
        if name == "layer_norm":
            return (lambda x, g, b: F.layer_norm(x, (width,), g, b)), lambda: [
                *with_gain(),
                bias.clone(),
            ]
        if name == "swiglu":
            if kind == "halves":
                return halves, lambda: [self.random(tokens, 2 * width)]
            return (lambda g, u: F.silu(g) * u), two
        if name == "rotary":
            size = min(128, width)
            angles = self.random(tokens, size // 2, dtype=torch.float32)
            if kind == "complex":
                turn = torch.polar(torch.ones_like(angles), angles)[:, None]
                return (
                    lambda q, k: _forward_and_backward(q, k, lambda x: rotate(x, turn))
                ), lambda: [self.random(tokens, width // size, size) for _ in range(2)]
            both = torch.cat((angles, angles), -1)[:, None].bfloat16()
            cosine, sine = both.cos(), both.sin()
            return (
                lambda q, k: _forward_and_backward(q, k, lambda x: rotated(x, cosine, sine))
            ), lambda: [self.random(tokens, width // size, size) for _ in range(2)]
        if name == "softmax":
            mask = torch.ones(width, width, device=self.where, dtype=torch.bool).triu(1)
            parts = max(1, tokens // width)
            return (lambda x: softmax(x, mask)), lambda: [
                self.random(parts, tokens // parts, width)
                if tokens >= width
                else self.random(1, width, width)
            ]
        if name == "loss":
            targets = torch.randint(width, (tokens,), device=self.where)
            return (lambda x: F.cross_entropy(x.float(), targets)), one
        if name == "lookup":
            table = self.random(50304, width)
            where = torch.randint(50304, (tokens,), device=self.where)
            return (lambda x: F.embedding(x, table)), lambda: [where.clone()]
        if name == "cast_down":
            return (lambda x: x.bfloat16()), lambda: [
                self.random(tokens, width, dtype=torch.float32)
            ]
        if name == "copy_fp32":
            return (lambda x: x.clone()), lambda: [self.random(tokens, width, dtype=torch.float32)]
        if name == "add":
            return torch.add, two
        if name == "dropout_add":
            return (lambda x, y: F.dropout(x, 0.1) + y), two
        plain: dict[str, Callable[..., Tensor]] = {
            "copy": lambda x: x.clone(),
            "fill": lambda x: x.zero_(),
            "scale": lambda x: x * 0.5,
            "sum": lambda x: x.sum(0),
            "cast_up": lambda x: x.float(),
            "gelu": lambda x: F.gelu(x, approximate="tanh"),
            "dropout": lambda x: F.dropout(x, 0.1),
        }
        if name not in plain:
            raise Missing(f"no operator {name}")
        return plain[name], one

    def adamw(self, case: Stream) -> Timing:
        """Time the fused update of one parameter in fp32."""
        parameter = nn.Parameter(self.random(case.tokens, case.width, dtype=torch.float32))
        parameter.grad = torch.randn_like(parameter)
        update = torch.optim.AdamW([parameter], lr=1e-5, fused=True, capturable=self.cuda)
        return self.time([update.step], graph=True)

    # Host

    def host(self, case: Host) -> Timing:
        """Time the launch of kernels on the host."""
        gc.collect()
        gc.disable()
        try:
            return self.issue(case)
        finally:
            gc.enable()

    def issue(self, case: Host) -> Timing:
        """Return the time of the host, and the kernels that it issues in it."""
        if "layer" in case.what and case.what.endswith(("forward", "backward")):
            return self.layers(case)
        if case.what.startswith("AdamW"):
            stack = self.network("llama layer", case.size)
            for parameter in stack.parameters():
                parameter.grad = torch.randn_like(parameter)
            kinds: dict[str, dict[str, bool]] = {
                "for-loop": {"foreach": False},
                "foreach": {"foreach": True},
                "fused": {"fused": True},
            }
            update = torch.optim.AdamW(stack.parameters(), lr=1e-5, **kinds[case.mode])
            found = self.walls([(lambda: None, update.step)], 30)
            tensors = len(list(stack.parameters()))
            return _with(found, notes=f"{tensors} tensors in fp32; the time is that of a step")
        if case.what.startswith("chain"):
            return self.chain(case)
        number = 200 if self.cuda else 20
        x = self.random(64, 256)
        weight, gain = self.random(256, 256), self.random(256)
        graded = x.clone().requires_grad_()
        calls: dict[str, Call] = {
            "add": lambda: torch.add(x, x),
            "linear": lambda: F.linear(x, weight),
            "mm": lambda: torch.mm(x, weight),
            "dropout": lambda: F.dropout(x, 0.1),
            "layer_norm": lambda: F.layer_norm(x, (256,), gain, gain),
            "add with autograd": lambda: torch.add(graded, graded),
            "copy to host": x[0, 0].item,
        }
        if case.what == "python loop":
            return self.walls([(lambda: None, _loop)], 20)
        call = calls[case.what]
        found = self.walls([(lambda: None, lambda: self.queue([call], number))], 20)
        kernels, busy = found.kernels, found.busy
        return Timing(
            found.seconds / number,
            "host",
            kernels=kernels / number if kernels else None,
            busy=busy / number if busy else None,
            notes=f"a queue of {number}",
        )

    def walls(self, calls: list[tuple[Call, Call]], repeats: int) -> Timing:
        """Return the median time of a call, up to its return, each after its preparation."""
        ((prepare, call),) = calls
        found, drained = [], []
        for at in range(repeats + 3):
            prepare()
            self.wait()
            start = time.perf_counter()
            call()
            issued = time.perf_counter()
            self.wait()
            if at >= 3:
                found.append(issued - start)
                drained.append(time.perf_counter() - start)
        prepare()
        self.wait()
        kernels, busy = self.profiled(call)
        seconds = statistics.median(found)
        return Timing(
            seconds,
            "host",
            kernels=kernels,
            busy=busy,
            notes=f"{statistics.median(drained) * 1e6:.0f} us until the device is done",
        )

    def profiled(self, call: Call) -> tuple[float | None, float | None]:
        """Return the kernels of a call, and the seconds that the device runs them."""
        if not self.cuda:
            return None, None
        try:
            from torch.profiler import ProfilerActivity, profile

            kinds = [ProfilerActivity.CUDA, ProfilerActivity.CPU]
            with profile(activities=kinds) as seen:
                call()
                self.wait()
            found = [e for e in seen.events() or () if _on_device(e)]
        except RuntimeError:
            return None, None
        if not found:
            return None, None
        return float(len(found)), sum(e.time_range.elapsed_us() for e in found) * 1e-6

    def network(self, kind: str, size: int) -> nn.Module:
        """Return small layers, so that the host dominates."""
        dtype = torch.bfloat16
        if kind.startswith("gpt"):
            dtype = torch.float32 if "autocast" in kind else torch.float16
        make = GptLayer if kind.startswith("gpt") else LlamaLayer
        if not self.cuda:
            dtype = torch.float32
        layers = [make(256, 1024, 4, 4) for _ in range(size)]
        return nn.Sequential(*layers).to(device=self.where, dtype=dtype)

    def layers(self, case: Host) -> Timing:
        """Time a pass of a stack of layers on few tokens."""
        kind, _, direction = case.what.rpartition(" ")
        kind = kind.removesuffix(" forward and")
        stack = self.network(kind, case.size)
        dtype = next(stack.parameters()).dtype
        x = self.random(64, 256, dtype=dtype).requires_grad_()
        y0 = self.random(64, 256, dtype=dtype)
        if case.mode == "compiled":
            for layer in stack:
                layer.compile(dynamic=False)
        kept: list[Tensor] = []
        mixed = self.cuda and "autocast" in kind

        def forward() -> None:
            kept.clear()
            with torch.autocast("cuda", torch.bfloat16) if mixed else nullcontext():
                kept.append(stack(x))

        def cleared() -> None:
            forward()
            for parameter in stack.parameters():
                parameter.grad = None

        def backward() -> None:
            kept[0].backward(y0.to(kept[0].dtype))

        if case.mode == "graph replay":
            return self.replay(stack, x, y0)
        if direction == "forward":
            found = self.walls([(kept.clear, forward)], 30)
        else:
            found = self.walls([(cleared, backward)], 30)
        return Timing(
            found.seconds / case.size,
            "host",
            kernels=found.kernels / case.size if found.kernels else None,
            busy=found.busy / case.size if found.busy else None,
            notes=f"a layer of {case.size}; 64 tokens, 256 wide; of all, {found.notes}",
        )

    def replay(self, stack: nn.Module, x: Tensor, dy: Tensor) -> Timing:
        """Time the replay of a graph of a layer."""
        if not self.cuda:
            raise Missing("the processor has no graphs")

        def both() -> None:
            torch.autograd.grad(stack(x), (x, *stack.parameters()), dy)

        for _ in range(3):
            both()
        self.wait()
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured, stream=self.stream_):
            both()
        return self.walls([(lambda: None, captured.replay)], 50)

    def chain(self, case: Host) -> Timing:
        """Time a chain of small kernels, as a graph or as the compiler's kernels."""
        if not self.cuda:
            raise Missing("the processor has no graphs")
        x = self.random(64, 64, dtype=torch.float32)

        def chained(x: Tensor) -> Tensor:
            for at in range(case.size):
                x = torch.softmax(x, at % 2)  # along both ways in turn: nothing to fuse
            return x

        if case.mode == "compiled":
            run = _compile(chained)
            number = max(1, 64 // case.size)
            with torch.no_grad():
                found = self.walls(
                    [(lambda: None, lambda: self.queue([lambda: run(x)], number))], 30
                )
            return _with(
                found,
                seconds=found.seconds / number,
                kernels=found.kernels / number if found.kernels else None,
                busy=found.busy / number if found.busy else None,
                notes=f"a queue of {number} calls",
            )
        captured = torch.cuda.CUDAGraph()
        y = x.clone()
        y.add_(1.0)
        self.wait()
        with torch.cuda.graph(captured, stream=self.stream_):
            for _ in range(case.size):
                y.add_(1.0)
        found = self.walls([(lambda: None, captured.replay)], 50)
        queued = self.span([captured.replay], 20)
        return _with(found, notes=f"{found.notes}; {queued * 1e6:.2f} us each in a queue of 20")

    # Copies

    def copy(self, case: Copy) -> Timing:
        """Time a copy."""
        if case.way == "device-to-device":
            one = torch.empty(case.bytes_, dtype=torch.uint8, device=self.where).random_()
            other = torch.empty_like(one)
            return self.time([lambda: other.copy_(one)], graph=True)
        if not self.cuda:
            raise Missing("the processor is the host")
        far = torch.empty(case.bytes_, dtype=torch.uint8, pin_memory=case.pinned)
        near = torch.empty(case.bytes_, dtype=torch.uint8, device=self.where)
        if case.way == "host-to-device":
            return self.time([lambda: near.copy_(far, non_blocking=True)], graph=False)
        return self.time([lambda: far.copy_(near, non_blocking=True)], graph=False)

    # Collectives

    def collectives(self, cases: Sequence[Collective]) -> Iterator[tuple[Collective, Timing]]:
        """Yield the time of collectives over all devices of the host."""
        self.ranks = torch.cuda.device_count() if self.cuda else 2
        if self.ranks < 2:
            raise Missing("a collective needs two devices")
        from .ranks import run

        yield from run(cases, self.ranks, cuda=self.cuda)

    # Load

    def load(self, case: Load, seconds: float) -> Iterator[Sample]:
        """Yield rates of a case that runs without a pause; the first is that of a short burst."""
        self.release()
        call = self.loaded(case)
        try:
            call()
            call()
            self.wait()
        except torch.cuda.OutOfMemoryError as error:
            raise Missing(f"out of memory: {str(error).partition('.')[0]}") from None
        time.sleep(min(5.0, seconds / 6))  # the device cools down, and its clock goes up
        call()
        burst = self.span([call], max(1, min(10, int(0.02 / self.span([call], 1)))))
        yield Sample(0.0, burst, self.reading())
        number = max(1, int(min(0.5, seconds / 4) / burst))
        start = time.perf_counter()
        while (now := time.perf_counter() - start) < seconds:
            if self.cuda:
                first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                first.record()
                self.queue([call], number // 2 + 1)
                middle = torch.cuda.Event()
                middle.record()
                self.queue([call], number - number // 2)
                last.record()
                middle.synchronize()
                reading = self.reading()
                last.synchronize()
                took = first.elapsed_time(last) * 1e-3 / (number + 1)
            else:
                took, reading = self.span([call], number), Reading()
            yield Sample(now, took, reading)

    def loaded(self, case: Load) -> Call:
        """Return the calls that run without a pause."""
        if case.what == "product":
            m, n, k = case.size
            recipe = "tensorwise" if case.dtype == "fp8" else ""
            return self.multiply(Product(case.dtype, m, n, k, recipe=recipe))[0]
        tokens, hidden, ffn, heads, kv_heads = case.size
        layer = LlamaLayer(hidden, ffn, heads, kv_heads)
        layer = layer.to(device=self.where, dtype=TYPES[case.dtype])
        if case.mode == "compiled":
            layer.compile(dynamic=False)
        x = self.random(tokens, hidden, dtype=TYPES[case.dtype]).requires_grad_()
        dy = self.random(tokens, hidden, dtype=TYPES[case.dtype])

        def both() -> None:
            torch.autograd.grad(layer(x), (x, *layer.parameters()), dy)

        return both


class LlamaLayer(nn.Module):
    """A layer in the operators of PyTorch, as torchtitan writes it: (tokens, hidden)."""

    def __init__(self, hidden: int, ffn: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, hidden // heads
        self.attention_norm, self.norm = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.key = nn.Linear(hidden, kv_heads * self.size, bias=False)
        self.value = nn.Linear(hidden, kv_heads * self.size, bias=False)
        self.output = nn.Linear(hidden, hidden, bias=False)
        self.gate = nn.Linear(hidden, ffn, bias=False)
        self.up = nn.Linear(hidden, ffn, bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)
        self.turn: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the stream after the layer."""
        tokens = x.shape[0]
        if self.turn is None:
            angles = torch.randn(tokens, self.size // 2, device=x.device)
            self.turn = torch.polar(torch.ones_like(angles), angles)[:, None]
        y = self.attention_norm(x)
        q = rotate(self.query(y).view(tokens, self.heads, self.size), self.turn)
        k = rotate(self.key(y).view(tokens, self.kv_heads, self.size), self.turn)
        v = self.value(y).view(tokens, self.kv_heads, self.size)
        q, k, v = (each.transpose(0, 1)[None] for each in (q, k, v))
        grouped = self.heads != self.kv_heads
        found = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
        x = x + self.output(found[0].transpose(0, 1).reshape(tokens, -1))
        y = self.norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class GptLayer(nn.Module):
    """A layer with scores that are stored, biases and dropout, in the operators of PyTorch."""

    def __init__(self, hidden: int, ffn: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, hidden // heads
        del kv_heads
        self.attention_norm, self.norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.joint, self.output = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, ffn), nn.Linear(ffn, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Return the stream after the layer."""
        tokens = x.shape[0]
        joint = self.joint(self.attention_norm(x)).view(tokens, self.heads, 3 * self.size)
        q, k, v = (each.transpose(0, 1) for each in joint.chunk(3, -1))
        scores = torch.baddbmm(
            torch.empty(1, 1, 1, device=x.device, dtype=q.dtype),
            q,
            k.transpose(1, 2),
            beta=0.0,
            alpha=self.size**-0.5,
        )
        mask = torch.ones(tokens, tokens, device=x.device, dtype=torch.bool).triu(1)
        scores = F.dropout(torch.softmax(scores.masked_fill(mask, -10000.0), -1), 0.1)
        found = torch.bmm(scores.to(v.dtype), v).transpose(0, 1).reshape(tokens, -1)
        x = x + F.dropout(self.output(found), 0.1)
        return x + F.dropout(self.down(F.gelu(self.up(self.norm(x)), approximate="tanh")), 0.1)


class Monitor:
    """Clock, power and temperature, from the driver's library or from nvidia-smi."""

    def __init__(self) -> None:
        self.library: Any = None
        self.driver: str | None = None
        try:
            import pynvml  # type: ignore[import-not-found]

            pynvml.nvmlInit()
            self.library = pynvml
            number = f"GPU-{torch.cuda.get_device_properties().uuid}"
            self.handle = pynvml.nvmlDeviceGetHandleByUUID(number)
            found = pynvml.nvmlSystemGetDriverVersion()
            self.driver = found.decode() if isinstance(found, bytes) else found
        except Exception:  # noqa: BLE001  # the driver's library raises what it likes
            self.library = None
            found = self.query("driver_version")
            self.driver = found[0] if found else None

    def query(self, *fields: str) -> list[str] | None:
        """Return the answer of nvidia-smi for fields."""
        command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
        try:
            out = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        except (OSError, subprocess.SubprocessError):
            return None
        return [each.strip() for each in out.stdout.splitlines()[0].split(",")]

    def read(self) -> Reading:
        """Return the state of this moment."""
        library = self.library
        if library is None:
            found = self.query("clocks.sm", "power.draw", "temperature.gpu")
            if not found:
                return Reading()
            return Reading(int(found[0]), float(found[1]), int(found[2]))
        try:
            reasons = library.nvmlDeviceGetCurrentClocksThrottleReasons(self.handle)
            names = {4: "power", 0x20: "thermal", 0x40: "hardware thermal", 0x8: "hardware"}
            return Reading(
                library.nvmlDeviceGetClockInfo(self.handle, library.NVML_CLOCK_SM),
                library.nvmlDeviceGetPowerUsage(self.handle) / 1000,
                library.nvmlDeviceGetTemperature(self.handle, 0),
                ", ".join(name for bit, name in names.items() if reasons & bit) or None,
            )
        except Exception:  # noqa: BLE001  # the row is measured all the same, without a reading
            return Reading()


def rms_norm(x: Tensor, gain: Tensor) -> Tensor:
    """Return a norm operator by operator, as Llama's code has it."""
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
    return wide.to(x.dtype) * gain


def halves(x: Tensor) -> Tensor:
    """Return a gated activation of the halves of a tensor."""
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


def rotate(x: Tensor, turn: Tensor) -> Tensor:
    """Return a rotary embedding by complex numbers in fp32."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turn).flatten(-2).type_as(x)


def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Return a rotary embedding by halves."""
    one, other = x.chunk(2, -1)
    return x * cosine + torch.cat((-other, one), -1) * sine


def softmax(x: Tensor, mask: Tensor) -> Tensor:
    """Return softmax after its scale and mask."""
    seen = (x * 0.125).masked_fill_(mask[: x.shape[-2]], -10000.0)
    return torch.softmax(seen, -1)


def _loop() -> None:
    for _ in range(10000):
        pass


def _on_device(event: Any) -> bool:
    # What a range of the host is called is written over the device's kernels once more.
    named = ("Torch-Compiled", "## Call", "CompiledFunction", "ProfilerStep", "Optimizer.")
    if getattr(event, "is_user_annotation", False) or event.name.startswith(named):
        return False
    return str(event.device_type).endswith("CUDA")


def _forward_and_backward(q: Tensor, k: Tensor, function: Callable[[Tensor], Tensor]) -> Any:
    return function(q), function(k)


def _forward_call(function: Callable[..., Any], inputs: list[Tensor]) -> Call:
    def call() -> Any:
        with torch.no_grad():
            return function(*inputs)

    return call


def _backward(y: Any, inputs: tuple[Tensor, ...], dy: Any) -> Call:
    return lambda: _gradients(y, inputs, dy)


def _gradients(y: Any, inputs: tuple[Tensor, ...], dy: Any) -> Any:
    return torch.autograd.grad(y, inputs, dy, retain_graph=True)


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    torch._dynamo.reset()  # noqa: SLF001
    return torch.compile(function, dynamic=False)


def _with(timing: Timing, **changes: Any) -> Timing:
    from dataclasses import replace

    return replace(timing, **changes)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200]
