"""``nvidia-smi topo -m``, read as the matching fabric of the catalogue.

The matrix has kinds of links, but no bandwidth. The NVLink generation is assumed from the number of
links. The bandwidth of NICs is listed as missing.
"""

from __future__ import annotations

from typing import Any

from parcost import (
    ImportedBlock,
    ImportedKey,
    ImportedValue,
    Importer,
    ImportFile,
    Translation,
    hookimpl,
)
from parcost_formats.tools.file_importer import FileImporter
from parcost_formats.tools.tables import table
from parcost_formats.tools.topology_matrix import Matrix, MatrixError, read_matrix

TOOL = "topology"
FABRIC = "topology"


class TopologyMatrix(FileImporter):
    """Matrices of ``nvidia-smi topo -m``."""

    name = TOOL
    title = str(table(TOOL)["title"])
    source = str(table(TOOL)["source"])

    def recognizes(self, name: str, text: str) -> bool:  # noqa: ARG002
        """Return whether the text has a matrix of devices."""
        try:
            read_matrix(text)
        except MatrixError:
            return False
        return True

    def read_file(self, file: ImportFile) -> Translation:
        """Return the fabric of the node."""
        matrix = read_matrix(file.text)
        preset = _preset(matrix)
        ignored = [
            ImportedKey(
                name=word.text,
                start=word.start,
                end=word.end,
                reason="the NUMA placement of a rank has no effect",
            )
            for word in matrix.rest
        ]
        blocks, missing = _fabric(matrix, preset)
        start, end = matrix.header
        use = ImportedValue(
            name="use",
            value=f"catalog.fabrics.{preset['fabric']}",
            key=preset["code"],
            start=start,
            end=end,
            assumption="; ".join(filter(None, (preset["why"], matrix.assumption))),
        )
        choice = ImportedValue(name="fabric", value=FABRIC, key="GPU", start=start, end=end)
        cluster = ImportedBlock(kind="cluster", settings=(choice,))
        return Translation(blocks=[*blocks, cluster], uses=[use], ignored=ignored, missing=missing)


def _preset(matrix: Matrix) -> dict[str, Any]:
    """Return the catalogue fabric that matches the topology.

    Raises:
        MatrixError: The catalogue has none.
    """
    known = table(TOOL)
    links = {code for code in matrix.links() if code.startswith("NV")}
    groups = matrix.groups()
    count = len(matrix.devices)
    if not links:
        paths = " and ".join(sorted(matrix.links())) or "one device"
        return {**known["pcie"]["fabric"], "code": paths}
    code = " and ".join(sorted(links))
    even = len(links) == 1 and all(_is_full(matrix, group) for group in groups)
    entry = None
    if even and len(groups) == 1:
        entry = known["switched"].get(f"{code}-{count}")
    elif even and {len(group) for group in groups} == {2}:
        entry = known["pairs"].get(code)
    elif len(groups) == 1 and links <= {*known["mesh"]["codes"]} and count == 8:
        entry = known["mesh"]["fabric"]
    if entry is not None:
        return {**entry, "code": code}
    message = f"no fabric of the catalogue has {count} devices in {_sizes(groups)} by {code}"
    help = (
        "write one: `fabric NAME { level node { size = "
        f"{len(groups[0])} devices, bandwidth = ..., latency = ... }} ... }}`"
    )
    raise MatrixError(message, *matrix.header, help)


def _is_full(matrix: Matrix, group: list[str]) -> bool:
    """Return whether NVLink joins every pair of a group."""
    return all(
        matrix.between(one, other).startswith("NV")
        for one in group
        for other in group
        if one != other
    )


def _sizes(groups: list[list[str]]) -> str:
    sizes = sorted({len(group) for group in groups})
    return f"groups of {' and '.join(map(str, sizes))}"


def _fabric(
    matrix: Matrix, preset: dict[str, Any]
) -> tuple[list[ImportedBlock], list[ImportedKey]]:
    """Return the fabric with the sizes of the matrix, and the keys that the matrix lacks."""
    start, end = matrix.header
    place: dict[str, Any] = {"start": start, "end": end}
    count, name = len(matrix.devices), preset["fabric"]
    levels: list[ImportedBlock] = []
    missing: list[ImportedKey] = []
    if "level" not in preset:  # pairs
        size = ImportedValue(name="size", value=f"{count // 2} units", key="GPU", **place)
        levels.append(ImportedBlock(kind="level", label="node", settings=(size,)))
    elif preset["level"] == "node":
        size = ImportedValue(name="size", value=f"{count} devices", key="GPU", **place)
        levels.append(ImportedBlock(kind="level", label="node", settings=(size,)))
    else:
        why = f"a node is part of a larger domain; the domain size is that of `{name}`"
        missing.append(ImportedKey(name=f"level {preset['level']}: size", reason=why, **place))
    close = matrix.close_cards() if matrix.has_cards() else []
    cards = close or matrix.cards
    if cards and preset.get("level", "node") == "node":
        ports = ImportedValue(
            name="ports",
            value=str(len(cards)),
            key="NIC",
            assumption=""
            if close
            else "no network card is close to a device, so all cards are counted"
            if matrix.has_cards()
            else "rows of devices are missing, so all network cards are counted",
            **place,
        )
        levels.append(ImportedBlock(kind="level", label="network", settings=(ports,)))
    why = f"the matrix does not give the rate of a network card; the rate of `{name}` is used"
    missing.append(ImportedKey(name="level network: bandwidth", reason=why, **place))
    fabric = ImportedBlock(kind="fabric", label=f"{FABRIC} extends {name}", blocks=levels)
    return [fabric], missing


@hookimpl
def importers() -> list[Importer]:
    """Return the importer of matrices of ``nvidia-smi topo -m``."""
    return [TopologyMatrix()]
