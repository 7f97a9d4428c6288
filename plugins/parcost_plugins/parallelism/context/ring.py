"""Ring attention: keys and values in a ring, and its causal imbalance.

With r blocks, a rank computes its own block first, then r - 1 received blocks: t_0 + (r - 1)
max(t_block, t_send). Sends overlap only with compute of the same layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from parcost import Call, Formula, Pass, Real, Work, formula, link_resources, occurs
from parcost.numeric import all_of
from parcost_plugins.parallelism.context.exchange import ContextExchange
from parcost_plugins.physics.attention_mask import (
    attended_tokens,
    attended_tokens_of_busiest,
    attended_tokens_of_busiest_pair,
)
from parcost_plugins.physics.kernel_times import kernel_seconds
from parcost_plugins.physics.partition import Counts
from parcost_plugins.physics.run_choices import open_window
from parcost_plugins.vocabulary import FusedAttention, Training
from parcost_plugins.vocabulary.causes import CONTEXT
from parcost_plugins.vocabulary.operators import ATTENTION_CORE

RING = "Liu et al. 2023 (ring attention)"
LOCK_STEP = "each step of a ring waits for the rank with an unmasked block"


def ring_work(found: ContextExchange) -> Iterator[Work]:
    """Yield the sends of each pass. Backward also sends gradients.

    They overlap with attention of the same layer only.
    """
    if isinstance(found.rounds, float) and found.rounds == 1.0:
        return
    keys = found.study.collective(
        "point_to_point", found.size("s / c b w e"), found.outer, found.algorithm
    )
    gradients = found.study.collective(
        "point_to_point", found.size("s / c b w g"), found.outer, found.algorithm
    )
    symbols, source = {"r": found.rounds, "t": (keys.formula, "s")}, keys.formula.source
    forward = formula("(r - 1) t", symbols, source=source)
    backward = formula("(r - 1) (t + t_g)", symbols, t_g=(gradients.formula, "s"), source=source)
    steps = found.rounds - 1
    hosts = list(dict.fromkeys(host for host, _ in found.cores))
    messages: dict[Pass, tuple[str, Formula, Real, Real]] = {
        "F": ("KV ring", forward, found.block, keys.latency),
        "R": ("KV ring", forward, found.block, keys.latency),
        "B": (
            "KV and gradient ring",
            backward,
            found.block + found.block_gradients,
            keys.latency + gradients.latency,
        ),
    }
    for host, (pass_, (name, seconds, bytes_, latency)) in product(hosts, messages.items()):
        if occurs(count := found.cores.get((host, pass_), ())):
            yield Work(
                name=name if host == ATTENTION_CORE else f"{name}, {host}",
                cause=CONTEXT,
                seconds=seconds,
                pass_=pass_,
                count=count,
                window=open_window(found.study, host if found.context.double_buffer else None),
                share=steps / found.rounds,
                slowdown=found.slowdown,
                bytes_=steps * bytes_,
                latency=steps * latency,
                **link_resources(found.outer.hop),
            )
            if pass_ == "B" and found.runs_blocks and not found.has_merge_kernels:
                yield last_gradient_message(found, gradients, host, count)


def last_gradient_message(found: ContextExchange, sent: Call, host: str, count: Counts) -> Work:
    """Return the last message of a pass, which returns accumulated gradients to their rank and is
    never hidden.

    PyTorch sends gradients after each of r blocks, keys and values after all but the last.
    """
    of = "" if host == ATTENTION_CORE else f", {host}"
    return Work(
        name=f"last KV gradient message{of}",
        cause=CONTEXT,
        seconds=sent.formula,
        pass_="B",
        count=count,
        slowdown=found.slowdown,
        bytes_=found.block_gradients,
        latency=sent.latency,
        **link_resources(found.outer.hop),
    )


def imbalance(found: ContextExchange) -> Iterator[Work]:
    """Yield the extra time of causal attention if each rank has one contiguous shard.

    The busiest rank has the most keys before its queries. With one document it is the last rank. It
    computes ``1/2 + (r - 1)`` full blocks and the mean rank r / 2: a factor of (2 r - 1) / r. With
    a window, or with documents no longer than a shard, the difference is small. Shards from both
    ends (zigzag) balance the ranks, except for windows: the rank with the first tokens has less
    work.
    """
    if not found.model.causal or all_of(found.rounds == 1):
        return
    zigzag = found.context.balance == "zigzag"
    busiest = attended_tokens_of_busiest_pair if zigzag else attended_tokens_of_busiest
    training = found.study[Training]
    for operator in found.study.operators:
        if isinstance(operator, FusedAttention) and (operator.windowed or not zigzag):
            seconds = kernel_seconds(operator, found.study)
            mean = attended_tokens(training, windowed=operator.windowed)
            most = busiest(training, found.rounds, windowed=operator.windowed)
            yield Work(
                name=f"imbalance of {operator.name}",
                cause=CONTEXT,
                seconds=formula(
                    "t max(k_r / k - 1, 0)",
                    t=(seconds, "s"),
                    k_r=most,
                    k=mean,
                    source=LOCK_STEP,
                ),
                pass_=operator.pass_,
                count=operator.count,
                host=operator.host,
            )
