"""Collectives of PyTorch, with a process for each device."""

from __future__ import annotations

import os
import socket
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from .backend import Missing, Timing
from .cases import Collective


def run(
    cases: Sequence[Collective], ranks: int, *, cuda: bool
) -> Iterator[tuple[Collective, Timing]]:
    """Yield the median time of collectives over *ranks* devices of this host."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    queue = mp.get_context("spawn").Queue()
    context = mp.spawn(_rank, (cases, ranks, port, cuda, queue), nprocs=ranks, join=False)
    try:
        for case in cases:
            while queue.empty():
                if context.join(timeout=0.05):
                    break
            yield case, Timing(queue.get(timeout=5), "host", kernel="NCCL" if cuda else "gloo")
        while not context.join():
            pass
    except Exception as error:  # noqa: BLE001  # whatever a rank died of
        raise Missing(str(error).strip().rpartition("\n")[2]) from None


def _rank(
    rank: int, cases: Sequence[Collective], ranks: int, port: int, cuda: bool, queue: Any
) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    if cuda:
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if cuda else "gloo", rank=rank, world_size=ranks)
    for case in cases:
        found = _median(case, ranks, torch.device("cuda", rank) if cuda else torch.device("cpu"))
        if rank == 0:
            queue.put(found)
    dist.barrier()
    dist.destroy_process_group()


def _median(case: Collective, ranks: int, where: torch.device) -> float:
    elements = max(ranks, case.message_bytes // 2 // ranks * ranks)
    whole = torch.ones(elements, dtype=torch.bfloat16, device=where)
    part, other = whole[: elements // ranks].clone(), torch.empty_like(whole)

    def call() -> None:
        if case.collective == "all_reduce":
            dist.all_reduce(whole)
        elif case.collective == "all_gather":
            dist.all_gather_into_tensor(other, part)
        elif case.collective == "reduce_scatter":
            dist.reduce_scatter_tensor(part, whole)
        elif case.collective == "all_to_all":
            dist.all_to_all_single(other, whole)
        else:
            dist.broadcast(whole, 0)

    def wait() -> None:
        if where.type == "cuda":
            torch.cuda.synchronize()

    spans = []
    number = 10 if case.message_bytes < 2**26 else 2
    for at in range(15):
        dist.barrier()
        wait()
        start = time.perf_counter()
        for _ in range(number):
            call()
        wait()
        if at >= 5:
            spans.append((time.perf_counter() - start) / number)
    return statistics.median(spans)
