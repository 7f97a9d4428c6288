"""What kernel models agree on: the attention core and streams, each at a share of a rate."""

from __future__ import annotations

from parcost import Formula, Real, Study
from parcost.numeric import maximum
from parcost_plugins.kernels.rates import Machine, attention, padding, streaming
from parcost_plugins.vocabulary import FusedAttention, KernelChoice, Stream

ROOFLINE = "Williams et al. 2009, roofline"
STEPPED = f"{ROOFLINE}, with a ceiling of instructions"


def core(operator: FusedAttention, study: Study) -> tuple[Real, Formula]:
    """Price the attention core."""
    rate = attention(operator, study)
    padded = padding(operator, study)
    formula = Formula(
        text="p (1 + f / k) FLOPs / (peak eta), p for heads that are padded to the size "
        "of a kernel, k keys that a query attends to and f that a block of them costs beside",
        inputs={
            "p": (padded, ""),
            "FLOPs": (operator.flops, "FLOP"),
            "k": (rate.keys, ""),
            "f": (rate.fill, ""),
            "peak": (rate.peak, "FLOP/s"),
            "eta": (rate.efficiency, ""),
        },
        source=operator.source,
    )
    done = padded * rate.work * operator.flops
    return done / (rate.peak * rate.efficiency), formula


def stream(operator: Stream, study: Study) -> tuple[Real, Formula]:
    """Price an operator that waits for memory, or makes its elements one by one."""
    choice, machine = study[KernelChoice], Machine.of(study)
    start = choice.start
    bandwidth, share = streaming(operator, machine)
    moved = operator.bytes_ / (bandwidth * share)
    if operator.step_kind:
        each = getattr(choice, f"{operator.step_kind}_time")
        units = machine.device.multiprocessors
        made = maximum(moved, operator.steps * each / units)
        return made + operator.kernels * start, Formula(
            text="max(bytes / (B eta_m), N t / S) + k start, N elements that S multiprocessors "
            "make one by one, k kernels that each fill and drain the device",
            inputs={
                "bytes": (operator.bytes_, "B"),
                "B": (bandwidth, "B/s"),
                "eta_m": (share, ""),
                "N": (operator.steps, ""),
                "t": (each, "s"),
                "S": (units, ""),
                "k": (operator.kernels, ""),
                "start": (start, "s"),
            },
            source=STEPPED,
        )
    formula = Formula(
        text="bytes / (B eta_m) + k start, k kernels that each fill and drain the device",
        inputs={
            "bytes": (operator.bytes_, "B"),
            "B": (bandwidth, "B/s"),
            "eta_m": (share, ""),
            "k": (operator.kernels, ""),
            "start": (start, "s"),
        },
        source=ROOFLINE,
    )
    return moved + operator.kernels * start, formula
