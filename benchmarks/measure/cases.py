"""What is measured: cases, and the fields of their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]

#: Bytes of an element.
WIDTHS = {"bfloat16": 2, "float16": 2, "float32": 4, "fp8": 1}


@dataclass(frozen=True)
class Product:
    """`count` products of (m, k) and (k, n) in one kernel."""

    dtype: str
    m: int
    n: int
    k: int
    count: int = 1
    kind: str = "linear"  # linear, input_gradient, weight_gradient, batched, grouped
    recipe: str = ""  # of fp8: tensorwise, rowwise, blockscale

    @property
    def id(self) -> str:
        """Return the name of the row."""
        recipe = f"-{self.recipe}" if self.recipe else ""
        return f"{self.dtype}{recipe}-{self.kind}-{self.m}x{self.n}x{self.k}x{self.count}"

    @property
    def flops(self) -> float:
        """Return the FLOPs."""
        return 2.0 * self.m * self.n * self.k * self.count

    def row(self) -> Row:
        """Return the fields that describe the timed call."""
        words = {
            "tensorwise": "fp8 e4m3, a scale each tensor -> bf16",
            "rowwise": "fp8 rowwise -> bf16",
            "blockscale": "fp8 blockscale 1x128/128x128 -> bf16",
        }
        dtype = words.get(self.recipe, self.dtype)
        return {"dtype": dtype, "products": [[self.m, self.n, self.k, self.count]]}


@dataclass(frozen=True)
class Attention:
    """One attention kernel; `heads` of queries, `kv_heads` of keys and values."""

    kernel: str  # sdpa-flash, sdpa-cudnn, sdpa-efficient, sdpa-math, unfused-eager, ...
    dtype: str
    batch: int
    heads: int
    head_dim: int
    seq: int
    causal: bool
    direction: str
    kv_heads: int = 0

    @property
    def id(self) -> str:
        """Return the name of the row."""
        kind = "causal" if self.causal else "full"
        heads = f"{self.heads}.{self.kv_heads}" if self.kv_heads else f"{self.heads}"
        shape = f"{self.batch}x{heads}x{self.seq}x{self.head_dim}"
        return f"{self.kernel}-{self.dtype}-{shape}-{kind}-{self.direction}"

    @property
    def flops(self) -> float:
        """Return the FLOPs of the scores that no mask leaves out, as README counts them."""
        pairs = 2.0 * self.batch * self.heads * self.seq * self.seq * self.head_dim
        pairs *= (self.seq + 1) / (2 * self.seq) if self.causal else 1.0
        return pairs * {"forward": 2, "backward": 5}[self.direction]

    def row(self) -> Row:
        """Return the fields that describe the timed call."""
        return {
            "kernel": self.kernel,
            "dtype": self.dtype,
            "batch": self.batch,
            "heads": self.heads,
            "kv_heads": self.kv_heads or self.heads,
            "head_dim": self.head_dim,
            "head_dim_v": self.head_dim,
            "seq_q": self.seq,
            "seq_k": self.seq,
            "causal": self.causal,
            "window": None,
            "direction": self.direction,
        }


@dataclass(frozen=True)
class Stream:
    """An element-wise operator in one implementation, on (tokens, width)."""

    operator: str
    implementation: str
    direction: str
    tokens: int
    width: int

    @property
    def id(self) -> str:
        """Return the name of the row."""
        kind = f"{self.operator}-{self.implementation}-{self.direction}"
        return f"{kind}-{self.tokens}x{self.width}"

    @property
    def elements(self) -> int:
        """Return the elements of a tensor, as the table of the operator counts them."""
        return self.tokens * self.width * (2 if self.operator == "rotary" else 1)

    @property
    def element(self) -> int:
        """Return the bytes of an element."""
        return 4 if self.operator in FULL_PRECISION else 2

    def row(self) -> Row:
        """Return the fields that describe the timed call."""
        return {
            "kernel": f"{self.operator} {self.direction}",
            "framework": f"PyTorch {self.implementation}",
            "shape": f"tokens={self.tokens} width={self.width}",
            "dtype": "float32" if self.element == 4 else "bfloat16",
            "elements": self.elements,
            "element": self.element,
            "runs": RUNS[self.operator, self.implementation, self.direction],
        }


FULL_PRECISION = ("adamw", "copy_fp32")

#: What each operator is to the model: an entry of its tables, or one kernel and what it moves.
RUNS: dict[tuple[str, str, str], list[list[Any]]] = {
    ("copy", "eager", "forward"): [["kernel", 2]],
    ("copy_fp32", "eager", "forward"): [["kernel", 2]],
    ("fill", "eager", "forward"): [["kernel", 1]],
    ("scale", "eager", "forward"): [["kernel", 2]],
    ("add", "eager", "forward"): [["kernel", 3]],
    ("sum", "eager", "forward"): [["kernel", 1]],
    ("cast_up", "eager", "forward"): [["kernel", 3]],
    ("cast_down", "eager", "forward"): [["kernel", 3]],
    ("lookup", "eager", "forward"): [["kernel", 2]],
    ("adamw", "fused", "forward"): [["kernel", 7]],
    ("gelu", "eager", "forward"): [["kernel", 2]],
    ("gelu", "eager", "backward"): [["kernel", 3]],
    ("dropout", "eager", "forward"): [["kernel", 2.5]],
    ("dropout", "eager", "backward"): [["kernel", 2.5]],
    ("dropout_add", "compiled", "forward"): [["kernel", 3.5]],
    ("layer_norm", "eager", "forward"): [["norms", "eager", "forward"]],
    ("layer_norm", "eager", "backward"): [["norms", "eager", "backward"]],
    ("layer_norm", "compiled", "forward"): [["norms", "compiled", "forward"]],
    ("layer_norm", "compiled", "backward"): [["norms", "compiled", "backward"]],
    ("rms_norm", "eager", "forward"): [["norms", "eager", "forward"]],
    ("rms_norm", "eager", "backward"): [["norms", "eager", "backward"]],
    ("rms_norm", "composite", "forward"): [["norms", "composite", "forward"]],
    ("rms_norm", "composite", "backward"): [["norms", "composite", "backward"]],
    ("rms_norm", "compiled", "forward"): [["norms", "compiled", "forward"]],
    ("rms_norm", "compiled", "backward"): [["norms", "compiled", "backward"]],
    ("swiglu", "eager", "forward"): [["gated", "eager", "forward"]],
    ("swiglu", "eager", "backward"): [["gated", "eager", "backward"]],
    ("swiglu", "halves", "forward"): [["gated", "halves", "forward"]],
    ("swiglu", "halves", "backward"): [["gated", "halves", "backward"]],
    ("swiglu", "compiled", "forward"): [["gated", "compiled", "forward"]],
    ("swiglu", "compiled", "backward"): [["gated", "compiled", "backward"]],
    ("rotary", "eager", "forward"): [["rotary", "eager", "forward"]],
    ("rotary", "eager", "backward"): [["rotary", "eager", "backward"]],
    ("rotary", "complex", "forward"): [["rotary", "complex", "forward"]],
    ("rotary", "complex", "backward"): [["rotary", "complex", "backward"]],
    ("rotary", "compiled", "forward"): [["rotary", "compiled", "forward"]],
    ("softmax", "eager", "forward"): [["softmax", "eager", "forward"]],
    ("softmax", "eager", "backward"): [["softmax", "eager", "backward"]],
    ("softmax", "compiled", "forward"): [["softmax", "fused", "forward"]],
    ("softmax", "compiled", "backward"): [["softmax", "fused", "backward"]],
    ("loss", "eager", "forward"): [["loss", "eager", "forward"]],
    ("loss", "eager", "backward"): [["loss", "eager", "backward"]],
    ("loss", "compiled", "forward"): [["loss", "logits", "forward"]],
    ("loss", "compiled", "backward"): [["loss", "logits", "backward"]],
}


@dataclass(frozen=True)
class Host:
    """What the host issues: `what`, run in `mode`; `size` counts its kernels or layers."""

    what: str
    mode: str
    size: int = 1

    @property
    def id(self) -> str:
        """Return the name of the row."""
        return f"{self.what}-{self.mode}-{self.size}".replace(" ", "_")

    def row(self) -> Row:
        """Return the fields that describe the timed call."""
        return {"what": self.what, "mode": self.mode, "count": self.size}


@dataclass(frozen=True)
class Copy:
    """A copy of `bytes_` from one memory to another."""

    way: str  # device-to-device, host-to-device, device-to-host
    bytes_: int
    pinned: bool = True

    @property
    def id(self) -> str:
        """Return the name of the row."""
        return f"{self.way}-{'pinned' if self.pinned else 'pageable'}-{self.bytes_}"

    def row(self) -> Row:
        """Return the fields that describe the timed call; a copy on the device reads and writes."""
        pinned = "" if self.way == "device-to-device" or self.pinned else ", pageable"
        moved = self.bytes_ * (2 if self.way == "device-to-device" else 1)
        return {
            "kernel": f"{self.way} copy{pinned}",
            "shape": f"{self.bytes_} bytes",
            "dtype": None,
            "bytes": moved,
        }


@dataclass(frozen=True)
class Collective:
    """A collective over all devices of the host."""

    collective: str
    message_bytes: int

    @property
    def id(self) -> str:
        """Return the name of the row."""
        return f"{self.collective}-{self.message_bytes}"

    def row(self) -> Row:
        """Return the fields that describe the timed call."""
        return {"collective": self.collective, "message_bytes": self.message_bytes}


@dataclass(frozen=True)
class Load:
    """What runs without a pause."""

    what: str  # product, layer
    dtype: str
    size: tuple[int, ...]
    mode: str = "eager"

    @property
    def id(self) -> str:
        """Return the name of the rows."""
        return f"{self.what}-{self.dtype}-{self.mode}-{'x'.join(map(str, self.size))}"

    @property
    def flops(self) -> float:
        """Return the FLOPs of one run: forward and backward of a layer without recomputation."""
        if self.what == "product":
            m, n, k = self.size
            return 2.0 * m * n * k
        tokens, hidden, ffn, heads, kv_heads = self.size
        width = hidden // heads
        weights = 2 * hidden * hidden + 2 * hidden * width * kv_heads + 3 * hidden * ffn
        scores = 2.0 * tokens * (tokens + 1) / 2 * hidden
        return 6.0 * weights * tokens + 7.0 * scores

    def row(self) -> Row:
        """Return the fields that describe the timed call."""
        return {"what": self.what, "mode": self.mode, "dtype": self.dtype, "size": self.size}


Case = Product | Attention | Stream | Host | Copy | Collective | Load
Cases = Callable[[bool], Iterator[Case]]

# (n, k) of the linear layers of models of 1 to 175 thousand million parameters, whole or in parts
LINEAR = [
    (1024, 1024), (3072, 1024), (2048, 2048), (8192, 2048), (2048, 8192), (6144, 4096),
    (4096, 4096), (28672, 4096), (4096, 14336), (10240, 8192), (1280, 8192), (8192, 1024),
    (7168, 8192), (8192, 3584), (57344, 8192), (12288, 12288), (6144, 12288), (12288, 6144),
    (128256, 4096), (50304, 2048),
]  # fmt: skip
WEIGHTS = [(4096, 4096), (28672, 4096), (4096, 14336), (10240, 8192), (2048, 2048), (12288, 12288)]


def products(tiny: bool) -> Iterator[Product]:
    """Yield the products: layers, their gradients, scores of attention, experts, fp8."""
    if tiny:
        yield Product("bfloat16", 32, 48, 64)
        yield Product("bfloat16", 32, 48, 64, kind="weight_gradient")
        yield Product("float16", 16, 16, 8, 4, "batched")
        yield Product("bfloat16", 16, 32, 16, 2, "grouped")
        yield Product("fp8", 32, 32, 64, recipe="tensorwise")
        return
    yield Product("bfloat16", 8192, 8192, 8192)
    for tokens in (1024, 2048, 4096, 8192, 16384):
        for n, k in LINEAR:
            if 2.0 * tokens * n * k > 2e10 and tokens * n < 2**30:
                yield Product("bfloat16", tokens, n, k)
    for tokens in (2048, 8192):
        for n, k in WEIGHTS:
            yield Product("bfloat16", n, k, tokens, kind="weight_gradient")
            yield Product("bfloat16", tokens, k, n, kind="input_gradient")
    for n, k in ((4096, 4096), (10240, 8192), (12288, 12288)):
        yield Product("float16", 4096, n, k)
    for width, count in ((64, 64), (64, 192), (128, 32), (128, 128), (80, 64), (96, 64)):
        for length in (1024, 2048):
            yield Product("float16", length, length, width, count, "batched")
            yield Product("float16", length, width, length, count, "batched")
    for tokens, groups in ((1024, 8), (4096, 8), (512, 32), (2048, 32), (256, 128)):
        for n, k in ((28672, 4096), (4096, 14336), (4096, 2048), (2048, 2048)):
            yield Product("bfloat16", tokens, n, k, groups, "grouped")
    for recipe in ("tensorwise", "rowwise", "blockscale"):
        yield Product("fp8", 8192, 8192, 8192, recipe=recipe)
        for tokens in (2048, 4096, 8192, 16384):
            for n, k in LINEAR[5:18]:
                large = 2.0 * tokens * n * k
                if 1e11 < large < 1e13 and (recipe == "tensorwise" or tokens == 8192):
                    yield Product("fp8", tokens, n, k, recipe=recipe)


KERNELS = ("sdpa-flash", "sdpa-cudnn", "sdpa-efficient")
UNFUSED = ("sdpa-math", "unfused-eager", "unfused-compiled")


def attention(tiny: bool) -> Iterator[Attention]:
    """Yield attention: 16,384 tokens and 2,048 wide, as FlashAttention's own benchmark."""
    if tiny:
        for kernel in ("sdpa-math", "unfused-eager"):
            for direction in ("forward", "backward"):
                yield Attention(kernel, "float32", 1, 2, 8, 16, True, direction)
        return
    for kernel in KERNELS:
        for width in (64, 128, 256):
            for seq in (512, 1024, 2048, 4096, 8192, 16384):
                for causal in (True, False):
                    for direction in ("forward", "backward"):
                        shape = (16384 // seq, 2048 // width, width, seq)
                        yield Attention(kernel, "bfloat16", *shape, causal, direction)
    for kernel in KERNELS[:2]:
        for width in (96, 128):  # groups of queries, and a width between
            for direction in ("forward", "backward"):
                grouped = 8 if width == 128 else 0
                yield Attention(kernel, "bfloat16", 2, 32, width, 4096, True, direction, grouped)
    for kernel in UNFUSED:
        for width, seq in ((64, 1024), (64, 2048), (128, 2048), (128, 4096)):
            for direction in ("forward", "backward"):
                shape = (8192 // seq, 2048 // width, width, seq)
                yield Attention(kernel, "float16", *shape, True, direction)


SIZES = [(128, 1024), (1024, 2048), (2048, 4096), (8192, 4096), (16384, 8192)]


def streams(tiny: bool) -> Iterator[Stream]:
    """Yield the element-wise passes, of few elements and of many."""
    for operator, implementation, direction in RUNS:
        if operator == "loss":
            sizes = [(2048, 32000), (4096, 50304), (4096, 128256)]
        elif operator == "softmax":
            sizes = [(16384, 1024), (65536, 2048), (32768, 4096)]
        elif operator == "rotary":
            sizes = [(128, 1024), (2048, 4096), (8192, 4096), (16384, 8192)]
        elif operator in ("adamw", "copy", "add"):
            sizes = [*SIZES, (4096, 4096), (32768, 8192)]
        elif implementation == "compiled":
            sizes = SIZES[2:]
        else:
            sizes = SIZES
        for tokens, width in [(16, 32)] if tiny else sizes:
            yield Stream(operator, implementation, direction, tokens, width)


def host(tiny: bool) -> Iterator[Host]:
    """Yield the calls that the host issues: operators, layers, chains of kernels, updates."""
    yield Host("python loop", "10000 times")  # says how fast the processor is
    for what in ("add", "mm", "linear", "dropout", "layer_norm", "add with autograd"):
        yield Host(what, "eager")
    yield Host("copy to host", "eager")
    for layer in ("llama layer", "gpt layer", "gpt layer, autocast"):
        for direction in ("forward", "backward"):
            yield Host(f"{layer} {direction}", "eager", 2 if tiny else 8)
    if not tiny:
        for layer in ("llama layer", "gpt layer"):
            for direction in ("forward", "backward"):
                yield Host(f"{layer} {direction}", "compiled", 8)
    yield Host("llama layer forward and backward", "graph replay", 1)
    for size in (1, 4) if tiny else (1, 10, 50, 200, 1000):
        yield Host("chain of small kernels", "graph replay", size)
    for size in () if tiny else (1, 2, 4, 8, 16):
        yield Host("chain of small kernels", "compiled", size)
    for mode in ("for-loop", "foreach", "fused"):
        yield Host("AdamW step of llama layers", mode, 2 if tiny else 8)


def copies(tiny: bool) -> Iterator[Copy]:
    """Yield copies within the device, and to and from the host."""
    sizes = [2**12] if tiny else [2**p for p in (16, 20, 22, 24, 26, 28, 30)]
    for size in sizes:
        yield Copy("device-to-device", size)
    for size in sizes:
        for way in ("host-to-device", "device-to-host"):
            yield Copy(way, size)
    for way in ("host-to-device", "device-to-host"):
        yield Copy(way, sizes[-2:][0], pinned=False)


def collectives(tiny: bool) -> Iterator[Collective]:
    """Yield collectives over all devices of the host."""
    for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"):
        for size in [2**12] if tiny else [2**p for p in range(14, 32, 2)]:
            yield Collective(name, size)


def loads(tiny: bool) -> Iterator[Load]:
    """Yield the long-running calls: products, and a layer forward and backward."""
    if tiny:
        yield Load("product", "bfloat16", (64, 64, 64))
        yield Load("layer", "bfloat16", (16, 32, 64, 2, 1))
        return
    yield Load("product", "bfloat16", (8192, 8192, 8192))
    yield Load("layer", "bfloat16", (8192, 8192, 28672, 64, 8))
    yield Load("layer", "bfloat16", (8192, 4096, 14336, 32, 8))
    yield Load("layer", "bfloat16", (8192, 4096, 14336, 32, 8), "compiled")
    yield Load("product", "fp8", (8192, 8192, 8192))


TABLES: dict[str, Cases] = {
    "host": host,
    "products": products,
    "attention": attention,
    "streams": streams,
    "copies": copies,
    "collectives": collectives,
    "load": loads,
}
