"""A spec of two studies, and places in texts."""

from __future__ import annotations

SPEC = """\
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16

let nodes = 2
cluster { devices = nodes * 8 }
layout {
  tp   = 2
  zero = 1
}
training { sequence = 4096, micro_batch = 1, global_batch = 32 sequences }

study wide { layout { tp = 4 } }
study narrow {
  layout { tp = 1 }
  expect { mfu > 1 % }
}
"""


def offset_of(text: str, part: str, delta: int = 0) -> int:
    """Return where *part*, which stands there once, begins in *text*."""
    assert text.count(part) == 1, (part, text.count(part))
    return text.index(part) + delta


def place_of(text: str, part: str, delta: int = 0) -> tuple[int, int]:
    """Return the line and the column of the same, for texts of characters of one unit."""
    offset = offset_of(text, part, delta)
    line = text.count("\n", 0, offset)
    return line, offset - (text.rfind("\n", 0, offset) + 1)
