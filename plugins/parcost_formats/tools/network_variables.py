"""Variables of NCCL in a script, which decide the way that messages take.

A fabric has the bandwidth of one way. A script that closes it is listed with what to choose.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from parcost import ImportedKey, Translation
from parcost_formats.tools.shell.commands import SCRIPT_ENDINGS

_MOST_OF_A_NODE = 8  # devices, in most fabrics of the catalogue
_WITHIN = "NCCL_P2P_DISABLE"
_BETWEEN = "NCCL_IB_DISABLE"
_REASONS = {
    _WITHIN: "messages within a node go through the memory of the host: use a fabric whose node "
    "has this bandwidth",
    _BETWEEN: "messages between nodes go over TCP, unless another network is used: use a fabric "
    "whose network has this bandwidth",
}
_SET = re.compile(
    rf"^(?:[^#\n]|#(?=\S))*?\b({'|'.join(_REASONS)})[\"']?\s*[=:]\s*[\"']?(?:1|true)\b",
    re.MULTILINE | re.IGNORECASE,
)


def list_network_variables(name: str, text: str, found: Translation) -> Iterator[ImportedKey]:
    """Yield the variables in a script that close a way of the messages of a job."""
    if not name.endswith(SCRIPT_ENDINGS) and not text.startswith("#!"):
        return
    devices = next(
        (
            one.value
            for block in found.blocks
            for one in block.settings
            if block.kind == "cluster" and one.name == "devices"
        ),
        "",
    )
    one_node = devices.isdecimal() and int(devices) <= _MOST_OF_A_NODE
    seen: set[str] = set()
    for match in _SET.finditer(text):
        key = match[1].upper()
        alone = devices == "1" or (key == _BETWEEN and one_node)
        if key not in seen and not alone:
            seen.add(key)
            yield ImportedKey(
                name=match[1], start=match.start(1), end=match.end(1), reason=_REASONS[key]
            )
