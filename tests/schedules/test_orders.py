"""What devices do, op by op: small pipelines as they are drawn in the papers."""

from __future__ import annotations

from typing import Any

from parcost import Op, Pair
from parcost_plugins.schedules.interleaved import Interleaved

from ..rows import try_each


def read(line: str) -> list[Op | Pair]:
    """Read an order: ``F0.1`` is micro-batch 0 on stage 1, a joint sign makes a pair."""
    entries: list[Op | Pair] = []
    for word in line.split():
        ops = []
        for one in word.split("+"):
            kind = one.rstrip("0123456789.")
            batch, stage = one[len(kind) :].split(".")
            ops.append(Op(kind, int(batch), int(stage)))  # type: ignore[arg-type]
        entries.append(Pair(*ops) if len(ops) == 2 else ops[0])
    return entries


ORDERS = [
    ("gpipe", 2, 2, 1, ["F0.0 F1.0 BW0.0 BW1.0", "F0.1 F1.1 BW0.1 BW1.1"]),
    ("one_f_one_b", 3, 4, 1, [  # Narayanan et al. 2021, figure 3
        "F0.0 F1.0 F2.0 BW0.0 F3.0 BW1.0 BW2.0 BW3.0",
        "F0.1 F1.1 BW0.1 F2.1 BW1.1 F3.1 BW2.1 BW3.1",
        "F0.2 BW0.2 F1.2 BW1.2 F2.2 BW2.2 F3.2 BW3.2",
    ]),
    ("one_f_one_b", 3, 1, 1, ["F0.0 BW0.0", "F0.1 BW0.1", "F0.2 BW0.2"]),
    ("interleaved", 2, 4, 2, [  # the same, figure 4
        "F0.0 F1.0 F0.2 F1.2 F2.0 BW0.2 F3.0 BW1.2 F2.2 BW0.0 F3.2 BW1.0 BW2.2 BW3.2 BW2.0 BW3.0",
        "F0.1 F1.1 F0.3 BW0.3 F1.3 BW1.3 F2.1 BW0.1 F3.1 BW1.1 F2.3 BW2.3 F3.3 BW3.3 BW2.1 BW3.1",
    ]),
    ("breadth_first", 2, 2, 2, [
        "F0.0 F1.0 F0.2 F1.2 BW0.2 BW1.2 BW0.0 BW1.0",
        "F0.1 F1.1 F0.3 F1.3 BW0.3 BW1.3 BW0.1 BW1.1",
    ]),
    ("chimera", 4, 4, 1, [  # Li and Hoefler 2021, figure 3
        "F0.0 F1.0 F2.3 BW2.3 F3.3 BW3.3 BW0.0 BW1.0",
        "F0.1 F2.2 F1.1 F3.2 BW2.2 BW0.1 BW3.2 BW1.1",
        "F2.1 F0.2 F3.1 F1.2 BW0.2 BW2.1 BW1.2 BW3.1",
        "F2.0 F3.0 F0.3 BW0.3 F1.3 BW1.3 BW2.0 BW3.0",
    ]),
    ("chimera", 2, 4, 1, [
        "F0.0 F1.1 BW1.1 BW0.0 F2.0 F3.1 BW3.1 BW2.0",
        "F1.0 F0.1 BW0.1 BW1.0 F3.0 F2.1 BW2.1 BW3.0",
    ]),
    ("zb_h1", 2, 3, 1, [  # as many F first as 1F1B, W at once on the first stage
        "F0.0 F1.0 B0.0 W0.0 F2.0 B1.0 W1.0 B2.0 W2.0",
        "F0.1 B0.1 F1.1 B1.1 W0.1 F2.1 B2.1 W1.1 W2.1",
    ]),
    ("zb_h2", 2, 3, 1, [
        "F0.0 F1.0 F2.0 B0.0 W0.0 B1.0 W1.0 B2.0 W2.0",
        "F0.1 B0.1 F1.1 B1.1 F2.1 B2.1 W0.1 W1.1 W2.1",
    ]),
    ("zb_v", 2, 3, 2, [  # the loops of PyTorch's ScheduleZBVZeroBubble, by hand
        ("F0.0 F1.0 F2.0 F0.3 B0.3 W0.3 F1.3 B1.3 W1.3 B0.0 W0.0 F2.3 B2.3 W2.3 B1.0 W1.0 "
        "B2.0 W2.0"),
        ("F0.1 F0.2 F1.1 F1.2 B0.2 W0.2 F2.1 B0.1 W0.1 F2.2 B1.2 W1.2 B1.1 B2.2 B2.1 W1.1 "
        "W2.2 W2.1"),
    ]),
    ("dualpipe_v", 2, 4, 2, [  # DeepSeek's eight steps, by hand
        ("F0.0 F1.0 F2.0 F0.3 B0.3 W0.3 F1.3 F3.0+BW1.3 F2.3+BW0.0 BW2.3 F3.3+BW1.0 BW3.3 "
        "B2.0 W2.0 B3.0 W3.0"),
        ("F0.1 F0.2 F1.1 F1.2 F2.1 BW0.2 F2.2+BW0.1 F3.1+BW1.2 F3.2+BW1.1 BW2.2 BW2.1 "
        "B3.2 B3.1 W3.2 W3.1"),
    ]),
    ("dualpipe", 2, 4, 1, [
        "F0.0 F2.1 F1.0 BW2.1 F3.1+BW0.0 BW3.1 B1.0 W1.0",
        "F2.0 F0.1 F3.0 BW0.1 F1.1+BW2.0 BW1.1 B3.0 W3.0",
    ]),
]  # fmt: skip


@try_each("name, p, m, v, lines", ORDERS)
def test_devices_do_what_is_drawn(
    name: str, p: int, m: int, v: int, lines: list[str], shipped: Any
) -> None:
    found = shipped[name].order(p, m, v)
    assert [list(device) for device in found] == [read(line) for line in lines]


def test_groups_of_three_on_two_devices() -> None:
    found = Interleaved(3).order(2, 3, 2)
    assert found == [
        read("F0.0 F1.0 F2.0 F0.2 F1.2 F2.2 BW0.2 BW1.2 BW2.2 BW0.0 BW1.0 BW2.0"),
        read("F0.1 F1.1 F2.1 F0.3 BW0.3 F1.3 BW1.3 F2.3 BW2.3 BW0.1 BW1.1 BW2.1"),
    ]


def test_zb_v_runs_what_is_left_of_its_pattern_with_fewer_micro_batches(zb_v: Any) -> None:
    for p in (2, 3, 4):
        pattern = zb_v.order(p, 2 * p - 1, 2)
        for m in range(1, 2 * p):
            left = [[op for op in device if op.micro_batch < m] for device in pattern]
            assert zb_v.order(p, m, 2) == left
            assert sum(len(device) for device in left) == 3 * m * 2 * p
