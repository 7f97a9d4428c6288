"""Variables of NCCL in a script, which select the path of messages.

A fabric has the bandwidth of one path. If a variable disables this path, it is listed with the
fabric to choose.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from parcost import ImportedKey, ImportFile, Translation
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


#: A file that a script reads into its own shell.
_SOURCED = re.compile(r"^[ \t]*(?:source|\.)[ \t]+[\"']?([^\s\"';&|]+)", re.MULTILINE)


def list_network_variables(
    file: ImportFile, found: Translation, *, small_nodes: bool
) -> Iterator[ImportedKey]:
    """Yield the variables in a script that disable a path of the messages of a job.

    *small_nodes* says that the job has several nodes with fewer devices than most have. A variable
    of a sourced file has the place of the line that sources it.
    """
    text = file.text
    if not file.name.endswith(SCRIPT_ENDINGS) and not text.startswith("#!"):
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
    one_node = devices.isdecimal() and int(devices) <= _MOST_OF_A_NODE and not small_nodes
    matches = [(match[1], match.start(1), match.end(1)) for match in _SET.finditer(text)]
    for line in _SOURCED.finditer(text):
        path = line[1].removeprefix("./")
        other = file.neighbor(path) or file.neighbor(path.rpartition("/")[2]) or ""
        matches += ((match[1], line.start(1), line.end(1)) for match in _SET.finditer(other))
    seen: set[str] = set()
    for name, start, end in matches:
        key = name.upper()
        alone = devices == "1" or (key == _BETWEEN and one_node)
        if key not in seen and not alone:
            seen.add(key)
            yield ImportedKey(name=name, start=start, end=end, reason=_REASONS[key])
