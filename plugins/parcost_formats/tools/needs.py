"""Inputs that a job needs besides a file of another tool, with options to copy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from attrs import evolve

from parcost import ImportFile, Translation
from parcost_formats.tools.file_importer import FileImporter
from parcost_formats.tools.network_variables import list_network_variables
from parcost_formats.tools.null_keys import ask_for_nulls
from parcost_formats.tools.reserved_nodes import check_reserved_nodes

NEEDS: Mapping[str, str] = {
    "cluster.device": "--use catalog.devices.h100_sxm",
    "cluster.fabric": "--use catalog.fabrics.hgx_h100",
    "cluster.devices": "--set cluster.devices=64",
    "training.model": "--use catalog.models.llama31_8b",
    "training.precision": "--use catalog.precisions.bf16",
    "training.sequence": "--set training.sequence=8192",
    "training.global_batch": "--set 'training.global_batch=512 sequences'",
}


#: What answers the note about nodes of another size.
NODE_SIZE = "node.size"
_USUAL = 8  # devices of a node in most fabrics of the catalogue


def other_nodes(nodes: int, each: int) -> str:
    """Return a note on nodes of *each* devices; "" for nodes of eight devices, or a part of a node.

    >>> other_nodes(2, 4)
    'nodes of 4 devices: add --set node.size=4 if the fabric has other nodes'
    """
    if each == _USUAL or (nodes == 1 and each < _USUAL):
        return ""
    count = f"{each} devices" if each > 1 else "1 device"
    return f"nodes of {count}: add --set {NODE_SIZE}={each} if the fabric has other nodes"


def ask_for_devices(
    ask: Callable[..., None], reason: str, answers: Sequence[str], nodes: int | None
) -> None:
    """Ask for the devices by the function *ask* of a draft; *nodes* is None if it is unknown.

    The device count of a catalogue system is not offered as an answer for several nodes.
    """
    several = nodes is not None and nodes > 1
    count = (nodes or 1) * _USUAL
    ask(
        "cluster.devices",
        f"{reason}; there are {nodes} nodes" if several else reason,
        [*answers, f"--set cluster.devices={count}"],
        partial=several,
    )


class IncompleteJobImporter(FileImporter):
    """An importer of files that do not describe the machine."""

    needs = NEEDS

    def read(self, file: ImportFile) -> Translation:
        """Return the blocks of a file, with variables of its script that change the network."""
        found = check_reserved_nodes(file, super().read(file))
        found = ask_for_nulls(file, found, super().read, self.nullable, self.factors)
        small = any(one.attribute == NODE_SIZE for one in (*found.unknown, *found.missing))
        keys = [*list_network_variables(file, found, small_nodes=small)]
        return evolve(found, missing=[*found.missing, *keys]) if keys else found

    @property
    def nullable(self) -> Collection[str]:
        """Return the keys that may be null, because the tool then uses a value of its own."""
        return ()

    @property
    def factors(self) -> Mapping[str, str]:
        """Return attributes by the keys that are one of their factors; the tool does not accept
        null for these keys.
        """
        return {}

    def option_for(self, attribute: str, names: Collection[str]) -> str:
        """Return the option for an attribute; the fabric follows from the device of the job.

        If its device has no fabric, or several devices have different fabrics, the name is a
        placeholder.
        """
        fabrics = [name.removeprefix("fabric.") for name in names if name.startswith("fabric.")]
        known = any(name.startswith("device.") for name in names)
        if attribute != "cluster.fabric" or not known:
            return super().option_for(attribute, names)
        return f"--use catalog.fabrics.{fabrics[0] if len(fabrics) == 1 else 'NAME'}"
