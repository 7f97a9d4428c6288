"""Attention over one block of keys after another; the framework merges the results.

PyTorch's context parallelism runs a kernel for each of r blocks. It merges the output of a block
with earlier outputs in fp32, with unfused operators. Backward accumulates gradients in fp32. Keys
and values are concatenated before each exchange, and so are their gradients. Outputs have o
elements, queries q, keys and values w, in bf16. A rank in eager mode moves

    forward     (r - 1) (6 + 32) o    casts, and two differences and a multiplication in fp32
                12 o + 4 (r - 1) w    the first cast and the last, keys and values joined
    backward    10 r q                gradients of queries added up
                (r - 1) 13 w + 10 w   those of keys and values, of half a block
                8 r w + 4 (r - 1) w   joined, as are keys and values
                10 (q + w)            sums that are zeroed, and the last cast

bytes. This is the last rank, which merges whole outputs; others merge halves. A compiler fuses the
operators: a merge reads a block and the sum, and writes the sum. Keys and values of all ranks are
gathered during the first block. Gradients are sent around the ring in r messages; the last one is
not hidden.

Transformer Engine's ring has a merge kernel for each tensor, in 16 bits even for FP8 attention.
With h heads, n tokens and elements of a bytes, the last of c ranks moves

    forward     (3 r - 1) a o + 2 a w     the first output is scaled, others added; k and v joined
                (5 r - 1) 4 h n           logarithms of the sums: copied, added, and read to scale
    backward    (3 r - 1) a q             the first gradient of queries is copied, others added
                (3 r / 2 + 3) a w         those of keys and values, of half a block but for the last

bytes, and all gradients of keys and values are whole where no mask is causal: (3 r + 1) a w.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from parcost import Pass, Real, Work, formula, link_resources, occurs
from parcost.numeric import minimum
from parcost_plugins.parallelism.context.exchange import FP32, ContextExchange
from parcost_plugins.parallelism.context.ring import last_gradient_message
from parcost_plugins.physics.run_choices import open_window
from parcost_plugins.vocabulary import KernelChoice, Stream, Training
from parcost_plugins.vocabulary.causes import CONTEXT
from parcost_plugins.vocabulary.operators import ATTENTION_CORE

SOURCE = (
    "PyTorch 2.6, distributed/tensor/experimental/_attention.py: _SDPAMerger, "
    "_templated_ring_attention, _templated_ring_attention_backward"
)


RING_KERNELS = (
    "Transformer Engine 2.4, pytorch/attention/dot_product_attention/context_parallel.py: "
    "AttnFuncWithCPAndKVP2P"
)


def sums(found: ContextExchange) -> Iterator[Stream]:
    """Yield the kernels that concatenate keys and values, and accumulate outputs and gradients."""
    moved = _merge_kernels(found) if found.has_merge_kernels else _operators(found)
    rows: dict[Pass, tuple[str, Real, Real]] = {
        "F": ("merges of attention outputs", *moved["F"]),
        "R": ("merges of attention outputs", *moved["F"]),
        "B": ("sums of attention gradients", *moved["B"]),
    }
    # A rank with all keys has one block, in a sweep over ranks too.
    runs = minimum(found.rounds - 1.0, 1.0)
    for pass_, (name, bytes_, kernels) in rows.items():
        if occurs(count := found.counts.get(pass_, ())):
            yield Stream(
                name=name,
                bytes_=runs * bytes_,
                kernels=runs * kernels,
                pass_=pass_,
                count=count,
                source=RING_KERNELS if found.has_merge_kernels else SOURCE,
            )


def _merge_kernels(found: ContextExchange) -> dict[Pass, tuple[Real, Real]]:
    """Return the bytes and kernels of Transformer Engine's ring in forward and backward."""
    r, a, model = found.rounds, found.element, found.model
    rows = found.tokens * found.heads
    keys = a * found.tokens * found.projected_elements
    merged = 3.0 * r - 1.0
    forward = merged * a * rows * model.value_dim + 2.0 * keys + (5.0 * r - 1.0) * FP32 * rows
    added = 1.5 * r + 3.0 if model.causal else 3.0 * r + 1.0
    backward = merged * a * rows * model.qk_dim + added * keys
    return {"F": (forward, 2.0 * r + 1.0), "B": (backward, 2.0 * r + 1.0)}


def _operators(found: ContextExchange) -> dict[Pass, tuple[Real, Real]]:
    """Return the bytes and kernels of PyTorch's operators in forward and backward."""
    r, f, a = found.rounds, found.sums, found.element
    training, model = found.study[Training], found.model
    out = found.tokens * found.heads * model.value_dim
    queries = found.tokens * found.heads * model.qk_dim
    keys = found.tokens * found.projected_elements
    joined = (r - 1.0) * 2.0 * a * keys
    compiled = (found.study[KernelChoice].mode or training.framework.mode) == "compiled"
    if compiled:
        forward = out * ((r - 1.0) * (a + 2.0 * f) + a + f)
        backward = r * (a + 2.0 * f) * (queries + keys) + (a + f) * (queries + keys)
        kernels = r
    else:
        forward = out * ((r + 1.0) * (a + f) + (r - 1.0) * 8.0 * f)
        added = (a + 2.0 * f) + (r - 1.0) * (a / 2.0 + 3.0 * f)
        backward = r * (a + 2.0 * f) * queries + (added + 2.0 * r * f) * keys
        backward = backward + (a + 2.0 * f) * (queries + keys)
        kernels = 8.0 * r
    return {"F": (forward + joined, kernels), "B": (backward + joined, kernels)}


def gather_work(found: ContextExchange) -> Iterator[Work]:
    """Yield the all-gathers of keys and values, and the messages of their gradients.

    A gather overlaps with the first of r blocks. A message of gradients overlaps with the next
    block, except the last message.
    """
    study, group, r = found.study, found.all_ranks, found.rounds
    n = found.size("s b w e")
    gather = study.collective("all_gather", n, group, found.algorithm)
    sent = study.collective("point_to_point", found.size("s / c b w g"), group, found.algorithm)
    hidden = formula("(r - 1) t", r=r, t=(sent.formula, "s"), source=sent.formula.source)
    passes: tuple[Pass, ...] = ("F", "R", "B")
    hosts = list(dict.fromkeys(host for host, _ in found.cores))
    for host, pass_ in product(hosts, passes):
        if not occurs(count := found.cores.get((host, pass_), ())):
            continue
        of = "" if host == ATTENTION_CORE else f", {host}"
        window = open_window(study, host)
        yield Work(
            name=f"KV all-gather{of}",
            cause=CONTEXT,
            seconds=gather.formula,
            pass_=pass_,
            count=count,
            window=window,
            share=1.0 / r,
            slowdown=found.slowdown,
            bytes_=n.value,
            latency=gather.latency,
            **link_resources(group.flat),
        )
        if pass_ == "B":
            yield Work(
                name=f"KV gradient ring{of}",
                cause=CONTEXT,
                seconds=hidden,
                pass_=pass_,
                count=count,
                window=window,
                share=1.0 - 1.0 / r,
                slowdown=found.slowdown,
                bytes_=(r - 1.0) * found.block_gradients,
                latency=(r - 1.0) * sent.latency,
                **link_resources(group.hop),
            )
            yield last_gradient_message(found, sent, host, count)
