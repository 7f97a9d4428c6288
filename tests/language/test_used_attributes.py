"""Which attributes the values of other attributes are computed from, by the binder."""

import parcost
from parcost.search.attributes import find

from ..rows import try_each

SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
let groups = layout.pp
cluster { devices = 8 * groups }
layout { pp = 2, zero = 1, sequence_parallel = on }
training { sequence = 8192, global_batch = 64 sequences }
"""


@try_each(
    "path, used",
    [
        ("layout.pp", True),  # by the devices, through a `let`
        ("layout.tp", True),  # the default of `overlap.chunks`
        ("layout.zero", False),
        ("layout.sequence_parallel", False),
        ("h100_sxm.memory", True),  # studies share the block, so its readers are not known
    ],
)
def test_the_binder_knows_what_others_are_computed_from(path: str, used: bool) -> None:
    (scenario,) = parcost.load_text(SPEC)
    assert scenario.binder.is_used(*find(scenario.first, path)) is used
