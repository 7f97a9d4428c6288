"""Times of fused attention and of streams (memory-bound operators), common to kernel models."""

from __future__ import annotations

from functools import partial
from typing import Any

from parcost import Formula, Study, attribute, formula
from parcost_plugins.kernels.rates import (
    CoreRate,
    KernelMachine,
    attention,
    explain_attention,
    explain_streaming,
    padding,
    streaming,
)
from parcost_plugins.vocabulary import FusedAttention, KernelChoice, Stream

ROOFLINE = "Williams et al. 2009, roofline"
STEPPED = f"{ROOFLINE}, with a ceiling of instructions"


def core(operator: FusedAttention, study: Study) -> Formula:
    """Return the seconds of fused attention."""
    rate = attention(operator, study)
    return formula(
        "p (1 + f / k) FLOPs / (peak eta), p for padding of heads, "
        "k keys that a query attends to, f keys that cost as much as a block's fixed part",
        p=padding(operator, study),
        FLOPs=(operator.flops, "FLOP"),
        k=rate.keys,
        f=rate.fill,
        peak=(rate.peak, "FLOP/s"),
        eta=rate.efficiency,
        source=operator.source,
        origins=partial(_core_origins, operator, KernelMachine.from_study(study), rate),
    )


def stream(operator: Stream, study: Study) -> Formula:
    """Return the seconds of an operator that is limited by memory bandwidth, or by work per
    element.
    """
    choice, machine = study[KernelChoice], KernelMachine.from_study(study)
    bandwidth, share = streaming(operator, machine)
    symbols = {
        "bytes": (operator.bytes_, "B"),
        "B": (bandwidth, "B/s"),
        "eta_m": share,
        "k": operator.kernels,
        "start": (choice.start, "s"),
    }
    if operator.step_kind:
        return formula(
            "max(bytes / (B eta_m), N t / S) + k start, N elements that S multiprocessors make "
            "one by one, k kernels with a start each",
            symbols,
            N=operator.steps,
            t=(getattr(choice, f"{operator.step_kind}_time"), "s"),
            S=machine.device.multiprocessors,
            source=STEPPED,
            origins=partial(_stream_origins, operator, machine),
        )
    return formula(
        "bytes / (B eta_m) + k start, k kernels with a start each",
        symbols,
        source=ROOFLINE,
        origins=partial(_stream_origins, operator, machine),
    )


def _core_origins(
    operator: FusedAttention, machine: KernelMachine, rate: CoreRate
) -> dict[str, Any]:
    peak, efficiency = explain_attention(operator, machine, rate)
    return {"peak": (peak, "FLOP/s"), "eta": efficiency}


def _stream_origins(operator: Stream, machine: KernelMachine) -> dict[str, Any]:
    choice = machine.choice
    bandwidth, share = explain_streaming(operator, machine)
    symbols: dict[str, Any] = {
        "B": (bandwidth, "B/s"),
        "eta_m": share,
        "start": (attribute(choice, "start"), "s"),
    }
    if operator.step_kind:
        symbols |= {
            "t": (attribute(choice, f"{operator.step_kind}_time"), "s"),
            "S": attribute(machine.device, "multiprocessors"),
        }
    return symbols
